"""The command `wait`: sleeps until the nodes notify it that a lock is free. It never takes the lock."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from aioredlock_ng import QuorumUnreachable
from aioredlock_ng._core.quorum import quorum_of

from .demo.interruption import Interruption
from .exits import HELD, reported, say
from .settings import JsonOption, KeyFormatOption, NameArgument, NodeOption, NodeTimeoutOption, manager_and_format, name_of
from .shown import as_dict, holder, is_lock, life, print_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioredlock_ng import LockInfo, Redlock
    from aioredlock_ng._engine.holding import Holding

__all__ = ["wait"]

_TRACKED_LOOK = 2.0
"""Seconds between looks while a majority of the nodes notifies of changes. A notification may be lost."""

_UNTRACKED_LOOK = 0.5
"""Seconds between looks without such a majority."""

_PATIENCE = 30.0
"""Seconds without a majority of the nodes, once there was one, after which it gives up."""

_EXPIRY_MARGIN = 0.005
"""Seconds after which a key that should have expired has."""


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
        typer.Option("-E", "--conflict-code", min=0, max=255, metavar="STATUS", help="Exit status if the lock is still held."),
    ] = HELD,
    as_json: JsonOption = False,
    node: NodeOption = None,
    node_timeout: NodeTimeoutOption = None,
    key_format: KeyFormatOption = None,
) -> None:
    """Wait until a lock is free.

    It never takes the lock. Another client may have it a moment later. With --json it prints its last look, as inspect does.
    """
    with reported("wait"), Interruption() as interruption:
        given = {"node_timeout": node_timeout, "key_format": key_format, "recovery_guard": "none"}
        redlock, keys = manager_and_format(node, **given)
        key = keys.key(name_of(name))
        info = interruption.run(_wait(redlock, name_of(name), key, seconds))
    if as_json:
        print_json(as_dict(info))
    if info.held:
        said = f"is held by {holder(info.token)}" if is_lock(info) else "is taken by a key that is no lock"
        say("wait", f"{info.resource!r} {said}, {life(info.remaining)}")
        raise typer.Exit(conflict_code)


async def _wait(redlock: Redlock, name: str | bytes, key: bytes, seconds: float | None) -> LockInfo:
    """Return the last look: free, or still held at the end of the time."""
    loop = asyncio.get_running_loop()
    async with redlock:
        end = float("inf") if seconds is None else loop.time() + seconds
        info, seen, onlooker = None, loop.time(), _Onlooker(key)
        redlock.engine().lines.join(onlooker)
        try:
            while True:
                onlooker.changes.clear()
                try:
                    # It reads the keys, which leaves them tracked on every connection: no change from here on is missed.
                    info = await redlock.inspect(name)
                except QuorumUnreachable:
                    # Never seen yet, or for too long: said. A majority that was away for a moment is asked again.
                    if info is None or loop.time() >= min(end, seen + _PATIENCE):
                        raise
                    expected = _UNTRACKED_LOOK
                else:
                    seen, expected = loop.time(), info.remaining + _EXPIRY_MARGIN
                    if not info.held or seen >= end:
                        return info
                tracked = sum(node.tracking for node in redlock.nodes) >= quorum_of(info.total)
                look = _TRACKED_LOOK if tracked else _UNTRACKED_LOOK
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(look, end - loop.time(), expected)):
                        await onlooker.changes.wait()
        finally:
            redlock.engine().lines.leave(onlooker)


class _Onlooker:
    """Stands in the line of a key to hear of its changes, and never asks for the lock; see `Contender`."""

    asking = unreachable = False

    def __init__(self, key: bytes) -> None:
        self.keys: tuple[bytes, ...] = (key,)
        self.held: tuple[bytes, ...] = (key,)
        self.changes = asyncio.Event()

    def attempt(self, *, lead_first: bool) -> None:
        """It is our turn: to look."""
        self.changes.set()

    def heir(self, holding: Holding, now: float) -> None:
        """It takes nothing."""

    def take(self, holding: Holding) -> None:
        """Nor is it given anything."""

    def wake(self, *, lead_first: bool) -> None:
        """The like."""
        self.changes.set()

    def changed(self, index: int, keys: Iterable[bytes] | None) -> None:
        """Node `index` says that the key changed."""
        self.changes.set()

    def doubt(self) -> None:
        """It is granted nothing."""

    def turn_over(self) -> None:
        """It is told of every change as it is."""

    def freed(self, indexes: Sequence[int]) -> None:
        """Nobody in this process gives anything back."""

    def give_up(self, error: BaseException | None) -> None:
        """The manager is closing; so are we."""

    def refuse_deadlock(self, holders: Sequence[Holding]) -> None:
        """Nobody in this process holds anything."""
