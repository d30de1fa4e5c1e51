"""The context variables of a caller belong to the events of this caller, and end with it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockLost
from aioredlock_ng.events import LeaseLost, LeasesRenewed, LockAcquired, RenewalFailed

if TYPE_CHECKING:
    from aioredlock_ng.events import Event
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time


class Request:
    """A framework keeps such an object in a context variable."""


REQUEST: ContextVar[Request | None] = ContextVar("REQUEST", default=None)


async def serve(process: Process, name: str, seconds: float, seen: list[Request]) -> None:
    request = Request()
    seen.append(request)
    REQUEST.set(request)
    async with process.lock(name):
        await asyncio.sleep(seconds)


async def test_no_event_of_a_lease_has_the_context_variables_of_another_caller(rig: Rig) -> None:
    told: list[tuple[type[Event], Request | None]] = []
    process = await rig.process(
        ttl=1.0, sinks=[lambda event: told.append((type(event), REQUEST.get()))]
    )
    requests: list[Request] = []
    # The first caller's lease sets the timer that also serves the second caller's lease.
    first = asyncio.create_task(serve(process, "first", 0.05, requests))
    await asyncio.sleep(0.02)
    second = asyncio.create_task(serve(process, "second", 60, requests))
    await first
    await asyncio.sleep(5)
    rig.hang(0, 1, 2)
    with pytest.raises(LockLost):
        await second
    assert [request for kind, request in told if kind is LockAcquired] == requests
    kinds = {LeasesRenewed, RenewalFailed, LeaseLost}
    assert {kind for kind, _ in told} >= kinds
    assert not [kind for kind, request in told if kind in kinds and request is requests[0]]


async def test_a_finished_caller_leaves_no_context_variable_in_memory_while_others_hold_locks(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=1.0)
    requests: list[Request] = []
    first = asyncio.create_task(serve(process, "first", 0.05, requests))
    await asyncio.sleep(0.02)
    second = asyncio.create_task(serve(process, "second", 60, []))
    await first
    left = weakref.ref(requests.pop())
    del first
    # Until then, the servers in memory keep a timer for the key of the first lock.
    await asyncio.sleep(5)
    gc.collect()
    assert left() is None
    second.cancel()
    await asyncio.wait([second])
