"""One acquisition, from the call to a holding or an error, as callbacks; its caller awaits one future and nothing else.

That is what makes it atomic under cancellation: between "a node was asked" and "somebody owns what it said" there is
no await at all. `give_up` undoes everything in the tick in which it is called, whatever state this is in.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from zlib import crc32

from aioredlock_ng._core.backoff import quorum_free_in, split_delay, unreachable_delay, wake_delay
from aioredlock_ng._core.tally import tally
from aioredlock_ng._core.validity import deadline_of
from aioredlock_ng._core.votes import GRANTED, counter_of, held_for, is_granted, is_held
from aioredlock_ng._engine.holding import Holding
from aioredlock_ng._engine.refusal import not_acquired
from aioredlock_ng._engine.round import Round
from aioredlock_ng.errors import AcquireTimeout, LockHeld, QuorumUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._engine.cleanup import Releases
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.extender import Extender
    from aioredlock_ng._engine.spec import LockSpec
    from aioredlock_ng._engine.waiting import Lines
    from aioredlock_ng.errors import LockNotAcquired

__all__ = ["Acquisition"]

TRACKED_POLL = 2.0
"""Seconds between looks while the servers tell us about changes: only for messages that were lost."""

UNTRACKED_POLL = 0.1
"""Seconds between looks where they do not: a release before expiry can only be seen by asking."""

QUICK = 0.02
"""Seconds between an attempt and the next wake-up by which a hand-over inside another process is recognised."""

EXPIRY_MARGIN = 0.002
"""Seconds after the computed expiry at which to ask: servers round remaining times to milliseconds."""


class Acquisition:
    """One call of `acquire()`.

    Args:
        context: The engine's surroundings.
        lines: Where to wait.
        releases: What undoes an attempt.
        extender: Who takes a holding over.
        spec: What is wanted.
        blocking_timeout: Seconds for all of it; None for ever, 0.0 one attempt without queueing.

    Attributes:
        unreachable: True until an attempt could ask a quorum, and again while the last one could not.
        future: Resolves to the `Holding`, or to the error.
    """

    __slots__ = (
        "_before",
        "_blocking_timeout",
        "_called_at",
        "_context",
        "_extender",
        "_failures",
        "_fence",
        "_gone",
        "_in_vain",
        "_lead_index",
        "_limit",
        "_lines",
        "_look_again",
        "_outrun",
        "_proposed_us",
        "_releases",
        "_round",
        "_second",
        "_spec",
        "_splits",
        "_timer",
        "_woken",
        "future",
        "keys",
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
    ) -> None:
        self._context = context
        self._lines = lines
        self._releases = releases
        self._extender = extender
        self._spec = spec
        self._blocking_timeout = blocking_timeout
        self._called_at = context.clock()
        self._round: Round | None = None
        self._before: Round | None = None
        self._second: Round | None = None
        self._fence = self._proposed_us = 0
        self._timer: asyncio.TimerHandle | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._gone: set[int] | None = None
        self._splits = self._failures = self._in_vain = 0
        self._lead_index: int | None = None
        self._look_again = self._woken = self._outrun = False
        self.unreachable = True
        self.keys = spec.keys
        self.future: asyncio.Future[Holding] = context.loop.create_future()

    def start(self) -> None:
        """Begin, in this very tick.

        Raises:
            LockHeld: The task holds it itself through an enclosing `async with` and would wait for itself for ever.
        """
        if self._blocking_timeout == 0:
            self._ask(self._called_at)
            return
        if self._blocking_timeout is not None:
            self._limit = self._context.loop.call_later(self._blocking_timeout, self._time_out)
        self._lines.join(self)

    def refuse_deadlock(self, holders: Sequence[Holding]) -> None:
        """See `Contender.refuse_deadlock`."""
        if self._blocking_timeout is None and asyncio.current_task() in [holding.task for holding in holders]:
            raise self._error(LockHeld, "this very task holds it in an enclosing `async with` and would wait for ever")

    def attempt(self, *, lead_first: bool) -> None:
        """Ask the nodes: all at once, or, where rivals would split the votes, one before the others."""
        if self.future.cancelled():
            # Its caller was cancelled in this tick and is about to give up.
            return
        now = self._context.clock()
        lead = self._lead() if lead_first else None
        if lead is None:
            self._ask(now)
        else:
            self._begin(now, self._led).ask_lead(lead)

    def wake(self, *, told: bool = False) -> None:
        """The resource may be free, as the servers told or this process knows: ask now, or soon where others were faster."""
        context, attempt = self._context, self._round
        if attempt is None:
            return
        if self._timer is None:
            # Still asking, and what was freed may be freed behind our question: look again after the refusal.
            self._look_again = True
            return
        if told:
            context.counters.wakeups += 1
        else:
            context.counters.wakeups_local += 1
        self._in_vain = self._in_vain + 1 if context.clock() - attempt.started < QUICK else 0
        delay = 0.0
        if self._in_vain or self._splits:
            delay = max(wake_delay(self._in_vain, context.draw()), split_delay(self._splits, context.draw()))
        # Alone, one round trip is enough.
        rivals = self._outrun or delay > 0.0 or self._lines.crowded(self)
        self._woken = True
        self._ask_in(delay, lead_first=rivals)

    def changed(self, index: int) -> None:
        """A node says that a key changed: ask once so many did that a quorum may be free."""
        attempt = self._round
        if attempt is None or attempt.replies[index] is None:
            return
        # Also while the round is open: a key that goes between this node's answer and the last one is told only once.
        if self._gone is None:
            self._gone = set()
        self._gone.add(index)
        self._look()

    def _look(self) -> None:
        """Wake up when a quorum may be free: nodes that said "gone", and those whose grant was taken back."""
        attempt, gone = self._round, self._gone
        if self._timer is None or attempt is None or not gone:
            return
        free = gone | {index for index, reply in enumerate(attempt.replies) if is_granted(reply)}
        only_lead = self._lead_index is not None and self._lead_index in gone
        if only_lead or len(free) >= self._context.quorum:
            self._gone = None
            self.wake(told=True)

    def _ask(self, now: float) -> None:
        self._lead_index = None
        self._begin(now, self._decided).ask()

    def _begin(self, now: float, on_decided: Callable[[Round], None]) -> Round:
        """A new attempt with a fresh token (the same one over attempts gives two holders in 11 model steps)."""
        context, spec = self._context, self._spec
        if self._round is not None:
            self._before = self._round
            self._stop_timer()
            self._round.on_late = None
            self._gone = None
            self._look_again = False
        context.counters.attempts += 1
        kind = spec.kind
        if kind.fencing:
            self._proposed_us = context.wall_us()
            self._fence = context.fences.propose(self._proposed_us)
        command = kind.acquiring(spec.keys, spec.slots, context.new_token(), spec.life.ttl_word, self._fence)
        self._round = attempt = Round(context, command, GRANTED, context.quorum, now, on_decided)
        return attempt

    def _lead(self) -> int | None:
        """The node that all contenders ask first: by the name, the first of those that answer."""
        nodes = self._context.fleet.nodes
        first = crc32(self.keys[0]) % len(nodes)
        order = [*range(first, len(nodes)), *range(first)]
        self._lead_index = next((index for index in order if nodes[index].ready), None)
        return self._lead_index

    def _led(self, attempt: Round) -> None:
        """The lead has answered, or has not in time."""
        assert self._lead_index is not None
        reply = attempt.replies[self._lead_index]
        if self.future.cancelled():
            self._decided(attempt)
            return
        if is_held(reply):
            self._context.counters.refused += 1
            self._wait_for_holder([held_for(reply)])
        else:
            self._lead_index = None
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
        attempt, self._round = self._round, None
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

    def _decided(self, attempt: Round) -> None:
        context, spec = self._context, self._spec
        if self.future.cancelled():
            # The caller was cancelled earlier in this tick, and has not come round to `give_up` yet.
            self._undo(attempt)
            self.give_up(None)
            return
        won, life = attempt.won, spec.life
        if won:
            now = context.clock()
            if deadline_of(attempt.started, life.ttl, life.drift) - now >= life.least_validity:
                if attempt.unfenced and spec.kind.fencing:
                    self._fence_again(attempt, now)
                    return
                self._stop()
                self._round = self._second = None
                context.counters.acquired += 1
                fence = self._fence if spec.kind.fencing else None
                holding = Holding(spec, attempt.token, attempt.started, attempt, attempt.replies, fence)
                self._extender.adopt(holding)
                self._lines.granted(self, holding, now)
                self.future.set_result(holding)
                return
        self._undo(attempt)
        self._refused(attempt, too_late=won)

    def _fence_again(self, attempt: Round, now: float) -> None:
        """Round 2: a fence above every counter seen, to the nodes that granted."""
        context, spec = self._context, self._spec
        context.counters.second_rounds += 1
        highest = max(map(counter_of, filter(is_granted, attempt.replies)))
        context.fences.overtaken(highest, self._proposed_us)
        self._proposed_us = context.wall_us()
        self._fence = context.fences.propose(self._proposed_us, highest)
        command = spec.kind.confirming(spec.keys, spec.slots, attempt.token, self._fence)
        self._second = Round(context, command, GRANTED, context.quorum, now, self._fenced)
        self._second.ask_some([index for index, reply in enumerate(attempt.replies) if is_granted(reply)])

    def _fenced(self, second: Round) -> None:
        """Round 2 is decided: with a quorum of acknowledgements this is the fence, else the attempt has failed."""
        attempt = self._round
        if self._second is not second or attempt is None:
            return
        for index, reply in enumerate(attempt.replies):
            if is_granted(reply):
                acknowledged = second.replies[index] == GRANTED
                attempt.replies[index] = GRANTED if acknowledged else [1, self._fence]
        attempt.unfenced = 0
        attempt.yes = second.yes
        if not second.won:
            self._context.fences.overtaken(max(map(counter_of, second.replies)), self._proposed_us)
        self._decided(attempt)

    def _undo(self, attempt: Round) -> None:
        self._releases.send(self._spec, attempt.token, attempt.replies, self._spec.life.ttl, self._context.clock())
        if any(map(is_granted, attempt.replies)):
            self._lines.undone(self)

    def _refused(self, attempt: Round, *, too_late: bool) -> None:
        context = self._context
        context.counters.refused += 1
        counted = tally(attempt.replies, context.quorum, context.quarantine)
        if counted.quarantined:
            context.doubt()
        reachable = counted.reachable and not too_late
        if counted.hopeless:
            self.give_up(self._error(QuorumUnreachable, "waiting does not cure what the nodes refuse"))
        elif self._blocking_timeout == 0:
            if reachable:
                self.give_up(self._error(LockHeld, "held by another"))
            else:
                why = "granted so late that too little of the ttl was left" if too_late else "no quorum could be asked"
                self.give_up(self._error(QuorumUnreachable, why))
        elif not reachable:
            self.unreachable = True
            self._failures += 1
            context.counters.unreachable += 1
            self._ask_in(unreachable_delay(self._failures, context.draw()), lead_first=False)
        else:
            self._splits = self._splits + 1 if counted.granted else 0
            self._wait_for_holder(counted.held, counted.failed)

    def _wait_for_holder(self, held: list[float | None], failed: int = 0) -> None:
        """Another holds it: sleep until it may be free, by what the nodes tell or by what the holder has left."""
        self._failures = 0
        self.unreachable = False
        self._outrun = self._outrun or self._woken
        self._lines.refused(self, woken=self._woken)
        self._wait(held, failed)
        if self._look_again:
            self.wake(told=True)
        elif self._round is not None:
            # An answer that comes after the decision may be the one that makes a free quorum.
            self._round.on_late = self._look
            self._look()

    def _wait(self, held: list[float | None], failed: int) -> None:
        """Until a wake-up, but not for ever: expiry and a slow look at all nodes are the safety net.

        That look asks all nodes, for a key that stays on the lead alone must not stop a majority.
        """
        context = self._context
        nodes = context.fleet.nodes
        lead = self._lead_index
        free_in = held[0] if lead is not None else quorum_free_in(held, context.quorum, len(nodes) - failed)
        if free_in == 0:
            self._ask_in(split_delay(self._splits, context.draw()), lead_first=lead is None)
            return
        tracking = nodes[lead].tracking if lead is not None else sum(n.tracking for n in nodes) >= context.quorum
        poll = (TRACKED_POLL if tracking else UNTRACKED_POLL) * (0.75 + context.draw() / 2)
        until_over = float("inf") if free_in is None else free_in + EXPIRY_MARGIN
        self._stop_timer()
        self._timer = context.loop.call_later(min(poll, until_over), self._unwoken, until_over < poll)

    def _unwoken(self, over: bool) -> None:
        """Nobody said anything, but the holder's time is over, or it is time for a slow look."""
        if over:
            self._context.counters.wakeups_expiry += 1
        else:
            self._context.counters.wakeups_fallback += 1
        self._ask_again(lead_first=False)

    def _ask_in(self, delay: float, *, lead_first: bool) -> None:
        self._stop_timer()
        if delay > 0:
            self._timer = self._context.loop.call_later(delay, self._ask_again, lead_first)
        else:
            self._ask_again(lead_first)

    def _ask_again(self, lead_first: bool) -> None:
        self._context.counters.looks += 1
        self.attempt(lead_first=lead_first)

    def _time_out(self) -> None:
        self._context.counters.timeouts += 1
        # Who waits behind another of this process has asked nobody: what stops that one stops it.
        if self.unreachable if self._round is not None else self._lines.unreachable(self.keys):
            self.give_up(self._error(QuorumUnreachable, f"no quorum answered within {self._blocking_timeout:g} s"))
        else:
            self.give_up(self._error(AcquireTimeout, f"still held by another after {self._blocking_timeout:g} s"))

    def _error(self, kind: type[LockNotAcquired], why: str) -> LockNotAcquired:
        elapsed = self._context.clock() - self._called_at
        attempt = self._round
        if attempt is not None and attempt.open and self._before is not None and not any(attempt.replies):
            # Just asked again: what the nodes said the last time tells more.
            attempt = self._before
        return not_acquired(kind, why, self._spec.resource, self._context, attempt, elapsed)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop(self) -> None:
        self._stop_timer()
        if self._round is not None:
            self._round.on_late = None
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
