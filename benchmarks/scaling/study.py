"""Run the whole study, in full or in a size that takes seconds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aioredlock_ng._engine.keeping.batch import BATCH
from benchmarks.scaling.calculated import calculate
from benchmarks.scaling.client import measure_client
from benchmarks.scaling.fleet import NETWORKS, simulated
from benchmarks.scaling.scenarios import CONDITIONS, contention, latency, load, mix
from benchmarks.scaling.servers import (
    measure_batches,
    measure_commands,
    measure_memory,
    measure_pushes,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

__all__ = ["FULL", "QUICK", "Size", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of the study.

    Attributes:
        names: Locks per measurement of a command, and per measurement of memory.
        rounds: Measurements of each command and of the client. The least value counts.
        watchers: Numbers of connections that a release notifies.
        batches: Numbers of leases per command.
        all_servers: True for batches on all available server versions.
        cycles: Acquisitions per measurement of the client.
        nodes: Numbers of nodes.
        networks: Names of networks.
        conditions: Conditions of the nodes.
        latency: Number of processes, and acquisitions of each.
        contenders: Numbers of processes that contend for one lock.
        hand_overs: The largest number of hand-overs, and the longest simulated time in seconds.
        shares: Shares of acquisitions on the hot name.
        resources: Numbers of names.
        mix: Number of processes, and simulated seconds.
        loads: Acquisitions per second as a share of the limit of a server's core.
    """

    names: tuple[int, int]
    rounds: int
    watchers: tuple[int, ...]
    batches: tuple[int, ...]
    all_servers: bool
    cycles: int
    nodes: tuple[int, ...]
    networks: tuple[str, ...]
    conditions: tuple[str, ...]
    latency: tuple[int, int]
    contenders: tuple[int, ...]
    hand_overs: tuple[int, float]
    shares: tuple[float, ...]
    resources: tuple[int, ...]
    mix: tuple[int, float]
    loads: tuple[float, ...]


FULL = Size(
    names=(3_000, 100_000),
    rounds=5,
    watchers=(0, 10, 100, 500),
    batches=(1, 4, 8, 16, 32, 64, 128, 256),
    all_servers=True,
    cycles=10_000,
    nodes=(3, 5, 7, 9),
    networks=tuple(NETWORKS),
    conditions=CONDITIONS,
    latency=(15, 30),
    contenders=(1, 2, 5, 10, 20, 50, 100, 200),
    hand_overs=(400, 1.0),
    shares=(0.0, 0.01, 0.03, 0.1, 0.25, 0.5, 1.0),
    resources=(1, 10, 100, 1_000, 10_000, 1_000_000),
    mix=(20, 0.4),
    loads=(0.1, 0.3, 0.5, 0.7, 0.9),
)

QUICK = Size(
    names=(200, 1_000),
    rounds=1,
    watchers=(0, 10),
    batches=(1, 16, 128),
    all_servers=False,
    cycles=200,
    nodes=(3, 5),
    networks=("one zone", "across continents"),
    conditions=("all well", "one dead"),
    latency=(2, 5),
    contenders=(1, 3),
    hand_overs=(30, 0.1),
    shares=(0.0, 1.0),
    resources=(1, 1_000_000),
    mix=(3, 0.05),
    loads=(0.1,),
)


def run(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure, simulate and calculate.

    Args:
        size: The size of the study.
        say: Callback that shows the progress.
    """
    measured = _measured(size, say)
    pushes = {int(count): usec for count, usec in measured["pushes"].items()}
    push = (pushes[max(pushes)] - pushes[min(pushes)]) / (max(pushes) - min(pushes))
    measured["push"] = push
    commands = measured["commands"]
    costs = {
        "acquire_guarded": commands["acquire"]["single"] / 1e6,
        "release": commands["release"]["single"] / 1e6,
        "confirm": commands["confirm"]["single"] / 1e6,
        "watch": commands["watch"]["single"] / 1e6,
        "extend": commands["extend"]["single"] / 1e6,
        "push": push / 1e6,
    }
    with simulated():
        found = _simulated(size, costs, say)
    say("calculating")
    return {"measured": measured, "simulated": found, "calculated": calculate(measured, found)}


def _measured(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    few, many = size.names
    say("measuring commands on a real server")
    commands, spread = measure_commands(few, size.rounds)
    measured: dict[str, Any] = {"batch": BATCH, "commands": commands, "spread": spread}
    say("measuring batches")
    measured["batches"] = measure_batches(
        size.batches, min(few, 2048), all_servers=size.all_servers
    )
    say("measuring pushes")
    measured["pushes"] = measure_pushes(size.watchers, 20)
    say("measuring memory")
    measured["locks"] = many
    measured["memory"] = measure_memory(many, max(size.watchers))
    say("measuring the client")
    # The node counts take turns, because the speed of the machine changes.
    runs = [
        {nodes: measure_client(nodes, size.cycles) for nodes in size.nodes}
        for _ in range(size.rounds)
    ]
    measured["client"] = {str(nodes): min(run[nodes] for run in runs) for nodes in size.nodes}
    return measured


def _simulated(
    size: Size, costs: dict[str, float], say: Callable[[str], None]
) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}

    def add(part: str, told: str, scenario: Callable[[], dict[str, Any]], **also: Any) -> None:
        say(f"simulating {part}: {told}")
        found.setdefault(part, []).append(scenario() | also)

    for network in size.networks:
        for condition in size.conditions:
            for nodes in size.nodes:
                told = f"{network}, {condition}, {nodes} nodes"
                add(
                    "latency",
                    told,
                    partial(latency, network, nodes, condition, costs, size.latency),
                )
    hand_overs, seconds = size.hand_overs
    for processes in size.contenders:
        # The simulation of a hand-over is slow with many processes.
        enough = hand_overs // (1 if processes <= 20 else 2), seconds
        add(
            "contention",
            f"{processes} processes",
            partial(contention, "one zone", 5, processes, costs, enough),
        )
    for network in size.networks:
        longer = hand_overs // 2, seconds * max(1.0, NETWORKS[network].most / 0.002) / 2
        for nodes in size.nodes:
            add(
                "networks",
                f"{network}, {nodes} nodes",
                partial(contention, network, nodes, 5, costs, longer),
            )
    processes, seconds = size.mix
    for share in size.shares:
        add(
            "hot",
            f"{share:.0%}",
            partial(mix, _hot(share), 3, processes, costs, seconds),
            share=share,
        )
    for resources in size.resources:
        add(
            "resources",
            f"{resources:,}",
            partial(mix, _any_of(resources), 3, processes, costs, seconds),
            resources=resources,
        )
    most = 1 / (costs["acquire_guarded"] + costs["release"])
    for nodes in (min(size.nodes), max(size.nodes)):
        for share in size.loads:
            told = f"{share:.0%} of {most:,.0f}/s, {nodes} nodes"
            add("load", told, partial(load, nodes, share * most, processes, costs, seconds / 6))
    return found


def _hot(share: float) -> Callable[[Random], tuple[bool, str]]:
    return lambda rng: (
        (True, "hot") if rng.random() < share else (False, f"cold {rng.randrange(1_000_000)}")
    )


def _any_of(resources: int) -> Callable[[Random], tuple[bool, str]]:
    return lambda rng: (False, f"r{rng.randrange(resources)}")
