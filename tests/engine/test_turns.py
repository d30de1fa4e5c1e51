"""Who waits for a process that hands a lock on within itself sleeps until its turn is over; and is not left asleep."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from aioredlock_ng import AcquireTimeout, Lease
from aioredlock_ng._core.backoff import WAKE_CAP
from aioredlock_ng._core.keys import PASSED_KEYS, TURN_KEYS
from aioredlock_ng._core.turns import FIRST_BOUND, STAND_BACK
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._engine.hints import PASSED_MS
from aioredlock_ng._engine.waker import TURN_POLL
from aioredlock_ng._nodes.memory_server import MemoryServer
from aioredlock_ng._scripts.kinds import AWAIT_TURN, TURN_OVER
from tests.support.rig import WAY, Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioredlock_ng._scripts import Command
    from tests.support.rig import Process

pytestmark = pytest.mark.virtual_time

LEAD = crc32(b"a") % 3
LONGEST = 1.25 * TURN_POLL


def now() -> float:
    return asyncio.get_running_loop().time()


class Workers:
    """Tasks of one process that take a lock in turns, each for two milliseconds, and note it in `log`.

    So many of them (`beside`) take another one with it, each its own.
    """

    def __init__(
        self,
        process: Process,
        count: int,
        name: str = "a",
        log: list[Workers] | None = None,
        blocking_timeout: float | None = None,
        beside: int = 0,
    ) -> None:
        self.turns = self.gave_up = 0
        self._blocking_timeout = blocking_timeout
        self._log = [] if log is None else log
        self.freed_at = 0.0
        self._more = True
        names = [(name, f"{name}{number}") if number < beside else (name,) for number in range(count)]
        self._tasks = [asyncio.ensure_future(self._work(process, *wanted)) for wanted in names]

    async def _work(self, process: Process, *names: str) -> None:
        while self._more:
            try:
                async with process.lock(*names, blocking_timeout=self._blocking_timeout):
                    self.turns += 1
                    self._log.append(self)
                    await asyncio.sleep(0.002)
                    self.freed_at = now()
            except AcquireTimeout:
                self.gave_up += 1

    async def end(self) -> None:
        self._more = False
        await asyncio.gather(*self._tasks)


@pytest.fixture
async def awaiting(rig: Rig) -> AsyncIterator[tuple[Process, asyncio.Future[Lease], list[Command]]]:
    """One that has been woken in vain, as by hand-overs, and awaits the end of the turn; and what it asks from then on."""
    process = await rig.process()
    waiting, asked = await awaited(rig, process)
    yield process, waiting, asked
    rig.resume()
    await asyncio.sleep(0.3)
    assert rig.clean
    assert process.redlock.stats().waiting == 0


async def awaited(rig: Rig, process: Process) -> tuple[asyncio.Future[Lease], list[Command]]:
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.5)
    asked = process.questions()
    for _ in range(5):
        rig.occupy(b"a")
        await asyncio.sleep(0.004)
        if asked[-1].script is AWAIT_TURN:
            break
    assert asked.pop().script is AWAIT_TURN
    asked.clear()
    return waiting, asked


async def let_pass(rig: Rig, asked: list[Command], turns: int) -> None:
    """Somebody else is known to have let so many turns pass, from the next time that anybody awaits one."""
    rig.servers[LEAD].set(PASSED_KEYS + b"a", b"%d" % turns, 10.0)
    await end_turn(rig)
    while not asked or asked[-1].script is not AWAIT_TURN:
        rig.occupy(b"a")
        await asyncio.sleep(0.004)
    asked.clear()


async def end_turn(rig: Rig) -> None:
    """As a process that hands on does; returns when everybody is told."""
    rig.servers[LEAD].set(TURN_KEYS + b"a", b"", 0.001)
    rig.servers[LEAD].delete(TURN_KEYS + b"a")
    await asyncio.sleep(1.5 * WAY)


async def take(process: Process) -> float:
    """Returns when it had it; and lets others have it."""
    async with process.lock("a"):
        taken_at = now()
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.005)
    return taken_at


async def test_hand_overs_wake_a_waiter_elsewhere_a_few_times_however_many_they_are(rig: Rig) -> None:
    busy, other = await rig.process(), await rig.process()
    # Its first run is long, for nobody else seemed to want it.
    workers = Workers(busy, 5)
    await asyncio.sleep(0.1)
    await take(other)
    asked = other.questions()
    for _ in range(20):
        asked.clear()
        turns, began = workers.turns, now()
        assert await take(other) - began < FIRST_BOUND + 0.02
        assert workers.turns - turns >= 5
        scripts = Counter(command.script.name for command in asked)
        # All nodes at first, the lead a few times, those who grant it; and releases.
        assert scripts["await_turn"] == 1
        assert scripts.total() <= 15
    assert other.redlock.stats().wakeups_fallback == 0
    await workers.end()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("count", "beside"), [(1, 0), (2, 0), (5, 0), (2, 1), (2, 2), (5, 2), (5, 5)])
async def test_the_end_of_a_process_work_wakes_who_awaited_the_end_of_its_turn(
    rig: Rig, count: int, beside: int, wide: bool
) -> None:
    busy, other = await rig.process(), await rig.process()
    if wide:
        async with busy.lock("b", "c"):
            pass
    workers = Workers(busy, count, beside=beside)
    await asyncio.sleep(0.1)
    asked, awaiting = other.questions(), 0
    for _ in range(20):
        await take(other)
        waiting = asyncio.ensure_future(take(other))
        # Two hand-overs that it is told of.
        await asyncio.sleep(0.015 if count < 5 else 0.026)
        awaiting += asked[-1].script is AWAIT_TURN
        await workers.end()
        assert await waiting - workers.freed_at < STAND_BACK + 10 * WAY
        workers = Workers(busy, count, beside=beside)
        await asyncio.sleep(0.005)
    await workers.end()
    assert awaiting >= 5, "this was about those"


async def test_who_is_handed_a_name_and_waits_for_another_one_ends_the_turn(rig: Rig) -> None:
    busy, other = await rig.process(), await rig.process()
    rig.occupy(b"b")
    workers = Workers(busy, 2)
    await asyncio.sleep(0.1)
    asked, awaiting = other.questions(), 0
    for _ in range(20):
        await take(other)
        waiting = asyncio.ensure_future(take(other))
        await asyncio.sleep(0.015)
        awaiting += asked[-1].script is AWAIT_TURN
        both = asyncio.ensure_future(busy.lock("a", "b").acquire())
        await workers.end()
        assert await waiting - workers.freed_at < STAND_BACK + 10 * WAY
        both.cancel()
        workers = Workers(busy, 2)
        await asyncio.sleep(0.005)
    await workers.end()
    assert awaiting >= 5, "this was about those"


async def crowded(rig: Rig) -> Process:
    """One that knows that others are after the lock."""
    process = await rig.process()
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.5)
    rig.vacate(b"a")
    rig.occupy(b"a", value=b"somebody faster")
    await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.wait([waiting])
    return process


@pytest.mark.parametrize("closes", [False, True])
async def test_who_knows_of_others_tells_them_when_it_does_not_go_on(rig: Rig, closes: bool) -> None:
    holder = await crowded(rig)
    waiting, _ = await awaited(rig, await rig.process())
    way = 0.0001
    rig.ways[:] = [way] * 3
    rig.vacate(b"a")
    lease = await holder.lock("a").acquire()
    freed_at = now()
    await lease.release()
    if closes:
        await holder.redlock.aclose()
    lease = await waiting
    assert now() - freed_at < (0.0 if closes else STAND_BACK) + 10 * way
    await lease.release()


async def test_who_goes_on_at_once_tells_nobody_that_it_does_not(rig: Rig) -> None:
    holder = await crowded(rig)
    rig.ways[:] = [0.0001] * 3
    rig.vacate(b"a")
    asked = holder.questions()
    for _ in range(30):
        async with holder.lock("a"):
            pass
    assert TURN_OVER not in {command.script for command in asked}
    await asyncio.sleep(0.1)
    assert [command.script for command in asked].count(TURN_OVER) == 1


async def test_a_release_that_was_taken_for_a_hand_over_is_not_missed(rig: Rig) -> None:
    awaiting = 0
    for changes in range(5):
        process = await rig.process()
        rig.occupy(b"a")
        waiting = asyncio.ensure_future(process.lock("a").acquire())
        await asyncio.sleep(0.5)
        for _ in range(changes):
            rig.occupy(b"a")
            await asyncio.sleep(0.004)
        asked, before = process.questions(), now()
        rig.vacate(b"a")
        lease = await waiting
        awaiting += asked[0].script is AWAIT_TURN
        # What awaits a turn already is told of none by this deletion.
        assert changes > 2 or now() - before < WAKE_CAP + 6 * WAY
        await lease.release()
    assert awaiting == 1


async def test_after_a_release_it_asks_for_the_lock_at_the_next_one(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.5)
    for _ in range(2):
        rig.occupy(b"a")
        await asyncio.sleep(0.004)
    asked = process.questions()
    rig.vacate(b"a")
    await asyncio.sleep(2.5 * WAY)
    # Somebody is faster than its way there, back, and there again.
    rig.occupy(b"a")
    await asyncio.sleep(0.004)
    assert asked.pop(0).script is AWAIT_TURN
    asked.clear()
    rig.vacate(b"a")
    lease = await waiting
    assert AWAIT_TURN not in {command.script for command in asked}
    await lease.release()


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_who_awaits_the_end_of_a_turn_sleeps_through_the_hand_overs(rig: Rig) -> None:
    waiting, asked = await awaited(rig, await rig.process())
    for _ in range(10):
        rig.occupy(b"a")
        await asyncio.sleep(0.004)
    assert asked == []
    waiting.cancel()
    await asyncio.wait([waiting])


@pytest.mark.parametrize("count", [3, 6])
async def test_processes_get_their_turns_in_a_circle(rig: Rig, count: int) -> None:
    log: list[Workers] = []
    everybody = [Workers(await rig.process(), 3, log=log) for _ in range(count)]
    await asyncio.sleep(2)
    log.clear()
    await asyncio.sleep(4)
    turns = [workers for workers, _ in groupby(log)]
    await asyncio.gather(*(workers.end() for workers in everybody))
    assert len(turns) > 50
    for first in range(len(turns) - count):
        assert set(turns[first : first + count + 1]) == set(everybody)


async def test_a_process_whose_waiters_give_up_keeps_its_place_in_the_circle(rig: Rig) -> None:
    log: list[Workers] = []
    rig.ways[:] = [WAY / 5] * len(rig.servers)
    everybody = [Workers(await rig.process(), 3, log=log) for _ in range(4)]
    impatient = Workers(await rig.process(), 3, log=log, blocking_timeout=0.06)
    await asyncio.sleep(6)
    assert impatient.gave_up > 20
    await asyncio.gather(*(workers.end() for workers in (*everybody, impatient)))
    assert impatient.turns > 0.7 * len(log) / 5


async def test_who_has_let_fewer_turns_pass_asks_only_whether_the_other_came(rig: Rig, awaiting: Any) -> None:
    _, waiting, asked = awaiting
    await let_pass(rig, asked, 5)
    before = now()
    await end_turn(rig)
    rig.vacate(b"a", [LEAD])
    await asyncio.sleep(WAKE_CAP)
    assert [command.script.name for command in asked] == ["await_turn"]
    rig.vacate(b"a")
    lease = await waiting
    # Nobody came, and it is told so.
    assert now() - before < WAKE_CAP + 8 * WAY
    await lease.release()


async def test_who_has_let_as_many_pass_asks_for_the_lock_at_once(rig: Rig, awaiting: Any) -> None:
    _, waiting, asked = awaiting
    await let_pass(rig, asked, 2)
    rig.vacate(b"a", [LEAD])
    await end_turn(rig)
    assert [command.script.name for command in asked] == ["acquire_guarded"]
    rig.vacate(b"a")
    await (await waiting).release()


async def test_how_many_turns_somebody_lets_pass_is_soon_forgotten(rig: Rig, awaiting: Any) -> None:
    _, waiting, _ = awaiting
    assert rig.servers[LEAD].get(PASSED_KEYS + b"a") == b"1"
    await asyncio.sleep(PASSED_MS / 1000)
    assert rig.servers[LEAD].get(PASSED_KEYS + b"a") is None
    rig.vacate(b"a")
    await (await waiting).release()


async def test_a_foreign_value_in_the_place_of_how_many_turns_are_let_pass_is_none(rig: Rig) -> None:
    process = await rig.process()
    rig.servers[LEAD].set(PASSED_KEYS + b"a", b"1.5", 10.0)
    waiting, _ = await awaited(rig, process)
    await asyncio.sleep(2 * WAY)
    assert rig.servers[LEAD].get(PASSED_KEYS + b"a") == b"1"
    rig.vacate(b"a")
    await (await waiting).release()


@pytest.mark.parametrize("timeout", [None, 0.005])
async def test_who_gives_up_amid_its_hand_over_as_the_last_in_line_ends_the_turn(rig: Rig, timeout: float | None) -> None:
    busy, other = await rig.process(), await rig.process()
    waiting, _ = await awaited(rig, other)
    rig.vacate(b"a")
    first = await busy.lock("a").acquire()
    second = asyncio.ensure_future(busy.lock("a", blocking_timeout=timeout).acquire())
    await asyncio.sleep(0.004)
    release = asyncio.ensure_future(first.release())
    await asyncio.sleep(WAY / 2)
    if timeout is None:
        second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    before = now()
    lease = await waiting
    assert now() - before < 10 * WAY
    await lease.release()
    await release
    await asyncio.sleep(0.1)
    assert rig.clean


async def test_who_is_told_of_no_end_looks_all_the_same_and_no_longer_trusts_in_it(rig: Rig, awaiting: Any) -> None:
    _, waiting, asked = awaiting
    before = now()
    rig.vacate(b"a")
    lease = await waiting
    assert now() - before <= LONGEST + 4 * WAY
    assert {command.script for command in asked} & {AWAIT_TURN} == set()
    await lease.release()


async def test_after_an_end_that_was_not_told_of_it_asks_for_the_lock_again(rig: Rig, awaiting: Any) -> None:
    _, waiting, asked = awaiting
    await asyncio.sleep(LONGEST + 4 * WAY)
    for _ in range(5):
        rig.occupy(b"a")
        await asyncio.sleep(0.004)
    assert len(asked) > 5
    assert AWAIT_TURN not in {command.script for command in asked}
    before = now()
    rig.vacate(b"a")
    lease = await waiting
    assert now() - before < WAKE_CAP + 6 * WAY
    await lease.release()


async def test_a_server_that_refuses_is_asked_for_the_lock_itself(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryServer, "_await_turn", lambda *_: Refusal("NOPERM this user has no permissions"))
    process = await rig.process()
    asked = process.questions()
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    for _ in range(10):
        await asyncio.sleep(0.004)
        rig.occupy(b"a")
    assert [command.script for command in asked].count(AWAIT_TURN) == 1
    before = now()
    rig.vacate(b"a")
    lease = await waiting
    assert now() - before < WAKE_CAP + 8 * WAY
    await lease.release()


@pytest.mark.parametrize("quarters", range(8))
async def test_who_is_cancelled_while_it_awaits_a_turn_leaves_nothing(rig: Rig, awaiting: Any, quarters: int) -> None:
    process, waiting, _ = awaiting
    behind = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(quarters * WAY / 4)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    rig.vacate(b"a")
    before = now()
    await (await behind).release()
    assert now() - before < 0.02


async def test_the_time_to_wait_bounds_the_sleep(rig: Rig) -> None:
    busy, other = await rig.process(), await rig.process()
    workers = Workers(busy, 5)
    await asyncio.sleep(0.1)
    for _ in range(3):
        await take(other)
    asked = other.questions()
    before = now()
    with pytest.raises(AcquireTimeout):
        await other.lock("a", blocking_timeout=0.02).acquire()
    assert now() - before == pytest.approx(0.02)
    assert AWAIT_TURN in {command.script for command in asked}
    await workers.end()
    await asyncio.sleep(0.3)
    assert rig.clean


async def test_a_lead_that_hangs_keeps_nobody_asleep_for_long(rig: Rig, awaiting: Any) -> None:
    _, waiting, _ = awaiting
    rig.hang(LEAD)
    rig.vacate(b"a")
    before = now()
    lease = await waiting
    assert now() - before <= LONGEST + 0.1
    rig.resume()
    await lease.release()


async def test_without_keys_of_its_own_it_asks_for_no_turns(rig: Rig) -> None:
    busy, other = [await rig.process(fencing=False, recovery_guard=None) for _ in range(2)]
    workers = Workers(busy, 5)
    asked = [busy.questions(), other.questions()]
    for _ in range(5):
        await take(other)
    await workers.end()
    assert {command.script for commands in asked for command in commands}.isdisjoint({AWAIT_TURN, TURN_OVER})


@pytest.mark.parametrize("name", ["a", "b"])
async def test_who_wants_more_names_gets_them_from_a_process_that_hands_one_on(rig: Rig, name: str) -> None:
    busy, other = await rig.process(), await rig.process()
    workers = Workers(busy, 5, name)
    for _ in range(5):
        before = now()
        async with other.lock("a", "b"):
            assert now() - before < 1
    await workers.end()


@pytest.mark.parametrize("node_timeout", [0.02, 1.0])
async def test_who_is_asked_first_has_its_share_of_the_node_timeout_in_full(rig: Rig, node_timeout: float) -> None:
    """A quarter of it, however the instant lies between those at which timeouts are looked at."""
    rig.ways[:] = [0.0022] * len(rig.servers)
    process = await rig.process(node_timeout=node_timeout)
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.1)
    asked = process.questions()
    for _ in range(20):
        rig.occupy(b"a")
        await asyncio.sleep(0.0313)
    # Mostly a majority; where the lead was asked alone before, all. With a timeout in between it would be all, each time.
    assert len(asked) == 48
    rig.vacate(b"a")
    await (await waiting).release()


async def test_a_look_after_a_turn_that_was_awaited_in_vain_forgets_no_node(rig: Rig, awaiting: Any) -> None:
    _, waiting, asked = awaiting

    async def await_another() -> None:
        await end_turn(rig)
        for _ in range(20):
            await asyncio.sleep(0.004)
            if asked[-1].script is AWAIT_TURN:
                return
            rig.occupy(b"a")
        raise AssertionError("this is about one that awaits a turn")

    await await_another()
    # The lead was believed for long enough: all nodes are asked at the end of this turn, and tell before the next is awaited.
    await asyncio.sleep(0.06)
    await await_another()
    await asyncio.sleep(LONGEST + 0.005)
    rig.vacate(b"a", [0, 1])
    before = now()
    lease = await waiting
    assert now() - before < 0.1
    rig.vacate(b"a", [2])
    await lease.release()


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a"), ("a", "c", "b")])
async def test_of_several_names_the_turn_of_the_one_that_is_handed_on_is_awaited(rig: Rig, names: tuple[str, ...]) -> None:
    busy, process = await rig.process(), await rig.process()
    workers = Workers(busy, 5, "b")
    await asyncio.sleep(0.1)
    asked = process.questions()
    for _ in range(20):
        async with process.lock(*names):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.005)
    scripts = Counter(command.script.name for command in asked)
    assert scripts["acquire_guarded"] + scripts["await_turn"] <= 20 * 15, scripts
    await workers.end()
