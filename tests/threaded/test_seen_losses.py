"""A loss that the holder has seen is final, though the confirmation of a renewal reaches the engine
at that moment.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockLost
from aioredlock_ng.events import LeaseLost

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from tests.support.same_loop import ThreadedRig


pytestmark = pytest.mark.virtual_time


class Overdue:
    """Moves the deadline of a lease into the past, and back when the block ends, as a confirmed
    renewal does.
    """

    def __init__(self, lease: Lease) -> None:
        self.record = lease._record

    def __enter__(self) -> None:
        self.record.deadline -= 100.0

    def __exit__(self, *_: object) -> None:
        self.record.deadline += 100.0


async def test_a_lease_whose_check_failed_is_renewed_no_more(rig: ThreadedRig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    # The loop stands still until the holder's thread has checked.
    with Overdue(lease), ThreadPoolExecutor() as holder:
        seen = holder.submit(lease.check).exception()
    assert isinstance(seen, LockLost)
    # The keys expire, because another thread may still work under the lease that was renewed.
    await asyncio.sleep(lease.ttl + 0.1)
    assert lease.lost
    assert rig.clean


async def test_a_loss_that_the_holder_sees_first_has_the_cause_of_its_end(rig: ThreadedRig) -> None:
    told: list[LeaseLost] = []
    process = await rig.process(
        sinks=[lambda event: told.append(event) if isinstance(event, LeaseLost) else None]
    )
    lease = await process.lock("a", auto_extend=False, ttl=1.0).acquire()
    record = lease._record
    record.deadline -= 100.0
    with ThreadPoolExecutor() as holder:
        assert isinstance(holder.submit(lease.check).exception(), LockLost)
    await asyncio.sleep(0.1)
    assert [event.cause for event in told] == ["expired"]


async def test_a_lease_that_was_lost_at_the_end_of_its_body_is_renewed_no_more(
    rig: ThreadedRig,
) -> None:
    process = await rig.process()
    lock = process.lock("a")
    lease = await lock.__aenter__()
    overdue = Overdue(lease)
    overdue.__enter__()
    leaving = lock.__aexit__(None, None, None)
    with pytest.raises(LockLost):
        leaving.send(None)
    overdue.__exit__()
    # The keys expire, because another thread may still work under the lease that was renewed.
    await asyncio.sleep(lease.ttl + 0.1)
    assert lease.lost
    assert rig.clean
