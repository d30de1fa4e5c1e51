"""The rule about hand-overs: a waiting process gets a released lock soon."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from .history import NANO
from .judgement import Finding
from .record import FOREVER

if TYPE_CHECKING:
    from .judgement import Judgement
    from .record import Hold, Intervals, Record

__all__ = ["judge_waking"]

SOON: Final = NANO // 10
"""Nanoseconds from a release to the hold of the next process that most hand-overs may take.

Without messages about releases, a quarter of the hand-overs takes longer. With messages, one in
fifty does, for example because the first waiter was stopped.
"""

LATE: Final = 10
"""One hand-over in so many may take longer than `SOON`."""

ENOUGH: Final = 200
"""Number of hand-overs from which on the rule applies.

A run of a minute has more. The short runs of the test suite have fewer: other tests use the same
processors, so the clock says nothing about our clients.
"""

IN_QUEUE: Final = NANO // 10
"""Nanoseconds before the release from which on the next holder must have asked, so that it had its
place in the queues.
"""


def judge_waking(
    judgement: Judgement,
    record: Record,
    holds: dict[str, list[Hold]],
    unwell: Intervals,
    machine: Intervals,
) -> None:
    """Measure the hand-overs from process to process, and judge them together.

    The holds of each name are in the order of their grants.

    A single hand-over may take long: the first waiter may be stopped, or its attempt may meet that
    of a client which does not wait.
    """
    for of_name in holds.values():
        if any(hold.shares(FOREVER) for hold in of_name):
            # Readers may hold the lock between two writers.
            continue
        for before, after in pairwise(of_name):
            if _is_hand_over(record, before, after, unwell, machine):
                assert before.ended is not None
                judgement.hand_overs.append(after.got - before.ended)
    slow = sum(took > SOON for took in judgement.hand_overs)
    if len(judgement.hand_overs) >= ENOUGH and slow * LATE > len(judgement.hand_overs):
        words = f"{slow} of {len(judgement.hand_overs)} hand-overs took over {SOON / 1e6:.0f} ms"
        judgement.violations.append(Finding("woken late", record.over, words))


def _is_hand_over(
    record: Record, before: Hold, after: Hold, unwell: Intervals, machine: Intervals
) -> bool:
    """Return True if a process waited for the release of another one, and nothing hindered it."""
    released, got = before.ended, after.got
    return (
        released is not None
        and before.lost is None
        and not before.min_hold
        and len(before.names) == len(after.names) == 1
        and before.process != after.process
        and after.asked < released - IN_QUEUE
        and released <= got
        and not unwell.touch(released - NANO, got)
        and not machine.touch(released, got)
        and not any(
            record.body_stood_still(process, released, got)
            for process in (before.process, after.process)
        )
    )
