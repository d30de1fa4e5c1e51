"""What is done to nodes and clients, and for how long: data drawn from a seed; it does nothing itself."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, Literal

__all__ = ["ClientFault", "Fault", "Loss", "Phase", "Plan", "plan"]

Kind = Literal["hang", "kill", "flush", "cut", "refuse", "delay", "stall", "script_flush", "client_kill", "fill"]

_WEIGHTS: Final[dict[Kind, int]] = {
    "hang": 5,
    "kill": 3,
    "flush": 2,
    "cut": 4,
    "refuse": 3,
    "delay": 4,
    "stall": 5,
    "script_flush": 3,
    "client_kill": 4,
    "fill": 4,
}
_BREAKS: Final[tuple[Kind, ...]] = ("hang", "kill", "flush", "refuse", "stall", "fill")
"""What takes a majority away when it hits one."""

_BREAK_SECONDS: Final = (1.5, 3.0)
_CYCLE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to nodes at the same time.

    Attributes:
        kind: What.
        nodes: To whom.
        gap: Seconds since the lane's last fault was over.
        seconds: How long it lasts.
        settle: Seconds after its end until every client must be able to use the nodes again.
        way: Of a stall or delay: the direction that it is in; "" for both.
        late: Of a delay: seconds per direction.
        empty: Of a kill: the node comes back without what it had on disk.
        drop: Of a stall: what was held back is dropped with the connections in the end; else it is delivered.
    """

    kind: Kind
    nodes: tuple[int, ...]
    gap: float
    seconds: float
    settle: float
    way: str = ""
    late: float = 0.0
    empty: bool = False
    drop: bool = False


@dataclass(frozen=True, slots=True)
class ClientFault:
    """A process that is stopped for some seconds, or killed and replaced (`seconds` 0)."""

    gap: float
    slot: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Loss:
    """The keys of a held lock are deleted on all nodes that answer; `pick` chooses among those that are held then."""

    gap: float
    pick: float


