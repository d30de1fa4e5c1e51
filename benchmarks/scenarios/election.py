"""Measure leader elections: the time to the next leader, and the commands of 50 candidates.

A leader is killed, or resigns.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from typing import IO, TYPE_CHECKING, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import OURS
from benchmarks.crowd.figures import wire_only
from benchmarks.distance import distant
from benchmarks.environments import ROOT
from benchmarks.floor import Floor
from benchmarks.outcome import Outcome, Settings, at_most, median

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["floor_trip", "run"]

_TTL: Final = 2.0
_CANDIDATES: Final = 50
_IDLE_TTL: Final = 10.0
"""The ttl in seconds while many candidates wait and nothing changes."""
_TRIPS: Final = 20
_PAUSE: Final = 0.1
"""Seconds before each round trip and each resignation.

Candidates are idle before they act. Code that has just run is several times as fast.
"""
_DISTANCE: Final = 2.0
"""Milliseconds by which answers come later in a second measurement.

The delay is that of one region of a cloud. Over loopback, most of the time is the time of the
processors.
"""
_SETTLED: Final = 3.0
"""Seconds after which every candidate has its place in the queue."""

# Each printed time is of a clock that all processes of a machine share.
_CANDIDATE: Final = """
import asyncio, json, sys, time
from aioredlock_ng import Redlock

urls, ttl, count = json.loads(sys.argv[1])

def say():
    print(time.monotonic(), flush=True)

async def lead(lease):
    say()
    await asyncio.Event().wait()

async def stand(election):
    while True:
        await election.run(lead)
        # The next leader begins before this one takes a core to stand again.
        await asyncio.sleep(ttl / 40)

async def main():
    managers = [await Redlock(urls, ttl=ttl).open() for _ in range(count)]
    elections = [redlock.election("scheduler", label=f"c{n}") for n, redlock in enumerate(managers)]
    tasks = [asyncio.create_task(stand(election)) for election in elections]
    while await asyncio.to_thread(sys.stdin.readline):
        say()
        await elections[0].resign()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for redlock in managers:
        await redlock.aclose()

