"""Gives nodes back what they lack of a lease: lost keys, unacknowledged fences. It never counts as a renewal.

Sound only behind the recovery guard and the fence check, which the script makes on the node itself (model-checked: past
the guard, setting keys again gives two holders), and never begun after the local deadline. A node that is known to be in
quarantine would refuse each: the first renewal after it finds out again what it lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.replies import GRANTED, Repaired
from aioredlock_ng._core.validity import ttl_ms
from aioredlock_ng._core.votes import Dropped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._scripts import Command

__all__ = ["Repairs"]

REPAIR_AFTER = 0.05
"""Seconds from the news that a node lacks keys to their repair. Who takes a lock away deletes it on one node after the other:
set again in between, it would be neither held by a majority nor gone, and its holder would be told late."""


class Repairs:
    """Sends repairs, one at a time per lease and node."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def missing(self, lacking: Iterable[Holding], index: int) -> None:
        """Node `index` answered that it has no keys of these, which may be held by a quorum of others."""
        if self._context.quarantined(index):
            return
        due = [holding for holding in lacking if self._wanted(holding, index)]
        if due:
            for holding in due:
                holding.repairing |= 1 << index
            self._context.loop.call_later(REPAIR_AFTER, self._due, due, index)

    def complete(self, holdings: Iterable[Holding]) -> None:
        """Give every node that answers what it may lack of them: it did not grant, or did not acknowledge the fence."""
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
        """True where it may be repaired, and no repair is under way or about to be."""
        if not holding.spec.kind.repairing or holding.repairing & (1 << index):
            return False
        return holding.phase is Phase.HELD and holding.remaining(self._context.clock()) > 0.0

    def _repair(self, holding: Holding, index: int) -> None:
        context, spec = self._context, holding.spec
        context.counters.repairs += 1
        holding.repairing |= 1 << index
        # From now on there may be keys of ours: the release must go there too, behind this.
        holding.granted[index] = None
        # Not by the lease's own fence: a counter above that may be the grant's, and one just above
        # the grant's may be that of a forced release.
        command = spec.kind.repairing_of(
            spec.keys, spec.slots, holding.token, ttl_ms(holding.ttl), holding.stored
        )
        context.fleet.nodes[index].ask(_Repair(context, holding, command), index)


class _Repair:
    """One repair under way; see `Sink`."""

    __slots__ = ("_context", "_holding", "command", "started")

    def __init__(self, context: Context, holding: Holding, command: Command) -> None:
        self._context = context
        self._holding = holding
        self.command = command
        self.started = context.clock()

    def stands(self) -> bool:
        """See `Sink.stands`."""
        return (
            self._holding.remaining(self._context.clock()) > 0.0
            and self._holding.phase is Phase.HELD
        )

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
        holding = self._holding
        holding.repairing &= ~(1 << index)
        if reply is Repaired.DONE:
            holding.granted[index] = GRANTED
        elif reply is Repaired.UNTRUSTED:
            self._context.doubt()
        elif isinstance(reply, Dropped):
            # It may have set keys, whatever the acquire was answered.
            holding.granted[index] = reply
