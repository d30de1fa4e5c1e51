"""Creates the parts of an engine, connects them, and ends them in a forked child."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._core.replies import GRANTED
from aioredlock_ng._core.votes import acquire_vote
from aioredlock_ng._engine.attempt.releases import Releases
from aioredlock_ng._engine.attempt.round import TIMEOUT_WIDTH
from aioredlock_ng._engine.context import Context, Expiring
from aioredlock_ng._engine.keeping.extender import Extender
from aioredlock_ng._engine.keeping.owner_labels import Labels
from aioredlock_ng._engine.reports import Reports
from aioredlock_ng._engine.trust.availability import Availability
from aioredlock_ng._engine.trust.duplicates import DuplicateNodes
from aioredlock_ng._engine.trust.guard_task import Guard
from aioredlock_ng._engine.waiting.lines import Lines
from aioredlock_ng._engine.wheel import Wheel
from aioredlock_ng._forks import call_in_children
from aioredlock_ng._nodes.question import answer_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.acquisition import Acquisition
    from aioredlock_ng._nodes.fleet import Fleet
    from aioredlock_ng._nodes.port import NodeState
    from aioredlock_ng._scripts import Request
    from aioredlock_ng.events import EventSink
    from aioredlock_ng.options import Options

__all__ = ["Parts"]


class Parts:
    """The parts of the engine of one manager.

    The parts must be created on the event loop that uses them. `Context` describes the arguments
    that are not listed here.

    Args:
        run_id: Placeholder for the run id of a server in commands that are sent to all nodes. Each
            connection replaces the placeholder by the run id of its own server.
        manager_id: 16 hexadecimal digits that name this manager to other processes. Two managers
            with the same name would receive each other's messages.

    Attributes:
        context: The objects and functions that all parts share.
        guard: The recovery guard; None if the manager has none.
        lines: The waiting lines of the manager's tasks.
        extender: Renews the manager's leases, and ends them.
        reports: The receiver of the messages that nodes send without a request.
        closer: The event loop that closes the manager, if the engine runs on another loop.
    """

    def __init__(
        self,
        fleet: Fleet,
        options: Options,
        emit: EventSink,
        *,
        report: EventSink | None = None,
        clock: Callable[[], float],
        wall_us: Callable[[], int],
        draw: Callable[[], float],
        new_token: Callable[[], bytes],
        run_id: bytes,
        manager_id: bytes,
    ) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._closed = self._forked = False
        self.closer: object = None
        self._past_the_lines: set[Acquisition] = set()
        # Two votes for each node: one for a grant, one for a missing answer. If new votes were made
        # for each `LockAcquired`, this would take longer than all other work for the event.
        addresses = [node.address for node in fleet.nodes]
        self._votes = [
            (acquire_vote(at, GRANTED), acquire_vote(at, None, "not waited for"))
            for at in addresses
        ]
        timeouts: Wheel[Expiring] = Wheel(loop, clock, TIMEOUT_WIDTH, _expire_all)
        self.context = Context(
            loop=loop,
            clock=clock,
            draw=draw,
            new_token=new_token,
            fleet=fleet,
            quorum=quorum_of(len(fleet.nodes)),
            options=options,
            timeouts=timeouts,
            patience=options.node_timeout + TIMEOUT_WIDTH,
            emit=emit,
            report=report,
            wall_us=wall_us,
            labels=Labels(options.owner, clock, wall_us) if options.labelled else None,
            doubt=self._doubt,
            quarantine=lambda index: (
                self.guard.quarantine.words(index) if self.guard is not None else ""
            ),
            quarantined=lambda index: (
                self.guard is not None and self.guard.markers.left(index) is not None
            ),
            no_quorum=lambda: self.availability.lost,
            back_in=lambda: self.availability.back_in(),
            manager=manager_id,
        )
        self.guard: Guard | None = None
        if options.recovery_guard is not None:
            strict = options.recovery_guard == "strict"
            self.guard = Guard(
                self.context,
                run_id,
                strict=strict,
                trusted=self._trusted,
                judged=self._judged,
            )
        self.availability = Availability(
            self.context, None if self.guard is None else self.guard.markers, self.states
        )
        self.lines = Lines(self.context, manager_id)
        self._duplicates = DuplicateNodes(self.context)
        self._releases = Releases(self.context)
        self.extender = Extender(self.context, self._releases, self.lines)
        self.reports = Reports(
            self.context,
            manager_id,
            self.guard,
            self.availability,
            self.lines,
            self.extender.watcher,
            self._duplicates,
        )
        call_in_children(self, Parts.disown)

    def disown(self) -> None:
        """End all parts in a forked child, and send nothing.

        The connections and leases belong to the parent, but the child may go on running the event
        loop. Parts that stay active would write to the parent's connections and release its leases.
        """
        self._forked = self._closed = True
        self.reports.stop()
        now = self.context.clock()
        for lease in self.extender.leases:
            lease.deadline, lease.lost_at, lease.reason = (
                -inf,
                now,
                "it belongs to the process before the fork",
            )
        steps = [
            self.lines.disown,
            self.extender.stop,
            self.context.timeouts.stop,
            *(node.disown for node in self.context.fleet.nodes),
        ]
        steps += [self._duplicates.stop, *([self.guard.stop] if self.guard is not None else ())]
        for step in steps:
            # Cancelling a task raises RuntimeError if its loop is closed or, in debug mode, belongs
            # to another thread. In both cases no loop runs the task in the child. `node.disown`
            # replaces a socket, and raises OSError if no file descriptor is free. The other steps
            # must still run.
            with suppress(RuntimeError, OSError):
                step()

    def states(self) -> tuple[NodeState, ...]:
        """Return the health of each node, quarantine included."""
        states = (node.state() for node in self.context.fleet.nodes)
        guard = self.guard
        return (
            tuple(states)
            if guard is None
            else tuple(guard.quarantine.state(i, state) for i, state in enumerate(states))
        )

    @property
    def ready(self) -> bool:
        """True while a quorum of nodes is connected and may grant."""
        return self.availability.ready and not self._closed

    async def ask_node(self, index: int, request: Request, within: float) -> Reply:
        """Send a request to node `index` only; None if no answer came in `within` seconds."""
        context = self.context
        return await answer_of(context.fleet.nodes[index], index, request, within, context.clock())

    def onlooker(self, key: bytes, changed: Callable[[], object]) -> AbstractContextManager[None]:
        return self.reports.onlooker(key, changed)

    def invalidated(self, index: int, keys: list[bytes]) -> None:
        """Act as if node `index` had reported that `keys` changed.

        The manager calls this method after it has changed the keys itself. A node does not report a
        change to the connection that made the change (option NOLOOP).
        """
        self.reports.invalidated(index, keys)

    def _judged(self) -> None:
        if not self._closed:
            self.availability.update()

    def _doubt(self) -> None:
        if self.guard is not None:
            self.guard.doubt()

    def _trusted(self, index: int) -> None:
        """Let the lines refresh their places in the queues of a node that may vote from now on."""
        self.lines.changed(index, None)


def _expire_all(waiting: set[Expiring]) -> None:
    for asker in list(waiting):
        asker.expire()
