"""Divides the suite between `make test` and the rest of `make test-all`.

CONTRIBUTING.md has the times of both.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "QUICK_FOLDERS",
    "SPARSE",
    "TIERS",
    "ends",
    "is_quick",
    "pytest_ignore_collect",
    "pytest_itemcollected",
    "take_out",
]

TIERS = ("quick", "rest")

QUICK_FOLDERS = frozenset(
    {
        "containers",
        "contract",
        "election",
        "engine",
        "examples",
        "fencing",
        "integration",
        "integrations",
        "structure",
        "sync",
        "unit",
    }
)
"""Folders of tests that `make test` runs.

The tests of other folders start commands, take long, or need environments of their own.
"""

SPARSE = {
    "contract/test_joint.py::test_each_joined_call_is_answered_as_if_it_had_been_sent_alone": 3,
    "contract/test_readers.py::test_random_steps_have_the_same_effect_on_a_server_and_in_memory": 5,
    "contract/test_slots_in_queues.py"
    "::test_a_waiter_keeps_the_time_of_its_offer_when_slots_are_shared_out_again": 5,
    "contract/test_slots_in_queues.py"
    "::test_random_steps_have_the_same_effect_on_a_server_and_in_memory": 5,
    "election/test_interruptions.py::test_a_candidate_interrupted_at_any_instant_leaves_nothing": 7,
    "election/test_partitions.py::test_no_two_bodies_work_at_once_in_any_partition": 20,
    "engine/test_cancellation.py"
    "::test_a_call_interrupted_at_any_instant_leaves_nothing_and_the_next_gets_the_lock": 13,
    "engine/test_every_waiter_served.py"
    "::test_every_waiter_for_a_slot_is_served_through_failures_of_the_waiters_before_it": 5,
    "engine/test_every_waiter_served.py"
    "::test_every_waiter_is_served_through_failures_of_the_waiters_before_it": 5,
    "engine/test_min_hold.py"
    "::test_grants_are_min_hold_apart_through_failures_of_nodes_and_holders": 5,
    "engine/test_overlapping.py::test_a_dead_key_on_one_node_keeps_out_no_set": 3,
    "engine/test_overlapping.py::test_neither_sets_of_names_nor_single_names_are_starved": 7,
    "engine/test_overlapping.py"
    "::test_sets_with_a_new_second_name_each_time_leave_another_process_its_turn": 3,
    "engine/test_overlapping.py::test_a_set_of_names_gets_its_turn_as_a_single_name_does": 3,
    "engine/test_queue.py::test_a_waiter_that_ends_at_any_instant_is_left_in_no_queue": 5,
    "engine/test_semaphore.py::test_a_crowd_fills_every_slot_and_never_one_more": 3,
    "engine/test_shares.py::test_a_process_that_waited_for_another_passes_its_grant_on": 2,
    "engine/test_shares.py::test_processes_with_equally_long_lines_get_equal_shares": 3,
    "fencing/test_paused_holder.py::test_a_fence_refuses_the_late_write_of_a_stopped_holder": 4,
    "integration/test_bad_input.py"
    "::test_after_a_fork_the_child_is_refused_and_the_parent_goes_on": 2,
    "integration/test_bad_servers.py::test_bad_servers_in_the_majority_leave_no_key_on_the_rest": 3,
    "integration/test_bad_servers.py"
    "::test_the_error_names_a_bad_server_and_its_reason_and_in_the_minority_it_stops_no_lock": 3,
    "integration/test_basic.py::test_a_waiter_gets_the_lock_when_a_remote_lease_expires": 3,
    "integration/test_basic.py::test_renewals_keep_a_lease_alive_beyond_its_ttl": 3,
    "integration/test_basic.py::test_try_acquire_and_acquire_with_a_timeout_refuse_a_held_lock": 3,
    "integration/test_contention.py::test_a_held_lock_is_refused_as_held_with_a_node_down": 5,
    "integration/test_contention.py::test_split_votes_settle": 3,
    "integration/test_contention.py"
    "::test_with_a_node_down_a_waiter_is_still_woken_and_does_not_poll": 5,
    "integration/test_crashed_nodes.py::test_a_lease_outlives_the_crash_of_a_minority": 2,
    "integration/test_garbled_replies.py"
    "::test_a_server_that_garbles_the_answers_of_scripts_harms_no_client": 3,
    "integration/test_garbled_replies.py"
    "::test_two_new_servers_get_their_markers_though_the_third_garbles_its_own": 5,
    "integration/test_hidden_identity.py"
    "::test_clients_with_and_without_the_right_to_the_run_id_share_a_set": 3,
    "integration/test_node_kinds.py::test_a_missing_needed_right_is_an_error_at_once": 4,
    "integration/test_recovery_guard.py"
    "::test_a_server_that_forgot_grants_nothing_for_the_guard_time": 5,
    "integration/test_secrets.py::test_a_password_that_a_server_quotes_is_shown_nowhere": 3,
    "integration/test_secrets_of_all_kinds.py"
    "::test_no_output_shows_a_foreign_value_under_the_key": 3,
    "integration/test_secrets_of_all_kinds.py"
    "::test_no_output_shows_the_token_of_a_held_or_lost_lease": 3,
    "integration/test_tokens_and_values.py::test_no_output_shows_the_value_under_a_locks_key": 3,
    "integration/test_waiting.py"
    "::test_a_deletion_missed_while_connections_were_cut_wakes_a_waiter": 2,
    "integration/test_waiting.py::test_a_lock_ended_by_an_operator_wakes_a_waiter": 2,
    "integrations/test_fastapi_scope.py::test_a_time_limit_around_the_app_leaves_no_key": 3,
    "integrations/test_no_quorum.py::test_a_request_does_not_wait_for_a_majority_that_is_gone": 3,
    "integrations/test_view_limits.py"
    "::test_a_request_beyond_the_slots_is_refused_with_retry_after": 3,
    "integrations/test_view_limits.py::test_retry_after_with_min_hold_is_the_time_left": 3,
    "integrations/test_views_without_quorum.py"
    "::test_a_view_does_not_wait_for_nodes_that_are_all_down": 3,
    "threaded/test_cancellation.py"
    "::test_a_threaded_call_that_is_interrupted_at_any_instant_leaves_nothing": 3,
    "unit/test_replies.py"
    "::test_every_answer_of_a_server_to_a_script_is_read_or_counts_as_unknown": 3,
}
"""Tests with many cases. For a number n, `make test` and the matrix run only one of n cases.

