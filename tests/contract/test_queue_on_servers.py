"""Properties of queues that only real servers have.

Keys of other types, full memory, rights, and calls sent as one.
"""

from __future__ import annotations

import asyncio
import operator
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import redis.asyncio

from aioredlock_ng._core.queue_formats import OFFER, SLOT_QUEUE_KEYS, claim_of, member_of
from aioredlock_ng._core.replies import (
    ALL_OURS,
    GRANTED,
    LEFT,
    Refused,
    Released,
    Standing,
    released,
)
from aioredlock_ng._core.votes import Refusal, is_granted
from aioredlock_ng._nodes.channel import Outbox
from aioredlock_ng._nodes.connect import Connector
from aioredlock_ng._nodes.node import RedisNode
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng._scripts.node_requests import standing_for_slot, standing_to_read
from aioredlock_ng._scripts.reader_kind import read_side
from tests.contract import suite
from tests.contract.guarded import RUN_ID, replaced
from tests.contract.queue import GRACE, Waiter, every_kind, leave, stand
from tests.contract.suite import TTL, Listener, Sink, refused
from tests.support.spread import spread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng._scripts import Command
    from aioredlock_ng._scripts.exclusive_kinds import LockKind
    from tests.support.node_set import NodeSet

SLACK = 4_000


class Place:
    """One server. Requests made together leave as one call."""

    def __init__(self, nodes: NodeSet) -> None:
        self.server = nodes[0]
        self.nodes: list[RedisNode] = []
        self.outboxes: dict[RedisNode, Outbox] = {}

    async def waiter(self, user: str = "") -> Waiter:
        loop = asyncio.get_running_loop()
        outbox, heard = Outbox(loop, loop.time, RUN_ID), Listener()
        node = RedisNode(Connector(self.server.url.replace("//", f"//{user}")), outbox, 30.0)
        self.nodes.append(node)
        self.outboxes[node] = outbox
        await node.open(0, heard, loop.time, 10.0)
        return Waiter(node, heard)

    async def command(self, *args: Any) -> bytes:
        return await asyncio.to_thread(self.server.command, *map(str, args))

    async def limited(self, *rights: str) -> Waiter:
        """Connect as the user "limited", who has all rights except the changes in `rights`."""
        all_rights = ("reset", "on", ">word", "+@all", "allkeys", "allchannels")
        await self.command("ACL", "SETUSER", "limited", *all_rights, *rights)
        return await self.waiter(user="limited:word@")

    async def trust(self) -> None:
        await replaced(suite.ask, self.nodes[0], b"trusted")

    async def together(
        self, waiter: Waiter, commands: Iterable[Command], read: Callable[[Any], Any] | None = None
    ) -> list[Any]:
        sinks = []
        for command in commands:
            sink = Sink()
            sink.asks(command)
            self.outboxes[waiter.node].ask_all(sink)  # type: ignore[index]
            sinks.append(sink)
        return [(read or plain)(await sink.reply()) for sink in sinks]

    async def calls(self) -> int:
        """Scripts called since the last time this was asked."""
        told = await self.command("INFO", "commandstats")
        await self.command("CONFIG", "RESETSTAT")
        lines = [line for line in told.decode().splitlines() if line.startswith("cmdstat_eval")]
        return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


@pytest.fixture
async def place(node_of_each_version: NodeSet) -> AsyncIterator[Place]:
    node_of_each_version.wipe()
    place = Place(node_of_each_version)
    yield place
    for node in place.nodes:
        await node.aclose(1.0)


def acquire(
    token: bytes, *keys: bytes, fence: int = 1, kind: LockKind = MUTEX, claim: bytes = b""
) -> Command:
    return kind.acquiring(keys, keys, token, b"%d" % TTL, fence, claim)


def plain(reply: Any) -> Any:
    """The reply as the server gave it, if it is that of a release."""
    return reply.deleted if isinstance(reply, Released) else reply


async def ask(node: Node, command: Command) -> Any:
    return plain(await suite.ask(node, command))


def release(token: bytes, *keys: bytes) -> Command:
    return MUTEX.releasing(keys, token, asyncio.get_running_loop().time() + 60)


