"""A named lock for threads: each acquire gives a lease of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng.errors import LockHeld, LockLost, RedlockError
from aioredlock_ng.sync._lease import Lease

if TYPE_CHECKING:
    from types import TracebackType

    import aioredlock_ng
    from aioredlock_ng.sync._thread import EngineThread

__all__ = ["Lock", "OnLost"]

OnLost = Callable[[Lease], object]
"""Called once with a lease that is lost, on a thread made for this call."""


class _Manager(Protocol):
    """The part of a `Redlock` that its locks need."""

    def opened(self) -> EngineThread:
        """Return the thread that the locks live on; open the manager if that was not done yet."""

    def described(self, lock: Lock) -> aioredlock_ng.Lock:
        """Return the lock of this description on the manager that is open in this process."""

    @property
    def inside(self) -> list[Lease]:
        """The leases that this very thread holds by `with`, oldest first."""


class Lock:
    """Made by `Redlock.lock`. Cheap, reusable, and safe to use from many threads at once.

    A `with` must be left by the thread that entered it.
    """

    __slots__ = ("_blocking_timeout", "_manager", "_on_lost", "options", "resources")

    def __init__(
        self,
        manager: _Manager,
        resources: tuple[str | bytes, ...],
        options: dict[str, object],
        blocking_timeout: float | None,
        on_lost: OnLost | None,
    ) -> None:
        self._manager = manager
        self._blocking_timeout = blocking_timeout
        self._on_lost = on_lost
        self.resources = resources
        self.options = options

    @property
    def resource(self) -> str:
        """The lock's name; several names are joined by ", "."""
        return self._manager.described(self).resource

    @property
    def ttl(self) -> float:
        """Seconds that it lives without renewal."""
        return self._manager.described(self).ttl

    def __repr__(self) -> str:
        """Name and settings."""
        return repr(self._manager.described(self))

    def acquire(self) -> Lease:
        """Wait for the lock, `blocking_timeout` at most.

        Raises:
            LockHeld: Held by another, and `blocking_timeout` is 0. Or `blocking_timeout` is None,
                and this very thread holds it in an enclosing `with`: it would wait for ever.
            AcquireTimeout: Still held by another after `blocking_timeout`.
            QuorumUnreachable: Too few nodes could be asked, or too many refuse for reasons that
                waiting does not cure.
            RedlockClosed: The manager is closed.

        Safety: an exception of a signal handler, as KeyboardInterrupt, ends the wait and undoes the
        attempt.
        """
        self._refuse_deadlock()
        thread = self._manager.opened()
        lock = self._manager.described(self)

        async def acquire() -> Lease:
            return Lease(await lock.acquire(), thread)

        lease = thread.run(acquire, _give_back)
        if self._on_lost is not None:
            _watch(thread, lease, self._on_lost)
        return lease

    def try_acquire(self) -> Lease | None:
        """Attempt it without waiting, whatever `blocking_timeout` says; None if another holds it.

        Raises:
            QuorumUnreachable: Too few nodes could be asked.
            RedlockClosed: The manager is closed.

        Safety: as `acquire`.
        """
        thread = self._manager.opened()
        lock = self._manager.described(self)

        async def attempt() -> Lease | None:
            lease = await lock.try_acquire()
            return None if lease is None else Lease(lease, thread)

        lease = thread.run(attempt, _give_back)
        if lease is not None and self._on_lost is not None:
            _watch(thread, lease, self._on_lost)
        return lease

    def __enter__(self) -> Lease:
        """Acquire the lock.

        The body must call `lease.check()` before each write. No exception is thrown into it.

        Raises:
            LockNotAcquired: See `acquire`.
            RedlockClosed: See `acquire`.

        Safety: as `acquire`.
        """
        lease = self.acquire()
        self._manager.inside.append(lease)
        return lease

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release.

        Raises:
            LockLost: The lease was lost while the body ran, also if only the release finds it out.
                The body's own exception wins, with a note.
            RedlockError: Left by a thread that did not enter it; nothing was released.

        Safety: as `Lease.release`.
        """
        inside = self._manager.inside
        mine = [lease for lease in inside if lease.resources == self.resources]
        if not mine:
            unknown = RedlockError(
                f"the lock {self.resource!r} is left in a thread that did not enter it, so nothing"
                " was released; use `acquire` and `release` where a lease changes threads"
            )
            if exc is None:
                raise unknown
            exc.add_note(str(unknown))
            return
        lease = mine[-1]
        inside.remove(lease)
        lost = lease.lost
        if not lost and (lease.release() or not lease.was_gone):
            return
        error = lease.lost_error()
        if exc is None:
            raise error
        if not isinstance(exc, LockLost):
            exc.add_note(str(error))

    def _refuse_deadlock(self) -> None:
        if self._blocking_timeout is not None:
            return
        names = set(self.resources)
        if any(lease.valid and names & set(lease.resources) for lease in self._manager.inside):
            raise LockHeld(
                f"{self.resource!r} was not acquired: this very thread holds it in an enclosing"
                " `with` and would wait for ever",
                resource=self.resource,
                elapsed=0.0,
            )


async def _give_back(lease: Lease | None) -> None:
    if lease is not None:
        await lease._lease.release()


def _watch(thread: EngineThread, lease: Lease, on_lost: OnLost) -> None:
    """Have `on_lost` called once if the lease is lost, or if its renewing thread ends first."""
    called = threading.Event()

    def notify() -> None:
        if not called.is_set() and lease.lost:
            called.set()
            # Not on the event loop: a slow callback would stop the renewals of all other leases.
            threading.Thread(
                target=on_lost, args=(lease,), name="aioredlock_ng:on_lost", daemon=True
            ).start()

    forget = thread.at_death(notify)

    async def watch() -> None:
        await lease._lease.wait_lost()
        forget()
        notify()

    thread.start_soon(watch)
