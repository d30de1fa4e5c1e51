"""The steps of the model of fences, and the rules that each sense of "earlier" needs."""

from __future__ import annotations

import pytest

from tests.model.explore import explore, replay
from tests.model.fence_state import Rules
from tests.model.fencing import Fencing

pytestmark = pytest.mark.once

TAKES_ONE_ROUND = [
    "A proposes 1",
    "x grants A and stores 1",
    "y grants A and stores 1",
    "A has the lease with fence 1",
]


def test_a_lease_takes_one_round_or_two() -> None:
    model = Fencing(Rules(attempts=2))
    after = replay(
        model,
        [
            *TAKES_ONE_ROUND,
            "the key on x goes",
            "the key on y goes",
            "B proposes 1",
            "x grants B",
            "z grants B and stores 1",
            "B asks xz to confirm 3",
            "z acknowledges 3 to B",
            "x acknowledges 3 to B",
            "B has the lease with fence 3",
        ],
    )
    assert not model.broken(after)
    assert model.show(after) == "x: B 3   y: - 1   z: B 3"


def test_a_lease_owns_fences_above_the_largest_counter_that_any_of_its_quorums_replaced() -> None:
    model = Fencing(Rules(attempts=2, block=9))
    stored = [
        "A proposes 1",
        "x grants A and stores 1 over 0",
        "the key on x goes",
        "B proposes 3",
        "x grants B and stores 3 over 1",
        "y grants B and stores 3 over 0",
    ]
    by_x_and_y = "B has the lease with fences 2-3"
    by_y_and_z = "B has the lease with fences 1-3"
    replay(model, [*stored, by_x_and_y])
    with pytest.raises(LookupError):
        replay(model, [*stored, by_y_and_z])
    for lease in (by_x_and_y, by_y_and_z):
        replay(model, [*stored, "z grants B and stores 3 over 0", lease])


def test_a_lease_owns_no_more_than_a_block_of_fences_below_its_own() -> None:
    model = Fencing(Rules(attempts=1, block=1))
    stored = ["A proposes 3", "x grants A and stores 3 over 0", "y grants A and stores 3 over 0"]
    replay(model, [*stored, "A has the lease with fences 2-3"])
    with pytest.raises(LookupError):
        replay(model, [*stored, "A has the lease with fences 1-3"])


def test_a_lease_of_a_second_round_owns_no_fence_below_its_own() -> None:
    model = Fencing(Rules(attempts=2, block=9))
    acknowledged = [
        "A proposes 1",
        "x grants A and stores 1 over 0",
        "the key on x goes",
        "B proposes 1",
        "x grants B",
        "z grants B and stores 1 over 0",
        "B asks xz to confirm 3",
        "z acknowledges 3 to B",
        "x acknowledges 3 to B",
    ]
    replay(model, [*acknowledged, "B has the lease with fence 3"])
    with pytest.raises(LookupError):
        replay(model, [*acknowledged, "B has the lease with fences 2-3"])


def test_a_request_arrives_however_late_it_is() -> None:
    model = Fencing(Rules(attempts=1))
    assert (
        model.show(replay(model, [*TAKES_ONE_ROUND, "the key on x goes", "z grants A"]))
        == "x: - 1   y: A 1   z: A 1"
    )


@pytest.mark.parametrize(
    "request_", ["x acknowledges 2 to A", "y grants B and stores 1", "B has the lease with fence 1"]
)
def test_a_step_without_its_condition_cannot_happen(request_: str) -> None:
    """A confirmation without its key, a key that another has, a lease without a quorum."""
    model = Fencing(Rules(attempts=2))
    asked = ["A proposes 1", "x grants A and stores 1", "y grants A and stores 1", "B proposes 1"]
    with pytest.raises(LookupError, match="is not among"):
        replay(model, [*asked, "the key on x goes", request_])


def test_a_node_that_forgot_grants_after_the_guard_time_and_not_before() -> None:
    model = Fencing(Rules(attempts=2, width=2, forgetting=True, guard=2, ticks=3))
    forgot = [*TAKES_ONE_ROUND, "x forgets", "a tick passes", "B proposes 3"]
    assert "x: - 0 quarantined until 2" in model.show(replay(model, forgot))
    with pytest.raises(LookupError):
        replay(model, [*forgot, "x grants B and stores 3"])
    replay(model, [*forgot, "a tick passes", "x grants B and stores 3"])


def test_a_lease_comes_in_time_after_its_clock_was_read_or_not_at_all() -> None:
    model = Fencing(Rules(attempts=1, round_ticks=1, ticks=2))
    granted = TAKES_ONE_ROUND[:-1]
    replay(model, [*granted, "a tick passes", "A has the lease with fence 1"])
    with pytest.raises(LookupError):
        replay(model, [*granted, "a tick passes", "a tick passes", "A has the lease with fence 1"])


@pytest.mark.parametrize(
    "rules",
    [
        Rules(attempts=2, width=2, block=9, order="interval", compare_token=False),
        Rules(attempts=2, width=2, block=9, order="success", keys_last=True, compare_token=False),
    ],
    ids=lambda rules: str(rules.order),
)
def test_only_the_order_of_tenancies_needs_the_token(rules: Rules) -> None:
    """Strict counters alone keep fences apart and in the order of time.

    Only the rule that newer tenants have larger fences needs the token.
    """
    report = explore(Fencing(rules))
    assert report.complete
    assert not report.violation
