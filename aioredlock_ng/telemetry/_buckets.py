"""Define the bucket bounds, in seconds, of the histograms for Prometheus and OpenTelemetry."""

from __future__ import annotations

from typing import Final

__all__ = ["HOLDS", "ROUNDS", "WAITS"]

WAITS: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
"""Bounds for the time that a caller waits for a lock.

A free lock needs one round trip, which takes less than a millisecond inside one zone. A wait for a
lock whose holder died takes up to a ttl.
"""

HOLDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
)
"""Bounds for the time that a lease is held, from a single database write to a nightly job.

A leader may hold its lock for longer than the largest bound.
"""

ROUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0)
"""Bounds for the time that a renewal takes.

A renewal is one round, which usually ends within the node timeout, 0.1 s by default. A round with
late answers takes longer.
"""
