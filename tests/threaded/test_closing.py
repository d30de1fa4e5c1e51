"""A close of a manager with `thread=True` by another loop while a body begins: no body runs on
without its lock.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockLost, Redlock, RedlockClosed
from aioredlock_ng._engine.keeping.extender import Extender
from aioredlock_ng._threaded.lease_proxy import ThreadedLease
from aioredlock_ng.events import LossFound
from aioredlock_ng.testing import MemoryNodes
from tests.threaded.test_threads import PATIENCE, OtherLoop

if TYPE_CHECKING:
    from typing import Any

    from aioredlock_ng.events import Event


async def test_a_close_by_another_loop_just_before_a_body_begins_keeps_it_from_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    redlock = await Redlock(MemoryNodes(3), thread=True).open()
    refuse_over = ThreadedLease._refuse_over

    def close_afterwards(self: ThreadedLease) -> None:
        refuse_over(self)
        OtherLoop(redlock.aclose).thread.join(PATIENCE)

    monkeypatch.setattr(ThreadedLease, "_refuse_over", close_afterwards)
    with pytest.raises(RedlockClosed, match="was closed at the moment"):
        async with redlock.lock("a"):
            raise AssertionError("the body ran without its lock")
    # The body that did not begin must not be cancelled later.
    await asyncio.sleep(0)


async def test_a_close_that_meets_the_beginning_of_a_body_is_a_loss_that_ends_the_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[Event] = []
    redlock = await Redlock(MemoryNodes(3), thread=True, sinks=[heard.append]).open()
    assert redlock._threaded is not None
    here, releasing, began = redlock._threaded.here, threading.Event(), threading.Event()
    refuse_over, release = ThreadedLease._refuse_over, Extender.release
    assert here is not None

    def close_meanwhile(self: ThreadedLease) -> None:
        refuse_over(self)
        here.begin_close()
        assert releasing.wait(PATIENCE)

    def release_late(self: Extender, lease: Any) -> Any:
        """Run on the engine's loop. The closing has found no body, and the body begins now."""
        releasing.set()
        assert began.wait(PATIENCE)
        return release(self, lease)

    async def body() -> None:
        async with redlock.lock("a"):
            began.set()
            await asyncio.sleep(PATIENCE)
            raise AssertionError("the body ran on without its lock")

    monkeypatch.setattr(ThreadedLease, "_refuse_over", close_meanwhile)
    monkeypatch.setattr(Extender, "release", release_late)
    with pytest.raises(LockLost, match="its Redlock was closed"):
        await body()
    await redlock.aclose()
    # No fault of the nodes caused the loss, so no alert must fire.
    assert [event.cause for event in heard if isinstance(event, LossFound)] == ["closed"]


async def test_a_loss_just_before_a_body_begins_ends_the_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse_over = ThreadedLease._refuse_over

    def lose_afterwards(self: ThreadedLease) -> None:
        refuse_over(self)
        self.lose("for a test")

    monkeypatch.setattr(ThreadedLease, "_refuse_over", lose_afterwards)
    async with Redlock(MemoryNodes(3), thread=True) as redlock:

        async def body() -> None:
            async with redlock.lock("a"):
                await asyncio.sleep(PATIENCE)
                raise AssertionError("the body ran on without its lock")

        with pytest.raises(LockLost, match="for a test"):
            await body()
