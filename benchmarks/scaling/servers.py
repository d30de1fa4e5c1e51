"""Measured: what each of the library's commands costs a real server in processor time, and what it keeps in memory."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from aioredlock_ng._engine.batch import BATCH
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.kinds import FENCES, MARKER_KEY, MUTEX, SCRIPTS, guarded_mutex
from aioredlock_ng.testing import LocalNodes, LocalServer
from aioredlock_ng.testing.binaries import find_server
from benchmarks.scaling.wire import Wire
from tests.support.server_versions import at_hand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioredlock_ng._scripts import Script
    from aioredlock_ng._scripts.kinds import LockKind

__all__ = ["SLOTS", "measure_batches", "measure_commands", "measure_memory", "measure_pushes"]

SLOTS = 16_384
"""Fence counters of a node at most."""

_TTL = 600_000
_GUARD_MS = 60_000


class Bench:
    """One server with a trusted marker, and what is to be asked of it.

    Args:
        server: Running, and nobody else's.
        names: How many locks a round takes.
    """

    def __init__(self, server: LocalServer, names: int) -> None:
        self.server = server
        self.names = names
        self.wire = Wire(server.port)
        run_id = server.info()["run_id"].encode()
        self.kind = guarded_mutex(fencing=True, vouch=b"%b:%d" % (run_id, _GUARD_MS))
        for script in SCRIPTS:
            self.wire.ask("SCRIPT", "LOAD", script.source)
        self.wipe()

    def wipe(self) -> None:
        """Forget all locks and counters."""
        self.wire.ask("FLUSHALL")
        self.wire.ask("SET", MARKER_KEY, self.kind.vouch)

    def key(self, number: int) -> tuple[bytes, ...]:
        """One lock's keys: a name of usual length."""
        return (b"orders:%09d" % number,)

    def slot(self, number: int) -> tuple[bytes, ...]:
        """One lock's fence counter; neighbours have different ones."""
        return (b"%d" % (number % SLOTS),)

    def acquire(self, token: bytes, fence: int, kind: LockKind | None = None) -> list[Command]:
        """The first round of an acquire, for each lock."""
        kind = kind or self.kind
        ttl = b"%d" % _TTL
        return [kind.acquiring(self.key(n), self.slot(n), token, ttl, fence + n) for n in range(self.names)]

    def release(self, token: bytes) -> list[Command]:
        """A release of each lock."""
        return [self.kind.releasing(self.key(n), token, 0.0) for n in range(self.names)]

    def confirm(self, token: bytes, fence: int) -> list[Command]:
        """The second round of an acquire, for each lock."""
        return [self.kind.confirming(self.key(n), self.slot(n), token, fence + n) for n in range(self.names)]

    def repair(self, token: bytes, fence: int) -> list[Command]:
        """Each lock set again."""
        return [self.kind.repairing_of(self.key(n), self.slot(n), token, _TTL, fence + n) for n in range(self.names)]

    def batches(self, script: Script, token: bytes, size: int = BATCH) -> list[Command]:
        """Renewals or looks, many locks in one command as the library sends them."""
        calls = []
        first: tuple[int, ...] = (_TTL,) if script is self.kind.extend else ()
        for start in range(0, self.names, size):
            keys = tuple(self.key(n)[0] for n in range(start, min(start + size, self.names)))
            calls.append(Command(script, keys, (*first, *(token,) * len(keys))))
        return calls


