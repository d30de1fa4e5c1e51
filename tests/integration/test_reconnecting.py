"""Nodes that come back: what is owed to them is released however late, and which connection is
theirs is told apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from aioredlock_ng import Redlock, RedlockError
from aioredlock_ng._nodes import silence
from aioredlock_ng._nodes.connect import Connector
from aioredlock_ng._scripts.catalogue import SCRIPTS
from aioredlock_ng.events import NodeAnswers, NodeSuspect
from tests.integration.helpers import all_up, no_keys_left, state_of, stats_of
from tests.support.eventually import eventually
from tests.support.fake_server import FakeServer, bulk
from tests.support.proxy import Direction, Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioredlock_ng._nodes.wire import Wire
    from aioredlock_ng.events import Event
    from aioredlock_ng.testing import TLSFiles
    from tests.support.node_set import NodeSet

TTL = 60.0
"""Seconds: no key expires while a test waits for its end."""


class Clock:
    """The real one, which may be set forward, as if the machine had been suspended."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


def cut(redlock: Redlock, index: int) -> None:
    """End the connection on this side. The server still reads all that was sent before."""
    used: Any = redlock.engine().context.fleet.nodes[index]
    used._channel.close("cut")


@pytest.mark.faults
async def test_an_acquire_that_a_hung_node_executes_late_is_released_though_its_ttl_has_passed(
    three_nodes: NodeSet,
) -> None:
    """Each key would live for its whole ttl after its late execution, without a holder."""
    clock = Clock()
    # A label would be one more SET.
    options: dict[str, Any] = {
        "ttl": TTL,
        "recovery_guard": None,
        "clock": clock,
        "owner": False,
    }
    # With a short `node_timeout`, a hung node would soon get releases only.
    async with Redlock(three_nodes.urls, node_timeout=5.0, **options) as redlock:
        sets = stats_of(three_nodes, 0, "set")
        three_nodes.pause(0)
        leases = [await redlock.lock(f"order:{number}").acquire() for number in range(5)]
        cut(redlock, 0)
        for lease in leases:
            await lease.release()
        await eventually(lambda: redlock.nodes[0].owed == len(leases))
        clock.ahead = 10 * TTL
        three_nodes.resume(0)
        await eventually(lambda: stats_of(three_nodes, 0, "set") == sets + len(leases))
        await eventually(lambda: three_nodes.keys() == [set()] * 3)


@pytest.mark.slow
async def test_a_pending_release_is_sent_twice_after_a_reconnect(three_nodes: NodeSet) -> None:
    """The server may still execute commands of the old connection when the new one is made."""
    async with (
        Proxy(three_nodes.urls[0]) as proxy,
        Redlock([proxy.url, *three_nodes.urls[1:]], ttl=TTL) as redlock,
    ):
        lease = await redlock.lock("order").acquire()
        await eventually(lambda: lease.nodes == (3, 3))
        await proxy.refuse()
        await eventually(lambda: state_of(redlock, 0) == "down")
        await lease.release()
        await proxy.accept()
        await all_up(redlock)
        assert three_nodes.keys() == [set()] * 3
        # In this very tick: the second release has not been sent.
        three_nodes[0].command("SET", "order", lease.token, "PX", "20000")
        assert three_nodes.keys()[0] == {"order"}
        await eventually(lambda: three_nodes.keys()[0] == set(), 15)


async def suspect(redlock: Redlock, index: int) -> None:
    """Use the locks until a node that does not answer is suspect."""

    async def suspected() -> bool:
        async with redlock.lock("probe"):
            return state_of(redlock, index) == "suspect"

    await eventually(suspected)


@pytest.mark.slow
@pytest.mark.faults
async def test_a_node_that_wakes_while_it_is_probed_keeps_its_connection(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "PROBE_EVERY", 0.1)
    probed = asyncio.Event()
    connect = Connector.connect

    async def noted(connector: Connector, within: float) -> Wire:
        probed.set()
        return await connect(connector, within)

    async with Redlock(
        three_nodes.urls, node_timeout=0.5, connect_timeout=30.0, ttl=TTL
    ) as redlock:
        used: Any = redlock.engine().context.fleet.nodes[0]
        three_nodes.pause(0)
        await suspect(redlock, 0)
        monkeypatch.setattr(Connector, "connect", noted)
        await probed.wait()
        three_nodes.resume(0)
        await eventually(lambda: used._probe.task.done())
        await eventually(lambda: state_of(redlock, 0) == "up")
        assert redlock.nodes[0].connections == 1
        await no_keys_left(three_nodes, redlock)


