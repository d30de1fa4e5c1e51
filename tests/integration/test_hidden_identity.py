"""Servers that do not tell who they are: still none is counted twice, and one that forgot is still
noticed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import ConfigurationError, QuorumUnreachable, Redlock
from tests.support.eventually import eventually
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer

ACL_DOC = Path(__file__).parents[2] / "docs" / "acl.md"
KEYS_DOC = ACL_DOC.with_name("keys.md")


@pytest.fixture
def hiding(start_server: Callable[..., LocalServer]) -> Callable[[], LocalServer]:
    """Start a server whose clients may not ask for INFO."""

    def start() -> LocalServer:
        server = start_server()
        server.command("ACL", "SETUSER", "default", "-info")
        return server

    return start


async def test_the_same_server_under_two_names_is_refused_at_open(
    hiding: Callable[[], LocalServer],
) -> None:
    one, other = hiding(), hiding()
    port = one.url.rpartition(":")[2]
    with pytest.raises(
        ConfigurationError,
        match=rf":{port} and (localhost|127\.0\.0\.1):{port} are the same server",
    ):
        await Redlock(
            [one.url, f"redis://localhost:{port}", other.url],
            node_timeout=5.0,
            connect_timeout=10.0,
        ).open()


async def test_a_user_with_the_keys_of_the_docs_cannot_name_a_server_twice(
    start_server: Callable[..., LocalServer],
) -> None:
    page = KEYS_DOC.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(aioredlock_ng:[^`]+)` \| (?!channel)", page, re.MULTILINE)
    keys = [f"~{re.sub('<[^>]+>', '*', key)}" for key in listed]
    one, other = start_server(), start_server()
    for server in (one, other):
        user = ["on", ">word", "~lock:*", *keys, "&*", "+@all", "-info"]
        server.command("ACL", "SETUSER", "app", *user)
    urls = [
        f"redis://app:word@{address}"
        for address in (one.address, f"localhost:{one.port}", other.address)
    ]
    with pytest.raises(ConfigurationError, match="are the same server"):
        await Redlock(urls, key_format="lock:{name}", node_timeout=5.0, connect_timeout=10.0).open()


async def test_a_duplicate_node_is_refused_as_soon_as_its_identity_can_be_probed(
    hiding: Callable[[], LocalServer],
) -> None:
    one, other = hiding(), hiding()
    one.command("ACL", "SETUSER", "default", "-set")
    async with Redlock(
        [one.url, f"redis://localhost:{one.port}", other.url], recovery_guard=None
    ) as redlock:
        await eventually(lambda: [node.state for node in redlock.nodes] == ["up"] * 3)
        one.command("ACL", "SETUSER", "default", "+set")
        await eventually(lambda: redlock.nodes[1].state == "refused")
        assert "are the same server" in redlock.nodes[1].reason
        assert redlock.nodes[0].state == "up"


async def test_servers_that_hide_their_run_id_serve_and_keep_no_probe(
    hiding: Callable[[], LocalServer], caplog: pytest.LogCaptureFixture
) -> None:
    servers = [hiding() for _ in range(3)]
    async with Redlock([server.url for server in servers]) as redlock:
        async with redlock.lock("a") as lease:
            assert lease.fence is not None
        await eventually(lambda: [node.state for node in redlock.nodes] == ["up"] * 3)
        for server in servers:
            await eventually(lambda server=server: probes(server) == b"0")
    said = [
        record.getMessage()
        for record in caplog.records
        if "identity unknown" in record.getMessage()
    ]
    assert len(said) == 3, "once for each"


@pytest.mark.slow
async def test_a_flushed_server_that_hides_its_run_id_is_quarantined(
    hiding: Callable[[], LocalServer],
) -> None:
    servers = [hiding() for _ in range(3)]
    async with Redlock([server.url for server in servers], ttl=3.0, max_ttl=3.0) as redlock:
        servers[0].command("FLUSHALL")
        await eventually(lambda: redlock.nodes[0].state == "quarantined")
        await eventually(lambda: redlock.nodes[0].state == "up")


@pytest.mark.parametrize("hidden_first", [False, True])
async def test_clients_with_and_without_the_right_to_the_run_id_share_a_set(
    start_server: Callable[..., LocalServer], hidden_first: bool
) -> None:
    servers = [start_server() for _ in range(3)]
    for server in servers:
        server.command(
            "ACL", "SETUSER", "app", "on", ">secret", "allkeys", "allchannels", "+@all", "-info"
        )
    urls = [server.url for server in servers]
    hidden = [url.replace("redis://", "redis://app:secret@") for url in urls]
    first, second = (hidden, urls) if hidden_first else (urls, hidden)
    async with Redlock(first, ttl=3.0, max_ttl=3.0) as one:
        assert (await one.lock("a").acquire()).valid
        async with Redlock(second, ttl=3.0, max_ttl=3.0) as other:
            # A marker that names no process is a foreign one, once.
            for redlock in (one, other) * 2:
                await eventually(
                    lambda redlock=redlock: {node.state for node in redlock.nodes} == {"up"}
                )
                await (await redlock.lock("b", blocking_timeout=20).acquire()).release()
            assert servers[0].command("GET", "aioredlock_ng:marker").partition(b":")[0].strip(b"0")


async def test_the_first_client_with_the_right_to_the_run_id_stops_the_grants_to_all_clients(
    start_server: Callable[..., LocalServer],
) -> None:
    servers = [start_server() for _ in range(3)]
    for server in servers:
        server.command("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-info")
    urls = [server.url for server in servers]
    hidden = [url.replace("redis://", "redis://app:secret@") for url in urls]
    async with Redlock(hidden, node_timeout=5.0) as one:
        lease = await one.lock("a").acquire()
        async with Redlock(urls):
            await eventually(lambda: {node.state for node in one.nodes} == {"quarantined"})
            with pytest.raises(QuorumUnreachable):
                await one.lock("b").try_acquire()
            await lease.extend()
    page = " ".join(ACL_DOC.read_text(encoding="utf-8").split())
    assert "the first client with the right quarantines all nodes" in page
    assert "no client gets a lock. Leases that are held are still renewed." in page


def probes(server: LocalServer) -> bytes:
    return server.command("EVAL", "return #redis.call('KEYS', 'aioredlock_ng:probe:*')", "0")


async def test_a_duplicate_of_a_node_that_hides_its_run_id_is_refused_when_it_comes_later(
    hiding: Callable[[], LocalServer], start_server: Callable[..., LocalServer]
) -> None:
    one, other = hiding(), start_server()
    one.command("ACL", "SETUSER", "telling", "on", ">secret", "allkeys", "allchannels", "+@all")
    async with Proxy(one.url.replace("redis://", "redis://telling:secret@")) as late:
        await late.refuse()
        async with Redlock([one.url, late.url, other.url], recovery_guard=None) as redlock:
            await eventually(lambda: redlock.nodes[0].state == "up")
            await late.accept()
            await eventually(lambda: redlock.nodes[1].state == "refused")
            assert "are the same server" in redlock.nodes[1].reason
