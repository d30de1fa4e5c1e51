"""The attempts of one acquisition. Each attempt has a token of its own.

The subclasses decide what the answers mean for the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.replies import GRANTED
from aioredlock_ng._core.votes import is_granted, may_have_set
from aioredlock_ng._engine.attempt.round import Round

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.releases import Releases
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.spec import LockSpec

__all__ = ["Attempts"]


class Attempts:
    """The requests that an acquisition has sent to the nodes so far.

    The constructor of `Call` sets all attributes. A second constructor here would slow down each
    acquisition.

    Attributes:
        spec: The lock or the semaphore that is wanted.
        target: The lock that the latest attempt asks for: `spec`, or a slot of the semaphore.
        called_at: Instant at which `acquire` was called, by the engine's clock.
        round: The latest attempt; None before the first attempt and after the end of the
            acquisition.
        before: The attempt before `round`. After a failed acquisition, the latest attempt.
    """

    __slots__ = (
        "_covers",
        "_doubted",
        "_fence",
        "_proposed_us",
        "_releases",
        "_second",
        "attempts",
        "before",
        "called_at",
        "context",
        "round",
        "spec",
        "target",
    )

    _covers: bool
    _doubted: bool
    _fence: int
    _proposed_us: int
    _releases: Releases
    _second: Round | None
    attempts: int
    before: Round | None
    called_at: float
    context: Context
    round: Round | None
    spec: LockSpec
    target: LockSpec

    def _decided(self, attempt: Round, second: Round | None = None) -> None:
        """Act on the decision of an attempt, or of its second round."""
        raise NotImplementedError

    @property
    def resource(self) -> str:
        return self.spec.resource

    @property
    def waited(self) -> float:
        """Seconds since the call of `acquire`."""
        return self.context.clock() - self.called_at

    @property
    def asking(self) -> bool:
        """True while an attempt, or its second round, waits for answers."""
        return any(round_ is not None and round_.open for round_ in (self.round, self._second))

    def doubt(self, index: int | None = None) -> None:
        """Record that the keys of the current attempt may have changed.

        If the attempt is granted, the grant is not passed on, and its keys are watched immediately.
        If node `index` reported the change but has not granted yet, the call does nothing.
        """
        if (
            index is not None
            and self.round is not None
            and not is_granted(self.round.replies[index])
        ):
            return
        self._covers = False
        self._doubted = True

    def _begin(self, now: float, claim: bytes, *, followed: bool) -> Round:
        """Return a new attempt that is not sent yet.

        Each attempt has a fresh token. If several attempts had the same token, a lock could have
        two holders. The model checker finds an example with 11 steps.

        If `followed` is True, other tasks wait in the same line. Each node then also returns the
        counter that the fence replaces. All leases of the grant get fences above the highest of
        these counters.
        """
        context, spec = self.context, self.target
        if self.round is not None:
            self.before = self.round
            self._hear_no_more()
        self._second = None
        context.counters.attempts += 1
        self.attempts += 1
        self._covers = self._doubted = False
        kind = spec.kind
        if kind.fencing and not kind.shared:
            self._fence = context.fences.propose(context.wall_us(), spec.counters)
            self._proposed_us = self._fence - context.fences.offset
        # After a downgrade, the token of a writer is the entry of a reader. So this token contains
        # the id of the manager, too.
        token = (spec.reading or spec).kind.token(context.new_token(), context.manager)
        command = kind.acquiring(
            spec.keys,
            spec.counters,
            token,
            spec.life.ttl_word,
            self._fence,
            claim,
            tell_counter=followed,
        )
        self.round = attempt = Round(context, command, GRANTED, context.quorum, now, self._decided)
        attempt.token = token
        return attempt

    def _undo(self, attempt: Round, replies: list[Reply]) -> None:
        """Send a release to the nodes that may have set keys for the attempt."""
        if any(map(may_have_set, replies)):
            # With `min_hold`, the keys live longer than the ttl of the lock.
            ttl, now = self.spec.life.first_ttl, self.context.clock()
            self._releases.send(self.target, attempt.token, replies, ttl, now)

    def _hear_no_more(self) -> None:
        if self.round is not None:
            self.round.on_late = None
        if self._second is not None:
            self._second.on_late = None
