"""The operations of tools on real servers: scan, subscription and round trips."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis

from aioredlock_ng import ConfigurationError, Redlock, RedlockClosed, sync
from aioredlock_ng.operations import Operator, Scan
from tests.integration.helpers import all_up

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

LATE = 20.0
"""Seconds that a busy machine may be late."""

PATIENT: dict[str, Any] = {"node_timeout": LATE, "ttl": 3 * LATE}
"""Settings with which a node that is late is not left out."""

both_engines = pytest.mark.parametrize("thread", [False, True], ids=["loop", "thread"])


@both_engines
async def test_a_scan_returns_the_locks_that_match_the_pattern(
    three_nodes: NodeSet, thread: bool
) -> None:
    async with (
        Redlock(three_nodes.urls, key_format="lock:{name}", thread=thread, **PATIENT) as redlock,
        redlock.lock("order:1", owner="shop"),
        redlock.lock("order:2"),
        redlock.lock("seat:1"),
        Redis.from_url(three_nodes.urls[0]) as client,
    ):
        await client.set("lock:order:3", "no lock, because it does not expire")
        scan = Scan(redlock, "order:*")
        keys = await scan.keys()
        assert [lock.resource for lock in await scan.inspect(keys)] == ["order:1", "order:2"]
        assert scan.silent == {}
        assert await scan.sizes() >= 3
        everything = Scan(redlock, "order:*", every=True)
        found = await everything.inspect(await everything.keys())
        assert [lock.resource for lock in found] == ["order:1", "order:2", "order:3"]
        assert not found[2].held
        await client.delete("lock:order:3")


async def test_a_scan_lists_no_key_of_another_format(three_nodes: NodeSet) -> None:
    async with (
        Redlock(three_nodes.urls, key_format="{name}:lock", **PATIENT) as redlock,
        Redlock(three_nodes.urls) as other,
        other.lock("ab"),
        other.lock(":lock"),
        redlock.lock("a[b"),
        redlock.lock("c\\"),
        redlock.lock("d"),
    ):
        listed = {}
        for pattern in ("*", "*\\\\", r"a\[b", "[^a-c]", r"?[\\]"):
            scan = Scan(redlock, pattern)
            listed[pattern] = [lock.resource for lock in await scan.inspect(await scan.keys())]
    assert listed == {
        "*": ["a[b", "c\\", "d"],
        "*\\\\": ["c\\"],
        r"a\[b": ["a[b"],
        "[^a-c]": ["d"],
        r"?[\\]": ["c\\"],
    }


@pytest.mark.parametrize("pattern", ["a[b", "*\\", "[a-]", r"[\]", "[", "[^", "[]a[", b"[b"])
async def test_a_pattern_that_would_reach_into_the_suffix_is_refused(
    three_nodes: NodeSet, pattern: str | bytes
) -> None:
    """For example, `a[b:lock` matches the key `ab`, which is not a lock of this format."""
    with pytest.raises(ConfigurationError, match="open '\\[' or ends in a backslash"):
        Scan(Redlock(three_nodes.urls, key_format="{name}:lock"), pattern)


@pytest.mark.faults
async def test_a_scan_names_a_node_that_could_not_be_scanned(three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls, **PATIENT) as redlock, redlock.lock("order:1"):
        three_nodes.crash(2)
        scan = Scan(redlock)
        found = await scan.inspect(await scan.keys())
        assert [lock.resource for lock in found] == ["order:1"]
        assert [address.rpartition(":")[2] for address in scan.silent] == [
            three_nodes.urls[2].rpartition(":")[2].partition("/")[0]
        ]


async def test_a_pattern_that_is_no_name_is_refused_before_any_request(
    three_nodes: NodeSet,
) -> None:
    for pattern in ("", 7, "x" * 65_537, "aioredlock_ng:*"):
        with pytest.raises(ConfigurationError, match="pattern"):
            Scan(Redlock(three_nodes.urls), pattern)  # type: ignore[arg-type]


@both_engines
async def test_a_subscription_reports_a_change_after_each_call_of_track(
    three_nodes: NodeSet, thread: bool
) -> None:
    async with (
        Redlock(three_nodes.urls, thread=thread, **PATIENT) as redlock,
        Redlock(three_nodes.urls) as other,
    ):
        with Operator(redlock).subscribe("order:1") as changes:
            for _ in range(3):
                await _until_no_node_has(three_nodes, "order:1")
                # A node's answer follows its reports of all earlier changes. So after one call of
                # `track` none of them is still on its way, and the second call forgets them.
                await changes.track()
                await changes.track()
                waits = asyncio.ensure_future(changes.wait())
                await asyncio.sleep(0)
                assert not waits.done()
                async with other.lock("order:1"):
                    await asyncio.wait_for(waits, LATE)


@both_engines
async def test_a_wait_for_a_change_ends_when_the_manager_is_closed(
    three_nodes: NodeSet, thread: bool
) -> None:
    redlock = Redlock(three_nodes.urls, thread=thread, **PATIENT)
    await redlock.open()
    operator = Operator(redlock)
    with operator.subscribe("order:1") as changes:
        await changes.track()
        waits = asyncio.ensure_future(changes.wait())
        await asyncio.sleep(0)
        assert not waits.done()
        await redlock.aclose()
        await asyncio.wait_for(waits, LATE)
        with pytest.raises(RedlockClosed):
            await changes.track()


async def _until_no_node_has(nodes: NodeSet, key: str) -> None:
    async with asyncio.timeout(LATE):
        for url in nodes.urls:
            async with Redis.from_url(url) as client:
                while await client.exists(key):
                    await asyncio.sleep(0.01)


async def test_a_subscription_to_slots_reports_a_change_of_any_slot(three_nodes: NodeSet) -> None:
    async with (
        Redlock(three_nodes.urls, **PATIENT) as redlock,
        Redlock(three_nodes.urls) as other,
    ):
        with Operator(redlock).subscribe("gpu", slots=2) as changes:
            first = await other.semaphore("gpu", 2).acquire()
            await changes.track()
            async with other.semaphore("gpu", 2) as second:
                assert {first.slot, second.slot} == {1, 2}
                await asyncio.wait_for(changes.wait(), LATE)
        await first.release()


@both_engines
async def test_round_trips_have_a_time_for_each_node(three_nodes: NodeSet, thread: bool) -> None:
    async with Redlock(three_nodes.urls, thread=thread) as redlock:
        await all_up(redlock)
        trips = await Operator(redlock).round_trips(LATE)
        assert len(trips) == 3
        assert all(trip is not None and 0 < trip < LATE for trip in trips)


@pytest.mark.faults
async def test_round_trips_have_no_time_for_a_hung_node(three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls) as redlock:
        await all_up(redlock)
        three_nodes.pause(1)
        trips = await Operator(redlock).round_trips(3.0)
        assert trips[1] is None
        assert sum(trip is None for trip in trips) == 1
        three_nodes.resume(1)


async def test_an_operator_needs_an_open_manager(three_nodes: NodeSet) -> None:
    redlock = Redlock(three_nodes.urls)
    with pytest.raises(RedlockClosed, match="not open"):
        Operator(redlock)
    with pytest.raises(RedlockClosed, match="not open"):
        await Scan(redlock).keys()


@pytest.mark.parametrize("tool", [Operator, Scan])
def test_a_tool_refuses_a_manager_for_threads(tool: Any) -> None:
    redlock = sync.Redlock(["redis://127.0.0.1:1"])
    with pytest.raises(ConfigurationError, match=r"takes an aioredlock_ng\.Redlock, not .*\.sync"):
        tool(redlock)
