"""Locks of several names that share some: nobody outside the process is starved by them, and idle ones cost nothing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._engine.register import ROOM
from aioredlock_ng._engine.waiting import PASSED_OVER
from aioredlock_ng.errors import AcquireTimeout, QuorumUnreachable
from tests.support.rig import WAY

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from aioredlock_ng._scripts import Command
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


async def holds(work: dict[str, tuple[Process, tuple[str, ...]]], hold: float, seconds: float) -> Counter[str]:
    """How often each of these has its lock, who want it again as soon as they gave it up."""
    counts: Counter[str] = Counter()
    end = now() + seconds

    async def loop(who: str, process: Process, names: tuple[str, ...]) -> None:
        while now() < end:
            async with process.lock(*names):
                counts[who] += 1
                await asyncio.sleep(hold)

    async with asyncio.TaskGroup() as group:
        for who, (process, names) in work.items():
            group.create_task(loop(who, process, names))
    return counts


@pytest.mark.parametrize("hold", [0.005, 0.03, 0.1])
async def test_names_shared_within_a_process_leave_other_processes_their_turn(rig: Rig, hold: float) -> None:
    ours, theirs = await rig.process(), await rig.process()
    counts = await holds({"one": (ours, ("a",)), "both": (ours, ("a", "b")), "other": (theirs, ("a",))}, hold, 100 * hold)
    assert counts["other"] >= sum(counts.values()) / 6, counts


@pytest.mark.parametrize("hold", [0.002, 0.005, 0.02])
@pytest.mark.parametrize("workers", [1, 2])
async def test_other_names_beside_the_shared_one_each_time_are_no_new_run(rig: Rig, hold: float, workers: int) -> None:
    rig.ways[:] = [0.0001] * 3
    ours, theirs = await rig.process(), await rig.process()
    end, taken = now() + 5.0, 0

    async def work(worker: int) -> None:
        nonlocal taken
        for order in itertools.count():
            if now() > end:
                return
            async with ours.lock("a", f"order:{worker}:{order}"):
                taken += 1
                await asyncio.sleep(hold)

    working = [asyncio.ensure_future(work(worker)) for worker in range(workers)]
    counts = await holds({"other": (theirs, ONE)}, hold, 5.0)
    await asyncio.gather(*working)
    assert counts["other"] >= (taken + counts["other"]) / 6, (taken, counts)


async def test_what_is_taken_back_before_it_is_read_wakes_who_shares_its_names(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"b", on=[0])
    rig.stop(1)
    refused = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(0)
    began = now()
    lease = await process.lock("a").acquire()
    assert now() - began < 0.2
    await lease.release()
    refused.cancel()
    await asyncio.wait([refused])


async def test_a_newcomer_of_the_same_process_does_not_take_the_others_turn(rig: Rig) -> None:
    ours, theirs = await rig.process(), await rig.process()
    lease = await ours.lock("a", "b").acquire()
    waiting = asyncio.ensure_future(theirs.lock("a").acquire())
    await asyncio.sleep(0.5)
    releasing = asyncio.ensure_future(lease.release())
    await asyncio.sleep(0)
    newcomer = asyncio.ensure_future(ours.lock("a", "c").acquire())
    await asyncio.wait([waiting, newcomer], return_when=asyncio.FIRST_COMPLETED)
    assert waiting.done()
    assert not newcomer.done()
    assert await releasing
    await (await waiting).release()
    assert (await newcomer).valid


async def test_who_gives_up_in_the_others_turn_does_not_pass_it_to_the_next_of_its_line(rig: Rig) -> None:
    ours, theirs = await rig.process(), await rig.process()
    lease = await ours.lock("a", "b").acquire()
    first = asyncio.ensure_future(ours.lock("a", "c").acquire())
    await asyncio.sleep(0)
    second = asyncio.ensure_future(ours.lock("a", "c").acquire())
    waiting = asyncio.ensure_future(theirs.lock("a").acquire())
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


ONE, BOTH, ANOTHER = ("a",), ("a", "b"), ("a", "c")


async def wishes(rig: Rig, wants: tuple[tuple[str, ...], ...], rivals: int) -> dict[str, tuple[Process, tuple[str, ...]]]:
    """Work for `holds`: these by one process, and one name by each rival's."""
    ours = await rig.process()
    work = {f"{number} {names}": (ours, names) for number, names in enumerate(wants)}
    for number in range(rivals):
        work[f"rival {number}"] = (await rig.process(), ONE)
    return work


