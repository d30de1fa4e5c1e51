"""The rules for every run. Each finding is a violation, or an event that is not promised."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng._core.backoff import reconnect_delay

from .grant_rules import judge_grants
from .history import NANO
from .judgement import Finding, Judgement
from .kind_rules import judge_kinds, kept_keys
from .record import FOREVER, Intervals, who
from .waking_rules import judge_waking

if TYPE_CHECKING:
    from collections.abc import Callable

    from .record import Hold, Record

__all__ = ["judge"]

WATCHED: Final = 150_000_000
"""Nanoseconds from which on a lease is watched for certain: the library looks at it first when it
is 0.1 s old.
"""

USUAL: Final = 50_000_000
"""Nanoseconds from a deletion to its notice that half of the deletions may take.

The limit applies once there are `ENOUGH`. Renewals alone, at a third of the ttl, would take five
times as long.
"""

ENOUGH: Final = 20

IN_LINE: Final = 24
"""Turns that others may have before one who waits: six processes with four waiters each, on one
name.
"""

IDLE: Final = 0.05
"""Share of that time for which the name may have been free in total: between its holders, on its
way to the next.
"""

GAP: Final = 200_000_000
"""Nanoseconds for which it may have been free at a time: whoever waits longer while it is free was
not woken.
"""

RELEASED: Final = NANO // 2
"""Nanoseconds until the release of who held it or asked for it has reached the nodes that are well.
"""

PATIENCE: Final = 20 * NANO
"""Nanoseconds for which acquisitions wait that are neither single attempts nor given up."""

ANSWER: Final = 2 * NANO
"""Nanoseconds within which there is an answer when an acquisition's patience is over, whatever
hangs.
"""

EARLY: Final = 10.0
"""Milliseconds by which a timer may be early."""

ON_TIME: Final = 600_000_000
"""Nanoseconds from a deadline to the notice of it on a busy machine.

A client yields to its event loop every 0.15 s. With
`thread=True` the notice passes two event loops, and each may be late as often again."""

NEXT_RENEWAL: Final = 1 / 3
"""Share of the ttl after which a lease is renewed, and finds what no message reported."""

ASKED: Final = NANO // 10
"""Nanoseconds before a lease's begin in which a node must have been well to have been asked and to
have granted.
"""

FORGETTING: Final = {"kill", "flush", "fill"}
"""Faults after which a node lacks keys that it had, or cannot be given back those that it lacks."""

RECONNECT: Final = int(reconnect_delay(16, 1.0) * NANO)
"""Longest pause in nanoseconds between two attempts of the library to connect to a node."""

CUTTING: Final = {"kill", "cut", "refuse", "stall", "client_kill"}
"""Faults that end connections."""

NOT_RUN: Final = "before this task ran"
"""The reason of a failure where a thread was granted the lock, and the task learned of it too late.
"""

OFFER: Final = "aioredlock_ng:offer:"
"""The beginning of a key's value while it is kept for a waiter."""

LONGEST_OFFER: Final = 2_200
"""Milliseconds that an offer lives at most: 2 s, and the rounding."""


def judge(record: Record) -> Judgement:
    """Apply every rule."""
    judgement = Judgement()
    holds = _by_name(record.holds)
    deleted = _deletions(record)
    unwell, machine = record.unwell(), record.machine_stood_still()
    for name, of_name in holds.items():
        _overlaps(judgement, name, of_name, deleted)
        _fences(judgement, name, of_name, deleted)
    judge_grants(judgement, record, machine)
    judge_kinds(judgement, record, holds, deleted, unwell, machine)
    _lost_updates(judgement, record, deleted, holds)
    _noticed(judgement, record, holds, unwell)
    _noticed_by_deadline(judgement, record, machine)
    judge_waking(judgement, record, holds, unwell, machine)
    _lengths(judgement, record, machine)
    _success(judgement, record, unwell, machine, holds)
    _answers(judgement, record)
    _needless_losses(judgement, record, unwell, deleted)
    _leftovers(judgement, record)
    judgement.violations += [
        Finding("error", error["t"], f"{error['p']}: {error['why']}") for error in record.errors
    ]
    return judgement


