"""Elections for threads on real nodes: who leads, how the lead is handed over, and how a body
learns that its term ends.
"""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import TYPE_CHECKING

import pytest

import aioredlock_ng
from aioredlock_ng import (
    ConfigurationError,
    LockHeld,
    LockLost,
    LockNotAcquired,
    LockReleased,
    RedlockClosed,
    RedlockError,
)
from aioredlock_ng._threaded import engine_thread
from aioredlock_ng._threaded.latch import Latch
from aioredlock_ng.events import SteppingDown, TermBegan, TermEnded, TermOutlived
from aioredlock_ng.sync import Election, Lease, Redlock
from tests.sync.interrupted import Interrupted
from tests.sync.test_closing import thread_of
from tests.sync.test_interrupts import interrupts as interrupts_at_each_line
from tests.sync.test_locks import PATIENCE, keys_of, wait_until
from tests.sync.test_threads import in_child, interrupt_when, interrupts, main_thread_waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from aioredlock_ng.events import Event
    from tests.support.node_set import NodeSet

__all__ = ["interrupts"]

NAME = "scheduler"

CANDIDATE = """
import sys
from aioredlock_ng.sync import Redlock

def lead(lease):
    print("leads", lease.fence, flush=True)
    sys.stdin.readline()

with Redlock(sys.argv[1:], node_timeout=2.5) as redlock:
    redlock.election("scheduler", label="child").run(lead)
"""


class Work:
    """The body of a leader: it works until it is told to end, or until `finish` is set."""

    def __init__(self) -> None:
        self.began: Queue[Lease] = Queue()
        self.finish = threading.Event()

    def __call__(self, lease: Lease) -> str:
        self.began.put(lease)
        while not self.finish.is_set() and not lease.wait_lost(0.02):
            pass
        lease.check()
        return "finished"


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def watched(three_nodes: NodeSet, events: list[Event]) -> Iterator[Redlock]:
    """A manager that writes its events down."""
    with Redlock(three_nodes.urls, node_timeout=2.5, sinks=[events.append]) as redlock:
        yield redlock


def waits(manager: Redlock, count: int = 1) -> Callable[[], bool]:
    """Return a condition: so many candidates of other processes wait."""
    return lambda: manager.inspect(NAME).waiting == count


def test_a_candidate_leads_in_the_calling_thread_and_run_returns_the_result(
    redlock: Redlock, three_nodes: NodeSet
) -> None:
    election = redlock.election(NAME, label="ann")
    assert not election.leading

    def main(lease: Lease) -> tuple[int, int]:
        assert threading.get_ident() == caller
        assert (election.leading, election.leader) == (True, "ann")
        assert repr(election) == "<Election 'scheduler' 'ann' leads>"
        wait_until(lambda: keys_of(three_nodes, NAME) == [lease.token.encode()] * 3)
        assert redlock.current_lease is lease
        lease.check()
        election.check()
        assert not lease.wait_lost(0)
        return 7, lease.fence

    caller = threading.get_ident()
    seven, fence = election.run(main) or (0, 0)
    assert seven == 7
    assert (election.leading, election.leader) == (False, None)
    assert repr(election) == "<Election 'scheduler' 'ann' idle>"
    wait_until(lambda: not any(keys_of(three_nodes, NAME)))
    with election as lease:
        assert lease.fence > fence
        assert election.leading
    assert not redlock.inside
    assert not redlock.leases


def test_resign_hands_over_to_the_candidate_of_another_manager(
    redlock: Redlock, rival: Redlock, pool: ThreadPoolExecutor
) -> None:
    ann, bob = Work(), Work()
    first, second = redlock.election(NAME, label="ann"), rival.election(NAME, label="bob")
    running = pool.submit(first.run, ann)
    lease = ann.began.get(timeout=PATIENCE)
    following = pool.submit(second.run, bob)
    wait_until(waits(redlock))
    assert bob.began.empty()
    assert first.resign()
    # The old body has ended before `resign` returns, and the next one begins afterwards.
    assert running.result(PATIENCE) is None
    with pytest.raises(LockReleased):
        lease.check()
    assert bob.began.get(timeout=PATIENCE).fence > lease.fence
    assert (first.leading, second.leading) == (False, True)
    bob.finish.set()
    assert following.result(PATIENCE) == "finished"
    assert not first.resign()


