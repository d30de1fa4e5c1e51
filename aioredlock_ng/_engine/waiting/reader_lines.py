"""The lines of readers: one grant serves all tasks of a process that read at the same time."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from aioredlock_ng._engine.caller import caller_inside
from aioredlock_ng._engine.keeping.read_grant import ReadGrant
from aioredlock_ng._engine.waiting.slot_lines import SlotLines

if TYPE_CHECKING:
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.waiting.line import Contender, Line

__all__ = ["ReaderLines"]


class ReaderLines(SlotLines):
    """Gives readers a share in the grants that this process already has."""

    def freed(self, lease: LeaseRecord, release: Round | None = None) -> None:
        """Let the next task in line ask the nodes. The subclass implements this."""
        raise NotImplementedError

    def reads(self, keys: tuple[bytes, ...]) -> bool:
        """Return True if tasks of this process may be reading any of these keys."""
        return any((key, 0) in self._lines for key in keys)

    def _has_rivals(self, keys: tuple[bytes, ...]) -> bool:
        """Return True if this process may also have a write lease of the readers' key."""
        writers = self._lines.get(keys)
        # `_others` also has the line of the readers themselves. So a second line there is a rival.
        return (writers is not None and bool(writers.holders)) or len(self._others[keys[0]]) > 1

    def shared(self, contender: Contender[LeaseRecord]) -> bool:
        """Share a grant with a reader in no line. Return False if no grant can be shared."""
        line = self._lines.get(contender.line_key)
        return line is not None and self._share_now(line, contender)

    def downgraded(self, lease: LeaseRecord) -> None:
        """Move a writer's lease to the line of the readers, and let the next writer ask the nodes.

        The command that downgrades the lease must have been sent before.
        """
        writers = lease.line
        if writers is None or lease not in writers.holders:
            return
        key, keys = lease.spec.line, lease.spec.keys
        line = self._lines.get(key) or self._add_line(key, keys, lease.spec)
        self.freed(lease)
        lease.line, lease.covered = line, False
        lease.read_grant = ReadGrant(lease)
        line.holders[lease] = None
        # The time for sharing is that of an earlier read grant. A reader that shared this grant
        # could enter before a waiting writer, or outlive a shorter ttl that the nodes executed.
        line.shared_until = 0.0
        # Reports of a waiting writer were about earlier read grants.
        line.reports = None

    def _must_queue(self, line: Line[LeaseRecord]) -> bool:
        """Return True if a quorum has just reported a writer that waits for this process's readers.

        An attempt of a further reader would most probably be refused.
        """
        if not line.holders or line.shared_until:
            return False
        return self._writer_reported(line, self._recently())

    def _share_now(self, line: Line[LeaseRecord], contender: Contender[LeaseRecord]) -> bool:
        """Share a grant, if possible, with a reader that has just called.

        Returns:
            True if the reader has got a lease. False if it must join the line, or ask the nodes.
        """
        first = line.contender is None and not line.queue
        if first and self._share(line, contender):
            return True
        # If the caller already reads, it must not join the line. The tasks of the line may wait for
        # a writer that waits for this caller.
        inside = caller_inside()
        if inside is None:
            return False
        own = max(filter(inside, line.holders), key=attrgetter("deadline"), default=None)
        if own is None:
            return False
        drift = self._context.options.drift(own.ttl)
        lease = own.read_again(contender.spec, self._context.clock(), drift)
        return self._shared_by(line, contender, own, lease)

    def _share(self, line: Line[LeaseRecord], contender: Contender[LeaseRecord]) -> bool:
        """Share the line's latest grant with a reader, if the time for sharing is not over.

        Returns:
            True if the reader has got a lease. False if the nodes must be asked.
        """
        now = self._context.clock()
        latest = next(reversed(line.holders), None)
        if latest is None or now >= line.shared_until:
            return False
        return self._shared_by(line, contender, latest, contender.successor(latest, now))

    def _shared_by(
        self,
        line: Line[LeaseRecord],
        contender: Contender[LeaseRecord],
        giver: LeaseRecord,
        lease: LeaseRecord | None,
    ) -> bool:
        if lease is None or giver.read_grant is None:
            return False
        giver.read_grant.add(lease)
        lease.line = line
        line.holders[lease] = None
        contender.line = None
        self._context.counters.passed_on += 1
        contender.take(lease)
        return True

    def _share_with_all(self, line: Line[LeaseRecord]) -> None:
        queue = line.queue
        if not queue:
            return
        # A task that was cancelled in this tick, or has another ttl, must not keep the tasks behind
        # it out.
        for contender in list(queue):
            if self._share(line, contender):
                del queue[contender]
