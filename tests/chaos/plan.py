"""The faults of a run and their times, drawn from a seed. `nemesis.py` carries them out."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, Literal

from .settling import Settling

__all__ = ["LOOK", "ClientFault", "Fault", "Loss", "Phase", "Plan", "plan"]

Kind = Literal[
    "hang",
    "kill",
    "flush",
    "cut",
    "refuse",
    "delay",
    "stall",
    "script_flush",
    "client_kill",
    "fill",
]

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
"""Faults that stop a majority of nodes when they hit one."""

_INSTANT: Final = {"flush", "cut", "script_flush", "client_kill"}
_LONGEST: Final[dict[Kind, float]] = dict.fromkeys(_WEIGHTS, 1.5) | {"kill": 0.7, "refuse": 0.7}
"""Seconds of each fault at most.

After longer outages clients reconnect less often, and fewer faults fit
into a run."""

_BREAK_SECONDS: Final = (1.5, 3.0)
_SHORT_SECONDS: Final = (0.1, 0.7)
"""Seconds for which a majority is down. It is back before the leases that it forgot are over."""

LOOK: Final = 1.0
"""Seconds for the last releases and the search for keys that are left behind."""

_CYCLE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that hits nodes at the same time.

    Attributes:
        kind: The kind of fault.
        nodes: Numbers of the nodes.
        gap: Seconds between the lane's last fault and this one.
        seconds: Length of the fault.
        settle: Seconds after its end until every client must be able to use the nodes again.
        way: The direction of a stall or delay; "" for both.
        late: Seconds by which a delay holds messages back, per direction.
        empty: True if a killed node restarts without its files.
        drop: True if a stall ends with the loss of the held messages. Otherwise they are delivered.
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
        """Seconds for which the lane is busy with the fault."""
        return self.gap + self.seconds + self.settle


@dataclass(frozen=True, slots=True)
class ClientFault:
    """A client process that is stopped for some seconds, or killed and replaced (`seconds` 0)."""

    gap: float
    slot: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Loss:
    """The deletion of a held lock's keys on all nodes that answer.

    `pick` chooses one of the locks.
    """

    gap: float
    pick: float


@dataclass(frozen=True, slots=True)
class Phase:
    """Lanes of faults that run side by side. Each lane has nodes of its own.

    Attributes:
        kind: "minority": at most a minority of nodes is impaired at any moment. "majority": a
            majority is.
        seconds: The time in which faults begin. Faults that have begun are carried to their end.
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
    """The faults of a whole run.

    Attributes:
        cycles: Each ends with a rest of all clients, and a search for keys that are left behind.
            There is one more than should fit into the time.
    """

    seed: int
    nodes: int
    cycles: tuple[tuple[Phase, Phase], ...] = field(repr=False)


def plan(
    seed: int, *, nodes: int, seconds: float, slots: int, careless: int, ttl: float, guard: float
) -> Plan:
    """Draw the faults of a run.

    Args:
        seed: Determines the result.
        nodes: Number of nodes.
        seconds: Length of the run, about.
        slots: Number of client processes.
        careless: Number of the last processes, which write without a check of the lease.
        ttl: The ttl of the locks, in seconds.
        guard: Seconds for which a node that forgot grants nothing.
    """
    length = min(_CYCLE_SECONDS, seconds)
    count = max(1, round(seconds / length))
    drawing = _Drawing(random.Random(seed), nodes, slots, careless, ttl, guard)
    return Plan(seed, nodes, tuple(drawing.cycle(seconds / count) for _ in range(count + 1)))


class _Drawing:
    """Draws the cycles. Its times are planned: a run may be behind them."""

    def __init__(
        self, draw: random.Random, nodes: int, slots: int, careless: int, ttl: float, guard: float
    ) -> None:
        self._draw = draw
        self._nodes = nodes
        self._crew = (slots, careless, ttl)
        self._guard = guard
        self._settling = Settling(nodes, guard)
        self._now = 0.0

    def cycle(self, seconds: float) -> tuple[Phase, Phase]:
        """Draw a long phase with a well majority, and a short one without."""
        draw, nodes = self._draw, self._nodes
        rest = self._guard + 1.0
        breaking = min(0.15 * seconds, 8.0)
        calm = max(2.0, seconds - LOOK - breaking - rest)
        order = draw.sample(range(nodes), nodes)
        minority = (nodes - 1) // 2
        # Each lane has nodes of its own, so that at most one of each is impaired: the rest is a
        # majority.
        lanes = tuple(self._lane(order[lane::minority], calm) for lane in range(minority))
        first = Phase(
            "minority",
            lanes,
            _client_faults(draw, calm, *self._crew),
            _losses(draw, calm),
            calm,
            0.5,
        )
        self._now += calm
        broken = self._breaking_lane(breaking)
        second = Phase(
            "majority", (broken,), _client_faults(draw, breaking, *self._crew), (), breaking, rest
        )
        self._now += breaking + rest
        return first, second

    def _lane(self, nodes: list[int], seconds: float) -> tuple[Fault, ...]:
        draw, at = self._draw, self._now
        faults: list[Fault] = []
        while at < self._now + seconds or not faults:
            kind = draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
            lasts = draw.uniform(0.1, _LONGEST[kind])
            faults.append(
                self._fault(kind, (draw.choice(nodes),), at, draw.uniform(0.1, 0.4), lasts)
            )
            at += faults[-1].takes
        return tuple(faults[:-1] or faults)

    def _breaking_lane(self, seconds: float) -> tuple[Fault, ...]:
        """Draw faults of majorities. One node always keeps its memory.

        A set of nodes that forgot everything counts as a new one.
        """
        draw, at = self._draw, self._now
        faults: list[Fault] = []
        while at < self._now + seconds or not faults:
            # After what makes nodes forget, all of them are to be trusted again before others
            # forget: one at a time.
            hit = tuple(sorted(draw.sample(range(self._nodes), self._nodes // 2 + 1)))
            kind = draw.choice(_BREAKS)
            seconds = draw.uniform(*(_SHORT_SECONDS if kind == "kill" else _BREAK_SECONDS))
            faults.append(self._fault(kind, hit, at, 0.1, seconds))
            at += faults[-1].takes
        return tuple(faults[:-1] or faults)

    def _fault(
        self, kind: Kind, nodes: tuple[int, ...], at: float, gap: float, seconds: float
    ) -> Fault:
        draw = self._draw
        way, late = draw.choice(("", "to_server", "to_client")), draw.uniform(0.005, 0.06)
        empty, drop = draw.random() < 0.5, draw.random() < 0.5
        lasts = 0.0 if kind in _INSTANT else seconds
        settle = self._settling.after(kind, nodes, at + gap, lasts, drop=drop)
        return Fault(kind, nodes, gap, lasts, settle, way, late, empty, drop)


def _client_faults(
    draw: random.Random, seconds: float, slots: int, careless: int, ttl: float
) -> tuple[ClientFault, ...]:
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
            slot = (
                draw.randrange(slots - careless, slots)
                if careless and draw.random() < 0.7
                else slot
            )
            fault = ClientFault(gap, slot, ttl * draw.uniform(1.1, 1.8))
        left -= gap + fault.seconds
        if left < 0:
            return tuple(faults)
        faults.append(fault)


def _losses(draw: random.Random, seconds: float) -> tuple[Loss, ...]:
    gaps = [draw.uniform(0.2, 0.9) for _ in range(int(seconds / 0.55))]
    return tuple(Loss(gap, draw.random()) for gap in gaps)
