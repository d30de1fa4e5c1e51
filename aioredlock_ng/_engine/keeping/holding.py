"""What the engine keeps for one lease; users see it through `Lease`. It never asks a node."""

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
    """The last round that granted or renewed a holding."""

    def held(self, holding: object, /) -> int:
        """How many nodes held it then, late answers included."""


class Counted:
    """What an ended holding keeps of its ballot: a batch would keep alive all that were renewed with it, and their batches."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes

    def held(self, _holding: object) -> int:
        """See `Ballot.held`."""
        return self._nodes


class Holding(LeaseState):
    """A lease's state plus whom to tell when it is lost.

    Attributes:
        spec: What was asked for.
        token: The attempt's own.
        since: Instant at which the granting attempt began, or at which the grant was passed on to this lease.
        covered: True while the nodes would have said that a key of this grant has changed, so that it may be passed on.
        line: The line that it serves.
        ballot: See `Ballot`.
        granted: Per node: what it answered when it granted; `GRANTED` where it has our keys and our fence.
        fence: The fencing token; None without fencing.
        stored: The fence that a quorum stored for the grant; 0 without fencing.
        task: The task inside its `async with`, if any.
        asking: The task that renews it right now and will be told a loss by an exception.
        on_lost: Called once on loss, synchronously.
        waiters: Futures to resolve when the lease is over.
        timer: Set near the deadline.
        longest_ttl: The longest life that any node may have given its keys.
        watched: True once its keys are tracked.
        taken_by: The name of the task that took it, for its label.
        lost_at: Instant of its loss; not there before.
        labelled_until: Instant at which its label is to be written again; 0.0 where it has none.
        still_used: Asked before it is given up or closed: True while a thread works under it,
            which then calls back, on the event loop, when it has ended. None: no thread can.
        told: True once a caller was given it: the end is told of those alone.
        repairing: Bit per node that a repair is under way to.
        slot: Where the extender has scheduled it.
    """

    __slots__ = (
        "asking",
        "ballot",
        "covered",
        "fence",
        "granted",
        "labelled_until",
        "line",
        "longest_ttl",
        "lost_at",
        "on_lost",
        "repairing",
        "since",
        "slot",
        "spec",
        "still_used",
        "stored",
        "taken_by",
        "task",
        "timer",
        "token",
        "told",
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
        # Not by super(): that alone would be a tenth of the cost of a grant.
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
        self.task: asyncio.Task[Any] | None = None
        self.asking: asyncio.Task[Any] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.still_used: Callable[[Callable[[], None]], bool] | None = None
        self.waiters: list[asyncio.Future[None]] | None = None
        self.slot: set[Holding] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.longest_ttl = life.ttl
        self.taken_by = ""
        self.labelled_until = 0.0
        self.watched = self.told = False
        self.repairing = 0
        self.lost_at: float

    def passed_on(self, spec: LockSpec, now: float) -> Holding | None:
        """The next lease of the same grant; None where the nodes must be asked.

        Nothing of it may have changed since: no renewal, no repair, no label.
        """
        life, fence = spec.life, self.fence
        if (
            spec.kind is not self.spec.kind
            or life != self.spec.life
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
        """What may be shown of the token."""
        return self.token[:6].decode()

    def tell_body(self) -> None:
        """Tell the body of the `async with` that the lease is lost, if it is still there and has not been told."""
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is not None:
            on_lost()

    def unschedule(self) -> None:
        """Stop renewing and watching."""
        if self.slot is not None:
            self.slot.discard(self)
            self.slot = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    async def wait_over(self, future: asyncio.Future[None]) -> None:
        """Wait for `future`, which is also resolved when the lease is over."""
        waiters = self.waiters = self.waiters or []
        waiters.append(future)
        try:
            await future
        finally:
            waiters.remove(future)

    def wake_waiters(self) -> None:
        """Tell everybody in `wait_over` that the lease is over."""
        for waiter in self.waiters or ():
            if not waiter.done():
                waiter.set_result(None)
