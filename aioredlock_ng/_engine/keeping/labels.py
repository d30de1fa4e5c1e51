"""What is written beside the keys of a lease that lives long enough to be asked about; it sends nothing itself."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.owners import label_life, owner_key, pack_owner, printable_label
from aioredlock_ng._engine.keeping.label_look import Looks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._engine.spec import LockSpec

__all__ = ["Labels"]


class Labelled(Protocol):
    """A lease, as far as its label needs it. `Holding` has the meaning of each attribute."""

    spec: LockSpec
    token: bytes
    fence: int | None
    since: float
    longest_ttl: float
    taken_by: str
    labelled_until: float


class Labels:
    """Of one manager.

    Args:
        owner: The text of all labels but of locks that name their own; True: host, process and task.
        clock: The engine's.
        wall_us: Microseconds of the wall clock.

    Attributes:
        by_task: True where they name the task.
        looks: How the labels of other managers are read.
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
        """What is said of the holder of this."""
        if holding.spec.owner is not None:
            return holding.spec.owner
        # A task's name may be any text.
        return printable_label(f"{self._text}:{holding.taken_by}") if self.by_task else self._text

    def words(
        self, holdings: Sequence[Labelled]
    ) -> tuple[tuple[bytes, ...], tuple[bytes | int, ...]]:
        """The keys of the labels of these, and for each its life in milliseconds and its text."""
        now, wall_us = self._clock(), self._wall_us()
        keys: list[bytes] = []
        args: list[bytes | int] = []
        for holding in holdings:
            life = label_life(holding.longest_ttl)
            holding.labelled_until = now + life / 2
            since_ms = (wall_us - int((now - holding.since) * 1e6)) // 1000
            label = pack_owner(holding.token, holding.fence, since_ms, self.text(holding))
            for key in holding.spec.keys:
                keys.append(owner_key(key))
                args += (int(life * 1000), label)
        return tuple(keys), tuple(args)
