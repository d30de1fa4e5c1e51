"""The alarm of a waiter is hardly ever late, and is rarely set again."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from aioredlock_ng._engine.waiting.alarm import LEAST_DELAY, Alarm

pytestmark = pytest.mark.virtual_time


async def test_an_alarm_fires_at_the_earliest_instant_that_was_set() -> None:
    loop, fired = asyncio.get_running_loop(), list[float]()
    alarm = Alarm(loop)
    began = loop.time()
    for delay in (3.0, 1.0, 2.0):
        alarm.set(delay, lambda: fired.append(loop.time()))
    await asyncio.sleep(10)
    assert fired == [pytest.approx(began + 1.0)], "the function would plan the later instants"


async def test_an_alarm_that_has_fired_or_is_stopped_can_be_set_again() -> None:
    loop, fired = asyncio.get_running_loop(), list[float]()
    alarm = Alarm(loop)
    alarm.set(1.0, lambda: fired.append(loop.time()))
    await asyncio.sleep(2)
    alarm.set(1.0, lambda: fired.append(loop.time()))
    alarm.stop()
    await asyncio.sleep(2)
    assert len(fired) == 1
    began = loop.time()
    alarm.set(3.0, lambda: fired.append(loop.time()))
    await asyncio.sleep(5)
    assert fired[1:] == [pytest.approx(began + 3.0)]


async def test_an_alarm_set_to_the_past_does_not_fire_again_and_again_in_one_instant() -> None:
    loop, fired = asyncio.get_running_loop(), list[float]()

    def due() -> None:
        fired.append(loop.time())
        if len(fired) < 10:
            alarm.set(-1.0, due)

    alarm = Alarm(loop)
    began = loop.time()
    alarm.set(-1.0, due)
    await asyncio.sleep(1)
    assert fired[-1] >= began + 10 * LEAST_DELAY - 1e-6


async def test_an_alarm_needs_no_instant_from_the_handle_of_its_timer() -> None:
    """For a delay that it rounds to 0 ms, uvloop returns a handle without an instant."""
    real, asked = asyncio.get_running_loop(), list[float]()

    class Loop:
        def time(self) -> float:
            return real.time()

        def call_later(self, delay: float, callback: Any, *args: Any) -> asyncio.Handle:
            asked.append(delay)
            return asyncio.Handle(callback, args, real)

    alarm = Alarm(cast("asyncio.AbstractEventLoop", Loop()))
    for delay in (0.0, 1.0, -1.0):
        alarm.set(delay, lambda: None)
    assert asked == [LEAST_DELAY]
    alarm.stop()
    for delay in (1.0, 1.0 - LEAST_DELAY / 2, 1.0 - 2 * LEAST_DELAY):
        alarm.set(delay, lambda: None)
    assert asked[1:] == [1.0, 1.0 - 2 * LEAST_DELAY], "rounding moves an instant a little"
    alarm.stop()
