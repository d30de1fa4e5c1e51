"""Detach objects in a forked child from the parent: from its connections, leases and threads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["call_in_children"]

T = TypeVar("T")

_calls: Final[WeakKeyDictionary[Any, Callable[[Any], object]]] = WeakKeyDictionary()


def call_in_children(owner: T, detach: Callable[[T], object]) -> None:
    """Call `detach(owner)` at the start of each process that is forked from this one.

    An object has at most one such function. The registration does not keep the object alive.
    """
    _calls[owner] = detach


def _after_fork() -> None:
    errors = []
    for owner, detach in list(_calls.items()):
        # The error of one object must not leave the other objects attached to the parent.
        try:
            detach(owner)
        except Exception as error:
            errors.append(error)
    if errors:
        # Python prints the error, and the child goes on.
        raise ExceptionGroup("objects could not be detached from the parent process", errors)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
