"""Read-write locks for threads on real nodes: who shares, who is refused, and what a read lease
promises.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import (
    AcquireTimeout,
    ConfigurationError,
    LockHeld,
    LockLost,
    LockReleased,
    UpgradeRefused,
)
from aioredlock_ng.sync import Lease, ReadLock, Redlock, RWLock, WriteLock
from tests.sync.interrupted import Interrupted
from tests.sync.test_closing import thread_of
from tests.sync.test_locks import PATIENCE, wait_until
from tests.sync.test_threads import interrupt_when, interrupts, main_thread_waits

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["interrupts"]


def waiting(manager: Redlock, count: int) -> Callable[[], bool]:
    """Return a condition that is true when `count` readers and writers wait in the queues."""
    return lambda: manager.inspect("catalog").waiting == count


def test_no_thread_reads_beside_a_writer(redlock: Redlock, rival: Redlock) -> None:
    guard, readers, writers, visits = threading.Lock(), 0, 0, 0
    together = threading.Barrier(9, timeout=PATIENCE)

    def read(manager: Redlock) -> None:
        nonlocal readers, visits
        with manager.rwlock("catalog").read():
            together.wait()
        for _ in range(5):
            with manager.rwlock("catalog").read():
                with guard:
                    assert not writers, "a reader beside a writer"
                    readers, visits = readers + 1, visits + 1
                time.sleep(0.002)
                with guard:
                    readers -= 1

    def write(manager: Redlock) -> None:
        nonlocal writers, visits
        for _ in range(3):
            with manager.rwlock("catalog").write():
                with guard:
                    assert not writers, "two writers"
                    assert not readers, "a writer beside a reader"
                    writers, visits = writers + 1, visits + 1
                time.sleep(0.001)
                with guard:
                    writers -= 1

    with ThreadPoolExecutor(10) as pool:
        jobs = [pool.submit(read, manager) for manager in (redlock, rival) for _ in range(4)]
        # All readers read at the same time before a writer comes.
        together.wait()
        jobs += [pool.submit(write, manager) for manager in (redlock, rival)]
        for job in jobs:
            job.result(PATIENCE)
    assert visits == 8 * 5 + 2 * 3


def test_a_read_write_lock_says_its_name_and_its_sides(redlock: Redlock) -> None:
    lock = redlock.rwlock("catalog", ttl=7)
    assert isinstance(lock, RWLock)
    assert isinstance(lock.read(), ReadLock)
    assert isinstance(lock.write(), WriteLock)
    assert (lock.resource, lock.read().resource, lock.write().resource) == ("catalog",) * 3
    assert (lock.read().ttl, lock.write().ttl) == (7, 7)
    assert repr(lock) == "<RWLock 'catalog' ttl=7>"


def test_an_ordinary_lock_is_a_writer(redlock: Redlock, rival: Redlock) -> None:
    with redlock.rwlock("catalog").read():
        assert rival.lock("catalog").try_acquire() is None
        with rival.rwlock("catalog").read() as other:
            assert other.valid
    with redlock.lock("catalog"):
        assert rival.rwlock("catalog").read().try_acquire() is None
        with pytest.raises(AcquireTimeout):
            rival.rwlock("catalog", blocking_timeout=0.1).write().acquire()


def test_a_thread_that_reads_may_read_again_while_a_writer_waits(
    redlock: Redlock, rival: Redlock
) -> None:
    catalog = redlock.rwlock("catalog")
    with ThreadPoolExecutor(2) as pool:
        with catalog.read() as outer:
            writer = pool.submit(rival.rwlock("catalog", blocking_timeout=PATIENCE).write().acquire)
            wait_until(waiting(redlock, 1))
            # The grant is not shared with new readers from here on.
            behind = pool.submit(
                redlock.rwlock("catalog", blocking_timeout=PATIENCE).read().acquire
            )
            wait_until(waiting(redlock, 2))
            with redlock.rwlock("catalog", ttl=20, blocking_timeout=PATIENCE).read() as inner:
                assert (inner.token, inner.ttl) == (outer.token, outer.ttl)
                assert not writer.done()
                assert not behind.done()
            assert outer.valid
        assert writer.result(PATIENCE).release()
        assert behind.result(PATIENCE).release()


@pytest.mark.parametrize("blocking_timeout", [None, 0, PATIENCE])
def test_a_thread_that_reads_is_refused_to_write_at_once(
    redlock: Redlock, blocking_timeout: float | None
) -> None:
    lock = redlock.rwlock("catalog", blocking_timeout=blocking_timeout)
    with lock.read():
        for write in (lock.write(), redlock.lock("catalog", blocking_timeout=blocking_timeout)):
            with pytest.raises(
                UpgradeRefused,
                match=r"this very thread reads it in an enclosing `with`.* leave that",
            ):
                write.acquire()
            with pytest.raises(UpgradeRefused):
                write.try_acquire()
    with lock.write() as lease:
        assert lease.valid


def test_another_thread_may_wait_to_write_while_this_thread_reads(redlock: Redlock) -> None:
    lock = redlock.rwlock("catalog", blocking_timeout=PATIENCE)
    with ThreadPoolExecutor(1) as pool:
        with lock.read():
            assert pool.submit(lock.write().try_acquire).result(PATIENCE) is None
            writer = pool.submit(lock.write().acquire)
            wait_until(waiting(redlock, 1))
            assert not writer.done()
        assert writer.result(PATIENCE).release()


def test_a_thread_that_writes_does_not_wait_for_itself_to_read(redlock: Redlock) -> None:
    lock = redlock.rwlock("catalog")
    with lock.write():
        with pytest.raises(LockHeld, match="this very thread holds it"):
            lock.read().acquire()
        assert lock.read().try_acquire() is None


def test_a_lease_that_is_downgraded_reads_with_no_writer_in_between(
    redlock: Redlock, rival: Redlock
) -> None:
    with ThreadPoolExecutor(2) as pool:
        with redlock.rwlock("catalog").write() as lease:
            token, fence = lease.token, lease.fence
            writer = pool.submit(rival.rwlock("catalog", blocking_timeout=PATIENCE).write().acquire)
            wait_until(waiting(redlock, 1))
            reader = pool.submit(rival.rwlock("catalog", blocking_timeout=PATIENCE).read().acquire)
            # A reader that comes behind the downgrade waits for the writer.
            wait_until(waiting(redlock, 2))
            lease.downgrade()
            assert lease.token == token
            assert fence <= lease.fence < fence + 16
            assert reader.result(PATIENCE).fence == lease.fence
            lease.verify()
            lease.downgrade()
            with pytest.raises(UpgradeRefused):
                redlock.rwlock("catalog").write().acquire()
            with redlock.rwlock("catalog").read() as inner:
                assert inner.token == token
            assert not writer.done()
            assert reader.result().release()
        assert writer.result(PATIENCE).fence > fence
        assert writer.result().release()
    with pytest.raises(LockReleased):
        lease.downgrade()


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_downgrade_goes_on(redlock: Redlock) -> None:
    lease, go = redlock.rwlock("catalog").write().acquire(), threading.Event()
    # The engine begins no call before the interrupt.
    thread_of(redlock).post(go.wait, PATIENCE)
    interrupt_when(main_thread_waits)
    with pytest.raises(Interrupted):
        lease.downgrade()
    go.set()
    assert redlock.rwlock("catalog", blocking_timeout=PATIENCE).read().acquire().release()
    assert lease.release()


def test_only_a_lease_to_write_can_be_downgraded(redlock: Redlock) -> None:
    with (
        redlock.lock("catalog") as lease,
        pytest.raises(ConfigurationError, match=r"rwlock\(name\)\.write\(\)"),
    ):
        lease.downgrade()


def test_each_reader_is_notified_of_a_forced_release(redlock: Redlock, rival: Redlock) -> None:
    told: list[Lease] = []
    called = threading.Semaphore(0)

    def on_lost(lost: Lease) -> None:
        told.append(lost)
        called.release()

    leases = [redlock.rwlock("catalog", on_lost=on_lost).read().acquire() for _ in range(2)]
    wait_until(lambda: all(lease.nodes == (3, 3) for lease in leases))
    assert rival.force_release("catalog") >= 2
    for _ in leases:
        assert called.acquire(timeout=PATIENCE)
    assert set(told) == set(leases)
    for lease in leases:
        with pytest.raises(LockLost):
            lease.check()


def test_guarded_functions_that_read_run_beside_each_other_and_beside_no_writer(
    redlock: Redlock,
) -> None:
    together = threading.Barrier(2)

    @redlock.guard("catalog:{shop}", shared=True, blocking_timeout=PATIENCE)
    def read(shop: str) -> bool:
        with pytest.raises(UpgradeRefused):
            rebuild(shop)
        with (
            ThreadPoolExecutor(1) as other,
            pytest.raises(LockHeld, match="'catalog:a' was not acquired"),
        ):
            other.submit(rebuild, shop).result(PATIENCE)
        together.wait(PATIENCE)
        return redlock.current_lease.valid

    @redlock.guard("catalog:{shop}", shared=False, blocking_timeout=0)
    def rebuild(shop: str) -> None: ...

    with ThreadPoolExecutor(2) as pool:
        assert [job.result(PATIENCE) for job in [pool.submit(read, "a") for _ in range(2)]] == [
            True,
            True,
        ]
    rebuild("a")


def test_options_that_readers_cannot_have_are_refused_before_anything_opens() -> None:
    redlock = Redlock(["redis://127.0.0.1:1"])
    for option in ({"min_hold": 5.0}, {"fair": True}):
        with pytest.raises(ConfigurationError, match="not possible for a read-write lock"):
            redlock.rwlock("catalog", **option)  # type: ignore[typeddict-item]
        with pytest.raises(ConfigurationError, match="not possible for a read-write lock"):
            redlock.guard("catalog", shared=True, **option)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="shared and limit exclude each other"):
        redlock.guard("catalog", shared=True, limit=2)
    with pytest.raises(ConfigurationError, match="shared must be True or False, not str"):
        redlock.guard("catalog", shared="yes")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="on_lost must be a function"):
        redlock.rwlock("catalog", on_lost="cancel")  # type: ignore[typeddict-item]
    with pytest.raises(ConfigurationError, match="ttl"):
        redlock.rwlock("catalog", ttl=-1.0)
