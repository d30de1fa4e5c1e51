"""Gather the commands into one typer app."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from aioredlock_ng import __version__

from .manual import Command, Group
from .pages import PAGES

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["build"]

_COMMANDS = {
    "run": "run",
    "elect": "electing",
    "inspect": "inspecting",
    "ls": "listing",
    "release": "releasing",
    "wait": "waiting",
    "top": "top",
    "bench": "bench",
    "doctor": "doctor",
    "demo": "demo.command",
}
"""The module of each command, in the order of the help. Each module has a function with the
command's name."""


def build(words: Sequence[str] = ()) -> typer.Typer:
    """Return the app with its commands.

    Args:
        words: The command line. If the first word that does not begin with a dash is a command, the
            app has only that command. Otherwise the app has all commands. Only the modules of the
            app's commands are imported, so `run` does not import code for tables.
    """
    app = typer.Typer(
        cls=Group,
        help=(
            "Distributed locks over independent Redis or Valkey nodes.\n\nThe nodes come"
            " from --node URL, or from AIOREDLOCK_NG_NODES. COMMAND --help shows the options of a"
            " command."
        ),
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        # In logs and pipes, boxes and colours would garble the help and the error messages.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_commands)
    wanted = next((word for word in words if not word.startswith("-")), "")
    for name, module in _COMMANDS.items():
        if name == wanted or wanted not in _COMMANDS:
            function = getattr(import_module(f"{__package__}.{module}"), name)
            # Without this text, typer would take the docstring, which `python -OO` removes.
            app.command(name, cls=Command, help=PAGES[name].description)(function)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"aioredlock-ng {__version__}")
        raise typer.Exit


def _commands(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """The commands of aioredlock_ng."""
