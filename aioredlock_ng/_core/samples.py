"""Compute percentiles of round trips, and the offset and the rate of a node's clock."""

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
        sent: Instant of the request, by this machine's steady clock.
        received: Instant of the answer, by the same clock.
        told: The node's time, in seconds since 1970.
        wall: This machine's wall clock when the answer came.
    """

    sent: float
    received: float
    told: float
    wall: float

    @property
    def error(self) -> float:
        """Largest error of the reading in seconds: half of the round trip.

        The node may have read its clock at any instant of the round trip.
        """
        return (self.received - self.sent) / 2


def clock_reading(first: TimeSample, last: TimeSample) -> ClockReading:
    """Return the offset of a node's clock at the last sample, and its rate between both samples.

    The errors in the result are upper bounds.
    """
    between = (last.sent + last.received - first.sent - first.received) / 2
    return ClockReading(
        offset=last.told - (last.wall - last.error),
        offset_error=last.error,
        rate=(last.told - first.told) / between,
        rate_error=(first.error + last.error) / between,
    )


def round_trips(seconds: Sequence[float]) -> RoundTrips | None:
    """Return the percentiles of these durations by nearest rank; None if there are no durations."""
    if not seconds:
        return None
    ordered = sorted(seconds)

    def percentile(share: float) -> float:
        return ordered[max(0, ceil(share * len(ordered)) - 1)]

    return RoundTrips(len(ordered), percentile(0.50), percentile(0.95), percentile(0.99))
