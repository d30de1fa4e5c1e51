"""Run a candidate on the engine's loop, while the calling thread does the work of its terms.

The asyncio `Election` decides when each term begins and when it must end. It calls
`Stand._lead` with the lease of each term. `_lead` gives the lease to the calling thread, and waits
until the work of that thread has ended.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import aioredlock_ng
from aioredlock_ng._leases.lease_base import thread_inside
from aioredlock_ng._notes import add_note, is_loss
from aioredlock_ng.errors import ConfigurationError, RedlockClosed, RedlockError
from aioredlock_ng.sync._lock import start_on_lost
from aioredlock_ng.sync._term_lease import TermLease

if TYPE_CHECKING:
    from aioredlock_ng._threaded.engine_thread import EngineThread
    from aioredlock_ng.sync._lock import OnLost

__all__ = ["Campaign", "Over", "Seat", "Stand", "check_main", "single_term"]

Lead = Callable[[aioredlock_ng.Lease], Coroutine[Any, Any, object]]
Campaign = Callable[[aioredlock_ng.Election, Lead], Coroutine[Any, Any, object]]
"""A function that lets a candidate stand for election on the engine's loop. It calls and awaits the
given `Lead` with each lease."""


class Over(NamedTuple):
    """The end of a `Stand`.

    Attributes:
        result: The result of the body; None if there is none.
        failed: True if the body's own exception must propagate.
    """

    result: object = None
    failed: bool = False


class _BodyFailed(Exception):
    """Replaces the body's exception on the loop, because a KeyboardInterrupt would end the loop."""


class Seat:
    """The asyncio candidate of one `Election` in this process, and the last `Stand` that led.

    Args:
        make: Takes an asyncio manager, and makes a candidate of that manager.
    """

    def __init__(self, make: Callable[[aioredlock_ng.Redlock], aioredlock_ng.Election]) -> None:
        self.make = make
        self._made: tuple[aioredlock_ng.Redlock, aioredlock_ng.Election] | None = None
        self.stand: Stand | None = None

    @property
    def lease(self) -> TermLease | None:
        """The lease of a body that has not ended, even if the lease has; None without a body."""
        stand = self.stand
        works = stand is not None and stand.works and stand.process == os.getpid()
        return stand.lease if stand is not None and works else None

    def made_by(self, redlock: aioredlock_ng.Redlock) -> aioredlock_ng.Election | None:
        """Return the candidate that `of` has made for this manager, or None if there is none."""
        made = self._made
        return made[1] if made is not None and made[0] is redlock else None

    def of(self, redlock: aioredlock_ng.Redlock) -> aioredlock_ng.Election:
        """Return the candidate of this manager. The first call makes the candidate.

        The manager's loop runs this method.

        Raises:
            RedlockError: The body of a term under an earlier manager has not ended yet.
        """
        election = self.made_by(redlock)
        if election is None:
            if self.lease is not None:
                raise RedlockError(
                    f"an earlier term of {self.lease.resource!r} still works; let its body end"
                )
            election = self.make(redlock)
            self._made = (redlock, election)
        return election


