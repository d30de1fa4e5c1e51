"""Real servers that forgot: none helps a second holder in, a new deployment waits for nothing, a
lost minority is repaired.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Sentinel

from aioredlock_ng import LockLost, QuorumUnreachable, Redlock
from tests.integration.helpers import SHORT_GUARD, all_up, program, state_of
from tests.support import tiers
from tests.support.eventually import eventually
from tests.support.node_set import OWN, locks_on, trust

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer
    from tests.support.sentinel import SentinelSet

    StartServer = Callable[..., LocalServer]

GUARD = SHORT_GUARD["max_ttl"] + 1.0
"""Seconds of quarantine under `SHORT_GUARD`."""

BUSY = 15.0
"""Seconds that a machine which is busy with other things may add."""


def urls_of(servers: list[LocalServer]) -> list[str]:
    return [server.url for server in servers]


def marker(server: LocalServer) -> str:
    return server.command("GET", f"{OWN}marker").decode()


def seconds_left(reason: str) -> float:
    """Return the seconds that the reason of a quarantine names; -1.0 without any."""
    named = re.search(r"([\d.]+) s left", reason)
    return -1.0 if named is None else float(named[1])


async def kill_and_start(server: LocalServer) -> None:
    await asyncio.to_thread(server.crash)
    await asyncio.to_thread(server.start)


async def flush(server: LocalServer, command: str) -> None:
    await asyncio.to_thread(server.command, command)


FORGETTING: dict[str, Callable[[LocalServer], Any]] = {
    "FLUSHALL": lambda server: flush(server, "FLUSHALL"),
    "FLUSHDB": lambda server: flush(server, "FLUSHDB"),
    "killed": kill_and_start,
    "killed with AOF": kill_and_start,
}


async def is_refused_then_granted(
    redlock: Redlock, index: int, since: float, missing: str = ""
) -> None:
    """Node `index`, without which there is no quorum, may vote `GUARD` seconds after `since` and
    not before.

    `missing`: the node for which a new set waits.
    """
    node = redlock.nodes[index].address
    await eventually(lambda: state_of(redlock, index) == "quarantined", every=0.001)
    if missing:
        why = (
            rf"new set: the nodes vote when {re.escape(missing)} is up too "
            r"\(connection refused\), or in \d s"
        )
    else:
        why = r"may have forgotten locks, \d\.\d s left; .*recovery_guard=None"
    assert re.search(why, redlock.nodes[index].reason)
    told_why = why if missing else r"it may have forgotten locks, \d\.\d s left"

    async def refusal() -> re.Match[str] | None:
        with pytest.raises(
            QuorumUnreachable, match="new set" if missing else "recovery_guard=None"
        ) as caught:
            await redlock.lock("order").try_acquire()
        told, named = {vote.node: vote.outcome for vote in caught.value.votes}, node
        if told[node] == "unknown":
            # Decided without it, by others that are quarantined too.
            named = next(other for other, outcome in told.items() if outcome == "quarantined")
        assert told[named] == "quarantined"
        return re.search(rf"{re.escape(named)}: quarantined \({told_why}\)", str(caught.value))

    # The reason contains no seconds before the new marker has arrived.
    await eventually(refusal)
    lease = await asyncio.wait_for(redlock.lock("order").acquire(), GUARD + BUSY)
    # The node's clock, which it was measured by, counts milliseconds.
    assert time.monotonic() - since >= GUARD - 0.002
    await eventually(lambda: state_of(redlock, index) == "up")
    await lease.release()


@pytest.mark.parametrize("how", tiers.ends([*FORGETTING]))
async def test_a_server_that_forgot_grants_nothing_for_the_guard_time(
    how: str, start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    # By default a write can wait in memory for a flush of the disk, and a kill then loses it.
    always = ["--appendfsync", "always"]
    servers = [start_server(always, appendonly=how == "killed with AOF") for _ in range(3)]
    async with Redlock(urls_of(servers), **SHORT_GUARD) as redlock:
        async with redlock.lock("order"):
            pass
        # The last one too has its marker.
        await all_up(redlock)
        servers[2].crash()
        servers[1].command("SET", "witness", "1")
        vouched, since = marker(servers[1]), time.monotonic()
        await FORGETTING[how](servers[1])
        survives = how == "killed with AOF"
        assert servers[1].command("EXISTS", "witness") == (b"1" if survives else b"0")
        node = redlock.nodes[1].address
        await is_refused_then_granted(redlock, 1, since)
        assert (marker(servers[1]) == vouched) is how.startswith("FLUSH"), (
            "a marker names the process"
        )
    said = [
        record.getMessage() for record in caplog.records if f"node {node}" in record.getMessage()
    ]
    assert sum(bool(re.search(r"grants no lock for \d\.\d s more", line)) for line in said) == 1
    assert sum("may grant locks again" in line for line in said) == 1


@pytest.mark.slow
async def test_a_fresh_server_that_joins_an_old_set_grants_nothing_for_the_guard_time(
    start_server: StartServer,
) -> None:
    servers = [start_server() for _ in range(3)]
    trust(servers[0])
    servers[2].crash()
    since = time.monotonic()
    async with Redlock(urls_of(servers), **SHORT_GUARD) as redlock:
        await is_refused_then_granted(redlock, 1, since)


@pytest.mark.slow
async def test_a_first_start_with_a_server_missing_waits_the_guard_time(
    start_server: StartServer,
) -> None:
    servers = [start_server() for _ in range(3)]
    servers[2].crash()
    since = time.monotonic()
    async with Redlock(urls_of(servers), **SHORT_GUARD) as redlock:
        await is_refused_then_granted(redlock, 1, since, missing=servers[2].address)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
async def test_a_restart_of_all_servers_notifies_the_holder_and_grants_nothing_before_its_deadline(
    count: int, start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    servers = [start_server() for _ in range(count)]
    settings: dict[str, Any] = {"ttl": 5.0, "max_ttl": 5.0, "node_timeout": 0.5}
    async with (
        Redlock(urls_of(servers), **settings) as holder,
        Redlock(urls_of(servers), **settings) as other,
    ):
        await all_up(holder)
        await all_up(other)
        lease = await holder.lock("order", auto_extend=False).acquire()
        deadline = time.monotonic() + lease.remaining()
        waiting = asyncio.create_task(other.lock("order").acquire())
        await eventually(lambda: other.stats().refused, every=0.001)
        await asyncio.gather(*map(kill_and_start, servers))
        await lease.wait_lost()
        with pytest.raises(LockLost, match="no longer holds"):
            lease.check()
        async with asyncio.timeout(6.0 + BUSY):
            await (await waiting).release()
        assert time.monotonic() >= deadline, "it was granted after the first lease was over"
    said = [
        line
        for line in caplog.messages
        if line.startswith("all nodes restarted or lost their memory")
    ]
    assert len(said) == 2, "each of them noticed"


@pytest.mark.slow
async def test_a_promoted_replica_grants_nothing_for_the_guard_time(
    sentinel_set: SentinelSet, start_server: StartServer
) -> None:
    sentinel, other = Sentinel([sentinel_set.address]), start_server()
    client = sentinel.master_for(sentinel_set.name)
    try:
        async with Redlock([other.url, client], **SHORT_GUARD) as redlock:
            async with redlock.lock("order"):
                vouched = marker(sentinel_set.primary)
                await eventually(lambda: marker(sentinel_set.replica) == vouched)
            failover = asyncio.create_task(asyncio.to_thread(sentinel_set.failover))
            # The guard time cannot begin before the promotion, which itself takes seconds.
            since = asked = time.monotonic()
            while (await asyncio.to_thread(sentinel_set.replica.info))["role"] != "master":
                since, asked = asked, time.monotonic()
                await asyncio.sleep(0.02)
            await failover
            await eventually(
                lambda: redlock.nodes[1].run_id == sentinel_set.replica.info()["run_id"], 15
            )
            await is_refused_then_granted(redlock, 1, since)
    finally:
        await client.aclose()
        for one in sentinel.sentinels:
            await one.aclose()


async def test_flushing_the_scripts_has_no_effect(start_server: StartServer) -> None:
    servers = [start_server() for _ in range(3)]
    async with Redlock(urls_of(servers), node_timeout=5.0) as redlock:
        for server in servers:
            server.command("SCRIPT", "FLUSH")
        assert await redlock.lock("order", blocking_timeout=0).acquire()
        await eventually(lambda: [node.state for node in redlock.nodes] == ["up"] * 3)


async def test_the_error_at_the_timeout_of_a_waiter_names_the_quarantine(
    start_server: StartServer,
) -> None:
    servers = [start_server() for _ in range(3)]
    async with Redlock(urls_of(servers), node_timeout=5.0) as redlock:
        servers[2].crash()
        servers[1].wipe()
        with pytest.raises(
            QuorumUnreachable, match=r"quarantined .*6\d\.\d s left|quarantined .*5\d\.\d s left"
        ) as caught:
            # Long enough for an answer of a node that stands still for a while.
            await redlock.lock("order", blocking_timeout=4.0).acquire()
        # A loop's timers may be a millisecond early.
        assert 3.99 <= caught.value.elapsed < 4.0 + BUSY


async def test_a_first_start_waits_for_nothing_and_warns_of_nothing(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    servers = [start_server() for _ in range(5)]
    began = time.monotonic()
    async with Redlock(urls_of(servers), node_timeout=5.0, connect_timeout=10.0) as redlock:
        assert await redlock.lock("order", blocking_timeout=0).acquire()
        await eventually(lambda: [node.state for node in redlock.nodes] == ["up"] * 5)
        assert time.monotonic() - began < BUSY, "the guard time is a minute"
    assert [
        record.getMessage() for record in caplog.records if record.name == "aioredlock_ng"
    ] == []


STARTER = """
import asyncio, sys
from aioredlock_ng import Redlock

