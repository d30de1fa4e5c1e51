"""The benchmark counts holders and commands of a semaphore, and the slots of a killed holder."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.drivers.tracing import traced
from benchmarks.environments import ROOT
from benchmarks.outcome import Settings
from benchmarks.scenarios.semaphore import TURNS, run
from tests.support.coverage import untraced

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.once


@pytest.mark.slow
def test_holders_of_ours_are_counted_and_the_slots_of_a_killed_process_come_back() -> None:
    ours = [turn for turn in TURNS if turn.name == "ours"]
    found = run(Settings(1, True, [], lambda _: None), ours)
    (row,) = found.raw
    assert "failed" not in row, row["failed"]
    # Holds of 5 ms need not all meet on a busy machine. The long holds before the kill do.
    assert 0 < row["inside"] <= 8
    assert (row["inside_before"], row["errors"]) == (8, 0)
    assert row["rate"] > 0
    # A share of all acquisitions sends an acquire and a release; the others are passed on.
    assert 0 < row["commands"] < 10
    # The ttl of 2 s, and what a busy machine adds. Slots without a ttl would never come back.
    assert 0 < row["first_again"] <= row["all_again"] < 10
    assert {bar.text.partition(":")[0] for bar in found.bars} == {"semaphore"}


def test_holds_of_a_killed_process_can_be_read(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from benchmarks.drivers.tracing import Trace\n"
        "trace = Trace(sys.argv[1])\n"
        "trace.leaves(trace.got())\n"
        "trace.got()\n"
        "print(os.getpid(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    told = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, env=untraced(), check=False)
    (first, last) = traced(tmp_path, int(told.stdout))
    assert first[0] <= first[1] <= last[0]
    assert last[1] == 0


def test_a_process_that_has_not_begun_has_no_holds(tmp_path: Path) -> None:
    assert traced(tmp_path, 1) == []
