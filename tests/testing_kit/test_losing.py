"""A lease that is lost on purpose is lost as any other, at the chosen point, on nodes in memory and
on real servers.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import (
    ConfigurationError,
    LockLost,
    LockReleased,
    QuorumUnreachable,
    Redlock,
    RedlockClosed,
    sync,
)
from aioredlock_ng.events import LeaseLost
from aioredlock_ng.testing import MemoryNodes, lose, lose_at, lose_lock
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioredlock_ng import Lease
    from aioredlock_ng.testing import Point
    from tests.support.node_set import NodeSet

ON_PURPOSE = "on purpose"


@pytest.fixture
async def redlock() -> AsyncIterator[Redlock]:
    async with MemoryNodes(3).redlock() as redlock:
        yield redlock


async def test_a_body_is_cancelled_where_it_loses() -> None:
    told: list[Any] = []
    done: list[str] = []
    leases: list[Lease] = []

    async def hold(redlock: Redlock) -> None:
        async with redlock.lock("a") as lease:
            leases.append(lease)
            try:
                await lose(lease)
                done.append("went on")
            finally:
                await asyncio.sleep(0)
                done.append("cleaned up")

    async with MemoryNodes(3).redlock(sinks=[told.append]) as redlock:
        with pytest.raises(LockLost, match=ON_PURPOSE) as caught:
            await hold(redlock)
        assert done == ["cleaned up"]
        assert caught.value.resource == "a"
        assert leases[0].lost
        assert redlock.stats().lost == 1
        (loss,) = [event for event in told if isinstance(event, LeaseLost)]
        assert (loss.resource, loss.token_prefix) == ("a", leases[0].token[:6])
        assert not await redlock.locked("a")


async def test_a_loss_wakes_wait_lost_and_the_next_in_line_gets_the_lock(redlock: Redlock) -> None:
    lease = await redlock.lock("a").acquire()
    lost, waiting = (
        asyncio.create_task(lease.wait_lost()),
        asyncio.create_task(redlock.lock("a").acquire()),
    )
    await eventually(lambda: redlock.stats().waiting == 1)
    await lose(lease)
    assert lease.lost
    await lost
    newer = await waiting
    assert newer.fence is not None
    assert lease.fence is not None
    assert newer.fence > lease.fence
    await newer.release()


async def test_a_body_in_another_task_is_cancelled(redlock: Redlock) -> None:
    inside: asyncio.Queue[Lease] = asyncio.Queue()

    async def hold() -> None:
        async with redlock.lock("a") as lease:
            inside.put_nowait(lease)
            await asyncio.get_running_loop().create_future()

    holder = asyncio.create_task(hold())
    await lose(await inside.get())
    with pytest.raises(LockLost, match=ON_PURPOSE):
        await holder


async def test_with_on_lost_flag_the_body_goes_on_and_sees_the_loss_in_lost(
    redlock: Redlock,
) -> None:
    asked: list[bool] = []

    async def hold() -> None:
        async with redlock.lock("a", on_lost="flag") as lease:
            await lose(lease)
            asked.append(lease.lost)

    with pytest.raises(LockLost, match=ON_PURPOSE):
        await hold()
    assert asked == [True]


async def test_a_lease_that_has_ended_cannot_be_lost(redlock: Redlock) -> None:
    async with redlock.lock("a") as lease:
        pass
    with pytest.raises(ConfigurationError, match="has already ended"):
        await lose(lease)
    with pytest.raises(ConfigurationError, match="nobody holds the lock 'a'"):
        await lose_lock(redlock, "a")


async def test_a_lease_of_another_event_loop_is_not_said_to_be_lost(
    redlock: Redlock, caplog: pytest.LogCaptureFixture
) -> None:
    lease = await redlock.lock("a").acquire()
    for call in (lose(lease), lose_lock(redlock, "a")):
        with pytest.raises(RedlockClosed, match="belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, call)
    # The error is not logged a second time, as an exception in a callback.
    assert not caplog.messages
    assert lease.valid
    await lose(lease)
    assert lease.lost


async def test_a_lease_for_threads_is_refused_with_the_right_functions() -> None:
    lose_of: Any = lose
    lose_lock_of: Any = lose_lock
    with sync.Redlock(MemoryNodes(3)) as redlock:
        lease = redlock.lock("a").acquire()
        with pytest.raises(ConfigurationError, match=r"^lease must be .* force_release\(\)$"):
            await lose_of(lease)
        with pytest.raises(ConfigurationError, match=r"^redlock must be .* force_release\(\)$"):
            await lose_lock_of(redlock, "a")
        assert lease.valid


async def test_an_error_about_a_wrong_argument_names_no_password() -> None:
    url: Any = "redis://:secret@10.0.0.1"
    for call in (lose(url), lose_lock(url, "a")):
        with pytest.raises(ConfigurationError, match=r"not builtins\.str") as refused:
            await call
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["a", b"a"])
async def test_lose_lock_ends_the_lease_of_a_holder_in_its_own_manager_at_once(
    redlock: Redlock, name: str | bytes
) -> None:
    lease = await redlock.lock("a", "b").acquire()
    other = await redlock.lock("c").acquire()
    await lose_lock(redlock, name)
    assert lease.lost
    assert other.valid
    assert not await redlock.locked("b")


async def test_lose_lock_cancels_a_body_by_the_name_of_its_lock(redlock: Redlock) -> None:
    async def hold() -> None:
        async with redlock.lock("a"):
            await lose_lock(redlock, "a")
            pytest.fail("it went on")

    with pytest.raises(LockLost, match=ON_PURPOSE):
        await hold()
    assert not await redlock.locked("a")


@pytest.mark.parametrize("age", [0.0, 0.2])
async def test_lose_lock_reaches_a_holder_in_another_manager_through_the_nodes(
    five_nodes: NodeSet, age: float
) -> None:
    async def hold() -> None:
        async with asyncio.timeout(20), holder.lock("a"):
            await asyncio.sleep(age)
            await lose_lock(test, "a")
            await asyncio.get_running_loop().create_future()

    async with (
        Redlock(five_nodes.urls) as holder,
        Redlock(five_nodes.urls, node_timeout=1.0) as test,
    ):
        with pytest.raises(LockLost, match="no longer holds"):
            await hold()
        assert not await test.locked("a")


async def test_lose_lock_ends_the_lease_of_its_own_holder_without_a_quorum_too() -> None:
    nodes = MemoryNodes(3)
    async with nodes.redlock() as redlock:
        lease = await redlock.lock("a").acquire()
        nodes.crash(0)
        nodes.crash(1)
        with pytest.raises(QuorumUnreachable):
            await lose_lock(redlock, "a")
        assert lease.lost


async def handler(redlock: Redlock, steps: list[str], *, check: bool = False) -> None:
    """A handler as users write it: read, think, write."""
    async with redlock.lock("order:42") as lease:
        await asyncio.sleep(0)
        steps.append("read")
        if check:
            lease.check()
        await asyncio.sleep(0)
        steps.append("wrote")


async def test_a_body_that_loses_its_lock_as_soon_as_acquired_ends_at_its_first_await(
    redlock: Redlock,
) -> None:
    steps: list[str] = []
    with lose_at("order:42", "acquired"), pytest.raises(LockLost, match=ON_PURPOSE):
        await handler(redlock, steps)
    assert steps == []
    await handler(redlock, steps)
    assert steps == ["read", "wrote"]


async def test_a_lock_that_is_lost_at_a_check_raises_from_the_check(redlock: Redlock) -> None:
    steps: list[str] = []
    with lose_at("order:42", "checked"), pytest.raises(LockLost, match=ON_PURPOSE):
        await handler(redlock, steps, check=True)
    assert steps == ["read"]


async def test_a_lock_that_is_lost_at_its_release_raises_after_all_work_is_done(
    redlock: Redlock,
) -> None:
    steps: list[str] = []
    with lose_at("order:42", "released"), pytest.raises(LockLost, match=ON_PURPOSE):
        await handler(redlock, steps)
    assert steps == ["read", "wrote"]


async def test_a_lease_without_async_with_is_lost_at_the_same_points(redlock: Redlock) -> None:
    lock = redlock.lock("a")
    with lose_at("a", "acquired"):
        lease = await lock.acquire()
        await asyncio.sleep(0)
        assert lease.lost
    with lose_at("a", "checked"):
        taken = await lock.try_acquire()
        assert taken is not None
        with pytest.raises(LockLost):
            await taken.extend()
    with lose_at("a", "released"):
        lease = await lock.acquire()
        assert await lease.release() is False
        assert lease.lost
    async with lock as lease:
        lease.check()


async def test_the_nth_time_is_chosen_and_other_names_do_not_count(redlock: Redlock) -> None:
    lease, other = await redlock.lock("a", "x").acquire(), await redlock.lock("b").acquire()
    with lose_at(b"a", "checked", nth=2):
        lease.check()
        other.check()
        assert lease.valid
        with pytest.raises(LockLost):
            lease.check()
        assert other.valid


async def test_the_nth_holder_is_chosen(redlock: Redlock) -> None:
    for point in ("acquired", "released"):
        with lose_at("order:42", point, nth=3):
            for _ in range(2):
                await handler(redlock, [])
            with pytest.raises(LockLost):
                await handler(redlock, [])
            await handler(redlock, [])


async def test_lose_at_finds_any_manager_that_the_code_opens() -> None:
    nodes = MemoryNodes(3)

    async def service() -> None:
        async with Redlock(nodes) as redlock:
            await handler(redlock, [])

    with lose_at("order:42", "acquired"), pytest.raises(LockLost):
        await service()


async def test_a_guarded_coroutine_loses_its_lock_too(redlock: Redlock) -> None:
    @redlock.guard("order:{number}")
    async def change(number: int) -> None:
        await asyncio.sleep(0)
        pytest.fail("it went on")

    with lose_at("order:42", "acquired"), pytest.raises(LockLost):
        await change(42)


async def test_a_check_in_a_thread_loses_the_lock_before_it_returns(redlock: Redlock) -> None:
    steps: list[str] = []

    def work(lease: Lease) -> None:
        steps.append("read")
        lease.check()
        steps.append("wrote")

    with lose_at("order:42", "checked"), pytest.raises(LockLost):
        async with redlock.lock("order:42", on_lost="flag") as lease:
            await asyncio.to_thread(work, lease)
    assert steps == ["read"]


def test_a_check_in_a_thread_without_a_loop_of_the_block_finds_that_of_the_lease() -> None:
    async def main() -> None:
        async with MemoryNodes(1).redlock() as redlock:
            lease = await redlock.lock("a").acquire()
            with pytest.raises(LockLost):
                await asyncio.to_thread(lease.check)

    with lose_at("a", "checked"):
        asyncio.run(main())


async def test_a_check_in_a_thread_that_waits_too_long_for_a_busy_loop_loses_nothing_later(
    redlock: Redlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioredlock_ng.testing import losing

    monkeypatch.setattr(losing, "_THREAD_SECONDS", 0.01)
    failed = threading.Event()

    def work(lease: Lease) -> None:
        with pytest.raises(TimeoutError):
            lease.check()
        failed.set()

    def block(lease: Lease) -> None:
        with lose_at("a", "checked"):
            thread = threading.Thread(target=work, args=(lease,))
            thread.start()
            assert failed.wait(5), "the event loop stands still here"
            thread.join()

    async with redlock.lock("a") as lease:
        with pytest.raises(AssertionError, match="ended before its holder waited"):
            block(lease)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert lease.valid


def test_a_check_in_a_thread_of_a_lease_on_an_unknown_loop_names_the_remedy() -> None:
    async def main() -> None:
        async with MemoryNodes(1).redlock() as redlock:
            lease = await redlock.lock("a").acquire()

            def in_thread() -> None:
                with (
                    lose_at("a", "checked"),
                    pytest.raises(RuntimeError, match=r"enter lose_at\(\) on the event loop"),
                ):
                    lease.check()
                raise LookupError

            with pytest.raises(AssertionError):
                await asyncio.to_thread(in_thread)

    asyncio.run(main())


async def test_a_block_in_which_nothing_is_lost_fails(redlock: Redlock) -> None:
    with pytest.raises(AssertionError, match="was checked"), lose_at("order:42", "checked"):
        await handler(redlock, [])
    with pytest.raises(AssertionError, match="1 more time"), lose_at("order:42", "released", nth=2):
        await handler(redlock, [])
    with (
        pytest.raises(AssertionError, match="ended before its holder waited"),
        lose_at("order:42", "acquired"),
    ):
        await (await redlock.lock("order:42").acquire()).release()
    with pytest.raises(LookupError), lose_at("order:42", "checked"):
        raise LookupError


async def test_after_the_block_nothing_is_lost(redlock: Redlock) -> None:
    with pytest.raises(AssertionError), lose_at("a", "checked"):
        pass
    async with redlock.lock("a") as lease:
        lease.check()
    with pytest.raises(LockReleased):
        lease.check()


async def test_two_blocks_at_once_each_lose_their_own_lock(redlock: Redlock) -> None:
    with lose_at("a", "checked"), lose_at("b", "released"):
        one, two = await redlock.lock("a").acquire(), await redlock.lock("b").acquire()
        two.check()
        with pytest.raises(LockLost):
            one.check()
        assert await two.release() is False


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"point": "extended"}, "acquired, checked, released"),
        ({"nth": 0}, "nth"),
        ({"nth": 1.5}, "nth must be a whole number, not float"),
        ({"nth": True}, "nth"),
        ({"name": 5}, "name must be str or bytes, not int"),
        ({"name": ""}, "name must not be empty"),
    ],
)
def test_an_invalid_argument_is_refused_by_name(wrong: dict[str, Any], named: str) -> None:
    given: dict[str, Any] = {"name": "a", "point": "checked"} | wrong
    with pytest.raises(ConfigurationError, match=named), lose_at(**given):
        pytest.fail("it went on")


# Semaphores


async def test_a_lost_slot_leaves_the_other_slots_to_their_holders(redlock: Redlock) -> None:
    pair = redlock.semaphore("gpu", 2)
    one, other = await pair.acquire(), await pair.acquire()
    waiting = asyncio.create_task(pair.acquire())
    await eventually(lambda: redlock.stats().waiting == 1)
    await lose(one)
    assert one.lost
    assert other.valid
    newer = await waiting
    assert newer.slot == one.slot
    assert newer.fence > one.fence
    for lease in (newer, other):
        await lease.release()


async def test_lose_lock_of_a_slot_ends_the_lease_of_its_own_holder_at_once(
    redlock: Redlock,
) -> None:
    leases = [await redlock.semaphore("gpu", 3).acquire() for _ in range(3)]
    await lose_lock(redlock, "gpu#2")
    assert [lease.lost for lease in leases] == [lease.slot == 2 for lease in leases]


async def test_the_name_of_a_semaphore_is_not_that_of_a_lock(redlock: Redlock) -> None:
    async with redlock.semaphore("gpu", 2) as lease:
        with pytest.raises(ConfigurationError, match=r"nobody holds the lock 'gpu'.*like 'gpu#2'"):
            await lose_lock(redlock, "gpu")
        assert lease.valid


async def test_lose_lock_of_a_slot_reaches_a_holder_in_another_manager(
    five_nodes: NodeSet,
) -> None:
    async def hold() -> None:
        async with asyncio.timeout(20), holder.semaphore("gpu", 1):
            await lose_lock(test, "gpu#1")
            await asyncio.get_running_loop().create_future()

    async with (
        Redlock(five_nodes.urls) as holder,
        Redlock(five_nodes.urls, node_timeout=1.0) as test,
    ):
        with pytest.raises(LockLost, match="no longer holds"):
            await hold()


@pytest.mark.parametrize("name", ["gpu", "gpu#1", b"gpu"])
async def test_a_slot_is_lost_at_a_point_by_its_name_and_by_that_of_its_semaphore(
    redlock: Redlock, name: str | bytes
) -> None:
    steps: list[str] = []

    async def train() -> None:
        async with redlock.semaphore("gpu", 1) as lease:
            await asyncio.sleep(0)
            steps.append("began")
            lease.check()
            steps.append("done")

    with lose_at(name, "acquired"), pytest.raises(LockLost, match=ON_PURPOSE):
        await train()
    with lose_at(name, "checked"), pytest.raises(LockLost, match=ON_PURPOSE):
        await train()
    with lose_at(name, "released"), pytest.raises(LockLost, match=ON_PURPOSE):
        await train()
    assert steps == ["began", "began", "done"]
    assert await redlock.semaphore("gpu", 1).try_acquire() is not None


@pytest.mark.parametrize("thread", [False, True], ids=["loop", "thread"])
async def test_a_lease_that_was_abandoned_does_not_count(thread: bool) -> None:
    async with MemoryNodes(3).redlock(thread=thread) as redlock:
        lease = await redlock.lock("a").acquire()
        lease.abandon()
        with (
            pytest.raises(AssertionError, match="ended before a valid lease of 'a' was checked"),
            lose_at("a", "checked"),
        ):
            lease.check()


async def test_a_lease_that_is_let_go_in_a_thread_counts_in_the_block_that_lets_it_go() -> None:
    async with MemoryNodes(3).redlock(thread=True) as redlock:
        lease = await redlock.lock("a").acquire()
        with lose_at("a", "released"):
            lease.let_go()
        assert lease.lost


@pytest.mark.parametrize("kind", ["lock", "semaphore", "reader", "writer"])
@pytest.mark.parametrize("thread", [False, True], ids=["loop", "thread"])
async def test_each_block_loses_its_own_lease_and_not_one_of_an_earlier_block(
    thread: bool, kind: str
) -> None:
    async with MemoryNodes(3).redlock(thread=thread) as redlock:
        sides = redlock.rwlock("a")
        locks = {"lock": redlock.lock("a"), "semaphore": redlock.semaphore("a", 1)}
        locks |= {"reader": sides.read(), "writer": sides.write()}

        async def hold() -> None:
            async with locks[kind] as lease:
                await asyncio.sleep(0)
                lease.check()

        points: tuple[Point, ...] = ("acquired", "checked", "released")
        for point in points * 3:
            with lose_at("a", point), pytest.raises(LockLost, match=ON_PURPOSE):
                await hold()


async def test_at_a_point_the_name_of_one_slot_spares_the_others(redlock: Redlock) -> None:
    leases = [await redlock.semaphore("gpu", 2).acquire() for _ in range(2)]
    with lose_at("gpu#2", "checked"):
        for lease in leases:
            if lease.slot == 1:
                lease.check()
            else:
                with pytest.raises(LockLost):
                    lease.check()


async def test_a_function_under_a_limit_loses_its_slot_too(redlock: Redlock) -> None:
    @redlock.guard("api:{host}", limit=2)
    async def call(host: str) -> None:
        await asyncio.sleep(0)
        pytest.fail("it went on")

    with lose_at("api:a", "acquired"), pytest.raises(LockLost):
        await call("a")


async def test_a_reader_is_lost_alone_and_its_grant_stays_with_the_others(redlock: Redlock) -> None:
    lost, other = [await redlock.rwlock("catalog").read().acquire() for _ in range(2)]
    assert lost.token == other.token
    await lose(lost)
    assert lost.lost
    await other.verify()
    assert await redlock.lock("catalog").try_acquire() is None
    assert await other.release()
    assert not await redlock.locked("catalog")


async def test_lose_lock_takes_a_read_write_lock_from_all_readers(five_nodes: NodeSet) -> None:
    async with (
        Redlock(five_nodes.urls) as holder,
        Redlock(five_nodes.urls, node_timeout=1.0) as test,
    ):
        leases = [
            await manager.rwlock("catalog").read().acquire() for manager in (holder, holder, test)
        ]
        await lose_lock(test, "catalog")
        assert leases[2].lost
        async with asyncio.timeout(20):
            await asyncio.gather(*(lease.wait_lost() for lease in leases))
        assert all(lease.lost for lease in leases)
        async with test.rwlock("catalog").write():
            pass


@pytest.mark.parametrize(
    ("point", "side"),
    [("acquired", "read"), ("checked", "read"), ("released", "read"), ("checked", "write")],
)
async def test_either_side_of_a_read_write_lock_is_lost_at_a_point(
    redlock: Redlock, point: Point, side: str
) -> None:
    steps: list[str] = []

    async def work() -> None:
        lock = redlock.rwlock("catalog")
        async with lock.read() if side == "read" else lock.write() as lease:
            steps.append("began")
            await asyncio.sleep(0.01)
            await lease.downgrade()
            steps.append("ended")

    with lose_at("catalog", point), pytest.raises(LockLost, match=ON_PURPOSE):
        await work()
    assert steps == (["began", "ended"] if point == "released" else ["began"])
    assert not await redlock.locked("catalog")
