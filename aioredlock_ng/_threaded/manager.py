"""Define the part of `Redlock(nodes, thread=True)` that forwards calls to the engine's thread."""

from __future__ import annotations

import functools
from copy import copy
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from aioredlock_ng._threaded.engine_proxy import ThreadedEngine
from aioredlock_ng._threaded.greenlets import refuse_greenlets
from aioredlock_ng._threaded.lease_proxy import ThreadedLease
from aioredlock_ng._threaded.mailbox import Mailbox, home
from aioredlock_ng._threaded.opened import Manager
from aioredlock_ng._threaded.process import PerProcess
from aioredlock_ng._threaded.stalls import Stalls
from aioredlock_ng.errors import ConfigurationError, RedlockClosed
from aioredlock_ng.options import positive_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng.lease import Lease
    from aioredlock_ng.lock import Lock

__all__ = ["Threaded", "on_engine", "threaded_of"]

M = TypeVar("M", bound=Manager)
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="_MayBeThreaded")
N = TypeVar("N", bound="_Openable")


class Threaded(PerProcess[M]):
    """A manager whose engine runs on an event loop of its own, in a daemon thread.

    A forked child opens the manager anew at its first use.

    Args:
        make: Makes an ordinary manager, which the thread opens.
        stall_limit: Seconds after which an event loop that stands still loses its leases. None:
            no limit.
    """

    def __init__(self, make: Callable[[], M], stall_limit: float | None) -> None:
        super().__init__(
            make,
            opens_itself=False,
            begun=lambda here: Stalls(here.redlock.engine(), here.thread, stall_limit),
        )

    async def begin(self) -> None:
        """Open the manager.

        Raises:
            ConfigurationError: As in `Redlock.open`.
            RedlockClosed: The manager cannot be opened, because its thread has ended or because it
                is open already.

        Safety: a cancelled call closes the manager again.
        """
        if (here := self.here) is not None:
            raise here.thread.closed() if here.thread.dead else _open_already()
        opened = self._begin(again=True)
        try:
            await opened.opened()
        except BaseException:
            self._closed = True
            await opened.aclose()
            raise

    async def acquire(self, lock: Lock) -> Lease:
        here = await self.opened()
        holders = home()

        async def acquire() -> ThreadedLease:
            return ThreadedLease.of(await lock.on(here.redlock).acquire(), here.thread, holders)

        lease = await here.thread.call(acquire, ThreadedLease.give_back)
        lease.refuse_closed()
        return lease

    async def call(self, method: Callable[[M], Coroutine[Any, Any, R]]) -> R:
        """Call a method of the ordinary manager on the engine's loop.

        Raises:
            RedlockClosed: The manager is not open, or its thread has ended.

        Safety: a cancellation cancels the method.
        """
        here = await self.opened()
        return await here.thread.call(lambda: method(here.redlock))

    def read(self, method: Callable[[M], R]) -> R:
        """Run a non-blocking method on the engine's loop, and return its result.

        Raises:
            RedlockClosed: The manager is not open, or its thread has ended.
        """
        here = self.here
        if here is None or not here.outcome.done():
            raise RedlockClosed("this Redlock is not open; call `await redlock.open()` first")

        async def read() -> R:
            return method(here.redlock)

        return method(here.redlock) if here.thread.here else here.thread.run(read)

    def leases(self) -> tuple[Lease, ...]:
        """Return the leases that the manager holds now. Their holders may run on any event loop."""
        here, engine = self.here, self.present
        if here is None or engine is None:
            return ()
        # The engine's thread may change `leases` at any time, so `list` copies it in one step.
        return tuple(
            ThreadedLease(
                engine,
                record,
                here.thread,
                record.home if isinstance(record.home, Mailbox) else None,
            )
            for record in list(engine.extender.leases)
        )

    @property
    def present(self) -> Engine | None:
        """The open engine of this process, which runs in its own thread; None if there is none."""
        here = self.here
        if here is None or here.thread.dead or not here.outcome.done():
            return None
        try:
            return here.redlock.engine()
        except RedlockClosed:
            return None

    def engine(self) -> Engine:
        """Return the open engine. Other threads get a wrapper for elections and tools.

        Raises:
            RedlockClosed: The manager is not open, or its thread has ended.
        """
        here, engine = self.here, self.present
        if here is not None and here.thread.dead:
            raise here.thread.closed()
        if here is None or engine is None:
            raise RedlockClosed("this Redlock is not open; call `await redlock.open()` first")
        # `ThreadedEngine` has the methods of an engine that elections and tools use.
        return engine if here.thread.here else cast("Engine", ThreadedEngine(engine, here.thread))


class _MayBeThreaded(Protocol):
    _threaded: Threaded[Any] | None


class _Openable(_MayBeThreaded, Manager, Protocol):
    """A manager under construction."""


def threaded_of(manager: N, thread: object, stall_limit: object) -> Threaded[N] | None:
    """Return the `Threaded` object of a manager that is being made; None if `thread` is False.

    Raises:
        ConfigurationError: An option is invalid, or gevent or eventlet has replaced threads.
    """
    if not isinstance(thread, bool):
        raise ConfigurationError(f"thread must be True or False, not {type(thread).__name__}")
    if stall_limit is not None:
        stall_limit = positive_seconds("stall_limit", stall_limit)
        if not thread:
            raise ConfigurationError(
                "stall_limit needs thread=True; without it a loop that stands still renews nothing,"
                " and loses its leases at their deadlines"
            )
    if not thread:
        return None
    refuse_greenlets()
    # Each process opens a copy of the manager. The copies share the options and the settings of
    # locks.
    ordinary = copy(manager)
    ordinary._threaded = None
    return Threaded(lambda: copy(ordinary), stall_limit)


def on_engine(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Make a manager's method run on the engine's loop, if the engine has a thread of its own."""

    @functools.wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._threaded is None:
            return await method(self, *args, **kwargs)
        return await self._threaded.call(lambda manager: method(manager, *args, **kwargs))

    return call


def _open_already() -> RedlockClosed:
    return RedlockClosed("this Redlock is open already; open it only once, or close it first")
