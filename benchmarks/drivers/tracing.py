"""Record the holds of a process in a file that survives SIGKILL, on any Python since 3.9."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

__all__ = ["Trace", "traced"]

# A hold takes sixteen bytes. The file is sparse.
_HOLDS = 1 << 18


class Trace:
    """The holds of this process, in a mapped file with the process id as its name.

    Args:
        folder: Where the file is made.
    """

    def __init__(self, folder: str) -> None:
        with (Path(folder) / str(os.getpid())).open("w+b") as file:
            file.truncate(16 * _HOLDS)
            self._times = memoryview(mmap.mmap(file.fileno(), 0)).cast("d")
        self._next = 0

    def got(self) -> int:
        """Begin a hold, and return its place in the file."""
        place, self._next = self._next, min(self._next + 2, len(self._times) - 2)
        # In a full file every further hold overwrites the last entry.
        self._times[place] = time.perf_counter()
        return place

    def leaves(self, place: int) -> None:
        """End a hold."""
        self._times[place + 1] = time.perf_counter()


def traced(folder: Path, pid: int) -> list[tuple[float, float]]:
    """Return the begin and the end of each hold of a process, in order.

    An unfinished hold ends at 0. A process without a file has no holds.
    """
    path = folder / str(pid)
    if not path.exists():
        return []
    times = memoryview(path.read_bytes()).cast("d")
    holds = []
    for at in range(0, len(times), 2):
        if not times[at]:
            break
        holds.append((times[at], times[at + 1]))
    return holds
