"""The entry of a waiting line in the queues on the nodes: its name, its ticket, and the two commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.outlook import Outlook
from aioredlock_ng._core.tickets import LARGEST_TICKET, claim_of
from aioredlock_ng._core.votes import is_granted, is_held
from aioredlock_ng._engine.attempt.errand import Errand
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.kinds import LEAVE, STAND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context

__all__ = ["QUEUE_LIFE", "Entry", "leaving"]

QUEUE_LIFE = 20.0
"""Seconds that a queue outlives the last look of its waiters."""

KEPT_FOR = 2.0
"""Seconds for which the free keys of a set are kept for it while it waits for another one. Nested
locks can wait for each other that way; then the wait ends after this time."""


class Entry:
    """What the queues on the nodes have of one line; `Place` decides when it asks.

    Args:
        context: The engine's surroundings.
        keys: The keys that the line wants.
        member: The name of the line in the queues.
        left: Called with a node's index and what it answered to a leave.

    Attributes:
        keys: See above.
        member: See above.
        standing: True while the queues may have entries of it.
    """

    __slots__ = (
        "_context",
        "_left",
        "_outlook",
        "_refused_at",
        "_ticket",
        "keys",
        "member",
        "standing",
    )

    def __init__(
        self,
        context: Context,
        keys: tuple[bytes, ...],
        member: bytes,
        left: Callable[[int, Reply], None],
    ) -> None:
        self._context = context
        self._left = left
        self._outlook = Outlook(len(context.fleet.nodes), context.quorum)
        self._ticket = 0
        self._refused_at = 0.0
        self.keys = keys
        self.member = member
        self.standing = False

    @property
    def queued(self) -> tuple[tuple[bytes, ...], int, int | None]:
        """Its keys, its ticket, and how many stand before it by the last answers of the nodes."""
        return self.keys, self._ticket, self._outlook.rank

    @property
    def claim(self) -> bytes:
        """What the waiter says of itself when it asks; nothing before it has a ticket."""
        return claim_of(self._ticket, self.member) if self._ticket else b""

    def leave(self) -> None:
        """Leave the queues."""
        if self.standing:
            self.standing = False
            self._context.fleet.ask(self._leaving())

    def served(self, attempt: Round) -> None:
        """Leave the queues of the nodes that did not grant: an entry there would wait in vain."""
        if not self.standing:
            return

        # Neither the attempt nor this place: late answers may never come, and a cycle would keep both.
        replies, known, nodes = attempt.replies, self._outlook.nodes, self._context.fleet.nodes
        errand = self._leaving()

        def answered(index: int) -> None:
            reply = replies[index]
            if known[index].entered and reply is not None and not is_granted(reply):
                nodes[index].ask(errand, index)

        for index in range(len(replies)):
            answered(index)
        attempt.on_late = answered

    def _refused(self, replies: Sequence[Reply]) -> None:
        """Take a ticket, after an attempt that these replies refused."""
        context = self._context
        self._refused_at = context.clock()
        seen = max((reply.ticket for reply in replies if is_held(reply)), default=0)
        if seen < LARGEST_TICKET:
            context.last_ticket = max(context.last_ticket, seen)
        if not self._ticket:
            context.last_ticket += 1
            self._ticket = context.last_ticket
        for node, reply in zip(self._outlook.nodes, replies, strict=True):
            node.refused(votes=reply is None or is_held(reply) or is_granted(reply))

    def _stand_at(
        self,
        indexes: Sequence[int],
        answered: Callable[[int, Reply], None],
        awaited: Callable[[], bool],
        *,
        tracked: bool,
    ) -> None:
        if not indexes:
            return
        context, now = self._context, self._context.clock()
        for index in indexes:
            node = self._outlook.nodes[index]
            node.entered |= context.fleet.nodes[index].ready
            node.tracked |= tracked
        # From the refusal on, and never prolonged: nested locks wait for each other until this ends.
        kept = max(0, round((self._refused_at + KEPT_FOR - now) * 1000))
        command = Command(
            STAND, self.keys, (self.claim, round(QUEUE_LIFE * 1000), kept), tracked=tracked
        )
        context.fleet.ask_some(Errand(command, now, answered, awaited), indexes)

    def _leaving(self) -> Errand:
        known, left = self._outlook.nodes, self._left

        def answered(index: int, reply: Reply) -> None:
            if known[index].entered:
                left(index, reply)

        return leaving(self.keys, self.member, self._context.clock(), answered)


def leaving(
    keys: tuple[bytes, ...],
    member: bytes,
    started: float,
    answered: Callable[[int, Reply], None] | None = None,
) -> Errand:
    """Return the errand that takes a waiter out of the queues of these keys.

    Args:
        keys: The keys.
        member: The waiter.
        started: The engine's clock.
        answered: See `Errand`.
    """
    return Errand(Command(LEAVE, keys, (member,)), started, answered)
