"""Run the tests of managers without a thread for managers with `thread=True`.

The rig of this folder makes managers with `thread=True`.
"""

from __future__ import annotations

from inspect import signature
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest

from tests.engine import (
    test_acquire,
    test_bodies,
    test_events,
    test_fences,
    test_leases,
    test_manager,
    test_owners,
    test_passing_on,
    test_semaphore,
    test_sinks,
    test_slots_inspected,
)

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = [pytest.mark.virtual_time, pytest.mark.full]

DIFFERENT = {
    # These tests use the engine itself, which belongs to the thread.
    "test_leases_that_were_renewed_are_not_kept_when_they_are_over",
    "test_a_grant_with_no_fence_left_is_not_passed_on",
    "test_a_grant_is_not_passed_on_in_the_tick_in_which_its_tracking_was_lost",
    "test_a_close_reports_an_expired_lease_once_although_a_body_begins_meanwhile",
    "test_a_task_cancelled_as_a_grant_is_passed_on_leaves_it_to_the_next_task",
    "test_the_last_task_cancelled_as_a_grant_is_passed_on_leaves_no_key",
    "test_a_lease_that_a_sink_ends_when_another_is_lost_is_not_renewed",
    "test_after_a_refusal_of_labels_no_release_names_the_label_of_an_ended_reader",
    "test_a_renewal_that_fails_for_one_lease_is_not_reported_for_the_others",
    "test_a_renewal_under_way_is_not_reported_as_failed_after_the_end_of_its_lease",
    "test_a_lease_that_a_sink_abandons_as_its_renewal_is_sent_is_neither_read_nor_labelled",
    # With a thread, another loop may use the manager.
    "test_use_from_another_loop_is_refused_and_says_loop",
    # With a thread, the effects and the events of a call come one step of the loop later.
    "test_code_outside_of_any_task_is_not_taken_for_the_holder",
    "test_a_shorter_ttl_counts_before_any_node_has_confirmed_it",
    "test_a_cancelled_wait_is_reported_once",
    # A caller that was interrupted amid the grant counts as one that released.
    "test_a_lease_that_no_caller_received_is_not_reported_as_released",
    "test_a_lease_that_was_granted_while_its_manager_closed_is_not_reported",
    "test_the_loss_of_a_lease_that_no_caller_received_is_not_reported",
}


OF_FENCES = {
    "test_each_lease_has_a_greater_fence_than_the_one_before",
    "test_an_acquire_cancelled_in_the_second_round_leaves_no_key",
    "test_a_waiter_wakes_when_the_node_that_hung_in_its_second_round_answers",
    "test_several_resources_have_one_fence_above_all_their_counters",
    "test_without_fencing_a_lease_has_no_fence_and_a_node_has_no_counter",
}
"""The other tests of fences check votes of nodes, which do not leave the engine's thread."""

IN_THE_THREAD = {
    # The engine reads these replies and decides these votes. The caller's thread has no part in it.
    "test_a_node_that_answers_an_inspection_with_garbage_has_no_vote",
    # Only the engine decides how many requests these crowds send, and in which order.
    "test_a_crowd_that_queues_without_attempts_stands_behind_higher_tickets",
    "test_fifty_candidates_cost_five_commands_per_second_on_five_nodes_together",
    "test_fifty_candidates_send_only_queue_requests_and_renewals_of_the_leader",
    "test_sixteen_slots_load_the_nodes_far_less_than_sixteen_locks",
    "test_while_a_node_hangs_crowds_lose_no_time_to_split_offers",
    # These arguments are refused before a call leaves the caller's thread.
    "test_an_invalid_limit_is_refused_before_any_request",
    "test_an_invalid_within_is_refused_at_once",
    "test_a_function_that_cannot_be_decorated_is_refused_at_once",
    "test_an_unusable_argument_is_named_with_its_remedy_before_any_io",
    "test_an_election_refuses_a_main_that_is_not_callable",
}

STEPS = {
    "test_a_crowd_fills_every_slot_and_never_one_more": 3,
    "test_an_acquire_fails_only_if_a_majority_of_nodes_fails": 2,
    "test_asking_for_the_owner_delays_lock_held_by_the_node_timeout_at_most": 2,
    "test_closing_at_any_instant_of_an_acquire_leaves_no_key_and_no_unguarded_body": 2,
    "test_force_release_cancelled_anywhere_deletes_everywhere_or_nowhere": 4,
    "test_grants_are_min_hold_apart_through_failures_of_nodes_and_holders": 3,
    "test_the_shortest_leases_are_kept_alive_and_not_in_a_hot_loop": 3,
}
"""Tests with many cases. Here one case in so many of the longest list of cases is repeated.

The tests of the engine run all cases on the same code.
"""


def cases_of(module: ModuleType) -> dict[str, Any]:
    """Return the tests and the fixtures of a module by name.

    A test without the rig uses no manager of this folder, and is not repeated.
    """
    return {
        name: thinned(thing, STEPS[name]) if name in STEPS else thing
        for name, thing in vars(module).items()
        if getattr(thing, "__module__", None) == module.__name__
        and (is_repeated(thing) if name.startswith("test_") else is_fixture(thing))
    }


def is_fixture(thing: object) -> bool:
    return "fixture" in type(thing).__name__.lower()


def is_repeated(test: FunctionType) -> bool:
    name = test.__name__
    of_fences = test.__module__ == test_fences.__name__
    return (
        bool({"rig", "processes"} & set(signature(test).parameters))
        and name not in DIFFERENT | IN_THE_THREAD
        and (name in OF_FENCES or not of_fences)
    )


def thinned(test: Any, step: int) -> Any:
    """Return the test with each `step`-th case of its longest list of cases."""
    copy = FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__)
    copy.__dict__.update(test.__dict__)
    copy.__module__, copy.__annotations__ = test.__module__, test.__annotations__
    longest = max((mark for mark in test.pytestmark if mark.name == "parametrize"), key=_length)
    names, cases = longest.args
    shorter = pytest.mark.parametrize(names, list(cases)[::step], **longest.kwargs).mark
    copy.pytestmark = [  # type: ignore[attr-defined]
        shorter if mark is longest else mark for mark in test.pytestmark
    ]
    return copy


def _length(mark: pytest.Mark) -> int:
    return len(mark.args[1])


for _module in (
    test_acquire,
    test_bodies,
    test_events,
    test_fences,
    test_leases,
    test_manager,
    test_owners,
    test_passing_on,
    test_semaphore,
    test_sinks,
    test_slots_inspected,
):
    _found = cases_of(_module)
    assert not _found.keys() & globals().keys()
    globals().update(_found)
