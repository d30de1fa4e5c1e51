"""Define the manager, which opens the connections to the nodes and makes locks."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any, Literal, Self

from aioredlock_ng._clock import boottime, wall_us
from aioredlock_ng._engine.loops import running_loop
from aioredlock_ng._manager.arguments import (
    check_clocks,
    check_surroundings,
    checked_nodes,
    checked_sinks,
)
from aioredlock_ng._manager.lock_methods import Kinds
from aioredlock_ng._manager.opening import (
    engine_of,
    nodes_of,
    refuse_duplicates,
    refuse_second_opening,
)
from aioredlock_ng._manager.specs import Specs
from aioredlock_ng._nodes.channel.outbox import Outbox
from aioredlock_ng._nodes.fleet import Fleet
from aioredlock_ng._threaded.manager import threaded_of
from aioredlock_ng.environment import naming_variables, settings_from
from aioredlock_ng.logs import log_event
from aioredlock_ng.options import Options
from aioredlock_ng.usage import unsupported

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping

    import redis.asyncio

    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng.events import EventSink

__all__ = ["Redlock"]

_RIGHT_USE = (
    "`async with Redlock([...]) as redlock:`,"
    " or `await redlock.open()` and later `await redlock.aclose()`"
)


@unsupported("with", "await", instead=lambda _: _RIGHT_USE)
class Redlock(Kinds):
    """Locks over N independent Redis nodes.

    Use `async with Redlock([...]) as redlock:`, or call `await open()` and later `await aclose()`.
    The two calls may run in different tasks of one event loop. The manager keeps one connection per
    node open in the background.

    Args:
        nodes: URLs (`redis://`, `rediss://`, `unix://`), `redis.asyncio.Redis` clients or node
            objects such as those of `aioredlock_ng.testing.MemoryNodes`. The manager copies the
            settings of a client, but not its connections. Use an odd number of nodes. A single node
            works as well, but its failure stops all locks.
        ttl: Seconds until a lock expires without renewal.
        node_timeout: Longest time in seconds for which a round waits for the answer of a node.
        drift_factor: Share of the ttl that is subtracted for clock drift, 0 to 0.5.
        min_validity: A grant counts only if at least this many seconds of the ttl remain. None: a
            twentieth of the ttl.
        key_format: Format of the Redis keys of locks, with `{name}` exactly once.
        max_ttl: Longest ttl in seconds that a lock may have; see `Options.max_ttl`.
        connect_timeout: Longest time in seconds for the connection and the handshake with one node.
        close_timeout: Longest time in seconds that `aclose` waits for releases.
        fencing: Give every lease a fencing token, `lease.fence`; see `Options.fencing`.
        recovery_guard: Protection against nodes that lost their memory: "auto", "strict" or None;
            see `Options.recovery_guard`.
        owner: Label of the holder, which `inspect` shows. A text, True for host, process and task,
            or False for no label; see `Options.owner`.
        sinks: Callables that receive every event in addition to the log; see
            `aioredlock_ng.events`. A sink must return quickly and must not block.
        clock: A function that returns seconds and never jumps back. Set it in simulations only.
            Default: the boot time, which advances even while the machine is suspended.
        wall_clock: A function that returns the seconds since 1970. The value of a fence depends on
            this clock, but the order of fences does not.
        rng: Source of randomness for tokens and jitter. Set it in simulations only. By default,
            the operating system generates the tokens.
        thread: Run the manager's requests and renewals on an event loop in a separate daemon
            thread. Leases are then renewed even while the event loop of their holder is blocked,
            and the manager may be used from several loops and threads. Sinks are called in that
            thread.
        stall_limit: If the event loop of a holder is blocked for this many seconds, its leases are
            lost. Needs `thread=True`. None: a blocked loop keeps its leases.

    Raises:
        ConfigurationError: A node or a setting is invalid. The message names the argument, the
            reason and the remedy.
    """

    def __init__(
        self,
        nodes: Iterable[str | redis.asyncio.Redis | Node],
        *,
        ttl: float = 10.0,
        node_timeout: float = 0.1,
        drift_factor: float = 0.01,
        min_validity: float | None = None,
        key_format: str = "{name}",
        max_ttl: float = 60.0,
        connect_timeout: float = 2.0,
        close_timeout: float = 1.0,
        fencing: bool = True,
        recovery_guard: Literal["auto", "strict"] | None = "auto",
        owner: str | bool = True,
        sinks: Iterable[EventSink] = (),
        clock: Callable[[], float] = boottime,
        wall_clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        thread: bool = False,
        stall_limit: float | None = None,
    ) -> None:
        self._options = Options(
            ttl=ttl,
            node_timeout=node_timeout,
            drift_factor=drift_factor,
            min_validity=min_validity,
            key_format=key_format,
            max_ttl=max_ttl,
            connect_timeout=connect_timeout,
            close_timeout=close_timeout,
            fencing=fencing,
            recovery_guard=recovery_guard,
            owner=owner,
        )
        check_surroundings(clock, wall_clock, rng)
        self._given = checked_nodes(nodes)
        self._sinks = checked_sinks(sinks)
        self._clock = clock
        self._wall_us = wall_us if wall_clock is None else lambda: int(wall_clock() * 1e6)
        self._rng = rng
        # In commands, each connection replaces this placeholder by the run id of its server. The
        # placeholder is random, so that no name or token contains it.
        self._run_id = b"%040x" % (secrets.randbits(160) if rng is None else rng.getrandbits(160))
        self._specs = Specs(self._options, self._run_id)
        self._engine: Engine | None = None
        self._nodes: list[Node] = []
        self._threaded = threaded_of(self, thread, stall_limit)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ, **options: Any) -> Self:
        """Make a manager from environment variables.

        `AIOREDLOCK_NG_NODES` has the URLs, separated by commas. In a password, write a comma as
        %2C. Optional variables with seconds: `AIOREDLOCK_NG_TTL`, `_NODE_TIMEOUT`, `_MIN_VALIDITY`,
        `_MAX_TTL`, `_CONNECT_TIMEOUT` and `_CLOSE_TIMEOUT`. Other optional variables:
        `_DRIFT_FACTOR` (a share), `_KEY_FORMAT` (a text), `_FENCING` (true or false),
        `_RECOVERY_GUARD` (auto, strict or none) and `_OWNER` (a text, true or false).

        Args:
            environ: The environment variables. Variables that may be misspelt are reported in the
                log.
            options: Settings that override the environment; see the class `Redlock`.

        Raises:
            ConfigurationError: `AIOREDLOCK_NG_NODES` is missing, or a value is invalid. The message
                names the variable.
        """
        urls, found = settings_from(environ, options)
        with naming_variables("nodes", *found):
            return cls(urls, **found, **options)

    def __copy__(self) -> Self:
        """Return another manager with the same settings."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    async def open(self) -> Self:
        """Connect to the nodes. A node that is down is connected later, in the background.

        Returns:
            The manager itself.

        Raises:
            ConfigurationError: Two nodes are the same server, or `clock` or `wall_clock` returns an
                impossible time.
            RedlockClosed: The manager is already open, perhaps in another event loop, or in the
                parent of this forked process. Also raised if the manager is closed during the call,
                and if no asyncio event loop runs, for example under trio.

        Safety: a cancelled call closes the connections that it has opened.
        """
        if self._threaded is not None:
            await self._threaded.begin()
            return self
        loop = running_loop()
        refuse_second_opening(self._engine)
        check_clocks(self._clock, self._wall_us)
        outbox = Outbox(loop, self._clock, self._run_id if self._specs.kind.own_marker else b"")
        self._nodes = nodes = nodes_of(self._given, outbox, self._options)
        engine = self._engine = engine_of(
            Fleet(nodes, outbox),
            self._options,
            log_event,
            self._sinks,
            clock=self._clock,
            wall_us=self._wall_us,
            rng=self._rng,
            run_id=self._run_id,
        )
        try:
            await engine.open()
            refuse_duplicates(nodes)
            engine.usable()
            engine.availability.begin()
        except BaseException:
            # The manager may have been closed meanwhile, and may be open again by now. The new
            # opening has an engine of its own.
            if self._engine is engine:
                self._engine = None
            await engine.aclose()
            raise
        return self

    async def aclose(self) -> None:
        """Release the held leases, end the waiting acquisitions and disconnect. Idempotent.

        With `thread=True`, a body on another loop may work on for some time. Its lease is lost, and
        its keys expire.

        Raises:
            RedlockClosed: The call comes from another loop or a forked process. Nothing was closed
                or released.

        Safety: the call sends the releases, and waits for the nodes for at most `close_timeout`. A
        call that is cancelled during this wait still closes the connections.
        """
        if self._threaded is not None:
            await self._threaded.aclose()
            return
        engine = self._engine
        if engine is not None:
            engine.usable()
            self._engine = None
            await engine.aclose()

    async def __aenter__(self) -> Self:
        """Open the manager."""
        return await self.open()

    async def __aexit__(self, *error: object) -> None:
        """Close the manager."""
        await self.aclose()
