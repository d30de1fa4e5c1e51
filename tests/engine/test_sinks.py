"""Errors and calls of sinks harm no lock. Each sink hears the beginning and the end of a lease."""

from __future__ import annotations

import asyncio
import collections
import logging
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import LockHeld, LockReleased, QuorumUnreachable, RedlockClosed
from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._nodes.memory import MemoryServer
from aioredlock_ng.events import (
    AcquireFailed,
    Event,
    LeaseAbandoned,
    LeaseLost,
    LeaseReleased,
    LeasesRenewed,
    LockAcquired,
    LossFound,
    RenewalFailed,
    WaiterWoken,
)
from tests.support.rig import WAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time


def count_commands(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[str]:
    executed: collections.Counter[str] = collections.Counter()
    execute = MemoryServer.execute

    def counted(self: MemoryServer, command: Any, by: Any) -> Any:
        executed[command.script.name] += 1
        return execute(self, command, by)

    monkeypatch.setattr(MemoryServer, "execute", counted)
    return executed


def in_the_tick_of_the_grant(call: Callable[[], None]) -> None:
    """Behind the answers, before their caller goes on: timers of one instant run in the order of
    their fractions.
    """
    loop = asyncio.get_running_loop()
    loop.call_at(loop.time() + 2 * WAY + 1e-10, call)


def lose_all(process: Process) -> None:
    (lease,) = process.redlock.leases
    lease.lose("while its caller was on its way")


async def test_a_sink_that_raises_a_cancellation_stops_no_timer_of_other_leases(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Event) -> None:
        if isinstance(event, LeaseLost | LockAcquired):
            raise asyncio.CancelledError

    process = await rig.process(sinks=[broken], ttl=1.0)
    leases = [await process.lock(f"r{number}", auto_extend=False).acquire() for number in range(5)]
    await asyncio.sleep(2)
    assert [lease._record.phase for lease in leases] == ["lost"] * 5
    assert sum("sink" in record.getMessage() for record in caplog.records) == 1


async def test_a_sink_that_raises_on_a_loss_and_on_an_acquisition_is_reported_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Event) -> None:
        raise ValueError("no")

    process = await rig.process(sinks=[broken], ttl=1.0)
    await process.lock("a", auto_extend=False).acquire()
    await asyncio.sleep(2)
    assert sum("sink" in record.getMessage() for record in caplog.records) == 1


async def test_a_log_that_raises_stops_no_timer_of_other_leases(rig: Rig) -> None:
    def broken(record: logging.LogRecord) -> bool:
        raise ValueError(record.getMessage())

    process = await rig.process(ttl=1.0)
    leases = [await process.lock(f"r{number}", auto_extend=False).acquire() for number in range(5)]
    log = logging.getLogger("aioredlock_ng")
    log.addFilter(broken)
    try:
        await asyncio.sleep(2)
    finally:
        log.removeFilter(broken)
    assert [lease._record.phase for lease in leases] == ["lost"] * 5


async def test_a_waiter_is_woken_by_a_sink_that_frees_its_lock(rig: Rig) -> None:
    """The waiter makes only one attempt. Of two simultaneous attempts neither would succeed."""
    holder, other = await rig.process(), await rig.process()
    heard: list[Event] = []
    held: list[Any] = []

    def sink(event: Event) -> None:
        heard.append(event)
        if isinstance(event, WaiterWoken) and held:
            held.pop().lose("by a sink")

    process = await rig.process(sinks=[sink])
    foreign = await other.lock("a").acquire()
    waiting = asyncio.create_task(process.lock("a", "b").acquire())
    await asyncio.sleep(0.05)
    held.append(await process.lock("b", ttl=0.5).acquire())
    await foreign.release()
    lease = await waiting
    assert WaiterWoken("a, b", "notified") in heard
    assert not held
    await asyncio.sleep(5)
    assert lease.valid
    assert await lease.release() is True
    await asyncio.sleep(5)
    assert process.redlock.stats().waiting == process.redlock.stats().held == 0
    assert [server.get(key) for server in rig.servers for key in (b"a", b"b")] == [None] * 6
    again = await holder.lock("a", "b", blocking_timeout=0.5).acquire()
    await again.release()