async def messages(*waiters: Waiter) -> list[list[bytes]]:
    for waiter in waiters:
        for _ in range(2):
            await ask(waiter.node, MUTEX.inspecting((b"nothing",)))
    said = [list(filter(None, waiter.heard.messages)) for waiter in waiters]
    for waiter in waiters:
        waiter.heard.messages.clear()
    return said


# -- Calls sent as one ----------------------------------------------------------------------------


async def test_keys_that_are_released_as_one_are_offered_each_to_the_first_of_its_queue(
    place: Place,
) -> None:
    holder, first, second = [await place.waiter() for _ in range(3)]
    for key in (b"a", b"b", b"c"):
        await ask(holder.node, acquire(b"one", key))
    await ask(first.node, stand(first.claim(1), b"a"))
    await ask(second.node, stand(second.claim(2), b"a"))
    await ask(second.node, stand(second.claim(1), b"c"))
    await place.calls()
    assert await place.together(
        holder, [release(b"one", key) for key in (b"a", b"b", b"c", b"d")]
    ) == [1, 1, 1, 0]
    assert await place.calls() == 1
    assert await place.command("GET", "a") == OFFER + first.claim(1)
    assert await place.command("EXISTS", "b") == b"0"
    assert await place.command("GET", "c") == OFFER + second.claim(1)
    assert await messages(first, second) == [
        [first.message(0)],
        [second.message(GRACE), second.message(0, b"c")],
    ]


async def test_releases_sent_as_one_show_the_tickets_that_single_releases_show(
    place: Place,
) -> None:
    holder, first, second = [await place.waiter() for _ in range(3)]
    ticket_of = operator.attrgetter("ticket")

    async def wait() -> list[Command]:
        for key in (b"a", b"b", b"c"):
            await ask(holder.node, acquire(b"one", key))
        await ask(first.node, stand(first.claim(7), b"a"))
        await ask(second.node, stand(second.claim(9), b"a"))
        await ask(second.node, stand(second.claim(8), b"c"))
        return [release(b"one", key) for key in (b"a", b"b", b"c")]

    commands = await wait()
    await place.calls()
    together = await place.together(holder, commands, ticket_of)
    assert await place.calls() == 1
    await place.command("FLUSHDB")
    alone = [ticket_of(await suite.ask(holder.node, command)) for command in await wait()]
    assert together == alone == [9, 0, 8]


@every_kind
async def test_first_attempts_sent_as_one_are_refused_as_single_attempts_are(
    place: Place, kind: LockKind
) -> None:
    waiter, other = await place.waiter(), await place.waiter()
    await place.trust()
    for key in (b"a", b"b"):
        await ask(waiter.node, acquire(b"one", key, kind=kind, fence=10))
    await ask(waiter.node, stand(waiter.claim(7), b"a"))
    await ask(waiter.node, stand(waiter.claim(1), b"b"))
    await ask(waiter.node, release(b"one", b"b"))
    await place.calls()
    held, offered, free = await place.together(
        other, [acquire(b"two", key, kind=kind, fence=20) for key in (b"a", b"b", b"c")]
    )
    assert await place.calls() == 1
    assert [held, offered] == [
        Refused(held.left, place=1, ticket=7),
        Refused(offered.left, place=1, ticket=1),
    ]
    assert free is GRANTED
    assert TTL - SLACK < held.left * 1000 <= TTL
    assert 0 < offered.left * 1000 <= GRACE
    assert await place.command("ZCARD", "aioredlock_ng:queue:a") == b"1", (
        "no first attempt enters a queue"
    )
    single = await ask(other.node, acquire(b"two", b"a", kind=kind, fence=20))
    assert single == Refused(single.left, place=1, ticket=7)


