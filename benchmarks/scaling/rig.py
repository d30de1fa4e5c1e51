"""Pack the library's commands for one real server, and read their cost from the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.fencing import SLOTS
from aioredlock_ng._engine.keeping.batch import BATCH
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.catalogue import SCRIPTS
from aioredlock_ng._scripts.exclusive_kinds import MARKER_KEY, guarded_mutex
from benchmarks.scaling.wire import Wire

if TYPE_CHECKING:
    from aioredlock_ng._scripts import Script
    from aioredlock_ng._scripts.exclusive_kinds import LockKind
    from aioredlock_ng.testing import LocalServer

__all__ = ["Rig", "used"]

_TTL = 600_000
_GUARD_MS = 60_000


class Rig:
    """One server with a trusted marker, and the commands for it.

    Args:
        server: A running server without other clients.
        names: Number of locks in a round.
    """

    def __init__(self, server: LocalServer, names: int) -> None:
        self.server = server
        self.names = names
        self.wire = Wire(server.port)
        run_id = server.info()["run_id"].encode()
        self.kind = guarded_mutex(fencing=True, own_marker=b"%b:%d" % (run_id, _GUARD_MS))
        for script in SCRIPTS:
            self.wire.ask("SCRIPT", "LOAD", script.source)
        self.wipe()

    def wipe(self) -> None:
        """Delete all locks and counters, and write the marker again."""
        self.wire.ask("FLUSHALL")
        self.wire.ask("SET", MARKER_KEY, self.kind.own_marker)

    def key(self, number: int) -> tuple[bytes, ...]:
        """Return the keys of one lock, with a name of usual length."""
        return (b"orders:%09d" % number,)

    def slot(self, number: int) -> tuple[bytes, ...]:
        """Return the fence counter of one lock. Neighbours have different counters."""
        return (b"%d" % (number % SLOTS),)

    def acquire(self, token: bytes, fence: int, kind: LockKind | None = None) -> list[Command]:
        """Return the first round of an acquire, for each lock."""
        kind = kind or self.kind
        ttl = b"%d" % _TTL
        return [
            kind.acquiring(self.key(n), self.slot(n), token, ttl, fence + n)
            for n in range(self.names)
        ]

    def release(self, token: bytes) -> list[Command]:
        """Return a release of each lock."""
        return [self.kind.releasing(self.key(n), token, 0.0) for n in range(self.names)]

    def confirm(self, token: bytes, fence: int) -> list[Command]:
        """Return the second round of an acquire, for each lock."""
        return [
            self.kind.confirming(self.key(n), self.slot(n), token, fence + n)
            for n in range(self.names)
        ]

    def repair(self, token: bytes, fence: int) -> list[Command]:
        """Return a repair of each lock."""
        return [
            self.kind.repairing_of(self.key(n), self.slot(n), token, _TTL, fence + n)
            for n in range(self.names)
        ]

    def batches(self, script: Script, token: bytes, size: int = BATCH) -> list[Command]:
        """Return renewals or checks, with many locks in one command as the library sends them."""
        calls = []
        first: tuple[int, ...] = (_TTL,) if script is self.kind.extend else ()
        for start in range(0, self.names, size):
            keys = tuple(self.key(n)[0] for n in range(start, min(start + size, self.names)))
            calls.append(Command(script, keys, (*first, *(token,) * len(keys))))
        return calls


def used(server: LocalServer) -> tuple[float, float]:
    """Return the seconds of CPU since the server's start, and the microseconds within scripts."""
    info = server.info()
    fields = dict(
        pair.split("=") for pair in _statistics(server).get("cmdstat_evalsha", "usec=0").split(",")
    )
    return float(info["used_cpu_sys"]) + float(info["used_cpu_user"]), float(fields["usec"])


def _statistics(server: LocalServer) -> dict[str, str]:
    lines = server.command("INFO", "commandstats").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
