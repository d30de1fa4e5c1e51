"""Define the manager for threads, which opens an asyncio manager in each process."""

from __future__ import annotations

import os
from copy import copy
from typing import TYPE_CHECKING, Any, Self, TypeVar

import aioredlock_ng
from aioredlock_ng._threaded.greenlets import refuse_greenlets
from aioredlock_ng._threaded.process import PerProcess
from aioredlock_ng.doctor import PROBE, WATCH
from aioredlock_ng.environment import naming_variables, settings_from
from aioredlock_ng.errors import ConfigurationError, RedlockError
from aioredlock_ng.sync._lease import Inside, Lease
from aioredlock_ng.sync._lock import right_use
from aioredlock_ng.sync._lock_methods import Kinds
from aioredlock_ng.usage import unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from types import TracebackType
    from typing import Unpack

    import redis.asyncio

    from aioredlock_ng import Diagnosis, LockInfo, NodeState, Stats
    from aioredlock_ng.sync._options import RedlockOptions

T = TypeVar("T")

__all__ = ["Redlock"]


@unsupported("async with", "await", instead=lambda _: right_use("Redlock([...]) as redlock"))
class Redlock(Kinds):
    """Locks for threads.

    The object may be made at import time, and opens at its first use in each process.

    Use the manager as `with Redlock([...]) as redlock:`, or call `close()` at the end. The exit of
    the interpreter releases all leases that are still held.

    Args:
        nodes: As for `aioredlock_ng.Redlock`.
        options: As for `aioredlock_ng.Redlock`.

    Raises:
        ConfigurationError: A node or an option is invalid, or gevent or eventlet has replaced
            threads.
    """

    def __init__(
        self,
        nodes: Iterable[str | redis.asyncio.Redis],
        **options: Unpack[RedlockOptions],
    ) -> None:
        refuse_greenlets()
        if own := sorted(options.keys() & {"thread", "stall_limit"}):
            raise ConfigurationError(
                f"a Redlock of aioredlock_ng.sync has no {' and no '.join(own)}: its engine always"
                " has a thread of its own; leave the option out"
            )
        # The unopened manager checks the arguments, and describes locks until the first use. Each
        # process that opens the manager copies it, because a second reading of an iterator, such as
        # `nodes` or `sinks`, would find it empty.
        self._unopened = unopened = aioredlock_ng.Redlock(nodes, **options)
        self._process = PerProcess(lambda: copy(unopened))
        self._inside = Inside()

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] = os.environ, **options: Unpack[RedlockOptions]
    ) -> Self:
        """Make a manager from environment variables, as `aioredlock_ng.Redlock.from_env` does.

        Raises:
            ConfigurationError: `AIOREDLOCK_NG_NODES` is missing, or a value is invalid. The error
                names the variable.
        """
        urls, found = settings_from(environ, options)
        with naming_variables("nodes", *found):
            return cls(urls, **found, **options)

    def __repr__(self) -> str:
        """Show the state and the addresses of the nodes, without credentials."""
        return repr(self.known)

    def open(self) -> Self:
        """Connect now instead of at the first use.

        Nodes that are down are connected later, in the background.

        Returns:
            The manager itself.

        Raises:
            ConfigurationError: Two nodes are the same server, or `clock` or `wall_clock` returns an
                impossible time.
            RedlockClosed: The thread of the locks has ended by an error. `close()` comes first.

        Safety: an interrupted call either undoes the opening, or leaves the manager open until
        `close()` or the end of the process.
        """
        self._process.open(again=True)
        return self

    def close(self) -> None:
        """Release the held leases, end the waiting acquisitions and disconnect.

        A further call has no effect, unless the first call was interrupted. A lease whose `with`
        still runs in a thread is lost and expires: the end of the `with` raises `LockLost`.

        Safety: if the call is interrupted, the closing continues in the background, or has not
        begun. Call `close` again to be sure.
        """
        self._process.close()

    def __enter__(self) -> Self:
        """Open the manager."""
        return self.open()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the manager."""
        self.close()

    def locked(self, name: str | bytes) -> bool:
        """Return True if a client holds `name` now: a quorum of nodes has the client's token.

        Raises:
            QuorumUnreachable: Too few nodes answered.
            ConfigurationError: `name` is invalid.
            RedlockClosed: The manager is closed.
        """
        return self._run(lambda redlock: redlock.locked(name))

    def inspect(self, name: str | bytes) -> LockInfo:
        """Ask all nodes for the holder of `name`, the remaining time and the number of waiters.

        Nothing is written.

        Raises:
            QuorumUnreachable: Too few nodes answered.
            ConfigurationError: `name` is invalid.
            RedlockClosed: The manager is closed.
        """
        return self._run(lambda redlock: redlock.inspect(name))

    def force_release(
        self, name: str | bytes, *, token: str | None = None, any_key: bool = False
    ) -> int:
        """Delete a lock for an operator; see `aioredlock_ng.Redlock.force_release`.

        Returns:
            The number of nodes on which this call deleted a key.

        Raises:
            QuorumUnreachable: Too few nodes answered to be sure that the lock is gone.
            ConfigurationError: An argument is invalid. Or the key is not a lock and `any_key` is
                False.
            RedlockClosed: The manager is closed.

        Safety: if the call is interrupted, the keys are deleted on all nodes that answer, or on
        none.
        """
        return self._run(lambda redlock: redlock.force_release(name, token=token, any_key=any_key))

    def diagnose(self, *, watch: float = WATCH, probe: str | bytes = PROBE) -> Diagnosis:
        """Examine the nodes over separate connections; see `aioredlock_ng.Redlock.diagnose`.

        The call opens the manager, and takes about `watch` seconds.

        Args:
            watch: Seconds between two readings of each node's clock.
            probe: Beginning of the name of the lock that the call acquires on each node. Set
                `probe` if the servers allow only certain keys.

        Raises:
            ConfigurationError: An argument is invalid.
            RedlockClosed: The manager is closed.

        Safety: an interrupted call closes its connections. The lock of the call is released or
        expires.
        """
        return self._run(lambda redlock: redlock.diagnose(watch=watch, probe=probe))

    @property
    def nodes(self) -> tuple[NodeState, ...]:
        """Health of every node, in the order given."""
        return self.known.nodes

    @property
    def ready(self) -> bool:
        """True while a quorum of nodes is connected and may grant locks. No I/O."""
        here = self._process.here
        return here is not None and not here.thread.dead and here.redlock.ready

    def wait_ready(self, timeout: float | None = None) -> None:
        """Open the manager, and wait until a quorum of nodes is connected and may grant locks.

        Args:
            timeout: Longest wait in seconds. None: for ever. 0: raise the error immediately if no
                quorum is ready.

        Raises:
            QuorumUnreachable: No quorum is ready after `timeout`. The message names each node that
                cannot grant, and the reason.
            ConfigurationError: `timeout` is invalid.
            RedlockClosed: The manager is closed.
        """
        self._run(lambda redlock: redlock.wait_ready(timeout))

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The leases that this manager holds now, in this process. No I/O."""
        here = self._process.here
        if here is None or here.thread.dead:
            return ()
        return tuple(Lease(lease, here.thread) for lease in here.redlock.leases)

    @property
    def current_lease(self) -> Lease:
        """The lease of the innermost `with` or decorated function in this thread. No I/O.

        Raises:
            RedlockError: This thread is in no `with` and in no decorated function.
        """
        if not self.inside:
            raise RedlockError(
                "this thread holds no lock by `with` or by a decorator; use the lease that"
                " acquire() returned"
            )
        return self.inside[-1].lease

    def stats(self) -> Stats:
        """Return the counters since `open` and the places of this process in the queues.

        The call opens the manager, and sends no further request to the nodes.

        Raises:
            ConfigurationError: As in `open`.
            RedlockClosed: The manager is closed.
        """

        async def stats(redlock: aioredlock_ng.Redlock) -> Stats:
            return redlock.stats()

        return self._run(stats)

    def _run(self, call: Callable[[aioredlock_ng.Redlock], Coroutine[Any, Any, T]]) -> T:
        here = self._process.open()
        return here.thread.run(lambda: call(here.redlock))
