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

    __slots__ = ("_last_asked", "_last_renewed", "_unconfirmed", "deadline", "ends_at", "phase", "reason", "started", "ttl")

    def __init__(self, started: float, ttl: float, deadline: float, ends_at: float | None) -> None:
        self.started = started
        self.ttl = ttl
        self.ends_at = ends_at
        self.deadline = deadline if ends_at is None else min(deadline, ends_at)
        self.phase = Phase.HELD
        self.reason = ""
        self._last_asked = self._last_renewed = 0
        self._unconfirmed: list[tuple[int, float]] = []

    def remaining(self, now: float) -> float:
        """Seconds of validity left at `now`; 0.0 when over."""
        if self.phase is Phase.RELEASED or self.phase is Phase.LOST:
            return 0.0
        return max(0.0, self.deadline - now)

    def asked(self, deadline: float) -> int:
        """A renewal that would move the deadline there is about to be sent; returns its number.

        A shorter one counts from here: some node may apply it though no quorum ever confirms it.
        """
        self._last_asked += 1
        self._unconfirmed.append((self._last_asked, deadline))
        if deadline < self.deadline:
            self.deadline = deadline
        return self._last_asked

    def renewed(self, number: int, started: float, ttl: float, deadline: float) -> bool:
        """A quorum confirmed renewal `number`; False when a later one was confirmed before, or the lease is over.

        Nodes execute renewals in the order of their numbers. So each one sent later caps this one, confirmed or not.
        """
        if self.phase is not Phase.HELD or number < self._last_renewed:
            return False
        if self._unconfirmed[-1][0] == number:
            self._unconfirmed.clear()
        else:
            self._unconfirmed = [asked for asked in self._unconfirmed if asked[0] > number]
            deadline = min([deadline, *(later for _, later in self._unconfirmed)])
        self._last_renewed = number
        self.started = started
        self.ttl = ttl
        self.deadline = deadline if self.ends_at is None else min(deadline, self.ends_at)
        return True

    def is_latest(self, number: int) -> bool:
        """True while no renewal was sent after `number`."""
        return number == self._last_asked

    def end(self, phase: Phase, reason: str = "") -> None:
        """Move to a final phase.

        Raises:
            IllegalMove: The lease is over already; nothing changed.
        """
        if (self.phase, phase) not in _MOVES:
            raise IllegalMove(f"{self.phase} -> {phase}")
        self.phase = phase
        self.reason = reason
