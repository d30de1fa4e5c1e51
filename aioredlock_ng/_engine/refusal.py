"""Words for an acquisition that failed: which node said what, and what to do; it decides nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioredlock_ng._core.votes import Outcome, acquire_vote
from aioredlock_ng._engine.guard import flush_advice

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Vote
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.round import Round
    from aioredlock_ng.errors import LockNotAcquired

__all__ = ["not_acquired"]


def not_acquired(
    kind: type[LockNotAcquired], why: str, resource: str, context: Context, attempt: Round | None, elapsed: float
) -> LockNotAcquired:
    """The error for a caller; `attempt` is the last one, if nodes were asked at all."""
    votes = [] if attempt is None else _votes(context, attempt)
    for index, vote in enumerate(votes):
        if vote.outcome is Outcome.QUARANTINED:
            if words := context.quarantine(index):
                votes[index] = replace(vote, detail=words)
            elif (advice := flush_advice()) and advice not in why:
                why = f"{why} ({advice})"
    told = f": {'; '.join(map(str, votes))}" if votes else ""
    return kind(f"{resource!r} was not acquired, {why}{told}", resource=resource, votes=tuple(votes), elapsed=elapsed)


def _votes(context: Context, attempt: Round) -> list[Vote]:
    silence = "no answer in time" if attempt.expired or attempt.open else "not waited for"
    pairs = zip(context.fleet.nodes, attempt.replies, strict=True)
    return [acquire_vote(node.address, reply, silence) for node, reply in pairs]
