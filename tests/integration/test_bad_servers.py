"""Servers that refuse requests or are no lock servers cause one clear error with their address.

A minority of them stops no lock.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
import redis

from aioredlock_ng import AcquireTimeout, ConfigurationError, LockLost, QuorumUnreachable, Redlock
from tests.integration.helpers import no_keys_left, state_of
from tests.support import server_versions
from tests.support.eventually import eventually
from tests.support.node_set import trust
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

    StartServer = Callable[..., LocalServer]
    Spoil = Callable[[], object]


@contextlib.asynccontextmanager
async def stranger(first_words: bytes | None, closes: bool = False) -> AsyncIterator[str]:
    """A server that speaks something else: its words, or silence, or the end of the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            if not closes:
                while await reader.read(4096):
                    if first_words is not None:
                        writer.write(first_words)
                        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def refuses(server: LocalServer, word: str) -> bool:
    try:
        server.command("PING")
    except RuntimeError as refusal:
        return word in str(refusal)
    except OSError:
        pass
    return False


@contextlib.asynccontextmanager
async def busy(server: LocalServer) -> AsyncIterator[None]:
    """A script that runs until it is killed."""

    def run() -> None:
        client = redis.Redis.from_url(server.url, socket_timeout=60)
        with client, contextlib.suppress(redis.ResponseError):
            client.eval("while true do end", 0)

    running = asyncio.create_task(asyncio.to_thread(run))
    try:
        await eventually(lambda: refuses(server, "BUSY"))
        yield
    finally:
        server.command("SCRIPT", "KILL")
        await running


