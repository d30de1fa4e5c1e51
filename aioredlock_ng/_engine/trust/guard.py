"""Keeps every node's marker in order, so that nodes which forgot do not vote too soon; the rules are in `_core/guard.py`.

One task, which lives only while a node that answers is not trusted. Votes do not wait for it: the script that grants
compares the marker itself.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from aioredlock_ng._core.guard import (
    LONGEST_MS,
    Trust,
    all_forgot,
    new_set_words,
    next_steps,
    read_marker,
    remembered,
)
from aioredlock_ng._core.replies import MarkerRead
from aioredlock_ng._core.votes import Garbled, Refusal
from aioredlock_ng._engine.attempt.round import Round
from aioredlock_ng._nodes.background import supervised
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.kinds import MARKER, MARKER_KEY
from aioredlock_ng.events import AllNodesForgot, NodeQuarantined, NodeTrusted

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.guard import Memory, Step
    from aioredlock_ng._core.marker import Reading
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._nodes.port import NodeState

__all__ = ["Guard", "flush_advice"]

LOOK_EVERY = 1.0
"""Seconds between looks at markers while nodes are quarantined; changes are told at once where there is tracking."""

LOOKS_AT_ONCE, LOOK_PAUSE = 20, 0.1
"""How many looks follow each other at once, and seconds between those after them. A node may hint without end, or never show
what was written; all nodes are asked each time."""

_FORGOT = "a restart, a flush or a failover made it forget"
_NEW_OR_FORGOT = f"it is new, or {_FORGOT}"
_EXCESSIVE = f"its marker named a guard time above {LONGEST_MS:,} ms, which no manager writes"


def flush_advice() -> str:
    """Return advice for test suites, "" outside of one: anywhere else it would be dangerous."""
    return (
        "a test suite that flushes its servers uses recovery_guard=None"
        if "pytest" in sys.modules
        else ""
    )


class Guard:
    """Reads and writes the markers.

    Args:
        context: The engine's surroundings.
        run_id: Stands for the run_id of each node's own process in what is sent to all.
        strict: Let a new set wait the guard time too.
        trusted: Called with the index of a node that may vote from now on.
        judged: Called when the markers were read.
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
        self._trusted = trusted
        self._judged = judged
        self._guard_ms = self._known_ms = context.options.guard_ms
        self._vouch = b"%b:%d" % (run_id, self._guard_ms)
        self._readings: list[Reading | None] = [None] * len(context.fleet.nodes)
        self._memories: list[Memory | None] = [None] * len(context.fleet.nodes)
        self._excessive: set[int] = set()
        self._void = False
        self._refusals = [""] * len(context.fleet.nodes)
        self._quarantined: set[int] = set()
        self._unread = set(range(len(context.fleet.nodes)))
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
            self._unread.add(new)
        self._hint.set()
        self.doubt()

    def greeted(self, index: int) -> None:
        """There is a new connection to a node: its quarantine, if it is in one, is told once more."""
        self._quarantined.discard(index)

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

    def state(self, index: int, state: NodeState) -> NodeState:
        """The node's health with what its marker says."""
        reading = self._readings[index]
        why = self._refusals[index]
        if state.state != "up" or not (
            why or (reading is not None and reading.trust is not Trust.TRUSTED)
        ):
            return state
        if not why and reading is not None:
            why = self._why(index, reading)
            if reading.trust is not Trust.FOUNDING:
                why = f"may have forgotten locks, {reading.left(self._context.clock()):.1f} s left; {why}"
        return replace(state, state="quarantined", reason=why)

    def words(self, index: int) -> str:
        """Return why a node is in quarantine, where that is not that it may have forgotten locks.

        The server's own words, where it refuses to keep a marker: then its quarantine never ends.
        Or that the set is new.
        """
        reading = self._readings[index]
        if not self._refusals[index] and reading is not None and reading.trust is Trust.FOUNDING:
            return self._why(index, reading)
        return self._refusals[index]

    def _why(self, index: int, reading: Reading) -> str:
        """Return the reason for a quarantine that ends by itself."""
        if reading.trust is Trust.FOUNDING:
            nodes = [node.state() for node in self._context.fleet.nodes]
            missing = [
                (node.address, node.reason or "no answer yet")
                for node, read in zip(nodes, self._readings, strict=True)
                if read is None
            ]
            return new_set_words(missing, reading.left(self._context.clock()))
        why = (
            _EXCESSIVE if index in self._excessive else _NEW_OR_FORGOT if self._strict else _FORGOT
        )
        advice = flush_advice()
        return f"{why}; {advice}" if advice else why

    def left(self, index: int) -> float | None:
        """Seconds of quarantine left as last read; None where it is trusted or has not answered."""
        reading = self._readings[index]
        return (
            None
            if reading is None or reading.trust is Trust.TRUSTED
            else reading.left(self._context.clock())
        )

    def refuses(self, index: int) -> bool:
        """True while a node refuses to show or to keep its marker: nobody knows for how long."""
        return bool(self._refusals[index])

    def admits(self, index: int) -> bool:
        """True unless its marker as last read, or its refusal to show it, forbids it to vote."""
        return not self.refuses(index) and self.left(index) is None

    def has_read(self, index: int) -> bool:
        """True where its marker was read on the connection that it has now."""
        return index not in self._unread

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
                refusals = await self._read()
                now = self._context.clock()
                steps = next_steps(
                    self._readings,
                    self._guard_ms,
                    now,
                    strict=self._strict,
                    known_ms=self._known_ms,
                    memories=self._memories,
                )
                for index, words in enumerate(refusals):
                    if words or steps[index] is None:
                        self._refusals[index] = words
                # After many writes in a row the others are judged all the same: a server may not keep
                # the marker that it accepts, or another client may write it anew each time.
                in_vain = paced and any(steps)
                if any(steps) and await self._write(steps) and not in_vain:
                    continue
                lefts = [
                    left for index in range(len(steps)) if (left := self.left(index)) is not None
                ]
                self._say()
                self._judged()
                self._asleep.set()
                # One that refuses to show its marker tells nobody when it does so no longer; nor
                # does one that was too slow to show it.
                slow = any(self._context.fleet.nodes[index].ready for index in self._unread)
                if not (lefts or any(self._refusals) or slow or in_vain or self._hint.is_set()):
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

    async def _read(self) -> list[str]:
        """Ask every node for its marker, and wait for all that answer in time; the words of those that refuse to tell."""
        args = (b"read", b"", b"0", self._vouch, b"")
        round_ = Round(self._context, _tracked(args), None, 1, self._context.clock())
        round_.ask()
        await round_.decided()
        return [
            self._take(index, reply, round_.started) for index, reply in enumerate(round_.replies)
        ]

    async def _write(self, steps: list[Step | None]) -> bool:
        """Take the steps; False when a server refused one, which asking again at once does not cure."""
        asked = []
        for index, step in enumerate(steps):
            reading = self._readings[index]
            if step is not None and reading is not None:
                # Never by the placeholder: what was judged is the process that was read, not the one that is there now.
                vouch = b"%b:%d" % (reading.run_id, step.guard_ms)
                nonce = self._context.new_token()
                args = (step.trust.encode(), reading.marker, reading.node_ms, vouch, nonce)
                round_ = Round(self._context, _tracked(args), None, 1, self._context.clock())
                round_.ask_some([index])
                asked.append((index, round_))
        for index, round_ in asked:
            await round_.decided()
            reply = round_.replies[index]
            self._refusals[index] = self._take(index, reply, round_.started)
        return not any(self._refusals[index] for index, _ in asked)

    def _take(self, index: int, reply: Reply, asked_at: float) -> str:
        """Note what a node answered. Return why it cannot be judged, in words; "" where it can."""
        before = self._readings[index]
        words, after = self._read_reply(reply, asked_at)
        if words and before is not None:
            return words
        if reply is None and before is not None and before.trust is Trust.TRUSTED:
            # One that is slow has not become untrusted: a set that has it is not a new one.
            return ""
        now = self._context.clock()
        if after is not None:
            self._known_ms = max(self._known_ms, after.guard_ms)
            self._unread.discard(index)
        memory = remembered(self._memories[index], before, after, now, self._known_ms)
        self._memories[index], self._readings[index] = memory, after
        if after is not None:
            if after.trust is Trust.EXCESSIVE:
                self._excessive.add(index)
            elif after.trust is Trust.TRUSTED:
                self._excessive.discard(index)
                # A node that another process promoted, though we know better, is about to wait.
                known = memory is not None and not memory.contradicts(after)
                if known and (before is None or before.trust is not Trust.TRUSTED):
                    self._trusted(index)
        return words

    def _read_reply(self, reply: Reply, asked_at: float) -> tuple[str, Reading | None]:
        """Return what is wrong with an answer, and the reading where nothing is."""
        if isinstance(reply, (Refusal, Garbled)):
            return str(reply), None
        if not isinstance(reply, MarkerRead):
            return "", None
        now = self._context.clock()
        return "", read_marker(reply.marker, reply.node_ms, reply.vouch, asked_at, now)

    def _say(self) -> None:
        self._say_void()
        for index, node in enumerate(self._context.fleet.nodes):
            why, reading = self._refusals[index], self._readings[index]
            left = inf if why else self.left(index)
            if left is not None and index not in self._quarantined:
                self._quarantined.add(index)
                if not why and reading is not None:
                    why = self._why(index, reading)
                self._context.emit(NodeQuarantined(node.address, left, why))
            elif left is None and reading is not None and index in self._quarantined:
                self._quarantined.discard(index)
                self._context.emit(NodeTrusted(node.address))

    def _say_void(self) -> None:
        """Say once that no node knows the locks of before; anew after a node was trusted again."""
        before, now = self._void, self._context.clock()
        if any(
            reading is not None and reading.trust is Trust.TRUSTED for reading in self._readings
        ):
            self._void = False
        elif all_forgot(self._readings, self._memories, now, self._known_ms):
            self._void = True
        if self._void and not before:
            nodes = tuple(node.address for node in self._context.fleet.nodes)
            left = min(reading.left(now) for reading in self._readings if reading is not None)
            self._context.emit(AllNodesForgot(nodes, left))


def _tracked(args: tuple[bytes | int, ...]) -> Command:
    """Call marker.lua, and be notified when the marker changes."""
    return Command(MARKER, (MARKER_KEY,), args, tracked=True)
