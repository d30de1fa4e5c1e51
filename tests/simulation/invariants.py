"""The invariants, as pure judgements of observations. `watch.py` observes.

Each judgement returns what is wrong, in words, or "".
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
]

INVARIANTS = {
    "exclusion": (
        "no two leases of one resource are valid at the same true time, but those of readers"
    ),
    "kept": "no client is granted a lock before a min_hold of it has ended",
    "limit": "a semaphore has no more holders than the greatest limit in use",
    "fences": "fences strictly increase",
    "told": "a holder is notified of a loss by its deadline, or when its process runs again",
    "stalled": (
        "a loop of callers that stands still loses its leases at stall_limit, and not before"
    ),
    "terms": "the body of a leader has ended step_down seconds before its lease",
    "leftovers": "no key outlives its owner for longer than promised",
    "waiters": "no task waits for a free resource while a quorum is well",
    "order": "no waiter is overtaken for ever",
    "effort": "a calm crowd asks the nodes a bounded number of times",
    "timeout": "no acquisition takes longer than its blocking_timeout",
    "minority": "faults of a minority stop no client, and end no lease",
    "callbacks": "no callback raises, no loop spins, and every task ends",
}
"""Every invariant by name."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant, and the true time of the observation."""

    invariant: str
    at: float
    detail: str

    def __str__(self) -> str:
        """One line."""
        promise = INVARIANTS[self.invariant]
        return f"{self.invariant} violated at {self.at:.6f} s: {self.detail} ({promise})"


MOST_TURNS = 4
"""Turns of the other side that a reader or a writer waits for at most.

The rule is one. Another one may have been requested in the instant in which the waiter took its
place, and the waiter may let one offer lapse. The offer to a waiter before it may lapse, too, if
that waiter is cut off from a node.
"""

MOST_TURNS_FAR = 5
"""The same across continents, where the life of an offer is hardly more than two round trips.

One late message makes an offer lapse there.
"""


class Exclusion:
    """Judges that no two leases of one resource are valid, unless both are to read."""

    @staticmethod
    def judge(leases: Iterable[tuple[str, frozenset[bytes], bool, bool]]) -> str:
        """Return what is wrong now.

        Args:
            leases: The name and the keys of each lease. Then True if it is valid by its holder's
                clock, and True if it is to read.
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
    """Return what is wrong if a semaphore has more holders than slots.

    Args:
        holders: The name of each lease, its semaphore, and True if it is valid by its holder's
            clock.
        limits: The greatest limit in use of each semaphore.
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
    """Judges that fences strictly increase.

    The fence of a reader is at least that of the last writer, and below that of the next.

    Args:
        order: "success": a fence is above those of all leases that were granted before. "interval":
            it is above those of all leases that were granted before its own attempt began. Once
            keys vanish early, the library promises no more.
    """

    def __init__(self, order: Literal["success", "interval"]) -> None:
        self.order = order
        self._granted: defaultdict[bytes, list[tuple[float, int, bool]]] = defaultdict(list)

    def granted(
        self, keys: Iterable[bytes], fence: int, began: float, at: float, *, reads: bool = False
    ) -> str:
        """Return what is wrong with a lease granted at `at` by an attempt begun at `began`."""
        wrong = ""
        for key in keys:
            for earlier_at, earlier, read in self._granted[key]:
                # Readers that ask at the same time may see different versions.
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
    """Return what is wrong if a lease is held `late` seconds after its deadline by a running
    process.
    """
    return f"{name} was not told {late:.3f} s after its deadline" if late > tolerance else ""


def inside_lost(name: str, since: float, tolerance: float) -> str:
    """Return what is wrong if a body goes on `since` seconds after its lease was lost."""
    return f"the body of {name} goes on {since:.3f} s after the loss" if since > tolerance else ""


def overled(name: str, late: float, tolerance: float) -> str:
    """Return what is wrong if a leader works on `late` seconds after its step-down."""
    return (
        f"the leader of {name} goes on {late:.3f} s after its step_down" if late > tolerance else ""
    )


def overrun(name: str, took: float, allowed: float, tolerance: float) -> str:
    """Return what is wrong if an acquisition took `took` seconds of its process's running time."""
    return (
        f"{name} took {took:.3f} s, {allowed:.3f} s were allowed"
        if took > allowed + tolerance
        else ""
    )


