"""Detection of duplicate nodes among servers that hide their run id.

A probe writes a key to one node, and reads this key on the other nodes. Servers that show their run
id need no probe, because `Reports.identify` compares the run ids at each connection.
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
from aioredlock_ng._nodes.port import SAME_SERVER
from aioredlock_ng._scripts.exclusive_kinds import MUTEX

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._scripts import Command

__all__ = ["DuplicateNodes"]

PROBE_TTL = 10.0
"""Life of a probe's key in seconds. The key is deleted earlier, unless the deletion fails."""

AGAIN, SELDOM = 1.0, 60.0
"""Shortest and longest pause in seconds before an incomplete probe is repeated. Each pause is twice
as long as the pause before."""


class DuplicateNodes:
    """The probes by which one manager finds duplicate nodes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._probes: dict[int, asyncio.Task[None]] = {}
        self._again: set[int] = set()

    def suspect(self, index: int) -> None:
        """Probe node `index`, which is connected and hides its run id."""
        probe = self._probes.get(index)
        if probe is not None and not probe.done():
            # The probe under way began on the previous connection, so another probe must follow.
            self._again.add(index)
        else:
            name = f"identity of {self._context.fleet.nodes[index].address}"
            self._probes[index] = supervised(
                partial(self._tell_apart, index), name, self._context.emit
            )

    def probes(self) -> list[asyncio.Task[None]]:
        return [probe for probe in self._probes.values() if not probe.done()]

    def stop(self) -> None:
        for probe in self._probes.values():
            probe.cancel()

    async def _tell_apart(self, index: int) -> None:
        pause = AGAIN
        while True:
            self._again.discard(index)
            told = await self._probe(index)
            if index not in self._again:
                # A node that is disconnected now is probed again at its next connection.
                if told or not self._context.fleet.nodes[index].ready:
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, SELDOM)

    async def _probe(self, index: int) -> bool:
        """Write a key to node `index`, and read this key on all other nodes.

        If another node has the key as well, both nodes are the same server. The manager then
        refuses one of them for good: the node that comes later in the list given to the manager.

        Returns:
            True if the probe was complete: the key was written, and each connected node was read.
        """
        token = self._context.new_token()
        key = OWN_KEYS + b"probe:" + token
        mark = MUTEX.acquiring((key,), (), token, b"%d" % (PROBE_TTL * 1000), 0)
        if not is_granted((await self._ask(mark, [index]))[index]):
            return False
        nodes = self._context.fleet.nodes
        others = [other for other in range(len(nodes)) if other != index]
        seen = await self._ask(MUTEX.inspecting((key,)), others)
        until = self._context.clock() + PROBE_TTL
        await self._ask(MUTEX.releasing((key,), token, until), [index])
        for other in others:
            look = look_of(seen[other])
            if isinstance(look, Held) and look.token == token:
                # The other node may be probed at the same time. Both probes must refuse the same
                # node, so each probe refuses the node with the higher index.
                first, second = nodes[min(index, other)], nodes[max(index, other)]
                second.refuse(f"{second.address} and {first.address} {SAME_SERVER}")
                break
        return all(isinstance(seen[other], Looked) or not nodes[other].ready for other in others)

    async def _ask(self, command: Command, indexes: list[int]) -> list[Reply]:
        round_ = Round(self._context, command, None, 1, self._context.clock())
        round_.ask_some(indexes)
        await round_.decided()
        return round_.replies
