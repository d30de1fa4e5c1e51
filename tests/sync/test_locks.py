"""Locks for threads on real nodes: what is promised of acquire, release and loss."""

from __future__ import annotations

import gc
import inspect
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

import aioredlock_ng
from aioredlock_ng import (
    AcquireTimeout,
    ConfigurationError,
    LockHeld,
    LockLost,
    LockReleased,
    QuorumUnreachable,
    RedlockClosed,
    RedlockError,
)
from aioredlock_ng.events import LockAcquired
from aioredlock_ng.sync import Lease, Redlock
from aioredlock_ng.sync._options import LockOptions, RedlockOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from typing import Any

    from aioredlock_ng.events import Event
    from tests.support.node_set import NodeSet

PATIENCE = 30.0


def keys_of(nodes: NodeSet, name: str) -> list[bytes | None]:
    return [node.command("GET", name) for node in nodes]


def wait_until(condition: object, within: float = PATIENCE) -> None:
    assert callable(condition)
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)


def test_wait_lost_with_a_timeout_of_zero_returns_whether_the_lease_is_over(
    redlock: Redlock,
) -> None:
    lease = redlock.lock("order").acquire()
    assert not lease.wait_lost(0)
    lease.release()
    assert lease.wait_lost(0)


def test_a_lock_is_on_every_node_within_the_body_and_on_none_behind_it(
    redlock: Redlock, three_nodes: NodeSet
) -> None:
    with redlock.lock("order", ttl=20) as lease:
        wait_until(lambda: keys_of(three_nodes, "order") == [lease.token.encode()] * 3)
        assert lease.valid
        assert not lease.lost
        assert 15 < lease.remaining() < 20
        lease.check()
        lease.verify()
        assert redlock.leases == (lease,)
        assert redlock.locked("order")
        assert redlock.inspect("order").token == lease.token
    wait_until(lambda: not any(keys_of(three_nodes, "order")))
    with pytest.raises(LockReleased):
        lease.check()
    assert not redlock.leases


def test_threads_exclude_each_other_within_a_manager_and_across_managers(
    redlock: Redlock, rival: Redlock
) -> None:
    inside, overlaps, counts = 0, 0, {"redlock": 0, "rival": 0}

    def work(name: str, manager: Redlock) -> None:
        nonlocal inside, overlaps
        for _ in range(10):
            with manager.lock("order"):
                inside += 1
                overlaps += inside > 1
                counts[name] += 1
                time.sleep(0)
                inside -= 1

    with ThreadPoolExecutor(12) as pool:
        jobs = [
            pool.submit(work, name, manager)
            for name, manager in (("redlock", redlock), ("rival", rival))
            for _ in range(6)
        ]
        for job in jobs:
            job.result(PATIENCE)
    assert counts == {"redlock": 60, "rival": 60}
    assert overlaps == 0


def test_fences_rise_from_lease_to_lease(redlock: Redlock) -> None:
    fences = []
    for _ in range(5):
        with redlock.lock("order") as lease:
            fences.append(lease.fence)
    assert fences == sorted(set(fences))


def test_a_lock_that_another_holds_is_refused_by_name(redlock: Redlock, rival: Redlock) -> None:
    with redlock.lock("order", owner="the first"):
        assert rival.lock("order").try_acquire() is None
        with pytest.raises(LockHeld):
            rival.lock("order", blocking_timeout=0).acquire()
        with pytest.raises(AcquireTimeout):
            rival.lock("order", blocking_timeout=0.2).acquire()
    lease = rival.lock("order").try_acquire()
    assert lease is not None
    assert lease.release()
    assert not lease.release()


def test_a_thread_that_would_wait_for_itself_is_refused(redlock: Redlock) -> None:
    with redlock.lock("order"):
        with pytest.raises(LockHeld, match="this very thread holds it"):
            redlock.lock("invoice", "order").acquire()
        with pytest.raises(AcquireTimeout):
            redlock.lock("order", blocking_timeout=0.1).acquire()
        # Another thread is no reason to refuse: it waits.
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(redlock.lock("order", blocking_timeout=0.1).acquire)
            with pytest.raises(AcquireTimeout):
                job.result(PATIENCE)


@pytest.mark.slow
def test_a_thread_that_computes_for_two_ttls_keeps_its_lock(three_nodes: NodeSet) -> None:
    with Redlock(three_nodes.urls, ttl=4.0) as redlock, redlock.lock("order") as lease:
        end = time.monotonic() + 8.0
        while time.monotonic() < end:
            sum(range(10_000))
        lease.check()


