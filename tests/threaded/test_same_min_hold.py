"""Run the tests of `min_hold` for managers with `thread=True`.

Every test in this module has a rig.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng.events import LockAcquired
from tests.engine import test_min_hold
from tests.threaded.test_same_contract import cases_of

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from aioredlock_ng.events import Event
    from tests.support.rig import Rig

pytestmark = [pytest.mark.virtual_time, pytest.mark.full]

# These tests call or replace parts of the engine itself, which belongs to the thread.
DIFFERENT = {
    "test_a_grant_that_comes_too_late_for_its_min_hold_does_not_count_and_is_undone",
    "test_a_grant_that_no_caller_received_is_freed_at_once",
    "test_a_release_is_owed_for_the_life_that_other_leases_gave_the_keys",
}

globals().update(
    {name: case for name, case in cases_of(test_min_hold).items() if name not in DIFFERENT}
)


@pytest.mark.parametrize("slots", [0, 2])
async def test_a_grant_that_reaches_no_caller_is_freed_at_once_despite_its_min_hold(
    rig: Rig, slots: int
) -> None:
    """The caller is cancelled while its lease is on the way from the engine's thread."""

    def cancel(event: Event) -> None:
        if isinstance(event, LockAcquired):
            asked.cancel()

    redlock = (await rig.process(sinks=[cancel])).redlock
    lock = (
        redlock.semaphore("a", slots, min_hold=30.0) if slots else redlock.lock("a", min_hold=30.0)
    )
    asked: asyncio.Future[Lease] = asyncio.ensure_future(lock.acquire())
    with pytest.raises(asyncio.CancelledError):
        await asked
    await asyncio.sleep(0.1)
    assert redlock.stats().acquired == 1
    assert redlock.leases == ()
    assert rig.clean
