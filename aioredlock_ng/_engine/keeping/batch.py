"""One command about many leases, which is sent to all nodes.

The answers show for each lease whether a quorum of nodes has its keys. A batch passes the result to
its callbacks, and changes no lease itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.replies import ALL_OURS, KeyStates

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._scripts import Command

__all__ = ["BATCH", "Batch", "parts"]

BATCH = 256
"""Largest number of keys per command. A server needs about half a millisecond for 256 keys. A lease
with more keys has a command of its own."""


def parts(leases: Sequence[LeaseRecord]) -> Iterator[Sequence[LeaseRecord]]:
    """Yield the leases in groups that fit into one command each; see `BATCH`."""
    start = keys = 0
    widths = [len(lease.spec.keys) for lease in leases]
    if sum(widths) <= BATCH:
        widths = []
    for end, width in enumerate(widths):
        keys += width
        if keys > BATCH and end > start:
            yield leases[start:end]
            start, keys = end, width
    if start < len(leases):
        yield leases[start:]


class Batch:
    """One command about the keys of several leases. A batch is the `Sink` of its answers.

    After the node timeout, answers can still confirm the leases that are undecided. A late
    confirmation is valid, because the ttl counts from an instant before the command was sent. A
    late answer that reports missing keys ends no lease, because a repair may have set the keys
    meanwhile.

    Args:
        command: The command. Its first keys are the keys of the leases, in the order of the leases.
        started: Instant before the first byte is queued, by the engine's clock.
        on_yes: Called with the batch, and with leases whose keys a quorum of nodes has. No lease is
            passed twice.
        on_no: Called within the node timeout for each lease for which too many nodes lack a key.
        on_unsure: Called within the node timeout for each lease that is undecided, and that the
            missing answers cannot decide.
        on_late: Called at the node timeout for each lease that is not decided.
        on_missing: Called with leases whose keys a node lacks, and with the node's index. A late
            answer causes this call, too.
        on_answer: Called with each answer and the node's index, before the answer is counted.
        stands: Returns False once the command must not be sent again.

    Attributes:
        replies: The answer of each node; None until the node has answered.
        done: A future to resolve once the batch is decided, or at the node timeout. None if no
            caller waits.
        open: True until the batch is decided or the node timeout has passed.
    """

    __slots__ = (
        "_answered",
        "_confirmed",
        "_context",
        "_full",
        "_late",
        "_leases",
        "_on_answer",
        "_on_late",
        "_on_missing",
        "_on_no",
        "_on_unsure",
        "_on_yes",
        "_partial",
        "_pending",
        "_settled",
        "_slot",
        "_stands",
        "command",
        "done",
        "open",
        "replies",
        "started",
    )

    def __init__(
        self,
        context: Context,
        command: Command,
        leases: Sequence[LeaseRecord],
        started: float,
        *,
        on_yes: Callable[[Batch, Sequence[LeaseRecord]], None],
        on_no: Callable[[LeaseRecord], None],
        on_unsure: Callable[[LeaseRecord], None],
        on_late: Callable[[LeaseRecord], None],
        on_missing: Callable[[Iterable[LeaseRecord], int], None],
        on_answer: Callable[[Reply, int], None] | None = None,
        stands: Callable[[], bool] = lambda: True,
    ) -> None:
        self._context = context
        self.command = command
        self._leases = leases
        self._on_yes = on_yes
        self._on_no = on_no
        self._on_unsure = on_unsure
        self._on_late = on_late
        self._on_missing = on_missing
        self._on_answer = on_answer
        self._stands = stands
        self.open = self._pending = True
        self._late = False
        self.started = started
        self.replies: list[Reply] = [None] * len(context.fleet.nodes)
        self._full = self._partial = self._answered = 0
        self._settled: set[LeaseRecord] = set()
        self._confirmed: set[LeaseRecord] = set()
        self.done: asyncio.Future[None] | None = None

    def ask(self) -> None:
        context = self._context
        self._slot = context.timeouts.add(self, self.started + context.patience)
        context.fleet.ask(self)

    def deliver(self, index: int, reply: Reply) -> None:
        self.replies[index] = reply
        self._answered += 1
        if self._on_answer is not None:
            self._on_answer(reply, index)
        if reply is ALL_OURS:
            self._full += 1
        elif isinstance(reply, KeyStates):
            self._partial += 1
            self._on_missing(
                (
                    held
                    for at, held in self._positions()
                    if reply.are_missing(at, len(held.spec.keys))
                ),
                index,
            )
        if self._pending and self._can_decide():
            self._judge()

    def stands(self) -> bool:
        """Return True while a node that lacks the script should get the command again.

        The decision of the batch does not matter here. If the command were not sent again after the
        decision, the keys would expire on this node.
        """
        return self._stands()

    def has(self, lease: LeaseRecord) -> bool:
        """Return True if a quorum has confirmed the lease."""
        return lease in self._confirmed

    def expire(self) -> None:
        if self.open:
            self._late = True
            self._close()
            for _, lease in self._positions():
                if lease.phase is Phase.HELD and lease not in self._settled:
                    self._on_late(lease)

    def held(self, lease: object) -> int:
        """Return how many nodes have the keys of the lease, late answers included."""
        if not self._partial:
            # Each counted answer confirms all leases, so the position of the lease does not matter.
            # If many leases end together, searches for positions would take quadratic time.
            return self._full
        return next(
            (self._count(at, known)[0] for at, known in self._positions() if known is lease), 0
        )

    def _close(self) -> None:
        self.open = False
        self._slot.discard(self)
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def _can_decide(self) -> bool:
        """Return True if the answers may decide at least one lease."""
        quorum, silent = self._context.quorum, len(self.replies) - self._answered
        some = self._full + self._partial
        return (
            self._full >= quorum
            or some + silent < quorum
            or (self._partial > 0 and self._answered >= quorum)
        )

    def _judge(self) -> None:
        quorum, total = self._context.quorum, len(self.replies)
        self._pending = False
        if self._full >= quorum and not self._settled:
            self._confirm([lease for lease in self._leases if lease.phase is Phase.HELD])
        else:
            self._judge_each(quorum, total, total - self._answered)
        if self.open and not self._pending:
            self._close()

    def _judge_each(self, quorum: int, total: int, silent: int) -> None:
        confirmed = []
        for position, lease in self._positions():
            if lease.phase is not Phase.HELD or lease in self._settled:
                continue
            yes, no = self._count(position, lease)
            if yes >= quorum:
                confirmed.append(lease)
            elif self._late:
                self._pending = True
            elif total - no < quorum:
                self._settled.add(lease)
                self._on_no(lease)
            elif yes + silent < quorum <= total - no - silent:
                self._settled.add(lease)
                self._on_unsure(lease)
            else:
                self._pending = True
        self._confirm(confirmed)

    def _confirm(self, confirmed: list[LeaseRecord]) -> None:
        if confirmed:
            self._settled.update(confirmed)
            self._confirmed.update(confirmed)
            self._on_yes(self, confirmed)

    def _positions(self) -> Iterator[tuple[int, LeaseRecord]]:
        position = 0
        for lease in self._leases:
            yield position, lease
            position += len(lease.spec.keys)

    def _count(self, position: int, lease: LeaseRecord) -> tuple[int, int]:
        """Return how many nodes have all keys of a lease, and how many certainly lack a key."""
        yes = no = 0
        width = len(lease.spec.keys)
        for reply in self.replies:
            if reply is ALL_OURS:
                yes += 1
            elif isinstance(reply, KeyStates):
                if reply.are_ours(position, width):
                    yes += 1
                else:
                    no += 1
        return yes, no
