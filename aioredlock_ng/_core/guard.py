"""What to do about nodes that may have forgotten locks, by what their markers say; it reads no clock and asks nobody.

A node that lost its memory would grant again what it forgot. So each node carries a marker that names the server process
whose memory it vouches for (`marker.lua`). A node without one, or with another process's, is quarantined: it gets a
marker with a ready time, the guard time from now, by which every lock that it may have forgotten is over.

Only a set of which *all* nodes answer and none carries a marker is new, and need not wait. Many processes open a new set
at one moment, some before the last server is up, so *new* is a state on the nodes: *founding*. Who has read all nodes as
founding within a second promotes each of them, if it still says the same (a nonce makes each founding its own).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha1
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FRESH", "NO_RUN_ID", "Reading", "Step", "Trust", "next_steps", "read_marker", "vouching"]

FRESH = 1.0
"""Seconds within which all nodes must have been read to promote them; marker.lua has the same bound for each write."""

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
    return raw if len(raw) == len(NO_RUN_ID) and raw.isalnum() else sha1(raw, usedforsecurity=False).hexdigest().encode()


class Trust(StrEnum):
    """What a marker says of its node."""

    NONE = "none"
    FOREIGN = "foreign"
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
        guard_ms: The guard time that it names, 0 for none.
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
class Step:
    """A marker to be written: `trust` in place of what was read, naming `guard_ms`."""

    trust: Trust
    guard_ms: int


def read_marker(marker: bytes, node_ms: int, vouch: bytes, at: float, answered: float) -> Reading:
    """What a node answered; `vouch` is the word that the connection put in: run_id and guard time."""
    run_id = vouch.partition(b":")[0]
    parts = marker.split(b":")
    if len(parts) not in (2, 3, 4) or not all(part.isdigit() for part in parts[1:3]):
        return Reading(Trust.FOREIGN if marker else Trust.NONE, marker, run_id, 0, 0, node_ms, at, answered)
    guard_ms, ready_ms = int(parts[1]), int(parts[2]) if len(parts) > 2 else 0
    if run_id == NO_RUN_ID:
        run_id = parts[0]
    trust = (Trust.TRUSTED, Trust.WAITING, Trust.FOUNDING)[len(parts) - 2] if parts[0] == run_id else Trust.FOREIGN
    return Reading(trust, marker, run_id, guard_ms, ready_ms, node_ms, at, answered)


def next_steps(
    readings: Sequence[Reading | None], guard_ms: int, now: float, *, strict: bool, known_ms: int = 0
) -> list[Step | None]:
    """What to write to each node, None for nothing.

    Args:
        readings: Per node; None where it did not answer.
        guard_ms: This manager's guard time: a shorter one is raised before it votes.
        now: The local instant.
        strict: Let a new set wait the guard time too.
        known_ms: The longest guard time that was ever read: nodes that named it may not answer now.
    """
    longest = max([guard_ms, known_ms, *(reading.guard_ms for reading in readings if reading is not None)])
    some_trusted = any(reading is not None and reading.trust is Trust.TRUSTED for reading in readings)
    is_new = not strict and all(
        reading is not None and reading.trust is Trust.FOUNDING and now - reading.at <= FRESH for reading in readings
    )
    return [None if r is None else _step(r, guard_ms, longest, now, some_trusted or strict, is_new) for r in readings]


def _step(reading: Reading, guard_ms: int, longest: int, now: float, must_wait: bool, is_new: bool) -> Step | None:
    match reading.trust:
        case Trust.NONE:
            return Step(Trust.WAITING if must_wait else Trust.FOUNDING, longest)
        case Trust.FOREIGN:
            return Step(Trust.WAITING, longest)
        case Trust.TRUSTED:
            return Step(Trust.TRUSTED, guard_ms) if reading.guard_ms < guard_ms else None
        case Trust.FOUNDING if is_new:
            return Step(Trust.TRUSTED, longest)
        case Trust.FOUNDING if reading.left(now) > 0.0:
            # Left as it is even if its guard time is too short for us: its promotion may be on its way.
            return None
        case _:
            if reading.guard_ms < guard_ms:
                return Step(Trust.WAITING, longest)
            return Step(Trust.TRUSTED, reading.guard_ms) if reading.left(now) == 0.0 else None
