"""The old body has ended before the new one starts, in a thousand partitions on a virtual clock."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from tests.election.candidates import NAME, Candidate, Log, stop
from tests.support.eventually import eventually
from tests.support.rig import Rig
from tests.support.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.rig import Process

PARTITIONS = 1000
PER_RUN = 50
TTL = 2.0


@pytest.mark.parametrize("seed", range(PARTITIONS // PER_RUN))
def test_no_two_bodies_work_at_once_in_any_partition(seed: int) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        log, shortest = runner.run(_partitions(random.Random(seed)))
    assert log.most == 1
    # Clean-up takes a tenth of the ttl; the rest of the margin is left.
    assert shortest >= 0.0
    assert sum(sign == "+" for _, sign, _ in log.lines) >= PER_RUN


async def _partitions(draw: random.Random) -> tuple[Log, float]:
    """Cut the leader off several times.

    Return the log and the shortest pause between two leaders.
    """
    log = Log()
    async with Rig(3) as rig:
        processes = [await rig.process(ttl=TTL, node_timeout=0.1) for _ in range(3)]
        candidates = [
            Candidate(
                process.redlock.election(NAME, label=f"c{n}"),
                log,
                last_words=draw.uniform(0.0, TTL / 10),
            )
            for n, process in enumerate(processes)
        ]
        await asyncio.sleep(TTL)
        for _ in range(PER_RUN):
            await asyncio.sleep(draw.uniform(0.0, TTL))
            leader = next(n for n, candidate in enumerate(candidates) if candidate.election.leading)
            terms = len(log.lines)
            heal = _cut(processes[leader], draw)
            await eventually(
                lambda terms=terms: len(log.lines) >= terms + 2, within=2 * TTL, every=0.01
            )
            await asyncio.sleep(draw.uniform(0.0, TTL / 2))
            heal()
            for way in range(3):
                rig.ways[way] = draw.uniform(0.0005, 0.02)
        await stop(*candidates)
    ends = [at for _, sign, at in log.lines if sign == "-"]
    begins = [at for _, sign, at in log.lines if sign == "+"]
    return log, min(begin - end for end, begin in zip(ends, begins[1:], strict=False))


def _cut(process: Process, draw: random.Random) -> Callable[[], None]:
    """Cut it off from a majority or from all, by closed or by silent connections; return how to
    heal that.
    """
    nodes = draw.sample(process.nodes, draw.choice((2, 3)))
    silent = [node for node in nodes if draw.random() < 0.5]
    for node in nodes:
        node.hang() if node in silent else node.disconnect()

    def heal() -> None:
        for node in nodes:
            node.resume() if node in silent else node.connect()

    return heal