@every_kind
async def test_a_hand_over_gives_a_key_that_another_process_waits_for_to_that_process(
    place: Place, kind: LockKind
) -> None:
    holder, waiter, second = [await place.waiter() for _ in range(3)]
    await place.trust()
    for key in (b"a", b"b"):
        await ask(holder.node, acquire(b"one", key, kind=kind, fence=10))
    await ask(waiter.node, stand(waiter.claim(3), b"a"))
    await ask(second.node, stand(second.claim(4), b"a"))
    await place.calls()
    freed, refusal, *rest = await place.together(
        holder,
        [
            release(b"one", b"a"),
            acquire(b"two", b"a", kind=kind, fence=20),
            release(b"one", b"b"),
            acquire(b"two", b"b", kind=kind, fence=20),
        ],
    )
    assert await place.calls() == 1
    assert (freed, rest) == (1, [1, GRANTED])
    assert refusal == Refused(refusal.left, place=1, ticket=4)
    assert GRACE - SLACK < refusal.left * 1000 <= GRACE, "what is left of the offer"
    assert await place.command("GET", "a") == OFFER + waiter.claim(3)
    assert await place.command("GET", "b") == b"two"
    assert await messages(waiter, second) == [[waiter.message(0)], [second.message(GRACE)]]


async def test_a_hand_over_skips_dead_waiters_and_stays_in_the_process(place: Place) -> None:
    holder = await place.waiter()
    await ask(holder.node, acquire(b"one", b"a"))
    gone = member_of(secrets.token_hex(8).encode(), 1, GRACE / 1000, notified=True)
    await ask(holder.node, stand(claim_of(1, gone), b"a"))
    assert await place.together(holder, [release(b"one", b"a"), acquire(b"two", b"a")]) == [
        1,
        GRANTED,
    ]
    assert await place.command("GET", "a") == b"two"
    assert await place.command("EXISTS", "aioredlock_ng:queue:a") == b"0"


async def test_a_user_without_pubsub_finds_dead_waiters_by_empty_messages(place: Place) -> None:
    first = await place.waiter()
    await ask(first.node, acquire(b"one", b"a"))
    await ask(first.node, stand(first.claim(1), b"a"))
    try:
        limited = await place.limited("-pubsub")
        gone = member_of(secrets.token_hex(8).encode(), 1, GRACE / 1000, notified=True)
        await ask(limited.node, stand(claim_of(2, gone), b"a"))
        await messages(first)
        assert (await ask(limited.node, stand(limited.claim(3), b"a"))).rank == 1
        await ask(first.node, MUTEX.inspecting((b"nothing",)))
        assert first.heard.messages == [b""]
    finally:
        await place.command("ACL", "DELUSER", "limited")


async def test_without_rights_to_channels_no_waiter_is_taken_for_dead(place: Place) -> None:
    first = await place.waiter()
    await ask(first.node, acquire(b"one", b"a"))
    try:
        for ticket in (1, 2, 3):
            # Without the rights, no process hears messages on this node, but each one lives.
            limited = await place.limited("resetchannels")
            assert (await ask(limited.node, stand(limited.claim(ticket), b"a"))).rank == ticket - 1
    finally:
        await place.command("ACL", "DELUSER", "limited")


async def test_a_set_leaves_its_last_key_although_the_server_refuses_to_remove_it_from_a_queue(
    place: Place,
) -> None:
    first = await place.waiter()
    await ask(first.node, acquire(b"one", b"a"))
    try:
        limited = await place.limited("-zrem")
        await ask(limited.node, stand(limited.claim(1), b"a"))
        await place.command("SET", "b", OFFER.decode() + limited.claim(1).decode(), "PX", TTL)
        assert isinstance(await ask(limited.node, leave(limited.member, b"a", b"b")), Refusal)
        assert await place.command("EXISTS", "b") == b"0"
    finally:
        await place.command("ACL", "DELUSER", "limited")


@asynccontextmanager
async def monitored(place: Place) -> AsyncIterator[None]:
    """Let a client receive all messages of the server meanwhile."""
    async with redis.asyncio.Redis.from_url(place.server.url).pubsub() as monitor:
        await monitor.psubscribe("*")
        async with asyncio.timeout(30.0):
            while await monitor.get_message(timeout=None) is None:
                pass
        yield


def dead(*, limit: int = 0) -> bytes:
    """Return a member whose process is gone."""
    manager = secrets.token_hex(8).encode()
    return member_of(manager, 1, GRACE / 1000, limit, notified=True)


