"""Release the keys of ended leases, and the read grants that outlive their last lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._engine.keeping import min_hold
from aioredlock_ng._engine.keeping.schedule import RENEW_WIDTH
from aioredlock_ng._engine.wheel import Wheel

if TYPE_CHECKING:
    from aioredlock_ng._engine.attempt.releases import Releases
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.keeping.read_grant import ReadGrant

__all__ = ["KeyReleases"]


class KeyReleases:
    """Releases the keys of ended leases of one manager.

    Args:
        releases: Sends releases to the nodes.
    """

    def __init__(self, context: Context, releases: Releases) -> None:
        self._context = context
        self._releases = releases
        # The last lease of each read grant that is released later.
        self._outlived = Wheel(context.loop, context.clock, RENEW_WIDTH, self._send_all)

    def stop(self) -> None:
        """Send no further releases. This method itself sends nothing."""
        self._outlived.stop()

    def close(self) -> None:
        """Release the read grants whose `expires_at` has passed. Leave the others to expire."""
        now = self._context.clock()
        for lease in self._outlived.stop():
            if lease.read_grant is not None and lease.read_grant.expires_at <= now:
                self.send(lease, now)

    def left(self, grant: ReadGrant[LeaseRecord], lease: LeaseRecord, now: float) -> bool:
        """Remove an ended lease from its read grant.

        Returns:
            True if the caller must release the grant now.
        """
        if grant.expires_at > now:
            self.postpone(grant, lease)
            return False
        return grant.leave(lease)

    def postpone(self, grant: ReadGrant[LeaseRecord], lease: LeaseRecord) -> None:
        """Remove an ended lease from its read grant. Release the grant at `expires_at`, if unused.

        Until then, a task may still work under a lease that was left to expire. Without the
        release, the grant could stay for a whole ttl longer, because other leases have renewed it.
        """
        if grant.leave(lease):
            # The wheel may call one slot too early.
            self._outlived.add(lease, grant.expires_at + RENEW_WIDTH)

    def send(self, lease: LeaseRecord, now: float) -> Round:
        """Release the keys of an ended lease, or keep them taken until `min_hold` is over.

        When the method returns, the command is queued.
        """
        if lease.repairing:
            # The release must reach each node that is being repaired, so `granted` must have None
            # for this node. The repair has set None, but a late answer to the acquire may have
            # replaced it. So None is set again.
            for index in range(len(lease.granted)):
                if lease.repairing & (1 << index):
                    lease.granted[index] = None
        if lease.kept_until > now:
            retirement = min_hold.retirement(self._context, lease, now)
            if retirement is not None:
                return self._releases.retire(retirement, lease.granted, now)
        label_keys: tuple[bytes, ...] = ()
        # A node that refuses labels would refuse a release with the key of a label.
        if lease.labelled_until and self._context.labels is not None:
            label_key = lease.spec.kind.label_key
            label_keys = tuple([label_key(key, lease.token) for key in lease.spec.keys])
        return self._releases.send(
            lease.spec, lease.token, lease.granted, lease.longest_ttl, now, label_keys
        )

    def _send_all(self, leases: set[LeaseRecord]) -> None:
        now = self._context.clock()
        for lease in leases:
            self.send(lease, now)
