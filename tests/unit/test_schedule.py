"""The timer for the deadline of a lease."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aioredlock_ng._engine.keeping.schedule import Schedule

pytestmark = pytest.mark.virtual_time


class Lease:
    """The part of a lease that a schedule uses."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.slot: set[Any] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def unschedule(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.slot = self.timer = None


@pytest.mark.parametrize("behind", [0.0, 0.0005, 0.3])
async def test_a_deadline_whose_timer_fires_early_is_noticed_when_it_passes(behind: float) -> None:
    """The loop's timers may fire early, and the clock of the engine may be another clock."""
    loop = asyncio.get_running_loop()
    began, slow = loop.time(), 0.0

    def clock() -> float:
        return loop.time() - slow

    overdue: list[float] = []
    context: Any = SimpleNamespace(loop=loop, clock=clock)
    schedule = Schedule(context, lambda _: None, lambda _: overdue.append(clock()))
    lease: Any = Lease(began + 1.0)
    schedule.watch_deadline(lease)
    slow = behind
    await asyncio.sleep(0.9)
    assert overdue == []
    await asyncio.sleep(2.0)
    assert overdue == [pytest.approx(began + 1.0)]
    schedule.stop()
