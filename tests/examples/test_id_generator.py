"""The generator of ids with shared machine numbers, different clocks and a lost lease."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockLost, Redlock
from aioredlock_ng.testing import MemoryNodes, lose_at
from examples import id_generator
from examples.id_generator import COUNT_BITS, EPOCH, MACHINE_BITS, Generator, generator
from tests.support.coverage import untraced

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

NOON = EPOCH / 1000 + 12 * 3600.0
"""An instant in seconds since 1970."""


def machine_of(number: int) -> int:
    return (number >> COUNT_BITS) % (1 << MACHINE_BITS)


def moment_of(number: int) -> int:
    """Return the milliseconds since 1970."""
    return (number >> COUNT_BITS + MACHINE_BITS) + EPOCH


@pytest.mark.slow
async def test_processes_that_share_two_machine_numbers_make_different_ids(nodes: NodeSet) -> None:
    script = (
        "import asyncio\n"
        "from examples import id_generator\n"
        "id_generator.MACHINES = 2\n"
        "id_generator.CLOCKS = 0.05\n"
        "asyncio.run(id_generator.main(300))"
    )
    machines = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            script,
            cwd=EXAMPLES.parent,
            env=untraced(),
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(3)
    ]
    told = [
        [int(line) for line in (await machine.communicate())[0].split()] for machine in machines
    ]
    assert all(ids == sorted(ids) for ids in told)
    together = [number for ids in told for number in ids]
    assert len(set(together)) == len(together) == 900
    assert {machine_of(number) for number in together} <= {1, 2}
    assert max(together) < 1 << 63


async def test_a_process_whose_number_is_lost_goes_on_with_another(
    nodes: NodeSet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(id_generator, "CLOCKS", 0.01)
    with lose_at("machines", "checked", nth=3):
        await id_generator.main(5)
    told = capsys.readouterr()
    assert len(set(told.out.split())) == 5
    assert told.err.startswith("another machine's number: the lock 'machines' was lost")


async def test_an_id_has_time_machine_and_count() -> None:
    async with MemoryNodes(1).redlock() as redlock, redlock.semaphore("machines", 1) as lease:
        made = Generator(lease, lambda: NOON)
        first, second = made.new_id(), made.new_id()
        assert (moment_of(first), machine_of(first)) == (NOON * 1000, 1)
        assert second == first + 1


async def test_ids_rise_though_a_count_is_full_or_the_clock_is_set_back() -> None:
    clock = [NOON]
    async with MemoryNodes(1).redlock() as redlock, redlock.semaphore("machines", 1) as lease:
        made = Generator(lease, lambda: clock[0])
        ids = [made.new_id() for _ in range(2 * (1 << COUNT_BITS))]
        clock[0] -= 1.0
        ids += [made.new_id() for _ in range(10)]
        clock[0] += 2.0
        ids.append(made.new_id())
    assert ids == sorted(set(ids))
    assert moment_of(ids[-1]) == (NOON + 1.0) * 1000


@pytest.mark.virtual_time
async def test_no_id_is_made_by_a_process_that_stood_still_for_longer_than_its_lease_is_valid() -> (
    None
):
    nodes = MemoryNodes(3)

    def clock() -> float:
        nodes.advance(11)
        return NOON

    async with nodes.redlock() as redlock:
        made = Generator(await redlock.semaphore("machines", 1).acquire(), clock)
        with pytest.raises(LockLost):
            made.new_id()


async def last_and_next(redlock: Redlock, *, ahead: float) -> tuple[int, int]:
    """Return the last id of a process and the first id of the next process.

    The clock of the next process is `ahead` seconds behind.
    """
    time = asyncio.get_running_loop().time
    async with generator(redlock, lambda: NOON + ahead + time()) as made:
        last = made.new_id()
    async with generator(redlock, lambda: NOON + time()) as made:
        return last, made.new_id()


@pytest.mark.virtual_time
async def test_the_next_process_with_a_number_makes_later_ids_though_its_clock_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(id_generator, "MACHINES", 1)
    async with MemoryNodes(3).redlock() as redlock:
        before, after = await last_and_next(redlock, ahead=id_generator.CLOCKS * 0.99)
        assert machine_of(before) == machine_of(after) == 1
        assert before < after
        before, after = await last_and_next(redlock, ahead=id_generator.CLOCKS * 1.5)
        assert before > after, "clocks that differ by more are not covered"
