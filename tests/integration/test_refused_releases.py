"""Releases that a server refuses, or that find a key of another type.

A release that a server refuses for now is delivered when the server is free again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from aioredlock_ng import QuorumUnreachable, Redlock
from aioredlock_ng.events import NodeDegraded
from tests.integration.test_bad_servers import fail_to_save
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioredlock_ng import Lease, Lock
    from aioredlock_ng.events import Event
    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

    _Managers = tuple[Redlock, Redlock, Callable[[], bytes]]


def _ask(url: str, *words: bytes) -> bytes:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as sock:
        sock.sendall(
            b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)])
        )
        return sock.recv(4096)


@contextlib.asynccontextmanager
async def _busy(server: LocalServer) -> AsyncIterator[None]:
    """Run a script on the server until the block ends. The server refuses commands meanwhile."""
    busy = threading.Thread(target=_ask, args=(server.url, b"EVAL", b"while true do end", b"0"))
    busy.start()
    try:
        await eventually(lambda: _ask(server.url, b"PING").startswith(b"-BUSY"))
        yield
    finally:
        _ask(server.url, b"SCRIPT", b"KILL")
        busy.join(30)


async def test_a_release_refused_by_a_busy_server_is_delivered_when_it_is_free(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server(["--lua-time-limit", "50"])
    async with Redlock([server.url], node_timeout=5.0, ttl=60) as redlock:
        lease = await redlock.lock("a").acquire()
        async with _busy(server):
            await lease.release()
        await eventually(lambda: _ask(server.url, b"EXISTS", b"a") == b":0\r\n")


async def test_readers_do_not_wait_for_a_writer_that_gave_up_while_the_server_was_busy(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server(["--lua-time-limit", "50"])
    queue = b"aioredlock_ng:queue:catalog"
    async with (
        Redlock([server.url], node_timeout=5.0) as one,
        Redlock([server.url], node_timeout=5.0) as other,
    ):
        early = await one.rwlock("catalog").read().acquire()
        waiting = asyncio.create_task(other.rwlock("catalog").write().acquire())
        await eventually(lambda: _ask(server.url, b"EXISTS", queue) == b":1\r\n")
        async with _busy(server):
            waiting.cancel()
            await asyncio.wait([waiting])
            await eventually(lambda: not other.stats().queued and not other.nodes[0].pending)
        # The queue expires only after 20 s.
        async with other.rwlock("catalog", blocking_timeout=10.0).read():
            assert early.valid


@pytest.mark.parametrize(
    ("lock_of", "taken", "queue"),
    [
        (lambda redlock: redlock.lock("a"), "a", b"aioredlock_ng:queue:a"),
        (lambda redlock: redlock.rwlock("a").read(), "a", b"aioredlock_ng:readers:a"),
        (lambda redlock: redlock.semaphore("a", 1), "a#1", b"aioredlock_ng:slots:a"),
    ],
    ids=["lock", "read", "semaphore"],
)
async def test_a_waiter_that_gave_up_while_the_server_refused_writes_leaves_the_queue_later(
    lock_of: Callable[[Redlock], Lock],
    taken: str,
    queue: bytes,
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server(["--dbfilename", "taken", "--save", "3600 1000000"])
    async with (
        Redlock([server.url], node_timeout=5.0, ttl=60) as one,
        Redlock([server.url], node_timeout=5.0, ttl=60) as other,
        one.lock(taken),
    ):
        waiting = asyncio.create_task(lock_of(other).acquire())
        await eventually(lambda: _ask(server.url, b"EXISTS", queue) == b":1\r\n")
        # The queue must not expire during the test.
        server.command("PEXPIRE", queue.decode(), "600000")
        await asyncio.to_thread(fail_to_save, server)
        waiting.cancel()
        await asyncio.wait([waiting])
        await eventually(lambda: not other.nodes[0].pending and other.nodes[0].owed)
        assert _ask(server.url, b"EXISTS", queue) == b":1\r\n"
        server.command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        await eventually(lambda: _ask(server.url, b"EXISTS", queue) == b":0\r\n")
        await eventually(lambda: not other.nodes[0].owed)


async def test_a_read_lease_whose_key_became_another_kind_was_lost_when_it_is_released(
    three_nodes: NodeSet,
) -> None:
    async with Redlock(three_nodes.urls, node_timeout=5.0) as redlock:
        lease = await redlock.rwlock("catalog").read().acquire()
        for node in three_nodes:
            node.command("DEL", "catalog")
            node.command("HSET", "catalog", "field", "value")
        assert not await lease.release()
        assert not any(node.owed for node in redlock.nodes)


async def test_the_log_does_not_blame_a_node_for_a_key_of_another_kind(
    three_nodes: NodeSet, caplog: pytest.LogCaptureFixture
) -> None:
    """A refused attempt to read releases the nodes that have not answered yet."""
    for node in three_nodes:
        node.command("HSET", "catalog", "field", "value")
    async with Redlock(three_nodes.urls) as redlock:
        for _ in range(10):
            with pytest.raises(QuorumUnreachable, match="WRONGTYPE"):
                await redlock.rwlock("catalog").read().acquire()
            async with redlock.lock("order"):
                pass
        await eventually(lambda: not any(node.pending for node in redlock.nodes))
        assert not any(node.owed for node in redlock.nodes)
    assert "refuses to release" not in caplog.text


@pytest.fixture
async def managers(start_server: Callable[..., LocalServer]) -> AsyncIterator[_Managers]:
    """Two managers with a user of their own, and a function that takes the right to PTTL away."""
    server = start_server()
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", "&*", "+@all")
    url = f"redis://locks:word@{server.address}"
    options: dict[str, Any] = {"ttl": 30.0, "node_timeout": 5.0}
    async with Redlock([url], **options) as one, Redlock([url], **options) as other:
        yield one, other, lambda: server.command("ACL", "SETUSER", "locks", "-pttl")


@pytest.mark.parametrize("missing", ["-del", "-mget"])
async def test_releases_of_other_kinds_do_not_repeat_the_warning_about_refused_releases(
    start_server: Callable[..., LocalServer], missing: str
) -> None:
    server = start_server()
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", "&*", "+@all", missing)
    told: list[Event] = []
    url = server.url.replace("//", "//locks:word@")
    async with Redlock([url], node_timeout=5.0, ttl=60, sinks=[told.append]) as redlock:
        for number in range(3):
            for lock in (
                redlock.lock(f"held:{number}"),
                redlock.lock(f"kept:{number}", min_hold=60),
                redlock.rwlock(f"read:{number}").read(),
            ):
                with contextlib.suppress(QuorumUnreachable):
                    await (await lock.acquire()).release()
    warnings = [event.reason for event in told if isinstance(event, NodeDegraded)]
    assert len(warnings) == len(set(warnings)) > 0


async def test_a_release_beside_an_acquire_that_fails_reports_no_loss(managers: _Managers) -> None:
    """The release and the acquire of the next task are one request."""
    one, other, take_right = managers
    lease = await one.lock("order").acquire()
    waiting = [asyncio.create_task(each.lock("order").acquire()) for each in (other, one)]
    try:
        await eventually(lambda: one.stats().waiting and other.stats().queued)
        take_right()
        assert await lease.release()
    finally:
        await _cancelled(waiting)


async def test_the_release_of_the_latest_reader_is_executed_if_no_writer_can_be_notified(
    managers: _Managers,
) -> None:
    one, other, take_right = managers
    early = await one.rwlock("catalog").read().acquire()
    late = await other.rwlock("catalog").read().acquire()
    waiting = asyncio.create_task(one.rwlock("catalog").write().acquire())
    try:
        await eventually(lambda: one.stats().queued)
        take_right()
        assert await late.release()
        assert not other.nodes[0].owed
        assert early.valid
    finally:
        await _cancelled([waiting])


async def _cancelled(tasks: list[asyncio.Task[Lease]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