@dataclass(frozen=True, slots=True)
class Phase:
    """Lanes that run side by side; each has nodes of its own.

    Attributes:
        kind: "minority": at most a minority of nodes is impaired at any moment. "majority": a majority is.
        rest: Seconds after it until all nodes must be well again.
    """

    kind: Literal["minority", "majority"]
    lanes: tuple[tuple[Fault, ...], ...]
    clients: tuple[ClientFault, ...]
    losses: tuple[Loss, ...]
    rest: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A run.

    Attributes:
        cycles: Each ends with all clients at rest and a look for keys left behind.
    """

    seed: int
    nodes: int
    cycles: tuple[tuple[Phase, ...], ...] = field(repr=False)

    @property
    def faults(self) -> int:
        """How many faults it has: one per node hit, and one per client hit."""
        phases = [phase for cycle in self.cycles for phase in cycle]
        hits = sum(len(fault.nodes) for phase in phases for lane in phase.lanes for fault in lane)
        return hits + sum(len(phase.clients) for phase in phases)


def plan(seed: int, *, nodes: int, seconds: float, slots: int, careless: int, ttl: float, guard: float) -> Plan:
    """Draw a run.

    Args:
        seed: Decides everything.
        nodes: How many there are.
        seconds: How long it takes, about.
        slots: Client processes, the last `careless` of which write without looking.
        careless: How many.
        ttl: Of the locks, seconds.
        guard: Seconds that a node which forgot grants nothing for.
    """
    draw = random.Random(seed)
    length = min(_CYCLE_SECONDS, seconds)
    count = max(1, round(seconds / length))
    cycles = tuple(_cycle(draw, nodes, seconds / count, slots, careless, ttl, guard) for _ in range(count))
    return Plan(seed, nodes, cycles)


def _cycle(
    draw: random.Random, nodes: int, seconds: float, slots: int, careless: int, ttl: float, guard: float
) -> tuple[Phase, ...]:
    rest = guard + 2.5
    breaking = min(0.15 * seconds, 8.0)
    # The last second is for releases and the look at the nodes.
    calm = max(2.0, seconds - 1.0 - breaking - rest)
    order = draw.sample(range(nodes), nodes)
    minority = (nodes - 1) // 2
    # Each lane has nodes of its own, so that at most one of each is impaired: the rest is a majority.
    lanes = tuple(_lane(draw, order[lane::minority], calm, guard) for lane in range(minority))
    first = Phase("minority", lanes, _client_faults(draw, calm, slots, careless, ttl), _losses(draw, calm), 0.5)
    broken = _breaking_lane(draw, nodes, breaking, guard)
    second = Phase("majority", (broken,), _client_faults(draw, breaking, slots, careless, ttl), (), rest)
    return first, second


def _lane(draw: random.Random, nodes: list[int], seconds: float, guard: float) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    left = seconds
    while left > 0:
        kind = draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        fault = _fault(draw, kind, (draw.choice(nodes),), draw.uniform(0.1, 0.5), draw.uniform(0.2, 1.5), guard)
        faults.append(fault)
        left -= fault.gap + fault.seconds + fault.settle
    return tuple(faults[:-1] or faults)


def _breaking_lane(draw: random.Random, nodes: int, seconds: float, guard: float) -> tuple[Fault, ...]:
    """Faults of majorities; a node always keeps its memory, for a set that forgot everything is taken for a new one."""
    faults: list[Fault] = []
    left = seconds
    while left > 0:
        hit = tuple(sorted(draw.sample(range(nodes), nodes // 2 + 1)))
        fault = _fault(draw, draw.choice(_BREAKS), hit, 0.1, draw.uniform(*_BREAK_SECONDS), guard)
        # After what makes nodes forget, all of them are to be trusted again before others forget.
        left -= fault.gap + fault.seconds + fault.settle
        faults.append(fault)
    return tuple(faults[:-1] or faults)


def _fault(draw: random.Random, kind: Kind, nodes: tuple[int, ...], gap: float, seconds: float, guard: float) -> Fault:
    """With the time after which nodes must be in use again: reconnects back off while a node is away, quarantine ends."""
    way = draw.choice(("", "to_server", "to_client"))
    late = draw.uniform(0.005, 0.06)
    empty = draw.random() < 0.5
    drop = draw.random() < 0.5
    match kind:
        case "kill":
            settle = 1.0 + 1.5 * seconds + guard
        case "flush":
            seconds, settle = 0.0, 0.7 + guard
        case "cut" | "client_kill":
            seconds, settle = 0.0, 0.6
        case "refuse":
            settle = 0.6 + 1.5 * seconds
        case "stall":
            settle = 2.5 if drop else 0.8
        case "script_flush":
            seconds, settle = 0.0, 0.2
        case _:
            settle = 0.6
    return Fault(kind, nodes, gap, seconds, settle, way, late, empty, drop)


def _client_faults(draw: random.Random, seconds: float, slots: int, careless: int, ttl: float) -> tuple[ClientFault, ...]:
    faults: list[ClientFault] = []
    left = seconds
    while True:
        gap = draw.uniform(0.5, 2.0)
        luck = draw.random()
        slot = draw.randrange(slots)
        if luck < 0.25:
            fault = ClientFault(gap, slot, 0.0)
        elif luck < 0.5:
            fault = ClientFault(gap, slot, draw.uniform(0.1, 0.5))
        else:
            # Long enough for others to get what it holds; mostly those whose writes come late then.
            slot = draw.randrange(slots - careless, slots) if careless and draw.random() < 0.7 else slot
            fault = ClientFault(gap, slot, ttl * draw.uniform(1.1, 1.8))
        left -= gap + fault.seconds
        if left < 0:
            return tuple(faults)
        faults.append(fault)


def _losses(draw: random.Random, seconds: float) -> tuple[Loss, ...]:
    gaps = [draw.uniform(0.3, 1.2) for _ in range(int(seconds / 0.75))]
    return tuple(Loss(gap, draw.random()) for gap in gaps)