async def test_a_monitor_of_all_channels_hides_no_dead_waiter_from_the_next_one(
    place: Place,
) -> None:
    async with monitored(place):
        holder = await place.waiter()
        await ask(holder.node, acquire(b"one", b"a"))
        await ask(holder.node, stand(claim_of(1, dead()), b"a"))
        assert (await ask(holder.node, stand(holder.claim(2), b"a"))).rank == 0


async def test_a_monitor_of_all_channels_gets_no_offer_in_place_of_a_living_waiter(
    place: Place,
) -> None:
    async with monitored(place):
        first, second = [await place.waiter() for _ in range(2)]
        await ask(first.node, acquire(b"one", b"a"))
        for ticket, waiter in ((1, first), (4, second)):
            await ask(first.node, stand(waiter.claim(ticket), b"a"))
        for ticket in (2, 3):
            await place.command("ZADD", "aioredlock_ng:queue:a", ticket, dead().decode())
        await ask(first.node, release(b"one", b"a"))
        assert await messages(first, second) == [[first.message(0)], [second.message(GRACE)]]
        await ask(first.node, leave(first.member, b"a"))
        assert await place.command("GET", "a") == OFFER + second.claim(4)
        assert await messages(second) == [[second.message(0)]]


async def test_a_monitor_of_all_channels_gets_no_slot_in_place_of_a_living_waiter(
    place: Place,
) -> None:
    async with monitored(place):
        waiter = await place.waiter()
        waiter.member = member_of(waiter.heard.manager_id, 1, GRACE / 1000, 1, notified=True)
        await ask(waiter.node, acquire(b"one", b"a#1"))
        for ticket in (1, 2):
            await place.command("ZADD", "aioredlock_ng:slots:a", ticket, dead(limit=1).decode())
        await place.command("ZADD", "aioredlock_ng:slots:a", 3, waiter.member.decode())
        await ask(waiter.node, release(b"one", b"a#1"))
        assert await place.command("GET", "a#1") == OFFER + waiter.claim(3)


@every_kind
async def test_a_hand_over_gives_a_key_that_readers_wait_for_to_all_of_them(
    place: Place, kind: LockKind
) -> None:
    holder, *readers = [await place.waiter() for _ in range(3)]
    await place.trust()
    for key in (b"a", b"b"):
        await ask(holder.node, acquire(b"one", key, kind=kind, fence=10))
    for ticket, reader in enumerate(readers, 3):
        reader.member = member_of(
            reader.heard.manager_id, 1, GRACE / 1000, notified=True, reader=True
        )
        await ask(reader.node, standing_to_read((b"a",), reader.claim(ticket), 20_000))
    await place.calls()
    freed, refusal, *rest = await place.together(
        holder,
        [
            release(b"one", b"a"),
            acquire(b"two", b"a", kind=kind, fence=20),
            release(b"one", b"b"),
            acquire(b"two", b"b", kind=kind, fence=20),
        ],
    )
    assert await place.calls() == 1
    assert (freed, rest) == (1, [1, GRANTED])
    assert refusal == Refused(refusal.left, place=1, ticket=0)
    assert await messages(*readers) == [[reader.message(0)] for reader in readers]
    read = read_side(kind)
    for ticket, reader in enumerate(readers, 3):
        token = read.token(b"f" * 32, reader.heard.manager_id)
        command = read.acquiring((b"a",), (b"a",), token, b"%d" % TTL, 0, reader.claim(ticket))
        assert is_granted(await ask(reader.node, command))


async def test_the_next_reader_is_notified_when_the_first_reader_leaves(place: Place) -> None:
    holder, *readers = [await place.waiter() for _ in range(4)]
    await ask(holder.node, acquire(b"one", b"a"))
    for ticket, reader in enumerate(readers, 1):
        reader.member = member_of(
            reader.heard.manager_id, 1, GRACE / 1000, notified=True, reader=True
        )
        await ask(reader.node, standing_to_read((b"a",), reader.claim(ticket), 20_000))
    assert await ask(holder.node, leave(readers[1].member, b"a")) is LEFT
    assert await ask(holder.node, leave(readers[0].member, b"a")) is LEFT
    # It was notified first that it is the second, and then that it is the first.
    *silent, (second, first) = await messages(*readers)
    assert silent == [[], []]
    assert readers[2].is_second(second, TTL)
    assert first == readers[2].message(-1)


