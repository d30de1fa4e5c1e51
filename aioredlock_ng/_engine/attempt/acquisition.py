"""One acquisition, from the call to a holding or an error, as callbacks; its caller awaits one future and nothing else.

That is what makes it atomic under cancellation: between "a node was asked" and "somebody owns what it said" there is
no await at all. `give_up` undoes everything in the tick in which it is called, whatever state this is in.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from aioredlock_ng._core.backoff import second_try_delay
from aioredlock_ng._core.fencing import first_of
from aioredlock_ng._core.replies import GRANTED, Granted
from aioredlock_ng._core.tally import tally, with_second_round
from aioredlock_ng._core.validity import deadline_of
from aioredlock_ng._core.votes import Unsent, blocking_key, counter_of, is_granted, may_have_set
from aioredlock_ng._engine.attempt.errand import Errand
from aioredlock_ng._engine.attempt.refusal import name_owner, not_acquired
from aioredlock_ng._engine.attempt.round import Round
from aioredlock_ng._engine.keeping.holding import Holding
from aioredlock_ng.errors import AcquireTimeout, LockHeld, QuorumUnreachable
from aioredlock_ng.events import WaiterWoken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._core.tally import Tally
    from aioredlock_ng._core.tickets import WakeCause
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.releases import Releases
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.extender import Extender
    from aioredlock_ng._engine.keeping.label_look import Look
    from aioredlock_ng._engine.spec import LockSpec
    from aioredlock_ng._engine.waiting.lines import Line, Lines
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
        keys: What it wants.
        fair: See `Contender.fair`.
        line: See `Contender.line`.
        round: The latest attempt.
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
        "attempts",
        "called_at",
        "fair",
        "future",
        "keys",
        "line",
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
        self._fence = self._proposed_us = self.attempts = 0
        self._covers = self._doubted = False
        self._limit: asyncio.TimerHandle | None = None
        self._look: Look | None = None
        self.unreachable = True
        self.keys = spec.keys
        self.fair = spec.fair
        self.line: Line | None = None
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
        if self._alone:
            if self._blocking_timeout is None:
                # It may have to queue after that attempt, and no task runs then that could be refused.
                self.refuse_deadlock(self._lines.holders(self.keys))
        elif not self._lines.join(self):
            return
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

    def attempt(self, claim: bytes = b"", cause: WakeCause | None = None) -> None:
        """See `Contender.attempt`."""
        if self.future.cancelled():
            # Its caller was cancelled in this tick and is about to give up.
            return
        if cause is not None:
            self._woken(cause)
            if self.future.done():
                # A listener has closed the manager, and an attempt now would have no owner.
                return
        self._ask(self._context.clock(), claim)

    @property
    def resource(self) -> str:
        """The lock's name."""
        return self._spec.resource

    @property
    def waited(self) -> float:
        """Seconds since the call."""
        return self._context.clock() - self.called_at

    @property
    def asking(self) -> bool:
        """See `Contender.asking`."""
        return any(round_ is not None and round_.open for round_ in (self.round, self._second))

    def doubt(self, index: int | None = None) -> None:
        """See `Contender.doubt`."""
        if (
            index is not None
            and self.round is not None
            and not is_granted(self.round.replies[index])
        ):
            return
        self._covers = False
        self._doubted = True

    def _woken(self, cause: WakeCause) -> None:
        counters = self._context.counters
        counters.looks += 1
        if cause == "told":
            counters.wakeups += 1
        elif cause == "expiry":
            counters.wakeups_expiry += 1
        else:
            counters.wakeups_fallback += 1
        if (tell := self._context.tell) is not None:
            tell(WaiterWoken(self._spec.resource, cause))

    def _ask(self, now: float, claim: bytes = b"") -> None:
        followed = self._lines.is_followed(self)
        attempt = self._begin(now, claim, followed=followed)
        attempt.ask()
        if followed:
            # In the same write, behind it: what may be gone must not be passed on, so the nodes are to tell.
            self._covers = True
            command = self._spec.kind.watching(self.keys, (attempt.token,) * len(self.keys))
            self._context.fleet.ask(Errand(command, now))

    def _begin(self, now: float, claim: bytes, *, followed: bool) -> Round:
        """A new attempt with a fresh token (the same one over attempts gives two holders in 11 model steps)."""
        context, spec = self._context, self._spec
        if self.round is not None:
            self._before = self.round
            self._hear_no_more()
        self._second = None
        context.counters.attempts += 1
        self.attempts += 1
        self._covers = self._doubted = False
        kind = spec.kind
        if kind.fencing:
            self._fence = context.fences.propose(context.wall_us(), spec.slots)
            self._proposed_us = self._fence - context.fences.offset
        token = context.new_token()
        command = kind.acquiring(
            spec.keys,
            spec.slots,
            token,
            spec.life.ttl_word,
            self._fence,
            claim,
            tell_counter=followed,
        )
        self.round = attempt = Round(context, command, GRANTED, context.quorum, now, self._decided)
        attempt.token = token
        return attempt

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
        # Before the round ends: the line must know whether an attempt was under way.
        self._lines.leave(self)
        attempt, self.round = self.round, None
        # `name_holder` still asks which key it was refused for.
        self._before = attempt or self._before
        second, self._second = self._second, None
        if attempt is not None and (attempt.open or (second is not None and second.open)):
            attempt.open = False
            self._undo(attempt, attempt.replies)
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
            self._undo(attempt, attempt.replies)
            self.give_up(None)
            return
        life, trouble = spec.life, ""
        if attempt.won:
            now = context.clock()
            if deadline_of(attempt.started, life.ttl, life.drift) - now >= life.least_validity:
                if attempt.unfenced and spec.kind.fencing:
                    self._fence_again(attempt, now)
                    return
                stored = self._fence
                fence = stored if spec.kind.fencing else None
                if attempt.before is not None and second is None:
                    fence = first_of(stored, attempt.before)
                holding = Holding(
                    spec,
                    attempt.token,
                    attempt.started,
                    attempt,
                    attempt.replies,
                    fence,
                    stored,
                    self._covers,
                )
                self.take(holding)
                if self._doubted:
                    # Without this its holder would not learn for `validity.WATCH_AFTER` that nothing is left of it.
                    self._extender.watch(holding)
                self.round = self._second = None
                self._lines.granted(self, holding, now, attempt)
                return
            trouble = "granted so late that too little of the ttl was left"
        granted = list(attempt.replies)
        if second is not None and not trouble:
            self._without_fence(attempt, second)
        self._refused(attempt, trouble, granted)

    def successor(self, holding: Holding, now: float) -> Holding | None:
        """See `Contender.successor`."""
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
        self._second.ask_some(
            [
                index
                for index, reply in enumerate(attempt.replies)
                if reply is None or is_granted(reply)
            ]
        )

    def _fenced(self, second: Round) -> None:
        """Round 2 is decided: with a quorum of acknowledgements this is the fence, else the attempt has failed."""
        attempt = self.round
        if self._second is not second or attempt is None:
            return
        for index, reply in enumerate(attempt.replies):
            if is_granted(reply):
                acknowledged = second.replies[index] is GRANTED
                attempt.replies[index] = GRANTED if acknowledged else Granted(self._fence)
        attempt.unfenced = 0
        attempt.yes = second.yes
        self._decided(attempt, second)

    def _without_fence(self, attempt: Round, second: Round) -> None:
        """Judge the nodes by their latest answers, which may still come: all that granted are released on by now."""

        def count(_index: int = 0) -> None:
            attempt.replies[:] = with_second_round(
                attempt.replies, second.replies, self._fence, expired=second.expired
            )

        count()
        attempt.expired |= second.expired
        second.on_late = count

    def _undo(self, attempt: Round, replies: list[Reply]) -> None:
        """Release what nodes granted by these replies, those that have not answered included."""
        if any(map(may_have_set, replies)):
            life = self._spec.life
            self._releases.send(self._spec, attempt.token, replies, life.ttl, self._context.clock())

    def _refused(self, attempt: Round, trouble: str, granted: list[Reply]) -> None:
        """It has failed: by what the nodes said, or by `trouble`, which no holder is to blame for.

        Args:
            attempt: The attempt.
            trouble: Why a quorum of grants was not enough; "" otherwise.
            granted: The replies by which the attempt is undone.
        """
        context = self._context
        context.counters.refused += 1
        counted = tally(attempt.replies, context.quorum, context.quarantine)
        reachable = counted.reachable and not trouble
        waits = not (
            self._blocking_timeout == 0
            or (self._spec.fail_fast and not reachable and context.no_quorum())
        )
        if waits and reachable and not self._alone and not counted.hopeless:
            self.unreachable = False
            # Before the release: nodes that granted offer the key to the first in the queue.
            self._lines.refused(self, attempt)
            self._undo(attempt, granted)
            return
        self._undo(attempt, granted)
        if counted.hopeless:
            self.give_up(
                self._error(QuorumUnreachable, "waiting does not cure what the nodes refuse")
            )
        elif not waits:
            self._fail(attempt, trouble, counted)
        elif self._alone:
            # Asked without a quorum in sight, but one answers: it waits as everybody does.
            self._alone = False
            self.round = self._second = None
            if self._lines.join(self):
                self._ask(context.clock())
        else:
            self.unreachable = True
            context.counters.unreachable += 1
            self._lines.unreachable(self)

    def _fail(self, attempt: Round, trouble: str, counted: Tally) -> None:
        """End an attempt that does not wait, or make its only second try."""
        context = self._context
        others = self._lines.holders(self.keys)
        if not counted.reachable or trouble:
            unfenced = (
                "granted, but no quorum answered to its fence" if self._second is not None else ""
            )
            self.give_up(
                self._error(QuorumUnreachable, trouble or unfenced or "no quorum could be asked")
            )
        elif (
            self.attempts == 1
            and not others
            and counted.contested(context.quorum, self._spec.life.ttl, context.patience)
        ):
            delay = second_try_delay(
                context.clock() - attempt.started, context.options.node_timeout, context.draw()
            )
            self._limit = context.loop.call_later(delay, self._try_again)
        else:
            self.give_up(self._refusal(LockHeld, "held by another", others))

    def _try_again(self) -> None:
        """Ask once more, for rivals of the same instant: without this none of them would get what is free."""
        self._limit = None
        # A caller that was cancelled in this tick is about to give up.
        if not self.future.cancelled():
            self._ask(self._context.clock())
            self._context.fleet.hurry()

    def _nearly_time_out(self, ends_at: float) -> None:
        self._limit = self._context.loop.call_at(ends_at, self._time_out)
        labels = self._context.labels
        if labels is not None and not self._lines.holders(self.keys):
            self._look = labels.looks.ask(self._context, self._spec.kind, self._blocking_key())

    def _time_out(self) -> None:
        self._context.counters.timeouts += 1
        # Who waits behind another of this process has asked nobody: what stops that one stops it.
        if self.unreachable if self.round is not None else self._lines.left_behind(self):
            self.give_up(
                self._error(
                    QuorumUnreachable, f"no quorum answered within {self._blocking_timeout:g} s"
                )
            )
        else:
            holders = self._lines.holders(self.keys)
            where = " in this process" if holders else ""
            why = f"still held by another{where} after {self._blocking_timeout:g} s"
            self.give_up(self._refusal(AcquireTimeout, why, holders))

    def _blocking_key(self) -> bytes:
        """The key that it waits for, by what its latest attempt was refused for."""
        attempt = self.round or self._before
        return self.keys[0] if attempt is None else blocking_key(attempt.replies, self.keys)

    def _error(self, kind: type[_Error], why: str) -> _Error:
        attempt = self.round
        if (
            attempt is not None
            and attempt.open
            and self._before is not None
            and not any(map(_is_news, attempt.replies))
        ):
            # Just asked again: what the nodes said the last time tells more.
            attempt = self._before
        return not_acquired(kind, why, self._spec.resource, self._context, attempt, self.waited)

    def _refusal(
        self, kind: type[LockHeld | AcquireTimeout], why: str, holders: Sequence[Holding] = ()
    ) -> LockNotAcquired:
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
            label = await labels.looks.ask(
                self._context, self._spec.kind, self._blocking_key()
            ).ended()
            if label is not None:
                name_owner(error, label)

    def _stop(self) -> None:
        self._hear_no_more()
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _hear_no_more(self) -> None:
        if self.round is not None:
            self.round.on_late = None
        if self._second is not None:
            self._second.on_late = None


def _is_news(reply: Reply) -> bool:
    """True for an answer; that a node is down is said at once, each time."""
    return reply is not None and type(reply) is not Unsent
