"""No waiter sleeps beside a free lock.

The runs have random holds, overlapping names, cancellations and faults of one node, by seed.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import LockLost, LockNotAcquired
from aioredlock_ng._core.queue_formats import is_offer
from aioredlock_ng._engine import wheel
from aioredlock_ng._engine.waiting.place import REFRESH_EVERY
from tests.support.rig import NODE_TIMEOUT, WAY, Rig
from tests.support.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.rig import Process

virtual = pytest.mark.virtual_time

SEEDS = 100

PER_CASE = 10
"""Seeds of one case. With more, one process would still run a case when the others have ended."""

LASTS = 2.0
"""Seconds of a run."""

STEP = 0.005
"""Seconds between two inspections of the servers."""

LONGEST = 0.5
"""Seconds that a waiter may sleep beside a lock that is free on a quorum of healthy nodes.

Attempts that meet the node timeout, the back-off after an attempt without a quorum, and names
reserved for a set take time. No run of 1,200 seeds has more than 0.33.
"""

NAMES = "abcd"


class InOrder(dict[Any, None]):
    """A set that is iterated in the order of arrival, so that a seed repeats its run in another
    process.
    """

    def add(self, item: object) -> None:
        self[item] = None

    def discard(self, item: object) -> None:
        self.pop(item, None)

    def update(self, items: Iterable[object]) -> None:  # type: ignore[override]
        super().update(dict.fromkeys(items))


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "set", InOrder, raising=False)


@dataclass(eq=False)
class Waiting:
    """One acquisition that has not ended.

    Attributes:
        keys: The keys of the acquisition.
        free_since: The time since which its keys are free on a healthy quorum, or None.
    """

    keys: tuple[bytes, ...]
    process: int
    free_since: float | None = None


@dataclass
class Crowd:
    """One seed's run.

    Attributes:
        longest: The longest time of a waiter beside a free lock, and the keys of that waiter.
        acquired: How many leases there were.
    """

    seed: int
    waiting: set[Waiting] = field(default_factory=set)
    well: set[int] = field(default_factory=set)
    longest: tuple[float, str] = (0.0, "")
    acquired: int = 0

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)

    async def run(self) -> None:
        count = self.draw.choice((3, 3, 5))
        self.well = set(range(count))
        rig = Rig(count)
        clock = asyncio.get_running_loop().time
        processes = [
            await rig.process(
                away=self.draw.choice((1.0, 1.0, 3.0)), wall_clock=lambda: 1_700_000_000 + clock()
            )
            for _ in range(self.draw.randint(1, 4))
        ]
        end = asyncio.get_running_loop().time() + LASTS
        tasks = [
            asyncio.ensure_future(self.work(rig, index, process, end))
            for index, process in enumerate(processes)
            for _ in range(self.draw.randint(1, 4))
        ]
        tasks += [
            asyncio.ensure_future(self.disturb(rig, end)),
            asyncio.ensure_future(self.look(rig, end)),
        ]
        await asyncio.gather(*tasks)
        await rig.close()

    async def work(self, rig: Rig, index: int, process: Process, end: float) -> None:
        """Want something, hold it, be cancelled at any time; again and again."""
        now = asyncio.get_running_loop().time
        while now() < end:
            await asyncio.sleep(self.draw.choice((0.0, 0.0, self.draw.random() * 0.1)))
            one = asyncio.ensure_future(self.hold(index, process))
            if self.draw.random() < 0.3:
                await asyncio.wait(
                    [one], timeout=self.draw.choice((0.001, 0.01, 0.1, 0.3)) * self.draw.random()
                )
                one.cancel()
            await asyncio.wait([one])
            with suppress(LockNotAcquired, LockLost, asyncio.CancelledError):
                one.result()

    async def hold(self, index: int, process: Process) -> None:
        names = self.draw.sample(NAMES, self.draw.choice((1, 1, 1, 2, 3)))
        timeout = self.draw.choice((None, None, None, 0.0, 0.05, 0.5))
        hold = self.draw.choice((0.0, 0.002, 0.02, 0.05)) * self.draw.random()
        lock = process.lock(
            *names,
            ttl=self.draw.choice((10.0, 10.0, 0.3)),
            blocking_timeout=timeout,
            on_lost="flag",
        )
        waiting = Waiting(tuple(name.encode() for name in names), index)
        self.waiting.add(waiting)
        try:
            lease = await lock.acquire()
        finally:
            self.waiting.discard(waiting)
        self.acquired += 1
        try:
            await asyncio.sleep(hold)
        finally:
            await lease.release()

    async def disturb(self, rig: Rig, end: float) -> None:
        """Faults of one node at a time: slow, hung, cut off, or with a dead holder's key."""
        now = asyncio.get_running_loop().time
        while now() < end:
            await asyncio.sleep(self.draw.random() * 0.3)
            index, lasts = self.draw.randrange(len(rig.servers)), self.draw.random() * 0.3
            fault = self.draw.choice(("slow", "hung", "cut", "dead", "dead everywhere"))
            if fault == "dead everywhere":
                self.occupy(rig, self.draw.choice(NAMES).encode(), lasts, range(len(rig.servers)))
                continue
            if fault == "dead":
                self.occupy(
                    rig, self.draw.choice(NAMES).encode(), 60.0 * self.draw.random(), [index]
                )
                continue
            self.well.discard(index)
            if fault == "slow":
                rig.ways[index] = self.draw.random() * NODE_TIMEOUT
            elif fault == "hung":
                rig.hang(index)
            else:
                rig.disconnect(index)
            await asyncio.sleep(lasts)
            if fault == "slow":
                rig.ways[index] = WAY
                # Requests under way still take as long as before.
                await asyncio.sleep(2 * NODE_TIMEOUT)
            elif fault == "hung":
                rig.resume(index)
            else:
                rig.connect(index)
            self.well.add(index)

    def occupy(self, rig: Rig, key: bytes, ttl: float, on: Iterable[int]) -> None:
        """As another client would: it overwrites no offer.

        A waiter that knows when an offer ends waits for that.
        """
        rig.occupy(
            key, ttl, [index for index in on if not is_offer(rig.servers[index].get(key) or b"")]
        )

    async def look(self, rig: Rig, end: float) -> None:
        """Measure how long waiters sleep beside a free lock."""
        now = asyncio.get_running_loop().time
        while now() < end or self.waiting:
            await asyncio.sleep(STEP)
            for one in self.waiting:
                free = sum(not any(map(rig.servers[index].get, one.keys)) for index in self.well)
                if free <= len(rig.servers) // 2:
                    one.free_since = None
                    continue
                if one.free_since is None:
                    one.free_since = now()
                self.longest = max(
                    self.longest,
                    (
                        now() - one.free_since,
                        f"process {one.process} wants {one.keys} at {now():.3f}",
                    ),
                )


