"""Simulate many processes that run the real library, in virtual time.

The networks and servers are simulated. The servers are those of tests/simulation, and each is as
busy as a real one. A command occupies the server for the measured time, and its answer leaves after
the earlier answers. The processes themselves take no time.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aioredlock_ng import Redlock
from benchmarks.scaling.busy import EPOCH, BusyServer, Tally
from tests.simulation.network import Link, Profile
from tests.simulation.surroundings import surroundings
from tests.simulation.world import ProcessLoop, World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
    from random import Random

__all__ = ["NETWORKS", "Fleet", "Member", "Network", "simulated"]

LATE = 0.005
"""Share of messages that come late."""

CLOCKS_APART = 0.005
"""Seconds by which wall clocks are fast or slow. NTP keeps this bound easily."""


class Network:
    """The distance between processes and nodes.

    Args:
        least: Seconds of one way to the nearest node.
        most: Seconds of one way to the farthest node.
        spread: Mean of an exponential distribution that is added, in seconds.
        node_timeout: The `node_timeout` that a user would set.
        lost: True if late messages are lost and sent again after 0.2 s or more. Otherwise they
            take up to a hundred times longer.
    """

    def __init__(
        self, least: float, most: float, spread: float, node_timeout: float, *, lost: bool = False
    ) -> None:
        self.least, self.most, self.spread, self.node_timeout = least, most, spread, node_timeout
        self._tail, self._loss = (0.0, LATE) if lost else (LATE, 0.0)

    def profile(self, rng: Random) -> Profile:
        """Return the way between a process and a node at random places."""
        return Profile(rng.uniform(self.least, self.most), self.spread, self._tail, self._loss)


NETWORKS = {
    "loopback": Network(0.00005, 0.0001, 0.00003, 0.1),
    "one zone": Network(0.0002, 0.0005, 0.0001, 0.1),
    "across zones": Network(0.0005, 0.002, 0.0004, 0.1),
    "across continents": Network(0.01, 0.08, 0.003, 0.5, lost=True),
}
"""The networks by name. The ranges are those of tests/simulation/plan.py."""


class Member:
    """One process with its manager.

    Args:
        fleet: The fleet of the process.
        index: The number of the process.

    Attributes:
        redlock: The manager. Its options are the defaults, except `ttl` and `node_timeout`.
        rng: Random numbers of its workload.
    """

    def __init__(self, fleet: Fleet, index: int) -> None:
        world, network = fleet.world, fleet.network
        self.loop = ProcessLoop(world, f"p{index}")  # type: ignore[abstract]
        self.loop.process = self
        self.watch = self
        self.rng = world.rng(f"work {index}")
        self.fleet = fleet
        self.links = [
            Link(world, self.loop, server, network.profile(self.rng)) for server in fleet.servers
        ]
        skew = EPOCH + self.rng.uniform(-CLOCKS_APART, CLOCKS_APART)
        self.redlock = Redlock(
            self.links,  # type: ignore[arg-type]
            ttl=10.0,
            node_timeout=network.node_timeout,
            clock=self.loop.clock,
            wall_clock=lambda: world.now + skew,
            rng=self.loop.rng,
        )
        self.open = False
        self.main = self.loop.create_task(self._main())

    def greeted(self, address: str) -> None:
        """Do nothing. The simulated surroundings call this hook."""

    def adopted(self, loop: ProcessLoop, holding: object) -> None:
        """Do nothing, see `greeted`."""

    async def _main(self) -> None:
        await asyncio.sleep(0.05 * self.rng.random())
        async with self.redlock:
            async with self.redlock.lock(f"own {self.loop.name}"):
                self.open = True
            await self.fleet.begun
            await asyncio.gather(*(work(self) for work in self.fleet.works))


class Fleet:
    """The processes, the servers and the network between them.

    Args:
        seed: Seed of all random numbers.
        processes: Number of processes.
        nodes: Number of servers.
        network: The distance between processes and nodes.
        costs: Seconds that a server needs, see `BusyServer`.

    Attributes:
        counting: True in the measured time.
        over: True when all processes must end.
    """

    def __init__(
        self, seed: int, processes: int, nodes: int, network: Network, costs: Mapping[str, float]
    ) -> None:
        self.world = World(seed)
        self.tally = self.world.log = Tally()
        self.world.on_trouble = self._trouble
        self.network = network
        self.servers = [BusyServer(self.world, index, self.tally, costs) for index in range(nodes)]
        self.quorum = nodes // 2 + 1
        self.works: Sequence[Callable[[Member], Coroutine[Any, Any, None]]] = ()
        self.counting = self.over = False
        self.begun = _Gate()
        self.members = [Member(self, index) for index in range(processes)]
        self._run(60.0, lambda: all(member.open for member in self.members))

    def work(
        self,
        seconds: float,
        works: Sequence[Callable[[Member], Coroutine[Any, Any, None]]],
        warm_up: float = 0.0,
        enough: Callable[[], bool] = lambda: False,
    ) -> float:
        """Let every process run these coroutines at once, until `over`.

        Args:
            seconds: The longest measured time.
            works: Coroutine functions that return, at the latest soon after `over`.
            warm_up: Seconds before the measured time.
            enough: Ends the measured time earlier when it returns True.

        Returns:
            The measured seconds.
        """
        self.works = works
        self.begun.open()
        self._run(warm_up, lambda: False)
        self.tally.start()
        for server in self.servers:
            server.busy = 0.0
        self.counting, since = True, self.world.now
        self._run(seconds, lambda: enough() or all(member.main.done() for member in self.members))
        self.counting = False
        return self.world.now - since

    def end(self) -> None:
        """Cancel the processes that still run, and raise the first error of the others."""
        self.over = True
        for member in self.members:
            member.loop.within(member.main.cancel)
        self._run(120.0, lambda: all(member.main.done() for member in self.members))
        for member in self.members:
            if not member.main.cancelled():
                member.main.result()

    def _run(self, seconds: float, stop: Callable[[], bool]) -> None:
        until = self.world.now + seconds
        # The world runs in slices. It would take a long run with many events for an endless loop.
        while self.world.now < until and not stop():
            self.world.run(min(until, self.world.now + 0.02), lambda: False)

    def _trouble(self, words: str) -> None:
        raise RuntimeError(words)


class _Gate:
    """A gate for which the members of several loops wait."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self._open = False

    def __await__(self) -> Generator[Any, None, None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._open:
            future.set_result(None)
        return future.__await__()

    def open(self) -> None:
        """Open the gate for all members."""
        self._open = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


@contextmanager
def simulated() -> Iterator[None]:
    """Run the library in simulated surroundings while the context is open."""
    gc.collect()
    gc.disable()
    try:
        with surroundings(joint=False):
            yield
    finally:
        gc.enable()
