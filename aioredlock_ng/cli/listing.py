"""Provide the command `ls`, which shows the locks found by `scan`."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from aioredlock_ng.operations import Scan

from .demo.interruption import Interruption
from .exits import reported, say
from .settings import (
    JsonOption,
    KeyFormatOption,
    NodeOption,
    NodeTimeoutOption,
    PatternArgument,
    manager,
    name_of,
)
from .shown import (
    as_dict,
    foreign,
    holder_of,
    is_lock,
    life,
    life_of,
    owner,
    print_json,
    safe,
    waiting,
)
from .tables import Column, fitted, output_width

if TYPE_CHECKING:
    from rich.table import Table

    from aioredlock_ng import LockInfo, Redlock

__all__ = ["ls"]

_COLUMNS = (
    Column("lock", share=0.7, numbered=True),
    Column("nodes", 2),
    Column("remaining"),
    Column("token", 3),
    Column("owner", 1, share=0.5),
    Column("waiting", 4),
)
"""Columns in the order of display.

If a line is too short for all columns, the columns with the highest ranks are left out first. Lines
for a pipe have all columns.
"""


def ls(
    pattern: PatternArgument = "*",
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="List also keys that are not locks, with their type and remaining time."
        ),
    ] = False,
    as_json: JsonOption = False,
    node: NodeOption = None,
    node_timeout: NodeTimeoutOption = None,
    key_format: KeyFormatOption = None,
) -> None:
    """Run the command `ls`, which pages.py describes."""
    with reported("ls"), Interruption() as interruption:
        given = {"node_timeout": node_timeout, "key_format": key_format, "recovery_guard": "none"}
        redlock = manager(node, **given)
        scan = Scan(redlock, name_of(pattern), every=every)
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
            return await scan.inspect(await scan.keys())
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("looking at keys", total=await scan.sizes() or None)
            return await scan.inspect(await scan.keys(lambda keys: progress.advance(task, keys)))


def _table(locks: list[LockInfo]) -> Table:
    table = fitted(_COLUMNS, [_words(lock, " of ") for lock in locks], output_width())
    for row, lock in zip(table.rows, locks, strict=True):
        row.style = "" if lock.held else "dim"
    return table


def _words(lock: LockInfo, of: str) -> tuple[str, ...]:
    if is_lock(lock) or lock.offered:
        nodes, left, held_by = lock.nodes, life_of(lock), holder_of(lock)
    else:
        there = [answer for answer in lock.answers if answer.foreign]
        lives = (math.inf if answer.remaining is None else answer.remaining for answer in there)
        nodes, left = len(there), life(max(lives)) if there else "-"
        held_by = f"not a lock: {foreign(lock)}" if there else "-"
    return (
        safe(lock.resource),
        f"{nodes}{of}{lock.total}",
        left,
        held_by,
        owner(lock),
        waiting(lock),
    )
