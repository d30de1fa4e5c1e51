"""Decodes each script's reply into a record, in one place before anything else reads it; pure.

A server may be broken, hostile, or no Redis at all. A reply that does not fit its script is no
vote: it becomes a `Garbled`, and what the script did on that node counts as unknown. So no code
above this module meets a list of the wrong length, a number of the wrong type, or nil.

A decoder returns None for a reply that does not fit.

RESP3 has booleans and doubles that Python takes for integers (`True == 1`, `1.0 == 1`): types are
compared exactly. The shapes themselves are described in the header of each Lua file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aioredlock_ng._core.fencing import LATEST_US
from aioredlock_ng._core.inspection import not_a_lock, seconds_left
from aioredlock_ng._core.keys import as_text
from aioredlock_ng._core.replies import (
    ALL_OURS,
    BROKEN_COUNTER,
    FREE,
    GRANTED,
    LEFT,
    Acquired,
    AcquiredEach,
    Fenced,
    ForceReleased,
    Free,
    Granted,
    HandedOverEach,
    Held,
    KeyLook,
    KeyState,
    KeyStates,
    Left,
    Looked,
    MarkerRead,
    Quarantined,
    Refused,
    Released,
    ReleasedEach,
    Repaired,
    Standing,
    Unacknowledged,
    UnknownCommands,
    Whole,
    released,
)
from aioredlock_ng._core.tickets import LARGEST_TICKET, is_offer, seconds_until
from aioredlock_ng._core.votes import Garbled

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._scripts import Request

__all__ = [
    "Call",
    "acquire",
    "acquire_each",
    "acquire_guarded",
    "confirm",
    "extend",
    "force_release",
    "garbled",
    "hand_over_each",
    "inspect",
    "kind_of",
    "leave",
    "marker",
    "release",
    "release_each",
    "repair",
    "stand",
    "unknown_commands",
    "watch",
]

LARGEST = 2**63 - 1
"""The largest integer of RESP. A big number beyond it would overflow a float of seconds."""


_MISSING, _OTHER_TYPE = -2, -3
"""What inspect.lua says in place of a key's remaining milliseconds."""

_STATES = {1: KeyState.OURS, 0: KeyState.MISSING, -1: KeyState.FOREIGN}

_REPAIRED = {1: Repaired.DONE, 0: Repaired.OUTRUN, -1: Repaired.UNTRUSTED}


class Call(Protocol):
    """What a shape needs to know of the command."""

    @property
    def keys(self) -> tuple[bytes, ...]:
        """KEYS of the script."""

    @property
    def args(self) -> tuple[bytes | int, ...]:
        """ARGV of the script."""


def acquire(reply: Any, call: Call) -> Granted | Refused | None:
    """Read 1, or a refusal that names the place of a held key."""
    # First, and without a call: this is nearly every reply.
    if type(reply) is int:
        return GRANTED if reply == 1 else None
    return _refused(reply, len(call.keys))


def acquire_guarded(reply: Any, call: Call) -> Acquired | None:
    """Read 1, a grant with a counter, a refusal, or a quarantine."""
    if type(reply) is int:
        return GRANTED if reply == 1 else None
    if _starts(reply, 2, 2):
        # The fence replaced a lower counter. By a higher one the lease would get a fence above its block.
        asked, fence = call.args[5] == b"1", int(call.args[3] or 0)
        return Fenced(reply[1]) if asked and _is(reply[1], 0, fence - 1) else None
    # The marker and the counters are keys too.
    return _guarded(reply, len(call.keys) - 2)


def acquire_each(reply: Any, call: Call) -> AcquiredEach | None:
    """Read the number of attempts, or up to as many replies of the script for one."""
    own = int(call.args[0])
    calls = len(call.keys) - own
    if type(reply) is int:
        return AcquiredEach((GRANTED,) * calls) if reply == calls else None
    if not _are(reply, calls, None):
        return None
    taken = [_taken(item, guarded=own > 0) for item in reply]
    read = tuple([item for item in taken if item is not None])
    return AcquiredEach(read) if len(read) == len(taken) else None


