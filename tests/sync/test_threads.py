"""Test the engine's own thread: interrupts, forks, the exit of the interpreter, and its own end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import ConfigurationError, LockLost, RedlockClosed, RedlockError
from aioredlock_ng._threaded import engine_thread as thread_module
from aioredlock_ng._threaded.latch import Latch
from aioredlock_ng.sync import Lease, Redlock
from aioredlock_ng.sync import _lock as lock_module
from tests.sync.interrupted import Interrupted
from tests.sync.test_locks import PATIENCE, keys_of, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tests.support.node_set import NodeSet


def interrupt_when(condition: Callable[[], object]) -> None:
    """Interrupt the main thread as soon as the condition is true.

    A signal after a fixed time may come before the main thread has begun the call.
    """

    def interrupt() -> None:
        wait_until(condition)
        os.kill(os.getpid(), signal.SIGUSR1)

    threading.Thread(target=interrupt, daemon=True).start()


def main_thread_waits() -> bool:
    """Return whether the main thread waits for the outcome of a call to an engine."""
    frame: FrameType | None = sys._current_frames()[threading.main_thread().ident or 0]
    while frame is not None and frame.f_code is not Latch.result.__code__:
        frame = frame.f_back
    return frame is not None


@pytest.fixture
def interrupts() -> object:
    def handle(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handle)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_wait_leaves_no_key_and_no_place_in_the_queue(
    redlock: Redlock, rival: Redlock, three_nodes: NodeSet
) -> None:
    held = redlock.lock("order").acquire()
    interrupt_when(lambda: rival.stats().waiting)
    with pytest.raises(Interrupted):
        rival.lock("order").acquire()
    assert rival.stats().cancelled == 1
    assert rival.stats().waiting == 0
    held.release()
    wait_until(lambda: not any(keys_of(three_nodes, "order")))


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_call_waits_for_its_undo_for_a_second_at_most(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:
        undoing, may_end = threading.Event(), threading.Event()

        async def undo(lease: Lease) -> None:
            undoing.set()
            while not may_end.is_set():
                await asyncio.sleep(0.01)
            await lease.granted.release()

        monkeypatch.setattr(lock_module, "_give_back", undo)

        class Late(Latch[object]):
            def result(self) -> object:
                super().result()
                raise Interrupted

        monkeypatch.setattr(thread_module, "Latch", Late)
        with pytest.raises(Interrupted):
            redlock.lock("order").acquire()
        monkeypatch.undo()
        # The undo has not ended, and goes on.
        assert undoing.is_set()
        assert any(keys_of(three_nodes, "order"))
        may_end.set()
        wait_until(lambda: not any(keys_of(three_nodes, "order")))


def test_a_thread_that_waits_delays_the_exit_of_the_interpreter(
    redlock: Redlock, three_nodes: NodeSet
) -> None:
    program = """
import sys, threading
from aioredlock_ng.sync import Redlock

redlock = Redlock(sys.argv[1:], node_timeout=2.5)

def wait():
    with redlock.lock("order") as lease:
        print("acquired", lease.valid, flush=True)

threading.Thread(target=wait).start()
while not redlock.inspect("order").waiting:
    pass