def _by_name(holds: list[Hold]) -> dict[str, list[Hold]]:
    named: dict[str, list[Hold]] = defaultdict(list)
    for hold in sorted(holds, key=lambda hold: hold.got):
        for name in hold.names:
            named[name].append(hold)
    return named


def _deletions(record: Record) -> dict[tuple[str, str], int]:
    """Return the instant before each deletion that left no majority, by name and token.

    Nodes may have deleted them, and others may hold the lock, before whoever deletes them has read
    one answer. Nodes that were impaired within a ttl before count as having none: the lock may have
    been granted, or its holder given up, without them.
    """
    taken = []
    for delete in record.deletes:
        without = {node for node, count in zip(delete["n"], delete["c"], strict=True) if count}
        if without:
            without |= _impaired(
                record, delete.get("a", delete["t"]) - int(record.ttl * NANO), delete["t"]
            )
        if record.lacks_majority(without):
            taken.append(delete)
    return {
        (delete["name"], delete["k"]): delete.get("a", delete["t"]) for delete in reversed(taken)
    }


def _impaired(record: Record, since: int, until: int) -> set[int]:
    """Return the nodes that were not well at some instant between these."""
    return {node for fault in _faults(record, since, until) for node in fault["n"]}


def _faults(record: Record, since: int, until: int) -> list[dict[str, Any]]:
    """Return the faults of nodes that were not well at some instant between these."""
    return [
        fault
        for fault in record.faults
        if fault["t"] <= until and fault.get("well", until) >= since
    ]


def _overlaps(
    judgement: Judgement, name: str, holds: list[Hold], deleted: dict[tuple[str, str], int]
) -> None:
    """No two holders at once, unless the keys of the first were deleted on purpose."""
    inside: list[Hold] = []
    asked: dict[str, int] = {}
    for hold in holds:
        # Readers may share a grant long after its attempt. Its keys may have been deleted
        # meanwhile.
        asked[hold.token] = min(hold.since, asked.get(hold.token, hold.since))
        since = asked[hold.token] if hold.kind == "read" else hold.since
        inside = [other for other in inside if other.until > hold.got]
        if hold.until <= hold.got:
            continue
        for other in inside:
            if hold.kind == "read" and other.shares(hold.got):
                continue
            length = min(other.until, hold.until) - hold.got
            # A process that stood still may have recorded the earlier grant later.
            first = other if other.since <= since else hold
            at = deleted.get((name, first.token))
            words = f"{name}: {who(other)} and {who(hold)} for {length / 1e6:.1f} ms"
            if at is not None and at <= hold.got:
                judgement.overlap_longest = max(judgement.overlap_longest, length)
                judgement.beyond.append(
                    Finding("two holders, the first one's keys were deleted", hold.got, words)
                )
            else:
                judgement.violations.append(Finding("overlap", hold.got, words))
        inside.append(hold)


def _fences(
    judgement: Judgement, name: str, holds: list[Hold], deleted: dict[tuple[str, str], int]
) -> None:
    """Each fence is greater than those of all holds before.

    A hold is left out if it was over when its holder had it. Its keys may have been deleted before.

    `kind_rules.py` has the fences of readers.
    """
    highest = 0
    seen: set[int] = set()
    for hold in holds:
        if hold.fence is None or hold.kind == "read":
            continue
        if hold.fence in seen:
            judgement.violations.append(
                Finding("fence", hold.got, f"{name}: {who(hold)} has {hold.fence}, given before")
            )
        seen.add(hold.fence)
        if hold.vouched <= hold.got or deleted.get((name, hold.token), hold.got + 1) <= hold.got:
            continue
        if hold.fence < highest:
            judgement.violations.append(
                Finding("fence", hold.got, f"{name}: {who(hold)} has {hold.fence} after {highest}")
            )
        highest = max(highest, hold.fence)


