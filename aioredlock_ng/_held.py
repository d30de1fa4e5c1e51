"""Define the methods of a lease that only other parts of the library call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.replies import ALL_OURS, KeyStates, Released, released
from aioredlock_ng._core.votes import Outcome, Vote, may_have_set, no_vote
from aioredlock_ng.errors import LockLost, LockReleased, QuorumUnreachable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._engine.keeping.holding import Holding

__all__ = ["CLOSED_AMID", "Held", "vote_of"]

CLOSED_AMID = "the Redlock was closed at the moment when this acquisition was granted"
"""Message of the error for a caller whose lease was released before it ran."""


class Held:
    """The methods of a lease that other parts of the library call."""

    __slots__ = ("_engine", "_holding")

    def __init__(self, engine: Engine, holding: Holding) -> None:
        self._engine = engine
        self._holding = holding

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys that the lease has on the nodes.

        Internal: for `Lock`.
        """
        return self._holding.spec.keys

    def entered(self, task: asyncio.Task[object], on_lost: Callable[[], None] | None) -> None:
        """Record that `task` enters an `async with` of this lease.

        Internal: for `Lock`. `on_lost` is called once if the lease is lost inside the block.

        Raises:
            QuorumUnreachable: The lease has already ended, and a later loss could not be reported.
        """
        self._engine.extender.check(self._holding)
        self._refuse_over()
        self._holding.task = task
        self._holding.on_lost = on_lost

    def _refuse_over(self) -> None:
        now, resource = self._engine.context.clock(), self._holding.spec.resource
        if self._holding.remaining(now) <= 0.0:
            over = self._holding.phase in (Phase.HELD, Phase.LOST)
            lost = self.lost_error() if over else "it was released"
            raise QuorumUnreachable(
                f"{resource!r} was granted, but the lease ended before this task ran: {lost}",
                resource=resource,
                elapsed=now - self._holding.since,
            )

    def left(self) -> None:
        """Record that the `async with` was left.

        Internal: for `Lock`.
        """
        self._holding.task = self._holding.on_lost = None
        if self._engine.on_loop():
            self._engine.extender.check(self._holding)

    def let_go(self) -> None:
        """End the lease without waiting for the nodes to confirm the release.

        Internal: for `Lock`.
        """
        self.left()
        if self._engine.on_loop() and not self._is_used():
            self._engine.extender.release(self._holding)

    def used_by(self, still_used: Callable[[Callable[[], None]], bool]) -> None:
        """Declare that a thread may work under the lease.

        Internal: for integrations. The lease is not released before the thread has ended.

        Args:
            still_used: Called with a callback. It returns True while the thread works, and then
                calls the callback when the thread ends (`Holding.still_used`).
        """
        self._holding.still_used = still_used

    @property
    def was_gone(self) -> bool:
        """True if the lease was lost, or if its release found that a quorum no longer held it.

        Internal: integrations use it to decide how to answer a `LockLost`.
        """
        return self._holding.reason != ""

    def forgo_min_hold(self) -> None:
        """Let the release free the keys at once: the caller will never receive the lease.

        Internal: for managers that hand leases to other threads.
        """
        self._holding.kept_until = 0.0

    def lose(self, reason: str) -> None:
        """Lose the lease with every effect of a real loss.

        Internal: for `aioredlock_ng.testing`. Nothing happens if the lease has already ended.

        Raises:
            RedlockClosed: The manager is closed or belongs to another loop.
        """
        self._engine.usable()
        self._engine.extender.lose(self._holding, reason)

    def _is_used(self) -> bool:
        """Return True while a thread works under the lease.

        The lease is released at the end of the thread.
        """
        still_used = self._holding.still_used
        return still_used is not None and still_used(self._thread_ended)

    def _thread_ended(self) -> None:
        extender, holding = self._engine.extender, self._holding
        if holding.phase is Phase.HELD and not extender.pass_on(holding):
            extender.release(holding)

    def _was_ours(self, release: Round) -> bool:
        """Return False, and report the loss, if the answers to the release show a lost lease."""
        engine, holding = self._engine, self._holding
        if release.won:
            return True
        # If a node deleted fewer keys than the lease has, the node no longer held the lock. Silence
        # proves nothing, except on a node that cannot have had the keys.
        full = released(len(holding.spec.keys))
        answers = zip(release.replies, holding.granted, strict=True)
        maybe = sum(
            reply == full if isinstance(reply, Released) else may_have_set(granted)
            for reply, granted in answers
        )
        # After the deadline the keys may simply have expired. The lease was valid until then.
        if maybe >= engine.context.quorum or engine.context.clock() >= holding.deadline:
            return True
        engine.extender.found_lost(
            holding, "a quorum of nodes no longer held its key when it was released"
        )
        return False

    def _raise_if_over(self) -> None:
        phase = self._holding.phase
        if phase is Phase.LOST:
            raise self.lost_error()
        if phase is not Phase.HELD:
            raise LockReleased(f"the lease of {self._holding.spec.resource!r} was already {phase}")

    def lost_error(self, votes: tuple[Vote, ...] = ()) -> LockLost:
        """Return the error that describes the loss of this lease.

        Internal: for the parts of the library that raise it.
        """
        holding = self._holding
        # A thread may notice the passed deadline before the event loop declares the loss.
        elapsed = (holding.lost_at if holding.reason else holding.deadline) - holding.since
        reason = holding.reason or "its deadline passed"
        return LockLost(
            f"the lock {self._holding.spec.resource!r} was lost after {elapsed:.3f} s: {reason}",
            resource=self._holding.spec.resource,
            votes=votes,
            elapsed=elapsed,
        )

    def _unreachable(
        self, votes: tuple[Vote, ...], what: str, asked_at: float
    ) -> QuorumUnreachable:
        holding, now = self._holding, self._engine.context.clock()
        told = "; ".join(map(str, votes))
        return QuorumUnreachable(
            f"{self._holding.spec.resource!r} could not be {what}, no quorum answered; valid for"
            f" {holding.remaining(now):.3f} s more: {told}",
            resource=self._holding.spec.resource,
            votes=votes,
            elapsed=now - asked_at,
        )


def vote_of(address: str, reply: Reply) -> Vote:
    """Return the vote of a node that was asked whether its keys hold our token."""
    if reply is ALL_OURS:
        return Vote(address, Outcome.GRANTED)
    if isinstance(reply, KeyStates):
        return Vote(address, Outcome.HELD, detail="the key is missing or belongs to another client")
    return no_vote(address, reply)
