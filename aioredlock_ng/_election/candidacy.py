"""Let a candidate of an election wait for the lock, begin and end a term, and resign.

`Election` is the public class, and uses this module. At any time, at most one task of a candidate
waits for the lock or leads.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from aioredlock_ng._election.leader_watch import changed
from aioredlock_ng._election.term import Term
from aioredlock_ng._engine.loops import running_loop
from aioredlock_ng._notes import add_note, is_loss
from aioredlock_ng._threaded.latch import Latch
from aioredlock_ng.errors import (
    LockLost,
    LockReleased,
    QuorumUnreachable,
    RedlockClosed,
    RedlockError,
)
from aioredlock_ng.events import LeaderChanged, TermBegan, TermEnded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioredlock_ng._election.leader_watch import Source
    from aioredlock_ng._election.term import Margins
    from aioredlock_ng.lease import Lease
    from aioredlock_ng.lock import Lock

__all__ = ["Candidacy"]

R = TypeVar("R")

_CLOSED_AFTER: Final = 1.0
"""Longest time in seconds until a candidate in a pause notices that its manager is closed, or until
a call of `resign` notices that the loop of the candidate is closed."""


class Candidacy:
    """One candidate of an election.

    Attributes:
        lock: The lock of the election. Its leases have the label.
        label: The text by which all processes know this candidate.
        term: The current term; None while the candidate does not lead.
        over: The last error that `leave` raised; None if `leave` has raised no error since the last
            `finish`.
        leader: The last known label of the leader; None if no leader is known.
        has_led: True if a term has begun since the last `begin`.
        resigned: True if `resign` ended a wait or a term since the last `begin`.
    """

    def __init__(
        self, source: Source, lock: Lock, key: bytes, label: str, margins: Margins
    ) -> None:
        self._source = source
        self.lock = lock
        self._key = key
        self.label = label
        self._margins = margins
        self.term: Term | None = None
        self.over: LockLost | LockReleased | None = None
        self.leader: str | None = None
        self.has_led = self.resigned = False
        # The timeout of the present wait. A resignation makes the timeout expire immediately, which
        # ends the wait.
        self._standing: asyncio.Timeout | None = None
        # Set at the end of the present stand; each stand has a latch of its own.
        self._ended: Latch[None] = Latch()
        self._ended.set_result(None)
        # The loop and the process of the task that stands or leads.
        self._home: asyncio.AbstractEventLoop
        self._process = 0

    @property
    def idle(self) -> bool:
        """True while the candidate neither waits nor leads. True in a forked child at first."""
        return self._ended.done() or self._process != os.getpid()

    @property
    def stands(self) -> bool:
        """True while the candidate waits or leads. False while its body outlives its lease."""
        return not self.idle and (self.term is None or self.term.lease.valid)

    def begin(self) -> None:
        """Claim the candidate for the calling task.

        Raises:
            RedlockError: Another call of `run` or `async with` has claimed the candidate.
            RedlockClosed: No asyncio event loop runs, for example because the program uses trio.
        """
        home = running_loop()
        if not self.idle:
            raise RedlockError(
                f"this candidate for {self.lock.resource!r} stands or leads already; make another"
                " one with `redlock.election(...)`"
            )
        self._home, self._ended, self._process = home, Latch(), os.getpid()
        # In a forked child, these attributes may belong to the parent's candidate.
        self.term = self._standing = None
        self.has_led = self.resigned = False

    def finish(self) -> None:
        """Give up the calling task's claim on the candidate."""
        # A stored exception would keep the frames of its traceback in memory, with all their
        # objects. So the attribute is cleared.
        self.over = None
        self._ended.set_result(None)

    async def stand(self, *, patient: bool) -> Lease | None:
        """Wait for the lock of the election, and begin a term.

        Args:
            patient: True to pause and try again after `QuorumUnreachable`, because an operator may
                remove the cause. False to raise the error.

        Returns:
            The lease of the term; None if the candidate resigned.

        Raises:
            QuorumUnreachable: The nodes refuse for a reason that waiting does not cure, and
                `patient` is False.
        """
        while not self.resigned:
            try:
                lease = await self._unless_resigned(self.lock.acquire)
            except QuorumUnreachable:
                if not patient:
                    raise
                await self._unless_resigned(self._pause)
                continue
            if lease is None:
                break
            # If the event loop was blocked after the grant, most of the lease may have passed. The
            # lease is then released, because a term would have to end immediately.
            if lease.remaining() > self._margins.step_down and not self.resigned:
                # An engine in a thread may declare the loss of the lease at this moment.
                with suppress(QuorumUnreachable):
                    self._lead(lease)
                    return lease
            await lease.release()
            if lease.ends_by_max_hold(0.0) and not self.resigned:
                # The grant took longer than `max_hold - step_down`. Without a pause, this candidate
                # would acquire and release the lock as fast as the nodes answer.
                await self._unless_resigned(self._pause)
        return None

    async def resign(self, *, by_body: bool = False) -> bool:
        """End the term or the wait; see `Election.resign`.

        Args:
            by_body: True if the body of the term asked for this call from another thread.
        """
        term = self.term
        if self.idle:
            return False
        here = running_loop()
        if term is not None and (by_body or term.task is asyncio.current_task()):
            self.resigned = True
            term.end("resigned")
            try:
                return await term.lease.release()
            finally:
                # The body may work on, and the next leader may begin before the body ends.
                self._turned(None if self.leader == self.label else self.leader)
        home, ended, led = self._home, self._ended, list[bool]()

        def withdraw() -> None:
            if not ended.done():
                led.append(self._withdraw())

        if here is home:
            withdraw()
            await ended.arrival()
            return any(led)
        # With `thread=True`, any loop may call this method. Only the task's own loop may cancel the
        # task. That loop may be closed, or may be closed before it runs the callback.
        with suppress(RuntimeError):
            home.call_soon_threadsafe(withdraw)
        arrival = ended.arrival()
        while not arrival.done() and not home.is_closed():
            await asyncio.wait([arrival], timeout=_CLOSED_AFTER)
        return any(led)

    def _withdraw(self) -> bool:
        """Let the task end its term or its wait. Return True if the task leads."""
        self.resigned = True
        if self.term is not None:
            self.term.withdraw()
            return True
        if self._standing is not None and not self._standing.expired():
            self._standing.reschedule(asyncio.get_running_loop().time())
        return False

    async def _unless_resigned(self, wait: Callable[[], Awaitable[R]]) -> R | None:
        try:
            async with asyncio.timeout(None) as self._standing:
                return await wait()
        except TimeoutError:
            if not self.resigned:
                raise
            return None
        finally:
            self._standing = None

    async def _pause(self) -> None:
        left = self.lock.ttl * (0.5 + self._source.engine().context.draw() / 2)
        while left > 0.0:
            nap = min(left, _CLOSED_AFTER)
            await asyncio.sleep(nap)
            left -= nap
            # If the manager was closed meanwhile, this call raises the error.
            self._source.engine()

    def _lead(self, lease: Lease) -> None:
        task, engine = asyncio.current_task(), self._source.engine()
        assert task is not None
        term = Term(lease, task, self._margins, engine.context.emit)
        term.begin()
        self.term, self.has_led = term, True
        engine.context.emit(TermBegan(self.lock.resource, self.label, lease.fence))
        self._turned(self.label)

    async def leave(self, exc: BaseException | None, *, in_block: bool = False) -> None:
        """End the term.

        Args:
            exc: The exception that ended the body; None after a normal end.
            in_block: True if the body is that of an `async with`, which may be in a generator.

        Raises:
            LockLost, LockReleased: The lease was lost, or the term ended before its body did. The
                attribute `over` keeps the error.
        """
        term = self.term
        assert term is not None
        lease, in_child = term.lease, self._process != os.getpid()
        ended = term.left(in_child=in_child)
        ours = ended and isinstance(exc, asyncio.CancelledError)
        if in_block and isinstance(exc, GeneratorExit):
            ours, exc = ended, term.own_exception(exc)
        lost = lease.ended_lost()
        try:
            if not lost:
                lost = not await lease.release() and lease.was_gone
        finally:
            self.term = None
            cause = term.ended_by or ("lost" if lost else _cause(exc))
            # The parent still leads if a forked child leaves the body.
            if not in_child:
                name = self.lock.resource
                term.emit(TermEnded(name, self.label, lease.fence, term.led_for, cause))
                # If the body outlived the lease, a watcher may know the next leader already.
                self._turned(None if self.leader == self.label else self.leader)
        over = term.error(lost=lost)
        if over is None or (exc is None and self.resigned and not ours):
            return
        try:
            if exc is None or ours or is_loss(exc, self.lock.resource):
                self.over = over
                raise over from exc
            add_note(exc, str(over))
        finally:
            # As in `Lock.__aexit__`, the error must not form a cycle with this frame.
            del over

    def own(self) -> str | None:
        """Return this candidate's label while it holds the lock, else None."""
        return self.label if (term := self.term) is not None and term.lease.valid else None

    def learn(self, leader: str | None) -> None:
        """Record the leader, and emit an event if the leader has changed."""
        if leader != self.leader:
            self.leader = leader
            # A closed manager has no engine that can emit the event.
            with suppress(RedlockClosed):
                self._source.engine().context.emit(LeaderChanged(self.lock.resource, leader))

    def _turned(self, leader: str | None) -> None:
        """Record that this candidate gets or loses the lead, and wake this manager's watchers."""
        self.learn(leader)
        with suppress(RedlockClosed):
            changed(self._source.engine(), self._key)


def _cause(exc: BaseException | None) -> Literal["done", "failed", "cancelled"]:
    if exc is None:
        return "done"
    return "cancelled" if isinstance(exc, asyncio.CancelledError) else "failed"
