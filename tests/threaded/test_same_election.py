"""Run the tests of elections for managers with `thread=True`.

Every test in this module has a rig.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockLost
from aioredlock_ng.events import TermBegan, TermEnded
from tests.election import test_terms, test_watching
from tests.election.candidates import NAME
from tests.election.conftest import events
from tests.election.test_terms import forever
from tests.support.eventually import eventually
from tests.threaded.test_same_contract import cases_of

if TYPE_CHECKING:
    from aioredlock_ng.events import Event
    from tests.support.rig import Rig

__all__ = ["events"]

pytestmark = [pytest.mark.virtual_time, pytest.mark.full]

DIFFERENT = {
    # An event, and the end of a wait, reach the engine's loop a step later. The tests below wait
    # for this step.
    "test_resign_stops_the_wait_of_a_candidate",
    "test_the_events_of_a_term_name_the_cause_of_its_end",
}

for _module in (test_terms, test_watching):
    _found = {name: case for name, case in cases_of(_module).items() if name not in DIFFERENT}
    assert not _found.keys() & globals().keys()
    globals().update(_found)


async def test_a_candidate_that_resigns_soon_stands_in_no_queue(rig: Rig) -> None:
    ann, bob = await rig.process(), await rig.process()
    lease = await ann.lock(NAME).acquire()
    election = bob.redlock.election(NAME)
    running = asyncio.create_task(election.run(forever))
    await eventually(lambda: bob.redlock.stats().waiting == 1)
    assert await election.resign() is False
    assert await running is None
    await eventually(lambda: bob.redlock.stats().waiting == 0)
    await lease.release()
    await eventually(lambda: rig.clean)


async def test_the_events_of_a_term_soon_have_its_cause(rig: Rig, events: list[Event]) -> None:
    process = await rig.process(ttl=1.0, sinks=[events.append])
    election = process.redlock.election(NAME, label="ann", rejoin=False)

    async def ended() -> str:
        await eventually(lambda: any(isinstance(event, TermEnded) for event in events))
        began, end = (event for event in events if isinstance(event, TermBegan | TermEnded))
        events.clear()
        assert isinstance(began, TermBegan)
        assert isinstance(end, TermEnded)
        assert (began.label, began.fence, began.resource) == ("ann", end.fence, NAME)
        return end.cause

    running = asyncio.create_task(election.run(forever))
    await eventually(lambda: election.leading)
    await election.resign()
    assert await running is None
    assert await ended() == "resigned"
    running = asyncio.create_task(election.run(forever))
    await eventually(lambda: election.leading)
    await process.redlock.force_release(NAME)
    with pytest.raises(LockLost):
        await running
    assert await ended() == "lost"
