"""The markers of the nodes: how they are read, written and remembered.

`Guard` decides when markers are read and what is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.marker import Trust, read_marker
from aioredlock_ng._core.recovery_guard import remembered
from aioredlock_ng._core.replies import MarkerRead
from aioredlock_ng._core.votes import Garbled, Refusal
from aioredlock_ng._engine.attempt.round import Round
from aioredlock_ng._scripts.node_requests import reading_marker, replacing_marker

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.marker import Reading
    from aioredlock_ng._core.recovery_guard import Memory, Step
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context

__all__ = ["Markers"]


class Markers:
    """The markers of the nodes of one manager, as last read.

    Args:
        run_id: Placeholder for the run id of a server in commands that are sent to all nodes.
        trusted: Called with the index of a node that may vote from now on.

    Attributes:
        guard_ms: The guard time of this manager in milliseconds.
        known_ms: The longest of `guard_ms` and all guard times that were read, in milliseconds.
        readings: The marker of each node, as last read; None if it was never read. The reading of a
            trusted node outlasts the node's connection. All other readings end with the connection.
        silent: Nodes that keep the reading of a quarantine, but did not answer the last request.
        memories: The last trusted marker of each node; None if there was none.
        refusals: For each node the reason why its marker cannot be read or kept; "" if it can.
        excessive: Nodes whose marker named a guard time above `LONGEST_MS`, which no manager
            writes.
        unread: Nodes whose marker was not read on their present connection.
    """

    def __init__(self, context: Context, run_id: bytes, trusted: Callable[[int], None]) -> None:
        self._context = context
        self._trusted = trusted
        self.guard_ms = self.known_ms = context.options.guard_ms
        self._own_marker = b"%b:%d" % (run_id, self.guard_ms)
        self.readings: list[Reading | None] = [None] * len(context.fleet.nodes)
        self.silent: set[int] = set()
        self.memories: list[Memory | None] = [None] * len(context.fleet.nodes)
        self.refusals = [""] * len(context.fleet.nodes)
        self.excessive: set[int] = set()
        self.unread = set(range(len(context.fleet.nodes)))

    def left(self, index: int) -> float | None:
        """Return the seconds of quarantine that are left for a node.

        None if the node is trusted or has not answered.
        """
        reading = self.readings[index]
        return (
            None
            if reading is None or reading.trust is Trust.TRUSTED
            else reading.left(self._context.clock())
        )

    def refuses(self, index: int) -> bool:
        """True while a node refuses to show or keep its marker. The refusal has no known end."""
        return bool(self.refusals[index])

    def admits(self, index: int) -> bool:
        """True if the last reading of a node's marker allows the node to vote.

        A node that refuses to show or keep its marker does not vote.
        """
        return not self.refuses(index) and self.left(index) is None

    def has_read(self, index: int) -> bool:
        """True if the marker of a node was read on its present connection."""
        return index not in self.unread

    def answered(self) -> list[Reading | None]:
        """Return the reading of each node; None for a silent node.

        A quarantined node that does not answer may have lost its memory again. So its old reading
        must not decide about the markers of a set.
        """
        return [None if index in self.silent else one for index, one in enumerate(self.readings)]

    async def read(self) -> list[str]:
        """Read the markers of all nodes that answer within the node timeout.

        Returns:
            For each node the reason why its marker cannot be read; "" if there is none.
        """
        command = reading_marker(self._own_marker)
        round_ = Round(self._context, command, None, 1, self._context.clock())
        round_.ask()
        await round_.decided()
        return [
            self._take(index, reply, round_.started) for index, reply in enumerate(round_.replies)
        ]

    async def write(self, steps: list[Step | None]) -> bool:
        """Write the markers in `steps`, one for each node. None stands for no change.

        Returns:
            True if no server refused its marker. If a server refused it, an immediate second write
            would be refused, too.
        """
        asked = []
        for index, step in enumerate(steps):
            reading = self.readings[index]
            if step is not None and reading is not None:
                # The new marker names the run id of the server process whose marker was read. The
                # server may have restarted since, and the placeholder would name the run id of the
                # new process.
                own_marker = b"%b:%d" % (reading.run_id, step.guard_ms)
                nonce = self._context.new_token()
                become = step.trust.encode()
                command = replacing_marker(
                    become, reading.marker, reading.node_ms, own_marker, nonce
                )
                round_ = Round(self._context, command, None, 1, self._context.clock())
                round_.ask_some([index])
                asked.append((index, round_))
        for index, round_ in asked:
            await round_.decided()
            reply = round_.replies[index]
            self.refusals[index] = self._take(index, reply, round_.started)
        return not any(self.refusals[index] for index, _ in asked)

    def _take(self, index: int, reply: Reply, asked_at: float) -> str:
        """Store the answer of a node to a request that was sent at the instant `asked_at`.

        Returns:
            The reason why the marker cannot be read or kept; "" if there is none.
        """
        before = self.readings[index]
        words, after = self._read_reply(reply, asked_at)
        if words and before is not None:
            return words
        if reply is None and before is not None and before.trust is Trust.TRUSTED:
            # A trusted node that does not answer in time stays trusted. If its last reading were
            # discarded, the other nodes could look like a new set.
            return ""
        if reply is None and before is not None and index not in self.unread:
            # A node in quarantine that does not answer in time stays in quarantine. If its last
            # reading were discarded, the node would count as a node that can grant.
            self.silent.add(index)
            return ""
        self.silent.discard(index)
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
                # Another process may have made the node trusted, although this manager knows that
                # the node has lost locks. The manager will quarantine such a node again, so it does
                # not report the node as trusted.
                known = memory is not None and not memory.contradicts(after)
                if known and (before is None or before.trust is not Trust.TRUSTED):
                    self._trusted(index)
        return words

    def _read_reply(self, reply: Reply, asked_at: float) -> tuple[str, Reading | None]:
        """Return the fault in an answer ("" for none), and the marker that it shows (or None)."""
        if isinstance(reply, (Refusal, Garbled)):
            return str(reply), None
        if not isinstance(reply, MarkerRead):
            return "", None
        now = self._context.clock()
        return "", read_marker(reply.marker, reply.node_ms, reply.own_marker, asked_at, now)
