"""The recovery guard: a task that reads the markers of the nodes, and writes new ones.

`_core/recovery_guard.py` decides which markers are written. The task ends once each connected node
is trusted. Acquisitions do not wait for the task, because the script that grants a lock checks the
marker itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioredlock_ng._core.recovery_guard import next_steps
from aioredlock_ng._engine.trust.markers import Markers
from aioredlock_ng._engine.trust.quarantine import Quarantine
from aioredlock_ng._nodes.background import supervised

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._engine.context import Context

__all__ = ["Guard"]

LOOK_EVERY = 1.0
"""Seconds between two reads of the markers during a quarantine.

If the server supports tracking, a changed marker is read immediately.
"""

LOOKS_AT_ONCE, LOOK_PAUSE = 20, 0.1
"""Number of reads without a pause between them, and the pause in seconds between later reads.

Each read asks all nodes. A node that reports changes again and again, or does not keep its marker,
would otherwise cause one read after another.
"""


class Guard:
    """The recovery guard of one manager.

    Args:
        run_id: Placeholder for the run id of a server in commands that are sent to all nodes.
        strict: True if even a new set of nodes must wait for the guard time.
        trusted: Called with the index of a node that may vote from now on.
        judged: Called after the markers were read, when it is known which nodes may vote.

    Attributes:
        quarantine: Describes the nodes that must not vote.
    """

    def __init__(
        self,
        context: Context,
        run_id: bytes,
        *,
        strict: bool,
        trusted: Callable[[int], None],
        judged: Callable[[], None],
    ) -> None:
        self._context = context
        self._strict = strict
        self._judged = judged
        self.markers = Markers(context, run_id, trusted)
        self.quarantine = Quarantine(context, self.markers, strict=strict)
        self._task: asyncio.Task[None] | None = None
        # The guard starts when `Engine.open` has waited for the first try of each node. Before
        # that, a new set would look like a set with missing nodes.
        self._stopped = True
        self._hint = asyncio.Event()
        self._look_at = 0.0
        self._asleep = asyncio.Event()

    def doubt(self) -> None:
        """Read the markers, because a node has refused to vote.

        If the task of the guard is running, the call does nothing, because this task reads the
        markers soon.
        """
        if (self._task is None or self._task.done()) and not self._stopped:
            self._task = supervised(self._run, "recovery guard", self._context.emit)

    def hint(self, new: int | None = None) -> None:
        """Read the markers now. `new` is the index of a node with a new connection, if any."""
        if new is not None:
            self.markers.unread.add(new)
        self._hint.set()
        self.doubt()

    async def settle(self, within: float) -> None:
        """Start the guard, and wait until it is known which nodes may vote.

        The wait ends after `within` seconds at the latest.
        """
        self._stopped = False
        self.hint()
        self._asleep.clear()
        waiting = asyncio.ensure_future(self._asleep.wait())
        try:
            await asyncio.wait([waiting], timeout=within)
        finally:
            waiting.cancel()

    def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        markers = self.markers
        try:
            while True:
                paced = await self._pace()
                self._hint.clear()
                refusals = await markers.read()
                now = self._context.clock()
                steps = next_steps(
                    markers.answered(),
                    markers.guard_ms,
                    now,
                    strict=self._strict,
                    known_ms=markers.known_ms,
                    memories=markers.memories,
                )
                for index, words in enumerate(refusals):
                    if words or steps[index] is None:
                        markers.refusals[index] = words
                # A server may accept a marker without keeping it, or another client may replace
                # each marker. Then writing would never end. So after many reads the states of the
                # nodes are reported, and the other nodes can vote.
                in_vain = paced and any(steps)
                if any(steps) and await markers.write(steps) and not in_vain:
                    continue
                lefts = [
                    left for index in range(len(steps)) if (left := markers.left(index)) is not None
                ]
                self.quarantine.report()
                self._judged()
                self._asleep.set()
                # The task goes on while a node refuses its marker or answers slowly, because no
                # server reports that it accepts its marker or answers in time again.
                slow = any(self._context.fleet.nodes[index].ready for index in markers.unread)
                if not (lefts or any(markers.refusals) or slow or in_vain or self._hint.is_set()):
                    return
                await self._sleep(min([LOOK_EVERY, *filter(None, lefts)]))
        finally:
            self._asleep.set()

    async def _pace(self) -> bool:
        """Pause if there were many reads recently. Return True if there was a pause."""
        now = self._context.clock()
        self._look_at = max(self._look_at, now - LOOKS_AT_ONCE * LOOK_PAUSE) + LOOK_PAUSE
        wait = self._look_at - now
        if wait > 0:
            await asyncio.sleep(wait)
        return wait > 0

    async def _sleep(self, seconds: float) -> None:
        # The clock of a node is rounded to milliseconds, so the task sleeps a little longer.
        waker = self._context.loop.call_later(seconds + 0.002, self._hint.set)
        try:
            await self._hint.wait()
        finally:
            waker.cancel()
