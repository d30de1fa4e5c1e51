"""The second round for a read lease: it writes the fence to the nodes with lower counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.replies import GRANTED, Granted, Unacknowledged
from aioredlock_ng._engine.attempt.round import Round

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._scripts import Command

__all__ = ["WriteBack"]


class WriteBack(Round):
    """A round that also counts a node as a yes if its counter rose above the fence after the grant.

    `first` is the round of the acquire. The replies to the acquire have the counters of the nodes
    that granted. `fence` is the fence of the attempt. `Round` describes the other arguments.
    """

    __slots__ = ("_fence", "_first")

    def __init__(
        self,
        context: Context,
        command: Command,
        first: Round,
        fence: int,
        started: float,
        on_decided: Callable[[Round], None],
    ) -> None:
        super().__init__(context, command, GRANTED, context.quorum, started, on_decided)
        self._first = first
        self._fence = fence

    def deliver(self, index: int, reply: Reply) -> None:
        """Count an answer as a yes if the node's counter rose above the fence after the grant.

        In this case, the node still has the attempt's entry, so no writer has had the key there
        since the grant. The next writer gets a fence above the counter. If the counter was already
        above the fence at the grant, the last writer may have a higher fence. Then the answer is a
        no. See docs/model.md.
        """
        if type(reply) is Unacknowledged and reply.counter > self._fence:
            answer = self._first.replies[index]
            if type(answer) is Granted and answer.counter <= self._fence:
                reply = GRANTED
        super().deliver(index, reply)
