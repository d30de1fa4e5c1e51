"""A close of a manager with `thread=True` by another loop while a body begins: no body runs on
without its lock.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockLost, Redlock, RedlockClosed
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


async def test_a_close_before_the_engine_knows_of_a_body_is_a_loss_that_ends_the_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[Event] = []
    redlock = await Redlock(MemoryNodes(3), thread=True, sinks=[heard.append]).open()
    assert redlock._threaded is not None
    here, began, enter = redlock._threaded.here, threading.Event(), ThreadedLease._enter
    assert here is not None

    def enter_late(self: ThreadedLease, task: asyncio.Task[Any]) -> None:
        """Run on the engine's loop. Enter when the closing has released the lease."""
        assert began.wait(PATIENCE)
        if self.held:
            here.begin_close()
            here.thread.post(enter_late, self, task)
        else:
            enter(self, task)

    async def body() -> None:
        async with redlock.lock("a"):
            began.set()
            await asyncio.sleep(PATIENCE)

    monkeypatch.setattr(ThreadedLease, "_enter", enter_late)
    with pytest.raises(LockLost, match="its Redlock was closed"):
        await body()
    await redlock.aclose()
    # No fault of the nodes caused the loss, so no alert must fire.
    assert [event.cause for event in heard if isinstance(event, LossFound)] == ["closed"]
