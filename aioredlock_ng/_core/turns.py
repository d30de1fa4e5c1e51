"""When a process that hands a resource on within itself must stand back for others; pure counting, no clock.

Handing on inside a process costs one round trip and leaves other processes no gap. So a run of local grants is
bounded; then the process stands back for a moment. If nobody took the resource meanwhile, the bound doubles, and a
process alone hardly ever pauses; if somebody did, it starts small again.
"""

from __future__ import annotations

__all__ = ["FIRST_BOUND", "LAST_BOUND", "STAND_BACK", "Turns"]

FIRST_BOUND = 32
"""Grants in a row while others compete: about 8 ms over loopback."""

LAST_BOUND = 512
"""Grants in a row while nobody else seems to: the longest that a newcomer waits for its first turn, about 0.1 s."""

STAND_BACK = 0.0015
"""Seconds: a wake-up, its longest deliberate delay (`wake_delay`) and a round trip to the lead node."""


class Turns:
    """One resource's grants to this process.

    Attributes:
        rivals: True once another process was seen to hold the resource.
    """

    __slots__ = ("_bound", "_rested", "_run", "rivals")

    def __init__(self) -> None:
        self._run = 0
        self._bound = FIRST_BOUND
        self._rested = False
        self.rivals = False

    def granted(self) -> None:
        """This process got the resource."""
        self._run += 1
        if self._rested:
            self._rested = False
            self._bound = min(LAST_BOUND, 2 * self._bound)

    def refused(self) -> None:
        """Another process holds it."""
        self._run = 0
        self._bound = FIRST_BOUND
        self._rested = False
        self.rivals = True

    def must_rest(self) -> bool:
        """True when it is time to stand back; the next run is counted from here."""
        if self._run < self._bound:
            return False
        self._run = 0
        self._rested = True
        return True
