"""Run a child process, which on Linux dies with this process."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["Child", "remover_of"]

# The child runs this code before it becomes the program. The kernel then kills the child when its
# parent dies in any way. The code replaces preexec_fn, which is unsafe in a process with threads.
# The parent may die before the call of prctl, so the code compares the parent's pid after the call.
_DIE_WITH_PARENT = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])\n"
)


class Child:
    """A running program whose output goes to a log file.

    The program belongs to the process that started it. A fork of this process neither ends the
    program nor learns of its end.

    Args:
        command_line: The program and its arguments.
        log: The file to which the output is appended.
    """

    def __init__(self, command_line: Sequence[str], log: Path) -> None:
        self.pid = 0
        self._starter = os.getpid()
        self.exited = threading.Event()
        self._spawned = threading.Event()
        self._error: OSError | None = None
        # For the kernel, the parent is the thread that forked. The thread must live as long as the
        # child, and therefore waits for the child.
        threading.Thread(
            target=self._own, args=(list(command_line), log), name="child-owner", daemon=True
        ).start()
        self._spawned.wait()
        if self._error is not None:
            raise self._error

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. Nothing happens if the process has ended."""
        if not self.exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def pause(self) -> None:
        """Stop the process (SIGSTOP) and return once it has stopped."""
        self.signal(signal.SIGSTOP)
        if hasattr(os, "waitid"):
            # os.kill() may return before the process has stopped, and the process could still
            # answer. So wait here.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self) -> None:
        """Kill the process (SIGKILL) and return once it is gone.

        Raises:
            RuntimeError: Another process has started the program.
        """
        if self._starter != os.getpid():
            # The thread that waits for the program does not exist in a fork.
            raise RuntimeError(f"the process {self.pid} belongs to the process {self._starter}")
        self.signal(signal.SIGKILL)
        self.exited.wait()

    def terminate(self, patience: float) -> None:
        """End the process by SIGTERM, even if it is paused.

        SIGKILL follows if the process still exists after `patience` seconds. Nothing happens if
        another process has started the program.
        """
        if self._starter != os.getpid():
            return
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


def remover_of(owner: object, folder: Path) -> Callable[[], object]:
    """Return a function that removes the folder, at the latest with `owner` or at the exit.

    A forked process does not remove the folder, because the parent still uses it.
    """
    return weakref.finalize(owner, _remove, folder, os.getpid())


def _remove(folder: Path, owning_pid: int) -> None:
    if os.getpid() == owning_pid:
        shutil.rmtree(folder, ignore_errors=True)
