"""The console script: Control-C while everything is imported ends it without a traceback; importing it does nothing.

It is outside the package, whose own import is the longest of all.
"""

from __future__ import annotations

import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process.

    Raises:
        SystemExit: Always; see `aioredlock_ng.cli.main`.
    """
    # What is ignored from the start stays so; and a command that has something to clean up has a handler of its own.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from aioredlock_ng.cli import main

    main()
