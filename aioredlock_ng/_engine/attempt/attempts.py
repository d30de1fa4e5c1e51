"""The attempts of one acquisition, one after the other: begin, confirm the fence, undo; it decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.replies import GRANTED, Granted
from aioredlock_ng._core.tally import with_second_round
from aioredlock_ng._core.votes import counter_of, is_granted, may_have_set
from aioredlock_ng._engine.attempt.round import Round

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.releases import Releases
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.spec import LockSpec

__all__ = ["Attempts"]


class Attempts:
    """What an acquisition has asked the nodes so far.

    The constructor of `Call` sets all attributes: a second call per lock would cost time.

    Attributes:
        context: The engine's surroundings.
        spec: What is wanted.
        called_at: Instant of the call.
        attempts: How often it has asked the nodes.
        round: The latest attempt.
        before: The attempt before that.
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

    def _decided(self, attempt: Round, second: Round | None = None) -> None:
        """The attempt is decided, or the second round that it needed."""
        raise NotImplementedError

    @property
    def resource(self) -> str:
        """The lock's name."""
        return self.spec.resource

    @property
    def waited(self) -> float:
        """Seconds since the call."""
        return self.context.clock() - self.called_at

    @property
    def asking(self) -> bool:
        """See `Contender.asking`."""
        return any(round_ is not None and round_.open for round_ in (self.round, self._second))

    def doubt(self, index: int | None = None) -> None:
        """See `Contender.doubt`."""
        if (
            index is not None
            and self.round is not None
            and not is_granted(self.round.replies[index])
        ):
            return
        self._covers = False
        self._doubted = True

    def _begin(self, now: float, claim: bytes, *, followed: bool) -> Round:
        """A new attempt with a fresh token (the same one over attempts gives two holders in 11 model steps)."""
        context, spec = self.context, self.spec
        if self.round is not None:
            self.before = self.round
            self._hear_no_more()
        self._second = None
        context.counters.attempts += 1
        self.attempts += 1
        self._covers = self._doubted = False
        kind = spec.kind
        if kind.fencing:
            self._fence = context.fences.propose(context.wall_us(), spec.slots)
            self._proposed_us = self._fence - context.fences.offset
        token = context.new_token()
        command = kind.acquiring(
            spec.keys,
            spec.slots,
            token,
            spec.life.ttl_word,
            self._fence,
            claim,
            tell_counter=followed,
        )
        self.round = attempt = Round(context, command, GRANTED, context.quorum, now, self._decided)
        attempt.token = token
        return attempt

    def _fence_again(self, attempt: Round, now: float) -> None:
        """Round 2: a fence above every counter seen, to the nodes that granted or have not answered yet.

        There it comes behind the acquire, and is acknowledged only for our keys. So one that hangs now is no veto.
        """
        context, spec = self.context, self.spec
        context.counters.second_rounds += 1
        highest = max(map(counter_of, filter(is_granted, attempt.replies)))
        wall_us = context.wall_us()
        if attempt.decider is not None:
            counter = counter_of(attempt.replies[attempt.decider])
            context.fences.overtaken(counter, attempt.decider, self._proposed_us, wall_us)
        self._fence = context.fences.propose(wall_us, spec.slots, highest)
        command = spec.kind.confirming(spec.keys, spec.slots, attempt.token, self._fence)
        self._second = Round(context, command, GRANTED, context.quorum, now, self._fenced)
        self._second.ask_some(
            [
                index
                for index, reply in enumerate(attempt.replies)
                if reply is None or is_granted(reply)
            ]
        )

    def _fenced(self, second: Round) -> None:
        """Round 2 is decided: with a quorum of acknowledgements this is the fence, else the attempt has failed."""
        attempt = self.round
        if self._second is not second or attempt is None:
            return
        for index, reply in enumerate(attempt.replies):
            if is_granted(reply):
                acknowledged = second.replies[index] is GRANTED
                attempt.replies[index] = GRANTED if acknowledged else Granted(self._fence)
        attempt.unfenced = 0
        attempt.yes = second.yes
        self._decided(attempt, second)

    def _without_fence(self, attempt: Round, second: Round) -> None:
        """Judge the nodes by their latest answers, which may still come: all that granted are released on by now."""

        def count(_index: int = 0) -> None:
            attempt.replies[:] = with_second_round(
                attempt.replies, second.replies, self._fence, expired=second.expired
            )

        count()
        attempt.expired |= second.expired
        second.on_late = count

    def _undo(self, attempt: Round, replies: list[Reply]) -> None:
        """Release what nodes granted by these replies, those that have not answered included."""
        if any(map(may_have_set, replies)):
            life = self.spec.life
            self._releases.send(self.spec, attempt.token, replies, life.ttl, self.context.clock())

    def _hear_no_more(self) -> None:
        if self.round is not None:
            self.round.on_late = None
        if self._second is not None:
            self._second.on_late = None
