"""Requests about the queues and the marker of a node. They are the same for all kinds of locks."""

from __future__ import annotations

from aioredlock_ng._scripts.catalogue import LEAVE, MARKER, STAND, STAND_SLOTS
from aioredlock_ng._scripts.kinds import MARKER_KEY
from aioredlock_ng._scripts.requests import Command

__all__ = ["leaving", "reading_marker", "replacing_marker", "standing", "standing_for_slot"]


def standing(
    keys: tuple[bytes, ...], claim: bytes, life_ms: int, kept_ms: int, *, tracked: bool = False
) -> Command:
    """Return the command that puts a waiter in the queue of the first key that it cannot have.

    Args:
        keys: The lock's keys, in the order in which every waiter asks for them.
        claim: The waiter's ticket and member; see parts/queue.lua.
        life_ms: Milliseconds that the queue lives from now on. Each of up to 15 waiters before this
            one adds twice as many.
        kept_ms: For how many milliseconds from now the keys before the one that it queues for are
            reserved for the waiter. 0 reserves none.
        tracked: Ask the node to notify this connection once when one of the keys changes.
    """
    return Command(STAND, keys, (claim, life_ms, kept_ms), tracked=tracked)


def standing_for_slot(
    keys: tuple[bytes, ...], claim: bytes, life_ms: int, *, tracked: bool = False
) -> Command:
    """Return the command that puts a waiter in the queue of a semaphore.

    Args:
        keys: The keys of all slots that the waiter takes.
        claim: The waiter's ticket and member; see parts/queue.lua.
        life_ms: Milliseconds that the queue lives from now on.
        tracked: Ask the node to notify this connection once when one of the keys changes.
    """
    return Command(STAND_SLOTS, keys, (claim, life_ms), tracked=tracked)


def leaving(keys: tuple[bytes, ...], member: bytes) -> Command:
    """Return the command that takes a member out of the queues of these keys."""
    return Command(LEAVE, keys, (member,))


def reading_marker(vouch: bytes) -> Command:
    """Return the command that reads a node's marker and has it tracked.

    Args:
        vouch: The run id of the node and the guard time, 'run_id:guard'. Each connection replaces a
            placeholder by its run id.
    """
    return Command(MARKER, (MARKER_KEY,), (b"read", b"", b"0", vouch, b""), tracked=True)


def replacing_marker(
    become: bytes, marker: bytes, read_ms: int, vouch: bytes, nonce: bytes
) -> Command:
    """Return the command that replaces a node's marker and has the new one tracked.

    Args:
        become: b"trusted", b"waiting" or b"founding".
        marker: The marker as the caller read it, b"" for none. The node keeps its
            marker if it is another one.
        read_ms: The node's time at which the caller read it, in milliseconds.
        vouch: The run id and the guard time that the new marker names.
        nonce: Makes a founding marker unlike those of other managers.
    """
    return Command(MARKER, (MARKER_KEY,), (become, marker, read_ms, vouch, nonce), tracked=True)
