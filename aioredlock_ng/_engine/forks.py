"""Detach the managers in a forked child from the connections and leases of the parent."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet

__all__ = ["Disowning", "lets_go_in_children"]


class Disowning(Protocol):
    """An engine that can be stopped in a forked child."""

    def disown(self) -> None:
        """Stop all activity in a forked child, and send nothing."""


_engines: Final[WeakSet[Disowning]] = WeakSet()


def lets_go_in_children(engine: Disowning) -> None:
    """Call `engine.disown` at the start of each process that is forked from this one."""
    _engines.add(engine)


def _after_fork() -> None:
    for engine in _engines:
        engine.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