def test_check_the_callback_and_the_end_of_with_report_a_loss(
    redlock: Redlock, rival: Redlock
) -> None:
    told: list[tuple[Lease, str]] = []
    called = threading.Event()

    def on_lost(lost: Lease) -> None:
        told.append((lost, threading.current_thread().name))
        # A slow callback stops nobody: not even a call of the same manager.
        assert redlock.lock("other").try_acquire() is not None
        called.set()

    def body() -> None:
        with redlock.lock("order", on_lost=on_lost) as lease:
            leases.append(lease)
            wait_until(lambda: lease.nodes == (3, 3))
            assert rival.force_release("order") >= 2
            assert lease.wait_lost(PATIENCE)
            assert lease.lost
            assert not lease.valid
            for call in (lease.check, lease.verify, lease.extend):
                with pytest.raises(LockLost):
                    call()

    leases: list[Lease] = []
    with pytest.raises(LockLost) as error:
        body()
    assert error.value.resource == "order"
    assert called.wait(PATIENCE)
    assert told == [(leases[0], "aioredlock_ng:on_lost")]


def test_the_callback_is_not_called_for_a_lease_that_was_released(redlock: Redlock) -> None:
    told: list[Lease] = []
    with redlock.lock("order", on_lost=told.append) as lease:
        assert not lease.wait_lost(0.01)
    assert lease.wait_lost(PATIENCE)
    redlock.close()
    assert not told


def test_an_exception_of_the_body_wins_over_the_loss(redlock: Redlock, rival: Redlock) -> None:
    def body() -> None:
        with redlock.lock("order") as lease:
            rival.force_release("order")
            lease.wait_lost(PATIENCE)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as error:
        body()
    assert "was lost" in error.value.__notes__[0]


def test_the_loss_of_an_inner_lock_carries_a_note_about_the_loss_of_the_outer_lock(
    redlock: Redlock, rival: Redlock
) -> None:
    def body() -> None:
        with redlock.lock("outer") as outer, redlock.lock("inner") as inner:
            for lease in (outer, inner):
                rival.force_release(lease.resource)
                lease.wait_lost(PATIENCE)
            inner.check()

    with pytest.raises(LockLost) as error:
        body()
    assert error.value.resource == "inner"
    (note,) = error.value.__notes__
    assert "'outer' was lost" in note


def test_a_lease_is_extended_and_abandoned(redlock: Redlock, three_nodes: NodeSet) -> None:
    lease = redlock.lock("order", ttl=5).acquire()
    lease.extend(30)
    assert lease.remaining() > 25
    assert lease.ttl == 30
    lease.abandon()
    assert not lease.release()
    assert any(keys_of(three_nodes, "order"))


def test_a_lease_may_be_released_by_another_thread(redlock: Redlock) -> None:
    lease = redlock.lock("order").acquire()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lease.release).result(PATIENCE)


def test_a_with_that_another_thread_leaves_releases_nothing(redlock: Redlock) -> None:
    lock = redlock.lock("order")
    lease = lock.__enter__()
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(lock.__exit__, None, None, None)
        with pytest.raises(RedlockError, match="did not enter it"):
            job.result(PATIENCE)
    lease.check()
    lock.__exit__(None, None, None)
    assert not lease.valid


def test_a_call_on_the_engines_own_thread_is_refused_instead_of_waiting_for_itself(
    three_nodes: NodeSet,
) -> None:
    refused: list[RedlockError] = []

    def sink(event: Event) -> None:
        if isinstance(event, LockAcquired):
            try:
                redlock.lock("other").acquire()
            except RedlockError as error:
                refused.append(error)

    with Redlock(three_nodes.urls, sinks=[sink]) as redlock, redlock.lock("order"):
        pass
    assert "would wait for itself" in str(refused[0]).replace("\n", " ")


def test_a_closed_manager_says_so_and_opens_again(three_nodes: NodeSet) -> None:
    redlock = Redlock(three_nodes.urls, node_timeout=2.5)
    with redlock:
        lease = redlock.lock("order").acquire()
        readiness = [redlock.ready]
    assert not lease.valid
    assert [*readiness, redlock.ready] == [True, False]
    with pytest.raises(RedlockClosed, match=r"open\(\)"):
        redlock.lock("order").acquire()
    with redlock.open():
        assert redlock.lock("order").try_acquire() is not None


