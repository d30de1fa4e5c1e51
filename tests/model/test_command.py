"""`make model` prints its findings, and fails if they differ from the known findings."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.model.cases import KNOWN_WRONG
from tests.model.command import line
from tests.model.explore import explore
from tests.support.coverage import untraced

pytestmark = pytest.mark.once


def test_the_command_explores_and_prints_its_findings() -> None:
    words = ("--small", "--only", "mutual exclusion: no guard", "--traces", "--processes", "1")
    command = [sys.executable, "-m", "tests.model", *words]
    done = subprocess.run(command, env=untraced(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "found in 9" in done.stdout
    assert "  9 B has the lock for 3" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("0 states of sound rules")


def test_a_finding_other_than_the_known_one_is_marked_as_unexpected() -> None:
    case = next(case for case in KNOWN_WRONG if case.name == "mutual exclusion: no guard")
    report = explore(case.model)
    assert not line(case, report, 1).endswith("UNEXPECTED")
    for steps in (0, 10):
        assert line(replace(case, steps=steps), report, 1).endswith("UNEXPECTED")
    assert line(replace(case, steps=0), explore(case.model, most=1), 1).endswith("UNEXPECTED")
