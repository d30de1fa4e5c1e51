"""The timer wheel: never late, at most one slot early, and silent about what was taken back."""

from __future__ import annotations

import asyncio

import pytest

from aioredlock_ng._engine.wheel import Wheel

pytestmark = pytest.mark.virtual_time
WIDTH = 0.02


async def test_nothing_is_late_nor_more_than_a_slot_early() -> None:
    loop = asyncio.get_running_loop()
    fired: dict[float, float] = {}
    wheel: Wheel[float] = Wheel(loop, loop.time, WIDTH, lambda due: fired.update(dict.fromkeys(due, loop.time())))
    instants = [loop.time() + 0.0137 * number for number in (90, 3, 40, 1, 77, 2, 500)]
    for instant in instants:
        wheel.add(instant, instant)
    await asyncio.sleep(10)
    assert fired.keys() == set(instants)
    for instant, at in fired.items():
        assert instant - WIDTH - 1e-6 <= at <= instant + 1e-6


async def test_what_was_discarded_or_stopped_is_not_handed_over() -> None:
    loop = asyncio.get_running_loop()
    fired: list[str] = []
    wheel: Wheel[str] = Wheel(loop, loop.time, WIDTH, fired.extend)
    wheel.add("kept", loop.time() + 1)
    wheel.add("discarded", loop.time() + 1).discard("discarded")
    wheel.add("stopped", loop.time() + 5)
    await asyncio.sleep(2)
    wheel.stop()
    await asyncio.sleep(10)
    assert fired == ["kept"]


async def test_an_item_added_while_firing_is_handed_over_in_its_turn() -> None:
    loop = asyncio.get_running_loop()
    fired: list[float] = []

    def fire(due: set[int]) -> None:
        fired.append(loop.time())
        if len(fired) < 5:
            wheel.add(0, loop.time() + 1)

    wheel: Wheel[int] = Wheel(loop, loop.time, WIDTH, fire)
    wheel.add(0, loop.time() + 1)
    await asyncio.sleep(10)
    assert len(fired) == 5


async def test_items_that_come_and_go_wake_the_loop_once_per_span_and_not_once_per_slot() -> None:
    loop = asyncio.get_running_loop()
    woken = 0

    class Counting(Wheel[str]):
        def _run(self) -> None:
            nonlocal woken
            woken += 1
            super()._run()

    wheel = Counting(loop, loop.time, WIDTH, lambda due: None)
    for _ in range(1000):
        wheel.add("answered at once", loop.time() + 0.1).discard("answered at once")
        await asyncio.sleep(0.001)
    assert woken <= 1.0 / (0.1 - WIDTH) + 1
