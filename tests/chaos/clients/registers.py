"""The unprotected register: numbers in a file that all processes map; writing is not atomic with
reading, on purpose.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PlainRegisters", "make_registers"]

_WIDTH = 8


def make_registers(path: Path, count: int) -> None:
    """Make a file of so many registers, all 0."""
    path.write_bytes(bytes(_WIDTH * count))


class PlainRegisters:
    """Registers by number.

    Args:
        path: Made by `make_registers`.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._cells = memoryview(self._map).cast("q")

    def read(self, index: int) -> int:
        """The id of the last write; 0 before the first."""
        return self._cells[index]

    def write(self, index: int, value: int) -> None:
        """Overwrite, whatever is there."""
        self._cells[index] = value
