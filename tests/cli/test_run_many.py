"""Fifty processes of `aioredlock-ng run` at once on one name: the command runs fifty times, one at
a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.coverage import untraced

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.commands import Cli

pytestmark = pytest.mark.once

PROCESSES = 50

# A process prints this if too few servers answer in time. The process goes on waiting.
PATIENT = "aioredlock-ng run: waiting for a majority of the nodes; "

# mkdir is atomic. If the directory exists already, two commands run at once, and the status is 99.
# Each command stays inside for 10 ms, and appends its fence to the log.
ALONE = """
mkdir "$0/inside" || exit 99
echo "$AIOREDLOCK_NG_FENCE" >> "$0/log"
sleep 0.01
rmdir "$0/inside"
"""


# All processes are forks of one process that has imported the command line. Fifty imports would
# take most of a minute, and would test no lock.
AT_ONCE = """
import contextlib, io, json, os, sys
from aioredlock_ng.cli import main, run

count, folder, *words = sys.argv[1:]
# Refused, for it has no command; what reads a command line has been imported then.
with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
    main(words[:2])
processes = []
for number in range(int(count)):
    process = os.fork()
    if process == 0:
        os.dup2(os.open(f"{folder}/errors{number}", os.O_WRONLY | os.O_CREAT), 2)
        main(words)
    processes.append(process)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]))
"""


@pytest.mark.timeout(150)
def test_fifty_commands_started_at_once_run_one_at_a_time(cli: Cli, tmp_path: Path) -> None:
    command = ("run", "report", "--", "sh", "-c", ALONE, str(tmp_path))
    words = [sys.executable, "-c", AT_ONCE, str(PROCESSES), str(tmp_path), *command]
    told = subprocess.run(
        words, env=untraced(cli.env), stdout=subprocess.PIPE, check=True, timeout=140
    ).stdout
    errors = [(tmp_path / f"errors{number}").read_text() for number in range(PROCESSES)]
    codes = json.loads(told)
    assert codes == [0] * PROCESSES, [
        error for error, code in zip(errors, codes, strict=True) if code
    ]
    # On a busy machine, fifty processes that connect at once may have to wait for the servers, and
    # say so.
    lines = [line for error in errors for line in error.splitlines()]
    assert [line for line in lines if not line.startswith(PATIENT)] == []
    fences = [int(fence) for fence in (tmp_path / "log").read_text().split()]
    assert len(fences) == PROCESSES
    assert fences == sorted(set(fences))
