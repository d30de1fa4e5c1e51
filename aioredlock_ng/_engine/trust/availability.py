"""Wait for a quorum of nodes that can grant. Report when the quorum is lost and regained.

The module sends no requests to nodes. Other parts of the engine call `update` when the state of a
node may have changed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioredlock_ng._core.quorum import quorum_back_in
from aioredlock_ng.errors import QuorumUnreachable, RedlockClosed
from aioredlock_ng.events import QuorumLost, QuorumRegained

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.trust.markers import Markers
    from aioredlock_ng._nodes.port import NodeState

__all__ = ["Availability"]


class Availability:
    """Keeps track of whether a quorum of nodes may grant.

    Args:
        markers: The markers of the nodes, as last read; None without a recovery guard.
        states: Returns the health of each node, quarantine included.

    Attributes:
        ready: True while a quorum is known to be connected and not in quarantine.
        lost: True from the event `QuorumLost` to `QuorumRegained`.
    """

    def __init__(
        self, context: Context, markers: Markers | None, states: Callable[[], Sequence[NodeState]]
    ) -> None:
        self._context = context
        self._markers = markers
        self._states = states
        self._waiting: set[asyncio.Future[None]] = set()
        self._stopped = False
        self._lost_at = 0.0
        # A missing quorum is reported only once the manager is open.
        self._begun = False
        self.ready = self.lost = False

    def begin(self) -> None:
        """Begin to report a missing quorum. Call this once the manager is open."""
        self._begun = True
        self.update()

    def stop(self) -> None:
        """Stop the reports, and end all waits."""
        self._begun = self.ready = False
        self._stopped = True
        self._wake()

    def update(self) -> None:
        """Count the nodes that may grant. Report if a quorum was lost or regained."""
        if not self._begun:
            return
        context, markers = self._context, self._markers
        connected = [index for index, node in enumerate(context.fleet.nodes) if node.ready]
        # After a restart of all nodes, a connection alone does not show that a node may grant. So a
        # node with an unread marker does not help to regain a quorum. It does not count as missing
        # either.
        able = [index for index in connected if markers is None or markers.admits(index)]
        sure = sum(markers is None or markers.has_read(index) for index in able)
        if sure >= context.quorum:
            self._regained(sure)
        elif len(able) < context.quorum:
            self.ready = False
            if not self.lost:
                self.lost = True
                self._lost_at = context.clock()
                nodes, back_in = len(context.fleet.nodes), self.back_in()
                context.emit(QuorumLost(len(able), context.quorum, nodes, back_in, self._reasons()))

    def _regained(self, able: int) -> None:
        if self.ready:
            return
        self.ready = True
        self._wake()
        if self.lost:
            self.lost = False
            context = self._context
            after = context.clock() - self._lost_at
            context.emit(QuorumRegained(able, context.quorum, len(context.fleet.nodes), after))

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    def back_in(self) -> float | None:
        """Return the seconds until a quorum may grant; None if this time is not known."""
        waits: list[float | None] = []
        for index, node in enumerate(self._context.fleet.nodes):
            if not node.ready:
                waits.append(None)
            elif self._markers is None or self._markers.admits(index):
                waits.append(0.0)
            else:
                # The quarantine of a node that refuses its marker has no known end.
                waits.append(None if self._markers.refuses(index) else self._markers.left(index))
        return quorum_back_in(waits, self._context.quorum)

    async def wait(self, within: float | None) -> None:
        """Wait until a quorum may grant.

        Args:
            within: Longest wait in seconds; None waits for ever.

        Raises:
            QuorumUnreachable: Raised if the wait ended before a quorum could grant.
            RedlockClosed: Raised if the manager was closed meanwhile.

        Safety: a cancellation only ends the wait.
        """
        if self.ready:
            return
        asked_at = self._context.clock()
        waiter: asyncio.Future[None] = self._context.loop.create_future()
        self._waiting.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=within)
        finally:
            self._waiting.discard(waiter)
            waiter.cancel()
        if self._stopped:
            raise RedlockClosed("the Redlock was closed while this call waited for a quorum")
        if not waiter.cancelled():
            return
        error = QuorumUnreachable(
            f"no quorum of {self._context.quorum} nodes can grant locks after {within:g} s:"
            f" {'; '.join(self._reasons()) or 'the nodes have not shown their markers yet'}",
            elapsed=self._context.clock() - asked_at,
        )
        error.retry_after = self.back_in()
        raise error

    def _reasons(self) -> tuple[str, ...]:
        """Return the address, state and reason of each node that cannot grant."""
        return tuple(
            f"{state.address}: {state.state}{f' ({state.reason})' if state.reason else ''}"
            for state in self._states()
            if state.state != "up"
        )