def _lost_updates(
    judgement: Judgement,
    record: Record,
    deleted: dict[tuple[str, str], int],
    holds: dict[str, list[Hold]],
) -> None:
    """No two writes rest on the same read; on plain registers, unless one came late from a process
    that stood still.
    """
    plain: dict[tuple[str, int], list[tuple[Hold, int]]] = defaultdict(list)
    fenced: dict[tuple[str, int], list[Hold]] = defaultdict(list)
    written: dict[str, set[int]] = defaultdict(set)
    reads: list[tuple[Hold, str, int]] = []
    written_fenced: dict[str, set[int]] = defaultdict(set)
    reads_fenced: list[tuple[Hold, str, int]] = []
    for hold in record.holds:
        for name, way, *values, _ in hold.reads:
            seen = reads if way == "plain" else reads_fenced
            seen += [(hold, name, value) for value in values]
        for name, before, value, at in hold.plain:
            judgement.plain_writes += 1
            plain[name, before].append((hold, at))
            written[name].add(value)
            reads.append((hold, name, before))
            if at > hold.vouched:
                _late(judgement, record, hold, name, at, deleted)
        for name, before, value, outcome, at in hold.fenced:
            if value:
                written_fenced[name].add(value)
                reads_fenced.append((hold, name, before))
            if outcome == "done":
                judgement.fenced_writes += 1
                fenced[name, before].append(hold)
                judgement.late_fenced_accepted += at > hold.vouched
            elif outcome.startswith("refused"):
                judgement.refused += 1
                if not _outdated(hold, holds[name], record):
                    words = f"{name}: {who(hold)} had {hold.fence}, and nobody a greater one"
                    judgement.violations.append(Finding("refused without a reason", at, words))
    for hold, name, before in reads_fenced:
        if (
            before
            and before not in written_fenced[name]
            and record.writers.get(before >> 40) not in record.killed
        ):
            words = f"{name}: {who(hold)} read {before} behind the fence, which nobody wrote"
            judgement.violations.append(Finding("register", hold.got, words))
    for (name, before), writers in fenced.items():
        if len(writers) > 1:
            words = f"{name}: {' and '.join(map(who, writers))} both wrote over {before}"
            judgement.violations.append(Finding("lost update, fenced", writers[-1].got, words))
    for (name, before), writes in plain.items():
        if len(writes) < 2:
            continue
        words = f"{name}: {' and '.join(who(hold) for hold, _ in writes)} both wrote over {before}"
        first = min(writes, key=lambda write: write[0].got)[0]
        taken = deleted.get((name, first.token))
        if sum(at > hold.vouched for hold, at in writes) >= len(writes) - 1:
            judgement.beyond.append(
                Finding("lost update, plain: a write came late after a pause", writes[-1][1], words)
            )
        elif taken is not None and taken <= writes[-1][1]:
            judgement.beyond.append(
                Finding(
                    "lost update, plain: the first one's keys were deleted", writes[-1][1], words
                )
            )
        else:
            judgement.violations.append(Finding("lost update, plain", writes[-1][1], words))
    for hold, name, before in reads:
        if (
            before
            and before not in written[name]
            and record.writers.get(before >> 40) not in record.killed
        ):
            judgement.violations.append(
                Finding(
                    "register", hold.got, f"{name}: {who(hold)} read {before}, which nobody wrote"
                )
            )


def _outdated(hold: Hold, others: list[Hold], record: Record) -> bool:
    """Return True if another holder had a greater fence before a hold was over."""
    end, fence = hold.ended or record.over, hold.fence or 0
    return any(
        other.fence is not None and other.fence > fence and other.got <= end for other in others
    )


