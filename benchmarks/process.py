"""Start a driver process, run its phases and end it. Every wait has a limit."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

__all__ = ["Driver", "DriverFailed", "run_client"]

if TYPE_CHECKING:
    from .clients import Client

_CONNECT_SECONDS = 30.0
# Seconds in addition to a phase: first cycles, the wait for stuck ones, and their cancellation.
_EXTRA_SECONDS = 40.0
_END_SECONDS = 5.0


class DriverFailed(RuntimeError):
    """The driver ended, or printed nothing in time.

    The message holds the end of its error output.
    """


class Driver:
    """A running driver, usable with `with`.

    Args:
        command: The command line without the task.
        variables: The environment variables.
        task: The task, see `drivers.load`.
    """

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str], task: Mapping[str, Any]
    ) -> None:
        self._process = subprocess.Popen(
            [*command, json.dumps(task)],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._errors: list[str] = []
        for target in (self._read, self._drain):
            threading.Thread(target=target, daemon=True).start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ready(self) -> dict[str, Any]:
        """Wait until the driver is connected, and return its first line."""
        return self.line(_CONNECT_SECONDS)

    def phase(self, seconds: float) -> dict[str, Any]:
        """Start the next phase and return its figures.

        Args:
            seconds: The length of the phase.
        """
        self.begin()
        return self.line(seconds + _EXTRA_SECONDS)

    def begin(self) -> None:
        """Start the next phase."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def line(self, timeout: float) -> dict[str, Any]:
        """Return the next JSON line of the driver.

        Args:
            timeout: Seconds to wait for the line.

        Raises:
            DriverFailed: The driver ended, or printed no line in time.
        """
        try:
            text = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise DriverFailed(f"nothing for {timeout:.0f} s") from None
        if not text:
            raise DriverFailed("ended: " + "".join(self._errors[-12:]).strip()[-1500:])
        answer: dict[str, Any] = json.loads(text)
        return answer

    def close(self) -> None:
        """End the process. A process that ignores the end of its stdin is killed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(_END_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for text in lines:
                self._lines.put(text)
        self._process.wait()
        self._lines.put("")

    def _drain(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for text in lines:
                self._errors.append(text)
                del self._errors[:-50]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def run_client(
    client: Client,
    urls: Sequence[str],
    coroutines: int,
    seconds: float,
    ttl: float = 10.0,
    options: dict[str, Any] | None = None,
    every: float | None = None,
    *,
    servers: Sequence[str] = (),
) -> dict[str, Any]:
    """Run one client through a single phase.

    `options` are arguments of `Redlock`, so they are for our clients only. `every` and `servers`
    are described in `drivers.load`.

    Returns:
        The figures of the phase, or `{"failed": why}`. A client that cannot run does not end the
        benchmark.
    """
    task = {
        "urls": urls,
        "coroutines": coroutines,
        "ttl": ttl,
        "phases": [{"name": "cycle", "seconds": seconds, "every": every, "servers": servers}],
    }
    task["options"] = options or {}
    try:
        with Driver(client.command(), client.variables(), task) as driver:
            about = driver.ready()
            return driver.phase(seconds) | {
                "versions": about["versions"],
                "python": about["python"],
            }
    except DriverFailed as failure:
        return {"failed": str(failure)}