def measure_commands(names: int, rounds: int) -> tuple[dict[str, dict[str, float]], float]:
    """Measure every command, in microseconds of server CPU per lock.

    Args:
        names: Locks per round.
        rounds: How often; medians are returned.

    Returns:
        Per command: `script`, what the server counts for the script itself; `pipelined`, with reading and writing, fifty
        commands in one packet; `single`, each command in a packet of its own, from fifty connections in turn. And the
        largest factor by which rounds of one figure differ.
    """
    with LocalNodes(1) as nodes, ExitStack() as stack:
        bench = Bench(nodes[0], names)
        wires = [stack.enter_context(Wire(nodes[0].port)) for _ in range(50)]
        stack.callback(bench.wire.close)
        runs: list[dict[str, dict[str, float]]] = []
        for _ in range(rounds):
            pipelined = _round(bench, lambda calls: bench.wire.ask_all(calls, 50))
            single = _round(bench, lambda calls: _in_turn(wires, calls))
            runs.append(
                {
                    name: {"script": usec, "pipelined": pipelined[name][0], "single": single[name][0]}
                    for name, (_, usec) in pipelined.items()
                }
            )
    every = {name: {figure: [run[name][figure] for run in runs] for figure in runs[0][name]} for name in runs[0]}
    spread = max(max(values) / min(values) for figures in every.values() for values in figures.values())
    medians = {
        name: {figure: statistics.median(values) for figure, values in figures.items()} for name, figures in every.items()
    }
    return medians, spread


def _in_turn(wires: Sequence[Wire], calls: Sequence[bytes]) -> list[Any]:
    """Each connection has one command under way, as many processes with one request each."""
    replies = []
    for start in range(0, len(calls), len(wires)):
        part = calls[start : start + len(wires)]
        for wire, call in zip(wires, part, strict=False):
            wire.send(call)
        for wire, _ in zip(wires, part, strict=False):
            replies += wire.receive(1)
    return replies


def _round(bench: Bench, send: Callable[[Sequence[bytes]], list[Any]]) -> dict[str, tuple[float, float]]:
    """Each command once for every lock: microseconds of CPU with the network, and of the script alone."""
    found = {}
    for name, calls, good in _steps(bench):
        cpu, script = _used(bench.server)
        replies = send([call.packed for call in calls])
        cpu_after, script_after = _used(bench.server)
        wrong = [reply for call, reply in zip(calls, replies, strict=True) if not good(call, reply)]
        if wrong:
            raise RuntimeError(f"{name}: {len(wrong)} of {len(calls)} answered otherwise: {wrong[0]!r}")
        found[name] = ((cpu_after - cpu) * 1e6 / bench.names, (script_after - script) / bench.names)
    return found


def _steps(bench: Bench) -> Iterator[tuple[str, list[Command], Callable[[Command, Any], bool]]]:
    """What is asked in turn, each on the state that the one before has left, and how a right answer looks."""
    one: Callable[[Command, Any], bool] = lambda _, reply: reply == 1  # noqa: E731
    every: Callable[[Command, Any], bool] = lambda call, reply: reply == len(call.keys)  # noqa: E731
    bench.wipe()
    fence = time.time_ns() // 1000
    yield "acquire", bench.acquire(b"a" * 32, fence), one
    yield "refused", bench.acquire(b"b" * 32, fence + bench.names), lambda _, reply: reply[0] == 0
    yield "confirm", bench.confirm(b"a" * 32, fence + 3 * bench.names), one
    yield "watch", bench.batches(bench.kind.watch, b"a" * 32), every
    yield "extend", bench.batches(bench.kind.extend, b"a" * 32), every
    yield "release", bench.release(b"a" * 32), one
    yield "repair", bench.repair(b"c" * 32, fence + 4 * bench.names), one
    bench.wipe()
    yield "plain", bench.acquire(b"d" * 32, 0, MUTEX), one


def _used(server: LocalServer) -> tuple[float, float]:
    """Seconds of CPU since its start, and microseconds within scripts."""
    info = server.info()
    fields = dict(pair.split("=") for pair in _statistics(server).get("cmdstat_evalsha", "usec=0").split(","))
    return float(info["used_cpu_sys"]) + float(info["used_cpu_user"]), float(fields["usec"])


