"""What to do about nodes that may have forgotten locks, by what their markers say; it reads no clock and asks nobody.

A node that lost its memory would grant again what it forgot. So each node carries a marker that names the server process
whose memory it vouches for (`marker.lua`). A node without one, or with another process's, is quarantined: it gets a
marker with a ready time, the guard time from now, by which every lock that it may have forgotten is over.

Only a set of which *all* nodes answer and none carries a marker is new, and need not wait. Many processes open a new set
at one moment, some before the last server is up, so *new* is a state on the nodes: *founding*. Who has read all nodes as
founding within a second promotes each of them, if it still says the same (a nonce makes each founding its own).

A set whose nodes all forgot looks new too. A manager that remembers a trusted marker from less than
the guard time ago knows better: it is a *witness*. A witness neither founds nor promotes. It lets a
founding set wait, and a node that another process has promoted since. After the guard time every
lock of before is over, and the memory counts no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha1
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "FRESH",
    "LONGEST_MS",
    "NO_RUN_ID",
    "Memory",
    "Reading",
    "Step",
    "Trust",
    "all_forgot",
    "new_set_words",
    "next_steps",
    "read_marker",
    "remembered",
    "vouching",
]

FRESH = 1.0
"""Seconds within which all nodes must have been read to promote them; marker.lua has the same bound for each write."""

LONGEST_MS = 86_401_000
"""The longest guard time that a marker may name, in milliseconds: the longest `max_ttl`, a day, and a
margin of a second.

A longer one is damage. Copied to the nodes that forget, it would keep each of them from voting for as
long as it says.
"""

_MOST_DIGITS = 16
"""Digits of a number in a marker that are read; Python refuses to convert thousands of them."""

NO_RUN_ID = b"0" * 40
"""Of a server that hides its own: an empty memory is noticed all the same, one that was restored is not.

