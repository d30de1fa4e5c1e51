"""Tells people who has waited for a lock for a while, by a note on one node; nothing is ever decided by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.owners import waiting_key
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.kinds import NOTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
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
        index = self._fleet.lead(keys[0])
        if index is not None:
            command = Command(NOTE, tuple(waiting_key(key, self._process) for key in keys), (count, _LIFE_MS))
            self._fleet.nodes[index].ask(_Note(command, self._clock()), index)


class _Note:
    """See `Sink`: whoever writes it does not wait for an answer."""

    __slots__ = ("command", "started")

    def __init__(self, command: Command, started: float) -> None:
        self.command = command
        self.started = started

    def stands(self) -> bool:
        """See `Sink.stands`: to be sent again where the server did not know the script."""
        return True

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
