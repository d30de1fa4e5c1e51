"""Workers whose locks are counted for Prometheus and traced for OpenTelemetry.

    export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
    # The address of a collector. Without it nothing is traced.
    export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
    python examples/telemetry.py 8000 & curl http://127.0.0.1:8000/metrics

Needs prometheus_client, opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http.
"""

import asyncio
import os
import random
import sys
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client import start_http_server

from aioredlock_ng import AcquireTimeout, LockLost, Redlock
from aioredlock_ng.telemetry.otel import OpenTelemetrySink
from aioredlock_ng.telemetry.prometheus import PrometheusSink

tracer = trace.get_tracer(__name__)


async def worker(redlock, jobs):
    while jobs:
        order = jobs.pop()
        # The span of the lock is a child of this one. So a trace shows which part of a
        # job was waiting.
        with tracer.start_as_current_span("job"):
            try:
                async with redlock.lock(f"order:{order}", blocking_timeout=2):
                    # The work.
                    await asyncio.sleep(random.uniform(0.005, 0.02))
            except (AcquireTimeout, LockLost) as error:
                print(f"order {order}: {error}")
                jobs.insert(0, order)


@contextmanager
def exported_spans():
    """Send spans to OTEL_EXPORTER_OTLP_ENDPOINT, and the last spans at the end."""
    if "OTEL_EXPORTER_OTLP_ENDPOINT" not in os.environ:
        yield
        return
    provider = TracerProvider(resource=Resource.create({"service.name": "workers"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()


async def main(port, jobs):
    sinks = [PrometheusSink(), OpenTelemetrySink()]
    server, _ = start_http_server(port, addr="127.0.0.1")
    print(f"metrics: http://127.0.0.1:{server.server_port}/metrics", flush=True)
    with exported_spans():
        manager = Redlock.from_env(sinks=sinks)
        async with manager as redlock, asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(worker(redlock, jobs))
    server.shutdown()


if __name__ == "__main__":
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    asyncio.run(main(int(sys.argv[1]), [job % 3 for job in range(number)]))
