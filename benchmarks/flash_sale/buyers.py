"""The crowd: a process that sends HTTP requests over many connections and notes each answer's status and time.

Every connection asks again as soon as it is answered. It reads its task as JSON from `argv[1]`: `port`, `connections`,
`phases`; prints one JSON line when all are connected, then waits for a line on stdin before each phase and prints
one JSON line after it. A phase has `path`, `requests` (how many in all; null: no limit), `seconds` (its end at the latest)
and `patience` (seconds that a buyer waits for an answer before he hangs up).
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from array import array
from typing import Any, Final, cast

__all__ = ["Crowd", "main"]

_SOLD: Final = 201
_SWEEP_SECONDS: Final = 0.02


class Buyer(asyncio.Protocol):
    """One connection, at most one request under way."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.transport: asyncio.Transport | None = None
        self.asked = 0.0
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is none of asyncio's classes.
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.asked:
            self.asked = 0.0
            self.crowd.broke(self)

    def ask(self) -> None:
        """Send the request."""
        assert self.transport is not None
        self.asked = time.perf_counter()
        self.transport.write(self.crowd.request)

    def data_received(self, data: bytes) -> None:
        data = self.buffer + data
        head, end, body = data.partition(b"\r\n\r\n")
        if not end or len(body) < _length(head):
            self.buffer = data
            return
        self.buffer = b""
        asked, self.asked = self.asked, 0.0
        self.crowd.answered(self, int(head[9:12]), asked)

    def hang_up(self) -> None:
        """Close the connection and expect nothing more of it."""
        self.asked = 0.0
        if self.transport is not None:
            self.transport.abort()


class Crowd:
    """All connections and what they saw in one phase.

    Args:
        port: Of the shop, on loopback.
        connections: How many ask at once.
    """

    def __init__(self, port: int, connections: int) -> None:
        self.port = port
        self.connections = connections
        self.buyers: list[Buyer] = []
        self._arriving: set[asyncio.Task[None]] = set()
        self._begin({"path": "/", "requests": 0, "patience": 1.0})

    async def connect(self) -> None:
        """Open the connections, one after the other: so the shop's processes share them."""
        while len(self.buyers) < self.connections:
            await self._arrive()

    async def phase(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Run one phase and return its figures, times in seconds."""
        self._begin(wanted)
        cpu = _cpu_seconds()
        self.open = True
        for buyer in list(self.buyers):
            self._next(buyer)
        while self.open and time.perf_counter() - self.begun < wanted["seconds"]:
            if self.left == 0 and not any(buyer.asked for buyer in self.buyers) and not self._arriving:
                break
            await asyncio.sleep(_SWEEP_SECONDS)
            self._sweep()
        self.open = False
        # All answered: the last answer is the end. Cut off: now is.
        now = time.perf_counter()
        unfinished = [now - buyer.asked for buyer in self.buyers if buyer.asked]
        end = now if unfinished or wanted["requests"] is None else self.last_answer
        for buyer in self.buyers:
            if buyer.asked:
                buyer.hang_up()
        answered = [each for times in self.answers.values() for each in times]
        return {
            "seconds": end - self.begun,
            "sold_within": self.last_sale - self.begun if self.last_sale else 0.0,
            "answers": {str(status): len(times) for status, times in sorted(self.answers.items())},
            "answer": _summary(answered),
            # Who waits in vain is not to improve the figures of those who do not: he counts by how long he has waited.
            "wait": _summary([*answered, *([self.patience] * self.timeouts), *unfinished]),
            "timeouts": self.timeouts,
            "broken": self.broken,
            "unfinished": len(unfinished),
            "cpu_seconds": _cpu_seconds() - cpu,
        }

    def answered(self, buyer: Buyer, status: int, asked: float) -> None:
        """Note an answer; the connection asks again."""
        now = time.perf_counter()
        if not self.open:
            return
        self.last_answer = now
        if status == _SOLD:
            self.last_sale = now
        self.answers.setdefault(status, array("d")).append(now - asked)
        self._next(buyer)

    def broke(self, buyer: Buyer) -> None:
        """Note a connection that the shop closed instead of answering; another buyer comes."""
        if self.open:
            self.broken += 1
            self.last_answer = time.perf_counter()
            self._replace(buyer)

    def _begin(self, wanted: dict[str, Any]) -> None:
        self.request = f"POST {wanted['path']} HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n".encode()
        self.left: int | None = wanted["requests"]
        self.patience: float = wanted["patience"]
        self.answers: dict[int, array[float]] = {}
        self.timeouts = self.broken = 0
        self.last_sale = 0.0
        self.begun = self.last_answer = time.perf_counter()
        self.open = False

    def _next(self, buyer: Buyer) -> None:
        if buyer.transport is None or buyer.transport.is_closing():
            self._replace(buyer)
        elif self.left is None:
            buyer.ask()
        elif self.left > 0:
            self.left -= 1
            buyer.ask()

    def _sweep(self) -> None:
        """Hang up where patience is over."""
        late = time.perf_counter() - self.patience
        for buyer in list(self.buyers):
            if buyer.asked and buyer.asked < late:
                self.timeouts += 1
                self.last_answer = time.perf_counter()
                buyer.hang_up()
                self._replace(buyer)

    def _replace(self, buyer: Buyer) -> None:
        self.buyers.remove(buyer)
        task = asyncio.ensure_future(self._arrive())
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def _arrive(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, buyer = await loop.create_connection(lambda: Buyer(self), "127.0.0.1", self.port)
        except OSError:
            if not self.open:
                raise
            self.broken += 1
            return
        self.buyers.append(buyer)
        if self.open:
            self._next(buyer)


def main() -> None:
    """Run the program."""
    work = _work(json.loads(sys.argv[1]))
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


async def _work(task: dict[str, Any]) -> None:
    crowd = Crowd(task["port"], task["connections"])
    await crowd.connect()
    _say({"connected": len(crowd.buyers)})
    loop = asyncio.get_running_loop()
    for phase in task["phases"]:
        if not await loop.run_in_executor(None, sys.stdin.readline):
            # Whoever started this is gone.
            return
        _say(await crowd.phase(phase))


def _length(head: bytes) -> int:
    """The length of the body.

    Raises:
        ValueError: The answer says it in another way than by Content-Length.
    """
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ValueError(f"an answer without Content-Length: {head[:200]!r}")


def _summary(values: Any) -> dict[str, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    last = len(ordered) - 1
    return {"p50": ordered[last // 2], "p99": ordered[int(last * 0.99)], "max": ordered[last]}


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
