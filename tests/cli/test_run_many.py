"""Fifty `aioredlock-ng run` at once on one name: the command runs fifty times, one at a time."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.commands import Cli

pytestmark = pytest.mark.once

PROCESSES = 50

# mkdir is atomic: whoever finds the directory is not alone. 10 ms inside; the log has the fence of each.
ALONE = """
mkdir "$0/inside" || exit 99
echo "$AIOREDLOCK_NG_FENCE" >> "$0/log"
sleep 0.01
rmdir "$0/inside"
"""


@pytest.mark.timeout(150)
def test_fifty_at_once_run_one_at_a_time(cli: Cli, tmp_path: Path) -> None:
    words = cli.words("run", "report", "--", "sh", "-c", ALONE, str(tmp_path))
    processes = [subprocess.Popen(words, env=cli.env, stderr=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    answers = [(process.communicate(timeout=140)[1], process.returncode) for process in processes]
    assert answers == [("", 0)] * PROCESSES
    fences = [int(fence) for fence in (tmp_path / "log").read_text().split()]
    assert len(fences) == PROCESSES
    assert fences == sorted(set(fences))
