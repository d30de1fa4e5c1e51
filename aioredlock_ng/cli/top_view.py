"""Lay out one frame of `top` as tables."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from .shown import as_dict, fence, holder_of, life_of, owner, safe, seconds, waiting
from .tables import Column, fitted
from .wrapping import wrapped

if TYPE_CHECKING:
    from aioredlock_ng import LockInfo, NodeState

__all__ = ["Frame", "Lane", "draw"]

_MARKS = 40
"""Largest number of round trips that a `Lane` keeps."""

_FEWEST_MARKS = 8
"""Number of round trips that a lane shows if the line is very short."""

_BESIDE_LANE = 64
"""Usual width, in characters, of a node's row without its lane."""

_NODE_COLUMNS = (
    Column("node"),
    Column("state"),
    Column("answers in", 2),
    Column("lately", 1),
    Column("server", 3),
)

_LOCK_COLUMNS = (
    Column("lock", share=0.5, numbered=True),
    Column("holder", 5),
    Column("owner", 1, share=0.5),
    Column("fence", 7),
    Column("nodes", 4),
    Column("on", 2),
    Column("remaining"),
    Column("waiting", 3),
    Column("seen for", 6),
)
"""Columns of a lock's row, in the order of display.

On a short line the fence is left out first, and the owner last.
"""

_STEPS = "▁▂▃▄▅▆▇█"
_FASTEST, _FACTOR = 0.0005, 2.0
"""Longest round trip with the lowest mark, in seconds. Each further mark means twice that time."""

_STYLES = {"up": "green", "quarantined": "yellow", "suspect": "yellow", "connecting": "yellow"}


class Lane:
    """The round trips to a node in the last frames, with a mark for each round trip.

    A higher mark means a slower answer. An x means that no answer came.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[str, str]] = deque(maxlen=_MARKS)

    def add(self, state: str, round_trip: float | None) -> None:
        """Add a mark for one frame. `round_trip` is in seconds, or None if no answer came."""
        if round_trip is None:
            self._marks.append(("x", "red"))
            return
        step = 0 if round_trip <= _FASTEST else math.ceil(math.log(round_trip / _FASTEST, _FACTOR))
        self._marks.append((_STEPS[min(step, len(_STEPS) - 1)], _STYLES.get(state, "red")))

    def text(self) -> Text:
        """Return the marks, the newest on the right."""
        return Text.assemble(*self._marks)


@dataclass(frozen=True, slots=True)
class Frame:
    """The state of the nodes and of the locks at one time.

    Attributes:
        nodes: State of each node.
        round_trips: Seconds of the last round trip to each node, or None if no answer came.
        lanes: Recent round trips to each node.
        locks: Each lock, with the seconds since it was first seen with this holder.
        problem: The reason why the locks are not known, or "".
    """

    nodes: tuple[NodeState, ...]
    round_trips: tuple[float | None, ...]
    lanes: tuple[Lane, ...]
    locks: tuple[tuple[LockInfo, float], ...]
    problem: str

    def as_dict(self) -> dict[str, Any]:
        """Return the frame as a dictionary for JSON."""
        return {
            "nodes": [
                {**asdict(state), "round_trip": trip}
                for state, trip in zip(self.nodes, self.round_trips, strict=True)
            ],
            "locks": [{**as_dict(lock), "seen_for": age} for lock, age in self.locks],
            "problem": self.problem,
        }


def draw(frame: Frame, width: int, height: int | None) -> Group:
    """Lay out a frame for people.

    Columns that do not fit into `width` are left out. Locks that do not fit into `height` lines are
    only counted.
    """
    room = min(max(width - _BESIDE_LANE, _FEWEST_MARKS), _MARKS)
    nodes = fitted(
        _NODE_COLUMNS,
        [
            _node_row(*row, room)
            for row in zip(frame.nodes, frame.round_trips, frame.lanes, strict=True)
        ],
        width,
    )
    reasons = [
        line
        for node in frame.nodes
        if node.reason
        for line in _lines(f"{node.address} is {node.state}: {node.reason}", width, _style_of(node))
    ]
    problem = _lines(frame.problem, width, "red")
    # Each of the two tables has a head of two lines, and on most terminals two empty lines around
    # it. The last line of the frame counts the locks that do not fit.
    used = len(frame.nodes) + len(reasons) + (len(problem) or 1) + 8
    shown = frame.locks if height is None else frame.locks[: max(1, height - used)]
    locks = fitted(_LOCK_COLUMNS, [_lock_row(lock, age) for lock, age in shown], width)
    for row, (lock, _) in zip(locks.rows, shown, strict=True):
        row.style = "" if lock.held else "dim"
    more = len(frame.locks) - len(shown)
    words = (
        f"and {more} more; give a PATTERN to show fewer"
        if more
        else ""
        if frame.locks
        else "no locks"
    )
    return Group(nodes, *reasons, locks, *(problem or [Text(words, style="dim")]))


def _node_row(
    state: NodeState, round_trip: float | None, lane: Lane, marks: int
) -> tuple[Text | str, ...]:
    words = Text(state.state, style=_style_of(state))
    return (
        Text(safe(state.address)),
        words,
        seconds(round_trip),
        lane.text()[-marks:],
        Text(safe(state.server)),
    )


def _lock_row(lock: LockInfo, age: float) -> tuple[Text | str, ...]:
    marks = Text()
    for answer in lock.answers:
        mine = answer.token is not None and answer.token == lock.token
        mine = mine or (lock.readers != () and answer.readers > 0)
        marks.append(
            "●" if mine else "?" if answer.detail else "○", style="green" if mine else "yellow"
        )
    return (
        safe(lock.resource),
        holder_of(lock),
        owner(lock),
        fence(lock),
        f"{lock.nodes}/{lock.total}",
        marks,
        life_of(lock),
        waiting(lock),
        seconds(age),
    )


def _style_of(state: NodeState) -> str:
    return _STYLES.get(state.state, "red")


def _lines(text: str, width: int, style: str) -> list[Text]:
    return [Text(line, style=style) for line in wrapped(safe(text), width)]
