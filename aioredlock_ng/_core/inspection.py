"""From what the nodes say of a key to who holds the lock; it never asks them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aioredlock_ng._core.keys import as_text
from aioredlock_ng._core.owners import read_owner
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._core.votes import acquire_vote
from aioredlock_ng.records import LockInfo, NodeAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._core.votes import Reply

__all__ = ["lock_info"]


def lock_info(resource: str, addresses: Sequence[str], replies: Sequence[Reply]) -> LockInfo:
    """Who holds a lock, by the inspect script's answer of every node.

    Counting silent nodes as holding would overstate (pottery does): they count as 0 seconds left.
    """
    answers = tuple(map(_answer, addresses, replies))
    tokens = Counter(answer.token for answer in answers if answer.token is not None)
    token, count = tokens.most_common(1)[0] if tokens else (None, 0)
    holding = [reply for reply, answer in zip(replies, answers, strict=True) if token is not None and answer.token == token]
    lives = sorted(map(_life, holding), reverse=True)
    quorum = quorum_of(len(answers))
    remaining = lives[quorum - 1] if len(lives) >= quorum else 0.0
    owners = (read_owner(reply[0][2], token) for reply in holding if len(reply[0]) > 2) if token is not None else ()
    owner = next((owner for owner in owners if owner is not None), None)
    return LockInfo(resource, remaining > 0.0, token, count, len(answers), remaining, answers, owner)


def _answer(address: str, reply: Reply) -> NodeAnswer:
    if not isinstance(reply, list):
        return NodeAnswer(address, None, None, acquire_vote(address, reply).detail)
    remaining, token = reply[0][:2]
    if remaining == -2:
        return NodeAnswer(address, None, None)
    return NodeAnswer(address, as_text(token), remaining / 1000 if remaining >= 0 else None)


def _life(reply: Reply) -> float:
    remaining: int = reply[0][0]
    return remaining / 1000 if remaining >= 0 else float("inf")
