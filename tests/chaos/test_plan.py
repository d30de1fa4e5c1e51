"""A seed decides the plan, and a majority is well in the phases that promise it."""

from __future__ import annotations

import itertools

import pytest

from tests.chaos.plan import Plan, plan

pytestmark = pytest.mark.once


def drawn(seed: int, nodes: int = 5, seconds: float = 180.0) -> Plan:
    return plan(seed, nodes=nodes, seconds=seconds, slots=6, careless=1, ttl=1.5, guard=2.5)


def test_a_seed_decides_everything() -> None:
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@pytest.mark.parametrize("nodes", [3, 5])
def test_lanes_of_a_phase_never_impair_more_than_a_minority(nodes: int) -> None:
    for first, _ in drawn(3, nodes).cycles:
        hit = [{node for fault in lane for node in fault.nodes} for lane in first.lanes]
        assert len(hit) == (nodes - 1) // 2
        assert all(not a & b for a, b in itertools.combinations(hit, 2))
        assert all(len(fault.nodes) == 1 for lane in first.lanes for fault in lane)


@pytest.mark.parametrize("nodes", [3, 5])
def test_majorities_are_broken_and_some_node_always_remembers(nodes: int) -> None:
    for _, second in drawn(3, nodes).cycles:
        (lane,) = second.lanes
        assert {len(fault.nodes) for fault in lane} == {nodes // 2 + 1}


def test_half_an_hour_has_enough_of_every_fault() -> None:
    long = drawn(1, seconds=1800)
    kinds = [
        fault.kind
        for cycle in long.cycles
        for phase in cycle
        for lane in phase.lanes
        for fault in lane
    ]
    assert len(kinds) > 700
    assert min(kinds.count(kind) for kind in set(kinds)) > 20
    assert len(set(kinds)) == 10


def test_a_node_that_forgot_has_its_quarantine_before_it_is_to_be_well() -> None:
    faults = [
        fault
        for cycle in drawn(5).cycles
        for phase in cycle
        for lane in phase.lanes
        for fault in lane
    ]
    assert all(fault.settle > 2.5 for fault in faults if fault.kind in {"kill", "flush"})
