"""A fork in every state of a manager whose engine has a thread: the child opens anew, and the
parent goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import traceback
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

import aioredlock_ng
import aioredlock_ng.sync
from aioredlock_ng import AcquireTimeout, LockLost, RedlockClosed
from aioredlock_ng._forks import call_in_children
from aioredlock_ng.events import LeaderChanged, TermEnded, TermOutlived
from aioredlock_ng.testing import MemoryNodes
from tests.sync.test_locks import wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aioredlock_ng.events import Event
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

PATIENCE = 30.0


class Client:
    """A manager of either kind, whose calls block the calling thread."""

    def __init__(self, nodes: NodeSet, kind: str) -> None:
        options: dict[str, Any] = {
            "ttl": 40.0,
            "node_timeout": PATIENCE,
            "connect_timeout": PATIENCE,
        }
        self.nodes = nodes
        self.manager: Any
        if kind == "sync":
            self.manager = aioredlock_ng.sync.Redlock(nodes.urls, **options)
            self.process = self.manager._process
        else:
            self.manager = aioredlock_ng.Redlock(nodes.urls, thread=True, **options)
            self.process = self.manager._threaded
        self.opens_itself = kind == "sync"
        self._loops: dict[int, asyncio.AbstractEventLoop] = {}

    def do(self, call: Callable[[], Any]) -> Any:
        """Call a method, and return its result, for which a task of this process's own loop awaits
        a coroutine.
        """
        if self.opens_itself:
            return call()

        async def work() -> Any:
            return await call()

        return asyncio.run_coroutine_threadsafe(work(), self._loop()).result(PATIENCE)

    def later(self, call: Callable[[], Any]) -> Future[Any]:
        """Do it in another thread."""
        outcome: Future[Any] = Future()

        def work() -> None:
            try:
                outcome.set_result(self.do(call))
            except BaseException as error:
                outcome.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return outcome

    @contextmanager
    def inside(self, name: str) -> Iterator[Any]:
        """Be inside of a `with` or an `async with`."""
        if self.opens_itself:
            with self.manager.lock(name) as lease:
                yield lease
            return
        leave, entered = asyncio.Event(), Future[Any]()

        async def body() -> None:
            async with self.manager.lock(name) as lease:
                entered.set_result(lease)
                await leave.wait()

        running = self.later(body)
        yield entered.result(PATIENCE)
        self._loop().call_soon_threadsafe(leave.set)
        running.result(PATIENCE)

    @property
    def engine_thread(self) -> Any:
        return self.process.here.thread

    def hang_nodes(self) -> None:
        for index in range(len(self.nodes)):
            self.nodes.pause(index)

    def close(self) -> None:
        """Close the manager in this process, and the loop of its calls."""
        self.do(self.manager.close if self.opens_itself else self.manager.aclose)
        if (loop := self._loops.pop(os.getpid(), None)) is not None:
            loop.call_soon_threadsafe(loop.stop)
            wait_until(lambda: not loop.is_running())
            loop.close()

    def _loop(self) -> asyncio.AbstractEventLoop:
        if (loop := self._loops.get(os.getpid())) is None:
            loop = self._loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, daemon=True).start()
        return loop


@contextmanager
def never_used(client: Client) -> Iterator[list[Any]]:
    yield []
    assert client.process.here is None


@contextmanager
def an_opening_in_flight(client: Client) -> Iterator[list[Any]]:
    client.hang_nodes()
    opening = client.later(client.manager.open)
    wait_until(lambda: client.process.here is not None)
    assert not client.process.here.outcome.done()
    yield []
    opening.result(PATIENCE)


@contextmanager
def idle(client: Client) -> Iterator[list[Any]]:
    client.do(client.manager.open)
    yield []


@contextmanager
def holding(client: Client) -> Iterator[list[Any]]:
    client.do(client.manager.open)
    lease = client.do(client.manager.lock("a").acquire)
    yield [lease]
    client.do(lease.verify)
    assert client.do(lease.release)


@contextmanager
def inside_of_with(client: Client) -> Iterator[list[Any]]:
    client.do(client.manager.open)
    with client.inside("a") as lease:
        yield [lease]
        client.do(lease.verify)


@contextmanager
def a_wait(client: Client) -> Iterator[list[Any]]:
    client.do(client.manager.open)
    lease = client.do(client.manager.lock("a").acquire)
    waiting = client.later(client.manager.lock("a").acquire)
    wait_until(lambda: client.process.here.redlock.stats().waiting == 1)
    yield [lease]
    assert not waiting.done()
    assert client.do(lease.release)
    assert client.do(waiting.result(PATIENCE).release)


@contextmanager
def a_call_in_flight(client: Client) -> Iterator[list[Any]]:
    client.do(client.manager.open)
    client.hang_nodes()
    looking = client.later(lambda: client.manager.inspect("a"))
    wait_until(lambda: client.engine_thread.pending)
    yield []
    assert looking.result(PATIENCE).token is None


@contextmanager
def closed(client: Client) -> Iterator[list[Any]]:
    client.do(client.manager.open)
    client.close()
    yield []
    with pytest.raises(RedlockClosed):
        client.do(client.manager.lock("parent").acquire)


@contextmanager
def a_dead_engine(client: Client) -> Iterator[list[Any]]:
    def die() -> None:
        raise SystemExit("on purpose")

    client.do(client.manager.open)
    lease, thread = client.do(client.manager.lock("a").acquire), client.engine_thread
    thread.post(die)
    assert thread.ended.wait(PATIENCE)
    yield [lease]
    with pytest.raises(RedlockClosed, match="SystemExit: on purpose"):
        client.do(client.manager.lock("parent").acquire)


def in_the_child(client: Client, leases: list[Any], *, opens: bool) -> None:
    """Hold nothing of the parent's, and use the manager as a process of its own."""
    for lease in leases:
        assert lease.lost
        with pytest.raises(LockLost):
            lease.check()
        assert not client.do(lease.release)
    if not opens:
        with pytest.raises(RedlockClosed):
            client.do(client.manager.lock("child").acquire)
        client.do(client.manager.open)
    with client.inside("child") as own:
        client.do(own.verify)
        assert client.manager.leases == (own,)
        for _ in leases:
            assert client.do(client.manager.lock("a").try_acquire) is None
    client.close()


