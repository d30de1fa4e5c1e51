"""A waiter's knowledge of each node, and the instant from which it should ask all nodes.

This is the one rule of waking: a waiter asks when a quorum of nodes may grant.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from aioredlock_ng._core.tickets import middle_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MOST_AHEAD", "NodeView", "Outlook"]

MOST_AHEAD = 15
"""Number of waiters ahead from which on a waiter looks no less often. A node forgets its waiters if
another client deletes the queue, and each waiter notices that by its own look only."""


@dataclass(slots=True, eq=False)
class NodeView:
    """A waiter's knowledge of one node.

    Attributes:
        free_at: Instant from which the node may grant; infinite while it is not known.
        slot: The slot of a semaphore that the node may grant then; 0 if it is not known, or for a
            lock.
        votes: False if the latest attempt showed that the node cannot grant. A free key on this
            node does not count then. Otherwise the waiter would ask again and again.
        entered: True if the node's queue may have an entry of the waiter.
        answered_at: Instant of the answer to the latest look; `-inf` while there is none.
        rank: Number of waiters before this one in the node's queue; -1 if not known.
        notified: True if the node will send messages to the waiter.
        tracked: True if the node will report a change of the key.
        closed: Slots that the node refused a moment ago, and the instant until which they do not
            count here. Otherwise a waiter to which each node offers another slot would ask again
            and again.
    """

    free_at: float = inf
    slot: int = 0
    votes: bool = True
    entered: bool = False
    answered_at: float = -inf
    rank: int = -1
    notified: bool = False
    tracked: bool = False
    closed: dict[int, float] | None = None

    @property
    def answered(self) -> bool:
        """True if the node has answered the latest look."""
        return self.answered_at > -inf

    @property
    def to_track(self) -> bool:
        """True if the waiter is the head on the node, and the node does not track the key."""
        return self.rank == 0 and not self.tracked

    def usable_at(self, slot: int) -> float:
        """Return the instant from which the node may grant this slot, or 0 for a lock.

        A waiter may take what is offered to waiters with higher tickets. So a node that offers
        another slot may grant this slot too, unless it has just refused it.
        """
        if slot == self.slot or self.closed is None:
            return self.free_at
        return max(self.free_at, self.closed.get(slot, -inf))

    def close(self, slot: int, now: float, until: float) -> None:
        """Record that the node refused a slot, which does not count here until that instant."""
        closed = {other: at for other, at in (self.closed or {}).items() if at > now}
        self.closed = {**closed, slot: until}

    def learn(self, free_at: float, slot: int) -> None:
        """Record from when on the node may grant, and which slot."""
        self.free_at, self.slot = free_at, slot
        if self.closed is not None and free_at < inf:
            self.closed.pop(slot, None)

    def refused(self, *, votes: bool) -> None:
        """Discard the knowledge that a refused attempt made outdated."""
        # A change of the key by our own connection ends tracking without a report.
        self.free_at, self.votes, self.answered_at, self.tracked = inf, votes, -inf, False

    def lost(self) -> None:
        """Discard all news: the node did not answer, or has a new connection."""
        self.free_at, self.answered_at, self.rank = inf, -inf, -1
        self.notified = self.tracked = False
        self.closed = None


class Outlook:
    """A waiter's knowledge of all nodes.

    Args:
        nodes: The number of nodes.
        quorum: The number of nodes that must grant.

    Attributes:
        nodes: The knowledge of each node.
    """

    __slots__ = ("_quorum", "nodes")

    def __init__(self, nodes: int, quorum: int) -> None:
        self.nodes = [NodeView() for _ in range(nodes)]
        self._quorum = quorum

    @property
    def ask_at(self) -> float:
        """The instant from which a quorum may grant; infinite while it is not known."""
        usable = sorted(self._usable())
        if len(usable) < self._quorum or usable[self._quorum - 1] == inf:
            return inf
        if not any(node.closed for node in self.nodes):
            return usable[self._quorum - 1]
        return min(map(self._usable_at, self._named(inf)), default=inf)

    def free(self, now: float) -> int:
        """Return the number of nodes that may grant now."""
        return sum(at <= now for at in self._usable())

    def slot(self, now: float) -> int:
        """Return the slot of a semaphore that a quorum may grant now; 0 if none is known.

        Of several slots it is the slot that most nodes name.
        """
        slots = self._named(now)
        del slots[0]
        return min(
            slots, key=lambda slot: (self._usable_at(slot) > now, -slots[slot], slot), default=0
        )

    def next_at(self, now: float) -> float:
        """Return the next instant at which one more node may grant; infinite if none is known."""
        return min((at for at in self._usable() if at > now), default=inf)

    @property
    def answered(self) -> bool:
        """True if a quorum has answered the latest look."""
        return sum(node.answered for node in self.nodes) >= self._quorum

    @property
    def notified(self) -> bool:
        """True if a quorum will send messages to the waiter."""
        return sum(node.notified for node in self.nodes) >= self._quorum

    @property
    def untracked(self) -> int:
        """The number of nodes that still have to track the key.

        Once a quorum tracks the key, the key cannot become free on a quorum without a report.
        """
        return max(0, self._quorum - sum(node.tracked for node in self.nodes))

    @property
    def rank(self) -> int | None:
        """The number of waiters before this one on most nodes; None while it is not known."""
        return middle_of([node.rank for node in self.nodes if node.rank >= 0])

    def count_all(self) -> None:
        """Count free keys on all nodes. A full or busy server does not report when it recovers."""
        for node in self.nodes:
            node.votes = True

    def forget_expiries(self) -> None:
        """Discard the instants from which nodes may grant, before a look that shows them again."""
        for node in self.nodes:
            node.free_at = inf

    @property
    def ahead(self) -> int:
        """The number of waiters ahead that make looks rarer."""
        return min(self.rank or 0, MOST_AHEAD)

    def begin_look(self, recent: float, can_track: Sequence[bool]) -> tuple[list[int], list[int]]:
        """Choose the nodes of the next look, and discard their earlier answers.

        A node that tracks the key is left out if its latest answer is recent.

        Args:
            recent: Instant from which on an answer is recent.
            can_track: For each node whether it reports changes of keys.

        Returns:
            The indexes of the nodes that only answer, and of the nodes that also track the key.
        """
        room = self.untracked
        plain: list[int] = []
        tracking: list[int] = []
        for index, node in enumerate(self.nodes):
            if node.tracked and node.answered_at > recent and node.free_at < inf:
                continue
            # A node that cannot track must not count among those that report changes.
            if room and node.answered and node.to_track and can_track[index]:
                room -= 1
                tracking.append(index)
            else:
                plain.append(index)
            node.answered_at, node.notified = -inf, False
        return plain, tracking

    def _usable_at(self, slot: int) -> float:
        """Return the instant from which a quorum may grant this slot."""
        usable = sorted(node.usable_at(slot) for node in self.nodes if node.votes)
        if len(usable) < self._quorum:
            return inf
        named = min(node.free_at for node in self.nodes if node.votes and node.slot == slot)
        return max(usable[self._quorum - 1], named)

    def _named(self, by: float) -> Counter[int]:
        """Count the nodes that may grant each slot by this instant."""
        return Counter(
            node.slot
            for node in self.nodes
            if node.votes and node.free_at <= by and node.free_at < inf
        )

    def _usable(self) -> list[float]:
        return [node.free_at for node in self.nodes if node.votes]