async def test_the_first_writer_is_notified_when_the_remaining_readers_expire_earlier(
    place: Place,
) -> None:
    holder, first, second = [await place.waiter() for _ in range(3)]
    read = read_side(MUTEX)
    entries = [read.token(b"%032x" % number, holder.heard.manager_id) for number in range(3)]
    for entry, ttl in zip(entries, (10_000, 10_000, TTL), strict=True):
        await ask(holder.node, read.acquiring((b"a",), (), entry, b"%d" % ttl, 0))
    for ticket, writer in ((1, first), (2, second)):
        await ask(writer.node, stand(writer.claim(ticket), b"a"))
    assert await ask(holder.node, read.releasing((b"a",), entries[0], None)) == 1
    assert await messages(first, second) == [[], []]
    assert await ask(holder.node, read.releasing((b"a",), entries[2], None)) == 1
    (told,), nothing = await messages(first, second)
    milliseconds, member, _ = told.split()
    assert 10_000 + GRACE - SLACK < int(milliseconds) <= 10_000 + GRACE
    assert member == first.member
    assert nothing == []


async def test_a_slot_is_offered_past_many_dead_waiters_with_few_reads_of_all_slots(
    place: Place,
) -> None:
    waiter = await place.waiter()
    dead = [item for at in range(1, 101) for item in (at, f"{'7' * 16}:{at}:200#20000")]
    await place.command("ZADD", (SLOT_QUEUE_KEYS + b"gpu").decode(), *dead)
    await ask(waiter.node, MUTEX.acquiring((b"gpu#1",), (b"1",), b"t", b"20000", 0))
    member = member_of(waiter.heard.manager_id, 1, 20.0, 200, notified=True)
    await place.command("ZADD", (SLOT_QUEUE_KEYS + b"gpu").decode(), 500, member.decode())
    await place.command("CONFIG", "RESETSTAT")
    assert await ask(waiter.node, release(b"t", b"gpu#1")) == 1
    assert await messages(waiter) == [[b"0:500 %b gpu#1" % member]]
    told = (await place.command("INFO", "commandstats")).decode()
    assert int(told.partition("cmdstat_mget:calls=")[2].partition(",")[0]) < 10


async def test_free_slots_that_no_other_waiter_accepts_cost_few_commands(place: Place) -> None:
    waiter = await place.waiter()
    slots = tuple(b"gpu#%d" % number for number in range(1, 201))
    low = [item for at in range(2, 202) for item in (at, f"-a:{at}:10#20000")]
    await place.command("ZADD", (SLOT_QUEUE_KEYS + b"gpu").decode(), *low)
    await place.command("CONFIG", "RESETSTAT")
    member = member_of(waiter.heard.manager_id, 1, 20.0, 200, notified=True)
    standing = await ask(waiter.node, standing_for_slot(slots, claim_of(1, member), 20_000))
    assert standing == Standing(0.0, 0, tuple(range(1, 9)))
    told = (await place.command("INFO", "commandstats")).decode()
    calls = [part.partition("calls=")[2].partition(",")[0] for part in told.split()]
    # For each slot, the script once read the whole queue member by member.
    assert sum(map(int, filter(None, calls))) < 2_000


# -- Keys of other types --------------------------------------------------------------------------


