"""The kinds of locks that have one holder at a time. `reader_kind.py` has the kind for readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioredlock_ng._scripts.catalogue import (
    ACQUIRE,
    ACQUIRE_EACH,
    ACQUIRE_GUARDED,
    CONFIRM,
    EXTEND,
    HAND_OVER_EACH,
    INSPECT,
    RELEASE,
    RELEASE_EACH,
    REPAIR,
    WATCH,
)
from aioredlock_ng._scripts.form import Form
from aioredlock_ng._scripts.lock_kind import FENCES, MARKER_KEY, Labels, LockKind, Mark

if TYPE_CHECKING:
    from aioredlock_ng._scripts.script import Script

__all__ = ["FENCES", "MARKER_KEY", "MUTEX", "Labels", "LockKind", "Mark", "guarded_mutex"]

_RELEASE_ONE = Form(RELEASE, 1, (None, None), RELEASE_EACH)


def _mutex(
    acquire: Script,
    acquire_one: Form,
    *,
    fencing: bool = False,
    own_marker: bytes = b"",
    counters: bytes = FENCES,
) -> LockKind:
    return LockKind(
        acquire=acquire,
        extend=EXTEND,
        watch=WATCH,
        release=RELEASE,
        inspect=INSPECT,
        confirm=CONFIRM,
        repair=REPAIR,
        acquire_one=acquire_one,
        release_one=_RELEASE_ONE,
        fencing=fencing,
        own_marker=own_marker,
        counters=counters,
    )


MUTEX: Final = _mutex(
    ACQUIRE, Form(ACQUIRE, 1, (None, None, None), ACQUIRE_EACH, (b"0", b""), HAND_OVER_EACH)
)
"""The kind with one holder at a time, without fences and without the recovery guard."""


def guarded_mutex(*, fencing: bool, own_marker: bytes, counters: bytes = FENCES) -> LockKind:
    """Return a kind with one holder at a time, with fences or the recovery guard or both.

    `LockKind` describes the arguments.
    """
    words = (None, MARKER_KEY, counters, None, None, own_marker, None, b"", b"", None)
    acquire_one = Form(ACQUIRE_GUARDED, 3, words, ACQUIRE_EACH, (b"2", own_marker), HAND_OVER_EACH)
    return _mutex(
        ACQUIRE_GUARDED,
        acquire_one,
        fencing=fencing,
        own_marker=own_marker,
        counters=counters,
    )
