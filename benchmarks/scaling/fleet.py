"""Simulated: many processes with the real library over simulated networks and servers, in virtual time; it judges nothing.

The servers are those of tests/simulation, and each is as busy as a real one: a command occupies it for as long as was
measured, and its answer comes after those before it. The processes themselves take no time.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aioredlock_ng import Redlock
from aioredlock_ng._scripts.kinds import SCRIPTS
from tests.simulation.network import Link, Profile
from tests.simulation.server import End, Server
from tests.simulation.surroundings import surroundings
from tests.simulation.world import ProcessLoop, World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
    from random import Random

    from tests.simulation.network import Connection

__all__ = ["NETWORKS", "Fleet", "Member", "Network", "simulated"]

LATE = 0.005
"""Share of messages that come late."""

CLOCKS_APART = 0.005
"""Seconds by which wall clocks are wrong either way: what NTP keeps without effort."""


_EPOCH = 1.7e9


class Network:
    """How far apart things are.

    Args:
        least: Seconds one way to the nearest node.
        most: Seconds one way to the farthest.
        spread: Seconds of an exponential distribution on top.
        node_timeout: What a user would set there.
        lost: Late messages are lost and sent again after 0.2 s or more; else they take up to a hundred times longer.
    """

    def __init__(self, least: float, most: float, spread: float, node_timeout: float, *, lost: bool = False) -> None:
        self.least, self.most, self.spread, self.node_timeout = least, most, spread, node_timeout
        self._tail, self._loss = (0.0, LATE) if lost else (LATE, 0.0)

    def profile(self, rng: Random) -> Profile:
        """The way between a process and a node, wherever they are."""
        return Profile(rng.uniform(self.least, self.most), self.spread, self._tail, self._loss)


NETWORKS = {
    "loopback": Network(0.00005, 0.0001, 0.00003, 0.1),
    "one zone": Network(0.0002, 0.0005, 0.0001, 0.1),
    "across zones": Network(0.0005, 0.002, 0.0004, 0.1),
    "across continents": Network(0.01, 0.08, 0.003, 0.5, lost=True),
}
"""The ranges are those of tests/simulation/plan.py."""


_NAMES = {script.sha: script.name for script in SCRIPTS}


class Tally(list[tuple[object, ...]]):
    """Counts what the servers did, in place of the world's log.

    Attributes:
        commands: By script.
        pushes: Connections told of a changed key.
        votes: Nodes that granted, by attempt.
    """

    def __init__(self) -> None:
        super().__init__()
        self._before: set[object] = set()
        self.votes: Counter[object] = Counter()
        self.start()

    def start(self) -> None:
        """Count from nothing."""
        # Some of their votes were counted, the others would be.
        self._before.update(self.votes)
        self.commands: Counter[str] = Counter()
        self.votes = Counter()
        self.pushes = 0

    def append(self, entry: tuple[object, ...]) -> None:
        # Of a server: when, its name, whose, the script, the first key, the first argument, the reply.
        if len(entry) != 7:
            return
        script, reply = str(entry[3]), entry[6]
        self.commands[script] += 1
        if script == "acquire_guarded" and (reply == 1 or (isinstance(reply, list) and reply[0] == 1)):
            arguments: Any = entry[5]
            if arguments[0] not in self._before:
                self.votes[arguments[0]] += 1

    def splits(self, quorum: int) -> int:
        """Attempts that some nodes granted, but no quorum."""
        return sum(votes < quorum for votes in self.votes.values())


class BusyServer(Server):
    """A server that takes its time.

    Args:
        costs: Seconds per script (of `extend` and `watch`: per key), and under "push" for each that is told.

    Attributes:
        busy: Seconds that it has worked.
    """

    def __init__(self, world: World, index: int, tally: Tally, costs: Mapping[str, float]) -> None:
        super().__init__(world, index, 1.0, _EPOCH)
        self.busy = 0.0
        self._tally = tally
        self._costs = costs
        self._busy_until = 0.0

    def accept(self, connection: Connection) -> End:
        """See `Server`."""
        end = _BusyEnd(self, connection)
        self._ends.append(end)
        return end

    def execute(self, end: End, words: list[bytes]) -> bytes:
        """See `Server`; the reply waits for the server to be done."""
        reply = super().execute(end, words)
        script = _NAMES.get(words[1], "") if words[0] == b"EVALSHA" else ""
        self._work(self._costs.get(script, 0.0) * (int(words[2]) if script in ("extend", "watch") else 1))
        return reply

    def push(self) -> None:
        """A connection is told."""
        self._tally.pushes += 1
        self._work(self._costs.get("push", 0.0))

    def when_done(self, call: Callable[[bytes], None], data: bytes) -> None:
        """Call once everything that was asked is done."""
        self.world.at(max(self.world.now, self._busy_until), call, data)

    def _work(self, seconds: float) -> None:
        self.busy += seconds
        self._busy_until = max(self._busy_until, self.world.now) + seconds


class _BusyEnd(End):
    def __init__(self, server: BusyServer, connection: Connection) -> None:
        super().__init__(server, connection)
        self._busy = server
        self._connection = _Later(server, connection)  # type: ignore[assignment]

    def told(self, keys: list[bytes] | None) -> None:
        self._busy.push()
        super().told(keys)


class _Later:
    """Stands for the connection: what the server says leaves once it is done."""

    def __init__(self, server: BusyServer, connection: Connection) -> None:
        self._server = server
        self._connection = connection

    @property
    def dead(self) -> bool:
        return self._connection.dead

    def answer(self, data: bytes) -> None:
        self._server.when_done(self._connection.answer, data)

    def hang_up(self) -> None:
        self._connection.hang_up()


class Member:
    """One process with its manager.

    Args:
        fleet: Whose.
        index: Which.

    Attributes:
        redlock: Its manager, at its defaults but for `ttl` and `node_timeout`.
        rng: Of its workload.
    """

    def __init__(self, fleet: Fleet, index: int) -> None:
        world, network = fleet.world, fleet.network
        self.loop = ProcessLoop(world, f"p{index}")  # type: ignore[abstract]
        self.loop.process = self
        self.watch = self
        self.rng = world.rng(f"work {index}")
        self.fleet = fleet
        self.links = [Link(world, self.loop, server, network.profile(self.rng)) for server in fleet.servers]
        skew = _EPOCH + self.rng.uniform(-CLOCKS_APART, CLOCKS_APART)
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
        """A hook of the simulated surroundings; nothing is judged here."""

    def adopted(self, loop: ProcessLoop, holding: object) -> None:
        """See `greeted`."""

    async def _main(self) -> None:
        await asyncio.sleep(0.05 * self.rng.random())
        async with self.redlock:
            async with self.redlock.lock(f"own {self.loop.name}"):
                self.open = True
            await self.fleet.begun
            await asyncio.gather(*(work(self) for work in self.fleet.works))


class Fleet:
    """Processes, servers and the network between them.

    Args:
        processes: How many.
        nodes: How many servers.
        network: How far apart.
        costs: Seconds that a server needs; see `BusyServer`.

    Attributes:
        counting: True while what happens counts.
        over: True when all shall come to an end.
    """

    def __init__(self, seed: int, processes: int, nodes: int, network: Network, costs: Mapping[str, float]) -> None:
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
        """Let every process do these things at once, until `over`.

        Args:
            seconds: How long at most.
            works: Coroutine functions that end by themselves or soon after `over`.
            warm_up: Seconds before, which are not counted.
            enough: Ends it earlier.

        Returns:
            The seconds that were counted.
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
        """Let everybody come to an end: what is not over by itself is cancelled."""
        self.over = True
        for member in self.members:
            member.loop.within(member.main.cancel)
        self._run(120.0, lambda: all(member.main.done() for member in self.members))
        for member in self.members:
            if not member.main.cancelled():
                member.main.result()

    def _run(self, seconds: float, stop: Callable[[], bool]) -> None:
        until = self.world.now + seconds
        # In slices, for a world takes a great many events for a loop without end.
        while self.world.now < until and not stop():
            self.world.run(min(until, self.world.now + 0.02), lambda: False)

    def _trouble(self, words: str) -> None:
        raise RuntimeError(words)


class _Gate:
    """What the members of several loops wait for."""

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
        """Let all go on."""
        self._open = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


@contextmanager
def simulated() -> Iterator[None]:
    """For the time of some fleets: the library in simulated surroundings."""
    gc.collect()
    gc.disable()
    try:
        with surroundings():
            yield
    finally:
        gc.enable()
