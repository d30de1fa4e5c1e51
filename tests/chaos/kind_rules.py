"""The rules of single kinds: semaphores, elections, `min_hold`, `fair`, the order of waiters."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng._core.over_mark import OVER

from .history import NANO
from .judgement import Finding
from .reader_rules import LAPSED, LATER, judge_readers
from .record import who

if TYPE_CHECKING:
    from collections.abc import Callable

    from .judgement import Judgement
    from .record import Hold, Intervals, Record

__all__ = ["judge_kinds", "kept_keys"]

PATIENCE: Final = 20 * NANO
"""Nanoseconds that a rival waits at most: it may be served later than the waiter."""

SETTLED: Final = NANO // 2
"""Nanoseconds that may pass between a command on a node and the line that a history has of it."""

DRIFT: Final = 0.01
"""Share of a time by which clocks may differ: the library's default."""

_MARK: Final = OVER.decode()


def judge_kinds(
    judgement: Judgement,
    record: Record,
    holds: dict[str, list[Hold]],
    deleted: dict[tuple[str, str], int],
    unwell: Intervals,
    machine: Intervals,
) -> None:
    """Apply the rules of each kind.

    Args:
        judgement: Gets the findings.
        record: The run.
        holds: The holds of each name, in the order in which they began.
        deleted: Instants of deletions by the nemesis, by name and token.
        unwell: The times without a well majority.
        machine: The times in which the machine stood still.
    """
    limits(judgement, record.holds, deleted)
    for name, of_name in holds.items():
        bodies(judgement, record, name, of_name, deleted, machine)
        min_holds(judgement, name, of_name, deleted)
        passed_on(judgement, name, of_name)
    overtaken(judgement, record, holds, unwell, machine)
    judge_readers(judgement, record, holds, deleted, unwell, machine)


def limits(judgement: Judgement, holds: list[Hold], deleted: dict[tuple[str, str], int]) -> None:
    """Never more holders of a semaphore than the greatest limit in use, and each in its limit."""
    named: dict[str, list[Hold]] = defaultdict(list)
    for hold in sorted(holds, key=lambda hold: hold.got):
        if hold.slot:
            named[hold.semaphore].append(hold)
        if hold.slot > hold.limit:
            words = f"{hold.names[0]}: {who(hold)} asked for {hold.limit} slots"
            judgement.violations.append(Finding("slot beyond the limit", hold.got, words))
    for name, of_name in named.items():
        most = max(hold.limit for hold in of_name)
        inside: list[Hold] = []
        for hold in of_name:
            inside = [other for other in inside if other.until > hold.got]
            if hold.until <= hold.got:
                continue
            inside.append(hold)
            at = hold.got
            # A deletion frees a slot before its holder is notified.
            count = sum(deleted.get((other.names[0], other.token), at + 1) > at for other in inside)
            if count > most:
                words = f"{name}: {count} holders, with a limit of {most}"
                judgement.violations.append(Finding("too many holders", at, words))


def bodies(
    judgement: Judgement,
    record: Record,
    name: str,
    holds: list[Hold],
    deleted: dict[tuple[str, str], int],
    machine: Intervals,
) -> None:
    """The body of a leader has ended before the next leader begins, also if its term was lost."""
    ttl = int(record.ttl * NANO)
    inside: list[Hold] = []
    for hold in holds:
        if hold.kind != "election":
            continue
        at = hold.got
        inside = [other for other in inside if other.worked > at]
        for other in inside:
            words = f"{name}: {who(other)} and {who(hold)}"
            # A process that stood still may have recorded the earlier term later.
            first = other if other.since <= hold.since else hold
            if deleted.get((name, first.token), at + 1) <= at:
                judgement.beyond.append(
                    Finding("two leaders work, the first one's keys were deleted", at, words)
                )
            elif record.body_stood_still(first.process, at - ttl, at) or machine.touch(
                at - ttl, at
            ):
                judgement.beyond.append(
                    Finding("two leaders work, the first one stood still", at, words)
                )
            else:
                judgement.violations.append(Finding("two leaders work", at, words))
        inside.append(hold)


