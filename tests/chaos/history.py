"""What one process saw, one JSON line per thing that happened, by the machine's own clock; it never judges."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["NANO", "History", "now", "read"]

NANO: Final = 1_000_000_000

# The same for every process of a machine, and what the library reads as well.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> int:
    """Nanoseconds on the clock that all histories of a run share."""
    return time.clock_gettime_ns(_CLOCK)


class History:
    """A file of lines in the order of time, each on disk (as far as a killed process is concerned) when `write` returns.

    Args:
        path: A file of this process alone.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="ascii", buffering=1)

    def write(self, event: str, at: int | None = None, **fields: Any) -> None:
        """Add a line.

        Args:
            event: What happened.
            at: When, if that was read before; nothing may have been awaited since.
            fields: The rest.
        """
        line = {"t": now() if at is None else at, "e": event, **fields}
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Nothing more will happen."""
        self._file.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a history; the last one may be torn where its process was killed."""
    with path.open(encoding="ascii") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)
