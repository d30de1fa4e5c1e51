"""One frame of `top` as tables; it asks nobody and remembers only the nodes' lanes."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from .shown import as_dict, fence, holder, life, owner, safe

if TYPE_CHECKING:
    from aioredlock_ng import LockInfo, NodeState

__all__ = ["Frame", "Lane", "draw"]

_WIDTH = 40
"""Frames that a lane remembers."""

_STEPS = "▁▂▃▄▅▆▇█"
_FASTEST, _FACTOR = 0.0005, 2.0
"""Seconds of round trip that the lowest step stands for, and how many times as many each further one."""

_STYLES = {"up": "green", "quarantined": "yellow", "suspect": "yellow", "connecting": "yellow"}


class Lane:
    """How a node did in the last frames, a character each: the higher the slower, x without an answer."""

    def __init__(self) -> None:
        self._marks: deque[tuple[str, str]] = deque(maxlen=_WIDTH)

    def add(self, state: str, round_trip: float | None) -> None:
        """One more frame: the node's state, and how many seconds it took to answer."""
        if round_trip is None:
            self._marks.append(("x", "red"))
            return
        step = 0 if round_trip <= _FASTEST else math.ceil(math.log(round_trip / _FASTEST, _FACTOR))
        self._marks.append((_STEPS[min(step, len(_STEPS) - 1)], _STYLES.get(state, "red")))

    def text(self) -> Text:
        """The lane, the newest at the right."""
        return Text.assemble(*self._marks)


@dataclass(frozen=True, slots=True)
class Frame:
    """What one look found.

    Attributes:
        nodes: Each node's state.
        round_trips: Seconds that each took to answer; None: it did not.
        lanes: How each did lately.
        locks: Each lock, and for how many seconds it has been seen with this holder.
        problem: Why there are no locks to show; "": nothing is wrong.
        waiting: How many have waited for a lock for a while, by its name.
    """

    nodes: tuple[NodeState, ...]
    round_trips: tuple[float | None, ...]
    lanes: tuple[Lane, ...]
    locks: tuple[tuple[LockInfo, float], ...]
    problem: str
    waiting: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "nodes": [{**asdict(state), "round_trip": trip} for state, trip in zip(self.nodes, self.round_trips, strict=True)],
            "locks": [{**as_dict(lock), "seen_for": age, "waiting": self.waiting_for(lock)} for lock, age in self.locks],
            "problem": self.problem,
        }

    def waiting_for(self, lock: LockInfo) -> int:
        """How many wait for it."""
        return self.waiting.get(lock.resource, 0)


def draw(frame: Frame, height: int | None) -> Group:
    """The frame for people; not more lines than `height`, if there is one."""
    nodes = Table("node", "state", "answers in", "lately", "server", box=box.SIMPLE_HEAD, pad_edge=False)
    for state, trip, lane in zip(frame.nodes, frame.round_trips, frame.lanes, strict=True):
        words = state.state if not state.reason else f"{state.state}: {safe(state.reason)}"
        took = "-" if trip is None else f"{trip * 1000:.1f} ms"
        style = _STYLES.get(state.state, "red")
        # Not as plain words: rich takes an IPv6 address in brackets for a style.
        nodes.add_row(Text(safe(state.address)), Text(words, style=style), took, lane.text(), Text(safe(state.server)))
    columns = "lock", "holder", "owner", "fence", "nodes", "on", "remaining", "waiting", "seen for"
    locks = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    # Around each table are two empty lines and its head of two, and the last line tells what does not fit.
    room = len(frame.locks) if height is None else max(1, height - len(frame.nodes) - 9)
    for lock, age in frame.locks[:room]:
        marks = Text()
        for answer in lock.answers:
            mine = answer.token == lock.token
            marks.append("●" if mine else "?" if answer.detail else "○", style="green" if mine else "yellow")
        cells = (
            safe(lock.resource),
            holder(lock.token),
            owner(lock),
            fence(lock),
            f"{lock.nodes}/{lock.total}",
            marks,
            life(lock.remaining),
            str(frame.waiting_for(lock) or "-"),
            f"{age:.0f} s",
        )
        locks.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), style="" if lock.held else "dim")
    more = len(frame.locks) - room
    last = frame.problem or (f"and {more} more; a PATTERN shows fewer" if more > 0 else "" if frame.locks else "no locks")
    return Group(nodes, locks, Text(safe(last), style="red" if frame.problem else "dim"))
