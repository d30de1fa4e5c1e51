"""Provide the shared counters as bytes in a file, without atomic increments or file locks."""

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
    """A file with `count` numbers, each in 8 aligned bytes.

    The class deliberately has no method that increments a number. Workers read a number, wait for
    something, and write a new number. Real code that uses a database, an object store or an HTTP
    API works in the same way.
    """

    def __init__(self, path: Path, count: int) -> None:
        self._file = os.open(path, os.O_RDWR)
        self._count = count

    @classmethod
    def create(cls, path: Path, count: int) -> Self:
        """Make the file with all numbers at 0, and open it."""
        path.write_bytes(bytes(_NUMBER.size * count))
        return cls(path, count)

    def read(self, index: int) -> int:
        """Return one number."""
        value: int = _NUMBER.unpack(os.pread(self._file, _NUMBER.size, self._place(index)))[0]
        return value

    def write(self, index: int, value: int) -> None:
        """Write one number, even if the number in the file has changed since it was read."""
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
