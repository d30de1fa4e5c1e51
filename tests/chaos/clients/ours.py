"""The workload's way to aioredlock_ng, and the defects that a checker must find."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from redis.asyncio import BlockingConnectionPool, Redis

from aioredlock_ng import LockHeld, LockLost, LockNotAcquired, LockReleased, Redlock
from aioredlock_ng.fencing import RedisFence, StaleFence

from ..history import SHOWN
from .broken import break_it
from .port import NotGot, seconds_to_ns

if TYPE_CHECKING:
    from aioredlock_ng import Lease, Lock
    from aioredlock_ng.errors import LockNotAcquired as NotAcquired

    from .port import Body, Hold, Wish

__all__ = ["OurClient", "make"]


class OurHold:
    """A lease."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.fence = lease.fence
        self.token = lease.token[:SHOWN]
        self.slot: int | None = lease.slot
        self.since: int | None = seconds_to_ns(lease._record.since)

    @property
    def votes(self) -> str:
        """Nodes that hold it, as far as is known now."""
        return "{}/{}".format(*self.lease.nodes)

    def deadline(self) -> int | None:
        """Of the holding itself: `remaining()` is 0 once it is over, and then tells no instant any
        more.
        """
        return seconds_to_ns(self.lease._record.deadline)

    def lost(self) -> str:
        """By the lease's own word."""
        if not self.lease.lost:
            return ""
        return self.lease._record.reason or "its deadline passed"

    def lost_at(self) -> int | None:
        """By the engine, which may run while the body blocks the event loop."""
        at = getattr(self.lease._record, "lost_at", None)
        return None if at is None else seconds_to_ns(at)

    async def wait_lost(self) -> None:
        """By the lease's own word."""
        await self.lease.wait_lost()


class OurClient:
    """One `Redlock`, and a client of the store with the fenced registers."""

    async def open(self, task: dict[str, Any]) -> None:
        """Connect to the nodes and to the store."""
        options: dict[str, Any] = {key: task[key] for key in ("ttl", "max_ttl", "node_timeout")}
        if task["broken"] == "guard":
            options["recovery_guard"] = None
        self._redlock = await Redlock(task["urls"], thread=task["thread"], **options).open()
        break_it(task["broken"], self._redlock)
        # With a socket_timeout, redis-py calls `asyncio.wait_for` for each command. On Python 3.11
        # this call swallows a cancellation if the command was sent in the same tick. A body would
        # then work on after the loss of its lease.
        self._store = Redis(
            connection_pool=BlockingConnectionPool.from_url(
                task["store"], max_connections=40, timeout=None, socket_timeout=None
            )
        )
        self._fence = RedisFence(self._store)
        self._attempts = 0

    async def hold(self, wish: Wish, body: Body) -> bool:
        """See `Client`."""
        if wish.kind == "election":
            return await self._lead(wish, body)
        lock = self._lock(wish)
        try:
            if wish.how == "with":
                async with lock as lease:
                    await body(OurHold(lease))
                return True
            self._attempts += wish.how == "try"
            # The error of `acquire` says what each node answered. `try_acquire` returns None.
            once = wish.how == "try" and wish.kind == "lock" and self._attempts % 2 == 0
            got = await (lock.try_acquire() if once else lock.acquire())
        except LockLost:
            return False
        except LockHeld as error:
            if wish.how != "try":
                raise NotGot(type(error).__name__, _votes(error)) from None
            raise NotGot("held", _votes(error)) from None
        except LockNotAcquired as error:
            raise NotGot(type(error).__name__, _votes(error)) from None
        if got is None:
            raise NotGot("held")
        try:
            await body(OurHold(got))
        finally:
            released = await got.release()
        return released

    def _lock(self, wish: Wish) -> Lock:
        options: Any = {
            "blocking_timeout": 0 if wish.how == "try" else wish.wait,
            "on_lost": "cancel" if wish.how == "with" else "flag",
        }
        if wish.kind in ("read", "write"):
            sides = self._redlock.rwlock(wish.names[0], **options)
            return sides.read() if wish.kind == "read" else sides.write()
        options |= {"min_hold": wish.min_hold or None, "fair": wish.fair}
        if wish.kind == "semaphore":
            return self._redlock.semaphore(wish.names[0], wish.limit, **options)
        return self._redlock.lock(*wish.names, **options)

    async def _lead(self, wish: Wish, body: Body) -> bool:
        """Stand for an election, and run the body in each term.

        A candidate has no time limit of its own. The body records a term that ends too early.
        """
        loop = asyncio.get_running_loop()
        election = self._redlock.election(wish.names[0], rejoin=wish.rejoin)
        try:
            async with asyncio.timeout(wish.wait) as limit:

                async def main(lease: Lease) -> None:
                    limit.reschedule(None)
                    try:
                        await body(OurHold(lease))
                    finally:
                        limit.reschedule(loop.time() + wish.wait)

                if wish.how == "run":
                    await election.run(main)
                else:
                    async with election as lease:
                        await main(lease)
        except TimeoutError:
            raise NotGot("AcquireTimeout") from None
        except LockNotAcquired as error:
            raise NotGot(type(error).__name__, _votes(error)) from None
        except (LockLost, LockReleased):
            return True
        return True

    async def read(self, name: str, hold: Hold) -> int:
        """See `Client`."""
        return int(await self._fence.get(f"register:{name}", fence=hold.fence) or 0)

    async def write(self, name: str, value: int, hold: Hold) -> None:
        """See `Client`."""
        await self._fence.set(f"register:{name}", value, fence=hold.fence)

    def clashes(self, error: Exception) -> bool:
        """See `Client`."""
        return isinstance(error, StaleFence)

    async def downgrade(self, hold: Hold) -> None:
        """See `Client`."""
        assert isinstance(hold, OurHold)
        with contextlib.suppress(LockLost, LockReleased):
            await hold.lease.downgrade()
        hold.fence = hold.lease.fence

    async def close(self) -> None:
        """Release what is held and disconnect."""
        await self._redlock.aclose()
        await self._store.aclose()
        await self._store.connection_pool.disconnect()


def _votes(error: NotAcquired) -> str:
    """Return a letter per node, and the words of the nodes that did not vote.

    An error without votes has the reason in its message.
    """
    if not error.votes:
        return str(error)
    letters = "".join(str(vote.outcome)[0] for vote in error.votes)
    words = "; ".join(
        f"{index}: {vote.detail}" for index, vote in enumerate(error.votes) if vote.detail
    )
    return f"{letters} {words}"


def make() -> OurClient:
    """Make the client of this process."""
    return OurClient()
