"""Who is further away from the nodes than others, or slower, comes too late at each release: it goes first now and then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from aioredlock_ng._core.keys import PRECEDENCE_KEYS
from aioredlock_ng._core.turns import OUTRUN
from tests.support.rig import WAY

if TYPE_CHECKING:
    from aioredlock_ng._scripts import Command
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time

LEAD = crc32(b"a") % 3
KEY = PRECEDENCE_KEYS + b"a"


def now() -> float:
    return asyncio.get_running_loop().time()


class Workers:
    """Tasks of one process that take a lock again and again."""

    def __init__(self, process: Process, count: int, hold: float) -> None:
        self.turns = 0
        self.longest = 0.0
        self._tasks = [asyncio.ensure_future(self._work(process, hold)) for _ in range(count)]

    async def _work(self, process: Process, hold: float) -> None:
        while True:
            asked = now()
            async with process.lock("a"):
                self.longest = max(self.longest, now() - asked)
                self.turns += 1
                await asyncio.sleep(hold)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


@pytest.mark.parametrize("away", [5, 60])
@pytest.mark.parametrize("waiters", [1, 4])
@pytest.mark.parametrize("near", [1, 2, 4])
@pytest.mark.parametrize("hold", [0.05, 0.2, 1.0])
async def test_who_is_far_from_the_nodes_gets_its_turns(rig: Rig, hold: float, near: int, waiters: int, away: float) -> None:
    rig.ways[:] = [WAY / 5] * 3
    far = Workers(await rig.process(away=away), waiters, hold)
    others = [Workers(await rig.process(), waiters, hold) for _ in range(near)]
    await asyncio.sleep(120 * hold)
    everybody = [far, *others]
    await asyncio.gather(*(workers.end() for workers in everybody))
    turns = sum(workers.turns for workers in everybody)
    assert turns > 120 / 2
    assert min(workers.turns for workers in everybody) > turns / (near + 1) / 3
    assert max(workers.longest for workers in everybody) < 3 * hold * len(everybody) * waiters + 1.0


@pytest.mark.parametrize("hold", [0.0, 0.005])
@pytest.mark.parametrize("near", [1, 3])
async def test_so_it_does_beside_runs_of_short_holds(rig: Rig, near: int, hold: float) -> None:
    rig.ways[:] = [WAY / 5] * 3
    far = Workers(await rig.process(away=50), 3, hold)
    others = [Workers(await rig.process(), 3, hold) for _ in range(near)]
    await asyncio.sleep(10)
    everybody = [far, *others]
    await asyncio.gather(*(workers.end() for workers in everybody))
    # What it gets is time: its turns are hand-overs of 20 ms each.
    assert far.turns * (0.02 + hold) > 10 / (near + 1) / 4
    assert max(workers.longest for workers in everybody) < 2.5


async def test_it_asks_to_go_first_once_it_was_outrun_a_few_times_and_no_more_when_it_had_its_turn(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.1)
    asked = process.questions()
    wanted = []
    for _ in range(OUTRUN + 2):
        rig.vacate(b"a")
        rig.occupy(b"a")
        await asyncio.sleep(0.3)
        wanted.append(max(times_of(command) for command in asked))
        asked.clear()
    assert wanted == sorted(wanted)
    assert wanted[0] == 0
    assert wanted[-1] >= OUTRUN
    assert rig.servers[LEAD].get(KEY) is not None
    rig.vacate(b"a")
    await (await waiting).release()
    await asyncio.sleep(0.1)
    assert rig.clean
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.1)
    assert not any(server.get(KEY) for server in rig.servers)
    rig.vacate(b"a")
    await (await waiting).release()


def times_of(command: Command) -> int:
    """How often who asks this says that it was outrun."""
    numbers = [word for word in command.args if isinstance(word, int)]
    return numbers[-1] if command.script.name.startswith("acquire") and numbers else 0


def precede(rig: Rig, milliseconds: int) -> None:
    """Somebody else wants to go first, and never comes."""
    for server in rig.servers:
        server.set(KEY, b"else:%d:9" % milliseconds, 60.0)


@pytest.mark.parametrize("milliseconds", [2, 20, 250])
async def test_who_does_not_come_is_waited_for_only_so_long(rig: Rig, milliseconds: int) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.1)
    precede(rig, milliseconds)
    rig.vacate(b"a")
    before = now()
    lease = await waiting
    assert milliseconds / 1000 < now() - before < milliseconds / 1000 + 0.015
    await lease.release()
    await asyncio.sleep(0.1)
    assert rig.clean


@pytest.mark.parametrize("rig", [5], indirect=True)
@pytest.mark.parametrize("early", [False, True])
async def test_nodes_where_another_goes_first_tell_of_nothing_and_are_not_waited_for(rig: Rig, early: bool) -> None:
    process = await rig.process()
    lead = crc32(b"a") % 5
    down, other, *left = (index for index in range(5) if index != lead)
    rig.stop(down)
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    # Somebody else is faster each time: from then on it asks one node first, and all of them a while after that.
    for _ in range(OUTRUN + 1):
        await asyncio.sleep(1)
        rig.vacate(b"a")
        rig.occupy(b"a")
    await asyncio.sleep(0.01)
    # Two nodes are left to one who does not come, before it asks them all.
    for index in left:
        rig.servers[index].set(KEY, b"else:30:9", 60.0)
    rig.vacate(b"a", on=left)
    while rig.servers[left[1]].get(KEY) != b"else:30:9:":
        await asyncio.sleep(0.001)
    await asyncio.sleep(2 * WAY if early else 0.1)
    assert not waiting.done()
    before = now()
    rig.vacate(b"a", on=(lead, other))
    lease = await waiting
    assert now() - before < (0.03 if early else 0.0) + 5 * WAY
    await lease.release()


async def test_nobody_who_finds_the_lock_free_asks_who_else_wants_it(rig: Rig) -> None:
    process = await rig.process()
    precede(rig, 250)
    before = now()
    await (await process.lock("a").acquire()).release()
    assert now() - before < 0.01


async def test_who_hands_on_lets_it_go_first_when_its_turn_is_over(rig: Rig) -> None:
    process = await rig.process()
    first = await process.lock("a").acquire()
    waiting = [asyncio.ensure_future(process.lock("a").acquire()) for _ in range(2)]
    await asyncio.sleep(1.0)
    precede(rig, 100)
    before = now()
    await first.release()
    second = await waiting[0]
    assert now() - before > 0.1
    before = now()
    await second.release()
    await (await waiting[1]).release()
    assert now() - before < 0.01, "one turn, not one hold"


async def test_without_keys_of_our_own_nobody_goes_first(rig: Rig) -> None:
    process = await rig.process(fencing=False, recovery_guard=None)
    precede(rig, 250)
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.1)
    asked: list[Command] = process.questions()
    before = now()
    rig.vacate(b"a")
    await (await waiting).release()
    assert now() - before < 0.02
    assert all(not isinstance(word, int) for command in asked for word in command.args)
