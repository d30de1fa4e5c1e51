"""`Redlock.once` for threads on real nodes: the fleet begins a plain function at most once within
some seconds.
"""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import ConfigurationError, LockHeld, LockLost, UpgradeRefused
from tests.sync.test_locks import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioredlock_ng.sync import Redlock


@pytest.fixture(autouse=True)
def nothing_is_left(rival: Redlock) -> Iterator[None]:
    yield
    rival.force_release("job")


def counting(redlock: Redlock, began: list[str]) -> Callable[[], bool]:
    @redlock.once("job", within=30)
    def run() -> None:
        began.append(threading.current_thread().name)

    return run


def test_of_threads_of_two_managers_one_runs_the_function(redlock: Redlock, rival: Redlock) -> None:
    began: list[str] = []
    calls = [counting(manager, began) for manager in (redlock, rival) for _ in range(3)]
    with ThreadPoolExecutor(6) as pool:
        ran = list(pool.map(lambda call: call(), calls))
    assert (sum(ran), len(began)) == (1, 1)
    assert rival.inspect("job").over


def test_a_run_that_fails_raises_and_counts_as_begun(redlock: Redlock, rival: Redlock) -> None:
    @redlock.once("job", within=30)
    def run() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run()
    assert counting(rival, [])() is False


def test_the_refusal_of_another_lock_inside_the_function_reaches_the_caller(
    redlock: Redlock, rival: Redlock
) -> None:
    @redlock.once("job", within=30)
    def run() -> None:
        with rival.lock("other"), redlock.lock("other", blocking_timeout=0):
            pass

    with pytest.raises(LockHeld, match="'other'"):
        run()


def test_a_call_in_a_read_of_its_own_name_does_not_pass_for_a_run_of_another_call(
    redlock: Redlock,
) -> None:
    began: list[str] = []
    with redlock.rwlock("job").read(), pytest.raises(UpgradeRefused):
        counting(redlock, began)()
    assert counting(redlock, began)() is True


def test_a_run_whose_lock_is_lost_ends_and_its_caller_knows(
    redlock: Redlock, rival: Redlock
) -> None:
    @redlock.once("job", within=30)
    def run() -> None:
        rival.force_release("job")
        wait_until(lambda: redlock.current_lease.lost)

    with pytest.raises(LockLost):
        run()


def test_a_decorated_function_keeps_its_parameters_and_returns_a_bool(
    redlock: Redlock, rival: Redlock
) -> None:
    @redlock.once("job:{day}", within=30)
    def report(day: str, *, draft: bool = False) -> str:
        return "the report"

    assert str(inspect.signature(report)) == "(day: 'str', *, draft: 'bool' = False) -> bool"
    assert report("monday", draft=True) is True
    assert report("monday") is False
    rival.force_release("job:monday")


def test_arguments_that_cannot_be_are_refused_at_once(redlock: Redlock) -> None:
    once: Any = redlock.once

    async def coroutine() -> None: ...

    def plain() -> None: ...

    with pytest.raises(ConfigurationError, match="within=61 is above max_ttl=60 seconds"):
        once("job", within=61)
    with pytest.raises(
        ConfigurationError,
        match=r"once\('job'\) of aioredlock_ng.sync is for functions defined by `def`",
    ):
        once("job", within=1)(coroutine)
    with pytest.raises(ConfigurationError, match=r"\{user\} names no parameter"):
        once("job:{user}", within=1)(plain)
