"""Carries out the faults of a plan, and records them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng._core.over_mark import OVER, without_mark
from aioredlock_ng._core.owners import label_life

from .history import SHOWN
from .plan import LOOK

if TYPE_CHECKING:
    from collections.abc import Callable

    from .crew import Crew
    from .history import History
    from .nodes import Nodes
    from .plan import ClientFault, Fault, Loss, Phase, Plan
    from .processes import Process

__all__ = ["Nemesis", "Relay"]

_ANSWER_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 3.0
_LEAST_SECONDS: Final = 3.0
_REPAIRED_SECONDS: Final = 0.25
"""Seconds after a deletion on several nodes.

A lease whose keys are all set again by then kept its majority.
"""

_RELEASED_SECONDS: Final = 0.3
"""Seconds for the last releases to be executed on a busy machine."""


class Relay:
    """Sends orders to the relay's process, one at a time."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    async def ports(self) -> list[int]:
        """Return its ports, once it listens."""
        ports: list[int] = json.loads(await asyncio.to_thread(self._process.line, _ANSWER_SECONDS))
        return ports

    async def order(self, node: int, op: str, **more: Any) -> None:
        """Send an order, and return once it is carried out."""
        async with self._turn:
            self._process.say(json.dumps({"node": node, "op": op, **more}))
            await asyncio.to_thread(self._process.line, _ANSWER_SECONDS)


