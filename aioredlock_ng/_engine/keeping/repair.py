"""Repairs: sets the lost keys and the unacknowledged fence of a lease on a node again.

A repair never counts as a renewal, and none begins after the local deadline. The script checks the
recovery guard and the fence on the node itself. Without the guard a repair can give two holders, as
the model checker found. A node in quarantine would refuse every repair, so none is sent to it. The
first renewal after the quarantine shows again which keys the node lacks.
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
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._scripts import Command

__all__ = ["Repairs"]

REPAIR_AFTER = 0.05
"""Delay in seconds from the report of missing keys to their repair. A forced release deletes the
keys on one node after the other. A repair in between would delay the notification of the holder."""


class Repairs:
    """Sends repairs, at most one at a time for each lease and node."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def missing(self, lacking: Iterable[Holding], index: int) -> None:
        """Schedule repairs of holdings whose keys node `index` lacks."""
        if self._context.quarantined(index):
            return
        due = [holding for holding in lacking if self._wanted(holding, index)]
        if due:
            for holding in due:
                holding.repairing |= 1 << index
            self._context.loop.call_later(REPAIR_AFTER, self._due, due, index)

    def complete(self, holdings: Iterable[Holding]) -> None:
        """Repair holdings on nodes that did not grant, or did not acknowledge the fence.

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
        for holding in [holding for holding in holdings if holding.granted != everywhere]:
            for index in able:
                if holding.granted[index] is not GRANTED and self._wanted(holding, index):
                    self._repair(holding, index)

    def _due(self, lacking: Iterable[Holding], index: int) -> None:
        quarantined = self._context.quarantined(index)
        for holding in lacking:
            holding.repairing &= ~(1 << index)
            if not quarantined and self._wanted(holding, index):
                self._repair(holding, index)

    def _wanted(self, holding: Holding, index: int) -> bool:
        """Return True if the holding may be repaired, and no repair is under way or scheduled."""
        if not holding.spec.kind.repairing or holding.repairing & (1 << index):
            return False
        return holding.phase is Phase.HELD and holding.remaining(self._context.clock()) > 0.0

    def _repair(self, holding: Holding, index: int) -> None:
        context, spec = self._context, holding.spec
        context.counters.repairs += 1
        holding.repairing |= 1 << index
        # The node may have our keys from now on. The release must go there too, behind the repair.
        holding.granted[index] = None
        # The repair stores the fence of the grant, and not of the lease. A counter above the
        # lease's fence may be the grant's own. A counter above the grant's fence may be that of a
        # forced release.
        life = max(holding.ttl, kept_for(context, holding, context.clock()))
        command = spec.kind.repairing_of(
            spec.keys, spec.counters, holding.token, ttl_ms(life), holding.stored
        )
        context.fleet.nodes[index].ask(_Repair(context, holding, command), index)


class _Repair:
    """One repair under way; a `Sink`."""

    __slots__ = ("_context", "_holding", "command", "started")

    def __init__(self, context: Context, holding: Holding, command: Command) -> None:
        self._context = context
        self._holding = holding
        self.command = command
        self.started = context.clock()

    def stands(self) -> bool:
        """Return True while the lease is valid, and so while the repair may be sent again."""
        return (
            self._holding.remaining(self._context.clock()) > 0.0
            and self._holding.phase is Phase.HELD
        )

    def deliver(self, index: int, reply: Reply) -> None:
        """Record the answer of the repaired node."""
        holding = self._holding
        holding.repairing &= ~(1 << index)
        if reply is Repaired.DONE:
            holding.granted[index] = GRANTED
        elif reply is Repaired.UNTRUSTED:
            self._context.doubt()
        elif isinstance(reply, Dropped):
            # The node may have set our keys, and the answer is lost. The release must go there.
            holding.granted[index] = reply
