"""Requests about the queues and the marker of a node."""

from __future__ import annotations

from aioredlock_ng._scripts.catalogue import LEAVE, MARKER, STAND, STAND_READ, STAND_SLOTS
from aioredlock_ng._scripts.exclusive_kinds import FENCES, MARKER_KEY
from aioredlock_ng._scripts.requests import Command

__all__ = [
    "leaving",
    "reading_marker",
    "replacing_marker",
    "standing",
    "standing_for_slot",
    "standing_to_read",
]


def standing(
    keys: tuple[bytes, ...], claim: bytes, life_ms: int, kept_ms: int, *, tracked: bool = False
) -> Command:
    """Return the command that puts a waiter in the queue of the first key that it cannot get yet.

    Args:
        keys: The lock's keys, in the order in which every waiter asks for them.
        claim: The waiter's ticket and member; see parts/queue.lua.
        life_ms: Milliseconds for which the queue lives from now on if this waiter is the first.
            Each waiter before this one makes the queue live `2 * life_ms` longer, but at most 15
            waiters count.
        kept_ms: Milliseconds for which the node reserves keys for the waiter, counted from now.
            The node reserves the keys before the one for which the waiter queues. With 0, no key is
            reserved.
        tracked: If True, the node notifies this connection once when one of the keys changes.
    """
    return Command(STAND, keys, (claim, life_ms, kept_ms), tracked=tracked)


def standing_for_slot(
    keys: tuple[bytes, ...], claim: bytes, life_ms: int, *, tracked: bool = False
) -> Command:
    """Return the command that puts a waiter in the queue of a semaphore.

    `keys` are the keys of all slots that the waiter accepts. `standing` describes the other
    arguments.
    """
    return Command(STAND_SLOTS, keys, (claim, life_ms), tracked=tracked)


def standing_to_read(
    keys: tuple[bytes, ...], claim: bytes, life_ms: int, *, tracked: bool = False
) -> Command:
    """Return the command that puts a waiter in the queue of readers.

    `standing` describes the arguments.
    """
    return Command(STAND_READ, keys, (claim, life_ms), tracked=tracked)


def leaving(keys: tuple[bytes, ...], member: bytes, owed_until: float | None = None) -> Command:
    """Return the command that removes a member from the queues.

    `Command` describes `owed_until`. With None, the command is sent only once.
    """
    return Command(LEAVE, keys, (member,), owed_until)


def reading_marker(own_marker: bytes) -> Command:
    """Return the command that reads a node's marker, and makes the server track the marker.

    `own_marker` is 'run_id:guard' with a placeholder in place of the run id. Each connection
    replaces the placeholder by the run id of its server.
    """
    return Command(MARKER, (MARKER_KEY,), (b"read", b"", b"0", own_marker, b""), tracked=True)


def replacing_marker(
    become: bytes, marker: bytes, read_ms: int, own_marker: bytes, nonce: bytes
) -> Command:
    """Return the command that replaces a node's marker, and makes the server track the new marker.

    Args:
        become: The new state: b"trusted", b"waiting" or b"founding".
        marker: The marker as the caller read it, b"" for none. If the marker has changed since
            then, the node keeps its present marker.
        read_ms: The node's time in milliseconds at which the caller read the marker.
        own_marker: The run id and the guard time for the new marker.
        nonce: Distinguishes a founding marker from the founding markers of other managers.
    """
    return Command(
        MARKER, (MARKER_KEY, FENCES), (become, marker, read_ms, own_marker, nonce), tracked=True
    )
