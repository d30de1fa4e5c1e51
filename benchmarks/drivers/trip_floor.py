"""Measure the round trip of a bare client to a quorum of the nodes.

The client sends plain `SET key token NX PX` and a compare-and-delete in turns. The task has `urls`,
`seconds` and `pause` (seconds of sleep before each round trip). The driver prints one line when it
is connected. After a line on stdin it measures, and prints the times.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from typing import Any
from urllib.parse import urlsplit

import hiredis

_DELETE = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
)
_KEY, _TOKEN, _TTL_MS = "floor:trip", "0123456789abcdef0123456789abcdef", "10000"


class Wire(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.pending: deque[Any] = deque()
        self._reader = hiredis.Reader()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self.pending.popleft()(reply)


class Trips:
    """One connection per node."""

    def __init__(self, wires: list[Wire]) -> None:
        self._wires = wires
        self._quorum = len(wires) // 2 + 1

    async def ask(self, *words: str, of: int | None = None) -> Any:
        """Send a command to all nodes, and return the reply that completes `of` of them.

        `of` is a quorum by default.
        """
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        missing = of or self._quorum

        def answered(reply: Any) -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                done.set_result(reply)

        command = hiredis.pack_command(words)  # type: ignore[arg-type]
        for wire in self._wires:
            wire.pending.append(answered)
            wire.transport.write(command)
        return await done


async def _run(task: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    addresses = [urlsplit(url) for url in task["urls"]]
    wires = [(await loop.create_connection(Wire, at.hostname, at.port))[1] for at in addresses]
    trips = Trips(wires)
    sha = (await trips.ask("SCRIPT", "LOAD", _DELETE, of=len(wires))).decode()
    commands = (("SET", _KEY, _TOKEN, "NX", "PX", _TTL_MS), ("EVALSHA", sha, "1", _KEY, _TOKEN))
    say({"ready": True})
    await asyncio.to_thread(sys.stdin.readline)
    times: list[float] = []
    end = time.perf_counter() + task["seconds"]
    while time.perf_counter() < end:
        for command in commands:
            if task["pause"]:
                await asyncio.sleep(task["pause"])
            began = time.perf_counter()
            await trips.ask(*command)
            times.append(time.perf_counter() - began)
    times.sort()
    say(
        {
            "trips": len(times),
            "p50": times[len(times) // 2],
            "p99": times[int((len(times) - 1) * 0.99)],
        }
    )


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_run(json.loads(sys.argv[1])))
