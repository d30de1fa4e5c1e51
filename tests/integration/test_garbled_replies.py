"""One of three servers answers with what no script can return: it is no vote, and harms nobody."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import LockHeld, QuorumUnreachable, Redlock
from aioredlock_ng.events import NodeDegraded
from tests.support import tiers
from tests.support.eventually import eventually
from tests.support.liar import TRUTH, Liar
from tests.support.node_set import trust

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioredlock_ng.events import Event
    from aioredlock_ng.testing import LocalServer

    StartServer = Callable[..., LocalServer]

SCRIPTS = (
    "acquire_guarded",
    "acquire_each",
    "hand_over_each",
    "release",
    "release_each",
    "watch",
    "extend",
    "confirm",
    "inspect",
    "force_release",
    "await_turn",
    "repair",
    "marker",
)

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


@contextlib.asynccontextmanager
async def a_liar_and_two(start_server: StartServer, lies: Callable[[str], Any]) -> AsyncIterator[list[str]]:
    """Three trusted servers, the first behind a proxy that replaces replies."""
    servers = [start_server() for _ in range(3)]
    for server in servers:
        trust(server)
    async with Liar(servers[0].url, lambda name, _reply: lies(name)) as liar:
        yield [liar.url, *(server.url for server in servers[1:])]
    for server in servers[1:]:
        assert server.command("EXISTS", "a", "b") == b"0"


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_server_that_answers_scripts_with_garbage_harms_nobody(start_server: StartServer, garbage: str) -> None:
    heard: list[Event] = []
    lie = GARBAGE[garbage]
    async with (
        a_liar_and_two(start_server, lambda name: lie if name in SCRIPTS else TRUTH) as urls,
        Redlock(urls, ttl=2.0, sinks=[heard.append], node_timeout=0.5) as redlock,
        asyncio.timeout(60),
    ):
        lease = await redlock.lock("a", ttl=0.6).acquire()
        # Long enough for the watch, the label, repairs and a renewal.
        await eventually(lambda: redlock.stats().renewals > 1 or lease.lost)
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
    told = [event.reason for event in heard if isinstance(event, NodeDegraded)]
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
        Liar(server.url, lambda name, _reply: [1, None] if name == "acquire_guarded" else TRUTH) as liar,
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


@pytest.mark.parametrize("lie", tiers.ends([[1, 2, 3], [b"x", b"y", b"z"], [b"m", 5, None], b"marker", [None] * 3]))
async def test_two_new_servers_get_their_markers_though_the_third_answers_the_marker_script_with_garbage(
    start_server: StartServer, lie: Any
) -> None:
    servers = [start_server() for _ in range(3)]
    async with Liar(servers[0].url, lambda name, _reply: lie if name == "marker" else TRUTH) as liar:
        urls = [liar.url, servers[1].url, servers[2].url]
        async with (
            asyncio.timeout(60),
            Redlock(urls, ttl=0.5, max_ttl=0.5, node_timeout=0.3) as redlock,
            redlock.lock("a"),
        ):
            pass
