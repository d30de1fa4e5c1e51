"""Provide the command `top`, which shows the locks and the nodes at regular intervals."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live

from aioredlock_ng import QuorumUnreachable
from aioredlock_ng.operations import Operator, Scan

from .demo.interruption import Interruption
from .exits import NO_QUORUM, reported
from .settings import (
    KeyFormatOption,
    NodeOption,
    NodeTimeoutOption,
    PatternArgument,
    manager,
    name_of,
)
from .tables import can_redraw, output_width
from .top_view import Frame, Lane, draw

if TYPE_CHECKING:
    from aioredlock_ng import LockInfo, Redlock

__all__ = ["top"]

_SCAN_EVERY = 5.0
"""Seconds between two scans of all keys. Between scans, a frame asks only for the known keys."""


def top(
    pattern: PatternArgument = "*",
    interval: Annotated[
        float,
        typer.Option(
            min=0.1, max=3600, metavar="SECONDS", help="Time between two frames, 0.1 to 3600."
        ),
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show one frame and end.")] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Write each frame as one line of JSON to standard output. Times are seconds.",
        ),
    ] = False,
    node: NodeOption = None,
    node_timeout: NodeTimeoutOption = None,
    key_format: KeyFormatOption = None,
) -> None:
    """Run the command `top`, which pages.py describes."""
    with reported("top"), Interruption() as interruption:
        given = {"node_timeout": node_timeout, "key_format": key_format}
        redlock = manager(node, **given)
        scan = Scan(redlock, name_of(pattern))
        frame = interruption.run(
            _watch(_Watch(redlock, scan), interval, once=once, as_json=as_json)
        )
    if frame.problem:
        raise typer.Exit(NO_QUORUM)


class _Watch:
    """The state that is kept from frame to frame."""

    def __init__(self, redlock: Redlock, scan: Scan) -> None:
        self.redlock = redlock
        self._scan = scan
        self._keys: list[bytes] = []
        self._scan_at = 0.0
        self._lanes = [Lane() for _ in redlock.nodes]
        self._seen: dict[tuple[str, str | None], float] = {}

    async def look(self) -> Frame:
        loop = asyncio.get_running_loop()
        locks: list[LockInfo] = []
        problem = ""
        try:
            if loop.time() >= self._scan_at:
                self._keys = await self._scan.keys()
                self._scan_at = loop.time() + _SCAN_EVERY
            locks = await self._scan.inspect(self._keys)
        except QuorumUnreachable as error:
            problem = str(error)
        trips = await Operator(self.redlock).round_trips()
        states = self.redlock.nodes
        for lane, state, trip in zip(self._lanes, states, trips, strict=True):
            lane.add(state.state, trip)
        now = loop.time()
        self._seen = {seen: self._seen.get(seen, now) for seen in map(_holder, locks) if seen[1]}
        ages = [now - self._seen.get(_holder(lock), now) for lock in locks]
        # A key of the last scan may have expired. Without this filter, the frame would show such a
        # key as a lock without a holder.
        shown = [
            (lock, age)
            for lock, age in zip(locks, ages, strict=True)
            if lock.token is not None or lock.offered or lock.readers
        ]
        return Frame(states, tuple(trips), tuple(self._lanes), tuple(shown), problem)


def _holder(lock: LockInfo) -> tuple[str, str | None]:
    """Return the lock's name with its holder. All readers count as one holder."""
    return lock.resource, "readers" if lock.readers else lock.token


async def _watch(watch: _Watch, interval: float, *, once: bool, as_json: bool) -> Frame:
    """Show frame after frame. With `once`, show a single frame and return it."""
    async with watch.redlock:
        if once or as_json or not can_redraw():
            console = Console(width=output_width())
            while True:
                frame = await watch.look()
                if as_json:
                    sys.stdout.write(json.dumps(frame.as_dict()) + "\n")
                    sys.stdout.flush()
                else:
                    console.print(draw(frame, console.width, None))
                if once:
                    return frame
                await asyncio.sleep(interval)
        console = Console()
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(draw(await watch.look(), console.width, console.height), refresh=True)
                await asyncio.sleep(interval)
