"""Random tasks of two processes that acquire random sets and slots, by seed.

Each task gets its lock or an error, and no key is left.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.rig import NODE_TIMEOUT, occupied

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng import Lease, Lock
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time

ACTIONS = (
    "acquire",
    "acquire",
    "acquire fair",
    "try",
    "wait",
    "cancel",
    "release",
    "release",
    "lose",
    "abandon",
    "occupy",
    "vacate",
    "stop",
    "start",
)


def assert_every_waiter_will_wake(process: Process) -> None:
    """Check that each waiting task has a task before it, a request under way, or a place."""
    lines = process.redlock.engine().lines
    for line in lines._all():
        if line.contender is not None:
            assert line.contender.asking or (
                line.place is not None
                and (line.place.waiting or line.place.alarm._timer is not None)
            )
        else:
            assert not line.queue or line.full, line.keys
        assert {record.spec.number for record in line.holders} <= {None, *line.taken}, line.taken
        assert line.place is None or lines._standing[line.place.member] is line
        assert line.contender is not None or line.holders or line.queue or line.place is None, (
            line.keys
        )
    assert all(line.place is not None for line in lines._standing.values())


def assert_nothing_is_left(process: Process) -> None:
    lines = process.redlock.engine().lines
    assert (occupied(lines), lines._standing) == ([], {})
    # An idle line of a semaphore is kept.
    assert all(line.slots is not None for others in lines._others.values() for line in others)
    assert not any(line.taken for line in lines._all())
    assert process.redlock.stats().waiting == 0


def some_lock(rng: random.Random, by: Process, wanted: list[str], **options: Any) -> Lock:
    """Return a lock of these names."""
    return by.lock(*wanted, **options)


def some_semaphore(rng: random.Random, by: Process, wanted: list[str], **options: Any) -> Lock:
    """Return a semaphore, rarely the lock of one of its slots."""
    if rng.random() < 0.1:
        return by.lock(f"{wanted[0]}#{rng.randint(1, 3)}", **options)
    return by.redlock.semaphore(wanted[0], rng.choice((1, 2, 3, 3, 3)), **options)


def key_of_lock(rng: random.Random, name: str) -> bytes:
    return name.encode()


def key_of_slot(rng: random.Random, name: str) -> bytes:
    return b"%b#%d" % (name.encode(), rng.randint(1, 3))


def assert_no_slot_is_held_twice(leases: list[Lease]) -> None:
    held = [lease._record.spec.keys for lease in leases if lease.valid]
    assert len(set(held)) == len(held), held


@pytest.mark.parametrize("seed", range(30))
async def test_every_waiter_is_served_through_failures_of_the_waiters_before_it(
    rig: Rig, seed: int
) -> None:
    await play(rig, random.Random(seed), some_lock, key_of_lock, ACTIONS)


@pytest.mark.parametrize("seed", range(30))
async def test_every_waiter_for_a_slot_is_served_through_failures_of_the_waiters_before_it(
    rig: Rig, seed: int
) -> None:
    # A client that deletes keys lets two processes have one slot until the loss is noticed.
    deletes = seed % 2 == 0
    actions = tuple(action for action in ACTIONS if deletes or action != "vacate")
    check = (lambda leases: None) if deletes else assert_no_slot_is_held_twice
    await play(rig, random.Random(seed), some_semaphore, key_of_slot, actions, check)


async def play(
    rig: Rig,
    rng: random.Random,
    make: Callable[..., Lock],
    key_of: Callable[[random.Random, str], bytes],
    actions: tuple[str, ...],
    check: Callable[[list[Lease]], None] = lambda leases: None,
) -> None:
    """Let random things happen, and assert after each of them that each task will go on."""
    process, other = await rig.process(), await rig.process()
    names = "abcd"[: rng.randint(2, 4)]
    waiting: dict[asyncio.Future[Lease], None] = {}
    leases: list[Lease] = []

    def down() -> list[int]:
        return [index for index, server in enumerate(rig.servers) if not server.up]

    def settle(future: asyncio.Future[Lease]) -> None:
        del waiting[future]
        if not future.cancelled() and future.exception() is None and future.result().valid:
            leases.append(future.result())

    for _ in range(120):
        action = rng.choice(actions)
        wanted = rng.sample(names, rng.randint(1, min(3, len(names))))
        index = rng.randrange(3)
        match action:
            case "acquire" | "acquire fair" | "try" | "wait":
                timeout = {"try": 0.0, "wait": rng.choice((0.001, 0.003, 0.05))}.get(action)
                by = rng.choice((process, process, other))
                fair = action == "acquire fair"
                lock = make(rng, by, wanted, blocking_timeout=timeout, max_hold=30.0, fair=fair)
                waiting[asyncio.ensure_future(lock.acquire())] = None
            case "cancel" if waiting:
                rng.choice(list(waiting)).cancel()
            case "release" | "lose" | "abandon" if leases:
                lease = leases.pop(rng.randrange(len(leases)))
                if action == "release":
                    await lease.release()
                elif action == "lose":
                    lease.lose("by the test")
                else:
                    lease.abandon()
            case "occupy":
                rig.occupy(key_of(rng, wanted[0]), on=[index], ttl=1.0)
            case "vacate":
                rig.vacate(key_of(rng, wanted[0]), on=[index])
            case "stop" if not down():
                rig.stop(index)
            case "start":
                rig.start(*down())
        await asyncio.sleep(rng.choice((0.0005, 0.001, 0.002, 0.01)))
        # The waiters behind go on one tick after a refusal.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for future in [future for future in waiting if future.done()]:
            settle(future)
        check(leases)
        assert_every_waiter_will_wake(process)
        assert_every_waiter_will_wake(other)
    rig.start(*down())
    while waiting or leases:
        for lease in leases:
            await lease.release()
        leases.clear()
        if waiting:
            async with asyncio.timeout(60.0):
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                settle(future)
        assert_every_waiter_will_wake(process)
        assert_every_waiter_will_wake(other)
    await asyncio.sleep(1.0)
    assert_nothing_is_left(process)
    assert_nothing_is_left(other)


async def test_a_lease_taken_past_the_line_keeps_its_names_though_the_head_of_the_line_gives_up(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(b"a", 0.5)
    head = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(0.1)
    head.cancel()
    passing: Lease | None = None
    while passing is None:
        passing = await process.lock("a", "b", blocking_timeout=0).try_acquire()
    behind = asyncio.ensure_future(process.lock("a", "c").acquire())
    await asyncio.sleep(5.0)
    assert not behind.done()
    assert_every_waiter_will_wake(process)
    await passing.release()
    async with asyncio.timeout(NODE_TIMEOUT):
        await (await behind).release()
    await asyncio.sleep(1.0)
    assert_nothing_is_left(process)
