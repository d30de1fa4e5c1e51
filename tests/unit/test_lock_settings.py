"""Settings of locks: `Redlock.lock` keeps the settings of known names and never mixes them up."""

from __future__ import annotations

import tracemalloc

from aioredlock_ng import Redlock


def redlock() -> Redlock:
    return Redlock(["redis://a", "redis://b", "redis://c"], ttl=7.0)


def test_an_option_of_one_lock_does_not_reach_another_lock_of_the_same_name() -> None:
    manager = redlock()
    assert manager.lock("a").ttl == 7.0
    assert manager.lock("a", ttl=5.0).ttl == 5.0
    assert manager.lock("a").ttl == 7.0
    assert manager.lock("a", "b").resources == ("a", "b")
    assert manager.lock("a").resources == ("a",)


def test_a_lock_has_its_name_in_the_type_in_which_it_was_given() -> None:
    manager = redlock()
    assert [manager.lock(name).resources for name in ("a", b"a", "a")] == [("a",), (b"a",), ("a",)]


def test_a_manager_that_locks_ever_new_names_does_not_keep_them_all() -> None:
    manager = redlock()
    tracemalloc.start()
    try:
        for number in range(20_000):
            manager.lock(f"order:{number}")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 6_000_000
