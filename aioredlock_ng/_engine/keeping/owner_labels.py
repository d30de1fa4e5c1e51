"""The owner labels of leases. A label is a text beside the lock's key that names the holder.

The watcher writes labels to the nodes. So a lease that ends before it is watched has no label,
unless `min_hold` keeps its keys.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.owners import label_life, pack_owner, printable_label
from aioredlock_ng._engine.keeping.holder_label import Looks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._engine.spec import LockSpec

__all__ = ["Labelled", "Labels"]


class Labelled(Protocol):
    """The attributes of a lease that a label needs. See `LeaseRecord` for their meaning."""

    spec: LockSpec
    token: bytes
    fence: int | None
    since: float
    longest_ttl: float
    taken_by: str
    labelled_until: float


class Labels:
    """Makes the labels of one manager's leases.

    Args:
        owner: The text of the labels, unless a lock has a text of its own. With True, the text
            consists of host, process and task.
        clock: The engine's clock, in seconds.
        wall_us: The wall clock, in microseconds.

    Attributes:
        by_task: True if the labels name the task.
    """

    def __init__(
        self, owner: str | bool, clock: Callable[[], float], wall_us: Callable[[], int]
    ) -> None:
        self.by_task = owner is True
        self.looks = Looks()
        self._text = f"{socket.gethostname()}:{os.getpid()}" if isinstance(owner, bool) else owner
        self._clock = clock
        self._wall_us = wall_us

    def text(self, lease: Labelled) -> str:
        if lease.spec.owner is not None:
            return lease.spec.owner
        # The name of a task may contain line breaks and control characters, so the label is made
        # printable.
        return printable_label(f"{self._text}:{lease.taken_by}") if self.by_task else self._text

    def value(self, lease: Labelled) -> bytes:
        """Return the value that is stored under the key of a lease's label."""
        return self._value(lease, self._clock(), self._wall_us())

    def _value(self, lease: Labelled, now: float, wall_us: int) -> bytes:
        since_ms = (wall_us - int((now - lease.since) * 1e6)) // 1000
        return pack_owner(lease.token, lease.fence, since_ms, self.text(lease))

    def words(
        self, leases: Sequence[Labelled]
    ) -> tuple[tuple[bytes, ...], tuple[bytes | int, ...]]:
        """Return the keys of the labels, and for each key its ttl in milliseconds and its value.

        The call also sets `labelled_until` of each lease, the instant at which its label must be
        written again.
        """
        now, wall_us = self._clock(), self._wall_us()
        keys: list[bytes] = []
        args: list[bytes | int] = []
        for lease in leases:
            life = label_life(lease.longest_ttl)
            lease.labelled_until = now + life / 2
            label = self._value(lease, now, wall_us)
            for key in lease.spec.keys:
                keys.append(lease.spec.kind.label_key(key, lease.token))
                args += (int(life * 1000), label)
        return tuple(keys), tuple(args)
