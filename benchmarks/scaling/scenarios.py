"""Simulate latency, contention, a mix of hot and cold names, and rising load."""

from __future__ import annotations

import asyncio
import statistics
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from benchmarks.scaling.fleet import NETWORKS, Fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from benchmarks.scaling.fleet import Member

__all__ = ["CONDITIONS", "contention", "latency", "load", "mix"]

CONDITIONS = ("all well", "one slow", "one dead", "all but a majority dead")

_THINK = 0.02
_TASKS = 5


def latency(
    network: str, nodes: int, condition: str, costs: Mapping[str, float], size: tuple[int, int]
) -> dict[str, Any]:
    """Simulate acquisitions without contention, one after the other.

    Args:
        network: The name of the network.
        nodes: Number of nodes.
        condition: A member of `CONDITIONS`.
        costs: Costs of the servers.
        size: Number of processes, each at another place, and of acquisitions of each.
    """
    processes, each = size
    times: list[float] = []

    async def work(member: Member) -> None:
        for number in range(each):
            started = member.loop.clock()
            async with member.redlock.lock(f"{member.loop.name} {number}"):
                times.append(member.loop.clock() - started)
            await asyncio.sleep(_THINK * member.rng.random())

    fleet = Fleet(1, processes, nodes, NETWORKS[network], costs)
    dead = {"one dead": 1, "all but a majority dead": nodes - fleet.quorum}.get(condition, 0)
    for server in fleet.servers[:dead]:
        server.crash()
    if condition == "one slow":
        for member in fleet.members:
            member.links[0].extra[:] = [0.02 + fleet.network.most] * 2
    fleet.work(1e9, [work])
    fleet.end()
    return {"network": network, "nodes": nodes, "condition": condition, **_percentiles(times)}


def contention(
    network: str, nodes: int, processes: int, costs: Mapping[str, float], most: tuple[int, float]
) -> dict[str, Any]:
    """Simulate processes that contend for one lock, with holds of 0.

    Args:
        network: The name of the network.
        nodes: Number of nodes.
        processes: Number of processes.
        costs: Costs of the servers.
        most: The largest number of hand-overs and the longest time in seconds. The warm-up takes
            a quarter of this time.
    """
    turns: list[str] = []
    fleet = Fleet(2, processes, nodes, NETWORKS[network], costs)

    async def work(member: Member) -> None:
        while not fleet.over:
            async with member.redlock.lock("hot"):
                if fleet.counting:
                    turns.append(member.loop.name)

    seconds = fleet.work(most[1], [work], warm_up=most[1] / 4, enough=lambda: len(turns) >= most[0])
    commands, pushes, splits = (
        fleet.tally.commands.total(),
        fleet.tally.pushes,
        fleet.tally.splits(fleet.quorum),
    )
    busy = max(server.busy for server in fleet.servers)
    fleet.end()
    count = max(1, len(turns))
    return {
        "network": network,
        "nodes": nodes,
        "processes": processes,
        "rate": len(turns) / seconds,
        "commands": commands / count,
        "pushes": pushes / count,
        "splits": splits / count,
        "busy": busy / seconds,
        "changes": sum(one != other for one, other in pairwise(turns)) / seconds,
        "served": len(set(turns)),
        "count": len(turns),
    }


def mix(
    pick: Callable[[Random], tuple[bool, str]],
    nodes: int,
    processes: int,
    costs: Mapping[str, float],
    seconds: float,
) -> dict[str, Any]:
    """Simulate processes of five tasks each in one zone.

    Each task acquires a lock, releases it at once, and sleeps for 20 ms on average.

    Args:
        pick: Draws a name, and whether the name is the hot one.
        nodes: Number of nodes.
        processes: Number of processes.
        costs: Costs of the servers.
        seconds: The measured time, after a warm-up of half this time.
    """
    times: dict[bool, list[float]] = {False: [], True: []}
    fleet = Fleet(3, processes, nodes, NETWORKS["one zone"], costs)

    async def work(member: Member) -> None:
        while not fleet.over:
            await asyncio.sleep(member.rng.expovariate(1 / _THINK))
            hot, name = pick(member.rng)
            started = member.loop.clock()
            async with member.redlock.lock(name):
                if fleet.counting:
                    times[hot].append(member.loop.clock() - started)

    before = _second_rounds(fleet)
    passed = fleet.work(seconds, [work] * _TASKS, warm_up=seconds / 2)
    second = _second_rounds(fleet) - before
    commands = fleet.tally.commands.total()
    fleet.end()
    both = times[False] + times[True]
    return {
        "nodes": nodes,
        "tasks": processes * _TASKS,
        "rate": len(both) / passed,
        "hot_rate": len(times[True]) / passed,
        "commands": commands / max(1, len(both)),
        "second_rounds": second / max(1, len(both)),
        "hot": _percentiles(times[True]),
        "cold": _percentiles(times[False]),
        **_percentiles(both),
    }


def load(
    nodes: int, rate: float, processes: int, costs: Mapping[str, float], seconds: float
) -> dict[str, Any]:
    """Simulate acquisitions without contention at a given rate, in one zone.

    The acquisitions begin at random times.

    Args:
        nodes: Number of nodes.
        rate: Acquisitions per second of all processes together.
        processes: Number of processes.
        costs: Costs of the servers.
        seconds: The measured time, after a warm-up of half this time.
    """
    times: list[float] = []
    fleet = Fleet(4, processes, nodes, NETWORKS["one zone"], costs)

    async def one(member: Member, name: str) -> None:
        started = member.loop.clock()
        async with member.redlock.lock(name):
            if fleet.counting:
                times.append(member.loop.clock() - started)

    async def work(member: Member) -> None:
        number = 0
        async with asyncio.TaskGroup() as tasks:
            while not fleet.over:
                await asyncio.sleep(member.rng.expovariate(rate / processes))
                number += 1
                tasks.create_task(one(member, f"{member.loop.name} {number}"))

    passed = fleet.work(seconds, [work], warm_up=seconds / 2)
    busy = max(server.busy for server in fleet.servers) / passed
    fleet.end()
    return {
        "nodes": nodes,
        "offered": rate,
        "rate": len(times) / passed,
        "busy": busy,
        **_percentiles(times),
    }


def _second_rounds(fleet: Fleet) -> int:
    return sum(member.redlock.stats().second_rounds for member in fleet.members)


def _percentiles(times: Sequence[float]) -> dict[str, float | None]:
    """Return the median and the 99th percentile in seconds, None for too few values."""
    if len(times) < 2:
        return {"count": len(times), "p50": None, "p99": None}
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {"count": len(times), "p50": cuts[49], "p99": cuts[98]}
