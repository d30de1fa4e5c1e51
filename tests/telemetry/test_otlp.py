"""What the OTLP exporters send over HTTP, as a collector would decode it."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from aioredlock_ng.telemetry.buckets import WAITS
from aioredlock_ng.telemetry.otel import OpenTelemetrySink
from tests.telemetry.doings import NAME, do_everything

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.node_set import NodeSet


class Collector:
    """Takes what is posted to /v1/traces and /v1/metrics."""

    def __init__(self) -> None:
        bodies: dict[str, list[bytes]] = {"/v1/traces": [], "/v1/metrics": []}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                packed = self.headers.get("Content-Encoding") == "gzip"
                bodies[self.path].append(gzip.decompress(body) if packed else body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._bodies = bodies
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def traces(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for body in self._bodies["/v1/traces"]]

    def metrics(self) -> list[ExportMetricsServiceRequest]:
        return [ExportMetricsServiceRequest.FromString(body) for body in self._bodies["/v1/metrics"]]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


async def test_a_collector_gets_spans_and_metrics(three_nodes: NodeSet, collector: Collector) -> None:
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{collector.url}/v1/traces")))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(f"{collector.url}/v1/metrics"))])
    stats = await do_everything(three_nodes, OpenTelemetrySink(tracer_provider=tracers, meter_provider=meters))
    tracers.shutdown()
    meters.shutdown()

    spans = [s for r in collector.traces() for rs in r.resource_spans for ss in rs.scope_spans for s in ss.spans]
    assert len(spans) == stats.acquired + 3
    assert {span.name for span in spans} == {"lock acquire"}
    assert sum(span.status.code == Status.STATUS_CODE_ERROR for span in spans) == 2
    for span in spans:
        said = {pair.key: pair.value for pair in span.attributes}
        assert said["aioredlock_ng.resource"].string_value == NAME
        if said["aioredlock_ng.outcome"].string_value == "acquired":
            assert said["aioredlock_ng.fence"].int_value > 0
            assert len(span.events) == 3

    metrics = {
        m.name: m for r in collector.metrics() for rm in r.resource_metrics for sm in rm.scope_metrics for m in sm.metrics
    }
    (wait,) = metrics["aioredlock_ng.acquire.wait"].histogram.data_points
    assert wait.count == stats.acquired
    assert tuple(wait.explicit_bounds) == WAITS
    assert metrics["aioredlock_ng.acquire.wait"].unit == "s"
    assert metrics["aioredlock_ng.leases.lost"].sum.is_monotonic
    assert not metrics["aioredlock_ng.leases.held"].sum.is_monotonic
    assert not any(NAME in str(request) for request in collector.metrics())
