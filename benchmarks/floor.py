"""Provide the floor, a bare client that shows the highest speed of Python for this protocol.

The floor sends the library's own scripts, one per lock, over one connection per node. It reads
replies with hiredis, and an acquire is done at a quorum. The floor protects nothing. It has no
leases, timeouts, validity, clean-up or reconnects, and it fails at the first error.

The floor saves work in several ways. A command is packed once for all nodes. All commands of one
loop tick leave in one write. A reply needs no task, future or timer, and tokens come from a buffer.
Unlike the library, the floor does not put several requests into one command.

`Bare` is the same client with the commands of the Redlock text. It sends `SET key token NX PX ttl`
and a compare-and-delete script. It has no fences and no recovery guard. No client of the Redlock
algorithm sends less.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit
from zlib import crc32

import hiredis

from aioredlock_ng._scripts.catalogue import ACQUIRE_GUARDED, EXTEND, RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Bare", "Floor"]

_MARKER, _FENCES = "aioredlock_ng:marker", "aioredlock_ng:fences"
_SLOTS = 16_384
# A placeholder of the same length for the run_id of each node.
_RUN_ID = os.urandom(20).hex()
_GUARD = ":60000"

_TOKEN_BYTES = 16
_TOKENS_AT_ONCE = 256

# hiredis ships stubs that know only tuples of one word, and only bytes to feed.
_pack: Callable[[tuple[str | int, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]

_DELETE_OWN = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)

Grant = tuple[str, str]


class _Round:
    """Count the positive answers to one command, and complete the future at a quorum."""

    __slots__ = ("future", "missing", "result", "yes")

    def __init__(
        self, future: asyncio.Future[Grant], quorum: int, result: Grant, yes: object
    ) -> None:
        self.future = future
        self.missing = quorum
        self.result = result
        self.yes = yes

    def answer(self, reply: object) -> None:
        if reply == self.yes:
            self.missing -= 1
            if self.missing == 0 and not self.future.done():
                self.future.set_result(self.result)
        elif isinstance(reply, Exception) and not self.future.done():
            self.future.set_exception(reply)


class _Wire(asyncio.BufferedProtocol):
    """One connection. Replies go to the pending callbacks in the order of the commands."""

    def __init__(self) -> None:
        self._buffer = bytearray(65536)
        self._view = memoryview(self._buffer)
        self._reader = hiredis.Reader()
        self.pending: deque[Callable[[object], object]] = deque()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, size: int) -> None:
        reader, take = self._reader, self.pending.popleft
        reader.feed(self._buffer, 0, size)  # type: ignore[arg-type]
        reply = reader.gets()
        while reply is not False:
            take()(reply)
            reply = reader.gets()


class Floor:
    """Connections to all nodes, and the commands of the current loop tick."""

    def __init__(self, wires: Sequence[_Wire]) -> None:
        self.wires = wires
        self._writes = [wire.transport.write for wire in wires if wire.transport is not None]
        self._pendings = [wire.pending for wire in wires]
        self._run_ids: list[bytes] = []
        self._last = 0
        self._quorum = len(wires) // 2 + 1
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        self._asked: list[Callable[[object], object]] = []
        self._tokens: list[str] = []
        self._acquire_sha = self._release_sha = self._extend_sha = ""

    @classmethod
    async def connect(cls, urls: Iterable[str]) -> Self:
        """Connect to every node and load the scripts.

        Args:
            urls: Plain `redis://host:port` addresses. Other parts of a URL are ignored.
        """
        loop = asyncio.get_running_loop()
        wires = []
        for url in urls:
            parts = urlsplit(url)
            _, wire = await loop.create_connection(
                _Wire, parts.hostname or "127.0.0.1", parts.port or 6379
            )
            wires.append(wire)
        floor = cls(wires)
        await floor._prepare()
        return floor

    def acquire(
        self, key: str, ttl_ms: int, future: asyncio.Future[Grant] | None = None
    ) -> asyncio.Future[Grant]:
        """Ask all nodes for a key with a fresh token.

        Args:
            key: The Redis key.
            ttl_ms: The ttl in milliseconds.
            future: The future to complete and return. None for a new one.

        Returns:
            A future of (key, token), done when a quorum has granted the key. Without a quorum it
            is never done.
        """
        token = self._tokens.pop() if self._tokens else self._fresh()
        self._last = fence = max(self._last + 1, time.time_ns() // 1000)
        slot = crc32(key.encode()) % _SLOTS
        keys = (key, _MARKER, _FENCES)
        args = (token, ttl_ms, _RUN_ID + _GUARD, fence, "", "", slot)
        return self._ask(
            (key, token), ("EVALSHA", self._acquire_sha, len(keys), *keys, *args), future
        )

    def release(self, grant: Grant) -> asyncio.Future[Grant]:
        """Delete a key on all nodes. The future is done when a quorum has deleted the key."""
        return self._ask(grant, ("EVALSHA", self._release_sha, 1, *grant))

    def extend(
        self, grants: Sequence[Grant], ttl_ms: int, answered: Callable[[object], object]
    ) -> None:
        """Renew many leases by one command per node.

        Args:
            grants: The results of `acquire`.
            ttl_ms: The new ttl in milliseconds.
            answered: Callback for the reply of each node.
        """
        words: list[str | int] = ["EVALSHA", self._extend_sha, len(grants)]
        words.extend(key for key, _ in grants)
        words.append(ttl_ms)
        words.extend(token for _, token in grants)
        self._send(_pack(tuple(words)), answered)

    def watch(self, key: str) -> None:
        """Read a key on all nodes, so that they track it for the connections of `listen`."""
        self._send(_pack(("CLIENT", "CACHING", "YES")), id)
        self._send(_pack(("GET", key)), id)

    async def listen(self, wire: _Wire, protocol: asyncio.BufferedProtocol) -> None:
        """Turn on client tracking, and let `protocol` read what the server sends."""
        assert wire.transport is not None
        done: asyncio.Future[object] = self._loop.create_future()
        wire.pending += [id, done.set_result]
        wire.transport.set_protocol(protocol)
        wire.transport.write(
            _pack(("HELLO", "3")) + _pack(("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"))
        )
        await done

    def close(self) -> None:
        """Close the connections."""
        for wire in self.wires:
            if wire.transport is not None:
                wire.transport.close()

    async def _prepare(self) -> None:
        self._run_ids = [await self._found(wire) for wire in self.wires]
        self._acquire_sha = await self._load(ACQUIRE_GUARDED.source.decode())
        self._release_sha = await self._load(RELEASE.source.decode())
        self._extend_sha = await self._load(EXTEND.source.decode())

    def _ask(
        self,
        result: Grant,
        words: tuple[str | int, ...],
        future: asyncio.Future[Grant] | None = None,
        yes: object = 1,
    ) -> asyncio.Future[Grant]:
        future = self._loop.create_future() if future is None else future
        self._send(_pack(words), _Round(future, self._quorum, result, yes).answer)
        return future

    def _send(self, command: bytes, answered: Callable[[object], object]) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(command)
        self._asked.append(answered)

    def _flush(self) -> None:
        for pending, write, data in zip(
            self._pendings, self._writes, self._data(b"".join(self._out)), strict=True
        ):
            pending.extend(self._asked)
            write(data)
        self._out.clear()
        self._asked.clear()

    def _data(self, data: bytes) -> Iterable[bytes]:
        """Return the bytes for each node, with the run id of that node."""
        return [data.replace(_RUN_ID.encode(), run_id) for run_id in self._run_ids]

    def _fresh(self) -> str:
        digits = os.urandom(_TOKEN_BYTES * _TOKENS_AT_ONCE).hex()
        step = 2 * _TOKEN_BYTES
        self._tokens = [digits[start : start + step] for start in range(0, len(digits), step)]
        return self._tokens.pop()

    async def _found(self, wire: _Wire) -> bytes:
        """Return the run id of a node, and write the marker that makes the node trusted."""
        info: asyncio.Future[bytes] = self._loop.create_future()
        done: asyncio.Future[object] = self._loop.create_future()
        assert wire.transport is not None
        wire.pending.append(info.set_result)  # type: ignore[arg-type]
        wire.transport.write(_pack(("INFO", "server")))
        lines = (await info).decode().splitlines()
        run_id = next(line.partition(":")[2] for line in lines if line.startswith("run_id:"))
        wire.pending.append(done.set_result)
        wire.transport.write(_pack(("SET", _MARKER, run_id + _GUARD)))
        await done
        return run_id.encode()

    async def _load(self, source: str) -> str:
        done: asyncio.Future[bytes] = self._loop.create_future()

        def answered(reply: object) -> None:
            assert isinstance(reply, bytes)
            if not done.done():
                done.set_result(reply)

        self._send(_pack(("SCRIPT", "LOAD", source)), answered)
        return (await done).decode()


class Bare(Floor):
    """The floor with plain commands, without fences, recovery guard and renewals."""

    def acquire(
        self, key: str, ttl_ms: int, future: asyncio.Future[Grant] | None = None
    ) -> asyncio.Future[Grant]:
        """Ask all nodes for a key with a fresh token, like `Floor.acquire`."""
        token = self._tokens.pop() if self._tokens else self._fresh()
        return self._ask((key, token), ("SET", key, token, "NX", "PX", ttl_ms), future, b"OK")

    async def _prepare(self) -> None:
        self._release_sha = await self._load(_DELETE_OWN)

    def _data(self, data: bytes) -> Iterable[bytes]:
        return [data] * len(self.wires)
