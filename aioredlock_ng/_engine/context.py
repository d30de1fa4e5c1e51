"""The surroundings of the engine: clocks, randomness, nodes, settings, counters. No behaviour."""

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
    """A wait for nodes that ends at the node timeout."""

    def expire(self) -> None:
        """Go on without the nodes that have not answered: the node timeout has passed."""


@dataclass(slots=True)
class Counters:
    """Counters of one manager. `redlock.Stats` documents each of them."""

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
    """The surroundings of the parts of one engine.

    Clocks, randomness and nodes come from outside, so that a simulation can replace them.

    Attributes:
        loop: The event loop of the manager.
        clock: Returns seconds. The clock never jumps backwards, and advances while the machine is
            suspended.
        draw: Returns a random number, uniform in [0, 1).
        new_token: Returns a fresh token that nobody can guess; called once per attempt.
        fleet: The nodes.
        quorum: Number of nodes that form a majority.
        options: The settings of the manager.
        timeouts: Ends the rounds whose nodes do not answer.
        patience: Seconds after which a round ends: the node timeout and the width of a slot.
        emit: Takes the rare events that belong in a log, such as losses and broken nodes. It must
            not raise.
        report: Takes every event of locks and leases, for metrics and traces. None if there are no
            listeners; no events are created then.
        wall_us: Returns microseconds of the wall clock. Fences, and the dates on labels, need it.
        labels: Composes the labels of this manager, and reads the labels of others. None if labels
            are off, or if a node refuses them.
        doubt: Called when a node has answered that it is in quarantine.
        quarantine: Returns why a node is in quarantine. The reason is the server's refusal of the
            marker, or that the set of nodes is new. "" if the node may have forgotten locks.
        quarantined: Returns True if a node is known to be in quarantine.
        no_quorum: Returns True if it is known that no quorum can grant.
        back_in: Returns the seconds until a quorum may grant; None if they are not known.
        fences: Proposes fences.
        last_ticket: The highest ticket of any lock that this manager has seen or taken, as in a
            Lamport clock. Without it tickets would restart at each empty queue, and new waiters
            would overtake waiters for several names.
        counters: The counters of the manager.
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
    last_ticket: int = 0
    counters: Counters = field(default_factory=Counters)
