"""Finds out whether a node that hides who it is is another node under a second name: a key written to one, looked for on all.

Servers that tell their run_id are compared when they are connected (`Engine.identify`); this is for the others.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from aioredlock_ng._core.inspection import look_of
from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng._core.replies import Held, Looked
from aioredlock_ng._core.votes import is_granted
from aioredlock_ng._engine.attempt.round import Round
from aioredlock_ng._nodes.background import supervised
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.kinds import MUTEX

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context

__all__ = ["DuplicateNodes"]

PROBE_TTL = 10.0
"""Seconds that a probe key lives where it cannot be deleted."""

AGAIN, SELDOM = 1.0, 60.0
"""Seconds until a probe is tried again that could not be written, or not be looked for; each time twice as long."""


class DuplicateNodes:
    """Runs the probes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._probes: dict[int, asyncio.Task[None]] = {}
        self._again: set[int] = set()

    def suspect(self, index: int) -> None:
        """Node `index` is connected, and hides its run_id."""
        probe = self._probes.get(index)
        if probe is not None and not probe.done():
            # What the probe under way finds is of the connection before.
            self._again.add(index)
        else:
            name = f"identity of {self._context.fleet.nodes[index].address}"
            self._probes[index] = supervised(
                partial(self._tell_apart, index), name, self._context.emit
            )

    def probes(self) -> list[asyncio.Task[None]]:
        """The probes under way."""
        return [probe for probe in self._probes.values() if not probe.done()]

    def stop(self) -> None:
        """End them."""
        for probe in self._probes.values():
            probe.cancel()

    async def _tell_apart(self, index: int) -> None:
        pause = AGAIN
        while True:
            self._again.discard(index)
            told = await self._probe(index)
            if index not in self._again:
                # One that goes away is probed when it is back.
                if told or not self._context.fleet.nodes[index].ready:
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, SELDOM)

    async def _probe(self, index: int) -> bool:
        """Look whether what is written to one node is on another; False when that is not known yet."""
        token = self._context.new_token()
        key = OWN_KEYS + b"probe:" + token
        mark = (token, b"%d" % (PROBE_TTL * 1000))
        if not is_granted((await self._ask(Command(MUTEX.acquire, (key,), mark), [index]))[index]):
            return False
        nodes = self._context.fleet.nodes
        others = [other for other in range(len(nodes)) if other != index]
        seen = await self._ask(Command(MUTEX.inspect, (key,)), others)
        await self._ask(
            Command(MUTEX.release, (key,), (token,), self._context.clock() + PROBE_TTL), [index]
        )
        for other in others:
            look = look_of(seen[other])
            if isinstance(look, Held) and look.token == token:
                # Where both find it out, both refuse the same one.
                first, second = nodes[min(index, other)], nodes[max(index, other)]
                second.refuse(f"{second.address} and {first.address} are the same server")
                break
        return all(isinstance(seen[other], Looked) or not nodes[other].ready for other in others)

    async def _ask(self, command: Command, indexes: list[int]) -> list[Reply]:
        round_ = Round(self._context, command, None, 1, self._context.clock())
        round_.ask_some(indexes)
        await round_.decided()
        return round_.replies
