"""How long a grant may be relied on, in seconds; it reads no clock: instants are arguments."""

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
    "least_ttl",
    "renew_at",
    "ttl_ms",
    "watch_after",
]

DRIFT_FLOOR = 0.002
"""Two milliseconds for the granularity of Redis expiry (Redlock text): keys may go 1 ms early, clocks round."""


def drift_of(ttl: float, drift_factor: float) -> float:
    """What clocks running at different rates may cost: `ttl * drift_factor + 2 ms` (Redlock text)."""
    return ttl * drift_factor + DRIFT_FLOOR


def ttl_ms(ttl: float) -> int:
    """The ttl as sent to the servers: whole milliseconds, rounded up, so that a key never dies before we think."""
    return ceil(ttl * 1000 - 1e-9)


def deadline_of(started: float, ttl: float, drift: float) -> float:
    """The instant up to which a grant is valid, counted from before its first byte was written."""
    return started + ttl - drift


def least_ttl(node_timeout: float, drift_factor: float, min_validity: float | None) -> float:
    """The smallest ttl for which a round that takes the whole `node_timeout` leaves something worth having."""
    if min_validity is None:
        return (node_timeout + DRIFT_FLOOR) / (1 - drift_factor - MIN_VALIDITY_SHARE)
    return (node_timeout + DRIFT_FLOOR + min_validity) / (1 - drift_factor)


MIN_VALIDITY_SHARE = 0.05
"""Share of the ttl that must be left for a grant to count when the user names no `min_validity`."""

RENEW_SHARE = 1 / 3
"""Renewing at a third leaves two more chances before the deadline."""

RENEW_JITTER = 0.05
"""Renewals come up to this share early, so that leases taken together do not stay together for ever."""

GATHER_SHARE = 0.01
"""Renewals come up to this share of the ttl earlier still, at its multiples: those due at about the same time go together."""

RETRY_SHARE = 0.05
"""A renewal that no quorum can confirm is tried again after this share of the ttl."""

SILENT_SHARE = 0.1
"""One that no quorum has answered in time, after this: its answers still count when they come."""


STALL_SHARE = 0.1
"""Share of the ttl from which a standstill of the event loop is named as a reason why a lease was not renewed."""


WATCH_AFTER = 0.1
"""Seconds after which a lease is watched. Most locks are released sooner and are spared the extra read; one that is taken
away before is told by that first read."""

WATCH_SHARE = 0.25
"""Share of a short ttl after which it is watched: before its first renewal."""


def watch_after(ttl: float) -> float:
    """Seconds from the beginning of a grant until its keys are watched."""
    return min(WATCH_AFTER, ttl * WATCH_SHARE)


COVERED_FOR = 0.05
"""Seconds from the beginning of a grant during which it is passed on at most to those who were in line then. As long as several
round trips or holds of milliseconds, so that asking no longer counts; where servers cannot tell of what they have lost, it is
noticed by asking them again."""

COVERED_SHARE = 0.1
"""Share of a short ttl for which it is: what is left for the last of them is nearly all of it."""


def covers(started: float, now: float, ttl: float) -> bool:
    """True while a grant that was asked for at `started` may be passed on."""
    return now - started < min(COVERED_FOR, ttl * COVERED_SHARE)


def renew_at(started: float, ttl: float, draw: float) -> float:
    """When to renew a grant whose round began at `started`; `draw` is uniform in [0, 1)."""
    at = started + ttl * RENEW_SHARE * (1 - RENEW_JITTER * draw)
    return at - at % (ttl * GATHER_SHARE)
