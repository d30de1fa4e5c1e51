"""Forward the calls of elections and tools to an engine that runs in a thread of its own."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING

from aioredlock_ng._engine.loops import running_loop
from aioredlock_ng._threaded.mailbox import home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._engine.waiting.lines import Lines
    from aioredlock_ng._nodes.port import NodeState
    from aioredlock_ng._scripts import Command, Request
    from aioredlock_ng._threaded.engine_thread import EngineThread
    from aioredlock_ng.events import Event

__all__ = ["ThreadedEngine"]


class ThreadedEngine:
    """The part of an `Engine` that elections and tools use, callable from any event loop.

    Attributes:
        context: The engine's context, with an `emit` that forwards each event to the engine's
            thread.
    """

    def __init__(self, engine: Engine, thread: EngineThread) -> None:
        self._engine = engine
        self._thread = thread
        context = engine.context

        def emit(event: Event) -> None:
            if thread.dead:
                # A body may end after the manager is closed. No loop forwards its events then.
                context.emit(event)
            else:
                # Another task's post may wake the engine for both, in the context of that task.
                thread.post(copy_context().run, context.emit, event)

        self.context: Context = replace(context, emit=emit)

    def usable(self) -> None:
        """Raise an error unless the manager can be used in this thread.

        Raises:
            RedlockClosed: The manager is closed, or no event loop runs in this thread.
        """
        running_loop()
        if self._thread.dead:
            raise self._thread.closed()

    def states(self) -> tuple[NodeState, ...]:
        return self._engine.states()

    @property
    def lines(self) -> Lines:
        """The lines of waiting tasks. A tool may change only their settings."""
        return self._engine.lines

    async def poll(self, command: Command) -> list[Reply]:
        return await self._thread.call(lambda: self._engine.poll(command))

    async def ask_node(self, index: int, request: Request, within: float) -> Reply:
        return await self._thread.call(lambda: self._engine.ask_node(index, request, within))

    @contextmanager
    def onlooker(self, key: bytes, changed: Callable[[], object]) -> Iterator[None]:
        """Call `changed` on the caller's loop at each change of this tracked key."""
        here = home()

        def tell() -> None:
            with suppress(RuntimeError):
                here.post(changed)

        looking = self._engine.onlooker(key, tell)
        self._thread.post(looking.__enter__)
        try:
            yield
        finally:
            self._thread.post(looking.__exit__, None, None, None)

    def invalidated(self, index: int, keys: list[bytes]) -> None:
        """Act as if the node with the number `index` had reported a change of `keys`."""
        self._thread.post(self._engine.invalidated, index, keys)
