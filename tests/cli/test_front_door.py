"""Before and after a command's own work: Control-C while it is imported, and an output that takes
nothing.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aioredlock_ng import __version__
from tests.cli.commands import PATIENCE, Cli, line, python

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]

# Replaces typer by a module whose import takes so long that a test can interrupt it.
SLOW = "import sys, time; sys.stdout.write('importing\\n'); sys.stdout.flush(); time.sleep(300)"

SCRIPT = "from aioredlock_ng.cli import main; main()"

ASKING = [
    ["inspect", "x"],
    ["inspect", "x", "--json"],
    ["wait", "x", "--json"],
    ["top", "--once"],
    ["run", "--help"],
]

each_buffered_and_two_not = pytest.mark.parametrize(
    ("words", "buffered"),
    [*((words, True) for words in ASKING), (["inspect", "x"], False), (["run", "--help"], False)],
)


@pytest.mark.parametrize("words", [["-c", SCRIPT], ["-m", "aioredlock_ng"]])
def test_control_c_during_the_import_ends_the_program_without_output(
    words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "typer.py").write_text(SLOW)
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, *words, "inspect", "x"], env=env, **pipes) as process:
        assert line(process) == "importing"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE) == ("", "")
    assert process.returncode == -signal.SIGINT


def test_an_ignored_control_c_stays_ignored_for_the_command(cli: Cli) -> None:
    code = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {SCRIPT}"
    told = python("import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)")
    words = [sys.executable, "-c", code, "run", "x", "--", *told]
    assert (
        subprocess.run(words, env=cli.env, capture_output=True, check=True, timeout=PATIENCE).stdout
        == b"True\n"
    )


@each_buffered_and_two_not
def test_a_full_output_has_its_own_exit_status(cli: Cli, words: list[str], buffered: bool) -> None:
    cli.env |= {"PYTHONUNBUFFERED": "" if buffered else "1"}
    with open("/dev/full", "wb") as full:
        answer = cli(*words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    told = f"aioredlock-ng {words[0]}: cannot write to standard output: No space left on device\n"
    assert (answer.returncode, answer.stderr) == (74, told)


@each_buffered_and_two_not
def test_a_closed_output_ends_the_program_with_the_status_of_sigpipe(
    cli: Cli, words: list[str], buffered: bool
) -> None:
    cli.env |= {"PYTHONUNBUFFERED": "" if buffered else "1"}
    with cli.started(*words) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize("words", [*ASKING, ["--version"]])
def test_an_output_closed_from_the_start_counts_as_the_null_device(
    cli: Cli, words: list[str]
) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *cli.words(*words)]
    done = subprocess.run(
        command, env=cli.env, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_is_printed_and_help_has_a_short_name(cli: Cli) -> None:
    assert cli("--version").stdout == f"aioredlock-ng {__version__}\n"
    assert cli("-h").stdout == cli("--help").stdout
    assert "--conflict-code" in cli("run", "-h").stdout
