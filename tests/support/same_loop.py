"""Runs an engine with `thread=True` on the loop of its callers, with a virtual clock.

Calls and results take the same code as between two threads. But the order of the steps of both
sides is fixed. So a test can interrupt a call at each of its steps.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioredlock_ng._engine.caller import callers
from aioredlock_ng._threaded.engine_thread import EngineThread
from aioredlock_ng._threaded.latch import Latch
from aioredlock_ng._threaded.mailbox import Mailbox
from tests.support.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from aioredlock_ng._threaded.calls import Call
    from tests.support.rig import Process

__all__ = ["SameLoop", "ThreadedRig", "threads_on_the_same_loop"]


class SameLoop(EngineThread):
    """Serves calls on the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._inbox = Mailbox(self._loop)
        self.pending: set[Call[Any]] = set()
        self._posted = 0
        self._last = None
        self.dead = ""
        self.ended: Latch[None] = Latch()
        self.last_act = None

    @property
    def here(self) -> bool:
        """True if the running code belongs to the engine: a posted callback, or a task that was
        made for a call.
        """
        try:
            return self._posted > 0 or asyncio.current_task() in callers
        except RuntimeError:
            return False

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        super().post(self._run, callback, *arguments)

    def run(
        self,
        make: Callable[[], Any],
        undo: object = None,
        *,
        accept: object = None,
        to_end: bool = False,
    ) -> Any:
        # Callbacks that were posted before run first. The coroutine must not wait, because no other
        # callback would run meanwhile.
        self._inbox._run()
        self._posted += 1
        try:
            make().send(None)
        except StopIteration as done:
            return done.value
        finally:
            self._posted -= 1
        raise AssertionError("a blocking call must not wait here")

    def launch(self) -> None:
        pass

    def _end(self, last: asyncio.Task[object]) -> None:
        assert last.cancelled() or last.exception() is None
        self.dead = self.dead or "it is closed"
        self.ended.set_result(None)

    def _run(self, callback: Callable[..., object], *arguments: object) -> None:
        self._posted += 1
        try:
            callback(*arguments)
        finally:
            self._posted -= 1


def threads_on_the_same_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let managers with `thread=True` use a `SameLoop`."""
    monkeypatch.setattr("aioredlock_ng._threaded.opened.EngineThread", SameLoop)


class ThreadedRig(Rig):
    """A rig whose managers have `thread=True`."""

    def new_process(self, *, near: int | None = None, away: float = 1.0, **options: Any) -> Process:
        return super().new_process(near=near, away=away, **{"thread": True, **options})