@every_kind
async def test_a_queues_key_of_another_type_costs_order_and_nothing_else(
    place: Place, kind: LockKind
) -> None:
    waiter, other = await place.waiter(), await place.waiter()
    await place.trust()
    await place.command("SET", "aioredlock_ng:queue:a", "text")
    assert await ask(waiter.node, acquire(b"one", b"a", kind=kind, fence=10)) is GRANTED
    refusal = await ask(other.node, acquire(b"two", b"a", kind=kind, fence=20))
    assert refusal == Refused(refusal.left, place=1, ticket=0)
    standing = await ask(other.node, stand(other.claim(1), b"a"))
    assert standing.rank == -1
    assert TTL - SLACK < standing.left * 1000 <= TTL
    assert await ask(other.node, leave(other.member, b"a")) is LEFT
    assert await ask(waiter.node, release(b"one", b"a")) == 1
    assert await place.command("EXISTS", "a") == b"0"
    assert await ask(other.node, stand(other.claim(1), b"a")) == Standing(0.0, -1)
    assert (
        await ask(other.node, acquire(b"two", b"a", kind=kind, fence=30, claim=other.claim(1)))
        is GRANTED
    )
    assert await place.together(
        other,
        [
            release(b"two", b"a"),
            acquire(b"three", b"a", kind=kind, fence=40),
            acquire(b"x", b"b", kind=kind, fence=40),
        ],
    ) == [1, GRANTED, GRANTED]
    assert await place.together(other, [release(b"three", b"a"), release(b"x", b"b")]) == [1, 1]
    assert await place.command("GET", "aioredlock_ng:queue:a") == b"text"


@every_kind
@spread(
    "keys",
    [(b"hash",), (b"a", b"hash"), (b"hash", b"a"), (b"0", b"a", b"hash")],
    ids=["alone", "last of two", "first of two", "last of three"],
)
async def test_a_waiter_for_a_key_of_another_type_is_refused_and_nothing_is_set(
    place: Place, keys: tuple[bytes, ...], kind: LockKind
) -> None:
    waiter = await place.waiter()
    await place.trust()
    await place.command("HSET", "hash", "field", "1")
    assert refused(
        await ask(waiter.node, acquire(b"one", *keys, kind=kind, claim=waiter.claim(1))),
        "WRONGTYPE",
    )
    assert refused(await ask(waiter.node, stand(waiter.claim(1), *keys)), "WRONGTYPE")
    assert await ask(waiter.node, leave(waiter.member, *keys)) is LEFT
    assert await place.command("TYPE", "hash") == b"hash"
    assert (
        await place.command(
            "EXISTS", "0", "a", *(f"aioredlock_ng:queue:{key.decode()}" for key in keys)
        )
        == b"0"
    )


async def test_a_waiter_for_a_key_before_a_key_of_another_type_harms_nothing(place: Place) -> None:
    waiter = await place.waiter()
    await place.command("SET", "a", "one", "PX", TTL)
    await place.command("HSET", "hash", "field", "1")
    assert (await ask(waiter.node, stand(waiter.claim(1), b"a", b"hash"))).rank == 0
    assert (
        await ask(waiter.node, acquire(b"two", b"a", b"hash", claim=waiter.claim(1)))
    ).place == 1
    assert await place.command("TYPE", "hash") == b"hash"


# -- A full server --------------------------------------------------------------------------------


@every_kind
async def test_a_full_server_frees_keys_and_refuses_to_grant_them_in_its_own_words(
    place: Place, kind: LockKind
) -> None:
    holder, waiter, late = [await place.waiter() for _ in range(3)]
    await place.trust()
    await ask(holder.node, acquire(b"one", b"a", kind=kind, fence=10))
    await ask(waiter.node, stand(waiter.claim(1), b"a"))
    await place.command("CONFIG", "SET", "maxmemory", "1")
    try:
        # A new waiter cannot be put into the queue, and polls.
        standing = await ask(late.node, stand(late.claim(2), b"a"))
        assert standing.rank == -1
        assert TTL - SLACK < standing.left * 1000 <= TTL
        assert (await ask(waiter.node, stand(waiter.claim(1), b"a"))).rank in (0, -1)
        assert await ask(holder.node, release(b"one", b"a")) == 1
        # Behind the removal from the queue the offer can be written.
        assert await place.command("GET", "a") == OFFER + waiter.claim(1)
        assert waiter.message(0) in (await messages(waiter))[0]
        assert refused(
            await ask(
                waiter.node, acquire(b"two", b"a", kind=kind, fence=20, claim=waiter.claim(1))
            ),
            "OOM",
        )
        assert (await ask(waiter.node, stand(waiter.claim(1), b"a"))).left == 0.0
        assert await ask(waiter.node, leave(waiter.member, b"a")) is LEFT
    finally:
        await place.command("CONFIG", "SET", "maxmemory", "0")
    assert (
        await ask(waiter.node, acquire(b"two", b"a", kind=kind, fence=30, claim=waiter.claim(1)))
        is GRANTED
    )


