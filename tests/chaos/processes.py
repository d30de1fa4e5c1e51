"""The processes of a run. The main thread starts them, and they end with it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Process"]

_FOLDER: Final = Path(__file__).parents[1]

# The package by a short name: `tests` itself imports pytest, which the environments of other
# libraries do not have, and a process that is stopped does not see that its parent is gone. The
# folder comes last: it has a `typing` in it. Half a second of imports is nobody's fault, and must
# not look like one: they give way to the others, where a process may take its priority back. (Where
# it may not, it has one step less, like all.) Five steps, not more: a process with the least
# priority does not begin within minutes on a machine that is busy.
_START: Final = """
import sys, json, importlib, ctypes, os, contextlib
if sys.platform == "linux": ctypes.CDLL(None).prctl(1, 9)
sys.path.append(sys.argv[1])
usual = os.nice(1) - 1
with contextlib.suppress(PermissionError):
    os.setpriority(os.PRIO_PROCESS, 0, usual)
    os.setpriority(os.PRIO_PROCESS, 0, usual + 5)
module = importlib.import_module(sys.argv[2])
with contextlib.suppress(PermissionError):
    os.setpriority(os.PRIO_PROCESS, 0, usual)
module.main(json.loads(sys.argv[3]))
"""


class Process:
    """A process that runs a module of this package.

    Args:
        module: The module, such as "clients.worker". Its `main` gets the task.
        task: The settings of the process, as JSON.
        python: The interpreter.
        log: The file for its stderr.
    """

    def __init__(
        self, module: str, task: Mapping[str, Any], log: Path, python: Path | None = None
    ) -> None:
        command = [
            str(python or sys.executable),
            "-c",
            _START,
            str(_FOLDER),
            f"chaos.{module}",
            json.dumps(task),
        ]
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def line(self, seconds: float) -> str:
        """Return its next line of output; "" if it has ended.

        Raises:
            queue.Empty: No line came in time.
        """
        return self._lines.get(timeout=seconds)

    def say(self, line: str) -> None:
        """Send it a line. Nothing happens if it has ended."""
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):
            self._popen.stdin.write(line + "\n")
            self._popen.stdin.flush()

    @property
    def running(self) -> bool:
        """True while it exists, stopped or not."""
        return self._popen.poll() is None

    def stop(self) -> None:
        """Stop it (SIGSTOP), and return once it is stopped."""
        self._popen.send_signal(signal.SIGSTOP)
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._popen.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def go_on(self) -> None:
        """Let it run again (SIGCONT)."""
        self._popen.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it (SIGKILL), and return once it has ended."""
        self._popen.kill()
        self._popen.wait()
        self._close_pipes()

    def close(self, seconds: float) -> int:
        """Let it end by itself, kill it after so many seconds, and return its exit status."""
        self._close_stdin()
        try:
            status = self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL
        self._close_pipes()
        return status

    def _close_pipes(self) -> None:
        """Close the pipes of a process that has ended. Its output is read to the end."""
        self._close_stdin()
        self._reader.join()

    def _close_stdin(self) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):
            self._popen.stdin.close()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as lines:
            for line in lines:
                self._lines.put(line.rstrip("\n"))
        self._lines.put("")
