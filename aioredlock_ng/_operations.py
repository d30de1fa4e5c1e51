"""Answer operators: the methods of `Redlock` that inspect locks, nodes and counters."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.fencing import slot_of
from aioredlock_ng._core.inspection import deletion_of, lock_info, look_of
from aioredlock_ng._core.keys import resource_name
from aioredlock_ng._engine.loops import running_loop
from aioredlock_ng._engine.trust.forcing import force_release
from aioredlock_ng._looking import inspecting, look_at
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
    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._nodes.connect import Connector
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng._scripts import Command
    from aioredlock_ng._specs import Specs
    from aioredlock_ng._threaded.manager import Threaded
    from aioredlock_ng.options import Options

__all__ = ["Operations"]


class Operations:
    """The methods of a manager that report its state and that of its nodes.

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
        """The engine that is open in this process. With `thread=True` it belongs to its thread."""
        return self._engine if self._threaded is None else self._threaded.present

    def __repr__(self) -> str:
        """Show the state and the addresses of the nodes, without credentials."""
        state = "closed" if self._present is None else "open"
        return f"<{type(self).__name__} {state} {', '.join(node.address for node in self._given)}>"

    async def locked(self, name: str | bytes) -> bool:
        """Return True if any client holds `name` now, so that a quorum of nodes has its token.

        The result is also True if a quorum has keys of other types there, or if `min_hold` keeps
        the lock after its lease, because nobody can acquire the lock. It is False while the key is
        reserved for a waiter (`inspect(name).offered`).

        Raises:
            QuorumUnreachable: Too few nodes answered.
            ConfigurationError: `name` is invalid.
            RedlockClosed: The manager is not open, or belongs to another loop or process.

        Safety: if it is cancelled, nothing has changed.
        """
        return (await self.inspect(name)).held

    @on_engine
    async def inspect(self, name: str | bytes) -> LockInfo:
        """Ask all nodes for the holder of `name`, its remaining time and the number of waiters.

        Nothing is written.

        Raises:
            QuorumUnreachable: Too few nodes answered.
            ConfigurationError: `name` is invalid.
            RedlockClosed: The manager is not open, or belongs to another loop or process.

        Safety: if it is cancelled, nothing has changed.
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
        """Delete a lock for an operator. Its holder loses it, and its `min_hold` is over.

        The call first asks the nodes, and deletes the keys of the token that has a majority. If no
        token has one, the call waits for slightly more than two node timeouts and deletes the keys
        that still exist. An attempt of a client with the same or a shorter `node_timeout` is over
        by then and is not hit.

        A key that is no string, or does not expire, is no lock of this library and may be a user's
        data. If no token has a majority, the call refuses this key with an error. Otherwise the
        call does not touch it.

        Args:
            name: The lock.
            token: Release the lock only if the holder has this token. It must be whole, as
                `inspect` returns it; the log contains only the beginning. Later leases of the same
                grant have the same token. None: release any holder's lock.
            any_key: Delete such a key as well, whatever it contains.

        Returns:
            The number of nodes on which a key was deleted. 0 also if the holder has another token.

        Raises:
            QuorumUnreachable: Too few nodes answered to be sure that the lock is gone.
            ConfigurationError: `name` is invalid, `token` is no str or `any_key` is no bool. Or the
                key is no lock and `any_key` is False; nothing was deleted.
            RedlockClosed: The manager is not open, or belongs to another loop or process.

        Safety: if it is cancelled, the keys are deleted on all nodes that answer, or on none.
        """
        key = self._specs.keys.key(name)
        # An empty token is allowed: other clients may write a key without a value.
        if token is not None and not isinstance(token, str):
            raise ConfigurationError(
                f"token must be the whole token as a str, or None, not {type(token).__name__}"
            )
        if not isinstance(any_key, bool):
            raise ConfigurationError(f"any_key must be True or False, not {type(any_key).__name__}")
        engine = self.engine()
        engine.usable()
        # With NOLOOP the servers do not notify this connection. Our own holders and waiters must
        # learn of the deletion as early as those of other processes.
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
        return sum(deleted)

    async def diagnose(self, *, watch: float = WATCH, probe: str | bytes = PROBE) -> Diagnosis:
        """Examine the nodes over separate connections, and return the weaknesses of the set.

        The manager need not be open. On each node the call acquires and releases a lock with a name
        of its own, and reads settings. It takes about `watch` seconds, and a few `connect_timeout`
        more if a node hangs.

        Args:
            watch: Seconds between two readings of each node's clock. A longer time gives a more
                precise rate.
            probe: Beginning of the lock's name, for servers that allow only certain keys.

        Raises:
            ConfigurationError: An argument is invalid.
            RedlockClosed: No asyncio event loop runs.

        Safety: if it is cancelled, the connections are closed, and the lock is released or expires.
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

        It does no I/O, and any thread may read it. The value is False before `open` and after
        `aclose`. Health checks use it; `wait_ready` waits for it.
        """
        return (engine := self._present) is not None and engine.ready

    @on_engine
    async def wait_ready(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until a quorum of nodes is connected and may grant locks.

        Args:
            timeout: Longest wait in seconds. None: for ever. 0: raise at once unless the quorum is
                ready.

        Raises:
            QuorumUnreachable: The quorum is not ready after `timeout`. The message names each node
                that cannot grant, and the reason.
            ConfigurationError: `timeout` is invalid.
            RedlockClosed: The manager is not open, was closed meanwhile, or belongs to another loop
                or process.

        Safety: if it is cancelled, nothing has changed.
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
        return tuple(Lease(engine, holding) for holding in engine.extender.holdings)

    def stats(self) -> Stats:
        """Return the counters since `open` and the places of this process in the queues.

        No node is asked.

        Raises:
            RedlockClosed: The manager is not open.
        """
        if self._threaded is not None:
            return self._threaded.read(Operations.stats)
        engine = self.engine()
        counters = asdict(engine.context.counters)
        lines = engine.lines
        held = len(engine.extender.holdings)
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
