"""What is done to nodes and clients, and for how long: data drawn from a seed; it does nothing itself."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, Literal

from .settling import Settling

__all__ = ["LOOK", "ClientFault", "Fault", "Loss", "Phase", "Plan", "plan"]

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

_INSTANT: Final = {"flush", "cut", "script_flush", "client_kill"}
_LONGEST: Final[dict[Kind, float]] = dict.fromkeys(_WEIGHTS, 1.5) | {"kill": 0.7, "refuse": 0.7}
"""Seconds: longer outages make clients look for the node less often, and cost faults."""

_BREAK_SECONDS: Final = (1.5, 3.0)
_SHORT_SECONDS: Final = (0.1, 0.7)
"""Of a majority that is killed: back before the leases that it forgot are over."""

LOOK: Final = 1.0
"""Seconds for the last releases and the look at the nodes."""

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

    @property
    def takes(self) -> float:
        """Seconds that its lane is busy with it."""
        return self.gap + self.seconds + self.settle


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
        seconds: How long faults begin; those under way then are carried to their end.
        rest: Seconds after it until all nodes must be well again.
    """

    kind: Literal["minority", "majority"]
    lanes: tuple[tuple[Fault, ...], ...]
    clients: tuple[ClientFault, ...]
    losses: tuple[Loss, ...]
    seconds: float
    rest: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A run.

    Attributes:
        cycles: Each ends with all clients at rest and a look for keys left behind. One more than the time should allow for.
    """

    seed: int
    nodes: int
    cycles: tuple[tuple[Phase, Phase], ...] = field(repr=False)


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
    length = min(_CYCLE_SECONDS, seconds)
    count = max(1, round(seconds / length))
    drawing = _Drawing(random.Random(seed), nodes, slots, careless, ttl, guard)
    return Plan(seed, nodes, tuple(drawing.cycle(seconds / count) for _ in range(count + 1)))


class _Drawing:
    """Draws cycle after cycle; times are those of the plan, which the run keeps or is behind."""

    def __init__(self, draw: random.Random, nodes: int, slots: int, careless: int, ttl: float, guard: float) -> None:
        self._draw = draw
        self._nodes = nodes
        self._crew = (slots, careless, ttl)
        self._guard = guard
        self._settling = Settling(nodes, guard)
        self._now = 0.0

    def cycle(self, seconds: float) -> tuple[Phase, Phase]:
        """A long phase with a majority that is well, and a short one without."""
        draw, nodes = self._draw, self._nodes
        rest = self._guard + 1.0
        breaking = min(0.15 * seconds, 8.0)
        calm = max(2.0, seconds - LOOK - breaking - rest)
        order = draw.sample(range(nodes), nodes)
        minority = (nodes - 1) // 2
        # Each lane has nodes of its own, so that at most one of each is impaired: the rest is a majority.
        lanes = tuple(self._lane(order[lane::minority], calm) for lane in range(minority))
        first = Phase("minority", lanes, _client_faults(draw, calm, *self._crew), _losses(draw, calm), calm, 0.5)
        self._now += calm
        broken = self._breaking_lane(breaking)
        second = Phase("majority", (broken,), _client_faults(draw, breaking, *self._crew), (), breaking, rest)
        self._now += breaking + rest
        return first, second

    def _lane(self, nodes: list[int], seconds: float) -> tuple[Fault, ...]:
        draw, at = self._draw, self._now
        faults: list[Fault] = []
        while at < self._now + seconds or not faults:
            kind = draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
            lasts = draw.uniform(0.1, _LONGEST[kind])
            faults.append(self._fault(kind, (draw.choice(nodes),), at, draw.uniform(0.1, 0.4), lasts))
            at += faults[-1].takes
        return tuple(faults[:-1] or faults)

    def _breaking_lane(self, seconds: float) -> tuple[Fault, ...]:
        """Faults of majorities; a node always keeps its memory, for a set that forgot everything is taken for a new one."""
        draw, at = self._draw, self._now
        faults: list[Fault] = []
        while at < self._now + seconds or not faults:
            # After what makes nodes forget, all of them are to be trusted again before others forget: one at a time.
            hit = tuple(sorted(draw.sample(range(self._nodes), self._nodes // 2 + 1)))
            kind = draw.choice(_BREAKS)
            seconds = draw.uniform(*(_SHORT_SECONDS if kind == "kill" else _BREAK_SECONDS))
            faults.append(self._fault(kind, hit, at, 0.1, seconds))
            at += faults[-1].takes
        return tuple(faults[:-1] or faults)

    def _fault(self, kind: Kind, nodes: tuple[int, ...], at: float, gap: float, seconds: float) -> Fault:
        draw = self._draw
        way, late = draw.choice(("", "to_server", "to_client")), draw.uniform(0.005, 0.06)
        empty, drop = draw.random() < 0.5, draw.random() < 0.5
        lasts = 0.0 if kind in _INSTANT else seconds
        settle = self._settling.after(kind, nodes, at + gap, lasts, drop=drop)
        return Fault(kind, nodes, gap, lasts, settle, way, late, empty, drop)


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
    gaps = [draw.uniform(0.2, 0.9) for _ in range(int(seconds / 0.55))]
    return tuple(Loss(gap, draw.random()) for gap in gaps)
