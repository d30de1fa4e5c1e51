"""Test the requests that OTLP exporters send over HTTP, decoded as a collector would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from aioredlock_ng.telemetry._buckets import WAITS
from aioredlock_ng.telemetry.otel import OpenTelemetrySink
from tests.telemetry.doings import NAME, do_everything

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet
    from tests.telemetry.collector import Collector


async def test_a_collector_gets_spans_and_metrics(
    three_nodes: NodeSet, collector: Collector
) -> None:
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{collector.url}/v1/traces")))
    meters = MeterProvider(
        [PeriodicExportingMetricReader(OTLPMetricExporter(f"{collector.url}/v1/metrics"))]
    )
    stats = await do_everything(
        three_nodes, OpenTelemetrySink(tracer_provider=tracers, meter_provider=meters)
    )
    tracers.shutdown()
    meters.shutdown()

    spans = collector.spans()
    assert len(spans) == stats.acquired + 3
    assert {span.name for span in spans} == {"lock acquire"}
    assert sum(span.status.code == Status.STATUS_CODE_ERROR for span in spans) == 1
    for span in spans:
        said = {pair.key: pair.value for pair in span.attributes}
        assert said["aioredlock_ng.resource"].string_value == NAME
        if said["aioredlock_ng.outcome"].string_value == "acquired":
            assert said["aioredlock_ng.fence"].int_value > 0
            assert len(span.events) == 3

    metrics = collector.metrics()
    (wait,) = metrics["aioredlock_ng.acquire.wait"].histogram.data_points
    assert wait.count == stats.acquired
    assert tuple(wait.explicit_bounds) == WAITS
    assert metrics["aioredlock_ng.acquire.wait"].unit == "s"
    assert metrics["aioredlock_ng.leases.lost"].sum.is_monotonic
    assert not metrics["aioredlock_ng.leases.held"].sum.is_monotonic
    assert not any(NAME in str(metric) for metric in metrics.values())
