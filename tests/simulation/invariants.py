"""The invariants, as pure functions of observations.

`watch.py` makes the observations. Each function describes a violation in words, or returns an empty
text.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "INVARIANTS",
    "MOST_TURNS",
    "MOST_TURNS_FAR",
    "Exclusion",
    "Fences",
    "Leftover",
    "Leftovers",
    "Stall",
    "Violation",
    "effort",
    "guarded_too_short",
    "impatient",
    "inside_lost",
    "lingering",
    "out_of_turn",
    "overdue",
    "overled",
    "overrun",
    "overtaken",
    "too_early",
    "too_impatient",
    "too_many",
    "too_patient",
    "too_soon",
    "unbacked",
]

INVARIANTS = {
    "exclusion": "no two leases of one resource are valid at the same time, except read leases",
    "backed": "a quorum of nodes keeps the keys of each lease until its deadline",
    "guard": "a node that forgot locks grants none before the keys of these locks would expire",
    "tokens": "each attempt has a fresh token, and no node gets it twice",
    "kept": "no lock is granted before the min_hold of an earlier lease has ended",
    "limit": "a semaphore has no more holders than the greatest limit in use",
    "fences": "the fences of each name strictly increase",
    "notified": ("a holder is notified of a loss by the deadline, or when its process runs again"),
    "stalled": (
        "if the event loop of a holder stands still, its leases are lost at the stall_limit,"
        " and not before"
    ),
    "terms": "the body of a leader ends step_down seconds before its lease",
    "leftovers": "no key and no queue entry outlives its owner for longer than promised",
    "waiters": "no task waits for a free lock for long while a majority has no fault",
    "order": "only a bounded number of later requests is granted before a waiter",
    "effort": "without faults, the number of commands for each acquisition is bounded",
    "timeout": "no acquisition takes longer than its blocking_timeout, or gives up earlier",
    "minority": "faults of a minority of the nodes stop no client, and end no lease",
    "callbacks": "no callback raises an error, no event loop spins, and every task ends",
}
"""Name and promise of each invariant."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant, with the true time of the observation."""

    invariant: str
    at: float
    detail: str

    def __str__(self) -> str:
        """Return the violation as one line of text."""
        promise = INVARIANTS[self.invariant]
        return f"{self.invariant} violated at {self.at:.6f} s: {self.detail} ({promise})"


MOST_TURNS = 4
"""Largest number of grants to the other side that a reader or a writer may wait for.

The library itself allows one. Another one may have been requested at the instant at which the
waiter took its place. The waiter may let one offer expire. The offer to an earlier waiter may
expire too, if the earlier waiter is cut off from a node.
"""

MOST_TURNS_FAR = 5
"""The same number for nodes on different continents.

Between continents an offer lives for hardly more than two round trips, so one late message makes
the offer expire.
"""


class Exclusion:
    """Checks that no two leases of one resource are valid, unless both are read leases."""

    @staticmethod
    def judge(leases: Iterable[tuple[str, frozenset[bytes], bool, bool]]) -> str:
        """Describe the violation if two of these leases exclude each other.

        Args:
            leases: For each lease its name and its keys, True if the lease is valid by its holder's
                clock, and True if it is a read lease.
        """
        holders: dict[bytes, tuple[str, bool]] = {}
        for name, keys, valid, reads in leases:
            if not valid:
                continue
            for key in keys:
                other, beside = holders.setdefault(key, (name, True))
                if other != name and not (reads and beside):
                    return f"{key.decode()} is held by {other} and by {name}"
                holders[key] = name, reads
        return ""


def too_many(holders: Iterable[tuple[str, bytes, bool]], limits: Mapping[bytes, int]) -> str:
    """Describe the violation if a semaphore has more holders than slots.

    Args:
        holders: For each lease its name, its semaphore, and True if the lease is valid by its
            holder's clock.
        limits: Greatest limit in use, for each semaphore.
    """
    within: defaultdict[bytes, list[str]] = defaultdict(list)
    for lease, semaphore, valid in holders:
        if valid:
            within[semaphore].append(lease)
    for semaphore, leases in within.items():
        if len(leases) > limits[semaphore]:
            name, limit = semaphore.decode(), limits[semaphore]
            return f"{name} has a limit of {limit}, and is held by {', '.join(leases)}"
    return ""


