"""Tells holders at once when their keys are gone: it listens for changed keys and verifies; it never renews.

Leases that live longer than `validity.WATCH_AFTER` are watched: reading their keys leaves them tracked on every connection,
and a renewal reads them again. When a node reports a change, one round finds out whether a quorum is left: a foreign
PEXPIRE is no loss, a deleted key is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._engine.keeping.batch import Batch, parts
from aioredlock_ng.events import NodeDegraded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._engine.keeping.repair import Repairs

__all__ = ["Watcher"]


class Watcher:
    """Which nodes still have which holding, as far as they tell.

    Args:
        context: The engine's surroundings.
        holdings: Every holding of the manager.
        lose: Called for a holding that no quorum has any more.
        check: Called for a holding whose deadline may have passed.
        repairs: Gives nodes back what they lost.
    """

    def __init__(
        self,
        context: Context,
        holdings: Collection[Holding],
        lose: Callable[[Holding], None],
        check: Callable[[Holding], None],
        repairs: Repairs,
    ) -> None:
        self._context = context
        self._holdings = holdings
        self._repairs = repairs
        self._check = check
        self._lose = lose
        self._by_key: dict[bytes, Holding] = {}
        self._doubted: dict[Holding, None] = {}

    def watch(self, holdings: Sequence[Holding], *, label: bool = True) -> None:
        """Begin to watch, or look again: read the keys on all nodes, and write their labels unless told not to."""
        for part in parts(holdings):
            for holding in part:
                holding.watched = True
                for key in holding.spec.keys:
                    self._by_key[key] = holding
            keys = tuple(key for holding in part for key in holding.spec.keys)
            tokens = tuple(holding.token for holding in part for _ in holding.spec.keys)
            labels = (
                self._context.labels.words(part)
                if label and self._context.labels is not None
                else ((), ())
            )
            command = part[0].spec.kind.watching(keys, tokens, labels)
            started = self._context.clock()
            Batch(
                self._context,
                command,
                part,
                started,
                on_yes=_nothing,
                on_no=self._lose,
                on_unsure=_unsure,
                on_late=_unsure,
                on_missing=self._repairs.missing,
                on_answer=self._answered,
            ).ask()

    def forget(self, holding: Holding) -> None:
        """A watched holding is over."""
        for key in holding.spec.keys:
            if self._by_key.get(key) is holding:
                del self._by_key[key]

    def changed(self, index: int, keys: Iterable[bytes] | None) -> None:
        """Node `index` says that keys changed; None: any may have, or it can no longer tell."""
        if keys is None:
            # Also leases that are not watched yet: a server that comes back may have lost their keys.
            touched: Iterable[Holding] = list(self._holdings)
        else:
            touched = [self._by_key[key] for key in keys if key in self._by_key]
        for holding in touched:
            if not self._doubted:
                self._context.loop.call_soon(self._verify)
            self._doubted[holding] = None

    def _answered(self, reply: Reply, index: int) -> None:
        """A user without the right to the labels' keys would watch nothing, and release nothing: no labels then."""
        context = self._context
        if (
            context.labels is None
            or not isinstance(reply, Refusal)
            or not str(reply).startswith("NOPERM")
        ):
            return
        context.labels = None
        holdings = dict.fromkeys(self._by_key.values())
        for holding in holdings:
            holding.labelled_until = 0.0
        context.emit(
            NodeDegraded(context.fleet.nodes[index].address, f"no labels of owners: {reply}")
        )
        self.watch([holding for holding in holdings if holding.phase is Phase.HELD])

    def _verify(self) -> None:
        doubted, self._doubted = self._doubted, {}
        for holding in doubted:
            self._check(holding)
        held = [holding for holding in doubted if holding.phase is Phase.HELD]
        # Their labels are there already: this must be quick.
        self.watch([holding for holding in held if holding.watched], label=False)
        self.watch([holding for holding in held if not holding.watched])


def _nothing(_batch: Batch, _confirmed: Sequence[Holding]) -> None:
    """Still ours."""


def _unsure(_holding: Holding) -> None:
    """Too few nodes answered: the next renewal or the deadline will tell."""
