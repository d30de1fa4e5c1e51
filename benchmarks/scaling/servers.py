"""Measure the CPU time and the memory that the library's commands need on a real server."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.fencing import SLOTS
from aioredlock_ng._scripts.exclusive_kinds import FENCES, MUTEX
from aioredlock_ng.testing import LocalNodes, LocalServer
from aioredlock_ng.testing.binaries import find_server
from benchmarks.scaling.rig import Rig, used
from benchmarks.scaling.wire import Wire, pack
from tests.support.server_versions import at_hand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioredlock_ng._scripts import Command, Script

__all__ = ["measure_batches", "measure_commands", "measure_memory", "measure_pushes"]

_CACHING = pack(("CLIENT", "CACHING", "YES"))


def measure_commands(names: int, rounds: int) -> tuple[dict[str, dict[str, float]], float]:
    """Measure every command, in microseconds of server CPU per lock.

    Args:
        names: Locks per round.
        rounds: Number of rounds. The least value counts, because other work on the machine only
            adds CPU time.

    Returns:
        Three figures per command, and the largest factor by which rounds of one figure differ.
        `script` is the server's own count for the script. `pipelined` contains reading and
        writing, with fifty commands in one packet. `single` has each command in a packet of its
        own, from fifty connections in turn.
    """
    with LocalNodes(1) as nodes, ExitStack() as stack:
        rig = Rig(nodes[0], names)
        wires = [stack.enter_context(Wire(nodes[0].port)) for _ in range(50)]
        stack.callback(rig.wire.close)
        runs: list[dict[str, dict[str, float]]] = []
        for _ in range(rounds):
            pipelined = _round(rig, lambda calls: rig.wire.ask_all(calls, 50))
            single = _round(rig, lambda calls: _in_turn(wires, calls))
            runs.append(
                {
                    name: {
                        "script": usec,
                        "pipelined": pipelined[name][0],
                        "single": single[name][0],
                    }
                    for name, (_, usec) in pipelined.items()
                }
            )
    every = {
        name: {figure: [run[name][figure] for run in runs] for figure in runs[0][name]}
        for name in runs[0]
    }
    spread = max(
        max(values) / min(values) for figures in every.values() for values in figures.values()
    )
    return {
        name: {figure: min(values) for figure, values in figures.items()}
        for name, figures in every.items()
    }, spread


def _in_turn(wires: Sequence[Wire], calls: Sequence[bytes]) -> list[Any]:
    """Send commands with one pending command per connection, as many processes would."""
    replies = []
    for start in range(0, len(calls), len(wires)):
        part = calls[start : start + len(wires)]
        for wire, call in zip(wires, part, strict=False):
            wire.send(call)
        for wire, _ in zip(wires, part, strict=False):
            replies += wire.receive(1)
    return replies


def _round(
    rig: Rig, send: Callable[[Sequence[bytes]], list[Any]]
) -> dict[str, tuple[float, float]]:
    """Run each command once for every lock.

    Return the microseconds of CPU with the network, and of the script alone.
    """
    found = {}
    for name, calls, good in _steps(rig):
        cpu, script = used(rig.server)
        replies = send([call.packed for call in calls])
        cpu_after, script_after = used(rig.server)
        wrong = [reply for call, reply in zip(calls, replies, strict=True) if not good(call, reply)]
        if wrong:
            raise RuntimeError(
                f"{name}: {len(wrong)} of {len(calls)} answered otherwise: {wrong[0]!r}"
            )
        found[name] = ((cpu_after - cpu) * 1e6 / rig.names, (script_after - script) / rig.names)
    return found


def _steps(rig: Rig) -> Iterator[tuple[str, list[Command], Callable[[Command, Any], bool]]]:
    """Yield the commands in order, with a check of the replies.

    Each step runs on the state that the step before has left.
    """

    def one(call: Command, reply: Any) -> bool:
        return bool(reply == 1)

    def every(call: Command, reply: Any) -> bool:
        return bool(reply == len(call.keys))

    rig.wipe()
    fence = time.time_ns() // 1000
    yield "acquire", rig.acquire(b"a" * 32, fence), one
    yield "refused", rig.acquire(b"b" * 32, fence + rig.names), lambda _, reply: reply[0] == 0
    yield "confirm", rig.confirm(b"a" * 32, fence + 3 * rig.names), one
    yield "watch", rig.batches(rig.kind.watch, b"a" * 32), every
    yield "extend", rig.batches(rig.kind.extend, b"a" * 32), every
    yield "release", rig.release(b"a" * 32), one
    yield "repair", rig.repair(b"c" * 32, fence + 4 * rig.names), one
    rig.wipe()
    yield "plain", rig.acquire(b"d" * 32, 0, MUTEX), one


def measure_batches(
    sizes: Sequence[int], names: int, *, all_servers: bool
) -> dict[str, dict[str, dict[str, float]]]:
    """Measure batches of several sizes, in microseconds of CPU per lock.

    The batches run on the default server, or on all versions at hand.
    """
    default = find_server()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for version in at_hand():
        if not all_servers and version.binary != default:
            continue
        with LocalServer(binary=version.binary) as server, ExitStack() as stack:
            rig = Rig(server, names)
            stack.callback(rig.wire.close)
            rig.wire.ask_all(
                [call.packed for call in rig.acquire(b"a" * 32, time.time_ns() // 1000)], 50
            )
            found[version.name] = {
                script.name: {str(size): _batch(rig, script, size) for size in sizes}
                for script in (rig.kind.watch, rig.kind.extend)
            }
    return found


def _batch(rig: Rig, script: Script, size: int) -> float:
    runs = []
    for _ in range(3):
        calls = [call.packed for call in rig.batches(script, b"a" * 32, size)]
        before = used(rig.server)[0]
        rig.wire.ask_all(calls, 4)
        runs.append((used(rig.server)[0] - before) * 1e6 / rig.names)
    return min(runs)


def measure_pushes(watchers: Sequence[int], names: int) -> dict[str, float]:
    """Measure releases that notify many connections, in microseconds of CPU per release."""
    found = {}
    with LocalNodes(1) as nodes, ExitStack() as stack:
        rig = Rig(nodes[0], names)
        stack.callback(rig.wire.close)
        wires: list[Wire] = []
        for count in sorted(watchers):
            wires += [stack.enter_context(Wire(nodes[0].port)) for _ in range(count - len(wires))]
            rig.wipe()
            fence = time.time_ns() // 1000
            rig.wire.ask_all([call.packed for call in rig.acquire(b"a" * 32, fence)], 50)
            for wire in wires:
                # A refused acquire reads the key, so the server tracks the key for this connection.
                wire.ask_all(
                    [
                        part
                        for call in rig.acquire(b"b" * 32, fence)
                        for part in (_CACHING, call.packed)
                    ],
                    50,
                )
                wire.pushes = 0
            before = used(nodes[0])[0]
            # The releases are sent one at a time, because one release wakes many waiters.
            rig.wire.ask_all([call.packed for call in rig.release(b"a" * 32)], 1)
            found[str(count)] = (used(nodes[0])[0] - before) * 1e6 / names
            for wire in wires:
                wire.ask("PING")
                if wire.pushes != names:
                    raise RuntimeError(f"{wire.pushes} pushes for {names} releases")
    return found


def measure_memory(locks: int, connections: int) -> dict[str, float]:
    """Measure the memory of a server in bytes.

    The figures are bytes per lock, per tracked key of a connection, per connection, and for all
    counters.
    """
    with LocalNodes(1) as nodes, ExitStack() as stack:
        server = nodes[0]
        rig = Rig(server, locks)
        stack.callback(rig.wire.close)
        empty = _memory(server)
        fence = time.time_ns() // 1000
        for slot in range(0, SLOTS, 64):
            words = [word for n in range(slot, slot + 64) for word in (fence, n)]
            rig.wire.ask("ZADD", FENCES, *words)
        counters = _memory(server) - empty
        before = _memory(server)
        rig.wire.ask_all([call.packed for call in rig.acquire(b"a" * 32, fence + SLOTS)], 50)
        held = _memory(server) - before
        before = _memory(server)
        rig.wire.ask_all([call.packed for call in rig.batches(rig.kind.watch, b"a" * 32)], 4)
        tracked = _memory(server) - before
        with Wire(server.port) as other:
            before = _memory(server)
            other.ask_all([call.packed for call in rig.acquire(b"b" * 32, fence)], 50)
            again = _memory(server) - before
        rig.wipe()
        before = _memory(server)
        for _ in range(connections):
            stack.enter_context(Wire(server.port)).ask("PING")
        connected = _memory(server) - before
        limit = rig.wire.ask("CONFIG", "GET", "maxclients")
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
