"""Define the lock for threads. Each `acquire` returns a new lease."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from aioredlock_ng._leases.lease_base import thread_inside
from aioredlock_ng._notes import add_note, is_loss
from aioredlock_ng.errors import RedlockError
from aioredlock_ng.sync._lease import Entry, Lease
from aioredlock_ng.usage import call_of, unsupported

if TYPE_CHECKING:
    from types import TracebackType

    import aioredlock_ng
    from aioredlock_ng._threaded.opened import Opened

__all__ = ["Lock", "Manager", "OnLost", "right_use", "start_on_lost"]

OnLost = Callable[[Lease], object]
"""A function that is called once with a lost lease, in a thread made for this call."""


class Manager(Protocol):
    """The part of a `Redlock` that its locks need."""

    def opened(self) -> Opened[aioredlock_ng.Redlock]:
        """Return the open manager with its thread. Open the manager if needed."""

    @property
    def known(self) -> aioredlock_ng.Redlock:
        """The asyncio manager of this process, open or not."""

    @property
    def inside(self) -> list[Entry]:
        """The `with` blocks that the current thread is in, oldest first."""


def right_use(call: str) -> str:
    """Return the right code for threads and for coroutines, as a part of an error message."""
    return f"`with {call}:`, or `aioredlock_ng.Redlock` in a coroutine"


@unsupported(
    "async with",
    "await",
    instead=lambda lock: right_use(
        call_of("lock", lock.resources[0], ", …" if lock.resources[1:] else "")
    ),
)
class Lock:
    """A named lock, made by `Redlock.lock`. Many threads may use the object at once.

    The thread that enters a `with` must also leave it. A thread must leave its entries of a `Lock`
    object in the reverse order of entering, because the newest entry ends. Generators that may end
    in another order need an object each.
    """

    __slots__ = ("_manager", "_on_lost", "_options", "_resources")

    def __init__(
        self,
        manager: Manager,
        resources: tuple[str | bytes, ...],
        options: dict[str, Any],
        on_lost: OnLost | None,
    ) -> None:
        self._manager = manager
        self._on_lost = on_lost
        self._resources = resources
        self._options = options
        # Invalid arguments must raise an error here, and not only at the first acquire.
        self._described()

    @property
    def resource(self) -> str:
        """The lock's name; several names are joined by ", "."""
        return self._described().resource

    @property
    def resources(self) -> tuple[str | bytes, ...]:
        """Names of the lock, as given."""
        return self._resources

    @property
    def ttl(self) -> float:
        """Seconds until the lock expires without renewal."""
        return self._described().ttl

    def __repr__(self) -> str:
        return repr(self._described())

    def described_by(self, redlock: aioredlock_ng.Redlock) -> aioredlock_ng.Lock:
        """Return the asyncio lock with these settings.

        Internal: `Semaphore`, `ReadLock` and `WriteLock` replace this method.
        """
        return redlock.lock(*self._resources, on_lost="flag", **self._options)

    def acquire(self) -> Lease:
        """Wait for the lock for at most `blocking_timeout` seconds, and return its lease.

        Raises:
            LockHeld: Another client holds the lock, and `blocking_timeout` is 0. Or this thread
                itself holds the lock in an enclosing `with`, and `blocking_timeout` is None. The
                thread would then wait for itself for ever.
            UpgradeRefused: The calling thread reads the lock in an enclosing `with`, and asks to
                write.
            AcquireTimeout: Another client still held the lock after `blocking_timeout`.
            QuorumUnreachable: Too few nodes answered, or too many nodes refuse for reasons that
                waiting does not change.
            RedlockClosed: The manager is closed.

        Safety: an exception of a signal handler, such as KeyboardInterrupt, ends the wait and
        undoes the attempt.
        """
        return self._acquired(lambda lock: lock.acquire())  # type: ignore[no-any-return]

    def try_acquire(self) -> Lease | None:
        """Try to acquire the lock without waiting. Return None if another client holds it.

        `blocking_timeout` has no effect here.

        Raises:
            UpgradeRefused: The calling thread reads the lock, and asks to write.
            QuorumUnreachable: Too few nodes answered.
            RedlockClosed: The manager is closed.

        Safety: as in `acquire`.
        """
        return self._acquired(lambda lock: lock.try_acquire())  # type: ignore[no-any-return]

    def __enter__(self) -> Lease:
        """Acquire the lock.

        The body must call `lease.check()` before each write. A loss does not interrupt the body.

        Raises:
            LockNotAcquired: As in `acquire`.
            RedlockClosed: As in `acquire`.

        Safety: as in `acquire`.
        """
        lease = None
        try:
            lease = self.acquire()
            self._manager.inside.append(Entry(self, lease))
            lease.granted.entered_by_thread()
            return lease
        except BaseException:
            # After an exception here, `__exit__` does not run. So release the lock.
            if lease is not None:
                lease.granted.forgo_min_hold()
                self._leave(lease)
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the lock.

        Raises:
            LockLost: The lease was lost while the body ran, or the release found the loss. The
                body's own exception has priority and receives a note.
            RedlockError: The thread that left the block had not entered it. Nothing was released.

        Safety: as in `Lease.release`.
        """
        if isinstance(exc, GeneratorExit):
            # Python closes the generator that contains the body, and no caller sees this exception.
            exc = None
        mine = [entry.lease for entry in self._manager.inside if entry.owner is self]
        if not mine:
            unknown = RedlockError(
                f"the `with` of the lock {self.resource!r} ended in a thread that did not enter it,"
                " so nothing was released; use `acquire` and `release` if a lease changes threads"
            )
            if exc is None:
                raise unknown
            add_note(exc, str(unknown))
            return
        lease = mine[-1]
        try:
            released = False
            released = self._leave(lease)
        except BaseException:
            # A signal handler may have raised the exception before the release began. So release
            # the lock here.
            self._leave(lease)
            raise
        if released:
            return
        error = lease.lost_error()
        if exc is None:
            raise error
        # A body may fail by the loss of another lock.
        if not is_loss(exc, lease.resource):
            add_note(exc, str(error))

    def leave(self, lease: Lease) -> None:
        """Release a lease whose `with` was ended by a signal handler before `__exit__` began.

        Nothing happens if `__exit__` has released the lease.

        Internal: for decorators.
        """
        if any(entry.lease is lease for entry in self._manager.inside):
            self._leave(lease)

    def _leave(self, lease: Lease) -> bool:
        """Release a lease, and leave its `with`. Return False if the lease was lost."""
        # The body has ended. So from now on, a closing of the manager is no loss.
        lease.granted.left_by_thread()
        lost = lease.granted.ended_lost()
        released = not lost and (lease.release() or not lease.was_gone)
        inside = self._manager.inside
        inside[:] = [entry for entry in inside if entry.lease is not lease]
        return released

    def _acquired(
        self, ask: Callable[[aioredlock_ng.Lock], Awaitable[aioredlock_ng.Lease | None]]
    ) -> Any:
        # Another thread may close and reopen the manager at any time. So the thread and the lock
        # come from one reading.
        here = self._manager.opened()
        lock = self.described_by(here.redlock)
        inside = [entry.lease.granted for entry in self._manager.inside]

        async def acquire() -> Lease | None:
            with thread_inside(inside) if inside else nullcontext():
                granted = await ask(lock)
            if granted is None:
                return None
            lease = Lease(granted, here.thread)
            if self._on_lost is not None:
                # Begin the watch here, on the loop. If the calling thread began it after `run`, an
                # interrupt in between would leave a granted lease that nobody releases.
                _watch(granted, lease, self._on_lost)
            return lease

        return here.thread.run(acquire, _give_back, accept=_refuse_closed)

    def _described(self) -> aioredlock_ng.Lock:
        return self.described_by(self._manager.known)


def _refuse_closed(lease: Lease | None) -> None:
    if lease is not None:
        lease.granted.refuse_closed()


async def _give_back(lease: Lease | None) -> None:
    if lease is not None:
        lease.granted.forgo_min_hold()
        await lease.granted.release()


def start_on_lost(on_lost: OnLost, lease: Lease) -> None:
    """Call `on_lost` in a new thread. On the event loop, a slow callback would stop all renewals.

    Internal: for `Lock` and `Election`.
    """
    threading.Thread(
        target=on_lost, args=(lease,), name="aioredlock_ng:on_lost", daemon=True
    ).start()


def _watch(granted: aioredlock_ng.Lease, lease: Lease, on_lost: OnLost) -> None:
    """Call `on_lost` once if the lease is lost."""

    async def watch() -> None:
        await granted.wait_lost()
        if lease.lost:
            start_on_lost(on_lost, lease)

    # The lease refers to the future for which this task waits, and so keeps the task alive.
    _ = asyncio.get_running_loop().create_task(watch())
