"""When a refused acquisition asks again: a key is gone, the holder's time is over, or it is time for a slow look.

It never asks by itself. Most acquisitions are granted at once and have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from aioredlock_ng._core.backoff import WAKE_CAP, quorum_free_in, split_delay, unreachable_delay, wake_delay
from aioredlock_ng._core.votes import held_for, is_granted, is_held
from aioredlock_ng._engine.hints import AwaitedTurn
from aioredlock_ng._engine.notes import NOTE_AFTER, NOTE_EVERY
from aioredlock_ng._engine.round import NOT_ASKED
from aioredlock_ng.events import WaiterWoken

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Sequence

    from aioredlock_ng._core.turns import Turns
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.round import Round

__all__ = ["Asker", "Waker"]

TRACKED_POLL = 2.0
"""Seconds to the first look while the servers tell us about changes, and half of those between later ones: only for messages
that were lost. A holder's renewal is told like any change, and answered by a look of its own."""

LEAD_POLL = 0.05
"""Seconds for which the refusal of a lead that was asked alone is believed: what holds its key may be dead, and only there."""

TURN_POLL = 0.1
"""Seconds for which the end of another process's turn is awaited: three runs of hand-overs (`turns.FIRST_BOUND`). Who is told
of none until then takes the holder for somebody who tells nobody, or for one that holds for long."""

UNTRACKED_POLL = 0.1
"""Seconds between looks where they do not: a release before expiry can only be seen by asking."""

QUICK = 0.02
"""Seconds between an attempt and the next wake-up by which a hand-over inside another process is recognised."""

A_RUN = 2
"""Such wake-ups in a row after which the end of the run is awaited instead of the next hand-over."""

IN_VAIN = 3
"""Turns without a grant after which a contender asks one node first and, each `LEAD_POLL`, all at once, whoever competes."""

EXPIRY_MARGIN = 0.002
"""Seconds after the computed expiry at which to ask: servers round remaining times to milliseconds."""


class Asker(Protocol):
    """The acquisition.

    Attributes:
        round: Its latest attempt.
        lead: The node that it asked alone; None: a quorum or more were asked.
        keys: What it wants.
        held: See `Contender.held`; one at least.
    """

    round: Round | None
    lead: int | None
    keys: tuple[bytes, ...]
    held: tuple[bytes, ...]

    @property
    def resource(self) -> str:
        """The lock's name."""

    @property
    def turns(self) -> Turns:
        """Those of its process, of what it wants."""

    def attempt(self, *, lead_first: bool, first: Sequence[int] = ()) -> None:
        """Ask again: the lead first, or those at `first`, or all at once."""

    def look_again(self, free: Sequence[int]) -> None:
        """Find out which names are held, now that these nodes are free or another has answered."""

    def still_waiting(self) -> None:
        """It has waited for so long that people may want to know."""