async def test_a_full_server_lets_no_reader_in_and_keeps_its_entries(place: Place) -> None:
    first, second = await place.waiter(), await place.waiter()
    read = read_side(MUTEX)
    entries = [read.token(b"f" * 32, waiter.heard.manager_id) for waiter in (first, second)]
    commands = [read.acquiring((b"a",), (), entry, b"%d" % TTL, 0) for entry in entries]
    assert await ask(first.node, commands[0]) is GRANTED
    await place.command("CONFIG", "SET", "maxmemory", "1")
    try:
        assert refused(await ask(second.node, commands[1]), "OOM")
        assert await ask(first.node, read.extending((b"a",), entries[:1], TTL)) is ALL_OURS
        assert await place.command("ZCARD", "a") == b"1"
        assert await ask(first.node, read.releasing((b"a",), entries[0], None)) == 1
    finally:
        await place.command("CONFIG", "SET", "maxmemory", "0")
    assert await place.command("EXISTS", "a") == b"0"


async def test_an_offer_on_a_server_that_is_full_now_can_be_left(place: Place) -> None:
    holder, waiter, second = [await place.waiter() for _ in range(3)]
    await ask(holder.node, acquire(b"one", b"a"))
    for ticket, who in ((1, waiter), (2, second)):
        await ask(who.node, stand(who.claim(ticket), b"a"))
    await ask(holder.node, release(b"one", b"a"))
    await place.command("CONFIG", "SET", "maxmemory", "1")
    try:
        assert await ask(waiter.node, leave(waiter.member, b"a")) is LEFT
        value = await place.command("GET", "a")
        assert not value or value == OFFER + second.claim(2)
        assert second.message(0) in (await messages(second))[0]
    finally:
        await place.command("CONFIG", "SET", "maxmemory", "0")
    assert await ask(second.node, acquire(b"two", b"a", claim=second.claim(2))) is GRANTED


async def test_several_keys_are_released_as_one_on_a_full_server(place: Place) -> None:
    holder, waiter = await place.waiter(), await place.waiter()
    for key in (b"a", b"b"):
        await ask(holder.node, acquire(b"one", key))
        await ask(waiter.node, stand(waiter.claim(1), key))
    await place.command("CONFIG", "SET", "maxmemory", "1")
    try:
        assert await place.together(holder, [release(b"one", b"a"), release(b"one", b"b")]) == [
            1,
            1,
        ]
    finally:
        await place.command("CONFIG", "SET", "maxmemory", "0")
    for key in ("a", "b"):
        assert await place.command("GET", key) != b"one"


# -- Rights ---------------------------------------------------------------------------------------


async def test_a_writer_without_the_rights_of_readers_frees_a_key_that_readers_wait_for(
    place: Place,
) -> None:
    reader = await place.waiter()
    reader.member = member_of(reader.heard.manager_id, 1, GRACE / 1000, notified=True, reader=True)
    try:
        limited = await place.limited("-time")
        await ask(limited.node, acquire(b"one", b"a"))
        await ask(reader.node, standing_to_read((b"a",), reader.claim(1), 20_000))
        assert await ask(limited.node, release(b"one", b"a")) == 1
        assert await place.command("EXISTS", "a") == b"0"
        assert (
            await ask(reader.node, standing_to_read((b"a",), reader.claim(1), 20_000))
        ).left == 0.0
    finally:
        await place.command("ACL", "DELUSER", "limited")