def _late(
    judgement: Judgement,
    record: Record,
    hold: Hold,
    name: str,
    at: int,
    deleted: dict[tuple[str, str], int],
) -> None:
    """Writes after the lock was over come only after a standstill, or a deletion of the keys."""
    judgement.late += 1
    if record.body_stood_still(hold.process, min(hold.vouched, at), at):
        judgement.beyond.append(Finding("late write after a pause", at, f"{name}: {who(hold)}"))
    elif deleted.get((name, hold.token), at + 1) <= at:
        judgement.beyond.append(
            Finding("late write, its keys were deleted", at, f"{name}: {who(hold)}")
        )
    else:
        judgement.violations.append(
            Finding(
                "late write", at, f"{name}: {who(hold)}, {(at - hold.vouched) / 1e6:.1f} ms late"
            )
        )


def _noticed(
    judgement: Judgement, record: Record, holds: dict[str, list[Hold]], unwell: Intervals
) -> None:
    """A holder is notified if its keys were deleted.

    The time is measured unless its process stood still.
    """
    for delete in record.deletes:
        at = delete["t"]
        if not record.lacks_majority(set(delete["n"])):
            continue
        of_token = [hold for hold in holds.get(delete["name"], ()) if hold.token == delete["k"]]
        # Several readers may share a grant.
        for hold in [hold for hold in of_token if hold.shares(at)] or of_token[:1]:
            if hold.until > at:
                _noticed_deletion(judgement, record, hold, delete, unwell)
    if len(judgement.notices) >= ENOUGH and (usual := median(judgement.notices)) > USUAL:
        words = f"half of {len(judgement.notices)} holders only after {usual / 1e6:.0f} ms"
        judgement.violations.append(Finding("noticed late", record.over, words))


def _noticed_deletion(
    judgement: Judgement, record: Record, hold: Hold, delete: dict[str, Any], unwell: Intervals
) -> None:
    """Judge when one holder was notified of one deletion.

    A reader is notified by its next renewal.
    """
    at = delete["t"]
    renewed = record.ttl * NEXT_RENEWAL * NANO + RELEASED
    words = f"{delete['name']}: {who(hold)}"
    # Nodes that hung or were down may have theirs still.
    if len(delete["again"]) + record.nodes - len(delete["n"]) > record.minority:
        judgement.beyond.append(Finding("keys deleted one by one, set again", at, words))
        return
    if hold.lost is None:
        end = hold.ended or record.silent.get(hold.process) or hold.killed or record.over
        if delete["again"]:
            # It got them back before anybody else had them.
            judgement.beyond.append(Finding("keys deleted one by one, set again", at, words))
        elif end - at > record.ttl * NANO or (
            end - at > renewed
            and not unwell.touch(at, end)
            and not record.body_stood_still(hold.process, at, end)
        ):
            judgement.violations.append(Finding("never noticed", at, f"{words} went on"))
        else:
            judgement.ended_first += 1
        return
    if record.body_stood_still(hold.process, at, hold.lost):
        return
    if delete["again"]:
        judgement.beyond.append(Finding("keys deleted one by one, some set again", at, words))
    elif hold.shares(at):
        # No node reports changes of a key held by readers.
        judgement.notices_readers.append(hold.lost - at)
        if hold.lost - at > renewed and not unwell.touch(at, hold.lost):
            judgement.violations.append(
                Finding("noticed late", hold.lost, f"{words} after {(hold.lost - at) / 1e6:.0f} ms")
            )
    else:
        (judgement.notices if at - hold.got >= WATCHED else judgement.notices_young).append(
            hold.lost - at
        )


