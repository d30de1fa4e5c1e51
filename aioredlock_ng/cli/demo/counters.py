"""The shared counters: plain bytes in a file, read and written back; never an atomic increment, never a file lock."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

__all__ = ["Counters"]

_NUMBER = struct.Struct("=Q")


class Counters:
    """`count` numbers in one file, each 8 bytes at its own aligned place.

    What is missing on purpose is an increment: whoever wants one reads, waits for something, and writes back, as code
    around a database, an object store or somebody's HTTP API does.

    Args:
        path: The file; `create` makes it.
        count: How many numbers it holds.
    """

    def __init__(self, path: Path, count: int) -> None:
        self._file = os.open(path, os.O_RDWR)
        self._count = count

    @classmethod
    def create(cls, path: Path, count: int) -> Self:
        """Make the file with every number at 0, and open it."""
        path.write_bytes(bytes(_NUMBER.size * count))
        return cls(path, count)

    def read(self, index: int) -> int:
        """Return one number."""
        value: int = _NUMBER.unpack(os.pread(self._file, _NUMBER.size, self._place(index)))[0]
        return value

    def write(self, index: int, value: int) -> None:
        """Write one number back, over whatever is there by now."""
        os.pwrite(self._file, _NUMBER.pack(value), self._place(index))

    def total(self) -> int:
        """Return the sum of all numbers."""
        return sum(
            number
            for (number,) in _NUMBER.iter_unpack(
                os.pread(self._file, _NUMBER.size * self._count, 0)
            )
        )

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _place(self, index: int) -> int:
        if not 0 <= index < self._count:
            raise IndexError(f"counter {index} of {self._count}")
        return index * _NUMBER.size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
