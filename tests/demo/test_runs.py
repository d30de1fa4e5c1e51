"""The whole demo, played quickly on real servers by real processes: what it shows, and that nothing
of it stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import secrets
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng.testing import LocalNodes

if TYPE_CHECKING:
    from collections.abc import Iterator

# Inherited by every process of a run, whatever session it puts itself in.
MARK = "AIOREDLOCK_NG_TESTED_RUN"

QUICK = ("--seconds", "6", "--workers", "3", "--coroutines", "10", "--counters", "12")
SHORTEST = ("--seconds", "3", "--workers", "2", "--coroutines", "5", "--counters", "6")

AS_IF_LOST = """
from aioredlock_ng.cli import main
from aioredlock_ng.cli.demo import command
from aioredlock_ng.cli.demo.ledger import Verdict
command.judge = lambda phases, losses: Verdict(("2 updates were lost",))
main()
"""


@dataclass
class Run:
    process: subprocess.Popen[str]
    mark: str
    folder: Path

    def finished(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=200)
        return self.process.returncode, out, err

    def reach(self, words: str) -> None:
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if words in line:
                return
        pytest.fail(f"{words!r} was never printed:\n{''.join(seen)}")

    def living(self) -> list[int]:
        """The processes of this run; one that has ended and waits to be reaped has no environment
        any more.
        """
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and self._is_ours(entry)
        ]

    def nothing_stays(self, within: float = 30.0) -> None:
        end = time.monotonic() + within
        while (living := self.living()) and time.monotonic() < end:
            time.sleep(0.01)
        assert living == []

    def _is_ours(self, process: Path) -> bool:
        try:
            return f"{MARK}={self.mark}".encode() in (process / "environ").read_bytes()
        except OSError:
            return False


@contextmanager
def demo(*arguments: str, program: tuple[str, ...] = ("-m", "aioredlock_ng")) -> Iterator[Run]:
    # Not pytest's tmp_path, which is too long for a Unix socket on some systems.
    with tempfile.TemporaryDirectory(prefix="rl-") as folder:
        mark = secrets.token_hex(8)
        process = subprocess.Popen(
            [sys.executable, *program, "demo", *arguments],
            env={**os.environ, MARK: mark, "TMPDIR": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        run = Run(process, mark, Path(folder))
        try:
            yield run
        finally:
            process.kill()
            process.communicate()
            for pid in run.living():
                os.kill(pid, signal.SIGKILL)


# A minute of real faults: Python 3.13 or uvloop change nothing about it that the first test would
# not show.
once = pytest.mark.once
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"
)


@needs_proc
def test_nothing_is_lost_under_the_lock_and_nothing_stays() -> None:
    with demo(*QUICK) as run:
        status, out, err = run.finished()

        assert (status, err) == (0, ""), out + err
        run.nothing_stays()
        assert list(run.folder.iterdir()) == []
    assert "\x1b" not in out
    without = re.search(r"without the lock: ([\d,]+) of ([\d,]+) updates lost", out)
    assert without is not None
    assert without[1] != "0", "a count that sees no loss without the lock would see none under it"
    assert re.search(r"under the lock: 0 of [1-9][\d,]* updates lost", out)
    for phase in ("1 of 5 hung", "2 of 5 gone", "nodes back", "taken away"):
        assert re.search(
            rf"lock, {phase} *\| +[1-9].*\| +0 \| +[\d.]+ \| +[\d.]+\|\n",
            out.partition("summary")[2],
        )
    assert max(map(len, out.splitlines())) <= 80
    assert len(re.findall(r"noticed [\d.]+ s after", out)) == 2
    assert "nothing was lost under the lock" in out


@once
def test_an_update_lost_under_the_lock_ends_the_demo_with_status_1_and_the_reason() -> None:
    with demo("--plain", *SHORTEST, program=("-c", AS_IF_LOST)) as run:
        status, out, err = run.finished()

    assert (status, err) == (1, ""), out + err
    assert "FAILED: 2 updates were lost\n" in out
    assert "nothing was lost" not in out


def shown_on_a_terminal(*arguments: str) -> str:
    """Return all that a demo writes to a terminal, control codes included. The demo must pass."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    words, env = (
        [sys.executable, "-m", "aioredlock_ng", "demo", *arguments],
        {**os.environ, "TERM": "xterm-256color"},
    )
    shown = b""
    with subprocess.Popen(
        words, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        # Reading raises an OSError when the demo has ended.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65_536):
                shown += part
        assert process.wait(200) == 0, shown.decode()
    os.close(ours)
    return shown.decode()


@once
def test_on_a_terminal_the_picture_is_live_and_the_whole_ends_within_a_minute() -> None:
    began_at = time.monotonic()
    text = shown_on_a_terminal()

    # A minute is promised; twice that on a machine that is busy with other tests.
    assert time.monotonic() - began_at < 120
    for words in ("● up", "◌ hung", "✕ killed", "noticed", "nothing was lost under the lock"):
        assert words in text
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert max(map(len, plain.splitlines())) <= 80
    # An update in flight is not lost, in no picture.
    drawn = re.findall(r"lock, [a-z0-9 ]+?  +([\d,]+) +([\d,]+) +([\d,]+) +[-\d]", plain)
    assert len(drawn) > 100
    assert {lost for _, _, lost in drawn} == {"0"}
    # Drawn over itself again and again.
    assert text.count("\x1b[1A") > 50


@once
def test_plain_output_has_no_control_codes_on_a_terminal_either() -> None:
    text = shown_on_a_terminal("--plain", *SHORTEST)

    assert "nothing was lost under the lock" in text
    assert "\x1b" not in text


@once
@needs_proc
@pytest.mark.parametrize("ask", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_demo_leaves_nothing(ask: signal.Signals) -> None:
    with demo(*QUICK) as run:
        run.reach("node 1 hung")
        run.process.send_signal(ask)
        status, _, err = run.finished()

        assert status == (-ask if ask == signal.SIGINT else 128 + ask), err
        assert "stopped by a signal" in err
        run.nothing_stays()
        assert list(run.folder.iterdir()) == []


@once
@needs_proc
@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux ends the children of a killed process"
)
def test_a_killed_demo_leaves_no_process_not_even_a_frozen_one() -> None:
    with demo(*QUICK) as run:
        run.reach("frozen (SIGSTOP)")
        run.process.kill()

        run.nothing_stays()


@once
def test_given_nodes_are_not_disturbed_and_the_omitted_scenes_are_named() -> None:
    with (
        LocalNodes(3) as nodes,
        demo("--plain", *QUICK, *(word for url in nodes.urls for word in ("--url", url))) as run,
    ):
        status, out, err = run.finished()

        assert (status, err) == (0, ""), out + err
        assert "left out: hanging and killing servers" in out
        assert "hung" not in out.partition("summary")[2]
        assert len(re.findall(r"noticed [\d.]+ s after", out)) == 2
        assert all(server.running for server in nodes)
        assert [server.command("KEYS", "demo:*") for server in nodes] == [b"0"] * 3


@once
def test_throw_away_nodes_are_paused_for_a_while() -> None:
    urls = ("--pause-nodes",)
    with (
        LocalNodes(3) as nodes,
        demo(*urls, *QUICK, *(word for url in nodes.urls for word in ("--url", url))) as run,
    ):
        status, out, err = run.finished()

        assert (status, err) == (0, ""), out + err
        assert "node 1 hung (CLIENT PAUSE" in out
        assert "node 1 is back" in out
        assert re.search(r"lock, 1 of 3 hung *\| +[1-9]", out.partition("summary")[2])