def test_a_manager_that_is_closed_while_leases_are_watched_leaves_no_task(
    three_nodes: NodeSet, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        with Redlock(three_nodes.urls) as redlock:
            for number in range(5):
                redlock.lock(f"order:{number}", on_lost=lambda _: None).acquire()
    gc.collect()
    assert "destroyed" not in caplog.text


def test_the_loss_of_a_lock_in_a_generator_is_raised_when_the_generator_is_closed(
    redlock: Redlock,
) -> None:
    def values() -> Iterator[Lease]:
        with redlock.lock("order") as lease:
            yield lease

    opened = values()
    lease = next(opened)
    redlock.force_release("order")
    assert lease.wait_lost(PATIENCE)
    with pytest.raises(LockLost):
        opened.close()  # type: ignore[attr-defined]


def test_a_manager_opens_at_its_first_use_by_many_threads_at_once(three_nodes: NodeSet) -> None:
    redlock = Redlock(three_nodes.urls)
    before = set(threading.enumerate())
    gate = threading.Barrier(8)

    def work(number: int) -> None:
        gate.wait()
        with redlock.lock(f"order:{number}"):
            pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(set(threading.enumerate()) - before) == 1
    assert redlock.stats().acquired == 8
    redlock.close()
    assert set(threading.enumerate()) <= before


def test_a_manager_that_cannot_open_leaves_no_thread(three_nodes: NodeSet) -> None:
    before = set(threading.enumerate())
    same = three_nodes.urls[0].replace("127.0.0.1", "localhost")
    # A node without a connection is compared with no other node.
    redlock = Redlock([*three_nodes.urls[:2], same], connect_timeout=PATIENCE)
    with pytest.raises(ConfigurationError, match="same server"):
        redlock.open()
    # A thread that looked a name up ends by itself.
    wait_until(lambda: set(threading.enumerate()) <= before)


def test_waiting_for_a_quorum_ends_with_the_reason_of_each_node() -> None:
    redlock = Redlock(["redis://127.0.0.1:1"], connect_timeout=0.2)
    with pytest.raises(QuorumUnreachable, match=r"127\.0\.0\.1:1"):
        redlock.wait_ready(0.1)
    redlock.close()


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((), {}, "name"),
        (("order",), {"ttl": -1.0}, "ttl"),
        (("order", "order"), {}, "twice"),
        (("order",), {"on_lost": "cancel"}, "on_lost must be a function"),
        (("order",), {"blocking_timeout": -1.0}, "blocking_timeout"),
    ],
    ids=["no name", "ttl", "names", "on_lost", "blocking_timeout"],
)
def test_bad_arguments_are_refused_before_anything_opens(
    arguments: tuple[str, ...], options: dict[str, object], words: str
) -> None:
    redlock = Redlock(["redis://127.0.0.1:1"])
    with pytest.raises((ConfigurationError, TypeError), match=words):
        redlock.lock(*arguments, **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        Redlock("redis://127.0.0.1:1")
    assert not redlock.ready


@pytest.mark.parametrize("option", [{"thread": True}, {"thread": False}, {"stall_limit": 3.0}])
def test_the_options_of_an_engine_with_a_thread_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"no {next(iter(option))}: its engine always"):
        Redlock(["redis://127.0.0.1:1"], **option)


def test_guard_holds_a_lock_for_each_call(redlock: Redlock) -> None:
    @redlock.guard("report:{number}", blocking_timeout=0)
    def report(number: int) -> bool:
        """Write it."""
        return redlock.locked(f"report:{number}")

    assert report(7)
    assert report.__doc__ == "Write it."
    assert not redlock.locked("report:7")
    with redlock.lock("report:8"), pytest.raises(LockHeld):
        report(8)


def test_a_guard_labels_each_call_by_its_arguments(
    redlock: Redlock, rival: Redlock, three_nodes: NodeSet
) -> None:
    def refused(label: str) -> str:
        # An error is raised once a quorum has answered. So the label must be on every node.
        wait_until(
            lambda: all(value is not None and value.endswith(label.encode()) for value in labels())
        )
        with pytest.raises(LockHeld) as caught:
            rival.lock("account:7", blocking_timeout=0).acquire()
        return str(caught.value)

    def labels() -> list[bytes | None]:
        return keys_of(three_nodes, "aioredlock_ng:owner:account:7")

    @redlock.guard("account:{number}", owner="job {job_id}")
    def report(number: int, job_id: str) -> str:
        return refused(f"job {job_id}")

    @redlock.guard("account:{number}", owner=lambda job_id: f"job {job_id}")
    def other_report(number: int, job_id: str) -> str:
        return refused(f"job {job_id}")

    assert "held by job a: " in report(7, "a")
    assert "held by job b: " in other_report(7, job_id="b")
    with pytest.raises(ConfigurationError, match=r"owner must be one line of text, got 'job \\n'"):
        report(7, "\n")
    with pytest.raises(
        ConfigurationError, match=r"owner: \{job\} names no parameter; there are: number"
    ):
        redlock.guard("account", owner="{job}")(lambda number: None)


