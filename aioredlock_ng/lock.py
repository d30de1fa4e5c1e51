"""A named lock to acquire as often as needed, from as many tasks as needed; it holds no lease's state."""

from __future__ import annotations

import asyncio
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Literal, Protocol

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng.errors import LockHeld, LockLost, LockNotAcquired, RedlockClosed, RedlockError
from aioredlock_ng.lease import Lease
from aioredlock_ng.usage import async_with_only

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


class _Bodies:
    """The entries of one `Lock` that have not been left; Python does not say which of them an `__aexit__` means.

    Each call of `leave` means one entry, so that their number is known even where the entry is not. At most the newest
    entry still holds the lock: a lease begins when the one before is over.
    """

    __slots__ = ("_inside", "_left")

    def __init__(self) -> None:
        self._inside: list[_Body] = []
        # How many of them were left without its being known which.
        self._left = 0

    def enter(self, body: _Body) -> None:
        """Add an entry."""
        self._inside.append(body)

    def leave(self, resource: str) -> _Body:
        """Remove the current task's newest entry. A task without entries removes another task's only if all have been left.

        Raises:
            RedlockError: Several entries are open and none is this task's, or there is no entry.
        """
        task, inside = asyncio.current_task(), self._inside
        mine = [body for body in inside if body.task is task]
        if not inside:
            raise RedlockError(
                f"the lock {resource!r} is left, but no `async with` of this Lock object is open"
            )
        if not mine and (count := len(inside)) > self._left + 1:
            self._left += 1
            raise RedlockError(
                f"the lock {resource!r} is left in a task that did not enter it, while {count} `async with` of one Lock object"
                " are open: it cannot be known which is meant, so nothing was released; call `redlock.lock(...)` for each"
                " `async with` that another task leaves"
            )
        body = (mine or inside)[-1]
        inside.remove(body)
        if len(inside) == self._left:
            for other in inside:
                other.leave()
                other.lease.let_go()
            inside.clear()
            self._left = 0
        return body


class _Source(Protocol):
    def engine(self) -> Engine:
        """The open engine."""


def _right_use(lock: Lock) -> str:
    call = f"redlock.lock({shortened(lock.resources[0])}{', …' if lock.resources[1:] else ''})"
    return f"`async with {call}:`, or `lease = await {call}.acquire()`"


@async_with_only(_right_use)
class Lock:
    """Made by `Redlock.lock`. Cheap, reusable, and safe to use from many tasks at once: each acquire gives its own lease.

    An `async with` may be left in another task than it was entered in, as fixtures and exit stacks do. The entry must be
    the only open one of its `Lock` object then. Otherwise leaving raises `RedlockError` and releases nothing, and the lease
    goes on until its holder releases it or the other entries are left. A task with entries of its own always leaves the
    newest of these, so that in one task the entries of one `Lock` object end in the reverse order in which they began.
    """

    __slots__ = ("_blocking_timeout", "_bodies", "_names_holder", "_on_lost", "_source", "_spec")

    def __init__(
        self,
        source: _Source,
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
        # False where nobody reads the error: it is not worth a question to the nodes.
        self._names_holder = names_holder
        # Made by the first `async with`.
        self._bodies: _Bodies | None = None

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
        return (
            f"<Lock {self.resource!r} ttl={self.ttl:g} blocking_timeout={self._blocking_timeout}>"
        )

    async def acquire(self) -> Lease:
        """Wait for the lock, `blocking_timeout` at most.

        The lease only flags its loss: `lease.lost`, `lease.check()`, `await lease.wait_lost()`; nothing is cancelled.

        The two errors of a held lock name its holder. For that the nodes are asked once more, unless the manager has
        `owner=False`: shortly before `blocking_timeout` is over, or, if that is 0, before `LockHeld` is raised. The latter
        takes the round trip of a majority, `node_timeout` at most.

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
                raise RedlockClosed(
                    "the Redlock was closed in the instant in which this acquisition was granted"
                )
            engine.taken(acquisition, holding)
        except (asyncio.CancelledError, GeneratorExit):
            engine.cancelled(acquisition)
            raise
        except (LockNotAcquired, RedlockClosed) as error:
            try:
                if self._names_holder and isinstance(error, LockHeld):
                    await acquisition.name_holder(error)
            finally:
                engine.tell_failed(acquisition, error)
            raise
        finally:
            # An error's traceback holds this frame: with the acquisition in it, they would be a cycle.
            del acquisition
        return Lease(engine, holding)

    async def try_acquire(self) -> Lease | None:
        """Attempt it without waiting, whatever `blocking_timeout` says; None when another holds it.

        Rivals that try in the same instant may split the votes, so that none of them has a majority. Each then tries once
        more, at a moment drawn at random within five eighths of `node_timeout`. Rarely they split the votes again, and
        all get None. Where one of them must get it, use a `blocking_timeout` of a second.

        Raises:
            QuorumUnreachable: Too few nodes could be asked.
            RedlockClosed: See `acquire`.

        Safety: as `acquire`.
        """
        once = Lock(self._source, self._spec, 0.0, self._on_lost, names_holder=False)
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
            self._bodies = _Bodies()
        self._bodies.enter(body)
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
            RedlockError: Left in another task, and it cannot be known which entry is meant; see the class. A body's own
                exception wins, with a note.

        Safety: as `Lease.release`.
        """
        try:
            body = (self._bodies or _Bodies()).leave(self.resource)
        except RedlockError as unknown:
            if exc is None:
                raise
            exc.add_note(str(unknown))
            return
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
