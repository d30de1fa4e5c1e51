"""Provide the command `wait`, which sleeps until the nodes report that a lock or a slot is free."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from aioredlock_ng import QuorumUnreachable, SemaphoreInfo
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng.operations import Operator

from .demo.interruption import Interruption
from .exits import HELD, reported, say
from .settings import (
    JsonOption,
    KeyFormatOption,
    NameArgument,
    NodeOption,
    NodeTimeoutOption,
    manager,
    name_of,
    slots_option,
)
from .shown import as_dict, holder, is_lock, life, print_json, readers, slots_as_dict

if TYPE_CHECKING:
    from aioredlock_ng import LockInfo, Redlock

__all__ = ["wait"]

_TRACKED_LOOK = 2.0
"""Longest time in seconds between two requests while a majority of the nodes sends notifications.
The requests are needed because a notification may get lost."""

_UNTRACKED_LOOK = 0.5
"""Longest time in seconds between two requests while no majority sends notifications."""

_PATIENCE = 30.0
"""The command gives up after this many seconds without answers from a majority of the nodes."""

_SLOTS_PAUSE = 0.1
"""Seconds from a change of a slot to the next request. Each renewal of a holder is a change, so
without this pause a busy semaphore would be inspected all the time."""

_EXPIRY_MARGIN = 0.005
"""Seconds that a request waits beyond a key's remaining time, so that the key has expired."""


def wait(
    name: NameArgument,
    seconds: Annotated[
        float | None,
        typer.Option(
            "-w",
            "--wait",
            min=0,
            metavar="SECONDS",
            help="Wait at most this long. With 0, look only once. Default: for ever.",
            show_default=False,
        ),
    ] = None,
    slots: Annotated[
        int | None,
        slots_option("Wait until one of the N slots of the semaphore NAME is free."),
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
    """Run the command `wait`, which pages.py describes."""
    with reported("wait"), Interruption() as interruption:
        given = {"node_timeout": node_timeout, "key_format": key_format, "recovery_guard": "none"}
        redlock = manager(node, **given)
        # An invalid name is refused before the nodes are connected.
        redlock.key_format().key(name_of(name))
        info = interruption.run(_wait(redlock, name_of(name), seconds, slots))
    if as_json:
        print_json(slots_as_dict(info) if isinstance(info, SemaphoreInfo) else as_dict(info))
    if not _one_is_free(info):
        taken = _taken_slots(info) if isinstance(info, SemaphoreInfo) else _taken(info)
        say("wait", f"{info.resource!r} {taken}")
        raise typer.Exit(conflict_code)


def _taken(info: LockInfo) -> str:
    if not info.held:
        return "is offered to a waiter" if info.offered else "is between two holders"
    if info.readers:
        said = f"is read by {readers(len(info.readers))}"
    elif info.over:
        said = f"is kept by the min_hold of {holder(info.token)}"
    elif is_lock(info):
        said = f"is held by {holder(info.token)}"
    else:
        said = "is taken by a key that is not a lock"
    return f"{said}, {life(info.remaining)}"


def _taken_slots(info: SemaphoreInfo) -> str:
    said = f"has no free slot, {info.held} of {info.limit} slots held"
    lives = [slot.remaining for slot in info.slots if slot.held]
    return f"{said}, the first has {life(min(lives))}" if lives else said


def _one_is_free(info: LockInfo | SemaphoreInfo) -> bool:
    return any(map(_is_free, _locks(info)))


def _locks(info: LockInfo | SemaphoreInfo) -> tuple[LockInfo, ...]:
    return info.slots if isinstance(info, SemaphoreInfo) else (info,)


def _is_free(info: LockInfo) -> bool:
    """Return True if no client holds the lock, and none is about to hold it.

    While the lock goes from one holder to the next, perhaps no quorum of nodes has the same token.
    The lock is not free then: a node offers its key to a waiter, or a quorum has keys with
    different tokens.
    """
    taken = sum(
        answer.token is not None or answer.foreign != "" or answer.readers > 0
        for answer in info.answers
    )
    return not info.held and not info.offered and taken < quorum_of(info.total)


async def _wait(
    redlock: Redlock,
    name: str | bytes,
    seconds: float | None,
    slots: int | None = None,
) -> LockInfo | SemaphoreInfo:
    """Return the state when the lock or a slot of the semaphore is free, or after `seconds`.

    For a lock, `slots` is None.
    """
    loop = asyncio.get_running_loop()
    async with redlock:
        end = float("inf") if seconds is None else loop.time() + seconds
        info: LockInfo | SemaphoreInfo | None = None
        seen, quorum = loop.time(), quorum_of(len(redlock.nodes))
        with Operator(redlock).subscribe(name, slots) as changes:
            while True:
                try:
                    # The two requests are sent in one write, and the nodes track the keys first. So
                    # no change after the inspection is missed.
                    _, looked = await asyncio.gather(changes.track(), _look(redlock, name, slots))
                    info = looked
                except QuorumUnreachable:
                    # The command fails if no majority answers the first request. Later it fails
                    # only after `_PATIENCE` seconds without a majority, or when `seconds` are over.
                    if info is None or loop.time() >= min(end, seen + _PATIENCE):
                        raise
                    expected = _UNTRACKED_LOOK
                else:
                    seen = loop.time()
                    if _one_is_free(looked) or seen >= end:
                        return looked
                    expected = min(map(_expected, _locks(looked)))
                tracked = sum(node.tracking for node in redlock.nodes) >= quorum
                look = _TRACKED_LOOK if tracked else _UNTRACKED_LOOK
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(look, end - loop.time(), expected)):
                        await changes.wait()
                        if slots is not None:
                            await asyncio.sleep(_SLOTS_PAUSE)


async def _look(redlock: Redlock, name: str | bytes, slots: int | None) -> LockInfo | SemaphoreInfo:
    if slots is None:
        return await redlock.inspect(name)
    return await redlock.semaphore(name, slots).inspect()


def _expected(info: LockInfo) -> float:
    """Return the seconds after which a taken lock may have become free."""
    return info.remaining + _EXPIRY_MARGIN if info.held else _UNTRACKED_LOOK
