"""The sinks count terms, changes of leader, slow renewals and bodies that work on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from aioredlock_ng import LockLost
from aioredlock_ng.telemetry.otel import OpenTelemetrySink
from aioredlock_ng.telemetry.prometheus import PrometheusSink

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng import Lease
    from aioredlock_ng.events import EventSink
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time


async def do_everything(rig: Rig, sink: EventSink, leading: Callable[[], float]) -> None:
    """End one term by itself, and one by a lost majority whose body works on for a second."""
    process = await rig.process(ttl=1.0, sinks=[sink])
    election = process.redlock.election("cron:nightly", rejoin=False)

    async def done(_lease: Lease) -> None:
        assert leading() == 1

    async def stubborn(lease: Lease) -> None:
        while not lease.lost:
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue
        end = asyncio.get_running_loop().time() + 1
        while (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue

    await election.run(done)
    running = asyncio.create_task(election.run(stubborn))
    await asyncio.sleep(0.2)
    rig.hang(0, 1)
    with pytest.raises(LockLost):
        await running
    assert leading() == 0
    rig.resume()


@pytest.mark.parametrize("kind", [None, "cron"])
async def test_prometheus_counts_the_terms_of_an_election_with_and_without_kinds(
    rig: Rig, kind: str | None
) -> None:
    registry = CollectorRegistry()
    sink = PrometheusSink(
        registry, kind=None if kind is None else lambda name: name.partition(":")[0]
    )
    labels = {} if kind is None else {"kind": kind}

    def value(name: str, **more: str) -> float:
        return (
            registry.get_sample_value(f"aioredlock_ng_election_{name}", {**labels, **more}) or 0.0
        )

    await do_everything(rig, sink, lambda: value("leading"))
    assert value("terms_total", cause="done") == 1
    assert value("terms_total", cause="step_down") == 1
    assert value("terms_total", cause="lost") == 0
    assert value("transitions_total") == 4
    assert value("slow_renewals_total") == 1
    assert value("outlived_terms_total") == 1


@pytest.mark.parametrize("kind", [None, "cron"])
async def test_opentelemetry_counts_the_terms_of_an_election_with_and_without_kinds(
    rig: Rig, kind: str | None
) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    sink = OpenTelemetrySink(
        meter_provider=provider, kind=None if kind is None else lambda name: name.partition(":")[0]
    )
    labels = {} if kind is None else {"aioredlock_ng.kind": kind}

    def value(name: str, **more: str) -> float:
        wanted = {**labels, **{f"aioredlock_ng.{label}": word for label, word in more.items()}}
        data = reader.get_metrics_data()
        assert data is not None
        return sum(
            point.value
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == f"aioredlock_ng.election.{name}"
            for point in metric.data.data_points
            if dict(point.attributes or {}) == wanted
        )

    await do_everything(rig, sink, lambda: value("leading"))
    assert value("terms", cause="done") == 1
    assert value("terms", cause="step_down") == 1
    assert value("transitions") == 4
    assert value("slow_renewals") == 1
    assert value("outlived_terms") == 1
    provider.shutdown()
