"""Candidates that write down when they lead; they judge nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioredlock_ng import Election, Lease

__all__ = ["NAME", "Candidate", "Log", "now", "stop"]

NAME = "scheduler"


def now() -> float:
    """Return the time of the loop."""
    return asyncio.get_running_loop().time()


@dataclass
class Log:
    """The beginnings and ends of terms.

    Attributes:
        lines: The label, "+" or "-", and the time.
        working: The labels of bodies that work now.
        most: The greatest number of bodies that worked at once.
    """

    lines: list[tuple[str, str, float]] = field(default_factory=list)
    working: list[str] = field(default_factory=list)
    most: int = 0

    def begins(self, label: str) -> None:
        """Note that a body begins."""
        self.lines.append((label, "+", now()))
        self.working.append(label)
        self.most = max(self.most, len(self.working))

    def ends(self, label: str) -> None:
        """Note that a body has ended."""
        self.lines.append((label, "-", now()))
        self.working.remove(label)

    @property
    def story(self) -> list[str]:
        """The lines without their times."""
        return [label + sign for label, sign, _ in self.lines]


class Candidate:
    """A candidate that leads until it is ended.

    Args:
        election: Its own.
        log: The common log.
        last_words: Seconds that its clean-up takes.
    """

    def __init__(self, election: Election, log: Log, last_words: float = 0.0) -> None:
        self.election = election
        self.fences: list[int] = []
        self._log = log
        self._last_words = last_words
        self.task = asyncio.create_task(election.run(self.main))

    async def main(self, lease: Lease) -> None:
        """Lead for ever."""
        label = self.election.label
        self.fences.append(lease.fence)
        self._log.begins(label)
        try:
            await asyncio.Event().wait()
        finally:
            try:
                if self._last_words:
                    await asyncio.sleep(self._last_words)
            finally:
                self._log.ends(label)


async def stop(*candidates: Candidate) -> None:
    """Cancel candidates, and wait until they have ended."""
    for candidate in candidates:
        candidate.task.cancel()
    await asyncio.wait([candidate.task for candidate in candidates])
