"""The shared objects of the engine: clocks, randomness, nodes, settings and counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.fencing import FenceClock
from aioredlock_ng._core.tickets import TicketClock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioredlock_ng._engine.keeping.owner_labels import Labels
    from aioredlock_ng._engine.wheel import Wheel
    from aioredlock_ng._nodes.fleet import Fleet
    from aioredlock_ng.events import EventSink
    from aioredlock_ng.options import Options

__all__ = ["Context", "Counters", "Expiring"]


class Expiring(Protocol):
    """A wait for answers that ends at the node timeout at the latest."""

    def expire(self) -> None:
        """End the wait without the missing answers, because the node timeout has passed."""


@dataclass(slots=True)
class Counters:
    """Counters of one manager. `records.Stats` documents each of them."""

    acquired: int = 0
    attempts: int = 0
    refused: int = 0
    unreachable: int = 0
    timeouts: int = 0
    cancelled: int = 0
    released: int = 0
    lost: int = 0
    stalled: int = 0
    renewals: int = 0
    renewals_failed: int = 0
    hand_overs: int = 0
    passed_on: int = 0
    wakeups: int = 0
    wakeups_expiry: int = 0
    wakeups_fallback: int = 0
    woken_attempts: int = 0
    second_rounds: int = 0
    repairs: int = 0


@dataclass(slots=True, kw_only=True)
class Context:
    """The objects and functions that the parts of one engine share.

    Clocks, randomness and nodes are arguments, so that a simulation can replace them.

    Attributes:
        clock: Returns the time in seconds. The clock never jumps backwards, and advances while the
            machine is suspended.
        draw: Returns a random number from a uniform distribution over [0, 1).
        new_token: Returns a fresh token that nobody can guess.
        timeouts: The timer wheel that ends rounds and batches at the node timeout.
        patience: Longest duration of a round in seconds: the node timeout plus the width of a slot
            of the timer wheel.
        emit: Called with each rare event that belongs in a log, such as a lost lease or a broken
            node. The function must not raise an exception.
        report: Called with the frequent events of locks and leases, for metrics and traces. None
            without listeners, so that no events are created.
        wall_us: Returns microseconds of the wall clock, for fences and for the dates on labels.
        labels: Composes the labels of this manager, and reads the labels of other managers. None if
            labels are off, or if a node refuses them.
        doubt: Called when a node has answered that it is in quarantine.
        quarantine: Gets the index of a node, and returns the reason for its quarantine. Only two
            reasons are returned: its server refuses the marker, or the set of nodes is new. Returns
            "" otherwise.
        quarantined: Returns True if a node is known to be in quarantine.
        no_quorum: Returns True if it is known that no quorum can grant.
        back_in: Returns the seconds until a quorum may grant; None if unknown.
        tickets: The clock from which all waiters of this manager get their tickets.
        manager: 16 hexadecimal digits that name this manager to other processes.
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
    report: EventSink | None
    wall_us: Callable[[], int]
    labels: Labels | None
    doubt: Callable[[], None]
    quarantine: Callable[[int], str]
    quarantined: Callable[[int], bool]
    no_quorum: Callable[[], bool]
    back_in: Callable[[], float | None]
    fences: FenceClock = field(default_factory=FenceClock)
    tickets: TicketClock = field(default_factory=TicketClock)
    manager: bytes = b""
    counters: Counters = field(default_factory=Counters)
