"""`Redlock.once`: the fleet begins a function at most once within some seconds."""

from __future__ import annotations

import asyncio
import inspect
import random
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import (
    AcquireTimeout,
    ConfigurationError,
    LockHeld,
    LockLost,
    QuorumUnreachable,
    UpgradeRefused,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time

WITHIN = 30.0

SLACK = 0.4
"""Seconds after `within` until which the keys may live: drift, and the two rounds of a grant."""


def now() -> float:
    return asyncio.get_running_loop().time()


class Job:
    """A function of the fleet, and the instants at which it began."""

    def __init__(
        self, within: float = WITHIN, takes: float = 0.0, fails: BaseException | None = None
    ) -> None:
        self.within = within
        self.takes = takes
        self.fails = fails
        self.began: list[float] = []

    def of(self, process: Process, name: str = "job") -> Callable[[], Awaitable[bool]]:
        """Return the function as `process` calls it."""

        @process.redlock.once(name, within=self.within)
        async def run() -> None:
            self.began.append(now())
            await asyncio.sleep(self.takes)
            if self.fails is not None:
                raise self.fails

        return run


async def fleet(rig: Rig, hosts: int = 3) -> list[Process]:
    """One process near each node: their calls in one instant split the votes."""
    return [await rig.process(near=index % 3) for index in range(hosts)]


async def test_a_call_runs_the_function_and_a_second_call_skips_it_until_within_is_over(
    rig: Rig,
) -> None:
    one, other = await rig.process(), await rig.process()
    job = Job()
    assert await job.of(one)() is True
    assert await job.of(one)() is False, "the process that ran it is no exception"
    assert await job.of(other)() is False
    await asyncio.sleep(job.began[0] + WITHIN + SLACK - now())
    assert await job.of(other)() is True


async def test_a_call_during_a_run_longer_than_within_skips_the_function(rig: Rig) -> None:
    one, other = await rig.process(), await rig.process()
    job = Job(within=2.0, takes=60.0)
    first = asyncio.ensure_future(job.of(one)())
    await asyncio.sleep(50.0)
    assert await job.of(other)() is False
    assert await first is True
    assert await job.of(other)() is True, "the run is over, and so is `within`"


async def test_a_run_that_fails_raises_and_counts_as_begun(rig: Rig) -> None:
    one, other = await rig.process(), await rig.process()
    job = Job(fails=OSError("disk full"))
    with pytest.raises(OSError, match="disk full"):
        await job.of(one)()
    assert await job.of(other)() is False


async def test_a_run_whose_process_dies_counts_as_begun(rig: Rig) -> None:
    one, other = await rig.process(ttl=3.0), await rig.process()
    job = Job(takes=600.0)
    dead = asyncio.ensure_future(job.of(one)())
    await asyncio.sleep(1.0)
    for node in one.nodes:
        node.disconnect()
    await asyncio.sleep(job.began[0] + WITHIN - 2.0 - now())
    assert await job.of(other)() is False
    await asyncio.sleep(3.0)
    job.takes = 0.0
    assert await job.of(other)() is True
    with pytest.raises(LockLost):
        await dead


async def test_one_of_several_calls_in_one_instant_runs_the_function(rig: Rig) -> None:
    hosts = await fleet(rig)
    for slot in range(60):
        job = Job()
        ran = await asyncio.gather(*(job.of(host, f"job:{slot}")() for host in hosts))
        assert (sum(ran), len(job.began)) == (1, 1)


@pytest.mark.parametrize("within", [0.2, 0.5, 2.0])
async def test_calls_in_one_instant_run_the_function_once_however_short_within_is(
    rig: Rig, within: float
) -> None:
    hosts, job = await fleet(rig), Job(within)
    ran = await asyncio.gather(*(job.of(host)() for host in hosts))
    assert (sum(ran), len(job.began)) == (1, 1)


async def test_a_call_that_skips_the_function_returns_after_a_second(rig: Rig) -> None:
    one, other = await rig.process(), await rig.process()
    job = Job(within=60.0)
    assert await job.of(one)()
    called = now()
    assert not await job.of(other)()
    assert now() - called < 1.2


async def test_a_call_that_skips_the_function_returns_after_a_tenth_of_a_short_within(
    rig: Rig,
) -> None:
    one, other = await rig.process(), await rig.process()
    job = Job(within=2.0)
    assert await job.of(one)()
    await asyncio.sleep(1.0)
    # If this call waited for as long as `within`, it would run the function after the minimum hold.
    assert not await job.of(other)()
    assert now() - job.began[0] < 1.3


async def test_hosts_begin_each_slot_once_if_their_starts_differ_by_less_than_half_the_period(
    rig: Rig,
) -> None:
    draw, period, slots = random.Random(11), 60.0, 50
    job, hosts = Job(within=period / 2), await fleet(rig, 5)
    start = now() + period

    async def host(process: Process) -> None:
        run = job.of(process)
        for slot in range(slots):
            await asyncio.sleep(start + slot * period + draw.uniform(0, 28.0) - now())
            await run()

    await asyncio.gather(*(host(process) for process in hosts))
    assert [int((began - start) // period) for began in job.began] == list(range(slots))


async def test_runs_begin_at_least_within_apart_whenever_calls_are_made(rig: Rig) -> None:
    draw, job = random.Random(7), Job(within=5.0, takes=0.5)

    async def host(process: Process) -> None:
        run = job.of(process)
        while now() < end:
            await run()
            await asyncio.sleep(draw.uniform(0, 4))

    end = now() + 150
    await asyncio.gather(*(host(process) for process in await fleet(rig)))
    gaps = [after - before for before, after in zip(job.began, job.began[1:], strict=False)]
    assert min(gaps) >= job.within - 0.01, "a function begins some milliseconds after its grant"
    assert len(job.began) > 20


async def test_a_run_whose_lock_is_lost_is_cancelled_and_raises_lock_lost(rig: Rig) -> None:
    one, other = await rig.process(), await rig.process()
    job = Job(takes=600.0)
    first = asyncio.ensure_future(job.of(one)())
    await asyncio.sleep(1.0)
    await other.redlock.force_release("job")
    with pytest.raises(LockLost):
        await first


async def test_without_a_quorum_a_call_raises_and_the_function_has_not_begun(rig: Rig) -> None:
    process, job = await rig.process(), Job()
    rig.disconnect(0, 1)
    with pytest.raises(QuorumUnreachable):
        await job.of(process)()
    assert job.began == []


@pytest.mark.parametrize("kind", [LockHeld, AcquireTimeout])
async def test_the_refusal_of_another_lock_inside_the_function_reaches_the_caller(
    rig: Rig, kind: type[LockHeld | AcquireTimeout]
) -> None:
    job = Job(fails=kind("another lock"))
    with pytest.raises(kind, match="another lock"):
        await job.of(await rig.process())()


async def test_a_call_in_a_read_of_its_own_name_does_not_pass_for_a_run_of_another_call(
    rig: Rig,
) -> None:
    process, job = await rig.process(), Job()
    async with process.redlock.rwlock("job").read():
        with pytest.raises(UpgradeRefused):
            await job.of(process)()
    assert await job.of(process)() is True


async def test_a_call_that_is_cancelled_before_the_function_begins_leaves_no_key(rig: Rig) -> None:
    for after in (0.0, 0.5, 1.0, 1.5, 1.9):
        process, job = await rig.process(), Job()
        call = asyncio.ensure_future(job.of(process)())
        await asyncio.sleep(after / 1000)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.sleep(1.0)
        assert (rig.clean, job.began) == (True, [])


async def test_the_arguments_of_a_call_make_the_name(rig: Rig) -> None:
    one, other = await rig.process(), await rig.process()
    counted: list[str] = []

    def of(process: Process) -> Callable[[str], Awaitable[bool]]:
        @process.redlock.once("stock:{warehouse}", within=WITHIN)
        async def count(warehouse: str) -> None:
            counted.append(warehouse)

        return count

    assert await of(one)("north")
    assert await of(one)("south")
    assert not await of(other)("north")
    assert counted == ["north", "south"]
    assert (await other.redlock.inspect("stock:north")).over


async def test_a_decorated_function_keeps_its_parameters_and_returns_a_bool(rig: Rig) -> None:
    process = await rig.process()

    @process.redlock.once("report:{day}", within=WITHIN)
    async def report(day: str, *, draft: bool = False) -> str:
        return "the report"

    assert str(inspect.signature(report)) == "(day: 'str', *, draft: 'bool' = False) -> bool"
    assert inspect.iscoroutinefunction(report)
    assert await report("monday", draft=True) is True


@pytest.mark.parametrize(
    ("within", "told"),
    [
        (0, "within must be a finite positive number of seconds"),
        ("1", "within must be"),
        (61, "within=61 is above max_ttl=60 seconds; lower within or raise max_ttl"),
    ],
)
async def test_an_invalid_within_is_refused_at_once(rig: Rig, within: Any, told: str) -> None:
    process = rig.new_process()
    with pytest.raises(ConfigurationError, match=told):
        process.redlock.once("job", within=within)


async def test_a_function_that_cannot_be_decorated_is_refused_at_once(rig: Rig) -> None:
    once: Any = rig.new_process().redlock.once

    def plain() -> None: ...

    async def report(day: str) -> None: ...

    with pytest.raises(
        ConfigurationError, match=r"once\('job'\) is for functions defined by `async def`"
    ):
        once("job", within=1)(plain)
    with pytest.raises(
        ConfigurationError,
        match=r"once\('job:\{user\}'\) of .*report\(\): \{user\} names no parameter",
    ):
        once("job:{user}", within=1)(report)
    with pytest.raises(ConfigurationError, match=r"like @redlock\.once\("):
        once(report, within=1)
