"""`aioredlock-ng run` ends its command when the lock is lost, with an exit status of its own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from shutil import which
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from tests.cli.commands import PATIENCE, Cli, line, python
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once

OBEDIENT = "import signal; print('ready', flush=True); signal.pause()"
TELLING = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("ready", flush=True)
print(signal.Signals(signal.sigwait({signal.SIGTERM})).name, flush=True)
"""
STUBBORN = TELLING + "signal.pause()"

GRACE = "5"
"""Seconds of grace, which these tests wait for. A busy machine may pause the command for two
seconds before it prints SIGTERM.
"""


async def take_away(nodes: NodeSet, name: str) -> None:
    """Delete a lock's keys on all nodes, as an operator does."""
    async with Redlock(nodes.urls, node_timeout=1.0) as redlock:
        await redlock.force_release(name)


async def test_the_command_gets_sigterm_when_its_lock_is_lost(
    cli: Cli, three_nodes: NodeSet
) -> None:
    with cli.started("run", "--grace", "20", "x", "--", *python(TELLING)) as process:
        assert line(process) == "ready"
        await take_away(three_nodes, "x")
        assert line(process) == "SIGTERM"
        assert process.wait(PATIENCE) == 75
        assert process.stderr is not None
        told = process.stderr.read()
        assert told.startswith("aioredlock-ng run: the lock 'x' was lost after ")
        assert told.endswith("; the command was ended\n")
        assert told.count("\n") == 1


async def test_the_command_and_its_children_are_killed_after_the_grace(
    cli: Cli, three_nodes: NodeSet
) -> None:
    command = " ".join(f"'{word}'" if "'" not in word else f'"{word}"' for word in python("")[:-1])
    family = ["sh", "-c", f'trap "" TERM; {command} "$0"; echo on', STUBBORN]
    with cli.started("run", "--grace", GRACE, "--lost-code", "44", "x", "--", *family) as process:
        assert line(process) == "ready"
        await take_away(three_nodes, "x")
        assert line(process) == "SIGTERM"
        assert line(process) == ""
        assert process.wait(PATIENCE) == 44


@pytest.mark.parametrize(("worker", "grace"), [(STUBBORN, GRACE), (TELLING, "20")])
async def test_a_child_that_outlives_an_obedient_command_has_the_same_grace(
    cli: Cli, three_nodes: NodeSet, worker: str, grace: str
) -> None:
    command = " ".join(f"'{word}'" for word in python("")[:-1])
    family = ["sh", "-c", f'{command} "$0" & wait', worker]
    with cli.started("run", "--grace", grace, "x", "--", *family) as process:
        assert line(process) == "ready"
        await take_away(three_nodes, "x")
        assert [line(process), line(process)] == ["SIGTERM", ""]
        assert process.wait(PATIENCE) == 75


@pytest.mark.faults
def test_no_answer_from_a_majority_is_a_loss_by_the_deadline(
    cli: Cli, three_nodes: NodeSet
) -> None:
    with cli.started(
        "run", "--node-timeout", "1", "--ttl", "6", "x", "--", *python(OBEDIENT)
    ) as process:
        assert line(process) == "ready"
        three_nodes.pause(0)
        three_nodes.pause(1)
        assert process.wait(PATIENCE) == 75
        assert process.stderr is not None
        assert "deadline" in process.stderr.read()


async def test_a_suspended_command_is_ended_too(cli: Cli, three_nodes: NodeSet) -> None:
    stopping = (
        "import os, signal; print('ready', flush=True); "
        "os.kill(os.getpid(), signal.SIGSTOP); signal.pause()"
    )
    with cli.started("run", "--grace", "20", "x", "--", *python(stopping)) as process:
        assert line(process) == "ready"
        await take_away(three_nodes, "x")
        assert process.wait(PATIENCE) == 75


async def test_a_lock_lost_as_the_command_ended_sets_the_exit_status(
    cli: Cli, three_nodes: NodeSet
) -> None:
    with cli.started("run", "x", "--", "sh", "-c", "echo ready; read line") as process:
        assert line(process) == "ready"
        process.send_signal(signal.SIGSTOP)
        await take_away(three_nodes, "x")
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.close()
        process.send_signal(signal.SIGCONT)
        assert process.wait(PATIENCE) == 75


@pytest.mark.parametrize("errors", ["closed", "read by nobody"])
async def test_the_exit_status_does_not_depend_on_a_reader_of_the_errors(
    cli: Cli, three_nodes: NodeSet, errors: str
) -> None:
    words = cli.words("run", "x", "--", *python(OBEDIENT))
    if errors == "closed":
        words = ["sh", "-c", 'exec "$@" 2>&-', "sh", *words]
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen(
        words, env=cli.env, stdout=subprocess.PIPE, stderr=write, text=True
    ) as process:
        os.close(write)
        assert line(process) == "ready"
        await take_away(three_nodes, "x")
        assert process.wait(PATIENCE) == 75


async def test_a_full_stderr_does_not_keep_the_command_from_being_ended(
    cli: Cli, three_nodes: NodeSet
) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    command = python(f"import os; print(os.getpid(), flush=True)\n{STUBBORN}")
    with cli.started("run", "--grace", GRACE, "x", "--", *command, stderr=write) as process:
        os.close(write)
        pid = int(line(process))
        assert line(process) == "ready"
        await take_away(three_nodes, "x")
        assert line(process) == "SIGTERM"
        await eventually(lambda: is_gone(pid), within=PATIENCE)
        while process.poll() is None and os.read(read, 65_536):
            pass
        assert process.wait(PATIENCE) == 75
    os.close(read)


