"""Reads and writes the markers of all nodes, and remembers them; it decides neither when nor what is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.guard import Trust, read_marker, remembered
from aioredlock_ng._core.replies import MarkerRead
from aioredlock_ng._core.votes import Garbled, Refusal
from aioredlock_ng._engine.attempt.round import Round
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.kinds import MARKER, MARKER_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.guard import Memory, Reading, Step
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context

__all__ = ["Markers"]


class Markers:
    """The markers of a manager's nodes, as last read.

    Args:
        context: The engine's surroundings.
        run_id: Stands for the run_id of each node's own process in what is sent to all.
        trusted: Called with the index of a node that may vote from now on.

    Attributes:
        guard_ms: The guard time of this manager.
        known_ms: The longest guard time that was ever read.
        readings: Per node, its marker as last read; None where it has not answered.
        memories: Per node, its last trusted marker.
        refusals: Per node, why it cannot be judged; "" where it can.
        excessive: Nodes whose marker named a guard time that no manager writes.
        unread: Nodes whose marker was not read on the connection that they have now.
    """

    def __init__(self, context: Context, run_id: bytes, trusted: Callable[[int], None]) -> None:
        self._context = context
        self._trusted = trusted
        self.guard_ms = self.known_ms = context.options.guard_ms
        self._vouch = b"%b:%d" % (run_id, self.guard_ms)
        self.readings: list[Reading | None] = [None] * len(context.fleet.nodes)
        self.memories: list[Memory | None] = [None] * len(context.fleet.nodes)
        self.refusals = [""] * len(context.fleet.nodes)
        self.excessive: set[int] = set()
        self.unread = set(range(len(context.fleet.nodes)))

    def left(self, index: int) -> float | None:
        """Seconds of quarantine left as last read; None where it is trusted or has not answered."""
        reading = self.readings[index]
        return (
            None
            if reading is None or reading.trust is Trust.TRUSTED
            else reading.left(self._context.clock())
        )

    def refuses(self, index: int) -> bool:
        """True while a node refuses to show or to keep its marker: nobody knows for how long."""
        return bool(self.refusals[index])

    def admits(self, index: int) -> bool:
        """True unless its marker as last read, or its refusal to show it, forbids it to vote."""
        return not self.refuses(index) and self.left(index) is None

    def has_read(self, index: int) -> bool:
        """True where its marker was read on the connection that it has now."""
        return index not in self.unread

    async def read(self) -> list[str]:
        """Ask every node for its marker, and wait for all that answer in time; the words of those that refuse to tell."""
        args = (b"read", b"", b"0", self._vouch, b"")
        round_ = Round(self._context, _tracked(args), None, 1, self._context.clock())
        round_.ask()
        await round_.decided()
        return [
            self._take(index, reply, round_.started) for index, reply in enumerate(round_.replies)
        ]

    async def write(self, steps: list[Step | None]) -> bool:
        """Take the steps; False when a server refused one, which asking again at once does not cure."""
        asked = []
        for index, step in enumerate(steps):
            reading = self.readings[index]
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
            self.refusals[index] = self._take(index, reply, round_.started)
        return not any(self.refusals[index] for index, _ in asked)

    def _take(self, index: int, reply: Reply, asked_at: float) -> str:
        """Note what a node answered. Return why it cannot be judged, in words; "" where it can."""
        before = self.readings[index]
        words, after = self._read_reply(reply, asked_at)
        if words and before is not None:
            return words
        if reply is None and before is not None and before.trust is Trust.TRUSTED:
            # One that is slow has not become untrusted: a set that has it is not a new one.
            return ""
        now = self._context.clock()
        if after is not None:
            self.known_ms = max(self.known_ms, after.guard_ms)
            self.unread.discard(index)
        memory = remembered(self.memories[index], before, after, now, self.known_ms)
        self.memories[index], self.readings[index] = memory, after
        if after is not None:
            if after.trust is Trust.EXCESSIVE:
                self.excessive.add(index)
            elif after.trust is Trust.TRUSTED:
                self.excessive.discard(index)
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


def _tracked(args: tuple[bytes | int, ...]) -> Command:
    """Call marker.lua, and be notified when the marker changes."""
    return Command(MARKER, (MARKER_KEY,), args, tracked=True)
