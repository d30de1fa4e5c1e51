"""Sets of names in the queues: every server answers as the in-memory node does, remaining times
aside.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng._core.queue_formats import claim_of, member_of
from aioredlock_ng._core.replies import (
    GRANTED,
    LEFT,
    Free,
    Held,
    Looked,
    ReadLocked,
    Refused,
    Standing,
    released,
)
from aioredlock_ng._nodes.channel import Outbox
from aioredlock_ng._nodes.connect import Connector
from aioredlock_ng._nodes.memory import MemoryNode
from aioredlock_ng._nodes.node import RedisNode
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng._scripts.node_requests import leaving, standing
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioredlock_ng._core.replies import KeyLook
    from aioredlock_ng._nodes.port import Node, Sink
    from aioredlock_ng._scripts import Command
    from tests.support.node_set import NodeSet

TTL = b"20000"

SET = member_of(b"a" * 16, 1, 20.0, notified=False)
OTHER = member_of(b"b" * 16, 1, 20.0, notified=False)
LAST = member_of(b"c" * 16, 1, 20.0, notified=False)


class Asked:
    """One question; a `Sink`."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.started = asyncio.get_running_loop().time()
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def stands(self) -> bool:
        return True

    def deliver(self, index: int, reply: Any) -> None:
        self.future.set_result(reply)


class Listening:
    """Hears everything, and keeps the messages."""

    manager_id = b"d" * 16

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def invalidated(self, index: int, keys: list[bytes] | None) -> None:
        pass

    def notified(self, index: int, message: bytes) -> None:
        self.messages.append(message)

    def identify(self, index: int, run_id: str) -> str:
        return ""

    def present(self, index: int, is_present: bool) -> None:
        pass

    def emit(self, event: object) -> None:
        pass


class Both:
    """A server and the in-memory node, which are asked the same."""

    def __init__(self, nodes: list[Node], listeners: list[Listening]) -> None:
        self.nodes, self.listeners = nodes, listeners

    async def ask(self, command: Command) -> Any:
        """Return the answer of both nodes. Each time is 1.0 except None and 0.0."""
        asked: list[Sink] = [Asked(command) for _ in self.nodes]
        for node, sink in zip(self.nodes, asked, strict=True):
            node.ask(sink, 0)
        async with asyncio.timeout(30):
            replies = [await sink.future for sink in asked]  # type: ignore[attr-defined]
        if command.script.name in (
            "acquire",
            "acquire_guarded",
            "acquire_read",
            "stand",
            "stand_read",
            "stand_slots",
        ):
            replies = [
                replace(reply, left=float(reply.left > 0))
                if getattr(reply, "left", None)
                else reply
                for reply in replies
            ]
        # Which slot expires first is a matter of microseconds.
        replies = [
            replace(reply, slots=()) if isinstance(reply, Standing) and reply.left else reply
            for reply in replies
        ]
        if command.script.name == "inspect":
            replies = [Looked(tuple(map(_without_times, reply.keys))) for reply in replies]
        assert replies[0] == replies[1], command.step
        assert getattr(replies[0], "ticket", 0) == getattr(replies[1], "ticket", 0), command.step
        return replies[0]

    async def messages(self, count: int) -> list[bytes]:
        """Return the first messages of both to the manager `d`."""
        await eventually(
            lambda: all(len(listener.messages) >= count for listener in self.listeners)
        )
        assert self.listeners[0].messages == self.listeners[1].messages
        return self.listeners[0].messages

    async def acquire(self, token: bytes, *keys: bytes, claim: bytes = b"") -> Any:
        return await self.ask(MUTEX.acquiring(keys, (), token, TTL, 0, claim))

    async def stand(self, claim: bytes, *keys: bytes) -> Any:
        return await self.ask(standing(keys, claim, 20_000, 20_000))

    async def release(self, token: bytes, *keys: bytes) -> Any:
        return await self.ask(MUTEX.releasing(keys, token, 0.0))

    async def expire(self, token: bytes, key: bytes) -> None:
        """Let a key expire on both. The answers may differ, because the key may be gone by then."""
        for node in self.nodes:
            asked = Asked(MUTEX.extending((key,), (token,), 1))
            node.ask(asked, 0)
            await asked.future
        await asyncio.sleep(0.05)

    async def leave(self, member: bytes, *keys: bytes) -> Any:
        return await self.ask(leaving(keys, member))


