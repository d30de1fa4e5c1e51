"""Bounds of the histograms, in seconds, the same for every library; it measures nothing."""

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
"""A free lock takes one round trip, less than a millisecond in one zone; who waits behind a dead holder waits a ttl."""

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
"""From one write to a database to a nightly job; the hold of a leader is beyond all bounds."""

ROUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0)
"""A round ends at the node timeout, 0.1 s by default, whatever the nodes do."""
