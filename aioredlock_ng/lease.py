"""What a holder holds: how long it may rely on the lock, and the ways to give it up; it decides nothing itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.quorum import Verdict, verdict
from aioredlock_ng._core.replies import ALL_OURS, KeyStates, Released, released
from aioredlock_ng._core.votes import Outcome, Vote, may_have_set, no_vote
from aioredlock_ng._engine.attempt.releases import outlast_cancellation
from aioredlock_ng.errors import LockLost, LockReleased, QuorumUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._engine.keeping.holding import Holding

__all__ = ["Lease"]


class Lease:
    """A granted lock. Made by `Lock.acquire`, never by hand.

    All times are seconds. The lease renews itself unless the lock says `auto_extend=False`.
    """

    __slots__ = ("_engine", "_holding")

    def __init__(self, engine: Engine, holding: Holding) -> None:
        self._engine = engine
        self._holding = holding

    @property
    def resource(self) -> str:
        """The lock's name; several names are joined by ", "."""
        return self._holding.spec.resource

    @property
    def resources(self) -> tuple[str | bytes, ...]:
        """The names as given."""
        return self._holding.spec.resources

    @property
    def token(self) -> str:
        """The random value that the lock's keys hold on the nodes; fresh for every attempt.

        Those who stood in line in this process when the attempt was made, and have its grant one after the other, share it.
        Their fences differ.
        """
        return self._holding.token.decode()

    @property
    def fence(self) -> int | Any:
        """The fencing token: greater than that of every earlier lease of the same resources.

        It is None only with `Redlock(fencing=False)`. The type `int | Any` spares all others a check for that: a type
        checker takes it for an int.

        Microseconds since 1970 or a little ahead, below 2**53. Show it to the resource with every read that is
        followed by a write, and with every write; the resource refuses one below the highest it has seen.
        """
        return self._holding.fence

    @property
    def ttl(self) -> float:
        """Seconds that the keys live without renewal, as last renewed."""
        return self._holding.ttl

    def remaining(self) -> float:
        """Seconds for which the lock is certainly ours if nothing more is heard, by the local clock; 0.0 when over."""
        return self._holding.remaining(self._engine.context.clock())

    @property
    def valid(self) -> bool:
        """True while the lock may be relied on. False after release, loss, or the deadline."""
        return self.remaining() > 0.0

    @property
    def lost(self) -> bool:
        """True once the lease ended, neither released nor abandoned; reading it changes nothing, and tells nobody else."""
        return self._holding.phase is Phase.LOST or (
            self._holding.phase is Phase.HELD and self.remaining() <= 0.0
        )

    @property
    def nodes(self) -> tuple[int, int]:
        """How many nodes granted or last renewed it (late answers included), and how many there are."""
        return self._holding.ballot.held(self._holding), len(self._engine.context.fleet.nodes)

    def check(self) -> None:
        """Make sure that the lock is still ours, without I/O; the thing to call before a write, or from a thread.

        Raises:
            LockLost: It is over: deadline passed, or a quorum was found not to hold it.
            LockReleased: It was released, or abandoned and then expired.
        """
        if self.remaining() > 0.0:
            return
        if self._engine.on_loop():
            self._engine.extender.check(self._holding)
        self._raise_if_over()
        raise self.lost_error()

    async def verify(self) -> None:
        """Ask the nodes whether a quorum still holds this lease's token.

        Raises:
            LockLost: A quorum can no longer hold it, or the deadline has passed.
            LockReleased: It was released or abandoned, before or meanwhile.
            QuorumUnreachable: Too few nodes answered to say; the lease goes on until its deadline.
            RedlockClosed: The manager is closed or belongs to another loop.

        Safety: cancelled, nothing has changed.
        """
        self._raise_if_over()
        holding, context = self._holding, self._engine.context
        asked_at = context.clock()
        keys = holding.spec.keys
        replies = await self._engine.poll(
            holding.spec.kind.watching(keys, (holding.token,) * len(keys))
        )
        votes = tuple(
            self._vote(node.address, reply)
            for node, reply in zip(context.fleet.nodes, replies, strict=True)
        )
        yes = sum(vote.outcome is Outcome.GRANTED for vote in votes)
        no = sum(vote.outcome is Outcome.HELD for vote in votes)
        self.check()
        # One that was abandoned meanwhile is not lost.
        self._raise_if_over()
        match verdict(len(votes), context.quorum, yes, no):
            case Verdict.LOST:
                self._engine.extender.lose(holding, "a quorum of nodes no longer holds its key")
                raise self.lost_error(votes)
            case Verdict.OPEN:
                raise self._unreachable(votes, "verified", asked_at)

    async def extend(self, ttl: float | None = None) -> None:
        """Renew now, besides the renewals in the background.

        Args:
            ttl: New life in seconds from now, used by later renewals too; None: as before.

        Raises:
            LockLost: It is lost.
            LockReleased: It was released or abandoned, before or meanwhile.
            QuorumUnreachable: No quorum renewed it in time; the lease goes on until its deadline.
            ConfigurationError: The ttl is unusable; see `Redlock.lock`.
            RedlockClosed: The manager is closed or belongs to another loop.

        Safety: cancelled, the renewal may or may not happen; `remaining()` is never more than the nodes confirmed.
        """
        self._engine.usable()
        holding, context = self._holding, self._engine.context
        ttl = holding.ttl if ttl is None else context.options.check_ttl(ttl)
        self.check()
        self._raise_if_over()
        asked_at = context.clock()
        # Whom a loss would cancel; another task that extends at the same time is told by the exception alone.
        if by_body := holding.task is not None and holding.task is asyncio.current_task():
            holding.asking = holding.task
        try:
            replies = await self._engine.extend(holding, ttl)
        except asyncio.CancelledError:
            # The exception that the body's cancellation stood back for does not come: somebody's timeout was faster.
            if by_body and holding.phase is Phase.LOST:
                context.loop.call_soon(holding.tell_body)
            raise
        finally:
            if by_body:
                holding.asking = None
        self._raise_if_over()
        if replies is not None:
            votes = tuple(
                self._vote(n.address, reply)
                for n, reply in zip(context.fleet.nodes, replies, strict=True)
            )
            raise self._unreachable(votes, "extended", asked_at)

    async def release(self) -> bool:
        """Give the lock up. Idempotent.

        Returns:
            True when it was ours until now; False when it was over already (lost, expired, released, abandoned), or when a
            quorum of nodes turns out not to have held it any more. They are not asked where the next in line of this process
            has the same grant. Under a FastAPI endpoint whose thread still works: True, and
            the lock is held, and renewed, until the thread has ended.

        Raises:
            RedlockClosed: Called from another loop or a forked process.

        Safety: the release is on its way before this first awaits, and whoever is next in this process has the grant, or asks
        in the same write. Cancelled (any way, any number of times), it is still waited for, `node_timeout` at most, and then
        the cancellation is raised. A node that does not answer executes it when it wakes or is connected again.
        """
        engine, holding = self._engine, self._holding
        if holding.phase is not Phase.HELD:
            return False
        engine.usable()
        if holding.still_used is not None and self._is_used():
            return True
        if engine.extender.pass_on(holding):
            # Who has it now runs before who gave it.
            await asyncio.sleep(0)
            return True
        release = engine.extender.release(holding)
        if release is None:
            return False
        try:
            if release.open:
                await release.decided()
        except asyncio.CancelledError:
            await _until_decided(release)
            self._was_ours(release)
            raise
        return release.won or self._was_ours(release)

    def _is_used(self) -> bool:
        """True while a thread works under it; the lease is given up when the thread has ended."""
        still_used = self._holding.still_used
        return still_used is not None and still_used(self._thread_ended)

    def _thread_ended(self) -> None:
        extender, holding = self._engine.extender, self._holding
        if holding.phase is Phase.HELD and not extender.pass_on(holding):
            extender.release(holding)

    def _was_ours(self, release: Round) -> bool:
        """What the answers to the release say; a loss that they show is told."""
        engine, holding = self._engine, self._holding
        if release.won:
            return True
        # Answered, and fewer keys than were to be deleted: they were gone. Silence is no such proof, but of a node that
        # cannot have had them.
        full = released(len(holding.spec.keys))
        answers = zip(release.replies, holding.granted, strict=True)
        maybe = sum(
            reply == full if isinstance(reply, Released) else may_have_set(granted)
            for reply, granted in answers
        )
        # Behind its deadline the keys may have gone by themselves, and it was ours until then.
        if maybe >= engine.context.quorum or engine.context.clock() >= holding.deadline:
            return True
        engine.extender.found_lost(
            holding, "a quorum of nodes no longer held its key when it was released"
        )
        return False

    def abandon(self) -> None:
        """Stop renewing and let the lock expire by itself: nobody else gets it before `remaining()` is over.

        One whose deadline has passed is lost; one that is over stays as it is.

        Raises:
            RedlockClosed: The manager is closed or belongs to another loop.
        """
        self._engine.usable()
        self._engine.extender.abandon(self._holding)

    async def wait_lost(self) -> None:
        """Wait until the lease is over; returns when it is lost, released or abandoned, and tells which by `lost`.

        Raises:
            RedlockClosed: Called from another loop or a forked process.

        Safety: cancelled, nothing has changed.
        """
        holding = self._holding
        if holding.phase is not Phase.HELD:
            return
        self._engine.usable()
        if self.remaining() <= 0.0:
            # Not here: a task that waits within its own body is to be cancelled like any other.
            self._engine.context.loop.call_soon(self._engine.extender.check, holding)
        waiter: asyncio.Future[None] = self._engine.context.loop.create_future()
        await holding.wait_over(waiter)

    def entered(self, task: asyncio.Task[object], on_lost: Callable[[], None] | None) -> None:
        """For `Lock`: `task` is about to enter an `async with` of this lease; `on_lost` is called once if it is lost there.

        Raises:
            QuorumUnreachable: It is over already, and nobody would be told.
        """
        self._engine.extender.check(self._holding)
        if self.remaining() <= 0.0:
            lost = self.lost_error() if self.lost else "it was released"
            raise QuorumUnreachable(
                f"{self.resource!r} was granted, and over again before this task came to run: {lost}",
                resource=self.resource,
                elapsed=self._engine.context.clock() - self._holding.since,
            )
        self._holding.task = task
        self._holding.on_lost = on_lost

    def left(self) -> None:
        """For `Lock`: the `async with` is over."""
        self._holding.task = self._holding.on_lost = None
        if self._engine.on_loop():
            self._engine.extender.check(self._holding)

    def let_go(self) -> None:
        """For `Lock`: end the lease without waiting for the nodes to confirm its release."""
        self.left()
        if self._engine.on_loop() and not self._is_used():
            self._engine.extender.release(self._holding)

    def used_by(self, still_used: Callable[[Callable[[], None]], bool]) -> None:
        """For integrations: declare that a thread may work under it, so that it is not released before that has ended.

        Args:
            still_used: See `Holding.still_used`.
        """
        self._holding.still_used = still_used

    @property
    def was_gone(self) -> bool:
        """For those who raise `LockLost` or answer it: it was lost, or its release found that a quorum no longer held it."""
        return self._holding.reason != ""

    def lose(self, reason: str) -> None:
        """For `aioredlock_ng.testing`: lost from here on, as every lease that is lost; nothing when it is over already.

        Raises:
            RedlockClosed: The manager is closed or belongs to another loop.
        """
        self._engine.usable()
        self._engine.extender.lose(self._holding, reason)

    def __eq__(self, other: object) -> bool:
        """Equal when they are the same grant."""
        return isinstance(other, Lease) and other._holding is self._holding

    def __hash__(self) -> int:
        """By grant."""
        return hash(self._holding)

    def __repr__(self) -> str:
        """Name, state and the beginning of the token; never the whole token."""
        held, total = self.nodes
        return (
            f"<Lease {self.resource!r} {self._holding.phase} remaining={self.remaining():.3f}s nodes={held}/{total}"
            f" token={self.token[:6]}…>"
        )

    @staticmethod
    def _vote(address: str, reply: Reply) -> Vote:
        if reply is ALL_OURS:
            return Vote(address, Outcome.GRANTED)
        if isinstance(reply, KeyStates):
            return Vote(address, Outcome.HELD, detail="another's key, or none")
        return no_vote(address, reply)

    def _raise_if_over(self) -> None:
        phase = self._holding.phase
        if phase is Phase.LOST:
            raise self.lost_error()
        if phase is not Phase.HELD:
            raise LockReleased(f"the lease of {self.resource!r} was {phase} before")

    def lost_error(self, votes: tuple[Vote, ...] = ()) -> LockLost:
        """The error that tells how this lease was lost; for those who raise it."""
        holding = self._holding
        # A thread may see that the deadline has passed before the loop declares the loss.
        elapsed = (holding.lost_at if holding.reason else holding.deadline) - holding.since
        reason = holding.reason or "its deadline passed"
        return LockLost(
            f"the lock {self.resource!r} was lost after {elapsed:.3f} s: {reason}",
            resource=self.resource,
            votes=votes,
            elapsed=elapsed,
        )

    def _unreachable(
        self, votes: tuple[Vote, ...], what: str, asked_at: float
    ) -> QuorumUnreachable:
        told = "; ".join(map(str, votes))
        return QuorumUnreachable(
            f"{self.resource!r} could not be {what}, no quorum answered; valid for {self.remaining():.3f} s more: {told}",
            resource=self.resource,
            votes=votes,
            elapsed=self._engine.context.clock() - asked_at,
        )


async def _until_decided(release: Round) -> None:
    # Not in `release`: a closure there would be made by every call.
    await outlast_cancellation(lambda: release.open, release.decided)
