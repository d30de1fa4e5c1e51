"""After a fork, the child has copies of open managers: everything that they hold is the parent's. It has them let go of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from aioredlock_ng._engine.engine import Engine

__all__ = ["lets_go_in_children"]

_engines: Final[WeakSet[Engine]] = WeakSet()


def lets_go_in_children(engine: Engine) -> None:
    """From now on `engine.disown` is called in every process that is forked from this one, before anything else runs there."""
    _engines.add(engine)


def _after_fork() -> None:
    for engine in _engines:
        engine.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
