"""The history of one process: one JSON line per event, by the machine's own clock."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["NANO", "SHOWN", "History", "now", "read"]

NANO: Final = 1_000_000_000

SHOWN: Final = 20
"""Characters of a token in a history. No two of all tokens of a run begin with the same ones.

The tokens of redis-py are UUIDs. Their first 16 characters are a time in microseconds, which two
processes may share. The next four differ from process to process."""

# The same for every process of a machine, and what the library reads as well.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> int:
    """Return the nanoseconds of the clock that all histories of a run share."""
    return time.clock_gettime_ns(_CLOCK)


class History:
    """A file of lines in the order of time. A kill of the process loses no line that was written.

    Args:
        path: A file of this process alone.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="ascii", buffering=1)
        # Two threads write the history of a process whose engine has a thread of its own.
        self._lock = threading.Lock()

    def write(self, event: str, at: int | None = None, **fields: Any) -> None:
        """Add a line.

        Args:
            event: The event.
            at: Its instant, if the caller has read the clock. It must not have awaited since.
            fields: The other fields of the line.
        """
        with self._lock:
            line = {"t": now() if at is None else at, "e": event, **fields}
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a history. A killed process may leave an incomplete last line."""
    with path.open(encoding="ascii") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)