@contextlib.asynccontextmanager
async def bad_node(kind: str, start_server: StartServer) -> AsyncIterator[tuple[str, Spoil]]:
    """A URL, and what to call once it is connected."""

    def started(*args: Any, **settings: Any) -> LocalServer:
        """A node of old: quarantine would hide what it refuses."""
        server = start_server(*args, **settings)
        trust(server)
        return server

    async with contextlib.AsyncExitStack() as stack:
        spoil: Spoil = lambda: None  # noqa: E731
        match kind:
            case "http":
                url = await stack.enter_async_context(
                    stranger(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                )
            case "silent":
                url = await stack.enter_async_context(stranger(None))
            case "closes":
                url = await stack.enter_async_context(stranger(None, closes=True))
            case "says ok to everything":
                url = await stack.enter_async_context(stranger(b"+OK\r\n"))
            case "loading":
                words = b"-LOADING Redis is loading the dataset in memory\r\n"
                url = await stack.enter_async_context(stranger(words))
            case "nobody":
                server = started()
                url = server.url
                server.stop()
            case "wrong type":
                server = started()
                server.command("HSET", "order", "field", "value")
                url = server.url
            case "password":
                url = f"redis://:wrong@{started(password='right').address}"
            case "no right":
                server = started()
                server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", "+@all", "-evalsha")
                url = f"redis://locks:word@{server.address}"
            case "memory":
                server = started(["--maxmemory", "1mb", "--maxmemory-policy", "noeviction"])
                fill(server)
                url = server.url
            case "replica":
                server = started()
                server.command("REPLICAOF", "127.0.0.1", str(started().port))
                url = server.url
            case "demoted":
                primary, server = start_server(), started()
                url, spoil = (
                    server.url,
                    lambda: server.command("REPLICAOF", "127.0.0.1", str(primary.port)),
                )
            case "busy":
                server = started(["--lua-time-limit", "50"])
                await stack.enter_async_context(busy(server))
                url = server.url
            case "cannot save":
                server = started(["--dbfilename", "taken", "--save", "3600 1000000"])
                # In good order it would not end before it has saved.
                stack.callback(server.crash)
                url, spoil = server.url, lambda: fail_to_save(server)
            case _:
                raise AssertionError(kind)
        yield url, spoil


def fill(server: LocalServer) -> None:
    script = "for i = 1, 1000 do redis.call('SET', 'filler:' .. i, string.rep('x', 10000)) end"
    # A script that has begun to write is let finish; the next one is refused.
    with contextlib.suppress(RuntimeError):
        server.command("EVAL", script, "0")
    with pytest.raises(RuntimeError, match="OOM"):
        server.command("SET", "more", "x")


def fail_to_save(server: LocalServer) -> None:
    """A directory lies where the snapshot is to be."""
    (server.socket_path.parent / "taken").mkdir()
    server.command("SET", "unsaved", "1")
    server.command("BGSAVE")
    while server.info()["rdb_bgsave_in_progress"] != "0":
        pass
    assert server.info()["rdb_last_bgsave_status"] == "err"


KINDS = {
    "http": "not the Redis protocol|Protocol",
    "silent": r"no connection within 0\.3 s",
    "closes": "(?i)closed|reset",
    "says ok to everything": r"no connection within 0\.3 s",
    "loading": "loading the dataset",
    "nobody": "(?i)connect",
    "wrong type": "WRONGTYPE",
    "password": "authentication failed",
    "no right": "NOPERM",
    "memory": "OOM",
    "replica": r"is a replica of 127\.0\.0\.1:\d+",
    "demoted": "READONLY|is a replica",
    "busy": "BUSY",
    "cannot save": "MISCONF",
}

for_each_kind = pytest.mark.parametrize("kind", KINDS)


async def the_error_names_it(redlock: Redlock, url: str, reason: str) -> None:
    # Time may be up in the middle of an attempt.
    with pytest.raises(QuorumUnreachable, match=f"{reason}|no answer in time") as caught:
        await asyncio.wait_for(redlock.lock("order", blocking_timeout=0.5).acquire(), 10)
    assert url.rpartition("@")[2].removeprefix("redis://") in str(caught.value)
    assert len(str(caught.value)) < 1000
    with pytest.raises(QuorumUnreachable, match=reason):
        await redlock.lock("order").try_acquire()


async def locks_work(redlock: Redlock) -> None:
    for _ in range(3):
        async with redlock.lock("order") as lease:
            await eventually(lambda lease=lease: lease.nodes == (2, 3))
            await lease.extend()
            await lease.verify()
            assert await redlock.lock("order").try_acquire() is None
    async with redlock.lock("a", "b", blocking_timeout=5):
        pass


@for_each_kind
async def test_the_error_names_a_bad_server_and_its_reason_and_in_the_minority_it_stops_no_lock(
    kind: str, three_nodes: NodeSet, start_server: StartServer
) -> None:
    slow = "0\\.3" in KINDS[kind]
    async with bad_node(kind, start_server) as (url, spoil):
        nodes = [three_nodes.urls[0], url, three_nodes.urls[1]]
        async with (
            Redlock([url], connect_timeout=0.3 if slow else 10, node_timeout=5) as alone,
            # A ttl that outlives all waiting here: no key goes by itself.
            Redlock(nodes, connect_timeout=0.3 if slow else 2, node_timeout=20, ttl=60) as among,
        ):
            await asyncio.to_thread(spoil)
            await the_error_names_it(alone, url, KINDS[kind])
            await locks_work(among)
            await eventually(lambda: three_nodes.keys() == [set()] * 3)


@for_each_kind
async def test_bad_servers_in_the_majority_leave_no_key_on_the_rest(
    kind: str, one_node: NodeSet, start_server: StartServer
) -> None:
    async with (
        bad_node(kind, start_server) as (url, spoil),
        bad_node(kind, start_server) as (other, spoil_other),
        Redlock([url, one_node.urls[0], other], connect_timeout=0.3, node_timeout=0.5) as redlock,
    ):
        await asyncio.to_thread(spoil)
        await asyncio.to_thread(spoil_other)
        with pytest.raises(QuorumUnreachable):
            await asyncio.wait_for(
                redlock.lock("order", ttl=60, blocking_timeout=0.3).acquire(), 10
            )
        await eventually(lambda: not redlock.nodes[1].pending)
        assert one_node.keys() == [set()]


async def test_a_foreign_kind_of_key_is_left_as_it_is(three_nodes: NodeSet) -> None:
    for node in three_nodes:
        node.command("RPUSH", "order", "a", "b")
    async with Redlock(three_nodes.urls) as redlock:
        with pytest.raises(QuorumUnreachable, match="WRONGTYPE"):
            await asyncio.wait_for(redlock.lock("order").acquire(), 30)
        with pytest.raises(QuorumUnreachable, match="WRONGTYPE"):
            await asyncio.wait_for(redlock.lock("free", "order").acquire(), 30)
        assert three_nodes.keys() == [{"order"}] * 3
        assert all(node.command("LLEN", "order") == b"2" for node in three_nodes)


async def test_a_held_key_that_becomes_another_kind_is_a_loss(three_nodes: NodeSet) -> None:
    async def hold(redlock: Redlock) -> None:
        async with redlock.lock("order"), redlock.lock("other") as other:
            for node in three_nodes:
                node.command("DEL", "order")
                node.command("HSET", "order", "field", "value")
            try:
                await asyncio.sleep(30)
            finally:
                assert other.valid, "the rest of the batch was lost with it"

    async with Redlock(three_nodes.urls) as redlock:
        with pytest.raises(LockLost, match=r"'order'.*no longer holds"):
            await asyncio.wait_for(hold(redlock), 20)
        assert three_nodes.keys() == [{"order"}] * 3


async def test_a_busy_server_is_used_again_once_its_script_is_killed(
    start_server: StartServer,
) -> None:
    server = start_server(["--lua-time-limit", "50"])
    async with Redlock([server.url], node_timeout=5) as early:
        async with busy(server):
            with pytest.raises(QuorumUnreachable, match="BUSY"):
                await early.lock("order").try_acquire()
            late = await Redlock([server.url], connect_timeout=30.0).open()
            assert "BUSY" in late.nodes[0].reason
            waiting = asyncio.create_task(late.lock("order").acquire())
        lease = await asyncio.wait_for(waiting, 30)
        # Connected while it was busy, it would know neither.
        assert late.nodes[0].tracking
        assert late.nodes[0].run_id
        await lease.release()
        async with early.lock("order", blocking_timeout=5):
            pass
        await late.aclose()


@pytest.mark.slow
async def test_a_loading_server_is_named_in_the_error_and_used_once_it_is_ready(
    start_server: StartServer,
) -> None:
    server = start_server(["--key-load-delay", "100"], appendonly=True)
    server.command("EVAL", "for i = 1, 80000 do redis.call('SET', 'k' .. i, i) end return 1", "0")
    server.stop()
    starting = asyncio.create_task(asyncio.to_thread(server.start))
    # A manager that found nobody there again and again might be back only when the server is ready.
    await eventually(lambda: refuses(server, "LOADING"))
    async with Redlock([server.url], node_timeout=5.0) as redlock:
        await eventually(lambda: "LOADING" in redlock.nodes[0].reason)
        with pytest.raises(QuorumUnreachable, match="LOADING") as caught:
            await redlock.lock("order").try_acquire()
        assert server.address in str(caught.value)
        assert not starting.done()
        server.command("CONFIG", "SET", "key-load-delay", "0")
        lease = await asyncio.wait_for(redlock.lock("order").acquire(), 60)
        assert redlock.nodes[0].tracking
        await lease.release()
    await starting


@pytest.mark.slow
async def test_a_full_server_is_used_again_once_there_is_room(start_server: StartServer) -> None:
    server = start_server(["--maxmemory", "4mb", "--maxmemory-policy", "noeviction"])
    # Wiped below, the server waits for the guard time.
    async with Redlock([server.url], ttl=5.0, max_ttl=5.0) as redlock:
        lease = await redlock.lock("held").acquire()
        fill(server)
        waiting = asyncio.create_task(redlock.lock("order").acquire())
        await eventually(lambda: redlock.stats().refused > 0)
        # A full server still renews and releases a lock that is held.
        renewals = redlock.stats().renewals
        await eventually(lambda: redlock.stats().renewals > renewals)
        assert await lease.release()
        assert server.command("EXISTS", "held") == b"0"
        server.wipe()
        await (await asyncio.wait_for(waiting, 20)).release()


@pytest.mark.parametrize("fault", ["demoted", "user deleted"])
async def test_a_waiter_outlives_a_fault_that_the_server_gets_over(
    start_server: StartServer, fault: str
) -> None:
    server, primary = start_server(), start_server()
    trust(server)
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", "&*", "+@all")
    url = server.url.replace("//", "//locks:word@")
    async with Redlock([url], node_timeout=5.0) as redlock, asyncio.TaskGroup() as group:
        server.command("SET", "order", "somebody", "PX", "600000")
        waiting = group.create_task(redlock.lock("order").acquire())
        await eventually(lambda: redlock.stats().standing == 1)
        if fault == "demoted":
            server.command("REPLICAOF", "127.0.0.1", str(primary.port))
            server.command("CLIENT", "KILL", "USER", "locks")
        else:
            server.command("ACL", "DELUSER", "locks")
        await eventually(lambda: state_of(redlock, 0) == "refused")
        with pytest.raises(QuorumUnreachable):
            await redlock.lock("other").try_acquire()
        assert not waiting.done()
        if fault == "demoted":
            server.command("REPLICAOF", "NO", "ONE")
        else:
            server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", "&*", "+@all")
        await eventually(lambda: state_of(redlock, 0) in ("up", "quarantined"))
        server.command("DEL", "order")
        async with asyncio.timeout(120):
            lease = await waiting
        await lease.release()


async def test_a_demoted_node_is_left_out_and_the_lease_lives_on(
    three_nodes: NodeSet, start_server: StartServer
) -> None:
    server, primary = start_server(), start_server()
    trust(server)
    async with Redlock(
        [*three_nodes.urls[:2], server.url], ttl=4.0, max_ttl=4.0, node_timeout=2.0
    ) as redlock:
        async with redlock.lock("order") as lease:
            server.command("REPLICAOF", "127.0.0.1", str(primary.port))
            renewals = redlock.stats().renewals
            # The first may have been asked for before.
            await eventually(lambda: redlock.stats().renewals > renewals + 1)
            await eventually(lambda: lease.nodes == (2, 3))
        server.command("REPLICAOF", "NO", "ONE")
        await eventually(lambda: state_of(redlock, 2) == "up")
        async with redlock.lock("order") as lease:
            await eventually(lambda: lease.nodes == (3, 3))


@pytest.mark.parametrize(
    "version", [pytest.param(version, id=version.id) for version in server_versions.at_hand()]
)
async def test_a_demoted_node_is_connected_anew(
    start_server: StartServer, version: server_versions.ServerVersion
) -> None:
    """Each version has its own words for a script that must not write; only on a new connection is
    it known for a replica.
    """
    server = start_server(binary=version.binary)
    async with Redlock([server.url], recovery_guard=None) as redlock:
        server.command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(QuorumUnreachable):
            await redlock.lock("order").try_acquire()
        await eventually(lambda: redlock.nodes[0].state == "refused")
        assert "replica" in redlock.nodes[0].reason


@pytest.mark.parametrize(
    "version", [pytest.param(version, id=version.id) for version in server_versions.at_hand()]
)
async def test_a_cluster_member_is_refused(
    start_server: StartServer, version: server_versions.ServerVersion
) -> None:
    server = start_server(
        ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"], binary=version.binary
    )
    async with Redlock([server.url]) as redlock:
        with pytest.raises(QuorumUnreachable, match="cluster mode") as caught:
            await asyncio.wait_for(redlock.lock("order").acquire(), 10)
        assert server.address in str(caught.value)


async def test_a_server_that_quotes_the_password_does_not_spread_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quoting = b"-ERR unknown command 'AUTH', with args beginning with: 'sesame' \r\n"
    async with (
        stranger(quoting) as url,
        Redlock([url.replace("//", "//:sesame@")], connect_timeout=1.0) as redlock,
    ):
        with pytest.raises(QuorumUnreachable, match="unknown command 'AUTH'") as caught:
            await redlock.lock("order", blocking_timeout=0.5).acquire()
        assert "sesame" not in f"{caught.value!r} {caught.value} {redlock.nodes} {caplog.text}"


async def test_a_held_lock_is_refused_as_held_although_a_minority_refuses(
    three_nodes: NodeSet, start_server: StartServer
) -> None:
    server = start_server()
    trust(server)
    server.command("HSET", "order", "field", "value")
    urls = [server.url, *three_nodes.urls[:2]]
    async with Redlock(urls, node_timeout=5.0) as redlock, Redlock(urls, node_timeout=5.0) as other:
        async with redlock.lock("order"):
            with pytest.raises(AcquireTimeout) as caught:
                await other.lock("order", blocking_timeout=2.5).acquire()
            assert "held" in str(caught.value)
        async with other.lock("order", blocking_timeout=5):
            pass
        await no_keys_left(three_nodes, redlock, other)


async def test_a_duplicate_node_that_appears_later_is_refused_by_name(
    start_server: StartServer,
) -> None:
    first, second, third = start_server(), start_server(), start_server()
    twin = f"redis://localhost:{first.port}"
    async with Redlock([first.url, second.url, third.url]) as redlock:
        await eventually(lambda: {node.state for node in redlock.nodes} == {"up"})
    first.pause()
    try:
        # While neither name of it answers, nothing can be known.
        redlock = await Redlock(
            [first.url, second.url, third.url, twin, "redis://127.0.0.1:1"], connect_timeout=0.3
        ).open()
    finally:
        first.resume()
    async with contextlib.aclosing(redlock):
        await eventually(lambda: "same server" in redlock.nodes[0].reason + redlock.nodes[3].reason)
        reason = redlock.nodes[0].reason + redlock.nodes[3].reason
        assert first.address in reason
        assert f"localhost:{first.port}" in reason


async def test_a_node_that_moves_to_anothers_server_while_it_is_used_has_no_vote(
    start_server: StartServer,
) -> None:
    first, second, third = start_server(), start_server(), start_server()
    async with (
        Proxy(third.url) as proxy,
        Redlock([first.url, second.url, proxy.url], node_timeout=0.5) as redlock,
    ):
        async with redlock.lock("order") as lease:
            proxy.lead_to(first.url)
            proxy.cut()
            await eventually(lambda: "same server" in redlock.nodes[2].reason)
            assert first.address in redlock.nodes[2].reason
            assert redlock.nodes[2].address == f"127.0.0.1:{proxy.port}"
            await lease.verify()
        second.pause()
        try:
            with pytest.raises(QuorumUnreachable, match="same server"):
                await redlock.lock("order").try_acquire()
        finally:
            second.resume()
        proxy.lead_to(third.url)
        await eventually(lambda: [node.state for node in redlock.nodes] == ["up", "up", "up"])
        async with redlock.lock("order"):
            await eventually(lambda: third.command("EXISTS", "order") == b"1")


async def test_a_set_that_is_one_server_under_two_names_never_opens(
    start_server: StartServer,
) -> None:
    server = start_server()
    with pytest.raises(ConfigurationError, match="same server"):
        async with Redlock([server.url, f"redis://localhost:{server.port}"]):
            pass
