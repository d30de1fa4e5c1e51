"""The basic promises on every kind of event loop at hand, in one run: the plain one, debug mode,
eager tasks, uvloop.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import socket
import ssl
import sys
import threading
import time
import warnings
from typing import TYPE_CHECKING

import anyio
import pytest

from aioredlock_ng import LockLost, QuorumUnreachable, Redlock
from tests.integration.helpers import Witness, all_up, no_keys_left, state_of
from tests.support import loops, tiers
from tests.support.eventually import eventually
from tests.support.node_set import locks_on
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from aioredlock_ng.testing import LocalServer, TLSFiles
    from tests.support.node_set import NodeSet

AT_HAND = [
    kind
    for kind in loops.KINDS
    if not (kind == "eager" and sys.version_info < (3, 12))
    and not (kind == "uvloop" and importlib.util.find_spec("uvloop") is None)
]


@pytest.fixture(params=tiers.ends(AT_HAND))
def loop_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(kind: str, main: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=loops.factory(kind, virtual=False)) as runner:
        runner.run(main)


def test_locks_on_any_loop_exclude_each_other_are_renewed_and_leave_no_key(
    loop_kind: str, three_nodes: NodeSet
) -> None:
    async def main() -> None:
        async with (
            Redlock(three_nodes.urls, node_timeout=5.0) as redlock,
            Redlock(three_nodes.urls, node_timeout=5.0) as other,
        ):
            witness = Witness()

            async def work(manager: Redlock) -> None:
                for _ in range(20):
                    async with manager.lock("order"):
                        with witness("order"):
                            await asyncio.sleep(0)

            await asyncio.gather(*(work(manager) for manager in (redlock, other) for _ in range(5)))
            assert (witness.entered, witness.overlaps) == (200, 0)
            async with redlock.lock("order", ttl=6.0):
                renewals = redlock.stats().renewals
                await eventually(lambda: redlock.stats().renewals > renewals)
                assert await other.lock("order").try_acquire() is None
            await no_keys_left(three_nodes, redlock, other)

    run(loop_kind, main())


def test_acquires_that_are_cancelled_in_any_way_leave_no_key(
    loop_kind: str, three_nodes: NodeSet
) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            proxies = [await stack.enter_async_context(Proxy(url)) for url in three_nodes.urls]
            redlock = await stack.enter_async_context(
                Redlock([proxy.url for proxy in proxies], ttl=60, node_timeout=5.0)
            )
            for proxy in proxies:
                proxy.delay(0.005)

            async def attempt(number: int) -> None:
                patience = 0.0001 + 0.008 * number / 100
                lock = redlock.lock(f"order:{number}")
                if number % 2:
                    with anyio.move_on_after(patience):
                        async with lock:
                            await asyncio.sleep(30)
                else:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(patience), lock:
                            await asyncio.sleep(30)

            await asyncio.gather(*map(attempt, range(100)))
            assert not redlock.leases
            await no_keys_left(three_nodes, redlock)

    run(loop_kind, main())


def test_a_loss_cancels_the_body_and_nothing_else(loop_kind: str, three_nodes: NodeSet) -> None:
    async def main() -> None:
        undone = False

        async def hold(redlock: Redlock) -> None:
            nonlocal undone
            async with redlock.lock("order"):
                for node in three_nodes:
                    node.command("SET", "order", "another's")
                try:
                    await asyncio.sleep(30)
                finally:
                    # The body's own clean-up is not cancelled again.
                    await asyncio.sleep(0.01)
                    undone = True

        async with Redlock(three_nodes.urls) as redlock:
            with pytest.raises(LockLost):
                await hold(redlock)
            assert undone
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            await asyncio.sleep(0)

    run(loop_kind, main())


@pytest.mark.slow
@pytest.mark.faults
def test_locks_work_without_a_hung_and_a_killed_node_and_use_them_again_later(
    loop_kind: str, five_nodes: NodeSet
) -> None:
    async def main() -> None:
        async with Redlock(five_nodes.urls, node_timeout=0.2, ttl=4.0, max_ttl=4.0) as redlock:
            five_nodes.pause(0)
            await asyncio.to_thread(five_nodes.crash, 1)

            async def both_noticed() -> bool:
                async with redlock.lock("order"):
                    return state_of(redlock, 0) == "suspect" and state_of(redlock, 1) == "down"

            await eventually(both_noticed)
            five_nodes.resume(0)
            await asyncio.to_thread(five_nodes.restart, 1)
            await all_up(redlock)
            async with redlock.lock("order") as lease:
                await eventually(lambda: lease.nodes == (5, 5))
            await no_keys_left(five_nodes, redlock)

    run(loop_kind, main())


def test_a_tls_connection_carries_many_requests_at_once(
    loop_kind: str, tls_server: LocalServer
) -> None:
    async def main() -> None:
        async with Redlock(
            [tls_server.url], ttl=60, node_timeout=20, connect_timeout=30
        ) as redlock:
            assert redlock.nodes[0].state == "up", redlock.nodes[0].reason
            leases = await asyncio.gather(
                *(redlock.lock(f"{n}:{'x' * 3000}").acquire() for n in range(300))
            )
            await asyncio.gather(*(lease.verify() for lease in leases))
            await asyncio.gather(*(lease.release() for lease in leases))
            await all_up(redlock)
            assert locks_on(tls_server) == set()

    run(loop_kind, main())


def test_a_manager_closed_in_one_loop_may_be_opened_in_the_next(
    loop_kind: str, one_node: NodeSet
) -> None:
    redlock = Redlock(one_node.urls)

    async def first() -> None:
        async with redlock, redlock.lock("order"):
            pass

    async def unreachable() -> None:
        async with Redlock(["redis://127.0.0.1:1"]) as nowhere:
            with pytest.raises(QuorumUnreachable):
                await nowhere.lock("order").try_acquire()

    # Closed in its loop, it may be opened in another.
    run(loop_kind, first())
    run(loop_kind, first())
    run(loop_kind, unreachable())


def test_a_loop_that_ends_with_something_open_says_so_and_ends(
    loop_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda trouble: told.append(trouble.exc_value))
    kept = []

    async def main() -> None:
        kept.append(await asyncio.start_server(lambda *_: None, "127.0.0.1", 0))

    try:
        run(loop_kind, main())
    except ResourceWarning as warning:
        told.append(warning)
    kept.clear()
    gc.collect()
    assert told


@contextlib.contextmanager
def falls_silent(files: TLSFiles, at: bytes) -> Iterator[tuple[str, threading.Event]]:
    """A TLS server that hears one connection up to a word, says nothing more and never goodbye; the
    event: it has heard it.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    heard, ends = threading.Event(), threading.Event()

    def serve(listening: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            context.wrap_socket(listening.accept()[0], server_side=True) as connection,
        ):
            while at not in (asked := connection.recv(65536)) and asked:
                hello = b"%1\r\n$5\r\nproto\r\n:3\r\n" if b"HELLO" in asked else b""
                connection.sendall(hello + b"+OK\r\n" * asked.count(b"SETINFO"))
            heard.set()
            ends.wait()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield f"rediss://127.0.0.1:{listening.getsockname()[1]}?ssl_ca_certs={files.ca}", heard
        finally:
            ends.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextlib.contextmanager