print("ends", flush=True)
"""
    with redlock.lock("order"):
        child = subprocess.Popen(
            [sys.executable, "-c", program, *three_nodes.urls], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ends\n"
    assert child.communicate(timeout=PATIENCE)[0] == "acquired True\n"
    assert child.returncode == 0


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("min_hold", [None, 60.0])
def test_a_grant_that_comes_while_its_thread_is_interrupted_is_given_back(
    redlock: Redlock, three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch, min_hold: float | None
) -> None:
    """The result is there, and the exception of the handler comes before the caller has read it."""
    redlock.stats()

    class Late(Latch[object]):
        def result(self) -> object:
            super().result()
            raise Interrupted

    monkeypatch.setattr(thread_module, "Latch", Late)
    with pytest.raises(Interrupted):
        redlock.lock("order", min_hold=min_hold).acquire()
    monkeypatch.undo()
    wait_until(lambda: not any(keys_of(three_nodes, "order")))
    assert not redlock.leases


def test_a_manager_whose_thread_dies_loses_its_leases_and_says_so(three_nodes: NodeSet) -> None:
    redlock, told = Redlock(three_nodes.urls, node_timeout=2.5), threading.Event()
    lease = redlock.lock("order", ttl=20, on_lost=lambda _: told.set()).acquire()
    waits: list[BaseException] = []

    def wait() -> None:
        try:
            redlock.lock("order").acquire()
        except RedlockClosed as error:
            waits.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    wait_until(lambda: redlock.stats().waiting == 1)

    async def die() -> None:
        raise SystemExit("on purpose")

    with pytest.raises(RedlockClosed, match="SystemExit: on purpose"):
        redlock._run(lambda _: die())
    waiter.join(PATIENCE)
    assert "SystemExit: on purpose" in str(waits[0])
    assert told.wait(PATIENCE)
    assert lease.lost
    assert not lease.valid
    assert not lease.release()
    with pytest.raises(LockLost, match="SystemExit: on purpose"):
        lease.check()
    with pytest.raises(RedlockClosed, match="SystemExit: on purpose"):
        redlock.lock("other").acquire()
    redlock.close()
    with redlock.open():
        assert redlock.lock("other").try_acquire() is not None


def dying(thread: thread_module.EngineThread) -> threading.Event:
    """Let a thread die, up to its last act. Return the event on which the last act waits."""
    may_end, last_act = threading.Event(), thread.last_act
    assert last_act is not None

    async def wait_first() -> None:
        assert may_end.wait(PATIENCE)
        await last_act()

    thread.last_act = wait_first
    thread.post(sys.exit, "on purpose")
    wait_until(lambda: thread.dead)
    return may_end


def test_a_lease_of_a_dying_thread_is_lost_before_the_thread_declares_it(
    three_nodes: NodeSet,
) -> None:
    redlock = Redlock(three_nodes.urls)
    lease = redlock.lock("order", ttl=20).acquire()
    may_end = dying(lease._thread)
    assert lease.lost
    assert not lease.release()
    assert lease.was_gone
    with pytest.raises(LockLost, match="SystemExit: on purpose"):
        lease.check()
    may_end.set()
    assert lease._thread.ended.wait(PATIENCE)
    redlock.close()


def test_a_close_waits_for_a_dying_thread(three_nodes: NodeSet) -> None:
    redlock = Redlock(three_nodes.urls).open()
    thread = redlock._process.here.thread  # type: ignore[union-attr]
    may_end = dying(thread)
    closing = threading.Thread(target=redlock.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    may_end.set()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert thread.ended.done()


def in_child(work: object) -> int:
    """Run this in a forked child; return its exit status, 0 if it raised nothing."""
    assert callable(work)
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_opens_anew_and_holds_nothing_of_its_parents(
    redlock: Redlock, three_nodes: NodeSet
) -> None:
    lease = redlock.lock("order", ttl=20).acquire()
    wait_until(lambda: lease.nodes == (3, 3))

    def child() -> None:
        assert lease.lost
        with pytest.raises(LockLost):
            lease.check()
        assert not lease.release()
        assert redlock.leases == ()
        assert redlock.lock("order").try_acquire() is None
        with redlock.lock("child") as own:
            own.verify()
        redlock.close()

    assert in_child(child) == 0
    lease.verify()
    assert keys_of(three_nodes, "order") == [lease.token.encode()] * 3
    assert lease.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_is_forked_inside_a_with_is_in_none_of_its_own(redlock: Redlock) -> None:
    def child() -> None:
        with pytest.raises(RedlockError, match="this thread holds no lock"):
            _ = redlock.current_lease
        with pytest.raises(RedlockError, match="did not enter it"):
            order.__exit__(None, None, None)
        with redlock.lock("child") as own:
            assert redlock.current_lease == own
        redlock.close()

    with (order := redlock.lock("order")) as lease:
        assert in_child(child) == 0
        assert redlock.current_lease == lease


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_is_forked_while_another_thread_opens_the_manager_is_not_stuck(
    three_nodes: NodeSet,
) -> None:
    redlock = Redlock(three_nodes.urls, node_timeout=2.5)
    process = redlock._process
    with process._opening:

        def child() -> None:
            assert redlock.lock("order").try_acquire() is not None
            redlock.close()

        assert in_child(child) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_manager_that_was_never_used_is_used_by_several_children(three_nodes: NodeSet) -> None:
    """As by the workers of gunicorn with preload, and of Celery."""
    redlock = Redlock(three_nodes.urls)

    def child() -> None:
        for _ in range(5):
            with redlock.lock("order") as lease:
                lease.check()
        redlock.close()

    for _ in range(3):
        assert in_child(child) == 0
    assert redlock._process.here is None


FORK = """
import os, sys
from aioredlock_ng.sync import Redlock

