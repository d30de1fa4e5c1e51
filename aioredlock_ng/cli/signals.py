"""Sort the signals to `run` and `elect`, and end the program as a signal would."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

__all__ = ["STOPPING", "TO_THE_CHILD", "TO_THE_GROUP", "ended_by", "interruptible", "run"]

STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end the wait for the lock.

While the child runs, every process in the child's group gets these signals too. If only the child
received them, a child that is a shell could end while its commands live on.
"""

TO_THE_GROUP: Final = (*STOPPING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
TO_THE_CHILD: Final = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""Signals that only the child gets.

A process without handlers for these signals would be killed, so the rest of the group does not
receive them.
"""

T = TypeVar("T")


class _Interrupted(SystemExit):
    """SIGINT ends the program, after the program has cleaned up."""


def ended_by(number: int) -> SystemExit:
    """Return the exception that ends the program after signal `number`.

    The exit status is 128 plus the signal's number, as in shells. After SIGINT, `interruptible`
    ends the process by this signal.
    """
    return (_Interrupted if number == signal.SIGINT else SystemExit)(128 + number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT end this process in the block without a traceback, and without a normal exit.

    At Control-C, bash also sends SIGINT to itself only if the program that it waits for was ended
    by SIGINT. After a normal exit with status 130, a script would go on with its next command.
    """
    former = signal.getsignal(signal.SIGINT)
    if former is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    except _Interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        raise
    finally:
        signal.signal(signal.SIGINT, former)


def run(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine that handles SIGINT by its event loop, and restore the former action.

    At its end, an event loop sets Python's own handler. With that handler, Control-C between two
    terms would not end the program by SIGINT; see `interruptible`.
    """
    import asyncio

    former = signal.getsignal(signal.SIGINT)
    try:
        return asyncio.run(work)
    finally:
        signal.signal(signal.SIGINT, former)
