"""Measure a hand-over between two bare processes, which send only the commands that it needs.

Both processes want one key all the time. Each hand-over takes three commands to each node, as in
the library. The holder reserves the key for the other process and sends it a message. The other
process sets the key once a majority of the nodes has sent this message. The process that released
enters the queue once a majority has confirmed its release. There are no leases, tickets, fences,
timers or clean-up, so no Python client with these three commands can be much faster.

The task has `urls` and `seconds`. The driver prints one line when both processes are connected.
After a line on stdin it measures, and prints the times in seconds from a release to the decision of
the other process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import traceback
from typing import Any
from urllib.parse import urlsplit

import hiredis
import trip_floor

_OFFER = (
    "redis.call('SET', KEYS[1], ARGV[1], 'PX', 1000)"
    " redis.call('PUBLISH', ARGV[1], ARGV[2]) return 1"
)
_TAKE = (
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end"
    " redis.call('SET', KEYS[1], ARGV[2], 'PX', 10000) return 1"
)
_ENTER = (
    "redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])"
    " redis.call('PEXPIRE', KEYS[1], 20000) return redis.call('ZRANK', KEYS[1], ARGV[2])"
)
_KEY, _QUEUE, _NAMES = "floor:hot", "floor:queue", ("floor:a", "floor:b")
_SETTLE_SECONDS = 0.2


class Wire(trip_floor.Wire, asyncio.BufferedProtocol):
    """A connection that also receives messages, and reads into one buffer, as the library does."""

    def __init__(self, notified: Any) -> None:
        super().__init__()
        self._notified = notified
        self._buffer = bytearray(65_536)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self._reader.feed(self._buffer, 0, size)  # type: ignore[arg-type]
        while (reply := self._reader.gets()) is not False:
            if not isinstance(reply, hiredis.PushNotification):
                self.pending.popleft()(reply)
            elif reply[0] == b"message":
                self._notified(reply[2])


class Side:
    """A process that hands the key over to the other process.

    Attributes:
        times: The seconds from each release of the other process to this process's decision.
    """

    def __init__(self, name: str, other: str) -> None:
        self._name, self._other = name, other
        self._wires: list[Wire] = []
        self._shas: dict[str, str] = {}
        self._turn = self._messages = 0
        self.times: list[float] = []

    async def connect(self, urls: list[str]) -> None:
        loop = asyncio.get_running_loop()
        for url in urls:
            at = urlsplit(url)
            _, wire = await loop.create_connection(
                lambda: Wire(self._notified), at.hostname, at.port
            )
            self._wires.append(wire)
        self._quorum = len(urls) // 2 + 1
        trips = trip_floor.Trips([*self._wires])
        await trips.ask("HELLO", "3", of=len(urls))
        for source in (_OFFER, _TAKE, _ENTER):
            sha = await trips.ask("SCRIPT", "LOAD", source, of=len(urls))
            self._shas[source] = sha.decode()
        for wire in self._wires:
            # The confirmation is a push, so no reply is awaited.
            wire.transport.write(hiredis.pack_command(("SUBSCRIBE", self._name)))

    def hand_over(self, turn: int) -> None:
        """Give the key to the other process, and queue again."""
        message = f"{turn} {time.perf_counter()!r}"
        self._ask(self._enter, _OFFER, _KEY, self._other, message)

    def _enter(self) -> None:
        self._ask(lambda: None, _ENTER, _QUEUE, str(self._turn), self._name)

    def _notified(self, message: bytes) -> None:
        turn, released_at = message.split()
        if int(turn) > self._turn:
            self._turn, self._messages = int(turn), 0
        if int(turn) == self._turn:
            self._messages += 1
            if self._messages == self._quorum:
                self._released_at = float(released_at)
                self._ask(self._taken, _TAKE, _KEY, self._name, "token")

    def _taken(self) -> None:
        self.times.append(time.perf_counter() - self._released_at)
        self.hand_over(self._turn + 1)

    def _ask(self, decided: Any, source: str, key: str, *args: str) -> None:
        """Call a script on all nodes, and call `decided` when a majority has answered."""
        missing = self._quorum

        def answered(reply: object) -> None:
            nonlocal missing
            # The message of one node may be so fast that the key is set before the offer of another
            # node. That node refuses.
            if source is _TAKE and not reply:
                return
            missing -= 1
            if not missing:
                decided()

        words = ("EVALSHA", self._shas[source], "1", key, *args)
        command = hiredis.pack_command(words)  # type: ignore[arg-type]
        for wire in self._wires:
            wire.pending.append(answered)
            wire.transport.write(command)


async def _connected(task: dict[str, Any], index: int) -> Side:
    side = Side(_NAMES[index], _NAMES[1 - index])
    await side.connect(task["urls"])
    await asyncio.sleep(_SETTLE_SECONDS)
    return side


async def _second(task: dict[str, Any], told: int, gate: int) -> list[float]:
    """Run the second process until the pipe `gate` ends. Write to `told` when it is connected."""
    side = await _connected(task, 1)
    os.write(told, b"!")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(gate, ended.set)
    await ended.wait()
    return side.times


async def _first(task: dict[str, Any], ready: int, opener: int, results: int) -> None:
    """Run the first process, and print the figures of both."""
    side = await _connected(task, 0)
    if not await asyncio.to_thread(os.read, ready, 1):
        raise SystemExit("the second process has failed")
    trip_floor.say({"ready": True})
    await asyncio.to_thread(sys.stdin.readline)
    side.hand_over(1)
    await asyncio.sleep(task["seconds"])
    own = [*side.times]
    os.close(opener)
    with os.fdopen(results) as pipe:
        times = sorted([*own, *json.load(pipe)])
    trip_floor.say({"hand_overs": len(times), "p50": times[len(times) // 2]})


def main() -> None:
    """Fork the second process, and run both."""
    task = json.loads(sys.argv[1])
    (ready, told), (gate, opener), (results, sent) = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(opener)
        try:
            times = asyncio.run(_second(task, told, gate))
            with os.fdopen(sent, "w") as pipe:
                json.dump(times, pipe)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(told)
    os.close(sent)
    asyncio.run(_first(task, ready, opener, results))
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
