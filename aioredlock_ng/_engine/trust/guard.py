"""Keeps every node's marker in order, so that nodes which forgot do not vote too soon; the rules are in `_core/guard.py`.

One task, which lives only while a node that answers is not trusted. Votes do not wait for it: the script that grants
compares the marker itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioredlock_ng._core.guard import next_steps
from aioredlock_ng._engine.trust.markers import Markers
from aioredlock_ng._engine.trust.quarantine import Quarantine
from aioredlock_ng._nodes.background import supervised

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._engine.context import Context

__all__ = ["Guard"]

LOOK_EVERY = 1.0
"""Seconds between looks at markers while nodes are quarantined; changes are told at once where there is tracking."""

LOOKS_AT_ONCE, LOOK_PAUSE = 20, 0.1
"""How many looks follow each other at once, and seconds between those after them. A node may hint without end, or never show
what was written; all nodes are asked each time."""


class Guard:
    """Reads and writes the markers.

    Args:
        context: The engine's surroundings.
        run_id: Stands for the run_id of each node's own process in what is sent to all.
        strict: Let a new set wait the guard time too.
        trusted: Called with the index of a node that may vote from now on.
        judged: Called when the markers were read.

    Attributes:
        markers: The markers as last read.
        quarantine: What is said of nodes that must not vote.
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
        # Before all nodes were tried once, a new set would look like one of which some do not answer.
        self._stopped = True
        self._hint = asyncio.Event()
        self._look_at = 0.0
        self._asleep = asyncio.Event()

    def doubt(self) -> None:
        """A node would not vote: find out why, unless that is known."""
        if (self._task is None or self._task.done()) and not self._stopped:
            self._task = supervised(self._run, "recovery guard", self._context.emit)

    def hint(self, new: int | None = None) -> None:
        """A marker changed, or node `new` is connected again: look now."""
        if new is not None:
            self.markers.unread.add(new)
        self._hint.set()
        self.doubt()

    async def settle(self, within: float) -> None:
        """All nodes were tried: begin, and wait until each is trusted or has to wait; `within` seconds at most."""
        self._stopped = False
        self.hint()
        self._asleep.clear()
        waiting = asyncio.ensure_future(self._asleep.wait())
        try:
            await asyncio.wait([waiting], timeout=within)
        finally:
            waiting.cancel()

    def stop(self) -> None:
        """For good. The task has no more to do than to see that it was cancelled."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while True:
                paced = await self._pace()
                self._hint.clear()
                refusals = await self.markers.read()
                now = self._context.clock()
                steps = next_steps(
                    self.markers.readings,
                    self.markers.guard_ms,
                    now,
                    strict=self._strict,
                    known_ms=self.markers.known_ms,
                    memories=self.markers.memories,
                )
                for index, words in enumerate(refusals):
                    if words or steps[index] is None:
                        self.markers.refusals[index] = words
                # After many writes in a row the others are judged all the same: a server may not keep
                # the marker that it accepts, or another client may write it anew each time.
                in_vain = paced and any(steps)
                if any(steps) and await self.markers.write(steps) and not in_vain:
                    continue
                lefts = [
                    left
                    for index in range(len(steps))
                    if (left := self.markers.left(index)) is not None
                ]
                self.quarantine.say()
                self._judged()
                self._asleep.set()
                # One that refuses to show its marker tells nobody when it does so no longer; nor
                # does one that was too slow to show it.
                slow = any(self._context.fleet.nodes[index].ready for index in self.markers.unread)
                if not (
                    lefts or any(self.markers.refusals) or slow or in_vain or self._hint.is_set()
                ):
                    return
                await self._sleep(min([LOOK_EVERY, *filter(None, lefts)]))
        finally:
            self._asleep.set()

    async def _pace(self) -> bool:
        """Wait where there were many looks of late; True if that was so."""
        now = self._context.clock()
        self._look_at = max(self._look_at, now - LOOKS_AT_ONCE * LOOK_PAUSE) + LOOK_PAUSE
        wait = self._look_at - now
        if wait > 0:
            await asyncio.sleep(wait)
        return wait > 0

    async def _sleep(self, seconds: float) -> None:
        # The node's clock is rounded to milliseconds.
        waker = self._context.loop.call_later(seconds + 0.002, self._hint.set)
        try:
            await self._hint.wait()
        finally:
            waker.cancel()
