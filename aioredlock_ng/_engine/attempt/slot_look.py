"""Ask the nodes which slots of a semaphore are free, for a call of `acquire` that does not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.quorum import is_decided
from aioredlock_ng._core.replies import Looked
from aioredlock_ng._core.slots import free_slots, may_be_free
from aioredlock_ng._engine.attempt.round import Round

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.spec import LockSpec

__all__ = ["SlotLook"]


class SlotLook(Round):
    """A request for the keys of all slots, which ends when one slot is free on a quorum of nodes.

    A node that is down counts as a node without a free slot.

    Args:
        on_decided: Called once: when a quorum of nodes has shown the same free slot, when no slot
            can reach a quorum, or at the node timeout.
    """

    __slots__ = ()

    def __init__(
        self, context: Context, spec: LockSpec, on_decided: Callable[[Round], None]
    ) -> None:
        command = spec.kind.inspecting(spec.keys)
        super().__init__(context, command, None, context.quorum, context.clock(), on_decided)

    def deliver(self, index: int, reply: Reply) -> None:
        self.replies[index] = reply
        if not self.open:
            return
        if type(reply) is Looked:
            self.yes += 1
        else:
            self._no += 1
        if free_slots(self.replies, self._quorum) or self._all_shown():
            self._decide()

    def _all_shown(self) -> bool:
        """Return True if the missing answers cannot show a slot that is free on a quorum.

        The result is False while it is open whether a quorum will answer.
        """
        asked, quorum, yes, no = self._asked, self._quorum, self.yes, self._no
        pending = asked - yes - no
        return is_decided(asked, quorum, yes, no) and not may_be_free(self.replies, quorum, pending)
