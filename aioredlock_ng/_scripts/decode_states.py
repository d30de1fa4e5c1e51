"""Decoders of the replies about a node: its keys, its queues, its marker and its commands.

A decoder returns None for a reply that does not fit its script. The header of each Lua file
describes its replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.inspection import not_a_lock, seconds_left
from aioredlock_ng._core.keys import as_text
from aioredlock_ng._core.over_mark import without_mark
from aioredlock_ng._core.queue_formats import is_offer, seconds_until
from aioredlock_ng._core.readers import READERS
from aioredlock_ng._core.replies import (
    ALL_OURS,
    FREE,
    LEFT,
    ForceReleased,
    Free,
    Held,
    KeyLook,
    KeyState,
    KeyStates,
    Left,
    Looked,
    MarkerRead,
    Reader,
    ReadLocked,
    Repaired,
    Standing,
    UnknownCommands,
    Whole,
)
from aioredlock_ng._scripts import decoding

if TYPE_CHECKING:
    from aioredlock_ng._scripts.decoding import Call

__all__ = [
    "extend",
    "extend_read",
    "force_release",
    "inspect",
    "leave",
    "marker",
    "repair",
    "stand",
    "stand_slots",
    "unknown_commands",
    "watch",
]

_MISSING, _OTHER_TYPE = -2, -3
"""The remaining times that inspect.lua reports for a missing key, and for a key of another type."""

_READ_ITEMS = 5
"""Number of items that inspect.lua returns for a key held by readers."""

_STATES = {1: KeyState.OURS, 0: KeyState.MISSING, -1: KeyState.FOREIGN}

_REPAIRED = {1: Repaired.DONE, 0: Repaired.OUTRUN, -1: Repaired.UNTRUSTED}


def extend(reply: Any, call: Call) -> Whole | KeyStates | None:
    return _per_key(reply, len(call.keys))


def extend_read(reply: Any, call: Call) -> Whole | KeyStates | None:
    # The last key is the key of the fence counters.
    return _per_key(reply, len(call.keys) - 1)


def watch(reply: Any, call: Call) -> Whole | KeyStates | None:
    keys = len(call.keys)
    return _per_key(reply, keys // 2 if len(call.args) > keys else keys)


def inspect(reply: Any, call: Call) -> Looked | None:
    keys = int(call.args[0]) if call.args else len(call.keys)
    if type(reply) is not list or len(reply) != keys:
        return None
    fewest = 4 if len(call.args) > 1 else 3 if len(call.keys) > keys else 2
    looks = []
    for item in reply:
        look = _look(item, fewest, max(fewest, 3))
        if look is None:
            return None
        looks.append(look)
    return Looked(tuple(looks))


def repair(reply: Any, _call: Call) -> Repaired | None:
    return _REPAIRED[reply] if decoding.is_int(reply, -1, 1) else None


def force_release(reply: Any, call: Call) -> ForceReleased | None:
    most = len(call.keys) * max(1, int(call.args[0]))
    return ForceReleased(reply) if decoding.is_int(reply, 0, most) else None


def stand(reply: Any, call: Call) -> Standing | None:
    if type(reply) is not list or len(reply) not in (3, 4):
        return None
    left, place, rank, *watched = reply
    if not (
        decoding.is_int(left, -1)
        and decoding.is_int(place, 1, len(call.keys))
        and decoding.is_int(rank, -1)
        and watched in ([], [1])
    ):
        return None
    return Standing(seconds_until(left), rank, watched=bool(watched))


def stand_slots(reply: Any, call: Call) -> Standing | None:
    if type(reply) is not list or len(reply) < 2:
        return None
    left, rank, *slots = reply
    if not (
        decoding.is_int(left, -1)
        and decoding.is_int(rank, -1)
        and (left == -1) == (not slots)
        and decoding.are(
            slots, len(call.keys), lambda slot: decoding.is_int(slot, 1, len(call.keys))
        )
    ):
        return None
    return Standing(seconds_until(left), rank, tuple(slots))


def leave(reply: Any, _call: Call) -> Left | None:
    return LEFT if decoding.is_int(reply, 1, 1) else None


def marker(reply: Any, call: Call) -> MarkerRead | None:
    # The call has a placeholder, which each connection replaces by the run id of its server. So the
    # run id in the reply differs from the placeholder, but has the same length.
    if (
        type(reply) is list
        and len(reply) == 3
        and type(reply[0]) is bytes
        and decoding.is_int(reply[1], 0)
        and type(reply[2]) is bytes
        and len(reply[2]) == len(bytes(call.args[3]))
    ):
        return MarkerRead(*reply)
    return None


def unknown_commands(reply: Any, _call: Call) -> UnknownCommands | None:
    if type(reply) is not list or not all(type(item) is bytes for item in reply):
        return None
    return UnknownCommands(tuple(reply))


def _look(item: Any, fewest: int, most: int) -> KeyLook | None:
    if type(item) is not list:
        return None
    if len(item) == _READ_ITEMS:
        return _read_by(item)
    if not fewest <= len(item) <= most:
        return None
    # Complete a reply that lacks a label or a number of waiters. A reply with a label fits even if
    # the call did not ask for labels.
    left, value, label, count = [*item, b"", -1][:4] if len(item) == 2 else [*item, -1][:4]
    if (
        not decoding.is_int(left, -3)
        or type(value) is not bytes
        or type(label) is not bytes
        or not decoding.is_int(count, -1)
    ):
        return None
    waiting = None if count == -1 else count
    if left == _MISSING:
        return FREE if waiting is None else Free(waiting=waiting)
    if left == _OTHER_TYPE:
        return not_a_lock(as_text(value))
    if is_offer(value):
        return Free(seconds_left(left), waiting)
    token, over = without_mark(value)
    return Held(seconds_left(left), token, label, waiting, over)


def _read_by(item: list[Any]) -> ReadLocked | None:
    left, value, _, count, entries = item
    if not (
        decoding.is_int(left, 0)
        and value == READERS
        and decoding.is_int(count, -1)
        and type(entries) is list
        and len(entries) % 3 == 0
    ):
        return None
    readers = []
    for at in range(0, len(entries), 3):
        entry, remaining, label = entries[at : at + 3]
        if not (type(entry) is type(label) is bytes and decoding.is_int(remaining, 0)):
            return None
        readers.append(Reader(seconds_left(remaining), entry, label))
    return ReadLocked(seconds_left(left), tuple(readers), None if count == -1 else count)


def _per_key(reply: Any, keys: int) -> Whole | KeyStates | None:
    if type(reply) is int:
        return ALL_OURS if reply == keys else None
    if (
        not decoding.are(reply, keys, lambda item: decoding.is_int(item, -1, 1))
        or len(reply) != keys
    ):
        return None
    if reply.count(1) == keys:
        return ALL_OURS
    return KeyStates(tuple([_STATES[item] for item in reply]))
