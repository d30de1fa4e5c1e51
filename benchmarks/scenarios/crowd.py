"""Measure crowds of processes on one lock: the cost of waiting, and of dead and stopped waiters."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng._core.queue_formats import OFFER
from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import Client, labelled
from benchmarks.crowd.cases import OTHERS, SHAPES, chosen
from benchmarks.crowd.figures import (
    Hold,
    Process,
    crowd,
    gaps,
    longest_gap,
    most_inside,
    switches,
    wire_only,
)
from benchmarks.crowd.summary import summarise
from benchmarks.drivers.tracing import traced
from benchmarks.process import Driver, DriverFailed

from . import herd
from .handover import calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.crowd.cases import Shape
    from benchmarks.outcome import Outcome, Settings

__all__ = ["run"]

_DRIVER: Final = "crowd_ours.py"
_FLOOR: Final = Client("floor", "trip_floor.py")
_BARE: Final = Client("bare", "handover_bare.py")
_LONGEST_WAIT_FOR_FIGURES: Final = 20.0

_NAME: Final = "crowd"
# The processes hold the lock for 2 ms.
_LONGER_THAN_A_HOLD: Final = 0.015
# If a killed process held the lock after all, a ttl of 10 s would outlast the window.
_TTL_OF_THE_KILLED: Final = 2.0
_PROCESSES: Final = 12
_KILLED: Final = 3
# The waiter of `woken` sleeps as long before the lock ends.
_PAUSE: Final = 0.03


def run(settings: Settings) -> Outcome:
    """Measure every chosen case. This checkout and the other trees take turns."""
    sources = {"ours": Client("ours", _DRIVER)}
    for path in settings.libraries:
        sources[labelled(path, sources)] = Client("ours", _DRIVER, source=path.resolve())
    names = chosen(settings.cases)
    rows: list[dict[str, Any]] = []
    for number in range(settings.rounds):
        for name in names:
            for code, client in sources.items():
                settings.say(f"crowd: round {number + 1}/{settings.rounds}, {name}, {code}")
                about = {"round": number, "case": name, "code": code, "began": time.time()}
                try:
                    rows.append(about | _measured(settings, name, client, number))
                except DriverFailed as failure:
                    rows.append(about | {"failed": str(failure)})
    return summarise(rows, names, list(sources))


def _measured(settings: Settings, name: str, client: Client, number: int) -> dict[str, Any]:
    if name in SHAPES:
        shape = SHAPES[name]
        return _crowd(settings, client, shape, number % 5 if shape.hung else None)
    assert name in OTHERS
    cases: dict[str, Callable[[Settings, Client], dict[str, Any]]] = {
        "killed": _killed,
        "handover": _handover,
        "woken": _woken,
        "herd": _herd,
    }
    return cases[name](settings, client)


def _warmup(settings: Settings) -> float:
    return settings.seconds(0.5, 0.3)


def _task(
    nodes: LocalNodes | None,
    processes: int,
    waiters: int,
    hold: float,
    seconds: float,
    warmup: float,
) -> dict[str, Any]:
    phase = {"name": "crowd", "same": _NAME, "hold": hold, "seconds": seconds}
    # Processes that starve would be left out if the window waited for their first acquisition.
    phase |= {"open": 0.0, "warmup": warmup, "grace": 0.1}
    return {
        "urls": nodes.urls if nodes is not None else [],
        "processes": processes,
        "coroutines": waiters,
        "ttl": 10.0,
        "phase": phase,
    }


def _started(driver: Driver, processes: int, source: Path | None) -> list[int]:
    """Wait until all processes are ready, and return their process ids.

    Raises:
        DriverFailed: A process is not ready, or imported another tree of the library.
    """
    said = [_line(driver, 30.0) for _ in range(processes)]
    for line in said:
        if source is not None and Path(line["library"]).resolve() != source.resolve():
            raise DriverFailed(f"measures {line['library']} instead of {source}")
    return [line["pid"] for line in said]


def _line(driver: Driver, timeout: float) -> dict[str, Any]:
    line = driver.line(timeout)
    if "failed" in line:
        raise DriverFailed(line["failed"])
    return line


def _figures(driver: Driver, processes: int, seconds: float) -> list[Process]:
    said = [_line(driver, seconds + _LONGEST_WAIT_FOR_FIGURES) for _ in range(processes)]
    return [
        {
            "seconds": line["seconds"],
            "acquired": line["acquired"],
            "acquired_in_all": line["acquired_in_all"],
            "longest_wait": max(line["waiting"], line["wait"]["max"] if line["wait"] else 0.0),
            "leases": line.get("leases", 0),
            "attempts": line.get("attempts", 0),
            "replies": line.get("replies", 0),
            "pushes": line.get("pushes", 0),
            "handoff": line["delay"]["p50"] if line["delay"] else None,
            "errors": line["errors"],
        }
        for line in said
    ]


def _wired(nodes: LocalNodes, hung: int | None = None) -> int:
    """Return the number of commands that certainly came over the wire.

    A hung node is left out, because it does not answer.
    """
    return sum(
        wire_only(node.command("INFO", "commandstats").decode())
        for index, node in enumerate(nodes)
        if index != hung
    )


def _crowd(settings: Settings, client: Client, shape: Shape, hung: int | None) -> dict[str, Any]:
    seconds, warmup = settings.seconds(shape.seconds, shape.quick), _warmup(settings)
    with contextlib.ExitStack() as stack:
        nodes = None if shape.alone else stack.enter_context(LocalNodes(5))
        task = _task(nodes, shape.processes, shape.waiters, shape.hold, seconds, warmup)
        task |= {"alone": shape.alone, "limit": shape.limit}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redlock-")))
        if shape.limit:
            task["phase"]["trace"] = str(folder)
        driver = stack.enter_context(Driver(client.command(), client.variables(), task))
        pids = _started(driver, shape.processes, None if shape.alone else client.source)
        if nodes is not None and hung is not None:
            nodes.pause(hung)
        before = _wired(nodes, hung) if nodes is not None else 0
        driver.begin()
        processes = _figures(driver, shape.processes, seconds)
        served = _wired(nodes, hung) - before if nodes is not None else 0
        # A hold without an end lasts to the end of its process.
        ends = time.perf_counter()
        traces = _traces(folder, pids) if shape.limit else {}
        holds = [(got, left or ends) for mine in traces.values() for got, left in mine]
    answering = 5 if hung is None else 4
    return {
        **crowd(processes, shape.waiters, answering, served),
        "most_inside": most_inside(holds) if shape.limit else None,
        "commands_by_servers": served
        / answering
        / max(1, sum(process["acquired_in_all"] for process in processes)),
        "processes": processes,
    }


def _traces(folder: Path, pids: Iterable[int]) -> dict[int, list[Hold]]:
    return {pid: traced(folder, pid) for pid in pids}


def _token(nodes: LocalNodes) -> bytes:
    """Return the token that a majority of the nodes has for the lock; an empty one if none has."""
    values = Counter(node.command("GET", _NAME) for node in nodes)
    value, count = values.most_common(1)[0]
    return value if count > len(nodes) // 2 and not value.startswith(OFFER) else b""


def _is_granted(nodes: LocalNodes) -> bool:
    """Return True if the lock stays granted for longer than a running process would hold it."""
    token, end = _token(nodes), time.perf_counter() + _LONGER_THAN_A_HOLD
    while token:
        time.sleep(0.001)
        if _token(nodes) != token:
            return False
        if time.perf_counter() >= end:
            return True
    return False


def _stopped(nodes: LocalNodes, folder: Path, pids: Iterable[int], count: int) -> list[int]:
    """Stop `count` processes that wait for the lock, and return their ids.

    A process that holds the lock is resumed. A process that was stopped just after the nodes had
    granted its attempt holds the lock, too.

    Raises:
        DriverFailed: Fewer processes wait.
    """
    stopped: list[int] = []
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        _await_stop(pid)
        holds = traced(folder, pid)
        if (holds and not holds[-1][1]) or _is_granted(nodes):
            os.kill(pid, signal.SIGCONT)
            continue
        stopped.append(pid)
        if len(stopped) == count:
            return stopped
    raise DriverFailed(f"{len(stopped)} processes waited where {count} were to be stopped")


def _await_stop(pid: int) -> None:
    status = Path(f"/proc/{pid}/stat")
    if not status.exists():
        # The state of the process is unknown here, because it is a child of the driver.
        time.sleep(0.005)
        return
    while (
        status.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
        not in "TZ"
    ):
        time.sleep(0.0002)


def _killed(settings: Settings, client: Client) -> dict[str, Any]:
    warmup, before = _warmup(settings), settings.seconds(1.0, 0.5)
    after_kill, after_stop = settings.seconds(2.5, 1.0), settings.seconds(1.2, 0.8)
    seconds = before + after_kill + after_stop + 1.0
    with contextlib.ExitStack() as stack:
        nodes = stack.enter_context(LocalNodes(5))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redlock-")))
        task = _task(nodes, _PROCESSES, 1, 0.002, seconds, warmup)
        task["phase"]["trace"] = str(folder)
        task["ttl"] = _TTL_OF_THE_KILLED
        driver = stack.enter_context(Driver(client.command(), client.variables(), task))
        pids = _started(driver, _PROCESSES, client.source)
        driver.begin()
        time.sleep(warmup)
        quiet = time.perf_counter()
        time.sleep(before)
        killed = time.perf_counter()
        victims = _stopped(nodes, folder, pids, _KILLED)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        time.sleep(after_kill)
        alive = [pid for pid in pids if pid not in victims]
        stopped = time.perf_counter()
        (sleeper,) = _stopped(nodes, folder, alive, 1)
        time.sleep(after_stop)
        resumed = time.perf_counter()
        os.kill(sleeper, signal.SIGCONT)
        time.sleep(0.5)
        end = time.perf_counter()
        processes = _figures(driver, len(alive), seconds)
        traces = _traces(folder, pids)
    # The last hold of a process may have no end. Then only its start is known.
    holds = [(got, left or got) for mine in traces.values() for got, left in mine]
    return {
        "quiet_gap": longest_gap(holds, quiet, killed),
        "killed_gap": longest_gap(holds, killed, stopped),
        "stopped_gap": longest_gap(holds, stopped, resumed),
        "stopped_gaps": sum(gap > 0.05 for gap in gaps(holds, stopped, resumed)),
        "resumed_gap": longest_gap(holds, resumed, end),
        "errors": sum(process["errors"] for process in processes),
    }


def _trip(nodes: LocalNodes, seconds: float, pause: float) -> dict[str, Any]:
    task = {"urls": nodes.urls, "seconds": seconds, "pause": pause}
    with Driver(_FLOOR.command(), _FLOOR.variables(), task) as driver:
        driver.ready()
        return driver.phase(seconds)


def _bare_handover(nodes: LocalNodes, seconds: float) -> float:
    with Driver(
        _BARE.command(), _BARE.variables(), {"urls": nodes.urls, "seconds": seconds}
    ) as driver:
        driver.ready()
        p50: float = driver.phase(seconds)["p50"]
        return p50


def _handover(settings: Settings, client: Client) -> dict[str, Any]:
    seconds, warmup = settings.seconds(1.5, 0.8), _warmup(settings)
    with contextlib.ExitStack() as stack:
        nodes = stack.enter_context(LocalNodes(5))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redlock-")))
        before = _trip(nodes, settings.seconds(0.8, 0.3), 0.0)
        task = _task(nodes, 2, 1, 0.0, seconds, warmup)
        task["phase"]["trace"] = str(folder)
        with Driver(client.command(), client.variables(), task) as driver:
            pids = _started(driver, 2, client.source)
            begun = time.perf_counter()
            driver.begin()
            processes = _figures(driver, 2, seconds)
            traces = _traces(folder, pids)
        bare = _bare_handover(nodes, settings.seconds(0.8, 0.3))
        after = _trip(nodes, settings.seconds(0.8, 0.3), 0.0)
    delays = sorted(switches(traces, begun + warmup))
    # One trip is measured before and one after, because the machine may slow down meanwhile.
    two_trips = before["p50"] + after["p50"]
    p50 = statistics.median(delays) if delays else None
    return {
        "rate": sum(process["acquired"] / process["seconds"] for process in processes),
        "switches": len(delays) / seconds,
        "p50": p50,
        "p99": delays[int((len(delays) - 1) * 0.99)] if delays else None,
        "two_trips": two_trips,
        "ratio": p50 / two_trips if p50 is not None else None,
        "bare": bare,
        "bare_ratio": bare / two_trips,
        "errors": sum(process["errors"] for process in processes),
    }


def _woken(settings: Settings, client: Client) -> dict[str, Any]:
    driver = Client("ours", "wakeup_ours.py", source=client.source)
    cli = shutil.which("redis-cli") or shutil.which("valkey-cli") or ""
    samples, left = int(settings.seconds(30, 15)), int(settings.seconds(10, 5))
    with LocalNodes(5) as nodes:
        floor = _trip(nodes, settings.seconds(1.2, 0.6), _PAUSE)
        task = {"urls": nodes.urls, "samples": samples, "left": left, "cli": cli}
        with Driver(driver.command(), driver.variables(), task) as running:
            running.ready()
            found = running.phase(10.0)
    return {"trip": floor["p50"], **found}


def _herd(settings: Settings, client: Client) -> dict[str, Any]:
    driver = Client("ours", "herd_ours.py", source=client.source)
    # Only calls of scripts are counted, so that the count is the same for commit fc20555.
    return herd.measured(driver, settings.seconds(10.0, 2.0), calls)
