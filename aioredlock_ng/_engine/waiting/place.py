"""The place of a waiting line in the queues of the nodes.

The place decides when the line sends a refresh, and when the line asks for the lock again. A
refresh is a request that confirms the entry in the queues. The answers show when the key may be
free. The place records for each node when the node may grant: now, later, or at an unknown instant.
The line asks all nodes for the lock when a quorum may grant. A timer starts further refreshes,
because messages can be lost.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from aioredlock_ng._core.backoff import unreachable_delay
from aioredlock_ng._core.replies import Standing
from aioredlock_ng._engine.waiting.alarm import Alarm
from aioredlock_ng._engine.waiting.queue_entry import QUEUE_LIFE, Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.queue_formats import Message
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._vocabulary.causes import WakeCause

__all__ = ["POLL_EVERY", "Place"]

REFRESH_EVERY = QUEUE_LIFE / 2
"""Longest time in seconds between two refreshes by the head of a queue. The actual time is random,
and at least three quarters as long. A refresh costs one command per node, and helps if messages
were lost. It skips a node that tracks the key and has answered within half of this time. A waiter
behind the head adds `QUEUE_LIFE` to this time for each waiter ahead, but counts 15 waiters at most.
It needs a refresh only if a waiter ahead has died, or if the nodes have lost its entry. Behind the
second waiter, the time is halved, and each refresh goes to one node, to every node in turn."""

POLL_EVERY = 0.1
"""Longest time in seconds between refreshes while no quorum of nodes sends messages and tracks
keys. Without messages and tracking, only a refresh shows a release."""

REFRESH_AFTER = 0.02
"""Seconds from a message or an answer of a node to the refresh that it causes. The refresh makes
the nodes track the key for the head, shows whether the key is free, or takes back the offer of a
process that is gone. Most locks are released within this delay, which saves the refresh."""

EXPIRY_MARGIN = 0.002
"""Pause in seconds from a computed expiry to the attempt, because servers round to milliseconds."""


class Place(Entry):
    """The place of a waiting line, until the line has the lock or is empty.

    `Entry` describes the arguments that are not listed here.

    Args:
        ask: Begins an attempt. Its arguments are the claim, the cause, and the slot of a semaphore
            that a quorum may grant; 0 for none.

    Attributes:
        alarm: The timer of the next event, or of the end of a back-off.
        waiting: True while the place decides when the next attempt begins. False during an attempt.
    """

    __slots__ = (
        "_ask",
        "_failures",
        "_free",
        "_generation",
        "_refresh_at",
        "_refresh_soon_at",
        "_refreshing",
        "alarm",
        "waiting",
    )

    def __init__(
        self,
        context: Context,
        keys: tuple[bytes, ...],
        member: bytes,
        ask: Callable[[bytes, WakeCause, int], None],
        *,
        any_key: bool = False,
        reader: bool = False,
    ) -> None:
        super().__init__(context, keys, member, any_key=any_key, reader=reader)
        self._ask = ask
        self._failures = self._generation = self._free = 0
        self.alarm = Alarm(context.loop)
        self._refresh_at = self._refresh_soon_at = inf
        self.waiting = self._refreshing = False

    def stand(self, replies: Sequence[Reply] = ()) -> None:
        """Enter the queues, or refresh the entry, after an attempt was refused with these replies.

        Without replies, the line enters the queues without an attempt.
        """
        self._failures = self._free = 0
        self._generation += 1
        self._refused(replies)
        self.refresh()

    def refresh(self, *, everywhere: bool = True) -> None:
        """Confirm the entry on all nodes, or on the next one. A node without the entry adds it.

        If the line is the head, a quorum of nodes also tracks the key from then on. If a node
        already tracks the key and its latest answer is recent, the node gets no request.
        """
        self.standing = self.waiting = True
        recent = self._context.clock() - (REFRESH_EVERY / 2 if self._outlook.notified else 0.0)
        can_track = [node.tracking for node in self._context.fleet.nodes]
        plain, tracking = self._outlook.begin_refresh(recent, can_track, everywhere=everywhere)
        self._refresh_soon_at = inf
        self._set_refresh()
        # A request to a node that is down fails at once. If this failure started an attempt, the
        # rest of the refresh could enter the line in the queues after it got the lock.
        self._refreshing = True
        self._refresh_on(plain, tracked=False)
        self._refresh_on(tracking, tracked=True)
        self._refreshing = False
        self._plan()

    def back_off(self) -> None:
        """Leave the queues, and make another attempt later.

        A line that cannot reach a quorum would block lines that can reach one.
        """
        self.leave()
        self._failures += 1
        delay = unreachable_delay(self._failures, self._context.draw())
        self.alarm.set(delay, self._due)

    def leave(self) -> None:
        self.stop()
        super().leave()

    def stop(self) -> None:
        self.waiting = False
        self.alarm.stop()

    def served(self, attempt: Round) -> None:
        self.stop()
        super().served(attempt)

    def notified(self, index: int, message: Message) -> None:
        """Process a node's message."""
        if message.highest is not None:
            self._offered(index, message.highest)
        if not self.waiting:
            return
        self._outlook.nodes[index].rank = int(message.second)
        if not message.second:
            # The waiter is the first now, or will be the first after the waiter that has an offer.
            self._refresh_soon()
        slot = (self.keys.index(message.key) + 1,) if self._any_key else ()
        self._learn(index, message.left, slot)

    def changed(self, index: int) -> None:
        """Refresh the entry on node `index`, because the tracked key changed there.

        The key was renewed, or another client released it without a message.
        """
        node = self._outlook.nodes[index]
        # If the entry does not track the key here, the report is for an earlier lease.
        if not self.waiting or not node.tracked:
            return
        node.tracked = False
        # Once a lock is free on a node, another refresh shows nothing new. For a semaphore, it may
        # show another free slot. When the holder renews, only the head sends a refresh.
        free = node.free_at <= self._context.clock() and not self._any_key
        if node.rank <= 0 and not free:
            self._refresh_on([index], tracked=not node.watched)

    def reconnected(self, index: int) -> None:
        """Refresh the entry on node `index`, which may have lost the entry, or may grant now."""
        if not self.waiting:
            return
        self._outlook.nodes[index].votes = True
        self._lost(index)
        # `_lost` may have started an attempt. A refresh sent after this attempt could enter the
        # line in the queues although it has the lock.
        if self.waiting:
            self._refresh_on([index], tracked=False)

    def _lost(self, index: int) -> None:
        """Discard the answers of node `index`, which failed to answer or was reconnected."""
        enough = self._outlook.enough
        self._outlook.nodes[index].lost()
        if self._outlook.enough != enough:
            self._set_refresh()
        self._plan()

    def _stood(self, generation: int, index: int, reply: Reply) -> None:
        """Process the answer of node `index` to a refresh. Ignore outdated answers."""
        if not self._awaits(generation):
            return
        if not isinstance(reply, Standing):
            self._lost(index)
            return
        enough = self._outlook.enough
        node, served_by = self._outlook.nodes[index], self._context.fleet.nodes[index]
        if reply.rank < 2 <= node.rank:
            # The waiter is one of the first two now, so it must refresh on all nodes.
            self._refresh_soon()
        node.answered_at, node.rank = self._context.clock(), reply.rank
        node.watched = reply.watched
        # No node sends messages to a member that begins with "-", see `member_of`.
        by_itself = self.member.startswith(b"-")
        node.notified = (
            reply.rank >= 0 and served_by.messages and served_by.tracking and not by_itself
        )
        if self._outlook.enough != enough:
            self._set_refresh()
        if self._outlook.untracked and node.to_track and served_by.tracking:
            self._refresh_soon()
        self._learn(index, reply.left, reply.slots)

    def _learn(self, index: int, left: float | None, slots: tuple[int, ...]) -> None:
        now = self._context.clock()
        at = inf if left is None else now + left + (EXPIRY_MARGIN if left else 0.0)
        self._outlook.nodes[index].learn(at, () if left is None else slots, now)
        self._plan()

    def _plan(self) -> None:
        """Begin an attempt if a quorum may grant. Otherwise set the timer to the next event."""
        if self._refreshing:
            return
        now = self._context.clock()
        at, free, following = self._outlook.forecast(now)
        if at <= now:
            self.wake("notified")
            return
        if free > self._free:
            # The key is free on more nodes than before, but not on a quorum. On other nodes the key
            # may have expired without a report, so a refresh asks them.
            self._refresh_soon()
        self._free = free
        self.alarm.set(min(at, self._refresh_at, self._refresh_soon_at, following) - now, self._due)

    def _due(self) -> None:
        if not self.waiting:
            # The back-off is over.
            self.wake("fallback")
            return
        now = self._context.clock()
        at, _, _ = self._outlook.forecast(now)
        if at <= now and (self._outlook.rank or self._outlook.unsure(now)):
            # The key should have expired by now, but the holder may have renewed it, so ask again.
            # The answers also show a waiter behind the head whether the head has died.
            self._outlook.forget_expiries()
            self.refresh()
        elif at <= now:
            self.wake("expiry")
        elif self._refresh_at <= now and not self._outlook.answered:
            # No quorum answered the refresh. If the attempt that begins now reaches no quorum
            # either, the line leaves the queues, so that it blocks no other line.
            self.wake("fallback")
        elif self._refresh_soon_at <= now:
            self.refresh()
        elif self._refresh_at <= now:
            if now - self._refused_at >= REFRESH_EVERY / 2:
                # Otherwise `count_all` could turn each frequent refresh into an attempt.
                self._outlook.count_all()
            self._context.counters.wakeups_fallback += not self._outlook.notified
            self.refresh(everywhere=not self._outlook.is_far)
        else:
            self._plan()

    def wake(self, cause: WakeCause) -> None:
        """Let the contender of the line ask the nodes now."""
        self.stop()
        self._ask(self.claim, cause, self._outlook.slot(self._context.clock()))

    def _set_refresh(self) -> None:
        """Set the time of the next refresh: soon, unless a quorum answers and sends messages."""
        context, ahead = self._context, self._outlook.ahead
        answered, notified = self._outlook.enough
        if answered:
            every = REFRESH_EVERY + QUEUE_LIFE * ahead if notified else POLL_EVERY
            every /= 1 + self._outlook.is_far
            self._refresh_at = context.clock() + every * (3.0 + context.draw()) / 4
        else:
            self._refresh_at = context.clock() + context.options.node_timeout

    def _refresh_soon(self) -> None:
        self._refresh_soon_at = min(self._refresh_soon_at, self._context.clock() + REFRESH_AFTER)

    def _awaits(self, generation: int) -> bool:
        """Return False if the answers to a refresh are outdated by a later attempt."""
        return self.waiting and generation == self._generation

    def _refresh_on(self, indexes: Sequence[int], *, tracked: bool) -> None:
        generation = self._generation
        answered, awaited = partial(self._stood, generation), partial(self._awaits, generation)
        self._stand_at(indexes, answered, awaited, tracked=tracked)
