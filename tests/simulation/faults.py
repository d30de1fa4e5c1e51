"""The faults of a plan.

Faults outside the fault model of a run are skipped.
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
"""True seconds for which another node must have been trusted before a node may forget.

The fault model itself asks for one second only, which is the time of a founding.
"""


class Faults:
    """Executes the faults of a plan, and ends them after their time.

    Each kind of fault is a method, which returns False if the fault was skipped.

    Attributes:
        counts: Number of executed faults of each kind.
        ends: Latest true time at which a fault that has begun ends.
        forgetting: True once a node was allowed to forget.
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
        """Stop the server process. Its kernel goes on, so its connections stay open."""
        if server.loop.stopped or not server.up:
            return False
        for link in self._of(server):
            link.troubled()
        server.well_since = server.running_since = math.inf
        server.loop.stop_for(fault.lasts, suspended=False)
        return True

    def lie(self, fault: Fault, _process: Process, server: Server) -> bool:
        """Let the server execute scripts, but answer each of them with an impossible reply."""
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
        """Delay all messages from and to the server."""
        return self._slow(fault, self._of(server), (0, 1))

    def slow_one_way(self, fault: Fault, process: Process, server: Server) -> bool:
        """Delay the answers to one process, or the requests of this process."""
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
                    # A rounding error would leave the link slow for ever.
                    if abs(link.extra[way]) < 1e-9:
                        link.extra[way] = 0.0
                link.troubled(extra)

        self._later(fault, over)
        return True

    def crash(self, fault: Fault, _process: Process, server: Server) -> bool:
        """End the server process, and start another one with the same memory."""
        return self._crash(fault, server, forget=False)

    def crash_empty(self, fault: Fault, _process: Process, server: Server) -> bool:
        """End the server process, and start another one without the memory.

        The memory is kept if the fault model does not allow its loss when the server starts again.
        """
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
        """Delete all data of the server, as FLUSHALL does."""
        if not server.up or server.loop.stopped or not self._may_forget(server):
            return False
        server.lost()
        server.flush()
        return True

    def _may_forget(self, server: Server) -> bool:
        """Return True if the fault model of the run allows the server to forget.

        Usually another running node must have been trusted for `SETTLED` seconds. A server that
        never voted may always forget. In a run with the theme `witness`, a server may also forget
        if every process knows its marker. Runs beyond the guard have no rule.
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
        """Return True if each process that may still acquire locks has read this server's present
        marker, and found the server trusted.
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
        """Delete all scripts of the server, as SCRIPT FLUSH does."""
        server.flush_scripts()
        return True

    def partition(self, fault: Fault, process: Process, server: Server) -> bool:
        """Hold back all messages between one process and one server."""
        return self._block(fault, [process.links[server.index]], (0, 1))

    def partition_one_way(self, fault: Fault, process: Process, server: Server) -> bool:
        """Hold back the messages of one direction between one process and one server."""
        return self._block(
            fault, [process.links[server.index]], (1,) if fault.extra < 0.6 else (0,)
        )

    def isolate_node(self, fault: Fault, _process: Process, server: Server) -> bool:
        """Hold back all messages between one server and all processes."""
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
        """Break a connection. The server may still receive the requests under way, and may receive
        them late.
        """
        connection = process.links[server.index].connection
        if connection is None or connection.is_closing() or process.dead:
            return False
        late = fault.lasts * 0.3 if fault.extra > 0.8 else 0.0
        connection.cut(executes=fault.extra > 0.4, late=late)
        return True

    def pause(self, fault: Fault, process: Process, _server: Server) -> bool:
        """Stop a process, as SIGSTOP or a long garbage collection does."""
        if process.loop.stopped:
            return False
        process.stop_for(fault.lasts, suspended=False)
        return True

    def pause_between(self, fault: Fault, process: Process, _server: Server) -> bool:
        """Stop a process after some callbacks, even between two callbacks of one instant."""
        if process.loop.stopped:
            return False
        # With `thread=True`, the callbacks of any loop of the process may be counted.
        loop = process.loops[int(fault.extra * 1000) % len(process.loops)]
        loop.after(
            1 + int(fault.extra * 60), lambda: process.stop_for(fault.lasts, suspended=False)
        )
        self.ends = max(self.ends, self._world.now + 2 * fault.lasts)
        return True

    def block(self, fault: Fault, process: Process, _server: Server) -> bool:
        """Block one of the loops of a process's tasks. With `thread=True` the loop of the engine
        goes on.
        """
        if process.dead:
            return False
        home = process.homes[int(fault.extra * 1000) % len(process.homes)]
        home.after(1 + int(fault.extra * 20), lambda: home.stop_for(fault.lasts, suspended=False))
        self.ends = max(self.ends, self._world.now + 2 * fault.lasts)
        return True

    def suspend(self, fault: Fault, process: Process, _server: Server) -> bool:
        """Suspend the machine of a process: the clocks of its loops stand still, and its boot time
        goes on.
        """
        if process.loop.stopped:
            return False
        process.stop_for(fault.lasts, suspended=True)
        return True

    def kill(self, _fault: Fault, process: Process, _server: Server) -> bool:
        """Kill a process, as SIGKILL does. Its kernel closes the connections.

        The last living process is not killed.
        """
        if process.dead or len([p for p in self._processes if not p.dead]) < 2:
            return False
        process.kill()
        return True

    def kill_holder(self, fault: Fault, _process: Process, server: Server) -> bool:
        """Kill one process that has a key on the server."""
        owners = [server.owners.get(token) for _, token in server.locks()]
        return any(
            self.kill(fault, process, server)
            for process in self._processes
            if process.name in owners
        )

    def kill_first(self, fault: Fault, _process: Process, server: Server) -> bool:
        """Kill the first waiter in a queue of the server, or sometimes the second one.

        If this waiter is dead already, the waiter behind it may be killed instead.
        """
        first, last = (0, 1) if fault.extra < 0.4 else (0, 2) if fault.extra < 0.6 else (1, 3)
        return any(
            self.kill(fault, process, server) for process in self._waiting(server)[first:last]
        )

    def pause_first(self, fault: Fault, _process: Process, server: Server) -> bool:
        """Stop the first waiter in a queue of the server.

        If this waiter is stopped already, the second waiter may be stopped instead.
        """
        most = 2 if fault.extra > 0.7 else 1
        return any(self.pause(fault, process, server) for process in self._waiting(server)[:most])

    def _waiting(self, server: Server) -> list[Process]:
        """Return the processes in the first queue of the server, the first waiter first."""
        of = {process.manager: process for process in self._processes}
        return [of[manager_in(member)] for _, members in server.queues()[:1] for member in members]

    def delete(self, fault: Fault, _process: Process, server: Server) -> bool:
        """Delete a key as another client could: an offer if there is one, else the key of a lock.

        A lock's key is deleted only if a quorum of other nodes has its token.
        """
        offered = [key for key, _, _ in server.offers()]
        for key in [*offered, *(key for key, _ in server.locks())]:
            # Several readers share one key, so the key may have several tokens.
            tokens = [token for held, token in server.locks() if held == key]
            if all(self._is_spare(token, server) for token in tokens):
                server.delete(key)
                return True
        return False

    def _is_spare(self, token: bytes, server: Server) -> bool:
        """Return True if a quorum of other nodes has the token in each key that has this token on
        any node.

        A lock of several names has several keys. A node that lacks one of them does not count.
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
        """Delete the first queue of the server, as another client could."""
        queues = server.queues()
        if queues:
            server.delete_queue(queues[0][0])
        return bool(queues)

    def unsubscribe(self, _fault: Fault, process: Process, server: Server) -> bool:
        """End the subscription of a process on the server. Its connection stays open."""
        link = process.links[server.index]
        if link.connection is None or link.connection.is_closing() or process.dead:
            return False
        link.connection.lose_subscription()
        link.deaf = True
        return True
