"""Visits every reachable state of a model, breadth first, and reports the shortest way to a
violation.

The explorer knows nothing of locks. A state is `bytes` with one small integer per cell. Bytes are
compact, quickly copied and compared, and hashed once.

States that differ only by the names of nodes or clients count as one. A model's `canonical` may
return any state that a renaming makes of the given one. Two representatives of one class only cost
time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

State = bytes
Step = tuple[str, State]


class Model(Protocol):
    """The interface between a model and the explorer."""

    def initial(self) -> State:
        """Return the first state."""
        ...

    def steps(self, state: State) -> Sequence[Step]:
        """Return the possible next steps: the name of each, and the state after it."""
        ...

    def broken(self, state: State) -> str:
        """Return the violation in this state; empty if there is none."""
        ...

    def canonical(self, state: State) -> State:
        """Return the representative of all states that differ from this one only by names."""
        ...

    def show(self, state: State) -> str:
        """Return the state as one line for people."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an exploration is.

    Attributes:
        states: Different states found so far.
        steps: Steps followed so far, those to known states included.
        depth: Steps from the initial state to those looked at now.
        waiting: States found and not yet looked at.
        seconds: Since the start.
    """

    states: int
    steps: int
    depth: int
    waiting: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an exploration.

    Attributes:
        explored: The exploration's size. Its depth is that of the violation, or else that of the
            states furthest away.
        complete: Every reachable state was looked at.
        violation: The violation in the last state of the trace; empty if no state has one.
        trace: The steps to the violation, each with the state after it.
    """

    explored: Progress
    complete: bool
    violation: str
    trace: tuple[Step, ...]


def explore(
    model: Model,
    *,
    most: int | None = None,
    tell: Callable[[Progress], None] | None = None,
    every: float = 10.0,
) -> Report:
    """Visit all states of a model, nearest first, until one is broken.

    Args:
        model: The model to explore.
        most: Stop after so many states; the report then says that it is not complete.
        tell: Called with the progress, about once per interval.
        every: Length of the interval, seconds.

    Returns:
        The size of what was visited, and the shortest trace to a violation, if there is one.
    """
    steps_of, canonical, broken = model.steps, model.canonical, model.broken
    started = told_at = time.monotonic()
    first = canonical(model.initial())
    came_from = {first: first}
    level, depth, followed = [first], 0, 0

    def progress(depth: int) -> Progress:
        return Progress(len(came_from), followed, depth, len(level), time.monotonic() - started)

    while level:
        next_level: list[State] = []
        for state in level:
            steps = steps_of(state)
            followed += len(steps)
            for _, after in steps:
                # Many a step leads to a known state as it stands; looking costs less than ordering
                # it.
                if after in came_from or (found := canonical(after)) in came_from:
                    continue
                came_from[found] = state
                if broken(found):
                    trace = retrace(model, came_from, found)
                    return Report(progress(depth + 1), False, broken(trace[-1][1]), trace)
                next_level.append(found)
            if tell and not followed & 1023 and time.monotonic() - told_at >= every:
                told_at = time.monotonic()
                tell(Progress(len(came_from), followed, depth, len(next_level), told_at - started))
        if most is not None and len(came_from) >= most and next_level:
            return Report(progress(depth), False, "", ())
        level = next_level
        depth += bool(level)
    return Report(progress(depth), True, "", ())


def retrace(model: Model, came_from: dict[State, State], last: State) -> tuple[Step, ...]:
    """Walk the way to a state again with the names that it started with: a trace tells of the same
    A from end to end.
    """
    way = [last]
    while (before := came_from[way[-1]]) != way[-1]:
        way.append(before)
    state = model.initial()
    trace: list[Step] = []
    for target in reversed(way[:-1]):
        step = next(step for step in model.steps(state) if model.canonical(step[1]) == target)
        trace.append(step)
        state = step[1]
    return tuple(trace)


def replay(model: Model, whats: Iterable[str]) -> State:
    """Follow the steps of these names from the initial state on.

    Returns:
        The state after them.

    Raises:
        LookupError: A step is not possible in the state before it.
    """
    state = model.initial()
    for what in whats:
        possible = dict(model.steps(state))
        if what not in possible:
            raise LookupError(f"{what!r} is not among {sorted(possible)}, at {model.show(state)}")
        state = possible[what]
    return state


def tell_trace(model: Model, report: Report) -> str:
    """Return a violation as text: one numbered step a line, with the state after the step."""
    width = max((len(what) for what, _ in report.trace), default=0)
    lines = [
        f"{number:3} {what:{width}}   {model.show(state)}"
        for number, (what, state) in enumerate(report.trace, 1)
    ]
    return "\n".join([*lines, f"    {report.violation}"])
