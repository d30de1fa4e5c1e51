"""Define the methods of `Redlock` for operators, such as `inspect`, `stats` and `force_release`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.fencing import slot_of
from aioredlock_ng._core.inspection import deletion_of, lock_info, look_of
from aioredlock_ng._core.keys import resource_name
from aioredlock_ng._engine.loops import running_loop
from aioredlock_ng._engine.trust.forcing import force_release
from aioredlock_ng._forks import OfOneProcess
from aioredlock_ng._manager.inspecting import inspecting, look_at
from aioredlock_ng._nodes.port import NodeState
from aioredlock_ng._threaded.manager import on_engine
from aioredlock_ng.doctor import PROBE, WATCH, diagnose
from aioredlock_ng.errors import ConfigurationError, RedlockClosed
from aioredlock_ng.lease import Lease
from aioredlock_ng.options import positive_seconds
from aioredlock_ng.records import Diagnosis, LockInfo, Queued, Stats

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from aioredlock_ng._core.inspection import Look
    from aioredlock_ng._core.keys import KeyFormat
    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._manager.specs import Specs
    from aioredlock_ng._nodes.connect import Connector
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng._scripts import Command
    from aioredlock_ng._threaded.manager import Threaded
    from aioredlock_ng.options import Options

__all__ = ["Operations"]


class Operations(OfOneProcess):
    """The methods of a manager that inspect locks and nodes, or delete a lock.

    `Redlock` sets the attributes.
    """

    _options: Options
    _specs: Specs
    _given: list[Connector | Node]
    _nodes: list[Node]
    _clock: Callable[[], float]
    _engine: Engine | None
    _threaded: Threaded[Any] | None

    @property
    def _present(self) -> Engine | None:
        """The open engine of this process; None if the manager is not open."""
        return self._engine if self._threaded is None else self._threaded.present

    def __repr__(self) -> str:
        """Show the state and the addresses of the nodes, without credentials."""
        state = "closed" if self._present is None else "open"
        return f"<{type(self).__name__} {state} {', '.join(node.address for node in self._given)}>"

    async def locked(self, name: str | bytes) -> bool:
        """Return True if a client holds `name` now: a quorum of nodes has the client's token.

        The result is also True while `min_hold` keeps the lock after the end of its lease. Keys of
        other types on a quorum of nodes make the result True, too. While the key is reserved for a
        waiter, the result is False, and `inspect(name).offered` is True.

        Raises:
            QuorumUnreachable: Too few nodes answered.
            ConfigurationError: `name` is invalid.
            RedlockClosed: The manager is not open, or belongs to another loop or process.

        Safety: a cancelled call changes nothing.
        """
        return (await self.inspect(name)).held

    @on_engine
    async def inspect(self, name: str | bytes) -> LockInfo:
        """Ask all nodes for the holder of `name`, the remaining time and the number of waiters.

        Nothing is written.

        Raises:
            QuorumUnreachable: Too few nodes answered.
            ConfigurationError: `name` is invalid.
            RedlockClosed: The manager is not open, or belongs to another loop or process.

        Safety: a cancelled call changes nothing.
        """
        key = self._specs.keys.key(name)
        command, plain = inspecting(
            self._specs.kind, (key,), labelled=self._options.owner is not False
        )
        looks = await look_at(self.engine(), name, command, plain)
        return lock_info(resource_name((name,)), [node.address for node in self._nodes], looks)

    @on_engine
    async def force_release(
        self, name: str | bytes, *, token: str | None = None, any_key: bool = False
    ) -> int:
        """Delete a lock for an operator. The holder loses the lock, and `min_hold` ends.

        The call first asks the nodes for the token of the lock. If a token has a majority, the call
        deletes the keys with this token. Otherwise the call waits for slightly more than two node
        timeouts, and then deletes the keys whose token is still the same. So the call does not
        disturb an attempt that is under way, unless the client of the attempt has a longer
        `node_timeout`.

        A key that does not expire, or whose type is not that of a lock, may be a user's data. If no
        token has a majority, a key of this kind makes the call raise an error. If a token has a
        majority, the call leaves the key alone. `any_key` removes this protection.

        Args:
            name: The lock.
            token: Release the lock only if the holder has this token. The token must be whole, as
                `inspect` returns it. The log contains only the beginning of a token. Later leases
                of the same grant have the same token. None: release any holder's lock.
            any_key: Delete the key even if it is not a lock of this library.

        Returns:
            The number of nodes on which this call deleted a key. A holder that notices its loss
            deletes its other keys itself, so the number may be smaller than the number of nodes.
            The number is also 0 if the holder has another token.

        Raises:
            QuorumUnreachable: Too few nodes answered to be sure that the lock is gone.
            ConfigurationError: An argument is invalid, or the key is not a lock and `any_key` is
                False. Nothing was deleted.
            RedlockClosed: The manager is not open, or belongs to another loop or process.

        Safety: a cancelled call deletes the keys on all nodes that answer, or on none.
        """
        key = self._specs.keys.key(name)
        # An empty token is allowed, because other clients may write a key with an empty value.
        if token is not None and not isinstance(token, str):
            raise ConfigurationError(
                f"token must be the whole token as a str, or None, not {type(token).__name__}"
            )
        if not isinstance(any_key, bool):
            raise ConfigurationError(f"any_key must be True or False, not {type(any_key).__name__}")
        engine = self.engine()
        engine.usable()
        # With NOLOOP a server does not notify a connection of the changes that this connection
        # made. But the holders and waiters of this process must be notified as early as those of
        # other processes. So the `finally` block notifies them.
        changed: Iterable[int] = range(len(self._nodes))
        try:

            def ask(command: Command) -> Awaitable[list[Look]]:
                # A local waiter must not receive a grant that is being deleted.
                engine.doubt(key)
                return look_at(
                    engine,
                    name,
                    command,
                    read=look_of if command.script is self._specs.kind.inspect else deletion_of,
                )

            deleted = await force_release(
                engine.context, ask, self._specs.kind, key, slot_of(key), token, any_key=any_key
            )
            changed = [index for index, keys in enumerate(deleted) if keys]
        finally:
            for index in changed:
                engine.invalidated(index, [key])
        return sum(keys > 0 for keys in deleted)

    async def diagnose(self, *, watch: float = WATCH, probe: str | bytes = PROBE) -> Diagnosis:
        """Examine the nodes over separate connections, and return the weaknesses found.

        The manager need not be open. On each node the call acquires and releases a lock under a
        separate name, and reads settings. The call takes about `watch` seconds. A node that hangs
        prolongs the call by a few times `connect_timeout`.

        Args:
            watch: Seconds between two readings of each node's clock. The longer the time, the more
                precise is the measured rate of the clock.
            probe: Beginning of the name of the lock that the call acquires. Another value helps if
                the servers allow only certain keys.

        Raises:
            ConfigurationError: An argument is invalid.
            RedlockClosed: No asyncio event loop runs.

        Safety: a cancelled call closes its connections. Its lock is released or expires.
        """
        running_loop()
        return await diagnose(self._given, self._options, watch=watch, probe=probe)

    @property
    def nodes(self) -> tuple[NodeState, ...]:
        """State of every node, in the order given."""
        if (engine := self._present) is not None:
            return engine.states()
        return tuple(
            NodeState(given.address, "down", "this Redlock is not open") for given in self._given
        )

    @property
    def ready(self) -> bool:
        """True while a quorum of nodes is connected and may grant locks.

        Any thread may read the property, for example for a health check. The property does no I/O.
        The value is False before `open` and after `aclose`. `wait_ready` waits until the value is
        True.
        """
        return (engine := self._present) is not None and engine.ready

    @on_engine
    async def wait_ready(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until a quorum of nodes is connected and may grant locks.

        Args:
            timeout: Longest wait in seconds. None: for ever. 0: raise the error immediately if no
                quorum is ready.

        Raises:
            QuorumUnreachable: No quorum is ready after `timeout`. The message names each node that
                cannot grant, and the reason.
            ConfigurationError: `timeout` is invalid.
            RedlockClosed: The manager is not open, was closed meanwhile, or belongs to another loop
                or process.

        Safety: a cancelled call changes nothing.
        """
        if timeout is not None:
            timeout = positive_seconds("timeout", timeout, zero=True)
        engine = self.engine()
        engine.usable()
        await engine.availability.wait(timeout)

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The leases that this manager holds now."""
        engine = self._present
        if engine is None:
            return ()
        if self._threaded is not None:
            return self._threaded.leases()
        # A thread of `aioredlock_ng.sync` may read the property, so `list` copies in one step.
        return tuple(Lease(engine, record) for record in list(engine.extender.leases))

    def stats(self) -> Stats:
        """Return the counters since `open` and the places of this process in the queues.

        The call sends no request to the nodes.

        Raises:
            RedlockClosed: The manager is not open.
        """
        if self._threaded is not None:
            return self._threaded.read(Operations.stats)
        engine = self.engine()
        counters = asdict(engine.context.counters)
        lines = engine.lines
        held = len(engine.extender.leases)
        queued = tuple(
            Queued(", ".join(map(self._specs.keys.name, keys)), ticket, rank)
            for keys, ticket, rank in (place.queued for place in lines.places())
        )
        return Stats(
            **counters,
            held=held,
            waiting=len(lines.contenders()),
            standing=len(queued),
            queued=queued,
        )

    def key_format(self) -> KeyFormat:
        """Return the format of the keys of locks.

        Internal: for the operations of tools.
        """
        return self._specs.keys

    def engine(self) -> Engine:
        """Return the open engine.

        Internal: for `Lock` and other parts of the library.

        Raises:
            RedlockClosed: The manager is not open.
        """
        if self._threaded is not None:
            return self._threaded.engine()
        if self._engine is None:
            raise RedlockClosed(
                "this Redlock is not open; use `async with redlock:` or `await redlock.open()`"
                " first"
            )
        return self._engine

    async def opened_engine(self) -> Engine:
        """Internal: do the same as `engine`. In a forked child, a threaded manager opens first."""
        if self._threaded is not None:
            await self._threaded.opened()
        return self.engine()
