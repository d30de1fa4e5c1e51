"""Define the named lock, which many tasks may acquire many times."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._leases.lease_base import CLOSED_AMID
from aioredlock_ng._leases.loss_points import reached
from aioredlock_ng._leases.open_blocks import Bodies, Body
from aioredlock_ng._notes import add_note, is_loss
from aioredlock_ng.errors import (
    LockHeld,
    LockNotAcquired,
    RedlockClosed,
    RedlockError,
    UpgradeRefused,
)
from aioredlock_ng.lease import Lease
from aioredlock_ng.usage import call_of, unsupported

if TYPE_CHECKING:
    from types import TracebackType

    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._engine.spec import LockSpec

__all__ = ["Lock", "OnLost", "Source"]

OnLost = Literal["cancel", "flag"]


class _Threaded(Protocol):
    async def acquire(self, lock: Lock) -> Lease: ...


class Source(Protocol):
    """The manager of a lock."""

    @property
    def _threaded(self) -> _Threaded | None:
        """The engine's thread; None if the engine runs on the loop of its callers."""

    def engine(self) -> Engine:
        """Return the open engine."""

    async def opened_engine(self) -> Engine:
        """Do the same as `engine`. In a forked child, a manager with a thread opens first."""


def _right_use(lock: Lock) -> str:
    call = call_of("lock", lock.resources[0], ", …" if lock.resources[1:] else "")
    return f"`async with {call}:`, or `lease = await {call}.acquire()`"


