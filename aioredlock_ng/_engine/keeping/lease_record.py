"""The engine's record of one lease. Users see the record through `Lease`.

A quorum of nodes gives a grant to this process. A lease gives this grant to one task. A process can
pass the grant on to a waiting task, which gets a second lease with the same token.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from aioredlock_ng._core.fencing import following, mark_of
from aioredlock_ng._core.lease_state import LeaseState
from aioredlock_ng._core.validity import covers, deadline_of, is_in_time, renew_at

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.keeping.read_grant import ReadGrant
    from aioredlock_ng._engine.spec import LockSpec
    from aioredlock_ng._engine.waiting.line import Line

__all__ = ["Ballot", "Counted", "LeaseRecord"]


class Ballot(Protocol):
    """The round or batch that granted a lease, or renewed it most recently."""

    def held(self, lease: object, /) -> int:
        """Return how many nodes granted or renewed the lease, late answers included."""


class Counted:
    """The number of nodes that had the keys of a lease. It replaces the lease's `Batch`.

    A batch refers to all leases that it renewed. An ended lease that kept its batch would keep all
    these leases in memory. A batch also knows no later lease of the same grant.
    """

    __slots__ = ("_nodes",)

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes

    def held(self, _lease: object) -> int:
        return self._nodes


class LeaseRecord(LeaseState):
    """The state of one lease, and the callbacks for its end.

    Attributes:
        spec: The description of the lock.
        token: The token of the attempt that was granted.
        since: Instant at which the granting attempt began, or at which the grant was passed on to
            this lease.
        covered: True if the nodes were asked to report changes of the keys, and no node has
            reported a change. If False, the grant is not passed on, because a deleted key could
            stay unnoticed.
        line: The waiting line that the lease belongs to.
        run_until: Instant until which the process may pass the grant on without asking the nodes;
            see `passing_on.py`.
        ballot: The round that granted the lease, or the batch that renewed it most recently.
        granted: The latest answer of each node to the acquire or to a repair. `GRANTED` means that
            the node has our keys and our fence. None means that the node may have our keys.
        fence: The fence of this lease; None without fencing.
        stored: The fence that a quorum stored for the grant; 0 without fencing.
        task: The task inside the `async with` of the lease, if any.
        home: The `Mailbox` of the holder's event loop, if the engine runs on another loop;
            otherwise None.
        asking: The task of the body, while this task waits for a renewal; otherwise None. If the
            lease is lost meanwhile, the waiting call raises an exception.
        on_lost: Called at most once, synchronously, when the lease is lost.
        waiters: Futures to resolve when the lease ends.
        timer: An exact timer, which is used instead of the timer wheel when the deadline is near;
            otherwise None.
        longest_ttl: The longest ttl, in seconds, that a node may have given the keys.
        watched: True once the keys are watched; see `watcher.py`.
        taken_by: The name of the task that took the lease, for the label.
        lost_at: Instant of the loss. A lease that is not lost lacks the attribute.
        kept_until: Instant until which `min_hold` keeps the keys taken; 0.0 without `min_hold`.
        labelled_until: Instant from which the label must be written again; 0.0 without a label.
        still_used: Called with a callback, before the lease is released or the manager is closed.
            Returns True while a thread works under the lease. In this case the callback runs on the
            event loop when the thread has ended. None if no thread can use the lease.
        expires_at_close: True if the keys must be left to expire when the manager is closed during
            the `async with`. Otherwise they are released.
        forsaken: True if the lease was lost and its keys were left to expire.
        thread_inside: True while a thread is inside the `with` of the lease.
        taken: True once a caller has the lease. Until then, listeners get no report on its end.
        read_grant: All read leases of the same grant, this lease included; None for locks with one
            holder.
        repairing: One bit per node, set while a repair of that node is under way or scheduled.
        slot: The slot of the timer wheel that contains the lease; None if no slot contains it.
    """

    __slots__ = (
        "asking",
        "ballot",
        "covered",
        "expires_at_close",
        "fence",
        "forsaken",
        "granted",
        "home",
        "kept_until",
        "labelled_until",
        "line",
        "longest_ttl",
        "lost_at",
        "on_lost",
        "read_grant",
        "repairing",
        "run_until",
        "since",
        "slot",
        "spec",
        "still_used",
        "stored",
        "taken",
        "taken_by",
        "task",
        "thread_inside",
        "timer",
        "token",
        "waiters",
        "watched",
    )

    def __init__(
        self,
        spec: LockSpec,
        token: bytes,
        started: float,
        ballot: Ballot,
        granted: list[Reply],
        fence: int | None,
        stored: int,
        covered: bool = False,
        since: float | None = None,
    ) -> None:
        since = started if since is None else since
        ends_at = None if spec.max_hold is None else since + spec.max_hold
        life = spec.life
        # A call through `super()` would make a grant a tenth slower.
        LeaseState.__init__(
            self, started, life.ttl, deadline_of(started, life.ttl, life.drift), ends_at
        )
        self.spec = spec
        self.token = token
        self.since = since
        self.ballot = ballot
        self.granted = granted
        self.fence = fence
        self.stored = stored
        self.covered = covered
        self.line: Line[LeaseRecord] | None = None
        self.run_until = 0.0
        self.read_grant: ReadGrant[LeaseRecord] | None = None
        self.task: asyncio.Task[Any] | None = None
        self.home: object = None
        self.asking: asyncio.Task[Any] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.still_used: Callable[[Callable[[], None]], bool] | None = None
        self.expires_at_close = self.forsaken = False
        self.waiters: list[asyncio.Future[None]] | None = None
        self.slot: set[LeaseRecord] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.longest_ttl = life.ttl
        self.taken_by = ""
        self.labelled_until = self.kept_until = 0.0
        self.watched = self.taken = self.thread_inside = False
        self.repairing = 0
        self.lost_at: float

    def passed_on(self, spec: LockSpec, now: float) -> LeaseRecord | None:
        """Return the next lease of the same grant; None if the nodes must be asked.

        `spec` is the lock that the waiting task wants. Each lease with `min_hold` needs a grant of
        its own. The grant of a watched lease is not passed on, because its keys may have been
        renewed, repaired or labelled. The token of a writer contains the id of the manager, so a
        writer does not get the grant of an ordinary lock.

        A read grant is shared even after a renewal, because nodes never shorten the life of its
        entry. But a node may have shortened the life of the key of a writer that downgraded its
        lease since. So the shortest ttl that was sent must suffice. Once the next renewal of the
        grant is due, the grant is not shared. Otherwise a new lease could end before its own first
        renewal.
        """
        life, fence = spec.life, self.fence
        if (
            spec.kind is not self.spec.kind
            or (spec.reading is None) is not (self.spec.reading is None)
            or life != self.spec.life
            or life.min_hold
            or self.deadline <= now
            or (self.shortest_ttl < life.ttl if spec.kind.shared else self.watched)
        ):
            return None
        if not is_in_time(self.started, now, life.ttl, life.drift, life.least_validity):
            return None
        if spec.kind.shared:
            covered = now < renew_at(self.started, life.ttl, 0.0)
        else:
            covered = covers(self.started, now, life.ttl)
        if not covered:
            return None
        # All read leases of a grant have the same fence.
        if not spec.kind.shared and fence is not None:
            fence = following(fence, self.stored)
            if fence is None:
                return None
        return LeaseRecord(
            spec,
            self.token,
            self.started,
            self._ballot_of_grant(),
            self.granted,
            fence,
            self.stored,
            self.covered,
            now,
        )

    def read_again(self, spec: LockSpec, now: float, drift: float) -> LeaseRecord | None:
        """Return a further lease for the task that reads under this lease, on the same grant.

        The result is None after the deadline of this lease. The new lease has the ttl of this
        lease, and `drift` is the drift of this ttl. The nodes must not be asked. The task could
        wait for a writer, which in turn waits for the task.
        """
        if self.deadline <= now:
            return None
        spec = replace(spec, life=self.spec.life)
        lease = LeaseRecord(
            spec,
            self.token,
            self.started,
            self._ballot_of_grant(),
            self.granted,
            self.fence,
            self.stored,
            since=now,
        )
        lease.follow(self, drift)
        return lease

    def _ballot_of_grant(self) -> Ballot:
        """Return the ballot for another lease of the grant, which no batch knows."""
        return Counted(self.ballot.held(self)) if self.renewal_sent else self.ballot

    def downgrade(self) -> None:
        """Become a read lease, with the fence of a reader."""
        assert self.spec.reading is not None
        self.spec = self.spec.reading
        self.watched, self.labelled_until = False, 0.0
        if self.fence is not None:
            self.fence = self.stored = mark_of(self.stored)

    @property
    def token_prefix(self) -> str:
        """The part of the token that may be shown."""
        return self.token[:6].decode()

    def has_body(self) -> bool:
        """Return True while a task or a thread is inside the `with` of the lease."""
        return self.task is not None or self.thread_inside

    def notify_body(self) -> None:
        """Call `on_lost`, unless it was called before or the body has ended."""
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is not None:
            on_lost()

    def unschedule(self) -> None:
        if self.slot is not None:
            self.slot.discard(self)
            self.slot = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    async def wait_over(self, future: asyncio.Future[None]) -> None:
        """Wait for `future`, which is also resolved when the lease ends."""
        waiters = self.waiters = self.waiters or []
        waiters.append(future)
        try:
            await future
        finally:
            waiters.remove(future)

    def wake_waiters(self) -> None:
        """Resolve the future of each call of `wait_over`, because the lease has ended."""
        for waiter in self.waiters or ():
            if not waiter.done():
                waiter.set_result(None)
