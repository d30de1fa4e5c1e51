"""Run the tests of managers without a thread for managers with `thread=True`.

The rig of this folder makes managers with `thread=True`.
"""

from __future__ import annotations

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
    "test_a_task_cancelled_as_a_grant_is_passed_on_leaves_it_to_the_next_task",
    "test_the_last_task_cancelled_as_a_grant_is_passed_on_leaves_no_key",
    "test_a_lease_that_a_sink_ends_when_another_is_lost_is_not_renewed",
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


def cases_of(module: ModuleType) -> dict[str, Any]:
    """Return the tests and the fixtures of a module by name."""
    return {
        name: thing
        for name, thing in vars(module).items()
        if getattr(thing, "__module__", None) == module.__name__
        and (name.startswith("test_") or "fixture" in type(thing).__name__.lower())
        and name not in DIFFERENT
    }


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