class Fences:
    """Checks that fences strictly increase.

    The fence of a reader is at least the fence of each earlier writer, and below the fence of each
    later writer.

    Args:
        order: "success" compares a fence with all leases that were granted before. "interval"
            compares it with all leases that were granted before its own attempt began. The library
            promises only the second order once keys may vanish early.
    """

    def __init__(self, order: Literal["success", "interval"]) -> None:
        self.order = order
        self._granted: defaultdict[bytes, list[tuple[float, int, bool]]] = defaultdict(list)

    def granted(
        self, keys: Iterable[bytes], fence: int, began: float, at: float, *, reads: bool = False
    ) -> str:
        """Record a lease, and describe the violation if its fence breaks the order.

        The lease was granted at `at` by an attempt that began at `began`.
        """
        wrong = ""
        for key in keys:
            for earlier_at, earlier, read in self._granted[key]:
                # Two readers whose attempts overlap may get different versions in any order.
                whole = self.order == "success" and not (reads and read)
                before = earlier_at <= at if whole else earlier_at < began
                unique = not reads and not read
                if (before and (fence < earlier if reads else fence <= earlier)) or (
                    unique and fence == earlier
                ):
                    what = "version" if reads else "fence"
                    wrong = (
                        f"{key.decode()}: {what} {fence} at {at:.6f}"
                        f" after {earlier} at {earlier_at:.6f}"
                    )
            self._granted[key].append((at, fence, reads))
        return wrong


def overdue(name: str, late: float, tolerance: float) -> str:
    """Describe the violation if a lease still counts as held in a running process `late` seconds
    after its deadline.
    """
    return f"{name} is still held {late:.3f} s after its deadline" if late > tolerance else ""


def inside_lost(name: str, since: float, tolerance: float) -> str:
    """Describe the violation if a body goes on `since` seconds after the loss of its lease."""
    return f"the body of {name} goes on {since:.3f} s after the loss" if since > tolerance else ""


def overled(name: str, late: float, tolerance: float) -> str:
    """Describe the violation if the body of a leader goes on `late` seconds after the beginning of
    `step_down`.
    """
    return (
        f"the leader of {name} goes on {late:.3f} s after its step_down" if late > tolerance else ""
    )


def overrun(name: str, took: float, allowed: float, tolerance: float) -> str:
    """Describe the violation if an acquisition took more than `allowed` seconds.

    Only the time in which its process ran is counted.
    """
    return (
        f"{name} took {took:.3f} s, which is more than {allowed:.3f} s"
        if took > allowed + tolerance
        else ""
    )


def impatient(name: str, waited: float, allowed: float, tolerance: float) -> str:
    """Describe the violation if an acquisition raised `AcquireTimeout` after `waited` seconds,
    although it was allowed to wait for `allowed` seconds.
    """
    return (
        f"{name} gave up after {waited:.3f} s, although it may wait for {allowed:.3f} s"
        if waited < allowed - tolerance
        else ""
    )


def guarded_too_short(node: str, early: float) -> str:
    """Describe the violation if a node that forgot locks is trusted `early` seconds before their
    keys would have expired.
    """
    return (
        f"{node} is trusted {early:.3f} s before keys that it forgot would have expired"
        if early > 0.0
        else ""
    )


def too_early(name: str, key: bytes, early: float) -> str:
    """Describe the violation if a lease was granted `early` seconds before a `min_hold` of its key
    ends.
    """
    return (
        f"{name} was granted {key.decode()} {early:.3f} s before the end of a min_hold"
        if early > 0.0
        else ""
    )


def unbacked(name: str, nodes: int, quorum: int) -> str:
    """Describe the violation if fewer nodes than a quorum keep the keys of a lease until its
    deadline.

    A node that has lost keys since the last renewal began counts as well, because no client can
    prevent that loss.
    """
    return (
        f"only {nodes} nodes keep the keys of {name} until its deadline" if nodes < quorum else ""
    )


def too_soon(name: str, left: float) -> str:
    """Describe the violation if a lease was lost by its `max_hold` while `left` seconds of the
    `max_hold` remained.
    """
    return f"{name} was lost by its max_hold, which had {left:.3f} s left" if left > 0.0 else ""


def too_impatient(name: str, stood: float, limit: float | None, tolerance: float) -> str:
    """Describe the violation if a lease was lost by `stall_limit` too early.

    The holder's loop had stood still for `stood` seconds. If `limit` is None, no `stall_limit` was
    set.
    """
    allowed = "no stall_limit was set" if limit is None else f"the stall_limit is {limit:.3f} s"
    early = limit is None or stood < limit - tolerance
    return (
        f"{name} was lost because its loop stood still for {stood:.3f} s, although {allowed}"
        if early
        else ""
    )


