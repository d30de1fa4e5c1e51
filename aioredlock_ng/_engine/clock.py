"""The real clock; nothing else here reads one."""

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
"""Clocks that go on while the machine sleeps, the best first.

macOS has no CLOCK_BOOTTIME, and its monotonic time stands still: a lease would outlive its keys by the sleep. On macOS
CLOCK_MONOTONIC_RAW is mach_continuous_time, which goes on. On Linux the clock of that name stands still.
"""

_CLOCK: Final[int | None] = next(
    (getattr(time, name) for name in _NAMES if hasattr(time, name)), None
)


# The system's function itself. Each lock calls it four times, and a function in Python would
# double the cost.
boottime: Final[Callable[[], float]] = (
    time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)
)
"""Seconds that go on during suspend, as the servers' expiry does; monotonic time where the system has no such clock."""


def wall_us() -> int:
    """Microseconds since 1970: what fences look like, and nothing else."""
    return time.time_ns() // 1000
