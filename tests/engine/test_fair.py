"""`fair=True`: each task stands in the queues by itself, so the fleet serves tasks in the order in
which they came.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import AcquireTimeout, ConfigurationError, LockHeld
from aioredlock_ng._engine.waiting.passing_on import RUN
from aioredlock_ng.integrations._policy import Policy
from tests.support.rig import NODE_TIMEOUT, WAY, occupied

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time

FAR = 3.0
"""How many times as far from the nodes the farthest process is."""

APART = 3 * 2 * FAR * WAY
"""Seconds between two arrivals: three round trips of the farthest process."""


def now() -> float:
    return asyncio.get_running_loop().time()


async def served(
    rig: Rig, processes: list[Process], *, fair: bool, hold: float, seed: int = 0
) -> list[int]:
    """In which order these tasks have the lock that arrive while another holds it, each at a
    process drawn at random.
    """
    draw = random.Random(seed)
    order: list[int] = []

    async def work(number: int, process: Process) -> None:
        async with process.lock("a", fair=fair):
            order.append(number)
            await asyncio.sleep(hold)

    first = await rig.process()
    async with asyncio.TaskGroup() as group, first.lock("a"):
        for number in range(16):
            group.create_task(work(number, draw.choice(processes)))
            await asyncio.sleep(APART)
    return order


async def unequal(rig: Rig) -> list[Process]:
    """Four processes at unequal distances."""
    return [
        await rig.process(),
        await rig.process(away=FAR),
        await rig.process(near=0),
        await rig.process(near=1, away=FAR),
    ]


@pytest.mark.parametrize(
    ("rig", "hold", "seed"),
    [(3, 0.0, 0), (5, 0.0, 1), (3, 0.002, 2), (5, 0.002, 3), (3, 0.05, 4), (5, 0.05, 5)],
    indirect=["rig"],
)
async def test_fair_tasks_are_served_in_the_order_in_which_they_came(
    rig: Rig, hold: float, seed: int
) -> None:
    order = await served(rig, await unequal(rig), fair=True, hold=hold, seed=seed)
    assert order == list(range(16))


async def test_fair_waiters_keep_their_order_while_one_node_is_down(rig: Rig) -> None:
    processes = await unequal(rig)
    rig.stop(2)
    assert await served(rig, processes, fair=True, hold=0.002) == list(range(16))


async def test_fair_waiters_keep_their_order_when_one_before_them_gives_up(rig: Rig) -> None:
    processes = await unequal(rig)
    order: list[int] = []
    waiting: list[asyncio.Task[None]] = []

    async def work(number: int) -> None:
        async with processes[number % 4].lock("a", fair=True):
            order.append(number)

    async with (await rig.process()).lock("a"):
        for number in range(12):
            waiting.append(asyncio.create_task(work(number)))
            await asyncio.sleep(APART)
        for number in (0, 5, 6, 11):
            waiting[number].cancel()
        await asyncio.sleep(APART)
    await asyncio.wait(waiting)
    assert order == [1, 2, 3, 4, 7, 8, 9, 10]


async def test_a_process_serves_several_of_its_tasks_per_turn_unless_they_are_fair(
    rig: Rig,
) -> None:
    processes = await unequal(rig)
    order = await served(rig, processes, fair=False, hold=0.0)
    assert sorted(order) == list(range(16))
    assert order != sorted(order)
    assert sum(process.redlock.stats().passed_on for process in processes) > 0


async def test_a_fair_lease_has_a_grant_of_its_own(rig: Rig) -> None:
    process = await rig.process()
    tokens: set[str] = set()

    async def work() -> None:
        async with process.lock("a", fair=True) as lease:
            tokens.add(lease.token)

    await asyncio.gather(*(work() for _ in range(20)))
    assert len(tokens) == 20
    assert process.redlock.stats().passed_on == 0


async def test_a_fair_waiter_waits_for_one_run_of_each_process_that_serves_its_own_tasks(
    rig: Rig,
) -> None:
    busy = [await rig.process() for _ in range(3)]
    fair = await rig.process()
    hold, end, longest, taken = 0.002, now() + 5.0, 0.0, 0

    async def work(process: Process) -> None:
        while now() < end:
            async with process.lock("a"):
                await asyncio.sleep(hold)

    async def ask() -> None:
        nonlocal longest, taken
        while now() < end:
            began = now()
            async with fair.lock("a", fair=True):
                longest = max(longest, now() - began)
                taken += 1

    async with asyncio.TaskGroup() as group:
        for process in busy:
            for _ in range(4):
                group.create_task(work(process))
        group.create_task(ask())
    # A run ends with the hold that it began, and each change of process costs two round trips.
    assert longest <= len(busy) * (RUN + hold + 6 * WAY), longest
    assert taken >= 50


async def test_a_fair_waiter_is_not_overtaken_for_ever_by_other_waiters_of_its_own_process(
    rig: Rig,
) -> None:
    process = await rig.process()
    end, longest = now() + 5.0, 0.0
    counts = {"others": 0, "fair": 0}

    async def others() -> None:
        while now() < end:
            async with process.lock("a"):
                counts["others"] += 1
                await asyncio.sleep(0.002)

    async def fair() -> None:
        nonlocal longest
        while now() < end:
            began = now()
            async with process.lock("a", fair=True):
                longest = max(longest, now() - began)
                counts["fair"] += 1
                await asyncio.sleep(0.002)

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(others())
        for _ in range(2):
            group.create_task(fair())
    assert longest <= 2 * RUN + 0.01, longest
    assert min(counts.values()) > 100, counts


@pytest.mark.slow
async def test_other_waiters_are_not_starved_by_fair_waiters(rig: Rig) -> None:
    processes = [await rig.process() for _ in range(2)]
    end = now() + 5.0
    counts = {"other": 0, "fair": 0}

    async def work(process: Process, *, fair: bool) -> None:
        while now() < end:
            async with process.lock("a", fair=fair):
                counts["fair" if fair else "other"] += 1
                await asyncio.sleep(0.002)

    async with asyncio.TaskGroup() as group:
        for process in processes:
            for _ in range(4):
                group.create_task(work(process, fair=True))
        group.create_task(work(processes[0], fair=False))
    assert counts["other"] >= sum(counts.values()) / 9 / 2, counts


@pytest.mark.parametrize("quarter", range(9))
async def test_a_cancelled_fair_waiter_leaves_no_key_and_no_entry_in_a_queue(
    rig: Rig, quarter: int
) -> None:
    holder, process = await rig.process(), await rig.process()
    async with holder.lock("a"):
        waiting = asyncio.ensure_future(process.lock("a", fair=True).acquire())
        await asyncio.sleep(quarter * WAY / 2)
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.sleep(NODE_TIMEOUT)
        assert [server.queues.members(b"a") for server in rig.servers] == [[], [], []]
    await asyncio.sleep(NODE_TIMEOUT)
    assert rig.clean
    assert process.redlock.stats().waiting == 0


async def test_fair_waiters_count_as_waiting_and_time_out_as_others(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    waiting = [
        asyncio.ensure_future(process.lock("a", fair=True, blocking_timeout=1.0).acquire())
        for _ in range(3)
    ]
    await asyncio.sleep(0.5)
    assert process.redlock.stats().waiting == 3
    for one in waiting:
        with pytest.raises(AcquireTimeout):
            await one
    assert process.redlock.stats().waiting == 0


async def test_a_fair_lock_that_its_own_task_holds_is_refused_at_once(rig: Rig) -> None:
    process = await rig.process()
    async with process.lock("a", fair=True):
        for fair in (True, False):
            with pytest.raises(LockHeld, match="this very task"):
                await process.lock("a", fair=fair).acquire()
    async with process.lock("a"):
        with pytest.raises(LockHeld, match="this very task"):
            await process.lock("a", fair=True).acquire()


async def test_nothing_is_kept_of_fair_waiters_that_are_done(rig: Rig) -> None:
    process = await rig.process()

    async def work() -> None:
        async with process.lock("a", fair=True):
            await asyncio.sleep(WAY)

    await asyncio.gather(*(work() for _ in range(10)))
    lines = process.redlock.engine().lines
    assert (occupied(lines), lines._others, lines._standing) == ([], {}, {})


async def test_fair_sets_of_names_are_served_in_order_too(rig: Rig) -> None:
    processes = await unequal(rig)
    order: list[int] = []
    leases: list[asyncio.Task[None]] = []

    async def work(number: int) -> None:
        async with processes[number % 4].lock("b", "a", fair=True):
            order.append(number)

    held: Lease = await (await rig.process()).lock("a").acquire()
    for number in range(8):
        leases.append(asyncio.create_task(work(number)))
        await asyncio.sleep(APART)
    await held.release()
    await asyncio.gather(*leases)
    assert order == list(range(8))


async def test_a_guarded_function_can_be_fair(rig: Rig) -> None:
    process = await rig.process()

    @process.redlock.guard("report:{day}", fair=True)
    async def report(day: int) -> None:
        await asyncio.sleep(WAY)

    await asyncio.gather(*(report(1) for _ in range(5)))
    assert process.redlock.stats().passed_on == 0


@pytest.mark.parametrize("fair", [True, False])
async def test_the_web_integrations_pass_fair_on(rig: Rig, fair: bool) -> None:
    process = await rig.process()
    policy = Policy(("a",), {"blocking_timeout": None, "fair": fair}, 423, 1)

    async def request() -> None:
        async with policy.lock(process.redlock, {}):
            await asyncio.sleep(WAY)

    await asyncio.gather(*(request() for _ in range(5)))
    assert (process.redlock.stats().passed_on == 0) is fair


async def test_fair_is_true_or_false(rig: Rig) -> None:
    process = await rig.process()
    for value in (1, None, "yes"):
        with pytest.raises(
            ConfigurationError, match=f"fair must be True or False, not {type(value).__name__}"
        ):
            process.lock("a", fair=value)  # type: ignore[arg-type]
