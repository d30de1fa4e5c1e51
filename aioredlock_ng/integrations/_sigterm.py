"""Release locks when SIGTERM ends a program."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ending_by_sigterm"]


@contextmanager
def ending_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the body by SystemExit, where it would kill the process at once.

    Without this, the lock of the body would block others until its ttl is over. A handler of the
    program itself stays. A second SIGTERM kills the process.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, _: object) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)
