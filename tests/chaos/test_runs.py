"""Short runs on real servers: a healthy client passes, and each deliberate defect is found by the right rule."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.coverage import untraced

# A run takes some ten seconds, and several times that on a machine that does much else.
pytestmark = [pytest.mark.once, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.chaos", "--duration", "6s", "--nodes", "3", "--clients", "4", "--out", str(folder)]
    # Processors that other tests use too: rounds are to end by answers, not by the clock.
    command += ["--node-timeout", "0.5"]
    command += options
    return subprocess.run(command, cwd=ROOT, env=untraced(), capture_output=True, text=True, check=False, timeout=170)


def test_a_short_run_passes_and_leaves_an_event_log(tmp_path: Path) -> None:
    done = run(tmp_path, "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Violations: 0" in done.stdout
    assert int(re.search(r"\| acquisitions \| ([\d,]+)", done.stdout)[1].replace(",", "")) > 100  # type: ignore[index]
    lines = (tmp_path / "events.log").read_text().splitlines()
    instants = [json.loads(line)["t"] for line in lines]
    assert len(instants) > 200
    assert instants == sorted(instants)


@pytest.mark.parametrize(("defect", "found"), [("quorum", "overlap"), ("fence", "fence"), ("release", "key left behind")])
def test_a_broken_client_is_caught(defect: str, found: str, tmp_path: Path) -> None:
    done = run(tmp_path, "--seed", "1", "--broken", defect)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"^\* {found}: [1-9]", done.stdout, re.MULTILINE), done.stdout