def nothing_unclosed() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


@pytest.mark.parametrize("at", [b"HELLO", b"SCRIPT"], ids=["redis-py", "our handshake"])
def test_a_loop_that_ends_while_a_tls_server_is_silent_in_mid_handshake_leaves_nothing_open(
    loop_kind: str, at: bytes, tls_files: TLSFiles
) -> None:
    async def main(url: str, heard: threading.Event) -> None:
        opening = asyncio.create_task(Redlock([url], connect_timeout=50).open())
        await eventually(heard.is_set, 50)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    with falls_silent(tls_files, at) as (url, heard), nothing_unclosed():
        run(loop_kind, main(url, heard))


@pytest.mark.slow
@pytest.mark.faults
def test_close_timeout_bounds_the_whole_close_of_a_hung_tls_server(
    loop_kind: str, tls_server: LocalServer
) -> None:
    async def main() -> None:
        redlock = await Redlock([tls_server.url], node_timeout=20, ttl=60, close_timeout=6).open()
        lease = await redlock.lock("order").acquire()
        tls_server.pause()
        releasing = asyncio.create_task(lease.release())
        began = time.monotonic()
        # An answer first, then a goodbye.
        await redlock.aclose()
        assert time.monotonic() - began < 11, "each of both steps got the whole time"
        releasing.cancel()
        await asyncio.wait([releasing])

    with nothing_unclosed():
        run(loop_kind, main())


@pytest.mark.faults
def test_a_loop_that_ends_before_a_hung_tls_server_says_goodbye_leaves_nothing_open(
    loop_kind: str, tls_server: LocalServer
) -> None:
    async def main() -> None:
        redlock = await Redlock([tls_server.url], close_timeout=60).open()
        tls_server.pause()
        closing = asyncio.create_task(redlock.aclose())
        _, pending = await asyncio.wait([closing], timeout=0.1)
        assert pending

    with nothing_unclosed():
        run(loop_kind, main())
