"""Define the lease for threads: its validity, and the methods that check, renew and end it."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from aioredlock_ng._threaded.lease_proxy import ThreadedLease
from aioredlock_ng.errors import RedlockClosed
from aioredlock_ng.options import positive_seconds

if TYPE_CHECKING:
    import aioredlock_ng
    from aioredlock_ng._threaded.engine_thread import EngineThread
    from aioredlock_ng.errors import LockLost

__all__ = ["Entry", "Inside", "Lease"]


class Lease:
    """A granted lock. Made by `Lock.acquire`, never by hand.

    All times are seconds. Every method may be called from any thread. The lease renews itself
    unless the lock has `auto_extend=False`. The renewals go on while the program's threads are
    busy.
    """

    __slots__ = ("__weakref__", "_lease", "_thread")

    def __init__(self, lease: aioredlock_ng.Lease, thread: EngineThread) -> None:
        self._lease = ThreadedLease.without_loop(lease, thread)
        self._thread = thread

    @property
    def resource(self) -> str:
        """Name of the lock. Several names are joined by ", "."""
        return self._lease.resource

    @property
    def resources(self) -> tuple[str | bytes, ...]:
        """Names of the lock, as given."""
        return self._lease.resources

    @property
    def token(self) -> str:
        """The random value of the lock's keys on the nodes, which all leases of one grant share."""
        return self._lease.token

    @property
    def slot(self) -> int | Any:
        """The slot of a semaphore, from 1 to its limit.

        Two leases never have the same slot at the same time. The value is None for a lock.
        """
        return self._lease.slot

    @property
    def fence(self) -> int | Any:
        """The fencing token, greater than that of every earlier lease of the same resources.

        Readers may share a fence. For a semaphore, compare only fences of the same slot. The value
        is None only with `Redlock(fencing=False)`.
        """
        return self._lease.fence

    @property
    def ttl(self) -> float:
        """The lock's ttl in seconds, or the ttl of the last successful `extend`."""
        return self._lease.ttl

    def remaining(self) -> float:
        """Return how much longer the lock is certainly held, in seconds of the local clock."""
        return self._lease.remaining()

    @property
    def valid(self) -> bool:
        """True while the lock is certainly ours. False after release, loss or the deadline."""
        return self.remaining() > 0.0

    @property
    def lost(self) -> bool:
        """True if the lease ended without being released or abandoned."""
        return self._lease.lost

    @property
    def nodes(self) -> tuple[int, int]:
        """Number of nodes that confirmed the newest grant or renewal, and number of all nodes.

        Late answers count as well.
        """
        return self._lease.nodes

    def check(self) -> None:
        """Raise an error unless the lock is still ours. Call this method before each write. No I/O.

        Raises:
            LockLost: The deadline passed, the nodes showed that no quorum holds the lock, or the
                thread that renews the lease has ended.
            LockReleased: The lease was released, or was abandoned and then expired.
        """
        self._lease.check()

    def verify(self) -> None:
        """Ask the nodes whether a quorum still holds this lease's token.

        Raises:
            LockLost: A quorum can no longer hold the token, or the deadline has passed.
            LockReleased: The lease was released or abandoned, before the call or during it.
            QuorumUnreachable: Too few nodes answered. The lease stays valid until its deadline.
            RedlockClosed: The manager is closed.

        Safety: an interrupted call changes nothing.
        """
        self.check()
        self._thread.run(self._lease.verify)

    def extend(self, ttl: float | None = None) -> None:
        """Renew the lease now, in addition to the renewals in the background.

        Args:
            ttl: New ttl in seconds from now, which later renewals use as well. None: the present
                ttl.

        Raises:
            LockLost: The lease is lost.
            LockReleased: The lease was released or abandoned, before the call or during it.
            QuorumUnreachable: No quorum renewed the lease in time. The lease stays valid until its
                deadline.
            ConfigurationError: The ttl is invalid; see `Redlock.lock`.
            RedlockClosed: The manager is closed.

        Safety: if the call is interrupted, the renewal may or may not happen. `remaining()` never
        exceeds the time that the nodes confirmed.
        """
        self.check()
        self._thread.run(lambda: self._lease.extend(ttl))

    def downgrade(self) -> None:
        """Turn this lease of `rwlock(…).write()` into a read lease. No writer comes in between.

        Readers that wait may enter from now on. The lease keeps its token and its ttl, and the
        `with` goes on. The lease never allows writing again, even if no node answers. Further calls
        have no effect. See `aioredlock_ng.Lease.downgrade`.

        Raises:
            LockLost: The lease is lost.
            LockReleased: The lease was released or abandoned, before the call or during it.
            ConfigurationError: The lease does not belong to a read-write lock.
            RedlockClosed: The manager is closed.

        Safety: if the call is interrupted, the downgrade goes on, except at the very beginning of
        the call.
        """
        self.check()
        self._thread.run(self._lease.downgrade, to_end=True)

    def release(self) -> bool:
        """Release the lock. Further calls have no effect.

        Returns:
            True if the lock was ours until now. False if the lease had already ended, or if the
            answers show that no quorum of nodes had its keys any more.

        Safety: if the call is interrupted, the release is sent nevertheless, except at the very
        beginning of the call.
        """
        if self._thread.dead:
            return False
        try:
            return self._thread.run(self._lease.release, to_end=True)
        except RedlockClosed:
            # The engine's thread has ended before the answers came. `was_gone` tells whether the
            # lease was lost.
            return False

    def abandon(self) -> None:
        """Stop the renewal and let the lock expire.

        No other client receives the lock before `remaining()` has reached 0.

        Raises:
            RedlockClosed: The manager is closed.
        """

        async def abandon() -> None:
            self._lease.abandon()

        self._thread.run(abandon)

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Wait until the lease is lost, released or abandoned.

        Args:
            timeout: Longest wait in seconds. None: for ever.

        Returns:
            True if the lease has ended, False after `timeout`. `lost` distinguishes a loss from the
            other ends.

        Raises:
            ConfigurationError: `timeout` is invalid.
            RedlockClosed: The manager is closed.

        Safety: an interrupted call changes nothing.
        """
        if timeout is not None:
            timeout = positive_seconds("timeout", timeout, zero=True)
        if self._is_over():
            return True

        async def wait() -> bool:
            try:
                await asyncio.wait_for(self._until_over(), timeout)
            except TimeoutError:
                return False
            return True

        try:
            return self._thread.run(wait)
        except RedlockClosed:
            # The closing, or the end of the thread, has ended the lease as well.
            if not self._is_over():
                raise
            return True

    def _is_over(self) -> bool:
        return not self.valid

    async def _until_over(self) -> None:
        """Wait on the engine's loop for the end of the lease."""
        await self._lease.wait_lost()

    def lost_error(self) -> LockLost:
        """Return the error that describes the loss of this lease.

        Internal: for the parts of the library that raise the error.
        """
        return self._lease.lost_error()

    @property
    def granted(self) -> ThreadedLease:
        """The asyncio lease behind this lease.

        Internal: for `Lock`.
        """
        return self._lease

    @property
    def was_gone(self) -> bool:
        """True if the lease was lost, or if its release found that no quorum held its keys.

        Internal: for `Lock` and integrations.
        """
        return self._lease.was_gone

    def __eq__(self, other: object) -> bool:
        """Return True if both objects stand for the same lease."""
        return isinstance(other, Lease) and other._lease == self._lease

    def __hash__(self) -> int:
        return hash(self._lease)

    def __repr__(self) -> str:
        """Show name, state and the beginning of the token, never the whole token."""
        return repr(self._lease)


class Entry(NamedTuple):
    """One `with` block that a thread is in: its lock or election, and its lease."""

    owner: object
    lease: Lease


class Inside(threading.local):
    """The `with` blocks that the current thread is in."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._entries: list[Entry] = []

    @property
    def entries(self) -> list[Entry]:
        """The entries, oldest first."""
        # A forked child inherits the entries of the thread that forked, but holds no lease. So
        # forget these entries.
        if self._process != (process := os.getpid()):
            self._process, self._entries = process, []
        return self._entries
