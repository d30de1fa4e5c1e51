"""Keep the objects of one process from other processes.

In a forked child, objects are detached from the parent: from its connections, leases and threads.
Managers and leases refuse to be pickled.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import SupportsIndex

__all__ = ["OfOneProcess", "call_in_children"]

T = TypeVar("T")

_calls: Final[WeakKeyDictionary[Any, Callable[[Any], object]]] = WeakKeyDictionary()


class OfOneProcess:
    """A base class of managers and leases, which cannot be pickled or deep-copied.

    A lock refers to its manager, so it cannot be pickled either.
    """

    __slots__ = ()

    def __copy__(self) -> Self:
        """Return the object itself, because a copy would have the same connections."""
        return self

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        """Refuse to pickle or deep-copy the object."""
        raise TypeError(
            "managers and leases cannot be pickled or deep-copied, because their connections belong"
            " to one process; in this process, share the object itself; give other processes only"
            " plain values, such as URLs, names and fences, and make a Redlock there"
        )


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