class Stand:
    """One `run` or one `with` of a candidate.

    The calling thread uses `begin`, `ended`, `resign` and `withdraw`. All other methods run on the
    engine's loop.

    Args:
        thread: The thread of the engine's loop.
        redlock: The open manager.
        seat: The `Seat` of the candidate.
        campaign: Lets the candidate stand for election; see `Campaign`.
        inside: The leases of the `with` blocks that the calling thread is in.
        on_lost: Called once per term, with the lease of the term, if the body must end.
        rejoin: True if the candidate stands again after a lost term.

    Attributes:
        process: Id of the process in which the candidate stands.
        works: True while the calling thread works under `lease`.
        lease: The lease of the current or last term.
    """

    def __init__(
        self,
        thread: EngineThread,
        redlock: aioredlock_ng.Redlock,
        seat: Seat,
        campaign: Campaign,
        *,
        inside: list[aioredlock_ng.Lease],
        on_lost: OnLost | None,
        rejoin: bool,
    ) -> None:
        self._thread = thread
        self._redlock = redlock
        self._seat = seat
        self._campaign = campaign
        self._inside = inside
        self._on_lost = on_lost
        self._rejoin = rejoin
        self._caller = threading.get_ident()
        self.process = os.getpid()
        self.works = False
        self.lease: TermLease | None = None
        self._task: asyncio.Task[object] | None = None
        self._error: BaseException | None = None
        self._result: object = None
        self._withdrawn = self._resigns = False

    @property
    def here(self) -> bool:
        """True in the thread that does the work."""
        return self._caller == threading.get_ident()

    def begin(self) -> TermLease | Over:
        """Wait until the candidate leads. Return its lease, or an `Over` after a resignation.

        Safety: an exception of a signal handler withdraws the candidate.
        """
        return self._thread.run(self._begin, self._undo)

    def ended(self, error: BaseException | None, result: object = None) -> TermLease | Over:
        """End the term, because the body has ended, and wait for the next term if there is one.

        Args:
            error: The exception of the body; None after a normal end.
            result: The result of the body.

        Returns:
            The lease of the next term, or an `Over` if there is none.

        Raises:
            LockLost, LockReleased: The term had to end before the body ended, and the candidate
                does not stand again.
            RedlockClosed: The manager is closed, so the candidate cannot stand again.

        Safety: an exception of a signal handler withdraws the candidate.
        """
        lease, self.works = self.lease, False
        assert lease is not None

        async def end() -> TermLease | Over:
            self._error, self._result = error, result
            self._ended.set()
            return await self._next()

        try:
            return self._thread.run(end, self._undo)
        except RedlockClosed:
            known = error is None or lease.raised(error) or is_loss(error, lease.resource)
            if error is not None and not known:
                add_note(error, str(lease.lost_error()))
                return Over(failed=True)
            if self._rejoin:
                raise
            if lease.lost:
                raise lease.lost_error() from None
            return Over(result)
        finally:
            # The traceback of a stored exception would keep all frames of the body in memory.
            self._error = self._result = None

    def resign(self) -> bool:
        """Release the lock. The body calls this method. Return False after a loss."""
        election = self._seat.made_by(self._redlock)
        assert election is not None

        async def resign() -> bool:
            self._resigns = True
            return await election.candidacy.resign(by_body=True)

        return self._thread.run(resign, to_end=True)

    def withdraw(self) -> None:
        """End the stand without waiting. A call after the end of the stand has no effect."""
        self.works = False
        self._thread.post(self._withdraw)

    def _withdraw(self) -> None:
        self._withdrawn = True
        if self._task is not None:
            self._task.cancel()

    async def _undo(self, _: object = None) -> None:
        self._withdraw()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _begin(self) -> TermLease | Over:
        election = self._seat.of(self._redlock)
        self._task = asyncio.get_running_loop().create_task(self._stand(election))
        # Without this callback, asyncio would log the error of a withdrawn candidate.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await self._next()

    async def _stand(self, election: aioredlock_ng.Election) -> object:
        with thread_inside(self._inside) if self._inside else nullcontext():
            return await self._campaign(election, self._lead)

    async def _next(self) -> TermLease | Over:
        """Wait for the next term or the end of the stand."""
        assert self._task is not None
        offer = self._offer = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait({self._task, offer}, return_when=asyncio.FIRST_COMPLETED)
            if offer.done():
                lease: TermLease = offer.result()
                return lease
            return Over(self._task.result())
        except _BodyFailed as failed:
            error, self._error = self._error, None
            assert error is not None
            for note in getattr(failed, "__notes__", ()):
                add_note(error, note)
            return Over(failed=True)
        except asyncio.CancelledError:
            await self._undo()
            raise

    async def _lead(self, granted: aioredlock_ng.Lease) -> object:
        """Give the lease to the calling thread, and wait for the end of its work."""
        election = self._seat.made_by(self._redlock)
        assert election is not None
        term = election.candidacy.term
        assert term is not None
        lease = self.lease = TermLease(granted, self._thread, term)
        self._ended = asyncio.Event()
        self._resigns, self.works, self._seat.stand = False, True, self
        self._offer.set_result(lease)
        while not self._ended.is_set():
            try:
                await self._ended.wait()
            except asyncio.CancelledError:
                if self._withdrawn:
                    raise
                reports = not lease.must_end and not self._resigns
                # Call `end` first. The body must learn that its term ends, even if the system
                # refuses the thread for the callback.
                lease.end()
                if reports and self._on_lost is not None:
                    with suppress(RuntimeError):
                        start_on_lost(self._on_lost, lease)
                # A thread cannot be cancelled. So the lease is renewed until the body has ended.
                if self._thread.dead:
                    raise
        error = self._error
        if error is None:
            return self._result
        if lease.must_end and lease.raised(error):
            raise asyncio.CancelledError
        if is_loss(error, lease.resource):
            raise error
        raise _BodyFailed


async def single_term(election: aioredlock_ng.Election, lead: Lead) -> None:
    """Stand for one term, for `with`."""
    async with election as lease:
        await lead(lease)


def check_main(main: object) -> None:
    """Raise `ConfigurationError` unless `main` can be called in a thread."""
    if not callable(main) or inspect.iscoroutinefunction(main):
        kind = "a coroutine function" if callable(main) else type(main).__name__
        raise ConfigurationError(f"main must be a plain function that takes a lease, not {kind}")
