"""The lines that stand in the queues on the nodes, and the messages of nodes about these lines."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from aioredlock_ng._core.queue_formats import member_of, message_of
from aioredlock_ng._core.votes import is_granted
from aioredlock_ng._engine.waiting.line_index import LineIndex
from aioredlock_ng._engine.waiting.place import POLL_EVERY, Place
from aioredlock_ng._engine.waiting.queue_entry import leaving

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.waiting.line import Line
    from aioredlock_ng._vocabulary.causes import WakeCause

__all__ = ["StandingLines"]


class StandingLines(LineIndex):
    """Enters waiting lines in the queues on the nodes, and removes them.

    Args:
        manager: 16 hexadecimal digits by which the queues distinguish managers.
    """

    def __init__(self, context: Context, manager: bytes) -> None:
        super().__init__()
        self._context = context
        self._manager = manager
        self._standing: dict[bytes, Line[LeaseRecord]] = {}
        # The numbers start so high that all numbers have equally many digits. Queues compare
        # members with equal tickets as text, and would otherwise serve member 10 before member 2.
        self._numbers = count(1_000_000_001)

    def places(self) -> list[Place]:
        """Return the places of the lines that stand in the queues."""
        return [
            line.place
            for line in self._standing.values()
            if line.place is not None and line.place.standing
        ]

    def notified(self, index: int, payload: bytes) -> list[LeaseRecord]:
        """Process the message of node `index` about a waiter or a reader of this process.

        Returns:
            The read leases that may have been ended by force.
        """
        message = message_of(payload)
        if message is not None and message.member == self._manager:
            line = self._lines.get((message.key, 0))
            if line is None:
                return []
            if message.left is not None:
                line.shared_until = 0.0
                return list(line.holders)
            if line.reports is None:
                line.reports = {}
            line.reports[index] = self._context.clock()
            if self._writer_reported(line, self._recently()):
                line.shared_until = 0.0
            return []
        if message is None or not message.member.startswith(self._manager + b":"):
            return []
        line = self._standing.get(message.member)
        if line is not None and line.place is not None and message.key in line.keys:
            line.place.notified(index, message)
        else:
            # The waiter is gone, or has the lock. Its entry is removed, because the entry would
            # block waiters of other processes.
            errand = leaving((message.key,), message.member, self._context.clock())
            self._context.fleet.nodes[index].ask(errand, index)
        return []

    def _recently(self) -> float:
        """Return the instant since which reports of a waiting writer are recent."""
        return self._context.clock() - self._context.patience

    def _writer_reported(self, line: Line[LeaseRecord], since: float) -> bool:
        """Return True if a quorum has reported a waiting writer since this instant."""
        if line.reports is None:
            return False
        return sum(at >= since for at in line.reports.values()) >= self._context.quorum

    def changed(self, index: int, keys: Iterable[bytes] | None) -> None:
        """Process a node's report of changed keys. If `keys` is None, any key may have changed."""
        if keys is None:
            for line in self._all():
                self._doubt(line)
                if line.place is not None:
                    line.place.reconnected(index)
            return
        for key in keys:
            for line in self._wanting(key):
                self._doubt(line, index, key)
                if line.place is not None:
                    line.place.changed(index)

    def doubt(self, key: bytes) -> None:
        """Stop passing on grants of a key that this process is about to delete by force."""
        for line in self._wanting(key):
            self._doubt(line, None, key)

    def close(self) -> None:
        """Leave all queues, before the connections close."""
        for line in self._standing.values():
            if line.place is not None:
                line.place.leave()
        self._standing.clear()

    def disown(self) -> None:
        """Stop all timers in a forked child, and send nothing."""
        for line in self._standing.values():
            if line.place is not None:
                line.place.stop()

    def _place_of(self, line: Line[LeaseRecord]) -> Place:
        if line.place is None:

            def ask(claim: bytes, cause: WakeCause, number: int) -> None:
                if line.contender is not None:
                    line.contender.attempt(claim, cause, number)

            member = self._new_member(line)
            line.place = Place(
                self._context,
                line.keys,
                member,
                ask,
                any_key=line.slots is not None,
                reader=line.shared,
            )
            self._standing[member] = line
        return line.place

    def _new_member(self, line: Line[LeaseRecord]) -> bytes:
        """Return a new name for a line in the queues.

        The command to leave may be executed late or repeatedly. So a line that has left must not
        enter the queues again under its old name.
        """
        context = self._context
        # A disconnected node counts as a node that sends messages, because it may soon be back.
        # Otherwise the line would poll for as long as it waits.
        notified = (
            sum(node.messages or not node.ready for node in context.fleet.nodes) >= context.quorum
        )
        return member_of(
            self._manager,
            next(self._numbers),
            _grace(context, notified=notified),
            0 if line.slots is None else line.slots.limit,
            notified=notified,
            reader=line.shared,
        )

    def _back_off(self, line: Line[LeaseRecord]) -> None:
        """Let a line leave the queues, and make another attempt later."""
        place = self._place_of(line)
        place.back_off()
        self._standing.pop(place.member, None)
        place.rename(self._new_member(line))
        self._standing[place.member] = line

    def _leave_place(self, line: Line[LeaseRecord]) -> None:
        if line.place is not None:
            self._standing.pop(line.place.member, None)
            line.place.leave()
            line.place = None

    def _doubt(
        self, line: Line[LeaseRecord], index: int | None = None, key: bytes | None = None
    ) -> None:
        # The head of a queue tracks the key. So a node that has not granted yet may report the
        # release by the previous holder. If this report counted, the head could never pass its
        # grant on.
        for holder in line.holders:
            if key is not None and key not in holder.spec.keys:
                continue
            if index is None or is_granted(holder.granted[index]):
                holder.covered = False
        if line.contender is not None and line.contender.asking:
            line.contender.doubt(index)


def _grace(context: Context, *, notified: bool) -> float:
    """Return the life of an offer to this process, in seconds.

    An offer need not live longer than `node_timeout`, because a process with a longer round trip
    cannot acquire at all. Without messages, the process finds an offer only at its next refresh,
    so the offer lives longer.
    """
    return context.options.node_timeout + (0.0 if notified else 2 * POLL_EVERY)
