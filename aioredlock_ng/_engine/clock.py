"""The real clock; nothing else here reads one."""

from __future__ import annotations

import time
from typing import Final

__all__ = ["boottime", "wall_us"]

_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def boottime() -> float:
    """Seconds that go on during suspend, as the servers' expiry does; monotonic time where the system has no such clock."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


def wall_us() -> int:
    """Microseconds since 1970: what fences look like, and nothing else."""
    return time.time_ns() // 1000