class Waker:
    """Of one acquisition, from its first refusal or the first news while it asks.

    Args:
        context: The engine's surroundings.
        asker: Who is to ask again.

    Attributes:
        woken: True when it last asked because something had been freed.
    """

    __slots__ = (
        "_asked_all",
        "_asker",
        "_context",
        "_failures",
        "_gone",
        "_held_at",
        "_in_vain",
        "_look_again",
        "_looked",
        "_note_at",
        "_splits",
        "_timer",
        "_tries",
        "_turn",
        "_until",
        "woken",
    )

    def __init__(self, context: Context, asker: Asker) -> None:
        self._context = context
        self._asker = asker
        self._timer: asyncio.TimerHandle | None = None
        self._gone: set[int] | None = None
        self._note_at = context.clock() + NOTE_AFTER
        self._asked_all = 0.0
        # While it waits for the holder's time or for a look: since when, and until when at most.
        self._held_at = self._until = 0.0
        self._splits = self._failures = self._in_vain = self._tries = 0
        self._look_again = self._looked = self.woken = False
        self._turn: AwaitedTurn | None = None

    def asked(self) -> None:
        """A new attempt begins."""
        self.stop()
        self._gone = None
        self._look_again = False

    def stop(self) -> None:
        """Wake nobody any more."""
        self._turn = None
        # Whatever it waits for next is not to be cut short, unless `_wait` says so.
        self._until = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def ask_now(self, *, lead_first: bool) -> None:
        """It is its turn among those of its process: ask without delay."""
        if self._timer is None:
            # Still asking, and what was freed may be freed behind our question: look again after the refusal.
            self._look_again = True
            return
        self._context.counters.wakeups_local += 1
        self._ask_in(0.0, lead_first=self._one_first(lead_first))
        self._tell("local")

    def turn_over(self) -> None:
        """Another process's turn is over, if one is awaited: ask, unless another process has let more of them pass.

        Then that one asks, and this only whether it did, a moment later.
        """
        if self._turn is None:
            return
        if self._asker.turns.passes():
            self.stop()
            delay = WAKE_CAP * (1 + self._context.draw()) / 2
            self._timer = self._context.loop.call_later(delay, self._await_turn)
        else:
            self._ask_at_the_end()

    def changed(self, indexes: Iterable[int], *, told: bool) -> None:
        """On these nodes a key was freed: ask once it is so many that a quorum may be free."""
        # Also while the round is open: a key that goes between this node's answer and the last one is told only once.
        if self._gone is None:
            self._gone = set()
        self._gone.update(indexes)
        self._look(told=told)

    def held(self, remaining: Sequence[float | None], failed: int = 0, *, split: bool = False) -> None:
        """Another holds it: sleep until it may be free, by what the nodes tell or by what the holder has left.

        Args:
            remaining: What it has left, by each node that said so; None: no end.
            failed: How many nodes cannot be free.
            split: Whether this attempt had grants too. Where the lead alone refused it, somebody is ahead.
        """
        self._failures = 0
        self._splits = self._splits + 1 if split else 0
        now = self._context.clock()
        if now >= self._note_at:
            self._note_at = now + NOTE_EVERY
            self._asker.still_waiting()
        self._wait(remaining, failed)
        if self._look_again:
            self._wake((), told=False)
        elif self._asker.round is not None:
            self._asker.round.on_late = self._late
            self._look()

    def unreachable(self) -> None:
        """No quorum could be asked: again, ever less often."""
        self._failures += 1
        self._ask_in(unreachable_delay(self._failures, self._context.draw()), lead_first=False)

    def _late(self) -> None:
        """Recompute the alarm: an answer after the refusal may be the one that makes a free quorum, or tell when one is."""
        # A delay of milliseconds before the next attempt is not cut short: no `_until` then.
        if self._gone or self._until:
            self._look(told=bool(self._gone), late=True)

    def _look(self, *, told: bool = True, late: bool = False) -> None:
        """Wake up when a quorum may be free: nodes that said "gone", and those whose grant was taken back."""
        asker, gone = self._asker, self._gone or ()
        if self._timer is None or asker.round is None or not (gone or late):
            return
        free = self._free()
        if asker.lead in gone or len(free) >= self._context.quorum:
            self._gone = None
            self._wake(free, told=told)
        else:
            asker.look_again(free)
            self._wait_less(asker.round.replies, free)

    def _wait_less(self, replies: Sequence[Reply], free: Sequence[int]) -> None:
        """Too few are free, but with those whose time is over soon they may be enough: a quorum of both.

        Such as were left to somebody who was to go first there: they will not tell.
        """
        context = self._context
        times = [0.0 for _ in free]
        # A node that was not asked may be free, and has nothing to notify of: the others come in a moment if they do. After
        # a lead that was asked alone all are asked soon anyway.
        unasked = context.clock() - self._held_at + LEAD_POLL
        for index, reply in enumerate(replies):
            if index in free:
                continue
            if reply is NOT_ASKED and self._asker.lead is None:
                times.append(unasked)
            elif is_held(reply) and (left := held_for(reply)) is not None:
                times.append(left)
        if len(times) < context.quorum:
            return
        at = self._held_at + sorted(times)[context.quorum - 1] + EXPIRY_MARGIN
        if at < self._until:
            self.stop()
            self._until = at
            self._timer = context.loop.call_later(max(0.0, at - context.clock()), self._told_enough)

    def _told_enough(self) -> None:
        self._gone = None
        self._wake((), told=True)

    def _free(self) -> list[int]:
        """The nodes that have told of a change, and those whose grant was taken back: they have nothing more to tell."""
        gone, attempt = self._gone or (), self._asker.round
        replies = () if attempt is None else attempt.replies
        return [index for index, reply in enumerate(replies) if index in gone or is_granted(reply)]

    def _wake(self, free: Sequence[int], *, told: bool) -> None:
        """The resource may be free, as the servers told or this process knows: ask now, or soon where others were faster."""
        context, attempt = self._context, self._asker.round
        if attempt is None:
            return
        self.woken = True
        turns, now = self._asker.turns, context.clock()
        # A hand-over inside another process wakes us too: there are many then.
        self._in_vain = self._in_vain + 1 if now - attempt.started < QUICK else 0
        if self._in_vain >= A_RUN and told and not self._splits and context.options.own_keys and turns.told(now):
            self._await_turn()
            return
        if told:
            context.counters.wakeups += 1
        else:
            context.counters.wakeups_local += 1
        delay = wake_delay(context.draw()) if self._in_vain else 0.0
        if self._splits:
            delay = max(delay, split_delay(self._splits, context.draw()))
        # Alone, one round trip is enough.
        rivals = delay > 0.0 or turns.crowded(now)
        # A holder that renews is told like one that releases: where a quorum says no, the others need not be asked.
        # Not after a lead was asked alone: the others may have told before that, and would not be asked to tell again.
        enough = delay == 0.0 and len(free) >= context.quorum and self._asker.lead is None
        first = free if enough else ()
        self._ask_in(delay, lead_first=self._one_first(rivals), first=first)
        # Last: who is told may free what is waited for, and so wake this again.
        self._tell("told" if told else "local")

    def _await_turn(self) -> None:
        """Another process hands it on within itself: sleep until its turn is over."""
        context, key = self._context, self._asker.held[0]
        self.stop()
        self._timer = context.loop.call_later(TURN_POLL * (0.75 + context.draw() / 2), self._unwoken, False)
        self._turn = AwaitedTurn(key, context.clock(), self._asker.turns.passed + 1, self._awaited)
        self._turn.send(context.fleet, key)

    def _awaited(self, turn: AwaitedTurn, reply: Reply) -> None:
        if self._turn is not turn:
            return
        if reply == AwaitedTurn.FREE:
            # No hand-over but a release, which might be missed by asking for turns first.
            self._in_vain = 0
            self._ask_at_the_end()
        elif type(reply) is int:
            self._asker.turns.most_passed = reply
        else:
            self._asker.turns.untold(self._context.clock())
            self._ask_at_the_end(wake_delay(self._context.draw()))

    def _ask_at_the_end(self, delay: float = 0.0) -> None:
        """One node first, for others are told in this very moment."""
        self._context.counters.wakeups += 1
        self._ask_in(delay, lead_first=self._one_first(True))
        self._tell("told")

    def _one_first(self, wanted: bool) -> bool:
        """Whether to ask the lead first at this turn, as is `wanted` until a few were in vain.

        Who is refused again and again, everywhere, waits for something else: until a node grants it, one answer will do, and is
        believed for so long. Not for longer, whoever competes: what holds the lead's key may be dead.
        """
        now = self._context.clock()
        self._tries = 0 if self._splits else self._tries + 1
        if self._tries > IN_VAIN:
            wanted = now - self._asked_all < LEAD_POLL
        if not wanted:
            self._asked_all = now
        return wanted

    def _wait(self, remaining: Sequence[float | None], failed: int) -> None:
        """Until a wake-up, but not for ever: expiry and a slow look are the safety net.

        Where the lead alone was asked it is soon, and at all nodes: a key that stays on the lead must not stop a majority.
        """
        context, lead = self._context, self._asker.lead
        nodes = context.fleet.nodes
        free_in = remaining[0] if lead is not None else quorum_free_in(remaining, context.quorum, len(nodes) - failed)
        if free_in == 0:
            self._ask_in(split_delay(self._splits, context.draw()), lead_first=lead is None)
            return
        if lead is not None:
            poll = LEAD_POLL
        elif sum(node.tracking for node in nodes) >= context.quorum:
            poll = 2 * TRACKED_POLL if self._looked else TRACKED_POLL
        else:
            poll = UNTRACKED_POLL
        poll *= 0.75 + context.draw() / 2
        until_over = float("inf") if free_in is None else free_in + EXPIRY_MARGIN
        self.stop()
        self._held_at = context.clock()
        self._until = self._held_at + min(poll, until_over)
        self._timer = context.loop.call_later(min(poll, until_over), self._unwoken, until_over < poll)

    def _unwoken(self, over: bool) -> None:
        """Nobody said anything, but the holder's time is over, or it is time for a slow look."""
        # While a turn is awaited nobody minds which nodes have told: all are asked then.
        whole = over or self._turn is not None or self._asker.lead is not None
        if self._turn is not None:
            self._asker.turns.untold(self._context.clock())
        self.woken = False
        if over:
            self._context.counters.wakeups_expiry += 1
        else:
            self._context.counters.wakeups_fallback += 1
            self._looked = True
        self._ask_again(lead_first=False, first=() if whole else self._enough())
        self._tell("expiry" if over else "look")

    def _enough(self) -> list[int]:
        """A quorum of nodes, those with nothing more to tell among them: of a resource that is free, one will grant it."""
        some = set(self._free())
        for index in self._context.fleet.in_turn(self._asker.keys[0]):
            if len(some) >= self._context.quorum:
                break
            some.add(index)
        return sorted(some)

    def _tell(self, cause: Literal["told", "local", "expiry", "look"]) -> None:
        if (tell := self._context.tell) is not None:
            tell(WaiterWoken(self._asker.resource, cause))

    def _ask_in(self, delay: float, *, lead_first: bool, first: Sequence[int] = ()) -> None:
        self.stop()
        if delay > 0:
            self._timer = self._context.loop.call_later(delay, self._ask_again, lead_first, first)
        else:
            self._ask_again(lead_first, first)

    def _ask_again(self, lead_first: bool, first: Sequence[int] = ()) -> None:
        self._context.counters.looks += 1
        self._asker.attempt(lead_first=lead_first, first=first)
        self._context.fleet.hurry()
