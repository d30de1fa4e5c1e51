"""Fair tasks that come within one round trip have equal tickets.

Tasks of one process are served in order of arrival all the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("rig", [3, 5], indirect=True)
async def test_fair_tasks_of_one_process_that_come_at_once_are_served_in_order_of_arrival(
    rig: Rig,
) -> None:
    holder, process = await rig.process(), await rig.process()
    order: list[int] = []

    async def work(number: int) -> None:
        async with process.lock("a", fair=True):
            order.append(number)

    async with asyncio.TaskGroup() as group, holder.lock("a"):
        for number in range(25):
            group.create_task(work(number))
        await asyncio.sleep(0.5)
    assert order == list(range(25))
