"""Repairs of leases: a repair sets the keys and the fence that a node lacks.

A repair never counts as a renewal, and no repair begins after the lease's deadline. The script
checks the marker and the fence on the node itself. Without these two checks, a repair can give a
lock two holders, as the model checker found. So a lock is repaired only if it has fences, and the
recovery guard is on. A node in quarantine sets no missing key, so no repair is sent to this node.
The first renewal after the quarantine shows again which keys the node lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.replies import GRANTED, Repaired
from aioredlock_ng._core.validity import ttl_ms
from aioredlock_ng._core.votes import Dropped
from aioredlock_ng._engine.keeping.min_hold import kept_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._scripts import Command

__all__ = ["Repairs"]

REPAIR_AFTER = 0.05
"""Delay in seconds from the report of missing keys to their repair. A forced release deletes the
keys on one node after the other. A repair during this time would set a deleted key again, so the
holder would be notified later."""


class Repairs:
    """Repairs the leases of one manager. A lease has at most one repair at a time on each node."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def missing(self, lacking: Iterable[LeaseRecord], index: int) -> None:
        """Schedule repairs of leases whose keys node `index` lacks.

        No repair is sent if the node is in quarantine when the repair is due.
        """
        due = [lease for lease in lacking if self._wanted(lease, index)]
        if due:
            for lease in due:
                lease.repairing |= 1 << index
            self._context.loop.call_later(REPAIR_AFTER, self._due, due, index)

    def complete(self, leases: Iterable[LeaseRecord]) -> None:
        """Repair leases on nodes that did not grant them, or did not acknowledge their fences.

        Only connected nodes outside quarantine are asked.
        """
        context = self._context
        nodes = context.fleet.nodes
        everywhere = [GRANTED] * len(nodes)
        able = [
            index
            for index, node in enumerate(nodes)
            if node.ready and not context.quarantined(index)
        ]
        for lease in [lease for lease in leases if lease.granted != everywhere]:
            for index in able:
                if lease.granted[index] is not GRANTED and self._wanted(lease, index):
                    self._repair(lease, index)

    def _due(self, lacking: Iterable[LeaseRecord], index: int) -> None:
        quarantined = self._context.quarantined(index)
        for lease in lacking:
            lease.repairing &= ~(1 << index)
            if not quarantined and self._wanted(lease, index):
                self._repair(lease, index)

    def _wanted(self, lease: LeaseRecord, index: int) -> bool:
        """Return True if the lease may be repaired, and no repair is under way or scheduled."""
        if not lease.spec.kind.repairing or lease.repairing & (1 << index):
            return False
        return lease.phase is Phase.HELD and lease.remaining(self._context.clock()) > 0.0

    def _repair(self, lease: LeaseRecord, index: int) -> None:
        context, spec = self._context, lease.spec
        context.counters.repairs += 1
        lease.repairing |= 1 << index
        # The node may have our keys from now on. With None, the release does not skip it.
        lease.granted[index] = None
        # The repair stores the fence of the grant, not the fence of the lease. The grant itself may
        # have raised the counter above the fence of the lease. If a node's counter is above the
        # grant's fence, for example after a forced release, the node sets no missing key.
        life = max(lease.ttl, kept_for(context, lease, context.clock()))
        command = spec.kind.repairing_of(
            spec.keys, spec.counters, lease.token, ttl_ms(life), lease.stored
        )
        context.fleet.nodes[index].ask(_Repair(context, lease, command), index)


class _Repair:
    """One repair under way. A repair is the `Sink` of its answer."""

    __slots__ = ("_context", "_lease", "command", "started")

    def __init__(self, context: Context, lease: LeaseRecord, command: Command) -> None:
        self._context = context
        self._lease = lease
        self.command = command
        self.started = context.clock()

    def stands(self) -> bool:
        return (
            self._lease.remaining(self._context.clock()) > 0.0 and self._lease.phase is Phase.HELD
        )

    def deliver(self, index: int, reply: Reply) -> None:
        lease = self._lease
        lease.repairing &= ~(1 << index)
        if reply is Repaired.DONE:
            lease.granted[index] = GRANTED
        elif reply is Repaired.UNTRUSTED:
            self._context.doubt()
        elif isinstance(reply, Dropped):
            # The answer is lost, but the node may have set our keys. So the release must reach the
            # node.
            lease.granted[index] = reply
