"""Words for an acquisition that failed: which node said what, and what to do; it decides nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from aioredlock_ng._core.votes import Outcome, acquire_vote
from aioredlock_ng._engine.trust.guard import flush_advice
from aioredlock_ng.errors import QuorumUnreachable

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Vote
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng.errors import AcquireTimeout, LockHeld, LockNotAcquired

__all__ = ["name_owner", "not_acquired"]

_Error = TypeVar("_Error", bound="LockNotAcquired")


def not_acquired(
    kind: type[_Error],
    why: str,
    resource: str,
    context: Context,
    attempt: Round | None,
    elapsed: float,
) -> _Error:
    """The error for a caller; `attempt` is the last one, if nodes were asked at all."""
    votes = [] if attempt is None else _votes(context, attempt)
    for index, vote in enumerate(votes):
        if vote.outcome is Outcome.QUARANTINED:
            if words := context.quarantine(index):
                votes[index] = replace(vote, detail=words)
            elif (advice := flush_advice()) and advice not in why:
                why = f"{why} ({advice})"
    told = f": {'; '.join(map(str, votes))}" if votes else ""
    error = kind(
        f"{_failed(resource)}{why}{told}", resource=resource, votes=tuple(votes), elapsed=elapsed
    )
    if isinstance(error, QuorumUnreachable):
        error.retry_after = context.back_in()
    return error


def name_owner(error: LockHeld | AcquireTimeout, owner: str) -> None:
    """Say in an error whose the lock is, now that it is known."""
    error.owner = owner
    (message,) = error.args
    failed = _failed(error.resource)
    # A lock's name may contain the words too.
    error.args = (
        failed + message.removeprefix(failed).replace("held by another", f"held by {owner}", 1),
    )


def _failed(resource: str) -> str:
    return f"{resource!r} was not acquired, "


def _votes(context: Context, attempt: Round) -> list[Vote]:
    silence = "no answer in time" if attempt.expired or attempt.open else "not waited for"
    pairs = zip(context.fleet.nodes, attempt.replies, strict=True)
    return [acquire_vote(node.address, reply, silence) for node, reply in pairs]
