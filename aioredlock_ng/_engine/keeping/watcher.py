"""Detect missing keys of held leases as soon as the nodes report a change.

A lease is watched when it is held for longer than `validity.WATCH_AFTER`. Reading its keys makes
the server track them for our connection, and each renewal reads them again. After a report of a
change the watcher reads the keys on all nodes. A deleted key is a loss if no quorum is left. A
PEXPIRE by another client is no loss.
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
    """Watches the keys of one manager's holdings.

    Args:
        context: The engine's surroundings.
        holdings: All holdings of the manager that have not ended.
        lose: Called for a holding whose keys a quorum no longer has.
        check: Called for a holding whose deadline may have passed, before its keys are read.
        repairs: Sets keys again on nodes that lost them.
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
        """Read the keys of holdings on all nodes, so that the nodes track them.

        Args:
            holdings: The holdings, watched before or not.
            label: True to write their labels too.
        """
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
        """Stop watching a holding that is over."""
        for key in holding.spec.keys:
            if self._by_key.get(key) is holding:
                del self._by_key[key]

    def changed(self, index: int, keys: Iterable[bytes] | None) -> None:
        """Schedule a check of the holdings whose keys changed. Changes of one tick share it.

        Args:
            index: The node that reported the change.
            keys: The changed keys; None if any key may have changed.
        """
        if keys is None:
            # Unwatched leases are checked too, because a restarted server may have lost their keys.
            touched: Iterable[Holding] = list(self._holdings)
        else:
            touched = [self._by_key[key] for key in keys if key in self._by_key]
        for holding in touched:
            if not self._doubted:
                self._context.loop.call_soon(self._verify)
            self._doubted[holding] = None

    def _answered(self, reply: Reply, index: int) -> None:
        """Stop writing labels if a node refuses access to their keys.

        Otherwise the node would refuse every watch and every release of a labelled lease.
        """
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
        # The labels of watched holdings exist already. Writing them again would delay the
        # notification of a loss.
        self.watch([holding for holding in held if holding.watched], label=False)
        self.watch([holding for holding in held if not holding.watched])


def _nothing(_batch: Batch, _confirmed: Sequence[Holding]) -> None:
    """Change nothing: the lease is still held."""


def _unsure(_holding: Holding) -> None:
    """Change nothing: the next renewal or the deadline decides."""
