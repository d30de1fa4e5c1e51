"""The life of one lease and its legal moves; it never asks a node and never reads a clock.

    held --release--> released
    held --abandon--> abandoned
    held --lose-----> lost

Every other move is illegal, raises, and leaves the state as it was: a lease is lost at most once and never after
its release.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["IllegalMove", "LeaseState", "Phase", "Renewal"]


class Phase(StrEnum):
    """Where a lease is in its life."""

    HELD = "held"
    RELEASED = "released"
    ABANDONED = "abandoned"
    LOST = "lost"


class IllegalMove(Exception):
    """A lease that is over was asked to end again."""


@dataclass(slots=True, eq=False)
class Renewal:
    """What one command asks the nodes for, for all leases in it; two of equal values are not the same.

    Attributes:
        started: Instant before the first byte is queued.
        ttl: The new life in seconds.
        deadline: What it would move deadlines to.
    """

    started: float
    ttl: float
    deadline: float


class LeaseState:
    """What is known locally about one lease.

    Instants are seconds of the engine's clock. `deadline` only ever moves by `asked` and `renewed`. Each node executes
    renewals in the order in which they are sent; their answers may be read in any order.
    """

    __slots__ = ("_sent", "deadline", "ends_at", "phase", "reason", "started", "ttl")

    def __init__(self, started: float, ttl: float, deadline: float, ends_at: float | None) -> None:
        self.started = started
        self.ttl = ttl
        self.ends_at = ends_at
        self.deadline = deadline if ends_at is None else min(deadline, ends_at)
        self.phase = Phase.HELD
        self.reason = ""
        # Renewals sent and not overtaken by a confirmed one, in order.
        self._sent: tuple[Renewal, ...] = ()

    def remaining(self, now: float) -> float:
        """Seconds of validity left at `now`; 0.0 when over."""
        if self.phase is Phase.RELEASED or self.phase is Phase.LOST:
            return 0.0
        return max(0.0, self.deadline - now)

    def asked(self, renewal: Renewal) -> None:
        """It is about to be sent.

        A shorter one counts from here: some node may apply it though no quorum ever confirms it.
        """
        self._sent += (renewal,)
        if renewal.deadline < self.deadline:
            self.deadline = renewal.deadline

    def renewed(self, renewal: Renewal) -> bool:
        """A quorum confirmed it; False when one that was sent later was confirmed before, or the lease is over.

        Each one sent later caps this one, confirmed or not.
        """
        sent = self._sent
        if self.phase is not Phase.HELD or renewal not in sent:
            return False
        deadline = renewal.deadline
        if sent[-1] is renewal:
            self._sent = ()
        else:
            self._sent = later = sent[sent.index(renewal) + 1 :]
            deadline = min(deadline, *(other.deadline for other in later))
        self.started = renewal.started
        self.ttl = renewal.ttl
        self.deadline = deadline if self.ends_at is None else min(deadline, self.ends_at)
        return True

    @property
    def unconfirmed(self) -> bool:
        """True while there are renewals sent after the last confirmed one."""
        return bool(self._sent)

    @property
    def shortest_ttl(self) -> float:
        """The shortest life that any node may have given its keys since the last confirmed renewal, that one included."""
        return min([self.ttl, *(renewal.ttl for renewal in self._sent)])

    def is_latest(self, renewal: Renewal) -> bool:
        """True while it is unconfirmed and none was sent after it."""
        return self._sent[-1:] == (renewal,)

    def end(self, phase: Phase, reason: str = "") -> None:
        """Move to a final phase.

        Raises:
            IllegalMove: The lease is over already; nothing changed.
        """
        # By identity: a set of moves would hash two enum members, in Python, for every lease.
        if self.phase is not Phase.HELD or phase is Phase.HELD:
            raise IllegalMove(f"{self.phase} -> {phase}")
        # In this order: threads read both.
        self.reason = reason
        self.phase = phase
