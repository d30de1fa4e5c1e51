"""The opening and the closing of a manager for threads, when something comes in between: both end,
and nothing stays behind.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import ConfigurationError, LockLost, RedlockClosed, RedlockError
from aioredlock_ng._engine.keeping.extender import Extender
from aioredlock_ng._threaded import engine_thread as thread_module
from aioredlock_ng._threaded import process as process_module
from aioredlock_ng._threaded.latch import Latch
from aioredlock_ng._threaded.lease_proxy import ThreadedLease
from aioredlock_ng._threaded.process import PerProcess
from aioredlock_ng.events import LeaseLost, LeaseReleased
from aioredlock_ng.sync import Lease, Redlock
from tests.sync.interrupted import Interrupted
from tests.sync.test_interrupts import engine_threads
from tests.sync.test_locks import PATIENCE, keys_of, wait_until
from tests.sync.test_threads import dying, in_child

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._threaded.engine_thread import EngineThread
    from aioredlock_ng.events import Event
    from tests.support.node_set import NodeSet


def thread_of(redlock: Redlock) -> EngineThread:
    here = redlock._process.here
    assert here is not None
    return here.thread


def test_a_close_on_the_engines_own_thread_is_refused_during_another_close(
    three_nodes: NodeSet,
) -> None:
    refused: list[RedlockError] = []

    def sink(event: Event) -> None:
        if isinstance(event, LeaseReleased):
            try:
                redlock.close()
            except RedlockError as error:
                refused.append(error)

    redlock = Redlock(three_nodes.urls, sinks=[sink])
    redlock.lock("order").acquire()
    redlock.close()
    assert "would wait for itself" in str(refused[0])


def test_a_second_close_waits_for_the_end_of_the_first(three_nodes: NodeSet) -> None:
    with Redlock(three_nodes.urls) as redlock, ThreadPoolExecutor(2) as pool:
        thread, may_go_on = thread_of(redlock), threading.Event()
        thread.post(may_go_on.wait)
        closing = [pool.submit(redlock.close) for _ in range(2)]
        wait_until(lambda: redlock._process.here is None)
        assert not any(job.done() for job in closing)
        may_go_on.set()
        for job in closing:
            job.result(PATIENCE)
        assert thread.ended.done()


def test_a_close_that_was_interrupted_before_it_began_is_begun_by_the_next_opening(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    redlock = Redlock(three_nodes.urls)
    lease, thread = redlock.lock("order").acquire(), thread_of(redlock)

    def interrupted(*_: object) -> None:
        raise Interrupted

    monkeypatch.setattr(thread, "end_after", interrupted, raising=True)
    with pytest.raises(Interrupted):
        redlock.close()
    monkeypatch.undo()
    with redlock.open():
        assert thread.ended.wait(PATIENCE)
        assert not lease.valid
        assert redlock.lock("order", blocking_timeout=PATIENCE).acquire().release()


def test_an_exit_by_a_sink_during_a_close_ends_all_leases_and_reaches_no_caller(
    three_nodes: NodeSet,
) -> None:
    ended: list[str] = []

    def sink(event: Event) -> None:
        if isinstance(event, LeaseReleased | LeaseLost):
            ended.append(event.resource)
            if len(ended) == 1:
                sys.exit("on purpose")

    redlock = Redlock(three_nodes.urls, sinks=[sink])
    leases = [redlock.lock(name).acquire() for name in "abc"]
    redlock.close()
    assert sorted(ended) == ["a", "b", "c"]
    assert not any(lease.valid for lease in leases)
    wait_until(lambda: not engine_threads())


def test_an_error_of_a_close_reaches_its_caller(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    redlock = Redlock(three_nodes.urls).open()
    ordinary, thread = redlock._process.open().redlock, thread_of(redlock)
    aclose = ordinary.aclose

    async def fail() -> None:
        await aclose()
        raise OSError("on purpose")

    monkeypatch.setattr(ordinary, "aclose", fail)
    with pytest.raises(OSError, match="on purpose"):
        redlock.close()
    assert thread.ended.done()


def test_an_opening_that_fails_says_why_each_time_and_leaves_no_thread(
    three_nodes: NodeSet,
) -> None:
    url = three_nodes.urls[0]
    urls = [url, url.replace("127.0.0.1", "localhost"), three_nodes.urls[1]]
    # A node without a connection is compared with no other node.
    redlock = Redlock(urls, connect_timeout=PATIENCE)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="same server"):
            redlock.lock("order").acquire()
    redlock.close()
    wait_until(lambda: not engine_threads())


def test_no_thread_at_all_is_an_error_and_the_next_call_opens_the_manager(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    redlock = Redlock(three_nodes.urls, node_timeout=2.5)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        redlock.open()
    monkeypatch.undo()
    with redlock.lock("order") as lease:
        lease.verify()
    redlock.close()


def test_a_handler_that_opens_the_manager_while_it_opens_leaves_one_thread(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    redlock, opened = Redlock(three_nodes.urls), []

    def launch(self: EngineThread) -> None:
        monkeypatch.undo()
        opened.append(redlock.lock("order").acquire())
        self.launch()

    monkeypatch.setattr("aioredlock_ng._threaded.engine_thread.EngineThread.launch", launch)
    redlock.open()
    wait_until(lambda: len(engine_threads()) == 1)
    assert opened[0].valid
    redlock.close()
    wait_until(lambda: not engine_threads())
    assert not any(keys_of(three_nodes, "order"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_is_forked_during_a_close_opens_anew(three_nodes: NodeSet) -> None:
    with Redlock(three_nodes.urls, node_timeout=2.5) as redlock, ThreadPoolExecutor(1) as pool:
        lease, may_go_on = redlock.lock("order", ttl=20).acquire(), threading.Event()
        thread_of(redlock).post(may_go_on.wait)
        closing = pool.submit(redlock.close)
        wait_until(lambda: redlock._process.here is None)

        def child() -> None:
            assert not lease.release()
            with redlock.open().lock("child") as own:
                own.verify()
            redlock.close()

        assert in_child(child) == 0
        may_go_on.set()
        closing.result(PATIENCE)
        assert not any(keys_of(three_nodes, "order"))


def test_a_thread_that_dies_while_it_closes_lets_the_close_return(
    three_nodes: NodeSet, caplog: pytest.LogCaptureFixture
) -> None:
    with Redlock(three_nodes.urls) as redlock, ThreadPoolExecutor(1) as pool:
        thread = thread_of(redlock)
        may_end = dying(thread)
        closing = pool.submit(redlock.close)
        may_end.set()
        closing.result(PATIENCE)
        assert thread.ended.done()
    assert not [
        record
        for record in caplog.records
        if record.levelno >= logging.ERROR and record.name == "asyncio"
    ]


def in_another_thread(work: Callable[[], object]) -> None:
    """Run a function in another thread to its end."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result(PATIENCE)


