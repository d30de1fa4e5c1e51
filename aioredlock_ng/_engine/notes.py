"""Tells people who has waited for a lock for a while, by a note on one node; nothing is ever decided by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.owners import waiting_key
from aioredlock_ng._engine.hints import Hint
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.kinds import NOTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._nodes.fleet import Fleet

__all__ = ["NOTE_AFTER", "NOTE_EVERY", "Notes"]

NOTE_AFTER = 1.0
"""Seconds of waiting that are nobody's business."""

NOTE_EVERY = 5.0
"""Seconds between two notes of one waiter, at least: a note costs one command."""

_LIFE_MS = 12_000
"""Life of a note: longer than the slow looks after which it is written again are apart."""


class Notes:
    """Of one manager.

    Args:
        fleet: The nodes.
        clock: The engine's.
        process: What tells this manager's notes from others'.
    """

    def __init__(self, fleet: Fleet, clock: Callable[[], float], process: bytes) -> None:
        self._fleet = fleet
        self._clock = clock
        self._process = process

    def waiting(self, keys: tuple[bytes, ...], count: int) -> None:
        """Note on one node that so many of this process wait for these keys; nothing is awaited."""
        command = Command(NOTE, tuple(waiting_key(key, self._process) for key in keys), (count, _LIFE_MS))
        Hint(command, self._clock()).send(self._fleet, keys[0])