def _noticed_by_deadline(judgement: Judgement, record: Record, machine: Intervals) -> None:
    """Every holder is notified at its deadline, whatever the nodes do."""
    for hold in record.holds:
        noticed, over = hold.lost or hold.ended, max(hold.deadline, hold.got)
        if noticed is None or noticed - over <= ON_TIME:
            continue
        still = record.body_stood_still(hold.process, over, noticed)
        if not still and not machine.touch(over, noticed):
            words = f"{', '.join(hold.names)}: {who(hold)}, {(noticed - over) / 1e6:.0f} ms late"
            judgement.violations.append(Finding("noticed after its deadline", noticed, words))


def _lengths(judgement: Judgement, record: Record, machine: Intervals) -> None:
    """No lease promises more than its ttl, and none is over before its holder has it.

    The holder's process may have stood still between the grant and its report.
    """
    for hold in record.holds:
        words = f"{', '.join(hold.names)}: {who(hold)}"
        if hold.promised > record.ttl * NANO:
            judgement.violations.append(
                Finding("deadline too late", hold.got, f"{words}, {hold.promised / 1e6:.0f} ms")
            )
        if (
            hold.deadline <= hold.got
            and not record.body_stood_still(hold.process, hold.asked, hold.got)
            and not machine.touch(hold.asked, hold.got)
        ):
            judgement.violations.append(Finding("over before it began", hold.got, words))


def _success(
    judgement: Judgement,
    record: Record,
    unwell: Intervals,
    machine: Intervals,
    holds: dict[str, list[Hold]],
) -> None:
    """While a majority is well, every acquisition gets the lock, or another client has it.

    A single attempt may find another holder. A wait may end without the lock if others held it all
    the time.
    """
    for hold in record.holds:
        if hold.asked >= record.begin and not unwell.touch(hold.asked, hold.got):
            judgement.asked_well += 1
            judgement.got_well += 1
    about = _others(record)
    for fail in record.fails:
        if fail["a"] < record.begin or unwell.touch(fail["a"], fail["t"]):
            continue
        names, took = f"{fail['p']}: {', '.join(fail['n'])}", (fail["t"] - fail["a"]) / 1e6
        if fail["why"] == "AcquireTimeout" and took < 1e3 * fail.get("wait", 0.0) - EARLY:
            words = f"{names}: after {took:.0f} ms"
            judgement.violations.append(Finding("gave up early", fail["t"], words))
            continue
        if fail["why"] == "held":
            judgement.held_well += 1
            if not unwell.touch(fail["a"] - int(record.ttl * NANO), fail["t"]) and not about(fail):
                words = f"{names}: held, and nobody held it or asked for it"
                judgement.violations.append(Finding("held by nobody", fail["t"], words))
        elif (
            record.stood_still(fail["p"], fail["a"], fail["t"])
            or _reconnects_late(record, fail)
            or machine.touch(fail["a"], fail["t"])
            or (NOT_RUN in fail["v"] and record.body_stood_still(fail["p"], fail["a"], fail["t"]))
        ):
            judgement.stood_still += 1
        elif fail["why"] == "AcquireTimeout" and all(
            _in_line(fail, name, holds) for name in _lines(fail)
        ):
            words = f"{names}: others held it for all of {took:.0f} ms"
            judgement.beyond.append(Finding("not acquired: in line to the end", fail["t"], words))
        else:
            judgement.asked_well += 1
            words = f"{names}: {fail['why']} {fail['v']} after {took:.0f} ms"
            judgement.violations.append(Finding("not acquired", fail["t"], words))


def _reconnects_late(record: Record, fail: dict[str, Any]) -> bool:
    """Return True if a process that was stopped may have connected to a node later than `Settling`
    assumes.

    When the next fault ends the young connection, the pause before the next attempt goes on
    doubling.
    """
    since = fail["a"] - RECONNECT
    cuts = [
        fault["t"]
        for fault in _faults(record, since, fail["t"])
        if fault["k"] in CUTTING and (fault["k"] != "stall" or fault.get("drop"))
    ]
    return any(
        go > since and any(stop < cut < fail["t"] for cut in cuts)
        for stop, go in record.stops_of(fail["p"])
    )


