"""The contract, kept by the in-memory node."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng._nodes.memory import MemoryNode, MemoryServer
from tests.contract.suite import Listener, NodeContract, Place, acquire, ask, refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioredlock_ng._nodes.port import Node

pytestmark = pytest.mark.virtual_time


class MemoryPlace:
    def __init__(self) -> None:
        self.server = MemoryServer()
        self.nodes: list[MemoryNode] = []

    async def node(self) -> tuple[Node, Listener]:
        node, listener = MemoryNode(self.server), Listener()
        self.nodes.append(node)
        await node.open(0, listener, asyncio.get_running_loop().time, 0.1)
        return node, listener

    async def delete(self, key: str) -> None:
        self.server.delete(key.encode())

    async def flush(self) -> None:
        self.server.flush()

    async def put(self, key: str, value: str, ttl_ms: int) -> None:
        self.server.set(key.encode(), value.encode(), ttl_ms / 1000)

    async def keep(self, key: str, value: str) -> None:
        self.server.set(key.encode(), value.encode(), math.inf)


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
        place.server.restart()
        return earlier

    async def test_a_server_that_refuses_sets_nothing(self, place: MemoryPlace) -> None:
        node, _ = await place.node()
        place.server.refuses = "OOM command not allowed"
        assert refused(await ask(node, acquire(b"one", b"a")), "OOM")
        place.server.refuses = None
        assert place.server.keys() == []
