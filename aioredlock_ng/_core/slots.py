"""Pure decisions about the slots of a semaphore."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from aioredlock_ng._core.keys import MAX_SLOTS
from aioredlock_ng._core.replies import Free, Held, Looked
from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioredlock_ng._core.replies import KeyLook
    from aioredlock_ng._core.votes import Reply

__all__ = ["blocks_itself", "checked_limit", "free_slot", "free_slots", "may_be_free", "soonest"]


def checked_limit(limit: object) -> int:
    """Check the limit that a user gave for a semaphore, and return it.

    Raises:
        ConfigurationError: Raised if the limit is not a whole number from 1 to `MAX_SLOTS`.
    """
    if type(limit) is not int or not 1 <= limit <= MAX_SLOTS:
        raise ConfigurationError(
            f"limit must be a whole number from 1 to {MAX_SLOTS:,}, got {limit!r}"
        )
    return limit


def blocks_itself(wanted: Collection[bytes], held: set[bytes], *, any_one: bool) -> bool:
    """Return True if a client would wait for a release of its own leases.

    Args:
        wanted: The keys of a lock, or of all slots of a semaphore.
        held: The keys of the client's leases.
        any_one: True for a semaphore, where one free key is enough.
    """
    return held.issuperset(wanted) if any_one else not held.isdisjoint(wanted)


def free_slot(taken: Collection[int], recent: Sequence[int], limit: int, draw: float) -> int:
    """Return the slot to try first: the most recently released one, else a random one.

    The slots are numbered from 1. Slots in `taken` are skipped, unless all slots are taken.

    Args:
        taken: The slots that this process holds or asks for.
        recent: The slots that this process has released, the latest one last.
        limit: The limit of the semaphore.
        draw: A random number, uniform in [0, 1).
    """
    for number in reversed(recent):
        if number not in taken:
            return number
    first = int(draw * limit)
    numbers = ((first + offset) % limit + 1 for offset in range(limit))
    return next((number for number in numbers if number not in taken), first + 1)


def free_slots(replies: Sequence[Reply], quorum: int) -> list[int]:
    """Return the slots that are free on a quorum, according to an inspection of all slots."""
    return [number for number, free in enumerate(_free(replies), 1) if free >= quorum]


def may_be_free(replies: Sequence[Reply], quorum: int, pending: int) -> bool:
    """Return True if the missing answers to an inspection may still show a free slot.

    `pending` is the number of these answers.
    Keys of ended attempts and of dead holders can be left on a minority of nodes. So the first
    answers of a quorum may show no free slot, although a slot is free on another quorum.
    """
    return max(_free(replies), default=0) + pending >= quorum


def soonest(replies: Sequence[Reply]) -> float | None:
    """Return the shortest remaining life of a held key on any node, in seconds.

    Return None if no node reported a held key that expires.
    """
    lives = [look.remaining for keys in _looks(replies) for look in keys if type(look) is Held]
    left = min(lives, default=inf)
    return left if left < inf else None


def _free(replies: Sequence[Reply]) -> list[int]:
    """Return for each slot the number of nodes on which the slot is free."""
    return [
        sum(type(look) is Free and look.offered is None for look in slot)
        for slot in zip(*_looks(replies), strict=True)
    ]


def _looks(replies: Sequence[Reply]) -> list[tuple[KeyLook, ...]]:
    return [reply.keys for reply in replies if type(reply) is Looked]
