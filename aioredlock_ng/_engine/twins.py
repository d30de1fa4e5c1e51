"""Finds out whether a node that hides who it is is another node under a second name: a key written to one, looked for on all.

Servers that tell their run_id are compared when they are connected (`Engine.identify`); this is for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng._engine.round import Round
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.kinds import MUTEX

if TYPE_CHECKING:
    import asyncio

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context

__all__ = ["Twins"]

PROBE_TTL = 10.0
"""Seconds that a probe key lives where it cannot be deleted."""


class Twins:
    """Runs the probes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._probes: dict[int, asyncio.Task[None]] = {}

    def suspect(self, index: int) -> None:
        """Node `index` is connected, and hides its run_id."""
        if index not in self._probes:
            name = f"aioredlock_ng identity of {self._context.fleet.nodes[index].address}"
            self._probes[index] = self._context.loop.create_task(self._probe(index), name=name)

    def probes(self) -> list[asyncio.Task[None]]:
        """The probes under way."""
        return list(self._probes.values())

    def stop(self) -> None:
        """End them."""
        for probe in self._probes.values():
            probe.cancel()

    async def _probe(self, index: int) -> None:
        try:
            token = self._context.new_token()
            key = OWN_KEYS + b"probe:" + token
            mark = (token, b"%d" % (PROBE_TTL * 1000))
            if (await self._ask(Command(MUTEX.acquire, (key,), mark), [index]))[index] != 1:
                return
            nodes = self._context.fleet.nodes
            others = [other for other in range(len(nodes)) if other != index]
            seen = await self._ask(Command(MUTEX.inspect, (key,)), others)
            await self._ask(Command(MUTEX.release, (key,), (token,), self._context.clock() + PROBE_TTL), [index])
            for other in others:
                answer = seen[other]
                if type(answer) is list and answer[0][1] == token:
                    nodes[index].refuse(f"{nodes[index].address} and {nodes[other].address} are the same server")
                    return
        finally:
            del self._probes[index]

    async def _ask(self, command: Command, indexes: list[int]) -> list[Reply]:
        round_ = Round(self._context, command, -1, 1, self._context.clock())
        round_.ask_some(indexes)
        await round_.decided()
        return round_.replies