async def test_a_lease_that_a_sink_abandons_when_its_renewal_fails_is_not_renewed_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases: list[Any] = []

    def sink(event: Event) -> None:
        if isinstance(event, RenewalFailed) and leases:
            leases.pop().abandon()

    process = await rig.process(sinks=[sink], ttl=3.0)
    leases.append(await process.lock("a").acquire())
    await asyncio.sleep(0.5)
    rig.hang(0, 1)
    await asyncio.sleep(1.0)
    assert not leases
    executed = count_commands(monkeypatch)
    rig.resume()
    await asyncio.sleep(4)
    assert executed["extend"] == 2
    assert [server.get(b"a") for server in rig.servers] == [None] * 3


async def test_a_lease_that_a_sink_abandons_as_its_renewal_is_sent_is_neither_read_nor_labelled(
    rig: Rig,
) -> None:
    """Connections that are cut fail a renewal before the call that sends it returns."""
    leases: list[Any] = []

    def sink(event: Event) -> None:
        if isinstance(event, RenewalFailed) and leases:
            leases.pop().abandon()

    process = await rig.process(sinks=[sink], ttl=3.0)
    lease = await process.lock("a").acquire()
    leases.append(lease)
    rig.stop(0, 1)
    asked = process.questions()
    with pytest.raises((LockReleased, QuorumUnreachable)):
        await lease.extend()
    await asyncio.sleep(0.1)
    assert not leases
    assert "watch" not in {command.script.name for command in asked}
    assert rig.servers[2].get(owner_key(b"a")) is None


@pytest.mark.parametrize("how", ["abandon", "lose"])
async def test_a_lease_that_a_sink_ends_when_another_is_lost_is_not_renewed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """All leases are due in one slot of the wheel. The loss is reported amid that slot."""
    heard: list[Event] = []
    others: list[Any] = []

    def sink(event: Event) -> None:
        heard.append(event)
        if isinstance(event, LeaseLost):
            while others:
                lease = others.pop()
                lease.abandon() if how == "abandon" else lease.lose("by a sink")

    process = await rig.process(sinks=[sink], ttl=30.0)
    others.extend([await process.lock(f"r{number}").acquire() for number in range(10)])
    doomed = await process.lock("doomed", ttl=10.0, auto_extend=False).acquire()
    others.extend([await process.lock(f"s{number}").acquire() for number in range(10)])
    await asyncio.sleep(0.5)
    # As after a stall of the loop: the timer comes round behind the deadline.
    for lease in [*others[:10], doomed, *others[10:]]:
        process.redlock.engine().extender._schedule.put(
            lease._record, doomed._record.deadline + 0.05
        )
    executed = count_commands(monkeypatch)
    await asyncio.sleep(20)
    assert executed["extend"] == 0
    assert not others
    assert process.redlock.engine().extender.watcher._by_key == {}
    ended = [event for event in heard if isinstance(event, LeaseAbandoned | LeaseLost)]
    assert len(ended) == 21


async def test_the_refusal_of_a_lock_that_its_own_task_holds_is_reported(rig: Rig) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    async with process.lock("a"):
        with pytest.raises(LockHeld):
            await process.lock("a").acquire()
    assert [type(event) for event in heard] == [LockAcquired, AcquireFailed, LeaseReleased]
    assert isinstance(heard[1], AcquireFailed)
    assert (heard[1].error, heard[1].attempts) == ("LockHeld", 0)


async def test_the_loss_of_a_lease_that_no_caller_received_is_not_reported(rig: Rig) -> None:
    """The caller is cancelled in the tick of the grant, and comes round to it when the deadline has
    passed.
    """
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    task = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0)

    def lose() -> None:
        lose_all(process)
        task.cancel()

    in_the_tick_of_the_grant(lose)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(isinstance(event, LeaseLost) for event in heard)


async def test_a_lease_that_is_lost_before_its_caller_goes_on_is_reported_in_order(
    rig: Rig,
) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    task = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0)
    in_the_tick_of_the_grant(lambda: lose_all(process))
    assert (await task).lost
    assert [type(event) for event in heard] == [LockAcquired, LeaseLost]