class Nemesis:
    """Causes the faults.

    Args:
        nodes: The servers.
        relay: The ways to the servers.
        crew: The client processes.
        history: The history of the faults.
        long: Names whose keys are deleted on purpose. Some of their holds are long.
        ttl: Seconds that the keys of a lock without `min_hold` live at most.
        life: Seconds that any key of a lock lives at most.
    """

    def __init__(
        self,
        nodes: Nodes,
        relay: Relay,
        crew: Crew,
        history: History,
        long: set[str],
        ttl: float,
        life: float,
    ) -> None:
        self._nodes = nodes
        self._relay = relay
        self._crew = crew
        self._history = history
        self._long = long
        self._ttl_ms = round(ttl * 1000)
        self._label_ms = 1000 * label_life(life)
        self._ids = itertools.count(1)
        self._impaired: set[int] = set()
        self._away: set[int] = set()
        self._slots: dict[int, asyncio.Lock] = {}

    async def run(self, plan: Plan, seconds: float, say: Callable[[str], None]) -> None:
        """Carry the plan out for so many seconds, or to its end.

        On a busy machine the cycles take longer, and the last ones are left out.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        for index, (first, second) in enumerate(plan.cycles):
            left = end - loop.time()
            if left < _LEAST_SECONDS:
                break
            if index:
                self._crew.go_on()
            whole = first.seconds + second.seconds + second.rest
            if left >= whole or not index:
                await self._phase(first, first.seconds)
                await self._phase(second, second.seconds)
            else:
                await self._phase(first, left - LOOK)
            await self.look_for_leftovers()
            say(f"cycle {index + 1}: {max(0.0, end - loop.time()):.0f} s left")

    async def look_for_leftovers(self) -> None:
        """Let all clients rest, and record every key that is left."""
        self._history.write("rest")
        await self._crew.drain()
        await asyncio.sleep(_RELEASED_SECONDS)
        for index in range(len(self._nodes)):
            keys = await asyncio.to_thread(self._nodes.locks, index)
            self._history.write("leftovers", n=index, keys=list(map(_shown, keys)))

    async def _phase(self, phase: Phase, seconds: float) -> None:
        self._history.write("phase", k=phase.kind)
        over = asyncio.get_running_loop().time() + seconds
        looking = asyncio.create_task(self._keep_looking())
        async with asyncio.TaskGroup() as group:
            for lane in phase.lanes:
                group.create_task(self._lane(lane, over))
            group.create_task(self._clients(phase.clients, over))
            group.create_task(self._losses(phase.losses, over))
        await asyncio.sleep(phase.rest)
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking

    async def _lane(self, faults: tuple[Fault, ...], over: float) -> None:
        for fault in faults:
            if not await _in_time(fault.gap, over):
                return
            number = next(self._ids)
            about: dict[str, Any] = {"i": number, "k": fault.kind, "n": fault.nodes}
            if fault.kind in {"stall", "delay"}:
                about |= {
                    "way": fault.way,
                    "late": fault.late if fault.kind == "delay" else None,
                    "drop": fault.drop,
                }
            if fault.kind == "kill":
                about["memory"] = [
                    "none" if fault.empty else self._nodes.memories[node] for node in fault.nodes
                ]
            self._impaired |= set(fault.nodes)
            # Before it begins and after it has ended: what is in between may be hit.
            self._history.write("fault", **about)
            await asyncio.gather(*(self._begin(fault, node) for node in fault.nodes))
            await asyncio.sleep(fault.seconds)
            await asyncio.gather(*(self._end(fault, node) for node in fault.nodes))
            self._history.write("heal", i=number)
            await asyncio.sleep(fault.settle)
            self._history.write("well", i=number)
            self._impaired -= set(fault.nodes)

    async def _begin(self, fault: Fault, node: int) -> None:
        nodes, order = self._nodes, self._relay.order
        match fault.kind:
            case "hang":
                self._away.add(node)
                await asyncio.to_thread(nodes.hang, node)
            case "kill":
                self._away.add(node)
                await asyncio.to_thread(nodes.kill, node)
            case "flush":
                await asyncio.to_thread(nodes.flush, node)
            case "cut":
                await order(node, "cut")
            case "refuse":
                await order(node, "refuse")
            case "delay":
                await order(node, "delay", way=fault.way, seconds=fault.late)
            case "stall":
                await order(node, "stall", way=fault.way)
            case "script_flush":
                await asyncio.to_thread(nodes.flush_scripts, node)
            case "client_kill":
                await asyncio.to_thread(nodes.kill_connections, node)
            case "fill":
                await asyncio.to_thread(nodes.fill, node)

    async def _end(self, fault: Fault, node: int) -> None:
        nodes, order = self._nodes, self._relay.order
        match fault.kind:
            case "hang":
                await asyncio.to_thread(nodes.wake, node)
                self._away.discard(node)
            case "kill":
                await asyncio.to_thread(nodes.start_again, node, empty=fault.empty)
                self._away.discard(node)
            case "refuse":
                await order(node, "accept")
            case "delay":
                await order(node, "delay", way=fault.way, seconds=0.0)
            case "stall":
                if fault.drop:
                    await order(node, "cut")
                await order(node, "flow", way=fault.way)
            case "fill":
                await asyncio.to_thread(nodes.empty_out, node)

    async def _clients(self, faults: tuple[ClientFault, ...], over: float) -> None:
        """Stop or kill processes, one after the other."""
        for fault in faults:
            if not await _in_time(fault.gap, over):
                return
            if fault.seconds:
                await self._crew.stop(fault.slot, fault.seconds)
            else:
                await self._crew.replace(fault.slot)

    async def _losses(self, losses: tuple[Loss, ...], over: float) -> None:
        for loss in losses:
            if not await _in_time(loss.gap, over):
                return
            well = [node for node in range(len(self._nodes)) if node not in self._impaired]
            held = await asyncio.to_thread(self._nodes.locks_if_up, well[0])
            locks = sorted((name, token) for name, _, token in held or () if name in self._long)
            if not locks:
                continue
            name, _ = locks[int(loss.pick * len(locks))]
            there = [node for node in range(len(self._nodes)) if node not in self._away]
            # A key held by readers loses all entries.
            tokens = [token for of, token in locks if of == name]
            done = [
                await asyncio.to_thread(self._nodes.delete, there, name, token) for token in tokens
            ]
            await asyncio.sleep(_REPAIRED_SECONDS)
            for token, (began, at, deleted) in zip(tokens, done, strict=True):
                again = [
                    node
                    for node in there
                    if node not in self._away and await self._has(node, name, token)
                ]
                # The mark of a lease with `min_hold` is deleted too. It has the token of that
                # lease.
                bare = without_mark(token.encode())[0].decode()
                about: dict[str, Any] = {
                    "name": name,
                    "k": bare[:SHOWN],
                    "a": began,
                    "s": at,
                    "again": again,
                }
                self._history.write("delete", n=list(deleted), c=list(deleted.values()), **about)

    async def _has(self, node: int, name: str, token: str) -> bool:
        locks = await asyncio.to_thread(self._nodes.locks_if_up, node)
        return any((key, value) == (name, token) for key, _, value in locks or ())

    async def _keep_looking(self) -> None:
        """Record keys that could outlive their owner: without an end, or with one after that of
        every lease.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for node in range(len(self._nodes)):
                if node in self._impaired:
                    continue
                seen = await asyncio.to_thread(self._nodes.locks_and_labels_if_up, node)
                if seen is None:
                    continue
                keys, labels = seen
                endless = [_shown(line) for line in keys if not 0 <= line[1] <= self._ttl_ms]
                endless += [
                    [key, left, value]
                    for key, left, value in labels
                    if not 0 <= left <= self._label_ms
                ]
                self._history.write("look", n=node, keys=endless, of=len(keys), labels=len(labels))


def _shown(line: tuple[str, int, str]) -> list[Any]:
    """Return key, milliseconds left and the beginning of the token, behind the mark if there is
    one.
    """
    key, left, value = line
    mark = OVER.decode()
    return [key, left, value[: len(mark) + SHOWN if value.startswith(mark) else SHOWN]]


async def _in_time(gap: float, over: float) -> bool:
    """Wait, and return True; return False at once if the phase ends before."""
    if asyncio.get_running_loop().time() + gap >= over:
        return False
    await asyncio.sleep(gap)
    return True
