"""FenceGuard: what it refuses, what it forgets and what that costs, threads; and the error that all
checks raise.
"""

from __future__ import annotations

import functools
import os
import pickle
import signal
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng import ConfigurationError, RedlockError
from aioredlock_ng.fencing import MAX_FENCE, FenceGuard, StaleFence


def accepted(guard: FenceGuard, resource: str | bytes, fence: int) -> bool:
    try:
        guard.check(resource, fence)
    except StaleFence:
        return False
    return True


@functools.cache
def names_of_one_floor() -> tuple[str, ...]:
    """Six names that share a floor, as a guard itself shows by what it has forgotten."""
    guard = FenceGuard(max_resources=1)
    guard.check("first", 100)
    guard.check("second", 0)
    alike = [name for name in map(str, range(50_000)) if not accepted(guard, name, 50)]
    return ("first", *alike[:5])


def test_an_older_fence_is_refused_and_an_equal_or_newer_one_passes() -> None:
    guard = FenceGuard(max_resources=10)
    guard.check("a", 5)
    guard.check("a", 5)
    with pytest.raises(StaleFence) as caught:
        guard.check("a", 4)
    assert (caught.value.resource, caught.value.fence, caught.value.seen) == ("a", 4, 5)
    guard.check("a", 7)
    assert not accepted(guard, "a", 6)
    assert not accepted(guard, "a", 5)
    guard.check("b", 1)


def test_a_name_and_its_utf8_are_one_resource() -> None:
    guard = FenceGuard(max_resources=10)
    guard.check("é", 2)
    assert not accepted(guard, "é".encode(), 1)


def test_a_floor_never_sinks() -> None:
    first, other, *_ = names_of_one_floor()
    guard = FenceGuard(max_resources=2)
    for name, fence in ((first, 5), (other, 10), (first, 5), ("x", 100), ("y", 100)):
        guard.check(name, fence)
    assert not accepted(guard, other, 9), "forgotten with 10, and after it its neighbour with 5"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=60), st.integers(1, 5))
def test_no_fence_older_than_an_accepted_one_passes_although_resources_are_forgotten(
    checks: list[tuple[int, int]], size: int
) -> None:
    guard, newest = FenceGuard(max_resources=size), dict[str, int]()
    for index, fence in checks:
        resource = names_of_one_floor()[index]
        if accepted(guard, resource, fence):
            assert fence >= newest.get(resource, 0)
            newest[resource] = fence
        assert len(guard) <= size


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 20)), max_size=60))
def test_a_guard_with_room_for_all_resources_refuses_exactly_the_older_fences(
    checks: list[tuple[str, int]],
) -> None:
    guard, newest = FenceGuard(max_resources=8), dict[str, int]()
    for resource, fence in checks:
        assert accepted(guard, resource, fence) is (fence >= newest.get(resource, 0))
        newest[resource] = max(fence, newest.get(resource, 0))


def test_a_forgotten_fence_is_the_floor_of_all_names_that_share_it() -> None:
    first, other, *_ = names_of_one_floor()
    guard = FenceGuard(max_resources=1)
    guard.check(first, 100)
    guard.check("second", 0)
    for name in (first, other):
        assert not accepted(guard, name, 99)
        assert accepted(guard, name, 100)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=80), st.integers(1, 5))
def test_a_current_holder_is_refused_only_after_enough_others(
    steps: list[tuple[int, bool]], size: int
) -> None:
    """Fences grow with time, as those of clocks that agree.

    Each resource is acquired anew, or its holder checks.
    """
    guard, names = FenceGuard(max_resources=size), names_of_one_floor()
    held, others = dict[int, int](), {index: set[int]() for index in range(6)}
    for now, (index, anew) in enumerate(steps, 1):
        if anew or index not in held:
            held[index] = now
            others[index].clear()
            continue
        if accepted(guard, names[index], held[index]):
            for other, seen in others.items():
                seen.add(index) if other != index else seen.clear()
        else:
            assert len(others[index]) >= size


def test_memory_stays_bounded_and_recently_checked_resources_are_remembered() -> None:
    guard = FenceGuard(max_resources=100)
    for number in range(1, 10_001):
        guard.check("long", 1)
        guard.check(f"short:{number}", number)
    assert len(guard) == 100
    assert accepted(guard, "long", 1)


def test_a_guard_refuses_fences_below_its_floor() -> None:
    guard = FenceGuard(max_resources=10, floor=1_800_000_000_000_000)
    assert not accepted(guard, "a", 1_799_999_999_999_999)
    assert accepted(guard, "a", 1_800_000_000_000_000)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_is_forked_while_a_thread_checks_is_not_stuck() -> None:
    guard = FenceGuard(max_resources=10)
    guard.check("a", 5)
    with guard._mutex:
        child = os.fork()
        if not child:
            status = 1
            try:
                signal.alarm(10)
                status = 0 if accepted(guard, "a", 5) and not accepted(guard, "a", 4) else 1
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_never_let_an_older_fence_follow_a_newer_one() -> None:
    guard, passed, mutex = FenceGuard(max_resources=1), list[int](), threading.Lock()

    def work(start: int) -> None:
        for fence in range(start, 4000, 4):
            with mutex:  # the check and what it permits, as the guard's documentation demands
                if accepted(guard, "a", fence):
                    passed.append(fence)
            accepted(guard, f"b{start}", fence)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed == sorted(passed)
    assert len(guard) == 1


@pytest.mark.parametrize(
    ("fence", "words"),
    [
        (None, "NoneType"),
        (True, "bool"),
        ("7", "str"),
        (7.0, "float"),
        (-1, "-1"),
        (2**53, "2\\*\\*53"),
    ],
)
def test_an_invalid_fence_is_refused_with_the_reason(fence: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        FenceGuard(max_resources=1).check("a", fence)


@pytest.mark.parametrize("max_resources", [0, -1, "5", None, 1.5, True])
def test_a_guard_that_could_remember_nothing_is_refused(max_resources: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^max_resources must be"):
        FenceGuard(max_resources=max_resources)


@pytest.mark.parametrize("floor", [1.5, None, -1, 2**53])
def test_an_invalid_floor_is_refused_by_that_name(floor: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^floor must be"):
        FenceGuard(max_resources=1, floor=floor)


@pytest.mark.parametrize("resource", [None, 5, "", b"", "\ud800"])
def test_an_invalid_resource_name_is_refused_and_not_remembered(resource: Any) -> None:
    guard = FenceGuard(max_resources=1)
    with pytest.raises(ConfigurationError, match=r"^resource"):
        guard.check(resource, 3)
    assert len(guard) == 0


def test_the_largest_fence_is_a_fence() -> None:
    guard = FenceGuard(max_resources=1)
    guard.check("a", MAX_FENCE)
    assert not accepted(guard, "a", MAX_FENCE - 1)


@pytest.mark.parametrize("resource", ["order:42", b"\xff\x00"])
def test_the_error_survives_pickling_with_all_that_it_carries(resource: str | bytes) -> None:
    error = StaleFence(resource, 4, 5)
    error.add_note("of the caller's")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is StaleFence
    assert isinstance(again, RedlockError)
    assert str(again) == str(error)
    assert (again.resource, again.fence, again.seen) == (resource, 4, 5)
    assert again.__notes__ == ["of the caller's"]
