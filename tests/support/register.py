"""Detects two holders at the same time, in one process or in several.

All holders map the same file. The register prevents no overlap.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

__all__ = ["Register"]

_NOBODY = 0


class Register:
    """Records the number of the holder, and counts overlaps.

    An overlap is counted if a holder enters beside another holder. An overlap is also counted if a
    holder leaves and finds the number of another holder.

    Args:
        path: A file that all holders share. The file is made if it is missing.

    Attributes:
        overlaps: Number of overlaps that this process has seen.
    """

    def __init__(self, path: Path) -> None:
        self.overlaps = 0
        with path.open("a+b") as file:
            if file.tell() < struct.calcsize("q"):
                file.truncate(struct.calcsize("q"))
            self._map = mmap.mmap(file.fileno(), struct.calcsize("q"))
        self._cell = memoryview(self._map).cast("q")

    def enter(self, who: int) -> None:
        """Record that the holder with the number `who` has the lock. The number is never 0."""
        if self._cell[0] != _NOBODY:
            self.overlaps += 1
        self._cell[0] = who

    def leave(self, who: int) -> None:
        """Record that the holder with the number `who` is about to release the lock."""
        if self._cell[0] != who:
            self.overlaps += 1
        self._cell[0] = _NOBODY

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cell.release()
        self._map.close()
