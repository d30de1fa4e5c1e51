"""The engine's record of one lease. Users see it through `Lease`.

A grant is what a quorum of nodes gave this process. A holding is one lease of a grant. A process
can pass a grant on to a waiting task, and then a second holding shares the token and the deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aioredlock_ng._core.fencing import following
from aioredlock_ng._core.lease_state import LeaseState
from aioredlock_ng._core.validity import covers, deadline_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.spec import LockSpec
    from aioredlock_ng._engine.waiting.line import Line

__all__ = ["Ballot", "Counted", "Holding"]


class Ballot(Protocol):
    """The round or batch that granted or renewed a holding last."""

    def held(self, holding: object, /) -> int:
        """Return how many nodes granted or renewed the holding, late answers included."""


class Counted:
    """The number of nodes that held an ended lease, instead of its `Batch`.

    A batch refers to all leases that were renewed with it. Each of these leases refers to its own
    ballot. An ended lease that kept its batch would keep all of them in memory.
    """

    __slots__ = ("_nodes",)

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes

    def held(self, _holding: object) -> int:
        """Return the number that was counted when the lease ended."""
        return self._nodes


class Holding(LeaseState):
    """The state of one lease, and the callbacks for its end.

    Attributes:
        spec: The lock that was asked for.
        token: The token of the attempt that was granted.
        since: Instant at which the granting attempt began, or at which the grant was passed on to
            this lease.
        covered: True if the nodes were asked to report changes of the keys, and none has reported
            one. If False, a deleted key could stay unnoticed, so the grant is not passed on.
        line: The waiting line that the lease belongs to.
        run_until: Instant at which the run of the grant ends. From then on the nodes are asked.
        ballot: The round or batch that granted or renewed the lease last.
        granted: The latest answer of each node to the acquire or to a repair. `GRANTED`: the node
            has our keys and our fence. None: the node may have our keys.
        fence: The fencing token; None without fencing.
        stored: The fence that a quorum stored for the grant; 0 without fencing.
        task: The task inside the `async with` of the lease, if any.
        home: The way to the event loop of the holder, if that is not the engine's own loop.
        asking: The task that renews the lease at this moment. A loss reaches that task by an
            exception.
        on_lost: Called once, synchronously, when the lease is lost.
        waiters: Futures to resolve when the lease is over.
        timer: The exact timer for a deadline that is near.
        longest_ttl: The longest ttl, in seconds, that a node may have given the keys.
        watched: True once the keys are tracked.
        taken_by: The name of the task that took the lease, for the label.
        lost_at: Instant of the loss. The attribute does not exist before.
        kept_until: Instant before which the keys must not be free, because of `min_hold`; 0.0
            without it.
        labelled_until: Instant at which the label is written again; 0.0 without a label.
        still_used: Called before the lease is released or closed. It returns True while a thread
            works under the lease, and then runs its argument, on the event loop, when the thread
            has ended. None: no thread can use the lease.
        taken: True once a caller has the lease. Only then is its end reported to listeners.
        repairing: One bit per node, set while a repair of that node is under way or scheduled.
        slot: The slot of the timer wheel that has the lease.
    """

    __slots__ = (
        "asking",
        "ballot",
        "covered",
        "fence",
        "granted",
        "home",
        "kept_until",
        "labelled_until",
        "line",
        "longest_ttl",
        "lost_at",
        "on_lost",
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
        # The call of super() alone would take a tenth of the time of a grant.
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
        self.line: Line[Holding] | None = None
        self.run_until = 0.0
        self.task: asyncio.Task[Any] | None = None
        self.home: object = None
        self.asking: asyncio.Task[Any] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.still_used: Callable[[Callable[[], None]], bool] | None = None
        self.waiters: list[asyncio.Future[None]] | None = None
        self.slot: set[Holding] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.longest_ttl = life.ttl
        self.taken_by = ""
        self.labelled_until = self.kept_until = 0.0
        self.watched = self.taken = False
        self.repairing = 0
        self.lost_at: float

    def passed_on(self, spec: LockSpec, now: float) -> Holding | None:
        """Return the next lease of the same grant; None if the nodes must be asked.

        A watched lease is not passed on: its keys may have been renewed, repaired or labelled. Each
        lease with `min_hold` needs a grant of its own.

        Args:
            spec: The lock that the waiting task wants.
            now: Instant by the engine's clock.
        """
        life, fence = spec.life, self.fence
        if (
            spec.kind is not self.spec.kind
            or life != self.spec.life
            or life.min_hold
            or self.watched
            or self.deadline <= now
        ):
            return None
        left = deadline_of(self.started, life.ttl, life.drift) - now
        if left < life.least_validity or not covers(self.started, now, life.ttl):
            return None
        if fence is not None and (fence := following(fence, self.stored)) is None:
            return None
        return Holding(
            spec,
            self.token,
            self.started,
            self.ballot,
            self.granted,
            fence,
            self.stored,
            self.covered,
            now,
        )

    @property
    def token_prefix(self) -> str:
        """The part of the token that may be shown."""
        return self.token[:6].decode()

    def notify_body(self) -> None:
        """Call `on_lost`, unless it was called before or the body has ended."""
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is not None:
            on_lost()

    def unschedule(self) -> None:
        """Cancel the timer of the lease, and take the lease off the wheel."""
        if self.slot is not None:
            self.slot.discard(self)
            self.slot = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    async def wait_over(self, future: asyncio.Future[None]) -> None:
        """Wait for `future`. The end of the lease resolves it too."""
        waiters = self.waiters = self.waiters or []
        waiters.append(future)
        try:
            await future
        finally:
            waiters.remove(future)

    def wake_waiters(self) -> None:
        """Resolve the future of each call of `wait_over`: the lease is over."""
        for waiter in self.waiters or ():
            if not waiter.done():
                waiter.set_result(None)
