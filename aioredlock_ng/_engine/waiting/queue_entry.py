"""The entry of a waiting line in the queues on the nodes.

An entry consists of a ticket and a name, which is called the member. The command `stand` adds the
entry. A grant or the command `leave` removes the entry. A further `stand` is called a refresh. A
refresh confirms the entry, and the answer to a refresh shows when the node may grant.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from aioredlock_ng._core.keys import slot_in
from aioredlock_ng._core.queue_formats import claim_of
from aioredlock_ng._core.votes import Dropped, Unsent, is_granted, is_held
from aioredlock_ng._core.waking import Outlook
from aioredlock_ng._engine.attempt.errand import Errand
from aioredlock_ng._scripts import node_requests

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context

__all__ = ["KEPT_FOR", "QUEUE_LIFE", "Entry", "leaving"]

QUEUE_LIFE = 20.0
"""Seconds until a queue expires, counted from the latest refresh by the head of the queue. After a
refresh by another waiter, the queue lives `2 * QUEUE_LIFE` longer for each waiter ahead. So the
second waiter alone keeps the queue alive, too. At most 15 waiters count."""

KEPT_FOR = 2.0
"""Seconds for which the free keys of a lock are reserved for a waiter, while another key of this
lock is held. Reservations of nested locks can block each other, so they end after this time."""


class Entry:
    """The entry of one waiting line in the queues, and each node's latest answer about the entry.

    Args:
        keys: The keys that the line wants.
        member: The name of the line in the queues.
        any_key: True for a semaphore: the keys are its slots, and the line wants any one of them.
        reader: True if the line wants to read.

    Attributes:
        standing: True while the queues may have the entry.
    """

    __slots__ = (
        "_any_key",
        "_context",
        "_outlook",
        "_reader",
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
        *,
        any_key: bool = False,
        reader: bool = False,
    ) -> None:
        self._context = context
        self._any_key = any_key
        self._reader = reader
        self._outlook = Outlook(len(context.fleet.nodes), context.quorum, any_key=any_key)
        self._ticket = 0
        self._refused_at = 0.0
        self.keys = keys
        self.member = member
        self.standing = False

    @property
    def queued(self) -> tuple[tuple[bytes, ...], int, int | None]:
        """The keys and the ticket of the line, and the number of waiters before the line.

        For a semaphore, the only key is the key of the semaphore. The number of waiters is None
        until a node has answered.
        """
        slot = slot_in(self.keys[0]) if self._any_key else None
        return self.keys if slot is None else (slot[0],), self._ticket, self._outlook.rank

    @property
    def free_in(self) -> float | None:
        """Seconds until the first node may grant; None if no node has named a time."""
        at = min(node.free_at for node in self._outlook.nodes)
        return None if at == inf else max(0.0, at - self._context.clock())

    @property
    def tickets_at(self) -> float:
        """The instant since which a quorum of nodes has offered slots; `-inf` if no quorum has."""
        return self._outlook.tickets_at

    @property
    def claim(self) -> bytes:
        """The ticket and the member as one argument of attempts; empty without a ticket."""
        return claim_of(self._ticket, self.member) if self._ticket else b""

    def leave(self) -> None:
        if self.standing:
            self.standing = False
            indexes = [i for i, node in enumerate(self._outlook.nodes) if node.entered]
            errand = leaving(self.keys, self.member, self._context.clock())
            self._context.fleet.ask_some(errand, indexes)

    def rename(self, member: bytes) -> None:
        """Take another name, after the line has left the queues."""
        self.member = member
        for node in self._outlook.nodes:
            node.entered = False

    def served(self, attempt: Round) -> None:
        """Leave the queues of the nodes that did not grant.

        A node that granted has removed the entry. The other nodes would offer the keys to a line
        that no longer waits. The line also leaves the queue of a node whose refusal comes later.
        """
        if not self.standing:
            return

        # The function `answered` must not refer to the attempt or to this entry. A cycle of
        # references would keep the attempt and the entry in memory while an answer is missing.
        replies, known, nodes = attempt.replies, self._outlook.nodes, self._context.fleet.nodes
        errand = leaving(self.keys, self.member, self._context.clock())

        def answered(index: int) -> None:
            reply = replies[index]
            if known[index].entered and reply is not None and not is_granted(reply):
                nodes[index].ask(errand, index)

        for index in range(len(replies)):
            answered(index)
        attempt.on_late = answered

    def _refused(self, replies: Sequence[Reply]) -> None:
        """Discard outdated answers after a refusal, and choose a ticket if the line has none.

        `replies` is empty if there was no attempt.
        """
        tickets = self._context.tickets
        self._refused_at = self._context.clock()
        tickets.see(max((reply.ticket for reply in replies if is_held(reply)), default=0))
        if not self._ticket:
            self._ticket = tickets.choose()
        for node, reply in zip(self._outlook.nodes, replies, strict=False):
            # The node may have been connected during the attempt, after its own part had failed.
            back = isinstance(reply, (Unsent, Dropped))
            node.refused(votes=reply is None or is_held(reply) or is_granted(reply) or back)

    def _offered(self, index: int, highest: int) -> None:
        """Record an offer of node `index`. The highest ticket in the node's queue is `highest`."""
        self._outlook.nodes[index].tickets_at = self._context.clock()
        self._context.tickets.see(highest)

    def _stand_at(
        self,
        indexes: Sequence[int],
        answered: Callable[[int, Reply], None],
        awaited: Callable[[], bool],
        *,
        tracked: bool,
    ) -> None:
        """Send the command `stand`, which enters the queues or confirms the entry.

        The function `awaited` returns False once the command must not be sent any more.
        """
        if not indexes:
            return
        context, now = self._context, self._context.clock()
        for index in indexes:
            node = self._outlook.nodes[index]
            node.entered |= context.fleet.nodes[index].ready
            node.tracked |= tracked
        life = round(QUEUE_LIFE * 1000)
        if self._any_key:
            command = node_requests.standing_for_slot(self.keys, self.claim, life, tracked=tracked)
        elif self._reader:
            command = node_requests.standing_to_read(self.keys, self.claim, life, tracked=tracked)
        else:
            # The time of the reservation counts from the refused attempt, and no refresh prolongs
            # it. Otherwise nested locks could block each other for ever.
            kept = max(0, round((self._refused_at + KEPT_FOR - now) * 1000))
            command = node_requests.standing(self.keys, self.claim, life, kept, tracked=tracked)
        context.fleet.ask_some(Errand(command, now, answered, awaited), indexes)


def leaving(keys: tuple[bytes, ...], member: bytes, started: float) -> Errand:
    """Return an `Errand` with the command that removes an entry from the queues.

    A node that refuses or misses the command gets it again. Otherwise the entry of an old waiter
    would block the waiters behind it. A refused command is repeated for `QUEUE_LIFE` seconds. The
    queue has usually expired by then.
    """
    return Errand(node_requests.leaving(keys, member, started + QUEUE_LIFE), started)
