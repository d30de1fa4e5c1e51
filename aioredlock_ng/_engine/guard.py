"""Keeps every node's marker in order, so that nodes which forgot do not vote too soon; the rules are in `_core/guard.py`.

One task, which lives only while a node that answers is not trusted. Votes do not wait for it: the script that grants
compares the marker itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from aioredlock_ng._core.guard import Trust, next_steps, read_marker
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._engine.round import Round
from aioredlock_ng._nodes.background import supervised
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.kinds import MARKER, MARKER_KEY
from aioredlock_ng.events import NodeQuarantined, NodeTrusted

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.guard import Reading, Step
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._nodes.port import NodeState

__all__ = ["Guard"]

LOOK_EVERY = 1.0
"""Seconds between looks at markers while nodes are quarantined; changes are told at once where there is tracking."""

REMEDY = "a restart, a flush or a failover made it forget; recovery_guard=None switches this off where tests flush servers"


class Guard:
    """Reads and writes the markers.

    Args:
        context: The engine's surroundings.
        run_id: Stands for the run_id of each node's own process in what is sent to all.
        strict: Let a new set wait the guard time too.
        trusted: Called with the index of a node that may vote from now on.
    """

    def __init__(self, context: Context, run_id: bytes, *, strict: bool, trusted: Callable[[int], None]) -> None:
        self._context = context
        self._strict = strict
        self._trusted = trusted
        self._guard_ms = self._known_ms = context.options.guard_ms
        self._vouch = b"%b:%d" % (run_id, self._guard_ms)
        self._readings: list[Reading | None] = [None] * len(context.fleet.nodes)
        self._refusals = [""] * len(context.fleet.nodes)
        self._quarantined: set[int] = set()
        self._task: asyncio.Task[None] | None = None
        # Before all nodes were tried once, a new set would look like one of which some do not answer.
        self._stopped = True
        self._hint = asyncio.Event()
        self._asleep = asyncio.Event()

    def doubt(self) -> None:
        """A node would not vote: find out why, unless that is known."""
        if (self._task is None or self._task.done()) and not self._stopped:
            self._task = supervised(self._run, "recovery guard", self._context.emit)

    def hint(self) -> None:
        """A node is new, or a marker changed: look now."""
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
        if state.state != "up" or not (why or (reading is not None and reading.trust is not Trust.TRUSTED)):
            return state
        if not why and reading is not None:
            why = f"may have forgotten locks, {reading.left(self._context.clock()):.1f} s left; {REMEDY}"
        return replace(state, state="quarantined", reason=why)

    def refusal(self, index: int) -> str:
        """The server's own words, where it refuses to keep a marker: then its quarantine never ends."""
        return self._refusals[index]

    def left(self, index: int) -> float | None:
        """Seconds of quarantine left as last read; None where it is trusted or has not answered."""
        reading = self._readings[index]
        return None if reading is None or reading.trust is Trust.TRUSTED else reading.left(self._context.clock())

    def stop(self) -> None:
        """For good. The task has no more to do than to see that it was cancelled."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while True:
                self._hint.clear()
                refusals = await self._read()
                now = self._context.clock()
                steps = next_steps(self._readings, self._guard_ms, now, strict=self._strict, known_ms=self._known_ms)
                for index, words in enumerate(refusals):
                    if words or steps[index] is None:
                        self._refusals[index] = words
                if any(steps) and await self._write(steps):
                    continue
                lefts = [left for index in range(len(steps)) if (left := self.left(index)) is not None]
                self._say()
                self._asleep.set()
                # One that refuses to show its marker tells nobody when it does so no longer.
                if not lefts and not any(self._refusals) and not self._hint.is_set():
                    return
                await self._sleep(min([LOOK_EVERY, *filter(None, lefts)]))
        finally:
            self._asleep.set()

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
        round_ = Round(self._context, Command(MARKER, (MARKER_KEY,), args), -1, 1, self._context.clock())
        round_.ask()
        await round_.decided()
        for index, reply in enumerate(round_.replies):
            self._take(index, reply, round_.started)
        return [str(reply) if isinstance(reply, Refusal) else "" for reply in round_.replies]

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
                round_ = Round(self._context, Command(MARKER, (MARKER_KEY,), args), -1, 1, self._context.clock())
                round_.ask_some([index])
                asked.append((index, round_))
        for index, round_ in asked:
            await round_.decided()
            reply = round_.replies[index]
            self._refusals[index] = str(reply) if isinstance(reply, Refusal) else ""
            self._take(index, reply, round_.started)
        return not any(self._refusals[index] for index, _ in asked)

    def _take(self, index: int, reply: Reply, asked_at: float) -> None:
        before = self._readings[index]
        after = None
        if isinstance(reply, Refusal) and before is not None:
            return
        if reply is None and before is not None and before.trust is Trust.TRUSTED:
            # One that is slow has not become untrusted: a set that has it is not a new one.
            return
        if type(reply) is list and len(reply) == 3:
            marker, node_ms, vouch = reply
            after = read_marker(marker, node_ms, vouch, asked_at, self._context.clock())
            self._known_ms = max(self._known_ms, after.guard_ms)
        self._readings[index] = after
        if after is not None and after.trust is Trust.TRUSTED and (before is None or before.trust is not Trust.TRUSTED):
            self._trusted(index)

    def _say(self) -> None:
        for index, (why, node) in enumerate(zip(self._refusals, self._context.fleet.nodes, strict=True)):
            left = inf if why else self.left(index)
            if left is not None and index not in self._quarantined:
                self._quarantined.add(index)
                self._context.emit(NodeQuarantined(node.address, left, why or REMEDY))
            elif left is None and self._readings[index] is not None and index in self._quarantined:
                self._quarantined.discard(index)
                self._context.emit(NodeTrusted(node.address))
