"""One call of `acquire()`: its result, its time limit and its waiting line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.slots import blocks_itself
from aioredlock_ng._engine.attempt.acquisition_errors import (
    ask_for_label,
    held_by_another,
    name_holder,
    not_acquired,
)
from aioredlock_ng._engine.attempt.second_round import SecondRound
from aioredlock_ng._engine.caller import caller_in_words, caller_inside
from aioredlock_ng.errors import LockHeld, QuorumUnreachable, UpgradeRefused
from aioredlock_ng.events import WaiterWoken

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from aioredlock_ng._engine.attempt.releases import Releases
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.extender import Extender
    from aioredlock_ng._engine.keeping.holder_label import Look
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.spec import LockSpec
    from aioredlock_ng._engine.waiting.line import Line
    from aioredlock_ng._engine.waiting.lines import Lines
    from aioredlock_ng._vocabulary.causes import WakeCause

__all__ = ["Call"]


class Call(SecondRound):
    """One call of `acquire()`.

    `Attempts` and `Contender` describe the attributes that are not listed here.

    Args:
        releases: Sends the releases that undo failed attempts.
        extender: Owns the lease after the grant.
        blocking_timeout: Longest wait in seconds. With None, the call waits for ever. With 0, it
            does not wait in a line or in the queues.
        alone: True if the call makes its first attempt without waiting in a line.

    Attributes:
        unreachable: True until a quorum has answered, and again after an attempt that reached no
            quorum. While it is True, a call that asks the nodes raises `QuorumUnreachable` at its
            time limit.
        future: Resolved with the lease or the error of the call.
    """

    __slots__ = (
        "_alone",
        "_blocking_timeout",
        "_extender",
        "_limit",
        "_lines",
        "_look",
        "booked",
        "fair",
        "future",
        "keys",
        "line",
        "line_key",
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
        self.context = context
        self._lines = lines
        self._releases = releases
        self._extender = extender
        self.spec = self.target = spec
        self._blocking_timeout = blocking_timeout
        self._alone = alone
        self.called_at = context.clock()
        self.round: Round | None = None
        self.before: Round | None = None
        self._second: Round | None = None
        self._fence = self._proposed_us = self.attempts = 0
        self._covers = self._doubted = False
        self._limit: asyncio.TimerHandle | None = None
        self._look: Look | None = None
        self.unreachable = True
        self.keys = spec.keys
        self.line_key = spec.line
        self.fair = spec.fair
        self.line: Line[LeaseRecord] | None = None
        self.booked: Line[LeaseRecord] | None = None
        self.future: asyncio.Future[LeaseRecord] = context.loop.create_future()

    def successor(self, lease: LeaseRecord, now: float) -> LeaseRecord | None:
        """Return a lease of the same grant for this caller; None if the nodes must be asked."""
        # A caller that was cancelled in this tick, and has not called `give_up` yet, gets no lease.
        if self.future.cancelled():
            return None
        slots, number = self.spec.slots, lease.spec.number
        wanted = self.spec if slots is None or number is None else slots[number]
        return lease.passed_on(wanted, now)

    def take(self, lease: LeaseRecord) -> None:
        self._stop()
        self.context.counters.acquired += 1
        self._extender.adopt(lease)
        self.future.set_result(lease)

    def fail_with(self, attempt: Round, why: str) -> None:
        self.before = self.before or attempt
        self.give_up(not_acquired(QuorumUnreachable, why, self))

    def give_up(self, error: BaseException | None) -> None:
        """End the acquisition. The subclass implements this."""
        raise NotImplementedError

    def refuse_deadlock(self, holders: Sequence[LeaseRecord]) -> None:
        """Raise an error if the caller would wait for ever for a lock that it holds itself.

        The holder of a semaphore waits for itself only if it holds all slots. A call with a time
        limit ends by itself, so it is not refused. There is one exception: a call for a lock is
        always refused if its caller reads the lock in an enclosing block.

        Raises:
            LockHeld: Raised if the calling task or thread holds the lock in an enclosing block.
            UpgradeRefused: Raised if the caller has a read lease, and asks for a write lease.
        """
        inside = caller_inside()
        if inside is None:
            return
        who, block = caller_in_words()
        now = self.context.clock()
        reading = [held for held in holders if held.spec.kind.shared]
        if self.spec.kind.shared:
            holders = [held for held in holders if not held.spec.kind.shared]
        elif self.spec.slots is None and any(
            inside(held) and held.remaining(now) > 0.0 for held in reading
        ):
            why = (
                f"this very {who} reads it in an enclosing `{block}`, and a read lease cannot"
                " become a write lease; leave that block first, acquire `write()`, read again"
            )
            raise held_by_another(UpgradeRefused, why, self, ())
        if self._blocking_timeout is not None:
            return
        own = {
            key
            for held in holders
            if inside(held) and held.remaining(now) > 0.0
            for key in held.spec.keys
        }
        if blocks_itself(self.keys, own, any_one=self.spec.slots is not None):
            why = f"this very {who} holds it in an enclosing `{block}` and would wait for ever"
            raise held_by_another(LockHeld, why, self, holders)

    @property
    def _rivals(self) -> list[LeaseRecord]:
        """The leases of this process for which the call must wait."""
        return self._lines.excluding(self.keys, shared=self.spec.kind.shared)

    @property
    def _held_by(self) -> str:
        slots = self.spec.slots
        return "held by another" if slots is None else f"held by others, in all {slots.limit} slots"

    def _woken(self, cause: WakeCause) -> None:
        counters = self.context.counters
        counters.woken_attempts += 1
        if cause == "notified":
            counters.wakeups += 1
        elif cause == "expiry":
            counters.wakeups_expiry += 1
        else:
            counters.wakeups_fallback += 1
        if (report := self.context.report) is not None:
            report(WaiterWoken(self.spec.resource, cause))

    async def name_holder(self, error: LockHeld) -> None:
        """Add the label of the holder to the error of this call, if the error has no label yet.

        Safety: a cancellation leaves the error as it was.
        """
        await name_holder(error, self)

    def _nearly_time_out(self, ends_at: float) -> None:
        self._limit = self.context.loop.call_at(ends_at, self._time_out)
        if not self._rivals:
            self._look = ask_for_label(self)

    def _time_out(self) -> None:
        """End the call, because `blocking_timeout` has passed. The subclass implements this."""
        raise NotImplementedError

    def _stop(self) -> None:
        self._hear_no_more()
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
