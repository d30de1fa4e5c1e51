"""Test replies that no script can return, from one of three servers.

A garbled reply is no vote, and does not break calls that the other servers answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import AcquireTimeout, LockHeld, QuorumUnreachable, Redlock
from aioredlock_ng._core.fencing import slot_of
from aioredlock_ng._scripts.catalogue import SCRIPTS
from aioredlock_ng.events import NodeDegraded
from tests.support import tiers
from tests.support.eventually import eventually
from tests.support.liar import TRUTH, Liar
from tests.support.node_set import OWN, trust

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioredlock_ng.events import Event
    from aioredlock_ng.testing import LocalServer

    StartServer = Callable[..., LocalServer]

SCRIPT_NAMES = {script.name for script in SCRIPTS}

GARBAGE: dict[str, Any] = {
    "nil": None,
    "true": True,
    "an empty list": [],
    "texts": [b"a", b"b"],
    "a grant without its counter": [1, None],
    "a list in a list": [[1, 1], [1]],
    "a number that is too large": 2**80,
    "a map": {b"a": 1},
}


@pytest.fixture(autouse=True)
async def troubles() -> AsyncIterator[list[dict[str, Any]]]:
    """Nothing may reach the loop's own handler: no task and no protocol ends by an exception."""
    found: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(context))
    yield found
    assert found == []


class Three:
    """Three trusted servers. A proxy in front of the first one replaces its replies."""

    def __init__(self, servers: list[LocalServer], liar: Liar) -> None:
        self.servers = servers
        self.liar = liar
        self.urls = [liar.url, *(server.url for server in servers[1:])]

    def raise_counter(self, name: str) -> None:
        """Set the fence counter of a name on one honest server an hour ahead, so that a grant needs
        a second round.
        """
        self.servers[1].command(
            "ZADD",
            f"{OWN}fences",
            str((int(time.time()) + 3600) * 10**6),
            slot_of(name.encode()).decode(),
        )


@contextlib.asynccontextmanager
async def a_liar_and_two(
    start_server: StartServer, lies: Callable[[str], Any]
) -> AsyncIterator[Three]:
    """Nothing but markers and counters may be left behind on the honest servers."""
    servers = [start_server() for _ in range(3)]
    for server in servers:
        trust(server)
    async with Liar(servers[0].url, lambda name, _reply: lies(name)) as liar:
        yield Three(servers, liar)
    await eventually(lambda: not any(left_on(server) for server in servers[1:]), within=9.0)


def left_on(server: LocalServer) -> set[str]:
    """Return the names of the keys that calls may have left: locks, labels and queues."""
    found = server.command("EVAL", 'return cjson.encode(redis.call("KEYS", "*"))', "0")
    return set(json.loads(found)) - {f"{OWN}marker", f"{OWN}fences"}


async def every_call(three: Three, one: Redlock, other: Redlock) -> None:
    """Use two managers so that they send every script of the guarded locks.

    No call may hang or end otherwise.
    """
    await hold_and_inspect(three, one)
    await wait_in_the_queue(one, other)
    await share_a_semaphore(one, other)
    await read_and_write(three, one, other)
    await keep_a_minimum(one, other)
    await merge_calls(one)


async def hold_and_inspect(three: Three, redlock: Redlock) -> None:
    three.raise_counter("a")
    lease = await redlock.lock("a", ttl=4.0).acquire()
    three.servers[0].command("DEL", "a")
    # Long enough for the watch, the label, repairs and a renewal.
    renewals = redlock.stats().renewals
    await eventually(lambda: redlock.stats().renewals > renewals + 1 or lease.lost)
    assert not lease.lost
    assert (await redlock.inspect("a")).held
    with pytest.raises(LockHeld):
        await redlock.lock("a", blocking_timeout=0).acquire()
    waiting = [asyncio.ensure_future(_once(redlock)) for _ in range(5)]
    await lease.release()
    await asyncio.gather(*waiting)
    async with redlock.lock("a", "b"):
        pass
    taken = await redlock.lock("b").acquire()
    assert await redlock.force_release("b")
    await taken.wait_lost()


async def wait_in_the_queue(one: Redlock, other: Redlock) -> None:
    """One waiter of another process gives up, and the next one gets the lock from the holder."""
    lease = await one.lock("a").acquire()
    with pytest.raises(AcquireTimeout):
        await other.lock("a", blocking_timeout=2.5).acquire()
    waiter = asyncio.ensure_future(other.lock("a").acquire())
    await eventually(lambda: other.stats().waiting == 1)
    await lease.release()
    await (await waiter).release()


async def share_a_semaphore(one: Redlock, other: Redlock) -> None:
    permit = await one.semaphore("s", 1).acquire()
    waiter = asyncio.ensure_future(other.semaphore("s", 1).acquire())
    await eventually(lambda: other.stats().waiting == 1)
    await permit.release()
    await (await waiter).release()


async def read_and_write(three: Three, one: Redlock, other: Redlock) -> None:
    """A writer waits for a reader that renews, and a reader waits for the writer, which becomes a
    reader.
    """
    three.raise_counter("r")
    reader = await one.rwlock("r", ttl=4.0).read().acquire()
    three.servers[0].command("DEL", "r")
    renewals = one.stats().renewals
    await eventually(lambda: one.stats().renewals > renewals + 1 or reader.lost)
    assert not reader.lost
    writer = asyncio.ensure_future(other.rwlock("r").write().acquire())
    await eventually(lambda: other.stats().waiting == 1)
    await reader.release()
    writing = await writer
    second = asyncio.ensure_future(one.rwlock("r").read().acquire())
    await eventually(lambda: one.stats().waiting == 1)
    await writing.downgrade()
    await (await second).release()
    await writing.release()


