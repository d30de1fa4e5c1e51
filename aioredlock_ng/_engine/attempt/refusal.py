"""Words for an acquisition that failed: which node said what, and what to do; it decides nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from aioredlock_ng._core.votes import Outcome, Unsent, acquire_vote, blocking_key
from aioredlock_ng._engine.trust.quarantine import flush_advice
from aioredlock_ng.errors import QuorumUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._core.votes import Reply, Vote
    from aioredlock_ng._engine.attempt.attempts import Attempts
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._engine.keeping.label_look import Look
    from aioredlock_ng.errors import AcquireTimeout, LockHeld, LockNotAcquired

__all__ = ["ask_for_label", "held_by_another", "name_holder", "not_acquired"]

_Error = TypeVar("_Error", bound="LockNotAcquired")


def not_acquired(kind: type[_Error], why: str, asked: Attempts) -> _Error:
    """The error for a caller, by the last attempt, if nodes were asked at all."""
    context, attempt = asked.context, _most_telling(asked.round, asked.before)
    votes = [] if attempt is None else _votes(context, attempt)
    for index, vote in enumerate(votes):
        if vote.outcome is Outcome.QUARANTINED:
            if words := context.quarantine(index):
                votes[index] = replace(vote, detail=words)
            elif (advice := flush_advice()) and advice not in why:
                why = f"{why} ({advice})"
    told = f": {'; '.join(map(str, votes))}" if votes else ""
    message = f"{_failed(asked.resource)}{why}{told}"
    error = kind(message, resource=asked.resource, votes=tuple(votes), elapsed=asked.waited)
    if isinstance(error, QuorumUnreachable):
        error.retry_after = context.back_in()
    return error


def held_by_another(
    kind: type[LockHeld | AcquireTimeout],
    why: str,
    asked: Attempts,
    holders: Sequence[Holding],
    look: Look | None = None,
) -> LockNotAcquired:
    """The error where another has it, and its label if that is known.

    Args:
        kind: The kind of error.
        why: Why.
        asked: What was asked.
        holders: Holdings of this process.
        look: A look at the label.
    """
    error, labels = not_acquired(kind, why, asked), asked.context.labels
    seen = None if look is None else look.label
    owner = labels.text(holders[0]) if holders and labels is not None else seen
    if owner is not None:
        _name_owner(error, owner)
    return error


def ask_for_label(asked: Attempts) -> Look | None:
    """Begin to ask for the label of the holder; None without labels."""
    labels = asked.context.labels
    if labels is None:
        return None
    attempt = asked.round or asked.before
    keys = asked.spec.keys
    # The key that it waits for, by what its latest attempt was refused for.
    key = keys[0] if attempt is None else blocking_key(attempt.replies, keys)
    return labels.looks.ask(asked.context, asked.spec.kind, key)


async def name_holder(error: LockHeld, asked: Attempts) -> None:
    """Ask the nodes for the label of the holder, if the error does not name it, and say it there.

    Safety: cancelled, nothing has changed.
    """
    if error.owner is None and (look := ask_for_label(asked)) is not None:
        label = await look.ended()
        if label is not None:
            _name_owner(error, label)


def _most_telling(latest: Round | None, before: Round | None) -> Round | None:
    if (
        latest is not None
        and latest.open
        and before is not None
        and not any(map(_is_news, latest.replies))
    ):
        # Just asked again: what the nodes said the last time tells more.
        return before
    return latest


def _is_news(reply: Reply) -> bool:
    """True for an answer; that a node is down is said at once, each time."""
    return reply is not None and type(reply) is not Unsent


def _name_owner(error: LockHeld | AcquireTimeout, owner: str) -> None:
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
