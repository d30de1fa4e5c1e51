"""A bar is missed if a part of the measurement did not run, or if calls of ours failed."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest

from benchmarks import __main__ as command
from benchmarks.clients import OURS
from benchmarks.environments import ROOT
from benchmarks.outcome import Outcome, Settings, at_most, lost
from benchmarks.scenarios import SCENARIOS, contention, election, faults, leases, storm
from tests.support.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.once


class _Driver:
    """The methods of a `Driver` that begin and end a process, without a process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def ready(self) -> None:
        return None

    def begin(self) -> None:
        return None


@pytest.mark.parametrize(
    ("failed", "status"),
    [
        ({"client": "ours"}, 1),
        ({"client": "semaphore"}, 1),
        ({"code": "ours"}, 1),
        ({}, 1),
        ({"client": "pottery"}, 0),
        ({"code": "fc20555"}, 0),
    ],
)
def test_a_failed_round_of_ours_fails_the_command(
    failed: dict[str, str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(settings: object) -> Outcome:
        rows = [{"round": 0, "client": "ours"}, {"round": 1, "failed": "ended"} | failed]
        return Outcome("Herd", ("figure",), raw=rows, bars=[at_most("commands", 1.0, 3)])

    monkeypatch.setitem(SCENARIOS, "herd", run)
    options = ["--only", "herd", "--clients", "ours", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["benchmarks", *options])
    assert command.main() == status
    bars: list[dict[str, Any]] = json.loads((tmp_path / "bench.json").read_text())["bars"]
    assert [bar["pass"] for bar in bars] == [True, not status]


@pytest.mark.parametrize(("module", "loop"), [("load", "Loop"), ("line", "Line")])
def test_a_call_that_fails_after_the_end_of_the_window_is_an_error(
    module: str, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Client:
        calls = 0

        async def acquire(self, key: str) -> None:
            self.calls += 1
            if self.calls == 1:
                return
            await asyncio.sleep(3)
            raise OSError("no answer")

        async def release(self, handle: None) -> None:
            await asyncio.sleep(0)

    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "drivers"))
    kind: Any = getattr(importlib.import_module(module), loop)
    names: Any = ["name"] if module == "load" else 1
    phase = {"name": "cycle", "same": "name", "hold": 0.0, "seconds": 2.0}

    async def figures() -> dict[str, Any]:
        found: dict[str, Any] = await kind(Client(), names, phase).run()
        return found

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(figures())["errors"] == 1


def test_a_round_that_was_not_measured_hides_no_failed_calls() -> None:
    rows = [{"errors": 1, "stuck": 2}, {"errors": 0, "stuck": 0}]
    assert lost(rows) == 3
    assert lost([*rows, {"failed": "ended"}]) is None
    assert lost([]) is None


def test_contending_processes_are_measured_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks: list[Any] = []

    class Process(_Driver):
        """A driver. The fourth process is never served."""

        def __init__(self, command: object, variables: object, task: dict[str, Any]) -> None:
            tasks.append(task)
            acquired = 0 if len(tasks) % 4 == 0 else 300
            self._figures = {"acquired": acquired, "turns_least": acquired, "seconds": 1.5}
            self._figures |= {"waiting": 0.1 if acquired else 2.0, "overlaps": 0}
            self._figures |= {"errors": 0, "stuck": 0}

        def line(self, timeout: float) -> dict[str, Any]:
            return self._figures | {"wait": {"max": 0.2} if self._figures["acquired"] else None}

    monkeypatch.setattr(contention, "Driver", Process)
    outcome = contention.run(Settings(1, True, [OURS], lambda _: None))
    assert {task["phases"][0]["open"] for task in tasks} == {0.0}
    assert {row["longest_wait"] for row in outcome.raw} == {2.0}
    assert {row["share_least"] for row in outcome.raw} == {0.0}


def test_a_writer_that_starves_to_the_end_of_the_window_has_a_long_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "drivers"))
    driver = importlib.import_module("rwlock_ours")

    class Lock:
        """A lock that a writer gets at once, and then not before the readers have ended."""

        writes = 0

        def write(self) -> Lock:
            return self

        async def __aenter__(self) -> None:
            self.writes += 1
            await asyncio.sleep(0.0 if self.writes < 3 else 9.0)

        async def __aexit__(self, *_: object) -> None:
            return None

    async def entered() -> Any:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(driver, "time", SimpleNamespace(monotonic=loop.time))
        begins = loop.time()
        return await driver._repeat(Lock(), "write", 0.0, begins, begins + 5.0, every=0.5)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        entries, waits, _ = runner.run(entered())
    assert entries == 2
    assert waits == [0.0, 0.0, 4.0]


def test_candidates_that_have_ended_are_no_quiet_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(election, "_CANDIDATE", "print(1.0)")
    monkeypatch.setattr(election, "_SETTLED", 0.0)
    monkeypatch.setattr(election, "_IDLE_TTL", 0.5)
    with pytest.raises(RuntimeError, match="has ended"):
        election._idle_rate(0.1)


def test_the_longest_stall_of_all_rounds_counts() -> None:
    rows = [
        {
            "steady": {"cpu_share": 0.02, "valid": 10_000},
            "probed": {"longest_stall": stall, "longest_busy": 0.001, "valid": 10_000},
            "connections": [1],
            "keys": [10_000],
        }
        for stall in (0.01, 0.03, 0.01)
    ]
    assert leases._medians("ours", rows)["longest_stall"] == 0.03


def test_a_storm_without_faults_misses_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Process(_Driver):
        def __init__(self, *_: object) -> None:
            return None

        def line(self, timeout: float) -> dict[str, float]:
            zero = dict.fromkeys(("lost", "refused", "repairs", "overlaps", "not_greater"), 0)
            return {"acquired": 5_000, "seconds": 0.5, **zero}

    monkeypatch.setattr(storm, "Driver", Process)
    outcome = storm.run(Settings(1, True, [OURS], lambda _: None))
    assert [bar.text for bar in outcome.bars if not bar.kept] == ["faults in the storm"]


def test_failed_calls_of_python_redis_lock_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    class Lock:
        def __init__(self, *_: object, **__: object) -> None:
            return None

        def acquire(self) -> None:
            failed.set()
            raise OSError("no connection")

    def sleep(seconds: float) -> None:
        assert failed.wait(20)

    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "drivers"))
    monkeypatch.setitem(sys.modules, "redis_lock", SimpleNamespace(Lock=Lock))
    driver = importlib.import_module("drive_python_redis_lock")
    clock = SimpleNamespace(sleep=sleep, perf_counter=time.perf_counter)
    monkeypatch.setattr(driver, "time", clock)
    phase = {"name": "line", "same": "hot", "hold": 0.0, "seconds": 0.1}
    figures = driver._phase(None, {"coroutines": 1, "ttl": 10.0}, phase)
    assert figures["acquired"] == 0
    assert figures["errors"] >= 1
    assert figures["first_error"] == "OSError: no connection"


def test_calls_that_failed_before_the_fault_miss_a_bar() -> None:
    def phase(errors: int) -> dict[str, Any]:
        cycle = {"p50": 0.001, "p99": 0.002, "max": 0.003}
        return {"errors": errors, "stuck": 0, "cycles": 9, "first_error": "", "cycle": cycle}

    rows = [{"round": 0, "healthy": phase(1), "faulty": phase(0)}]
    assert faults._medians(OURS, rows)["lost"] == 1
    assert faults._medians(OURS, [*rows, {"round": 1, "failed": "ended"}])["lost"] is None