def test_work_that_a_guarded_function_only_prepares_does_not_run_without_the_lock(
    redlock: Redlock,
) -> None:
    ran: list[str] = []

    async def coroutine() -> None:
        ran.append("coroutine")

    def generator() -> Iterator[str]:
        ran.append("generator")
        yield ""

    async def values() -> AsyncIterator[str]:
        ran.append("values")
        yield ""

    for function in (coroutine, generator, values):
        for decorate in (redlock.guard("job"), redlock.once(function.__name__, within=5)):

            @decorate
            def call(function: Callable[[], Any] = function) -> Any:
                return function()

            with pytest.raises(ConfigurationError, match="which would run after the release of"):
                call()
    assert ran == []


def test_guard_refuses_functions_that_it_cannot_hold_a_lock_for(redlock: Redlock) -> None:
    async def coroutine() -> None: ...

    def generator() -> object:
        yield 1

    for function in (coroutine, generator, partial(generator)):
        for decorate in (redlock.guard("a name"), redlock.once("a name", within=5)):
            with pytest.raises(ConfigurationError):
                decorate(function)
    with pytest.raises(ConfigurationError, match="a lock needs a name"):
        redlock.guard(generator)  # type: ignore[arg-type]


@pytest.mark.parametrize("decorator", [classmethod, staticmethod, property])
def test_a_decorator_above_that_of_a_method_is_refused_with_the_right_order(
    redlock: Redlock, decorator: Any
) -> None:
    def method(self: object) -> None: ...

    for decorate in (redlock.guard("a name"), redlock.once("a name", within=1)):
        wrong: Any = decorate
        with pytest.raises(ConfigurationError, match="write it directly above the `def`"):
            wrong(decorator(method))


@pytest.mark.parametrize("timeout", ["5", True, math.nan, -1])
def test_a_wait_for_the_loss_refuses_a_wrong_timeout(redlock: Redlock, timeout: Any) -> None:
    with redlock.lock("order") as lease, pytest.raises(ConfigurationError, match=r"^timeout must"):
        lease.wait_lost(timeout)


def test_the_options_equal_the_options_of_the_asyncio_classes() -> None:
    """An option of the asyncio classes must not be missing. Only `on_lost` has another meaning."""
    manager = inspect.signature(aioredlock_ng.Redlock.__init__).parameters
    lock = inspect.signature(aioredlock_ng.Redlock.lock).parameters
    # There the engine has a thread of its own anyway, and no event loop can stand still.
    assert set(RedlockOptions.__annotations__) == set(manager) - {
        "self",
        "nodes",
        "thread",
        "stall_limit",
    }
    assert set(LockOptions.__annotations__) == set(lock) - {"self", "name", "more"}


def test_a_manager_is_made_from_the_environment(three_nodes: NodeSet) -> None:
    environ = {"AIOREDLOCK_NG_NODES": ",".join(three_nodes.urls), "AIOREDLOCK_NG_TTL": "7"}
    with Redlock.from_env(environ) as redlock:
        assert redlock.lock("order").ttl == 7
        assert len(redlock.nodes) == 3


def test_a_lock_stays_taken_for_its_min_hold(redlock: Redlock, rival: Redlock) -> None:
    with redlock.lock("report", min_hold=30.0):
        pass
    assert rival.inspect("report").over
    assert rival.force_release("report") >= 2
    began = time.monotonic()
    with redlock.lock("order", min_hold=1.0):
        pass
    with rival.lock("order"):
        assert time.monotonic() >= began + 1.0


def test_a_guarded_function_keeps_its_lock_for_the_min_hold(
    redlock: Redlock, rival: Redlock, three_nodes: NodeSet
) -> None:
    @redlock.guard("report:{day}", min_hold=30, blocking_timeout=0)
    def report(day: int) -> int:
        return day

    assert report(1) == 1
    assert rival.locked("report:1")
    with pytest.raises(LockHeld):
        report(1)
    assert report(2) == 2
    wait_until(
        lambda: None not in keys_of(three_nodes, "report:1") + keys_of(three_nodes, "report:2")
    )
    assert rival.force_release("report:1") == rival.force_release("report:2") == 3


def test_a_manager_reads_iterators_of_nodes_and_sinks_only_once(three_nodes: NodeSet) -> None:
    heard: list[Event] = []
    redlock = Redlock(iter(three_nodes.urls), sinks=iter([heard.append]))
    for number in (1, 2):
        with redlock, redlock.lock("order"):
            assert len(redlock.nodes) == 3
        assert sum(isinstance(event, LockAcquired) for event in heard) == number
