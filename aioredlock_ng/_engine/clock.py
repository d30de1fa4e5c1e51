"""The real clocks. The rest of the engine gets them as arguments."""

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

With a clock that stands still, a lease would outlive its keys by the duration of the sleep. macOS
has no CLOCK_BOOTTIME, and its CLOCK_MONOTONIC stands still. Its CLOCK_MONOTONIC_RAW is
mach_continuous_time, which advances. On Linux CLOCK_MONOTONIC_RAW stands still.
"""

_CLOCK: Final[int | None] = next(
    (getattr(time, name) for name in _NAMES if hasattr(time, name)), None
)


# This is the system's function itself. Each lock calls it four times, and a wrapper in Python
# would double the cost.
boottime: Final[Callable[[], float]] = (
    time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)
)
"""Seconds that advance during suspend, as the expiry of keys does.

Monotonic time on a system without such a clock.
"""


def wall_us() -> int:
    """Return microseconds since 1970. Only fences and the labels of holders use wall-clock time."""
    return time.time_ns() // 1000
