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

    Instants are seconds of the engine's clock. `deadline` only ever moves by `renew` and `shorten`.
    """

    __slots__ = ("deadline", "ends_at", "phase", "reason", "started", "ttl")

    def __init__(self, started: float, ttl: float, deadline: float, ends_at: float | None) -> None:
        self.started = started
        self.ttl = ttl
        self.ends_at = ends_at
        self.deadline = deadline if ends_at is None else min(deadline, ends_at)
        self.phase = Phase.HELD
        self.reason = ""

    def remaining(self, now: float) -> float:
        """Seconds of validity left at `now`; 0.0 when over."""
        if self.phase is Phase.RELEASED or self.phase is Phase.LOST:
            return 0.0
        return max(0.0, self.deadline - now)

    def renew(self, started: float, ttl: float, deadline: float) -> bool:
        """Take over a renewal whose round began at `started`; False when a later one was already taken over."""
        if self.phase is not Phase.HELD or started < self.started:
            return False
        self.started = started
        self.ttl = ttl
        self.deadline = deadline if self.ends_at is None else min(deadline, self.ends_at)
        return True

    def shorten(self, deadline: float) -> None:
        """Before a renewal to a shorter ttl is sent: some node may apply it though no quorum confirms it."""
        self.deadline = min(self.deadline, deadline)

    def end(self, phase: Phase, reason: str = "") -> None:
        """Move to a final phase.

        Raises:
            IllegalMove: The lease is over already; nothing changed.
        """
        if (self.phase, phase) not in _MOVES:
            raise IllegalMove(f"{self.phase} -> {phase}")
        self.phase = phase
        self.reason = reason
