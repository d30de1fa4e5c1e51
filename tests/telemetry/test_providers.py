"""The OpenTelemetry sink with no SDK, with one that is set later, and without its library."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(code: str) -> str:
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


@pytest.mark.once
def test_the_sink_does_nothing_without_an_sdk() -> None:
    code = """
import sys
sys.modules["opentelemetry.sdk"] = None
from aioredlock_ng.events import *
from aioredlock_ng.telemetry.otel import OpenTelemetrySink
sink = OpenTelemetrySink()
for event in (
    LockAcquired("a", "abc123", 1, 0.1, 1, ()), LeaseLost("a", "abc123", "", 0.1), NodeUp("n:1", "")
):
    sink(event)
print("done")
"""
    assert run(code) == "done\n"


@pytest.mark.once
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_provider_that_is_set_in_a_forked_child_gets_the_states_of_its_nodes() -> None:
    """The parent has reported the same states before, without a provider."""
    code = """
import os, sys
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from aioredlock_ng.events import *
from aioredlock_ng.telemetry.otel import OpenTelemetrySink
sink = OpenTelemetrySink()
sink(NodeUp("n:1", ""))
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
sink(NodeUp("n:1", ""))
scope = reader.get_metrics_data().resource_metrics[0].scope_metrics[0]
(state,) = (metric for metric in scope.metrics if metric.name == "aioredlock_ng.node.state")
for point in state.data.data_points:
    print(point.attributes["aioredlock_ng.state"], point.value)
"""
    assert run(code) == "up 1\n"


@pytest.mark.once
def test_global_providers_may_be_set_after_the_sink_is_made() -> None:
    code = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from aioredlock_ng.events import *
from aioredlock_ng.telemetry.otel import OpenTelemetrySink
sink = OpenTelemetrySink()
exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
metrics.set_meter_provider(MeterProvider([reader]))
sink(LockAcquired("a", "abc123", 1, 0.1, 1, ()))
print([span.name for span in exporter.get_finished_spans()])
scope = reader.get_metrics_data().resource_metrics[0].scope_metrics[0]
print(sorted(metric.name for metric in scope.metrics))
"""
    assert (
        run(code)
        == "['lock acquire']\n['aioredlock_ng.acquire.wait', 'aioredlock_ng.leases.held']\n"
    )


def test_the_error_without_the_library_names_the_extra() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import aioredlock_ng.telemetry.otel"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'install aioredlock-ng with its extra "otel"' in told.stderr