@pytest.mark.parametrize("how", ["lose", "abandon"])
async def test_a_lease_that_a_sink_ends_at_its_acquisition_is_reported_to_end_once(
    rig: Rig, how: str
) -> None:
    heard: list[Event] = []

    def sink(event: Event) -> None:
        heard.append(event)
        if isinstance(event, LockAcquired):
            (lease,) = process.redlock.leases
            lease.abandon() if how == "abandon" else lease.lose("by a sink")

    process = await rig.process(sinks=[sink])
    lease = await process.lock("a").acquire()
    assert await lease.release() is False
    assert [type(event) for event in heard] == [
        LockAcquired,
        LeaseAbandoned if how == "abandon" else LeaseLost,
    ]


async def test_a_close_reports_an_expired_lease_once_although_a_body_begins_meanwhile(
    rig: Rig,
) -> None:
    heard: list[Event] = []

    def begin(event: Event) -> None:
        # Another thread enters its `with` directly after the loss.
        if isinstance(event, LeaseLost):
            lease._record.thread_inside = True

    process = await rig.process(sinks=[heard.append, begin])
    lease = await process.lock("a", ttl=1.0, auto_extend=False).acquire()
    asyncio.get_running_loop().advance(2)  # type: ignore[attr-defined]
    await process.redlock.aclose()
    assert [type(event) for event in heard] == [LockAcquired, LeaseLost]


@pytest.mark.parametrize("cancels", [0, 1, 2])
async def test_a_loss_that_only_the_release_finds_is_reported(
    rig: Rig, cancels: int, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    lease = await process.lock("a").acquire()
    rig.vacate(b"a")
    release = asyncio.create_task(lease.release())
    for _ in range(cancels):
        await asyncio.sleep(0)
        release.cancel()
    await asyncio.wait([release])
    assert release.cancelled() if cancels else release.result() is False
    assert [type(event) for event in heard] == [LockAcquired, LeaseReleased, LossFound]
    assert lease.was_gone
    assert process.redlock.stats().lost == 1
    (line,) = [line for line in caplog.records if line.levelname == "ERROR"]
    assert "a quorum of nodes no longer held its key when it was released" in line.getMessage()


async def test_a_lease_that_is_abandoned_before_its_caller_goes_on_is_reported_in_order(
    rig: Rig,
) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    task = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0)
    in_the_tick_of_the_grant(lambda: process.redlock.leases[0].abandon())
    await task
    assert [type(event) for event in heard] == [LockAcquired, LeaseAbandoned]


async def test_sinks_may_ask_the_manager_about_itself(rig: Rig) -> None:
    seen: list[tuple[type[Event], int]] = []
    managers: list[Any] = []

    def sink(event: Event) -> None:
        for redlock in managers:
            seen.append((type(event), redlock.stats().held))
            assert len(redlock.leases) == redlock.stats().held
            assert len(redlock.nodes) == 3

    process = await rig.process(sinks=[sink], ttl=1.0)
    managers.append(process.redlock)
    async with process.lock("a"):
        await asyncio.sleep(0.5)
    assert (LockAcquired, 1) in seen
    assert (LeasesRenewed, 1) in seen
    assert (LeaseReleased, 0) in seen


async def test_a_sink_may_close_the_manager(rig: Rig) -> None:
    heard: list[Event] = []
    closing: list[asyncio.Task[None]] = []

    def sink(event: Event) -> None:
        heard.append(event)
        if isinstance(event, WaiterWoken) and not closing:
            closing.append(asyncio.create_task(process.redlock.aclose()))

    process = await rig.process(sinks=[sink])
    rig.occupy(b"a")
    held = await process.lock("b").acquire()
    waiting = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0.05)
    rig.vacate(b"a")
    with pytest.raises(RedlockClosed):
        await waiting
    await asyncio.gather(*closing)
    assert not held.valid
    await asyncio.sleep(0.1)
    assert [server.get(key) for server in rig.servers for key in (b"a", b"b")] == [None] * 6
    taken = [event for event in heard if isinstance(event, LockAcquired)]
    over = [
        event for event in heard if isinstance(event, LeaseReleased | LeaseAbandoned | LeaseLost)
    ]
    assert len(taken) == len(over)