def test_resign_hands_over_to_another_process(
    redlock: Redlock, three_nodes: NodeSet, pool: ThreadPoolExecutor
) -> None:
    work, election = Work(), redlock.election(NAME, label="parent")
    running = pool.submit(election.run, work)
    fence = work.began.get(timeout=PATIENCE).fence
    with subprocess.Popen(
        [sys.executable, "-c", CANDIDATE, *three_nodes.urls],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        wait_until(waits(redlock))
        assert election.resign()
        assert running.result(PATIENCE) is None
        told = child.stdout.readline().split()
        assert told[0] == "leads"
        assert int(told[1]) > fence
        assert next(election.watch()) == "child"
        child.communicate("\n", timeout=PATIENCE)
        assert child.returncode == 0
    assert election.run(lambda lease: lease.fence) > int(told[1])  # type: ignore[operator]


def test_a_candidate_that_waits_resigns_without_having_led(
    redlock: Redlock, rival: Redlock, pool: ThreadPoolExecutor
) -> None:
    election = rival.election(NAME)
    with redlock.election(NAME):
        waiting = pool.submit(election.run, Work())
        wait_until(waits(redlock))
        assert not election.resign()
        assert waiting.result(PATIENCE) is None
        entering = pool.submit(election.__enter__)
        wait_until(waits(redlock))
        assert not election.resign()
        with pytest.raises(LockNotAcquired, match="resigned while it waited"):
            entering.result(PATIENCE)
        wait_until(waits(redlock, 0))


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_resignation_goes_on(redlock: Redlock, pool: ThreadPoolExecutor) -> None:
    election, work, go = redlock.election(NAME), Work(), threading.Event()
    leading = pool.submit(election.run, work)
    work.began.get(timeout=PATIENCE)
    # The engine begins no call before the interrupt.
    thread_of(redlock).post(go.wait, PATIENCE)
    interrupt_when(main_thread_waits)
    with pytest.raises(Interrupted):
        election.resign()
    go.set()
    assert leading.result(PATIENCE) is None


def test_a_body_that_resigns_releases_the_lock_before_it_ends(
    redlock: Redlock, rival: Redlock
) -> None:
    election, told = redlock.election(NAME, on_lost=lambda _: told.set()), threading.Event()

    def main(lease: Lease) -> None:
        assert election.resign()
        assert not election.leading
        with rival.election(NAME) as other:
            assert other.valid
        assert lease.wait_lost(PATIENCE)
        lease.check()

    assert election.run(main) is None
    with election:
        assert election.resign()
    assert not told.is_set()


def test_a_resigned_with_ends_by_the_error_of_check(
    redlock: Redlock, pool: ThreadPoolExecutor
) -> None:
    election = redlock.election(NAME)
    with (  # noqa: PT012
        pytest.raises(LockReleased, match="the leader of 'scheduler' resigned"),
        election as lease,
    ):
        resigning = pool.submit(election.resign)
        assert lease.wait_lost(PATIENCE)
        assert lease.valid
        assert not lease.lost
        assert not resigning.done()
        lease.check()
    assert resigning.result(PATIENCE)
    with election as lease:
        resigning = pool.submit(election.resign)
        assert lease.wait_lost(PATIENCE)
    assert resigning.result(PATIENCE)


def test_a_body_is_notified_of_deleted_keys_and_its_candidate_stands_again(
    watched: Redlock, rival: Redlock, events: list[Event], pool: ThreadPoolExecutor
) -> None:
    lost: Queue[Lease] = Queue()
    work, election = Work(), watched.election(NAME, on_lost=lost.put)
    running = pool.submit(election.run, work)
    first = work.began.get(timeout=PATIENCE)
    wait_until(lambda: first.nodes == (3, 3))
    assert rival.force_release(NAME) >= 2
    assert lost.get(timeout=PATIENCE) is first
    assert first.lost
    second = work.began.get(timeout=PATIENCE)
    assert second.fence > first.fence
    with pytest.raises(LockLost):
        first.check()
    second.check()
    work.finish.set()
    assert running.result(PATIENCE) == "finished"
    assert [event.cause for event in events if isinstance(event, TermEnded)] == ["lost", "done"]
    assert lost.empty()


def test_a_lost_term_raises_without_rejoin_and_at_the_end_of_with(
    redlock: Redlock, rival: Redlock
) -> None:
    election = redlock.election(NAME, rejoin=False)

    def main(lease: Lease) -> str:
        rival.force_release(NAME)
        assert lease.wait_lost(PATIENCE)
        return "too late"

    with pytest.raises(LockLost, match="was lost after"):
        election.run(main)
    with pytest.raises(LockLost, match="was lost after"), election as lease:
        main(lease)
    with pytest.raises(KeyError) as error, election as lease:  # noqa: PT012
        main(lease)
        raise KeyError
    assert "was lost after" in error.value.__notes__[0]


def test_a_body_that_works_on_after_the_loss_is_reported(
    watched: Redlock, rival: Redlock, events: list[Event]
) -> None:
    election = watched.election(NAME, rejoin=False)

    def main(lease: Lease) -> None:
        election.check()
        rival.force_release(NAME)
        wait_until(lambda: any(isinstance(event, TermOutlived) for event in events))
        assert not election.leading
        with pytest.raises(LockLost):
            election.check()
        # Nothing can stop the thread, so another candidate leads at the same time.
        with rival.election(NAME) as other:
            assert other.fence > lease.fence

    with pytest.raises(LockLost):
        election.run(main)
    election.check()


def test_a_leader_is_notified_to_step_down_while_its_lease_is_still_valid(
    watched: Redlock, rival: Redlock, events: list[Event], pool: ThreadPoolExecutor
) -> None:
    told: Queue[Lease] = Queue()
    election = watched.election(
        NAME, label="ann", ttl=30, step_down=10, max_hold=10.5, rejoin=False, on_lost=told.put
    )

    def main(lease: Lease) -> None:
        following = pool.submit(rival.election(NAME).run, lambda other: other.fence)
        assert lease.wait_lost(PATIENCE)
        assert told.get(timeout=PATIENCE) is lease
        assert lease.valid
        assert not lease.lost
        assert not election.leading
        assert not following.done()
        with pytest.raises(LockLost, match="stepped down"):
            lease.check()
        following.add_done_callback(lambda done: fences.append(done.result()))
        fences.append(lease.fence)

    fences: list[int] = []
    with pytest.raises(LockLost, match="stepped down"):
        election.run(main)
    wait_until(lambda: len(fences) == 2)
    assert fences[0] < fences[1]
    kinds = (TermBegan, SteppingDown, TermEnded, TermOutlived)
    assert [type(event) for event in events if isinstance(event, kinds)] == [
        TermBegan,
        SteppingDown,
        TermEnded,
    ]


def test_a_body_that_steps_down_and_returns_lets_its_candidate_stand_again(
    redlock: Redlock,
) -> None:
    election, terms = redlock.election(NAME, ttl=30, step_down=10, max_hold=12), []

    def main(lease: Lease) -> str:
        terms.append(lease.fence)
        if len(terms) == 1:
            assert lease.wait_lost(PATIENCE)
        return f"term {len(terms)}"

    assert election.run(main) == "term 2"
    assert terms[0] < terms[1]


@pytest.mark.parametrize(
    "kind", [ValueError, KeyboardInterrupt, SystemExit, StopIteration, GeneratorExit]
)
def test_the_exception_of_a_body_propagates_after_the_release(
    redlock: Redlock, rival: Redlock, kind: type[BaseException]
) -> None:
    def main(lease: Lease) -> None:
        raise error

    error, election = kind("of the body"), redlock.election(NAME)
    with pytest.raises(kind) as raised:
        election.run(main)
    assert raised.value is error
    assert rival.lock(NAME).try_acquire().release()  # type: ignore[union-attr]
    with pytest.raises(kind) as raised, election:
        raise error
    assert raised.value is error
    assert rival.lock(NAME).try_acquire().release()  # type: ignore[union-attr]
    assert not redlock.inside


def test_a_body_that_only_returns_a_coroutine_is_refused_after_the_release(
    redlock: Redlock, three_nodes: NodeSet
) -> None:
    async def work() -> None: ...

    def main(_lease: Lease) -> object:
        return work()

    with pytest.raises(ConfigurationError, match=r"main\(\) returned a coroutine"):
        redlock.election(NAME).run(main)
    wait_until(lambda: not any(keys_of(three_nodes, NAME)))


def test_an_error_of_another_lock_is_not_taken_for_the_end_of_the_term(redlock: Redlock) -> None:
    election = redlock.election(NAME)
    for error in (LockLost("of another lock", resource="other"), LockReleased("of another lock")):

        def main(lease: Lease, error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error), match="of another lock") as raised:
            election.run(main)
        assert raised.value is error


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_candidate_withdraws_and_leaves_nothing(
    redlock: Redlock, rival: Redlock, three_nodes: NodeSet
) -> None:
    election = rival.election(NAME)
    with redlock.election(NAME):
        for stand in (lambda: election.run(Work()), election.__enter__):
            interrupt_when(lambda: rival.stats().waiting)
            with pytest.raises(Interrupted):
                stand()
            assert rival.stats().waiting == 0
            assert repr(election).endswith("idle>")
            wait_until(waits(redlock, 0))
    wait_until(lambda: not any(keys_of(three_nodes, NAME)))
    assert election.run(lambda lease: "leads") == "leads"


