"""The alert rules as Prometheus itself reads them, and when they fire; run where its tool is
installed.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.telemetry.test_files import FOLDER

if TYPE_CHECKING:
    from pathlib import Path

# Debian's package "prometheus" has it, and no package index does.
pytestmark = pytest.mark.promtool


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *words], capture_output=True, text=True, check=False, timeout=50
    )


def test_prometheus_accepts_the_rules() -> None:
    done = promtool("check", "rules", FOLDER / "alerts.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 rules found" in done.stdout


def test_the_rules_fire_and_stay_silent_as_their_scenarios_say() -> None:
    done = promtool("test", "rules", FOLDER / "alerts_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("[5m])) > 0\n", "[5m])) > 1.5\n"),
        ('cause!~"expired|max_hold|closed"', 'cause!~"expired|max_hold"'),
        ('cause!~"expired|max_hold|closed"', 'cause!~"max_hold|closed"'),
        ("outlived_terms_total[5m])) > 0", "outlived_terms_total[5m])) > 1.5"),
        ("outlived_terms_total[5m])) > 0", "outlived_terms_total[5m])) >= 0"),
        ('state!="up"', 'state="down"'),
        ("for: 5m", "for: 15m"),
        ("> 0.05", "> 0.5"),
        ('error!~"LockHeld|RedlockClosed"', 'error!~"AcquireTimeout"'),
        ("> 10\n", "> 40\n"),
    ],
)
def test_a_changed_rule_fails_its_scenarios(right: str, wrong: str, tmp_path: Path) -> None:
    rules = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
    assert right in rules
    (tmp_path / "alerts.yml").write_text(rules.replace(right, wrong), encoding="utf-8")
    shutil.copy(FOLDER / "alerts_test.yml", tmp_path)
    assert promtool("test", "rules", tmp_path / "alerts_test.yml").returncode == 1
