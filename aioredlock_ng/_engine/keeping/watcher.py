"""Detect missing keys of held leases as soon as the nodes report a change.

A lease is watched when it is held for longer than `validity.watch_after`. To watch a lease, the
watcher reads its keys. The server then tracks these keys for our connection, but not the keys of
read leases. After a report of a change, the watcher reads the keys on all nodes again. The lease is
lost if no quorum has the keys.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._engine.keeping.batch import Batch, parts
from aioredlock_ng.events import NodeDegraded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.keeping.repair import Repairs
    from aioredlock_ng._scripts.lock_kind import LockKind

__all__ = ["Watcher"]


class Watcher:
    """Watches the keys of one manager's leases.

    Args:
        leases: All leases of the manager that have not ended.
        lose: Called for a lease if no quorum of nodes has its keys any more.
        check: Ends a lease if its deadline has passed. Called before changed keys are read again.
        repairs: Sets keys again on nodes that lost them.
    """

    def __init__(
        self,
        context: Context,
        leases: Collection[LeaseRecord],
        lose: Callable[[LeaseRecord], None],
        check: Callable[[LeaseRecord], None],
        repairs: Repairs,
    ) -> None:
        self._context = context
        self._leases = leases
        self._repairs = repairs
        self._check = check
        self._lose = lose
        self._by_key: dict[bytes, LeaseRecord] = {}
        self._doubted: dict[LeaseRecord, None] = {}

    def watch(self, leases: Sequence[LeaseRecord], *, label: bool = True) -> None:
        """Read the keys of leases on all nodes, so that the nodes track them.

        Some of the leases may already be watched. If `label` is True, the labels are written, too.
        """
        for part in _alike(leases):
            for lease in part:
                lease.watched = True
                if not lease.spec.kind.shared:
                    for key in lease.spec.keys:
                        self._by_key[key] = lease
            keys = tuple(key for lease in part for key in lease.spec.keys)
            tokens = tuple(lease.token for lease in part for _ in lease.spec.keys)
            labels = (
                self._context.labels.words(part)
                if label and self._context.labels is not None
                else ((), ())
            )
            kind = part[0].spec.kind
            command = kind.watching(keys, tokens, labels)
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
                stands=partial(_stands, kind, part),
            ).ask()

    def forget(self, lease: LeaseRecord) -> None:
        for key in lease.spec.keys:
            if self._by_key.get(key) is lease:
                del self._by_key[key]

    def changed(self, index: int, keys: Iterable[bytes] | None) -> None:
        """Schedule a check of the leases whose keys changed.

        If `keys` is None, any key may have changed. All changes in one tick of the event loop
        together cause only one check.
        """
        if keys is None:
            # Unwatched leases are checked too, because a restarted server may have lost their keys.
            touched: Iterable[LeaseRecord] = list(self._leases)
        else:
            touched = [self._by_key[key] for key in keys if key in self._by_key]
        self.doubt(touched)

    def doubt(self, leases: Iterable[LeaseRecord]) -> None:
        """Schedule a check of these leases."""
        for lease in leases:
            if not self._doubted:
                self._context.loop.call_soon(self._verify)
            self._doubted[lease] = None

    def _answered(self, reply: Reply, index: int) -> None:
        """Stop writing labels if a node refuses access to the keys of labels.

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
        # Read leases have labels, too, but are not in `_by_key`.
        leases = [lease for lease in self._leases if lease.watched]
        for lease in leases:
            lease.labelled_until = 0.0
        context.emit(
            NodeDegraded(context.fleet.nodes[index].address, f"no labels of owners: {reply}")
        )
        # The listeners of the event may have ended a lease.
        self.watch([lease for lease in leases if lease.phase is Phase.HELD])

    def _verify(self) -> None:
        doubted, self._doubted = self._doubted, {}
        for lease in doubted:
            self._check(lease)
        held = [lease for lease in doubted if lease.phase is Phase.HELD]
        # The labels of watched leases exist already. Writing them again would delay the
        # notification of a loss.
        self.watch([lease for lease in held if lease.watched], label=False)
        self.watch([lease for lease in held if not lease.watched])


def _alike(leases: Sequence[LeaseRecord]) -> Iterator[Sequence[LeaseRecord]]:
    """Yield the leases in groups of one kind. The keys of a group fit into one command."""
    reading = [lease for lease in leases if lease.spec.kind.shared]
    if reading:
        leases = [lease for lease in leases if not lease.spec.kind.shared]
    yield from parts(leases)
    yield from parts(reading)


def _stands(kind: LockKind, leases: Sequence[LeaseRecord]) -> bool:
    """Return True while a node that has not executed a watch should still execute it.

    The watch of a writer would report the key as missing once the writer has become a reader. The
    other leases then rely on their next renewals.
    """
    return all(lease.spec.kind is kind for lease in leases)


def _nothing(_batch: Batch, _confirmed: Sequence[LeaseRecord]) -> None:
    """Change nothing, because the lease is still held."""


def _unsure(_lease: LeaseRecord) -> None:
    """Change nothing. The next renewal or the deadline decides whether the lease is lost."""