@pytest.mark.usefixtures("interrupts")
def test_a_candidate_that_is_interrupted_after_a_lost_term_stands_no_more(
    redlock: Redlock, rival: Redlock
) -> None:
    election, leader = redlock.election(NAME), rival.election(NAME)

    def main(lease: Lease) -> None:
        rival.force_release(NAME)
        assert lease.wait_lost(PATIENCE)
        leader.__enter__()
        interrupt_when(lambda: redlock.stats().waiting)

    with pytest.raises(Interrupted):
        election.run(main)
    assert redlock.stats().waiting == 0
    assert repr(election).endswith("idle>")
    wait_until(waits(rival, 0))
    leader.__exit__(None, None, None)
    assert not redlock.inside


def test_an_interrupt_at_any_line_of_run_leaves_no_candidate(
    redlock: Redlock, three_nodes: NodeSet
) -> None:
    for interrupt in interrupts_at_each_line():
        election, led = redlock.election(NAME), []
        with interrupt:
            election.run(led.append)
        wait_until(lambda: not redlock.leases and not any(keys_of(three_nodes, NAME)))
        wait_until(lambda: repr(election).endswith("idle>"))  # noqa: B023
        assert not redlock.inside
        assert not election.leading
        assert interrupt.raised or led


def test_an_interrupt_at_any_line_of_a_with_leaves_no_candidate(
    redlock: Redlock, three_nodes: NodeSet
) -> None:
    lines, first = inspect.getsourcelines(Election.__exit__)
    protected = first + next(number for number, line in enumerate(lines) if "self._leave(" in line)

    def spared(frame: FrameType) -> bool:
        """Return whether `__exit__` has not reached its `try`.

        Python cannot protect the beginning of a function.
        """
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code is Election.__exit__.__code__:
                return caller.f_lineno < protected
            caller = caller.f_back
        return False

    for interrupt in interrupts_at_each_line(spared=spared):
        election = redlock.election(NAME)
        with interrupt, election:
            pass
        wait_until(lambda: not redlock.leases and not any(keys_of(three_nodes, NAME)))
        wait_until(lambda: repr(election).endswith("idle>"))  # noqa: B023
        assert not redlock.inside


