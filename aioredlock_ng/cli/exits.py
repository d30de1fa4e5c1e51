"""Define the exit statuses, and write the error line of a command that fails."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import typer

from aioredlock_ng import ConfigurationError, QuorumUnreachable, RedlockError
from aioredlock_ng.environment import slips

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HELD", "LOST", "NO_OUTPUT", "NO_QUORUM", "USAGE", "reported", "say"]

HELD: Final = 1
"""Another client holds the lock, the user answered no, or an error without its own status occurred.

The command `flock` also ends with 1 if another client holds the lock.
"""

USAGE: Final = 2
"""The command line or a setting is wrong. Nothing was done."""

NO_QUORUM: Final = 69
"""No majority of the nodes answered, or a majority cannot be used.

For example, a node with a wrong password cannot be used. The status is EX_UNAVAILABLE of
sysexits.h.
"""

NO_OUTPUT: Final = 74
"""Standard output cannot be written, for example to a full disk. The status is EX_IOERR of
sysexits.h."""

LOST: Final = 75
"""The lock was lost while the child ran. The status is EX_TEMPFAIL of sysexits.h."""


def say(command: str, words: str) -> None:
    """Write one line to standard error, or nothing if standard error is closed."""
    # `sys.stderr` is None if standard error was closed when this process started. A failed write of
    # the error line must not change the exit status.
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"aioredlock-ng {command}: {' '.join(words.split())}\n")
        sys.stderr.flush()


@contextmanager
def reported(command: str) -> Iterator[None]:
    """Turn a library error into an error line and an exit status. Hide the library's log messages.

    A variable that seems to be misspelt is reported, because the command would otherwise run with
    other settings than the services.

    Raises:
        typer.Exit: The library raised an error.
    """
    # If the logger had no handler, Python would print the library's warnings among the command's
    # own lines.
    logging.getLogger("aioredlock_ng").addHandler(logging.NullHandler())
    for slip in slips(os.environ):
        say(command, slip)
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
