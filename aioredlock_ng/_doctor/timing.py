"""Measure the round trips of one node, and read its clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.samples import TimeSample, round_trips

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._doctor.interview import Interview
    from aioredlock_ng._scripts import Command
    from aioredlock_ng.records import RoundTrips

__all__ = ["look_at_clock", "measure"]

_ROUND_TRIPS = 100
"""Largest number of round trips to measure. With fewer, the p99 would be the slowest of all."""

_FEWEST_ROUND_TRIPS = 20
"""Smallest number of round trips to measure, even if they take longer than the given time.

With fewer, the p95 would be the slowest of all, so that one pause would decide about findings."""

_TIMES, _FEWEST_TIMES = 5, 3
_TIMES_WITHIN = 0.1
"""Seconds after which a reading of the clock sends no further TIME request.

A reading sends `_FEWEST_TIMES` to `_TIMES` requests and uses the fastest answer, which has the
smallest error. One pause of this process then spoils one answer only.
"""


async def measure(
    interview: Interview, command: Command, within: float, clock: Callable[[], float]
) -> RoundTrips | None:
    """Measure round trips of a request. A refusal ends a round trip like any other answer.

    The measurement ends after `_ROUND_TRIPS` round trips. It ends earlier if `within` seconds have
    passed, but not before `_FEWEST_ROUND_TRIPS` round trips.
    """
    began = clock()
    seconds: list[float] = []
    while len(seconds) < _ROUND_TRIPS and (
        len(seconds) < _FEWEST_ROUND_TRIPS or clock() - began <= within
    ):
        sent = clock()
        await interview.call("script inspect", command)
        seconds.append(clock() - sent)
    return round_trips(seconds)


async def look_at_clock(
    interview: Interview, clock: Callable[[], float], wall: Callable[[], float]
) -> TimeSample | Reply:
    """Return the most exact reading of the node's clock, or the first answer that is no time."""
    samples: list[TimeSample] = []
    while len(samples) < _TIMES and not (
        len(samples) >= _FEWEST_TIMES and samples[-1].received - samples[0].sent > _TIMES_WITHIN
    ):
        sent = clock()
        reply = await interview.ask("TIME")
        # The wall clock is read first. A pause after it then counts as a part of the round trip,
        # and makes the stated error larger.
        here = wall()
        received = clock()
        if (now := _instant(reply)) is None:
            return reply
        samples.append(TimeSample(sent, received, now, here))
    return min(samples, key=lambda sample: sample.error)


def _instant(reply: Reply) -> float | None:
    match reply:
        case [bytes(seconds), bytes(micros)] if seconds.isdigit() and micros.isdigit():
            # Only 16 digits are read, because a number with hundreds of digits would not fit into a
            # float.
            return int(seconds[:16]) + int(micros[:16]) / 1e6
    return None
