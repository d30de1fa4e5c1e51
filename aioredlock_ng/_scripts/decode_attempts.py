"""Decoders of the replies to acquires, confirmations of fences, releases and hand-overs.

A decoder returns None for a reply that does not fit its script. The header of each Lua file
describes its replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.fencing import LATEST_US
from aioredlock_ng._core.queue_formats import seconds_until
from aioredlock_ng._core.replies import (
    BROKEN_COUNTER,
    GRANTED,
    Acquired,
    AcquiredEach,
    Fenced,
    Granted,
    HandedOverEach,
    Quarantined,
    Refused,
    Released,
    ReleasedEach,
    Unacknowledged,
    released,
)
from aioredlock_ng._core.tickets import LARGEST_TICKET
from aioredlock_ng._scripts import decoding

if TYPE_CHECKING:
    from aioredlock_ng._scripts.decoding import Call

__all__ = [
    "acquire",
    "acquire_each",
    "acquire_guarded",
    "acquire_read",
    "confirm",
    "hand_over_each",
    "release",
    "release_each",
    "release_read",
    "retire",
]


def acquire(reply: Any, call: Call) -> Granted | Refused | None:
    # Nearly every reply is an integer, so this case comes first and calls no function.
    if type(reply) is int:
        return GRANTED if reply == 1 else None
    return _refused(reply, len(call.keys))


def acquire_guarded(reply: Any, call: Call) -> Acquired | None:
    if type(reply) is int:
        return GRANTED if reply == 1 else None
    if decoding.is_pair(reply, 2):
        # A reply whose counter is not below the fence does not fit. With this counter, the lease
        # would get fences of another grant.
        asked, fence = call.args[5] == b"1", int(call.args[3] or 0)
        return Fenced(reply[1]) if asked and decoding.is_int(reply[1], 0, fence - 1) else None
    # The last two keys are the marker and the fence counters.
    return _guarded(reply, len(call.keys) - 2)


def acquire_read(reply: Any, call: Call) -> Acquired | None:
    fenced = call.args[3] != b""
    if type(reply) is int:
        return GRANTED if reply == 1 and not fenced else None
    return None if not fenced and decoding.is_pair(reply, 1) else _guarded(reply, 1)


def acquire_each(reply: Any, call: Call) -> AcquiredEach | None:
    own = int(call.args[0])
    calls = len(call.keys) - own
    if type(reply) is int:
        return AcquiredEach((GRANTED,) * calls) if reply == calls else None
    if not decoding.are(reply, calls, None):
        return None
    taken = [_taken(item, guarded=own > 0) for item in reply]
    read = tuple([item for item in taken if item is not None])
    return AcquiredEach(read) if len(read) == len(taken) else None


def hand_over_each(reply: Any, call: Call) -> HandedOverEach | None:
    own = int(call.args[0])
    calls = 2 * (len(call.keys) - own)
    if type(reply) is int:
        return HandedOverEach((released(1), GRANTED) * (calls // 2)) if reply == calls else None
    if not decoding.are(reply, calls, None):
        return None
    parts = [
        _taken(item, guarded=own > 0) if at % 2 else _given(item) for at, item in enumerate(reply)
    ]
    read = tuple([item for item in parts if item is not None])
    return HandedOverEach(read) if len(read) == len(parts) else None


def release_each(reply: Any, call: Call) -> ReleasedEach | None:
    keys = len(call.keys)
    if type(reply) is int:
        return ReleasedEach((released(1),) * keys) if reply == keys else None
    if not decoding.are(reply, keys, None):
        return None
    read = tuple([item for part in reply if (item := _freed(part)) is not None])
    return ReleasedEach(read) if len(read) == len(reply) else None


def release(reply: Any, call: Call) -> Released | None:
    # A reply of 0 or 1 always fits, so this case needs no `call.keys`. For a command that was made
    # from a `Form`, the keys would have to be built first.
    if type(reply) is int and 0 <= reply <= 1:
        return released(reply)
    most = int(call.args[1]) if len(call.args) > 1 else len(call.keys)
    if most == 1:
        return _freed(reply)
    return released(reply) if decoding.is_int(reply, 0, most) else None


def release_read(reply: Any, _call: Call) -> Released | None:
    return _given(reply)


def retire(reply: Any, call: Call) -> Released | None:
    return released(reply) if decoding.is_int(reply, 0, len(call.keys)) else None


def confirm(reply: Any, _call: Call) -> Granted | Unacknowledged | None:
    if type(reply) is int:
        return GRANTED if reply == 1 else None
    return (
        Unacknowledged(reply[1])
        if decoding.is_pair(reply, 0) and decoding.is_int(reply[1], -decoding.LARGEST - 1)
        else None
    )


def _refused(reply: Any, keys: int) -> Refused | None:
    if type(reply) is not list or len(reply) != 4:
        return None
    no, left, place, ticket = reply
    if not (
        decoding.is_int(no, 0, 0)
        and decoding.is_int(left, -2)
        and decoding.is_int(place, 1, keys)
        and decoding.is_int(ticket, 0, LARGEST_TICKET)
    ):
        return None
    return Refused(seconds_until(left), place, ticket)


def _guarded(reply: Any, keys: int) -> Acquired | None:
    if decoding.is_pair(reply, 1):
        # Lua returns a damaged counter of 2**63 or more as a negative number. A counter of 0 is
        # damage, too, because every fence is above 0 and would have replaced this counter.
        counter = reply[1]
        if not decoding.is_int(counter, -decoding.LARGEST - 1):
            return None
        return Granted(counter) if 0 < counter <= LATEST_US else BROKEN_COUNTER
    if decoding.is_pair(reply, -1):
        return Quarantined(seconds_until(reply[1])) if decoding.is_int(reply[1], -1) else None
    return _refused(reply, keys)


def _taken(item: Any, *, guarded: bool) -> Acquired | None:
    if decoding.is_int(item, 1, 1):
        return GRANTED
    return _guarded(item, 1) if guarded else _refused(item, 1)


def _freed(item: Any) -> Released | None:
    """Read the answer to the release of one key, which may show the highest ticket."""
    if decoding.is_pair(item, 1):
        return Released(1, item[1]) if decoding.is_int(item[1], 0, LARGEST_TICKET) else None
    return _given(item)


def _given(item: Any) -> Released | None:
    return released(item) if decoding.is_int(item, 0, 1) else None
