"""Makes leases be lost on purpose, at a chosen point, by the path of every real loss; it never invents a second one.

The holder is told as it would be: the body is cancelled, `LockLost` is raised, events are emitted, whoever waits gets the lock.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Literal, get_args

from aioredlock_ng import ConfigurationError, Lease, Lock
from aioredlock_ng._core.keys import name_bytes
from aioredlock_ng.options import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioredlock_ng import Redlock

__all__ = ["Point", "lose", "lose_at", "lose_lock"]

Point = Literal["acquired", "checked", "released"]
"""Where `lose_at` loses a lease."""

_REASON = "taken away on purpose by a test"

_THREAD_SECONDS = 5.0
"""A check in another thread waits for the event loop so long: a loop that is busy for longer hangs."""


async def lose(lease: Lease) -> None:
    """Lose `lease` now. Inside its own `async with` this call is where the body is cancelled.

    Raises:
        ConfigurationError: The lease is over already: there is nothing to lose.

    Safety: cancelled, the lease is lost all the same.
    """
    if not lease.valid:
        raise ConfigurationError(f"{lease!r} is over already; lose it while it is held")
    # Not from this task: a body that finds its loss itself is not cancelled.
    asyncio.get_running_loop().call_soon(lease.lose, _REASON)
    await asyncio.sleep(0)


async def lose_lock(redlock: Redlock, name: str | bytes) -> None:
    """Take the lock `name` away from whoever holds it, on the nodes of `redlock`.

    A holder in `redlock` itself has lost it when this returns, or is cancelled by this call. One in another manager or
    process learns it from the nodes, within a tenth of a second and a round trip.

    Raises:
        ConfigurationError: Nobody holds it.
        QuorumUnreachable: Too few nodes answered to be sure that it is gone everywhere.
        RedlockClosed: `redlock` is not open, or belongs to another event loop.

    Safety: cancelled, a holder of `redlock`'s own has lost it; the keys are deleted on all nodes that answer, or on none.
    """
    own = [lease for lease in redlock.leases if _is_of(lease, name)]
    for lease in own:
        asyncio.get_running_loop().call_soon(lease.lose, _REASON)
    if not await redlock.force_release(name) and not own:
        raise ConfigurationError(f"nobody holds the lock {name!r}; lose it while it is held")


@contextmanager
def lose_at(name: str | bytes, point: Point, *, nth: int = 1) -> Iterator[None]:
    """Have a lease of the lock `name` be lost at a point of the code that runs inside this block, whichever manager it has.

    Args:
        name: The lock's, or one of its names.
        point: "acquired": the holder has the lock, and loses it at its first `await` that waits. "checked": it calls
            `lease.check()`, `verify()` or `extend()`, which raises `LockLost`. "released": its `async with` ends, or it
            calls `release()`: everything was done, and it cannot be known whether as the only one.
        nth: At which such point, counted from 1 in this block.

    Raises:
        ConfigurationError: An argument is unusable.
        AssertionError: At the end of the block: that point was not reached, so nothing was lost.

    Safety: whatever ends the block, no further lease is lost.
    """
    if point not in get_args(Point):
        raise ConfigurationError(
            f"point must be one of {', '.join(get_args(Point))}, not {point!r}"
        )
    _key(name)
    whole_number("nth", nth, 1)
    from unittest.mock import patch  # slow to import, and only needed here

    plan = _Plan(name, point, nth)
    acquire, check, left, release = Lock.acquire, Lease.check, Lease.left, Lease.release

    async def acquiring(lock: Lock) -> Lease:
        lease = await acquire(lock)
        plan.loop = loop = asyncio.get_running_loop()
        if plan.reached("acquired", lease):
            # Behind what the holder does before it waits for anything: it is in its body then.
            loop.call_soon(lease.lose, _REASON)
        return lease

    def checking(lease: Lease) -> None:
        if plan.reached("checked", lease):
            plan.lose_here(lease)
        check(lease)

    def leaving(lease: Lease) -> None:
        if plan.reached("released", lease):
            lease.lose(_REASON)
        left(lease)

    async def releasing(lease: Lease) -> bool:
        if plan.reached("released", lease):
            lease.lose(_REASON)
        return await release(lease)

    with ExitStack() as patches:
        for owner, method, instead in (
            (Lock, "acquire", acquiring),
            (Lease, "check", checking),
            (Lease, "left", leaving),
            (Lease, "release", releasing),
        ):
            patches.enter_context(patch.object(owner, method, instead))
        yield
    plan.verify()


class _Plan:
    """Which lease is to be lost, and whether it was.

    Attributes:
        loop: The event loop of the leases seen so far.
    """

    def __init__(self, name: str | bytes, point: Point, nth: int) -> None:
        self._name = name
        self._point = point
        self._left = nth
        self._lease: Lease | None = None
        self._released: set[Lease] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        # A test without a loop of its own is told it by the first acquire.
        with suppress(RuntimeError):
            self.loop = asyncio.get_running_loop()

    def reached(self, point: Point, lease: Lease) -> bool:
        """True when it is to be lost here."""
        if point != self._point or self._left == 0 or not _is_of(lease, self._name):
            return False
        if point == "released":
            # The end of an `async with` passes here twice, and a release may be called again.
            if lease in self._released:
                return False
            self._released.add(lease)
        self._left -= 1
        if self._left:
            return False
        self._lease = lease
        return True

    def lose_here(self, lease: Lease) -> None:
        """Lose it before this returns, on any thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if self.loop is None:
                raise RuntimeError(
                    "enter lose_at() on the event loop: this lease is in another thread, and older than it"
                ) from None
            asyncio.run_coroutine_threadsafe(_lost_on_loop(lease), self.loop).result(
                _THREAD_SECONDS
            )
        else:
            lease.lose(_REASON)

    def verify(self) -> None:
        """Fail when nothing was lost: a test that expects a loss must not pass without one."""
        if self._lease is None:
            raise AssertionError(
                f"no lease of {self._name!r} was {self._point} ({self._left} more to come): nothing was lost"
            )
        if not self._lease.lost:
            raise AssertionError(
                f"{self._lease!r} was over before its holder waited for anything; lose it when it is 'checked' or 'released'"
            )


def _is_of(lease: Lease, name: str | bytes) -> bool:
    return _key(name) in map(_key, lease.resources)


def _key(name: str | bytes) -> bytes:
    return name_bytes("name", name)


async def _lost_on_loop(lease: Lease) -> None:
    lease.lose(_REASON)
