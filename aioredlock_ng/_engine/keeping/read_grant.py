"""The leases of one read grant. Several tasks of a process can have leases at the same time."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

__all__ = ["ReadGrant", "Shared"]


class Shared(Protocol):
    """The attributes of a lease that its grant needs. See `LeaseRecord` for their meaning."""

    repairing: int
    longest_ttl: float
    labelled_until: float
    deadline: float
    read_grant: Any


_H = TypeVar("_H", bound=Shared)
"""The type of a lease. `LeaseRecord` refers to `ReadGrant`, and so cannot be imported here."""


class ReadGrant(Generic[_H]):
    """A read grant and its leases.

    Attributes:
        leases: The leases that have not ended, in the order in which they began.
        expires_at: The latest deadline of the leases that were left to expire; 0.0 without such a
            lease. Until this instant, the grant is not released, because a thread may still work
            under that lease.
    """

    __slots__ = ("_labelled_until", "_longest_ttl", "_repairing", "expires_at", "leases")

    def __init__(self, first: _H) -> None:
        self.leases = {first: None}
        self.expires_at = 0.0
        # These values come from ended leases. `leave` copies them to the last lease.
        self._repairing = 0
        self._longest_ttl = self._labelled_until = 0.0

    def add(self, lease: _H) -> None:
        self.leases[lease] = None
        lease.read_grant = self

    def outlives(self, lease: _H, now: float) -> bool:
        """Return True if the end of this lease must not release the grant."""
        return now < self.expires_at or self.leases.keys() != {lease}

    def expire_with(self, lease: _H) -> None:
        """Keep the grant until the deadline of a lease that was abandoned or forsaken."""
        self.expires_at = max(self.expires_at, lease.deadline)

    def leave(self, lease: _H) -> bool:
        """Remove a lease that has ended. Return True if it was the last lease.

        The release must remove everything that the leases of the grant have written. So the last
        lease takes over the repairs, the longest ttl and the label of the ended leases.
        """
        self.leases.pop(lease, None)
        # A repair of the ended lease may still write the entry of the grant to a node, so the
        # release must reach this node.
        self._repairing |= lease.repairing
        self._longest_ttl = max(self._longest_ttl, lease.longest_ttl)
        self._labelled_until = max(self._labelled_until, lease.labelled_until)
        if self.leases:
            return False
        lease.repairing = self._repairing
        lease.longest_ttl = self._longest_ttl
        lease.labelled_until = self._labelled_until
        return True
