"""Lose leases on purpose, with the effects of a real loss.

The body is cancelled, `LockLost` is raised, events are sent, and a waiter receives the lock.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, get_args

from aioredlock_ng import ConfigurationError, Lease, Redlock, RedlockClosed
from aioredlock_ng._core.keys import name_bytes, slot_key
from aioredlock_ng._leases.loss_points import Point, observers
from aioredlock_ng.options import whole_number
from aioredlock_ng.testing._on_loop import run_on_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Point", "lose", "lose_at", "lose_lock"]

_REASON = "taken away on purpose by a test"

_THREAD_SECONDS = 5.0
"""Longest time in seconds that `lease.check()` in another thread waits for the event loop.

If the loop is busy for longer, `check` raises `TimeoutError`, and the lease is not lost.
"""


async def lose(lease: Lease) -> None:
    """Lose `lease` now. Inside its own `async with`, this call cancels the body.

    Raises:
        ConfigurationError: The lease has already ended, or is a lease for threads.
        RedlockClosed: The lease belongs to another event loop.

    Safety: the lease is lost even if this call is cancelled.
    """
    if not isinstance(lease, Lease):
        raise ConfigurationError(
            f"lease must be a lease of aioredlock_ng.Redlock, not {_type_of(lease)}; for a lease of"
            " aioredlock_ng.sync, use lose_at() or the manager's force_release()"
        )
    if not lease.valid:
        raise ConfigurationError(f"{lease!r} has already ended; only a held lease can be lost")
    # The loss happens in a callback, because a body that causes the loss itself would not be
    # cancelled.
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    loop.call_soon(_lose, lease, done)
    await done


def _type_of(value: object) -> str:
    # The value itself is not named, because a URL given by mistake may contain a password.
    return f"{type(value).__module__}.{type(value).__name__}"


def _lose(lease: Lease, done: asyncio.Future[None]) -> None:
    """Lose the lease, and report an error to the caller, who may be cancelled by the loss."""
    try:
        lease.lose(_REASON)
    except Exception as error:
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(None)


async def lose_lock(redlock: Redlock, name: str | bytes) -> None:
    """Delete the lock `name` on the nodes of `redlock`, so that any holder loses it.

    All readers of a read-write lock lose it. Each slot of a semaphore is a lock. Slot 2 of "gpu"
    has the name "gpu#2".

    A holder that acquired the lock through the manager `redlock` learns of the loss before this
    call returns. If the holder itself makes the call inside its `async with`, the call cancels the
    body. A holder in another manager or process is notified by the nodes, within a tenth of a
    second plus a round trip.

    Raises:
        ConfigurationError: Nobody holds the lock, or `redlock` is a manager for threads.
        QuorumUnreachable: Too few nodes answered to be sure that the lock is gone.
        RedlockClosed: `redlock` is not open, or belongs to another event loop.

    Safety: even if this call is cancelled, a holder that acquired the lock through the manager
    `redlock` loses it. The keys are deleted on all nodes that answer, or on none.
    """
    if not isinstance(redlock, Redlock):
        raise ConfigurationError(
            f"redlock must be an aioredlock_ng.Redlock, not {_type_of(redlock)}; for a manager of"
            " aioredlock_ng.sync, use lose_at() or the manager's force_release()"
        )
    own = [lease for lease in redlock.leases if _key(name) in _locks_of(lease)]
    for lease in own:
        asyncio.get_running_loop().call_soon(_lose_if_usable, lease)
    if not await redlock.force_release(name) and not own:
        raise ConfigurationError(
            f"nobody holds the lock {name!r}; only a held lock can be lost (a slot of a semaphore"
            " has the name of the semaphore and its number, like 'gpu#2')"
        )


def _lose_if_usable(lease: Lease) -> None:
    # The caller gets the same error from `force_release`.
    with suppress(RedlockClosed):
        lease.lose(_REASON)


@contextmanager
def lose_at(name: str | bytes, point: Point, *, nth: int = 1) -> Iterator[None]:
    """Lose a lease of the lock or semaphore `name` when its holder reaches a given point.

    A point counts only if it is reached during the `with` block. The lease may belong to any
    manager.

    Args:
        name: Name of the lock, or one of several names of the lock. For a semaphore, its name or
            the name of one of its slots, like "gpu#2".
        point: "acquired": the holder has the lock, and loses it at its first `await` that waits.
            "checked": the holder calls `lease.check()`, `verify()`, `extend()` or `downgrade()`,
            which raises `LockLost`. "released": the `async with` of the holder ends, or the holder
            calls `release()`. By then the holder has done its work, but another holder may have
            worked at the same time.
        nth: The lease is lost when the point is reached for the nth time. A lease that has already
            ended does not count.

    Raises:
        ConfigurationError: An argument is invalid.
        AssertionError: The block ended before the point was reached, so no lease was lost. Or the
            lease ended before its holder waited for anything.

    Safety: no further lease is lost after the end of the block, even if an exception ends the
    block.
    """
    if point not in get_args(Point):
        raise ConfigurationError(
            f"point must be one of {', '.join(get_args(Point))}, not {point!r}"
        )
    _key(name)
    whole_number("nth", nth, 1)
    plan = _Plan(name, point, nth)
    observers.append(plan.reached)
    try:
        yield
    finally:
        observers.remove(plan.reached)
    plan.verify()


class _Plan:
    """The condition under which `lose_at` loses a lease, and the lease once the condition is met.

    Attributes:
        loop: Event loop of the last acquire. Before an acquire, the loop on which `lose_at` was
            entered, or None.
    """

    def __init__(self, name: str | bytes, point: Point, nth: int) -> None:
        self._name = name
        self._point = point
        self._left = nth
        self._lease: Lease | None = None
        self._released: set[Lease] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        # If `lose_at` is entered outside an event loop, the next acquire sets the loop.
        with suppress(RuntimeError):
            self.loop = asyncio.get_running_loop()

    def reached(self, point: Point, lease: Lease) -> None:
        """Lose the lease if it is to be lost at this point."""
        if point == "acquired":
            self.loop = asyncio.get_running_loop()
        if not self._is_due(point, lease):
            return
        if point == "acquired" and self.loop is not None:
            # The callback runs at the holder's first wait. By then the body has begun, so the loss
            # cancels the body.
            self.loop.call_soon(lease.lose, _REASON)
        elif point == "checked":
            self._lose_here(lease)
        else:
            lease.lose(_REASON)

    def _is_due(self, point: Point, lease: Lease) -> bool:
        if point != self._point or self._left == 0 or not _is_of(lease, self._name):
            return False
        if not (lease.held and lease.valid):
            return False
        if point == "released":
            # A lease may reach this point several times, because both `Lease.left` and each call of
            # `Lease.release` report it. So each lease counts only once.
            if lease in self._released:
                return False
            self._released.add(lease)
        self._left -= 1
        if self._left:
            return False
        self._lease = lease
        return True

    def _lose_here(self, lease: Lease) -> None:
        """Lose the lease, and return only after the loss. Any thread may call this method."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if self.loop is None:
                raise RuntimeError(
                    "enter lose_at() on the event loop: this lease belongs to another thread"
                    " and is older than lose_at()"
                ) from None
            run_on_loop(self.loop, partial(lease.lose, _REASON), _THREAD_SECONDS)
        else:
            lease.lose(_REASON)

    def verify(self) -> None:
        """Raise `AssertionError` if no lease was lost."""
        if self._lease is None:
            raise AssertionError(
                f"the block ended before a valid lease of {self._name!r} was {self._point}"
                f" {self._left} more time(s), so no lease was lost"
            )
        if not self._lease.lost:
            raise AssertionError(
                f"{self._lease!r} ended before its holder waited for anything, and was not lost;"
                " use the point 'checked' or 'released'"
            )


def _is_of(lease: Lease, name: str | bytes) -> bool:
    return _key(name) in {*map(_key, lease.resources), *_locks_of(lease)}


def _locks_of(lease: Lease) -> set[bytes]:
    """Return the names of the locks that a lease consists of. A slot is a lock of its own."""
    names = set(map(_key, lease.resources))
    return names if lease.slot is None else {slot_key(name, lease.slot) for name in names}


def _key(name: str | bytes) -> bytes:
    return name_bytes("name", name)
