"""A waiter's knowledge of each node, and the instant for the waiter's next attempt.

A waiter tries again as soon as a quorum of nodes may grant.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from aioredlock_ng._core.queue_formats import middle_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MOST_AHEAD", "NodeView", "Outlook"]

MOST_AHEAD = 15
"""Number of waiters ahead above which the interval between refreshes no longer grows.

Another client may delete a queue. A waiter notices this loss at its next refresh, so the interval
needs a bound."""


@dataclass(slots=True, eq=False)
class NodeView:
    """A waiter's knowledge of one node.

    Attributes:
        free_at: Instant from which the node may grant; infinite while it is not known.
        slots: The slots of a semaphore that the node may grant from the instant `free_at` on; empty
            for a lock.
        votes: False if the latest attempt showed that the node cannot grant. A free key on such a
            node does not count. Otherwise the waiter would try again and again.
        entered: True if the waiter may be in the node's queue.
        answered_at: Instant of the answer to the latest refresh; `-inf` while there is none.
        rank: Number of waiters before this waiter in the node's queue; -1 if not known.
        notified: True if the node will send messages to the waiter.
        tracked: True if the node will report a change of the key.
        watched: True if the node has a label of the holder. The holder writes the label when it
            begins to watch its key, and its release offers a deleted key to the waiter. So the node
            need not track the key for the waiter.
        tickets_at: Instant of the node's latest offer of a slot. The offer names the highest ticket
            in the queue. The instant is `-inf` without an offer since the waiter's latest attempt.
    """

    free_at: float = inf
    slots: tuple[int, ...] = ()
    votes: bool = True
    entered: bool = False
    answered_at: float = -inf
    rank: int = -1
    notified: bool = False
    tracked: bool = False
    watched: bool = False
    tickets_at: float = -inf

    @property
    def answered(self) -> bool:
        return self.answered_at > -inf

    @property
    def to_track(self) -> bool:
        """True if the node should begin to track the key. Only the queue's head needs this."""
        return self.rank == 0 and not self.tracked and not self.watched

    def learn(self, free_at: float, slots: tuple[int, ...], now: float) -> None:
        """Record the instant from which the node may grant, and the slots that it may grant.

        While the node may grant, the slots of its earlier answers stay in the record. The node
        still grants such a slot to this waiter, even if the node has since offered the slot to a
        later waiter.
        """
        if self.free_at <= now and free_at <= now:
            slots = tuple(sorted({*self.slots, *slots}))
        self.free_at, self.slots = free_at, slots

    def refused(self, *, votes: bool) -> None:
        """Discard the knowledge that is outdated after a refused attempt."""
        # The attempt may have changed the key. A change by our own connection ends the tracking
        # without a report, so `tracked` becomes False.
        self.free_at, self.votes, self.answered_at = inf, votes, -inf
        self.tracked = self.watched = False
        self.slots, self.tickets_at = (), -inf

    def lost(self) -> None:
        """Discard the answers of a node that failed to answer or was reconnected."""
        self.free_at, self.answered_at, self.rank = inf, -inf, -1
        self.notified = self.tracked = self.watched = False
        self.slots, self.tickets_at = (), -inf


