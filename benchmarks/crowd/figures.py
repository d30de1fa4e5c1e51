"""Compute the figures of a crowd from the reports of its processes, with pure functions."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "Figures",
    "Hold",
    "Process",
    "crowd",
    "gaps",
    "longest_gap",
    "most_inside",
    "reached",
    "switches",
    "wire_only",
]

Hold = tuple[float, float]
"""The times at which a process got the lock and began to release it."""


class Process(TypedDict):
    """The report of one process about its window.

    Attributes:
        seconds: Length of the window.
        acquired: Acquisitions in the window.
        acquired_in_all: Acquisitions in the window, before it and after it.
        longest_wait: Longest wait in seconds. An unfinished wait at the end counts too.
        leases: Granted leases, counted by the library.
        attempts: Attempts, counted by the library.
        replies: Replies that the process has read. Each command has one reply.
        pushes: Messages that are not replies.
        handoff: Seconds from a release to the next acquisition in the process, p50, or None.
        errors: Acquisitions and releases that failed.
    """

    seconds: float
    acquired: int
    acquired_in_all: int
    longest_wait: float
    leases: int
    attempts: int
    replies: int
    pushes: int
    handoff: float | None
    errors: int


class Figures(TypedDict):
    """The figures of a crowd.

    Attributes:
        rate: Acquisitions per second of all processes.
        attempts: Attempts per acquisition.
        commands: Commands per acquisition and node that answers.
        pushes: Pushes per acquisition and node that answers.
        share_least: Acquisitions of the slowest process, divided by the mean.
        share_most: Acquisitions of the fastest process, divided by the mean.
        wait: The longest wait in seconds.
        wait_rounds: The longest wait in rounds. In a round each waiter could be served once.
        handoff: Seconds, p50. None with several processes, because a process sees its own
            hand-overs only.
        errors: Acquisitions and releases that failed.
    """

    rate: float
    attempts: float | None
    commands: float | None
    pushes: float | None
    share_least: float
    share_most: float
    wait: float
    wait_rounds: float
    handoff: float | None
    errors: int


# Scripts cannot call these commands, so each call came over the wire.
_WIRE_ONLY = {
    "eval",
    "evalsha",
    "eval_ro",
    "evalsha_ro",
    "fcall",
    "fcall_ro",
    "subscribe",
    "unsubscribe",
    "hello",
    "multi",
}


def wire_only(commandstats: str) -> int:
    """Return the number of commands that certainly came over the wire.

    The argument is a server's `INFO commandstats`. A server also counts the commands that scripts
    call. So its count of `get` or `publish` cannot be used.
    """
    total = 0
    for line in commandstats.splitlines():
        name, found, rest = line.partition(":calls=")
        name = name.removeprefix("cmdstat_")
        if found and (name in _WIRE_ONLY or name.startswith("client|")):
            total += int(rest.partition(",")[0])
    return total


def crowd(processes: Sequence[Process], waiters: int, nodes: int, served: int) -> Figures:
    """Return the figures of a crowd.

    Args:
        processes: The report of each process.
        waiters: Waiting tasks of each process.
        nodes: Number of nodes that answered.
        served: Commands on the wire for all acquisitions, counted by the servers. This count
            misses commands that scripts call too. The count of the processes misses commands
            without a reply. The larger count is used.
    """
    acquired = [process["acquired"] for process in processes]
    total, in_all = sum(acquired), sum(process["acquired_in_all"] for process in processes)
    leases = sum(process["leases"] for process in processes)
    rate = sum(process["acquired"] / process["seconds"] for process in processes)
    wait = max(process["longest_wait"] for process in processes)
    fair = total / len(processes)
    return {
        "rate": rate,
        "attempts": sum(process["attempts"] for process in processes) / leases if leases else None,
        "commands": max(sum(process["replies"] for process in processes) / total, served / in_all)
        / nodes
        if total
        else None,
        "pushes": sum(process["pushes"] for process in processes) / total / nodes
        if total
        else None,
        "share_least": min(acquired) / fair if total else 0.0,
        "share_most": max(acquired) / fair if total else 0.0,
        "wait": wait,
        "wait_rounds": wait * rate / (len(processes) * waiters),
        "handoff": processes[0]["handoff"] if len(processes) == 1 else None,
        "errors": sum(process["errors"] for process in processes),
    }


def gaps(holds: Iterable[Hold], since: float, until: float) -> list[float]:
    """Return the lengths of the periods without a holder between two times, in order."""
    found = []
    free = since
    for got, left in sorted(holds):
        if got >= until:
            break
        if got > free:
            found.append(got - free)
        free = max(free, left)
    if until > free:
        found.append(until - free)
    return found


def longest_gap(holds: Iterable[Hold], since: float, until: float) -> float:
    """Return the longest of `gaps`, 0 if there is none."""
    return max(gaps(holds, since, until), default=0.0)


def most_inside(holds: Iterable[Hold]) -> int:
    """Return the largest number of holds at the same time.

    A hold that ends when another begins does not overlap with it.
    """
    changes = sorted(change for got, left in holds for change in ((got, 1), (left, -1)))
    inside = most = 0
    for _, change in changes:
        inside += change
        most = max(most, inside)
    return most


def reached(holds: Iterable[Hold], count: int, since: float) -> float | None:
    """Return the seconds from `since` until `count` holds overlap for the first time.

    Return None if so many holds never overlap.
    """
    # At equal times an end comes first, as in `most_inside`.
    changes = sorted(change for got, left in holds for change in ((got, 1), (left, -1)))
    inside = 0
    for at, change in changes:
        inside += change
        if change > 0 and inside >= count and at >= since:
            return at - since
    return None


def switches(traces: Mapping[int, Iterable[Hold]], since: float) -> list[float]:
    """Return the seconds from each release to an acquisition by another process.

    Args:
        traces: The holds of each process.
        since: Releases of holds that began earlier do not count.
    """
    merged = sorted(
        (got, left, process) for process, holds in traces.items() for got, left in holds
    )
    return [
        after[0] - before[1]
        for before, after in pairwise(merged)
        if before[2] != after[2] and before[0] >= since
    ]
