"""`make model` says what it found, and fails when that is not what is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model import __main__ as command
from tests.model.cases import KNOWN_WRONG
from tests.model.explore import explore

pytestmark = pytest.mark.once


def test_the_command_explores_and_says_how_much(capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--small", "--only", "mutual exclusion: no guard", "--traces", "--processes", "1"]) == 0
    told = capfd.readouterr().out
    assert "found in 9" in told
    assert "  9 B has the lock for 3" in told
    assert "0 states of sound rules" in told


def test_what_is_found_otherwise_than_expected_is_said() -> None:
    case = next(case for case in KNOWN_WRONG if case.name == "mutual exclusion: no guard")
    report = explore(case.model)
    assert not command.line(case, report, 1).endswith("UNEXPECTED")
    for steps in (0, 10):
        assert command.line(replace(case, steps=steps), report, 1).endswith("UNEXPECTED")
    assert command.line(replace(case, steps=0), explore(case.model, most=10), 1).endswith("UNEXPECTED")
