"""The command `ls`: the locks that there are; it shows what `scan` finds."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from .demo.interruption import Interruption
from .exits import reported, say
from .scan import Scan
from .settings import JsonOption, KeyFormatOption, NodeOption, NodeTimeoutOption, manager_and_format, name_of
from .shown import as_dict, foreign, holder, is_lock, life, owner, print_json, safe

if TYPE_CHECKING:
    from aioredlock_ng import LockInfo, Redlock

__all__ = ["ls"]


def ls(
    pattern: Annotated[
        str, typer.Argument(metavar="[PATTERN]", help="Of names, as Redis has them: order:*", show_default=False)
    ] = "*",
    every: Annotated[bool, typer.Option("--all", help="Also keys that are no locks: their type, and what is left.")] = False,
    as_json: JsonOption = False,
    node: NodeOption = None,
    node_timeout: NodeTimeoutOption = None,
    key_format: KeyFormatOption = None,
) -> None:
    """List the locks that the nodes have, by SCAN: string keys that expire, but for the library's own.

    A node cannot tell a lock from other data that looks like one: use a PATTERN where there is any.

    The exit status is 0 also when there are none, 69 when no majority of the nodes could be scanned, 2 when the command line
    or a setting is wrong.
    """
    with reported("ls"), Interruption() as interruption:
        given = {"node_timeout": node_timeout, "key_format": key_format, "recovery_guard": "none"}
        redlock, keys = manager_and_format(node, **given)
        scan = Scan(redlock, keys, name_of(pattern), every=every)
        locks = interruption.run(_scan(redlock, scan))
    for address, why in scan.silent.items():
        say("ls", f"without {address}: {why}")
    if as_json:
        print_json([as_dict(lock) for lock in locks])
    elif sys.stdout.isatty():
        Console().print(_table(locks))
    else:
        for lock in locks:
            sys.stdout.write("\t".join(_words(lock, "/")) + "\n")


async def _scan(redlock: Redlock, scan: Scan) -> list[LockInfo]:
    async with redlock:
        if not sys.stderr.isatty():
            return await scan.look(await scan.keys())
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("looking at keys", total=await scan.sizes() or None)
            return await scan.look(await scan.keys(lambda keys: progress.advance(task, keys)))


def _table(locks: list[LockInfo]) -> Table:
    table = Table("lock", "nodes", "remaining", "token", "owner", box=box.SIMPLE_HEAD, pad_edge=False)
    for lock in locks:
        style = "" if lock.held else "dim"
        table.add_row(*(Text(word, style=style) for word in _words(lock, " of ")))
    return table


def _words(lock: LockInfo, of: str) -> tuple[str, ...]:
    """Name, nodes, what is left, holder and owner."""
    if is_lock(lock):
        nodes, left, held_by = lock.nodes, life(lock.remaining), holder(lock.token)
    else:
        there = [answer for answer in lock.answers if answer.foreign]
        longest = max((answer.remaining or math.inf for answer in there), default=0.0)
        nodes, left = len(there), life(longest)
        held_by = f"not a lock: {foreign(lock)}" if there else "-"
    return safe(lock.resource), f"{nodes}{of}{lock.total}", left, held_by, owner(lock)