def test_a_watcher_sees_each_leader(
    redlock: Redlock, rival: Redlock, pool: ThreadPoolExecutor
) -> None:
    watcher, seen = rival.election(NAME), Queue[str | None]()

    def watch() -> None:
        for leader in watcher.watch():
            seen.put(leader)
            if leader == "stop":
                return

    watching = pool.submit(watch)
    assert seen.get(timeout=PATIENCE) is None
    for label in ("ann", "bob"):
        with redlock.election(NAME, label=label):
            assert seen.get(timeout=PATIENCE) == label
            wait_until(lambda label=label: watcher.leader == label)
        assert seen.get(timeout=PATIENCE) is None
    # A manager's own candidate is seen, too.
    with rival.election(NAME, label="stop"):
        assert seen.get(timeout=PATIENCE) == "stop"
        watching.result(PATIENCE)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_watch_goes_on(redlock: Redlock) -> None:
    leaders = redlock.election(NAME).watch()
    assert next(leaders) is None
    interrupt_when(main_thread_waits)
    with pytest.raises(Interrupted):
        next(leaders)
    with redlock.election(NAME, label="ann"):
        assert next(leaders) == "ann"
    redlock.close()
    with pytest.raises(RedlockClosed):
        next(leaders)


@pytest.mark.usefixtures("interrupts")
def test_a_label_that_an_interrupted_watcher_did_not_get_is_yielded_again(
    redlock: Redlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Latch[object]):
        def result(self) -> object:
            super().result()
            raise Interrupted

    leaders = redlock.election(NAME).watch()
    with redlock.election(NAME, label="ann"):
        monkeypatch.setattr(engine_thread, "Latch", Late)
        with pytest.raises(Interrupted):
            next(leaders)
        monkeypatch.undo()
        assert next(leaders) == "ann"


