"""A named lock to acquire as often as needed, from as many tasks as needed; it holds no lease's state."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, Protocol

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng.errors import LockHeld, LockLost, LockNotAcquired, RedlockClosed
from aioredlock_ng.lease import Lease

if TYPE_CHECKING:
    from types import TracebackType

    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._engine.spec import LockSpec

__all__ = ["Lock", "OnLost"]

OnLost = Literal["cancel", "flag"]


class _Body:
    """The task inside one `async with`, and how to cancel it as `asyncio.timeout` does."""

    __slots__ = ("_cancelling", "_told", "lease", "task")

    def __init__(self, lease: Lease, task: asyncio.Task[object]) -> None:
        self.lease = lease
        self.task = task
        self._cancelling = task.cancelling()
        self._told = False

    def lost(self) -> None:
        """Cancel the task, unless it found the loss itself and is about to be told by an exception."""
        if self.task is not asyncio.current_task():
            self._told = True
            self.task.cancel()

    def leave(self) -> bool:
        """Take our cancellation back; True when it is the leaving task's, and nobody else has cancelled that as well."""
        if not self._told:
            return False
        return self.task.uncancel() <= self._cancelling and self.task is asyncio.current_task()


class _Source(Protocol):
    def engine(self) -> Engine:
        """The open engine."""


class Lock:
    """Made by `Redlock.lock`. Cheap, reusable, and safe to use from many tasks at once: each acquire gives its own lease."""

    __slots__ = ("_blocking_timeout", "_bodies", "_on_lost", "_source", "_spec")

    def __init__(self, source: _Source, spec: LockSpec, blocking_timeout: float | None, on_lost: OnLost) -> None:
        self._source = source
        self._spec = spec
        self._blocking_timeout = blocking_timeout
        self._on_lost = on_lost
        # Who is inside `async with` right now: at most one per resource but for holders that have lost it.
        self._bodies: list[_Body] | None = None

    @property
    def resource(self) -> str:
        """The lock's name; several names are joined by ", "."""
        return self._spec.resource

    @property
    def resources(self) -> tuple[str | bytes, ...]:
        """The names as given."""
        return self._spec.resources

    @property
    def ttl(self) -> float:
        """Seconds that it lives without renewal."""
        return self._spec.life.ttl

    def __repr__(self) -> str:
        """Name and settings."""
        return f"<Lock {self.resource!r} ttl={self.ttl:g} blocking_timeout={self._blocking_timeout}>"

    async def acquire(self) -> Lease:
        """Wait for the lock, `blocking_timeout` at most.

        The lease only flags its loss: `lease.lost`, `lease.check()`, `await lease.wait_lost()`; nothing is cancelled.

        Raises:
            LockHeld: Held by another, and `blocking_timeout` is 0; or held by this very task in an enclosing `async with`
                while `blocking_timeout` is None: it would wait for itself for ever.
            AcquireTimeout: Still held by another after `blocking_timeout`.
            QuorumUnreachable: Too few nodes could be asked, or too many refuse for reasons that waiting does not cure.
            RedlockClosed: The manager is not open, belongs to another event loop or to the process before a fork.

        Safety: returns a lease, or raises and has undone the attempt in the same tick, cancellation included: the
        release is queued behind the acquire on every connection. A node that is unreachable then is released on when
        it is back; without that the keys go with their ttl.
        """
        engine = self._source.engine()
        acquisition = engine.acquire(self._spec, self._blocking_timeout)
        try:
            if acquisition.future.done():
                # Decided at once: a caller that asks in a loop must still let the event loop read.
                await asyncio.sleep(0)
            holding = await acquisition.future
            if holding.phase is Phase.RELEASED:
                raise RedlockClosed("the Redlock was closed in the instant in which this acquisition was granted")
            engine.taken(acquisition, holding)
        except (asyncio.CancelledError, GeneratorExit):
            engine.cancelled(acquisition)
            raise
        except (LockNotAcquired, RedlockClosed) as error:
            engine.tell_failed(acquisition, error)
            raise
        finally:
            # An error's traceback holds this frame: with the acquisition in it, they would be a cycle.
            del acquisition
        return Lease(engine, holding)

    async def try_acquire(self) -> Lease | None:
        """One attempt, whatever `blocking_timeout` says; None when another holds it.

        Raises:
            QuorumUnreachable: Too few nodes could be asked.
            RedlockClosed: See `acquire`.

        Safety: as `acquire`.
        """
        once = Lock(self._source, self._spec, 0.0, self._on_lost)
        try:
            return await once.acquire()
        except LockHeld:
            return None

    async def __aenter__(self) -> Lease:
        """Acquire; from here to the end of the body the task is cancelled on loss (`on_lost="cancel"`).

        Raises:
            LockNotAcquired: See `acquire`; also when it was lost again before this task came to run. The body has not begun.
            RedlockClosed: See `acquire`.

        Safety: as `acquire`; nothing is awaited after the decision.
        """
        lease = await self.acquire()
        task = asyncio.current_task()
        assert task is not None
        body = _Body(lease, task)
        lease.entered(task, body.lost if self._on_lost == "cancel" else None)
        if self._bodies is None:
            self._bodies = []
        self._bodies.append(body)
        return lease

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release.

        Raises:
            LockLost: The lease was lost while the body ran, also where only the release finds it out; unless the body's own
                exception is under way (that one wins, with a note), or somebody else cancelled the task in the same tick
                (the cancellation wins).

        Safety: as `Lease.release`.
        """
        body = self._body_of_this_task()
        lease = body.lease
        lease.left()
        lost = lease.lost
        ours = body.leave() and isinstance(exc, asyncio.CancelledError)
        if not lost and (await lease.release() or not lease.was_gone):
            return
        error = lease.lost_error()
        if exc is None or ours:
            raise error from exc
        if not isinstance(exc, LockLost):
            exc.add_note(str(error))

    def _body_of_this_task(self) -> _Body:
        """The innermost body of this task; else (fixtures leave in another task) one whose task is done, else the last."""
        task = asyncio.current_task()
        bodies = self._bodies
        assert bodies is not None
        mine = [body for body in bodies if body.task is task] or [body for body in bodies if body.task.done()] or bodies
        body = mine[-1]
        bodies.remove(body)
        return body
