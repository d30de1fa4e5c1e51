"""Count the answers to an acquire that won no quorum, by their kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioredlock_ng._core.replies import Granted, Quarantined, Unacknowledged
from aioredlock_ng._core.votes import Refusal, is_granted, is_held, is_permanent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.votes import Reply

__all__ = ["Tally", "tally", "with_second_round"]


@dataclass(frozen=True, slots=True)
class Tally:
    """The numbers of answers to an acquire, by their kind.

    Attributes:
        held: The holder's remaining seconds on each node that refused; None if a node
            reported no time, or if its key does not expire.
        granted: The number of nodes that granted the attempt. Their grants must be undone.
        failed: The number of nodes that neither granted nor refused. A silent node counts only if
            the node timeout ended the round.
        reachable: True if at least a quorum of nodes granted, refused, or may still answer.
        hopeless: True if so many nodes refuse permanently that the other nodes are no quorum.
    """

    held: list[float | None]
    granted: int
    failed: int
    reachable: bool
    hopeless: bool

    def contested(self, quorum: int, ttl: float, age: float) -> bool:
        """True if simultaneous attempts of other clients are the only reason why no quorum granted.

        A refusal names no token. So a key with nearly its whole ttl left counts as the key of a
        simultaneous attempt. The method assumes that the other clients asked for the same `ttl`,
        and that their keys are at most `age` seconds old.
        """
        young = sum(left is not None and ttl - age <= left <= ttl for left in self.held)
        return self.granted > 0 and self.granted + young >= quorum


def tally(replies: Sequence[Reply], quorum: int, quarantine: Callable[[int], str]) -> Tally:
    """Count the answers to an acquire.

    The function `quarantine` gets the index of a quarantined node, and returns the reason of the
    quarantine. The quarantine is permanent if this reason is a permanent refusal of the server.
    """
    n, silent = len(replies), sum(reply is None for reply in replies)
    held = [reply.left for reply in replies if is_held(reply)]
    granted = sum(map(is_granted, replies))
    failed = n - len(held) - granted - silent
    if len(held) + failed <= n - quorum:
        # The refusals and failures were too few to end this round, so the node timeout ended it.
        # Silent nodes count as failed in this case. If the round ended earlier, a silent node may
        # only be late.
        failed += silent
    # A server that refuses every marker never leaves quarantine, so a longer wait does not help.
    words = (
        Refusal(quarantine(index))
        for index, reply in enumerate(replies)
        if isinstance(reply, Quarantined)
    )
    permanent = sum(map(is_permanent, replies)) + sum(map(is_permanent, words))
    return Tally(
        held=held,
        granted=granted,
        failed=failed,
        reachable=failed <= n - quorum,
        hopeless=permanent > n - quorum,
    )


def with_second_round(
    replies: Sequence[Reply], answers: Sequence[Reply], fence: int, *, expired: bool
) -> list[Reply]:
    """Return the latest answer of each node after a second fence round without a quorum.

    A node that granted and then did not answer the second round counts as unreachable. If the node
    counted as granted, the error could be "another holds it" instead of "no quorum could be asked".

    `answers` are the answers to the second round, which proposed `fence`. `expired` is True if the
    node timeout ended the second round. Otherwise a silent node may only be late.
    """
    latest: list[Reply] = []
    for reply, answer in zip(replies, answers, strict=True):
        if not (reply is None or is_granted(reply)) or (answer is None and not expired):
            latest.append(reply)
        elif isinstance(answer, Unacknowledged):
            latest.append(Granted(fence))
        else:
            latest.append(answer)
    return latest
