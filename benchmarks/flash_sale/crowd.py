"""Simulate HTTP buyers: many connections that send the next request after each answer.

This module implements a part of HTTP/1.1 only. A request has no body, and an answer has a
Content-Length.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from typing import Any, Final, cast

__all__ = ["Crowd"]

_SOLD: Final = 201
_SWEEP_SECONDS: Final = 0.02
_TRIES: Final = 20


class Buyer(asyncio.Protocol):
    """One connection, with at most one pending request."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.transport: asyncio.Transport | None = None
        self.asked = 0.0
        self.buffer = b""
        self.told: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transport of uvloop is not a subclass of asyncio's class.
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.told is not None and not self.told.done():
            self.told.set_exception(ConnectionResetError("the shop closed the connection"))
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
        if self.told is not None:
            self.told.set_result(head)
            return
        asked, self.asked = self.asked, 0.0
        self.crowd.answered(self, int(head[9:12]), asked)

    async def worker(self) -> bytes:
        """Return the name of the shop's process that has this connection.

        Raises:
            ValueError: The answer has no header X-Worker.
        """
        assert self.transport is not None
        self.told = asyncio.get_running_loop().create_future()
        self.transport.write(_request("/nothing"))
        head = (await self.told).lower() + b"\r\n"
        self.told = None
        _, found, rest = head.partition(b"\r\nx-worker:")
        if not found:
            raise ValueError("the shop does not say which worker answers")
        return rest.partition(b"\r\n")[0].strip()

    def hang_up(self) -> None:
        """Close the connection."""
        self.asked = 0.0
        if self.transport is not None:
            self.transport.abort()


class Crowd:
    """The connections and the figures of one phase.

    Args:
        port: Port of the shop on loopback.
        connections: Number of connections.
    """

    def __init__(self, port: int, connections: int) -> None:
        self.port = port
        self.connections = connections
        self.buyers: list[Buyer] = []
        self._arriving: set[asyncio.Task[None]] = set()
        self._begin({"path": "/", "requests": 0, "patience": 1.0})

    async def connect(self, workers: int = 1) -> None:
        """Open the connections, with equal shares for the shop's processes.

        A load balancer would give equal shares too.

        Args:
            workers: Number of the shop's processes. Each sends its name in the header X-Worker.
        """
        share, seen = -(-self.connections // workers), Counter[bytes]()
        # The kernel decides which process accepts a connection. Connections are opened until the
        # shares are equal, but the number of tries is limited.
        tries = _TRIES * self.connections
        while len(self.buyers) < self.connections:
            await self._arrive()
            if workers > 1 and tries:
                tries -= 1
                worker = await self.buyers[-1].worker()
                seen[worker] += 1
                if seen[worker] > share:
                    seen[worker] -= 1
                    self.buyers.pop().hang_up()

    async def phase(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Run one phase and return its figures, times in seconds.

        Args:
            wanted: `path`, `requests` (the number of requests, None for no limit), `seconds` (the
                longest duration) and `patience` (seconds after which a buyer closes the
                connection).
        """
        self._begin(wanted)
        cpu = time.process_time()
        self.open = True
        for buyer in list(self.buyers):
            self._next(buyer)
        while self.open and time.perf_counter() - self.begun < wanted["seconds"]:
            if (
                self.left == 0
                and not any(buyer.asked for buyer in self.buyers)
                and not self._arriving
            ):
                break
            await asyncio.sleep(_SWEEP_SECONDS)
            self._sweep()
        self.open = False
        # If all requests were answered, the phase ends with the last answer. Else it ends now.
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
            # A buyer without an answer counts with the time of the wait. Otherwise a shop that does
            # not answer would have better figures.
            "wait": _summary([*answered, *([self.patience] * self.timeouts), *unfinished]),
            "timeouts": self.timeouts,
            "broken": self.broken,
            "unfinished": len(unfinished),
            "cpu_seconds": time.process_time() - cpu,
        }

    def answered(self, buyer: Buyer, status: int, asked: float) -> None:
        """Record an answer, and send the next request of the connection."""
        now = time.perf_counter()
        if not self.open:
            return
        self.last_answer = now
        if status == _SOLD:
            self.last_sale = now
        self.answers.setdefault(status, array("d")).append(now - asked)
        self._next(buyer)

    def broke(self, buyer: Buyer) -> None:
        """Record a connection that the shop closed without an answer, and replace the buyer."""
        if self.open:
            self.broken += 1
            self.last_answer = time.perf_counter()
            self._replace(buyer)

    def _begin(self, wanted: dict[str, Any]) -> None:
        self.request = _request(wanted["path"])
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
        """Close the connections of buyers whose patience is over, and replace the buyers."""
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


def _request(path: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n".encode()


def _length(head: bytes) -> int:
    """Return the length of the body.

    Raises:
        ValueError: The answer has no Content-Length.
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
