"""`aioredlock-ng run` and signals: passed on, ending a wait, and the one that cannot be caught."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import PATIENCE, Cli, connected, line, python
from tests.cli.test_run_loss import GRACE
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once

# Says which signals it gets, in their order; SIGTERM ends it.
LISTENER = """
import os, signal
wanted = {
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
print("ready", os.getpid() == os.getpgrp(), flush=True)
while True:
    got = signal.Signals(signal.sigwait(wanted))
    print(got.name, flush=True)
    if got == signal.SIGTERM:
        raise SystemExit(3)
"""

# A command and a process that it started, both with its output open.
FAMILY = [
    "sh",
    "-c",
    (
        f"{' '.join(map(repr, python('')[:-1]))} "
        "'import signal; print(1, flush=True); signal.pause()'; echo on"
    ),
]


# A shell's job in the background has no input but the one that it is given.
WITH_WORKER = f'exec 3<&0; {" ".join(map(repr, python("")[:-1]))} "$0" <&3 &'


def test_signals_are_passed_on(cli: Cli) -> None:
    with cli.started("run", "x", "--", *python(LISTENER)) as process:
        assert line(process) == "ready True"
        for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGWINCH", "SIGINT", "SIGQUIT", "SIGTERM"):
            process.send_signal(signal.Signals[name])
            assert line(process) == name
        assert process.wait(PATIENCE) == 3


# Stops the command line as `kill -TSTP` does, and goes on itself.
SUPERVISOR = """
import os, signal, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
process.stdout.readline()
process.send_signal(signal.SIGTSTP)
print(os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1]), flush=True)
process.send_signal(signal.SIGCONT)
process.send_signal(signal.SIGTERM)
print(process.wait(), flush=True)
"""


def test_a_run_stopped_by_a_supervisor_stops_no_other_process_of_the_group(cli: Cli) -> None:
    words = [
        *python(SUPERVISOR),
        *cli.words("run", "x", "--", "sh", "-c", "echo ready; exec sleep 1000"),
    ]
    with subprocess.Popen(
        words, env=cli.env, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as supervisor:
        try:
            assert supervisor.communicate(timeout=PATIENCE)[0] == "True\n143\n"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(supervisor.pid, signal.SIGKILL)


# A process that ignores SIGTSTP, and says so in its parent's output.
DEAF = """
import os, signal, sys
signal.signal(signal.SIGTSTP, signal.SIG_IGN)
print(os.getpid(), flush=True)
print("got", sys.stdin.readline(), end="", flush=True)
"""


async def test_no_process_of_the_group_works_on_while_run_is_stopped(cli: Cli) -> None:
    script = WITH_WORKER + " exec sleep 1000"
    with cli.started("run", "x", "--", "sh", "-c", script, DEAF) as process:
        worker = line(process)
        process.send_signal(signal.SIGTSTP)
        for stopped in (str(process.pid), worker):
            await eventually(lambda stopped=stopped: _state_of(stopped) == "T")
        process.send_signal(signal.SIGCONT)
        assert process.stdin is not None
        process.stdin.write("hello\n")
        process.stdin.flush()
        assert line(process) == "got hello"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 143


def _state_of(process: str) -> str:
    return subprocess.check_output(["ps", "-o", "state=", "-p", process], text=True)[0]


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT), (signal.SIGHUP, 129)],
)
def test_a_signal_ends_the_command_and_its_children(
    cli: Cli, three_nodes: NodeSet, number: signal.Signals, status: int
) -> None:
    with cli.started("run", "x", "--", *FAMILY) as process:
        assert line(process) == "1"
        process.send_signal(number)
        # The end of the output: nobody is left who could write to it.
        assert line(process) == ""
        assert process.wait(PATIENCE) == status
    assert three_nodes.keys() == [set(), set(), set()]


# Told to end, it first puts things in order, for as long as nobody says a word on its input.
TIDY = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("ready", flush=True)
signal.sigwait({signal.SIGTERM})
print("tidies up", flush=True)
sys.stdin.readline()
print("tidy", flush=True)
"""


@pytest.mark.parametrize("ends", ["by the signal", "by itself"])
def test_a_child_that_outlives_the_command_ends_under_the_lock(cli: Cli, ends: str) -> None:
    script = f"{WITH_WORKER} {'wait' if ends == 'by the signal' else 'read line'}"
    with cli.started("run", "--grace", "20", "x", "--", "sh", "-c", script, TIDY) as process:
        assert process.stdin is not None
        assert line(process) == "ready"
        if ends == "by the signal":
            process.send_signal(signal.SIGTERM)
        else:
            process.stdin.write("\n")
            process.stdin.flush()
        assert line(process) == "tidies up"
        refused = cli("run", "-n", "x", "--", "true")
        assert refused.returncode == 1, "the next one must not begin while somebody is at work"
        assert process.poll() is None
        process.stdin.write("\n")
        process.stdin.flush()
        assert line(process) == "tidy"
        assert process.wait(PATIENCE) == (143 if ends == "by the signal" else 0)
    assert cli("run", "-n", "x", "--", "true").returncode == 0


