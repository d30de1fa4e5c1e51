"""Provide a standard output that raises `OutputFailed` when a write fails."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["OutputFailed", "watched_output"]


class OutputFailed(Exception):
    """A write to standard output failed. The attribute `error` is the system's error."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror)
        self.error = error


class _Output(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise OutputFailed(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputFailed(error) from error


@contextmanager
def watched_output(command: str) -> Iterator[None]:
    """Turn a failed write to standard output into an error line and an exit status.

    If the reader of a pipe is gone, no error line is written. In this case, the status is that of a
    process killed by SIGPIPE.

    Args:
        command: Name of the command, for the error line.

    Raises:
        SystemExit: Standard output could not be written.
    """
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper):
        yield
        return
    output = _Output(
        stream.buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    try:
        with redirect_stdout(output):
            try:
                yield
            finally:
                output.flush()
    except OutputFailed as failed:
        # At its exit, Python writes the rest of the buffer again. That write would fail and print a
        # traceback, so it now goes to the null device.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if isinstance(failed.error, BrokenPipeError):
            raise SystemExit(128 + signal.SIGPIPE) from None
        from .exits import NO_OUTPUT, say

        say(command, f"cannot write to standard output: {failed}")
        raise SystemExit(NO_OUTPUT) from None
    finally:
        output.detach()
