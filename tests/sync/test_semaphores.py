"""Semaphores for threads on real nodes: as many holders as slots, and the promises of a lock for
each of them.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from aioredlock_ng import AcquireTimeout, ConfigurationError, LockHeld, LockLost
from aioredlock_ng.sync import Lease, Redlock, Semaphore
from tests.sync.test_locks import PATIENCE, wait_until


def slots_of(leases: list[Lease]) -> list[int]:
    return sorted(lease.slot for lease in leases)


def test_threads_of_two_managers_are_never_more_than_the_limit(
    redlock: Redlock, rival: Redlock
) -> None:
    guard, inside, most, visits = threading.Lock(), set[int](), 0, 0
    all_taken = threading.Event()

    def work(manager: Redlock) -> None:
        nonlocal most, visits
        for _ in range(5):
            with manager.semaphore("gpu", 3) as lease:
                with guard:
                    assert lease.slot not in inside, "two leases have the same slot"
                    inside.add(lease.slot)
                    most, visits = max(most, len(inside)), visits + 1
                    if most == 3:
                        all_taken.set()
                # The first holders stay until all slots are taken.
                assert all_taken.wait(PATIENCE)
                time.sleep(0.001)
                with guard:
                    inside.remove(lease.slot)

    with ThreadPoolExecutor(12) as pool:
        for job in [pool.submit(work, manager) for manager in (redlock, rival) for _ in range(6)]:
            job.result(PATIENCE)
    assert (most, visits) == (3, 60)


def test_a_semaphore_says_its_name_its_limit_and_its_ttl(redlock: Redlock) -> None:
    semaphore = redlock.semaphore("gpu", 4, ttl=7)
    assert isinstance(semaphore, Semaphore)
    assert (semaphore.resource, semaphore.limit, semaphore.ttl) == ("gpu", 4, 7)
    assert repr(semaphore) == "<Semaphore 'gpu' limit=4 ttl=7 blocking_timeout=None>"
    with redlock.lock("gpu") as lease:
        assert lease.slot is None


def test_a_client_without_a_free_slot_is_refused(redlock: Redlock, rival: Redlock) -> None:
    leases = [redlock.semaphore("gpu", 2).acquire() for _ in range(2)]
    assert slots_of(leases) == [1, 2]
    assert rival.semaphore("gpu", 2).try_acquire() is None
    with pytest.raises(LockHeld, match="in all 2 slots"):
        rival.semaphore("gpu", 2, blocking_timeout=0).acquire()
    with pytest.raises(AcquireTimeout):
        rival.semaphore("gpu", 2, blocking_timeout=0.2).acquire()
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(rival.semaphore("gpu", 2).acquire)
        assert leases[1].release()
        assert waiter.result(PATIENCE).slot == leases[1].slot


def test_a_thread_may_hold_all_slots_and_does_not_wait_for_itself(redlock: Redlock) -> None:
    pair = redlock.semaphore("gpu", 2)
    with pair as one:
        with pair as other:
            assert slots_of([one, other]) == [1, 2]
            with pytest.raises(LockHeld, match="this very thread holds it"):
                pair.acquire()
            with pytest.raises(AcquireTimeout):
                redlock.semaphore("gpu", 2, blocking_timeout=0.1).acquire()
            with redlock.semaphore("gpu", 3) as third:
                assert third.slot == 3, "another limit, another slot"
        with pair as again:
            assert again.slot == other.slot
        assert one.valid


@pytest.mark.parametrize("names", [("gpu#1", "gpu#2"), ("gpu#2", "gpu#1", "else")])
def test_a_lock_on_every_slot_is_no_slot_to_wait_for(
    redlock: Redlock, names: tuple[str, ...]
) -> None:
    with redlock.lock(*names), pytest.raises(LockHeld, match="this very thread holds it"):
        redlock.semaphore("gpu", 2).acquire()


def test_the_holder_of_a_slot_does_not_wait_for_the_lock_of_that_slot(redlock: Redlock) -> None:
    with redlock.semaphore("gpu", 1) as lease:
        assert lease.slot == 1
        with pytest.raises(LockHeld, match="this very thread holds it"):
            redlock.lock("gpu#1").acquire()


def test_a_lock_of_the_same_name_is_another_lock(redlock: Redlock) -> None:
    with redlock.lock("gpu") as whole, redlock.semaphore("gpu", 1) as slot:
        assert whole.valid
        assert slot.valid


def test_each_with_releases_the_lease_that_it_acquired(redlock: Redlock) -> None:
    """A thread may leave its entries in another order, as in a walk that takes the next slot before
    it frees the last.
    """
    with ExitStack() as later:
        first = redlock.semaphore("gpu", 2)
        one = first.__enter__()
        other = later.enter_context(redlock.semaphore("gpu", 2))
        first.__exit__(None, None, None)
        assert not one.valid
        assert other.valid


def test_the_loss_of_a_slot_is_reported_to_its_holder_alone(
    redlock: Redlock, rival: Redlock
) -> None:
    told: list[Lease] = []
    called = threading.Event()

    def on_lost(lost: Lease) -> None:
        told.append(lost)
        called.set()

    def body() -> None:
        with redlock.semaphore("gpu", 2, on_lost=on_lost) as lease:
            leases.append(lease)
            wait_until(lambda: lease.nodes == (3, 3))
            assert rival.force_release(f"gpu#{lease.slot}") >= 2
            assert lease.wait_lost(PATIENCE)

    leases: list[Lease] = []
    with redlock.semaphore("gpu", 2) as other:
        with pytest.raises(LockLost, match="'gpu' was lost"):
            body()
        assert called.wait(PATIENCE)
        assert told == leases
        other.check()


def test_a_slot_stays_taken_for_its_min_hold(redlock: Redlock, rival: Redlock) -> None:
    for _ in range(2):
        with redlock.semaphore("mail", 2, min_hold=30):
            pass
    with pytest.raises(LockHeld) as refused:
        rival.semaphore("mail", 2, blocking_timeout=0).acquire()
    assert refused.value.retry_after is not None
    assert refused.value.retry_after < 31


def test_inspect_names_the_holder_of_each_slot_and_counts_the_waiters(
    redlock: Redlock, rival: Redlock
) -> None:
    semaphore = rival.semaphore("gpu", 2)
    with redlock.semaphore("gpu", 2) as lease:
        info = semaphore.inspect()
        assert [slot.held for slot in info.slots] == [number == lease.slot for number in (1, 2)]
        with semaphore, ThreadPoolExecutor(1) as pool:
            waiter = pool.submit(redlock.semaphore("gpu", 2, blocking_timeout=PATIENCE).acquire)
            while semaphore.inspect().waiting != 1:
                time.sleep(0.005)
            lease.release()
            assert waiter.result(PATIENCE).slot == lease.slot


def test_the_lease_of_the_innermost_slot_is_found_in_the_thread(redlock: Redlock) -> None:
    pair = redlock.semaphore("gpu", 2)
    with pair as one, pair as other:
        assert redlock.current_lease is other
        assert redlock.current_lease is not one


def test_guard_lets_as_many_calls_in_as_its_limit_says(redlock: Redlock) -> None:
    both, third = threading.Barrier(2), threading.Event()

    @redlock.guard("api:{host}", limit=2, blocking_timeout=0)
    def call(host: str) -> bool:
        both.wait(PATIENCE)
        return third.wait(PATIENCE)

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call, "a") for _ in range(2)]
        wait_until(lambda: len(redlock.leases) == 2)
        with pytest.raises(LockHeld, match="'api:a' was not acquired"):
            call("a")
        third.set()
        assert [job.result(PATIENCE) for job in calls] == [True, True]


@pytest.mark.parametrize("limit", [0, True])
def test_invalid_options_are_refused_before_anything_opens(limit: object) -> None:
    redlock = Redlock(["redis://127.0.0.1:1"])
    for make in (redlock.semaphore, redlock.guard):
        with pytest.raises(
            ConfigurationError, match="limit must be a whole number from 1 to 1,000"
        ):
            make("gpu", limit=limit)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="on_lost must be a function"):
        redlock.semaphore("gpu", 4, on_lost="cancel")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="ttl"):
        redlock.semaphore("gpu", 4, ttl=-1.0)
