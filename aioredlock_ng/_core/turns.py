"""When a process that keeps a resource to itself must stand back for others; pure, instants are arguments.

Handing on inside a process costs one round trip and leaves other processes no gap. So a run of grants without a gap is
bounded in time; then the process stands back for a moment. If nobody took the resource meanwhile, the bound doubles, and
a process alone hardly ever pauses between short holds; if somebody did, it starts small again.
"""

from __future__ import annotations

from math import ceil

from aioredlock_ng._core.backoff import WAKE_CAP

__all__ = ["FIRST_BOUND", "LAST_BOUND", "STAND_BACK", "Turns"]

FIRST_BOUND = 0.032
"""Seconds of a run while others compete: a hundred hand-overs over loopback or more, so that a pause and the way to another
process cost a tenth at most."""

LAST_BOUND = 0.25
"""Seconds of a run while nobody else seems to: what a newcomer waits at most, besides one hold, for its first turn."""

MEMORY = 2.0
"""Seconds for which a process that held the resource is taken to be still interested: on a busy machine it may be too
slow to use the first gap that it is left."""

STAND_BACK = 0.0015
"""Seconds at least: a wake-up, its longest deliberate delay (`backoff.wake_delay`) and a round trip over loopback. Where that
takes longer, so does the pause: others as far from the nodes hear of the release one round trip after it was sent."""

REST_SHARE = 0.005
"""Share of the run that the pause lasts at least, up to `LONGEST_REST`: after long holds nobody misses it, and the others win
by more than the moods of a busy machine."""

LONGEST_REST = 0.005
"""Seconds, up to which that grows: who comes meanwhile finds the resource free and has to wait all the same."""

FIRST_IN_VAIN = 3
"""Turns of others at whose end a process may ask first before it goes to the end of the circle: who is too far from the nodes,
or too slow, would keep the others waiting at each."""

OUTRUN = 2
"""Times in a row that this process asked in vain for what was free, as it had been told, before it asks to go first: who is
further from the nodes than others, or slower, comes too late each time. Of several, who was outrun most often does."""

LONGEST_PAUSE = 0.25
"""Seconds at most, whatever a round trip seemed to take: an attempt may have waited for a slow node, or with its process."""


PASSING_SHARE = 0.3
"""Share of the longest run for which one grant is passed on in it: by the changes of the key others see that there is a run."""


class Turns:
    """One resource's grants to this process.

    Attributes:
        freed_at: When it last gave the resource up; minus infinity after a refusal.
        most_passed: The most turns of others that any process lets pass, as far as is known.
        passed: How many of them have ended since this process had one.
    """

    __slots__ = (
        "_bound",
        "_firsts",
        "_outrun",
        "_outrun_at",
        "_refused_at",
        "_rested",
        "_run_from",
        "_too_late_by",
        "_took",
        "_untold_at",
        "freed_at",
        "most_passed",
        "passed",
    )

    def __init__(self) -> None:
        self._bound = FIRST_BOUND
        self._rested = False
        self._took = self._too_late_by = 0.0
        self._firsts = self._outrun = self.passed = self.most_passed = 0
        self._run_from = self.freed_at = self._refused_at = self._outrun_at = self._untold_at = float("-inf")

    def granted(self, now: float, asked: float) -> None:
        """This process got the resource, by an attempt that began at `asked`."""
        self.passed = self._firsts = self._outrun = 0
        took = now - asked
        if self._rested or asked - self.freed_at > self._others_need():
            self._run_from = now
        else:
            # The quickest of a run tells what a round trip takes.
            took = min(took, self._took)
        self._took = took
        if self._rested:
            self._rested = False
            if now - self._refused_at > MEMORY:
                self._bound = min(LAST_BOUND, 2 * self._bound)

    def follow(self, others: Turns) -> None:
        """The process goes on with this resource where it ended with another one that shares names with it: one run."""
        self._run_from, self.freed_at = others._run_from, others.freed_at
        self._took, self._rested, self._bound = others._took, others._rested, others._bound
        self._refused_at = max(self._refused_at, others._refused_at)
        self._outrun_at = max(self._outrun_at, others._outrun_at)

    def refused(self, now: float, asked: float, *, woken: bool) -> None:
        """Another process holds it; `woken`: it had been told that it was free when it asked, and somebody else was faster."""
        self._refused_at = now
        if woken:
            self._outrun_at = now
            self._outrun += 1
            self._too_late_by = now - asked
        self._bound = FIRST_BOUND
        self._rested = False
        self.freed_at = float("-inf")

    def passes(self) -> bool:
        """A turn of another process is over; False where nobody is known to have let more of them pass: ask first."""
        self.passed += 1
        if self.passed < self.most_passed:
            return True
        self._firsts += 1
        if self._firsts == FIRST_IN_VAIN:
            self.passed = self._firsts = 0
        return False

    def precedence(self) -> tuple[int, int]:
        """Milliseconds for which others are to let this process go first at the next release, and how often it was outrun.

        0: not at all; the milliseconds last from when another has found the resource free.
        """
        if self._outrun < OUTRUN:
            return 0, 0
        return ceil(1000 * max(STAND_BACK, min(LONGEST_PAUSE, self._too_late_by + WAKE_CAP))), self._outrun

    def untold(self, now: float) -> None:
        """The end of another process's turn was awaited, and nobody told it."""
        self._untold_at = now

    def told(self, now: float) -> bool:
        """True while who has the resource is taken for one that tells the end of its turn.

        What was not told may be the end of a long run, of a process that knew of no others; by then that is over.
        """
        return now - self._untold_at > LAST_BOUND

    def crowded(self, now: float) -> bool:
        """True while other processes are likely to ask in the very instant in which it is free."""
        return now - self._outrun_at <= MEMORY

    def goes_on(self, now: float, asked: float) -> bool:
        """True while its run may last, and a grant that was asked for at `asked` be passed on in it."""
        return now - self._run_from < self._bound and now - asked < self._bound * PASSING_SHARE

    def freed(self, now: float) -> float:
        """This process gave it up; seconds to stand back now, 0.0 to hand on."""
        self.freed_at = now
        run = now - self._run_from
        if run < self._bound:
            return 0.0
        self._rested = True
        return max(self._others_need(), min(LONGEST_REST, run * REST_SHARE))

    def _others_need(self) -> float:
        """Seconds from a release to an attempt of this process that leave others a gap: what is shorter leaves none."""
        return max(STAND_BACK, min(LONGEST_PAUSE, self._took + WAKE_CAP))