def too_early(name: str, key: bytes, early: float) -> str:
    """Return what is wrong if a lease is granted `early` seconds before a `min_hold` of its key
    ends.
    """
    return (
        f"{name} was granted {key.decode()} {early:.3f} s before the end of a min_hold"
        if early > 0.0
        else ""
    )


def too_soon(name: str, left: float) -> str:
    """Return what is wrong if `left` seconds of the max_hold remained at the loss for it."""
    return (
        f"{name} was lost for its max_hold {left:.3f} s before that was over" if left > 0.0 else ""
    )


def too_impatient(name: str, stood: float, limit: float | None, tolerance: float) -> str:
    """Return what is wrong with a loss by `stall_limit` after the holder's loop had stood still for
    `stood` seconds.
    """
    allowed = "no stall_limit was set" if limit is None else f"the stall_limit is {limit:.3f} s"
    early = limit is None or stood < limit - tolerance
    return (
        f"{name} was lost because its loop stood still for {stood:.3f} s, and {allowed}"
        if early
        else ""
    )


def too_patient(name: str, stood: float, limit: float, tolerance: float) -> str:
    """Return what is wrong if a lease is held while the holder's loop has stood still for `stood`
    seconds.

    The engine looks at the loop four times per `limit`, and at least once per second.
    """
    late = stood > limit + min(limit / 4, 1.0) + tolerance
    return f"{name} is held although its loop has stood still for {stood:.3f} s" if late else ""


def lingering(node: str, key: bytes, member: bytes, since: float, allowed: float) -> str:
    """Return what is wrong if a waiter is in a queue `since` seconds after it stopped to wait."""
    who = f"{node} still has {member.decode()} in the queue of {key.decode()}"
    return f"{who}, {since:.3f} s after it stopped to wait" if since > allowed else ""


def overtaken(name: str, times: int, waiters: int, *, deaf: bool = False) -> str:
    """Return what is wrong if `times` grants that were asked for later came before a waiter.

    Each other waiter may be served once, and once more with its old ticket if it let an offer
    lapse. A first attempt may find the key free between two offers.

    If `deaf` is True, a node sends no messages to the waiter. The waiter then learns of its offers
    on this node by its refreshes only, and may itself let two of them lapse.
    """
    most = (4 if deaf else 2) * waiters + 8
    return (
        f"{name} was overtaken {times} times, beside {waiters} that waited" if times > most else ""
    )


def out_of_turn(name: str, turns: int, most: int = MOST_TURNS) -> str:
    """Return what is wrong if a waiter waits for so many turns of the other side.

    A reader counts the writers that enter. A writer counts how often one process enters to read.
    """
    return f"{name} waited for {turns} turns of the other side" if turns > most else ""


def effort(acquired: int, attempts: int, commands: float) -> str:
    """Return what is wrong if a crowd without faults took so many attempts, and commands per node.

    An acquisition is refused once, waits in the queue, and is granted. Its commands are two
    attempts, the release of the first one, two looks and the release. Fences and a line in the
    process add one each.
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
        since: True time from which the key should go: its owner is gone, and all is well.
        soon: Seconds that its release may take from then on. None: only its expiry is promised.
        allowed: Seconds that the key may live at most.
    """

    node: str
    key: bytes
    token: bytes
    since: float
    soon: float | None
    allowed: float


class Leftovers:
    """Judges that no key outlives its owner for longer than promised."""

    @staticmethod
    def judge(now: float, left: Iterable[Leftover]) -> str:
        """Return what is wrong with the keys that are left now."""
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
    """Judges how long a task waits for a free resource.

    Attributes:
        longest: Seconds of the longest wait of this kind.
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
        """Return what is wrong with the waits now.

        Args:
            now: True time.
            bound: Seconds that a task may wait for a free resource.
            waited_for: The keys of each waiter that could ask a quorum.
            excused: Keys that are held, or were granted since the last observation.
        """
        since = {keys: self._since.get(keys, now) for keys in waited_for if keys not in excused}
        self._since = since
        for keys, began in since.items():
            self.longest = max(self.longest, now - began)
            if now - began > bound:
                return (
                    f"{b' '.join(keys).decode()} has been free and waited for"
                    f" since {began:.3f}, {now - began:.3f} s"
                )
        return ""
