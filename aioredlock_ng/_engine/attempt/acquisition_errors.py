"""The errors of failed acquisitions, with the vote of each node, the holder, and advice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from aioredlock_ng._core.votes import Outcome, Unsent, acquire_vote, blocking_key, is_held
from aioredlock_ng._engine.trust.quarantine import flush_advice
from aioredlock_ng.errors import QuorumUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._core.tally import Tally
    from aioredlock_ng._core.votes import Reply, Vote
    from aioredlock_ng._engine.attempt.attempts import Attempts
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.holder_label import Look
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng.errors import AcquireTimeout, LockHeld, LockNotAcquired

__all__ = ["ask_for_label", "held_by_another", "name_holder", "not_acquired", "why_no_quorum"]

_Error = TypeVar("_Error", bound="LockNotAcquired")


def not_acquired(kind: type[_Error], why: str, asked: Attempts) -> _Error:
    """Return the error for the caller of an acquisition.

    The error has the votes of the latest attempt. If this attempt still waits for its first answer,
    the error has the votes of the previous attempt. The previous attempt of a waiting task may be
    an attempt of another task of its line.
    """
    context, attempt = asked.context, _most_telling(asked.round, asked.before)
    votes = [] if attempt is None else _votes(context, attempt)
    for index, vote in enumerate(votes):
        if vote.outcome is Outcome.QUARANTINED:
            if words := context.quarantine(index):
                votes[index] = replace(vote, detail=words)
            elif (advice := flush_advice()) and advice not in why:
                why = f"{why} ({advice})"
    # For a semaphore, the votes concern one slot, and another slot may be free earlier. So the
    # remaining times are left out.
    one_of_many = asked.spec.slots is not None
    shown = [replace(vote, remaining=None) if one_of_many else vote for vote in votes]
    told = f": {'; '.join(map(str, shown))}" if shown else ""
    message = f"{_failed(asked.resource)}{why}{told}"
    error = kind(message, resource=asked.resource, votes=tuple(votes), elapsed=asked.waited)
    if isinstance(error, QuorumUnreachable):
        error.retry_after = context.back_in()
    return error


def why_no_quorum(counted: Tally, trouble: str, *, unfenced: bool) -> str:
    """Return the reason for `QuorumUnreachable` after an attempt.

    `trouble` is the reason why a quorum of grants was not enough; "" if there was no quorum.
    `unfenced` is True if the attempt failed in its second round.
    """
    if counted.hopeless:
        return "refused for a reason that waiting does not cure"
    if trouble:
        return trouble
    if unfenced:
        return "granted, but no quorum confirmed its fence"
    return "no quorum could be asked"


def held_by_another(
    kind: type[LockHeld | AcquireTimeout],
    why: str,
    asked: Attempts,
    holders: Sequence[LeaseRecord],
    look: Look | None = None,
    *,
    retry_after: float | None = None,
) -> LockNotAcquired:
    """Return the error for a lock that another task or process holds.

    The error has the label of the holder if the label is known. `holders` are the leases of this
    process for any of the wanted keys. `retry_after` is the number of seconds until a held key may
    expire. If it is None, the remaining time of a lock is taken from the latest refusals. For a
    semaphore, this is not possible, because the refusals concern only one slot.
    """
    left = retry_after
    if asked.spec.slots is None:
        left = _expires_in(asked) if retry_after is None else retry_after
    elif left is not None:
        why = f"{why}; the first slot may be free in {left:.1f} s"
    error, labels = not_acquired(kind, why, asked), asked.context.labels
    error.retry_after = left
    seen = None if look is None else look.label
    owner = labels.text(holders[0]) if holders and labels is not None else seen
    if owner is not None:
        _name_owner(error, owner)
    return error


def ask_for_label(asked: Attempts) -> Look | None:
    """Request the label of the holder, and return the request; None if labels are off."""
    labels = asked.context.labels
    if labels is None:
        return None
    attempt = asked.round or asked.before
    keys = asked.target.keys
    # If several keys are wanted, the nodes are asked about the key that most of them refused.
    key = keys[0] if attempt is None else blocking_key(attempt.replies, keys)
    return labels.looks.ask(asked.context, asked.spec.kind, key)


async def name_holder(error: LockHeld, asked: Attempts) -> None:
    """Ask the nodes for the label of the holder, and add it to an error without a label.

    Safety: a cancellation leaves the error as it was.
    """
    if error.owner is None and (look := ask_for_label(asked)) is not None:
        label = await look.ended()
        if label is not None:
            _name_owner(error, label)


def _expires_in(asked: Attempts) -> float | None:
    """Return the seconds until the first held key may expire; None if this is unknown."""
    attempt = _most_telling(asked.round, asked.before)
    replies = () if attempt is None else attempt.replies
    lives = [reply.left for reply in replies if is_held(reply) and reply.left is not None]
    if attempt is None or not lives:
        return None
    return max(0.0, min(lives) - (asked.context.clock() - attempt.started))


def _most_telling(latest: Round | None, before: Round | None) -> Round | None:
    if latest is None or (
        latest.open and before is not None and not any(map(_is_news, latest.replies))
    ):
        # There is no latest attempt, or it has no answers yet. So the error shows the votes of the
        # previous attempt.
        return before
    return latest


def _is_news(reply: Reply) -> bool:
    """True if the server was asked, and an answer or a failure is known."""
    return reply is not None and type(reply) is not Unsent


def _name_owner(error: LockHeld | AcquireTimeout, owner: str) -> None:
    error.owner = owner
    (message,) = error.args
    failed = _failed(error.resource)
    # The name of the lock may contain "held by another". So only the text after the name is
    # searched.
    error.args = (
        failed + message.removeprefix(failed).replace("held by another", f"held by {owner}", 1),
    )


def _failed(resource: str) -> str:
    return f"{resource!r} was not acquired, "


def _votes(context: Context, attempt: Round) -> list[Vote]:
    silence = "no answer in time" if attempt.expired or attempt.open else "not waited for"
    pairs = zip(context.fleet.nodes, attempt.replies, strict=True)
    return [acquire_vote(node.address, reply, silence) for node, reply in pairs]
