"""One fan-out: ask nodes at once, decide as early as arithmetic allows. It never sends anything twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.quorum import is_decided
from aioredlock_ng._core.votes import BEYOND_CLOCKS, GRANTED, Unsent, is_beyond_clocks, is_granted, is_quarantined
from aioredlock_ng.events import NodeDegraded

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._scripts import Command

__all__ = ["FIRST_SHARE", "NOT_ASKED", "TIMEOUT_WIDTH", "Round"]

TIMEOUT_WIDTH = 0.005
"""Seconds by which a round's timeout may be late: one timer then serves all rounds of a slot."""


FIRST_SHARE = 0.25
"""Share of the node timeout that the nodes asked first may take before the others are asked without their answer."""

_STILL_ASKING = 1 << 30
"""Stands for the number of nodes while they are asked: were the round lost to those that are down (they answer at
once), its release would be queued on the others before the acquire."""

NOT_ASKED = Unsent("not asked: others were asked first")
"""Stands for the answer of a node until `Round.widen`: it may be free, and notifies nobody of that."""


class Round:
    """Asks some nodes one command and counts.

    Args:
        context: The engine's surroundings.
        command: What to ask.
        full: The reply that counts as yes.
        quorum: How many must say so.
        started: Instant before the first byte is queued, by the engine's clock.
        on_decided: Called once: at quorum, when a quorum is impossible, or at the node timeout.

    Attributes:
        replies: Per node of the manager; None where it was not asked or has not answered. Late answers still arrive.
        yes: How many said yes before it was decided.
        unfenced: How many of those granted an acquire without acknowledging its fence.
        decider: The node whose such grant was the last one needed.
        open: True until decided.
        on_late: Called after each answer from now on; for who lost the round and wonders which nodes are free.
        on_late_grant: Called with the index of a node that granted it after it was undone.
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
        "_wanted",
        "command",
        "decider",
        "expired",
        "on_late",
        "on_late_grant",
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
        full: int,
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
        self.open = True
        self.expired = False
        self.decider: int | None = None
        self.on_late: Callable[[], None] | None = None
        self.on_late_grant: Callable[[int], None] | None = None
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

    def ask_first(self, first: Sequence[int]) -> None:
        """Ask these nodes, and decide once one grants it or all have said no; the others count as not asked until `widen`."""
        self._wanted, self._quorum = self._quorum, 1
        self.replies = [NOT_ASKED] * len(self.replies)
        for index in first:
            self.replies[index] = None
        at = self.started + self._context.options.node_timeout * FIRST_SHARE + TIMEOUT_WIDTH
        self._slot = self._context.timeouts.add(self, at)
        self._asked = len(first)
        self._context.fleet.ask_some(self, first)

    def asked_replies(self) -> list[Reply]:
        """What those said that were asked; None where nothing yet."""
        return [reply for reply in self.replies if reply is not NOT_ASKED]

    def widen(self, on_decided: Callable[[Round], None]) -> None:
        """After the first: ask all others the same, still one attempt. Who was silent may answer later."""
        self._quorum, self._asked, self.open = self._wanted, _STILL_ASKING, True
        self._on_decided = on_decided
        at = self.started + self._context.options.node_timeout * FIRST_SHARE + self._context.patience
        self._slot = self._context.timeouts.add(self, at)
        others = [index for index, reply in enumerate(self.replies) if reply is NOT_ASKED]
        for index in others:
            self.replies[index] = None
        for index in others:
            self._context.fleet.nodes[index].ask(self, index)
        self._all_asked()

    def _all_asked(self) -> None:
        self._asked = len(self.replies)
        if self.open and is_decided(self._asked, self._quorum, self.yes, self._no):
            self._decide()

    def deliver(self, index: int, reply: Reply) -> None:
        """Count an answer; see `Sink.deliver`."""
        self.replies[index] = reply
        if not self.open:
            if reply != self._full:
                self._look_at(index, reply)
            if self.on_late_grant is not None and is_granted(reply):
                self.on_late_grant(index)
            if self.on_late is not None:
                self.on_late()
        elif reply == self._full:
            self.yes = yes = self.yes + 1
            # A yes can only win.
            if yes == self._quorum:
                self._decide()
        elif self._full == GRANTED and is_granted(reply):
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
        if self._full != GRANTED:
            return
        context = self._context
        if is_quarantined(reply):
            context.doubt()
        elif is_beyond_clocks(reply) and index not in context.fences.refused:
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
