"""The command line's front door; never imports typer or rich before a command is asked for."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

# What the extra "cli" brings, and "demo" with it, and the library itself does without.
_FROM_THE_EXTRA = ("typer", "rich")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    Args:
        arguments: The words after the program's name; those of this process when not given.

    Raises:
        SystemExit: Always, with the command's exit status; 2 when the packages of the extra are not installed.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] != ["run"]:
        _mend_streams()
    child: list[str] = []
    if words[:1] == ["run"] and "--" in words:
        # The parser would take the first "--" away, and nobody could tell the names from the command behind them.
        end = words.index("--")
        words, child = words[:end], words[end + 1 :]
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:
        # A traceback of half an import tells nobody anything.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from .app import build
        from .output import watched_output

        app = build(words)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _FROM_THE_EXTRA:
            raise
        extra = "demo" if "demo" in words else "cli"
        sys.stderr.write(
            f"aioredlock-ng: the command line needs the package {package!r}, which is not installed.\n"
            f'Install aioredlock-ng with its extra "{extra}".\n'
        )
        raise SystemExit(2) from None
    finally:
        signal.signal(signal.SIGINT, interrupted)
    with watched_output(words[0] if words else "--help"):
        app(words, prog_name="aioredlock-ng", obj=child)


def _mend_streams() -> None:
    """A stream that was closed from the start is None; and a lock's name may be more than a terminal's encoding can show."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and name != "stdin":
            stream.reconfigure(errors="backslashreplace")
