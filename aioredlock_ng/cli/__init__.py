"""Start the command line.

This module imports typer and rich only inside `main`. If typer or rich is not installed, `main`
prints the name of the extra that installs both, and exits.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

# The extras "cli" and "demo" install these packages. The library itself does not need them.
_FROM_THE_EXTRA = ("typer", "rich")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    Args:
        arguments: The words after the program's name. Default: the arguments of this process.

    Raises:
        SystemExit: Always, with the command's exit status. The status is 2 if a package of the
            extra "cli" or "demo" is missing.
    """
    from .signals import interruptible

    words = list(sys.argv[1:] if arguments is None else arguments)
    holds = words[:1] in (["run"], ["elect"])
    if not holds:
        _mend_streams()
    child: list[str] = []
    if holds and "--" in words:
        # The parser would remove the "--" between the lock names and the user's command. So the two
        # parts are separated before the parser runs.
        end = words.index("--")
        words, child = words[:end], words[end + 1 :]
    with interruptible():
        _run(words, child)


def _run(words: list[str], child: list[str]) -> NoReturn:
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
            f"aioredlock-ng: the command line needs the package {package!r}, which is not"
            f' installed.\nInstall aioredlock-ng with its extra "{extra}".\n'
        )
        raise SystemExit(2) from None
    with watched_output(words[0] if words else "--help"):
        app(words, prog_name="aioredlock-ng", obj=child)
    raise SystemExit(0)


def _mend_streams() -> None:
    """Replace missing standard streams, and set the error handler of the output streams.

    A standard stream is None if it was closed when this process started. The error handler escapes
    characters that the terminal's encoding lacks. The name of a lock may contain such characters.
    """
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and name != "stdin":
            stream.reconfigure(errors="backslashreplace")
