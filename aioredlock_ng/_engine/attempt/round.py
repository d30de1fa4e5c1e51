"""One round: a command to several nodes, and a decision as early as their answers allow."""

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
"""Seconds by which the timeout of a round may be late. With this tolerance, one timer serves all
rounds in one slot of the timer wheel."""


_STILL_ASKING = 1 << 30
"""Replaces the number of asked nodes until the command is queued on all of them.

A node that is down delivers its failure while the command is still being queued. If these failures
decided the round, other nodes would get the release of an attempt before its acquire.
"""


class Round:
    """A command that is sent to several nodes, and the count of its answers.

    Args:
        full: The reply that counts as a yes; None if no reply does. With `GRANTED`, a grant without
            the fence counts, too.
        quorum: Number of nodes that must answer yes.
        started: Instant by the engine's clock, before the first byte of the command is queued.
        on_decided: Called once: when a quorum has answered yes, when a quorum has become
            impossible, or at the node timeout.

    Attributes:
        replies: The answer of each node of the manager. None for a node that was not asked or has
            not answered. Answers after the decision are stored, too.
        yes: Number of nodes that answered yes before the decision.
        unfenced: Number of nodes, counted in `yes`, that granted an acquire but did not store its
            fence.
        before: The highest counter that the fence of an acquire has replaced on a node. None until
            a node has answered with its counter.
        agreed: The fence of an attempt for a read lease, if the counters of all nodes that granted
            equal the fence; 0 otherwise. A late answer with the same counter acknowledges the
            fence, too.
        decider: Index of the node whose grant completed the quorum, if the node did not store the
            fence; otherwise None.
        open: True until the decision.
        on_late: Called at each answer after the decision, with the index of the node.
        expired: True if the node timeout decided the round.
        token: The token of an acquire; empty for other commands.
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
        "agreed",
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
        self.agreed = 0
        self.open = True
        self.expired = False
        self.decider: int | None = None
        self.on_late: Callable[[int], None] | None = None
        self.started = started
        self.token = b""

    def ask(self) -> None:
        """Queue the command on all nodes, without an await."""
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
        """Queue the command on the nodes at `indexes`. Only these nodes can form the quorum."""
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
        self.replies[index] = reply
        if not self.open:
            if reply is not self._full:
                self._look_at(index, reply)
            if self.on_late is not None:
                self.on_late(index)
        # Equal replies are usually the same object, so `is` saves a comparison of fields. The reply
        # to a release of more than 32 keys is a new object each time; see `replies.released`.
        elif reply is self._full or reply == self._full:
            self.yes = yes = self.yes + 1
            # A yes never makes a quorum impossible, so `is_decided` is not needed.
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
        """Act on an answer to an acquire that came late, or that does not count as a yes.

        If a late answer acknowledges the fence, `replies` records the answer as `GRANTED`. A node
        in quarantine, or with a damaged counter, is reported even if a quorum of other nodes has
        granted.
        """
        if self._full is not GRANTED:
            return
        if type(reply) is Fenced or (
            self.agreed and type(reply) is Granted and reply.counter == self.agreed
        ):
            self.replies[index] = GRANTED
            return
        context = self._context
        if isinstance(reply, Quarantined):
            context.doubt()
        elif isinstance(reply, BrokenCounter) and index not in context.fences.refused:
            context.fences.refused.add(index)
            context.emit(NodeDegraded(context.fleet.nodes[index].address, BEYOND_CLOCKS))

    def agree(self, counter: int) -> None:
        """Record that all nodes that granted a read lease acknowledge the fence `counter`."""
        self.agreed, self.unfenced = counter, 0
        self.replies[:] = [GRANTED if is_granted(reply) else reply for reply in self.replies]

    def stands(self) -> bool:
        return self.open

    def expire(self) -> None:
        if self.open:
            self.expired = True
            self._decide()

    @property
    def won(self) -> bool:
        """True if a quorum answered yes."""
        return self.yes >= self._quorum

    def held(self, _lease: object) -> int:
        """Return the number of nodes that granted, late answers included."""
        return sum(map(is_granted, self.replies))

    def decided(self) -> asyncio.Future[None]:
        """Return a future that is done after the decision.

        After several calls, the decision resolves only the latest future. In a round with
        `on_decided`, it resolves no future.
        """
        self._waiter = future = self._context.loop.create_future()
        if not self.open:
            future.set_result(None)
        return future

    def _decide(self) -> None:
        self.open = False
        self._slot.discard(self)
        # The callback is a bound method of the round's owner. If the round kept it, owner and round
        # would form a reference cycle.
        on_decided, self._on_decided = self._on_decided, None
        if on_decided is not None:
            on_decided(self)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
