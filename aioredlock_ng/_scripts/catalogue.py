"""The scripts, one per Lua file, and the names of the server commands that scripts call."""

from __future__ import annotations

from typing import Final

from aioredlock_ng._scripts import attempt_replies, state_replies
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

ACQUIRE: Final = Script("acquire", attempt_replies.acquire)
ACQUIRE_GUARDED: Final = Script("acquire_guarded", attempt_replies.acquire_guarded)
ACQUIRE_EACH: Final = Script("acquire_each", attempt_replies.acquire_each)
RELEASE: Final = Script("release", attempt_replies.release)
RELEASE_EACH: Final = Script("release_each", attempt_replies.release_each)
RETIRE: Final = Script("retire", attempt_replies.retire)
HAND_OVER_EACH: Final = Script("hand_over_each", attempt_replies.hand_over_each)
EXTEND: Final = Script("extend", state_replies.extend)
WATCH: Final = Script("watch", state_replies.watch)
INSPECT: Final = Script("inspect", state_replies.inspect)
CONFIRM: Final = Script("confirm", attempt_replies.confirm)
REPAIR: Final = Script("repair", state_replies.repair)
FORCE_RELEASE: Final = Script("force_release", state_replies.force_release)
MARKER: Final = Script("marker", state_replies.marker)
STAND: Final = Script("stand", state_replies.stand)
STAND_SLOTS: Final = Script("stand_slots", state_replies.stand_slots)
LEAVE: Final = Script("leave", state_replies.leave)
ACQUIRE_READ: Final = Script("acquire_read", attempt_replies.acquire_read)
CONFIRM_READ: Final = Script("confirm_read", attempt_replies.confirm)
RELEASE_READ: Final = Script("release_read", attempt_replies.release_read)
EXTEND_READ: Final = Script("extend_read", state_replies.extend_read)
WATCH_READ: Final = Script("watch_read", state_replies.watch)
REPAIR_READ: Final = Script("repair_read", state_replies.repair)
STAND_READ: Final = Script("stand_read", state_replies.stand)

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
"""The commands that scripts call, except TYPE, which they can do without."""

OF_QUEUES: Final = frozenset({"ZRANGE", "ZREVRANGE", "ZRANK", "ZREM", "EXISTS", "PUBLISH"})
"""The commands without which ordinary locks still work, but waiters have no order."""

OF_READERS: Final = frozenset({"ZREMRANGEBYSCORE", "PEXPIREAT"})
"""The commands that only the readers of read-write locks need."""

COMMANDS: Final = Command(
    Script("commands", state_replies.unknown_commands), (), tuple(name.encode() for name in CALLED)
)
"""The request for the commands of `CALLED` that the server does not know.

A new connection does not load this script, but sends its source with the call.
"""


def needed(*, fencing: bool, guard: bool) -> tuple[str, ...]:
    """Return the names of the commands that a manager with these settings cannot do without."""
    # Without queues, waiting is slower, but equally safe.
    dispensable = (
        OF_QUEUES
        | OF_READERS
        | ({"ZADD", "ZSCORE"} if not fencing else set())
        | ({"TIME"} if not guard else set())
    )
    return tuple(name for name in CALLED if name not in dispensable)
