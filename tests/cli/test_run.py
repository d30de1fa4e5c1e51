"""`aioredlock-ng run` in processes of its own, on real servers: exit statuses, waiting, what the
child gets.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import PATIENCE, Cli, line, python
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.node_set import NodeSet


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["no-such-command"], 127),
        (["/dev/null"], 126),
    ],
)
def test_the_exit_status_is_the_commands_own(
    cli: Cli, three_nodes: NodeSet, command: list[str], status: int
) -> None:
    answer = cli("run", "x", "--", *command)
    assert answer.returncode == status, answer.stderr
    assert three_nodes.keys() == [set(), set(), set()]


def test_an_argument_with_a_null_byte_is_refused(cli: Cli) -> None:
    code = r"from aioredlock_ng.cli import main; main(['run', 'x', '--', 'true', 'a\0b'])"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env=cli.env,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (
        126,
        b"aioredlock-ng run: cannot execute 'true': embedded null byte\n",
    )


def test_the_command_runs_without_a_shell(cli: Cli) -> None:
    words = ["$HOME", "*", "a b", "", "--", "-n", "\\", "'\""]
    answer = cli("run", "x", "--", *python("import sys; print(sys.argv[1:])"), *words)
    assert answer.stdout == f"{words}\n"


async def test_the_command_knows_the_lock_it_runs_under(cli: Cli, three_nodes: NodeSet) -> None:
    show = [
        "sh",
        "-c",
        (
            'printf "%s\\n" "$AIOREDLOCK_NG_NAME" "$AIOREDLOCK_NG_TOKEN" "$AIOREDLOCK_NG_FENCE"; '
            "read line"
        ),
    ]
    fences = []
    for _ in range(2):
        with cli.started("run", "order:42", "--", *show) as process:
            name, token, fence = line(process), line(process), line(process)
            assert name == "order:42"
            # A majority decides; the last node may be behind it.
            held = [token.encode()] * 3
            await eventually(
                lambda held=held: [node.command("GET", "order:42") for node in three_nodes] == held
            )
            fences.append(int(fence))
            process.communicate("\n", timeout=PATIENCE)
    assert fences[0] < fences[1]


async def test_several_locks_are_held_together(cli: Cli, three_nodes: NodeSet) -> None:
    with cli.started(
        "run", "a", "b", "--", "sh", "-c", 'echo "$AIOREDLOCK_NG_NAME"; read line'
    ) as process:
        assert line(process) == "a, b"
        await eventually(lambda: three_nodes.keys() == [{"a", "b"}] * 3)
        assert cli("run", "-n", "b", "--", "true").returncode == 1
        process.communicate("\n", timeout=PATIENCE)


def test_the_command_runs_under_a_name_that_an_ascii_locale_cannot_encode(cli: Cli) -> None:
    cli.env |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    answer = cli("run", "größe ✓", "--", "printenv", "AIOREDLOCK_NG_NAME", encoding="utf-8")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout == "größe ✓\n"


def test_bytes_go_through_untouched(cli: Cli) -> None:
    data = os.urandom(1_000_000)
    answer = cli("run", "x", "--", "cat", input=data, text=False)
    assert answer.stdout == data
    assert answer.stderr == b""
    assert answer.returncode == 0


def test_other_open_files_stay_open_for_the_command(cli: Cli) -> None:
    read, write = os.pipe()
    with os.fdopen(read) as reader:
        answer = cli(
            "run",
            "x",
            "--",
            *python(f"import os; os.write({write}, b'through\\n')"),
            pass_fds=[write],
        )
        os.close(write)
        assert answer.returncode == 0
        assert reader.read() == "through\n"


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_stay_closed(cli: Cli, tmp_path: Path, streams: str) -> None:
    """And no pipe of ours becomes one of them."""
    looks = python(f"""
import os

def is_open(stream):
    try:
        return bool(os.fstat(stream))
    except OSError:
        return False

there = [stream for stream in (0, 1, 2) if is_open(stream)]
with open({str(tmp_path / "open")!r}, "w") as file:
    file.write(str(there))
