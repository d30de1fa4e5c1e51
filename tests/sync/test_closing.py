"""The opening and the closing of a manager for threads, when something comes in between: both end,
and nothing stays behind.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import ConfigurationError, RedlockError
from aioredlock_ng.events import LeaseLost, LeaseReleased
from aioredlock_ng.sync import Redlock
from tests.sync.test_interrupts import engine_threads
from tests.sync.test_locks import PATIENCE, keys_of, wait_until
from tests.sync.test_threads import dying, in_child

if TYPE_CHECKING:
    from aioredlock_ng._threaded.engine_thread import EngineThread
    from aioredlock_ng.events import Event
    from tests.support.node_set import NodeSet


class Interrupted(BaseException):
    """Raised as if by a signal handler."""


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
    redlock = Redlock([url, url.replace("127.0.0.1", "localhost"), three_nodes.urls[1]])
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

    redlock = Redlock(three_nodes.urls)
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
    with Redlock(three_nodes.urls) as redlock, ThreadPoolExecutor(1) as pool:
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
