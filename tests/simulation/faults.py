"""The faults of a plan, each with its end.

A fault that would break the terms of the fault model is skipped.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from aioredlock_ng._core.quorum import quorum_of
from tests.simulation.server import manager_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.network import Link
    from tests.simulation.plan import Fault, Plan
    from tests.simulation.process import Process
    from tests.simulation.server import Server
    from tests.simulation.world import World

__all__ = ["Faults"]

SETTLED = 2.0
"""True seconds that another node must have been trusted for when one forgets (the founding needs
one).
"""


class Faults:
    """Executes the faults of a plan.

    Attributes:
        counts: How many of each kind there were.
        ends: True time at which the last that was begun is over.
    """

    def __init__(
        self, world: World, plan: Plan, servers: Sequence[Server], processes: Sequence[Process]
    ) -> None:
        self._world = world
        self._plan = plan
        self._servers = servers
        self._processes = processes
        self._links = [link for process in processes for link in process.links]
        self.counts: Counter[str] = Counter()
        self.ends = 0.0
        self.forgetting = False
        for fault in plan.faults:
            world.at(fault.at, self._begin, fault)

    def _begin(self, fault: Fault) -> None:
        process = self._processes[fault.process % len(self._processes)]
        server = self._servers[fault.node]
        if getattr(self, fault.kind)(fault, process, server):
            self.counts[fault.kind] += 1
            self._world.note(
                "FAULT", fault.name, fault.kind, process.name, server.name, round(fault.lasts, 4)
            )
            self.ends = max(self.ends, self._world.now + fault.lasts)

    def _later(self, fault: Fault, call: Callable[[], None]) -> None:
        self._world.at(self._world.now + fault.lasts, call)

    def _of(self, server: Server) -> list[Link]:
        return [link for link in self._links if link.server is server]

    def hang(self, fault: Fault, _process: Process, server: Server) -> bool:
        """The server stops executing; its kernel goes on."""
        if server.loop.stopped or not server.up:
            return False
        for link in self._of(server):
            link.troubled()
        server.well_since = server.running_since = math.inf
        server.loop.stop_for(fault.lasts, suspended=False)
        return True

    def lie(self, fault: Fault, _process: Process, server: Server) -> bool:
        """The server executes scripts, and answers each with what no script can return."""
        if server.lying:
            return False
        for link in self._of(server):
            link.troubled(fault.lasts)
        server.lying = True
        server.well_since = server.running_since = math.inf

        def over() -> None:
            server.lying = False

        self._later(fault, over)
        return True

    def slow(self, fault: Fault, _process: Process, server: Server) -> bool:
        """Everybody's messages to and from it take longer."""
        return self._slow(fault, self._of(server), (0, 1))

    def slow_one_way(self, fault: Fault, process: Process, server: Server) -> bool:
        """One process's answers, or requests, take longer."""
        return self._slow(fault, [process.links[server.index]], (1,) if fault.extra < 0.6 else (0,))

    def _slow(self, fault: Fault, links: list[Link], ways: Sequence[int]) -> bool:
        extra = self._plan.node_timeout * fault.extra * 1.5
        for link in links:
            for way in ways:
                link.extra[way] += extra

        def over() -> None:
            for link in links:
                for way in ways:
                    link.extra[way] -= extra
                    # Rounding must not leave it slow for ever.
                    if abs(link.extra[way]) < 1e-9:
                        link.extra[way] = 0.0
                link.troubled(extra)

        self._later(fault, over)
        return True

    def crash(self, fault: Fault, _process: Process, server: Server) -> bool:
        """The server's process ends, and another begins with its memory."""
        return self._crash(fault, server, forget=False)

    def crash_empty(self, fault: Fault, _process: Process, server: Server) -> bool:
        """The same without its memory."""
        return self._may_forget(server) and self._crash(fault, server, forget=True)

    def _crash(self, fault: Fault, server: Server, *, forget: bool) -> bool:
        if not server.up:
            return False
        server.crash()
        server.lost()

        def over() -> None:
            server.restart(forget=forget and self._may_forget(server))

        self._later(fault, over)
        return True

    def flush(self, _fault: Fault, _process: Process, server: Server) -> bool:
        """FLUSHALL."""
        if not server.up or server.loop.stopped or not self._may_forget(server):
            return False
        server.lost()
        server.flush()
        return True

    def _may_forget(self, server: Server) -> bool:
        """Where the promise counts on it, another node has been trusted for a while, and stays so;
        or this one never voted.

        Or every process that is there is a witness of it.
        """
        if (
            self._plan.beyond_guard
            or not server.voted
            or (self._plan.theme == "witness" and self._known_to_all(server))
        ):
            self.forgetting = True
            return True
        now = self._world.now
        others = [other for other in self._servers if other is not server]
        settled = any(
            other.up and other.trusted and now - other.trusted_since > SETTLED for other in others
        )
        self.forgetting |= settled
        return settled

    def _known_to_all(self, server: Server) -> bool:
        """True if each process that is still to take locks has read the present marker of this
        server as trusted.
        """
        known = []
        for process in self._processes:
            if process.dead or process.over:
                continue
            guard = None if process.engine is None else process.engine.guard
            memory = None if guard is None else guard.markers.memories[server.index]
            reading = None if guard is None else guard.markers.readings[server.index]
            known.append(
                memory is not None
                and reading is not None
                and not memory.contradicts(reading)
                and memory.run_id == server.memory.run_id
                and server.trusted
            )
        return all(known)

    def flush_scripts(self, _fault: Fault, _process: Process, server: Server) -> bool:
        """SCRIPT FLUSH."""
        server.flush_scripts()
        return True

    def partition(self, fault: Fault, process: Process, server: Server) -> bool:
        """Nothing gets through between one process and one server."""
        return self._block(fault, [process.links[server.index]], (0, 1))

    def partition_one_way(self, fault: Fault, process: Process, server: Server) -> bool:
        """Nothing gets through one way."""
        return self._block(
            fault, [process.links[server.index]], (1,) if fault.extra < 0.6 else (0,)
        )

    def isolate_node(self, fault: Fault, _process: Process, server: Server) -> bool:
        """Nothing gets through between a server and anybody."""
        return self._block(fault, self._of(server), (0, 1))

    def _block(self, fault: Fault, links: list[Link], ways: Sequence[int]) -> bool:
        for link in links:
            for way in ways:
                link.block(way)

        def over() -> None:
            for link in links:
                for way in ways:
                    link.unblock(way)

        self._later(fault, over)
        return True

    def cut(self, fault: Fault, process: Process, server: Server) -> bool:
        """A connection dies; the server may still get what was under way, and late."""
        connection = process.links[server.index].connection
        if connection is None or connection.is_closing() or process.dead:
            return False
        late = fault.lasts * 0.3 if fault.extra > 0.8 else 0.0
        connection.cut(executes=fault.extra > 0.4, late=late)
        return True

    def pause(self, fault: Fault, process: Process, _server: Server) -> bool:
        """SIGSTOP, or a long collection of garbage."""
        if process.loop.stopped:
            return False
        process.stop_for(fault.lasts, suspended=False)
        return True

    def pause_between(self, fault: Fault, process: Process, _server: Server) -> bool:
        """The same between two callbacks of one instant."""
        if process.loop.stopped:
            return False
        # Of any loop, if there are several.
        loop = process.loops[int(fault.extra * 1000) % len(process.loops)]
        loop.after(
            1 + int(fault.extra * 60), lambda: process.stop_for(fault.lasts, suspended=False)
        )
        self.ends = max(self.ends, self._world.now + 2 * fault.lasts)
        return True

    def block(self, fault: Fault, process: Process, _server: Server) -> bool:
        """A callback of a loop of its tasks blocks. The loop of its engine goes on."""
        if process.dead:
            return False
        home = process.homes[int(fault.extra * 1000) % len(process.homes)]
        home.after(1 + int(fault.extra * 20), lambda: home.stop_for(fault.lasts, suspended=False))
        self.ends = max(self.ends, self._world.now + 2 * fault.lasts)
        return True

    def suspend(self, fault: Fault, process: Process, _server: Server) -> bool:
        """The machine sleeps: timers of the loop stand still, boot time does not."""
        if process.loop.stopped:
            return False
        process.stop_for(fault.lasts, suspended=True)
        return True

    def kill(self, _fault: Fault, process: Process, _server: Server) -> bool:
        """SIGKILL: it does nothing any more, and the kernel closes its connections."""
        if process.dead or len([p for p in self._processes if not p.dead]) < 2:
            return False
        process.kill()
        return True

    def kill_holder(self, fault: Fault, _process: Process, server: Server) -> bool:
        """The same to a process that holds something on a node."""
        owners = [server.owners.get(token) for _, token in server.locks()]
        return any(
            self.kill(fault, process, server)
            for process in self._processes
            if process.name in owners
        )

    def kill_first(self, fault: Fault, _process: Process, server: Server) -> bool:
        """The same to the first in a queue, or to the first two, or to two behind the first."""
        first, last = (0, 1) if fault.extra < 0.4 else (0, 2) if fault.extra < 0.6 else (1, 3)
        return any(
            self.kill(fault, process, server) for process in self._waiting(server)[first:last]
        )

    def pause_first(self, fault: Fault, _process: Process, server: Server) -> bool:
        """The first in a queue is stopped, and maybe the second."""
        most = 2 if fault.extra > 0.7 else 1
        return any(self.pause(fault, process, server) for process in self._waiting(server)[:most])

    def _waiting(self, server: Server) -> list[Process]:
        """The processes that wait on a node for one of the keys, the first one first."""
        of = {process.manager: process for process in self._processes}
        return [of[manager_in(member)] for _, members in server.queues()[:1] for member in members]

    def delete(self, fault: Fault, _process: Process, server: Server) -> bool:
        """Another client deletes a key: an offer; else a lock's key, where a quorum has the same
        token besides.
        """
        offered = [key for key, _, _ in server.offers()]
        for key in [*offered, *(key for key, _ in server.locks())]:
            # Readers have a key together.
            tokens = [token for held, token in server.locks() if held == key]
            if all(self._is_spare(token, server) for token in tokens):
                server.delete(key)
                return True
        return False

    def _is_spare(self, token: bytes, server: Server) -> bool:
        """True if a quorum of other nodes has the token in all keys that any node has it in.

        A key of a set that is missing elsewhere was deleted before.
        """
        whole = {
            name for other in self._servers for name, holder in other.locks() if holder == token
        }
        others = sum(
            all(other.has(name, token) for name in whole)
            for other in self._servers
            if other is not server
        )
        return others >= quorum_of(len(self._servers))

    def delete_queue(self, _fault: Fault, _process: Process, server: Server) -> bool:
        """Another client deletes a queue."""
        queues = server.queues()
        if queues:
            server.delete_queue(queues[0][0])
        return bool(queues)

    def unsubscribe(self, _fault: Fault, process: Process, server: Server) -> bool:
        """A server loses the subscription of a process, and not its connection."""
        link = process.links[server.index]
        if link.connection is None or link.connection.is_closing() or process.dead:
            return False
        link.connection.lose_subscription()
        link.deaf = True
        return True