def hand_over_each(reply: Any, call: Call) -> HandedOverEach | None:
    """Read twice the number of hand-overs, or replies of release and acquire by turns."""
    own = int(call.args[0])
    calls = 2 * (len(call.keys) - own)
    if type(reply) is int:
        return HandedOverEach((released(1), GRANTED) * (calls // 2)) if reply == calls else None
    if not _are(reply, calls, None):
        return None
    parts = [_taken(item, guarded=own > 0) if at % 2 else _given(item) for at, item in enumerate(reply)]
    read = tuple([item for item in parts if item is not None])
    return HandedOverEach(read) if len(read) == len(parts) else None


def release_each(reply: Any, call: Call) -> ReleasedEach | None:
    """Read the number of keys, or up to as many zeros and ones."""
    keys = len(call.keys)
    if type(reply) is int:
        return ReleasedEach((released(1),) * keys) if reply == keys else None
    if not _are(reply, keys, lambda item: _is(item, 0, 1)):
        return None
    return ReleasedEach(tuple(map(released, reply)))


def release(reply: Any, call: Call) -> Released | None:
    """Read how many of the lock's keys were deleted."""
    # One may always be deleted. The keys of a packed call would have to be made first.
    if type(reply) is int and 0 <= reply <= 1:
        return released(reply)
    most = int(call.args[1]) if len(call.args) > 1 else len(call.keys)
    return released(reply) if _is(reply, 0, most) else None


def extend(reply: Any, call: Call) -> Whole | KeyStates | None:
    """Read the number of keys, or for each whether it was renewed."""
    return _per_key(reply, len(call.keys))


def watch(reply: Any, call: Call) -> Whole | KeyStates | None:
    """Read the number of the leases' keys, or for each whether it is ours."""
    keys = len(call.keys)
    return _per_key(reply, keys // 2 if len(call.args) > keys else keys)


def inspect(reply: Any, call: Call) -> Looked | None:
    """Read for each key its remaining time, its token and, if asked for, its label and its queue."""
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


def confirm(reply: Any, _call: Call) -> Granted | Unacknowledged | None:
    """Read 1, or zero with a counter."""
    if type(reply) is int:
        return GRANTED if reply == 1 else None
    return Unacknowledged(reply[1]) if _starts(reply, 2, 0) and _is(reply[1], -LARGEST - 1) else None


def repair(reply: Any, _call: Call) -> Repaired | None:
    """Read -1, 0 or 1."""
    return _REPAIRED[reply] if _is(reply, -1, 1) else None


def force_release(reply: Any, call: Call) -> ForceReleased | None:
    """Read how many keys were deleted."""
    return ForceReleased(reply) if _is(reply, 0, len(call.keys)) else None


def marker(reply: Any, call: Call) -> MarkerRead | None:
    """Read the marker, the node's milliseconds, and a word as long as the one that was sent."""
    if (
        type(reply) is list
        and len(reply) == 3
        and type(reply[0]) is bytes
        and _is(reply[1], 0)
        and type(reply[2]) is bytes
        and len(reply[2]) == len(bytes(call.args[3]))
    ):
        return MarkerRead(*reply)
    return None


def stand(reply: Any, call: Call) -> Standing | None:
    """Read the milliseconds until the node may grant, the place of a key, and a rank."""
    if type(reply) is not list or len(reply) != 3:
        return None
    left, place, rank = reply
    if not (_is(left, -1) and _is(place, 1, len(call.keys)) and _is(rank, -1)):
        return None
    return Standing(seconds_until(left), rank)


def leave(reply: Any, _call: Call) -> Left | None:
    """Read 1."""
    return LEFT if _is(reply, 1, 1) else None


def unknown_commands(reply: Any, _call: Call) -> UnknownCommands | None:
    """Read a list of names."""
    if type(reply) is not list or not all(type(item) is bytes for item in reply):
        return None
    return UnknownCommands(tuple(reply))


def garbled(command: Request, reply: Any) -> Garbled:
    """Return what stands for a reply that does not fit: the words name its kind, and nothing that is in it."""
    return Garbled(f"{command.step} was answered with {kind_of(reply)}, which does not fit it")


def kind_of(reply: Any) -> str:
    """Name the kind of a reply for messages; its contents may be tokens and stored values."""
    if reply is None:
        return "nil"
    if isinstance(reply, (list, dict, set)):
        return f"{type(reply).__name__} of {len(reply)}"
    return type(reply).__name__


def _is(item: Any, least: int, most: int = LARGEST) -> bool:
    return type(item) is int and least <= item <= most


def _starts(reply: Any, length: int, first: int) -> bool:
    return type(reply) is list and len(reply) == length and type(reply[0]) is int and reply[0] == first


def _are(reply: Any, most: int, fits: Callable[[Any], bool] | None) -> bool:
    return type(reply) is list and len(reply) <= most and (fits is None or all(map(fits, reply)))


def _look(item: Any, fewest: int, most: int) -> KeyLook | None:
    if type(item) is not list or not fewest <= len(item) <= most:
        return None
    # A reply without label or queue is filled up. A label that was not asked for is read, too.
    left, value, label, count = [*item, b"", -1][:4] if len(item) == 2 else [*item, -1][:4]
    if not _is(left, -3) or type(value) is not bytes or type(label) is not bytes or not _is(count, -1):
        return None
    waiting = None if count == -1 else count
    if left == _MISSING:
        return FREE if waiting is None else Free(waiting=waiting)
    if left == _OTHER_TYPE:
        return not_a_lock(as_text(value))
    if is_offer(value):
        return Free(seconds_left(left), waiting)
    return Held(seconds_left(left), value, label, waiting)


def _per_key(reply: Any, keys: int) -> Whole | KeyStates | None:
    if type(reply) is int:
        return ALL_OURS if reply == keys else None
    if not _are(reply, keys, lambda item: _is(item, -1, 1)) or len(reply) != keys:
        return None
    if reply.count(1) == keys:
        return ALL_OURS
    return KeyStates(tuple([_STATES[item] for item in reply]))


def _refused(reply: Any, keys: int) -> Refused | None:
    if type(reply) is not list or len(reply) != 4:
        return None
    no, left, place, ticket = reply
    if not (_is(no, 0, 0) and _is(left, -2) and _is(place, 1, keys) and _is(ticket, 0, LARGEST_TICKET)):
        return None
    return Refused(seconds_until(left), place, ticket)


def _guarded(reply: Any, keys: int) -> Acquired | None:
    if _starts(reply, 2, 1):
        # Lua returns a damaged counter of 2**63 or more as a negative number. A counter of 0 is
        # damage too: any fence is above 0, so the node would have acknowledged the fence.
        counter = reply[1]
        if not _is(counter, -LARGEST - 1):
            return None
        return Granted(counter) if 0 < counter <= LATEST_US else BROKEN_COUNTER
    if _starts(reply, 2, -1):
        return Quarantined(seconds_until(reply[1])) if _is(reply[1], -1) else None
    return _refused(reply, keys)


def _taken(item: Any, *, guarded: bool) -> Acquired | None:
    if _is(item, 1, 1):
        return GRANTED
    return _guarded(item, 1) if guarded else _refused(item, 1)


def _given(item: Any) -> Released | None:
    return released(item) if _is(item, 0, 1) else None
