"""Everything that a sink can be told, made to happen on real nodes; it checks nothing."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from aioredlock_ng import AcquireTimeout, LockLost, Redlock
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from aioredlock_ng import Stats
    from aioredlock_ng.events import EventSink
    from tests.support.node_set import NodeSet

__all__ = ["NAME", "do_everything"]

NAME = "order:4711"


async def do_everything(nodes: NodeSet, *sinks: EventSink) -> Stats:
    """Acquire, hand on, renew, fail twice, be cancelled once, lose once; return what the manager
    itself has counted.
    """
    # So that nothing else happens where the machine is slow: no lease runs out, and no node is
    # late.
    settings: dict[str, Any] = {"ttl": 6.0, "node_timeout": 5.0}
    async with (
        Redlock(nodes.urls, sinks=sinks, **settings) as redlock,
        Redlock(nodes.urls, **settings) as other,
    ):
        while (
            not redlock.stats().hand_overs
        ):  # where a hold took long, others of the fleet are left a gap instead
            first = await redlock.lock(NAME).acquire()
            second = asyncio.create_task(redlock.lock(NAME).acquire())
            await eventually(lambda: redlock.stats().waiting, every=0)
            await first.release()
            await (await second).release()

        async with redlock.lock(NAME):
            await eventually(lambda: redlock.stats().renewals)

        theirs = await other.lock(NAME, auto_extend=False, ttl=30).acquire()
        assert await redlock.lock(NAME).try_acquire() is None
        with contextlib.suppress(AcquireTimeout):
            await redlock.lock(NAME, blocking_timeout=0.7).acquire()
        cancelled = asyncio.create_task(redlock.lock(NAME).acquire())
        await eventually(lambda: redlock.stats().waiting)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        refused = redlock.stats().refused
        woken = asyncio.create_task(redlock.lock(NAME).acquire())
        # Only then would the nodes tell it that the lock is free.
        await eventually(lambda: redlock.stats().refused > refused)
        await theirs.release()
        await (await woken).release()

        with contextlib.suppress(LockLost):
            async with redlock.lock(NAME):
                await other.force_release(NAME)
                await asyncio.sleep(30)
        # A majority does for all of this; the last node may be behind it.
        await eventually(lambda: {node.state for node in redlock.nodes} == {"up"})
        return redlock.stats()
