"""One acquisition, from the call to a holding or an error, as callbacks; its caller awaits one future and nothing else.

That is what makes it atomic under cancellation: between "a node was asked" and "somebody owns what it said" there is
no await at all. `give_up` undoes everything in the tick in which it is called, whatever state this is in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.backoff import second_try_delay
from aioredlock_ng._core.fencing import first_of
from aioredlock_ng._core.tally import tally
from aioredlock_ng._core.validity import deadline_of
from aioredlock_ng._engine.attempt.call import Call
from aioredlock_ng._engine.attempt.errand import Errand
from aioredlock_ng._engine.attempt.refusal import (
    ask_for_label,
    held_by_another,
    not_acquired,
)
from aioredlock_ng._engine.keeping.holding import Holding
from aioredlock_ng.errors import AcquireTimeout, LockHeld, QuorumUnreachable

if TYPE_CHECKING:
    from aioredlock_ng._core.tally import Tally
    from aioredlock_ng._core.tickets import WakeCause
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.round import Round

__all__ = ["Acquisition"]


class Acquisition(Call):
    """Takes a call through its line and its attempts to its end."""

    __slots__ = ()

    def start(self) -> None:
        """Begin, in this very tick.

        Raises:
            LockHeld: The task holds it itself through an enclosing `async with` and would wait for itself for ever.
        """
        if self._blocking_timeout:
            loop = self.context.loop
            ends_at = loop.time() + self._blocking_timeout
            # In time for the answers: the error must not come later because it names the holder.
            early = min(self.context.options.node_timeout, self._blocking_timeout / 2)
            self._limit = loop.call_at(ends_at - early, self._nearly_time_out, ends_at)
        if self._alone:
            if self._blocking_timeout is None:
                # It may have to queue after that attempt, and no task runs then that could be refused.
                self.refuse_deadlock(self._lines.holders(self.keys))
        elif not self._lines.join(self):
            return
        self._ask(self.called_at)

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
        self._ask(self.context.clock(), claim)

    def _ask(self, now: float, claim: bytes = b"") -> None:
        followed = self._lines.is_followed(self)
        attempt = self._begin(now, claim, followed=followed)
        attempt.ask()
        if followed:
            # In the same write, behind it: what may be gone must not be passed on, so the nodes are to tell.
            self._covers = True
            command = self.spec.kind.watching(self.keys, (attempt.token,) * len(self.keys))
            self.context.fleet.ask(Errand(command, now))

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
        self.before = attempt or self.before
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
        context, spec = self.context, self.spec
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

    def _refused(self, attempt: Round, trouble: str, granted: list[Reply]) -> None:
        """It has failed: by what the nodes said, or by `trouble`, which no holder is to blame for.

        Args:
            attempt: The attempt.
            trouble: Why a quorum of grants was not enough; "" otherwise.
            granted: The replies by which the attempt is undone.
        """
        context = self.context
        context.counters.refused += 1
        counted = tally(attempt.replies, context.quorum, context.quarantine)
        reachable = counted.reachable and not trouble
        waits = not (
            self._blocking_timeout == 0
            or (self.spec.fail_fast and not reachable and context.no_quorum())
        )
        if waits and reachable and not self._alone and not counted.hopeless:
            self.unreachable = False
            # Before the release: nodes that granted offer the key to the first in the queue.
            self._lines.refused(self, attempt)
            self._undo(attempt, granted)
            return
        self._undo(attempt, granted)
        if counted.hopeless:
            why = "waiting does not cure what the nodes refuse"
            self.give_up(not_acquired(QuorumUnreachable, why, self))
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
        context = self.context
        others = self._lines.holders(self.keys)
        if not counted.reachable or trouble:
            unfenced = (
                "granted, but no quorum answered to its fence" if self._second is not None else ""
            )
            why = trouble or unfenced or "no quorum could be asked"
            self.give_up(not_acquired(QuorumUnreachable, why, self))
        elif (
            self.attempts == 1
            and not others
            and counted.contested(context.quorum, self.spec.life.ttl, context.patience)
        ):
            delay = second_try_delay(
                context.clock() - attempt.started, context.options.node_timeout, context.draw()
            )
            self._limit = context.loop.call_later(delay, self._try_again)
        else:
            self.give_up(held_by_another(LockHeld, "held by another", self, others, self._look))

    def _try_again(self) -> None:
        """Ask once more, for rivals of the same instant: without this none of them would get what is free."""
        self._limit = None
        # A caller that was cancelled in this tick is about to give up.
        if not self.future.cancelled():
            self._ask(self.context.clock())
            self.context.fleet.hurry()

    def _nearly_time_out(self, ends_at: float) -> None:
        self._limit = self.context.loop.call_at(ends_at, self._time_out)
        if not self._lines.holders(self.keys):
            self._look = ask_for_label(self)

    def _time_out(self) -> None:
        self.context.counters.timeouts += 1
        # Who waits behind another of this process has asked nobody: what stops that one stops it.
        if self.unreachable if self.round is not None else self._lines.left_behind(self):
            why = f"no quorum answered within {self._blocking_timeout:g} s"
            self.give_up(not_acquired(QuorumUnreachable, why, self))
        else:
            holders = self._lines.holders(self.keys)
            where = " in this process" if holders else ""
            why = f"still held by another{where} after {self._blocking_timeout:g} s"
            self.give_up(held_by_another(AcquireTimeout, why, self, holders, self._look))
