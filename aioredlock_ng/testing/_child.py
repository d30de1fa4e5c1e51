"""One child process that dies with us and whose end is seen at once; never a shell, never a service."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Child"]

# Run in the child before it becomes the program: the kernel kills it when our process dies, however that happens.
# A tiny Python instead of preexec_fn, which is unsafe beside threads. The parent may be gone before prctl: look again.
_DIE_WITH_PARENT = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])\n"
)


class Child:
    """A running program, writing to a log file.

    Args:
        command_line: The program and its arguments.
        log: The file that its output is added to.
    """

    def __init__(self, command_line: Sequence[str], log: Path) -> None:
        self.pid = 0
        self.exited = threading.Event()
        self._spawned = threading.Event()
        self._error: OSError | None = None
        # To the kernel the parent is the thread that forked, so that thread must live as long as the child: it waits for it.
        threading.Thread(
            target=self._own, args=(list(command_line), log), name="child-owner", daemon=True
        ).start()
        self._spawned.wait()
        if self._error is not None:
            raise self._error

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process has ended."""
        if not self.exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def pause(self) -> None:
        """Stop the process (SIGSTOP) and return when it has stopped."""
        self.signal(signal.SIGSTOP)
        if hasattr(os, "waitid"):
            # The signal is only under way when kill() returns: the process could still answer something.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self) -> None:
        """Kill the process (SIGKILL) and return when it is gone."""
        self.signal(signal.SIGKILL)
        self.exited.wait()

    def terminate(self, patience: float) -> None:
        """End the process by SIGTERM, paused or not; by SIGKILL when it is still there after `patience` seconds."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if not self.exited.wait(patience):
            self.kill()

    def _own(self, command_line: list[str], log: Path) -> None:
        if sys.platform == "linux":
            command_line = [
                sys.executable,
                "-I",
                "-S",
                "-c",
                _DIE_WITH_PARENT,
                str(os.getpid()),
                *command_line,
            ]
        try:
            with log.open("ab") as output:
                process = subprocess.Popen(  # noqa: S603
                    command_line,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            self.pid = process.pid
            self._spawned.set()
            process.wait()
        except OSError as error:
            self._error = error
        finally:
            self.exited.set()
            self._spawned.set()
