"""Define requests on the doctor's own keys. Each request tests the right to one command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "COMMANDS_IN_SCRIPTS",
    "COMMANDS_OF_LABELS",
    "COMMANDS_OF_QUEUES",
    "COMMANDS_OF_READERS",
]

COMMANDS_IN_SCRIPTS: Final[dict[str, Callable[[bytes, bytes, bytes, int], tuple[Any, ...]]]] = {
    "SET": lambda key, counters, token, ttl: (key, token, "NX", "PX", ttl),
    "GET": lambda key, counters, token, ttl: (key,),
    "MGET": lambda key, counters, token, ttl: (key,),
    "PTTL": lambda key, counters, token, ttl: (key,),
    "PEXPIRE": lambda key, counters, token, ttl: (key, ttl),
    "ZADD": lambda key, counters, token, ttl: (counters, "XX", 1, "0"),
    "ZSCORE": lambda key, counters, token, ttl: (counters, "0"),
    "TIME": lambda key, counters, token, ttl: (),
    "DEL": lambda key, counters, token, ttl: (key, counters),
}
"""Maps each command that the scripts send to a function that returns its arguments.

The refusal of a script names at most one of the forbidden commands. So the doctor also tries each
command by itself. DEL is the last command, so that no key is left.
"""

COMMANDS_OF_QUEUES: Final[dict[str, Callable[[bytes, bytes, int], tuple[Any, ...]]]] = {
    "ZADD": lambda queue, member, ttl: (queue, "XX", 1, member),
    "PEXPIRE": lambda queue, member, ttl: (queue, ttl),
    "ZRANGE": lambda queue, member, ttl: (queue, 0, 0),
    "ZREVRANGE": lambda queue, member, ttl: (queue, 0, 0, "WITHSCORES"),
    "ZRANK": lambda queue, member, ttl: (queue, member),
    "EXISTS": lambda queue, member, ttl: (queue,),
    "ZREM": lambda queue, member, ttl: (queue, member),
    "DEL": lambda queue, member, ttl: (queue,),
}
"""Maps each command that scripts send for a queue to a function that returns its arguments.

If one of these commands is refused, a script continues without it. So only the reply of `leave`
shows a refusal, that of ZREM.
"""

COMMANDS_OF_READERS: Final[dict[str, Callable[[bytes, bytes, int], tuple[Any, ...]]]] = {
    "ZADD": lambda key, entry, ttl: (key, "XX", "GT", 1, entry),
    "ZSCORE": lambda key, entry, ttl: (key, entry),
    "ZREMRANGEBYSCORE": lambda key, entry, ttl: (key, 0, 0),
    "PEXPIREAT": lambda key, entry, ttl: (key, 1),
    "TIME": lambda key, entry, ttl: (),
}
"""Maps each command that scripts send for the key of a read-write lock to its arguments.

ZREM and ZREVRANGE are left out, because `COMMANDS_OF_QUEUES` tests them.
"""

COMMANDS_OF_LABELS: Final[dict[str, Callable[[bytes, bytes, int], tuple[Any, ...]]]] = {
    "SET": lambda label, text, ttl: (label, text, "PX", ttl),
    "GET": lambda label, text, ttl: (label,),
    "MGET": lambda label, text, ttl: (label,),
    "DEL": lambda label, text, ttl: (label,),
}
"""Maps each command that scripts send for a label to a function that returns its arguments.

If SET, GET or MGET is refused, a script continues without it. DEL is the last command, so that no
label is left.
"""
