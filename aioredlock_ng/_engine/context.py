"""What every part of the engine is given from outside: clock, randomness, nodes, settings, counters. No behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.fencing import FenceClock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioredlock_ng._engine.keeping.labels import Labels
    from aioredlock_ng._engine.wheel import Wheel
    from aioredlock_ng._nodes.fleet import Fleet
    from aioredlock_ng.events import EventSink
    from aioredlock_ng.options import Options

__all__ = ["Context", "Counters", "Expiring"]


class Expiring(Protocol):
    """Something that waits for nodes no longer than the node timeout."""

    def expire(self) -> None:
        """The node timeout has passed."""


@dataclass(slots=True)
class Counters:
    """What happened so far in one manager; see `redlock.Stats` for the meaning of each."""

    acquired: int = 0
    attempts: int = 0
    refused: int = 0
    unreachable: int = 0
    timeouts: int = 0
    cancelled: int = 0
    released: int = 0
    lost: int = 0
    renewals: int = 0
    renewals_failed: int = 0
    handoffs: int = 0
    passed_on: int = 0
    wakeups: int = 0
    wakeups_expiry: int = 0
    wakeups_fallback: int = 0
    looks: int = 0
    second_rounds: int = 0
    repairs: int = 0


@dataclass(slots=True, kw_only=True)
class Context:
    """Injected, so that all of it can be simulated.

    Attributes:
        clock: Seconds that never jump backwards and count while the machine is suspended.
        fleet: The nodes.
        draw: Uniform in [0, 1).
        new_token: A fresh unguessable token; called once per attempt.
        timeouts: Ends rounds whose nodes do not answer.
        patience: Seconds after which it does.
        emit: Takes what is rare and worth a line in a log: losses, trouble with nodes; must not raise.
        tell: Takes every event of locks and leases, for those who count and trace; None where nobody listens: then no
            event is made.
        fences: Proposes fences.
        last_ticket: The highest ticket that this manager has seen or taken, of any lock: a Lamport clock. Without it
            tickets would begin anew whenever a queue is empty, and overtake sets that wait for another name.
        wall_us: Microseconds of the wall clock, for fences only.
        labels: What is written beside the keys of leases that live longer; None: nothing.
        doubt: Told when a node said that it is quarantined.
        quarantine: Why a node is in quarantine: the server's refusal of the marker, or that the set is new; "" where it
            may have forgotten locks.
        quarantined: Whether a node is known to be in quarantine.
        no_quorum: Whether it is known that no quorum can grant.
        back_in: See `Availability.back_in`.
    """

    loop: asyncio.AbstractEventLoop
    clock: Callable[[], float]
    draw: Callable[[], float]
    new_token: Callable[[], bytes]
    fleet: Fleet
    quorum: int
    options: Options
    timeouts: Wheel[Expiring]
    patience: float
    emit: EventSink
    tell: EventSink | None
    wall_us: Callable[[], int]
    labels: Labels | None
    doubt: Callable[[], None]
    quarantine: Callable[[int], str]
    quarantined: Callable[[int], bool]
    no_quorum: Callable[[], bool]
    back_in: Callable[[], float | None]
    fences: FenceClock = field(default_factory=FenceClock)
    last_ticket: int = 0
    counters: Counters = field(default_factory=Counters)
