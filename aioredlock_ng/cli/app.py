"""Gathers the commands into one typer app; a command's own work never lives here."""

from __future__ import annotations

import typer

from .demo.command import demo
from .doctor import doctor

__all__ = ["build"]


def build() -> typer.Typer:
    """Return the app with every command registered; nothing has run yet."""
    app = typer.Typer(
        help="aioredlock_ng: one holder in the whole fleet, over independent Redis nodes.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_commands)
    app.command("demo")(demo)
    app.command("doctor")(doctor)
    return app


def _commands() -> None:
    """The commands of aioredlock_ng."""