def test_a_close_by_another_thread_during_a_with_is_a_loss_and_lets_nobody_in_beside_the_body(
    three_nodes: NodeSet,
) -> None:
    redlock, lost, called = Redlock(three_nodes.urls), list[Lease](), threading.Event()

    def on_lost(lease: Lease) -> None:
        lost.append(lease)
        called.set()

    def body() -> None:
        with redlock.lock("order", on_lost=on_lost) as lease:
            in_another_thread(redlock.close)
            assert all(keys_of(three_nodes, "order"))
            assert called.wait(PATIENCE)
            assert lost == [lease]
            with pytest.raises(LockLost, match="its Redlock was closed"):
                lease.check()

    with pytest.raises(LockLost, match="its Redlock was closed"):
        body()


@pytest.mark.parametrize("method", ["acquire", "try_acquire"])
def test_a_lease_that_a_close_has_released_before_the_call_returned_is_refused(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    redlock = Redlock(three_nodes.urls).open()
    lock = redlock.lock("order")

    class Late(Latch[object]):
        def result(self) -> object:
            result = super().result()
            monkeypatch.undo()
            in_another_thread(redlock.close)
            return result

    monkeypatch.setattr(thread_module, "Latch", Late)
    with pytest.raises(RedlockClosed, match="was closed at the moment"):
        getattr(lock, method)()
    assert not any(keys_of(three_nodes, "order"))


def test_a_close_between_the_end_of_a_body_and_the_release_is_no_loss(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    redlock, ended_lost = Redlock(three_nodes.urls), ThreadedLease.ended_lost

    def close_first(self: ThreadedLease) -> bool:
        in_another_thread(redlock.close)
        return ended_lost(self)

    with redlock.lock("order"):
        monkeypatch.setattr(ThreadedLease, "ended_lost", close_first)
    assert not any(keys_of(three_nodes, "order"))


def test_a_close_just_before_a_with_begins_keeps_its_body_from_running(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    redlock, enter = Redlock(three_nodes.urls), ThreadedLease.entered_by_thread

    def close_first(self: ThreadedLease) -> None:
        in_another_thread(redlock.close)
        enter(self)

    monkeypatch.setattr(ThreadedLease, "entered_by_thread", close_first)
    with pytest.raises(RedlockClosed, match="was closed"), redlock.lock("order"):
        raise AssertionError("the body ran without its lock")
    assert not redlock.inside


def test_the_end_of_a_with_that_begins_while_a_close_releases_its_lease_reports_the_loss(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    redlock, released, entered = Redlock(three_nodes.urls), threading.Event(), threading.Event()
    release, enter = Extender.release, ThreadedLease.entered_by_thread

    def release_late(self: Extender, lease: LeaseRecord) -> object:
        released.set()
        assert entered.wait(PATIENCE)
        return release(self, lease)

    def enter_meanwhile(self: ThreadedLease) -> None:
        closing.append(pool.submit(redlock.close))
        assert released.wait(PATIENCE)
        enter(self)
        entered.set()

    monkeypatch.setattr(Extender, "release", release_late)
    monkeypatch.setattr(ThreadedLease, "entered_by_thread", enter_meanwhile)
    closing: list[Future[None]] = []
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(LockLost, match="its Redlock was closed"),
        redlock.lock("order"),
    ):
        closing[0].result(PATIENCE)


@pytest.mark.parametrize("at", ["refuse_greenlets", "_prepare_end"])
def test_a_lease_that_a_handler_acquires_inside_the_first_use_stays_valid(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    redlock, leases = Redlock(three_nodes.urls), list[Lease]()

    def interrupt() -> None:
        monkeypatch.undo()
        leases.append(redlock.lock("order").acquire())

    monkeypatch.setattr(process_module, at, interrupt)
    redlock.open()
    (lease,) = leases
    assert lease.release()
    redlock.close()
    wait_until(lambda: not engine_threads())


def test_an_opening_that_ends_while_another_thread_begins_a_close_leaves_the_manager_closed(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The opening thread runs between two assignments of the closing thread."""
    redlock, launched, may_go_on = Redlock(three_nodes.urls), threading.Event(), threading.Event()
    launch = thread_module.EngineThread.launch

    def launch_late(self: EngineThread) -> None:
        launched.set()
        assert may_go_on.wait(PATIENCE)
        launch(self)

    class Interleaved(PerProcess[Any]):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if closing and name in {"_closed", "_closings"}:
                closing.clear()
                may_go_on.set()
                with suppress(RedlockClosed):
                    opening.result(PATIENCE)

    closing: list[bool] = []
    monkeypatch.setattr(thread_module.EngineThread, "launch", launch_late)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(redlock.open)
        assert launched.wait(PATIENCE)
        redlock._process.__class__ = Interleaved
        closing.append(True)
        redlock.close()
    with pytest.raises(RedlockClosed):
        redlock.lock("order").acquire()
    wait_until(lambda: not engine_threads())


def test_a_manager_whose_thread_has_died_is_not_said_to_open(three_nodes: NodeSet) -> None:
    redlock = Redlock(three_nodes.urls).open()
    thread = thread_of(redlock)
    thread.post(sys.exit, "on purpose")
    assert thread.ended.wait(PATIENCE)
    for opening in (redlock.open, redlock.__enter__):
        with pytest.raises(RedlockClosed, match="SystemExit: on purpose"):
            opening()
    redlock.close()
    with redlock:
        assert redlock.lock("order").acquire().release()


@pytest.mark.parametrize("kind", ["lock", "semaphore"])
def test_a_call_whose_manager_is_closed_and_reopened_meanwhile_names_no_other_loop(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    redlock, may_go_on = Redlock(three_nodes.urls), threading.Event()
    opened = redlock.opened

    def reopen_afterwards() -> object:
        monkeypatch.undo()
        here = opened()
        # The old thread has not ended yet when the call reaches it.
        thread_of(redlock).post(may_go_on.wait)
        pool.submit(redlock.close)
        wait_until(lambda: redlock._process.here is None)
        redlock.open()
        threading.Timer(0.2, may_go_on.set).start()
        return here

    call = redlock.lock("a").acquire if kind == "lock" else redlock.semaphore("b", 2).inspect
    monkeypatch.setattr(redlock, "opened", reopen_afterwards)
    with ThreadPoolExecutor(1) as pool, pytest.raises(RedlockClosed, match=r"is not open|closed"):
        call()
    redlock.close()


def test_a_sink_may_read_the_leases_of_its_manager(three_nodes: NodeSet) -> None:
    """A sink runs on the engine's thread, which must not wait for itself."""
    seen: list[int] = []

    def sink(event: Event) -> None:
        if isinstance(event, LeaseReleased):
            seen.append(len(redlock.leases))

    with Redlock(three_nodes.urls, node_timeout=2.5, sinks=[sink]) as redlock:
        with redlock.lock("kept"), redlock.lock("order"):
            pass
        assert len(seen) == 2
