"""Replacements in the library during a simulation: connections, jitter, and sets with an order.

Some sets of the engine hold objects in the order of their addresses. The library does not depend on
this order, but a run would not repeat exactly. So the modules with these sets use a set that keeps
the order of insertion.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from weakref import WeakSet

import aioredlock_ng.redlock as redlock_module
from aioredlock_ng._engine import engine, parts, wheel
from aioredlock_ng._engine.keeping import batch, extender, owner_labels, watcher
from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
from aioredlock_ng._nodes import connect, node
from aioredlock_ng._nodes.channel import joint as joint_module
from aioredlock_ng._nodes.memory import server as memory_server
from aioredlock_ng._threaded import mailbox
from aioredlock_ng._threaded import opened as threaded_opened
from aioredlock_ng._threaded import process as threaded_process
from aioredlock_ng.events import NodeUp
from tests.simulation.ordered import OrderedSet
from tests.simulation.process import SimConnector
from tests.simulation.threads import MailboxOfLoop, SimThread
from tests.simulation.world import ProcessLoop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioredlock_ng.events import Event

__all__ = ["surroundings"]


class _Jitter:
    """Takes the place of the module `random` in `node.py`."""

    @staticmethod
    def random() -> float:
        return _loop().rng.random()


class _Place:
    """Takes the place of `os` and `socket` in `owner_labels.py`.

    With the names of the real machine and process, a run would differ from machine to machine.
    """

    @staticmethod
    def getpid() -> int:
        return 1

    @staticmethod
    def gethostname() -> str:
        return "host"


def _loop() -> ProcessLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ProcessLoop)
    return loop


def _hear(event: Event) -> None:
    """Write an event to the log of the world, in place of the library's log."""
    loop = _loop()
    loop.world.note(loop.name, str(event))
    if isinstance(event, NodeUp):
        loop.process.greeted(event.node)


@contextmanager
def surroundings(*, joint: bool) -> Iterator[None]:
    """Replace parts of the library for some runs.

    Args:
        joint: True to send even a single command in the form of a merged request.
    """
    adopt = extender.Extender.adopt

    def observed(self: extender.Extender, record: LeaseRecord) -> None:
        adopt(self, record)
        loop: Any = self._context.loop
        loop.process.watch.adopted(loop, record)

    downgrade = LeaseRecord.downgrade

    def seen(self: LeaseRecord) -> None:
        downgrade(self)
        loop: Any = _loop()
        loop.process.watch.downgraded(self)

    with ExitStack() as stack:
        for module in (batch, engine, extender, parts, watcher, wheel, memory_server):
            stack.enter_context(patch.object(module, "set", OrderedSet, create=True))
        stack.enter_context(patch.object(node, "random", _Jitter))
        stack.enter_context(patch.object(owner_labels, "os", _Place))
        stack.enter_context(patch.object(owner_labels, "socket", _Place))
        stack.enter_context(patch.object(connect, "Connector", SimConnector))
        stack.enter_context(patch.object(redlock_module, "log_event", _hear))
        stack.enter_context(patch.object(extender.Extender, "adopt", observed))
        stack.enter_context(patch.object(LeaseRecord, "downgrade", seen))
        stack.enter_context(patch.object(threaded_opened, "EngineThread", SimThread))
        stack.enter_context(patch.object(mailbox, "_here", MailboxOfLoop()))
        # Without this line, the exit of the interpreter would close managers that a run has left
        # open.
        stack.enter_context(patch.object(threaded_process, "_all", WeakSet()))
        if joint:
            stack.enter_context(patch.object(joint_module, "LEAST", 1))
        yield
