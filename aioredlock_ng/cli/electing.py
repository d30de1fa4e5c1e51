"""Provide the command `elect`, which runs another command while this host leads."""

from __future__ import annotations

import os
import socket
from typing import Annotated, Final

import typer

from aioredlock_ng._core.owners import printable_label

from . import signals
from .child import Child
from .exits import LOST, USAGE, reported, say
from .keeper import Job, Keeper
from .settings import KeyFormatOption, NodeOption, NodeTimeoutOption, manager, name_of

__all__ = ["elect"]

_GRACE_SHARE: Final = 0.8
"""Default time from SIGTERM to SIGKILL, as a share of the step-down time.

The rest of the step-down time is left for the killed processes to end.
"""


def elect(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The election.", show_default=False)],
    label: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL",
            help="Text by which others recognise this candidate. Default: host:process.",
            show_default=False,
        ),
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help=(
                "ttl of the lock, which is the longest wait of the other candidates if this host"
                " dies. Default: the environment, else 10."
            ),
            show_default=False,
        ),
    ] = None,
    step_down: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Time for the command to end if the lock cannot be renewed. Default: ttl / 3.",
            show_default=False,
        ),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Time from SIGTERM to SIGKILL, at most --step-down. Default: 0.8 of --step-down.",
            show_default=False,
        ),
    ] = None,
    rejoin: Annotated[
        bool,
        typer.Option(
            "--rejoin/--no-rejoin",
            help=(
                "After a loss of the lock: wait to lead again (default), or end with status 75"
                " (--no-rejoin)."
            ),
        ),
    ] = True,
    node: NodeOption = None,
    node_timeout: NodeTimeoutOption = None,
    key_format: KeyFormatOption = None,
) -> None:
    """Run the command `elect`, which pages.py describes."""
    command: list[str] = context.obj
    if not any(command[:1]):
        say(
            "elect",
            "no command is given; write it after --, like: aioredlock-ng elect NAME -- ./worker",
        )
        raise typer.Exit(USAGE)
    if label is None:
        label = printable_label(f"{socket.gethostname()}:{os.getpid()}")
    with reported("elect"):
        while True:
            # The child of each term must be forked while no event loop runs. So each term has an
            # event loop of its own, and a manager for that loop.
            redlock = manager(node, ttl=ttl, node_timeout=node_timeout, key_format=key_format)
            election = redlock.election(name_of(name), label=label, step_down=step_down)
            margin = election.step_down
            patience = margin * _GRACE_SHARE if grace is None else grace
            if patience > margin:
                say("elect", f"--grace {patience:g} is longer than --step-down {margin:g}")
                raise typer.Exit(USAGE)
            child = Child(command, "elect")
            lock = redlock.lock(name_of(name), owner=label)
            keeper = Keeper(
                redlock, lock, child, Job(LOST, LOST, patience, margin=margin, command="elect")
            )
            try:
                status = signals.run(keeper.run())
            finally:
                child.close()
            if not keeper.lost or keeper.stopped or not rejoin:
                break
    raise signals.ended_by(keeper.ended_by) if keeper.ended_by else typer.Exit(status)
