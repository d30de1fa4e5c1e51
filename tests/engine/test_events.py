"""Each occurrence is one event for each sink. Without a sink no event is made."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from functools import partial
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import (
    AcquireTimeout,
    ConfigurationError,
    LockHeld,
    LockLost,
    Redlock,
    RedlockClosed,
)
from aioredlock_ng.events import (
    AcquireCancelled,
    AcquireFailed,
    Event,
    LeaseAbandoned,
    LeaseLost,
    LeaseReleased,
    LeasesRenewed,
    LockAcquired,
    LockHandedOver,
    RenewalFailed,
    WaiterWoken,
)
from tests.support.rig import WAY

if TYPE_CHECKING:
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time


async def test_an_uncontended_cycle_is_an_acquisition_and_a_release(rig: Rig) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    async with process.lock("a") as lease:
        (acquired,) = heard
        assert isinstance(acquired, LockAcquired)
        assert acquired.resource == "a"
        assert acquired.fence == lease.fence
        assert acquired.attempts == 1
        assert acquired.waited == pytest.approx(2 * WAY, abs=1e-6)
        assert [vote.node for vote in acquired.votes] == [
            server.address for server in process.nodes
        ]
        assert lease.token.startswith(acquired.token_prefix)
        await asyncio.sleep(0.05)
    assert isinstance(heard[1], LeaseReleased)
    assert heard[1].held_for == pytest.approx(0.05 + 2 * WAY, abs=1e-6)
    assert len(heard) == 2
    assert lease.token not in repr(heard)


async def test_a_lock_passed_on_within_a_process_is_reported_with_the_waiting_time(
    rig: Rig,
) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    first = await process.lock("a").acquire()
    waiting = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0.005)
    await first.release()
    second = await waiting
    kinds = [type(event) for event in heard]
    assert kinds == [LockAcquired, LockHandedOver, LeaseReleased, LockAcquired]
    assert isinstance(heard[-1], LockAcquired)
    assert heard[-1].waited == pytest.approx(0.005 + 2 * WAY, abs=0.002)
    await second.release()


async def test_the_lease_of_a_semaphore_is_reported_with_its_slot(rig: Rig) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    async with (
        process.redlock.semaphore("gpu", 2) as one,
        process.redlock.semaphore("gpu", 2) as other,
        process.lock("a"),
    ):
        pass
    told = [(event.resource, event.slot) for event in heard if isinstance(event, LockAcquired)]
    assert told == [("gpu", one.slot), ("gpu", other.slot), ("a", None)]


async def test_a_waiter_in_another_process_is_woken_by_a_notification(rig: Rig) -> None:
    heard: list[Event] = []
    holder = await rig.process()
    process = await rig.process(sinks=[heard.append])
    lease = await holder.lock("a").acquire()
    waiting = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0.03)
    await lease.release()
    await (await waiting).release()
    assert [event for event in heard if isinstance(event, WaiterWoken)] == [
        WaiterWoken("a", "notified")
    ]
    acquired = next(event for event in heard if isinstance(event, LockAcquired))
    assert acquired.attempts == 2


async def test_a_waiter_is_woken_by_expiry(rig: Rig) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    rig.occupy(b"a", ttl=0.5)
    for server in rig.servers:
        server.tracks = False
    await (await process.lock("a").acquire()).release()
    causes = {event.cause for event in heard if isinstance(event, WaiterWoken)}
    assert causes <= {"notified", "expiry", "fallback"}
    assert causes


async def test_failures_are_reported_with_the_error_and_the_votes(rig: Rig) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    rig.occupy(b"a")
    with pytest.raises(LockHeld):
        await process.lock("a", blocking_timeout=0).acquire()
    with pytest.raises(AcquireTimeout):
        await process.lock("a", blocking_timeout=0.2).acquire()
    failed = [event for event in heard if isinstance(event, AcquireFailed)]
    assert [event.error for event in failed] == ["LockHeld", "AcquireTimeout"]
    assert failed[1].waited == pytest.approx(0.2, abs=0.01)
    assert len(failed[0].votes) == 3
    assert "held by another" in failed[0].reason


async def test_an_acquisition_that_aclose_ends_is_reported(rig: Rig) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    rig.occupy(b"a")
    waiting = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0.1)
    await process.redlock.aclose()
    with pytest.raises(RedlockClosed):
        await waiting
    (failed,) = [event for event in heard if isinstance(event, AcquireFailed)]
    assert (failed.error, failed.votes) == ("RedlockClosed", ())


async def test_a_cancelled_wait_is_reported_once(rig: Rig) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    rig.occupy(b"a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await process.lock("a").acquire()
    (event,) = heard
    assert isinstance(event, AcquireCancelled)
    assert event.attempts == 1


async def test_a_loss_is_reported_to_the_log_and_to_the_sinks(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])

    async def hold() -> None:
        async with process.lock("a"):
            await asyncio.sleep(0.2)
            rig.vacate(b"a")
            await asyncio.sleep(60)

    with pytest.raises(LockLost):
        await hold()
    (lost,) = [event for event in heard if isinstance(event, LeaseLost)]
    assert lost.resource == "a"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert not any(isinstance(event, LeaseReleased) for event in heard)


async def test_renewals_are_reported_in_batches_and_failed_renewals_one_by_one(rig: Rig) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append], ttl=3.0)
    leases = [await process.lock(f"r{number}").acquire() for number in range(10)]
    await asyncio.sleep(1.2)
    renewed = [event for event in heard if isinstance(event, LeasesRenewed)]
    assert sum(event.leases for event in renewed) == 10
    assert all(event.took == pytest.approx(2 * WAY, abs=1e-6) for event in renewed)
    rig.hang(0, 1)
    await asyncio.sleep(1.6)
    failed = [event for event in heard if isinstance(event, RenewalFailed)]
    assert {event.resource for event in failed} == {lease.resource for lease in leases}
    assert all(event.silent and event.remaining > 0 for event in failed)
    rig.resume()
    await asyncio.sleep(0.3)
    for lease in leases:
        await lease.release()


async def test_a_failed_renewal_that_nodes_refused_is_not_reported_as_silent(rig: Rig) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append], ttl=3.0)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.5)
    rig.refuse("MISCONF cannot persist", 0, 1)
    await asyncio.sleep(0.7)
    failed = [event for event in heard if isinstance(event, RenewalFailed)]
    assert failed
    assert not any(event.silent for event in failed)
    rig.refuse(None, 0, 1)
    await lease.release()


async def test_a_renewal_that_fails_for_one_lease_is_not_reported_for_the_others(rig: Rig) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append], ttl=9.0, fencing=False)
    leases = [await process.lock(name).acquire() for name in ("a", "b")]
    await asyncio.sleep(0.5)
    rig.vacate(b"b", on=(1,))
    rig.hang(2)
    process.redlock.engine().extender.renew([lease._record for lease in leases], 9.0)
    await asyncio.sleep(0.3)
    failed = [event for event in heard if isinstance(event, RenewalFailed)]
    assert [event.resource for event in failed] == ["b"]
    rig.resume()
    await asyncio.sleep(0.3)
    for lease in leases:
        await lease.release()


async def test_a_renewal_under_way_is_not_reported_as_failed_after_the_end_of_its_lease(
    rig: Rig,
) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append], ttl=9.0)
    lease = await process.lock("a").acquire()
    rig.hang(0, 1, 2)
    process.redlock.engine().extender.renew([lease._record], 9.0)
    await asyncio.sleep(0.05)
    lease.abandon()
    await asyncio.sleep(0.3)
    assert not any(isinstance(event, RenewalFailed) for event in heard)
    assert process.redlock.stats().renewals_failed == 0


async def test_a_lease_that_no_caller_received_is_not_reported_as_released(rig: Rig) -> None:
    """A count of leases needs a beginning for each end.

    Here the caller is cancelled in the tick of the grant.
    """
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    task = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0)

    def cancel() -> None:
        assert process.redlock.leases
        task.cancel()

    loop = asyncio.get_running_loop()
    # Behind the answers, in their tick: timers of one instant run in the order of their fractions.
    loop.call_at(loop.time() + 2 * WAY + 1e-10, cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [type(event) for event in heard] == [AcquireCancelled]
    assert not process.redlock.leases


async def test_an_abandoned_lease_is_reported(rig: Rig) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    lease = await process.lock("a").acquire()
    lease.abandon()
    assert isinstance(heard[-1], LeaseAbandoned)


async def test_acquisitions_are_reported_in_the_context_of_their_caller(rig: Rig) -> None:
    """Traces need the span that is current where `acquire` was called."""
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request")
    heard: list[tuple[str, type[Event]]] = []
    process = await rig.process(
        sinks=[lambda event: heard.append((request.get("none"), type(event)))]
    )
    first = await process.lock("a").acquire()
    heard.clear()

    async def ask(name: str, timeout: float) -> None:
        request.set(name)
        try:
            lease = await process.lock("a", blocking_timeout=timeout).acquire()
        except AcquireTimeout:
            return
        await lease.release()

    tasks = [asyncio.create_task(ask("one", 5)), asyncio.create_task(ask("two", 0.05))]
    await asyncio.sleep(0.1)
    await first.release()
    await asyncio.gather(*tasks)
    told = [(name, kind) for name, kind in heard if kind in (LockAcquired, AcquireFailed)]
    assert told == [("two", AcquireFailed), ("one", LockAcquired)]


async def test_a_sink_that_raises_stops_no_acquisition_and_is_reported_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise ValueError("no")

    process = await rig.process(sinks=[broken, heard.append])
    for _ in range(3):
        async with process.lock("a"):
            pass
    assert len(heard) == 6
    (record,) = caplog.records
    assert "broken" in record.getMessage()
    assert "LockAcquired" in record.getMessage()


async def test_a_lease_that_was_granted_while_its_manager_closed_is_not_reported(rig: Rig) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    task = asyncio.create_task(process.lock("a").acquire())
    while not process.redlock.leases:
        await asyncio.sleep(WAY / 10)
    await process.redlock.aclose()
    if not task.done() or task.exception() is not None:
        with pytest.raises(RedlockClosed):
            await task
        assert not any(isinstance(event, LockAcquired) for event in heard)


class Awaited:
    async def __call__(self, event: Event) -> None:
        raise AssertionError("nobody awaits it")


@pytest.mark.parametrize(
    "sinks",
    [print, 7, ["text"], [None], [Awaited().__call__], [Awaited()], [partial(Awaited().__call__)]],
)
def test_an_invalid_sink_is_refused(sinks: object) -> None:
    with pytest.raises(ConfigurationError, match="sinks"):
        Redlock(["redis://127.0.0.1:1"], sinks=sinks)  # type: ignore[arg-type]
