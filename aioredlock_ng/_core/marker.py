"""The marker of a node: the run id of a server process, a guard time, and a state.

See `guard.py` for its purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha1

__all__ = ["LONGEST_MS", "NO_RUN_ID", "Reading", "Trust", "read_marker", "vouching"]

LONGEST_MS = 86_401_000
"""The longest guard time that a marker may name, in milliseconds.

It is the longest `max_ttl`, a day, and a margin of a second.

A longer guard time is damage. A process would copy it to nodes that lost their memory, and they
could not vote for that time.
"""

_MOST_DIGITS = 16
"""Digits that a number in a marker may have. Python refuses to convert thousands of digits."""

NO_RUN_ID = b"0" * 40
"""Placeholder for the run id of a server that hides it.

Loss of all data is still detected. A restored old snapshot is not.

One client may have the right to read the run id, another may not. The second client accepts a
marker of any process, and keeps the process's name in the markers that it writes. Otherwise both
clients would treat each other's markers as foreign, and neither would ever be granted a lock.
"""


def vouching(run_id: str) -> bytes:
    """Return the 40 characters by which markers name a server process."""
    if not run_id:
        return NO_RUN_ID
    raw = run_id.encode()
    return (
        raw
        if len(raw) == len(NO_RUN_ID) and raw.isalnum()
        else sha1(raw, usedforsecurity=False).hexdigest().encode()
    )


class Trust(StrEnum):
    """The state of a node by its marker."""

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
        trust: The state of the process behind that connection.
        marker: The marker itself, b"" for none.
        run_id: The run id of that process. If the server hides it, the run id in the marker.
        guard_ms: The guard time in the marker. 0 for none, or for a guard time above `LONGEST_MS`.
        ready_ms: The node's time at which it may be trusted. 0 unless it waits or is founding.
        node_ms: The node's time when the marker was read.
        at: The local instant at which reading began. The node read the marker at this instant or
            later.
        answered: The local instant of the answer. The node read the marker at this instant or
            earlier.
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
        """Return the seconds until the node may be trusted."""
        return max(0.0, (self.ready_ms - self.node_ms) / 1000 - (now - self.answered))


def read_marker(marker: bytes, node_ms: int, vouch: bytes, at: float, answered: float) -> Reading:
    """Read the marker that a node returned.

    Args:
        marker: The marker, b"" for none.
        node_ms: The node's time.
        vouch: The run id and the guard time that the connection sent.
        at: The local instant at which reading began.
        answered: The local instant of the answer.
    """
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
