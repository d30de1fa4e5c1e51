"""The benchmark of telemetry divides by the cycles that ran, and compares with nobody."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.telemetry import __main__ as command

pytestmark = pytest.mark.once


@pytest.mark.parametrize("cycles", ["50", "150", "0"])
def test_cycles_that_would_not_all_run_are_refused(
    cycles: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(["--cycles", cycles])
    assert "multiple of 100" in capsys.readouterr().err


def test_a_chosen_sink_is_compared_with_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Any] = []

    def time(subjects: Any, rounds: int, cycles: int) -> None:
        measured.extend(subjects)

    monkeypatch.setattr(command, "_time", time)
    assert command.main(["--only", "prometheus"]) == 0
    assert [subject.kind for subject in measured] == ["off", "prometheus"]
