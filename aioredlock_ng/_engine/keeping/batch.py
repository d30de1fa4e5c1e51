"""One command per node about many leases, and a decision for each lease from the answers.

The callbacks of a batch decide what follows. A batch itself changes no lease.
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
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._scripts import Command

__all__ = ["BATCH", "Batch", "parts"]

BATCH = 256
"""Keys per command at most, unless one lease has more. A server needs about half a millisecond for
that many keys."""


def parts(holdings: Sequence[Holding]) -> Iterator[Sequence[Holding]]:
    """Yield the holdings in groups, each with the keys of one command at most. See `BATCH`."""
    start = keys = 0
    widths = [len(holding.spec.keys) for holding in holdings]
    if sum(widths) <= BATCH:
        widths = []
    for end, width in enumerate(widths):
        keys += width
        if keys > BATCH and end > start:
            yield holdings[start:end]
            start, keys = end, width
    if start < len(holdings):
        yield holdings[start:]


class Batch:
    """One command about the keys of several holdings; a `Sink`.

    Late answers still count for holdings that were not decided within the node timeout. A late yes
    is sound: the ttl counts from before the command was sent. A late no proves nothing, because a
    repair may have set the keys since.

    Args:
        context: The engine's surroundings.
        command: The command. Its keys begin with those of the holdings, in order.
        holdings: The holdings.
        started: Instant before the first byte is queued, by the engine's clock.
        on_yes: Called with holdings whose keys a quorum of nodes has, once for each holding.
        on_no: Called within the node timeout for each holding whose keys no quorum can have.
        on_unsure: Called within the node timeout for each undecided holding that no outstanding
            answer can decide any more.
        on_late: Called at the node timeout for each holding that is not decided.
        on_missing: Called with holdings whose keys a node lacks, and the node's index. Late answers
            call it too.
        on_answer: Called with each answer and the node's index, before it is counted.
        stands: Returns False once the command must not be sent again.

    Attributes:
        command: The command.
        started: Instant before the first byte is queued.
        replies: The answer of each node; None while there is none.
        done: A future to resolve once the batch is decided, or at the node timeout. None: no caller
            waits.
        open: True until the batch is decided or the node timeout has passed.
    """

    __slots__ = (
        "_answered",
        "_confirmed",
        "_context",
        "_full",
        "_holdings",
        "_late",
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
        holdings: Sequence[Holding],
        started: float,
        *,
        on_yes: Callable[[Batch, Sequence[Holding]], None],
        on_no: Callable[[Holding], None],
        on_unsure: Callable[[Holding], None],
        on_late: Callable[[Holding], None],
        on_missing: Callable[[Iterable[Holding], int], None],
        on_answer: Callable[[Reply, int], None] | None = None,
        stands: Callable[[], bool] = lambda: True,
    ) -> None:
        self._context = context
        self.command = command
        self._holdings = holdings
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
        self._settled: set[Holding] = set()
        self._confirmed: set[Holding] = set()
        self.done: asyncio.Future[None] | None = None

    def ask(self) -> None:
        """Queue the command on all nodes, in this tick of the event loop."""
        context = self._context
        self._slot = context.timeouts.add(self, self.started + context.patience)
        context.fleet.ask(self)

    def deliver(self, index: int, reply: Reply) -> None:
        """Count the answer of a node, and decide about holdings as soon as it is possible."""
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
        """Return True while the command may be sent again."""
        return self.open and self._stands()

    def has(self, holding: Holding) -> bool:
        """Return True if a quorum has confirmed the holding."""
        return holding in self._confirmed

    def expire(self) -> None:
        """End the wait for answers: the node timeout has passed."""
        if self.open:
            self._late = True
            self._close()
            for _, holding in self._positions():
                if holding.phase is Phase.HELD and holding not in self._settled:
                    self._on_late(holding)

    def held(self, holding: object) -> int:
        """Return how many nodes have the keys of the holding, late answers included."""
        if not self._partial:
            # All answers so far are the same for all holdings. A search for each of them would take
            # quadratic time when many end at once.
            return self._full
        return next(
            (self._count(at, known)[0] for at, known in self._positions() if known is holding), 0
        )

    def _close(self) -> None:
        self.open = False
        self._slot.discard(self)
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def _can_decide(self) -> bool:
        """Return False while no holding can be decided, which spares the check of each holding."""
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
            self._confirm([holding for holding in self._holdings if holding.phase is Phase.HELD])
        else:
            self._judge_each(quorum, total, total - self._answered)
        if self.open and not self._pending:
            self._close()

    def _judge_each(self, quorum: int, total: int, silent: int) -> None:
        confirmed = []
        for position, holding in self._positions():
            if holding.phase is not Phase.HELD or holding in self._settled:
                continue
            yes, no = self._count(position, holding)
            if yes >= quorum:
                confirmed.append(holding)
            elif self._late:
                self._pending = True
            elif total - no < quorum:
                self._settled.add(holding)
                self._on_no(holding)
            elif yes + silent < quorum <= total - no - silent:
                self._settled.add(holding)
                self._on_unsure(holding)
            else:
                self._pending = True
        self._confirm(confirmed)

    def _confirm(self, confirmed: list[Holding]) -> None:
        if confirmed:
            self._settled.update(confirmed)
            self._confirmed.update(confirmed)
            self._on_yes(self, confirmed)

    def _positions(self) -> Iterator[tuple[int, Holding]]:
        position = 0
        for holding in self._holdings:
            yield position, holding
            position += len(holding.spec.keys)

    def _count(self, position: int, holding: Holding) -> tuple[int, int]:
        """Return how many nodes have the keys of a holding, and how many certainly lack some."""
        yes = no = 0
        width = len(holding.spec.keys)
        for reply in self.replies:
            if reply is ALL_OURS:
                yes += 1
            elif isinstance(reply, KeyStates):
                if reply.are_ours(position, width):
                    yes += 1
                else:
                    no += 1
        return yes, no