class Outlook:
    """A waiter's knowledge of all nodes.

    `any_key` is True for a waiter that wants any one of the slots of a semaphore.
    """

    __slots__ = ("_any_key", "_next", "_quorum", "nodes")

    def __init__(self, nodes: int, quorum: int, *, any_key: bool = False) -> None:
        self.nodes = [NodeView() for _ in range(nodes)]
        self._quorum = quorum
        self._any_key = any_key
        self._next = 0

    def forecast(self, now: float) -> tuple[float, int, float]:
        """Return when the nodes may grant.

        Returns:
            The instant from which a quorum may grant; infinite while it is not known. The number
            of nodes that may grant now. The next instant at which one more node may grant;
            infinite if it is not known.

        For a semaphore, a quorum must be able to grant the same slot. If each node offered a
        different slot, no attempt could succeed.
        """
        usable = sorted([node.free_at for node in self.nodes if node.votes])
        free = bisect_right(usable, now)
        following = usable[free] if free < len(usable) else inf
        slots = self._named if self._any_key else ()
        at = min(map(self._open_at, slots)) if slots else self._quorum_in(usable)
        return at, free, following

    def slot(self, now: float) -> int:
        """Return the lowest slot of a semaphore that a quorum may grant now; 0 if there is none."""
        return min((slot for slot in self._named if self._open_at(slot) <= now), default=0)

    @property
    def answered(self) -> bool:
        """True if a quorum has answered the latest refresh."""
        return self.enough[0]

    @property
    def notified(self) -> bool:
        """True if a quorum will send messages to the waiter."""
        return self.enough[1]

    @property
    def enough(self) -> tuple[bool, bool]:
        """The values of `answered` and `notified`."""
        answered = notified = 0
        # Each answer of a node reads this property twice. `sum` would take four times as long.
        for node in self.nodes:
            answered += node.answered_at > -inf
            notified += node.notified
        return answered >= self._quorum, notified >= self._quorum

    @property
    def tickets_at(self) -> float:
        """The instant since which a quorum of nodes has offered slots; `-inf` if no quorum has."""
        return sorted(node.tickets_at for node in self.nodes)[-self._quorum]

    @property
    def untracked(self) -> int:
        """The number of further nodes that must track the key, unless its holder watches it there.

        Once a quorum tracks the key, the key cannot become free on a quorum without a report.
        """
        return max(0, self._quorum - sum(node.tracked or node.watched for node in self.nodes))

    @property
    def rank(self) -> int | None:
        """The waiter's median rank in the nodes' queues; None if unknown."""
        return middle_of([node.rank for node in self.nodes if node.rank >= 0])

    def count_all(self) -> None:
        """Treat every node as able to grant again.

        A full or busy server does not report when it recovers.
        """
        for node in self.nodes:
            node.votes = True

    def unsure(self, now: float) -> bool:
        """Return True if a quorum may grant now, unless the holder has renewed keys meanwhile.

        A node that tracks the key reports each renewal. Another node reports none, so its expiry
        may be out of date. An attempt in vain would raise the fence counters of the nodes that
        grant it, and a counter above its fence keeps the holder from repairing a lost key.
        """
        sure = sum(
            node.votes
            and node.free_at <= now
            and (node.tracked or node.answered_at >= node.free_at)
            for node in self.nodes
        )
        return sure < self._quorum

    def forget_expiries(self) -> None:
        """Discard the instants from which nodes may grant."""
        for node in self.nodes:
            node.free_at = inf

    @property
    def ahead(self) -> int:
        """The number of waiters ahead, `MOST_AHEAD` at most; 0 if it is unknown."""
        return min(self.rank or 0, MOST_AHEAD)

    @property
    def is_far(self) -> bool:
        """True if two or more waiters are ahead, and a quorum of nodes sends messages.

        The first two waiters keep the queues alive. So a refresh goes to one node only.
        """
        return self.ahead > 1 and self.notified and len(self.nodes) > 1

    def begin_refresh(
        self, recent: float, can_track: Sequence[bool], *, everywhere: bool = True
    ) -> tuple[list[int], list[int]]:
        """Choose the nodes of the next refresh, and discard their earlier answers.

        A node that tracks the key is left out if its latest answer is recent and shows when the
        node may grant.

        Args:
            recent: An answer is recent if it came after this instant.
            can_track: For each node, True if it reports changes of keys.
            everywhere: False to choose only one node, each in turn. The earlier answers stay. A
                node without an answer may be down, so it is left out.

        Returns:
            The indexes of the nodes that only answer, and of the nodes that also track the key.
        """
        if not everywhere:
            count = len(self.nodes)
            others = [(self._next + step) % count for step in range(1, count + 1)]
            self._next = next((at for at in others if self.nodes[at].answered), others[0])
            return [self._next], []
        room = self.untracked
        plain: list[int] = []
        tracking: list[int] = []
        for index, node in enumerate(self.nodes):
            if node.tracked and node.answered_at > recent and node.free_at < inf:
                continue
            # A node that cannot track must not count among the nodes that report changes.
            if room and node.answered and node.to_track and can_track[index]:
                room -= 1
                tracking.append(index)
            else:
                plain.append(index)
            node.answered_at, node.notified = -inf, False
        return plain, tracking

    @property
    def _named(self) -> set[int]:
        """The slots of a semaphore that any node may grant, now or later."""
        return {slot for node in self.nodes for slot in node.slots}

    def _open_at(self, slot: int) -> float:
        """Return the instant from which a quorum may grant this slot."""
        return self._quorum_in(
            sorted(node.free_at for node in self.nodes if node.votes and slot in node.slots)
        )

    def _quorum_in(self, ordered: Sequence[float]) -> float:
        return ordered[self._quorum - 1] if len(ordered) >= self._quorum else inf
