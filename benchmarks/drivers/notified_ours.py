"""Hold a lock while its keys are deleted, and print when the body was cancelled.

The delays are in seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import redis

from aioredlock_ng import LockLost, Redlock

if TYPE_CHECKING:
    from collections.abc import Callable

# Leases are watched from a tenth of a second on.
_HELD_SECONDS = 0.2
_LIVES_SECONDS = 0.2

_MARKER = "aioredlock_ng:marker"


def main() -> None:
    """Delete keys or flush nodes for each sample, and print the delays."""
    asyncio.run(_run(json.loads(sys.argv[1])))


async def _run(task: dict[str, Any]) -> None:
    operators = [redis.Redis.from_url(url, single_connection_client=True) for url in task["urls"]]
    for operator in operators:
        operator.ping()
    connections = [operator.connection for operator in operators]

    def at_once(count: int, *command: str) -> Callable[[], None]:
        def send() -> None:
            packed = [connection.pack_command(*command) for connection in connections[:count]]
            for connection, words in zip(connections[:count], packed, strict=True):
                connection.send_packed_command(words)

        return send

    def answered(count: int) -> None:
        for connection in connections[:count]:
            connection.read_response()

    def found_again(count: int) -> None:
        """Restore the marker of flushed nodes.

        Without the marker each sample would wait for the guard time.
        """
        for operator, marker in zip(operators[:count], markers, strict=False):
            operator.set(_MARKER, marker)

    async with Redlock(task["urls"]) as redlock:
        markers = [operator.get(_MARKER) for operator in operators]
        _say({"ready": True})
        await asyncio.to_thread(sys.stdin.readline)
        delays: dict[str, list[float]] = {"deleted": [], "flushed": []}
        lived = 0
        for number in range(task["samples"]):
            name = f"notified:{number}"
            for way, count, command in (
                ("deleted", 5, ("DEL", name)),
                ("flushed", 3, ("FLUSHALL",)),
            ):
                delay = await _hold(redlock, name, at_once(count, *command), 2.0)
                answered(count)
                if way == "flushed":
                    found_again(count)
                delays[way].append(2.0 if delay is None else delay)
            lived += await _hold(redlock, name, at_once(2, "FLUSHALL"), _LIVES_SECONDS) is None
            answered(2)
            found_again(2)
        _say(delays | {"lived": lived, "of": task["samples"]})


async def _hold(
    redlock: Redlock, name: str, strike: Callable[[], None], then: float
) -> float | None:
    """Return the seconds from the strike to the cancellation of the body.

    Return None if the body was not cancelled.
    """
    delay = None
    try:
        async with redlock.lock(name) as lease:
            await asyncio.sleep(_HELD_SECONDS)
            struck = time.perf_counter()
            strike()
            try:
                await asyncio.sleep(then)
            except asyncio.CancelledError:
                delay = time.perf_counter() - struck
                raise
            await lease.verify()
    except LockLost:
        return then if delay is None else delay
    return delay


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
