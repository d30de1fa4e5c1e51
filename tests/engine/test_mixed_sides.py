"""A lost key is set again although the nodes offer it to waiters of the other side."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng._nodes.memory import MemoryNode

if TYPE_CHECKING:
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time

KEY = b"catalog"


class Deaf(MemoryNode):
    """A connection without messages and tracking, whose waiters ask again and again."""

    tracking = messages = False  # type: ignore[assignment]


@pytest.mark.parametrize("deaf", [False, True], ids=["notified", "polling"])
@pytest.mark.parametrize("reads", [False, True], ids=["of a writer", "of a reader"])
async def test_a_lost_key_is_set_again_although_the_other_side_waits_for_it(
    rig: Rig, deaf: bool, reads: bool
) -> None:
    holder, waiter = [await rig.process() for _ in range(2)]
    if deaf:
        for node in waiter.nodes:
            node.__class__ = Deaf
    held, wanted = [process.redlock.rwlock("catalog", ttl=3.0) for process in (holder, waiter)]
    lease = await (held.read() if reads else held.write()).acquire()
    await asyncio.sleep(0.5)
    waiting = asyncio.create_task((wanted.write() if reads else wanted.read()).acquire())
    await asyncio.sleep(0.5)
    before = rig.values(KEY)
    for index in (0, 1):
        rig.vacate(KEY, on=[index])
        # Five renewals.
        await asyncio.sleep(5.0)
        assert rig.values(KEY) == before
    assert lease.valid
    waiting.cancel()
    await asyncio.wait([waiting])
    await lease.release()
