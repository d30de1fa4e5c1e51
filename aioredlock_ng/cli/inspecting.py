"""Provide the command `inspect`, which shows the holder of a lock and writes nothing."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .demo.interruption import Interruption
from .exits import reported
from .settings import (
    JsonOption,
    KeyFormatOption,
    NameArgument,
    NodeOption,
    NodeTimeoutOption,
    manager,
    name_of,
)
from .shown import as_dict, fence, holder, is_lock, life, owner, print_json, safe

if TYPE_CHECKING:
    from aioredlock_ng import LockInfo, Redlock

__all__ = ["inspect"]


def inspect(
    name: NameArgument,
    as_json: JsonOption = False,
    node: NodeOption = None,
    node_timeout: NodeTimeoutOption = None,
    key_format: KeyFormatOption = None,
) -> None:
    """Show the holder of a lock, node by node.

    It writes nothing to the nodes. The exit status does not say whether the lock is held: use "wait
    -w 0 NAME" in scripts.
    """
    with reported("inspect"), Interruption() as interruption:
        # Without the guard, opening writes no marker to a node that has none.
        redlock = manager(
            node, node_timeout=node_timeout, key_format=key_format, recovery_guard="none"
        )
        info = interruption.run(_ask(redlock, name_of(name)))
    if as_json:
        print_json(as_dict(info))
    else:
        _print(info)


async def _ask(redlock: Redlock, name: str | bytes) -> LockInfo:
    async with redlock:
        return await redlock.inspect(name)


def _print(info: LockInfo) -> None:
    resource = safe(info.resource)
    if info.held and not is_lock(info):
        where = f"on {info.nodes} of {info.total} nodes, {life(info.remaining)}"
        head = f"{resource}: taken by a key that is no lock, {where}"
    elif info.held:
        state = "released, kept by the min_hold of" if info.over else "held by"
        head = (
            f"{resource}: {state} {holder(info.token)} on {info.nodes} of {info.total} nodes,"
            f" {life(info.remaining)}"
        )
        if info.owner is not None:
            since = datetime.fromtimestamp(info.owner.since, tz=UTC).isoformat(
                timespec="milliseconds"
            )
            head += f"\n  owner {owner(info)}, fence {fence(info)}\n  since {since}"
    elif info.offered:
        head = f"{resource}: offered to a waiter"
    elif info.token is not None:
        head = f"{resource}: free; no majority of the {info.total} nodes has the same key"
    else:
        head = f"{resource}: free"
    lines = [head]
    if info.waiting:
        lines.append(f"  {info.waiting} waiting")
    for answer in info.answers:
        if answer.foreign:
            said = f"not a lock: {answer.foreign}, {life(answer.remaining)}"
        elif answer.detail:
            said = safe(answer.detail)
        elif answer.offered:
            said = f"offered to a waiter, {life(answer.remaining)}"
        elif answer.token is None:
            said = "no key"
        else:
            over = ", over" if answer.over else ""
            said = f"{holder(answer.token)}{over}, {life(answer.remaining)}"
        lines.append(f"  {answer.node}: {said}")
    sys.stdout.write("\n".join(lines) + "\n")