def _without_times(look: KeyLook) -> KeyLook:
    if isinstance(look, Held):
        return replace(look, remaining=1.0)
    if isinstance(look, Free) and look.offered is not None:
        return replace(look, offered=1.0)
    if isinstance(look, ReadLocked):
        readers = sorted(
            (replace(reader, remaining=1.0) for reader in look.readers),
            key=lambda reader: reader.token,
        )
        return replace(look, remaining=1.0, readers=tuple(readers))
    return look


@pytest.fixture
async def both(node_of_each_version: NodeSet) -> AsyncIterator[Both]:
    node_of_each_version.wipe()
    loop = asyncio.get_running_loop()
    nodes: list[Node] = [
        RedisNode(Connector(node_of_each_version[0].url), Outbox(loop, loop.time), 30.0),
        MemoryNode(),
    ]
    listeners = [Listening() for _ in nodes]
    for node, listener in zip(nodes, listeners, strict=True):
        await node.open(0, listener, loop.time, 10.0)
    yield Both(nodes, listeners)
    for node in nodes:
        await node.aclose(1.0)


async def test_a_refused_set_learns_the_highest_ticket_of_all_its_keys(both: Both) -> None:
    assert await both.acquire(b"holds a", b"a") is GRANTED
    assert await both.acquire(b"holds b", b"b") is GRANTED
    assert await both.stand(claim_of(7, OTHER), b"b") == Standing(1.0, 0)
    assert await both.acquire(b"set", b"a", b"b") == Refused(1.0, 1, 7)
    assert await both.stand(claim_of(8, SET), b"a", b"b") == Standing(1.0, 0)
    assert await both.acquire(b"third", b"a", b"b") == Refused(1.0, 1, 8)
    assert await both.acquire(b"fourth", b"b") == Refused(1.0, 1, 7)


async def test_the_refusal_of_a_key_reserved_for_a_set_names_the_ticket_of_the_set(
    both: Both,
) -> None:
    assert await both.acquire(b"holds b", b"b") is GRANTED
    assert await both.stand(claim_of(5, SET), b"a", b"b") == Standing(1.0, 0)
    assert await both.acquire(b"newcomer", b"a") == Refused(1.0, 1, 5)
    assert await both.acquire(b"newcomer", b"a", b"c") == Refused(1.0, 1, 5)
    # It came later, and does not get a key that is reserved for the set.
    assert await both.acquire(b"later", b"a", claim=claim_of(6, OTHER)) == Refused(1.0, 1, 5)
    assert await both.acquire(b"earlier", b"a", claim=claim_of(4, OTHER)) is GRANTED


async def test_a_key_reserved_for_a_set_that_leaves_goes_to_the_first_in_the_queue(
    both: Both,
) -> None:
    assert await both.acquire(b"holds b", b"b") is GRANTED
    assert await both.stand(claim_of(1, SET), b"a", b"b") == Standing(1.0, 0)
    assert await both.stand(claim_of(2, OTHER), b"a") == Standing(1.0, 0)
    assert await both.stand(claim_of(3, LAST), b"a") == Standing(1.0, 1)
    assert await both.leave(SET, b"a", b"b") is LEFT
    assert await both.acquire(b"last", b"a", claim=claim_of(3, LAST)) == Refused(1.0, 1, 3)
    assert await both.acquire(b"other", b"a", claim=claim_of(2, OTHER)) is GRANTED


