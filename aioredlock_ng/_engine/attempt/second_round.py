"""The second round of an attempt, for the case that too few nodes have stored its fence."""

from __future__ import annotations

from aioredlock_ng._core.replies import GRANTED, Granted
from aioredlock_ng._core.tally import with_second_round
from aioredlock_ng._core.votes import counter_of, is_granted
from aioredlock_ng._engine.attempt.attempts import Attempts
from aioredlock_ng._engine.attempt.round import Round
from aioredlock_ng._engine.attempt.write_back import WriteBack

__all__ = ["SecondRound"]


class SecondRound(Attempts):
    """Adds a second round to the attempts. It stores a fence on a quorum of nodes."""

    __slots__ = ()

    def _agree(self, attempt: Round) -> bool:
        """Set the fence of an attempt for a read lease to the highest counter in the grants.

        If all nodes that granted reported the same counter, no second round is needed. The reports
        then count as acknowledgements of the fence. See docs/model.md for the proof.

        Returns:
            True if the counters are equal. False if a second round must store the fence.
        """
        counters = set(map(counter_of, filter(is_granted, attempt.replies)))
        self._fence = max(counters)
        if len(counters) > 1:
            return False
        attempt.agree(self._fence)
        return True

    def _fence_again(self, attempt: Round, now: float) -> None:
        """Begin the second round: propose a fence above every counter that a node has reported.

        For a read lease, it instead stores the fence that `_agree` has chosen. The request goes to
        the nodes that granted. It also goes to the nodes that have not answered yet, because they
        may grant later. On each node the request arrives after the acquire. A node confirms the
        fence only if its key holds the token of the attempt.
        """
        context, spec = self.context, self.target
        context.counters.second_rounds += 1
        if not spec.kind.shared:
            highest = max(map(counter_of, filter(is_granted, attempt.replies)))
            wall_us = context.wall_us()
            if attempt.decider is not None:
                counter = counter_of(attempt.replies[attempt.decider])
                context.fences.overtaken(counter, attempt.decider, self._proposed_us, wall_us)
            self._fence = context.fences.propose(wall_us, spec.counters, highest)
        command = spec.kind.confirming(spec.keys, spec.counters, attempt.token, self._fence)
        self._second = second = (
            WriteBack(context, command, attempt, self._fence, now, self._fenced)
            if spec.kind.shared
            else Round(context, command, GRANTED, context.quorum, now, self._fenced)
        )
        second.ask_some(
            [
                index
                for index, reply in enumerate(attempt.replies)
                if reply is None or is_granted(reply)
            ]
        )

    def _fenced(self, second: Round) -> None:
        """Count the answers to the second round as votes of the attempt.

        With a quorum of acknowledgements, the fence of the second round is the fence of the lease.
        Otherwise the attempt has failed.
        """
        attempt = self.round
        if self._second is not second or attempt is None:
            return
        for index, reply in enumerate(attempt.replies):
            if is_granted(reply):
                acknowledged = second.replies[index] is GRANTED
                attempt.replies[index] = GRANTED if acknowledged else Granted(self._fence)
        attempt.unfenced = 0
        attempt.yes = second.yes
        self._decided(attempt, second)

    def _without_fence(self, attempt: Round, second: Round) -> None:
        """Replace the grants of a failed attempt by the nodes' answers to its second round.

        Late answers to the second round replace grants, too. The release must still reach every
        node that granted. So `_undo` gets a copy of the replies
        from before the second round.
        """

        def count(_index: int = 0) -> None:
            attempt.replies[:] = with_second_round(
                attempt.replies, second.replies, self._fence, expired=second.expired
            )

        count()
        attempt.expired |= second.expired
        second.on_late = count
