"""The state of one lease: its phase, its deadline and the renewals under way.

    held --release--> released
    held --abandon--> abandoned
    held --lose-----> lost

Every other change of the phase raises an error and has no effect. So a lease is lost at most once,
and never after its release.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aioredlock_ng._core.validity import deadline_of

__all__ = ["IllegalMove", "LeaseState", "Phase", "Renewal"]


class Phase(StrEnum):
    """The phase of a lease. All phases but `HELD` are final."""

    HELD = "held"
    RELEASED = "released"
    ABANDONED = "abandoned"
    LOST = "lost"


class IllegalMove(Exception):
    """The error for ending a lease that has already ended."""


@dataclass(slots=True, eq=False)
class Renewal:
    """One renewal of all leases in a batch.

    Attributes:
        started: Instant just before the first byte of the renewal was queued.
        deadline: The deadline of the leases if a quorum confirms the renewal.
    """

    started: float
    ttl: float
    deadline: float


class LeaseState:
    """The state of one lease, as this process knows it.

    Instants are seconds of the engine's clock. The methods `asked` and `renewed` change the
    deadline. Each node executes renewals in the order in which they are sent. The answers to
    renewals may arrive in any order.

    Args:
        started: Instant at which the granting attempt began.
        deadline: Instant up to which the grant is valid.
        ends_at: Instant at which `max_hold` ends; None without a `max_hold`.
    """

    __slots__ = ("_latest", "_sent", "deadline", "ends_at", "phase", "reason", "started", "ttl")

    def __init__(self, started: float, ttl: float, deadline: float, ends_at: float | None) -> None:
        self.started = started
        self.ttl = ttl
        self.ends_at = ends_at
        self.deadline = deadline if ends_at is None else min(deadline, ends_at)
        self.phase = Phase.HELD
        self.reason = ""
        # The renewals that were sent after the latest confirmed renewal, in order.
        self._sent: tuple[Renewal, ...] = ()
        self._latest: Renewal | None = None

    def remaining(self, now: float) -> float:
        """Return the seconds from `now` to the deadline; 0.0 after a release or a loss."""
        if self.phase is Phase.RELEASED or self.phase is Phase.LOST:
            return 0.0
        return max(0.0, self.deadline - now)

    def asked(self, renewal: Renewal) -> None:
        """Record a renewal that is about to be sent.

        If the renewal would make the deadline earlier, the earlier deadline applies immediately. A
        node may apply the renewal even if no quorum confirms it.
        """
        self._latest = renewal
        self._sent += (renewal,)
        if renewal.deadline < self.deadline:
            self.deadline = renewal.deadline

    def renewed(self, renewal: Renewal) -> bool:
        """Set the new deadline after a quorum has confirmed a renewal.

        The new deadline is never after the deadline of any renewal that was sent later, even if no
        quorum confirmed that renewal.

        Returns:
            True if the renewal set the deadline. False if nothing changed, because a later renewal
            is already confirmed or the lease has ended.
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
        """True if a renewal was sent after the latest confirmed renewal."""
        return bool(self._sent)

    @property
    def renewal_sent(self) -> bool:
        """True once a renewal of this lease itself was sent; see `follow`."""
        return self._latest is not None

    @property
    def shortest_ttl(self) -> float:
        """The shortest ttl that a node may have given the keys.

        The keys have the ttl of the latest confirmed renewal, or of a renewal that was sent later.
        """
        return min([self.ttl, *(renewal.ttl for renewal in self._sent)])

    def follow(self, other: LeaseState, drift: float) -> None:
        """Take over the ttl, the renewals under way and the deadline of a lease of the same grant.

        `drift` is the drift of that ttl. The `max_hold` of the other lease does not matter.
        """
        self.ttl, self._sent = other.ttl, other._sent
        deadlines = [renewal.deadline for renewal in other._sent]
        deadlines.append(deadline_of(other.started, other.ttl, drift))
        if self.ends_at is not None:
            deadlines.append(self.ends_at)
        self.deadline = min(deadlines)

    def is_latest(self, renewal: Renewal) -> bool:
        """Return True if no later renewal was sent."""
        return self._latest is renewal

    def end(self, phase: Phase, reason: str = "") -> None:
        """End the lease.

        Raises:
            IllegalMove: Raised if the lease has already ended, or if the phase is not final.
        """
        if self.phase is not Phase.HELD or phase is Phase.HELD:
            raise IllegalMove(f"{self.phase} -> {phase}")
        # The reason comes first: another thread may read it as soon as the phase changes.
        self.reason = reason
        self.phase = phase
