"""Define the lease: the methods with which a holder checks, renews and releases its lock."""

from __future__ import annotations

import asyncio
from typing import Any

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.quorum import Verdict, verdict
from aioredlock_ng._core.votes import Outcome, renewal_vote
from aioredlock_ng._leases.lease_base import Held, until_decided
from aioredlock_ng._leases.loss_points import reached
from aioredlock_ng.errors import ConfigurationError

__all__ = ["Lease"]


class Lease(Held):
    """A granted lock, made by `Lock.acquire`. It renews itself unless `auto_extend` is False."""

    __slots__ = ()

    @property
    def resource(self) -> str:
        """Name of the lock. Several names are joined by ", "."""
        return self._record.spec.resource

    @property
    def resources(self) -> tuple[str | bytes, ...]:
        """Names of the lock, as given."""
        return self._record.spec.resources

    @property
    def token(self) -> str:
        """The random value of the lock's keys on the nodes. All leases of one grant share it."""
        return self._record.token.decode()

    @property
    def slot(self) -> int | Any:
        """The slot of a semaphore, from 1 to its limit.

        Two leases never have the same slot at the same time. So the slot can name a device, an
        account or a machine number. The value is None for a lock. A type checker treats
        `int | Any` as an int.
        """
        return self._record.spec.number

    @property
    def fence(self) -> int | Any:
        """The fencing token, greater than that of every earlier lease of the same resources.

        Readers may share a fence. For a semaphore, compare only fences of the same slot.

        The value is a time in microseconds since 1970, below 2**53. The time may lie slightly in
        the future. Send the fence to the resource with every write, and with every read that
        precedes a write. The resource must refuse a fence that is lower than the highest fence that
        it has seen.

        The value is None only with `Redlock(fencing=False)`. A type checker treats `int | Any` as
        an int, so code with fencing needs no check for None.
        """
        return self._record.fence

    @property
    def ttl(self) -> float:
        """The lock's ttl in seconds, or the ttl of the last successful `extend`."""
        return self._record.ttl

    def remaining(self) -> float:
        """Return the seconds for which the lock is certainly ours without a further renewal.

        The local clock measures these seconds. The result is 0.0 after the end of the lease.
        """
        return self._record.remaining(self._engine.context.clock())

    @property
    def valid(self) -> bool:
        """True while the lock is certainly ours. False after release, loss or the deadline."""
        return self.remaining() > 0.0

    @property
    def lost(self) -> bool:
        """True if the lease ended without being released or abandoned.

        Reading the property cancels no task, even if the deadline has just passed.
        """
        return self._record.phase is Phase.LOST or (
            self._record.phase is Phase.HELD and self.remaining() <= 0.0
        )

    def ended_lost(self) -> bool:
        """Return `lost`. If the engine has a thread of its own, also end a lost lease there.

        Internal: `Lock` and elections call this method after `left`.
        """
        return self.lost

    @property
    def nodes(self) -> tuple[int, int]:
        """Number of nodes that confirmed the newest grant or renewal, and number of all nodes.

        Late answers count as well.
        """
        return self._record.ballot.held(self._record), len(self._engine.context.fleet.nodes)

    def check(self) -> None:
        """Raise an error unless the lock is still ours. Call this method before each write.

        Any thread may call the method, which does no I/O.

        Raises:
            LockLost: The deadline passed, or the nodes showed that no quorum holds the lock.
            LockReleased: The lease was released, or was abandoned and then expired.
        """
        reached("checked", self)
        if self.remaining() > 0.0:
            return
        if self._engine.on_loop():
            self._engine.extender.check(self._record)
        self._raise_if_over()
        raise self.lost_error()

    async def verify(self) -> None:
        """Ask the nodes whether a quorum still holds the lease's token.

        Raises:
            LockLost: A quorum can no longer hold the token, or the deadline has passed.
            LockReleased: The lease was released or abandoned, before the call or during it.
            QuorumUnreachable: Too few nodes answered. The lease stays valid until its deadline.
            RedlockClosed: The manager is closed or belongs to another loop.

        Safety: a cancelled call changes nothing.
        """
        self._raise_if_over()
        record, context = self._record, self._engine.context
        asked_at = context.clock()
        kind, keys = record.spec.kind, record.spec.keys
        replies = await self._engine.poll(kind.watching(keys, (record.token,) * len(keys)))
        votes = tuple(
            renewal_vote(node.address, reply)
            for node, reply in zip(context.fleet.nodes, replies, strict=True)
        )
        yes = sum(vote.outcome is Outcome.GRANTED for vote in votes)
        no = sum(vote.outcome is Outcome.HELD for vote in votes)
        self.check()
        # If the lease was abandoned during the request, raise LockReleased, not LockLost.
        self._raise_if_over()
        match verdict(len(votes), context.quorum, yes, no):
            case Verdict.LOST if record.spec.kind is not kind:
                # A writer's key looks missing once the writer has become a reader.
                await self.verify()
            case Verdict.LOST:
                self._engine.extender.vanished(record)
                raise self.lost_error(votes)
            case Verdict.OPEN:
                raise self._unreachable(votes, "verified", asked_at)

    async def extend(self, ttl: float | None = None) -> None:
        """Renew the lease now, in addition to the renewals in the background.

        Args:
            ttl: New ttl in seconds, counted from now. Later renewals use this ttl, too. None: the
                present ttl.

        Raises:
            LockLost: The lease is lost.
            LockReleased: The lease was released or abandoned, before the call or during it.
            QuorumUnreachable: No quorum renewed the lease in time. The lease stays valid until its
                deadline.
            ConfigurationError: The ttl is invalid; see `Redlock.lock`.
            RedlockClosed: The manager is closed or belongs to another loop.

        Safety: after a cancellation, the renewal may or may not happen. `remaining()` never exceeds
        the time that the nodes confirmed.
        """
        self._engine.usable()
        record, context = self._record, self._engine.context
        ttl = record.ttl if ttl is None else context.options.check_ttl(ttl)
        self.check()
        self._raise_if_over()
        asked_at = context.clock()
        replies = await self._asking(self._engine.extend(record, ttl))
        self._raise_if_over()
        if replies is not None:
            votes = tuple(
                renewal_vote(n.address, reply)
                for n, reply in zip(context.fleet.nodes, replies, strict=True)
            )
            raise self._unreachable(votes, "extended", asked_at)

    async def downgrade(self) -> None:
        """Turn this lease of `rwlock(…).write()` into a read lease. No writer comes in between.

        Readers that wait may enter from now on. The lease keeps its token and its ttl, and stays
        the lease of its `async with`. Its fence may rise, but stays below the fence of the next
        writer. The lease never allows writing again, even if no node answers. Further calls have no
        effect.

        Raises:
            LockLost: The lease is lost.
            LockReleased: The lease was released or abandoned, before the call or during it.
            ConfigurationError: The lease is not that of a read-write lock.
            RedlockClosed: The manager is closed or belongs to another loop.

        Safety: after a cancellation, the downgrade goes on. After `node_timeout` without answers
        the call returns. A later renewal downgrades the keys on the nodes that did not answer.
        """
        self._engine.usable()
        record = self._record
        self.check()
        self._raise_if_over()
        if record.spec.kind.shared:
            return
        if record.spec.reading is None:
            raise ConfigurationError(
                f"the lease of {self.resource!r} cannot be downgraded; acquire the lock by"
                " `redlock.rwlock(name).write()`"
            )
        await self._asking(self._engine.downgrade(record))
        self._raise_if_over()

    async def release(self) -> bool:
        """Release the lock. Further calls have no effect.

        With `min_hold`, the lock stays taken until `min_hold` is over. While a thread of a FastAPI
        endpoint works under the lease, the result is True, and the lock is held until the thread
        ends.

        Returns:
            True if the lock was ours until now. False if the lease had already ended (lost,
            expired, released, abandoned), or if the answers show that a quorum of nodes no longer
            held it. The nodes are not asked if the next waiter of this process receives the same
            grant.

        Raises:
            RedlockClosed: The call comes from another loop or a forked process.

        Safety: the release is queued before the first await. If a task of this process waits for
        the lock, it has got the grant by then, or its request is in the same message. A cancelled
        call still waits for the release, for at most `node_timeout`, and then raises the
        cancellation. A node that does not answer executes the release once it answers or is
        connected again.
        """
        reached("released", self)
        engine, record = self._engine, self._record
        if record.phase is not Phase.HELD:
            return False
        engine.usable()
        if record.still_used is not None and self._is_used():
            return True
        if engine.extender.pass_on(record):
            # A reader does not yield to the event loop here, so that its next acquire can join the
            # shared grant.
            if not record.spec.kind.shared:
                await asyncio.sleep(0)
            return True
        release = engine.extender.release(record)
        if release is None:
            return False
        try:
            if release.open:
                await release.decided()
        except asyncio.CancelledError:
            try:
                await until_decided(release)
            finally:
                self._was_ours(release)
            raise
        return release.won or self._was_ours(release)

    def abandon(self) -> None:
        """Stop the renewal and let the lock expire.

        No other client receives the lock before the deadline. If the deadline has already passed,
        the lease is lost instead. A lease that has already ended does not change.

        Raises:
            RedlockClosed: The manager is closed or belongs to another loop.
        """
        self._engine.usable()
        self._engine.extender.abandon(self._record)

    async def wait_lost(self) -> None:
        """Wait until the lease is lost, released or abandoned. `lost` is True after a loss.

        Raises:
            RedlockClosed: The call comes from another loop or a forked process.

        Safety: a cancelled call changes nothing.
        """
        record = self._record
        if record.phase is not Phase.HELD:
            return
        self._engine.usable()
        if self.remaining() <= 0.0:
            # A loss that a task itself finds does not cancel the task's body. Here the body must be
            # cancelled, so the check runs in a callback of the loop, outside the task.
            self._engine.context.loop.call_soon(self._engine.extender.check, record)
        waiter: asyncio.Future[None] = self._engine.context.loop.create_future()
        await record.wait_over(waiter)
