"""A waiting line's place in the queues on the nodes, and the one rule by which it asks again.

For each node the waiter knows from when on that node may grant: now, after some time, or not known.
When a quorum may grant, it asks all nodes. A slow timer covers messages that were lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.backoff import unreachable_delay
from aioredlock_ng._core.replies import Standing
from aioredlock_ng._core.tickets import LARGEST_TICKET, Outlook, claim_of, middle_of
from aioredlock_ng._core.votes import Dropped, Unsent, is_granted, is_held
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.kinds import LEAVE, STAND

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.tickets import WakeCause
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.round import Round
    from aioredlock_ng._nodes.port import Node

__all__ = ["Leaving", "Place"]

LOOK_EVERY = 10.0
"""Seconds between looks at the queues, at most; half of that at least. A look costs one command per
node. It covers lost messages, and several processes that died together before this one."""

POLL_EVERY = 0.1
"""The same where too few nodes send messages and track keys. A release is then seen only by asking."""

QUEUE_LIFE = 2 * LOOK_EVERY
"""Seconds that a queue outlives the last look of its waiters."""

LOOK_AFTER = 0.02
"""Seconds from news that were not enough to ask until a closer look. The first in a queue then tracks
the lock's key, for the deletion by another client comes without a message. A waiter to which only
some nodes are free finds out about the others. Most locks are released sooner: no command is spent."""

KEPT_FOR = 2.0
"""Seconds for which the free keys of a set are kept for it while it waits for another one. Nested
locks can wait for each other that way; then the wait ends after this time."""

EXPIRY_MARGIN = 0.002
"""Seconds after the computed expiry at which to ask. Servers round remaining times to milliseconds."""

_FOREVER = float("inf")


class Place:
    """From the first refusal of a line until it is served, or nobody waits in it any more.

    Args:
        context: The engine's surroundings.
        keys: What the line wants.
        member: Its name in the queues.
        ask: Called with the claim, and what woke it, when a quorum may grant.
        missed: Called with a node's index and a leave that did not reach the node.
    """

    __slots__ = (
        "_answered",
        "_ask",
        "_closer_at",
        "_context",
        "_doubts",
        "_entered",
        "_failures",
        "_first",
        "_free",
        "_generation",
        "_heard",
        "_keys",
        "_look_at",
        "_missed",
        "_outlook",
        "_ranks",
        "_refused_at",
        "_standing",
        "_ticket",
        "_timer",
        "_tracked",
        "_unseen",
        "_waiting",
        "member",
    )

    def __init__(
        self,
        context: Context,
        keys: tuple[bytes, ...],
        member: bytes,
        ask: Callable[[bytes, WakeCause], None],
        missed: Callable[[int, Leaving], None],
    ) -> None:
        nodes = len(context.fleet.nodes)
        self._context = context
        self._keys = keys
        self._ask = ask
        self._missed = missed
        # Nodes that may have an entry of it in their queues.
        self._entered: set[int] = set()
        self._ticket = self._failures = self._generation = self._free = 0
        self._outlook = Outlook(nodes, context.quorum)
        self._ranks: dict[int, int] = {}
        # Nodes that answered the latest look; those of them that will send a message; nodes where it
        # is the first; those of them where it tracks the key, and where it has to look.
        self._answered: set[int] = set()
        self._heard: set[int] = set()
        self._first: set[int] = set()
        self._tracked: set[int] = set()
        self._unseen: set[int] = set()
        self._standing = self._waiting = False
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = self._closer_at = _FOREVER
        self._refused_at = 0.0
        self._doubts = False
        self.member = member

    @staticmethod
    def grace(context: Context, *, notified: bool) -> float:
        """Return the seconds that an offer to this process lives.

        A process whose round trip takes longer than `node_timeout` cannot acquire at all. Without
        messages it finds the offer at its next look.
        """
        return context.options.node_timeout + (0.0 if notified else 2 * POLL_EVERY)

    @property
    def standing(self) -> bool:
        """True while it may have entries in the queues under its name."""
        return self._standing

    @property
    def queued(self) -> tuple[tuple[bytes, ...], int, int | None]:
        """Its keys, its ticket, and how many stand before it by the last answers of the nodes."""
        return self._keys, self._ticket, middle_of([rank for rank in self._ranks.values() if rank >= 0])

    @property
    def waiting(self) -> bool:
        """True while it will wake the line by itself."""
        return self._waiting

    @property
    def claim(self) -> bytes:
        """What the waiter says of itself when it asks; nothing before it has a ticket."""
        return claim_of(self._ticket, self.member) if self._ticket else b""

    def stand(self, replies: Sequence[Reply]) -> None:
        """Take a place in the queues, or look at it again, after an attempt that these replies refused."""
        self._failures = 0
        self._refused_at = self._context.clock()
        context = self._context
        seen = max((reply.ticket for reply in replies if is_held(reply)), default=0)
        if seen < LARGEST_TICKET:
            context.last_ticket = max(context.last_ticket, seen)
        if not self._ticket:
            context.last_ticket += 1
            self._ticket = context.last_ticket
        self._generation += 1
        self._free = 0
        # The attempt may have set the key, and one's own change ends tracking without a word.
        for nodes in (self._first, self._tracked, self._unseen):
            nodes.clear()
        self._outlook.asked([reply is None or is_held(reply) or is_granted(reply) for reply in replies])
        self.look()

    def look(self) -> None:
        """Ask every node about this place, and be put back where it was lost."""
        self._standing = self._waiting = True
        for nodes in (self._answered, self._heard):
            nodes.clear()
        self._closer_at, self._doubts = _FOREVER, False
        self._set_look()
        self._entered.update(index for index, node in enumerate(self._context.fleet.nodes) if node.ready)
        self._context.fleet.ask(self._looking(tracked=False))
        self._plan()

    def back_off(self) -> None:
        """Leave the queues, where it would stand in the way of those that reach a quorum; ask again later."""
        self._leave_queues()
        self._stop_timer()
        self._waiting = False
        self._failures += 1
        delay = unreachable_delay(self._failures, self._context.draw())
        self._timer = self._context.loop.call_later(delay, self._wake, "look")

    def leave(self) -> None:
        """Nobody waits here any more."""
        self.stop()
        self._leave_queues()

    def stop(self) -> None:
        """Wake nobody any more: the line was served, or an attempt begins."""
        self._stop_timer()
        self._waiting = False

    def served(self, attempt: Round) -> None:
        """The line has what it waited for. Nodes that did not grant still have its entry, which must not wait in vain."""
        self.stop()
        if not self._standing:
            return

        # Neither the attempt nor this place: late answers may never come, and a cycle would keep both.
        replies, entered, nodes, leaving = attempt.replies, self._entered, self._context.fleet.nodes, self._leaving()

        def answered(index: int) -> None:
            reply = replies[index]
            if index in entered and reply is not None and not is_granted(reply):
                leaving.send(nodes[index], index)

        for index in range(len(replies)):
            answered(index)
        attempt.on_late = answered

    def notified(self, index: int, left: float | None) -> None:
        """Node `index` says when it may grant; None: the waiter is the first now, and has to look."""
        if not self._waiting:
            return
        # Without this the rank of the next in line would be as old as its latest look.
        self._ranks[index] = 0
        if left is None:
            self._unseen.add(index)
            self._is_first(index)
        self._learn(index, left)

    def changed(self, index: int) -> None:
        """The tracked key changed on node `index`: renewed, or released by another client without a message."""
        # An earlier lease of this process may still track the key, which means nothing here.
        if not self._waiting or index not in self._tracked:
            return
        if self._outlook.at(index) > self._context.clock():
            self._look_at_node(index, tracked=True)
        else:
            # A message has said so before.
            self._tracked.discard(index)

    def reconnected(self, index: int) -> None:
        """Node `index` lost its memory of this place, or may grant from now on."""
        if self._waiting:
            self._outlook.votes(index)
            self._forget(index)
            self._look_at_node(index, tracked=False)

    def stood(self, index: int, standing: Standing | None, *, generation: int) -> None:
        """Node `index` answered a look of this generation; None: not usefully."""
        if not self.awaits(generation):
            return
        if standing is None:
            self._forget(index)
            self._learn(index, None)
            return
        before = self._enough
        self._answered.add(index)
        self._ranks[index] = standing.rank
        node = self._context.fleet.nodes[index]
        # No node sends a message to a member that asks by itself.
        notified = node.messages and node.tracking and not self.member.startswith(b"-")
        if standing.rank >= 0 and notified:
            self._heard.add(index)
        if self._enough != before:
            self._set_look()
        if standing.rank == 0:
            self._is_first(index)
        else:
            self._first.discard(index)
        self._learn(index, standing.left)

    def _is_first(self, index: int) -> None:
        self._first.add(index)
        if index not in self._unseen and (index in self._tracked or len(self._tracked) >= self._context.quorum):
            return
        self._closer_at = min(self._closer_at, self._context.clock() + LOOK_AFTER)

    def _learn(self, index: int, left: float | None) -> None:
        now = self._context.clock()
        self._outlook.learns(index, None if left is None else now + left + (EXPIRY_MARGIN if left else 0.0))
        self._plan()

    def _plan(self) -> None:
        """Ask when a quorum may grant; else set the one timer to what comes first."""
        if not self._waiting:
            return
        now = self._context.clock()
        at = self._outlook.ask_at
        if at <= now:
            self._wake("told")
            return
        free = self._outlook.free(now)
        if free > self._free:
            # Too few, and the others may be free without a word: one expired, or another waiter let it go.
            self._doubts = True
            self._closer_at = min(self._closer_at, now + LOOK_AFTER)
        self._free = free
        self._stop_timer()
        until = min(at, self._look_at, self._closer_at, self._outlook.next_at(now))
        # Not at once: a timer may fire a moment early, and would be set again without end.
        self._timer = self._context.loop.call_later(max(until - now, EXPIRY_MARGIN / 4), self._due)

    def _due(self) -> None:
        self._timer = None
        now = self._context.clock()
        if self._outlook.ask_at <= now:
            self._wake("expiry")
        elif self._look_at <= now:
            # Without a quorum of answers it must not stand in the way of those that have one.
            if len(self._answered) < self._context.quorum:
                self._wake("look")
            else:
                if now - self._refused_at >= LOOK_EVERY / 2:
                    # Not at every look: without messages those are so many.
                    self._outlook.all_vote()
                if len(self._heard) < self._context.quorum:
                    self._context.counters.wakeups_fallback += 1
                self.look()
        elif self._closer_at <= now:
            self._look_closer()
        else:
            self._plan()

    def _look_closer(self) -> None:
        """Track the key where the waiter is the first; look at all nodes if only some of them are free.

        A quorum of nodes is enough to track: the key cannot become free on a quorum without a change on one of them.
        """
        doubts, self._doubts, self._closer_at = self._doubts, False, _FOREVER
        untracked, unseen = sorted(self._first - self._tracked), self._unseen
        tracked = untracked[: max(0, self._context.quorum - len(self._tracked))]
        self._tracked.update(tracked)
        self._unseen = set()
        for index in range(len(self._context.fleet.nodes)):
            if doubts or index in unseen or index in tracked:
                self._look_at_node(index, tracked=index in self._tracked)
        self._plan()

    def _wake(self, cause: WakeCause) -> None:
        self.stop()
        self._ask(self.claim, cause)

    @property
    def _enough(self) -> tuple[bool, bool]:
        """Whether a quorum has answered, and whether a quorum will send messages."""
        quorum = self._context.quorum
        return len(self._answered) >= quorum, len(self._heard) >= quorum

    def _set_look(self) -> None:
        """The next look comes early where a quorum has not answered, or will send no message."""
        context = self._context
        if len(self._answered) < context.quorum:
            self._look_at = context.clock() + context.options.node_timeout
        else:
            every = LOOK_EVERY if len(self._heard) >= context.quorum else POLL_EVERY
            self._look_at = context.clock() + every * (1.0 + context.draw()) / 2

    def _forget(self, index: int) -> None:
        """Node `index` no longer answers: this place may be gone there."""
        for nodes in (self._answered, self._heard, self._first, self._tracked, self._unseen):
            nodes.discard(index)
        if len(self._heard) < self._context.quorum:
            self._set_look()

    def awaits(self, generation: int) -> bool:
        """False for a look that was sent before the latest attempt: what it says is no longer true."""
        return self._waiting and generation == self._generation

    def _look_at_node(self, index: int, *, tracked: bool) -> None:
        if self._context.fleet.nodes[index].ready:
            self._entered.add(index)
        self._context.fleet.nodes[index].ask(self._looking(tracked=tracked), index)

    def _looking(self, *, tracked: bool) -> _Looking:
        now = self._context.clock()
        # From the refusal on, and never prolonged: nested locks wait for each other until this ends.
        kept = max(0, round((self._refused_at + KEPT_FOR - now) * 1000))
        command = Command(STAND, self._keys, (self.claim, round(QUEUE_LIFE * 1000), kept), tracked=tracked)
        return _Looking(self, command, now, self._generation)

    def _leave_queues(self) -> None:
        if self._standing:
            self._standing = False
            self._context.fleet.ask(self._leaving())

    def _leaving(self) -> Leaving:
        entered, missed = self._entered, self._missed

        def lost(index: int, leaving: Leaving) -> None:
            if index in entered:
                missed(index, leaving)

        return Leaving(self._keys, self.member, self._context.clock(), lost)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Looking:
    """One look at the queues; a `Sink`."""

    __slots__ = ("_generation", "_place", "command", "started")

    def __init__(self, place: Place, command: Command, started: float, generation: int) -> None:
        self._place = place
        self.command = command
        self.started = started
        self._generation = generation

    def stands(self) -> bool:
        """See `Sink.stands`: a waiter that left must not be put into a queue again."""
        return self._place.awaits(self._generation)

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
        standing = reply if isinstance(reply, Standing) else None
        self._place.stood(index, standing, generation=self._generation)


class Leaving:
    """A waiter leaves the queues of these keys; a `Sink`.

    Args:
        keys: The keys.
        member: The waiter.
        started: The engine's clock.
        lost: Called with the node's index and this object where the node may not have been told.

    Attributes:
        member: See above.
    """

    __slots__ = ("_lost", "command", "member", "started")

    def __init__(
        self,
        keys: tuple[bytes, ...],
        member: bytes,
        started: float,
        lost: Callable[[int, Leaving], None] | None = None,
    ) -> None:
        self.command = Command(LEAVE, keys, (member,))
        self.member = member
        self.started = started
        self._lost = lost

    def send(self, node: Node, index: int) -> None:
        """Ask one node."""
        node.ask(self, index)

    def stands(self) -> bool:
        """See `Sink.stands`: to be sent again where the server did not know the script."""
        return True

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
        if self._lost is not None and type(reply) in (Unsent, Dropped):
            self._lost(index, self)
