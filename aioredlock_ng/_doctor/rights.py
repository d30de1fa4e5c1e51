"""Define requests that try the right to one command at a time, on the doctor's own keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["COMMANDS_IN_SCRIPTS", "COMMANDS_OF_QUEUES"]

COMMANDS_IN_SCRIPTS: Final[dict[str, Callable[[bytes, bytes, bytes, int], tuple[Any, ...]]]] = {
    "SET": lambda key, counters, token, ttl: (key, token, "NX", "PX", ttl),
    "GET": lambda key, counters, token, ttl: (key,),
    "MGET": lambda key, counters, token, ttl: (key,),
    "PTTL": lambda key, counters, token, ttl: (key,),
    "PEXPIRE": lambda key, counters, token, ttl: (key, ttl),
    "ZADD": lambda key, counters, token, ttl: (counters, 1, "0"),
    "ZSCORE": lambda key, counters, token, ttl: (counters, "0"),
    "TIME": lambda key, counters, token, ttl: (),
    "DEL": lambda key, counters, token, ttl: (key, counters),
}
"""Commands of the scripts, with arguments to try each by itself.

The refusal of a script names one command at most. The order leaves no key behind.
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
"""Commands of the scripts on the key of a queue, without PUBLISH.

Scripts go on without these commands, so they report no refusal.
"""
