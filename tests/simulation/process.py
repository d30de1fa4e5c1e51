"""A simulated process: a real manager over simulated connections, and the tasks that use it."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from aioredlock_ng import (
    LockLost,
    LockNotAcquired,
    QuorumUnreachable,
    Redlock,
    RedlockClosed,
    RedlockError,
)
from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._engine.context import Counters
from aioredlock_ng._nodes.wire import ConnectFailed
from aioredlock_ng.errors import LockReleased
from tests.simulation.network import Connection, Link
from tests.simulation.threads import CallersLoop, ThreadLoop
from tests.simulation.world import ProcessLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng import Lease, Lock
    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng.election import Election
    from aioredlock_ng.rwlock import RWLockOptions
    from tests.simulation.plan import Action, Plan
    from tests.simulation.server import Server
    from tests.simulation.watch import Watch
    from tests.simulation.world import World

__all__ = ["Process", "SimConnector", "SimWire"]

CLOSE_TIMEOUT = 1.0
"""`close_timeout` of all managers, in seconds."""


class SimWire:
    """Takes the place of `wire.Wire`."""

    def __init__(self, transport: Connection) -> None:
        self.transport = transport
        self.received = b""
        self.resp3 = True
        self.redact = str


class _Hello:
    """The protocol of a connection until HELLO is answered. In a real connection redis-py has this
    part.
    """

    def __init__(self, answered: asyncio.Future[None]) -> None:
        self._answered = answered
        self._buffer = bytearray(65536)

    def get_buffer(self, _: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, _: int) -> None:
        if not self._answered.done():
            self._answered.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_exception(error or ConnectionResetError("closed"))


class SimConnector:
    """Takes the place of `connect.Connector`, and connects over a simulated link."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.address = link.server.name
        self.identity = link.server.name
        self.by_sentinel = False

    async def connect(self, within: float) -> SimWire:
        """Connect, and wait for the answer to HELLO.

        Raises:
            ConnectFailed: The server refused the connection, or did not answer within `within`
                seconds.
        """
        connection: Connection | None = None
        try:
            async with asyncio.timeout(within):
                connection = await self._link.dial()
                self._link.connection = connection
                answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                connection.set_protocol(_Hello(answered))
                connection.write(b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n")
                await answered
                return SimWire(connection)
        except TimeoutError:
            raise ConnectFailed(f"no connection within {within:g} s") from None
        except OSError as error:
            raise ConnectFailed(str(error)) from None
        except BaseException:
            if connection is not None:
                connection.close()
            raise


class Process:
    """One client: a process with a manager and tasks.

    Attributes:
        loop: The event loop of the engine.
        homes: The event loops of the tasks. Without `thread=True`, the loop of the engine is the
            only one.
        home: The first loop of the tasks.
        links: One link to each server.
        dead: True once the process was killed.
        buried: True after the end of the run.
        died_at: True time at which the process was killed.
        closing: True time at which the process began to close its manager.
        closed: True time at which the manager was closed.
        counters: The counters of the engine.
        on_end: Called when the process has nothing more to do, or was killed.
    """

    def __init__(
        self, world: World, index: int, plan: Plan, servers: Sequence[Server], watch: Watch
    ) -> None:
        self.world = world
        self.index = index
        self.plan = plan
        self.name = f"p{index}"
        self.watch = watch
        self.loop: ProcessLoop
        self.homes: list[ProcessLoop]
        if plan.threads[index]:
            rate = plan.rates[index]
            self.loop = engine = ThreadLoop(world, self.name, rate)  # type: ignore[abstract]
            self.homes = [
                CallersLoop(engine, number)  # type: ignore[abstract]
                for number in range(plan.callers)
            ]
        else:
            self.loop = ProcessLoop(world, self.name, plan.rates[index])  # type: ignore[abstract]
            self.homes = [self.loop]
        self.home = self.homes[0]
        self.links = [
            Link(world, self.loop, server, plan.profiles[index][server.index]) for server in servers
        ]
        for loop in self.loops:
            loop.process = self
        self._order = world.rng(f"{self.name} order")
        self.dead = False
        self.died_at = self.closing = self.closed = math.inf
        self.acquired = self.refused = 0
        skew = plan.skews[index]
        self.redlock = Redlock(
            self.links,  # type: ignore[arg-type]
            ttl=plan.ttl,
            node_timeout=plan.node_timeout,
            max_ttl=plan.max_ttl,
            fencing=plan.fencing,
            recovery_guard=plan.guard,  # type: ignore[arg-type]
            connect_timeout=max(0.5, 3 * plan.node_timeout),
            close_timeout=CLOSE_TIMEOUT,
            clock=self.loop.clock,
            wall_clock=lambda: world.now * plan.rates[index] + skew,
            rng=self.loop.rng,
            thread=plan.threads[index],
            stall_limit=plan.stall_limit if plan.threads[index] else None,
        )
        self.counters = Counters()
        self.main: asyncio.Task[None] | None = None
        self.buried = False
        self.on_end: Callable[[Process], None] = lambda _: None

    @property
    def loops(self) -> list[ProcessLoop]:
        """All event loops of the process. The loop of the engine comes last."""
        return self.homes if self.home is self.loop else [*self.homes, self.loop]

    @property
    def engine(self) -> Engine | None:
        """The engine, or None if the manager is not open."""
        if self.redlock._threaded is None:
            return self.redlock._engine
        opened = self.redlock._threaded.here
        return None if opened is None else opened.redlock._engine

    @property
    def manager(self) -> bytes:
        """The name of the manager in the queues of the nodes."""
        return self.redlock._run_id[:16]

    @property
    def over(self) -> bool:
        """True once the process has nothing more to do."""
        return self.main is not None and self.main.done()

    def start(self) -> None:
        """Start the tasks, unless the run has ended."""
        if self.buried:
            return
        self.main = self.home.create_task(self._main(), name=self.name)
        self.main.add_done_callback(lambda _: self.on_end(self))

    def stop_for(self, seconds: float, *, suspended: bool) -> None:
        """Stop all event loops for so many true seconds."""
        if self.loop.stopped:
            return
        # After a stop, either thread may be the first to run. After a suspend, the engine's loop
        # must run first, because it corrects the clock of all loops.
        callers_first = not suspended and self._order.random() < 0.5
        for loop in self.loops if callers_first else reversed(self.loops):
            loop.stop_for(seconds, suspended=suspended)

    def greeted(self, address: str) -> None:
        """Note that a connection is ready, so that the node may vote."""
        link = next(link for link in self.links if link.server.name == address)
        link.greeted()

    def kill(self) -> None:
        """End the process at once, as SIGKILL does. The kernel closes its connections."""
        self.dead = True
        self.died_at = self.world.now
        self.on_end(self)
        self.loop.stopped = True
        for home in self.homes:
            if home is not self.loop:
                home.stop_for(math.inf, suspended=False)
        for link in self.links:
            link.isolated = True
            if link.connection is not None:
                link.connection.close()

    def bury(self) -> None:
        """Cancel the tasks of a process that has not ended, after the end of the run.

        A process that has not started will not start.
        """
        self.buried = True
        for loop in reversed(self.loops):
            loop.forget_stops()
            loop.go_on()
        self.home.receive(self._unwind)

    def _unwind(self) -> None:
        if self.main is not None:
            self.main.cancel()

    async def _main(self) -> None:
        tasks: dict[int, list[Action]] = {}
        for action in self.plan.actions:
            if action.process == self.index:
                tasks.setdefault(action.task, []).append(action)
        await self.redlock.open()
        if self.engine is not None:
            self.counters = self.engine.context.counters
        self.world.note(self.name, "open")
        try:
            await asyncio.gather(
                *(self._on(self.homes[task % len(self.homes)], tasks[task]) for task in tasks)
            )
        finally:
            self.closing = self.world.now
            await self.redlock.aclose()
            self.closed = self.world.now
            self.world.note(self.name, "closed")

    async def _on(self, loop: ProcessLoop, actions: Sequence[Action]) -> None:
        if loop is self.home:
            await self._task(actions)
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._task(actions), loop))

    async def _task(self, actions: Sequence[Action]) -> None:
        loop: ProcessLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        for action in actions:
            await asyncio.sleep(action.think)
            task = loop.create_task(self._act(action), name=action.name)
            if isinstance(action.cancel_after, int):
                loop.after(
                    action.cancel_after,
                    lambda task=task: self._cancel(loop, task),  # type: ignore[misc]
                )
            elif action.cancel_after is not None:
                loop.call_later(action.cancel_after, self._cancel, loop, task)
            # With `await task`, a cancellation of `task` would look like a cancellation of this
            # coroutine.
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                task.cancel()
                await asyncio.wait([task])
                raise
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def _cancel(self, loop: ProcessLoop, task: asyncio.Task[None]) -> None:
        if not task.done():
            self.world.note(self.name, "cancel", task.get_name())
            loop.within(task.cancel)

    async def _act(self, action: Action) -> None:
        options: RWLockOptions = {
            "ttl": action.ttl,
            "blocking_timeout": action.blocking_timeout,
            "auto_extend": action.auto_extend,
            "max_hold": action.max_hold,
        }
        if action.limit:
            lock: Lock = self.redlock.semaphore(
                action.resources[0], action.limit, min_hold=action.min_hold, **options
            )
        elif action.side:
            both = self.redlock.rwlock(action.resources[0], **options)
            lock = both.read() if action.side == "read" else both.write()
        else:
            lock = self.redlock.lock(
                *action.resources, min_hold=action.min_hold, fair=action.fair, **options
            )
        called = self.watch.calls(self, action)
        lease: Lease | None = None
        try:
            if action.how == "lead":
                async with (election := self._election(action)) as lease:
                    self.watch.answered(called, None)
                    self._got(action, lease)
                    await self._body(action, lease)
                    if action.then == "resign":
                        await election.resign()
            elif action.how == "with":
                async with lock as lease:
                    self.watch.answered(called, None)
                    self._got(action, lease)
                    await self._body(action, lease)
            else:
                lease_or_none = await (
                    lock.try_acquire() if action.how == "try" else lock.acquire()
                )
                self.watch.answered(called, None)
                if lease_or_none is not None:
                    self._got(action, lease_or_none)
                    await self._held(action, lease_or_none)
                else:
                    self.watch.refused(called)
        except LockNotAcquired as error:
            self.refused += 1
            self.world.note(self.name, action.name, "not acquired", type(error).__name__)
            self.watch.answered(called, error)
            if not isinstance(error, QuorumUnreachable):
                self.watch.refused(called)
        except (LockLost, LockReleased, RedlockClosed) as error:
            self.world.note(self.name, action.name, type(error).__name__)
            if lease is not None:
                self.watch.ended(self, lease)
        finally:
            self.watch.over(called)

    def _election(self, action: Action) -> Election:
        return self.redlock.election(
            action.resources[0],
            label=action.name,
            ttl=action.ttl,
            step_down=action.step_down,
            max_hold=action.max_hold,
        )

    def _got(self, action: Action, lease: Lease) -> None:
        self.acquired += 1
        self.watch.got(lease, left=action.then == "leave")
        self.world.note(self.name, action.name, "got", lease.resource, lease.token[:6], lease.fence)

    async def _body(self, action: Action, lease: Lease) -> None:
        """Work inside `async with`.

        The library cancels this body if the lease is lost, or if the leader must step down.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + action.hold
        step = max(action.hold / 5, 0.001)
        self.watch.enters(self, lease)
        try:
            await self._do(action, lease)
            while loop.time() < until:
                await asyncio.sleep(step)
                self.watch.still_inside(
                    self, lease, action.step_down if action.how == "lead" else 0.0
                )
        finally:
            self.watch.leaves(self, lease)

    async def _held(self, action: Action, lease: Lease) -> None:
        try:
            await self._do(action, lease)
            if action.hold:
                await asyncio.sleep(action.hold)
        finally:
            if action.then != "leave" and lease._record.phase is not Phase.ABANDONED:
                released = await lease.release()
                self.world.note(self.name, action.name, "released", released)
                self.watch.ended(self, lease)

    async def _read_again(self, action: Action) -> None:
        """Acquire a second read lease inside the first one, perhaps while a writer waits."""
        inner = await self.redlock.rwlock(action.resources[0], ttl=action.ttl).read().acquire()
        self._got(action, inner)
        try:
            await asyncio.sleep(action.hold / 3)
        finally:
            await inner.release()
            self.watch.ended(self, inner)

    async def _do(self, action: Action, lease: Lease) -> None:
        if action.after:
            await asyncio.sleep(action.after * action.hold)
        self.watch.asks(lease)
        try:
            if action.then == "extend":
                await lease.extend(action.extended)
            elif action.then == "verify":
                await lease.verify()
            elif action.then == "abandon":
                lease.abandon()
            elif action.then == "downgrade":
                await asyncio.sleep(action.hold / 3)
                await lease.downgrade()
                self.world.note(self.name, action.name, "downgraded", lease.fence)
            elif action.then == "again":
                await self._read_again(action)
        except QuorumUnreachable as error:
            self.world.note(self.name, action.name, "unreachable", action.then)
            self.watch.unreachable(self, lease, error)
        except RedlockError as error:
            self.world.note(self.name, action.name, type(error).__name__)
            raise
        finally:
            self.watch.answers(lease)
