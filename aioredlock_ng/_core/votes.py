"""The meaning of a node's answer to a request about a lock.

A reply is the record of a script's result (see `replies`), or an object of one of these classes:

* `Refusal`: the server answered with an error. An acquire that was refused in this way has set no
  key.
* `Unsent`: the request never left this process. Nothing was set.
* `Dropped`: the connection was lost after the request was queued. The server may have executed the
  request.
* `Garbled`: an answer came, but does not fit the script. `Garbled` is a subclass of `Dropped`.

`None` means no answer yet. The scripts never return nil, so no reply of a script is `None`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias, TypeGuard

from aioredlock_ng._core.refusals import unquoted
from aioredlock_ng._core.replies import (
    ALL_OURS,
    BrokenCounter,
    Granted,
    KeyStates,
    Quarantined,
    Record,
    Refused,
    Unacknowledged,
)

__all__ = [
    "BEYOND_CLOCKS",
    "AcquireError",
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
    "renewal_vote",
]


class Refusal(Exception):
    """An error reply, with the server's own words. Quoted parts of a command are left out."""

    def __init__(self, words: str) -> None:
        # In its error, a server that lacks EVALSHA quotes the arguments of the call. The token is
        # one of them, so the quoted arguments are removed.
        super().__init__(unquoted(words))


class Unsent(Exception):
    """The node was not asked. The text names the reason.

    Attributes:
        permanent: True if a retry does not help until somebody changes settings.
    """

    def __init__(self, reason: str, *, permanent: bool = False) -> None:
        super().__init__(reason)
        self.permanent = permanent


class Dropped(Exception):
    """The connection was lost before the answer came. The text names the reason."""


class Garbled(Dropped):
    """The answer does not fit the script. The text names the script and the kind of the answer."""


Mark = Refusal | Unsent | Dropped
"""An object that stands for a missing or unusable reply of a script."""

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
"""A reply as the parser delivers it. Only plain commands, such as INFO, have such a reply."""

Reply = Record | Mark | Raw
"""A node's answer; None while there is no answer."""


AcquireError = Literal[
    "LockHeld", "UpgradeRefused", "AcquireTimeout", "QuorumUnreachable", "RedlockClosed"
]
"""The names of the error classes that a caller may get instead of a lease."""


class Outcome(StrEnum):
    """The kind of a node's answer.

    `FREE` and `NOT_A_LOCK` are outcomes of inspections and forced releases only.
    """

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
        remaining: For `held`, the seconds that the holder's key had left. None if this time is
            unknown, or if the key does not expire.
        detail: An explanation, such as the words of an error reply or the type of a key that is
            not a lock; "" for none. The detail contains no token and no stored value.
    """

    node: str
    outcome: Outcome
    remaining: float | None = None
    detail: str = ""

    def __str__(self) -> str:
        extra = self.detail
        if self.remaining is not None:
            extra = f"{self.remaining:.3g} s left"
        return f"{self.node}: {self.outcome}{f' ({extra})' if extra else ''}"


BEYOND_CLOCKS: Final = (
    "one of its fence counters is damaged (later than any clock), so it cannot confirm fences:"
    " wait for max_ttl plus a second, then delete its key aioredlock_ng:fences, and in the same"
    " transaction its key aioredlock_ng:marker"
)
"""The detail of a node's vote, and the reason in `NodeDegraded`, if a fence counter is damaged."""

_PERMANENT: Final = ("WRONGTYPE", "NOAUTH", "WRONGPASS", "NOPERM", "ERR unknown command")
"""The beginnings of refusals that last until a person changes something."""

_PERMANENT_IN_SCRIPT: Final = (
    " WRONGTYPE ",
    "can't run this command or subcommand",
    "ACL failure in script",
)
"""Parts of permanent refusals of a command inside a script.

Redis 6.2 puts words of its own around every refusal inside a script. Later versions do so only for
refusals by ACL."""

_WRAPPED: Final = ("ERR ", "@user_script")
"""The beginnings of a refusal inside a script.

Redis 6.2 uses the second beginning if the script itself returned the error."""


def acquire_vote(node: str, reply: Reply, silence: str = "no answer in time") -> Vote:
    """Return the vote for a reply to an acquire script; `silence` describes a missing reply."""
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


def renewal_vote(node: str, reply: Reply) -> Vote:
    """Return the vote of a node that was asked whether its keys hold the token of a lease."""
    if reply is ALL_OURS:
        return Vote(node, Outcome.GRANTED)
    if isinstance(reply, KeyStates):
        return Vote(node, Outcome.HELD, detail="the key is missing or belongs to another client")
    return no_vote(node, reply)


def no_vote(node: str, reply: Reply, silence: str = "no answer in time") -> Vote:
    """Return the vote for a missing answer, an error, a failed request or an unusable answer.

    An unusable answer is never shown, because a broken server may put a token or a stored value
    into the answer.
    """
    if reply is None:
        return Vote(node, Outcome.UNKNOWN, detail=silence)
    if isinstance(reply, (Refusal, Unsent)):
        return Vote(node, Outcome.FAILED, detail=str(reply))
    if isinstance(reply, Dropped):
        return Vote(node, Outcome.UNKNOWN, detail=str(reply))
    return Vote(node, Outcome.UNKNOWN, detail="an answer that does not fit the script")


def is_granted(reply: Reply) -> TypeGuard[Granted]:
    """True if the node granted an acquire, with or without its fence.

    A `Fenced` counts only after a round has replaced it by `GRANTED`.
    """
    return type(reply) is Granted


def is_held(reply: Reply) -> TypeGuard[Refused]:
    """True if the node refused an acquire because of another holder or a waiter."""
    return type(reply) is Refused


def counter_of(reply: Reply) -> int:
    """Return the counter that kept a node from acknowledging a fence; 0 without such a counter."""
    return reply.counter if isinstance(reply, (Granted, Unacknowledged)) else 0


def blocking_key(replies: Sequence[Reply], keys: tuple[bytes, ...]) -> bytes:
    """Return the key that most refusals name; the first key if no refusal names a key."""
    places = Counter(reply.place for reply in replies if is_held(reply))
    return keys[places.most_common(1)[0][0] - 1] if places else keys[0]


def may_have_set(reply: Reply) -> bool:
    """True if the node may have set a key for the attempt, so that a release must follow."""
    return not isinstance(reply, (Refusal, Unsent, Refused, Quarantined))


def is_permanent(reply: Reply) -> bool:
    """True if a retry does not help until somebody changes the node's settings or data."""
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