@unsupported("with", "await", instead=_right_use)
class Lock:
    """A named lock, made by `Redlock.lock`.

    The object is cheap, reusable and safe to use from many tasks at once. Each acquire returns its
    own lease.

    One task may enter an `async with`, and another task may leave the block, as in fixtures and
    exit stacks. The entry must then be the only open entry of the `Lock` object. Otherwise the exit
    raises `RedlockError` and releases nothing. The lease stays held until its holder releases it,
    or until all open blocks of the `Lock` object are left.

    If a task that leaves an `async with` has entries of its own, the newest of these entries ends.
    One task must therefore leave its entries of a `Lock` object in the reverse order of entering.
    """

    __slots__ = ("_blocking_timeout", "_bodies", "_names_holder", "_on_lost", "_source", "_spec")

    # False if tests cannot lose the leases; see `loss_points`.
    _is_observed: ClassVar = True

    def __init__(
        self,
        source: Source,
        spec: LockSpec,
        blocking_timeout: float | None,
        on_lost: OnLost,
        *,
        names_holder: bool = True,
    ) -> None:
        self._source = source
        self._spec = spec
        self._blocking_timeout = blocking_timeout
        self._on_lost = on_lost
        # False if no caller reads the error. The nodes are then not asked for the holder's label.
        self._names_holder = names_holder
        # The first `async with` creates this object. With `thread=True`, two loops could create two
        # objects at the same time, so the object is created here.
        self._bodies: Bodies | None = None if source._threaded is None else Bodies()

    @property
    def resource(self) -> str:
        """Name of the lock. Several names are joined by ", "."""
        return self._spec.resource

    @property
    def resources(self) -> tuple[str | bytes, ...]:
        """Names of the lock, as given."""
        return self._spec.resources

    @property
    def ttl(self) -> float:
        """Seconds until the lock expires without renewal."""
        return self._spec.life.ttl

    def __repr__(self) -> str:
        return (
            f"<Lock {self.resource!r} ttl={self.ttl:g} blocking_timeout={self._blocking_timeout}>"
        )

    async def acquire(self) -> Lease:
        """Wait for the lock, for at most `blocking_timeout`.

        A loss of the lease cancels no task. Notice a loss by `lease.lost`, `lease.check()` or
        `await lease.wait_lost()`.

        `LockHeld` and `AcquireTimeout` name the holder. One more request asks the nodes for the
        label of the holder, unless the manager has `owner=False`. With `blocking_timeout=0` this
        request delays `LockHeld` by the round trip of a majority, at most `node_timeout`. Otherwise
        the request is sent shortly before `blocking_timeout` is over.

        Raises:
            LockHeld: Another client holds the lock, and `blocking_timeout` is 0. Also raised if
                this task itself holds the lock in an enclosing `async with`, and `blocking_timeout`
                is None. The task would then wait for itself for ever.
            UpgradeRefused: The calling task holds `read()` of the lock in an enclosing
                `async with`, and requests `write()`.
            AcquireTimeout: Another client still held the lock after `blocking_timeout`.
            QuorumUnreachable: Too few nodes answered, or too many nodes refuse for reasons that
                waiting does not change.
            RedlockClosed: The manager is not open, belongs to another event loop, or was opened
                before a fork.

        Safety: the call returns a lease, or undoes the attempt and raises an error. A cancellation
        undoes the attempt in the same tick. The undo queues a release behind the acquire on every
        connection. An unreachable node executes the release once it is connected again. If the node
        stays unreachable, its keys expire.
        """
        source = self._source
        if source._threaded is not None:
            lease = await source._threaded.acquire(self)
            reached("acquired", lease)
            return lease
        # The rest is not a coroutine of its own, which would take 0.2 KB for each waiter.
        engine = source.engine()
        acquisition = engine.acquire(self._spec, self._blocking_timeout)
        try:
            if acquisition.future.done():
                # The attempt was decided without an await. A caller that repeats the call in a loop
                # must still give the event loop time to read from the nodes.
                await asyncio.sleep(0)
            record = await acquisition.future
            if record.phase is Phase.RELEASED:
                raise RedlockClosed(CLOSED_AMID)
            engine.taken(acquisition, record)
        except (asyncio.CancelledError, GeneratorExit):
            engine.cancelled(acquisition)
            raise
        except (LockNotAcquired, RedlockClosed) as error:
            try:
                if self._names_holder and isinstance(error, LockHeld):
                    await acquisition.name_holder(error)
            finally:
                engine.report_failed(acquisition, error)
            raise
        finally:
            # The acquisition refers to the error, and the error's traceback refers to this frame.
            # Without the `del`, acquisition, error, traceback and frame would form a cycle.
            del acquisition
        lease = Lease(engine, record)
        if self._is_observed:
            reached("acquired", lease)
        return lease

    def on(self, source: Source) -> Lock:
        """Return the same lock of the manager `source`, whose leases are not observed by tests.

        Internal: for managers with a thread of their own. Tests observe the lease that the other
        thread gets.
        """
        return _OnEngine(
            source,
            self._spec,
            self._blocking_timeout,
            self._on_lost,
            names_holder=self._names_holder,
        )

    async def try_acquire(self) -> Lease | None:
        """Try to acquire the lock without waiting, and return None if another client holds it.

        `blocking_timeout` has no effect here. Clients that try at the same moment may split the
        votes, so that no client has a majority. Each client then tries once more, at a random
        moment within five eighths of `node_timeout`. If the votes are split again, which is rare,
        all these clients receive None. If one client must get the lock, use a `blocking_timeout` of
        a second.

        Raises:
            UpgradeRefused: The calling task holds `read()` of the lock, and requests `write()`.
            QuorumUnreachable: Too few nodes answered.
            RedlockClosed: As in `acquire`.

        Safety: as in `acquire`.
        """
        once = Lock(self._source, self._spec, 0.0, self._on_lost, names_holder=False)
        try:
            return await once.acquire()
        except UpgradeRefused:
            raise
        except LockHeld:
            return None

    async def __aenter__(self) -> Lease:
        """Acquire the lock.

        With `on_lost="cancel"`, a loss before the end of the body cancels the task.

        Raises:
            LockNotAcquired: As in `acquire`, or the lease was lost before this task continued. The
                body has not begun.
            RedlockClosed: As in `acquire`.

        Safety: as in `acquire`. Nothing is awaited between the grant and the body.
        """
        lease = await self.acquire()
        task = asyncio.current_task()
        assert task is not None
        body = Body(lease, task)
        lease.entered(task, body.cancel if self._on_lost == "cancel" else None)
        if self._bodies is None:
            self._bodies = Bodies()
        self._bodies.enter(body)
        return lease

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the lock.

        Raises:
            LockLost: The lease was lost while the body ran, or the release found the loss. The
                body's own exception has priority and receives a note. A cancellation of the task by
                other code in the same tick has priority as well.
                If the block is in an async generator, `aclose` of the generator raises the error.
            RedlockError: The block was left in another task, and it is unclear which block ends.
                See the class `Lock`. The body's own exception has priority and receives a note.

        Safety: as in `Lease.release`.
        """
        try:
            body = (self._bodies or Bodies()).leave(self.resource)
        except RedlockError as unknown:
            if exc is None or isinstance(exc, GeneratorExit):
                raise
            add_note(exc, str(unknown))
            return
        lease = body.lease
        lease.left()
        lost = lease.ended_lost()
        ours = body.take_back() and isinstance(exc, asyncio.CancelledError)
        if not lost and (await lease.release() or not lease.was_gone):
            return
        error, exc = lease.lost_error(), body.own_exception(exc)
        try:
            if exc is None or ours:
                raise error from exc
            # A body may fail by the loss of another lock.
            if not is_loss(exc, lease.resource):
                add_note(exc, str(error))
        finally:
            # The error's traceback refers to this frame. Without the `del`, both would form a cycle
            # that keeps the frames of the body, with all their objects, in memory.
            del error


class _OnEngine(Lock):
    """The lock of a threaded manager, for the engine's loop."""

    __slots__ = ()

    _is_observed = False
