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
    """Make SIGTERM raise SystemExit in the body, instead of killing the process immediately.

    A killed process does not release its lock, and other clients must wait until the lock expires.
    If the program has its own handler for SIGTERM, that handler stays. In a thread other than the
    main thread nothing is changed. A second SIGTERM kills the process.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        # The body may have set a handler of its own, which stays.
        if signal.getsignal(signal.SIGTERM) is _end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, _: object) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)