@virtual
async def test_late_grants_that_make_a_majority_free_wake_a_waiter(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a", on=[1])
    rig.ways[0] = 0.6 * NODE_TIMEOUT
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(1.1 * NODE_TIMEOUT)
    assert process.redlock.stats().refused == 1, (
        "one node silent, one held, one granted and taken back"
    )
    rig.ways[0] = WAY
    async with asyncio.timeout(NODE_TIMEOUT):
        lease = await waiting
    await lease.release()


@virtual
@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_late_refusals_with_a_short_remaining_time_bring_the_alarm_forward(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a", on=[0, 1])
    rig.occupy(b"a", 0.4, on=[3, 4])
    rig.ways[3:] = [0.6 * NODE_TIMEOUT] * 2
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(1.5 * NODE_TIMEOUT)
    assert process.redlock.stats().refused == 1, (
        "two nodes silent, two held for long, one granted and taken back"
    )
    rig.ways[3:] = [WAY] * 2
    for server in rig.servers:
        server.forget_trackers()
    async with asyncio.timeout(0.4):
        lease = await waiting
    await lease.release()


@virtual
async def test_a_name_that_a_set_cannot_use_is_left_to_other_waiters_after_two_seconds(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(b"a", on=[0])
    rig.occupy(b"b", on=[1])
    rig.disconnect(2)
    both = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(0.05)
    one = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.05)
    # With the third node each of the two names has a free majority, and both together have none.
    rig.connect(2)
    async with asyncio.timeout(2.5):
        lease = await one
    await lease.release()
    assert not both.done()
    both.cancel()


@virtual
async def test_a_waiter_refused_for_an_attempt_of_its_own_process_wakes_when_that_is_undone(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(b"a", on=[0, 1])
    rig.occupy(b"c", on=[0])
    rig.ways[2] = 3 * WAY
    trying = asyncio.ensure_future(process.lock("a", "b").try_acquire())
    await asyncio.sleep(WAY)
    waiting = asyncio.ensure_future(process.lock("b", "c").acquire())
    assert await trying is None
    # The third node grants the first attempt after its refusal, refuses the second for that, and
    # notifies only others.
    async with asyncio.timeout(20 * WAY):
        lease = await waiting
    await lease.release()


@virtual
async def test_a_node_that_reports_no_change_completes_the_quorum_at_a_timed_request(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(b"a", ttl=600)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.1)
    rig.servers[0].forget_trackers()
    rig.vacate(b"a", on=[0, 1])
    # A timed request skips a node that tracks the key and answered in the last five seconds.
    async with asyncio.timeout(1.5 * REFRESH_EVERY):
        lease = await waiting
    await lease.release()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, PER_CASE))
def test_no_waiter_sleeps_beside_a_free_lock(first: int) -> None:
    for seed in range(first, first + PER_CASE):
        loop, crowd = VirtualLoop(), Crowd(seed)
        loop.run_until_complete(crowd.run())
        loop.close()
        assert crowd.acquired > 10, seed
        assert crowd.longest[0] < LONGEST, (seed, crowd.longest)
