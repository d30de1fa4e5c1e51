"""From measured instants to percentiles and a node's clock; it reads no clock: instants are arguments."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from aioredlock_ng.records import ClockReading, RoundTrips

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TimeSample", "clock_reading", "round_trips"]


@dataclass(frozen=True, slots=True)
class TimeSample:
    """One answer to TIME.

    Attributes:
        sent: When it was asked, by this machine's steady clock.
        received: When the answer came, by the same.
        told: What the node said, seconds since 1970.
        wall: What this machine's wall clock said when the answer came.
    """

    sent: float
    received: float
    told: float
    wall: float

    @property
    def error(self) -> float:
        """The node read its clock at some instant of the round trip: half of it either way from the middle."""
        return (self.received - self.sent) / 2


def clock_reading(first: TimeSample, last: TimeSample) -> ClockReading:
    """Offset by the last sample, rate from the one to the other (as NTP does it, with the error as a hard bound)."""
    between = (last.sent + last.received - first.sent - first.received) / 2
    return ClockReading(
        offset=last.told - (last.wall - last.error),
        offset_error=last.error,
        rate=(last.told - first.told) / between,
        rate_error=(first.error + last.error) / between,
    )


def round_trips(seconds: Sequence[float]) -> RoundTrips | None:
    """Percentiles by nearest rank; None of nothing."""
    if not seconds:
        return None
    ordered = sorted(seconds)

    def percentile(share: float) -> float:
        return ordered[max(0, ceil(share * len(ordered)) - 1)]

    return RoundTrips(len(ordered), percentile(0.50), percentile(0.95), percentile(0.99))
