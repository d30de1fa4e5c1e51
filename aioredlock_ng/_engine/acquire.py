"""One acquisition, from the call to a holding or an error, as callbacks; its caller awaits one future and nothing else.

That is what makes it atomic under cancellation: between "a node was asked" and "somebody owns what it said" there is
no await at all. `give_up` undoes everything in the tick in which it is called, whatever state this is in.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from aioredlock_ng._core.backoff import second_try_delay
from aioredlock_ng._core.tally import tally, with_second_round
from aioredlock_ng._core.validity import deadline_of
from aioredlock_ng._core.votes import (
    GRANTED,
    Unsent,
    counter_of,
    held_for,
    is_granted,
    is_held,
    is_held_by,
    is_permanent,
    keys_held,
)
from aioredlock_ng._engine.hints import Hint
from aioredlock_ng._engine.holding import Holding
from aioredlock_ng._engine.refusal import name_owner, not_acquired
from aioredlock_ng._engine.round import Round
from aioredlock_ng._engine.waker import Waker
from aioredlock_ng.errors import AcquireTimeout, LockHeld, QuorumUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioredlock_ng._core.turns import Turns
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.cleanup import Releases
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.extender import Extender
    from aioredlock_ng._engine.look import Look
    from aioredlock_ng._engine.spec import LockSpec
    from aioredlock_ng._engine.waiting import Lines
    from aioredlock_ng.errors import LockNotAcquired

__all__ = ["Acquisition"]

_Error = TypeVar("_Error", bound="LockNotAcquired")


class Acquisition:
    """One call of `acquire()`.

    Args:
        context: The engine's surroundings.
        lines: Where to wait.
        releases: What undoes an attempt.
        extender: Who takes a holding over.
        spec: What is wanted.
        blocking_timeout: Seconds for all of it; None for ever, 0.0 one attempt without queueing.
        alone: Make the first attempt without queueing.

    Attributes:
        attempts: How often it has asked the nodes.
        called_at: Since when.
        unreachable: True until an attempt could ask a quorum, and again while the last one could not.
        future: Resolves to the `Holding`, or to the error.
        held: See `Contender.held`.
        keys: See `Contender.keys`.
        round: The latest attempt.
        lead: The node that it asked alone; None: all were asked.
    """

    __slots__ = (
        "_alone",
        "_before",
        "_blocking_timeout",
        "_context",
        "_covers",
        "_doubted",
        "_extender",
        "_fence",
        "_limit",
        "_lines",
        "_look",
        "_proposed_us",
        "_releases",
        "_second",
        "_spec",
        "_waker",
        "attempts",
        "called_at",
        "future",
        "held",
        "keys",
        "lead",
        "round",
        "unreachable",
    )

    def __init__(
        self,
        context: Context,
        lines: Lines,
        releases: Releases,
        extender: Extender,
        spec: LockSpec,
        blocking_timeout: float | None,
        *,
        alone: bool,
    ) -> None:
        self._context = context
        self._lines = lines
        self._releases = releases
        self._extender = extender
        self._spec = spec
        self._blocking_timeout = blocking_timeout
        self._alone = alone
        self.called_at = context.clock()
        self.round: Round | None = None
        self._before: Round | None = None
        self._second: Round | None = None
        self._fence = self._proposed_us = self._covers = self.attempts = 0
        self._doubted = False
        self._limit: asyncio.TimerHandle | None = None
        self._waker: Waker | None = None
        self._look: Look | None = None
        self.lead: int | None = None
        self.held = spec.keys
        self.unreachable = True
        self.keys = spec.keys
        self.future: asyncio.Future[Holding] = context.loop.create_future()

    def start(self) -> None:
        """Begin, in this very tick.

        Raises:
            LockHeld: The task holds it itself through an enclosing `async with` and would wait for itself for ever.
        """
        if self._blocking_timeout:
            loop = self._context.loop
            ends_at = loop.time() + self._blocking_timeout
            # In time for the answers: the error must not come later because it names the holder.
            early = min(self._context.options.node_timeout, self._blocking_timeout / 2)
            self._limit = loop.call_at(ends_at - early, self._nearly_time_out, ends_at)
        if not self._alone:
            self._lines.join(self)
            return
        if self._blocking_timeout is None:
            # It may have to queue after that attempt, and no task runs then that could be refused.
            self.refuse_deadlock(self._lines.holders(self.keys))
        self._ask(self.called_at)

    def refuse_deadlock(self, holders: Sequence[Holding]) -> None:
        """See `Contender.refuse_deadlock`."""
        task = asyncio.current_task()
        if self._blocking_timeout is not None or task is None:
            return
        now = self._context.clock()
        if any(holding.task is task and holding.remaining(now) > 0.0 for holding in holders):
            why = "this very task holds it in an enclosing `async with` and would wait for ever"
            raise self._refusal(LockHeld, why, holders)

    def attempt(self, *, lead_first: bool, first: Sequence[int] = ()) -> None:
        """Ask the nodes: all at once, or, where rivals would split the votes or a refusal is likely, some before the others."""
        if self.future.cancelled():
            # Its caller was cancelled in this tick and is about to give up.
            return
        now = self._context.clock()
        fleet = self._context.fleet
        lead = fleet.lead(self.keys[0]) if lead_first else None
        if lead is not None:
            first = (lead,)
        # Who was refused before competes with the others whom the same release wakes.
        precedence = self._lines.precedence(self) if lead_first or self.round is not None else ()
        if 0 < len(first) < len(fleet.nodes):
            self.lead = lead
            self._begin(now, self._first_asked, precedence).ask_first(first)
        else:
            self._ask(now, precedence)

    @property
    def resource(self) -> str:
        """See `Asker.resource`."""
        return self._spec.resource

    @property
    def waited(self) -> float:
        """Seconds since the call."""
        return self._context.clock() - self.called_at

    @property
    def turns(self) -> Turns:
        """See `Asker.turns`."""
        return self._lines.turns(self)

    def still_waiting(self) -> None:
        """See `Asker.still_waiting`."""
        if (notes := self._context.notes) is not None:
            notes.waiting(self.keys, self._lines.length(self.keys))

    def wake(self, *, lead_first: bool) -> None:
        """See `Contender.wake`."""
        if self.round is not None:
            self._waking().ask_now(lead_first=lead_first)

    @property
    def asking(self) -> bool:
        """See `Contender.asking`."""
        return any(round_ is not None and round_.open for round_ in (self.round, self._second))

    def changed(self, index: int, keys: Iterable[bytes] | None) -> None:
        """See `Contender.changed`. Of several, it counts if a majority holds that key, or this node refused because of it."""
        self._covers = 0
        reply = None if self.round is None else self.round.replies[index]
        if reply is None:
            return
        if keys is None or any(key in self.held or is_held_by(reply, key, self.keys) for key in keys):
            self._waking().changed((index,), told=True)

    def doubt(self) -> None:
        """See `Contender.doubt`."""
        self._covers = 0
        self._doubted = True

    def turn_over(self) -> None:
        """See `Contender.turn_over`."""
        if self._waker is not None:
            self._waker.turn_over()

    def freed(self, indexes: Sequence[int]) -> None:
        """See `Contender.freed`. Also by those that have not answered: what they will say was true before."""
        if self.round is not None:
            self._waking().changed(indexes, told=False)

    def _ask(self, now: float, precedence: tuple[bytes | int, ...] = ()) -> None:
        self.lead = None
        attempt = self._begin(now, self._decided, precedence)
        attempt.ask()
        if self._lines.is_followed(self):
            # In the same write, behind it: what may be gone must not be passed on, so the nodes are to tell.
            self._covers = self._lines.arrivals
            command = self._spec.kind.watching(self.keys, (attempt.token,))
            self._context.fleet.ask(Hint(command, now))

    def _begin(self, now: float, on_decided: Callable[[Round], None], precedence: tuple[bytes | int, ...]) -> Round:
        """A new attempt with a fresh token (the same one over attempts gives two holders in 11 model steps)."""
        context, spec = self._context, self._spec
        if self.round is not None:
            self._before = self.round
            self._hear_no_more()
            # The undoing of the new attempt tells those beside; and the rounds would keep this alive.
            self.round.on_late_grant = None
            if self._waker is not None:
                self._waker.asked()
        self._second = None
        context.counters.attempts += 1
        self.attempts += 1
        self._covers = 0
        self._doubted = False
        if len(self.keys) > 1:
            self.held = self.keys
            self._lines.asks(self)
        kind = spec.kind
        if kind.fencing:
            self._fence = context.fences.propose(context.wall_us(), spec.slots)
            self._proposed_us = self._fence - context.fences.offset
        token = context.new_token()
        command = kind.acquiring(spec.keys, spec.slots, token, spec.life.ttl_word, self._fence, precedence)
        self.round = attempt = Round(context, command, GRANTED, context.quorum, now, on_decided)
        attempt.token = token
        return attempt

    def _first_asked(self, attempt: Round) -> None:
        """The first have all said no, or one has not, or not in time."""
        if self.future.cancelled():
            self._decided(attempt)
            return
        asked = attempt.asked_replies()
        if all(map(is_held, asked)):
            self._context.counters.refused += 1
            self._wait(attempt, [held_for(reply) for reply in asked], asked)
        else:
            self.lead = None
            attempt.widen(self._decided)

    def give_up(self, error: BaseException | None) -> None:
        """End it in any state: nothing of it stays on the nodes, the next in line goes on.

        Args:
            error: What the caller is told; None when the caller is gone (cancelled).
        """
        future = self.future
        if future.done() and not future.cancelled():
            if error is None and future.exception() is None:
                # Granted in the very tick in which the caller was cancelled.
                self._extender.release(future.result())
            return
        self._stop()
        attempt, self.round = self.round, None
        second, self._second = self._second, None
        if attempt is not None and (attempt.open or (second is not None and second.open)):
            attempt.open = False
            self._undo(attempt)
        self._lines.leave(self)
        if future.done():
            return
        if error is None:
            future.cancel()
        else:
            future.set_exception(error)

    def _decided(self, attempt: Round, second: Round | None = None) -> None:
        context, spec = self._context, self._spec
        if self.future.cancelled():
            # The caller was cancelled earlier in this tick, and has not come round to `give_up` yet.
            self._undo(attempt)
            self.give_up(None)
            return
        life, trouble = spec.life, ""
        if attempt.won:
            now = context.clock()
            if deadline_of(attempt.started, life.ttl, life.drift) - now >= life.least_validity:
                if attempt.unfenced and spec.kind.fencing:
                    self._fence_again(attempt, now)
                    return
                fence = self._fence if spec.kind.fencing else None
                holding = Holding(spec, attempt.token, attempt.started, attempt, attempt.replies, fence, self._covers)
                self.take(holding)
                if self._doubted:
                    # Without this its holder would not learn for `validity.WATCH_AFTER` that nothing is left of it.
                    self._extender.watch(holding)
                self.round = self._second = None
                self._lines.granted(self, holding, now)
                return
            trouble = "granted so late that too little of the ttl was left"
        self._undo(attempt)
        if second is not None and not trouble:
            self._without_fence(attempt, second)
        self._refused(attempt, trouble)

    def heir(self, holding: Holding, now: float) -> Holding | None:
        """See `Contender.heir`."""
        # A caller that was cancelled in this tick is about to give up.
        return None if self.future.cancelled() else holding.passed_on(self._spec, now)

    def take(self, holding: Holding) -> None:
        """See `Contender.take`."""
        self._stop()
        self._context.counters.acquired += 1
        self._extender.adopt(holding)
        self.future.set_result(holding)

    def _fence_again(self, attempt: Round, now: float) -> None:
        """Round 2: a fence above every counter seen, to the nodes that granted or have not answered yet.

        There it comes behind the acquire, and is acknowledged only for our keys. So one that hangs now is no veto.
        """
        context, spec = self._context, self._spec
        context.counters.second_rounds += 1
        highest = max(map(counter_of, filter(is_granted, attempt.replies)))
        wall_us = context.wall_us()
        if attempt.decider is not None:
            counter = counter_of(attempt.replies[attempt.decider])
            context.fences.overtaken(counter, attempt.decider, self._proposed_us, wall_us)
        self._fence = context.fences.propose(wall_us, spec.slots, highest)
        command = spec.kind.confirming(spec.keys, spec.slots, attempt.token, self._fence)
        self._second = Round(context, command, GRANTED, context.quorum, now, self._fenced)
        self._second.ask_some([index for index, reply in enumerate(attempt.replies) if reply is None or is_granted(reply)])

    def _fenced(self, second: Round) -> None:
        """Round 2 is decided: with a quorum of acknowledgements this is the fence, else the attempt has failed."""
        attempt = self.round
        if self._second is not second or attempt is None:
            return
        for index, reply in enumerate(attempt.replies):
            if is_granted(reply):
                acknowledged = second.replies[index] == GRANTED
                attempt.replies[index] = GRANTED if acknowledged else [1, self._fence]
        attempt.unfenced = 0
        attempt.yes = second.yes
        self._decided(attempt, second)

    def _without_fence(self, attempt: Round, second: Round) -> None:
        """Judge the nodes by their latest answers, which may still come: all that granted are released on by now."""

        def count() -> None:
            attempt.replies[:] = with_second_round(attempt.replies, second.replies, self._fence, expired=second.expired)

        def count_late() -> None:
            count()
            if attempt.on_late is not None:
                attempt.on_late()

        count()
        attempt.expired |= second.expired
        second.on_late = count_late

    def _undo(self, attempt: Round) -> None:
        """Release what nodes granted, those that have not answered included.

        Who waits beside in this process is told; not of the unread where a majority refused: a hundred that are refused at
        each release would tell each other, each time.
        """
        self._releases.send(self._spec, attempt.token, attempt.replies, self._spec.life.ttl, self._context.clock())
        unread = sum(map(is_held, attempt.replies)) < self._context.quorum
        freed = [i for i, reply in enumerate(attempt.replies) if is_granted(reply) or (unread and reply is None)]
        if freed:
            self._lines.undone(self, freed)
        if not unread:
            attempt.on_late_grant = self._given_back

    def _given_back(self, index: int) -> None:
        """A node had granted what was undone before its answer came: it notifies everybody but this process of the end."""
        self._lines.undone(self, (index,))

    def _refused(self, attempt: Round, trouble: str) -> None:
        """It has failed: by what the nodes said, or by `trouble`, which no holder is to blame for."""
        context = self._context
        context.counters.refused += 1
        counted = tally(attempt.replies, context.quorum, context.quarantine)
        reachable = counted.reachable and not trouble
        contested = counted.contested(context.quorum, self._spec.life.ttl, context.patience)
        if counted.hopeless:
            self.give_up(self._error(QuorumUnreachable, "waiting does not cure what the nodes refuse"))
        elif self._blocking_timeout == 0 or (self._spec.fail_fast and not reachable and context.no_quorum()):
            others = self._lines.holders(self.keys)
            if reachable and contested and self.attempts == 1 and not others:
                delay = second_try_delay(context.clock() - attempt.started, context.options.node_timeout, context.draw())
                self._limit = context.loop.call_later(delay, self._try_again)
            elif reachable:
                held = keys_held(attempt.replies, self.keys, len(context.fleet.nodes), counted.failed)
                self.held = held or self.keys
                self.give_up(self._refusal(LockHeld, "held by another", others))
            else:
                unfenced = "granted, but no quorum answered to its fence" if self._second is not None else ""
                self.give_up(self._error(QuorumUnreachable, trouble or unfenced or "no quorum could be asked"))
        elif self._alone:
            # Asked without a quorum in sight, but one answers: it waits as everybody does.
            self._alone = False
            self.round = self._second = None
            self._lines.join(self)
        elif not reachable:
            self.unreachable = True
            context.counters.unreachable += 1
            if trouble or self._second is not None or any(map(is_permanent, attempt.replies)):
                # It may be by its own names or ttl.
                self._lines.lets_others_ask(self)
            self._waking().unreachable()
        else:
            split = counted.granted > 0
            self._wait(attempt, counted.held, attempt.replies, counted.failed, split=split, contested=contested)

    def _try_again(self) -> None:
        """Ask once more, for rivals of the same instant: without this none of them would get what is free."""
        self._limit = None
        # A caller that was cancelled in this tick is about to give up.
        if not self.future.cancelled():
            self._ask(self._context.clock())
            self._context.fleet.hurry()

    def _wait(
        self,
        attempt: Round,
        remaining: Sequence[float | None],
        replies: Sequence[Reply],
        failed: int = 0,
        *,
        split: bool = False,
        contested: bool = False,
    ) -> None:
        self.unreachable = False
        waker = self._waking()
        held = keys_held(replies, self.keys, len(self._context.fleet.nodes), failed)
        self.held = held or self.keys
        self._lines.refused(self, held, attempt.started, woken=waker.woken, contested=contested)
        waker.held(remaining, failed, split=split)

    def look_again(self, free: Sequence[int]) -> None:
        """See `Asker.look_again`."""
        attempt, keys = self.round, self.keys
        if attempt is None or len(keys) == 1 or self.lead is not None:
            return
        context = self._context
        replies = [GRANTED if index in free else reply for index, reply in enumerate(attempt.replies)]
        failed = tally(replies, context.quorum, context.quarantine).failed
        held = keys_held(replies, keys, len(context.fleet.nodes), failed)
        self.held = held or keys
        self._lines.refused_otherwise(self, held)

    def _waking(self) -> Waker:
        if self._waker is None:
            self._waker = Waker(self._context, self)
        return self._waker

    def _nearly_time_out(self, ends_at: float) -> None:
        self._limit = self._context.loop.call_at(ends_at, self._time_out)
        labels = self._context.labels
        if labels is not None and not self._lines.holders(self.keys):
            self._look = labels.looks.ask(self._context, self._spec.kind, self.held[0])

    def _time_out(self) -> None:
        self._context.counters.timeouts += 1
        # Who waits behind another of this process has asked nobody: what stops that one stops it.
        if self.unreachable if self.round is not None else self._lines.unreachable(self):
            self.give_up(self._error(QuorumUnreachable, f"no quorum answered within {self._blocking_timeout:g} s"))
        else:
            holders = self._lines.holders(self.keys)
            where = " in this process" if holders else ""
            why = f"still held by another{where} after {self._blocking_timeout:g} s"
            self.give_up(self._refusal(AcquireTimeout, why, holders))

    def _error(self, kind: type[_Error], why: str) -> _Error:
        attempt = self.round
        if attempt is not None and attempt.open and self._before is not None and not any(map(_is_news, attempt.replies)):
            # Just asked again: what the nodes said the last time tells more.
            attempt = self._before
        return not_acquired(kind, why, self._spec.resource, self._context, attempt, self.waited)

    def _refusal(self, kind: type[LockHeld | AcquireTimeout], why: str, holders: Sequence[Holding] = ()) -> LockNotAcquired:
        """The error where another has it, and its label if that is known: these holdings of this process, or what was seen."""
        error, labels = self._error(kind, why), self._context.labels
        seen = None if self._look is None else self._look.label
        owner = labels.text(holders[0]) if holders and labels is not None else seen
        if owner is not None:
            name_owner(error, owner)
        return error

    async def name_holder(self, error: LockHeld) -> None:
        """Ask the nodes for the label of the holder, if the error that ended this does not name it, and say it there.

        Safety: cancelled, nothing has changed.
        """
        labels = self._context.labels
        if error.owner is None and labels is not None:
            label = await labels.looks.ask(self._context, self._spec.kind, self.held[0]).ended()
            if label is not None:
                name_owner(error, label)

    def _stop(self) -> None:
        if self._waker is not None:
            self._waker.stop()
            # They know each other: without this, the collector would have to find them.
            self._waker = None
        self._hear_no_more()
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _hear_no_more(self) -> None:
        for round_ in (self.round, self._second):
            if round_ is not None:
                round_.on_late = None


def _is_news(reply: Reply) -> bool:
    """True for an answer; that a node is down is said at once, each time."""
    return reply is not None and type(reply) is not Unsent