@pytest.mark.parametrize("hold", [0.0, 0.005, 0.05])
@pytest.mark.parametrize(
    "wants",
    [
        (BOTH, BOTH, ONE),
        (ONE, ONE, BOTH),
        (BOTH, BOTH, ANOTHER),
        (ONE, ONE, BOTH, ANOTHER),
        (BOTH, BOTH, ANOTHER, ANOTHER, ONE),
    ],
)
@pytest.mark.parametrize("rivals", [0, 1])
async def test_who_shares_a_name_is_not_starved_by_a_queue_of_its_own_process(
    rig: Rig, wants: tuple[tuple[str, ...], ...], hold: float, rivals: int
) -> None:
    work = await wishes(rig, wants, rivals)
    counts = await holds(work, hold, 200 * max(hold, 0.005))
    assert min(counts[who] for who in work) >= sum(counts.values()) / len(work) / 3, counts


@pytest.mark.parametrize("first", [BOTH, ONE])
async def test_what_an_acquisition_takes_back_unread_wakes_who_shares_its_names(rig: Rig, first: tuple[str, ...]) -> None:
    process = await rig.process()
    fleeting = asyncio.ensure_future(process.lock(*first).acquire())
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(process.lock(*(ONE if first is BOTH else BOTH)).acquire())
    await asyncio.sleep(0)
    fleeting.cancel()
    began = now()
    lease = await waiting
    assert now() - began < 0.1
    await lease.release()


