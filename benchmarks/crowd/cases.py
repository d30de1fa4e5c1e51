"""The cases of `crowd` by name, with their durations and bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BARS", "CASES", "OTHERS", "SHAPES", "Limit", "Shape", "chosen"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A crowd on one lock, or on one semaphore.

    Attributes:
        processes: Number of processes.
        waiters: Number of waiting tasks in each process.
        hold: Seconds for which each task keeps the lock.
        seconds: Length of the window.
        quick: Length of the window in a quick run.
        base: The case whose rate is the base of the ratio. "" for none.
        hung: True if one node is stopped throughout.
        alone: True for an `asyncio.Lock` in place of the library. With a limit, each process has
            an `asyncio.Semaphore` with its share of the limit.
        limit: Limit of the semaphore. 0 for a lock.
    """

    processes: int
    waiters: int
    hold: float
    seconds: float
    quick: float
    base: str = ""
    hung: bool = False
    alone: bool = False
    limit: int = 0

    @property
    def text(self) -> str:
        """The number of processes and waiters and the hold, for tables."""
        return f"{self.processes} x {self.waiters}, {self.hold * 1e3:g} ms"


SHAPES: Final = {
    "1x1": Shape(1, 1, 0.002, 1.0, 0.5),
    "2x1": Shape(2, 1, 0.002, 1.5, 0.6, "1x1"),
    "10x1": Shape(10, 1, 0.002, 2.5, 0.8, "1x1"),
    "40x1": Shape(40, 1, 0.002, 6.0, 1.5, "1x1"),
    "1x1-20ms": Shape(1, 1, 0.02, 1.0, 0.5),
    "40x1-20ms": Shape(40, 1, 0.02, 9.0, 1.5, "1x1-20ms"),
    "1x1-0ms": Shape(1, 1, 0.0, 1.0, 0.5),
    "20x5": Shape(20, 5, 0.0, 5.0, 1.2, "1x1-0ms"),
    "4x25": Shape(4, 25, 0.0, 4.0, 1.0, "1x1-0ms"),
    "1x100": Shape(1, 100, 0.0, 1.2, 0.6, "1x1-0ms"),
    "asyncio-5ms": Shape(1, 100, 0.005, 1.5, 0.6, alone=True),
    "1x100-5ms": Shape(1, 100, 0.005, 1.5, 0.6, "asyncio-5ms"),
    "hung": Shape(40, 1, 0.002, 6.0, 1.5, "1x1", hung=True),
    "asyncio-semaphore": Shape(4, 16, 0.005, 4.0, 1.0, alone=True, limit=8),
    "semaphore": Shape(4, 16, 0.005, 4.0, 1.0, "asyncio-semaphore", limit=8),
    "semaphore-hung": Shape(4, 16, 0.005, 4.0, 1.0, "semaphore", hung=True, limit=8),
}
"""The crowds by name. Large crowds have long windows, because a share needs several rounds."""

OTHERS: Final = ("killed", "handover", "woken", "herd")
"""Cases with other measurements than those of a plain crowd."""

CASES: Final = (*SHAPES, *OTHERS)
"""All cases, in the order in which they run."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The lowest or highest allowed value of a figure.

    Attributes:
        figure: The key of the figure in the summary.
        text: The name of the figure in the tables.
        limit: The limit.
        least: True if the figure must be at least the limit, else at most.
    """

    figure: str
    text: str
    limit: float
    least: bool = False


_CROWD: Final = (
    Limit("ratio", "rate / that of one process alone", 0.7, least=True),
    Limit("attempts", "attempts per acquisition", 2.3),
    Limit("commands", "commands per node and acquisition", 6.0),
    Limit("pushes", "pushes per node and acquisition", 5.0),
    Limit("share_least", "share of the slowest process", 0.9, least=True),
    Limit("wait_rounds", "longest wait in rounds of all processes", 2.0),
)
_SLACK: Final = 1.2

_FAILED: Final = Limit("errors", "acquires and releases that failed", 0.0)

_SEMAPHORE: Final = (
    # Eight slots with holds of 5 ms serve at most 1,600 holders per second. The sleep of a holder
    # takes a little longer than 5 ms.
    Limit("rate", "holders per second", 0.85 * 1_600, least=True),
    Limit("ratio", "rate / that of semaphores of asyncio", 0.85, least=True),
    Limit("most_inside", "holders at the same time", 8.0),
    Limit("attempts", "attempts per acquisition", 2.5),
)

BARS: Final[dict[str, tuple[Limit, ...]]] = {
    "40x1": _CROWD,
    "20x5": (
        Limit("rate", "hand-overs per second", 10_000.0, least=True),
        Limit("share_least", "share of the slowest process", 0.8, least=True),
        Limit("wait", "longest wait, s", 1.0),
    ),
    "4x25": (
        Limit("rate", "hand-overs per second", 20_000.0, least=True),
        Limit("share_least", "share of the slowest process", 0.9, least=True),
    ),
    "1x100": (Limit("rate", "hand-overs per second", 25_000.0, least=True),),
    "1x100-5ms": (
        Limit("ratio", "rate / that of an asyncio.Lock", 0.9, least=True),
        Limit("handoff_ms", "hand-over p50, ms", 0.15),
    ),
    "hung": tuple(
        Limit(
            bar.figure,
            bar.text,
            round(bar.limit * (2 - _SLACK if bar.least else _SLACK), 2),
            bar.least,
        )
        for bar in _CROWD
    ),
    "semaphore": _SEMAPHORE,
    "semaphore-hung": (
        Limit("ratio", "rate / that without a hung node", 0.8, least=True),
        _SEMAPHORE[2],
    ),
    "killed": (
        Limit("killed_gap", "nobody had the lock after three of twelve were killed, s", 0.05),
        Limit("stopped_gap", "nobody had the lock after one was stopped, s", 0.2),
        Limit("stopped_gaps", "gaps above 0.05 s after one was stopped", 1.0),
        _FAILED,
    ),
    "handover": (Limit("ratio", "hand-over / two round trips of the floor", 1.3), _FAILED),
    "woken": (
        Limit(
            "redis_py_over",
            "after redis-py's release: p50 / (1.5 round trips of the floor + 0.3 ms)",
            1.0,
        ),
        Limit("deleted_over", "after DEL: p50 / (1.5 round trips of the floor + 0.3 ms)", 1.0),
        Limit("expiry_ms", "after the expiry of a killed holder's key: p50, ms", 120.0),
    ),
    "herd": (
        Limit("commands_per_second", "calls of scripts per second while nothing changes", 3.0),
        Limit("traced_kib", "KiB per waiter", 2.0),
        Limit("connections", "connections per node", 1.0),
    ),
}
"""The bars by case. The bars of `hung` are a fifth looser."""


def chosen(names: Iterable[str]) -> list[str]:
    """Return these cases and their bases, in order. Return all cases if there are no names."""
    wanted = set(names) or set(CASES)
    while not (bases := {SHAPES[name].base for name in wanted if name in SHAPES} - {""}) <= wanted:
        wanted |= bases
    return [name for name in CASES if name in wanted]
