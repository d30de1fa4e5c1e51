"""A candidate interrupted at any callback of the loop leaves no key, no queue entry, no task and no
term.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.engine.test_cancellation import INTERRUPTIONS, interrupted
from tests.support.rig import NODE_TIMEOUT, Rig
from tests.support.stepping import SteppedLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioredlock_ng import Election, Lease
    from tests.support.rig import Process

NAME = "scheduler"
KEY = NAME.encode()
MOST_STEPS = 400
CLEAN_UP_TIME = 3 * NODE_TIMEOUT


async def work(_lease: Lease) -> None:
    await asyncio.sleep(0.002)
    await asyncio.sleep(0)


async def runs(election: Election) -> None:
    await election.run(work)


async def by_hand(election: Election) -> None:
    async with election:
        await asyncio.sleep(0.002)


async def watches(election: Election) -> None:
    async for _ in election.watch():
        break
    async with election:
        async for leader in election.watch():
            assert leader == election.label
            break


async def resigns(election: Election) -> None:
    async with election as lease:
        await asyncio.sleep(0.001)
        await election.resign()
        assert not lease.valid


async def is_taken_from(election: Election) -> None:
    """Lose the term, and lead once more."""
    terms = []

    async def main(lease: Lease) -> None:
        terms.append(lease)
        if len(terms) == 1:
            asyncio.get_running_loop().call_soon(lease.lose, "taken")
            await asyncio.sleep(1)

    await election.run(main)


PLAYS: dict[str, Callable[[Election], Awaitable[None]]] = {
    "run": runs,
    "by-hand": by_hand,
    "watch": watches,
    "resign": resigns,
    "rejoin": is_taken_from,
}


CASES = [
    (interruption, play, bool((row + column) % 2))
    for row, interruption in enumerate(INTERRUPTIONS)
    for column, play in enumerate(PLAYS)
]
"""Each play with each interruption, and both of these with a free and with a held lock."""


@pytest.mark.parametrize(("interruption", "play", "held"), CASES)
def test_a_candidate_interrupted_at_any_instant_leaves_nothing(
    interruption: str, play: str, held: bool
) -> None:
    for step in range(1, MOST_STEPS):
        with asyncio.Runner(loop_factory=SteppedLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, SteppedLoop)
            try:
                in_time = runner.run(_interrupt(loop, interruption, play, held, step))
                assert loop.troubles == []
            except BaseException as error:
                error.add_note(f"interrupted at step {step}")
                raise
        if not in_time:
            assert step > 3, "the play suspends somewhere"
            return
    pytest.fail("the play never ends")


async def _interrupt(loop: SteppedLoop, interruption: str, play: str, held: bool, at: int) -> bool:
    """Play it once; False when it was over before step `at`."""
    kind, repeats = INTERRUPTIONS[interruption]
    how = kind()
    async with Rig(3) as rig:
        mine, other = await rig.process(), await rig.process()
        election = mine.redlock.election(NAME, label="mine")
        if held:
            lease = await other.lock(NAME).acquire()
            loop.call_later(0.003, lambda: releasing.append(asyncio.ensure_future(lease.release())))
        releasing: list[asyncio.Future[bool]] = []

        await interrupted(loop, how, repeats, PLAYS[play](election), at)
        assert not election.leading
        election.check()
        await asyncio.sleep(CLEAN_UP_TIME)
        assert rig.clean, f"keys left: {rig.keys()}"
        assert not any(server.queues.members(KEY) for server in rig.servers), (
            "entries left in a queue"
        )
        assert all(_is_quiet(process) for process in (mine, other))
        # The same object can stand again.
        assert await asyncio.wait_for(election.run(_answer), 1) == 42
        assert asyncio.all_tasks() == {asyncio.current_task()}
    return how.struck


async def _answer(_lease: Lease) -> int:
    return 42


def _is_quiet(process: Process) -> bool:
    stats = process.redlock.stats()
    return stats.held == stats.waiting == 0 and process.redlock.engine().reports._onlookers == []
