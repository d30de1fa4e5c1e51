"""Run cycles of a hundred coroutines with one kind of sink.

`python driver.py SINK URL…` prints a line when it is connected. For each number on stdin it
acquires and releases that many times, and prints the CPU seconds of the process, with the export.
Without a URL the nodes are in memory and the clock is virtual. So each run takes the same steps,
and its instructions can be counted. The driver runs with any version of the package on
`PYTHONPATH`, even with a version without sinks.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioredlock_ng import Redlock

if TYPE_CHECKING:
    from collections.abc import Callable

COROUTINES = 100

Chosen = tuple[list[Any], "Callable[[], object]"]


def off() -> Chosen:
    """Listen to nothing, not even to the log."""
    logging.getLogger("aioredlock_ng").disabled = True
    return [], int


def log() -> Chosen:
    """Listen to the log alone, with all records, as an application that shows INFO does."""
    logging.basicConfig(stream=open(os.devnull, "w"), level=logging.DEBUG)  # noqa: SIM115
    return [], int


def no_op() -> Chosen:
    """Listen with a sink that does nothing. This measures the cost of making the events."""
    return [lambda event: None], int


def prometheus() -> Chosen:
    from prometheus_client import CollectorRegistry

    from aioredlock_ng.telemetry.prometheus import PrometheusSink

    return [PrometheusSink(CollectorRegistry())], int


def otel_api() -> Chosen:
    """Listen with OpenTelemetry's API without an SDK, as if nothing collects the telemetry."""
    from aioredlock_ng.telemetry.otel import OpenTelemetrySink

    return [OpenTelemetrySink()], int


def otel_sdk() -> Chosen:
    """Listen with the SDK. It records every span in batches in memory, and aggregates metrics."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from aioredlock_ng.telemetry.otel import OpenTelemetrySink

    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    # The queue must hold every span, because a dropped span costs nothing.
    tracers.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=1 << 20))
    meters = MeterProvider([InMemoryMetricReader()])

    def flush() -> None:
        tracers.force_flush()
        exporter.clear()

    return [OpenTelemetrySink(tracer_provider=tracers, meter_provider=meters)], flush


def otel_sampled() -> Chosen:
    """Listen with the SDK, which keeps one trace in a hundred."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

    from aioredlock_ng.telemetry.otel import OpenTelemetrySink

    exporter, tracers = InMemorySpanExporter(), TracerProvider(sampler=TraceIdRatioBased(0.01))
    tracers.add_span_processor(BatchSpanProcessor(exporter))
    meters = MeterProvider([InMemoryMetricReader()])
    return [OpenTelemetrySink(tracer_provider=tracers, meter_provider=meters)], tracers.force_flush


KINDS: dict[str, Callable[[], Chosen]] = {
    "off": off,
    "log": log,
    "no-op": no_op,
    "prometheus": prometheus,
    "otel-api": otel_api,
    "otel-sdk": otel_sdk,
    "otel-sampled": otel_sampled,
}


async def cycles(redlock: Redlock, each: int) -> None:
    """Let every coroutine acquire and release a lock of its own `each` times."""

    async def one(name: str) -> None:
        for _ in range(each):
            lease = await redlock.lock(name).acquire()
            await lease.release()

    await asyncio.gather(*(one(f"order:{number}") for number in range(COROUTINES)))


async def main(kind: str, urls: list[str]) -> None:
    """Measure once for each line on stdin."""
    sinks, flush = KINDS[kind]()
    options: dict[str, Any] = {"sinks": sinks} if sinks else {}
    nodes = urls or in_memory(options)
    async with Redlock(nodes, **options) as redlock:
        print("ready", flush=True)
        for line in sys.stdin:
            started = time.process_time()
            await cycles(redlock, int(line) // COROUTINES)
            flush()
            print(time.process_time() - started, flush=True)


def in_memory(options: dict[str, Any]) -> list[Any]:
    """Return five nodes with a latency of a millisecond.

    The function also adds options that make every run take the same steps.
    """
    from aioredlock_ng._nodes.memory import MemoryNode, MemoryServer

    # The garbage collector runs after a number of allocations, which differs between runs.
    gc.disable()
    options |= {"clock": asyncio.get_running_loop().time, "rng": random.Random(1)}
    return [
        MemoryNode(MemoryServer(f"memory-{number}"), latency=lambda: 0.001) for number in range(5)
    ]


def loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the test suite whose clock jumps."""
    sys.path.append(str(Path(__file__).parents[2]))
    from tests.support.virtual_loop import VirtualLoop

    return VirtualLoop()


if __name__ == "__main__":
    kind, *urls = sys.argv[1:]
    with asyncio.Runner(loop_factory=None if urls else loop) as runner:
        runner.run(main(kind, urls))