def min_holds(
    judgement: Judgement, name: str, holds: list[Hold], deleted: dict[tuple[str, str], int]
) -> None:
    """No client is granted a name before a `min_hold` of it has ended."""
    keeping: list[Hold] = []
    for hold in holds:
        at = hold.got
        keeping = [other for other in keeping if other.kept > at]
        for other in keeping:
            if hold.since < other.since:
                # It was granted first, and its process stood still before it recorded that.
                continue
            early = (other.kept - at) / 1e6
            words = f"{name}: {who(hold)}, {early:.1f} ms before the min_hold of {who(other)} ended"
            if deleted.get((name, other.token), at + 1) <= at:
                judgement.beyond.append(
                    Finding("granted before min_hold ended, its keys were deleted", at, words)
                )
            else:
                judgement.violations.append(Finding("granted before min_hold ended", at, words))
        if hold.kept:
            keeping.append(hold)


def passed_on(judgement: Judgement, name: str, holds: list[Hold]) -> None:
    """No lease with `fair=True` or `min_hold` belongs to the grant of another lease."""
    for before, hold in pairwise(holds):
        if before.token == hold.token and (hold.fair or hold.min_hold):
            words = f"{name}: {who(hold)} got the grant of {who(before)}"
            judgement.violations.append(Finding("passed on", hold.got, words))


def overtaken(
    judgement: Judgement,
    record: Record,
    holds: dict[str, list[Hold]],
    unwell: Intervals,
    machine: Intervals,
) -> None:
    """No waiter is passed by more than two grants of each client that waits with it.

    A client that lets its turn lapse has its ticket again. Sets are left out: the order is promised
    for single names only. So are waiters that stood still, or had no majority. `reader_rules.py`
    judges readers, and writers behind readers.
    """
    named: dict[str, list[Hold]] = defaultdict(list)
    for key, of_key in holds.items():
        for hold in of_key:
            named[hold.semaphore or key].append(hold)
    for name, of_name in named.items():
        of_name.sort(key=lambda hold: hold.got)
        got = [hold.got for hold in of_name]
        for waiter in of_name:
            begin, end = waiter.asked + LATER, waiter.got
            if (
                begin >= end
                or waiter.how == "try"
                or len(waiter.names) > 1
                or waiter.kind == "read"
            ):
                continue
            between = of_name[bisect_right(got, begin) : bisect_right(got, end)]
            passed = {
                (hold.process, hold.token)
                for hold in between
                if hold.asked > begin
                and hold is not waiter
                and hold.slot <= waiter.limit
                and hold.kind != "read"
            }
            if len(passed) <= LAPSED:
                continue
            near = of_name[bisect_right(got, begin) : bisect_right(got, end + PATIENCE)]
            rivals = {
                (hold.process, hold.limit, hold.number if hold.fair else 0)
                for hold in near
                if hold.asked < end and hold.kind != "read"
            }
            still = record.body_stood_still(waiter.process, waiter.asked, end)
            if still or machine.touch(waiter.asked, end) or unwell.touch(waiter.asked, end):
                continue
            judgement.overtaken_most = max(judgement.overtaken_most, len(passed) - 2 * len(rivals))
            if len(passed) > 2 * len(rivals) + LAPSED:
                words = (
                    f"{name}: {who(waiter)} was passed {len(passed)} times,"
                    f" beside {len(rivals)} that waited"
                )
                judgement.violations.append(Finding("overtaken", end, words))


def kept_keys(record: Record) -> Callable[[dict[str, Any], str, int, str], bool]:
    """Return a function that tells whether a key is rightly there while all clients rest.

    A `min_hold` keeps it. Or its process was killed, and it will expire.
    """
    keeping = {
        (name, hold.token): hold for hold in record.holds if hold.min_hold for name in hold.names
    }
    owners = {(name, hold.token): hold.process for hold in record.holds for name in hold.names}
    life = int(record.life * NANO)

    def kept(line: dict[str, Any], key: str, left: int, token: str) -> bool:
        at: int = line["t"]
        over = at + left * NANO // 1000
        if left < 0:
            return False
        hold = keeping.get((key, token.removeprefix(_MARK)))
        if hold is None:
            # A token without a hold is the token of an attempt, perhaps of a killed process.
            owner = owners.get((key, token))
            return any(
                over <= killed + life + SETTLED and killed < at
                for process, killed in record.killed.items()
                if owner in (None, process)
            )
        if token.startswith(_MARK):
            return over <= hold.got + hold.min_hold + int(DRIFT * life) + SETTLED
        # A node that could not be asked to shorten the life of the key.
        ended = hold.ended or at
        return over <= ended + life + SETTLED and any(
            line["n"] in fault["n"]
            and fault["t"] <= ended + SETTLED
            and fault.get("well", at) >= ended
            for fault in record.faults
        )

    return kept
