"""The command runs with two processes, measures other code, and leaves no process behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.clients import Client
from benchmarks.environments import ROOT
from benchmarks.process import Driver
from tests.support.coverage import untraced
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer

pytestmark = pytest.mark.once


def crowd(folder: Path, *options: str) -> dict[str, Any]:
    """Run the command; return what it has written about crowds."""
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "--only",
        "crowd",
        "--quick",
        "--rounds",
        "1",
        "--out",
        str(folder),
        *options,
    ]
    # Bars may be missed on a busy machine; a traceback is another status.
    # A copy of the package in another folder would count as code that no test runs.
    done = subprocess.run(
        command, cwd=ROOT, env=untraced(), capture_output=True, text=True, check=False, timeout=200
    )
    assert (folder / "quick.json").exists(), done.stderr
    found: dict[str, Any] = json.loads((folder / "quick.json").read_text(encoding="utf-8"))[
        "scenarios"
    ]["crowd"]
    return found


def test_two_processes_take_turns_and_every_command_is_counted(tmp_path: Path) -> None:
    found = crowd(tmp_path, "--cases", "2x1")
    alone, both = found["medians"]
    assert (alone["case"], both["case"]) == ("1x1", "2x1")
    # An acquire and a release on each node; a look of the guard may come in.
    assert alone["attempts"] == pytest.approx(1.0, abs=0.2)
    assert alone["commands"] == pytest.approx(2.0, abs=0.5)
    assert alone["commands_by_servers"] == pytest.approx(2.0, abs=0.5)
    assert both["commands"] > 2.0
    assert both["pushes"] > 0
    assert both["ratio"] > 0
    assert 0 < both["share_least"] <= 1.0 <= both["share_most"]
    assert all(
        row["errors"] == 0 and len(row["processes"]) == int(row["case"][0]) for row in found["raw"]
    )
    assert "| 2x1 | 2 x 1, 2 ms | ours |" in (tmp_path / "quick.md").read_text(encoding="utf-8")


def test_the_named_tree_of_the_library_is_measured(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "aioredlock_ng", tmp_path / "older" / "aioredlock_ng")
    (tmp_path / "empty").mkdir()
    libraries = ("--library", str(tmp_path / "older"), "--library", str(tmp_path / "empty"))
    found = crowd(tmp_path, "--cases", "1x1", *libraries)
    ours, older, empty = found["raw"]
    assert (ours["code"], older["code"], empty["code"]) == ("ours", "older", "empty")
    assert older["rate"] > 0
    assert "instead of" in empty["failed"], "it has measured the checkout under another's name"


def test_gaps_and_hand_overs_are_found_in_the_records_of_processes(tmp_path: Path) -> None:
    found = crowd(tmp_path, "--cases", "killed", "handover")
    assert not [row["failed"] for row in found["raw"] if "failed" in row]
    killed, handover = found["medians"]
    # Hold and release take 2 ms and more, so that even a stretch without trouble has gaps.
    assert 0 < killed["quiet_gap"] < 5.0
    assert 0 < killed["killed_gap"] < 5.0
    assert 0 < killed["stopped_gap"] < 5.0
    assert 0 < handover["switches"] <= handover["rate"] * 2
    assert handover["ratio"] == pytest.approx(handover["p50"] / handover["two_trips"])


def _gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "\nState:\tZ" in status.read_text(encoding="utf-8")


def _task(url: str) -> dict[str, Any]:
    phase = {
        "name": "crowd",
        "same": "crowd",
        "hold": 0.0,
        "seconds": 60.0,
        "open": 0.0,
        "grace": 0.1,
    }
    return {"urls": [url], "processes": 2, "coroutines": 1, "ttl": 10.0, "phase": phase}


if sys.platform == "linux":

    async def test_no_process_of_a_crowd_outlives_its_driver(
        start_server: Callable[..., LocalServer],
    ) -> None:
        client = Client("ours", "crowd_ours.py")
        with Driver(client.command(), client.variables(), _task(start_server().url)) as driver:
            pids = [driver.ready()["pid"] for _ in range(2)]
            driver.begin()
            # A stopped process takes no notice of anything but SIGKILL.
            os.kill(pids[0], signal.SIGSTOP)
            os.kill(driver.pid, signal.SIGKILL)
            await eventually(lambda: all(_gone(pid) for pid in pids), within=20.0)

    async def test_no_process_of_a_crowd_outlives_the_benchmark_that_measures_it(
        start_server: Callable[..., LocalServer],
    ) -> None:
        code = (
            "import json, os, signal, sys\n"
            "from benchmarks.clients import Client\n"
            "from benchmarks.process import Driver\n"
            "client = Client('ours', 'crowd_ours.py')\n"
            "driver = Driver(client.command(), client.variables(), json.loads(sys.argv[1]))\n"
            "pids = [driver.ready()['pid'] for _ in range(2)]\n"
            "os.kill(pids[0], signal.SIGSTOP)\n"
            "print(driver.pid, *pids, flush=True)\n"
            "os._exit(0)"
        )
        command = [sys.executable, "-c", code, json.dumps(_task(start_server().url))]
        told = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=True)
        pids = [int(word) for word in told.stdout.split()]
        assert len(pids) == 3
        await eventually(lambda: all(_gone(pid) for pid in pids), within=20.0)
