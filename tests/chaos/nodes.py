"""The nodes of a run, and the faults that the nemesis causes in them past the relay.

Every method blocks for some milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from redis.exceptions import RedisError

from aioredlock_ng.testing import LocalServer, find_server
from tests.support.backends import DockerBackend, version_of
from tests.support.node_set import OWN

from .history import now

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from tests.support.node_set import Node

    _Keys = list[tuple[str, int, str]]

__all__ = ["Nodes"]

MEMORIES: Final = ("none", "always", "everysec", "none", "always")
"""Persistence of each local node: none, or an append-only file.

The file is flushed at each command or each second.
"""

_MEMORY_FOLDER: Final = Path("/dev/shm")

_FILLER: Final = "chaos:fill:"
_PIECES: Final = 64
_PIECE: Final = "x" * 262_144

_BESIDE: Final = (f"{OWN}owner:", f"{OWN}queue:")

_SCAN: Final = """
local time, found = redis.call('TIME'), {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind, left = redis.call('TYPE', key).ok, redis.call('PTTL', key)
  if kind == 'string' then
    found[#found + 1] = {key, left, redis.call('GET', key)}
  elseif kind == 'zset' and string.sub(key, 1, #ARGV[1]) ~= ARGV[1] then
    local entries = redis.call('ZRANGEBYSCORE', key, now, '+inf', 'WITHSCORES')
    for at = 1, #entries, 2 do
      local own = entries[at + 1] - now
      -- An expired entry stays until the key expires, or until the next command of a reader.
      if at == #entries - 1 then own = left < 0 and left or math.max(own, left) end
      found[#found + 1] = {key, own, entries[at]}
    end
    if not entries[1] then found[#found + 1] = {key, left, ''} end
  end
end
return cjson.encode(found)
"""
"""Finds strings, and the entries of readers. The latest entry has the end of its key."""

_DELETE: Final = """
if redis.call('TYPE', KEYS[1]).ok == 'zset' then return redis.call('ZREM', KEYS[1], ARGV[1]) end
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class Nodes:
    """Real servers.

    Args:
        count: The number of servers.
        docker: True: containers, without an append-only file. False: local processes.
    """

    def __init__(self, count: int, *, docker: bool) -> None:
        self._docker = DockerBackend() if docker else None
        self._count = count
        self._nodes: Sequence[Node] = []
        self.memories = ["none"] * count if docker else list(MEMORIES[:count])

    def start(self) -> Self:
        """Start all servers."""
        if self._docker is not None:
            self._nodes = self._docker.start(self._count)
        else:
            with _in_memory():
                self._nodes = [_local(memory).start() for memory in self.memories]
        return self

    def close(self) -> None:
        """Stop all servers, and delete their files."""
        if self._docker is not None:
            self._docker.close()
            return
        for node in self._nodes:
            assert isinstance(node, LocalServer)
            node.close()

    def __len__(self) -> int:
        return self._count

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each server."""
        parts = [urlsplit(node.url) for node in self._nodes]
        return [(part.hostname or "127.0.0.1", part.port or 6379) for part in parts]

    @property
    def version(self) -> str:
        """Name and version of the servers."""
        return self._docker.headline() if self._docker is not None else version_of(find_server())

    def hang(self, index: int) -> None:
        """SIGSTOP."""
        self._nodes[index].pause()

    def wake(self, index: int) -> None:
        """SIGCONT."""
        self._nodes[index].resume()

    def kill(self, index: int) -> None:
        """SIGKILL."""
        self._nodes[index].crash()

    def start_again(self, index: int, *, empty: bool) -> None:
        """Start a killed server again; with `empty`, without its files."""
        node = self._nodes[index]
        if empty and isinstance(node, LocalServer):
            folder = node.socket_path.parent
            shutil.rmtree(folder / "appendonlydir", ignore_errors=True)
            (folder / "appendonly.aof").unlink(missing_ok=True)
        node.start()

    def flush(self, index: int) -> None:
        """FLUSHALL."""
        self._nodes[index].command("FLUSHALL")

    def flush_scripts(self, index: int) -> None:
        """SCRIPT FLUSH."""
        self._nodes[index].command("SCRIPT", "FLUSH")

    def kill_connections(self, index: int) -> None:
        """CLIENT KILL for all connections but this one."""
        self._nodes[index].command("CLIENT", "KILL", "SKIPME", "yes")

    def fill(self, index: int) -> None:
        """Leave no memory, so that every command that needs some is refused (OOM)."""
        node = self._nodes[index]
        used = int(node.info()["used_memory"])
        node.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        node.command("CONFIG", "SET", "maxmemory", str(used + 4 * len(_PIECE)))
        with contextlib.suppress(Exception):
            # Until the server refuses, by the error that its client library has.
            for piece in range(_PIECES):
                node.command("SET", f"{_FILLER}{piece}", _PIECE)
        # Below what is used, so that buffers which are freed make no room.
        node.command("CONFIG", "SET", "maxmemory", str(used))

    def empty_out(self, index: int) -> None:
        """Free the memory again."""
        node = self._nodes[index]
        node.command("CONFIG", "SET", "maxmemory", "0")
        node.command("DEL", *(f"{_FILLER}{piece}" for piece in range(_PIECES)))

    def locks(self, index: int) -> _Keys:
        """Return key, milliseconds left (-1: for ever) and value of every lock on a node.

        A key held by readers occurs once for each of its entries.
        """
        return self._locks_and_labels(index)[0]

    def locks_if_up(self, index: int) -> _Keys | None:
        """Return the same, or None if the node is down or goes down meanwhile."""
        seen = self.locks_and_labels_if_up(index)
        return None if seen is None else seen[0]

    def locks_and_labels_if_up(self, index: int) -> tuple[_Keys, _Keys] | None:
        """Return the locks, and the labels of owners beside them; None if the node is down."""
        try:
            return self._locks_and_labels(index)
        except (OSError, RuntimeError, RedisError):
            return None

    def _locks_and_labels(self, index: int) -> tuple[_Keys, _Keys]:
        found: Any = json.loads(self._nodes[index].command("EVAL", _SCAN, "0", OWN))
        keys = [(key, int(left), value) for key, left, value in found]
        locks = [line for line in keys if not line[0].startswith((OWN, "chaos:"))]
        return locks, [line for line in keys if line[0].startswith(_BESIDE)]

    def delete(
        self, indexes: Sequence[int], name: str, token: str
    ) -> tuple[int, int, dict[int, int]]:
        """Delete a lock's key on several nodes at once, where it has this value or entry.

        The key of readers goes with its last entry.

        Returns:
            The instant just before the first node got the command. The instant at which so many
            nodes had confirmed the deletion that no majority is left; if there was none, the first
            instant again. The number of keys that each node deleted; None for nodes that went away.
        """
        word = _packed("EVAL", _DELETE, "1", name, token)
        addresses = self.addresses
        lines: dict[int, socket.socket] = {}
        deleted: dict[int, int] = {}
        gone: list[int] = []
        with contextlib.ExitStack() as stack, selectors.DefaultSelector() as waiting:
            for index in indexes:
                with contextlib.suppress(OSError):
                    lines[index] = stack.enter_context(
                        socket.create_connection(addresses[index], timeout=2)
                    )
            began = now()
            for index, line in lines.items():
                with contextlib.suppress(OSError):
                    line.sendall(word)
                    waiting.register(line, selectors.EVENT_READ, index)
            while waiting.get_map() and (ready := waiting.select(2)):
                for key, _ in ready:
                    waiting.unregister(key.fileobj)
                    reply = b""
                    with contextlib.suppress(OSError):
                        reply = lines[key.data].recv(64)
                    if reply.startswith(b":"):
                        deleted[key.data] = int(reply[1:])
                        gone += [now()] * deleted[key.data]
        needed = len(gone) - len(addresses) // 2
        return began, gone[needed - 1] if needed > 0 else began, dict(sorted(deleted.items()))


def _local(memory: str) -> LocalServer:
    if memory == "none":
        return LocalServer()
    return LocalServer(["--appendfsync", memory], appendonly=True)


@contextlib.contextmanager
def _in_memory() -> Iterator[None]:
    """Let servers keep their files in memory where the machine has such a folder.

    A killed process leaves the same file there. On a disk, one that flushes each command hangs for
    as long as the disk is busy with what all others write: a fault that nobody would know of.
    """
    before = tempfile.tempdir
    if _MEMORY_FOLDER.is_dir():
        tempfile.tempdir = str(_MEMORY_FOLDER)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _packed(*parts: str) -> bytes:
    encoded = [part.encode() for part in parts]
    return b"*%d\r\n" % len(encoded) + b"".join(
        b"$%d\r\n%s\r\n" % (len(part), part) for part in encoded
    )
