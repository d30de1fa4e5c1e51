"""The scripts, one per Lua file, and the names of the server commands that scripts call."""

from __future__ import annotations

from typing import Final

from aioredlock_ng._scripts import decode_attempts, decode_states
from aioredlock_ng._scripts.requests import Command
from aioredlock_ng._scripts.script import Script

__all__ = [
    "ACQUIRE",
    "ACQUIRE_EACH",
    "ACQUIRE_GUARDED",
    "ACQUIRE_READ",
    "CALLED",
    "COMMANDS",
    "CONFIRM",
    "CONFIRM_READ",
    "EXTEND",
    "EXTEND_READ",
    "FORCE_RELEASE",
    "HAND_OVER_EACH",
    "INSPECT",
    "LEAVE",
    "MARKER",
    "OF_QUEUES",
    "OF_READERS",
    "RELEASE",
    "RELEASE_EACH",
    "RELEASE_READ",
    "REPAIR",
    "REPAIR_READ",
    "RETIRE",
    "SCRIPTS",
    "STAND",
    "STAND_READ",
    "STAND_SLOTS",
    "WATCH",
    "WATCH_READ",
    "needed",
]

ACQUIRE: Final = Script("acquire", decode_attempts.acquire)
ACQUIRE_GUARDED: Final = Script("acquire_guarded", decode_attempts.acquire_guarded)
ACQUIRE_EACH: Final = Script("acquire_each", decode_attempts.acquire_each)
RELEASE: Final = Script("release", decode_attempts.release)
RELEASE_EACH: Final = Script("release_each", decode_attempts.release_each)
RETIRE: Final = Script("retire", decode_attempts.retire)
HAND_OVER_EACH: Final = Script("hand_over_each", decode_attempts.hand_over_each)
EXTEND: Final = Script("extend", decode_states.extend)
WATCH: Final = Script("watch", decode_states.watch)
INSPECT: Final = Script("inspect", decode_states.inspect)
CONFIRM: Final = Script("confirm", decode_attempts.confirm)
REPAIR: Final = Script("repair", decode_states.repair)
FORCE_RELEASE: Final = Script("force_release", decode_states.force_release)
MARKER: Final = Script("marker", decode_states.marker)
STAND: Final = Script("stand", decode_states.stand)
STAND_SLOTS: Final = Script("stand_slots", decode_states.stand_slots)
LEAVE: Final = Script("leave", decode_states.leave)
ACQUIRE_READ: Final = Script("acquire_read", decode_attempts.acquire_read)
CONFIRM_READ: Final = Script("confirm_read", decode_attempts.confirm)
RELEASE_READ: Final = Script("release_read", decode_attempts.release_read)
EXTEND_READ: Final = Script("extend_read", decode_states.extend_read)
WATCH_READ: Final = Script("watch_read", decode_states.watch)
REPAIR_READ: Final = Script("repair_read", decode_states.repair)
STAND_READ: Final = Script("stand_read", decode_states.stand)

SCRIPTS: Final = (
    *(ACQUIRE, ACQUIRE_GUARDED, ACQUIRE_EACH, EXTEND, WATCH, RELEASE, RELEASE_EACH, HAND_OVER_EACH),
    *(RETIRE, INSPECT, CONFIRM, REPAIR, FORCE_RELEASE, MARKER, STAND, STAND_SLOTS, LEAVE),
    *(ACQUIRE_READ, CONFIRM_READ, EXTEND_READ, WATCH_READ, RELEASE_READ, REPAIR_READ, STAND_READ),
)
"""The scripts that a new connection loads."""

CALLED: Final = (
    *("SET", "GET", "MGET", "PTTL", "PEXPIRE", "ZADD", "ZSCORE", "TIME", "DEL"),
    *("ZRANGE", "ZREVRANGE", "ZRANK", "ZREM", "EXISTS", "PUBLISH"),
    *("ZREMRANGEBYSCORE", "PEXPIREAT"),
)
"""The commands that scripts call, except PUBSUB and TYPE, which scripts do not need."""

OF_QUEUES: Final = frozenset({"ZRANGE", "ZREVRANGE", "ZRANK", "ZREM", "EXISTS", "PUBLISH"})
"""The commands for queues. Without them, ordinary locks still work, but waiters have no order."""

OF_READERS: Final = frozenset({"ZREMRANGEBYSCORE", "PEXPIREAT"})
"""The commands that only the readers of read-write locks need."""

COMMANDS: Final = Command(
    Script("commands", decode_states.unknown_commands), (), tuple(name.encode() for name in CALLED)
)
"""The request that asks a server which commands of `CALLED` it does not know.

A new connection does not load this script, but sends its source with the call.
"""


def needed(*, fencing: bool, guard: bool) -> tuple[str, ...]:
    """Return the names of the commands that a manager with these settings needs."""
    # The commands for queues are dispensable, because waiting without queues is slower, but equally
    # safe.
    dispensable = (
        OF_QUEUES
        | OF_READERS
        | ({"ZADD", "ZSCORE"} if not fencing else set())
        | ({"TIME"} if not guard else set())
    )
    return tuple(name for name in CALLED if name not in dispensable)
