"""The answers to an acquire that did not win, counted by the reason."""

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
        held: The holder's remaining seconds on each node that refused; None for endless.
        granted: Nodes that granted the attempt, and undo that now.
        failed: Nodes that could not be asked, or did not vote.
        reachable: True if a quorum could be asked.
        hopeless: True if so many nodes refuse permanently that the others are no quorum.
    """

    held: list[float | None]
    granted: int
    failed: int
    reachable: bool
    hopeless: bool

    def contested(self, quorum: int, ttl: float, age: float) -> bool:
        """True if a quorum would have granted without rivals that asked at the same moment.

        A refusal names no token. The key of a rival's attempt is recognised by its remaining life,
        which is nearly the whole ttl.

        Args:
            quorum: Nodes needed.
            ttl: Seconds that a key of this attempt would have lived. Most rivals ask for the same
                ttl.
            age: The greatest age in seconds of the key of a rival's attempt.
        """
        young = sum(left is not None and ttl - age <= left <= ttl for left in self.held)
        return self.granted > 0 and self.granted + young >= quorum


def tally(replies: Sequence[Reply], quorum: int, quarantine: Callable[[int], str]) -> Tally:
    """Count the answers to an acquire.

    Args:
        replies: The answer of each node; None if there is none.
        quorum: Nodes needed.
        quarantine: Returns why a node cannot leave quarantine, in the server's words. Returns "" if
            the node only has to wait.
    """
    n, silent = len(replies), sum(reply is None for reply in replies)
    held = [reply.left for reply in replies if is_held(reply)]
    granted = sum(map(is_granted, replies))
    failed = n - len(held) - granted - silent
    if len(held) + failed <= n - quorum:
        # Too few nodes refused to end this round, so the node timeout ended it. Silent nodes then
        # count as failed. Refusals can end a round earlier. A node that is silent then may only be
        # late.
        failed += silent
    # A server that refuses every marker stays in quarantine, however long a caller waits.
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

    A node that granted and then did not answer is as unreachable as a node that never answered.
    If it counted as granted, the error could be "another holds it" instead of "no quorum could be
    asked".

    Args:
        replies: The answers to the acquire.
        answers: The answers to the second round; None if a node was not asked or has not answered.
        fence: The fence that the second round proposed.
        expired: True if the node timeout ended the second round. Otherwise a silent node had no
            need to answer.
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
