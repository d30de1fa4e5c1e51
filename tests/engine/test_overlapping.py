"""Locks of several names that share some: everybody is served, in one process and in several."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._engine.waiting.passing_on import RUN
from aioredlock_ng.errors import AcquireTimeout, LockHeld, QuorumUnreachable
from tests.support.holds import holds
from tests.support.rig import NODE_TIMEOUT, WAY, occupied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._scripts import Command
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time

ONE, BOTH, ANOTHER = ("a",), ("a", "b"), ("a", "c")

TURN = 10 * WAY
"""Seconds that a change of process costs a set of names at most: an attempt for each name, with the
place in its queue.
"""


def now() -> float:
    return asyncio.get_running_loop().time()


Work = dict[str, tuple["Process", tuple[str, ...]]]


async def wishes(
    rig: Rig, wants: Sequence[tuple[str, ...]], *, rivals: int = 0, apart: bool = False
) -> Work:
    """Work for `holds`: these wishes, in one process or each in its own, and one name by each
    rival's process.
    """
    ours = await rig.process()
    work: Work = {}
    for number, names in enumerate(wants):
        work[f"{number} {names}"] = (await rig.process() if apart else ours, names)
    for number in range(rivals):
        work[f"rival {number}"] = (await rig.process(), ONE)
    return work


WANTS = [
    (BOTH, BOTH, ONE),
    (ONE, ONE, BOTH),
    (BOTH, BOTH, ANOTHER),
    (ONE, ONE, BOTH, ANOTHER),
    (BOTH, BOTH, ANOTHER, ANOTHER, ONE),
    (ONE, ("b",), BOTH),
    (ONE, ONE, ("b",), ("b",), BOTH),
    (("a", "0"), ("a", "1"), ("b", "2"), ("b", "3"), BOTH),
    (BOTH, BOTH, ("c", "d"), ("c", "d"), ("b", "c")),
    (ONE, ONE, ("b",), ("b",), ("c",), ("c",), ("a", "b", "c")),
]
HOLDS = (0.002, 0.05, 1.0)
SURROUNDINGS = [(rivals, apart) for rivals in (0, 1) for apart in (False, True)]


@pytest.mark.parametrize(
    ("wants", "rivals", "apart", "hold"),
    # All pairs: the hold changes from one case to the next.
    [
        (wants, *around, HOLDS[(row + column) % len(HOLDS)])
        for row, wants in enumerate(WANTS)
        for column, around in enumerate(SURROUNDINGS)
    ],
)
async def test_neither_sets_of_names_nor_single_names_are_starved(
    rig: Rig, wants: tuple[tuple[str, ...], ...], hold: float, rivals: int, apart: bool
) -> None:
    work = await wishes(rig, wants, rivals=rivals, apart=apart)
    told = await holds(work, hold, max(0.5, 50 * hold))
    # Two rounds of all others at most: one before each of the names for which a set waits in turn.
    assert told.longest <= 2 * len(work) * (max(hold, RUN) + TURN), told
    assert min(told.counts.values()) >= max(0.5, 50 * hold) / (
        2 * len(work) * (max(hold, RUN) + TURN)
    ), told


@pytest.mark.parametrize(
    "rival",
    [pytest.param((), marks=pytest.mark.full), ("b",), pytest.param(BOTH, marks=pytest.mark.full)],
)
async def test_a_set_is_not_starved_by_tasks_that_ask_rather_than_hold(
    rig: Rig, rival: tuple[str, ...]
) -> None:
    ours, other = await rig.process(), await rig.process()
    work = {
        f"{number} {names}": (ours, names)
        for number, names in enumerate((ONE, ONE, ("b",), ("b",), BOTH))
    }
    if rival:
        work["rival"] = other, rival
    # Not for no time at all: virtual time would stand still while a grant is passed on thousands of
    # times.
    told = await holds(work, 0.0005, 3.0)
    assert told.counts[f"4 {BOTH}"] >= 60, told


@pytest.mark.parametrize(("hold", "workers"), [(0.002, 2), (0.005, 1), (0.02, 2)])
async def test_sets_with_a_new_second_name_each_time_leave_another_process_its_turn(
    rig: Rig, hold: float, workers: int
) -> None:
    rig.ways[:] = [0.0001] * 3
    ours, theirs = await rig.process(), await rig.process()
    end, taken = now() + 2.0, 0

    async def work(worker: int) -> None:
        nonlocal taken
        for order in itertools.count():
            if now() > end:
                return
            async with ours.lock("a", f"order:{worker}:{order}"):
                taken += 1
                await asyncio.sleep(hold)

    working = [asyncio.ensure_future(work(worker)) for worker in range(workers)]
    told = await holds({"other": (theirs, ONE)}, hold, 2.0)
    await asyncio.gather(*working)
    assert told.counts["other"] >= (taken + told.counts["other"]) / 6, (taken, told)


@pytest.mark.parametrize(
    ("names", "count"), [(BOTH, 1), (BOTH, 3), (("b", "a", "c"), 3), (("0", "a"), 1)]
)
async def test_a_set_of_names_gets_its_turn_as_a_single_name_does(
    rig: Rig, names: tuple[str, ...], count: int
) -> None:
    ours, theirs = await rig.process(), await rig.process()
    work = {str(number): (ours, names) for number in range(count)}
    told = await holds({**work, "rival": (theirs, ONE)}, 0.002, 3.0)
    ran = sum(told.counts.values())
    assert told.counts["rival"] <= 0.8 * ran, told
    # A run of the other process has so many leases, and the one that it began with.
    assert told.counts["rival"] >= ran / (RUN / 0.002 + 3), told


async def test_names_in_any_order_are_the_same_lock(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    work = {f"{number}": (process, ("a", "b") if number % 2 else ("b", "a")) for number in range(4)}
    told = await holds({**work, "other": (other, ("b", "a"))}, 0.002, 1.0)
    assert process.redlock.stats().passed_on > 0
    assert max(told.counts[who] for who in work) <= 1.1 * min(told.counts[who] for who in work)


@pytest.mark.parametrize("newcomer", [("a", "c"), ("a",), ("b", "a")])
async def test_a_newcomer_of_the_holders_process_does_not_overtake_another_process(
    rig: Rig, newcomer: tuple[str, ...]
) -> None:
    ours, theirs = await rig.process(), await rig.process()
    lease = await ours.lock("a", "b").acquire()
    waiting = asyncio.ensure_future(theirs.lock("a").acquire())
    await asyncio.sleep(0.5)
    releasing = asyncio.ensure_future(lease.release())
    await asyncio.sleep(0)
    new = asyncio.ensure_future(ours.lock(*newcomer).acquire())
    await asyncio.wait([waiting, new], return_when=asyncio.FIRST_COMPLETED)
    assert waiting.done()
    assert not new.done()
    assert await releasing
    await (await waiting).release()
    assert (await new).valid


async def test_the_next_of_a_line_does_not_inherit_the_turn_of_another_process(rig: Rig) -> None:
    ours, theirs = await rig.process(), await rig.process()
    lease = await ours.lock("a", "b").acquire()
    waiting = asyncio.ensure_future(theirs.lock("a").acquire())
    await asyncio.sleep(0.1)
    first, second = (asyncio.ensure_future(ours.lock("a", "c").acquire()) for _ in range(2))
    await asyncio.sleep(0.5)
    releasing = asyncio.ensure_future(lease.release())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([waiting, second], return_when=asyncio.FIRST_COMPLETED)
    assert waiting.done()
    assert not second.done()
    assert await releasing
    await (await waiting).release()
    assert (await second).valid


async def test_an_older_waiter_is_not_overtaken_in_the_tick_in_which_a_task_leaves(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    order = []

    async def leaves_and_comes_again() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await process.lock("a").acquire()
        async with process.lock("a"):
            order.append("newcomer")

    async def waits() -> None:
        async with process.lock("a", "c"):
            order.append("older")

    leaving = asyncio.ensure_future(leaves_and_comes_again())
    await asyncio.sleep(0.1)
    waiting = asyncio.ensure_future(waits())
    await asyncio.sleep(0.9)
    rig.vacate(b"a")
    await asyncio.gather(leaving, waiting)
    assert order == ["older", "newcomer"]


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("processes", [1, 3])
async def test_sets_that_share_their_first_name_are_served_in_the_order_in_which_they_came(
    rig: Rig, count: int, processes: int
) -> None:
    ours, other = [await rig.process() for _ in range(processes)], await rig.process()
    lease = await other.lock("stock").acquire()
    order: list[int] = []

    async def work(number: int) -> None:
        async with ours[number % processes].lock("stock", f"x-order:{number}"):
            order.append(number)
            await asyncio.sleep(0.01)

    working = []
    for number in range(count):
        working.append(asyncio.ensure_future(work(number)))
        await asyncio.sleep(6 * WAY)
    await lease.release()
    await asyncio.gather(*working)
    assert order == list(range(count))
    # The first attempt is refused, the second one is granted.
    assert sum(process.redlock.stats().attempts for process in ours) <= 2 * count + 2


@pytest.mark.slow
async def test_a_turn_costs_no_more_than_twice_as_much_with_thirty_times_as_many_sets(
    rig: Rig,
) -> None:
    process = await rig.process()
    calls = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and "_engine" in frame.f_code.co_filename

    async def work(number: int) -> None:
        async with process.lock("stock", f"x-order:{number}"):
            pass

    async def calls_per_turn(sets: int) -> float:
        nonlocal calls
        calls = 0
        sys.setprofile(count)
        try:
            await asyncio.gather(*map(work, range(sets)))
        finally:
            sys.setprofile(None)
        return calls / sets

    few = await calls_per_turn(10)
    assert await calls_per_turn(300) < 2 * few


@pytest.mark.parametrize("wanted", [ONE, BOTH])
async def test_a_grant_that_is_given_back_unread_wakes_a_waiter_that_shares_a_name(
    rig: Rig, wanted: tuple[str, ...]
) -> None:
    process = await rig.process()
    fleeting = asyncio.ensure_future(process.lock(*wanted).acquire())
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(process.lock(*(ONE if wanted is BOTH else BOTH)).acquire())
    await asyncio.sleep(0)
    fleeting.cancel()
    began = now()
    lease = await waiting
    assert now() - began < NODE_TIMEOUT
    await lease.release()


async def test_a_try_that_is_given_up_wakes_a_waiter_for_the_same_name(rig: Rig) -> None:
    process = await rig.process()
    fleeting = asyncio.ensure_future(process.lock("a").try_acquire())
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    fleeting.cancel()
    began = now()
    lease = await waiting
    assert now() - began < NODE_TIMEOUT
    await lease.release()


@pytest.mark.parametrize("rig", [5], indirect=True)
@pytest.mark.parametrize(
    ("dead_on", "hold"), [(0, 0.002), (1, 0.02), (2, 0.3), (3, 0.002), (4, 0.02), (4, 0.3)]
)
async def test_a_dead_key_on_one_node_keeps_out_no_set(rig: Rig, hold: float, dead_on: int) -> None:
    process = await rig.process()
    rig.occupy(b"b", on=[dead_on])
    busy = asyncio.ensure_future(
        holds({"one": (process, ONE), "another": (process, ONE)}, hold, 3.0)
    )
    await asyncio.sleep(1.0)
    began = now()
    async with asyncio.timeout(10.0):
        lease = await process.lock("a", "b").acquire()
    assert now() - began < 4 * (hold + RUN)
    await lease.release()
    await busy


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_waiters_for_a_name_that_is_held_on_three_of_five_nodes_do_not_wake_each_other(
    rig: Rig,
) -> None:
    process = await rig.process(fencing=False, recovery_guard=None)
    rig.occupy(b"a", on=(0, 1, 2))
    waiting = [
        asyncio.ensure_future(process.lock(*names).acquire()) for names in (ONE, BOTH, ANOTHER)
    ]
    await asyncio.sleep(10.0)
    assert process.redlock.stats().attempts <= 3 * 10
    rig.vacate(b"a")
    for finished in asyncio.as_completed(waiting):
        await (await finished).release()


@pytest.mark.parametrize(
    ("rig", "left_on", "seconds"),
    [(3, 1, 0.5), (3, 1, 10.0), (5, 1, 3.0), (5, 2, 10.0)],
    indirect=["rig"],
)
async def test_a_key_that_is_left_on_a_minority_does_not_block_its_name(
    rig: Rig, left_on: int, seconds: float
) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    rig.occupy(b"b", on=range(left_on))
    waiting = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(seconds)
    async with asyncio.timeout(NODE_TIMEOUT):
        await (await process.lock("b").acquire()).release()
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_waiter_behind_a_set_without_a_quorum_raises_quorum_unreachable(rig: Rig) -> None:
    process = await rig.process()
    rig.stop(0, 1)
    first = asyncio.ensure_future(process.lock("stock", "x-order:1").acquire())
    await asyncio.sleep(0.1)
    with pytest.raises(QuorumUnreachable):
        await process.lock("stock", "x-order:2", blocking_timeout=0.5).acquire()
    first.cancel()
    await asyncio.wait([first])


@pytest.mark.parametrize("where", ["in another process", "in its own"])
async def test_a_timeout_of_a_set_with_a_held_name_is_not_an_unreachable_quorum(
    rig: Rig, where: str
) -> None:
    process, other = await rig.process(), await rig.process()
    record = await (process if where == "in its own" else other).lock("a").acquire()
    waiting = [asyncio.ensure_future(process.lock("a", "b").acquire())]
    await asyncio.sleep(0.1)
    bounded = asyncio.ensure_future(process.lock("a", "c", blocking_timeout=0.5).acquire())
    await asyncio.sleep(0.4995)
    waiting.append(asyncio.ensure_future(process.lock("c").acquire()))
    with pytest.raises(AcquireTimeout):
        await bounded
    await (await waiting.pop()).release()
    await record.release()
    await (await waiting.pop()).release()


async def test_a_set_is_served_although_a_key_that_refused_it_on_a_minority_went_first(
    rig: Rig,
) -> None:
    """On node 0 it was `a` that was held, on the others `b`, which no majority could grant."""
    process = await rig.process()
    rig.ways[1:] = [WAY / 2] * 2
    rig.occupy(b"a", on=[0])
    rig.occupy(b"b", on=[1, 2])
    waiting = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(0.5)
    rig.vacate(b"a")
    await asyncio.sleep(0.1)
    rig.vacate(b"b", on=[1])
    async with asyncio.timeout(0.05):
        await (await waiting).release()


@pytest.mark.parametrize("why", ["it may not touch one", "it comes too late"])
async def test_a_set_that_cannot_succeed_does_not_block_its_names(
    rig: Rig, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await rig.process(recovery_guard=None, fencing=False)
    ttl = 10.0
    if why == "it comes too late":
        rig.ways[:] = [0.0505] * 3
        ttl = 0.109
    else:
        execute = rig.servers[0].execute

        def refuse(command: Command, by: Any) -> Any:
            denied = b"b" in command.keys and command.script.name == "acquire"
            return (
                Refusal("NOPERM No permissions to access a key") if denied else execute(command, by)
            )

        monkeypatch.setattr(rig.servers[0], "execute", refuse)
        rig.stop(1)
    hopeless = asyncio.ensure_future(process.lock("a", "b", ttl=ttl, auto_extend=False).acquire())
    await asyncio.sleep(5.0)
    for _ in range(5):
        lease = await process.lock("a", blocking_timeout=5.0).acquire()
        await lease.release()
    hopeless.cancel()
    await asyncio.wait([hopeless])


@pytest.mark.parametrize(
    ("held", "wanted"), [(("a",), ("a", "b")), (("b",), ("a", "b")), (("a", "b"), ("b", "c"))]
)
async def test_a_task_that_holds_one_name_of_a_set_does_not_wait_for_itself(
    rig: Rig, held: tuple[str, ...], wanted: tuple[str, ...]
) -> None:
    process = await rig.process()
    async with asyncio.timeout(5.0), process.lock(*held):
        with pytest.raises(LockHeld, match="this very task holds it"):
            await process.lock(*wanted).acquire()
        async with process.lock("c", "d") as others:
            assert others.valid


async def test_lines_of_sets_without_waiters_are_not_kept(rig: Rig) -> None:
    process = await rig.process(fencing=False)
    for number in range(100):
        async with process.lock(*(f"{number}-{name}" for name in range(50))):
            pass
    lines = process.redlock.engine().lines
    assert (occupied(lines), lines._others, lines._standing) == ([], {}, {})
