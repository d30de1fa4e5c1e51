"""The life of one lease as a table of legal moves; it never asks a node and never reads a clock.

    held --release--> released
    held --abandon--> abandoned
    held --lose-----> lost

Every other move is illegal, raises, and leaves the state as it was: a lease is lost at most once and never after
its release.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["IllegalMove", "LeaseState", "Phase"]


class Phase(StrEnum):
    """Where a lease is in its life."""

    HELD = "held"
    RELEASED = "released"
    ABANDONED = "abandoned"
    LOST = "lost"


_MOVES = {
    (Phase.HELD, Phase.RELEASED),
    (Phase.HELD, Phase.ABANDONED),
    (Phase.HELD, Phase.LOST),
}


class IllegalMove(Exception):
    """A lease that is over was asked to end again."""


class LeaseState:
    """What is known locally about one lease.

    Instants are seconds of the engine's clock. `deadline` only ever moves by `asked` and `renewed`. Renewals are numbered
    in the order in which they are sent, which is the order in which each node executes them; their answers may be read
    in any order.
    """

    __slots__ = ("_deadlines", "_numbers", "deadline", "ends_at", "phase", "reason", "started", "ttl")

    def __init__(self, started: float, ttl: float, deadline: float, ends_at: float | None) -> None:
        self.started = started
        self.ttl = ttl
        self.ends_at = ends_at
        self.deadline = deadline if ends_at is None else min(deadline, ends_at)
        self.phase = Phase.HELD
        self.reason = ""
        # Renewals sent and not overtaken by a confirmed one; two lists, because a tuple per renewal feeds the collector.
        # Made by the first renewal, which most leases do not live to see.
        self._numbers: list[int] | None = None
        self._deadlines: list[float] | None = None

    def remaining(self, now: float) -> float:
        """Seconds of validity left at `now`; 0.0 when over."""
        if self.phase is Phase.RELEASED or self.phase is Phase.LOST:
            return 0.0
        return max(0.0, self.deadline - now)

    def asked(self, number: int, deadline: float) -> None:
        """Renewal `number`, which would move the deadline there, is about to be sent.

        A shorter one counts from here: some node may apply it though no quorum ever confirms it.
        """
        if self._numbers is None or self._deadlines is None:
            self._numbers, self._deadlines = [], []
        self._numbers.append(number)
        self._deadlines.append(deadline)
        if deadline < self.deadline:
            self.deadline = deadline

    def renewed(self, number: int, started: float, ttl: float, deadline: float) -> bool:
        """A quorum confirmed renewal `number`; False when a later one was confirmed before, or the lease is over.

        Nodes execute renewals in the order of their numbers. So each one sent later caps this one, confirmed or not.
        """
        if self.phase is not Phase.HELD or not self._numbers or not self._deadlines or number not in self._numbers:
            return False
        sent_later = self._numbers.index(number) + 1
        del self._numbers[:sent_later], self._deadlines[:sent_later]
        if self._deadlines:
            deadline = min(deadline, *self._deadlines)
        self.started = started
        self.ttl = ttl
        self.deadline = deadline if self.ends_at is None else min(deadline, self.ends_at)
        return True

    @property
    def unconfirmed(self) -> bool:
        """True while there are renewals sent after the last confirmed one."""
        return bool(self._numbers)

    def is_latest(self, number: int) -> bool:
        """True while renewal `number` is unconfirmed and none was sent after it."""
        return self._numbers is not None and self._numbers[-1:] == [number]

    def end(self, phase: Phase, reason: str = "") -> None:
        """Move to a final phase.

        Raises:
            IllegalMove: The lease is over already; nothing changed.
        """
        if (self.phase, phase) not in _MOVES:
            raise IllegalMove(f"{self.phase} -> {phase}")
        self.phase = phase
        self.reason = reason