asyncio.run(main())
"""


def run(settings: Settings) -> Outcome:
    """Measure a killed and a resigned leader in each round, and fifty candidates once."""
    outcome = Outcome("Leader election, five nodes", ("figure", "median", "worst"))
    for number in range(settings.rounds):
        settings.say(f"election: round {number + 1}/{settings.rounds}")
        # The floor writes a marker that the recovery guard does not trust, so it has servers of its
        # own.
        with LocalNodes(5) as nodes:
            trip = asyncio.run(floor_trip(nodes.urls))
            with distant(nodes.urls, _DISTANCE, range(5)) as urls:
                far_trip = asyncio.run(floor_trip(urls))
        with LocalNodes(5) as nodes:
            killed = _killed(nodes.urls, phase=number / settings.rounds)
            resigned = _resigned(nodes.urls)
            with distant(nodes.urls, _DISTANCE, range(5)) as urls:
                far = _resigned(urls)
        outcome.raw.append(
            {
                "round": number,
                "trip": trip,
                "far_trip": far_trip,
                "killed": killed,
                "resigned": resigned,
                "far": far,
                "trips": resigned / trip,
                "far_trips": far / far_trip,
            }
        )
    settings.say(f"election: {_CANDIDATES} candidates")
    rate = _idle_rate(settings.seconds(60.0, 10.0))
    for name, key in (
        ("killed: seconds to the next leader", "killed"),
        ("resigned: seconds to the next leader", "resigned"),
        ("resigned: round trips of the floor", "trips"),
        (f"resigned, answers {_DISTANCE:g} ms later: seconds", "far"),
        (f"resigned, answers {_DISTANCE:g} ms later: round trips of the floor", "far_trips"),
    ):
        figures = [row[key] for row in outcome.raw]
        outcome.rows.append((name, f"{median(figures):.4f}", f"{max(figures):.4f}"))
    outcome.rows.append((f"{_CANDIDATES} candidates: commands/s", f"{rate:.1f}", f"{rate:.1f}"))
    outcome.medians.append({"killed": median(row["killed"] for row in outcome.raw), "rate": rate})
    outcome.bars.append(
        at_most(
            "killed leader: seconds beyond the ttl",
            max(r["killed"] for r in outcome.raw) - _TTL,
            0.2,
        )
    )
    outcome.bars.append(
        at_most(
            "resigned leader: round trips of the floor",
            median(row["trips"] for row in outcome.raw),
            3,
        )
    )
    far_trips = median(row["far_trips"] for row in outcome.raw)
    outcome.bars.append(
        at_most(f"resigned leader, answers {_DISTANCE:g} ms later: round trips", far_trips, 3)
    )
    outcome.bars.append(
        at_most(f"{_CANDIDATES} candidates: commands per second on all nodes", rate, 5)
    )
    outcome.notes.append(
        f"a round trip: the median time of an acquire of the floor after {_PAUSE:g} s without "
        "work, because candidates are idle"
    )
    return outcome


class _Process:
    def __init__(self, urls: Sequence[str], ttl: float, count: int = 1) -> None:
        command = [sys.executable, "-c", _CANDIDATE, json.dumps([list(urls), ttl, count])]
        self.popen = subprocess.Popen(
            command,
            env=OURS.variables(),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def instant(self) -> float:
        """Return the next time that the process prints."""
        output: IO[str] | None = self.popen.stdout
        assert output is not None
        return float(output.readline())

    def resign(self) -> float:
        """Let the leader resign, and return the time before."""
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()
        return self.instant()

    def close(self) -> None:
        """Kill the process if it still runs."""
        self.popen.kill()
        self.popen.communicate()


@contextmanager
def _candidates(urls: Sequence[str]) -> Iterator[tuple[_Process, _Process]]:
    """Yield a leader and a candidate that has its place in the queue."""
    with closing(_Process(urls, _TTL)) as first:
        first.instant()
        with closing(_Process(urls, _TTL)) as second:
            time.sleep(_SETTLED / 2)
            yield first, second
    # The keys of a killed process expire in this time.
    time.sleep(_TTL)


def _killed(urls: Sequence[str], *, phase: float) -> float:
    """Return the seconds from the death of a leader to the first step of the next one.

    Args:
        urls: The nodes.
        phase: Share of the time between two renewals after which the leader is killed. So the
            remaining time of its lease differs between rounds.
    """
    with _candidates(urls) as (first, second):
        time.sleep(phase * _TTL / 3)
        ended = time.monotonic()
        first.popen.send_signal(signal.SIGKILL)
        return second.instant() - ended


def _resigned(urls: Sequence[str]) -> float:
    """Return the median seconds from a resignation to the first step of the next leader."""
    changes = []
    with _candidates(urls) as (leader, other):
        for _ in range(_TRIPS):
            time.sleep(_PAUSE)
            resigned = leader.resign()
            changes.append(other.instant() - resigned)
            leader, other = other, leader
    return float(median(changes) or 0.0)


def _idle_rate(seconds: float) -> float:
    with LocalNodes(5) as nodes:

        def calls() -> int:
            return sum(wire_only(node.command("INFO", "commandstats").decode()) for node in nodes)

        crowd = _Process(nodes.urls, _IDLE_TTL, _CANDIDATES)
        try:
            crowd.instant()
            # Most candidates enter the queue at the same instant, and some are overtaken by others.
            # An overtaken candidate learns its rank only when the lease that it saw would have
            # ended. After this time nothing changes any more.
            time.sleep(_SETTLED + _IDLE_TTL)
            before = calls()
            time.sleep(seconds)
            rate = (calls() - before) / seconds
            if crowd.popen.poll() is not None:
                raise RuntimeError("the process of the candidates has ended")
            return rate
        finally:
            crowd.close()


async def floor_trip(urls: Sequence[str]) -> float:
    """Return the median time of an acquire of the floor, through an idle event loop.

    An acquire of the floor is one round trip to a majority.
    """
    floor = await Floor.connect(urls)
    trips = []
    for number in range(_TRIPS):
        await asyncio.sleep(_PAUSE)
        began = time.perf_counter()
        grant = await floor.acquire(f"trip:{number}", 1000)
        trips.append(time.perf_counter() - began)
        await floor.release(grant)
    floor.close()
    return float(median(trips) or 0.0)
