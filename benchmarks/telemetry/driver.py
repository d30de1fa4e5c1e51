"""One process of the measurement: cycles of a hundred coroutines with one kind of sink; it compares nothing.

`python driver.py SINK URL…` prints a line when it is connected. For each number on standard input
it acquires and releases that many times, and prints the CPU seconds that its process spent on it,
exporting included. Without a URL the nodes are in its own memory and its clock is a virtual one, so
that it takes the very same steps each time: for counting instructions. It runs with any version of
the package that `PYTHONPATH` names, also with one that knows no sinks.
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
    """Nobody listens, not even to the log."""
    logging.getLogger("aioredlock_ng").disabled = True
    return [], int


def log() -> Chosen:
    """The log alone, with everything in it: the default of an application that shows INFO."""
    logging.basicConfig(stream=open(os.devnull, "w"), level=logging.DEBUG)  # noqa: SIM115
    return [], int


def no_op() -> Chosen:
    """A sink that does nothing: what making the events costs."""
    return [lambda event: None], int


def prometheus() -> Chosen:
    from prometheus_client import CollectorRegistry

    from aioredlock_ng.telemetry.prometheus import PrometheusSink

    return [PrometheusSink(CollectorRegistry())], int


def otel_api() -> Chosen:
    """No SDK: what an instrumented application costs where nothing collects."""
    from aioredlock_ng.telemetry.otel import OpenTelemetrySink

    return [OpenTelemetrySink()], int


def otel_sdk() -> Chosen:
    """Every span recorded, in batches, and kept in memory; metrics aggregated."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from aioredlock_ng.telemetry.otel import OpenTelemetrySink

    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    # None is dropped, so that none is free.
    tracers.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=1 << 20))
    meters = MeterProvider([InMemoryMetricReader()])

    def flush() -> None:
        tracers.force_flush()
        exporter.clear()

    return [OpenTelemetrySink(tracer_provider=tracers, meter_provider=meters)], flush


def otel_sampled() -> Chosen:
    """The SDK keeping one trace in a hundred."""
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
    """Let every coroutine take and release a lock of its own `each` times."""

    async def one(name: str) -> None:
        for _ in range(each):
            lease = await redlock.lock(name).acquire()
            await lease.release()

    await asyncio.gather(*(one(f"order:{number}") for number in range(COROUTINES)))


async def main(kind: str, urls: list[str]) -> None:
    """Measure as often as asked."""
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
    """Five nodes a millisecond away, and in `options` what makes every run the same."""
    from aioredlock_ng._nodes.memory import MemoryNode, MemoryServer

    # When the collector comes round depends on all that was ever made.
    gc.disable()
    options |= {"clock": asyncio.get_running_loop().time, "rng": random.Random(1)}
    return [
        MemoryNode(MemoryServer(f"memory-{number}"), latency=lambda: 0.001) for number in range(5)
    ]


def loop() -> asyncio.AbstractEventLoop:
    """The loop of the suite whose clock jumps."""
    sys.path.append(str(Path(__file__).parents[2]))
    from tests.support.virtual_loop import VirtualLoop

    return VirtualLoop()


if __name__ == "__main__":
    kind, *urls = sys.argv[1:]
    with asyncio.Runner(loop_factory=None if urls else loop) as runner:
        runner.run(main(kind, urls))
