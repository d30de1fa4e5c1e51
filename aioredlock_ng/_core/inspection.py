"""Derive the holder of a lock from the nodes' answers about the lock's key."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioredlock_ng._core.keys import as_text
from aioredlock_ng._core.owners import printable_label, read_owner
from aioredlock_ng._core.queue_formats import middle_of
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._core.replies import (
    ForceReleased,
    Free,
    Held,
    KeyLook,
    Looked,
    NotALock,
    Reader,
    ReadLocked,
)
from aioredlock_ng._core.votes import Outcome, Refusal, Vote, no_vote
from aioredlock_ng.records import LockInfo, NodeAnswer, ReaderInfo, SemaphoreInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._core.votes import Reply

__all__ = [
    "Look",
    "Unknown",
    "deletion_of",
    "holder_label",
    "lock_info",
    "look_of",
    "look_vote",
    "not_a_lock",
    "seconds_left",
    "semaphore_info",
]

_FOREIGN = re.compile(r"([\w-]{0,30}) (-?\d{1,19})", re.ASCII)
"""Pattern of a script's text about a key that is not a lock. The text has the key's type and
remaining milliseconds."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The node gave no vote, so the state of its key is unknown."""

    reply: Reply = field(repr=False)


Look = KeyLook | ForceReleased | Unknown
"""One node's answer about a lock's key."""


def look_of(reply: Reply, place: int = 0) -> Look:
    """Return one node's answer about the key at `place`; `Unknown` if the reply has none."""
    return reply.keys[place] if isinstance(reply, Looked) else Unknown(reply)


def holder_label(replies: Sequence[Reply], quorum: int) -> tuple[bool, str | None]:
    """Return the label of one key's holder, according to the replies to the inspect script.

    A token belongs to the holder only if a quorum of nodes has this token. The label of a lease
    that is over says that `min_hold` keeps the lock.

    Returns:
        A pair. The first item is True if no further replies are needed. The second item is the
        label. The label is None if there is no holder, or if the holder is a writer without a
        label. For readers without a label, the second item is a text with their number.
    """
    looks = [look_of(reply) for reply in replies]
    reading = _readers(looks, quorum)
    if reading:
        label = reading[0].owner.label if reading[0].owner is not None else None
        others = len(reading) - 1
        if label is None:
            return True, _counted(len(reading))
        return True, f"{label} and {others} more reader{'s' * (others > 1)}" if others else label
    found = [look for reply in replies if isinstance(look := look_of(reply), Held) and look.token]
    token, count = Counter(look.token for look in found).most_common(1)[0] if found else (b"", 0)
    if count < quorum:
        return count + sum(reply is None for reply in replies) < quorum, None
    keys = [look for look in found if look.token == token]
    owners = (read_owner(look.label, as_text(token)) for look in keys)
    label = next(
        (printable_label(owner.label) for owner in owners if owner is not None and owner.label),
        None,
    )
    if label is not None and any(look.over for look in keys):
        label += " (released, kept by min_hold)"
    return True, label


def _counted(readers: int) -> str:
    return f"{readers} reader{'s' * (readers != 1)}"


def deletion_of(reply: Reply) -> Look:
    """Return a node's answer to a forced release.

    If the node refused because a key is not a lock, the result describes this key. The result is
    `Unknown` for any other refusal, and for a missing reply.
    """
    if isinstance(reply, ForceReleased):
        return reply
    if isinstance(reply, Refusal):
        code, _, found = str(reply).partition(" ")
        if code == "NOTALOCK":
            return not_a_lock(found) or Unknown(reply)
    return Unknown(reply)


def look_vote(node: str, look: Look) -> Vote:
    """Return a node's answer as a vote for error messages, which show no value of a key."""
    match look:
        case Free():
            return Vote(node, Outcome.FREE)
        case Held(remaining):
            if math.isinf(remaining):
                return Vote(node, Outcome.HELD, detail="no expiry")
            return Vote(node, Outcome.HELD, remaining)
        case NotALock():
            return Vote(node, Outcome.NOT_A_LOCK, detail=str(look))
        case ReadLocked(remaining, readers):
            if not readers:
                return Vote(node, Outcome.FREE)
            return Vote(node, Outcome.HELD, remaining, _counted(len(readers)))
        case ForceReleased(deleted):
            if deleted:
                return Vote(node, Outcome.FREE, detail="deleted")
            # The outcome is not "free", because another process may hold the key by now.
            return Vote(node, Outcome.UNKNOWN, detail="nothing to delete")
        case Unknown(reply):
            return no_vote(node, reply)