class Tie:
    """Our end of a pipe that is open for as long as anybody of a command lives: one that nobody
    waits for keeps its id.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        os.mkfifo(path)
        self.end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def words(self, *command: str) -> list[str]:
        """The command, with the other end in its hands."""
        return ["sh", "-c", 'exec "$@" 3>"$0"', str(self._path), *command]

    def torn(self, within: float) -> bool:
        """Wait until all are gone; False when somebody is left after so many seconds."""
        return bool(select.select([self.end], [], [], within)[0])


@pytest.fixture
def tie(tmp_path: Path) -> Iterator[Tie]:
    tie = Tie(tmp_path / "tie")
    yield tie
    os.close(tie.end)


def test_the_command_of_a_stopped_run_is_ended_when_its_lock_expires(cli: Cli, tie: Tie) -> None:
    family = tie.words("sh", "-c", "sleep 300 & echo ready; wait")
    with cli.started("run", "--ttl", "6", "--grace", "0.1", "x", "--", *family) as process:
        assert line(process) == "ready"
        process.send_signal(signal.SIGSTOP)
        with cli.holding("x"):
            assert tie.torn(PATIENCE)
            process.send_signal(signal.SIGCONT)
            assert process.wait(PATIENCE) == 75
        assert process.stderr is not None
        assert process.stderr.read().startswith("aioredlock-ng run: the lock 'x' was lost after ")


def test_a_run_suspended_with_its_command_ends_it_by_sigterm_when_it_continues(
    cli: Cli, tie: Tie
) -> None:
    command = tie.words(*python(TELLING))
    with cli.started(
        "run", "--ttl", "5", "--grace", "4", "x", "--", *command, start_new_session=True
    ) as process:
        assert line(process) == "ready"
        process.send_signal(signal.SIGTSTP)
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        with cli.holding("x"):
            # The guardian would kill the group at most two seconds after the ttl and the grace.
            assert not tie.torn(12), "the guardian killed a suspended group"
            process.send_signal(signal.SIGCONT)
            assert line(process) == "SIGTERM"
            assert process.wait(PATIENCE) == 75


def test_a_keeper_that_is_cancelled_twice_ends_its_command_before_it_ends(
    three_nodes: NodeSet,
) -> None:
    keeping = f"""
import asyncio, os, sys
from aioredlock_ng import Redlock
from aioredlock_ng.cli.child import Child
from aioredlock_ng.cli.keeper import Job, Keeper
ready, write = os.pipe()
os.set_inheritable(write, True)
stubborn = (
    "import os, signal, sys; signal.signal(15, signal.SIG_IGN); "
    "os.write(int(sys.argv[1]), b'.'); signal.pause()"
)
child = Child([sys.executable, "-I", "-S", "-c", stubborn, str(write)])
redlock = Redlock({three_nodes.urls!r})
keeper = Keeper(redlock, redlock.lock("x"), child, Job(1, 75, 0.2))

async def main():
    keeping = asyncio.create_task(keeper.run())
    await asyncio.to_thread(os.read, ready, 1)
    signal_group, signalled = child.signal_group, asyncio.Event()
    child.signal_group = lambda number: (signal_group(number), signalled.set())
    keeping.cancel()
    await signalled.wait()
    keeping.cancel()
    await asyncio.wait([keeping])
    print(keeping.cancelled(), child.has_group())

asyncio.run(main())
child.signal_group(9)
child.close()
"""
    said = subprocess.run(
        [sys.executable, "-c", keeping],
        timeout=PATIENCE,
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stdout == "True False\n"
    assert three_nodes.keys() == [set(), set(), set()]


def test_a_guardian_that_reads_nothing_does_not_block_its_parent() -> None:
    telling = """
import os, signal
from aioredlock_ng.cli.child import Child
child = Child(["true"])
os.kill(child._guardian, signal.SIGSTOP)
for _ in range(50_000):
    child.allow(60)
os.kill(child._guardian, signal.SIGCONT)
child.close()
"""
    subprocess.run([sys.executable, "-c", telling], timeout=PATIENCE, check=True)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.skipif(
    os.geteuid() != 0 or which("setpriv") is None,
    reason="only root can start another user's program",
)
async def test_a_command_that_cannot_be_killed_is_reported_while_it_runs_on(
    cli: Cli, three_nodes: NodeSet
) -> None:
    another_user = ["setpriv", "--reuid", "65534", "--clear-groups"]
    command = ["sh", "-c", "echo ready; read line; exit 0"]
    words = cli.words("run", "--grace", "0.1", "x", "--", *another_user, *command)
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    # Without this capability, root may not send signals to another user's process.
    with subprocess.Popen(
        ["setpriv", "--bounding-set", "-kill", *words], env=cli.env, text=True, **streams
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert line(process) == "ready"
        process.send_signal(signal.SIGUSR1)
        await take_away(three_nodes, "x")
        assert process.stderr.readline() == (
            "aioredlock-ng run: the command cannot be killed, and may run on without the lock\n"
        )
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(PATIENCE) == 75
