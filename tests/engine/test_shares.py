"""Processes with waiting tasks for one name: each process gets its share and passes grants on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time

HOLD = 0.002


async def served(processes: list[Process], seconds: float) -> list[int]:
    """How many leases each process has in this time, with five tasks in each that want the lock
    again and again.
    """
    loop = asyncio.get_running_loop()
    end, counts = loop.time() + seconds, [0] * len(processes)

    async def work(number: int, process: Process) -> None:
        while loop.time() < end:
            async with process.lock("a"):
                counts[number] += 1
                await asyncio.sleep(HOLD)

    async with asyncio.TaskGroup() as group:
        for number, process in enumerate(processes):
            for _ in range(5):
                group.create_task(work(number, process))
    return counts


@pytest.mark.parametrize("rig", [3, 5], indirect=True)
@pytest.mark.parametrize("count", [2, 4])
async def test_processes_with_equally_long_lines_get_equal_shares(rig: Rig, count: int) -> None:
    processes = [await rig.process() for _ in range(count)]
    counts = await served(processes, 5.0)
    assert min(counts) > 0.8 * max(counts)


@pytest.mark.parametrize("rig", [3, 5], indirect=True)
async def test_a_process_that_waited_for_another_passes_its_grant_on(rig: Rig) -> None:
    processes = [await rig.process() for _ in range(2)]
    counts = await served(processes, 5.0)
    # Each process passes on for 20 ms, which is some nine leases of 2 ms, and asks twice for that.
    for process, count in zip(processes, counts, strict=True):
        assert process.redlock.stats().attempts < 0.3 * count
