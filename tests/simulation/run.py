"""Runs a plan from its beginning to its end."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioredlock_ng._core.over_mark import without_mark
from aioredlock_ng._core.waking import MOST_AHEAD
from tests.simulation.faults import Faults
from tests.simulation.invariants import effort
from tests.simulation.process import Process
from tests.simulation.server import Server
from tests.simulation.surroundings import surroundings
from tests.simulation.watch import Watch
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections import Counter

    from tests.simulation.invariants import Violation
    from tests.simulation.plan import Plan

__all__ = ["Outcome", "run"]

LONGEST_OFFER = 2.2
"""True seconds after which no offer is left. Keys that are reserved for a set are reserved for two
seconds.
"""

QUEUE_LIFE = 20.5
"""True seconds after the last refresh by which a queue has expired.

Each waiter ahead of the waiter that sent the refresh adds twice this time.
"""

PATIENCE = 600.0
"""True seconds after the last fault and all planned work by which a run must have ended.

Bodies, leases of dead processes, quarantines and rare refreshes may take that long.
"""


@dataclass(slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        violation: The first violation, or None.
        simulated: True seconds that the run lasted.
        acquired: Number of leases that were granted.
        waited: The longest waits, as in `Watch.longest`.
        overtaken: As in `Watch.most_overtaken`.
        turns: As in `Watch.most_turns`.
        crowd: Acquisitions, attempts, and commands per node of a crowd without faults. Zeros for
            other runs.
        faults: Number of executed faults of each kind.
        log: All events.
    """

    seed: int
    violation: Violation | None
    simulated: float
    acquired: int
    waited: tuple[float, float]
    overtaken: int
    turns: int
    crowd: tuple[int, int, float]
    faults: Counter[str]
    log: list[tuple[object, ...]] = field(default_factory=list)


def run(plan: Plan) -> Outcome:
    """Run a plan in a world of its own."""
    # Commands seldom share a tick of the loop. So half of the runs send even a single command in
    # the form of a merged request.
    with surroundings(joint=plan.seed % 2 == 1):
        return _run(plan)


def _run(plan: Plan) -> Outcome:
    # A garbage collection during the run would come at a random moment. So cycles are collected
    # between runs.
    gc.disable()
    try:
        return _simulate(plan)
    finally:
        gc.enable()


def _simulate(plan: Plan) -> Outcome:
    world = World(plan.seed)
    watch = Watch(world, plan)
    servers = [
        Server(world, i, plan.rates[plan.processes + i], plan.skews[plan.processes + i])
        for i in range(plan.nodes)
    ]
    processes = [Process(world, index, plan, servers, watch) for index in range(plan.processes)]
    faults = Faults(world, plan, servers, processes)
    watch.attach(processes, servers, faults)
    for process in processes:
        world.at(0.01 * process.loop.rng.random(), process.start)

    busy = set(processes)
    for process in processes:
        process.on_end = busy.discard

    def stop() -> bool:
        if watch.contested:
            watch.after_step()
        return watch.violation is not None or not busy

    last = max((fault.at + fault.lasts for fault in plan.faults), default=0.0)
    work = sum(
        action.hold + action.think + plan.ttl + (action.min_hold or 0.0) for action in plan.actions
    )
    world.run(last + work + PATIENCE, stop)
    if watch.violation is None and busy:
        watch.found("callbacks", f"not ended: {', '.join(p.name for p in processes if p in busy)}")
    if watch.violation is None:
        for process in processes:
            if (
                process.over
                and process.main is not None
                and (error := process.main.exception()) is not None
            ):
                watch.found("callbacks", f"{process.name}: {type(error).__name__}: {error}")
    ended = world.now
    if watch.violation is None:
        # Keys without an owner must expire by themselves. Requests may still arrive late, and
        # partitions may still begin.
        slowest = max(profile.longest for profiles in plan.profiles for profile in profiles)
        settle = slowest + max(2.5 * plan.ttl + 1.0, LONGEST_OFFER)
        world.run(max(ended, faults.ends, last) + settle, lambda: watch.violation is not None)
        if watch.violation is None:
            for server in servers:
                for key, token in server.locks():
                    owner = server.owners.get(without_mark(token)[0])
                    watch.found(
                        "leftovers", f"at the end {server.name} still has {key!r} of {owner}"
                    )
                for key, offer, _ in server.offers():
                    watch.found(
                        "leftovers",
                        f"at the end {server.name} still reserves {key!r} for {offer!r}",
                    )
    if watch.violation is None:
        # Clients that were killed or cut off could not leave their queues. A queue expires by the
        # clock of its server.
        rate = min(server.loop.rate for server in servers)
        life = QUEUE_LIFE * (1 + 2 * MOST_AHEAD)
        world.run(world.now + life / rate, lambda: not any(server.queues() for server in servers))
        for server in servers:
            for key, members in server.queues():
                watch.found(
                    "leftovers",
                    f"at the end the queue of {key!r} on {server.name} still has {members!r}",
                )
    crowd = 0, 0, 0.0
    if plan.steady:
        crowd = watch.crowd
        watch.found("effort", effort(*crowd))
    outcome = Outcome(
        plan.seed,
        watch.violation,
        world.now,
        watch.grants,
        watch.longest,
        watch.most_overtaken,
        watch.most_turns,
        crowd,
        faults.counts,
        world.log,
    )
    _unwind(world, processes, servers, watch)
    return outcome


def _unwind(world: World, processes: list[Process], servers: list[Server], watch: Watch) -> None:
    """End all tasks of the processes that have not ended.

    Otherwise the garbage collector would find these tasks during a later run.
    """
    world.on_trouble = lambda _: None
    world.log = []
    left = [process for process in processes if not process.over]
    for process in left:
        for link in process.links:
            link.isolated = True
        process.bury()
    left = [process for process in left if process.main is not None]
    world.run(world.now + 30.0, lambda: all(process.over for process in left))
    for process in left:
        if process.main is not None and process.main.done() and not process.main.cancelled():
            process.main.exception()
