"""Every form of a connection that aioredlock takes, each against a real server, and those that
cannot be taken.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis

from aioredlock_ng import ConfigurationError
from aioredlock_ng.compat.aioredlock import (
    Aioredlock,
    LockRuntimeError,
    Sentinel,
    SentinelConfigError,
)
from aioredlock_ng.testing import LocalServer, free_port
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import TLSFiles
    from tests.support.node_set import NodeSet
    from tests.support.sentinel import SentinelSet

    Make = Callable[..., Aioredlock]

SECRET = "p:w@d!?x"


async def serves(manager: Aioredlock, client: Redis) -> None:
    """A lock of the manager is where the client sees it."""
    async with client:
        lock = await manager.lock("order")
        assert await client.get("order") == lock.id.encode()
        await manager.unlock(lock)
        assert not await client.exists("order")


@pytest.mark.parametrize(
    "form",
    [
        lambda host, port: {"host": host, "port": port},
        lambda host, port: {
            "host": host,
            "port": str(port),
            "password": None,
            "minsize": 1,
            "maxsize": 5,
            "encoding": "utf-8",
        },
        lambda host, port: (host, port),
        lambda host, port: [host, port],
        lambda host, port: f"redis://{host}:{port}",
        lambda host, port: f"redis://{host}:{port}/0?encoding=utf-8&timeout=2",
        lambda host, port: Redis(host=host, port=port),
    ],
    ids=[
        "dict",
        "dict-with-pool-settings",
        "tuple",
        "list",
        "url",
        "url-with-encoding",
        "client-of-redis-py",
    ],
)
async def test_a_node_can_be_given_by_its_address(
    form: Callable[[str, int], Any], start_server: Callable[..., LocalServer], manager_of: Make
) -> None:
    server = start_server()
    connection = form("127.0.0.1", server.port)
    await serves(manager_of([connection], retry_count=100), Redis.from_url(server.url))
    if isinstance(connection, Redis):
        await connection.aclose()


@pytest.mark.parametrize(
    "form",
    [
        lambda port: {"host": "127.0.0.1", "port": port, "db": 3},
        lambda port: f"redis://127.0.0.1:{port}/3?encoding=utf-8",
        lambda port: f"redis://127.0.0.1:{port}?db=3",
    ],
    ids=["dict", "path", "query"],
)
async def test_a_node_can_be_given_with_a_database(
    form: Callable[[int], Any], start_server: Callable[..., LocalServer], manager_of: Make
) -> None:
    server = start_server()
    await serves(
        manager_of([form(server.port)], retry_count=100), Redis.from_url(f"{server.url}/3")
    )


@pytest.mark.parametrize(
    ("form", "word"),
    [
        (lambda port, word: {"host": "127.0.0.1", "port": port, "password": word}, SECRET),
        (
            lambda port, word: f"redis://:{word}@127.0.0.1:{port}/0",
            "p%w@d!",
        ),  # taken as it is written, as aioredis does
        (lambda port, word: f"redis://127.0.0.1:{port}/0?password={word}", "p4ssw0rd"),
    ],
    ids=["dict", "url", "query"],
)
async def test_a_node_can_be_given_with_a_password_that_is_never_shown(
    form: Callable[[int, str], Any],
    word: str,
    start_server: Callable[..., LocalServer],
    manager_of: Make,
) -> None:
    server = start_server(password=word)
    manager = manager_of([form(server.port, word)], retry_count=100)
    await serves(manager, Redis(port=server.port, password=word))
    assert word not in repr(manager)
    assert str(server.port) in repr(manager)


@pytest.mark.parametrize("scheme", ["", "unix://"])
async def test_a_node_can_be_given_by_a_unix_socket(
    scheme: str, start_server: Callable[..., LocalServer], manager_of: Make
) -> None:
    server = start_server(unix_socket=True)
    await serves(
        manager_of([f"{scheme}{server.socket_path}"], retry_count=100), Redis.from_url(server.url)
    )


async def test_a_node_can_be_given_with_a_tls_context(
    tls_server: LocalServer, tls_files: TLSFiles, manager_of: Make
) -> None:
    context = ssl.create_default_context(cafile=str(tls_files.ca))
    manager = manager_of(
        [{"host": "localhost", "port": tls_server.port, "ssl": context}], retry_count=100
    )
    await serves(manager, Redis.from_url(tls_server.url))


@pytest.mark.parametrize(
    "form", ["rediss://localhost:{port}/0", "redis://localhost:{port}/0?ssl=true"]
)
async def test_tls_of_a_url_trusts_the_authorities_of_the_system_only(
    form: str, tls_server: LocalServer, manager_of: Make
) -> None:
    manager = manager_of([form.format(port=tls_server.port)], retry_count=1)
    with pytest.raises(LockRuntimeError, match=r"(?i)certificate.verify.failed"):
        await manager.lock("order")


async def test_nodes_can_be_given_in_different_forms_together(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    first, second, third = (url.partition("://")[2].split(":") for url in three_nodes.urls)
    manager = manager_of(
        [
            (first[0], int(first[1])),
            {"host": second[0], "port": int(second[1])},
            f"redis://{':'.join(third)}/0",
        ]
    )
    async with await manager.lock("order"):
        await eventually(lambda: three_nodes.keys() == [{"order"}] * 3)
    # Sooner than a key that is left behind would go by itself.
    await eventually(lambda: three_nodes.keys() == [set()] * 3, within=5.0)


@pytest.mark.once
@pytest.mark.parametrize("form", ["tuple", "url", "dict", "list"])
async def test_a_sentinel_leads_to_the_primary(
    form: str, sentinel_set: SentinelSet, manager_of: Make
) -> None:
    host, port = sentinel_set.address
    sentinel = {
        "tuple": lambda: Sentinel((host, port), master="main", db=3),
        "url": lambda: Sentinel(f"redis://{host}:{port}/3?master=main&encoding=utf-8&minsize=2"),
        "dict": lambda: Sentinel(
            {"host": host, "port": port, "db": 3, "master": "another"}, master="main"
        ),
        # If no server listens at the first address, the next Sentinel is asked.
        "list": lambda: Sentinel([(host, free_port()), (host, port)], master="main", db=3),
    }[form]()
    await serves(
        manager_of([sentinel], retry_count=100), Redis.from_url(f"{sentinel_set.primary.url}/3")
    )


@pytest.mark.once
async def test_locks_go_to_the_new_primary_after_a_failover(
    sentinel_set: SentinelSet, manager_of: Make
) -> None:
    manager = manager_of([Sentinel(sentinel_set.address, master="main")], retry_count=100)
    async with await manager.lock("before"):
        assert sentinel_set.primary.command("EXISTS", "before") == b"1"
    sentinel_set.failover()
    lock = await manager.lock("after")
    assert sentinel_set.replica.command("GET", "after").decode() == lock.id
    await lock.release()


async def test_tls_to_a_primary_takes_the_context(
    tls_server: LocalServer, tls_files: TLSFiles, manager_of: Make
) -> None:
    """Use a stub instead of a Sentinel, because only the connection to the primary is tested."""
    context = ssl.create_default_context(cafile=str(tls_files.ca))
    sentinel = Sentinel(("127.0.0.1", free_port()), master="main", ssl_context=context)
    manager = manager_of([sentinel], retry_count=100)
    connector: Any = manager._access._redlock._given[0]
    pool = connector._pool

    async def found(_name: str) -> tuple[str, int]:
        return "localhost", tls_server.port

    pool.sentinel_manager.discover_master = found
    await serves(manager, Redis.from_url(tls_server.url))


@pytest.mark.parametrize(
    "given", [(), [], {}, {"port": 1}, "redis://localhost", "localhost", 7, None, {"host": "here"}]
)
def test_a_connection_without_a_sentinel_or_a_service_is_refused(given: Any) -> None:
    with pytest.raises(SentinelConfigError):
        Sentinel(given)


@pytest.mark.parametrize(
    "given",
    [
        ("here",),
        ("here", 1, 2),
        ("here", "port"),
        ("here", None),
        ("here", 65_536),
        ("here", 0),
        (7, 1),
        [("here", 1), ("there",)],
        [("here", "x")],
        ["here", "there"],
        {"host": "here", "port": "x"},
        {"host": "here", "port": None},
        {"host": "", "port": 1},
        {"host": "here", "db": "x"},
        {"host": "here", "timeout": "x"},
        f"redis://here:1/0?db={SECRET}",
    ],
    ids=repr,
)
def test_an_address_or_a_number_that_no_sentinel_can_have_is_refused(given: Any) -> None:
    with pytest.raises(SentinelConfigError) as caught:
        Sentinel(given, master="main")
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "given", [("here", "26380"), [("here", "26380")], {"host": "here", "port": "26380"}]
)
def test_the_port_of_a_sentinel_is_a_number(given: Any) -> None:
    assert Sentinel(given, master="main").connection == [("here", 26380)]


def test_arguments_of_a_sentinel_override_the_settings_in_its_url() -> None:
    url = "rediss://:{}@localhost:12345/2?master=whatever&ssl_cert_reqs={}"
    sentinel = Sentinel(url.format("old", "CERT_NONE"), master="everything", password="new", db=3)
    assert (sentinel.master, sentinel.password, sentinel.db, sentinel.connection) == (
        "everything",
        "new",
        3,
        [("localhost", 12345)],
    )
    assert isinstance(sentinel.ssl, ssl.SSLContext)
    assert (sentinel.ssl.verify_mode, sentinel.ssl.check_hostname) == (ssl.CERT_NONE, False)
    plain = Sentinel(url.format("old", "unknown"), ssl_context=False)
    assert (plain.master, plain.password, plain.db, plain.ssl) == ("whatever", "old", 2, False)
    optional = Sentinel(url.format("old", "CERT_OPTIONAL"))
    assert isinstance(optional.ssl, ssl.SSLContext)
    assert (optional.ssl.verify_mode, optional.ssl.check_hostname) == (ssl.CERT_OPTIONAL, True)
    assert "old" not in repr(optional)
    assert "new" not in repr(sentinel)


async def test_every_form_is_shown_without_secrets(manager_of: Make) -> None:
    connections = [
        ("here", 1),
        {"host": "there", "port": 2, "password": SECRET},
        f"redis://:{SECRET}@over:3/0",
        "unix:///run/redis.sock?password=hidden",
        "/run/another.sock",
        Sentinel(("asked", 4), master="main", password="hidden"),
        Redis(host="client", password="hidden"),
    ]
    told = repr(manager_of(connections))
    for shown in (
        "here:1",
        "there:2",
        "unix:///run/redis.sock",
        "/run/another.sock",
        "redis://…",
        "'main' at asked:4",
        "'Redis'",
    ):
        assert shown in told
    assert "p:w" not in told
    assert "hidden" not in told


# Looks like a pool of aioredis 1.3.1 to code that reads only the module of its class.
Pool = type("Redis", (), {"__module__": "aioredis.commands"})


@pytest.mark.parametrize(
    ("connections", "words"),
    [
        ([Pool()], "pool of aioredis.*the source of the pool"),
        ([object()], "must be a dict.*not object"),
        ([7], "not int"),
        ([("localhost",)], "not tuple"),
        ("redis://localhost", "must be a list"),
        ({"host": "localhost"}, "must be a list"),
        ([], "^redis_connections is empty"),
        (["http://localhost"], "not a URL of a Redis server"),
        (["redis://:word@localhost:x"], "not a URL of a Redis server"),
        (["redis://:ä：word@localhost"], "not a URL of a Redis server"),  # noqa: RUF001
        (["redis://:[word@x]@localhost"], "not a URL of a Redis server"),
        (["redis://localhost/word"], "the database of a connection must be a number from 0 to 15"),
        (["redis://:/word@localhost:6379"], "contains a '/', .*give a dict"),
        (["redis://:1/word@localhost:6379"], "contains a '/', .*give a dict"),
        (
            [{"host": "localhost", "db": "word"}],
            "the database of a connection must be a number from 0 to 15",
        ),
        *(
            ([connection], "the port of a connection must be a number from 0 to 65535")
            for connection in (
                ("localhost", "word"),
                {"host": "localhost", "port": "word"},
                {"host": "localhost", "port": None},
                ("localhost", -1),
                ("localhost", 65536),
                ("localhost", float("inf")),
            )
        ),
        ([{"host": "localhost", "nothing": 1}], "unknown settings.*nothing"),
        ([{"host": "localhost", "ssl": "yes"}], "'ssl' must be"),
        (["unix:///run/redis.sock?ssl=true"], "TLS over a Unix socket"),
        (
            [{"host": "localhost", "db": n} for n in (0, 1, 2)],
            "^redis_connections names the same server twice",
        ),
        (["redis://localhost:6379/0", ("localhost", 6379)], "the same server twice"),
    ],
)
def test_an_invalid_node_is_refused_when_the_manager_is_made(connections: Any, words: str) -> None:
    with (
        pytest.deprecated_call(),
        pytest.raises(ConfigurationError, match=f"(?s){words}") as caught,
    ):
        Aioredlock(connections)
    assert "word@" not in str(caught.value)


async def test_a_password_with_a_slash_goes_into_a_dict_and_is_not_decoded_in_a_url(
    manager_of: Make,
) -> None:
    """As with aioredis: who percent-encoded it, as was once advised here, was turned away by the
    server.
    """
    with LocalServer(password="1/word") as server:
        place = {"host": "127.0.0.1", "port": server.port}
        await (
            await manager_of([place | {"password": "1/word"}], retry_count=100).lock("order")
        ).release()
        with pytest.raises(LockRuntimeError, match="invalid username-password"):
            await manager_of([f"redis://:1%2Fword@{server.address}"], retry_count=1).lock("order")


async def test_one_server_with_two_names_is_refused_at_the_first_lock(
    one_node: NodeSet, manager_of: Make
) -> None:
    port = one_node.urls[0].rpartition(":")[2]
    manager = manager_of([("127.0.0.1", int(port)), ("localhost", int(port))])
    with pytest.raises(ConfigurationError, match="are the same server"):
        await manager.lock("order")
