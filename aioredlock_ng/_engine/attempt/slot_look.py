"""The question which slots of a semaphore are free, for calls that do not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.quorum import is_decided
from aioredlock_ng._core.replies import Looked
from aioredlock_ng._engine.attempt.round import Round

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.spec import LockSpec

__all__ = ["SlotLook"]


class SlotLook(Round):
    """Asks all nodes for the keys of all slots, until a quorum of nodes has shown them.

    A node that is down answers at once, and shows no keys. If its answer counted, the round could
    end before a quorum has shown a free slot.

    Args:
        context: The surroundings of the engine.
        spec: The semaphore.
        on_decided: Called once: at a quorum, when a quorum has become impossible, or at the node
            timeout.
    """

    __slots__ = ()

    def __init__(
        self, context: Context, spec: LockSpec, on_decided: Callable[[Round], None]
    ) -> None:
        command = spec.kind.inspecting(spec.keys)
        super().__init__(context, command, None, context.quorum, context.clock(), on_decided)

    def deliver(self, index: int, reply: Reply) -> None:
        """Store and count the answer of node `index`."""
        self.replies[index] = reply
        if not self.open:
            return
        if type(reply) is Looked:
            self.yes += 1
        else:
            self._no += 1
        if is_decided(self._asked, self._quorum, self.yes, self._no):
            self._decide()