def too_patient(name: str, stood: float, limit: float, tolerance: float) -> str:
    """Describe the violation if a lease is still held after the holder's loop has stood still for
    `stood` seconds.

    The engine checks the loop four times per `limit`, and at least once per second.
    """
    late = stood > limit + min(limit / 4, 1.0) + tolerance
    return f"{name} is held although its loop has stood still for {stood:.3f} s" if late else ""


def lingering(node: str, key: bytes, member: bytes, since: float, allowed: float) -> str:
    """Describe the violation if a waiter is still in a queue `since` seconds after the end of its
    wait.
    """
    entry = f"{node} still has {member.decode()} in the queue of {key.decode()}"
    return f"{entry}, {since:.3f} s after the end of its wait" if since > allowed else ""


def overtaken(name: str, times: int, waiters: int, *, deaf: bool = False) -> str:
    """Describe the violation if `times` later requests were granted before a waiter.

    Each other waiter may be served once. A waiter that let an offer expire may be served once more
    with its old ticket. A first attempt may find the key free between two offers.

    If `deaf` is True, a node sends no messages to the waiter. The waiter then learns of its offers
    on this node by its refreshes only, and may itself let two of them expire.
    """
    most = (4 if deaf else 2) * waiters + 8
    return f"{name} was overtaken {times} times among {waiters} waiters" if times > most else ""


def out_of_turn(name: str, turns: int, most: int = MOST_TURNS) -> str:
    """Describe the violation if a waiter waits for more than `most` grants to the other side.

    The two sides are the readers and the writers of a lock. A reader counts the writers that enter.
    A writer counts how often one process enters to read.
    """
    return f"{name} waited for {turns} grants to the other side" if turns > most else ""


def effort(acquired: int, attempts: int, commands: float) -> str:
    """Describe the violation if a crowd without faults took too many attempts, or too many commands
    per node.

    Usually a first attempt is refused, its process waits in the queue, and a second attempt is
    granted. This takes two attempts, a release of the first one, two refreshes and a final release.
    Fences and a line in the process add one command each.
    """
    if not acquired:
        return ""
    if attempts > 2.5 * acquired + 20:
        return f"{attempts} attempts for {acquired} acquisitions"
    if commands > 8.0 * acquired + 50:
        return f"{commands:.0f} commands per node for {acquired} acquisitions"
    return ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A key whose token belongs to no lease and no attempt any more.

    Attributes:
        since: True time from which the time limits count: the owner is gone, and there is no fault.
        soon: Seconds from then on within which a release deletes the key. None if only the expiry
            of the key is promised.
        allowed: Seconds from then on after which the key has expired.
    """

    node: str
    key: bytes
    token: bytes
    since: float
    soon: float | None
    allowed: float


class Leftovers:
    """Checks that no key outlives its owner for longer than promised."""

    @staticmethod
    def judge(now: float, left: Iterable[Leftover]) -> str:
        """Describe the violation if one of the keys that are left now is too old."""
        for key in left:
            age = now - key.since
            if age > (key.allowed if key.soon is None else min(key.soon, key.allowed)):
                rule = "its expiry" if key.soon is None else "its release"
                return (
                    f"{key.node} still has {key.key.decode()} of {key.token[:6].decode()},"
                    f" {age:.3f} s after {rule} was due"
                )
        return ""


class Stall:
    """Checks how long tasks wait for a free resource.

    Attributes:
        longest: Longest wait so far, in seconds.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[bytes, ...], float] = {}
        self.longest = 0.0

    def judge(
        self,
        now: float,
        bound: float,
        waited_for: Sequence[tuple[bytes, ...]],
        excused: set[tuple[bytes, ...]],
    ) -> str:
        """Describe the violation if a task has waited for a free resource for too long.

        Args:
            now: True time.
            bound: Seconds for which a task may wait for a free resource.
            waited_for: Keys of each waiter that could reach a quorum.
            excused: Keys of waiters that may wait, for example because the keys are held.
        """
        since = {keys: self._since.get(keys, now) for keys in waited_for if keys not in excused}
        self._since = since
        for keys, began in since.items():
            self.longest = max(self.longest, now - began)
            if now - began > bound:
                return (
                    f"tasks have waited for the free {b' '.join(keys).decode()}"
                    f" since {began:.3f}, for {now - began:.3f} s"
                )
        return ""
