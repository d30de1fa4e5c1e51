"""Locks for threads over N independent nodes, by an asyncio manager that each process opens."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import aioredlock_ng
from aioredlock_ng.environment import naming_variables, settings_from
from aioredlock_ng.errors import ConfigurationError
from aioredlock_ng.sync._guard import guarded
from aioredlock_ng.sync._lease import Lease
from aioredlock_ng.sync._lock import Lock
from aioredlock_ng.sync._process import PerProcess
from aioredlock_ng.sync._thread import refuse_greenlets

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from types import TracebackType
    from typing import Unpack

    import redis.asyncio

    from aioredlock_ng import Diagnosis, LockInfo, NodeState, Stats
    from aioredlock_ng.sync._guard import Guard
    from aioredlock_ng.sync._options import LockOptions, RedlockOptions
    from aioredlock_ng.sync._thread import EngineThread

T = TypeVar("T")

__all__ = ["Redlock"]


class Redlock:
    """Locks for threads. It may be made at import time, and opens at its first use in each process.

    Use it as `with Redlock([...]) as redlock:`, or call `close()` at the end. Leases that are still
    held when the interpreter exits are released then.

    Args:
        nodes: As for `aioredlock_ng.Redlock`.
        options: As for `aioredlock_ng.Redlock`.

    Raises:
        ConfigurationError: A node or an option is unusable, or gevent or eventlet has replaced
            threads.
    """

    def __init__(
        self,
        nodes: Iterable[str | redis.asyncio.Redis],
        **options: Unpack[RedlockOptions],
    ) -> None:
        refuse_greenlets()
        if hasattr(nodes, "__iter__") and not isinstance(nodes, (str, bytes, dict)):
            # Each process that opens it reads them once more.
            nodes = list(nodes)
        make = partial(aioredlock_ng.Redlock, nodes, **options)
        # Never opened: it checks the arguments, and describes locks until the first use.
        self._unopened = make()
        self._process = PerProcess(make)

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] = os.environ, **options: Unpack[RedlockOptions]
    ) -> Self:
        """Read nodes and options from the environment, as `aioredlock_ng.Redlock.from_env`.

        Raises:
            ConfigurationError: `AIOREDLOCK_NG_NODES` is missing, or a value is unusable. The error
                names the variable.
        """
        urls, found = settings_from(environ, options)
        with naming_variables("nodes", *found):
            return cls(urls, **found, **options)

    def __repr__(self) -> str:
        """Whether it is open, and the addresses of its nodes, without credentials."""
        return repr(self._known)

    def open(self) -> Self:
        """Connect now instead of at the first use.

        Nodes that are down are connected in the background.

        Returns:
            Itself.

        Raises:
            ConfigurationError: Two nodes are the same server.

        Safety: interrupted, everything is closed again.
        """
        self._process.open(again=True)
        return self

    def close(self) -> None:
        """Release the leases still held, end the acquisitions that wait, disconnect. Idempotent.

        Safety: interrupted, the releases are on their way, and the connections are closed.
        """
        self._process.close()

    def __enter__(self) -> Self:
        """Open it."""
        return self.open()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def lock(self, name: str | bytes, *more: str | bytes, **options: Unpack[LockOptions]) -> Lock:
        """Describe a lock; no I/O happens, and this works before `open`.

        Args:
            name: The resource, 1 to 65,536 bytes.
            more: Further resources to acquire together: all or nothing.
            options: As for `aioredlock_ng.Redlock.lock`, with another meaning of `on_lost`. It is a
                function that is called once with a lease that is lost, on a thread of its own.

        Raises:
            ConfigurationError: An argument is unusable.
        """
        on_lost = options.pop("on_lost", None)
        if on_lost is not None and not callable(on_lost):
            raise ConfigurationError(
                f"on_lost must be a function that takes the lease, or None, not {on_lost!r}"
            )
        lock = Lock(self, (name, *more), dict(options), options.get("blocking_timeout"), on_lost)
        self.described(lock)
        return lock

    def guard(self, template: str, **options: Unpack[LockOptions]) -> Guard:
        """Decorate a plain function: each call runs inside `with redlock.lock(name)`.

        Args:
            template: The name, with parameters of the function, their attributes and formats:
                "report:{user.id}:{day:%F}".
            options: As for `lock`.

        Raises:
            ConfigurationError: At decoration: a coroutine function, an unknown placeholder, an
                unusable option. At the call: a value that has no stable text, or contains the
                separator behind it.

        A call raises what `with redlock.lock(…)` raises: `LockNotAcquired` without having begun,
        `LockLost` instead of its result if the lock was lost meanwhile.
        """
        return guarded(lambda name: self.lock(name, **options), template)

    def locked(self, name: str | bytes) -> bool:
        """Return True if a quorum of nodes holds the same token for `name` right now.

        Raises:
            QuorumUnreachable: Too few nodes answered to say.
            ConfigurationError, RedlockClosed: As everywhere.
        """
        return self._run(lambda redlock: redlock.locked(name))

    def inspect(self, name: str | bytes) -> LockInfo:
        """Ask all nodes who holds `name`, for how long, and how many wait for it. Writes nothing.

        Raises:
            QuorumUnreachable: Too few nodes answered to say.
            ConfigurationError, RedlockClosed: As everywhere.
        """
        return self._run(lambda redlock: redlock.inspect(name))

    def force_release(
        self, name: str | bytes, *, token: str | None = None, any_key: bool = False
    ) -> int:
        """Release a lock that another client holds; see `aioredlock_ng.Redlock.force_release`.

        Returns:
            On how many nodes a key was deleted.

        Raises:
            QuorumUnreachable: Too few nodes answered to be sure that it is gone.
            ConfigurationError, RedlockClosed: As everywhere.

        Safety: interrupted, the keys are deleted on all nodes that answer, or on none.
        """
        return self._run(lambda redlock: redlock.force_release(name, token=token, any_key=any_key))

    def diagnose(self) -> Diagnosis:
        """Examine the nodes over connections of their own; see `aioredlock_ng.Redlock.diagnose`."""
        return self._run(lambda redlock: redlock.diagnose())

    @property
    def nodes(self) -> tuple[NodeState, ...]:
        """Health of every node, in the order given."""
        return self._known.nodes

    @property
    def ready(self) -> bool:
        """True while a quorum of nodes is connected and may grant locks. No I/O."""
        here = self._process.here
        return here is not None and not here.thread.dead and here.redlock.ready

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until a quorum of nodes is connected and may grant locks. Opens the manager.

        Args:
            timeout: Seconds to wait at most; None: for ever; 0: raise at once unless it is so.

        Raises:
            QuorumUnreachable: It is not so after `timeout`; names each node that cannot, and why.
            ConfigurationError, RedlockClosed: As everywhere.
        """
        self._run(lambda redlock: redlock.wait_ready(timeout))

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The leases that this manager holds now, in this process."""
        here = self._process.here
        if here is None or here.thread.dead:
            return ()

        async def leases() -> tuple[aioredlock_ng.Lease, ...]:
            return here.redlock.leases

        return tuple(Lease(lease, here.thread) for lease in here.thread.run(leases))

    def stats(self) -> Stats:
        """Counters since `open`, and this process's places in the queues. No node is asked.

        Raises:
            RedlockClosed: Closed.
        """

        async def stats(redlock: aioredlock_ng.Redlock) -> Stats:
            return redlock.stats()

        return self._run(stats)

    def opened(self) -> EngineThread:
        """Return the thread that the locks live on; open the manager at the first call.

        Internal: for `Lock`.

        Raises:
            RedlockClosed: Closed.
        """
        return self._process.open().thread

    def described(self, lock: Lock) -> aioredlock_ng.Lock:
        """Return the lock of this description on the manager that is open in this process.

        Internal: for `Lock`.
        """
        options: dict[str, Any] = lock.options
        return self._known.lock(*lock.resources, on_lost="flag", **options)

    @property
    def inside(self) -> list[Lease]:
        """The leases that this very thread holds by `with`, oldest first.

        Internal: for `Lock`.
        """
        return self._process.inside

    @property
    def _known(self) -> aioredlock_ng.Redlock:
        """The manager that is open in this process, or the one that was never opened."""
        here = self._process.here
        return self._unopened if here is None else here.redlock

    def _run(self, call: Callable[[aioredlock_ng.Redlock], Coroutine[Any, Any, T]]) -> T:
        here = self._process.open()
        return here.thread.run(lambda: call(here.redlock))
