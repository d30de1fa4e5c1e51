"""Define a candidate, which stands for election, leads, and steps down before its lease ends.

An election is an ordinary lock whose label is the leader's name. Candidates wait in the queue of
that lock, and send few requests meanwhile. `_election/term.py` ends the work of a leader before the
leader's lease ends. `_election/leader_watch.py` finds out who leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, TypeVar

from aioredlock_ng._election.candidacy import Candidacy
from aioredlock_ng._election.leader_watch import Leaders, Watch
from aioredlock_ng._election.term import work_of
from aioredlock_ng.errors import ConfigurationError, LockLost, LockNotAcquired, LockReleased
from aioredlock_ng.usage import call_of, unsupported

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from aioredlock_ng._election.leader_watch import Source
    from aioredlock_ng._election.term import Margins
    from aioredlock_ng.lease import Lease
    from aioredlock_ng.lock import Lock

__all__ = ["Election", "ElectionOptions"]

R = TypeVar("R")


def _right_use(election: Election) -> str:
    call = call_of("election", election.candidacy.lock.resources[0])
    return f"`async with {call}:`, or `await {call}.run(main)`"


@unsupported("with", "await", "acquire", instead=_right_use)
class Election:
    """One candidate of an election. Made by `Redlock.election`.

    `await election.run(main)` is the usual way: `main(lease)` runs whenever this candidate leads.
    `async with election as lease:` is a single term. A candidate has at most one term at a time. A
    second `run` or `async with` meanwhile raises `RedlockError`.

    The leader's lease is renewed like any other lease. If `lease.remaining()` falls to `step_down`
    seconds, the body is cancelled. The body can use these seconds to end before another candidate
    can lead. If the lease is lost nevertheless, the body is cancelled once more.
    """

    def __init__(
        self, source: Source, lock: Lock, key: bytes, label: str, margins: Margins, *, rejoin: bool
    ) -> None:
        self._source = source
        self._key = key
        self._margins = margins
        self._rejoin = rejoin
        self._candidacy = Candidacy(source, lock, key, label, margins)

    @property
    def name(self) -> str:
        """The election's name, which is also the name of its lock."""
        return self._candidacy.lock.resource

    @property
    def label(self) -> str:
        """The text by which all processes know this candidate."""
        return self._candidacy.label

    @property
    def ttl(self) -> float:
        """Time to live of a leader's lease without renewal, in seconds."""
        return self._candidacy.lock.ttl

    @property
    def step_down(self) -> float:
        """A leader is cancelled this many seconds before the end of its lease."""
        return self._margins.step_down

    @property
    def leading(self) -> bool:
        """True while this candidate leads and need not step down.

        Any thread may read the property, which does no I/O.
        """
        term = self._candidacy.term
        return term is not None and term.leading

    @property
    def leader(self) -> str | None:
        """The label of the last known leader, or None if no leader exists or is known.

        The property does no I/O.

        While this candidate leads, the value is its own label. The end of its term, or `resign()`
        in its body, sets the value to None. At other times, only an iteration over `watch()`
        updates the value.
        """
        return self.label if self.leading else self._candidacy.leader

    @property
    def candidacy(self) -> Candidacy:
        """The state of this candidate: its wait for the lock, and its terms.

        Internal: for candidates in threads.
        """
        return self._candidacy

    def __repr__(self) -> str:
        state = "leads" if self.leading else "idle" if self._candidacy.idle else "stands"
        return f"<Election {self.name!r} {self.label!r} {state}>"

    def check(self) -> None:
        """Raise an error if the body still works although its lease is lost.

        Any thread may call the method, for example for a liveness probe. No I/O happens.

        Raises:
            LockLost: The lease is lost, and the body has not ended. Restart the process.
        """
        candidacy = self._candidacy
        # In a forked child, the term may be that of the parent.
        if (term := candidacy.term) is not None and not candidacy.idle and term.lease.lost:
            raise term.lease.lost_error()

    async def run(self, main: Callable[[Lease], Awaitable[R]]) -> R | None:
        """Stand for election, and call `main(lease)` in this task whenever this candidate leads.

        `main` is cancelled when only `step_down` seconds of its lease are left, and when the lease
        is lost. With `rejoin=True` this candidate then stands for election again. The lease is
        renewed until `main` has ended, even if the clean-up takes long, and then released. If the
        manager is closed first, the lease is left to expire.

        Args:
            main: A coroutine function with the work of a leader, called with the lease of the term.
                `main` must not swallow a cancellation.

        Returns:
            The result of `main`, if `main` returned before the term was over, or after `resign()`.
            None if `resign()` ended `main` or the wait.

        Raises:
            LockLost: The leader lost its lease or had to step down, and `rejoin` is False.
            QuorumUnreachable: The nodes refuse the lock for a reason that waiting does not cure,
                and this candidate has not led yet. A candidate that has led before waits for a
                random time between half a ttl and a ttl, and tries again.
            LockHeld: This task already holds the lock in an enclosing `async with`.
            ConfigurationError: `main` is not callable, or its result cannot be awaited.
            RedlockError: This candidate already stands for election or leads.
            RedlockClosed: The manager is not open, is closed meanwhile, or belongs to another loop.
            BaseException: The exception of `main`, raised after the lock was released.

        Safety: a call that is cancelled while it waits leaves nothing behind. A cancellation while
        `main` runs cancels `main`, and the release is queued once `main` has ended.
        """
        if not callable(main):
            raise ConfigurationError(
                f"main must be a coroutine function that takes a lease, not {type(main).__name__}"
            )
        candidacy = self._candidacy
        candidacy.begin()
        try:
            while (
                lease := await candidacy.stand(patient=self._rejoin and candidacy.has_led)
            ) is not None:
                try:
                    try:
                        result = await work_of(main, lease)
                    except BaseException as error:
                        await candidacy.leave(error)
                        raise
                    await candidacy.leave(None)
                    return result
                except (LockLost, LockReleased) as error:
                    # Any error other than `candidacy.over` concerns another lock, or a lease that
                    # `main` itself released. So the error propagates.
                    if error is not candidacy.over:
                        raise
                    if not self._rejoin and not candidacy.resigned:
                        raise
            return None
        finally:
            candidacy.finish()

    async def __aenter__(self) -> Lease:
        """Stand for election, and wait until this candidate leads.

        Raises:
            LockNotAcquired: `resign()` was called meanwhile.
            QuorumUnreachable: The nodes refuse the lock for a reason that waiting does not cure.
            LockHeld: This task already holds the lock in an enclosing `async with`.
            RedlockError: This candidate already stands for election or leads.
            RedlockClosed: The manager is not open, is closed meanwhile, or belongs to another loop.

        Safety: a cancelled call leaves nothing behind. To limit the wait, use `asyncio.timeout`.
        """
        candidacy = self._candidacy
        candidacy.begin()
        lease: Lease | None = None
        try:
            lease = await candidacy.stand(patient=False)
            if lease is None:
                raise LockNotAcquired(
                    f"this candidate for {self.name!r} resigned while it waited", resource=self.name
                )
            return lease
        finally:
            if lease is None:
                candidacy.finish()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the lock at the end of the term.

        Raises:
            LockLost: The lease was lost or not renewed, so the body was cancelled. The body's own
                exception has priority and receives a note. A cancellation by other code has
                priority as well.
            LockReleased: The body was cancelled by `resign()` in another task.

        Safety: the release is queued before the first await. A cancelled call still waits for the
        release, for at most `node_timeout`.
        """
        candidacy = self._candidacy
        try:
            await candidacy.leave(exc, in_block=True)
        finally:
            candidacy.finish()

    async def resign(self) -> bool:
        """Give up the leadership, or stop waiting for it.

        A call from another task cancels the body, and returns once the body has ended and the lock
        is released. `run` then returns None, and an `async with` raises `LockReleased`. A further
        call within `step_down` seconds only waits. A call by the body itself releases the lock
        immediately, and the body should then return.

        Returns:
            True if this candidate led. A forked child of its process gets False.

        Safety: a cancelled call does not wait for the end of the resignation, which goes on.
        """
        return await self._candidacy.resign()

    def watch(self) -> AsyncIterator[str | None]:
        """Iterate over the labels of the leaders: first the present leader, then each change.

        None means that nobody leads.

        The iterator returns the label of a new leader about a tenth of a second after the grant. If
        the leader changes several times before the consumer asks for the next label, the consumer
        sees only the last leader. A leader without a label, such as another library's client, is
        "?". While too few nodes answer, the iterator notices no change. With RESP2 or without
        tracking, each watcher sends a request to the nodes about once per ttl.

        Raises:
            RedlockClosed: Raised by the iteration if the manager is not open, or is closed
                meanwhile.

        Safety: an iteration that is cancelled or abandoned leaves nothing behind.
        """
        leaders = Leaders(
            self._source,
            self._candidacy.lock.resources[0],
            self._key,
            self.ttl,
            own=self._candidacy.own,
            stands=lambda: self._candidacy.stands,
        )
        return Watch(leaders, self._candidacy.learn)


class ElectionOptions(TypedDict, total=False):
    """Arguments of `Redlock.election` besides the name.

    Attributes:
        label: The text by which all processes know this candidate: one printable line of at most
            200 bytes. None: the manager's `owner`, or host and process.
        ttl: Seconds after which another candidate leads if the leader dies. At most `max_ttl`.
            None: the manager's ttl.
        step_down: Seconds in which a leader can end its work if its lease cannot be renewed. More
            than zero, and less than `ttl * 2 / 3 - drift - node_timeout`, because one slow renewal
            must not end a term. None: a third of the ttl.
        max_hold: Longest duration of a term in seconds. The leader is cancelled `step_down` seconds
            earlier. None: no limit.
        rejoin: True: after a lost term, `run` stands for election again. False: `run` raises
            `LockLost`.
    """

    label: str | None
    ttl: float | None
    step_down: float | None
    max_hold: float | None
    rejoin: bool
