"""Provide the command `release`, which asks the user and then takes a lock from its holder."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from aioredlock_ng._core.keys import resource_name

from .demo.interruption import Interruption
from .exits import HELD, USAGE, reported, say
from .settings import (
    JsonOption,
    KeyFormatOption,
    NameArgument,
    NodeOption,
    NodeTimeoutOption,
    manager,
    name_of,
)
from .shown import foreign, holder, is_lock, life, print_json, readers, safe

if TYPE_CHECKING:
    from aioredlock_ng import LockInfo, Redlock

__all__ = ["release"]


def release(
    name: NameArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Required, because the holder may still be at work.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    any_key: Annotated[
        bool, typer.Option("--any-key", help="Delete the key even if it is not a lock.")
    ] = False,
    as_json: JsonOption = False,
    node: NodeOption = None,
    node_timeout: NodeTimeoutOption = None,
    key_format: KeyFormatOption = None,
) -> None:
    """Run the command `release`, which pages.py describes."""
    if not force:
        say(
            "release",
            "only the holder can release a lock; --force takes the lock away from a holder that"
            " may still be at work",
        )
        raise typer.Exit(USAGE)
    with reported("release"), Interruption() as interruption:
        redlock = manager(node, node_timeout=node_timeout, key_format=key_format)
        info = None if yes else interruption.run(_inspect(redlock, name_of(name)))
        deleted = 0
        if info is None:
            deleted = interruption.run(_release(redlock, name_of(name), None, any_key=any_key))
        elif info.nodes:
            # Without --any-key, a key that is not a lock is refused below, so there is no question.
            if (any_key or is_lock(info)) and not _confirmed(info):
                say("release", "nothing was done")
                raise typer.Exit(HELD)
            deleted = interruption.run(_release_from(redlock, name_of(name), info, any_key=any_key))
            if not deleted:
                say("release", "the lease ended before you answered; a later holder was left alone")
                raise typer.Exit(HELD)
    # The other commands show the name in the same form.
    resource = resource_name((name_of(name),))
    if as_json:
        print_json({"resource": resource, "deleted": deleted, "total": len(redlock.nodes)})
    else:
        what = f"deleted on {deleted} of {len(redlock.nodes)} nodes" if deleted else "nobody had it"
        sys.stdout.write(f"{safe(resource)}: {what}\n")


def _confirmed(info: LockInfo) -> bool:
    left = f", {life(info.remaining)}" if info.held else ""
    where = f"on {info.nodes} of {info.total} nodes{left}."
    if is_lock(info):
        if not info.held:
            said = f"is not held, but {holder(info.token)} has its key {where}"
            question = "The key may belong to an attempt that is still going on. Delete it?"
            return _answer(info, f"{said}\n{question}")
        question = "Its holder may still be at work. Take it away?"
        state = "is held by"
        if info.readers:
            said = f"is read by {readers(len(info.readers))} {where}"
            question = "They may still be at work. Take it away from all of them?"
            return _answer(info, f"{said}\n{question}")
        if info.over:
            state, question = "is kept by the min_hold of", "Its lease is over. Free it?"
        said = f"{state} {holder(info.token)} {where}\n{question}"
    else:
        said = f"is not a lock but somebody's data ({foreign(info)}) {where}\nDelete it?"
    return _answer(info, said)


def _answer(info: LockInfo, said: str) -> bool:
    sys.stderr.write(f"{safe(info.resource)} {said} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        sys.stderr.write("\n")
    return answer.strip().lower() in ("y", "yes")


async def _inspect(redlock: Redlock, name: str | bytes) -> LockInfo:
    async with redlock:
        return await redlock.inspect(name)


async def _release_from(
    redlock: Redlock, name: str | bytes, info: LockInfo, *, any_key: bool
) -> int:
    """Take the lock only from the holder or the readers that `info` names.

    Return the number of nodes that deleted the key. For readers, return the largest number of nodes
    that deleted the entry of one reader.
    """
    if not info.readers:
        return await _release(redlock, name, info.token, any_key=any_key)
    async with redlock:
        return max(
            [
                await redlock.force_release(name, token=reader.token, any_key=any_key)
                for reader in info.readers
            ]
        )


async def _release(redlock: Redlock, name: str | bytes, token: str | None, *, any_key: bool) -> int:
    async with redlock:
        return await redlock.force_release(name, token=token, any_key=any_key)
