"""The telemetry example, as a process: it is scraped while it works, and a collector has its spans
in the end.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.eventually import eventually
from tests.telemetry.exposition import scraped

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet
    from tests.telemetry.collector import Collector

EXAMPLE = Path(__file__).parents[2] / "examples" / "telemetry.py"
JOBS = 800


@pytest.mark.once
async def test_the_example_is_scraped_and_traced(
    three_nodes: NodeSet, collector: Collector
) -> None:
    surroundings = os.environ | {
        "AIOREDLOCK_NG_NODES": ",".join(three_nodes.urls),
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLE, "0", str(JOBS), env=surroundings, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().removeprefix("metrics: ").strip()

        async def working() -> bool:
            seen = await asyncio.to_thread(scraped, url)
            return seen.value("acquire_wait_seconds_count") > 10 and seen.value("leases_held") > 0

        await eventually(working)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    spans = collector.spans()
    jobs = {span.span_id: span for span in spans if span.name == "job"}
    locks = [span for span in spans if span.name == "lock acquire"]
    assert len(jobs) == len(locks) == JOBS
    for lock in locks:
        job = jobs[lock.parent_span_id]
        assert job.trace_id == lock.trace_id
        # The lock's span is begun afterwards, by how long the wait was: by another clock than the
        # job's.
        assert lock.start_time_unix_nano > job.start_time_unix_nano - 10**7
        assert lock.end_time_unix_nano < job.end_time_unix_nano
    assert three_nodes.keys() == [set()] * 3
