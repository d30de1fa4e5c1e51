"""The lines of semaphores: which slot an attempt asks for, and which slots this process has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.slots import free_slot
from aioredlock_ng._engine.waiting.queued_lines import StandingLines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.spec import LockSpec, Numbered
    from aioredlock_ng._engine.waiting.line import Contender, Line

__all__ = ["SlotLines"]


class SlotLines(StandingLines):
    """Chooses the slot for each attempt, and records the slots in use."""

    def choose(self, contender: Contender[LeaseRecord], slots: Numbered, number: int) -> LockSpec:
        """Choose the slot of a semaphore that the next attempt asks for.

        If `number` is not 0, the choice is this slot, because the nodes may grant it. Otherwise the
        choice is the slot that this process released last, because that slot is most probably free.
        The contender may be outside of any line.
        """
        line = self._line_of(contender)
        if not number:
            number = free_slot(line.taken, list(line.recent), slots.limit, self._context.draw())
        # If the slot is in `taken`, another task of this process has it or is asking for it. The
        # end of this attempt must not remove the slot from `taken`.
        contender.booked = None if number in line.taken else line
        line.taken.add(number)
        return slots[number]

    def pick(self, contender: Contender[LeaseRecord], free: Sequence[int]) -> int:
        """Return a slot that no other task of this process has or asks for; 0 if there is none.

        The choice is random, so that clients with the same list of free slots ask for different
        ones.
        """
        line = contender.line or self._lines.get(contender.line_key)
        left = [number for number in free if line is None or number not in line.taken]
        return left[int(self._context.draw() * len(left))] if left else 0

    def _others_may_complete(self, line: Line[LeaseRecord]) -> bool:
        """Return True if the leases of this line and of other lines may be for all slots.

        One slot that this line does not hold is enough for the answer. If no other line can hold
        that slot, this process does not hold all slots.
        """
        for number, key in enumerate(line.keys, 1):
            if number not in line.taken:
                return (key,) in self._lines or len(self._others[key]) > 1
        return True

    def unused(self, contender: Contender[LeaseRecord], number: int) -> None:
        """Record that an attempt for a slot of a semaphore has failed."""
        # The contender may have left its line by now, so `booked` names the line.
        line, contender.booked = contender.booked, None
        if line is not None:
            self._unbook(line, number)
            self._forget_idle(line)

    def _remember(self, line: Line[LeaseRecord], number: int | None) -> None:
        if number is not None:
            self._unbook(line, number)
            line.recent.pop(number, None)
            line.recent[number] = None

    def _unbook(self, line: Line[LeaseRecord], number: int) -> None:
        # The slot stays in `taken` if another task of this process holds it by now.
        if all(lease.spec.number != number for lease in line.holders):
            line.taken.discard(number)

    def _line_of(self, contender: Contender[LeaseRecord]) -> Line[LeaseRecord]:
        return (
            contender.line
            or self._lines.get(contender.line_key)
            or self._new_line(contender, alone=False)
        )
