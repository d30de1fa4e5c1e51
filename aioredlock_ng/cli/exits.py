"""Exit statuses, and how a command ends with an error: one line on standard error; it never shows a traceback."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import typer

from aioredlock_ng import ConfigurationError, QuorumUnreachable, RedlockError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HELD", "LOST", "NO_OUTPUT", "NO_QUORUM", "USAGE", "reported", "say"]

HELD: Final = 1
"""Another holds the lock: as flock."""

USAGE: Final = 2
"""The command line or a setting cannot be right; nothing was done."""

NO_QUORUM: Final = 69
"""No majority of the nodes answered, or a majority refuses: EX_UNAVAILABLE of sysexits.h."""

NO_OUTPUT: Final = 74
"""Standard output does not take what was found, a full disk for one: EX_IOERR of sysexits.h."""

LOST: Final = 75
"""The lock was lost while the child ran: EX_TEMPFAIL of sysexits.h."""


def say(command: str, words: str) -> None:
    """Tell the user one thing, on one line of standard error; nobody may be there to read it."""
    # Closed from the start, it is None; the exit status must not depend on it.
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"aioredlock-ng {command}: {' '.join(words.split())}\n")
        sys.stderr.flush()


@contextmanager
def reported(command: str) -> Iterator[None]:
    """Turn the library's errors into a line and an exit status; its log stays silent.

    Raises:
        typer.Exit: With the status.
    """
    # Without any handler, Python itself would print warnings among the command's own lines.
    logging.getLogger("aioredlock_ng").addHandler(logging.NullHandler())
    try:
        yield
    except ConfigurationError as error:
        say(command, str(error))
        raise typer.Exit(USAGE) from None
    except QuorumUnreachable as error:
        say(command, str(error))
        raise typer.Exit(NO_QUORUM) from None
    except RedlockError as error:
        say(command, str(error))
        raise typer.Exit(HELD) from None
