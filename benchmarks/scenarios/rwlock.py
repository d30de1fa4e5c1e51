"""Measure readers and writers of one lock: rate of reads, waits of writers and shares."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from statistics import mean
from typing import Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import Client
from benchmarks.outcome import Outcome, Settings, at_least, at_most, median
from benchmarks.process import Driver
from benchmarks.scenarios.election import floor_trip

__all__ = ["run"]

_DRIVER: Final = Client("ours", "rwlock_ours.py")
_PROCESSES: Final = 4
_HOLD: Final = 0.005
_EVERY: Final = 0.1
_READERS: Final = 200
_SIDE: Final = 50
_LONGER: Final = 4
"""Factor by which the crowd runs longer.

A writer enters about twice per second, so a short window gives a coarse share.
"""


def run(settings: Settings) -> Outcome:
    """Measure the four cases in each round.

    The cases are readers alone, readers beside a writer, readers and writers in a crowd, and reads
    of one process that holds a grant.
    """
    outcome = Outcome("A read-write lock, five nodes", ("figure", "median", "worst"))
    seconds = settings.seconds(5.0, 2.0)
    for number in range(settings.rounds):
        settings.say(f"rwlock: round {number + 1}/{settings.rounds}")
        with LocalNodes(5) as nodes:
            trip = asyncio.run(floor_trip(nodes.urls))
        with LocalNodes(5) as nodes:
            alone = _measured(nodes, seconds, readers=_READERS)
            beside = _measured(nodes, seconds, readers=_READERS, lone_writer=True)
            crowd = _measured(nodes, _LONGER * seconds, readers=_SIDE, writers=_SIDE)
            held = _measured(nodes, seconds, readers=10, processes=1, held=True)
        waits = sorted(beside["waits"])
        row = {
            "round": number,
            "trip": trip,
            "alone": sum(alone["reads"]) / seconds,
            "beside": sum(beside["reads"]) / seconds,
            "writes": sum(beside["writes"]),
            "waited": waits[max(0, round(len(waits) * 0.99) - 1)],
            "reader": min(crowd["reads"]) / mean(crowd["reads"]),
            "writer": min(crowd["writes"]) / mean(crowd["writes"]),
            "crowd": {side: sum(crowd[side]) / (_LONGER * seconds) for side in ("reads", "writes")},
            "held": sum(held["reads"]) / seconds,
        }
        row["share"] = row["beside"] / row["alone"]
        row["longest"] = max(beside["longest"])
        row["over"] = (row["waited"] - 2 * trip) / row["longest"]
        outcome.raw.append(row)
    for name, key, worst in (
        (f"{_READERS} readers, no writer: reads/s", "alone", min),
        (f"{_READERS} readers, a writer every {_EVERY:g} s: reads/s", "beside", min),
        ("share of reads beside the writer", "share", min),
        ("writer's wait, p99, seconds", "waited", max),
        ("a round trip of the floor, seconds", "trip", max),
        ("the longest hold of a reader beside it, seconds", "longest", max),
        ("that wait without two round trips, in longest holds", "over", max),
        (f"{_SIDE} and {_SIDE}: slowest reader's share", "reader", min),
        (f"{_SIDE} and {_SIDE}: slowest writer's share", "writer", min),
        ("reads/s of a process that holds a grant", "held", min),
    ):
        figures = [row[key] for row in outcome.raw]
        outcome.rows.append((name, f"{median(figures):.4g}", f"{worst(figures):.4g}"))

    def middle(key: str) -> float:
        return float(median(row[key] for row in outcome.raw) or 0.0)

    outcome.medians.append(
        {key: middle(key) for key in ("share", "over", "reader", "writer", "held")}
    )
    outcome.bars.append(
        at_least("readers beside a writer, share of their rate without one", middle("share"), 0.8)
    )
    outcome.bars.append(
        at_most(
            "writer's wait (p99) without two round trips, in longest holds", middle("over"), 1.5
        )
    )
    outcome.bars.append(
        at_least("slowest reader of 50 beside 50 writers, share", middle("reader"), 0.7)
    )
    outcome.bars.append(
        at_least("slowest writer of 50 beside 50 readers, share", middle("writer"), 0.7)
    )
    outcome.bars.append(
        at_least("reads per second of a process that holds a grant", middle("held"), 20_000)
    )
    return outcome


def _measured(
    nodes: LocalNodes,
    seconds: float,
    *,
    readers: int,
    writers: int = 0,
    lone_writer: bool = False,
    processes: int = _PROCESSES,
    held: bool = False,
) -> dict[str, list[Any]]:
    """Let processes enter for some seconds, and return the figures of all of them.

    Args:
        nodes: The servers.
        seconds: Length of the window.
        readers: Readers of all processes together.
        writers: Writers of all processes together. They come back at once.
        lone_writer: One more process with one writer that comes back after `_EVERY` seconds.
        processes: The number of processes.
        held: Each process reads throughout.
    """
    task: dict[str, Any] = {
        "urls": nodes.urls,
        "seconds": seconds,
        "hold": _HOLD,
        "every": 0.0,
        "held": held,
    }
    tasks = [
        task | {"readers": _part(readers, at, processes), "writers": _part(writers, at, processes)}
        for at in range(processes)
    ]
    if lone_writer:
        tasks.append(task | {"readers": 0, "writers": 1, "every": _EVERY})
    figures: dict[str, list[Any]] = {"reads": [], "writes": [], "waits": [], "longest": []}
    with ExitStack() as stack:
        drivers = [
            stack.enter_context(Driver(_DRIVER.command(), _DRIVER.variables(), one))
            for one in tasks
        ]
        for driver in drivers:
            driver.ready()
        for driver in drivers:
            driver.begin()
        for driver in drivers:
            said = driver.line(seconds + 60)
            for key, found in figures.items():
                found += said[key]
    return figures


def _part(count: int, at: int, parts: int) -> int:
    return count // parts + (at < count % parts)