async def test_a_try_that_is_given_up_wakes_who_waits_for_the_same(rig: Rig) -> None:
    process = await rig.process()
    fleeting = asyncio.ensure_future(process.lock("a").try_acquire())
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    fleeting.cancel()
    began = now()
    lease = await waiting
    assert now() - began < 0.1
    await lease.release()


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_who_waits_for_another_name_costs_few_commands_per_turn_of_the_one_it_shares(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    lease = await other.lock("b").acquire()
    waiting = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(0.1)
    sent = [node._sequence for node in process.nodes]
    counts = await holds({"busy": (process, ONE)}, 0.002, 2.0)
    in_vain = sum(node._sequence for node in process.nodes) - sum(sent) - 2 * 5 * counts["busy"]
    assert counts["busy"] > 100
    assert in_vain < counts["busy"] / 2, (in_vain, counts)
    releasing = asyncio.ensure_future(lease.release())
    began = now()
    await (await waiting).release()
    assert now() - began < 0.1
    await releasing


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_a_dead_key_on_the_lead_does_not_keep_out_who_asked_in_vain(rig: Rig) -> None:
    process = await rig.process()
    lead = process.redlock.engine().context.fleet.lead(b"a")
    assert lead is not None
    rig.occupy(b"b")
    waiting = asyncio.ensure_future(process.lock("a", "b").acquire())
    busy = asyncio.ensure_future(holds({"one": (process, ONE), "another": (process, ONE)}, 0.002, 3.0))
    await asyncio.sleep(1.0)
    rig.vacate(b"b", on={*range(5)} - {lead})
    began = now()
    lease = await waiting
    assert now() - began < 0.2
    await lease.release()
    await busy


@pytest.mark.parametrize("rig", [5], indirect=True)
@pytest.mark.parametrize("hold", [0.02, 0.3])
async def test_a_dead_key_on_the_lead_keeps_out_nobody_whose_turns_come_after_a_pause(rig: Rig, hold: float) -> None:
    """After a long hold the process stands back, and then asks the lead first."""
    process = await rig.process()
    lead = process.redlock.engine().context.fleet.lead(b"a")
    assert lead is not None
    rig.occupy(b"b", on=[lead])
    busy = asyncio.ensure_future(holds({"one": (process, ONE), "another": (process, ONE)}, hold, 6.0))
    await asyncio.sleep(1.0)
    began = now()
    async with asyncio.timeout(10.0):
        lease = await process.lock("a", "b").acquire()
    assert now() - began < 6 * (hold + 0.01)
    await lease.release()
    await busy


async def test_lines_that_share_names_in_one_process_are_no_rivals_of_each_other(rig: Rig) -> None:
    process = await rig.process()
    await holds({"one": (process, ONE), "both": (process, BOTH), "another": (process, ANOTHER)}, 0.002, 1.0)
    lines = process.redlock.engine().lines._lines.values()
    assert not any(line.turns.crowded(now()) for line in lines)


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_who_takes_back_two_grants_of_five_wakes_nobody_for_what_is_held(rig: Rig) -> None:
    process = await rig.process(fencing=False, recovery_guard=None)
    rig.occupy(b"a", on=(0, 1, 2))
    waiting = [asyncio.ensure_future(process.lock(*names).acquire()) for names in (ONE, BOTH, ANOTHER)]
    await asyncio.sleep(10.0)
    # A slow look each every two seconds.
    assert process.redlock.stats().attempts <= 3 * 10
    rig.vacate(b"a")
    for finished in asyncio.as_completed(waiting):
        await (await finished).release()


@pytest.mark.parametrize("count", [1, 30])
async def test_sets_of_names_that_share_one_ask_one_after_the_other_as_a_queue_does(rig: Rig, count: int) -> None:
    process, other = await rig.process(), await rig.process()
    lease = await other.lock("stock").acquire()
    order: list[int] = []

    async def work(number: int) -> None:
        async with process.lock("stock", f"order:{number}"):
            order.append(number)
            await asyncio.sleep(0.01)

    working = [asyncio.ensure_future(work(number)) for number in range(count)]
    await asyncio.sleep(1.0)
    assert process.redlock.stats().attempts == 1
    await lease.release()
    await asyncio.gather(*working)
    assert order == sorted(order)
    assert process.redlock.stats().attempts <= count + 2
    await asyncio.sleep(0.1)
    assert not process.redlock.engine().lines._register._claims


async def test_a_turn_costs_the_same_however_many_sets_of_names_wait_for_it(rig: Rig) -> None:
    process = await rig.process()
    calls = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and "_engine" in frame.f_code.co_filename

    async def work(number: int) -> None:
        async with process.lock("stock", f"order:{number}"):
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
    assert await calls_per_turn(300) < 1.5 * few


async def test_who_waits_for_one_of_its_names_elsewhere_keeps_the_others_from_nobody(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    theirs = await other.lock("b").acquire()
    waiting = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(0.5)
    async with asyncio.timeout(0.1):
        await (await process.lock("a").acquire()).release()
        await (await process.lock("a", "c").acquire()).release()
    behind = asyncio.ensure_future(process.lock("b", "c").acquire())
    await asyncio.sleep(0.5)
    # What it waits for is left to it, and asked for once.
    assert process.redlock.stats().attempts == 3
    await theirs.release()
    await (await waiting).release()
    await (await behind).release()


async def test_who_waits_for_a_name_of_its_own_process_keeps_the_others_from_nobody(rig: Rig) -> None:
    """A body that takes another lock inside would else wait for who waits for it."""
    process = await rig.process()
    async with process.lock("a"):
        waiting = asyncio.ensure_future(process.lock("a", "b").acquire())
        await asyncio.sleep(0.5)
        async with asyncio.timeout(0.1), process.lock("b"):
            assert not waiting.done()
        assert process.redlock.stats().attempts == 2
    await (await waiting).release()


@pytest.mark.parametrize(("rig", "left_on"), [(3, 1), (5, 1), (5, 2)], indirect=["rig"])
@pytest.mark.parametrize("seconds", [0.5, 3.0, 10.0])
async def test_a_key_that_is_left_on_a_minority_keeps_its_name_from_nobody(rig: Rig, left_on: int, seconds: float) -> None:
    """Nor after the slow looks, which ask a majority alone."""
    process = await rig.process()
    rig.occupy(b"a")
    rig.occupy(b"b", on=list(process.redlock.engine().context.fleet.in_turn(b"a"))[:left_on])
    waiting = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(seconds)
    async with asyncio.timeout(0.1):
        await (await process.lock("b").acquire()).release()
    waiting.cancel()
    await asyncio.wait([waiting])


@pytest.mark.parametrize("rig", [5], indirect=True)
@pytest.mark.parametrize("grant", ["first", "last"])
async def test_votes_that_stay_split_over_two_names_keep_neither_from_others(rig: Rig, grant: str) -> None:
    process = await rig.process()
    if grant == "first":
        rig.ways[4] /= 2
    rig.occupy(b"a", on=[0, 1])
    rig.occupy(b"b", on=[2, 3])
    waiting = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(0.01)
    async with asyncio.timeout(1.0):
        await (await process.lock("a").acquire()).release()
        await (await process.lock("b").acquire()).release()
    waiting.cancel()
    await asyncio.wait([waiting])


@pytest.mark.parametrize("quarters", range(24))
@pytest.mark.parametrize("ends", ["cancelled", "timed out"])
async def test_who_gives_up_at_any_instant_leaves_its_names_to_those_behind(rig: Rig, quarters: int, ends: str) -> None:
    """While it asks, sleeps, is woken, is granted."""
    process, other = await rig.process(), await rig.process()
    theirs = await other.lock("stock").acquire()
    instant = 0.01 + quarters * rig.ways[0] / 4
    first = process.lock("stock", "order:1", blocking_timeout=instant if ends == "timed out" else None)
    leaver = asyncio.ensure_future(first.acquire())
    await asyncio.sleep(0)
    behind = [asyncio.ensure_future(process.lock("stock", f"order:{number}").acquire()) for number in (2, 3)]
    asyncio.get_running_loop().call_later(0.01, lambda: releasing.append(asyncio.ensure_future(theirs.release())))
    releasing: list[asyncio.Future[bool]] = []
    await asyncio.sleep(instant)
    if ends == "cancelled":
        leaver.cancel()
    await asyncio.wait([leaver])
    if not leaver.cancelled() and leaver.exception() is None:
        await leaver.result().release()
    async with asyncio.timeout(1.0):
        for waiting in behind:
            await (await waiting).release()
    await asyncio.gather(*releasing)
    await asyncio.sleep(1.0)
    assert rig.keys() == [set()] * len(rig.servers)
    assert not process.redlock.engine().lines._register._claims


async def test_who_waits_behind_one_that_reaches_no_quorum_is_told_so(rig: Rig) -> None:
    process = await rig.process()
    rig.stop(0, 1)
    first = asyncio.ensure_future(process.lock("stock", "order:1").acquire())
    await asyncio.sleep(0.1)
    with pytest.raises(QuorumUnreachable):
        await process.lock("stock", "order:2", blocking_timeout=0.5).acquire()
    first.cancel()
    await asyncio.wait([first])


@pytest.mark.parametrize("how", ["behind another process", "behind its own"])
async def test_who_waits_for_what_is_held_is_not_told_that_no_node_answers_whoever_just_asks(rig: Rig, how: str) -> None:
    process, other = await rig.process(), await rig.process()
    holding = await (process if how == "behind its own" else other).lock("a").acquire()
    waiting = [asyncio.ensure_future(process.lock("a", "b").acquire())]
    await asyncio.sleep(0.1)
    bounded = asyncio.ensure_future(process.lock("a", "c", blocking_timeout=0.5).acquire())
    await asyncio.sleep(0.4995)
    waiting.append(asyncio.ensure_future(process.lock("c").acquire()))
    with pytest.raises(AcquireTimeout):
        await bounded
    await (await waiting.pop()).release()
    await holding.release()
    await (await waiting.pop()).release()


@pytest.mark.parametrize("why", ["it may not touch one", "it comes too late"])
async def test_who_cannot_succeed_for_its_own_names_or_ttl_keeps_them_from_nobody(
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
            return Refusal("NOPERM No permissions to access a key") if denied else execute(command, by)

        monkeypatch.setattr(rig.servers[0], "execute", refuse)
        rig.stop(1)
    hopeless = asyncio.ensure_future(process.lock("a", "b", ttl=ttl, auto_extend=False).acquire())
    await asyncio.sleep(5.0)
    for _ in range(5):
        lease = await process.lock("a", blocking_timeout=5.0).acquire()
        await lease.release()
    hopeless.cancel()
    await asyncio.wait([hopeless])


@pytest.mark.parametrize("hold", [0.002, 0.02, 0.2])
@pytest.mark.parametrize(
    "wants",
    [
        (ONE, ONE, ("b",), ("b",), BOTH),
        (ONE, ("b",), BOTH),
        (("a", "0"), ("a", "1"), ("b", "2"), ("b", "3"), BOTH),
        (BOTH, BOTH, ("c", "d"), ("c", "d"), ("b", "c")),
        (ONE, ONE, ("b",), ("b",), ("c",), ("c",), ("a", "b", "c")),
    ],
)
@pytest.mark.parametrize("rivals", [0, 1])
async def test_who_wants_several_names_is_not_starved_by_a_queue_for_each(
    rig: Rig, wants: tuple[tuple[str, ...], ...], hold: float, rivals: int
) -> None:
    work = await wishes(rig, wants, rivals)
    counts = await holds(work, hold, max(1.0, 150 * hold))
    assert min(counts.values()) >= sum(counts.values()) / len(work) / 6, counts


@pytest.mark.parametrize("rival", [(), ("b",), BOTH])
async def test_nor_is_it_where_those_before_it_are_asking_rather_than_holding(rig: Rig, rival: tuple[str, ...]) -> None:
    ours, other = await rig.process(), await rig.process()
    work = {f"{number} {names}": (ours, names) for number, names in enumerate((ONE, ONE, ("b",), ("b",), BOTH))}
    if rival:
        work["rival"] = other, rival
    counts = await holds(work, 0.0, 3.0)
    assert counts[f"4 {BOTH}"] >= 60, counts


@pytest.mark.parametrize("hold", [0.3, 1.0])
async def test_nor_is_it_where_bodies_last_longer_than_names_are_kept_for_it_at_first(rig: Rig, hold: float) -> None:
    work = await wishes(rig, (ONE, ONE, ("b",), ("b",), BOTH), 0)
    counts = await holds(work, hold, 100 * hold)
    assert counts[f"4 {BOTH}"] >= 6, counts


async def test_who_waits_for_a_name_that_is_held_for_long_leaves_most_of_the_time_to_those_of_its_other_names(rig: Rig) -> None:
    process = await rig.process()
    work = await wishes(rig, (ONE,) * 5, 0)
    async with process.lock("z"):
        waiting = [asyncio.ensure_future(process.lock("a", name, "z").acquire()) for name in ("x", "y")]
        beside = (await holds({who: (process, names) for who, (_, names) in work.items()}, 0.005, 10.0)).total()
    for acquiring in waiting:
        await (await acquiring).release()
    assert beside * (0.005 + 2 * WAY) >= 0.6 * 10.0, beside


async def test_a_key_that_kept_a_set_out_on_a_minority_is_missed_by_nobody_when_it_goes(rig: Rig) -> None:
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


async def test_who_waits_while_another_asks_for_the_first_time_is_not_told_that_no_node_answers(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    waiting = asyncio.ensure_future(process.lock("a", "c", blocking_timeout=0.1).acquire())
    await asyncio.sleep(0.1 - 1.5 * WAY)
    asking = asyncio.ensure_future(process.lock("c").acquire())
    await asyncio.sleep(0.5 * WAY)
    releasing = asyncio.ensure_future(lease.release())
    with pytest.raises(AcquireTimeout):
        await waiting
    await releasing
    await (await asking).release()


async def test_an_older_wish_is_not_overtaken_in_the_tick_in_which_somebody_leaves(rig: Rig) -> None:
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


async def test_what_is_kept_for_who_was_passed_over_is_given_back_to_a_body_that_takes_it_inside(rig: Rig) -> None:
    """It would wait for who waits for it."""
    process = await rig.process()
    end, longest = now() + 10.0, 0.0

    async def nested() -> None:
        nonlocal longest
        while now() < end:
            async with process.lock("b"):
                began = now()
                async with process.lock("a"):
                    longest = max(longest, now() - began)
                    await asyncio.sleep(0.01)

    async with asyncio.timeout(20.0), asyncio.TaskGroup() as group:
        for work in (nested, nested):
            group.create_task(work())
        counts = await holds({"both": (process, BOTH), "busy": (process, ONE)}, 0.01, 10.0)
    assert longest < 0.5
    assert counts["both"] > 10


@pytest.mark.parametrize("names", [BOTH, ("b", "a", "c"), ("0", "a")])
@pytest.mark.parametrize("count", [1, 3])
async def test_several_names_get_their_turn_as_one_does(rig: Rig, names: tuple[str, ...], count: int) -> None:
    ours, theirs = await rig.process(), await rig.process()
    work = {str(number): (ours, names) for number in range(count)}
    counts = await holds({**work, "rival": (theirs, ONE)}, 0.0, 3.0)
    assert counts["rival"] <= 0.8 * sum(counts.values()), counts
    assert counts["rival"] >= 0.1 * sum(counts.values()), counts


async def test_idle_lines_of_many_names_are_not_kept_without_bound(rig: Rig) -> None:
    process = await rig.process(fencing=False)
    lines = process.redlock.engine().lines
    for number in range(2 * ROOM // 50):
        async with process.lock(*(f"{number}-{name}" for name in range(50))):
            pass
    assert sum(len(line.keys) for line in lines._lines.values()) <= ROOM + 50
    assert lines._register.sets == len(lines._lines)


def assert_nobody_is_forgotten(process: Process) -> None:
    """Who waits and does not ask waits for somebody of its process; and nobody keeps names from others without a reason."""
    lines = process.redlock.engine().lines
    for line in lines._lines.values():
        assert not (line.open and line.queue and lines._is_free(line)), line.keys
        if len(line.keys) > 1:
            kept = lines._keeping is not None and lines._keeping[0] is line
            assert line.claims == () if line.open and not kept else set(line.claims) <= set(line.keys)
            assert line.claims == line.keys or (line.holder is None and not line.resting)
            assert not kept or (line.holder is None and (line.contender or line.queue))
    register, sets = lines._register, [line for line in lines._lines.values() if len(line.keys) > 1]
    claims = {(key, line) for line in sets for key in line.claims}
    assert claims == {(key, line) for key, claiming in register._claims.items() for line in claiming}
    busy = {(key, line) for line in sets for key in line.keys if not line.open}
    assert busy == {(key, line) for key, lines in register._busy.items() for line in lines}
    queues = {(key, line.since, line) for line in sets for key in line.keys if line.open and line.queue}
    assert queues == {(key, since, line) for key, lines in register._queues.items() for since, line in lines}
    assert all(lines == sorted(lines) for lines in register._queues.values())


ACTIONS = (
    "acquire",
    "acquire",
    "try",
    "wait",
    "cancel",
    "release",
    "release",
    "lose",
    "abandon",
    "occupy",
    "vacate",
    "stop",
    "start",
)


@pytest.mark.parametrize("seed", range(60))
async def test_nobody_is_forgotten_whatever_happens_to_those_before(rig: Rig, seed: int) -> None:
    rng = random.Random(seed)
    process, other = await rig.process(), await rig.process()
    names = "abcd"[: rng.randint(2, 4)]
    waiting: set[asyncio.Future[Lease]] = set()
    leases: list[Lease] = []

    def down() -> list[int]:
        return [index for index, server in enumerate(rig.servers) if not server.up]

    def settle(future: asyncio.Future[Lease]) -> None:
        waiting.discard(future)
        if not future.cancelled() and future.exception() is None and future.result().valid:
            leases.append(future.result())

    for _ in range(120):
        action = rng.choice(ACTIONS)
        wanted = rng.sample(names, rng.randint(1, min(3, len(names))))
        index = rng.randrange(3)
        match action:
            case "acquire" | "try" | "wait":
                timeout = {"acquire": None, "try": 0.0, "wait": rng.choice((0.001, 0.003, 0.05))}[action]
                by = rng.choice((process, process, other))
                waiting.add(asyncio.ensure_future(by.lock(*wanted, blocking_timeout=timeout, max_hold=30.0).acquire()))
            case "cancel" if waiting:
                rng.choice(sorted(waiting, key=id)).cancel()
            case "release" | "lose" | "abandon" if leases:
                lease = leases.pop(rng.randrange(len(leases)))
                if action == "release":
                    await lease.release()
                elif action == "lose":
                    lease.lose("by the test")
                else:
                    lease.abandon()
            case "occupy":
                rig.occupy(wanted[0].encode(), on=[index], ttl=1.0)
            case "vacate":
                rig.vacate(wanted[0].encode(), on=[index])
            case "stop" if not down():
                rig.stop(index)
            case "start":
                rig.start(*down())
        await asyncio.sleep(rng.choice((0.0005, 0.001, 0.002, 0.01)))
        # Those behind go on one tick after a refusal.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for future in [future for future in waiting if future.done()]:
            settle(future)
        assert_nobody_is_forgotten(process)
        assert_nobody_is_forgotten(other)
    rig.start(*down())
    while waiting or leases:
        for lease in leases:
            await lease.release()
        leases.clear()
        if waiting:
            async with asyncio.timeout(60.0):
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                settle(future)
        assert_nobody_is_forgotten(process)
    await asyncio.sleep(1.0)
    assert not process.redlock.engine().lines._register._claims
    assert process.redlock.stats().waiting == 0


async def test_who_went_past_the_queue_keeps_its_names_though_the_head_gives_up(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    head = asyncio.ensure_future(process.lock(*BOTH).acquire())
    await asyncio.sleep(0.5)
    for server in rig.servers:
        server.forget_trackers()
    rig.vacate(b"a")
    passing = await process.lock(*BOTH, blocking_timeout=0).acquire()
    head.cancel()
    await asyncio.wait([head])
    behind = asyncio.ensure_future(process.lock(*ANOTHER).acquire())
    await asyncio.sleep(0.5)
    assert_nobody_is_forgotten(process)
    assert process.redlock.stats().attempts == 2
    await passing.release()
    await (await behind).release()


async def test_who_went_past_the_queue_amid_a_rest_keeps_its_names_after_it(rig: Rig) -> None:
    process = await rig.process()
    first = await process.lock(*BOTH).acquire()
    await asyncio.sleep(0.5)
    await first.release()
    (line,) = process.redlock.engine().lines._lines.values()
    assert line.resting
    passing = await process.lock(*BOTH, blocking_timeout=0).acquire()
    await asyncio.sleep(0.5)
    assert not line.resting
    assert_nobody_is_forgotten(process)
    behind = asyncio.ensure_future(process.lock(*ANOTHER).acquire())
    await asyncio.sleep(0.5)
    assert process.redlock.stats().attempts == 2
    await passing.release()
    await (await behind).release()


async def test_what_is_kept_for_who_gives_up_is_given_back_at_once(rig: Rig) -> None:
    process = await rig.process()
    b = await process.lock("b").acquire()
    several = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(0)
    for _ in range(PASSED_OVER + 1):
        await (await process.lock("a").acquire()).release()
        await asyncio.sleep(0.01)
    behind = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.1)
    assert not behind.done()
    several.cancel()
    await asyncio.wait([several])
    async with asyncio.timeout(0.01):
        await (await behind).release()
    await b.release()