def test_one_of_two_threads_stands_for_one_candidate(
    redlock: Redlock, pool: ThreadPoolExecutor
) -> None:
    work, election = Work(), redlock.election(NAME)
    running = pool.submit(election.run, work)
    work.began.get(timeout=PATIENCE)
    for stand in (lambda: election.run(Work()), election.__enter__):
        with pytest.raises(RedlockError, match="stands or leads already"):
            stand()
    assert election.leading
    with pytest.raises(RedlockError, match="ended in a thread that did not enter it"):
        election.__exit__(None, None, None)
    assert election.leading
    work.finish.set()
    assert running.result(PATIENCE) == "finished"


def test_two_threads_with_a_candidate_each_never_lead_at_once(
    redlock: Redlock, rival: Redlock
) -> None:
    working, most, terms = threading.Lock(), 0, 0

    def main(_lease: Lease) -> None:
        nonlocal most, terms
        assert working.acquire(blocking=False), "two leaders"
        terms += 1
        working.release()

    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(manager.election(NAME).run, main)
            for manager in (redlock, rival) * 5
            for _ in range(2)
        ]
        for job in jobs:
            job.result(PATIENCE)
    assert terms == 20


def test_a_leader_that_would_wait_for_itself_is_refused(redlock: Redlock) -> None:
    with redlock.election(NAME):
        with pytest.raises(LockHeld, match="this very thread holds it"):
            redlock.lock(NAME).acquire()
        with pytest.raises(LockHeld, match="this very thread holds it"):
            redlock.election(NAME).run(Work())
    assert redlock.election(NAME).run(lambda lease: redlock.lock(NAME).try_acquire()) is None


def test_a_closed_manager_ends_the_term_and_lets_the_lease_expire(
    three_nodes: NodeSet, pool: ThreadPoolExecutor
) -> None:
    redlock, work, closed = Redlock(three_nodes.urls, node_timeout=2.5), Work(), threading.Event()
    election = redlock.election(NAME)

    def main(lease: Lease) -> None:
        work.began.put(lease)
        assert lease.wait_lost(PATIENCE)
        assert closed.wait(PATIENCE)
        kept = [key for key in keys_of(three_nodes, NAME) if key is not None]
        assert len(kept) >= 2, "the next leader could begin while this body works"
        with pytest.raises(LockLost):
            lease.check()
        with pytest.raises(LockLost):
            election.check()
        with pytest.raises(RedlockClosed):
            election.resign()
        with redlock.open(), pytest.raises(RedlockError, match="earlier term"):
            election.run(Work())

    running = pool.submit(election.run, main)
    work.began.get(timeout=PATIENCE)
    redlock.close()
    assert not election.resign(), "the body has not ended, but the candidate stands no more"
    closed.set()
    with pytest.raises(RedlockClosed):
        running.result(PATIENCE)
    with redlock.open(), pytest.raises(LockLost):  # noqa: PT012
        redlock.force_release(NAME)
        with election as lease:
            redlock.close()
            assert lease.lost
    with pytest.raises(RedlockClosed):
        election.run(Work())


def test_the_exception_of_a_body_propagates_even_if_the_manager_was_closed(
    three_nodes: NodeSet,
) -> None:
    redlock = Redlock(three_nodes.urls, node_timeout=2.5)

    def main(_lease: Lease) -> None:
        redlock.close()
        raise KeyError("of the body")

    with pytest.raises(KeyError, match="of the body") as raised:
        redlock.election(NAME).run(main)
    assert "was lost" in raised.value.__notes__[0]


def test_a_term_ends_when_the_thread_of_the_engine_dies(three_nodes: NodeSet) -> None:
    redlock, lost = Redlock(three_nodes.urls, node_timeout=2.5), Queue[Lease]()
    election = redlock.election(NAME, on_lost=lost.put)

    async def die() -> None:
        raise SystemExit("on purpose")

    with pytest.raises(LockLost, match="SystemExit: on purpose"), election as lease:  # noqa: PT012
        with pytest.raises(RedlockClosed):
            redlock._run(lambda _: die())
        assert not election.leading
        with pytest.raises(LockLost):
            lease.check()
        assert lost.get(timeout=PATIENCE) is lease
    redlock.close()
    assert lost.empty()


