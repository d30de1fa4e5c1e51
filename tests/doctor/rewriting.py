"""A proxy that changes what a real server says of itself: its clock, its version; the server itself
is as it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from tests.support.proxy import Direction, Proxy

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Rewriting", "RewritingProxy", "clock_of", "version_of"]

_TIME = re.compile(rb"\*2\r\n\$10\r\n(\d{10})\r\n\$\d+\r\n(\d+)\r\n")
_VERSION = re.compile(rb"redis_version:(\d+\.\d+\.\d+)")


class Rewriting(Direction):
    """A `Direction` whose bytes go through `rewrite`, piece by piece."""

    def __init__(self, rewrite: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self._rewrite = rewrite

    async def carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        await super().carry(source, cast("asyncio.StreamWriter", _Sink(sink, self._rewrite)))


class _Sink:
    def __init__(self, sink: asyncio.StreamWriter, rewrite: Callable[[bytes], bytes]) -> None:
        self._sink = sink
        self._rewrite = rewrite

    def write(self, data: bytes) -> None:
        self._sink.write(self._rewrite(data))

    async def drain(self) -> None:
        await self._sink.drain()


class RewritingProxy(Proxy):
    """A `Proxy` whose replies go through `rewrite`; short ones come in one piece."""

    def __init__(self, url: str, rewrite: Callable[[bytes], bytes]) -> None:
        super().__init__(url)
        self.to_client = Rewriting(rewrite)


def clock_of(told: Callable[[float], float]) -> Callable[[bytes], bytes]:
    """Every TIME goes through `told`, in seconds since 1970."""

    def shifted(match: re.Match[bytes]) -> bytes:
        seconds, micros = divmod(round(told(int(match[1]) + int(match[2]) / 1e6) * 1e6), 1_000_000)
        return b"*2\r\n$10\r\n%d\r\n$%d\r\n%d\r\n" % (seconds, len(str(micros)), micros)

    return lambda data: _TIME.sub(shifted, data)


def version_of(told: str) -> Callable[[bytes], bytes]:
    """INFO says that it is this version of Redis, with so many zeros before the last number that
    nothing gets longer.
    """
    head, _, last = told.rpartition(".")

    def older(match: re.Match[bytes]) -> bytes:
        return f"redis_version:{head}.{last.zfill(len(match[1]) - len(head) - 1)}".encode()

    # Valkey goes by another name first.
    return lambda data: _VERSION.sub(older, data).replace(b"server_name:", b"served_name:")
