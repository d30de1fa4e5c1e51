"""Count the updates of each phase, and judge the demo by the counts."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Loss", "PhaseLedger", "Verdict", "judge", "percentile"]


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile of ascending values, or None if there are no values.

    The median has the share 0.5.

    Raises:
        ValueError: `share` is 0 or less, or more than 1.
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
    """The count of updates in one phase.

    An update is *acknowledged* when its worker has reported success. In a phase with locks, a
    worker reports success only if the body and the release raised no error. Before the report an
    update is *in flight*, even if its worker was stopped between read and write. Only an
    acknowledged update can be *lost*. An update is *uncertain* if its worker wrote it and then
    learned that its lease was lost. The file may or may not contain an uncertain update.

    Attributes:
        locked: True if the workers acquire locks.
        refused: Number of times that a worker did not get a lock in time.
        waits_us: Microseconds from the request of each lock to its grant, as in `Progress`.
        gained: Increase of the sum of all counters in this phase, up to the last report.
        seconds: Length of the phase. 0.0 while the phase runs.
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
        """Number of acknowledged updates that are missing from the counters."""
        return max(0, self.acknowledged - self.gained)

    @property
    def unexplained(self) -> int:
        """Number of updates that the counters contain, but that no worker has reported.

        While the phase runs, these updates are in flight. After the phase, they show that the count
        is wrong.
        """
        return max(0, self.gained - self.acknowledged - self.in_doubt)

    @property
    def per_second(self) -> float:
        """Acknowledged updates per second."""
        return self.acknowledged / self.seconds if self.seconds > 0 else 0.0

    def add(
        self,
        *,
        gained: int,
        acknowledged: int = 0,
        in_doubt: int = 0,
        refused: int = 0,
        leases_lost: int = 0,
        waits_us: Iterable[int] = (),
    ) -> None:
        """Add a worker's report about the time since its previous report.

        `gained` is the increase of the sum of all counters since the phase began. The caller must
        read the counters after the report has come.
        """
        self.gained = gained
        self.acknowledged += acknowledged
        self.in_doubt += in_doubt
        self.refused += refused
        self.leases_lost += leases_lost
        self.waits_us.extend(waits_us)

    def acquire_seconds(self, *shares: float) -> tuple[float | None, ...]:
        """Return percentiles of the seconds from the request of a lock to its grant.

        Each of `shares` asks for one percentile, as in `percentile`. If no lock was acquired, each
        percentile is None.
        """
        if len(self._ordered) != len(self.waits_us):
            self._ordered = sorted(self.waits_us)
        return tuple(
            None if (wait := percentile(self._ordered, share)) is None else wait / 1e6
            for share in shares
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """A lease that the demo took from its holder.

    Attributes:
        how: The fault, in words.
        ttl: The lease's ttl in seconds.
        noticed: Seconds until the work under the lock was cancelled. None if that work was not
            cancelled.
        since: The event from which `noticed` is counted, in words.
    """

    how: str
    ttl: float
    noticed: float | None
    since: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the demo. `faults` lists every reason why it failed."""

    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if there is no reason for a failure."""
        return not self.faults

    @property
    def exit_status(self) -> int:
        """Exit status: 0 if `ok` is True, else 1."""
        return 0 if self.ok else 1


def judge(phases: Iterable[PhaseLedger], losses: Iterable[Loss]) -> Verdict:
    """Return the verdict on the demo, from its phases with the lock and from its losses.

    A phase without updates counts as a failure, because it proves nothing.
    """
    faults: list[str] = []
    locked = [phase for phase in phases if phase.locked]
    if not locked:
        faults.append("no phase ran under the lock")
    for phase in locked:
        if phase.lost:
            faults.append(
                f"{phase.lost:,} updates were lost under the lock in phase '{phase.title}'"
            )
        if phase.unexplained:
            faults.append(
                f"the counters hold {phase.unexplained:,} more updates than were reported in phase"
                f" '{phase.title}'"
            )
        if not phase.acknowledged:
            faults.append(f"no update was made in phase '{phase.title}'")
    faults.extend(
        f"the holder was not notified of the loss of its lock: {loss.how}"
        for loss in losses
        if loss.noticed is None
    )
    return Verdict(tuple(faults))
