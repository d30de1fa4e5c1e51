"""Run a worker of a task queue in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.coverage import untraced

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

__all__ = ["PATIENCE", "Worker", "until"]

PATIENCE = 60.0
"""Seconds for what takes a few at most: starting a worker on a machine that is busy with others."""

ROOT = Path(__file__).parents[2]


def until(condition: Callable[[], object], within: float = PATIENCE) -> None:
    """Wait until the condition is true, and fail if that takes too long."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)


class Worker:
    """A worker process, which is killed at the end of the `with` block.

    Args:
        command: Arguments of the interpreter.
        folder: Folder for the files by which a task shows that it has begun.
        broker: URL of the queue's server.
    """

    def __init__(self, command: list[str], folder: Path, broker: str) -> None:
        self._folder = folder
        self._log = folder / f"worker-{len(list(folder.glob('worker-*')))}.log"
        ours = {
            "BROKER": broker,
            "FOLDER": str(folder),
            "BANK": str(folder),
            "PYTHONPATH": str(ROOT),
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-u", *command],
                env={**untraced(), **ours},
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The signal goes to the children of the worker as well.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        if error is not None:
            error.add_note(self.said)

    @property
    def said(self) -> str:
        """Return the output of the worker until now."""
        return self._log.read_text(errors="replace")

    def begun(self, name: str) -> int:
        """Wait until a task of this name has begun; return the id of its process."""
        file = self._folder / f"{name}.begun"
        until(lambda: file.exists() and file.read_text())
        return int(file.read_text())

    def let_end(self, name: str) -> None:
        """Let the task of this name end."""
        (self._folder / f"{name}.end").touch()

    def ends(self, number: signal.Signals) -> int:
        """Send a signal, wait for the end, and return the status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)