async def test_a_silent_connection_is_given_up_once_the_server_answers_on_another(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "PROBE_EVERY", 0.1)
    async with (
        Proxy(three_nodes.urls[0]) as proxy,
        Redlock([proxy.url, *three_nodes.urls[1:]], node_timeout=0.1, ttl=TTL) as redlock,
    ):
        proxy.stall()
        # From now on connections have ways of their own.
        proxy.to_server, proxy.to_client = Direction(), Direction()
        await suspect(redlock, 0)
        await eventually(lambda: redlock.nodes[0].connections == 2)
        async with redlock.lock("order") as lease:
            await eventually(lambda: lease.nodes == (3, 3))
        await no_keys_left(three_nodes, redlock)


class Relay:
    """In front of one server; `cuts` connections end together with the last answer of their
    handshake.
    """

    def __init__(self, url: str, behind: bytes) -> None:
        self.cuts = self.accepted = 0
        self.refusing = False
        self._parts = urlsplit(url)
        self._behind = behind
        self._open: set[asyncio.StreamWriter] = set()

    def refuse(self) -> None:
        self.refusing = True
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        self.accepted += 1
        inner, outer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._open.add(writer)
        ways = [
            asyncio.create_task(self._there(reader, outer)),
            asyncio.create_task(self._back(inner, writer)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        self._open.discard(writer)
        for end in (writer, outer):
            end.close()
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)

    async def _there(self, reader: asyncio.StreamReader, outer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            outer.write(data)

    async def _back(self, inner: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = b""
        while data := await inner.read(65536):
            seen += data
            if self.cuts and SCRIPTS[-1].sha in seen:
                self.cuts -= 1
                writer.write(data + self._behind)
                # In this tick: the client is in the same process, and finds both at once.
                writer.close()
                return
            writer.write(data)


@contextlib.asynccontextmanager
async def ending(how: str, nodes: NodeSet, tls_files: TLSFiles) -> AsyncIterator[tuple[Relay, str]]:
    """A relay and its URL; the connection ends by an answer too many, or by TLS's own word of
    farewell.
    """
    relay = Relay(nodes.urls[0], b"+PONG\r\n" if how == "an answer too many" else b"")
    context = None
    if how == "TLS":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls_files.cert, tls_files.key)
    async with await asyncio.start_server(relay.serve, "127.0.0.1", 0, ssl=context) as server:
        place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield (
            relay,
            f"rediss://{place}?ssl_ca_certs={tls_files.ca}" if context else f"redis://{place}",
        )


@pytest.mark.parametrize("how", ["an answer too many", "TLS"])
async def test_a_connection_that_ends_with_its_last_answer_is_not_up_and_keeps_pending_releases(
    one_node: NodeSet, tls_files: TLSFiles, how: str
) -> None:
    heard: list[str] = []
    async with (
        ending(how, one_node, tls_files) as (relay, url),
        Redlock(
            [url],
            ttl=TTL,
            connect_timeout=30.0,
            sinks=[lambda event: heard.append(type(event).__name__)],
        ) as redlock,
    ):
        lease = await redlock.lock("order").acquire()
        relay.refuse()
        await eventually(lambda: state_of(redlock, 0) == "down")
        await lease.release()
        assert redlock.nodes[0].owed == 1
        relay.cuts, relay.refusing = 2, False
        await all_up(redlock)
        assert (relay.cuts, relay.accepted) == (0, 4)
        assert redlock.nodes[0].connections == heard.count("NodeUp") == 2
        await no_keys_left(one_node, redlock)


@pytest.mark.parametrize("ticks", range(6))
async def test_opening_ends_though_closing_begins_just_after_it(
    three_nodes: NodeSet, ticks: int
) -> None:
    redlock = Redlock(three_nodes.urls)
    opening = asyncio.create_task(redlock.open())
    for _ in range(ticks):
        await asyncio.sleep(0)
    await redlock.aclose()
    with contextlib.suppress(RedlockError):
        await asyncio.wait_for(opening, 20)
    # Before it has begun there is nothing to close.
    await redlock.aclose()


async def test_closing_does_not_wait_for_a_connection_that_is_gone(three_nodes: NodeSet) -> None:
    async with Proxy(three_nodes.urls[0]) as proxy:
        redlock = await Redlock(
            [proxy.url, *three_nodes.urls[1:]], close_timeout=60.0, node_timeout=30.0, ttl=50.0
        ).open()
        await redlock.lock("order").acquire()
        proxy.stall()
        closing = asyncio.create_task(redlock.aclose())
        await eventually(lambda: proxy.to_server.held)
        assert not closing.done()
        proxy.cut()
        await asyncio.wait_for(closing, 20)


@pytest.mark.slow
async def test_a_node_that_is_always_slow_is_suspect_until_it_answers_in_time(
    three_nodes: NodeSet,
) -> None:
    heard: list[Event] = []
    async with (
        Proxy(three_nodes.urls[0]) as proxy,
        Redlock(
            [proxy.url, *three_nodes.urls[1:]], node_timeout=0.1, ttl=TTL, sinks=[heard.append]
        ) as redlock,
    ):

        def told(kind: type[NodeSuspect | NodeAnswers]) -> int:
            # Another node may be slow by chance.
            return sum(
                isinstance(event, kind) and event.node == redlock.nodes[0].address
                for event in heard
            )

        proxy.delay(0.6)
        probes = stats_of(three_nodes, 0, "time")
        # It answers everything, and now and then there is nothing that it has not answered.
        await suspect(redlock, 0)
        await eventually(
            lambda: told(NodeAnswers) or stats_of(three_nodes, 0, "time") >= probes + 4
        )
        assert (told(NodeSuspect), told(NodeAnswers), state_of(redlock, 0)) == (1, 0, "suspect")
        proxy.delay(0.0)
        await eventually(lambda: state_of(redlock, 0) == "up")
        assert (told(NodeSuspect), told(NodeAnswers), redlock.nodes[0].connections) == (1, 1, 1)
        async with redlock.lock("order") as lease:
            await eventually(lambda: lease.nodes == (3, 3))
        await no_keys_left(three_nodes, redlock)


@pytest.mark.slow
async def test_a_node_that_is_slow_from_its_first_connection_on_becomes_suspect(
    three_nodes: NodeSet,
) -> None:
    """The slow handshake made the connection silent, and the node, which was not in use yet, missed
    it. Later silence was no news, so the backlog of a hung server grew without a bound.
    """
    async with Proxy(three_nodes.urls[0]) as proxy:
        proxy.delay(0.6)
        async with Redlock(
            [proxy.url, *three_nodes.urls[1:]], node_timeout=0.1, connect_timeout=30.0, ttl=TTL
        ) as redlock:
            await eventually(lambda: state_of(redlock, 0) == "up")
            await suspect(redlock, 0)
            proxy.delay(0.0)
            await eventually(lambda: state_of(redlock, 0) == "up")
            assert redlock.nodes[0].connections == 1
            await no_keys_left(three_nodes, redlock)


async def test_a_node_that_is_refused_during_its_handshake_is_not_used() -> None:
    """A probe may find out that two nodes are one server while one of them connects anew."""
    refusals: list[str] = []

    def refuse(_words: list[bytes]) -> bytes:
        refusals.append("not this server")
        redlock.engine().context.fleet.nodes[0].refuse(refusals[-1])
        return bulk("redis_version:7.0.15\r\nrole:master\r\n")

    async with FakeServer(info=refuse) as server:
        redlock = Redlock([server.url])
        async with redlock:
            (node,) = redlock.nodes
            assert refusals
            assert (node.state, node.reason) == ("refused", "not this server")
            assert node.connections == 0
