"""Read the work of Redis servers: commands by name, and CPU time.

A server counts the commands of scripts together with those of clients, in
`total_commands_processed` and in `commandstats`. MONITOR shows which commands belong to scripts,
because it marks them with `lua`. So a server is watched by MONITOR while there is little load.
"""

from __future__ import annotations

import re
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from aioredlock_ng.testing import LocalServer

__all__ = ["Reading", "Watch", "over_the_wire", "read"]

# These are commands of the measurement itself.
_OURS: Final = {"info", "monitor", "ping"}
_SEEN: Final = re.compile(rb'^\+[\d.]+ \[\d+ (\S+)\] "(\w+)"')
# At each connection, the library publishes an empty text, to find out whether it may. All other
# messages come from scripts.
_TRIAL: Final = re.compile(rb'"PUBLISH" "aioredlock_ng:\w+" ""')


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters of one server, or the difference of two readings.

    Attributes:
        calls: Number of calls by command.
        cpu: CPU time in seconds.
    """

    calls: Mapping[str, int]
    cpu: float

    def since(self, before: Reading) -> Reading:
        """Return the difference to an earlier reading."""
        grown = {name: count - before.calls.get(name, 0) for name, count in self.calls.items()}
        return Reading(
            {name: count for name, count in grown.items() if count}, self.cpu - before.cpu
        )

    def sent(self, wire: Container[str] | None) -> int:
        """Return the number of commands that came over the wire.

        Only commands in `wire` count. None means that all commands came over the wire.
        """
        return sum(count for name, count in self.calls.items() if wire is None or name in wire)

    @property
    def all(self) -> int:
        """The number of all commands, with those of scripts."""
        return sum(self.calls.values())


def read(server: LocalServer) -> Reading:
    """Return the counters of a server."""
    info = server.info()
    lines = server.command("INFO", "commandstats").decode().splitlines()
    calls: dict[str, int] = {}
    for line in lines:
        if found := re.match(r"cmdstat_([^:|]+)[^:]*:calls=(\d+)", line):
            calls[found[1]] = calls.get(found[1], 0) + int(found[2])
    for name in _OURS:
        calls.pop(name, None)
    return Reading(calls, float(info["used_cpu_sys"]) + float(info["used_cpu_user"]))


def over_the_wire(watches: Iterable[Watch]) -> set[str] | None:
    """Return the names of commands that clients sent.

    Return None if no script ran, because all commands came over the wire then.
    """
    seen = list(watches)
    return (
        set().union(*(watch.sent for watch in seen)) if any(watch.inner for watch in seen) else None
    )


class Watch:
    """Record every command of a server while the context is open.

    MONITOR slows the server down, so this never runs during a measurement.

    Args:
        path: The server's Unix socket.
    """

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.sent: set[str] = set()
        self.inner: set[str] = set()

    def __enter__(self) -> Self:
        self._socket.sendall(b"MONITOR\r\n")
        assert self._lines.readline() == b"+OK\r\n"
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Output that the server wrote before is read to its end.
        self._socket.shutdown(socket.SHUT_WR)
        self._thread.join(10.0)
        self._lines.close()
        self._socket.close()

    def _look(self) -> None:
        for line in self._lines:
            if _TRIAL.search(line):
                continue
            if (found := _SEEN.match(line)) and (name := found[2].decode().lower()) not in _OURS:
                (self.inner if found[1] == b"lua" else self.sent).add(name)
