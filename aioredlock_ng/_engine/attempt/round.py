"""One fan-out: ask nodes at once, decide as early as arithmetic allows. It never sends anything twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.quorum import is_decided
from aioredlock_ng._core.replies import GRANTED, BrokenCounter, Fenced, Granted, Quarantined
from aioredlock_ng._core.votes import BEYOND_CLOCKS, is_granted
from aioredlock_ng.events import NodeDegraded

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.replies import Record
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._scripts import Command

__all__ = ["TIMEOUT_WIDTH", "Round"]

TIMEOUT_WIDTH = 0.005
"""Seconds by which a round's timeout may be late: one timer then serves all rounds of a slot."""


_STILL_ASKING = 1 << 30
"""Stands for the number of nodes while they are asked: were the round lost to those that are down (they answer at
once), its release would be queued on the others before the acquire."""


class Round:
    """Asks some nodes one command and counts.

    Args:
        context: The engine's surroundings.
        command: What to ask.
        full: The reply that counts as yes; None: no reply does.
        quorum: How many must say so.
        started: Instant before the first byte is queued, by the engine's clock.
        on_decided: Called once: at quorum, when a quorum is impossible, or at the node timeout.

    Attributes:
        replies: Per node of the manager; None where it was not asked or has not answered. Late answers still arrive.
        yes: How many said yes before it was decided.
        unfenced: How many of those granted an acquire without acknowledging its fence.
        before: The highest counter that the fence of an acquire replaced on a node that was asked for it. None
            until such a node has granted.
        decider: The node whose such grant was the last one needed.
        open: True until decided.
        on_late: Called with the node's index after each answer from then on.
        expired: True when the node timeout decided it.
        started: See above.
        token: Of an acquire: the attempt's own.
    """

    __slots__ = (
        "_asked",
        "_context",
        "_full",
        "_no",
        "_on_decided",
        "_quorum",
        "_slot",
        "_waiter",
        "before",
        "command",
        "decider",
        "expired",
        "on_late",
        "open",
        "replies",
        "started",
        "token",
        "unfenced",
        "yes",
    )

    def __init__(
        self,
        context: Context,
        command: Command,
        full: Record | None,
        quorum: int,
        started: float,
        on_decided: Callable[[Round], None] | None = None,
    ) -> None:
        self._context = context
        self.command = command
        self._full = full
        self._quorum = quorum
        self._on_decided = on_decided
        self._waiter: asyncio.Future[None] | None = None
        self._asked = n = len(context.fleet.nodes)
        self.replies: list[Reply] = [None] * n
        self.yes = self.unfenced = self._no = 0
        self.before: int | None = None
        self.open = True
        self.expired = False
        self.decider: int | None = None
        self.on_late: Callable[[int], None] | None = None
        self.started = started
        self.token = b""

    def ask(self) -> None:
        """Queue the command on all nodes in this very tick; nothing is awaited."""
        context = self._context
        fleet = context.fleet
        self._slot = context.timeouts.add(self, self.started + context.patience)
        if fleet.absent:
            self._asked = _STILL_ASKING
            fleet.ask(self)
            self._all_asked()
        else:
            fleet.ask_present(self)

    def ask_some(self, indexes: Sequence[int]) -> None:
        """The same for the nodes at `indexes` alone, of which the quorum is then one."""
        context = self._context
        self._slot = context.timeouts.add(self, self.started + context.patience)
        self._asked = len(indexes)
        context.fleet.ask_some(self, indexes)
        if not indexes:
            self._decide()

    def _all_asked(self) -> None:
        self._asked = len(self.replies)
        if self.open and is_decided(self._asked, self._quorum, self.yes, self._no):
            self._decide()

    def deliver(self, index: int, reply: Reply) -> None:
        """Count an answer; see `Sink.deliver`."""
        self.replies[index] = reply
        if not self.open:
            if reply is not self._full:
                self._look_at(index, reply)
            if self.on_late is not None:
                self.on_late(index)
        # Identity first: it spares the usual yes a field-by-field comparison. Only a release of
        # more than 32 keys is answered by a new record each time; see `replies.released`.
        elif reply is self._full or reply == self._full:
            self.yes = yes = self.yes + 1
            # A yes can only win.
            if yes == self._quorum:
                self._decide()
        elif type(reply) is Fenced:
            self.replies[index] = GRANTED
            self.before = max(self.before or 0, reply.before)
            self.yes += 1
            if self.yes == self._quorum:
                self._decide()
        elif self._full is GRANTED and type(reply) is Granted:
            self.unfenced += 1
            self.yes += 1
            if self.yes == self._quorum:
                self.decider = index
                self._decide()
        else:
            self._no += 1
            self._look_at(index, reply)
            if is_decided(self._asked, self._quorum, self.yes, self._no):
                self._decide()

    def _look_at(self, index: int, reply: Reply) -> None:
        """Also where the others are enough: a quarantined node would stay so, unseen, where its server tells of no flush."""
        if self._full is not GRANTED:
            return
        if type(reply) is Fenced:
            self.replies[index] = GRANTED
            return
        context = self._context
        if isinstance(reply, Quarantined):
            context.doubt()
        elif isinstance(reply, BrokenCounter) and index not in context.fences.refused:
            context.fences.refused.add(index)
            context.emit(NodeDegraded(context.fleet.nodes[index].address, BEYOND_CLOCKS))

    def stands(self) -> bool:
        """See `Sink.stands`."""
        return self.open

    def expire(self) -> None:
        """The node timeout has passed: what has not answered does not count."""
        if self.open:
            self.expired = True
            self._decide()

    @property
    def won(self) -> bool:
        """True when a quorum said yes."""
        return self.yes >= self._quorum

    def held(self, _holding: object) -> int:
        """How many nodes said yes, late ones included."""
        return sum(map(is_granted, self.replies))

    def decided(self) -> asyncio.Future[None]:
        """A future that is done once this round is; the last one asked for is told."""
        self._waiter = future = self._context.loop.create_future()
        if not self.open:
            future.set_result(None)
        return future

    def _decide(self) -> None:
        self.open = False
        self._slot.discard(self)
        # Taken out before the call: a bound method back to the asker would be a reference cycle per attempt.
        on_decided, self._on_decided = self._on_decided, None
        if on_decided is not None:
            on_decided(self)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
