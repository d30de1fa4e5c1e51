"""The owner labels of leases: texts beside the lock's key that say who holds it.

Only leases that are held long enough to be watched get a label. The watcher sends it.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.owners import label_life, owner_key, pack_owner, printable_label
from aioredlock_ng._engine.keeping.label_look import Looks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._engine.spec import LockSpec

__all__ = ["Labelled", "Labels"]


class Labelled(Protocol):
    """The attributes of a lease that a label needs. See `Holding` for their meaning."""

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
        owner: The text of the labels, unless a lock names its own; True: host, process and task.
        clock: The engine's clock, in seconds.
        wall_us: Microseconds of the wall clock.

    Attributes:
        by_task: True if the labels name the task.
        looks: Reads the labels of other managers.
    """

    def __init__(
        self, owner: str | bool, clock: Callable[[], float], wall_us: Callable[[], int]
    ) -> None:
        self.by_task = owner is True
        self.looks = Looks()
        self._text = f"{socket.gethostname()}:{os.getpid()}" if isinstance(owner, bool) else owner
        self._clock = clock
        self._wall_us = wall_us

    def text(self, holding: Labelled) -> str:
        """Return the text of a holding's label."""
        if holding.spec.owner is not None:
            return holding.spec.owner
        # The name of a task may contain line breaks and control characters.
        return printable_label(f"{self._text}:{holding.taken_by}") if self.by_task else self._text

    def value(self, holding: Labelled) -> bytes:
        """Return the value of the key of a holding's label."""
        return self._value(holding, self._clock(), self._wall_us())

    def _value(self, holding: Labelled, now: float, wall_us: int) -> bytes:
        since_ms = (wall_us - int((now - holding.since) * 1e6)) // 1000
        return pack_owner(holding.token, holding.fence, since_ms, self.text(holding))

    def words(
        self, holdings: Sequence[Labelled]
    ) -> tuple[tuple[bytes, ...], tuple[bytes | int, ...]]:
        """Return the keys of the labels, and for each key its ttl in milliseconds and its value."""
        now, wall_us = self._clock(), self._wall_us()
        keys: list[bytes] = []
        args: list[bytes | int] = []
        for holding in holdings:
            life = label_life(holding.longest_ttl)
            holding.labelled_until = now + life / 2
            label = self._value(holding, now, wall_us)
            for key in holding.spec.keys:
                keys.append(owner_key(key))
                args += (int(life * 1000), label)
        return tuple(keys), tuple(args)