def lock_info(resource: str, addresses: Sequence[str], looks: Sequence[Look]) -> LockInfo:
    """Return the state of a lock, according to the answers of all nodes.

    A node that does not answer counts as a node whose key has 0 seconds left.
    """
    # All keys that are not locks count as one holder, because together they can keep every token
    # from a majority.
    holders: dict[bytes | None, list[Held | NotALock]] = {}
    for look in looks:
        if isinstance(look, (Held, NotALock)):
            holders.setdefault(look.token if isinstance(look, Held) else None, []).append(look)
    holder, keys = max(holders.items(), key=lambda item: len(item[1]), default=(None, []))
    lives = sorted((look.remaining for look in keys), reverse=True)
    quorum = quorum_of(len(looks))
    remaining = lives[quorum - 1] if len(lives) >= quorum else 0.0
    token = None if holder is None else as_text(holder)
    labels = [look.label for look in keys if isinstance(look, Held)]
    owners = (read_owner(label, token) for label in labels if token is not None)
    owner = next((owner for owner in owners if owner is not None), None)
    answers = tuple(map(_answer, addresses, looks))
    readers = _readers(looks, quorum)
    if readers:
        owner, token = readers[0].owner, None
        remaining = max(reader.remaining for reader in readers)
    held = remaining > 0.0
    waiting = middle_of([answer.waiting for answer in answers if answer.waiting is not None])
    offered = not held and any(answer.offered for answer in answers)
    return LockInfo(
        resource,
        held,
        token,
        max((reader.nodes for reader in readers), default=len(keys)),
        len(looks),
        remaining,
        answers,
        owner,
        waiting,
        offered,
        # One key with the over mark is enough, because a node sets this mark only after the end of
        # the lease. The other nodes may have missed the command that sets the mark.
        over=any(isinstance(look, Held) and look.over for look in keys),
        readers=readers,
    )


def _readers(looks: Sequence[Look], quorum: int) -> tuple[ReaderInfo, ...]:
    """Return the read leases that a quorum of nodes has. The longest remaining time comes first."""
    entries: dict[bytes, list[Reader]] = {}
    for look in looks:
        for reader in look.readers if isinstance(look, ReadLocked) else ():
            entries.setdefault(reader.token, []).append(reader)
    found = []
    for raw, copies in entries.items():
        if len(copies) >= quorum:
            token = as_text(raw)
            lives = sorted((copy.remaining for copy in copies), reverse=True)
            owners = (read_owner(copy.label, token) for copy in copies)
            owner = next((owner for owner in owners if owner is not None), None)
            found.append(ReaderInfo(token, len(copies), lives[quorum - 1], owner))
    return tuple(sorted(found, key=lambda reader: -reader.remaining))


def semaphore_info(
    resource: str, addresses: Sequence[str], replies: Sequence[Reply], limit: int
) -> SemaphoreInfo:
    """Return the state of a semaphore, according to an inspection of all slots and their queues."""
    slots = tuple(
        lock_info(
            f"{resource}#{place + 1}", addresses, [look_of(reply, place) for reply in replies]
        )
        for place in range(limit)
    )
    counts = (_waiters(reply.keys) for reply in replies if isinstance(reply, Looked))
    waiting = middle_of([count for count in counts if count is not None])
    return SemaphoreInfo(resource, limit, sum(slot.held for slot in slots), waiting, slots)


def _waiters(slots: Sequence[KeyLook]) -> int | None:
    """Return how many clients wait for any slot according to one node; None if unknown.

    The node's count of waiters for a slot includes the queue that all slots share, and the client
    to which the slot is offered. The count also includes clients that want only this slot, as an
    ordinary lock. Without the offers, the smallest count is the best estimate of the shared queue's
    length. The result is this estimate plus the number of offers.
    """
    queues, offers = [], 0
    for look in slots:
        if isinstance(look, (Free, Held)) and look.waiting is not None:
            offered = isinstance(look, Free) and look.offered is not None
            queues.append(look.waiting - offered)
            offers += offered
    return min(queues) + offers if queues else None


def _answer(address: str, look: Look) -> NodeAnswer:
    match look:
        case Held(remaining, token, waiting=waiting) if math.isinf(remaining):
            return NodeAnswer(address, as_text(token), None, foreign="string", waiting=waiting)
        case Held(remaining, token, waiting=waiting, over=over):
            return NodeAnswer(address, as_text(token), remaining, waiting=waiting, over=over)
        case NotALock(kind, remaining):
            left = None if math.isinf(remaining) else remaining
            return NodeAnswer(address, None, left, f"not a lock: {look}", foreign=kind)
        case ReadLocked(remaining, readers, waiting):
            count = len(readers)
            return NodeAnswer(
                address, None, remaining, waiting=waiting, offered=not count, readers=count
            )
        case Free(None, waiting):
            return NodeAnswer(address, None, None, waiting=waiting)
        case Free(float(offered), waiting):
            left = None if math.isinf(offered) else offered
            return NodeAnswer(address, None, left, waiting=waiting, offered=True)
    return NodeAnswer(address, None, None, look_vote(address, look).detail)


def not_a_lock(found: str) -> NotALock | None:
    """Parse a script's description of a key that is not a lock. Return None for other texts."""
    told = _FOREIGN.fullmatch(found)
    return None if told is None else NotALock(told[1] or "other", seconds_left(int(told[2])))


def seconds_left(milliseconds: int) -> float:
    """Return the seconds that a key has left; infinite for a key without expiry."""
    return milliseconds / 1000 if milliseconds >= 0 else math.inf
