"""What was counted in each phase, and the verdict over it; pure arithmetic, never a clock, a file or a process."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Loss", "PhaseLedger", "Verdict", "judge", "percentile"]


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile of ascending values.

    Args:
        ordered: The values, ascending.
        share: Which one, over 0 and up to 1: 0.5 is the median.

    Returns:
        One of the values, or `None` when there are none.

    Raises:
        ValueError: `share` is out of range.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be over 0 and up to 1, not {share}")
    if not ordered:
        return None
    return ordered[ceil(share * len(ordered)) - 1]


def _no_waits() -> array[int]:
    return array("Q")


@dataclass(slots=True)
class PhaseLedger:
    """The count of one phase.

    An increment is *acknowledged* when its holder came out of the lock without an error. One that was written but
    whose holder was then told that its lease is gone is *in doubt*: nobody was promised anything, so it may be there
    or not.
    """

    title: str
    locked: bool
    acknowledged: int = 0
    in_doubt: int = 0
    refused: int = 0
    leases_lost: int = 0
    waits_us: array[int] = field(default_factory=_no_waits)
    gained: int = 0
    seconds: float = 0.0
    _ordered: list[int] = field(default_factory=list, repr=False)

    @property
    def lost(self) -> int:
        """Acknowledged increments that are missing from the counters."""
        return max(0, self.acknowledged - self.gained)

    @property
    def unexplained(self) -> int:
        """What the counters hold beyond everything that was written; more than 0 means that the count itself is wrong."""
        return max(0, self.gained - self.acknowledged - self.in_doubt)

    @property
    def per_second(self) -> float:
        """Acknowledged increments per second."""
        return self.acknowledged / self.seconds if self.seconds > 0 else 0.0

    def add(
        self,
        *,
        acknowledged: int = 0,
        in_doubt: int = 0,
        refused: int = 0,
        leases_lost: int = 0,
        waits_us: Iterable[int] = (),
    ) -> None:
        """Add what one worker has counted since its last report."""
        self.acknowledged += acknowledged
        self.in_doubt += in_doubt
        self.refused += refused
        self.leases_lost += leases_lost
        self.waits_us.extend(waits_us)

    def acquire_ms(self, *shares: float) -> tuple[float | None, ...]:
        """Return percentiles of the time from asking to holding, in milliseconds; `None` where nothing was acquired."""
        if len(self._ordered) != len(self.waits_us):
            self._ordered = sorted(self.waits_us)
        return tuple(None if (wait := percentile(self._ordered, share)) is None else wait / 1000 for share in shares)


@dataclass(frozen=True, slots=True)
class Loss:
    """One lease that the demo took from its holder.

    Attributes:
        how: What was done to it, in words.
        ttl: The lease's ttl in seconds.
        noticed_ms: Milliseconds until the holder's body was cancelled; `None` when it was never told.
        since: From when `noticed_ms` counts, in words.
    """

    how: str
    ttl: float
    noticed_ms: float | None
    since: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the demo showed what it claims, and if not, every reason why not."""

    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was lost under the lock."""
        return not self.faults

    @property
    def exit_status(self) -> int:
        """0 when nothing was lost under the lock, else 1."""
        return 0 if self.ok else 1


def judge(phases: Iterable[PhaseLedger], losses: Iterable[Loss]) -> Verdict:
    """Judge a run: only what happened under the lock counts, and a phase in which nothing happened proves nothing.

    Args:
        phases: Every phase that ran.
        losses: Every lease that was taken from its holder on purpose.

    Returns:
        The verdict, with all reasons against.
    """
    faults: list[str] = []
    locked = [phase for phase in phases if phase.locked]
    if not locked:
        faults.append("no phase ran under the lock")
    for phase in locked:
        if phase.lost:
            faults.append(f"{phase.lost} updates were lost under the lock in phase '{phase.title}'")
        if phase.unexplained:
            faults.append(f"the counters hold {phase.unexplained} more than was written in phase '{phase.title}'")
        if not phase.acknowledged:
            faults.append(f"not one increment was made in phase '{phase.title}'")
    faults.extend(f"the holder was never told that its lock was gone: {loss.how}" for loss in losses if loss.noticed_ms is None)
    return Verdict(tuple(faults))