If the cases are combinations of several lists, n should have no divisor in common with the lengths
of these lists. Then each item of each list keeps some cases.
"""

_TESTS = Path(__file__).parents[1]

_COLLECTED = pytest.StashKey[Counter[str]]()


def is_quick(path: Path, marks: Iterable[str]) -> bool:
    """Return whether `make test` runs a test of this file that has these marks."""
    return path.relative_to(_TESTS).parts[0] in QUICK_FOLDERS and not {"full", "slow"} & set(marks)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the folders without quick tests in the quick tier.

    Otherwise each process would import their files.
    """
    if (
        config.getoption("--tier") == "quick"
        and collection_path.parent == _TESTS
        and collection_path.is_dir()
    ):
        return collection_path.name not in QUICK_FOLDERS or None
    return None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark most cases of the tests in `SPARSE` as `full`."""
    name = f"{item.path.relative_to(_TESTS).as_posix()}::{getattr(item, 'originalname', '')}"
    if name in SPARSE:
        collected = item.config.stash.setdefault(_COLLECTED, Counter())
        if collected[name] % SPARSE[name]:
            item.add_marker("full")
        collected[name] += 1


def take_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the tests of the other tier, if `--tier` names one."""
    tier = config.getoption("--tier")
    if tier is None:
        return
    others = [item for item in items if _tier_of(item) != tier]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _tier_of(item) == tier]


def ends(cases: Sequence[object]) -> list[object]:
    """Return the cases as parameters of a test. All but the first and the last case are marked
    `full`.
    """
    return [
        case if place in (0, len(cases) - 1) else _full(case) for place, case in enumerate(cases)
    ]


def _full(case: Any) -> object:
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.full])
    return pytest.param(case, marks=pytest.mark.full)


def _tier_of(item: pytest.Item) -> str:
    return "quick" if is_quick(item.path, (mark.name for mark in item.iter_markers())) else "rest"