def test_a_child_that_outlives_the_command_for_too_long_is_killed(cli: Cli) -> None:
    with cli.started(
        "run", "--grace", GRACE, "x", "--", "sh", "-c", f"{WITH_WORKER} wait", TIDY
    ) as process:
        assert line(process) == "ready"
        process.send_signal(signal.SIGTERM)
        assert [line(process), line(process)] == ["tidies up", ""]
        assert process.wait(PATIENCE) == 143


@pytest.mark.skipif(which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("words", ["run x -- sh -c 'echo ready; exec sleep 1000'", "wait held"])
async def test_a_script_ends_with_its_command_at_control_c(
    cli: Cli, three_nodes: NodeSet, words: str
) -> None:
    """A terminal sends SIGINT to the script too. If its program exits normally, bash goes on."""
    line_of_script = f'"$@" {words}; echo "the script goes on"'
    script = [which("bash") or "", "-c", line_of_script, "script", *cli.words()]
    with (
        cli.holding("held"),
        subprocess.Popen(
            script, env=cli.env, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process,
    ):
        if "ready" in words:
            assert line(process) == "ready"
        else:
            await eventually(lambda: connected(three_nodes) == 2, within=PATIENCE, every=0.05)
        os.killpg(process.pid, signal.SIGINT)
        assert line(process) == ""
        assert process.wait(PATIENCE) == -signal.SIGINT


async def test_a_signal_ends_the_wait_for_a_lock(
    cli: Cli, three_nodes: NodeSet, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    with cli.holding("x"), cli.started("run", "x", "y", "--", "touch", str(ran)) as waiter:
        await eventually(lambda: connected(three_nodes) == 2, within=PATIENCE, every=0.05)
        waiter.send_signal(signal.SIGTERM)
        assert waiter.wait(PATIENCE) == 143
        assert three_nodes.keys() == [{"x"}] * 3
        assert not ran.exists()


def test_a_killed_run_leaves_no_process_behind(cli: Cli) -> None:
    with cli.started("run", "--ttl", "6", "x", "--", *FAMILY) as process:
        assert line(process) == "1"
        process.kill()
        assert line(process) == ""
    # The lock is left to its ttl, and the next one gets it then.
    assert cli("run", "-w", "20", "x", "--", "echo", "in").stdout == "in\n"


def test_a_run_killed_with_its_group_leaves_no_process_behind(cli: Cli) -> None:
    with cli.started("run", "--ttl", "6", "x", "--", *FAMILY, start_new_session=True) as process:
        assert line(process) == "1"
        os.killpg(process.pid, signal.SIGKILL)
        assert line(process) == ""


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux ties a child's life to its parent's"
)
def test_the_command_of_a_killed_run_dies_without_its_guardian_too(cli: Cli) -> None:
    with cli.started(
        "run",
        "--ttl",
        "20",
        "x",
        "--",
        *python(f"import os; print(os.getpid(), flush=True)\n{LISTENER}"),
    ) as process:
        command = int(line(process))
        assert line(process) == "ready True"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (guardian,) = {int(child) for child in children} - {command}
        # Stopped, it sees nothing; and that is surer than a race of two signals.
        os.kill(guardian, signal.SIGSTOP)
        process.kill()
        assert line(process) == ""
        os.kill(guardian, signal.SIGKILL)


async def test_a_run_killed_while_it_waits_never_starts_its_command(
    cli: Cli, three_nodes: NodeSet, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    with cli.holding("x"), cli.started("run", "x", "--", "touch", str(ran)) as waiter:
        await eventually(lambda: connected(three_nodes) == 2, within=PATIENCE, every=0.05)
        waiter.kill()
        assert line(waiter) == ""
    assert not ran.exists()


def test_a_signal_ignored_from_the_start_stays_ignored(cli: Cli) -> None:
    words = cli.words(
        "run", "x", "--", *python("import signal; print(signal.getsignal(signal.SIGHUP))")
    )
    answer = subprocess.run(
        ["nohup", *words],
        env=cli.env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert answer.stdout == f"{signal.SIG_IGN:d}\n"


def test_a_run_started_with_a_blocked_sigchld_ends_with_its_command(cli: Cli) -> None:
    """A supervisor that waits for its children by `sigwait` blocks SIGCHLD."""
    code = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
os.execv(sys.argv[1], sys.argv[1:])
"""
    mask = python("import signal; print(signal.SIGCHLD in signal.pthread_sigmask(0, ()))")
    done = subprocess.run(
        [*python(code), *cli.words("run", "x", "--", *mask)],
        env=cli.env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), "the command keeps the mask"


def test_orphans_that_died_in_the_group_are_reaped_by_a_containers_first_process() -> None:
    """No other process reaps them there. A dead child that is not reaped stays in its group."""
    code = """
import ctypes, os, time
from aioredlock_ng.cli.child import Child
# Make this process the parent of orphans, like the first process of a container.
ctypes.CDLL(None).prctl(36, 1)
child = Child(["sh", "-c", "sleep 0.1 & exit 0"])
child.start({})
while child.poll() is None:
    time.sleep(0.01)
while child.has_group():
    time.sleep(0.01)
child.close()
"""
    subprocess.run([sys.executable, "-c", code], timeout=PATIENCE, check=True)
