"""What one node's answer means for the lock; it never decides a round and never talks to a node.

A reply is the record of what a script returned (see `replies.py`), or one of these marks:

* `Refusal`: the server answered with an error. Scripts raise before they write, so nothing was set.
* `Unsent`: the request never left this process. Nothing was set.
* `Dropped`: the connection was lost after the request was queued. It may have been executed.
* `Garbled`: a `Dropped` whose answer came, but does not fit the script.

`None` is "no answer yet". The scripts never return nil, so the two cannot be confused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias, TypeGuard

from aioredlock_ng._core.refusals import unquoted
from aioredlock_ng._core.replies import (
    BrokenCounter,
    Granted,
    Quarantined,
    Record,
    Refused,
    Unacknowledged,
)

__all__ = [
    "BEYOND_CLOCKS",
    "Dropped",
    "Garbled",
    "Mark",
    "Outcome",
    "Raw",
    "Refusal",
    "Reply",
    "Unsent",
    "Vote",
    "acquire_vote",
    "blocking_key",
    "counter_of",
    "is_granted",
    "is_held",
    "is_permanent",
    "may_have_set",
    "no_vote",
]


class Refusal(Exception):
    """An error reply, with the server's own words, but without what they quote of a command."""

    def __init__(self, words: str) -> None:
        # A server that lacks EVALSHA answers with its arguments, and one of them is the token.
        super().__init__(unquoted(words))


class Unsent(Exception):
    """The node was not asked; the text says why."""

    def __init__(self, reason: str, *, permanent: bool = False) -> None:
        super().__init__(reason)
        self.permanent = permanent


class Dropped(Exception):
    """The connection went away before the answer came; the text says how."""


class Garbled(Dropped):
    """The answer does not fit the script. The text names the script and the kind of the answer."""


Mark = Refusal | Unsent | Dropped
"""What stands for a reply that no script gave."""

Raw: TypeAlias = (
    bool
    | int
    | float
    | str
    | bytes
    | Sequence["Raw"]
    | Mapping["Raw", "Raw"]
    | AbstractSet["Raw"]
    | None
)
"""A reply as the parser has it. Only plain commands, such as INFO, deliver one."""

Reply = Record | Mark | Raw
"""What a node answered; None while there is no answer."""


class Outcome(StrEnum):
    """What a node said to an acquire, or to a look at the lock's key (`free`, `not a lock`)."""

    GRANTED = "granted"
    HELD = "held"
    FAILED = "failed"
    UNKNOWN = "unknown"
    QUARANTINED = "quarantined"
    FREE = "free"
    NOT_A_LOCK = "not a lock"


@dataclass(frozen=True, slots=True)
class Vote:
    """One answer of one node.

    Attributes:
        node: The node's address, without credentials.
        outcome: What it said; see `Outcome`.
        remaining: For `held`, seconds of life that the holder's key had left; None where unknown or endless.
        detail: For `failed` and `unknown`, the server's own words or what happened to the request;
            for `not a lock`, what the key is. Never a reply, a token or a stored value.
    """

    node: str
    outcome: Outcome
    remaining: float | None = None
    detail: str = ""

    def __str__(self) -> str:
        """`address: outcome (detail)`, for messages."""
        extra = self.detail
        if self.remaining is not None:
            extra = f"{self.remaining:.3g} s left"
        return f"{self.node}: {self.outcome}{f' ({extra})' if extra else ''}"


BEYOND_CLOCKS: Final = (
    "a fence counter of it is beyond any clock, so it cannot confirm fences: delete its key aioredlock_ng:fences"
    " once it has refused for max_ttl and a second"
)
"""The detail of a vote whose counter is above any clock, and the reason in the log."""

_PERMANENT: Final = ("WRONGTYPE", "NOAUTH", "WRONGPASS", "NOPERM", "ERR unknown command")
"""Refusals that waiting does not cure: a person has to change something."""

_PERMANENT_IN_SCRIPT: Final = (
    " WRONGTYPE ",
    "can't run this command or subcommand",
    "ACL failure in script",
)
"""The same where a command inside a script was refused: Redis 6.2 wraps them all, every version those by ACL."""


_WRAPPED: Final = ("ERR ", "@user_script")
"""How such a refusal begins; the latter where the script itself returned it, in Redis 6.2."""


def acquire_vote(node: str, reply: Reply, silence: str = "no answer in time") -> Vote:
    """Name what a reply to the acquire script means; `silence` is what to say where there is none."""
    match reply:
        case Granted():
            return Vote(node, Outcome.GRANTED)
        case Refused(left):
            return Vote(node, Outcome.HELD, remaining=left)
        case BrokenCounter():
            return Vote(node, Outcome.FAILED, detail=BEYOND_CLOCKS)
        case Quarantined(left):
            told = "" if left is None else f", {left:.1f} s left"
            return Vote(node, Outcome.QUARANTINED, detail=f"it may have forgotten locks{told}")
    return no_vote(node, reply, silence)


def no_vote(node: str, reply: Reply, silence: str = "no answer in time") -> Vote:
    """Name why a node has no vote: silence, a refusal, a lost connection, or an unusable answer.

    An unusable answer is never shown: a broken server may put a token or a stored value there.
    """
    if reply is None:
        return Vote(node, Outcome.UNKNOWN, detail=silence)
    if isinstance(reply, (Refusal, Unsent)):
        return Vote(node, Outcome.FAILED, detail=str(reply))
    if isinstance(reply, Dropped):
        return Vote(node, Outcome.UNKNOWN, detail=str(reply))
    return Vote(node, Outcome.UNKNOWN, detail="an answer that its script does not give")


def is_granted(reply: Reply) -> TypeGuard[Granted]:
    """Return True if the node granted an acquire, whether it acknowledged the fence or not."""
    return type(reply) is Granted


def is_held(reply: Reply) -> TypeGuard[Refused]:
    """Return True if the node refused an acquire because of another holder or a waiter."""
    return type(reply) is Refused


def counter_of(reply: Reply) -> int:
    """Return the counter that kept a node from acknowledging a fence; 0 where there was none."""
    return reply.counter if isinstance(reply, (Granted, Unacknowledged)) else 0


def blocking_key(replies: Sequence[Reply], keys: tuple[bytes, ...]) -> bytes:
    """Return the key that most refusals are about; the first one where none says."""
    places = Counter(reply.place for reply in replies if is_held(reply))
    return keys[places.most_common(1)[0][0] - 1] if places else keys[0]


def may_have_set(reply: Reply) -> bool:
    """True unless it is certain that this node set nothing for the attempt: those nodes are owed a release."""
    return not isinstance(reply, (Refusal, Unsent, Refused, Quarantined))


def is_permanent(reply: Reply) -> bool:
    """True when asking this node again cannot help until somebody changes its settings or data."""
    if isinstance(reply, Unsent):
        return reply.permanent
    if isinstance(reply, BrokenCounter):
        return True
    if not isinstance(reply, Refusal):
        return False
    words = str(reply)
    return words.startswith(_PERMANENT) or (
        words.startswith(_WRAPPED) and any(part in words for part in _PERMANENT_IN_SCRIPT)
    )
