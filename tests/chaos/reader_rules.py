"""The rules of read-write locks: fences, registers that do not change, and turns."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from .history import NANO
from .judgement import Finding
from .record import who

if TYPE_CHECKING:
    from .judgement import Judgement
    from .record import Hold, Intervals, Record

__all__ = ["LAPSED", "LATER", "judge_readers"]

LATER: Final = NANO // 2
"""Nanoseconds after which a waiter stands in the queues of the well nodes, on a busy machine."""

LAPSED: Final = 8
"""Grants that may pass a waiter besides those of the clients that wait with it.

A first attempt may find the key free between two offers."""

WRITERS: Final = 2
"""Write grants that may pass a waiting reader: the offer that is under way, and the next writer's,
if the reader let its own offer lapse."""


def judge_readers(
    judgement: Judgement,
    record: Record,
    holds: dict[str, list[Hold]],
    deleted: dict[tuple[str, str], int],
    unwell: Intervals,
    machine: Intervals,
) -> None:
    """Apply the rules of readers and writers.

    Args:
        judgement: Gets the findings.
        record: The run.
        holds: The holds of each name, in the order in which they began.
        deleted: Instants of deletions by the nemesis, by name and token.
        unwell: The times without a well majority.
        machine: The times in which the machine stood still.
    """
    for name, of_name in holds.items():
        read_fences(judgement, name, of_name, deleted)
        if any(hold.kind == "read" for hold in of_name):
            turns(judgement, record, name, of_name, unwell, machine)
    unchanged(judgement, record, deleted)


def read_fences(
    judgement: Judgement, name: str, holds: list[Hold], deleted: dict[tuple[str, str], int]
) -> None:
    """The fence of a reader is at least the last writer's, and below that of the next writer.

    Locks of the same name count as writers. A writer that becomes a reader keeps its fence, or gets
    one above it. A hold is left out if it was over, or its keys were deleted, when its holder had
    it.
    """
    written = read = 0
    for hold in holds:
        if (
            hold.fence is None
            or hold.vouched <= hold.got
            or deleted.get((name, hold.token), hold.got + 1) <= hold.got
        ):
            continue
        words = f"{name}: {who(hold)} has {hold.fence}"
        if hold.kind != "read":
            if hold.fence <= read:
                judgement.violations.append(
                    Finding("fence", hold.got, f"{words} after a reader's {read}")
                )
            written = max(written, hold.fence)
            if hold.read_fence is not None:
                if hold.read_fence < hold.fence:
                    judgement.violations.append(
                        Finding("fence", hold.got, f"{words} and then {hold.read_fence}")
                    )
                read = max(read, hold.read_fence)
            continue
        if hold.fence < written:
            judgement.violations.append(
                Finding("fence", hold.got, f"{words} after a writer's {written}")
            )
        read = max(read, hold.fence)


def unchanged(judgement: Judgement, record: Record, deleted: dict[tuple[str, str], int]) -> None:
    """A register does not change while a reader has the lock of its name.

    A writer that became a reader finds what it wrote.
    """
    writes: dict[tuple[str, str, int], tuple[Hold, int]] = {}
    for hold in record.holds:
        for name, _, value, at in hold.plain:
            writes["plain", name, value] = hold, at
        for name, _, value, _, at in hold.fenced:
            writes["fenced", name, value] = hold, at
    for reader in record.holds:
        for name, way, first, last, at in reader.reads:
            if first == last or at > reader.until:
                continue
            words = f"{name}, {way}: {who(reader)} read {first} and then {last}"
            if (way, name, last) not in writes:
                if record.writers.get(last >> 40) in record.killed:
                    # Its process was killed before it recorded when.
                    continue
                judgement.violations.append(Finding("changed under a reader", at, words))
                continue
            writer, wrote = writes[way, name, last]
            # The register refuses a late write with a lower fence.
            refusable = way == "fenced" and (writer.fence or 0) < (
                reader.read_fence or reader.fence or 0
            )
            if any(deleted.get((name, hold.token), at + 1) <= at for hold in (reader, writer)):
                judgement.beyond.append(
                    Finding("changed under a reader, keys were deleted", at, words)
                )
            elif wrote > writer.vouched and not refusable:
                judgement.beyond.append(
                    Finding("changed under a reader by a late write", at, words)
                )
            else:
                judgement.violations.append(Finding("changed under a reader", at, words))


def turns(
    judgement: Judgement,
    record: Record,
    name: str,
    holds: list[Hold],
    unwell: Intervals,
    machine: Intervals,
) -> None:
    """Readers and writers take turns.

    After a writer all waiting readers enter. So hardly any writer passes a waiting reader. A writer
    that waits keeps new readers out. So a process that reads passes it once for each writer before
    it. The leases of one grant count once. Waiters are left out as in `kind_rules.overtaken`, which
    judges writers behind writers.
    """
    got = [hold.got for hold in holds]
    for waiter in holds:
        begin, end = waiter.asked + LATER, waiter.got
        if begin >= end or waiter.how == "try" or len(waiter.names) > 1:
            continue
        between = [
            hold
            for hold in holds[bisect_right(got, begin) : bisect_right(got, end)]
            if hold is not waiter
        ]
        writers = {(hold.process, hold.token) for hold in between if hold.kind != "read"}
        later = [hold for hold in between if hold.kind == "read" and hold.asked > begin]
        readers = {(hold.process, hold.token) for hold in later}
        reads = waiter.kind == "read"
        least = WRITERS if reads else len({hold.process for hold in later}) * (len(writers) + 1)
        passed = len(writers if reads else readers) - least
        still = record.body_stood_still(waiter.process, waiter.asked, end)
        if (
            passed <= 0
            or still
            or machine.touch(waiter.asked, end)
            or unwell.touch(waiter.asked, end)
        ):
            continue
        if reads:
            judgement.writers_first_most = max(judgement.writers_first_most, len(writers))
        else:
            judgement.readers_first_most = max(judgement.readers_first_most, passed)
        if passed > LAPSED:
            words = f"{name}: {who(waiter)}, {passed} times more often than by turns"
            judgement.violations.append(
                Finding("reader passed" if reads else "writer passed", end, words)
            )