A marker that names a process is right for who may not know which one it is, and goes on naming it. Else two clients, of
which one may know, would each take the other's marker for a foreign one, and neither would ever be granted a lock.
"""


def vouching(run_id: str) -> bytes:
    """The 40 characters by which markers name a server process."""
    if not run_id:
        return NO_RUN_ID
    raw = run_id.encode()
    return (
        raw
        if len(raw) == len(NO_RUN_ID) and raw.isalnum()
        else sha1(raw, usedforsecurity=False).hexdigest().encode()
    )


class Trust(StrEnum):
    """What a marker says of its node."""

    NONE = "none"
    FOREIGN = "foreign"
    EXCESSIVE = "excessive"
    WAITING = "waiting"
    FOUNDING = "founding"
    TRUSTED = "trusted"


@dataclass(frozen=True, slots=True)
class Reading:
    """One node's marker as read on one connection.

    Attributes:
        trust: What it says of the process behind that connection.
        marker: As it is, b"" for none.
        run_id: That process, as the connection knows it, or as the marker names it where that is hidden.
        guard_ms: The guard time that it names, 0 for none or for one above `LONGEST_MS`.
        ready_ms: The node's time at which it may be trusted; 0 but for waiting and founding.
        node_ms: The node's time when it was read.
        at: The local instant at which reading began: all was so at that instant or later.
        answered: The local instant of the answer: what is left was left at that instant or earlier.
    """

    trust: Trust
    marker: bytes
    run_id: bytes
    guard_ms: int
    ready_ms: int
    node_ms: int
    at: float
    answered: float

    def left(self, now: float) -> float:
        """Seconds until it may be trusted."""
        return max(0.0, (self.ready_ms - self.node_ms) / 1000 - (now - self.answered))


@dataclass(frozen=True, slots=True)
class Memory:
    """The last trusted marker that a manager has seen of one node.

    Attributes:
        run_id: The process that it named.
        at: The local instant at which it was last known to stand, or at which it was found to be
            gone. The node granted no lock later than that by this memory.
    """

    run_id: bytes
    at: float

    def contradicts(self, reading: Reading) -> bool:
        """True if the node has lost what it knew then."""
        return reading.trust is not Trust.TRUSTED or reading.run_id != self.run_id


@dataclass(frozen=True, slots=True)
class Step:
    """A marker to be written: `trust` in place of what was read, naming `guard_ms`."""

    trust: Trust
    guard_ms: int


def read_marker(marker: bytes, node_ms: int, vouch: bytes, at: float, answered: float) -> Reading:
    """What a node answered; `vouch` is the word that the connection put in: run_id and guard time."""
    run_id = vouch.partition(b":")[0]
    parts = marker.split(b":")
    readable = all(part.isdigit() and len(part) <= _MOST_DIGITS for part in parts[1:3])
    if len(parts) not in (2, 3, 4) or not readable:
        return Reading(
            Trust.FOREIGN if marker else Trust.NONE, marker, run_id, 0, 0, node_ms, at, answered
        )
    guard_ms, ready_ms = int(parts[1]), int(parts[2]) if len(parts) > 2 else 0
    if run_id == NO_RUN_ID:
        run_id = parts[0]
    if guard_ms > LONGEST_MS:
        return Reading(Trust.EXCESSIVE, marker, run_id, 0, 0, node_ms, at, answered)
    trust = (
        (Trust.TRUSTED, Trust.WAITING, Trust.FOUNDING)[len(parts) - 2]
        if parts[0] == run_id
        else Trust.FOREIGN
    )
    return Reading(trust, marker, run_id, guard_ms, ready_ms, node_ms, at, answered)


def remembered(
    memory: Memory | None, before: Reading | None, after: Reading | None, now: float, known_ms: int
) -> Memory | None:
    """Return what a manager remembers of a node once it has read `after` in place of `before`.

    A marker that stood until now may have let the node grant until now. So the memory counts from
    this instant.

    Args:
        memory: What it remembered so far.
        before: The last reading, None where there was none.
        after: The new one, None where the node did not answer.
        now: The local instant.
        known_ms: The longest guard time that was ever read.
    """
    if memory is not None and before is not None and not memory.contradicts(before):
        memory = Memory(memory.run_id, now)
    if after is None or after.trust is not Trust.TRUSTED:
        return memory
    # A node that waited was promoted by nobody. An operator may have lowered its guard time.
    waited = before is not None and before.trust is Trust.WAITING and before.run_id == after.run_id
    over = memory is None or now - memory.at > known_ms / 1000
    if memory is None or over or waited or not memory.contradicts(after):
        return Memory(after.run_id, now)
    return memory


def _losses(
    readings: Sequence[Reading | None],
    memories: Sequence[Memory | None],
    now: float,
    longest_ms: int,
) -> list[bool | None]:
    """Say of each node whether it has lost what is remembered of it; None where no memory counts."""
    return [
        None
        if memory is None or now - memory.at > longest_ms / 1000
        else reading is not None and memory.contradicts(reading)
        for reading, memory in zip(readings, memories, strict=True)
    ]


def all_forgot(
    readings: Sequence[Reading | None],
    memories: Sequence[Memory | None],
    now: float,
    known_ms: int,
) -> bool:
    """True if every node has answered, none is as it was, and a memory that counts says so."""
    losses = _losses(readings, memories, now, known_ms)
    return any(losses) and all(
        reading is not None and (lost or reading.trust is not Trust.TRUSTED)
        for reading, lost in zip(readings, losses, strict=True)
    )


def new_set_words(missing: Sequence[tuple[str, str]], left: float) -> str:
    """Say why a founding node does not vote yet.

    Args:
        missing: The nodes that do not answer: address, and why.
        left: Seconds until it votes all the same.
    """
    if not missing:
        return f"new set: the nodes vote when each is read as new, or in {left:.0f} s"
    named = " and ".join(f"{address} is up too ({why})" for address, why in missing)
    return f"new set: the nodes vote when {named}, or in {left:.0f} s"


def next_steps(
    readings: Sequence[Reading | None],
    guard_ms: int,
    now: float,
    *,
    strict: bool,
    known_ms: int = 0,
    memories: Sequence[Memory | None] | None = None,
) -> list[Step | None]:
    """What to write to each node, None for nothing.

    Args:
        readings: Per node; None where it did not answer.
        guard_ms: This manager's guard time: a shorter one is raised before it votes.
        now: The local instant.
        strict: Let a new set wait the guard time too.
        known_ms: The longest guard time that was ever read: nodes that named it may not answer now.
        memories: Per node; see `Memory`. None: this manager has seen no trusted marker.
    """
    known = [reading for reading in readings if reading is not None]
    longest = max([guard_ms, known_ms, *(reading.guard_ms for reading in known)])
    losses = _losses(readings, memories or [None] * len(readings), now, longest)
    is_witness = any(lost is not None for lost in losses)
    some_trusted = any(reading.trust is Trust.TRUSTED for reading in known)
    is_new = (
        not (strict or is_witness)
        and len(known) == len(readings)
        and all(r.trust is Trust.FOUNDING and now - r.at <= FRESH for r in known)
    )
    # The first nodes that a legitimate founder promotes are trusted beside founding ones.
    keeps_some = any(
        reading is not None and reading.trust is Trust.TRUSTED and not lost
        for reading, lost in zip(readings, losses, strict=True)
    )
    is_refounded = any(losses) and not keeps_some
    steps: list[Step | None] = []
    for reading, lost in zip(readings, losses, strict=True):
        if reading is None:
            steps.append(None)
        elif (lost and reading.trust in (Trust.TRUSTED, Trust.FOUNDING)) or (
            is_refounded and reading.trust is Trust.FOUNDING
        ):
            steps.append(Step(Trust.WAITING, longest))
        else:
            must_wait = strict or is_witness or some_trusted
            steps.append(_step(reading, guard_ms, longest, now, must_wait, is_new))
    return steps


def _step(
    reading: Reading, guard_ms: int, longest: int, now: float, must_wait: bool, is_new: bool
) -> Step | None:
    match reading.trust:
        case Trust.NONE:
            return Step(Trust.WAITING if must_wait else Trust.FOUNDING, longest)
        case Trust.FOREIGN | Trust.EXCESSIVE:
            return Step(Trust.WAITING, longest)
        case Trust.TRUSTED:
            return Step(Trust.TRUSTED, guard_ms) if reading.guard_ms < guard_ms else None
        case Trust.FOUNDING if is_new:
            return Step(Trust.TRUSTED, longest)
        case Trust.FOUNDING if reading.left(now) > 0.0:
            # Left as it is even if its guard time is too short for us: its promotion may be on its way.
            return None
        case _:
            # No writer sets a ready time that far ahead. The node's clock was set back, or the
            # marker is damaged.
            if (
                reading.guard_ms < guard_ms
                or reading.left(now) > reading.guard_ms / 1000 + 1.0 + FRESH
            ):
                return Step(Trust.WAITING, longest)
            return Step(Trust.TRUSTED, reading.guard_ms) if reading.left(now) == 0.0 else None
