"""One acquisition, from the call of `acquire()` to a lease or an error.

The caller awaits one future. After `start`, an acquisition runs in callbacks only. A request is
sent, and the receiver of its answers is registered, without an await in between. So an acquisition
is atomic under cancellation: `give_up` undoes it in any state, within one tick of the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.backoff import second_try_delay
from aioredlock_ng._core.fencing import first_of
from aioredlock_ng._core.slots import free_slots, soonest
from aioredlock_ng._core.tally import tally
from aioredlock_ng._core.validity import is_in_time
from aioredlock_ng._engine.attempt.acquisition_errors import (
    held_by_another,
    not_acquired,
    why_no_quorum,
)
from aioredlock_ng._engine.attempt.call import Call
from aioredlock_ng._engine.attempt.errand import Errand
from aioredlock_ng._engine.attempt.slot_look import SlotLook
from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
from aioredlock_ng.errors import AcquireTimeout, LockHeld, QuorumUnreachable

if TYPE_CHECKING:
    from aioredlock_ng._core.tally import Tally
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._vocabulary.causes import WakeCause

__all__ = ["Acquisition"]

MOST_TRIES = 5
"""Largest number of attempts if a call asks for a semaphore and must not wait. One attempt is not
enough, because another client may take the chosen slot first."""


class Acquisition(Call):
    """A call of `acquire()` that waits in line, asks the nodes and acts on their answers."""

    __slots__ = ()

    def start(self) -> None:
        """Join the waiting line, share a read grant, or send the first attempt to the nodes.

        Raises:
            LockHeld: Raised if the caller would wait for itself; see `refuse_deadlock`.
        """
        asks = True
        if not self._alone:
            asks = self._lines.join(self)
        elif self.spec.kind.shared and self._lines.shared(self):
            return
        elif self._blocking_timeout is None or (
            self.spec.slots is None and self._lines.reads(self.keys)
        ):
            # The call may join a line later, in a callback without a current task. So the caller's
            # task is compared with the holder's task now.
            self.refuse_deadlock(self._lines.holders(self.keys))
        # A call that was refused above, or has its lease already, must leave no timer behind.
        if self._blocking_timeout and not self.future.done():
            loop = self.context.loop
            ends_at = loop.time() + self._blocking_timeout
            # The label of the holder is requested some time before the limit. So the error can name
            # the holder, and is still raised at the limit.
            early = min(self.context.options.node_timeout, self._blocking_timeout / 2)
            self._limit = loop.call_at(ends_at - early, self._nearly_time_out, ends_at)
        if asks:
            self._ask(self.called_at)

    def attempt(self, claim: bytes = b"", cause: WakeCause | None = None, number: int = 0) -> None:
        """Ask all nodes for the lock, as `Contender.attempt` describes."""
        if self.future.cancelled():
            # The caller was cancelled in this tick, and will call `give_up`. No attempt may begin.
            return
        if cause is not None:
            self._woken(cause)
            if self.future.done():
                # A listener of events has closed the manager. The acquisition has ended, and must
                # not begin an attempt.
                return
        self._ask(self.context.clock(), claim, number)

    def _ask(self, now: float, claim: bytes = b"", number: int = 0) -> None:
        if self.spec.slots is not None:
            self.target = self._lines.choose(self, self.spec.slots, number)
        followed = self._lines.is_followed(self)
        attempt = self._begin(now, claim, followed=followed)
        attempt.ask()
        if followed:
            # In the same write as the acquire, this command asks the nodes to report changes of the
            # keys. Without these reports, a grant whose keys are gone could be passed on.
            self._covers = True
            keys = self.target.keys
            command = self.spec.kind.watching(keys, (attempt.token,) * len(keys))
            self.context.fleet.ask(Errand(command, now))

    def _undo(self, attempt: Round, replies: list[Reply]) -> None:
        if self.target.number is not None:
            self._lines.unused(self, self.target.number)
        super()._undo(attempt, replies)

    def give_up(self, error: BaseException | None) -> None:
        """End the acquisition, in any state.

        The keys of an attempt under way are released. The next task in line replaces a contender
        that gives up. If `error` is None, the caller was cancelled. In this case, a lease that was
        granted in the same tick is released.
        """
        future = self.future
        if future.done() and not future.cancelled():
            if error is None and future.exception() is None:
                # The lock was granted in the tick in which the caller was cancelled.
                self._extender.release(future.result())
            return
        self._stop()
        # `leave` must see that an attempt is under way, so the attempt is closed only after this
        # call.
        self._lines.leave(self)
        attempt, self.round = self.round, None
        # The attempt is kept in `before`, because `name_holder` reads there which key was refused.
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
        context, spec = self.context, self.target
        if self.future.cancelled():
            # The caller was cancelled earlier in this tick, and has not called `give_up` yet.
            self._undo(attempt, attempt.replies)
            self.give_up(None)
            return
        life, trouble = spec.life, ""
        if attempt.won:
            now = context.clock()
            if is_in_time(attempt.started, now, life.ttl, life.drift, life.least_validity):
                if (
                    attempt.unfenced
                    and spec.kind.fencing
                    and not (spec.kind.shared and self._agree(attempt))
                ):
                    self._fence_again(attempt, now)
                    return
                stored = self._fence
                fence = stored if spec.kind.fencing else None
                if attempt.before is not None and second is None:
                    fence = first_of(stored, attempt.before)
                lease = LeaseRecord(
                    spec,
                    attempt.token,
                    attempt.started,
                    attempt,
                    attempt.replies,
                    fence,
                    stored,
                    self._covers,
                )
                self.take(lease)
                if self._doubted:
                    # The keys may have changed. Without this watch, lost keys would stay unnoticed
                    # for `watch_after` seconds.
                    self._extender.watch(lease)
                self.round = self._second = None
                self._lines.granted(self, lease, now, attempt)
                return
            trouble = "granted so late that too little of the ttl was left"
            if life.min_hold:
                trouble = "granted so late that its keys might expire before min_hold is over"
        granted = list(attempt.replies)
        if second is not None and not trouble:
            self._without_fence(attempt, second)
        self._refused(attempt, trouble, granted)

    def _refused(self, attempt: Round, trouble: str, granted: list[Reply]) -> None:
        """Undo a failed attempt. Then wait, ask again, or end the acquisition.

        `trouble` is the reason why a quorum of grants was not enough; "" if there was no quorum.
        `granted` are the answers to the acquire, before a second round changed them. These answers
        show which nodes may have set keys. These nodes get a release.
        """
        context = self.context
        context.counters.refused += 1
        counted = tally(attempt.replies, context.quorum, context.quarantine)
        reachable = counted.reachable and not trouble
        lost = not reachable and context.no_quorum()
        waits = not (self._blocking_timeout == 0 or (self.spec.fail_fast and lost))
        if waits and reachable and not self._alone and not counted.hopeless:
            self.unreachable = False
            # The command to enter the queues is sent before the release. A node that granted can
            # then offer the key to this line at the release.
            self._lines.refused(self, attempt)
            self._undo(attempt, granted)
            return
        self._undo(attempt, granted)
        why = why_no_quorum(counted, trouble, unfenced=self._second is not None)
        if lost:
            self._lines.fail_behind(self, attempt, why)
        if counted.hopeless:
            self.give_up(not_acquired(QuorumUnreachable, why, self))
        elif not waits:
            self._fail(attempt, counted, why if not reachable else "")
        elif self._alone:
            # No quorum could grant when the call began, so the call joined no line. Now a quorum
            # may grant, so the call joins its line.
            self._alone = False
            self.round = self._second = None
            if self._lines.join(self):
                self._ask(context.clock())
        else:
            self.unreachable = True
            context.counters.unreachable += 1
            self._lines.unreachable(self)

    def _fail(self, attempt: Round, counted: Tally, why: str) -> None:
        """End an acquisition that does not wait, or schedule its next attempt.

        `why` is the reason why no quorum could grant; "" if a quorum could be asked.
        """
        context = self.context
        others = self._rivals
        if why:
            self.give_up(not_acquired(QuorumUnreachable, why, self))
        elif (
            self.attempts == 1
            and not others
            and counted.contested(context.quorum, self.spec.life.first_ttl, context.patience)
        ):
            delay = second_try_delay(
                context.clock() - attempt.started, context.options.node_timeout, context.draw()
            )
            self._limit = context.loop.call_later(delay, self._try_again)
        elif self.spec.slots is not None and self.attempts < MOST_TRIES:
            self._look_for_free_slot()
        else:
            self.give_up(held_by_another(LockHeld, self._held_by, self, others, self._look))

    def _look_for_free_slot(self) -> None:
        SlotLook(self.context, self.spec, self._looked).ask()

    def _looked(self, look: Round) -> None:
        if self.future.done():
            return
        free = free_slots(look.replies, self.context.quorum)
        number = self._lines.pick(self, free)
        if number:
            self._ask(self.context.clock(), b"", number)
            self.context.fleet.hurry()
        elif not look.won:
            self.give_up(
                not_acquired(QuorumUnreachable, "no quorum reported which slots are free", self)
            )
        else:
            left = soonest(look.replies)
            self.give_up(held_by_another(LockHeld, self._held_by, self, (), retry_after=left))

    def _try_again(self) -> None:
        """Make a second attempt after a split vote. For a semaphore, look for a free slot first.

        If several clients ask at the same instant, each may get some votes, but none a quorum.
        Without a second attempt after a random pause, no client would get the free lock.
        """
        self._limit = None
        if self.future.cancelled():
            # The caller was cancelled in this tick, and will call `give_up`. No attempt may begin.
            return
        if self.spec.slots is not None:
            self._look_for_free_slot()
        else:
            self._ask(self.context.clock())
            self.context.fleet.hurry()

    def _time_out(self) -> None:
        self.context.counters.timeouts += 1
        # Only the first task of a line, its contender, asks the nodes. For the tasks behind it,
        # `left_behind` reads from the contender's attempts which error to raise.
        if self.unreachable if self.round is not None else self._lines.left_behind(self):
            why = f"no quorum answered within {self._blocking_timeout:g} s"
            self.give_up(not_acquired(QuorumUnreachable, why, self))
        else:
            holders = self._rivals
            where = " in this process" if holders and self.spec.slots is None else ""
            why = f"still {self._held_by}{where} after {self._blocking_timeout:g} s"
            place = None if self.line is None else self.line.place
            left = None if place is None else place.free_in
            self.give_up(
                held_by_another(AcquireTimeout, why, self, holders, self._look, retry_after=left)
            )