os._exit(5)
""")
    command = ["sh", "-c", f'exec "$@" {streams}', "sh", *cli.words("run", "x", "--", *looks)]
    done = subprocess.run(
        command,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 5
    closed = {"<&-": 0, ">&-": 1, "2>&-": 2}
    assert (tmp_path / "open").read_text() == str(
        [fd for fd in (0, 1, 2) if fd not in {closed[s] for s in streams.split()}]
    )


def test_a_parent_that_ignores_its_children_loses_no_exit_status(cli: Cli) -> None:
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = [*python(ignoring), *cli.words("run", "x", "--", "sh", "-c", "exit 7")]
    assert subprocess.run(words, env=cli.env, timeout=PATIENCE, check=False).returncode == 7


def test_a_held_lock_has_its_own_exit_status(cli: Cli, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with cli.holding("x"):
        refused = cli("run", "-n", "x", "--", "touch", str(ran))
        assert refused.returncode == 1
        assert refused.stderr.startswith("aioredlock-ng run: 'x' was not acquired, held by ")
        assert refused.stderr.count("\n") == 1
        late = cli("run", "-w", "1", "-E", "9", "x", "--", "touch", str(ran))
        assert late.returncode == 9
        assert re.search(
            rf"still held by {re.escape(socket.gethostname())}:\d+:\S+ after 1 s", late.stderr
        )
        assert not ran.exists()


def test_a_lock_with_min_hold_stays_taken_after_its_command(cli: Cli, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    assert cli("run", "--min-hold", "50", "x", "--", "sh", "-c", "exit 7").returncode == 7
    late = cli("run", "-w", "1", "x", "--", "touch", str(ran))
    assert late.returncode == 1
    assert " (released, kept by min_hold) after 1 s" in late.stderr
    assert not ran.exists()


def test_run_waits_until_the_lock_is_free(cli: Cli) -> None:
    with (
        cli.holding("x", "--ttl", "30") as holder,
        cli.started("run", "-w", "25", "x", "--", "echo", "in") as waiter,
    ):
        with pytest.raises(subprocess.TimeoutExpired):
            waiter.wait(1.5)
        holder.communicate("\n", timeout=PATIENCE)
        # Long before the ttl is over.
        assert line(waiter) == "in"
        assert waiter.wait(PATIENCE) == 0


@pytest.mark.faults
def test_run_without_a_majority_fails_with_one_line(
    cli: Cli, three_nodes: NodeSet, tmp_path: Path
) -> None:
    three_nodes.crash(0)
    three_nodes.crash(1)
    ran = tmp_path / "ran"
    answer = cli("run", "-n", "x", "--", "touch", str(ran))
    assert answer.returncode == 69
    assert answer.stderr.startswith("aioredlock-ng run: 'x' was not acquired, no quorum")
    assert answer.stderr.count("\n") == 1
    assert not ran.exists()


def test_a_password_is_never_shown(cli: Cli, tmp_path: Path) -> None:
    url = "redis://:s3cr3t-p4ss@127.0.0.1:1"
    for words in (
        ["-n", "--node", url],
        ["-w", "1.5", "--node", url],
        ["--node", url, "--node", url],
        ["--node", f"{url}x"],
    ):
        answer = cli("run", *words, "x", "--", "true")
        assert answer.returncode in (2, 69)
        assert "127.0.0.1:1" in answer.stderr
        assert "s3cr3t" not in answer.stderr + answer.stdout
        assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["x"], "no command"),
        (["x", "--", ""], "no command"),
        (["--", "true"], "Missing argument"),
        (["-n", "-w", "1", "x", "--", "true"], "contradict"),
        (["--ttl", "0.01", "x", "--", "true"], "ttl=0.01 is too small"),
        (["--min-hold", "61", "x", "--", "true"], "min_hold=61 is above max_ttl=60"),
        (["--node", "http://x", "x", "--", "true"], "use redis://"),
        (["-E", "256", "x", "--", "true"], "--conflict-code"),
        (
            ["--owner", "", "x", "--", "true"],
            "owner must be one line of text, got ''; leave it out for the usual label\n",
        ),
        (["x", "x", "--", "true"], "one name twice"),
        (["aioredlock_ng:marker", "--", "true"], "which this library keeps for itself"),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_runs(
    cli: Cli, words: list[str], told: str
) -> None:
    answer = cli("run", *words)
    assert answer.returncode == 2
    assert told in answer.stderr
    assert "Traceback" not in answer.stderr
