"""A bar is missed if a part of the measurement did not run, or if calls of ours failed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import __main__ as command
from benchmarks.outcome import Outcome, at_most
from benchmarks.scenarios import SCENARIOS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.once


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
