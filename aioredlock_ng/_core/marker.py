"""The marker of a node: the run id of a server process, a guard time, and a state.

The file `recovery_guard.py` describes the purpose of markers. The guard time in a
marker is `max_ttl`. The guard time in the glossary is a second longer: the script `marker.lua` adds
this second to the ready time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha1

__all__ = ["LONGEST_MS", "NO_RUN_ID", "Reading", "Trust", "process_name", "read_marker"]

LONGEST_MS = 86_401_000
"""The longest guard time that a marker may name, in milliseconds.

The value is the longest `max_ttl`, a day, plus a margin of a second.

A longer guard time shows that the marker is damaged. If this guard time were accepted, a process
would copy it to nodes that lost their memory. These nodes would not vote until the guard time is
over.
"""

_MOST_DIGITS = 16
"""Largest number of digits of a number in a marker. A marker with a longer number counts as
foreign, because Python refuses to convert thousands of digits."""

NO_RUN_ID = b"0" * 40
"""Placeholder for the run id of a server that hides its run id.

With the placeholder, the guard detects the loss of all data, but not the restoration of an old
snapshot.

One client may have the right to read the run id while another client lacks it. The client without
the right accepts a marker of any process, and writes that process's name into its own markers.
Otherwise both clients would treat each other's markers as foreign, and neither would ever be
granted a lock.
"""


def process_name(run_id: str) -> bytes:
    """Return the 40 characters that stand for a server process in markers."""
    if not run_id:
        return NO_RUN_ID
    raw = run_id.encode()
    return (
        raw
        if len(raw) == len(NO_RUN_ID) and raw.isalnum()
        else sha1(raw, usedforsecurity=False).hexdigest().encode()
    )


class Trust(StrEnum):
    """The state of a node according to its marker."""

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
        trust: The state of the server process behind the connection.
        marker: The marker itself, b"" for none.
        run_id: The run id of the process, or the run id in the marker if the server hides its own.
        guard_ms: The guard time in the marker. 0 if the marker names no guard time, or if the guard
            time exceeds `LONGEST_MS`.
        ready_ms: The time, by the node's clock, at which the node may be trusted. 0 if the marker
            names no such time.
        node_ms: The node's time when the marker was read.
        at: The local instant at which the request was sent. The node read the marker after this
            instant.
        answered: The local instant of the answer. The node read the marker before this instant.
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


def read_marker(
    marker: bytes, node_ms: int, own_marker: bytes, at: float, answered: float
) -> Reading:
    """Parse the marker that a node returned.

    `own_marker` is the run id and the guard time that the connection sent. The other arguments are
    fields of the result.
    """
    run_id = own_marker.partition(b":")[0]
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