def _statistics(server: LocalServer) -> dict[str, str]:
    lines = server.command("INFO", "commandstats").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def measure_batches(sizes: Sequence[int], names: int, *, all_servers: bool) -> dict[str, dict[str, dict[str, float]]]:
    """Measure batches of several sizes, on the default server or on all versions at hand: microseconds of CPU per lock."""
    default = find_server()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for version in at_hand():
        if not all_servers and version.binary != default:
            continue
        with LocalServer(binary=version.binary) as server, ExitStack() as stack:
            bench = Bench(server, names)
            stack.callback(bench.wire.close)
            bench.wire.ask_all([call.packed for call in bench.acquire(b"a" * 32, time.time_ns() // 1000)], 50)
            found[version.name] = {
                script.name: {str(size): _batch(bench, script, size) for size in sizes}
                for script in (bench.kind.watch, bench.kind.extend)
            }
    return found


def _batch(bench: Bench, script: Script, size: int) -> float:
    runs = []
    for _ in range(3):
        calls = [call.packed for call in bench.batches(script, b"a" * 32, size)]
        before = _used(bench.server)[0]
        bench.wire.ask_all(calls, 4)
        runs.append((_used(bench.server)[0] - before) * 1e6 / bench.names)
    return statistics.median(runs)


def measure_pushes(watchers: Sequence[int], names: int) -> dict[str, float]:
    """Measure what a release costs that so many connections want to hear of: microseconds of server CPU per release."""
    found = {}
    with LocalNodes(1) as nodes, ExitStack() as stack:
        bench = Bench(nodes[0], names)
        stack.callback(bench.wire.close)
        wires: list[Wire] = []
        for count in sorted(watchers):
            wires += [stack.enter_context(Wire(nodes[0].port)) for _ in range(count - len(wires))]
            bench.wipe()
            fence = time.time_ns() // 1000
            bench.wire.ask_all([call.packed for call in bench.acquire(b"a" * 32, fence)], 50)
            for wire in wires:
                wire.ask_all([call.packed for call in bench.acquire(b"b" * 32, fence)], 50)
                wire.pushes = 0
            before = _used(nodes[0])[0]
            # One at a time: a herd is woken by one release.
            bench.wire.ask_all([call.packed for call in bench.release(b"a" * 32)], 1)
            found[str(count)] = (_used(nodes[0])[0] - before) * 1e6 / names
            for wire in wires:
                wire.ask("PING")
                if wire.pushes != names:
                    raise RuntimeError(f"{wire.pushes} pushes for {names} releases")
    return found


def measure_memory(locks: int, connections: int) -> dict[str, float]:
    """Measure what a server keeps: bytes per lock, per tracked key of a connection, per connection, and for all counters."""
    with LocalNodes(1) as nodes, ExitStack() as stack:
        server = nodes[0]
        bench = Bench(server, locks)
        stack.callback(bench.wire.close)
        empty = _memory(server)
        fence = time.time_ns() // 1000
        for slot in range(0, SLOTS, 64):
            words = [word for n in range(slot, slot + 64) for word in (fence, n)]
            bench.wire.ask("ZADD", FENCES, *words)
        counters = _memory(server) - empty
        before = _memory(server)
        bench.wire.ask_all([call.packed for call in bench.acquire(b"a" * 32, fence + SLOTS)], 50)
        held = _memory(server) - before
        before = _memory(server)
        bench.wire.ask_all([call.packed for call in bench.batches(bench.kind.watch, b"a" * 32)], 4)
        tracked = _memory(server) - before
        with Wire(server.port) as other:
            before = _memory(server)
            other.ask_all([call.packed for call in bench.acquire(b"b" * 32, fence)], 50)
            again = _memory(server) - before
        bench.wipe()
        before = _memory(server)
        for _ in range(connections):
            stack.enter_context(Wire(server.port)).ask("PING")
        connected = _memory(server) - before
        limit = bench.wire.ask("CONFIG", "GET", "maxclients")
    return {
        "empty": empty,
        "counters": counters,
        "lock": held / locks,
        "tracked": tracked / locks,
        "tracked_again": again / locks,
        "connection": connected / connections,
        "maxclients": float(limit[b"maxclients"]),
    }


def _memory(server: LocalServer) -> float:
    return float(server.info()["used_memory"])
