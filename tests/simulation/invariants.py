"""What must always hold, as pure judgements over what was observed; `watch.py` observes.

Each returns what is wrong, in words, or "".
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "INVARIANTS",
    "Exclusion",
    "Fences",
    "Leftover",
    "Leftovers",
    "Stall",
    "Violation",
    "effort",
    "inside_lost",
    "lingering",
    "overdue",
    "overrun",
    "overtaken",
    "too_many",
    "too_soon",
]

INVARIANTS = {
    "exclusion": "no two leases of one resource are valid at one true time",
    "limit": "a semaphore has no more holders than the greatest limit in use",
    "fences": "fences strictly increase",
    "told": "who lost a lease is told by its deadline, or when the process goes on",
    "leftovers": "no key outlives its owner beyond the rules",
    "waiters": "nobody waits while the resource is free and a quorum is well",
    "order": "no waiter is overtaken for ever",
    "effort": "a calm crowd asks the nodes a bounded number of times",
    "timeout": "no acquisition takes longer than its blocking_timeout",
    "minority": "faults of a minority block nobody, and take no lease away",
    "callbacks": "no callback raises, no loop spins, everything ends",
}
"""Every invariant by name."""


@dataclass(frozen=True, slots=True)
class Violation:
    """What was found wrong, at which true time."""

    invariant: str
    at: float
    detail: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.invariant} violated at {self.at:.6f} s: {self.detail} ({INVARIANTS[self.invariant]})"


class Exclusion:
    """No two valid leases of one resource."""

    @staticmethod
    def judge(leases: Iterable[tuple[str, frozenset[bytes], bool]]) -> str:
        """Of each lease: its name, its keys, and whether its holder takes it to be valid at this very moment."""
        holders: dict[bytes, str] = {}
        for name, keys, valid in leases:
            if not valid:
                continue
            for key in keys:
                if key in holders:
                    return f"{key.decode()} is held by {holders[key]} and by {name}"
                holders[key] = name
        return ""


def too_many(holders: Iterable[tuple[str, bytes, bool]], limits: Mapping[bytes, int]) -> str:
    """A semaphore has more holders than slots.

    Args:
        holders: Of each lease: its name, the name of its semaphore, and whether its holder takes it to be valid.
        limits: The greatest limit in use of each semaphore.
    """
    within: defaultdict[bytes, list[str]] = defaultdict(list)
    for lease, semaphore, valid in holders:
        if valid:
            within[semaphore].append(lease)
    for semaphore, leases in within.items():
        if len(leases) > limits[semaphore]:
            return f"{semaphore.decode()} has a limit of {limits[semaphore]}, and is held by {', '.join(leases)}"
    return ""


class Fences:
    """Fences strictly increase.

    Args:
        order: "success": every lease has a higher fence than all that were granted before it. "interval": than all that
            were granted before its own attempt began, which is all that can be promised once keys vanish early.
    """

    def __init__(self, order: Literal["success", "interval"]) -> None:
        self.order = order
        self._granted: defaultdict[bytes, list[tuple[float, int]]] = defaultdict(list)

    def granted(self, keys: Iterable[bytes], fence: int, began: float, at: float) -> str:
        """A lease was granted at `at`, by an attempt that began at `began`."""
        wrong = ""
        for key in keys:
            for earlier_at, earlier in self._granted[key]:
                before = earlier_at <= at if self.order == "success" else earlier_at < began
                if (before and fence <= earlier) or fence == earlier:
                    wrong = f"{key.decode()}: fence {fence} at {at:.6f} after {earlier} at {earlier_at:.6f}"
            self._granted[key].append((at, fence))
        return wrong


def overdue(name: str, late: float, tolerance: float) -> str:
    """A lease still counts as held `late` seconds after its deadline, while its process was running."""
    return f"{name} was not told {late:.3f} s after its deadline" if late > tolerance else ""


def inside_lost(name: str, since: float, tolerance: float) -> str:
    """A body goes on `since` seconds after its lease was lost."""
    return f"the body of {name} goes on {since:.3f} s after the loss" if since > tolerance else ""


def overrun(name: str, took: float, allowed: float, tolerance: float) -> str:
    """An acquisition took `took` seconds of its process's running time."""
    return f"{name} took {took:.3f} s, {allowed:.3f} s were allowed" if took > allowed + tolerance else ""


def too_soon(name: str, left: float) -> str:
    """A lease was lost for its max_hold while `left` seconds of that were left."""
    return f"{name} was lost for its max_hold {left:.3f} s before that was over" if left > 0.0 else ""


def lingering(node: str, key: bytes, member: bytes, since: float, allowed: float) -> str:
    """Somebody stands in a queue `since` seconds after it should have left."""
    who = f"{node} still has {member.decode()} in the queue of {key.decode()}"
    return f"{who}, {since:.3f} s after it stopped to wait" if since > allowed else ""


def overtaken(name: str, times: int, waiters: int) -> str:
    """A waiter stands in the queues while others got `times` grants that they asked for later.

    Those before it come once, and those that let a turn lapse once more, with the ticket that they had. A first attempt
    that finds the key free, between two offers, comes besides.
    """
    most = 2 * waiters + 8
    return f"{name} was overtaken {times} times, beside {waiters} that waited" if times > most else ""


def effort(acquired: int, attempts: int, commands: float) -> str:
    """A crowd in which nothing failed took `attempts`, and `commands` per node.

    An acquisition is refused once, stands, and is granted. Its commands are two attempts, the release of the first one, two
    looks and the release, and with fences and in a line of a process one more each.
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
    """A key whose token nobody holds or asks for any more.

    Attributes:
        since: True time from when on it should have been on its way out: owner gone, and everything well.
        soon: Seconds that a release may take from then on; None: only expiry is promised.
        allowed: Seconds that it may live at most.
    """

    node: str
    key: bytes
    token: bytes
    since: float
    soon: float | None
    allowed: float


class Leftovers:
    """No key outlives its owner beyond the rules."""

    @staticmethod
    def judge(now: float, left: Iterable[Leftover]) -> str:
        """Each time the world is looked at."""
        for key in left:
            age = now - key.since
            if age > (key.allowed if key.soon is None else min(key.soon, key.allowed)):
                rule = "its expiry" if key.soon is None else "its release"
                return f"{key.node} still has {key.key.decode()} of {key.token[:6].decode()}, {age:.3f} s after {rule} was due"
        return ""


class Stall:
    """Somebody waits for what is free.

    Attributes:
        longest: Seconds for which somebody has.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[bytes, ...], float] = {}
        self.longest = 0.0

    def judge(self, now: float, bound: float, waited_for: Sequence[tuple[bytes, ...]], excused: set[tuple[bytes, ...]]) -> str:
        """Each time the world is looked at.

        Args:
            now: True time.
            bound: Seconds that a free resource may be waited for.
            waited_for: What somebody waits for who could ask a quorum.
            excused: What is held, or was granted since the last look.
        """
        since = {keys: self._since.get(keys, now) for keys in waited_for if keys not in excused}
        self._since = since
        for keys, began in since.items():
            self.longest = max(self.longest, now - began)
            if now - began > bound:
                return f"{b' '.join(keys).decode()} has been free and waited for since {began:.3f}, {now - began:.3f} s"
        return ""
