"""The time for which a grant is valid, in seconds."""

from __future__ import annotations

from math import ceil

__all__ = [
    "COVERED_FOR",
    "DRIFT_FLOOR",
    "MIN_VALIDITY_SHARE",
    "RETRY_SHARE",
    "SILENT_SHARE",
    "STALL_SHARE",
    "covers",
    "deadline_of",
    "drift_of",
    "is_in_time",
    "keys_life",
    "least_ttl",
    "renew_at",
    "ttl_ms",
    "watch_after",
]

DRIFT_FLOOR = 0.002
"""The constant part of the drift in seconds, as in the Redlock text.

The constant is needed because a key may expire 1 ms early, and clocks round to a millisecond."""


def drift_of(ttl: float, drift_factor: float) -> float:
    return ttl * drift_factor + DRIFT_FLOOR


def ttl_ms(ttl: float) -> int:
    """Return the ttl for the servers in whole milliseconds.

    The ttl is rounded up, so that a key does not expire before the deadline.
    """
    return ceil(ttl * 1000 - 1e-9)


def deadline_of(started: float, ttl: float, drift: float) -> float:
    """Return the instant at which a grant ends.

    The ttl counts from `started`, an instant before the first byte of the acquire was written.
    """
    return started + ttl - drift


def is_in_time(started: float, now: float, ttl: float, drift: float, least: float) -> bool:
    """Return True if a grant leaves at least `least` seconds until its deadline.

    A late grant does not count, and is undone.
    """
    return deadline_of(started, ttl, drift) - now >= least


def keys_life(ttl: float, min_hold: float, granted_within: float, drift_factor: float) -> float:
    """Return how many seconds the keys must live, so that even a crash does not shorten `min_hold`.

    If a quorum grants the attempt at most `granted_within` seconds after its beginning, the keys do
    not expire before `min_hold` is over. Without `min_hold`, the result is `ttl`.
    """
    if not min_hold:
        return ttl
    return max(ttl, (granted_within + min_hold + DRIFT_FLOOR) / (1 - drift_factor))


def least_ttl(node_timeout: float, drift_factor: float, min_validity: float | None) -> float:
    """Return the smallest ttl that leaves `min_validity` after a round as long as `node_timeout`.

    Without `min_validity`, `MIN_VALIDITY_SHARE` of the ttl must be left.
    """
    if min_validity is None:
        return (node_timeout + DRIFT_FLOOR) / (1 - drift_factor - MIN_VALIDITY_SHARE)
    return (node_timeout + DRIFT_FLOOR + min_validity) / (1 - drift_factor)


MIN_VALIDITY_SHARE = 0.05
"""Share of the ttl that must be left when a quorum has granted, if the user sets no
`min_validity`."""

RENEW_SHARE = 1 / 3
"""Share of the ttl after which a lease is renewed. The rest of the ttl is left for retries."""

RENEW_JITTER = 0.05
"""A renewal may come early by at most this share of its delay.

If no renewal came early, leases that were taken together would be renewed together for ever."""

GATHER_SHARE = 0.01
"""Granularity of the renewal times, as a share of the ttl.

Each renewal time is rounded down to a multiple of this granularity. So renewals that are due at
about the same time leave in one batch."""

RETRY_SHARE = 0.05
"""Share of the ttl between a renewal that no quorum can confirm any more, and the next try."""

SILENT_SHARE = 0.1
"""Share of the ttl between a renewal to which no quorum answered in time, and the next try.

Answers to the first try still count if they arrive later."""

STALL_SHARE = 0.1
"""The reason of a loss mentions a stall of the event loop that took at least this share of the
ttl."""

WATCH_AFTER = 0.1
"""Seconds from the beginning of a lease until the library watches its keys.

For this purpose the library reads the keys once, so that the servers report later changes. The read
also shows whether the keys have been deleted already. Most locks are released sooner, and need no
read."""

WATCH_SHARE = 0.25
"""Share of the ttl after which a lease with a short ttl is watched, before its first renewal."""


def watch_after(ttl: float) -> float:
    return min(WATCH_AFTER, ttl * WATCH_SHARE)


COVERED_FOR = 0.05
"""Seconds for which a grant may be passed on, counted from the beginning of the grant.

The limit is long enough to spread the cost of a round over several short leases. The limit is so
short that a lost key is noticed soon, even if the servers do not report changes."""

COVERED_SHARE = 0.1
"""Share of the ttl during which a grant with a short ttl may be passed on.

The share counts from the beginning of the grant. So even the last lease to receive the grant still
has nearly the whole ttl."""


def covers(started: float, now: float, ttl: float) -> bool:
    """True while a grant whose round began at `started` may be passed on."""
    return now - started < min(COVERED_FOR, ttl * COVERED_SHARE)


def renew_at(started: float, ttl: float, draw: float) -> float:
    """Return the instant at which to renew a grant whose round began at `started`.

    `draw` is uniform in [0, 1).
    """
    at = started + ttl * RENEW_SHARE * (1 - RENEW_JITTER * draw)
    return at - at % (ttl * GATHER_SHARE)
