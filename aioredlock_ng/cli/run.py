"""The command `run`: reads its options and starts the child and the lock's keeper; never touches a signal or a node itself."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Annotated

import typer

from aioredlock_ng._core.owners import MAX_LABEL
from aioredlock_ng.environment import PREFIX

from .child import Child
from .exits import HELD, LOST, USAGE, reported, say
from .keeper import Job, Keeper
from .settings import KeyFormatOption, NodeOption, NodeTimeoutOption, manager, name_of

__all__ = ["run"]


def run(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="The lock; several are taken together, all or none.", show_default=False),
    ],
    no_wait: Annotated[bool, typer.Option("-n", "--no-wait", help="One attempt; do not wait for another holder.")] = False,
    wait: Annotated[
        float | None, typer.Option("-w", "--wait", min=0, metavar="SECS", help="Wait so long at most.", show_default=False)
    ] = None,
    conflict_code: Annotated[
        int, typer.Option("-E", "--conflict-code", min=0, max=255, help="Exit status when another holds the lock.")
    ] = HELD,
    ttl: Annotated[
        float | None,
        typer.Option(
            metavar="SECS", help="Life of the lock without renewal; else the environment's, else 10.", show_default=False
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, metavar="SECS", help="From SIGTERM to SIGKILL: on loss, and for who is left in the group.")
    ] = 5.0,
    lost_code: Annotated[int, typer.Option(min=0, max=255, help="Exit status when the lock was lost.")] = LOST,
    owner: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="What inspect and top show of the holder; else host, process, command.", show_default=False
        ),
    ] = None,
    node: NodeOption = None,
    node_timeout: NodeTimeoutOption = None,
    key_format: KeyFormatOption = None,
) -> None:
    """Hold a lock while a command runs: aioredlock-ng run [OPTIONS] NAME... -- COMMAND [ARG]...

    The command runs without a shell, in a process group of its own, with AIOREDLOCK_NG_NAME, AIOREDLOCK_NG_TOKEN and
    AIOREDLOCK_NG_FENCE in its environment. Signals are passed on. It is killed when this process is.

    The exit status is the command's own (128 + N when signal N ended it), 1 (-E) when another holds the lock, 75 (--lost-code)
    when the lock was lost, 69 when no majority of the nodes could be asked, 2 when the command line or a setting is wrong, 126
    and 127 when the command cannot be executed or found.
    """
    command: list[str] = context.obj
    if not any(command[:1]):
        say("run", "no command; write it behind --, like: aioredlock-ng run NAME -- make deploy")
        raise typer.Exit(USAGE)
    if no_wait and wait is not None:
        say("run", "-n and -w contradict each other; give one of them")
        raise typer.Exit(USAGE)
    with reported("run"):
        if owner is None and f"{PREFIX}OWNER" not in os.environ:
            owner = _owner(command[0])
        redlock = manager(node, ttl=ttl, node_timeout=node_timeout, key_format=key_format, owner=owner)
        lock = redlock.lock(*map(name_of, names), blocking_timeout=0.0 if no_wait else wait)
        child = Child(command)
        try:
            status = asyncio.run(Keeper(redlock, lock, child, Job(conflict_code, lost_code, grace)).run())
        finally:
            child.close()
    raise typer.Exit(status)


def _owner(program: str) -> str:
    text = f"{socket.gethostname()}:{os.getpid()}:{os.path.basename(program)}"
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text.encode()[:MAX_LABEL].decode(errors="ignore")
