"""The timer wheel is never late, at most one slot early, and silent about discarded items."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from aioredlock_ng._engine.wheel import Wheel

pytestmark = pytest.mark.virtual_time
WIDTH = 0.02


async def test_no_item_is_late_or_more_than_a_slot_early() -> None:
    loop = asyncio.get_running_loop()
    fired: dict[float, float] = {}
    wheel: Wheel[float] = Wheel(
        loop, loop.time, WIDTH, lambda due: fired.update(dict.fromkeys(due, loop.time()))
    )
    instants = [loop.time() + 0.0137 * number for number in (90, 3, 40, 1, 77, 2, 500)]
    for instant in instants:
        wheel.add(instant, instant)
    await asyncio.sleep(10)
    assert fired.keys() == set(instants)
    for instant, at in fired.items():
        assert instant - WIDTH - 1e-6 <= at <= instant + 1e-6


async def test_a_discarded_or_stopped_item_is_not_handed_over() -> None:
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


async def test_no_item_added_after_a_suspension_of_the_machine_is_late() -> None:
    loop = asyncio.get_running_loop()
    slept = 0.0

    def clock() -> float:
        return loop.time() + slept

    fired: dict[str, float] = {}
    wheel: Wheel[str] = Wheel(
        loop, clock, WIDTH, lambda due: fired.update(dict.fromkeys(due, clock()))
    )
    wheel.add("before", clock() + 0.45)
    # During a suspension the timers of the loop stand still. Left alone, the wheel's timer fires
    # 0.45 s after its end.
    slept = 10.0
    wheel.add("after", at := clock() + 0.1)
    await asyncio.sleep(1)
    assert fired["before"] < at - WIDTH
    assert at - WIDTH - 1e-6 <= fired["after"] <= at + 1e-6


class Counting(Wheel[float]):
    """Counts how often its timer wakes the loop, and how often it is set."""

    woken = armed = 0

    def _run(self) -> None:
        self.woken += 1
        super()._run()

    def _arm(self, slot: int) -> None:
        self.armed += 1
        super()._arm(slot)


async def test_items_that_come_and_go_never_wake_the_loop_and_seldom_set_the_timer() -> None:
    loop = asyncio.get_running_loop()
    wheel = Counting(loop, loop.time, WIDTH, lambda due: None)
    for _ in range(1000):
        wheel.add(0.0, loop.time() + 0.1).discard(0.0)
        await asyncio.sleep(0.001)
    assert wheel.woken == 0
    assert wheel.armed <= 1.0 / 0.04 + 1, "twice per span would do"


async def test_the_last_item_that_came_and_went_wakes_the_loop_only_once() -> None:
    loop = asyncio.get_running_loop()
    wheel = Counting(loop, loop.time, WIDTH, lambda due: None)
    wheel.add(0.0, loop.time() + 0.1).discard(0.0)
    await asyncio.sleep(10)
    assert wheel.woken == 1


@pytest.mark.parametrize("seed", range(8))
async def test_an_item_that_stays_is_handed_over_in_time_among_items_that_come_and_go(
    seed: int,
) -> None:
    loop, draw = asyncio.get_running_loop(), Random(seed)
    fired: dict[float, float] = {}
    wheel: Wheel[float] = Wheel(
        loop, loop.time, WIDTH, lambda due: fired.update(dict.fromkeys(due, loop.time()))
    )
    kept = set()
    for _ in range(300):
        instant = loop.time() + draw.choice((0.03, 0.1, 0.1, 0.3, 2.0)) * draw.random()
        slot = wheel.add(instant, instant)
        if draw.random() < 0.9:
            slot.discard(instant)
        else:
            kept.add(instant)
        await asyncio.sleep(draw.choice((0.0, 0.001, 0.01, 0.1)))
    await asyncio.sleep(5)
    assert fired.keys() == kept
    for instant, at in fired.items():
        assert instant - WIDTH - 1e-6 <= at <= instant + 1e-6


async def test_the_longest_standstill_of_the_loop_is_remembered() -> None:
    loop = asyncio.get_running_loop()
    wheel: Wheel[str] = Wheel(loop, loop.time, WIDTH, lambda due: None)
    began = loop.time()
    assert wheel.stall(began, loop.time()) == 0.0
    for seconds in (3.0, 1.0, 2.0):
        wheel.add("item", loop.time() + 0.1)
        loop.advance(0.1 + seconds)  # type: ignore[attr-defined]
        # While the loop stands still, and after it.
        assert wheel.stall(loop.time() - 0.1, loop.time()) == pytest.approx(seconds, abs=WIDTH)
        await asyncio.sleep(0.5)
    assert wheel.stall(began, loop.time()) == pytest.approx(3.0, abs=WIDTH)
    assert wheel.stall(began + 3.5, loop.time()) == pytest.approx(2.0, abs=WIDTH)
    assert wheel.stall(loop.time(), loop.time()) == 0.0


async def test_an_item_that_a_suspension_made_late_is_noticed_within_half_a_second() -> None:
    loop = asyncio.get_running_loop()
    slept = 0.0

    def clock() -> float:
        return loop.time() + slept

    fired: list[float] = []
    wheel: Wheel[str] = Wheel(loop, clock, WIDTH, lambda _: fired.append(loop.time()))
    wheel.add("item", clock() + 60)
    await asyncio.sleep(0.1)
    # During a suspension the timers of the loop stand still.
    slept, woken_at = 120.0, loop.time()
    await asyncio.sleep(10)
    assert fired == [pytest.approx(woken_at + 0.25, abs=0.25 + 1e-6)]


async def late_by(wheel: Wheel[str], delay: float) -> None:
    """Let the timer of the wheel fire late by this time in seconds."""
    loop = asyncio.get_running_loop()
    wheel.add("item", loop.time() + 0.1)
    loop.advance(0.1 + delay)  # type: ignore[attr-defined]
    await asyncio.sleep(0.2)


async def test_a_standstill_is_remembered_although_many_shorter_ones_followed() -> None:
    loop = asyncio.get_running_loop()
    wheel: Wheel[str] = Wheel(loop, loop.time, WIDTH, lambda _: None)
    began = loop.time()
    for number in range(50):
        await late_by(wheel, 3.0 - number / 20)
    assert wheel.stall(began, loop.time()) == pytest.approx(3.0, abs=WIDTH)


async def test_standstills_that_grow_ever_shorter_do_not_fill_the_memory() -> None:
    loop = asyncio.get_running_loop()
    wheel: Wheel[str] = Wheel(loop, loop.time, WIDTH, lambda _: None)
    for number in range(200):
        await late_by(wheel, 3.0 - number / 100)
    assert len(wheel._stalls) <= 100
