"""Help integration tests to wait for nodes, to detect overlapping work, and to run programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.coverage import untraced
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioredlock_ng import Redlock
    from tests.support.node_set import NodeSet

__all__ = ["SHORT_GUARD", "Witness", "all_up", "no_keys_left", "program", "state_of", "stats_of"]

CHECKOUT = Path(__file__).parents[2]

SHORT_GUARD: dict[str, Any] = {"ttl": 3.0, "max_ttl": 3.0, "node_timeout": 2.0}
"""Settings for tests that wait until a node which forgot its keys votes again, after four seconds.

A lease with these settings is lost if the process stalls for two seconds between two renewals.
"""


def state_of(redlock: Redlock, index: int) -> str:
    return redlock.nodes[index].state


async def all_up(redlock: Redlock) -> None:
    """Wait until every node is connected and has answered everything."""
    await eventually(
        lambda: all(
            node.state == "up" and not node.pending and not node.owed for node in redlock.nodes
        ),
        40,
    )


async def no_keys_left(nodes: NodeSet, *redlocks: Redlock) -> None:
    """Assert that no key is left once the nodes have answered all requests of these managers.

    A release returns as soon as its outcome is known. So name every open manager that took part.
    """
    for redlock in redlocks:
        await all_up(redlock)
    assert await asyncio.to_thread(nodes.keys) == [set()] * len(nodes)


def stats_of(nodes: NodeSet, index: int, command: str) -> int:
    """How many times a node has run a command, scripts' own calls included."""
    for line in nodes[index].command("INFO", "commandstats").decode().splitlines():
        if line.startswith(f"cmdstat_{command}:calls="):
            return int(line.partition("calls=")[2].partition(",")[0])
    return 0


class Witness:
    """Counts who is inside: a second one at the same time is an overlap."""

    def __init__(self) -> None:
        self.inside: set[str] = set()
        self.entered = 0
        self.overlaps = 0

    @contextlib.contextmanager
    def __call__(self, resource: str):  # type: ignore[no-untyped-def]
        if resource in self.inside:
            self.overlaps += 1
        self.inside.add(resource)
        self.entered += 1
        try:
            yield
        finally:
            self.inside.discard(resource)


@contextlib.asynccontextmanager
async def program(source: str, *args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a Python program with this package; it is killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        source,
        *args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **untraced(),
            "PYTHONPATH": os.pathsep.join(map(str, sys.path)),
            "PYTHONUNBUFFERED": "1",
        },
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
