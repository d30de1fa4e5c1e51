"""`aioredlock-ng run` on a terminal: reading it, Control-C, Control-Z; never more than one terminal
per test.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from tests.cli.commands import PATIENCE, Cli, connected, python
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once

# Does for a job what a shell does. The job gets a process group of its own, which is put in the
# foreground. The program prints when the job stops and when the job ends.
SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
signal.signal(signal.SIGINT, lambda *_: print("the shell is interrupted", flush=True))
job = os.fork()
if job == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.setpgid(0, 0)
    os.tcsetpgrp(2, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    _, status = os.waitpid(job, os.WUNTRACED)
    os.tcsetpgrp(2, os.getpgrp())
    if not os.WIFSTOPPED(status):
        print("exit", os.waitstatus_to_exitcode(status), flush=True)
        break
    print("stopped", flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(2, job)
    os.killpg(job, signal.SIGCONT)
"""

READER = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    print("got", line.strip(), flush=True)
"""

# Python may be told between its last look at signals and its read, which then goes on for ever: not
# so what the kernel ends, nor what reads one more line.
ENDED_BY_SIGINT = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)" + READER
TELLS_OF_SIGINT = (
    "import os, signal; signal.signal(signal.SIGINT, lambda *_: os.write(1, b'told\\n'))" + READER
)


class Terminal:
    """Our end of a terminal."""

    def __init__(self, end: int) -> None:
        self._end = end
        self._seen = b""

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._end, text.encode())

    def expect(self, text: str) -> str:
        """Read on until `text` is shown; return what came before.

        The test's own time limit bounds it.
        """
        while text.encode() not in self._seen:
            try:
                part = os.read(self._end, 1024)
            except OSError:
                part = b""
            assert part, f"the terminal is closed; it showed {self._seen!r}, not {text!r}"
            self._seen += part
        before, _, self._seen = self._seen.partition(text.encode())
        return before.decode()


@contextmanager
def on_a_terminal(cli: Cli, *words: str, **settings: int) -> Iterator[Terminal]:
    """Run the command line as the one job of a small shell on a terminal of its own."""
    ours, theirs = pty.openpty()
    # The controlling terminal is the first that a session's leader opens.
    take = (
        "import os, pty, sys; os.setsid(); os.close(os.open(os.ttyname(2), os.O_RDWR)); "
        f"exec({SHELL!r})"
    )
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs, **settings}
    with subprocess.Popen([*python(take), *cli.words(*words)], env=cli.env, **streams) as process:
        os.close(theirs)
        try:
            yield Terminal(ours)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            os.close(ours)


def test_the_command_can_use_the_terminal(cli: Cli) -> None:
    with on_a_terminal(cli, "run", "x", "--", *python(READER)) as terminal:
        terminal.expect("ready")
        terminal.type("hello\n")
        terminal.expect("got hello")
        terminal.type("\x04")
        terminal.expect("exit 0")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the files of a process")
async def test_elect_leaves_no_file_open_from_term_to_term(cli: Cli, three_nodes: NodeSet) -> None:
    count = "import os; print(len(os.listdir(f'/proc/{os.getppid()}/fd')), 'open', flush=True)"
    with on_a_terminal(cli, "elect", "x", "--", *python(f"{count}{READER}")) as terminal:
        first = terminal.expect(" open").split()[-1]
        terminal.expect("ready")
        async with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:
            await redlock.force_release("x")
        assert terminal.expect(" open").split()[-1] == first
        terminal.expect("ready")
        terminal.type("\x04")
        terminal.expect("exit 0")


def test_control_c_ends_the_command_and_sets_the_exit_status(cli: Cli) -> None:
    with on_a_terminal(cli, "run", "x", "--", *python(ENDED_BY_SIGINT)) as terminal:
        terminal.expect("ready")
        terminal.type("\x03")
        terminal.expect("exit -2")


def test_control_c_reaches_the_command_once(cli: Cli) -> None:
    with on_a_terminal(cli, "run", "x", "--", *python(TELLS_OF_SIGINT)) as terminal:
        terminal.expect("ready")
        terminal.type("\x03")
        terminal.type("hello\n")
        before = terminal.expect("got hello")
        terminal.type("\x04")
        assert (before + terminal.expect("exit 0")).count("told") == 1


async def test_control_c_ends_the_wait_for_a_lock(cli: Cli, three_nodes: NodeSet) -> None:
    with cli.holding("x"), on_a_terminal(cli, "run", "x", "--", "true") as terminal:
        await eventually(lambda: connected(three_nodes) == 2, within=PATIENCE, every=0.05)
        terminal.type("\x03")
        terminal.expect("exit -2")


def test_control_z_stops_run_and_its_command_and_the_shell_goes_on(cli: Cli) -> None:
    with on_a_terminal(cli, "run", "x", "--", *python(READER)) as terminal:
        terminal.expect("ready")
        terminal.type("\x1a")
        terminal.expect("stopped")
        terminal.type("fg\n")
        terminal.type("hello\n")
        terminal.expect("got hello")
        terminal.type("\x04")
        terminal.expect("exit 0")


@pytest.mark.parametrize("key", ["\x03", "\x1a"])
def test_a_key_of_the_terminal_reaches_a_command_with_redirected_output(cli: Cli, key: str) -> None:
    read, write = os.pipe()
    with (
        open(read, encoding="utf-8") as output,
        on_a_terminal(cli, "run", "x", "--", *python(ENDED_BY_SIGINT), stdout=write) as terminal,
    ):
        os.close(write)
        assert output.readline() == "ready\n"
        terminal.type(key)
        if key == "\x1a":
            assert output.readline() == "stopped\n"
            terminal.type("fg\n\x04")
            assert output.readline() == "exit 0\n"
        else:
            assert output.readline() == "exit -2\n"
