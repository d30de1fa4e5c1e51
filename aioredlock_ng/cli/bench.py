"""Provide the command `bench`, which measures how long an acquire and a release take."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from aioredlock_ng import LockNotAcquired, QuorumUnreachable
from aioredlock_ng._core.samples import round_trips

from .demo.interruption import Interruption
from .exits import HELD, NO_QUORUM, reported, say
from .settings import JsonOption, NodeOption, NodeTimeoutOption, manager
from .shown import print_json
from .shown import seconds as seconds_of

if TYPE_CHECKING:
    from aioredlock_ng import Redlock

__all__ = ["bench"]

PREFIX = "bench:aioredlock_ng"
"""Default prefix of the lock names.

The prefix does not begin with `aioredlock_ng:`, which is reserved for the library's own keys.
"""


def bench(
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", min=0.1, max=3600, metavar="SECONDS", help="Duration, 0.1 to 3600."
        ),
    ] = 5.0,
    coroutines: Annotated[
        int,
        typer.Option(
            "--coroutines",
            min=1,
            max=10_000,
            metavar="COUNT",
            help="Coroutines that work at the same time, each with a lock of its own.",
        ),
    ] = 1,
    prefix: Annotated[
        str,
        typer.Option(
            metavar="PREFIX",
            help="Prefix of the lock names, for servers that allow certain keys only.",
        ),
    ] = PREFIX,
    as_json: JsonOption = False,
    node: NodeOption = None,
    node_timeout: NodeTimeoutOption = None,
) -> None:
    """Run the command `bench`, which pages.py describes."""
    with reported("bench"), Interruption() as interruption:
        redlock = manager(node, node_timeout=node_timeout)
        took, errors, elapsed = interruption.run(_measure(redlock, prefix, seconds, coroutines))
        failed = errors.total()
        if not took:
            counted = ", ".join(f"{count} {kind.__name__}" for kind, count in errors.items())
            say(
                "bench",
                f"none of {failed} attempts got the lock within {seconds_of(seconds)}: {counted}",
            )
            raise typer.Exit(NO_QUORUM if QuorumUnreachable in errors else HELD)
    figures = round_trips(took)
    assert figures is not None
    rate = figures.count / elapsed
    if as_json:
        print_json(
            {
                "nodes": len(redlock.nodes),
                "coroutines": coroutines,
                "seconds": elapsed,
                "cycles": figures.count,
                "cycles_per_second": rate,
                "p50": figures.p50,
                "p99": figures.p99,
                "failed": failed,
            }
        )
    else:
        sys.stdout.write(f"{rate:,.0f} cycles of acquire and release per second\n")
        sys.stdout.write(
            f"p50 {seconds_of(figures.p50)}, p99 {seconds_of(figures.p99)}, {failed} failed\n"
        )
        sys.stdout.write(
            f"{len(redlock.nodes)} nodes, {coroutines} at once, {seconds_of(elapsed)}\n"
        )


async def _measure(
    redlock: Redlock, prefix: str, seconds: float, coroutines: int
) -> tuple[list[float], Counter[type[LockNotAcquired]], float]:
    """Acquire and release locks for `seconds`.

    Return the seconds of each cycle, the count of each type of error, and the total seconds. A
    cycle is one acquire and one release.
    """
    run = secrets.token_hex(4)
    took: list[float] = []
    errors: Counter[type[LockNotAcquired]] = Counter()
    async with redlock:
        # If the nodes can grant no lock, this acquire raises the library's error, and the command
        # ends without a measurement.
        async with redlock.lock(f"{prefix}:{run}", blocking_timeout=0):
            pass
        began = perf_counter()

        async def cycle(number: int) -> None:
            lock = redlock.lock(f"{prefix}:{run}:{number}", blocking_timeout=0)
            while (at := perf_counter()) - began < seconds:
                try:
                    lease = await lock.acquire()
                except LockNotAcquired as error:
                    errors[type(error)] += 1
                    if isinstance(error, QuorumUnreachable):
                        # The pause limits the rate of errors while the nodes are down or not ready.
                        await asyncio.sleep(0.05)
                else:
                    await lease.release()
                    took.append(perf_counter() - at)

        async with asyncio.TaskGroup() as group:
            for number in range(coroutines):
                group.create_task(cycle(number))
        return took, errors, perf_counter() - began
