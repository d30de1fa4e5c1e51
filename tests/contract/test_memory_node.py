"""The contract, kept by the in-memory nodes that users get from `MemoryNodes`."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng._core.replies import GRANTED
from aioredlock_ng._core.votes import Dropped, Unsent
from aioredlock_ng._nodes.memory import MemoryNode, MemoryServer
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng.testing import MemoryNodes
from tests.contract.suite import Listener, MessageSink, NodeContract, Place, acquire, ask, refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.memory import Connection
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng._scripts import Command

pytestmark = pytest.mark.virtual_time


class MemoryPlace:
    def __init__(self) -> None:
        self.kit = MemoryNodes(1)
        (first,) = self.kit
        self.server = first.server
        self.nodes: list[MemoryNode] = []

    async def node(self) -> tuple[Node, Listener]:
        (node,), listener = self.kit, Listener()
        self.nodes.append(node)
        await node.open(0, listener, self.kit.clock, 0.1)
        return node, listener

    async def delete(self, key: str) -> None:
        self.server.delete(key.encode())

    async def flush(self) -> None:
        self.kit.wipe(0)

    async def put(self, key: str, value: str, ttl_ms: int) -> None:
        self.server.set(key.encode(), value.encode(), ttl_ms / 1000)

    async def keep(self, key: str, value: str) -> None:
        self.server.set(key.encode(), value.encode(), math.inf)

    async def publish(self, channel: str, message: str) -> int:
        return self.server.publish(channel.encode(), message.encode())

    async def cut(self) -> None:
        for node in self.nodes:
            node.disconnect()
            node.connect()

    async def queue(self, key: str) -> list[tuple[int, bytes]]:
        return self.server.queues.members(key.encode())

    async def queue_left(self, key: str) -> int:
        return self.server.queues.left(key.encode())


@pytest.fixture
async def place() -> AsyncIterator[MemoryPlace]:
    place = MemoryPlace()
    yield place
    for node in place.nodes:
        await node.aclose(1.0)


class TestMemoryNode(NodeContract):
    async def earlier_process(self, place: Place) -> bytes:
        assert isinstance(place, MemoryPlace)
        earlier = place.server.run_id
        place.kit.restart(0)
        return earlier

    async def test_a_message_to_the_connection_whose_script_published_it_comes_beside_the_answer(
        self, place: MemoryPlace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node, heard = await place.node()
        server, execute = place.server, place.server.execute

        def publishing(command: Command, by: Connection) -> Reply:
            reply = execute(command, by)
            assert server.publish(heard.channel.encode(), b"turn a") == 1
            return reply

        monkeypatch.setattr(server, "execute", publishing)
        sinks = [MessageSink(heard) for _ in range(3)]
        for number, sink in enumerate(sinks):
            sink.asks(acquire(b"one", b"%d" % number))
            node.ask(sink, 0)
        assert [await sink.reply() for sink in sinks] == [GRANTED] * 3
        assert [sink.messages for sink in sinks] == [1, 2, 3]

    async def test_closing_does_not_wait_for_a_connection_that_is_cut(self) -> None:
        """As with a real server, no answer can come any more."""
        node = MemoryNode(MemoryServer(), lambda: 60.0)
        await node.open(0, Listener(), asyncio.get_running_loop().time, 0.1)
        sink = MessageSink(Listener())
        sink.asks(acquire(b"one", b"a"))
        node.ask(sink, 0)
        closing = asyncio.create_task(node.aclose(60.0))
        await asyncio.sleep(0)
        node.disconnect()
        await asyncio.wait_for(closing, 20)
        assert isinstance(await sink.reply(), Dropped)

    async def test_an_answer_under_way_comes_before_a_message_that_was_published_after_it(
        self,
    ) -> None:
        way, heard = 0.001, Listener()
        node = MemoryNode(MemoryServer(), lambda: way)
        await node.open(0, heard, asyncio.get_running_loop().time, 0.1)
        sink = MessageSink(heard)
        sink.asks(acquire(b"one", b"a"))
        node.ask(sink, 0)
        await asyncio.sleep(1.5 * way)
        assert node.server.publish(heard.channel.encode(), b"turn a") == 1
        await asyncio.sleep(way)
        assert (sink.messages, heard.messages) == (0, [b"turn a"])

    async def test_a_message_under_way_is_lost_with_its_connection(
        self, place: MemoryPlace
    ) -> None:
        node, heard = await place.node()
        assert await place.publish(heard.channel, "turn a") == 1
        await place.cut()
        await ask(node, acquire(b"one", b"a"))
        assert heard.messages == []

    async def test_a_lost_connection_leaves_no_trace_of_the_keys_that_it_tracked(
        self, place: MemoryPlace
    ) -> None:
        for _ in range(2):
            await place.node()
        node, other = place.nodes
        for at, key in enumerate((b"one", b"two")):
            for tracking in (node, other)[: at + 1]:
                await ask(tracking, MUTEX.watching((key,), (b"token",)))
        node.disconnect()
        assert list(place.server._trackers) == [b"two"]
        other.disconnect()
        assert place.server._trackers == {}

    async def test_a_hung_node_executes_its_pending_releases_once_it_resumes(
        self, place: MemoryPlace
    ) -> None:
        await place.node()
        (node,) = place.nodes
        await ask(node, acquire(b"token", b"a"))
        node.disconnect()
        node.hang()
        release = MUTEX.releasing((b"a",), b"token", 10.0)
        assert isinstance(await ask(node, release), Unsent)
        node.connect()
        assert place.server.get(b"a") == b"token"
        assert node.state().owed == 1
        node.resume()
        assert place.server.get(b"a") is None
        assert node.state().owed == 0

    async def test_a_release_that_is_refused_on_a_new_connection_stays_pending(
        self, place: MemoryPlace
    ) -> None:
        await place.node()
        (node,) = place.nodes
        await ask(node, acquire(b"token", b"a"))
        node.disconnect()
        await ask(node, MUTEX.releasing((b"a",), b"token", 10.0))
        place.server.refuses = "OOM command not allowed"
        node.connect()
        assert node.state().owed == 1
        place.server.refuses = None
        node.disconnect()
        node.connect()
        assert place.server.get(b"a") is None
        assert node.state().owed == 0

    async def test_a_server_that_refuses_sets_nothing(self, place: MemoryPlace) -> None:
        node, _ = await place.node()
        place.server.refuses = "OOM command not allowed"
        assert refused(await ask(node, acquire(b"one", b"a")), "OOM")
        place.server.refuses = None
        assert place.server.keys() == []
