"""The place of a waiting line: when it looks at its queues, and when it asks the nodes again.

The place knows for each node when the node may grant: now, at a later instant, or at an unknown
one. The line asks all nodes when a quorum may grant. A slow timer covers messages that were lost.
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

__all__ = ["POLL_EVERY", "Place"]

LOOK_EVERY = QUEUE_LIFE / 2
"""Longest time in seconds between looks of the head. The shortest time is half of it. A look costs
one command per node, and covers lost messages. A node that tracks the key is left out if its answer
is younger than half of this time. Each of 15 waiters ahead adds `QUEUE_LIFE`: if none of them died
and the nodes did not forget this waiter, its look is not needed."""

POLL_EVERY = 0.1
"""Seconds between looks while too few nodes send messages and track keys. Only a look shows a
release then."""

LOOK_AFTER = 0.02
"""Seconds from news of a node to the look that follows, while too few nodes are free. This look
makes the nodes track the key if the line is the head. Other clients delete the key without a
message. The look also shows which other nodes are free. Most locks are released sooner, and then no
look is sent."""

EXPIRY_MARGIN = 0.002
"""Seconds between the computed expiry and the attempt. Servers round remaining times to
milliseconds."""


class Place(Entry):
    """The place of a line, from its first refusal until the line is served or empty.

    Args:
        context: The engine's surroundings.
        keys: The keys that the line wants.
        member: The name of the line in the queues.
        ask: Called with the claim, the cause and a slot (see `Outlook.slot`) to make the line ask.
        left: As in `Entry`.
        any_key: As in `Entry`.

    Attributes:
        waiting: True while the place decides when the line asks. False during an attempt.
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
        ask: Callable[[bytes, WakeCause, int], None],
        left: Callable[[int, Reply], None],
        *,
        any_key: bool = False,
    ) -> None:
        super().__init__(context, keys, member, left, any_key=any_key)
        self._ask = ask
        self._failures = self._generation = self._free = 0
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = self._look_soon_at = inf
        self.waiting = self._looking = False

    def stand(self, replies: Sequence[Reply]) -> None:
        """Enter the queues, or look at the entry again, after these replies refused an attempt."""
        self._failures = self._free = 0
        self._generation += 1
        self._refused(replies)
        self.look()

    def look(self) -> None:
        """Ask the nodes about the entry. A node that lost the entry adds it again.

        If the line is the head, a quorum of nodes also tracks the key from then on. A node that
        already tracks the key is not asked if its latest answer is recent.
        """
        self.standing = self.waiting = True
        recent = self._context.clock() - (LOOK_EVERY / 2 if self._outlook.notified else 0.0)
        can_track = [node.tracking for node in self._context.fleet.nodes]
        plain, tracking = self._outlook.begin_look(recent, can_track)
        self._look_soon_at = inf
        self._set_look()
        # A node that is down answers at once, which must not start an attempt. The attempt would
        # reach other nodes before this look, and the look would put a served line back.
        self._looking = True
        self._look_at_nodes(plain, tracked=False)
        self._look_at_nodes(tracking, tracked=True)
        self._looking = False
        self._plan()

    def back_off(self) -> None:
        """Leave the queues, and ask again later.

        A line that cannot reach a quorum would block lines that can.
        """
        self.leave()
        self._failures += 1
        delay = unreachable_delay(self._failures, self._context.draw())
        self._timer = self._context.loop.call_later(delay, self._wake, "look")

    def leave(self) -> None:
        """Stop the timer, and leave the queues of all nodes."""
        self.stop()
        super().leave()

    def stop(self) -> None:
        """Stop the timer: the line was served, or an attempt begins."""
        self.waiting = False
        self._stop_timer()

    def served(self, attempt: Round) -> None:
        """Stop the timer, and leave the queues of the nodes that did not grant."""
        self.stop()
        super().served(attempt)

    def notified(self, index: int, key: bytes, left: float | None) -> None:
        """Take a message of a node.

        Args:
            index: The node.
            key: The key that the message is about.
            left: Seconds until the node may grant; None: the line is the head now, and must look.
        """
        if not self.waiting:
            return
        # Messages go to the head only. Without this `rank` would be as old as the latest look.
        self._outlook.nodes[index].rank = 0
        if left is None:
            self._look_soon()
        self._learn(index, left, (self.keys.index(key) + 1,) if self._any_key else ())

    def changed(self, index: int) -> None:
        """Look at node `index` again, because the tracked key changed there.

        The key was renewed, or another client released it without a message.
        """
        node = self._outlook.nodes[index]
        # A report for an earlier lease of this process does not concern the queue.
        if not self.waiting or not node.tracked:
            return
        # A node that is free needs no further look, unless another slot may be free there too. Only
        # the head may look at each renewal.
        free = node.free_at <= self._context.clock() and not self._any_key
        node.tracked = node.rank <= 0 and not free
        if node.tracked:
            self._look_at_nodes([index], tracked=True)

    def reconnected(self, index: int) -> None:
        """Look at node `index` again: it may have lost the entry, or may grant from now on."""
        if not self.waiting:
            return
        self._outlook.nodes[index].votes = True
        self._lost(index)
        # `_lost` may have started an attempt. A look behind the attempt would put a served line
        # back into the queue.
        if self.waiting:
            self._look_at_nodes([index], tracked=False)

    def _lost(self, index: int) -> None:
        """Discard the news of node `index`, which did not answer or was reconnected."""
        enough = self._enough
        self._outlook.nodes[index].lost()
        if self._enough != enough:
            self._set_look()
        self._plan()

    def _stood(self, generation: int, index: int, reply: Reply) -> None:
        """Take the answer of node `index` to a look of this generation."""
        if not self._awaits(generation):
            return
        if not isinstance(reply, Standing):
            self._lost(index)
            return
        enough = self._enough
        node, served_by = self._outlook.nodes[index], self._context.fleet.nodes[index]
        node.answered_at, node.rank = self._context.clock(), reply.rank
        # No node sends a message to a member that asks by itself.
        by_itself = self.member.startswith(b"-")
        node.notified = (
            reply.rank >= 0 and served_by.messages and served_by.tracking and not by_itself
        )
        if self._enough != enough:
            self._set_look()
        if self._outlook.untracked and node.to_track and served_by.tracking:
            self._look_soon()
        self._learn(index, reply.left, reply.slots)

    def _learn(self, index: int, left: float | None, slots: tuple[int, ...]) -> None:
        now = self._context.clock()
        at = inf if left is None else now + left + (EXPIRY_MARGIN if left else 0.0)
        self._outlook.nodes[index].learn(at, () if left is None else slots, now)
        self._plan()

    def _plan(self) -> None:
        """Ask now if a quorum may grant. Otherwise set the timer to the next event."""
        if not self.waiting or self._looking:
            return
        now = self._context.clock()
        at = self._outlook.ask_at
        if at <= now:
            self._wake("told")
            return
        free = self._outlook.free(now)
        if free > self._free:
            # Too few are free, but others may be free without a message: a key has expired.
            self._look_soon()
        self._free = free
        self._stop_timer()
        until = min(at, self._look_at, self._look_soon_at, self._outlook.next_at(now))
        # A timer may fire a little early. Without a minimum delay it would be set again and again.
        self._timer = self._context.loop.call_later(max(until - now, EXPIRY_MARGIN / 4), self._due)

    def _due(self) -> None:
        self._timer = None
        now = self._context.clock()
        if self._outlook.ask_at <= now and self._outlook.rank:
            # The second looks, in case the head died with the holder. Usually the holder has
            # renewed, and an attempt would cost twice as many commands.
            self._outlook.forget_expiries()
            self.look()
        elif self._outlook.ask_at <= now:
            self._wake("expiry")
        elif self._look_at <= now and not self._outlook.answered:
            # No quorum answered the look. If an attempt does not reach a quorum either, the line
            # leaves the queues and no longer blocks other lines.
            self._wake("look")
        elif self._look_soon_at <= now:
            self.look()
        elif self._look_at <= now:
            if now - self._refused_at >= LOOK_EVERY / 2:
                # Without this minimum time each of many frequent looks would cause an attempt.
                self._outlook.count_all()
            self._context.counters.wakeups_fallback += not self._outlook.notified
            self.look()
        else:
            self._plan()

    def _wake(self, cause: WakeCause) -> None:
        self.stop()
        self._ask(self.claim, cause, self._outlook.slot(self._context.clock()))

    @property
    def _enough(self) -> tuple[bool, bool]:
        return self._outlook.answered, self._outlook.notified

    def _set_look(self) -> None:
        """Set the next look. It comes early without answers or messages of a quorum."""
        context, ahead = self._context, self._outlook.ahead
        if self._outlook.answered:
            every = LOOK_EVERY + QUEUE_LIFE * ahead if self._outlook.notified else POLL_EVERY
            self._look_at = context.clock() + every * (1.0 + context.draw()) / 2
        else:
            self._look_at = context.clock() + context.options.node_timeout

    def _look_soon(self) -> None:
        self._look_soon_at = min(self._look_soon_at, self._context.clock() + LOOK_AFTER)

    def _awaits(self, generation: int) -> bool:
        """Return False for a look from before the latest attempt: its answer is outdated."""
        return self.waiting and generation == self._generation

    def _look_at_nodes(self, indexes: Sequence[int], *, tracked: bool) -> None:
        generation = self._generation
        answered, awaited = partial(self._stood, generation), partial(self._awaits, generation)
        self._stand_at(indexes, answered, awaited, tracked=tracked)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
