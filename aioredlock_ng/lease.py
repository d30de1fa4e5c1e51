"""Define the lease: the methods with which a holder checks, renews and releases its lock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.quorum import Verdict, verdict
from aioredlock_ng._core.votes import Outcome
from aioredlock_ng._engine.acting import acting_task
from aioredlock_ng._engine.attempt.releases import outlast_cancellation
from aioredlock_ng._held import Held, vote_of

if TYPE_CHECKING:
    from aioredlock_ng._engine.attempt.round import Round

__all__ = ["Lease"]


class Lease(Held):
    """A granted lock, made by `Lock.acquire`.

    All times are seconds. The lease renews itself unless the lock has `auto_extend=False`.
    """

    __slots__ = ()

    @property
    def resource(self) -> str:
        """Name of the lock. Several names are joined by ", "."""
        return self._holding.spec.resource

    @property
    def resources(self) -> tuple[str | bytes, ...]:
        """Names as given."""
        return self._holding.spec.resources

    @property
    def token(self) -> str:
        """The random value of the lock's keys on the nodes. Each attempt uses a fresh value.

        Tasks of this process that receive the same grant one after the other share the token. Their
        fences differ.
        """
        return self._holding.token.decode()

    @property
    def slot(self) -> int | Any:
        """The slot of a semaphore, from 1 to its limit.

        Two leases never have the same slot at the same time. So the slot can name a device, an
        account or a machine number. The value is None for a lock. A type checker treats
        `int | Any` as an int.
        """
        return self._holding.spec.number

    @property
    def fence(self) -> int | Any:
        """The fencing token, greater than that of every earlier lease of the same resources.

        The value is in microseconds since 1970 or slightly ahead, below 2**53. Send it to the
        resource with every write, and with every read that precedes a write. The resource refuses a
        fence below the highest that it has seen.

        The value is None only with `Redlock(fencing=False)`. A type checker treats `int | Any` as
        an int, so code with fencing needs no check for None.
        """
        return self._holding.fence

    @property
    def ttl(self) -> float:
        """Seconds from a renewal to the expiry of the keys, as used by the last renewal."""
        return self._holding.ttl

    def remaining(self) -> float:
        """Return the seconds for which the lock is certainly ours without a further renewal.

        The local clock counts. The result is 0.0 after the end of the lease.
        """
        return self._holding.remaining(self._engine.context.clock())

    @property
    def valid(self) -> bool:
        """True while the lock is certainly ours. False after release, loss or the deadline."""
        return self.remaining() > 0.0

    @property
    def lost(self) -> bool:
        """True if the lease ended without being released or abandoned.

        A read of this property does not declare the loss, so it calls no callback and cancels no
        task.
        """
        return self._holding.phase is Phase.LOST or (
            self._holding.phase is Phase.HELD and self.remaining() <= 0.0
        )

    @property
    def nodes(self) -> tuple[int, int]:
        """Number of nodes that granted or last renewed the lock, and the number of all nodes.

        Late answers count.
        """
        return self._holding.ballot.held(self._holding), len(self._engine.context.fleet.nodes)

    def check(self) -> None:
        """Raise an error unless the lock is still ours. No I/O.

        Call this method before a write, or from a thread.

        Raises:
            LockLost: The deadline passed, or the nodes showed that no quorum holds the lock.
            LockReleased: The lease was released, or was abandoned and then expired.
        """
        if self.remaining() > 0.0:
            return
        if self._engine.on_loop():
            self._engine.extender.check(self._holding)
        self._raise_if_over()
        raise self.lost_error()

    async def verify(self) -> None:
        """Ask the nodes whether a quorum still holds the lease's token.

        Raises:
            LockLost: A quorum can no longer hold the token, or the deadline has passed.
            LockReleased: The lease was released or abandoned, before the call or during it.
            QuorumUnreachable: Too few nodes answered. The lease stays valid until its deadline.
            RedlockClosed: The manager is closed or belongs to another loop.

        Safety: if it is cancelled, nothing has changed.
        """
        self._raise_if_over()
        holding, context = self._holding, self._engine.context
        asked_at = context.clock()
        keys = holding.spec.keys
        replies = await self._engine.poll(
            holding.spec.kind.watching(keys, (holding.token,) * len(keys))
        )
        votes = tuple(
            vote_of(node.address, reply)
            for node, reply in zip(context.fleet.nodes, replies, strict=True)
        )
        yes = sum(vote.outcome is Outcome.GRANTED for vote in votes)
        no = sum(vote.outcome is Outcome.HELD for vote in votes)
        self.check()
        # A lease that was abandoned during the request is not lost.
        self._raise_if_over()
        match verdict(len(votes), context.quorum, yes, no):
            case Verdict.LOST:
                self._engine.extender.lose(holding, "a quorum of nodes no longer holds its key")
                raise self.lost_error(votes)
            case Verdict.OPEN:
                raise self._unreachable(votes, "verified", asked_at)

    async def extend(self, ttl: float | None = None) -> None:
        """Renew the lease now, in addition to the renewals in the background.

        Args:
            ttl: New ttl in seconds from now, which later renewals use as well. None: the present
                ttl.

        Raises:
            LockLost: The lease is lost.
            LockReleased: The lease was released or abandoned, before the call or during it.
            QuorumUnreachable: No quorum renewed the lease in time. It stays valid until its
                deadline.
            ConfigurationError: The ttl is invalid (`Redlock.lock`).
            RedlockClosed: The manager is closed or belongs to another loop.

        Safety: if it is cancelled, the renewal may or may not happen. `remaining()` never exceeds
        the time that the nodes confirmed.
        """
        self._engine.usable()
        holding, context = self._holding, self._engine.context
        ttl = holding.ttl if ttl is None else context.options.check_ttl(ttl)
        self.check()
        self._raise_if_over()
        asked_at = context.clock()
        # The body's own task receives a loss as an exception of `extend`, so the loss must not
        # cancel it as well. Another task that extends at the same time receives the exception only.
        if by_body := holding.task is not None and holding.task is acting_task():
            holding.asking = holding.task
        try:
            replies = await self._engine.extend(holding, ttl)
        except asyncio.CancelledError:
            # The loss did not cancel the body, because `extend` would have raised an exception. A
            # cancellation by other code came first, so the body must be notified of the loss now.
            if by_body and holding.phase is Phase.LOST:
                context.loop.call_soon(holding.notify_body)
            raise
        finally:
            if by_body:
                holding.asking = None
        self._raise_if_over()
        if replies is not None:
            votes = tuple(
                vote_of(n.address, reply)
                for n, reply in zip(context.fleet.nodes, replies, strict=True)
            )
            raise self._unreachable(votes, "extended", asked_at)

    async def release(self) -> bool:
        """Release the lock. Further calls have no effect.

        Before the end of `min_hold` the lock stays taken until then.

        Under a FastAPI endpoint whose thread still works, the lock is held and renewed until the
        thread ends. The result is True then.

        Returns:
            True if the lock was ours until now. False if the lease had already ended (lost,
            expired, released, abandoned), or if the answers show that a quorum of nodes no longer
            held it. The nodes are not asked if the next waiter of this process receives the same
            grant.

        Raises:
            RedlockClosed: The call comes from another loop or a forked process.

        Safety: the release is queued before the first await. By then the next waiter of this
        process has the grant, or its request is in the same write. A cancelled call still waits for
        the release, for at most `node_timeout`, and then raises the cancellation. A node that does
        not answer executes the release once it answers or is connected again.
        """
        engine, holding = self._engine, self._holding
        if holding.phase is not Phase.HELD:
            return False
        engine.usable()
        if holding.still_used is not None and self._is_used():
            return True
        if engine.extender.pass_on(holding):
            # The next holder runs before this call returns.
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

    def abandon(self) -> None:
        """Stop the renewal and let the lock expire.

        No other client receives the lock before `remaining()` is over. A lease whose deadline has
        passed is lost. A lease that has already ended does not change.

        Raises:
            RedlockClosed: The manager is closed or belongs to another loop.
        """
        self._engine.usable()
        self._engine.extender.abandon(self._holding)

    async def wait_lost(self) -> None:
        """Wait until the lease is lost, released or abandoned. `lost` then says which.

        Raises:
            RedlockClosed: The call comes from another loop or a forked process.

        Safety: if it is cancelled, nothing has changed.
        """
        holding = self._holding
        if holding.phase is not Phase.HELD:
            return
        self._engine.usable()
        if self.remaining() <= 0.0:
            # The check runs in a later tick. A loss that the current task finds itself does not
            # cancel its body. A task that waits inside its own body must be cancelled, though.
            self._engine.context.loop.call_soon(self._engine.extender.check, holding)
        waiter: asyncio.Future[None] = self._engine.context.loop.create_future()
        await holding.wait_over(waiter)

    def __eq__(self, other: object) -> bool:
        """Return True if both objects stand for the same lease."""
        return isinstance(other, Lease) and other._holding is self._holding

    def __hash__(self) -> int:
        """Hash by lease."""
        return hash(self._holding)

    def __repr__(self) -> str:
        """Show name, state and the beginning of the token, never the whole token."""
        held, total = self.nodes
        return (
            f"<Lease {self.resource!r} {self._holding.phase} remaining={self.remaining():.3f}s"
            f" nodes={held}/{total} token={self.token[:6]}…>"
        )


async def _until_decided(release: Round) -> None:
    # This is no closure inside `release`, because every call of `release` would make one.
    await outlast_cancellation(lambda: release.open, release.decided)
