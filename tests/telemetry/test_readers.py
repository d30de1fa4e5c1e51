"""Read leases in events, spans and metrics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng.events import (
    AcquireCancelled,
    AcquireFailed,
    LeaseDowngraded,
    LeaseLost,
    LeaseReleased,
    LockAcquired,
)
from aioredlock_ng.telemetry.otel import OpenTelemetrySink
from aioredlock_ng.telemetry.prometheus import PrometheusSink
from tests.telemetry.exposition import exposed

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tests.support.rig import Rig
    from tests.telemetry.listener import Listener

NAME = "catalog:7"


def kind(name: str) -> str:
    return name.partition(":")[0]


@pytest.mark.virtual_time
async def test_each_lease_that_shares_a_grant_is_acquired_and_released(rig: Rig) -> None:
    events: list[Any] = []
    process = await rig.process(sinks=[events.append])
    catalog = process.redlock.rwlock(NAME)
    first = await catalog.read().acquire()
    second = await asyncio.create_task(catalog.read().acquire())
    assert first.token == second.token
    acquired = [event for event in events if isinstance(event, LockAcquired)]
    assert [(event.shared, event.attempts, event.fence) for event in acquired] == [
        (True, 1, first.fence),
        (True, 0, second.fence),
    ]
    for lease in (first, second):
        await lease.release()
    assert [event.shared for event in events if isinstance(event, LeaseReleased)] == [True, True]


@pytest.mark.virtual_time
async def test_events_say_which_side_of_the_lock_they_are_about(rig: Rig) -> None:
    events: list[Any] = []
    process, other = await rig.process(sinks=[events.append]), await rig.process()
    catalog = process.redlock.rwlock(NAME)
    theirs = await other.redlock.rwlock(NAME).write().acquire()
    for side in (catalog.read(), catalog.write()):
        assert await side.try_acquire() is None
        waiting = asyncio.create_task(side.acquire())
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.wait([waiting])
    await theirs.release()
    assert [event.shared for event in events if isinstance(event, AcquireFailed)] == [True, False]
    assert [event.shared for event in events if isinstance(event, AcquireCancelled)] == [
        True,
        False,
    ]
    async with catalog.write() as lease:
        await lease.downgrade()
        await lease.downgrade()
    told = [
        event
        for event in events
        if isinstance(event, (LockAcquired, LeaseDowngraded, LeaseReleased))
    ]
    assert [type(event) for event in told] == [LockAcquired, LeaseDowngraded, LeaseReleased]
    assert [event.shared for event in told if not isinstance(event, LeaseDowngraded)] == [
        False,
        True,
    ]


@pytest.mark.virtual_time
async def test_readers_and_writers_are_kinds_of_their_own(
    rig: Rig, registry: CollectorRegistry
) -> None:
    process = await rig.process(sinks=[PrometheusSink(registry, kind=kind)])
    catalog = process.redlock.rwlock(NAME)

    def held() -> tuple[float | None, float | None]:
        seen = exposed(registry)
        return seen.value("leases_held", kind="catalog"), seen.value(
            "leases_held", kind="catalog read"
        )

    writer = await catalog.write().acquire()
    assert exposed(registry).value("leases_held", kind="catalog") == 1
    await writer.downgrade()
    assert held() == (0, 1)
    reader = await catalog.read().acquire()
    assert held() == (0, 2)
    await writer.release()
    await reader.release()
    assert held() == (0, 0)
    seen = exposed(registry)
    assert seen.value("acquire_wait_seconds_count", kind="catalog") == 1
    assert seen.value("acquire_wait_seconds_count", kind="catalog read") == 1
    assert seen.value("lease_hold_seconds_count", kind="catalog read") == 2


@pytest.mark.virtual_time
async def test_without_kinds_the_leases_held_are_right_after_a_downgrade(
    rig: Rig, registry: CollectorRegistry
) -> None:
    process = await rig.process(sinks=[PrometheusSink(registry)])
    async with process.redlock.rwlock(NAME).write() as lease:
        await lease.downgrade()
        assert exposed(registry).value("leases_held") == 1
    assert exposed(registry).value("leases_held") == 0


def test_spans_and_metrics_of_opentelemetry_distinguish_readers(listener: Listener) -> None:
    sink = OpenTelemetrySink(
        tracer_provider=listener.tracers, meter_provider=listener.meters, kind=kind
    )
    sink(LockAcquired(NAME, "abc123", 15, 0.1, 1, (), shared=True))
    sink(LockAcquired(NAME, "abc124", 16, 0.1, 1, ()))
    attributes = [dict(span.attributes or {}) for span in listener.spans()]
    assert [found.get("aioredlock_ng.shared") for found in attributes] == [True, None]
    assert [found["aioredlock_ng.kind"] for found in attributes] == ["catalog read", "catalog"]
    sink(LeaseDowngraded(NAME, "abc124"))
    sink(LeaseLost(NAME, "abc123", "gone", 0.1, shared=True))
    sink(LeaseReleased(NAME, "abc124", 0.1, shared=True))
    held = {
        point.attributes["aioredlock_ng.kind"]: point.value
        for point in listener.points("leases.held")
    }
    assert held == {"catalog": 0, "catalog read": 0}