async def keep_a_minimum(one: Redlock, other: Redlock) -> None:
    """The next holder waits for the end of the minimum hold, although the first one released."""
    since = time.monotonic()
    async with one.lock("m", min_hold=0.4):
        pass
    await (await other.lock("m").acquire()).release()
    assert time.monotonic() - since >= 0.4


async def merge_calls(redlock: Redlock) -> None:
    leases = await asyncio.gather(*(redlock.lock(name).acquire() for name in "xyz"))
    await asyncio.gather(*(lease.release() for lease in leases[1:]))
    _, following = await asyncio.gather(leases[0].release(), redlock.lock("x").acquire())
    await following.release()


async def plain_calls(redlock: Redlock) -> None:
    async with redlock.lock("p"):
        pass


@contextlib.asynccontextmanager
async def managers(
    three: Three, heard: tuple[list[Event], ...]
) -> AsyncIterator[tuple[Redlock, Redlock, Redlock]]:
    """Open two managers of guarded locks, and one manager without fences and guard.

    Each has its own events.
    """
    shared: dict[str, Any] = {"ttl": 10.0, "node_timeout": 2.0}
    async with (
        Redlock(three.urls, sinks=[heard[0].append], **shared) as one,
        Redlock(three.urls, sinks=[heard[1].append], **shared) as other,
        Redlock(
            three.urls, sinks=[heard[2].append], fencing=False, recovery_guard=None, **shared
        ) as plain,
        asyncio.timeout(120),
    ):
        yield one, other, plain


@pytest.mark.slow
async def test_the_calls_of_these_tests_use_every_script_of_the_catalogue(
    start_server: StartServer,
) -> None:
    async with a_liar_and_two(start_server, lambda _name: TRUTH) as three:
        async with managers(three, ([], [], [])) as (one, other, plain):
            await every_call(three, one, other)
            await plain_calls(plain)
        assert set(three.liar.asked) & SCRIPT_NAMES == SCRIPT_NAMES


@pytest.mark.slow
@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_server_that_garbles_the_answers_of_scripts_harms_no_client(
    start_server: StartServer, garbage: str
) -> None:
    heard: tuple[list[Event], ...] = ([], [], [])
    lie = GARBAGE[garbage]
    async with (
        a_liar_and_two(start_server, lambda name: lie if name in SCRIPT_NAMES else TRUTH) as three,
        managers(three, heard) as (one, other, plain),
    ):
        await every_call(three, one, other)
        await plain_calls(plain)
    for events in heard:
        told = [event.reason for event in events if isinstance(event, NodeDegraded)]
        assert any("which does not fit it" in reason for reason in told)
        assert len(set(told)) == len(told)


async def _once(redlock: Redlock) -> None:
    async with redlock.lock("a"):
        await asyncio.sleep(0)


async def test_a_grant_whose_answer_is_garbled_is_released_as_one_that_may_have_been_given(
    start_server: StartServer,
) -> None:
    server = start_server()
    trust(server)
    async with (
        Liar(
            server.url, lambda name, _reply: [1, None] if name == "acquire_guarded" else TRUTH
        ) as liar,
        Redlock([liar.url]) as redlock,
    ):
        with pytest.raises(QuorumUnreachable) as caught:
            await redlock.lock("a", blocking_timeout=0).acquire()
        (vote,) = caught.value.votes
        assert vote.outcome == "unknown"
        assert vote.node in liar.url
        await eventually(lambda: server.command("EXISTS", "a") == b"0")


async def test_a_release_whose_answer_is_garbled_is_sent_again(start_server: StartServer) -> None:
    server = start_server()
    trust(server)
    async with (
        Liar(server.url, lambda name, _reply: b"what?" if name == "release" else TRUTH) as liar,
        Redlock([liar.url]) as redlock,
    ):
        lease = await redlock.lock("a", ttl=5).acquire()
        await lease.release()
        await eventually(lambda: liar.asked.count("release") > 1)


async def test_a_garbled_answer_to_leave_is_reported_once_and_as_no_refusal(
    start_server: StartServer,
) -> None:
    told: list[str] = []

    def tell(event: Event) -> None:
        if isinstance(event, NodeDegraded):
            told.append(event.reason)

    def lies(name: str) -> Any:
        return [b"a"] if name == "leave" else TRUTH

    async with (
        a_liar_and_two(start_server, lies) as three,
        Redlock(three.urls, node_timeout=5.0) as holder,
        Redlock(three.urls, node_timeout=5.0, sinks=[tell]) as redlock,
        holder.lock("a"),
    ):
        waiter = asyncio.create_task(redlock.lock("a").acquire())
        await eventually(lambda: redlock.stats().standing == 1)
        waiter.cancel()
        await eventually(lambda: redlock.nodes[0].owed > 0)
        assert told == ["the leave script was answered with list of 1, which does not fit it"]
        three.liar.reply = lambda _name, _reply: TRUTH
        await eventually(lambda: redlock.nodes[0].owed == 0)


@pytest.mark.parametrize(
    "lie", tiers.ends([[1, 2, 3], [b"x", b"y", b"z"], [b"m", 5, None], b"marker", [None] * 3])
)
async def test_two_new_servers_get_their_markers_though_the_third_garbles_its_own(
    start_server: StartServer, lie: Any
) -> None:
    servers = [start_server() for _ in range(3)]
    async with Liar(
        servers[0].url, lambda name, _reply: lie if name == "marker" else TRUTH
    ) as liar:
        urls = [liar.url, servers[1].url, servers[2].url]
        async with (
            asyncio.timeout(60),
            Redlock(urls, ttl=3.0, max_ttl=3.0, node_timeout=2.0) as redlock,
            redlock.lock("a"),
        ):
            pass
