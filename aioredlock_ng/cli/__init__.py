"""The command line's front door; never imports typer or rich before a command is asked for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

# What `pip install "aioredlock-ng[demo]"` brings and the library itself does without.
_FROM_THE_EXTRA = ("typer", "rich")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    Args:
        arguments: The words after the program's name; those of this process when not given.

    Raises:
        SystemExit: Always, with the command's exit status; 2 when the packages of the extra are not installed.
    """
    try:
        from .app import build
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _FROM_THE_EXTRA:
            raise
        sys.stderr.write(
            f"aioredlock_ng: the command line needs the package {package!r}, which is not installed.\n"
            'Install it with the extra: pip install "aioredlock-ng[demo]"\n'
        )
        raise SystemExit(2) from None
    build()(list(arguments) if arguments is not None else None, prog_name="aioredlock_ng")
