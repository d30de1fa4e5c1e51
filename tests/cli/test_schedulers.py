"""The documented command lines for cron, Celery beat and CronJobs do what the pages say."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from aioredlock_ng import Redlock
from tests.cli.commands import PATIENCE, Cli, line, with_programs
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once

DOCS = Path(__file__).parents[2] / "docs"
ELECTION, MIN_HOLD = (
    (DOCS / name).read_text(encoding="utf-8") for name in ("election.md", "min-hold.md")
)
(BEAT,) = re.findall(r"^\$ (aioredlock-ng elect beat .*)$", ELECTION, re.MULTILINE)
FORBID, ONCE = (
    shlex.join(yaml.safe_load(code)["args"])
    for code in re.findall(r"```yaml\n(.*?)```", ELECTION, re.DOTALL)
)
(CRONTAB,) = re.findall(r"^\* \* \* \* \*  (.*)$", MIN_HOLD, re.MULTILINE)


@pytest.fixture
def shell(cli: Cli, tmp_path: Path) -> Cli:
    """A shell that finds `aioredlock-ng` and `celery`, in a folder with `report.sh`."""
    bodies = {
        "bin/celery": 'echo "celery $*"; read line',
        "report.sh": 'echo "$AIOREDLOCK_NG_NAME"; read line',
    }
    return with_programs(cli, tmp_path, bodies)


def start(shell: Cli, command: str, folder: Path) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        ["sh", "-c", f"exec {command}"], env=shell.env, cwd=folder, text=True, **pipes
    )


@pytest.mark.parametrize(("command", "status"), [(FORBID, 0), (ONCE, 0), (CRONTAB, 1)])
def test_a_run_is_skipped_while_another_one_works(
    shell: Cli, tmp_path: Path, command: str, status: int
) -> None:
    with start(shell, command, tmp_path) as first:
        assert line(first) == "report"
        with start(shell, command, tmp_path) as second:
            told = second.communicate(timeout=PATIENCE)
        assert (second.returncode, told[0]) == (status, "")
        assert "'report' was not acquired" in told[1]
        first.communicate("\n", timeout=PATIENCE)
        assert first.returncode == 0


@pytest.mark.parametrize(("command", "runs"), [(FORBID, True), (ONCE, False), (CRONTAB, False)])
def test_a_minimum_hold_skips_a_run_that_starts_after_the_end_of_another(
    shell: Cli, tmp_path: Path, command: str, runs: bool
) -> None:
    with start(shell, command, tmp_path) as first:
        first.communicate("\n", timeout=PATIENCE)
    with start(shell, command, tmp_path) as second:
        told = second.communicate("\n", timeout=PATIENCE)[0]
    assert told == ("report\n" if runs else "")


async def test_one_beat_of_the_fleet_runs(shell: Cli, tmp_path: Path, three_nodes: NodeSet) -> None:
    with start(shell, BEAT, tmp_path) as first:
        assert line(first) == "celery -A shop beat"
        with start(shell, BEAT, tmp_path) as second:
            async with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:

                async def waits() -> bool:
                    return (await redlock.inspect("beat")).waiting == 1

                await eventually(waits, within=PATIENCE)
            first.communicate("\n", timeout=PATIENCE)
            assert line(second) == "celery -A shop beat"
            second.communicate("\n", timeout=PATIENCE)