def forked(work: Callable[[], None]) -> int:
    """Run this in a child; return the id of the child."""
    child = os.fork()
    if not child:
        # A child that hangs dies.
        signal.alarm(int(PATIENCE))
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


@pytest.mark.parametrize("kind", ["sync", "thread=True"])
@pytest.mark.parametrize(
    "state",
    [
        never_used,
        an_opening_in_flight,
        idle,
        holding,
        inside_of_with,
        a_wait,
        a_call_in_flight,
        closed,
        a_dead_engine,
    ],
)
def test_a_child_that_is_forked_in_any_state_opens_anew_and_its_parent_goes_on(
    state: Callable[[Client], Any], kind: str, three_nodes: NodeSet
) -> None:
    client = Client(three_nodes, kind)
    opens = state is not closed and (client.opens_itself or state is not never_used)
    with state(client) as leases:
        child = forked(lambda: in_the_child(client, leases, opens=opens))
        for index in range(len(three_nodes)):
            three_nodes.resume(index)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if state in (closed, a_dead_engine, never_used):
        client.close()
        client.do(client.manager.open)
    with client.inside("parent") as lease:
        client.do(lease.verify)
    client.close()
    if state is not a_dead_engine:
        assert three_nodes.left() == [set()] * 3


def test_a_child_that_a_signal_handler_forks_during_a_wait_does_not_hang() -> None:
    redlock, parent = aioredlock_ng.sync.Redlock(MemoryNodes(3)), os.getpid()
    children: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: children.append(os.fork()))
    held = redlock.lock("order").acquire()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with suppress(AcquireTimeout, RedlockClosed):
            redlock.lock("order", blocking_timeout=1.0).acquire()
    finally:
        if os.getpid() != parent:
            os._exit(7)
        signal.signal(signal.SIGALRM, before)
    (child,) = children
    try:
        wait_until(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    finally:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    held.release()
    redlock.close()


@pytest.mark.parametrize(
    "first_use",
    [
        lambda redlock: anext(redlock.election("scheduler").watch()),
        lambda redlock: redlock.semaphore("gpu", 2).inspect(),
        lambda redlock: redlock.inspect("order"),
        lambda redlock: redlock.wait_ready(),
    ],
    ids=["watch", "Semaphore.inspect", "inspect", "wait_ready"],
)
async def test_the_first_use_in_a_forked_child_may_be_one_that_acquires_no_lock(
    first_use: Callable[[aioredlock_ng.Redlock], Awaitable[object]], three_nodes: NodeSet
) -> None:
    options: Any = {"node_timeout": 2.5, "thread": True}
    async with aioredlock_ng.Redlock(three_nodes.urls, **options) as redlock:

        async def child() -> None:
            async with asyncio.timeout(PATIENCE):
                await first_use(redlock)
                await redlock.aclose()

        # No event loop runs in the other thread, so its child can run one.
        pid = await asyncio.to_thread(forked, lambda: asyncio.run(child()))
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_candidate_of_a_forked_child_does_not_lead_and_may_stand_anew(
    three_nodes: NodeSet,
) -> None:
    async def lead() -> int:
        options: Any = {"node_timeout": 2.5, "thread": True}
        async with aioredlock_ng.Redlock(three_nodes.urls, **options) as redlock:
            election, named = (
                redlock.election("scheduler"),
                redlock.election("named", label="the scheduler"),
            )

            async def child() -> None:
                async with asyncio.timeout(PATIENCE):
                    assert not election.leading
                    assert election.label.endswith(f":{os.getpid()}")
                    assert named.label == "the scheduler"
                    election.check()
                    assert not await election.resign()
                    async with election as lease:
                        assert election.leading
                        await lease.verify()
                        assert await anext(election.watch()) == election.label
                    await redlock.aclose()

            async with election as lease:
                # No event loop runs in the other thread, so its child can run one.
                pid = await asyncio.to_thread(forked, lambda: asyncio.run(child()))
                async with asyncio.timeout(PATIENCE):
                    while (await redlock.inspect("scheduler")).waiting != 1:
                        await asyncio.sleep(0.01)
                await lease.verify()
                assert election.leading
            return (await asyncio.to_thread(os.waitpid, pid, 0))[1]

    assert os.waitstatus_to_exitcode(asyncio.run(lead())) == 0


@pytest.mark.parametrize("thread", [False, True])
async def test_a_forked_child_that_leaves_a_body_reports_no_end_of_the_term_of_its_parent(
    *, thread: bool
) -> None:
    heard: list[Event] = []
    told = (TermEnded, TermOutlived, LeaderChanged)
    async with aioredlock_ng.Redlock(
        MemoryNodes(3), thread=thread, sinks=[heard.append]
    ) as redlock:
        election = redlock.election("scheduler")

        def leave() -> None:
            # A body that works for so long after the loss of its lease is reported.
            time.sleep(0.2)
            with suppress(RuntimeError, LockLost, StopIteration):
                election.__aexit__(None, None, None).send(None)
            assert not any(isinstance(event, told) for event in heard)

        async with election:
            heard.clear()
            child = forked(leave)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert sum(isinstance(event, TermEnded) for event in heard) == 1


def test_an_error_in_a_forked_child_leaves_no_other_object_attached_to_the_parent() -> None:
    class Owner:
        attached = True

        def fail(self) -> None:
            raise OSError("there is no host name")

        def detach(self) -> None:
            self.attached = False

    first, second = Owner(), Owner()
    call_in_children(first, Owner.fail)
    call_in_children(second, Owner.detach)

    def look() -> None:
        assert not second.attached

    status = os.waitpid(forked(look), 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0
    assert second.attached