async def main():
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    async with Redlock(sys.argv[1:]) as redlock, redlock.lock("order"):
        print("held", flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.once
async def test_twenty_processes_start_a_new_deployment_whose_last_server_comes_up_late(
    start_server: StartServer,
) -> None:
    servers = [start_server() for _ in range(3)]
    servers[2].crash()
    async with contextlib.AsyncExitStack() as stack:
        starters = [
            await stack.enter_async_context(program(STARTER, *urls_of(servers))) for _ in range(20)
        ]

        async def line(starter: asyncio.subprocess.Process) -> bytes:
            assert starter.stdout is not None
            return await starter.stdout.readline()

        async with asyncio.timeout(60):
            assert await asyncio.gather(*map(line, starters)) == [b"ready\n"] * 20
        for starter in starters:
            assert starter.stdin is not None
            starter.stdin.write(b"\n")
        # They are there, and founding.
        await eventually(lambda: ":60000:" in marker(servers[0]))
        await asyncio.sleep(1)
        await asyncio.to_thread(servers[2].start)
        began = time.monotonic()
        async with asyncio.timeout(45):
            assert await asyncio.gather(*map(line, starters)) == [b"held\n"] * 20
        assert time.monotonic() - began < 45, "the guard time is a minute"


async def test_a_longer_max_ttl_is_on_the_nodes_before_they_vote_for_it(
    start_server: StartServer,
) -> None:
    servers = [start_server() for _ in range(3)]

    def bounds() -> list[str]:
        return [marker(server).rpartition(":")[2] for server in servers]

    async with Redlock(urls_of(servers), **SHORT_GUARD) as short:
        await eventually(lambda: bounds() == ["3000"] * 3)
        async with Redlock(urls_of(servers), max_ttl=30.0, node_timeout=0.5) as long:
            async with long.lock("order"):
                # A third node may be slow to answer, but it is told too.
                assert bounds().count("30000") >= 2
                await eventually(lambda: bounds() == ["30000"] * 3)
            async with short.lock("order"):
                pass
        servers[1].wipe()
        await eventually(lambda: state_of(short, 1) == "quarantined")
        # The longest of all that take locks there.
        await eventually(lambda: ":30000:" in marker(servers[1]))
        # A manager reads the marker at intervals, so it may still show the rest of its own bound.
        await eventually(lambda: seconds_left(short.nodes[1].reason) > 30.0 - BUSY)


@pytest.mark.slow
@pytest.mark.once
async def test_a_lease_survives_a_rolling_restart_a_guard_time_apart(
    start_server: StartServer,
) -> None:
    servers = [start_server() for _ in range(3)]
    # It must outlive stalls of a busy machine; each restart costs the guard time of that ttl.
    async with (
        Redlock(urls_of(servers), ttl=4.0, max_ttl=4.0, node_timeout=2.0) as redlock,
        redlock.lock("order") as lease,
    ):
        for index, server in enumerate(servers):
            await kill_and_start(server)
            await eventually(lambda: lease.nodes == (2, 3))
            await eventually(lambda index=index: state_of(redlock, index) == "up")
            await eventually(lambda: lease.nodes == (3, 3))
            assert server.command("GET", "order").decode() == lease.token
        await lease.verify()
        assert redlock.stats().lost == 0


async def test_a_lease_is_lost_at_once_when_a_majority_restarts_within_the_guard_time(
    start_server: StartServer,
) -> None:
    servers = [start_server() for _ in range(3)]
    async with Redlock(urls_of(servers), ttl=60.0) as redlock:
        lease = await redlock.lock("order").acquire()
        await eventually(lambda: lease.nodes == (3, 3))
        await kill_and_start(servers[0])
        await eventually(lambda: lease.nodes == (2, 3))
        assert lease.valid
        await kill_and_start(servers[1])
        async with asyncio.timeout(BUSY):
            await lease.wait_lost()
        with pytest.raises(LockLost, match="no longer holds"):
            lease.check()


async def test_two_deleted_keys_of_a_lease_on_five_nodes_are_set_again(
    start_server: StartServer,
) -> None:
    servers = [start_server() for _ in range(5)]
    async with Redlock(urls_of(servers), ttl=60.0) as redlock, redlock.lock("order") as lease:
        await eventually(lambda: lease.nodes == (5, 5))
        for server in servers[:2]:
            server.command("DEL", "order")
        await eventually(lambda: [locks_on(server) for server in servers] == [{"order"}] * 5)
        await eventually(lambda: lease.nodes == (5, 5))
        assert {server.command("GET", "order").decode() for server in servers} == {lease.token}
        assert redlock.stats().lost == 0
    await eventually(lambda: [locks_on(server) for server in servers] == [set()] * 5)


HOLDER = """
import asyncio, json, sys, time
from aioredlock_ng import Redlock, RedlockError

guard, ttl, hold, *urls = *map(json.loads, sys.argv[1:4]), *sys.argv[4:]

async def main():
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.readline)
    async with Redlock(urls, ttl=ttl, max_ttl=ttl, recovery_guard=guard) as redlock:
        while not ended.done():
            try:
                lease = await redlock.lock("order", auto_extend=False, blocking_timeout=1).acquire()
            except RedlockError:
                continue
            # The holder relies on its ttl alone, like a holder that cannot be notified of a loss.
            # A process that stalls for longer holds nothing any more. The printed times exclude
            # its stall.
            began = time.monotonic()
            until = began + min(hold, lease.remaining())
            print(json.dumps([began, until]), flush=True)
            while (left := until - time.monotonic()) > 0:
                await asyncio.sleep(left)
            await lease.release()

asyncio.run(main())
"""


async def overlaps_in_bursts(
    start_server: StartServer, guard: str | None, ttl: float, hold: float
) -> int:
    """Kill three of five servers at once and start them again, ten times or until there was an
    overlap, while somebody holds.

    All processes of a machine read the same clock.
    """
    servers = [start_server() for _ in range(5)]
    async with contextlib.AsyncExitStack() as stack:
        arguments = (*map(json.dumps, (guard, ttl, hold)), *urls_of(servers))
        holders = [await stack.enter_async_context(program(HOLDER, *arguments)) for _ in range(3)]
        times: list[tuple[float, float]] = []
        held = asyncio.Event()

        async def listen(holder: asyncio.subprocess.Process) -> None:
            assert holder.stdout is not None
            async for line in holder.stdout:
                times.append(tuple(json.loads(line)))
                held.set()

        def overlaps() -> int:
            return sum(
                later[0] < earlier[1] and earlier[0] < later[1]
                for earlier, later in itertools.combinations(times, 2)
            )

        listeners = [asyncio.create_task(listen(holder)) for holder in holders]
        # Before the programs' own end, which reads too.
        stack.callback(lambda: [listener.cancel() for listener in listeners])
        for burst in range(10):
            held.clear()
            async with asyncio.timeout(60):
                await held.wait()
            await asyncio.gather(
                *(kill_and_start(servers[(burst + offset) % 5]) for offset in range(3))
            )
            if overlaps():
                return overlaps()
        held.clear()
        async with asyncio.timeout(60):
            await held.wait()
        for holder in holders:
            assert holder.stdin is not None
            holder.stdin.write(b"\n")
        async with asyncio.timeout(60):
            await asyncio.gather(*listeners)
        assert [await holder.wait() for holder in holders] == [0] * 3
        return overlaps()


@pytest.mark.slow
@pytest.mark.once
async def test_ten_bursts_of_three_restarts_of_five_servers_let_no_second_holder_in(
    start_server: StartServer,
) -> None:
    assert await overlaps_in_bursts(start_server, "auto", ttl=1.0, hold=0.4) == 0


@pytest.mark.slow
@pytest.mark.once
async def test_without_the_guard_bursts_of_restarts_let_a_second_holder_in(
    start_server: StartServer,
) -> None:
    # Servers that are slow to come back are back within the hold.
    assert await overlaps_in_bursts(start_server, None, ttl=8.0, hold=4.0) > 0
