"""Without their arguments, the examples say what they need."""

from __future__ import annotations

import runpy
import sys

import pytest

from .conftest import EXAMPLES


@pytest.mark.once
@pytest.mark.parametrize(
    "name",
    [
        "api_limit",
        "catalog_cache",
        "cron_recorded",
        "fenced_sql",
        "id_generator",
        "leader",
        "worker",
    ],
)
def test_without_arguments_an_example_says_how_to_run_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = str(EXAMPLES / f"{name}.py")
    monkeypatch.setattr(sys, "argv", [program])
    with pytest.raises(SystemExit) as exited:
        runpy.run_path(program, run_name="__main__")
    # Python prints such a reason on stderr, and exits with status 1.
    assert isinstance(exited.value.code, str)
    assert exited.value.code.startswith(f"usage: {name}.py ")
    assert "\n" not in exited.value.code
