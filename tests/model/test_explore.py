"""The explorer solves a puzzle with a known answer: four litres out of jugs of three and five."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.model import fence_state, founding, mutex, rw_fence_state, rw_nodes, slots
from tests.model.explore import explore, retrace, tell_trace
from tests.model.fencing import Fencing
from tests.model.founding import Founding
from tests.model.mutex import Mutex
from tests.model.rw_fencing import RwFencing
from tests.model.rwlock import RwLock
from tests.model.slots import Slots
from tests.model.symmetry import Alike, Symmetry

if TYPE_CHECKING:
    from tests.model.explore import Model, Progress, State, Step

pytestmark = pytest.mark.once


class Jugs:
    """Jugs that are filled, emptied, and poured from one into another until that is full."""

    def __init__(self, *sizes: int, target: int) -> None:
        self.sizes = sizes
        self.target = target

    def initial(self) -> State:
        return bytes(len(self.sizes))

    def steps(self, state: State) -> list[Step]:
        steps: list[Step] = []
        for i, size in enumerate(self.sizes):
            for what, amount in (("fill", size), ("empty", 0)):
                after = bytearray(state)
                after[i] = amount
                steps.append((f"{what} {i}", bytes(after)))
            for j, room in enumerate(self.sizes):
                poured = min(state[i], room - state[j]) if i != j else 0
                if poured:
                    after = bytearray(state)
                    after[i] -= poured
                    after[j] += poured
                    steps.append((f"pour {i} into {j}", bytes(after)))
        return steps

    def broken(self, state: State) -> str:
        return f"{self.target} litres" if self.target in state else ""

    def canonical(self, state: State) -> State:
        return bytes(sorted(state)) if len(set(self.sizes)) == 1 else state

    def show(self, state: State) -> str:
        return " ".join(map(str, state))


class Unreduced:
    """A model in which every name makes a difference."""

    def __init__(self, model: Model) -> None:
        self.initial, self.steps, self.broken, self.show = (
            model.initial,
            model.steps,
            model.broken,
            model.show,
        )

    def canonical(self, state: State) -> State:
        return state


def test_the_trace_is_a_shortest_way_and_each_step_follows_from_the_one_before() -> None:
    jugs = Jugs(3, 5, target=4)
    report = explore(jugs)
    assert report.violation == "4 litres"
    assert len(report.trace) == report.explored.depth == 6
    state = jugs.initial()
    for step in report.trace:
        assert step in jugs.steps(state)
        state = step[1]
    assert jugs.broken(state)


def test_without_a_violation_every_state_is_visited() -> None:
    # With jugs of four and six only even amounts can be had: a corner or an edge of the rectangle,
    # each of them.
    report = explore(Jugs(4, 6, target=5))
    assert report.complete
    assert not report.violation
    assert report.trace == ()
    assert report.explored.states == 10
    assert report.explored.waiting == 0


def test_an_exploration_that_was_cut_short_says_so() -> None:
    report = explore(Jugs(4, 6, target=5), most=4)
    assert not report.complete
    assert not report.violation


def test_states_that_differ_by_names_are_one_and_the_trace_keeps_its_names() -> None:
    alike = Jugs(3, 3, 3, target=7)
    assert explore(alike).explored.states == 4
    assert explore(Unreduced(alike)).explored.states == 8
    found = alike.initial()
    came_from = {found: found, bytes((0, 0, 3)): found, bytes((0, 3, 3)): bytes((0, 0, 3))}
    assert [what for what, _ in retrace(alike, came_from, bytes((0, 3, 3)))] == ["fill 0", "fill 1"]


def test_the_explorer_reports_its_progress_during_a_search() -> None:
    class Slow(Jugs):
        def steps(self, state: State) -> list[Step]:
            # The explorer looks at the time once in about a thousand steps.
            return [(what, after) for what, after in super().steps(state) for _ in range(1024)]

    told: list[Progress] = []
    explore(Slow(4, 6, target=5), tell=told.append, every=0.0)
    assert told
    assert told[-1].states <= 10


def test_a_trace_is_printed_with_one_step_a_line() -> None:
    jugs = Jugs(3, 5, target=4)
    lines = tell_trace(jugs, explore(jugs)).splitlines()
    assert len(lines) == 7
    assert lines[0].split() == ["1", "fill", "1", "0", "5"]
    assert lines[-1].strip() == "4 litres"


def test_canonical_states_are_the_same_for_all_names() -> None:
    # Two clients with a head of one cell and one row each, behind one row of the nodes' own.
    symmetry = Symmetry(2, [Alike(count=2, heads=0, head=1, rows=5, size=3)])
    state = bytes((7, 9, 1, 2, 3, 4, 5, 6, 0, 0, 8))
    clients_renamed = bytes((9, 7, 1, 2, 3, 0, 0, 8, 4, 5, 6))
    nodes_renamed = bytes((7, 9, 3, 1, 2, 6, 4, 5, 8, 0, 0))
    canonical = symmetry.canonical(state)
    assert sorted(canonical) == sorted(state)
    assert (
        symmetry.canonical(clients_renamed)
        == symmetry.canonical(nodes_renamed)
        == symmetry.canonical(canonical)
        == canonical
    )


@pytest.mark.parametrize(
    "model",
    [
        Fencing(fence_state.Rules(attempts=2, width=2)),
        Fencing(fence_state.Rules(attempts=2, compare_token=False)),
        Mutex(mutex.Rules(ttls=(2, 2), guard=2)),
        Mutex(mutex.Rules(guard=0)),
        Founding(founding.Rules(promoters=1)),
        Founding(founding.Rules(promoters=1, settled=-1)),
        Slots(slots.Rules(clients=2, limits=(1, 2))),
        Slots(slots.Rules(forgetting=False, counting=True)),
        RwLock(rw_nodes.Rules(ttls=(1, 1), guard=1)),
        RwLock(rw_nodes.Rules(ttls=(1, 1), guard=1, read_quorum=1)),
        RwFencing(rw_fence_state.Rules(writers=1, width=1)),
        RwFencing(rw_fence_state.Rules(writers=1, width=1, write_back=False)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_with_all_names_has_the_same_verdict(model: Model) -> None:
    reduced, full = explore(model), explore(Unreduced(model))
    assert (full.complete, full.explored.depth) == (reduced.complete, reduced.explored.depth)
    assert bool(full.violation) == bool(reduced.violation)
    assert full.explored.states > reduced.explored.states
