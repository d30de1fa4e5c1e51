"""The options of managers and locks for threads, as a type checker sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

import aioredlock_ng

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from aioredlock_ng.events import EventSink
    from aioredlock_ng.sync._lock import OnLost

__all__ = ["ElectionOptions", "GuardOptions", "LockOptions", "RWLockOptions", "RedlockOptions"]


class RedlockOptions(TypedDict, total=False):
    """The options of `aioredlock_ng.Redlock`, with the same meaning and defaults."""

    ttl: float
    node_timeout: float
    drift_factor: float
    min_validity: float | None
    key_format: str
    max_ttl: float
    connect_timeout: float
    close_timeout: float
    fencing: bool
    recovery_guard: Literal["auto", "strict"] | None
    owner: str | bool
    sinks: Iterable[EventSink]
    clock: Callable[[], float]
    wall_clock: Callable[[], float] | None
    rng: random.Random | None


class _CommonOptions(TypedDict, total=False):
    ttl: float | None
    blocking_timeout: float | None
    auto_extend: bool
    max_hold: float | None
    on_lost: OnLost | None
    fail_fast: bool


class RWLockOptions(_CommonOptions, total=False):
    """The options of `Redlock.rwlock`."""

    owner: str | None


class LockOptions(RWLockOptions, total=False):
    """The options of `Redlock.lock`: those of `Redlock.rwlock`, and two more."""

    fair: bool
    min_hold: float | None


class GuardOptions(_CommonOptions, total=False):
    """The options of `Redlock.guard` for the locks that the calls of the function acquire.

    `owner` is a text with placeholders, or a function; see `aioredlock_ng.guarded.GuardOptions`.
    """

    fair: bool
    min_hold: float | None
    owner: str | Callable[..., str | None] | None


class ElectionOptions(aioredlock_ng.ElectionOptions, total=False):
    """Arguments of `Redlock.election` besides the name.

    The arguments are those of `aioredlock_ng.Redlock.election`, and one more.

    Attributes:
        on_lost: A function that takes the leader's lease. The function is called when the body of a
            term must end, at most once per term, in a thread made for the call. A resignation by
            the body itself does not call the function. None: no function.
    """

    on_lost: OnLost | None
