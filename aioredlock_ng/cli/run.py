"""Provide the command `run`, which runs another command while a lock is held."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Annotated

import typer

from aioredlock_ng._core.owners import MAX_LABEL
from aioredlock_ng.environment import PREFIX

from . import signals
from .child import Child
from .exits import HELD, LOST, USAGE, reported, say
from .keeper import Job, Keeper
from .settings import (
    KeyFormatOption,
    NodeOption,
    NodeTimeoutOption,
    manager,
    name_of,
    slots_option,
)

if TYPE_CHECKING:
    from aioredlock_ng import Lock

__all__ = ["run"]


def run(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="The lock or semaphore. Several locks are taken together, all or none.",
            show_default=False,
        ),
    ],
    slots: Annotated[
        int | None,
        slots_option("Hold one of the N slots of the semaphore NAME instead of a lock."),
    ] = None,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="Hold the read-write lock NAME as a reader, together with other readers.",
        ),
    ] = False,
    no_wait: Annotated[
        bool,
        typer.Option(
            "-n",
            "--no-wait",
            help=(
                "Do not wait if another client holds the lock. If several hosts request the lock at"
                " the same instant, all may be refused. Use -w 1 to prevent this."
            ),
        ),
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            "-w",
            "--wait",
            min=0,
            metavar="SECONDS",
            help="Wait at most this long. Default: for ever.",
            show_default=False,
        ),
    ] = None,
    conflict_code: Annotated[
        int,
        typer.Option(
            "-E",
            "--conflict-code",
            min=0,
            max=255,
            metavar="STATUS",
            help="Exit status if another client holds the lock.",
        ),
    ] = HELD,
    ttl: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help=(
                "ttl of the lock, which is renewed while the command runs."
                " Default: the environment, else 10."
            ),
            show_default=False,
        ),
    ] = None,
    min_hold: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help=(
                "Keep the lock taken for this long after its grant, even if the command ends"
                " earlier. Use this option for a job that only one host may run per interval."
            ),
            show_default=False,
        ),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help=(
                "Time from SIGTERM to SIGKILL if the lock is lost, or if the command ends and"
                " leaves processes behind."
            ),
        ),
    ] = 5.0,
    lost_code: Annotated[
        int,
        typer.Option(min=0, max=255, metavar="STATUS", help="Exit status if the lock was lost."),
    ] = LOST,
    owner: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL",
            help="Owner that inspect, ls and top show. Default: host:process:command.",
            show_default=False,
        ),
    ] = None,
    node: NodeOption = None,
    node_timeout: NodeTimeoutOption = None,
    key_format: KeyFormatOption = None,
) -> None:
    """Run the command `run`, which pages.py describes."""
    command: list[str] = context.obj
    if not any(command[:1]):
        say(
            "run",
            "no command is given; write it after --, like: aioredlock-ng run NAME -- make deploy",
        )
        raise typer.Exit(USAGE)
    if no_wait and wait is not None:
        say("run", "-n and -w contradict each other; give one of them")
        raise typer.Exit(USAGE)
    if slots is not None and len(names) > 1:
        say("run", "--slots takes one NAME, because a semaphore has only one name")
        raise typer.Exit(USAGE)
    if shared and (problem := _not_shared(names, slots, min_hold)):
        say("run", problem)
        raise typer.Exit(USAGE)
    with reported("run"):
        if owner is None and f"{PREFIX}OWNER" not in os.environ:
            owner = _owner(command[0])
        redlock = manager(
            node, ttl=ttl, node_timeout=node_timeout, key_format=key_format, owner=owner
        )
        timeout = 0.0 if no_wait else wait
        lock: Lock
        if shared:
            lock = redlock.rwlock(name_of(names[0]), blocking_timeout=timeout).read()
        elif slots is None:
            names_given = map(name_of, names)
            lock = redlock.lock(*names_given, blocking_timeout=timeout, min_hold=min_hold)
        else:
            lock = redlock.semaphore(
                name_of(names[0]), slots, blocking_timeout=timeout, min_hold=min_hold
            )
        child = Child(command)
        keeper = Keeper(redlock, lock, child, Job(conflict_code, lost_code, grace))
        try:
            status = signals.run(keeper.run())
        finally:
            child.close()
    raise signals.ended_by(keeper.ended_by) if keeper.ended_by else typer.Exit(status)


def _not_shared(names: list[str], slots: int | None, min_hold: float | None) -> str:
    """Return the reason why --shared is not possible with these arguments, else ""."""
    if len(names) > 1:
        return "--shared takes one NAME, because a read-write lock has only one name"
    if slots is not None:
        return "--shared and --slots contradict each other; give one of them"
    if min_hold is not None:
        return "--min-hold is for locks that one client holds; leave out --min-hold or --shared"
    return ""


def _owner(program: str) -> str:
    text = f"{socket.gethostname()}:{os.getpid()}:{os.path.basename(program)}"
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text.encode()[:MAX_LABEL].decode(errors="ignore")
