"""Provide the command `wait`, which sleeps until the nodes report that a lock is free."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from aioredlock_ng import QuorumUnreachable
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._scripts.kinds import MUTEX
from aioredlock_ng.operations import Operator

from .demo.interruption import Interruption
from .exits import HELD, reported, say
from .settings import (
    JsonOption,
    KeyFormatOption,
    NameArgument,
    NodeOption,
    NodeTimeoutOption,
    manager_and_format,
    name_of,
)
from .shown import as_dict, holder, is_lock, life, print_json

if TYPE_CHECKING:
    from aioredlock_ng import LockInfo, Redlock

__all__ = ["wait"]

_TRACKED_LOOK = 2.0
"""Seconds between requests while a majority of the nodes sends notifications, which may get lost.
"""

_UNTRACKED_LOOK = 0.5
"""Seconds between requests without that majority."""

_PATIENCE = 30.0
"""Seconds without a majority of the nodes, after there was one, until the command gives up."""

_NO_TOKEN = b"-"
"""A token that no holder has, for a request that needs tokens."""

_EXPIRY_MARGIN = 0.005
"""Seconds after which a key has certainly expired, counted from its deadline."""


def wait(
    name: NameArgument,
    seconds: Annotated[
        float | None,
        typer.Option(
            "-w",
            "--wait",
            min=0,
            metavar="SECONDS",
            help="Wait at most this long. 0 looks once. Default: for ever.",
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
            help="Exit status if the lock is still held.",
        ),
    ] = HELD,
    as_json: JsonOption = False,
    node: NodeOption = None,
    node_timeout: NodeTimeoutOption = None,
    key_format: KeyFormatOption = None,
) -> None:
    """Wait until a lock is free.

    It never takes the lock. Another client may have it a moment later. A lock that is offered to a
    waiter is not free. With --json it prints its last look, as inspect does.
    """
    with reported("wait"), Interruption() as interruption:
        given = {"node_timeout": node_timeout, "key_format": key_format, "recovery_guard": "none"}
        redlock, keys = manager_and_format(node, **given)
        key = keys.key(name_of(name))
        info = interruption.run(_wait(redlock, name_of(name), key, seconds))
    if as_json:
        print_json(as_dict(info))
    if not _is_free(info):
        if info.held:
            if info.over:
                said = f"is kept by the min_hold of {holder(info.token)}"
            elif is_lock(info):
                said = f"is held by {holder(info.token)}"
            else:
                said = "is taken by a key that is no lock"
            said = f"{said}, {life(info.remaining)}"
        else:
            said = "is offered to a waiter" if info.offered else "is between two holders"
        say("wait", f"{info.resource!r} {said}")
        raise typer.Exit(conflict_code)


def _is_free(info: LockInfo) -> bool:
    """Return True if nobody holds the lock or is about to hold it.

    Between two holders no token has a quorum. Then a node offers its key to a waiter, or the keys
    of a quorum have the tokens of several holders.
    """
    taken = sum(answer.token is not None or answer.foreign != "" for answer in info.answers)
    return not info.held and not info.offered and taken < quorum_of(info.total)


async def _wait(redlock: Redlock, name: str | bytes, key: bytes, seconds: float | None) -> LockInfo:
    """Return the last state of the lock: free, or not free at the end of the time."""
    loop = asyncio.get_running_loop()
    async with redlock:
        end = float("inf") if seconds is None else loop.time() + seconds
        info: LockInfo | None = None
        seen, changes = loop.time(), asyncio.Event()
        watching = MUTEX.watching((key,), (_NO_TOKEN,))
        with Operator(redlock).changes(key, changes.set):
            while True:
                changes.clear()
                try:
                    # Both requests leave in one write. The first makes every connection track the
                    # key, so no later change is missed.
                    _, looked = await asyncio.gather(
                        Operator(redlock).poll(watching), redlock.inspect(name)
                    )
                    info = looked
                except QuorumUnreachable:
                    # The command fails if a majority never answered, or if none has answered for
                    # `_PATIENCE` seconds. After a shorter outage the nodes are asked again.
                    if info is None or loop.time() >= min(end, seen + _PATIENCE):
                        raise
                    expected = _UNTRACKED_LOOK
                else:
                    seen = loop.time()
                    if _is_free(info) or seen >= end:
                        return info
                    expected = info.remaining + _EXPIRY_MARGIN if info.held else _UNTRACKED_LOOK
                tracked = sum(node.tracking for node in redlock.nodes) >= quorum_of(info.total)
                look = _TRACKED_LOOK if tracked else _UNTRACKED_LOOK
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(look, end - loop.time(), expected)):
                        await changes.wait()
