"""Define the methods of a lease that other parts of the library call."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.replies import Released, released
from aioredlock_ng._core.votes import may_have_set
from aioredlock_ng._engine.caller import calling_task, threads
from aioredlock_ng._forks import OfOneProcess
from aioredlock_ng._leases.loss_points import reached
from aioredlock_ng._outlasting import outlast_cancellation
from aioredlock_ng.errors import LockLost, LockReleased, QuorumUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from aioredlock_ng._core.votes import Vote
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord

__all__ = ["CLOSED_AMID", "Held", "thread_inside", "until_decided"]

R = TypeVar("R")

CLOSED_AMID = "the Redlock was closed at the moment when this acquisition was granted"
"""Error message for a caller whose task had not received its lease yet when `aclose` released
it."""


class Held(OfOneProcess):
    """The base of `Lease`, with the methods that users do not call."""

    __slots__ = ("_engine", "_record")

    def __init__(self, engine: Engine, record: LeaseRecord) -> None:
        self._engine = engine
        self._record = record

    def entered(self, task: asyncio.Task[object], on_lost: Callable[[], None] | None) -> None:
        """Record that `task` enters an `async with` of this lease.

        Internal: for `Lock` and elections. `on_lost` is called once if the lease is lost inside the
        block.

        Raises:
            QuorumUnreachable: The lease has already ended, so the block must not begin.
        """
        self._engine.extender.check(self._record)
        self._refuse_over()
        self._record.task = task
        self._record.on_lost = on_lost

    def _refuse_over(self) -> None:
        now, resource = self._engine.context.clock(), self._record.spec.resource
        if self._record.remaining(now) <= 0.0:
            over = self._record.phase in (Phase.HELD, Phase.LOST)
            lost = self.lost_error() if over else "it was released"
            raise QuorumUnreachable(
                f"{resource!r} was granted, but the lease ended before this task ran: {lost}",
                resource=resource,
                elapsed=now - self._record.since,
            )

    def left(self) -> None:
        """Record that the `async with` was left.

        Internal: for `Lock` and elections.
        """
        reached("released", self)
        self._leave()

    def _leave(self) -> None:
        self._record.task = self._record.on_lost = None
        if self._engine.on_loop():
            self._engine.extender.check(self._record)

    def let_go(self) -> None:
        """End the lease without waiting for the nodes to confirm the release.

        Internal: for `Lock`.
        """
        self.left()
        if self._engine.on_loop() and not self._is_used():
            self._engine.extender.release(self._record)

    def used_by(self, still_used: Callable[[Callable[[], None]], bool]) -> None:
        """Declare that a thread may work under the lease.

        Internal: for integrations. The lease is not released before the thread has ended.

        Args:
            still_used: A function that receives a callback. If the thread still works, the function
                returns True, and calls the callback when the thread ends. Otherwise it returns
                False. See `LeaseRecord.still_used`.
        """
        self._record.still_used = still_used

    def expire_at_close(self) -> None:
        """Let the keys expire if the manager is closed while the lease is in use.

        Internal: for elections. The next leader must not begin while this leader still cleans up.
        """
        self._record.expires_at_close = True

    @property
    def overdue(self) -> float:
        """Seconds for which other clients may have held the lock, since the loss or the deadline.

        Internal: for elections. A lost lease whose keys are left to expire counts from its
        deadline, and has a negative value before. A valid, released or abandoned lease has the
        value 0.0.
        """
        record = self._record
        if record.phase is not Phase.HELD and record.phase is not Phase.LOST:
            return 0.0
        since = record.deadline if record.forsaken else self._loss()[1]
        past = self._engine.context.clock() - since
        return max(0.0, past) if record.phase is Phase.HELD else past

    def ends_by_max_hold(self, within: float) -> bool:
        """Return True if `max_hold` ends at most `within` seconds after the deadline.

        Internal: for elections.
        """
        record = self._record
        return record.ends_at is not None and record.ends_at - record.deadline <= within

    @property
    def was_gone(self) -> bool:
        """True if the lease was lost, or if its release found that no quorum held its keys.

        Internal: for `Lock`, elections and integrations.
        """
        return self._record.reason != ""

    @property
    def held(self) -> bool:
        """True until the lease is released, abandoned or declared lost.

        Internal: for `aioredlock_ng.testing`.
        """
        return self._record.phase is Phase.HELD

    def forgo_min_hold(self) -> None:
        """Make the release delete the keys immediately, even before the end of `min_hold`.

        Internal: for managers whose engine runs in a separate thread. The manager calls this method
        if no caller will receive the lease.
        """
        self._record.kept_until = 0.0

    def lose(self, reason: str) -> None:
        """Declare the lease lost, with every effect of a real loss.

        Internal: for `aioredlock_ng.testing`. Nothing happens if the lease has already ended.

        Raises:
            RedlockClosed: The manager is closed or belongs to another loop.
        """
        self._engine.usable()
        self._engine.extender.lose(self._record, reason)

    def _is_used(self) -> bool:
        """Return True while a thread works under the lease.

        In this case, the lease is released when the thread ends.
        """
        still_used = self._record.still_used
        return still_used is not None and still_used(self._thread_ended)

    def _thread_ended(self) -> None:
        extender, record = self._engine.extender, self._record
        if record.phase is Phase.HELD and not extender.pass_on(record):
            extender.release(record)

    def _was_ours(self, release: Round) -> bool:
        """Return False, and report the loss, if the release shows that the lease was lost."""
        engine, record = self._engine, self._record
        if release.won:
            return True
        # If a node deleted fewer keys than the lease has, the node no longer held the lock. A node
        # without an answer may have held the lock, unless its reply to the acquire shows that the
        # node never had a key.
        full = released(len(record.spec.keys))
        answers = zip(release.replies, record.granted, strict=True)
        maybe = sum(
            reply == full if isinstance(reply, Released) else may_have_set(granted)
            for reply, granted in answers
        )
        # After the deadline the keys may simply have expired. The lease was valid until then.
        if maybe >= engine.context.quorum or engine.context.clock() >= record.deadline:
            return True
        engine.extender.found_lost(
            record, "a quorum of nodes no longer held its key when it was released"
        )
        return False

    async def _asking(self, renewal: Coroutine[Any, Any, R]) -> R:
        """Wait for a renewal or a downgrade that the user asked for.

        If the lease is lost meanwhile, the task of the `async with` body is cancelled. But if this
        task waits here, it is not cancelled, because its call raises `LockLost`.
        """
        record = self._record
        if by_body := record.task is not None and record.task is calling_task():
            record.asking = record.task
        try:
            return await renewal
        except asyncio.CancelledError:
            # The loss did not cancel the body, because this call was going to raise `LockLost`. Now
            # other code has cancelled the call, so the body must be notified.
            if by_body and record.phase is Phase.LOST:
                self._engine.context.loop.call_soon(record.notify_body)
            raise
        finally:
            if by_body:
                record.asking = None

    def _raise_if_over(self) -> None:
        phase = self._record.phase
        if phase is Phase.LOST:
            raise self.lost_error()
        if phase is not Phase.HELD:
            raise LockReleased(f"the lease of {self._record.spec.resource!r} was already {phase}")

    def lost_error(self, votes: tuple[Vote, ...] = ()) -> LockLost:
        """Return the error that describes the loss of this lease.

        Internal: for locks, elections and the command line.
        """
        resource, (reason, lost_at) = self._record.spec.resource, self._loss()
        elapsed = lost_at - self._record.since
        return LockLost(
            f"the lock {resource!r} was lost after {elapsed:.3f} s: {reason}",
            resource=resource,
            votes=votes,
            elapsed=elapsed,
        )

    def _loss(self) -> tuple[str, float]:
        """Return the reason of the loss, and its instant by the engine's clock."""
        record = self._record
        if record.reason:
            return record.reason, record.lost_at
        # A thread may notice the passed deadline before the event loop declares the loss.
        return "its deadline passed", record.deadline

    def __eq__(self, other: object) -> bool:
        """Return True if both objects stand for the same lease."""
        return isinstance(other, Held) and other._record is self._record

    def __hash__(self) -> int:
        return hash(self._record)

    def __repr__(self) -> str:
        """Show name, state and the beginning of the token, never the whole token."""
        record, context = self._record, self._engine.context
        held, total = record.ballot.held(record), len(context.fleet.nodes)
        return (
            f"<Lease {record.spec.resource!r} {record.phase}"
            f" remaining={record.remaining(context.clock()):.3f}s"
            f" nodes={held}/{total} token={record.token_prefix}…>"
        )

    def _unreachable(
        self, votes: tuple[Vote, ...], what: str, asked_at: float
    ) -> QuorumUnreachable:
        record, now = self._record, self._engine.context.clock()
        told = "; ".join(map(str, votes))
        return QuorumUnreachable(
            f"{self._record.spec.resource!r} could not be {what}, because no quorum answered; the"
            f" lease stays valid for {record.remaining(now):.3f} s: {told}",
            resource=self._record.spec.resource,
            votes=votes,
            elapsed=now - asked_at,
        )


@contextmanager
def thread_inside(leases: Iterable[Held]) -> Iterator[None]:
    """Let the current task act for a thread that is inside the `with` blocks of these leases."""
    task = asyncio.current_task()
    assert task is not None
    threads[task] = frozenset(lease._record for lease in leases)
    try:
        yield
    finally:
        del threads[task]


async def until_decided(release: Round) -> None:
    # A lambda inside `Lease.release` would make every call of that method slower, because Python
    # would create a closure cell for `release`. So the lambda is in a function of its own.
    await outlast_cancellation(lambda: release.open, release.decided)
