"""What the answers to an acquire that did not win say about why; it decides nothing about what to do."""

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
    """The answers, counted.

    Attributes:
        held: For each node that said held, the holder's remaining seconds; None for endless.
        granted: Nodes that granted it, and take it back now.
        failed: Nodes that could not be asked, or would not vote.
        reachable: A quorum could be asked.
        hopeless: So many refuse for reasons that waiting does not cure that no quorum is left.
    """

    held: list[float | None]
    granted: int
    failed: int
    reachable: bool
    hopeless: bool

    def contested(self, quorum: int, ttl: float, age: float) -> bool:
        """True if without rivals that asked in the same moment a quorum would have granted.

        A refusal names no token. The key of a rival's attempt is recognised by its life, which has just begun.

        Args:
            quorum: Nodes needed.
            ttl: Seconds that a key of this attempt would have lived; rivals mostly ask for the same.
            age: Seconds that a key of a rival's attempt may be old at most.
        """
        young = sum(left is not None and ttl - age <= left <= ttl for left in self.held)
        return self.granted > 0 and self.granted + young >= quorum


def tally(replies: Sequence[Reply], quorum: int, quarantine: Callable[[int], str]) -> Tally:
    """Count.

    Args:
        replies: Per node; None where there is no answer.
        quorum: Nodes needed.
        quarantine: Why a node cannot leave quarantine, in the server's words; "" where it only has to wait.
    """
    n, silent = len(replies), sum(reply is None for reply in replies)
    held = [reply.left for reply in replies if is_held(reply)]
    granted = sum(map(is_granted, replies))
    failed = n - len(held) - granted - silent
    if len(held) + failed <= n - quorum:
        failed += silent  # time ran out; else it was decided before they had to answer
    # A server that never lets its marker be kept is not cured by waiting either.
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
        reachable=failed <= n - quorum and bool(held or granted),
        hopeless=permanent > n - quorum,
    )


def with_second_round(
    replies: Sequence[Reply], answers: Sequence[Reply], fence: int, *, expired: bool
) -> list[Reply]:
    """Return the latest answer of each node after a second fence round without a quorum.

    A node that granted and then did not answer is as unreachable as one that never answered. Counted as granted, it would
    turn "another holds it" into "no quorum could be asked".

    Args:
        replies: The answers to the acquire.
        answers: The answers to the second round; None where a node was not asked or has not answered.
        fence: What the second round proposed.
        expired: True if the node timeout decided the second round. Else a silent node had no need to answer.
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