redlock = Redlock(sys.argv[1].split(","))
before = set(sys.modules)
if not os.fork():
    with redlock.lock("order"):
        print(sorted(set(sys.modules) - before), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_imports_nothing_before_its_first_lock(three_nodes: NodeSet) -> None:
    """Each process of a worker would do so again, for a tenth of a second."""
    command = [sys.executable, "-c", FORK, ",".join(three_nodes.urls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "[]\n"


EXIT = """
import sys, threading
from aioredlock_ng import RedlockClosed
from aioredlock_ng.sync import Redlock

def wait():
    try:
        redlock.lock("order").acquire()
    except RedlockClosed:
        pass

redlock = Redlock(sys.argv[1].split(","), ttl=30)
lease = redlock.lock("order").acquire()
threading.Thread(target=wait, daemon=True).start()
while not redlock.stats().waiting:
    pass
print("held", flush=True)
"""


def test_an_exit_of_the_interpreter_releases_held_locks_and_does_not_hang(
    three_nodes: NodeSet,
) -> None:
    command = [sys.executable, "-W", "error", "-c", EXIT, ",".join(three_nodes.urls)]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (0, "held\n")
    assert done.stderr == ""
    assert time.monotonic() - began < PATIENCE
    assert three_nodes.left() == [set()] * 3


@pytest.mark.parametrize(
    ("module", "question"),
    [("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")],
)
def test_threads_that_are_greenlets_are_refused_by_name(
    module: str, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched = type(sys)(module)
    setattr(patched, question, lambda _: True)
    monkeypatch.setitem(sys.modules, module, patched)
    with pytest.raises(ConfigurationError, match=module.partition(".")[0]):
        Redlock(["redis://127.0.0.1:1"])
    setattr(patched, question, lambda _: False)
    Redlock(["redis://127.0.0.1:1"])


def test_a_callback_that_raises_ends_no_thread_but_its_own(
    redlock: Redlock, rival: Redlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: raised.set())

    def fail(_: Lease) -> None:
        raise ValueError

    lease = redlock.lock("order", on_lost=fail).acquire()
    rival.force_release("order")
    assert lease.wait_lost(PATIENCE)
    assert raised.wait(PATIENCE)
    with redlock.lock("order") as again:
        again.check()


DROPPED = """
import gc
import sys
from aioredlock_ng.sync import Redlock

lease = Redlock(sys.argv[1:], ttl=40.0).lock("order").acquire()
gc.collect()
assert lease.valid
"""


def test_an_exit_releases_the_lock_of_a_program_that_keeps_only_the_lease(
    three_nodes: NodeSet,
) -> None:
    command = [sys.executable, "-c", DROPPED, *three_nodes.urls]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True)
    assert done.stderr == b""
    assert not any(keys_of(three_nodes, "order"))


MANY = """
import os
import sys
import threading
from aioredlock_ng.events import LeaseReleased
from aioredlock_ng.sync import Redlock

both = threading.Barrier(2)

def meet(event):
    if isinstance(event, LeaseReleased):
        both.wait(10)
        os.write(1, b"met ")

redlocks = [Redlock(sys.argv[1:], node_timeout=2.5, ttl=40.0, sinks=[meet]) for _ in range(2)]
leases = [redlock.lock(name).acquire() for redlock, name in zip(redlocks, "ab")]
"""


def test_the_exit_of_the_interpreter_closes_several_managers_at_once(three_nodes: NodeSet) -> None:
    """A manager whose nodes do not answer delays no other. Each one waits for the other here."""
    done = subprocess.run(
        [sys.executable, "-c", MANY, *three_nodes.urls],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("met met ", "")
