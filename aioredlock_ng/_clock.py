"""The real clocks, which the engine gets as arguments."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["boottime", "wall_us"]

_NAMES: Final = (
    ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW")
    if str(sys.platform) == "darwin"
    else ("CLOCK_BOOTTIME",)
)
"""Clocks that advance while the machine sleeps, in order of preference.

If the clock stood still during sleep, a lease would outlive its keys by the duration of the sleep.
macOS has no CLOCK_BOOTTIME, and Python's `time.monotonic` stands still during sleep there. On
macOS, CLOCK_MONOTONIC_RAW is mach_continuous_time, which advances during sleep. On Linux, it stands
still during sleep, so it is not used there.
"""

_CLOCK: Final[int | None] = next(
    (getattr(time, name) for name in _NAMES if hasattr(time, name)), None
)


# A partial calls the system's function directly. A Python function instead would double the cost of
# each call.
boottime: Final[Callable[[], float]] = (
    time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)
)
"""Returns seconds of a clock that advances during suspend, because keys expire during suspend, too.

On a system without such a clock, `boottime` is `time.monotonic`.
"""


def wall_us() -> int:
    """Return microseconds since 1970. Only fences and the labels of holders use wall-clock time."""
    return time.time_ns() // 1000
