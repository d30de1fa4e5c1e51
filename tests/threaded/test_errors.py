"""Errors of callers and of bodies reach the caller, whatever happens to the engine's thread."""

# ruff: noqa: PT012 - what is raised at the end of a body is the subject
from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

import aioredlock_ng.sync
from aioredlock_ng import LockLost, Redlock, RedlockClosed
from aioredlock_ng._threaded.lease_proxy import ThreadedLease
from aioredlock_ng.events import TermBegan, TermEnded, TermOutlived
from aioredlock_ng.testing import MemoryNodes
from tests.sync.test_closing import thread_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioredlock_ng import Lease
    from aioredlock_ng.events import Event

WRONG: dict[str, Callable[[Any], Coroutine[Any, Any, object]]] = {
    "no name": lambda redlock: redlock.inspect(),
    "an unknown option": lambda redlock: redlock.force_release("a", tokn="x"),
    "a wrong name of an option": lambda redlock: redlock.wait_ready(within=1),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_call_with_wrong_arguments_raises_instead_of_waiting(case: str) -> None:
    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        with pytest.raises(TypeError):
            async with asyncio.timeout(10):
                await WRONG[case](redlock)


def die() -> None:
    """End the engine's thread, soon after the body has begun to release its lease."""
    time.sleep(0.2)
    raise SystemExit(3)


@pytest.mark.parametrize("error", [ValueError, None])
def test_the_error_of_a_with_wins_if_the_engine_dies_during_the_release(
    error: type[Exception] | None,
) -> None:
    redlock = aioredlock_ng.sync.Redlock(MemoryNodes(3))
    with pytest.raises(error or LockLost), redlock.lock("a"):
        thread_of(redlock).post(die)
        if error is not None:
            raise error
    redlock.close()


@pytest.mark.parametrize("error", [ValueError, None])
async def test_the_error_of_an_async_with_wins_if_the_engine_dies_during_the_release(
    error: type[Exception] | None,
) -> None:
    redlock = await Redlock(MemoryNodes(3), thread=True).open()
    with pytest.raises(error or LockLost):
        async with redlock.lock("a"):
            assert redlock._threaded is not None
            here = redlock._threaded.here
            assert here is not None
            here.thread.post(die)
            if error is not None:
                raise error
    await redlock.aclose()


@pytest.mark.parametrize("thread", [False, True])
async def test_a_term_that_ends_after_the_close_is_reported(thread: bool) -> None:
    heard: list[Event] = []
    redlock = Redlock(MemoryNodes(3), thread=thread, ttl=1.0, sinks=[heard.append])
    await redlock.open()
    began = asyncio.Event()

    async def main(_: Lease) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1.5)

    leading = asyncio.create_task(redlock.election("scheduler").run(main))
    await began.wait()
    # The engine reports the beginning before it closes.
    await redlock.aclose()
    with pytest.raises(RedlockClosed):
        await leading
    terms = [type(event) for event in heard if type(event) in (TermBegan, TermOutlived, TermEnded)]
    assert terms == [TermBegan, TermOutlived, TermEnded]


async def test_a_candidate_whose_lease_is_lost_just_before_its_term_stands_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine may declare the loss between any two steps of the candidate."""
    entered = ThreadedLease.entered

    def lost_before(lease: ThreadedLease, *arguments: Any) -> None:
        monkeypatch.undo()
        lease.lose("on purpose")
        entered(lease, *arguments)

    monkeypatch.setattr(ThreadedLease, "entered", lost_before)
    async with Redlock(MemoryNodes(3), thread=True) as redlock:

        async def main(lease: Lease) -> bool:
            return lease.valid

        assert await redlock.election("scheduler").run(main)
        assert redlock.stats().lost == 1
