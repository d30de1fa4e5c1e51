"""Test the command: its output, its exit status, and the repetition of a shortened run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation import command
from tests.simulation.command import main
from tests.simulation.invariants import INVARIANTS
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.plan import plan_of
from tests.simulation.shrink import play, shrink
from tests.support.coverage import untraced

pytestmark = pytest.mark.once


def test_many_seeds_end_with_figures_and_status_0() -> None:
    words = [sys.executable, "-m", "tests.simulation", "--seeds", "4", "--processes", "2"]
    done = subprocess.run(words, env=untraced(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    first, faults, waits, last = done.stdout.splitlines()
    assert first.startswith("4 seeds in ")
    assert "seeds/s" in first
    assert "simulated hours" in first
    assert faults.startswith("faults: ")
    assert waits.startswith("longest wait for a free lock: ")
    assert last == "no invariant violated by seeds 0 to 3"


def test_a_violation_gives_status_1_and_a_short_log_that_repeats(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed = next(seed for seed in range(20) if play(plan_of(seed), "release").violation is not None)
    assert (
        main(["--first-seed", str(seed), "--seeds", "1", "--processes", "1", "--mutant", "release"])
        == 1
    )
    *_, violation, remedy = capsys.readouterr().out.splitlines()
    assert " violated at " in violation
    words = remedy.removeprefix("to repeat this run: python -m tests.simulation ").split()
    assert main(words) == 1
    assert capsys.readouterr().out.splitlines()[-1] == violation
    whole = plan_of(seed)
    names = set(words[words.index("--keep") + 1].split(","))
    assert names < set(whole.names)
    for name in names:
        fewer = play(whole.keeping(names - {name}), "release").violation
        assert fewer is None or fewer.invariant != violation.split()[0], f"{name} could be left out"


def test_the_table_of_mutants_lists_the_mutants_that_escape(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Mutant("nothing", "nothing is wrong", ())
    monkeypatch.setattr(command, "MUTANT_SEEDS", 8)
    monkeypatch.setitem(MUTANTS, "nothing", nothing)
    for name in set(MUTANTS) - {"nothing", "release"}:
        monkeypatch.delitem(MUTANTS, name)
    assert main(["--mutants", "--processes", "1"]) == 1
    _, caught, escaped, _, last = capsys.readouterr().out.splitlines()
    assert caught.split()[0] == "release"
    assert caught.split()[-2] in INVARIANTS
    assert escaped.split()[-2:] == ["none", "8"]
    assert last == "1 of 2 caught"


def test_a_plan_without_a_violation_is_not_shrunk() -> None:
    plan = plan_of(0)
    assert shrink(plan)[0] is plan
