"""The workload's way to aioredlock_ng, and the defects that a checker must find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis.asyncio import BlockingConnectionPool, Redis

from aioredlock_ng import LockLost, LockNotAcquired, Redlock
from aioredlock_ng.fencing import RedisFence, StaleFence

from .broken import break_it
from .port import NotGot, seconds_to_ns

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from aioredlock_ng.errors import LockNotAcquired as NotAcquired

    from .port import Body, Hold, How

__all__ = ["OurClient", "make"]


class OurHold:
    """A lease."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.fence = lease.fence
        self.token = lease.token[:8]

    @property
    def votes(self) -> str:
        """Nodes that hold it, as far as is known now."""
        return "{}/{}".format(*self._lease.nodes)

    def deadline(self) -> int | None:
        """Of the holding itself: `remaining()` is 0 once it is over, and then tells no instant any more."""
        return seconds_to_ns(self._lease._holding.deadline)

    def lost(self) -> str:
        """By the lease's own word."""
        if not self._lease.lost:
            return ""
        return self._lease._holding.reason or "its deadline passed"

    async def wait_lost(self) -> None:
        """By the lease's own word."""
        await self._lease.wait_lost()


class OurClient:
    """One `Redlock`, and a client of the store with the fenced registers."""

    async def open(self, task: dict[str, Any]) -> None:
        """Connect to the nodes and to the store."""
        options: dict[str, Any] = {key: task[key] for key in ("ttl", "max_ttl", "node_timeout")}
        if task["broken"] == "guard":
            options["recovery_guard"] = None
        self._redlock = await Redlock(task["urls"], **options).open()
        break_it(task["broken"], self._redlock)
        self._store = Redis(connection_pool=BlockingConnectionPool.from_url(task["store"], max_connections=40, timeout=None))
        self._fence = RedisFence(self._store)

    async def hold(self, names: list[str], how: How, wait: float, body: Body) -> bool:
        """See `Client`."""
        lock = self._redlock.lock(*names, blocking_timeout=wait, on_lost="cancel" if how == "with" else "flag")
        try:
            if how == "with":
                async with lock as lease:
                    await body(OurHold(lease))
                return True
            got = await (lock.try_acquire() if how == "try" else lock.acquire())
        except LockLost:
            return False
        except LockNotAcquired as error:
            raise NotGot(type(error).__name__, _votes(error)) from None
        if got is None:
            raise NotGot("held")
        try:
            await body(OurHold(got))
        finally:
            released = await got.release()
        return released

    async def read(self, name: str, hold: Hold) -> int:
        """See `Client`."""
        return int(await self._fence.get(f"register:{name}", fence=hold.fence) or 0)

    async def write(self, name: str, value: int, hold: Hold) -> None:
        """See `Client`."""
        await self._fence.set(f"register:{name}", value, fence=hold.fence)

    def clashes(self, error: Exception) -> bool:
        """See `Client`."""
        return isinstance(error, StaleFence)

    async def close(self) -> None:
        """Release what is held and disconnect."""
        await self._redlock.aclose()
        await self._store.aclose()
        await self._store.connection_pool.disconnect()


def _votes(error: NotAcquired) -> str:
    """A letter per node, and the words of those that did not vote."""
    letters = "".join(str(vote.outcome)[0] for vote in error.votes)
    words = "; ".join(f"{index}: {vote.detail}" for index, vote in enumerate(error.votes) if vote.detail)
    return f"{letters} {words}"


def make() -> OurClient:
    """Make the client of this process."""
    return OurClient()
