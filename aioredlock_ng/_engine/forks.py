"""After a fork, the child has copies of open managers: everything that they hold is the parent's. It has them let go of it."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet

__all__ = ["Disowning", "lets_go_in_children"]


class Disowning(Protocol):
    """What an open manager has that a child must let go of."""

    def disown(self) -> None:
        """Let go of it."""


_engines: Final[WeakSet[Disowning]] = WeakSet()


def lets_go_in_children(engine: Disowning) -> None:
    """From now on `engine.disown` is called in every process that is forked from this one, before anything else runs there."""
    _engines.add(engine)


def _after_fork() -> None:
    for engine in _engines:
        engine.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
