"""Define the candidate of an election for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from aioredlock_ng._notes import add_note
from aioredlock_ng.errors import RedlockError
from aioredlock_ng.sync._lease import Entry, Lease
from aioredlock_ng.sync._standing import Over, Seat, Stand, check_main, single_term
from aioredlock_ng.sync._term_lease import TermLease
from aioredlock_ng.sync._watch import Watch
from aioredlock_ng.sync.guarded import refuse_unrun
from aioredlock_ng.usage import call_of, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    import aioredlock_ng
    from aioredlock_ng.sync._lock import Manager, OnLost
    from aioredlock_ng.sync._standing import Campaign

__all__ = ["Election"]

R = TypeVar("R")


def _right_use(election: Election) -> str:
    call = call_of("election", election.name)
    return f"`with {call}:`, or `{call}.run(main)`, or `aioredlock_ng.Redlock` in a coroutine"


@unsupported("async with", "await", "acquire", instead=_right_use)
class Election:
    """One candidate of an election. Made by `Redlock.election`.

    `election.run(main)` is the usual way: `main(lease)` runs in the calling thread whenever this
    candidate leads. `with election as lease:` is a single term. A candidate has at most one term at
    a time. A second `run` or `with` at the same time raises `RedlockError`.

    A thread cannot be cancelled. So the body, which is `main` or the block of the `with`, must end
    soon after it learns that its term must end. The term must end when `lease.remaining()` falls to
    `step_down` seconds, when the lease is lost, and after `resign()`. From then on `leading` is
    False, `lease.check()` raises an error, `lease.wait_lost()` returns, and `on_lost` is called. If
    the body ends within `step_down` seconds, it ends before another candidate can lead. If the body
    works on after the loss of its lease, the event `TermOutlived` is sent, and two leaders may work
    at the same time. If the manager is closed while the body works, the event `TermEnded` is sent
    immediately, and `TermOutlived` is not sent.

    All methods may be called from any thread.
    """

    def __init__(
        self, manager: Manager, name: str | bytes, options: dict[str, Any], on_lost: OnLost | None
    ) -> None:
        self._manager = manager
        self._on_lost = on_lost
        self._rejoin = options.get("rejoin", True)
        self._seat = Seat(lambda redlock: redlock.election(name, **options))
        # Invalid arguments must raise an error here, and not only at the first use.
        self._described()

    @property
    def name(self) -> str:
        """The election's name, which is also the name of its lock."""
        return self._described().name

    @property
    def label(self) -> str:
        """The text by which the other candidates know this candidate."""
        return self._described().label

    @property
    def ttl(self) -> float:
        """Time to live of a leader's lease without renewal, in seconds."""
        return self._described().ttl

    @property
    def step_down(self) -> float:
        """The leader must step down this many seconds before the end of its lease."""
        return self._described().step_down

    @property
    def leading(self) -> bool:
        """True while this candidate leads and need not step down. No I/O."""
        lease = self._seat.lease
        return lease is not None and lease.leading

    @property
    def leader(self) -> str | None:
        """The last known label of the leader; None if no leader exists or is known. No I/O.

        While this candidate leads, the value is its own label. The end of its term, or `resign()`
        in its body, sets it to None. At other times, only an iteration over `watch()` updates it.
        """
        if self.leading:
            return self.label
        election = self._seat.made_by(self._manager.known)
        return None if election is None else election.leader

    def __repr__(self) -> str:
        return repr(self._described())

    def check(self) -> None:
        """Raise an error if the body still works although its lease is lost. No I/O.

        Call the method, for example, in a liveness probe.

        Raises:
            LockLost: The lease is lost, and the body has not ended. Restart the process.
        """
        lease = self._seat.lease
        if lease is not None and lease.lost:
            raise lease.lost_error()

    def run(self, main: Callable[[Lease], R]) -> R | None:
        """Stand for election, and call `main(lease)` in this thread whenever this candidate leads.

        `main` must end when its term must end; see the class. With `rejoin=True` this candidate
        then stands for election again. The lease is renewed until `main` has ended, and then
        released. If the manager is closed first, the lease is left to expire.

        Args:
            main: A plain function with the work of a leader, called with the lease of the term.
                After the end of the term, `main` may return, or raise the error of `lease.check()`.

        Returns:
            The result of `main`, if `main` returned before its term had to end, or after
            `resign()`. None if this candidate resigned while it waited, or `main` returned nothing.

        Raises:
            LockLost: The term is over, and `rejoin` is False.
            QuorumUnreachable: The nodes refuse the lock for a reason that waiting does not cure,
                and this candidate has not led yet. A candidate that has led before waits for a
                random time between half a ttl and a ttl, and tries again.
            LockHeld: This thread already holds the lock in an enclosing `with`.
            ConfigurationError: `main` is not a plain function, or returns a coroutine or generator.
            RedlockError: This candidate stands or leads already.
            RedlockClosed: The manager is closed.
            BaseException: The exception of `main`, raised after the lock was released.

        Safety: an exception of a signal handler, such as KeyboardInterrupt, ends the wait and
        withdraws the candidate. If the exception interrupts `main`, the lock is released before
        `run` raises the exception.
        """
        check_main(main)
        stand = self._stand(lambda election, lead: election.run(lead), rejoin=self._rejoin)
        try:
            step = stand.begin()
            while isinstance(step, TermLease):
                step = self._lead(stand, step, main)
            return cast("R | None", step.result)
        except BaseException:
            # The exception may come from a signal handler while the candidate still stands.
            self._withdraw(stand)
            raise

    def __enter__(self) -> Lease:
        """Stand for election, and wait until this candidate leads.

        The body must end when its term must end; see the class.

        Raises:
            LockNotAcquired: `resign()` was called during the wait.
            QuorumUnreachable: The nodes refuse the lock for a reason that waiting does not cure.
            LockHeld: This thread already holds the lock in an enclosing `with`.
            RedlockError: This candidate stands or leads already.
            RedlockClosed: The manager is closed.

        Safety: as in `run`.
        """
        stand = self._stand(single_term, rejoin=False)
        try:
            lease = stand.begin()
            assert isinstance(lease, TermLease)
            self._enter(lease)
            return lease
        except BaseException:
            # After an exception here, `__exit__` does not run. So withdraw the candidate.
            self._withdraw(stand)
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the lock at the end of the term.

        Raises:
            LockLost: The lease was lost, or the body had to step down. The body's own exception has
                priority and receives a note.
            LockReleased: After `resign()`, the body raised the error of `lease.check()`.
            RedlockError: The thread that left the block had not entered it. Nothing was released.

        Safety: if the call is interrupted, the release is sent nevertheless.
        """
        stand = self._seat.stand
        if stand is None or not any(entry.owner is self for entry in self._manager.inside):
            unknown = RedlockError(
                f"the `with` of the election {self.name!r} ended in a thread that did not enter it,"
                " so nothing was released; end the `with` in the thread that entered it"
            )
            if exc is None or isinstance(exc, GeneratorExit):
                raise unknown
            add_note(exc, str(unknown))
            return
        try:
            self._leave(stand, None if isinstance(exc, GeneratorExit) else exc)
        except BaseException:
            # The exception may come from a signal handler before the term has ended.
            self._withdraw(stand)
            raise

    def resign(self) -> bool:
        """Give up the leadership, or stop waiting for it.

        A call from another thread requests the end of the body, and returns once the body has
        ended and the lock is released. `run` then returns. A call by the body itself releases the
        lock immediately, and the body should then return. In a signal handler, which interrupts
        the body, raise an exception such as `SystemExit` instead of calling this method.

        Returns:
            True if this candidate led. False if the manager is closed, even if the body works on.

        Raises:
            RedlockClosed: The manager is closed during the call, or before a call by the body.

        Safety: if the call is interrupted, the resignation continues in the background, except at
        the very beginning of the call.
        """
        stand = self._seat.stand
        if self._seat.lease is not None and stand is not None and stand.here:
            return stand.resign()
        election = self._seat.made_by(self._manager.known)
        if election is None:
            return False
        return self._manager.opened().thread.run(election.resign, to_end=True)

    def watch(self) -> Iterator[str | None]:
        """Iterate over the labels of the leaders: first the present leader, then each change.

        The iterator blocks its thread until the next change. None means that nobody leads. See
        `aioredlock_ng.Election.watch`.

        Raises:
            RedlockClosed: Raised by the iteration if the manager is closed.

        Safety: an interrupted iteration may be continued. An abandoned one needs no cleanup.
        """
        return Watch(self._manager, self._seat)

    def _described(self) -> aioredlock_ng.Election:
        known = self._manager.known
        return self._seat.made_by(known) or self._seat.make(known)

    def _stand(self, campaign: Campaign, *, rejoin: bool) -> Stand:
        here = self._manager.opened()
        return Stand(
            here.thread,
            here.redlock,
            self._seat,
            campaign,
            inside=[entry.lease.granted for entry in self._manager.inside],
            on_lost=self._on_lost,
            rejoin=rejoin,
        )

    def _enter(self, lease: TermLease) -> None:
        self._manager.inside.append(Entry(self, lease))

    def _lead(
        self, stand: Stand, lease: TermLease, main: Callable[[Lease], object]
    ) -> TermLease | Over:
        try:
            self._enter(lease)
            result = main(lease)
            refuse_unrun(result, main)
        except BaseException as error:
            step = self._leave(stand, error)
            if isinstance(step, Over) and step.failed:
                raise
            return step
        return self._leave(stand, None, result)

    def _leave(
        self, stand: Stand, error: BaseException | None, result: object = None
    ) -> TermLease | Over:
        self._forget(stand)
        return stand.ended(error, result)

    def _withdraw(self, stand: Stand) -> None:
        self._forget(stand)
        stand.withdraw()

    def _forget(self, stand: Stand) -> None:
        inside = self._manager.inside
        inside[:] = [entry for entry in inside if entry.lease is not stand.lease]