async def test_a_release_that_offers_the_key_names_the_highest_ticket(both: Both) -> None:
    """The releasing process takes a higher ticket, if it wants the key again."""
    assert await both.acquire(b"one", b"a") is GRANTED
    assert (await both.release(b"one", b"a")).ticket == 0, "nobody waits"
    assert await both.acquire(b"two", b"a") is GRANTED
    assert await both.stand(claim_of(5, SET), b"a") == Standing(1.0, 0)
    assert await both.stand(claim_of(8, OTHER), b"a") == Standing(1.0, 1)
    assert (await both.release(b"two", b"a")).ticket == 8
    assert await both.acquire(b"three", b"a", claim=claim_of(5, SET)) is GRANTED
    assert (await both.release(b"three", b"a")).ticket == 8, "it is in the offer, and in no queue"
    assert await both.acquire(b"set", b"c", b"b") is GRANTED
    assert await both.stand(claim_of(9, SET), b"b") == Standing(1.0, 0)
    assert (await both.release(b"set", b"c", b"b")).ticket == 0, "one of several keys"


async def test_a_set_that_waits_for_its_first_key_reserves_no_other_key(both: Both) -> None:
    assert await both.acquire(b"holds a", b"a") is GRANTED
    assert await both.stand(claim_of(1, SET), b"a", b"b") == Standing(1.0, 0)
    assert await both.acquire(b"b is free", b"b") is GRANTED


async def test_a_set_keeps_one_ticket_and_is_served_before_a_set_that_came_later_for_another_key(
    both: Both,
) -> None:
    assert await both.acquire(b"first", b"a", b"b") is GRANTED
    assert await both.acquire(b"holds c", b"c") is GRANTED
    assert await both.acquire(b"set", b"b", b"c") == Refused(1.0, 1, 0)
    assert await both.stand(claim_of(1, SET), b"b", b"c") == Standing(1.0, 0)
    assert await both.acquire(b"later", b"a", b"b") == Refused(1.0, 1, 1)
    assert await both.stand(claim_of(2, OTHER), b"a", b"b") == Standing(1.0, 0)
    assert await both.release(b"first", b"a", b"b") == released(2)
    assert await both.acquire(b"set", b"b", b"c", claim=claim_of(1, SET)) == Refused(1.0, 2, 1)
    assert await both.stand(claim_of(1, SET), b"b", b"c") == Standing(1.0, 0)
    assert await both.acquire(b"later", b"a", b"b", claim=claim_of(2, OTHER)) == Refused(1.0, 2, 2)
    assert await both.stand(claim_of(2, OTHER), b"a", b"b") == Standing(1.0, 0)
    assert await both.release(b"holds c", b"c") == released(1)
    assert await both.acquire(b"set", b"b", b"c", claim=claim_of(1, SET)) is GRANTED


async def test_a_set_that_goes_on_to_its_next_key_leaves_the_queue_of_the_key_before(
    both: Both,
) -> None:
    await both.acquire(b"x", b"a")
    await both.acquire(b"y", b"b")
    await both.stand(claim_of(3, SET), b"a", b"b")
    # The key expires, so no release offers it.
    await both.expire(b"x", b"a")
    await both.stand(claim_of(3, SET), b"a", b"b")
    assert (await both.stand(claim_of(4, OTHER), b"a")).rank == 0


async def test_a_key_that_is_already_reserved_is_not_reserved_for_longer_by_another_request(
    both: Both,
) -> None:
    brief = member_of(b"a" * 16, 1, 0.001, notified=False)
    assert await both.acquire(b"holds b", b"b") is GRANTED
    for kept in (20_000, 60_000):
        assert await both.ask(standing((b"a", b"b"), claim_of(1, brief), 20_000, kept)) == Standing(
            1.0, 0
        )
    for node in both.nodes:
        asked = Asked(MUTEX.inspecting((b"a",)))
        node.ask(asked, 0)
        (look,) = (await asked.future).keys
        assert isinstance(look, Free)
        assert look.offered is not None
        assert 0.0 < look.offered <= 20.0


async def test_a_member_behind_two_others_learns_when_their_offers_have_lapsed(both: Both) -> None:
    assert await both.acquire(b"first", b"a") is GRANTED
    for ticket, member in enumerate((SET, OTHER, LAST), 1):
        assert (await both.stand(claim_of(ticket, member), b"a")).rank == ticket - 1
    assert await both.stand(claim_of(3, LAST), b"a") == Standing(None, 2)
    assert await both.release(b"first", b"a") == released(1)
    # The first has the offer, and is no longer in the queue.
    assert await both.stand(claim_of(3, LAST), b"a") == Standing(1.0, 1)