def _others(record: Record) -> Callable[[dict[str, Any]], bool]:
    """Return a function that tells whether other clients held or asked for the names of an
    acquisition.
    """
    asked: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    held: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for hold in record.holds:
        end = hold.deadline if hold.ended is None else min(hold.ended, hold.deadline)
        released = max(_released(record, hold.process, end), hold.kept + RELEASED)
        if hold.ended is None and hold.lost is None and hold.process in record.killed:
            # A renewal may have come after the last line about this hold.
            released = max(
                released, record.killed[hold.process] + int(record.life * NANO) + RELEASED
            )
        for name in hold.names:
            held[name].append((hold.asked, released))
    for line in (*record.fails, *record.cut, *record.amid):
        for name in line["n"]:
            asked[name].append((line["a"], _released(record, line["p"], line["t"]), id(line)))
    holding = {name: Intervals(spans) for name, spans in held.items()}

    def others(line: dict[str, Any]) -> bool:
        begin, end = line["a"], line["t"]
        taken = sum(name in holding and holding[name].touch(begin, end) for name in line["n"])
        # All slots of a semaphore must be taken, but only one name of a set.
        return taken >= (line.get("m") or 1) or any(
            a < end and t > begin and of != id(line)
            for name in line["n"]
            for a, t, of in asked[name]
        )

    return others


def _released(record: Record, process: str, end: int) -> int:
    """Return the instant at which no node has any key of an acquisition or a hold that ended at
    `end`.
    """
    if end <= record.killed.get(process, FOREVER) <= end + RELEASED:
        # The kill may have come before the release.
        return end + int(record.life * NANO) + RELEASED
    return end + RELEASED


def _answers(judgement: Judgement, record: Record) -> None:
    """Every acquisition ends when its time is over, whatever the nodes do."""
    asked = [
        (hold.process, hold.names, hold.asked, hold.got, _patience(hold.how))
        for hold in record.holds
    ]
    asked += [
        (line["p"], line["n"], line["a"], line["t"], _patience(line.get("w", ""), line.get("g")))
        for line in (*record.fails, *record.cut, *record.amid)
    ]
    for process, names, begin, end, patience in asked:
        if end - begin > patience + ANSWER and not record.body_stood_still(process, begin, end):
            words = f"{process}: {', '.join(names)}: nothing for {(end - begin) / NANO:.0f} s"
            judgement.violations.append(Finding("no answer", end, words))


def _patience(how: str, give_up: float | None = None) -> int:
    """Return the nanoseconds that an acquisition may wait: 0 for a single attempt."""
    if give_up is not None:
        return int(give_up * NANO)
    return 0 if how == "try" else PATIENCE


def _lines(fail: dict[str, Any]) -> list[list[str]]:
    """Return the names of a set together, but each slot of a semaphore by itself."""
    return [[slot] for slot in fail["n"]] if fail.get("m") else [fail["n"]]


def _in_line(fail: dict[str, Any], names: list[str], holds: dict[str, list[Hold]]) -> bool:
    """Return True if a few holders had the lock for nearly the whole wait."""
    begin, end = fail["a"], fail["t"]
    before = [
        (hold.got, max(hold.until, hold.kept))
        for name in names
        for hold in holds.get(name, ())
        if hold.got < end and max(hold.until, hold.kept) > begin
    ]
    held = Intervals(before)
    if held.seconds(begin, end) < (1 - IDLE) * (end - begin) / NANO or len(before) > IN_LINE:
        return False
    return all(
        held.touch(at, at + GAP)
        for at in (begin, *(until + 1 for _, until in before))
        if at + GAP < end
    )


