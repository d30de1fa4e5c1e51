"""Test processes whose engine has a loop of its own: two loops, one clock, and stops of each."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.simulation.plan import Fault, plan_of
from tests.simulation.process import Process
from tests.simulation.report import log_lines
from tests.simulation.shrink import play
from tests.simulation.threads import CallersLoop, ThreadLoop
from tests.simulation.world import World
from tests.support.coverage import untraced

if TYPE_CHECKING:
    from tests.simulation.run import Outcome

pytestmark = pytest.mark.once


def loops(world: World, rate: float = 1.0) -> tuple[ThreadLoop, CallersLoop]:
    engine = ThreadLoop(world, "p0", rate)  # type: ignore[abstract]
    return engine, CallersLoop(engine)  # type: ignore[abstract]


def stop_both(engine: ThreadLoop, callers: CallersLoop, seconds: float, *, suspended: bool) -> None:
    engine.stop_for(seconds, suspended=suspended)
    callers.stop_for(seconds, suspended=suspended)


def ran_at(world: World, loop: Any, *seconds: float) -> list[float]:
    """Return a list that gets the true time at which each timer of the loop runs."""
    ran: list[float] = []
    for delay in seconds:
        loop.call_later(delay, lambda: ran.append(world.now))
    return ran


def test_both_loops_of_a_process_show_the_same_time_also_after_a_suspend() -> None:
    world = World(1)
    engine, callers = loops(world, rate=1.25)
    world.at(2.0, lambda: stop_both(engine, callers, 3.0, suspended=True))
    for _ in range(3):
        world.run(world.now + 1.9, lambda: False)
        assert (engine.time(), engine.clock()) == (callers.time(), callers.clock())
    assert callers.stood == pytest.approx(0.0)


def test_a_blocked_loop_of_callers_stands_still_alone() -> None:
    world = World(1)
    engine, callers = loops(world)
    there, here = ran_at(world, engine, 1.0, 2.0), ran_at(world, callers, 1.0, 2.0)
    world.at(0.5, callers.stop_for, 4.0)
    world.run(60.0, lambda: False)
    assert there == pytest.approx([1.0, 2.0])
    assert here == pytest.approx([4.5, 4.5])
    assert callers.stood == pytest.approx(4.0)
    assert [callers.stood_at(at) for at in (0.4, 0.5, 3.0, 4.6)] == pytest.approx(
        [0.0, 0.0, 2.5, 0.0]
    )


@pytest.mark.parametrize(("blocked_for", "ends"), [(2.0, 4.0), (9.0, 10.0)])
def test_the_longer_one_of_two_stops_ends_last(blocked_for: float, ends: float) -> None:
    world = World(1)
    engine, callers = loops(world)
    here = ran_at(world, callers, 1.5)
    world.at(1.0, callers.stop_for, blocked_for)
    world.at(2.0, lambda: stop_both(engine, callers, 2.0, suspended=False))
    world.run(60.0, lambda: False)
    assert here == pytest.approx([ends])
    assert callers.stood == pytest.approx(ends - 1.0)


def test_a_stop_that_follows_at_the_same_instant_may_count_as_one_with_the_first() -> None:
    world = World(1)
    _, callers = loops(world)
    callers.stop_for(1.0)
    callers.after(1, lambda: callers.stop_for(2.0))
    callers.call_soon(len, ())
    world.run(2.0, lambda: False)
    assert callers.stood_at(2.0) == pytest.approx(1.0)
    assert callers.stood_at(2.0, together=True) == pytest.approx(2.0)


def test_a_stop_of_the_whole_process_counts_only_in_part_as_a_standstill() -> None:
    world = World(1)
    engine, callers = loops(world)
    callers.stop_for(6.0)
    world.at(1.0, lambda: stop_both(engine, callers, 3.0, suspended=False))
    world.run(5.0, lambda: False)
    assert callers.stood_at(5.0) == pytest.approx(5.0)
    assert [callers.stood_without(5.0, most) for most in (0.5, 4.0)] == pytest.approx([2.5, 5.0])


def test_a_wake_up_by_another_loop_takes_a_moment_and_keeps_its_order() -> None:
    world = World(1)
    engine, callers = loops(world)
    got: list[tuple[int, float]] = []
    for number in range(50):
        world.at(
            number * 0.0001,
            callers.call_soon_threadsafe,
            lambda number=number: got.append((number, world.now)),
        )
    world.run(1.0, lambda: False)
    assert [number for number, _ in got] == list(range(50))
    assert all(at > number * 0.0001 for number, at in got)
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        engine.call_soon_threadsafe(len, ())


def test_a_callback_that_blocks_its_loop_lets_the_other_loop_catch_up_at_the_same_instant() -> None:
    world = World(1)
    engine, callers = loops(world)
    got: list[object] = []

    async def noted(words: str) -> None:
        got.append((words, asyncio.get_running_loop() is engine, world.now))

    async def wait() -> None:
        engine.call_soon_threadsafe(lambda: engine.create_task(noted("on the engine's loop")))
        engine.catch_up()
        got.append(("afterwards", asyncio.current_task() is task, world.now))

    task = callers.create_task(wait())
    world.run(1.0, task.done)
    task.result()
    assert got == [("on the engine's loop", True, 0.0), ("afterwards", True, 0.0)]


def test_a_callback_that_blocks_right_after_a_stop_lets_the_other_loop_go_on_first() -> None:
    world = World(1)
    engine, callers = loops(world)
    got: list[str] = []
    engine.call_later(1.0, got.append, "overdue on the engine's loop")

    def block() -> None:
        engine.call_soon_threadsafe(got.append, "posted")
        engine.catch_up()
        got.append("went on")

    callers.call_later(1.0, block)
    callers.stop_for(2.0)
    engine.stop_for(2.0, suspended=False)
    world.run(60.0, lambda: False)
    assert got == ["overdue on the engine's loop", "posted", "went on"]


def test_after_a_stop_of_a_process_either_of_its_loops_may_run_first() -> None:
    first = set()
    for seed in range(10):
        world = World(seed)
        engine, callers = loops(world)
        process = Process.__new__(Process)
        process.loop, process.homes, process.home, process._order = (
            engine,
            [callers],
            callers,
            world.rng("order"),
        )
        ran: list[ThreadLoop] = []
        for loop in (engine, callers):
            loop.call_later(1.0, ran.append, loop)
        process.stop_for(2.0, suspended=False)
        world.run(60.0, lambda ran=ran: len(ran) == 2)  # type: ignore[misc]
        assert world.now == pytest.approx(2.0)
        first.add(type(ran[0]))
    assert first == {ThreadLoop, CallersLoop}


def blocked_while_it_holds(
    *, thread: bool, stall_limit: float | None, stopped_for: float = 0.0
) -> Outcome:
    """Run one process that holds a lock while the loop of its body blocks for three ttls."""
    plan = next(
        plan for plan in map(plan_of, range(100)) if plan.theme == "calm" and plan.within_drift
    )
    action = replace(
        plan.actions[0],
        how="with",
        resources=("r0",),
        auto_extend=True,
        max_hold=None,
        then="",
        cancel_after=None,
        limit=0,
        min_hold=None,
        side="",
        hold=1.0,
        process=0,
        ttl=plan.ttl,
        think=3.5,
    )
    faults = [Fault("b0", "block", 4.0, 3 * plan.ttl, 0, 0, 0.0)]
    if stopped_for:
        faults.append(Fault("b0s", "pause", 4.6, stopped_for, 0, 0, 0.0))
    threads = (thread,) * plan.processes
    return play(
        replace(
            plan,
            actions=(action,),
            faults=tuple(faults),
            threads=threads,
            stall_limit=stall_limit,
            callers=1,
        ),
        None,
    )


def test_tasks_of_two_loops_of_callers_hold_locks_and_end() -> None:
    plan = next(
        plan
        for plan in map(plan_of, range(300))
        if plan.theme == "crowd" and all(plan.threads) and plan.callers == 2
    )
    outcome = play(plan, None)
    assert outcome.violation is None
    holders = {words[1] for _, *words in outcome.log if words[2:3] == ["got"]}
    for process in range(plan.processes):
        # Tasks with an even number have one loop, and tasks with an odd number have the other one.
        assert {
            int(str(name).split(".")[1]) % 2
            for name in holders
            if str(name).startswith(f"p{process}.")
        } == {0, 1}


def losses(outcome: Outcome) -> list[str]:
    assert outcome.violation is None
    return [line for line in log_lines(outcome.log) if "LeaseLost(" in line]


def test_a_blocked_loop_of_callers_loses_no_lease() -> None:
    assert losses(blocked_while_it_holds(thread=True, stall_limit=None)) == []
    # Without a thread, the same standstill ends the lease.
    assert "cause='stalled'" in losses(blocked_while_it_holds(thread=False, stall_limit=None))[0]


def test_a_blocked_loop_of_callers_loses_its_lease_at_its_stall_limit() -> None:
    (loss,) = losses(blocked_while_it_holds(thread=True, stall_limit=2.0))
    assert "its holder's event loop stood still for 2.0 s" in loss
    assert "cause='stalled'" in loss


def test_a_stop_of_the_whole_process_ends_no_lease_of_a_blocked_loop_before_its_stall_limit() -> (
    None
):
    (loss,) = losses(blocked_while_it_holds(thread=True, stall_limit=2.0, stopped_for=3.0))
    # The loop blocks at 4 s, and the process is stopped for 3 s. Only one second of this stop
    # counts as a standstill, which is two intervals of the engine's check.
    assert 8.0 < float(loss.split()[0]) < 9.0


def test_some_runs_have_engines_with_a_thread_beside_others_without() -> None:
    plans = [plan_of(seed) for seed in range(300)]
    threaded = [plan for plan in plans if any(plan.threads)]
    assert len(threaded) >= 40
    assert sum(not all(plan.threads) for plan in threaded) >= 10
    assert sum(plan.stall_limit is not None for plan in threaded) >= 10
    assert sum(plan.callers == 2 for plan in threaded) >= 10
    blocked = {fault.process for plan in threaded for fault in plan.faults if fault.kind == "block"}
    assert blocked
    assert all(
        plan.threads[fault.process]
        for plan in plans
        for fault in plan.faults
        if fault.kind == "block"
    )


def seed_with_threads(first: int) -> int:
    return next(
        seed
        for seed in range(first, first + 50)
        if all((plan := plan_of(seed)).threads) and plan.stall_limit
    )


@pytest.mark.parametrize("first", [100, 200])
def test_a_seed_with_threads_is_the_same_run_each_time(first: int) -> None:
    seed = seed_with_threads(first)
    one, other = play(plan_of(seed), None), play(plan_of(seed), None)
    assert len(one.log) > 50
    assert one.log == other.log


def test_a_seed_with_threads_is_the_same_run_in_every_process() -> None:
    seed = seed_with_threads(300)
    words = [sys.executable, "-m", "tests.simulation", "--seed", str(seed)]
    environ = {**untraced(), "PYTHONHASHSEED": "4711"}
    there = subprocess.run(words, capture_output=True, text=True, check=True, env=environ).stdout
    assert "\n".join(log_lines(play(plan_of(seed), None).log)) in there
