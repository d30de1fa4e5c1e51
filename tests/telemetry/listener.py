"""OpenTelemetry's SDK, keeping everything in memory, and a sink for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aioredlock_ng.telemetry.otel import OpenTelemetrySink

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["Listener"]


class Listener:
    """Its settings are those of `TracerProvider`."""

    def __init__(self, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider(**settings)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])
        self.sink = OpenTelemetrySink(tracer_provider=self.tracers, meter_provider=self.meters)

    def spans(self) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == "lock acquire"]

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        return {
            metric.name.removeprefix("aioredlock_ng."): metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name: str) -> list[Any]:
        return list(self.metrics()[name].data.data_points)

    def total(self, name: str, **attributes: str) -> float:
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return float(
            sum(p.value for p in self.points(name) if wanted.items() <= dict(p.attributes).items())
        )

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()