def _needless_losses(
    judgement: Judgement, record: Record, unwell: Intervals, deleted: dict[tuple[str, str], int]
) -> None:
    """While a majority is well, a lease is lost for the documented reasons only."""
    for hold in record.holds:
        at = hold.lost or hold.gone
        if at is None:
            continue
        since = hold.got - int(record.ttl * NANO)
        words = f"{', '.join(hold.names)}: {who(hold)}: {hold.why or 'gone at its release'}"
        if any(deleted.get((name, hold.token), at + 1) <= at for name in hold.names):
            judgement.beyond.append(Finding("lost: its keys were deleted", at, words))
        elif record.stood_still(hold.process, max(hold.got, at - int(record.ttl * NANO)), at):
            judgement.beyond.append(Finding("lost: its process stood still", at, words))
        elif unwell.touch(since, at):
            judgement.beyond.append(Finding("lost: no majority was well", at, words))
        elif _rival_kept_nodes(record, hold, at):
            judgement.beyond.append(
                Finding(
                    "lost: a rival's fence kept nodes from it, and then others were impaired",
                    at,
                    words,
                )
            )
        elif _forgot(record, hold, at):
            judgement.beyond.append(
                Finding("lost: nodes forgot, one soon after the other", at, words)
            )
        elif record.lacks_majority(
            _impaired(record, hold.got - ASKED, hold.got)
            | _impaired(record, at - int(record.ttl * NANO), at)
        ):
            judgement.beyond.append(
                Finding("lost: granted without nodes, and then others were impaired", at, words)
            )
        else:
            judgement.violations.append(Finding("lost needlessly", at, words))


def _rival_kept_nodes(record: Record, hold: Hold, at: int) -> bool:
    """True if a rival asked beside this lease, which never had all nodes, and too few are left
    without impaired ones.

    A node that granted the rival keeps the rival's higher fence. It may not take the key of this
    lease then (DESIGN.md 4), although the rival has released its own.
    """
    if not hold.most or hold.most == record.nodes:
        return False
    if hold.most - len(_impaired(record, hold.said - ASKED, at)) > record.minority:
        return False
    asked = [
        (other.process, other.names, other.asked, other.got)
        for other in record.holds
        if other is not hold
    ]
    asked += [
        (line["p"], line["n"], line["a"], line["t"])
        for line in (*record.fails, *record.cut, *record.amid)
    ]
    return any(
        set(names) & set(hold.names) and begin < hold.got and end > hold.asked
        for process, names, begin, end in asked
        if process != hold.process
    )


def _forgot(record: Record, hold: Hold, at: int) -> bool:
    """Return True if a node forgot while others were impaired: no majority kept the lease."""
    lately = _faults(record, hold.got - int(record.ttl * NANO), at)
    if (
        not any(fault["k"] in FORGETTING for fault in lately)
        or len({node for fault in lately for node in fault["n"]}) < 2
    ):
        return False
    return (
        not hold.votes
        or hold.votes - len(_impaired(record, hold.said - ASKED, at)) <= record.minority
    )


def _leftovers(judgement: Judgement, record: Record) -> None:
    """No key is left while all clients rest, and no key lives longer than a lease."""
    asked = [(hold.names, hold.min_hold > 0) for hold in record.holds]
    asked += [(line["n"], "h" in line) for line in (*record.fails, *record.cut, *record.amid)]
    min_held = {name for names, kept in asked if kept for name in names}
    kept = kept_keys(record)
    for line in record.leftovers:
        for key, left, token in line["keys"]:
            if kept(line, key, left, token):
                continue
            judgement.violations.append(
                Finding("key left behind", line["t"], f"node {line['n']}: {key} {token}, {left} ms")
            )
    for line in record.looks:
        for key, left, token in line["keys"]:
            if token.startswith(OFFER[: len(token)]) and left <= LONGEST_OFFER:
                # Nobody holds it: it is kept for a set of names that waits.
                continue
            if key in min_held and 0 <= left <= record.life * 1000 + 1:
                continue
            judgement.violations.append(
                Finding("endless key", line["t"], f"node {line['n']}: {key} {token}, {left} ms")
            )
