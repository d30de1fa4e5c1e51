"""From what the nodes say of a key to who holds the lock; it never asks them."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aioredlock_ng._core.keys import as_text
from aioredlock_ng._core.owners import printable_label, read_owner
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._core.votes import Outcome, Refusal, Vote, no_vote
from aioredlock_ng.records import LockInfo, NodeAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._core.votes import Reply

__all__ = [
    "Deleted",
    "Free",
    "Held",
    "Look",
    "NotALock",
    "Unknown",
    "deletion_of",
    "holder_label",
    "lock_info",
    "look_of",
    "look_vote",
]

_MISSING: Final = -2
_ENDLESS: Final = -1
_OTHER_TYPE: Final = -3
"""What inspect.lua says in place of a key's remaining milliseconds."""

_LONGEST: Final = 2**63
"""Servers count in 64 bits. A longer number is garbage, and may be too long for a float."""

_FOREIGN = re.compile(r"([\w-]{0,30}) (-?\d{1,19})", re.ASCII)
"""How the scripts name a key that is no lock: its type, and its remaining milliseconds."""


@dataclass(frozen=True, slots=True)
class Free:
    """There is no key."""


@dataclass(frozen=True, slots=True)
class Held:
    """A string is under the key.

    Attributes:
        remaining: Seconds that it has left; infinite without an expiry, which every lock of this
            library has.
        token: Its value.
        label: What its holder wrote beside it.
    """

    remaining: float
    token: bytes = field(repr=False)
    label: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class NotALock:
    """A key that can be no lock of this library.

    Attributes:
        kind: Its type as the server names it, "string" for one without expiry; "other" where the
            server does not say.
        remaining: Seconds that it has left; infinite without an expiry.
    """

    kind: str
    remaining: float

    def __str__(self) -> str:
        """What it is, for messages."""
        what = "a key of another type" if self.kind == "other" else f"a {self.kind}"
        if math.isinf(self.remaining):
            return f"{what} without expiry"
        return f"{what}, {self.remaining:.3g} s left"


@dataclass(frozen=True, slots=True)
class Deleted:
    """A forced release was executed.

    Attributes:
        keys: How many keys it deleted.
    """

    keys: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The node has no vote, and the state of the key is unknown.

    Attributes:
        reply: Of the node; for `no_vote` alone.
    """

    reply: Reply = field(repr=False)


Look = Free | Held | NotALock | Deleted | Unknown
"""What one node said of a lock's key."""


def look_of(reply: Reply, place: int = 0) -> Look:
    """Read one node's answer to the inspect script, for the key at `place`.

    Returns:
        `Unknown` where the script gives no such answer.
    """
    if type(reply) is not list or len(reply) <= place:
        return Unknown(reply)
    match reply[place]:
        case [left, bytes() as value, *labels] if type(left) is int and _are_labels(labels):
            if left == _MISSING:
                return Free()
            if left == _OTHER_TYPE:
                return _not_a_lock(as_text(value)) or Unknown(reply)
            if _ENDLESS <= left < _LONGEST:
                return Held(_seconds(left), value, *labels)
    return Unknown(reply)


def holder_label(replies: Sequence[Reply], quorum: int) -> tuple[bool, str | None]:
    """Return the label of the holder of one key, by the answers to the inspect script so far.

    Only a token on a quorum is a holder's.

    Args:
        replies: Per node; None where it has not answered.
        quorum: Nodes needed.

    Returns:
        True once further answers change nothing, and the label, or None where there is no holder
        or no label.
    """
    found = [look for reply in replies if isinstance(look := look_of(reply), Held) and look.token]
    token, count = Counter(look.token for look in found).most_common(1)[0] if found else (b"", 0)
    if count < quorum:
        return count + sum(reply is None for reply in replies) < quorum, None
    owners = (read_owner(look.label, as_text(token)) for look in found if look.token == token)
    return True, next((printable_label(owner.label) for owner in owners if owner is not None and owner.label), None)


def deletion_of(reply: Reply) -> Look:
    """Read one node's answer to a forced release; `Unknown` where the script gives no such answer."""
    if type(reply) is int and reply >= 0:
        return Deleted(reply)
    if isinstance(reply, Refusal):
        code, _, found = str(reply).partition(" ")
        if code == "NOTALOCK":
            return _not_a_lock(found) or Unknown(reply)
    return Unknown(reply)


def look_vote(node: str, look: Look) -> Vote:
    """Name what a node said, for errors: never the token or the value."""
    match look:
        case Free():
            return Vote(node, Outcome.FREE)
        case Held(remaining):
            if math.isinf(remaining):
                return Vote(node, Outcome.HELD, detail="no expiry")
            return Vote(node, Outcome.HELD, remaining)
        case NotALock():
            return Vote(node, Outcome.NOT_A_LOCK, detail=str(look))
        case Deleted(keys):
            if keys:
                return Vote(node, Outcome.FREE, detail="deleted")
            # "free" would be a guess: another may have it by now.
            return Vote(node, Outcome.UNKNOWN, detail="nothing to delete")
        case Unknown(reply):
            return no_vote(node, reply)


def lock_info(resource: str, addresses: Sequence[str], looks: Sequence[Look]) -> LockInfo:
    """Who holds a lock, by what every node said.

    Counting silent nodes as holding would overstate (pottery does): they count as 0 seconds left.
    """
    # Keys of other types count as one holder: together they keep everybody else from a majority.
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
    return LockInfo(resource, remaining > 0.0, token, len(keys), len(looks), remaining, answers, owner)


def _answer(address: str, look: Look) -> NodeAnswer:
    match look:
        case Held(remaining, token) if math.isinf(remaining):
            return NodeAnswer(address, as_text(token), None, foreign="string")
        case Held(remaining, token):
            return NodeAnswer(address, as_text(token), remaining)
        case NotALock(kind, remaining):
            left = None if math.isinf(remaining) else remaining
            return NodeAnswer(address, None, left, f"not a lock: {look}", foreign=kind)
        case Free():
            return NodeAnswer(address, None, None)
    return NodeAnswer(address, None, None, look_vote(address, look).detail)


def _are_labels(labels: list[object]) -> bool:
    return not labels or (len(labels) == 1 and type(labels[0]) is bytes)


def _not_a_lock(found: str) -> NotALock | None:
    told = _FOREIGN.fullmatch(found)
    return None if told is None else NotALock(told[1] or "other", _seconds(int(told[2])))


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000 if milliseconds >= 0 else math.inf
