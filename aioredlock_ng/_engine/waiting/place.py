"""A waiting line's place in the queues on the nodes, and the one rule by which it asks again.

For each node the waiter knows from when on that node may grant: now, after some time, or not known.
When a quorum may grant, it asks all nodes. A slow timer covers messages that were lost.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from aioredlock_ng._core.backoff import unreachable_delay
from aioredlock_ng._core.replies import Standing
from aioredlock_ng._engine.waiting.entry import QUEUE_LIFE, Entry

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.tickets import WakeCause
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context

__all__ = ["Place"]

LOOK_EVERY = QUEUE_LIFE / 2
"""Seconds between looks at the queues, at most; half of that at least. A look costs one command per
node. It covers lost messages, and several processes that died together before this one. A look
leaves out a node that tracks the key and has answered in the last half of this time."""

POLL_EVERY = 0.1
"""The same where too few nodes send messages and track keys. A release is then seen only by asking."""

LOOK_AFTER = 0.02
"""Seconds until a look that follows news of too few nodes. By that look the first in a queue tracks
the lock's key, because another client deletes the key without a message. A waiter also learns which
other nodes are free. Most locks are released sooner, and the look is never sent."""

EXPIRY_MARGIN = 0.002
"""Seconds after the computed expiry at which to ask. Servers round remaining times to milliseconds."""


class Place(Entry):
    """From the first refusal of a line until it is served, or nobody waits in it any more.

    Args:
        context: The engine's surroundings.
        keys: The keys that the line wants.
        member: The name of the line in the queues.
        ask: Called with the claim, and what woke it, when a quorum may grant.
        left: Called with a node's index and what it answered to a leave.

    Attributes:
        keys: See above.
        member: See above.
        standing: True while the queues may have entries of it.
        waiting: True while it will wake the line by itself.
    """

    __slots__ = (
        "_ask",
        "_failures",
        "_free",
        "_generation",
        "_look_at",
        "_look_soon_at",
        "_looking",
        "_timer",
        "waiting",
    )

    def __init__(
        self,
        context: Context,
        keys: tuple[bytes, ...],
        member: bytes,
        ask: Callable[[bytes, WakeCause], None],
        left: Callable[[int, Reply], None],
    ) -> None:
        super().__init__(context, keys, member, left)
        self._ask = ask
        self._failures = self._generation = self._free = 0
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = self._look_soon_at = inf
        self.waiting = self._looking = False

    @staticmethod
    def grace(context: Context, *, notified: bool) -> float:
        """Return the seconds that an offer to this process lives.

        A process whose round trip takes longer than `node_timeout` cannot acquire at all. Without
        messages it finds the offer at its next look.
        """
        return context.options.node_timeout + (0.0 if notified else 2 * POLL_EVERY)

    def stand(self, replies: Sequence[Reply]) -> None:
        """Take a place in the queues, or look at it again, after an attempt that these replies refused."""
        self._failures = self._free = 0
        self._generation += 1
        self._refused(replies)
        self.look()

    def look(self) -> None:
        """Ask the nodes about this place, and be put back where it was lost.

        Where the waiter is the first, a quorum of nodes also tracks the key from then on. A node
        that already tracks the key is not asked if its latest answer is recent.
        """
        self.standing = self.waiting = True
        room = self._outlook.untracked
        recent = self._context.clock() - (LOOK_EVERY / 2 if self._outlook.notified else 0.0)
        plain: list[int] = []
        tracking: list[int] = []
        for index, node in enumerate(self._outlook.nodes):
            if node.tracked and node.answered_at > recent and node.free_at < inf:
                continue
            if room and node.answered and self._to_track(index):
                room -= 1
                tracking.append(index)
            else:
                plain.append(index)
            node.answered_at, node.notified = -inf, False
        self._look_soon_at = inf
        self._set_look()
        # A node that is down answers at once. An attempt from there would reach the other nodes
        # before this look, and the look would put the waiter back into their queues.
        self._looking = True
        self._look_at_nodes(plain, tracked=False)
        self._look_at_nodes(tracking, tracked=True)
        self._looking = False
        self._plan()

    def back_off(self) -> None:
        """Leave the queues, where it would stand in the way of those that reach a quorum; ask again later."""
        self.leave()
        self._failures += 1
        delay = unreachable_delay(self._failures, self._context.draw())
        self._timer = self._context.loop.call_later(delay, self._wake, "look")

    def leave(self) -> None:
        """Leave the queues."""
        self.stop()
        super().leave()

    def stop(self) -> None:
        """Wake nobody any more: the line was served, or an attempt begins."""
        self.waiting = False
        self._stop_timer()

    def served(self, attempt: Round) -> None:
        """Leave the queues of the nodes that did not grant: an entry there would wait in vain."""
        self.stop()
        super().served(attempt)

    def notified(self, index: int, left: float | None) -> None:
        """Node `index` says when it may grant; None: the waiter is the first now, and has to look."""
        if not self.waiting:
            return
        # Without this the rank of the next in line would be as old as its latest look.
        self._outlook.nodes[index].rank = 0
        if left is None:
            self._look_soon()
        self._learn(index, left)

    def changed(self, index: int) -> None:
        """The tracked key changed on node `index`: renewed, or released by another client without a message."""
        node = self._outlook.nodes[index]
        # An earlier lease of this process may still track the key, which means nothing here.
        if not self.waiting or not node.tracked:
            return
        # A node that may grant has said so before.
        node.tracked = node.free_at > self._context.clock()
        if node.tracked:
            self._look_at_nodes([index], tracked=True)

    def reconnected(self, index: int) -> None:
        """Node `index` lost its memory of this place, or may grant from now on."""
        if not self.waiting:
            return
        self._outlook.nodes[index].votes = True
        self._lost(index)
        # An attempt may have begun. A look behind it would put a served waiter back into the queue.
        if self.waiting:
            self._look_at_nodes([index], tracked=False)

    def _lost(self, index: int) -> None:
        enough = self._enough
        self._outlook.nodes[index].lost()
        if self._enough != enough:
            self._set_look()
        self._plan()

    def _stood(self, generation: int, index: int, reply: Reply) -> None:
        """Node `index` answered a look of this generation."""
        if not self._awaits(generation):
            return
        if not isinstance(reply, Standing):
            self._lost(index)
            return
        node, enough, served_by = (
            self._outlook.nodes[index],
            self._enough,
            self._context.fleet.nodes[index],
        )
        node.answered_at, node.rank = self._context.clock(), reply.rank
        # No node sends a message to a member that asks by itself.
        by_itself = self.member.startswith(b"-")
        node.notified = (
            reply.rank >= 0 and served_by.messages and served_by.tracking and not by_itself
        )
        if self._enough != enough:
            self._set_look()
        if self._outlook.untracked and self._to_track(index):
            self._look_soon()
        self._learn(index, reply.left)

    def _to_track(self, index: int) -> bool:
        # A node without tracking must not take the place of one that reports changes.
        node = self._outlook.nodes[index]
        return node.rank == 0 and not node.tracked and self._context.fleet.nodes[index].tracking

    def _learn(self, index: int, left: float | None) -> None:
        at = (
            inf if left is None else self._context.clock() + left + (EXPIRY_MARGIN if left else 0.0)
        )
        self._outlook.nodes[index].free_at = at
        self._plan()

    def _plan(self) -> None:
        """Ask when a quorum may grant; else set the one timer to what comes first."""
        if not self.waiting or self._looking:
            return
        now = self._context.clock()
        at = self._outlook.ask_at
        if at <= now:
            self._wake("told")
            return
        free = self._outlook.free(now)
        if free > self._free:
            # Too few, and the others may be free without a word: one expired, or another waiter let it go.
            self._look_soon()
        self._free = free
        self._stop_timer()
        until = min(at, self._look_at, self._look_soon_at, self._outlook.next_at(now))
        # Not at once: a timer may fire a moment early, and would be set again without end.
        self._timer = self._context.loop.call_later(max(until - now, EXPIRY_MARGIN / 4), self._due)

    def _due(self) -> None:
        self._timer = None
        now = self._context.clock()
        if self._outlook.ask_at <= now:
            self._wake("expiry")
        elif self._look_at <= now and not self._outlook.answered:
            # Without a quorum of answers it must not stand in the way of those that have one.
            self._wake("look")
        elif self._look_soon_at <= now:
            self.look()
        elif self._look_at <= now:
            if now - self._refused_at >= LOOK_EVERY / 2:
                # A full or busy server does not say when it recovers. Without messages looks are
                # many, and not each of them may ask it.
                for node in self._outlook.nodes:
                    node.votes = True
            self._context.counters.wakeups_fallback += not self._outlook.notified
            self.look()
        else:
            self._plan()

    def _wake(self, cause: WakeCause) -> None:
        self.stop()
        self._ask(self.claim, cause)

    @property
    def _enough(self) -> tuple[bool, bool]:
        return self._outlook.answered, self._outlook.notified

    def _set_look(self) -> None:
        """The next look comes early where a quorum has not answered, or will send no message."""
        context = self._context
        if self._outlook.answered:
            every = LOOK_EVERY if self._outlook.notified else POLL_EVERY
            self._look_at = context.clock() + every * (1.0 + context.draw()) / 2
        else:
            self._look_at = context.clock() + context.options.node_timeout

    def _look_soon(self) -> None:
        self._look_soon_at = min(self._look_soon_at, self._context.clock() + LOOK_AFTER)

    def _awaits(self, generation: int) -> bool:
        """False for a look that was sent before the latest attempt: its answer is no longer true."""
        return self.waiting and generation == self._generation

    def _look_at_nodes(self, indexes: Sequence[int], *, tracked: bool) -> None:
        generation = self._generation
        answered, awaited = partial(self._stood, generation), partial(self._awaits, generation)
        self._stand_at(indexes, answered, awaited, tracked=tracked)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