@spread("keys", [(b"a",), (b"a", b"b")], ids=["one key", "two keys"])
async def test_without_the_right_to_look_for_queues_a_release_frees_the_keys_that_are_left(
    place: Place, keys: tuple[bytes, ...]
) -> None:
    try:
        limited = await place.limited("-exists")
        for key in keys:
            await ask(limited.node, acquire(b"one", key))
        await place.command("DEL", "a")
        releasing = MUTEX.releasing(keys, b"one", None)
        assert await suite.ask(limited.node, releasing) == released(len(keys) - 1)
        assert await place.command("EXISTS", *(key.decode() for key in keys)) == b"0"
    finally:
        await place.command("ACL", "DELUSER", "limited")


async def test_without_the_right_to_delete_the_next_waiter_waits_for_the_end_of_an_offer(
    place: Place,
) -> None:
    first, other = await place.waiter(), await place.waiter()
    await ask(other.node, acquire(b"theirs", b"a"))
    await ask(first.node, stand(first.claim(1), b"a"))
    try:
        limited = await place.limited("-del")
        mine = Waiter(limited.node, limited.heard)
        await ask(limited.node, stand(mine.claim(2), b"a"))
        assert await ask(other.node, release(b"theirs", b"a")) == 1
        await first.node.aclose(1.0)
        async with asyncio.timeout(30):
            while await place.command("PUBLISH", first.heard.channel, "0 nobody a") != b"0":
                pass
        look = await ask(limited.node, stand(mine.claim(2), b"a"))
        assert isinstance(look, Standing), "and not the error of the denied command"
        assert look.rank == 0
        assert await place.command("GET", "a") == OFFER + first.claim(1)
    finally:
        await place.command("ACL", "DELUSER", "limited")


@spread(
    "rights",
    [
        ("-publish",),
        ("resetchannels",),
        ("-subscribe",),
        ("resetkeys", "~a", "~b", "~aioredlock_ng:marker", "~aioredlock_ng:fences"),
        ("-zrange", "-zrevrange", "-zrank", "-zrem", "-exists", "-publish"),
    ],
    ids=[
        "no publish",
        "no channels",
        "no subscribe",
        "no keys of queues",
        "none of their commands",
    ],
)
@every_kind
async def test_without_a_right_for_queues_a_user_locks_and_waits_and_displaces_no_waiter(
    place: Place, kind: LockKind, rights: tuple[str, ...]
) -> None:
    first = await place.waiter()
    await place.trust()
    for key in (b"a", b"b"):
        await ask(first.node, acquire(b"theirs", key))
    await ask(first.node, stand(first.claim(1), b"a"))
    try:
        limited = await place.limited(*rights)
        mine = Waiter(limited.node, limited.heard, notified=limited.node.messages)
        refusal = await ask(limited.node, acquire(b"two", b"a", kind=kind))
        assert refusal == Refused(refusal.left, 1, refusal.ticket)
        (look,) = (await ask(limited.node, MUTEX.inspecting((b"a",), queues=True))).keys
        readable = not {"-zrank", "resetkeys"} & set(rights)
        assert (look.token, look.waiting) == (b"theirs", 1 if readable else None)
        assert (await ask(limited.node, stand(mine.claim(2), b"a"))).left != 0.0
        assert await ask(limited.node, leave(mine.member, b"a")) is LEFT
        # The key is free, and nothing was offered: what this user does now must not cost the first
        # its place.
        await place.command("DEL", "a")
        assert await ask(limited.node, acquire(b"two", b"a", kind=kind, fence=10)) is GRANTED
        assert await ask(limited.node, release(b"two", b"a")) == 1
        value = await place.command("GET", "a")
        assert not value or value == OFFER + first.claim(1)
        assert value or await place.command("ZCARD", "aioredlock_ng:queue:a") == b"1"
        assert await ask(first.node, stand(first.claim(1), b"a")) == Standing(0.0, 0)
        # It waits for the other key by looking, and gets it once it is free.
        assert isinstance(await ask(limited.node, stand(mine.claim(1), b"b")), Standing)
        assert await ask(first.node, release(b"theirs", b"b")) == 1
        assert (await ask(limited.node, stand(mine.claim(1), b"b"))).left == 0
        assert (
            await ask(limited.node, acquire(b"two", b"b", kind=kind, fence=20, claim=mine.claim(1)))
            is GRANTED
        )
    finally:
        await place.command("ACL", "DELUSER", "limited")