def test_a_closed_manager_ends_the_wait_of_a_candidate(
    redlock: Redlock, rival: Redlock, pool: ThreadPoolExecutor
) -> None:
    with redlock.election(NAME):
        waiting = pool.submit(rival.election(NAME).run, Work())
        wait_until(waits(redlock))
        rival.close()
        with pytest.raises(RedlockClosed):
            waiting.result(PATIENCE)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_is_forked_by_a_leader_does_not_lead(redlock: Redlock) -> None:
    election = redlock.election(NAME)

    def child() -> None:
        assert not election.leading
        assert election.leader is None
        assert election.label.endswith(f":{os.getpid()}")
        election.check()
        with pytest.raises(LockLost):
            lease.check()
        assert not election.resign()
        assert next(redlock.election(NAME).watch()) == parent
        with redlock.election("other") as own:
            own.verify()
        redlock.close()

    with election as lease:
        parent = election.label
        assert in_child(child) == 0
        lease.verify()
        assert election.leading


def test_the_exit_of_the_interpreter_releases_a_lease_and_withdraws_a_candidate(
    redlock: Redlock, three_nodes: NodeSet
) -> None:
    program = """
import sys, threading
from aioredlock_ng.sync import Redlock

redlock = Redlock(sys.argv[1:], node_timeout=2.5)
with redlock.election("other"):
    threading.Thread(target=redlock.election("scheduler").run, args=[print], daemon=True).start()
    while not redlock.inspect("scheduler").waiting:
        pass
    sys.exit(3)
"""
    with redlock.election(NAME):
        ended = subprocess.run(
            [sys.executable, "-c", program, *three_nodes.urls],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert (ended.returncode, ended.stdout) == (3, "")
        assert redlock.inspect(NAME).waiting == 0
        assert not any(keys_of(three_nodes, "other"))


def test_a_signal_that_ends_a_leader_hands_over_at_once(three_nodes: NodeSet) -> None:
    # A signal just before a system call without a time limit is handled only after that call, so
    # the body waits in steps.
    program = CANDIDATE.replace("sys.stdin.readline()", "while not lease.wait_lost(0.02): pass")
    # If the process does not end, the output shows why.
    watchdog = f"faulthandler.dump_traceback_later({PATIENCE / 2}, exit=True)"
    program = f"import faulthandler\n{watchdog}\n{program}"
    with subprocess.Popen(
        [sys.executable, "-c", program, *three_nodes.urls],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("leads")
        child.send_signal(signal.SIGINT)
        words = child.communicate(timeout=PATIENCE)[1]
        assert child.returncode == -signal.SIGINT, words
    assert not any(keys_of(three_nodes, NAME))


def test_bad_arguments_are_refused_before_anything_opens() -> None:
    redlock = Redlock(["redis://127.0.0.1:1"])
    for arguments, words in (
        ({"label": "a\nb"}, "label must"),
        ({"ttl": -1.0}, "ttl"),
        ({"step_down": 9.0}, "step_down=9 is too long"),
        ({"max_hold": 1.0}, "max_hold=1 must be more than step_down"),
        ({"rejoin": "yes"}, "rejoin must be True or False, not str"),
        ({"on_lost": "cancel"}, "on_lost must be a function"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            redlock.election(NAME, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="needs labels"):
        Redlock(["redis://127.0.0.1:1"], owner=False).election(NAME)
    election = redlock.election(NAME, ttl=9)

    async def coroutine(_lease: Lease) -> None: ...

    with pytest.raises(
        ConfigurationError,
        match="main must be a plain function that takes a lease, not a coroutine function",
    ):
        election.run(coroutine)
    with pytest.raises(
        ConfigurationError, match="main must be a plain function that takes a lease, not NoneType"
    ):
        election.run(None)  # type: ignore[arg-type]
    assert (election.name, election.ttl, election.step_down) == (NAME, 9, 3)
    assert election.label == aioredlock_ng.Redlock(["redis://127.0.0.1:1"]).election(NAME).label
    assert not election.resign()
    assert election.leader is None
    assert not redlock.ready


async def test_async_with_and_acquire_of_an_election_are_refused_with_a_hint() -> None:
    election = Redlock(["redis://127.0.0.1:1"]).election(NAME)
    assert isinstance(election, Election)
    with pytest.raises(TypeError, match=r"use `with redlock.election\('scheduler'\):`"):
        async with election:  # type: ignore[attr-defined]
            pass
    with pytest.raises(AttributeError, match="Election has no acquire"):
        election.acquire()  # type: ignore[attr-defined]
