"""The lease of a thread: how long the lock is certainly held, and the ways to end that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioredlock_ng.errors import LockLost

if TYPE_CHECKING:
    import aioredlock_ng
    from aioredlock_ng.sync._thread import EngineThread

__all__ = ["Lease"]


class Lease:
    """A granted lock. Made by `Lock.acquire`, never by hand.

    All times are seconds. Every method may be called from any thread. The lease renews itself
    unless the lock has `auto_extend=False`. The renewals do not depend on the program's threads.
    """

    __slots__ = ("__weakref__", "_lease", "_thread")

    def __init__(self, lease: aioredlock_ng.Lease, thread: EngineThread) -> None:
        self._lease = lease
        self._thread = thread

    @property
    def resource(self) -> str:
        """The lock's name; several names are joined by ", "."""
        return self._lease.resource

    @property
    def resources(self) -> tuple[str | bytes, ...]:
        """The names as given."""
        return self._lease.resources

    @property
    def token(self) -> str:
        """The random value that the lock's keys hold on the nodes. Leases of one grant share it."""
        return self._lease.token

    @property
    def fence(self) -> int | Any:
        """The fencing token: greater than that of every earlier lease of the same resources.

        None only with `Redlock(fencing=False)`.
        """
        return self._lease.fence

    @property
    def ttl(self) -> float:
        """Seconds that the keys live without renewal, as last renewed."""
        return self._lease.ttl

    def remaining(self) -> float:
        """Return the seconds for which the lock is certainly held, by the local clock."""
        return 0.0 if self._thread.dead else self._lease.remaining()

    @property
    def valid(self) -> bool:
        """True while the lock may be relied on. False after release, loss, or the deadline."""
        return self.remaining() > 0.0

    @property
    def lost(self) -> bool:
        """True once the lease ended, neither released nor abandoned."""
        return self._lease.lost or self._is_orphaned

    @property
    def nodes(self) -> tuple[int, int]:
        """How many nodes granted or last renewed it, and how many there are."""
        return self._lease.nodes

    def check(self) -> None:
        """Make sure that the lock is still held, without I/O. The call to make before each write.

        Raises:
            LockLost: It is over: the deadline passed, a quorum does not hold it any more, or the
                thread that renews it has ended.
            LockReleased: It was released, or abandoned and then expired.
        """
        if self._is_orphaned:
            raise self._orphaned()
        self._lease.check()

    def verify(self) -> None:
        """Ask the nodes whether a quorum still holds this lease's token.

        Raises:
            LockLost: A quorum can no longer hold it, or the deadline has passed.
            LockReleased: It was released or abandoned, before or meanwhile.
            QuorumUnreachable: Too few nodes answered to say; the lease goes on until its deadline.
            RedlockClosed: The manager is closed.

        Safety: interrupted, nothing has changed.
        """
        self.check()
        self._thread.run(self._lease.verify)

    def extend(self, ttl: float | None = None) -> None:
        """Renew now, besides the renewals in the background.

        Args:
            ttl: New life in seconds from now, used by later renewals too; None: as before.

        Raises:
            LockLost: It is lost.
            LockReleased: It was released or abandoned, before or meanwhile.
            QuorumUnreachable: No quorum renewed it in time; the lease goes on until its deadline.
            ConfigurationError: The ttl is unusable; see `Redlock.lock`.
            RedlockClosed: The manager is closed.

        Safety: interrupted, the renewal may or may not happen; `remaining()` is never more than the
        nodes confirmed.
        """
        self.check()
        self._thread.run(lambda: self._lease.extend(ttl))

    def release(self) -> bool:
        """Give the lock up. Idempotent.

        Returns:
            True if it was held until now. False if it was over already, or if a quorum of nodes
            turns out not to have held it any more.

        Safety: interrupted, the release is on its way to the nodes.
        """
        if self._thread.dead:
            return False
        return self._thread.run(self._lease.release)

    def abandon(self) -> None:
        """Stop renewing and let the lock expire.

        No other client acquires it before `remaining()` is over.

        Raises:
            RedlockClosed: The manager is closed.
        """

        async def abandon() -> None:
            self._lease.abandon()

        self._thread.run(abandon)

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Wait until the lease is over: lost, released or abandoned.

        Args:
            timeout: Seconds to wait at most; None: until it is over.

        Returns:
            True if it is over. `lost` says whether it was lost.

        Raises:
            RedlockClosed: The manager is closed.

        Safety: interrupted, nothing has changed.
        """
        if self._is_orphaned:
            return True

        async def wait() -> bool:
            try:
                await asyncio.wait_for(self._lease.wait_lost(), timeout)
            except TimeoutError:
                return False
            return True

        return self._thread.run(wait)

    def lost_error(self) -> LockLost:
        """Return the error that tells how this lease was lost; for callers that raise it."""
        return self._orphaned() if self._is_orphaned else self._lease.lost_error()

    @property
    def was_gone(self) -> bool:
        """True if it was lost, or if its release found that a quorum no longer held it."""
        return self._lease.was_gone or self._is_orphaned

    def __eq__(self, other: object) -> bool:
        """Equal if they are the same lease."""
        return isinstance(other, Lease) and other._lease == self._lease

    def __hash__(self) -> int:
        """By lease."""
        return hash(self._lease)

    def __repr__(self) -> str:
        """Name, state and the beginning of the token; never the whole token."""
        return repr(self._lease) if not self._thread.dead else f"<Lease {self.resource!r} lost>"

    @property
    def _is_orphaned(self) -> bool:
        """True if it was held when its thread ended, or belongs to the process before a fork."""
        return bool(self._thread.dead) and self._lease in self._thread.orphans

    def _orphaned(self) -> LockLost:
        return LockLost(
            f"the lock {self.resource!r} was lost: {self._thread.dead}",
            resource=self.resource,
            elapsed=0.0,
        )
