"""Properties of readers that only real servers have.

Messages, keys of other types, full memory, and missing rights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aioredlock_ng._core.queue_formats import OFFER, claim_of, member_of
from aioredlock_ng._core.readers import READER_QUEUE_KEYS
from aioredlock_ng._core.replies import (
    ALL_OURS,
    GRANTED,
    LEFT,
    ForceReleased,
    Granted,
    KeyState,
    KeyStates,
    ReadLocked,
    Refused,
    Standing,
)
from aioredlock_ng._scripts.exclusive_kinds import FENCES, MUTEX
from tests.contract.queue import GRACE, Waiter, leave, stand
from tests.contract.suite import TTL, refused
from tests.contract.test_queue_on_servers import Place, ask, messages, place
from tests.contract.test_readers import (
    READING,
    A,
    B,
    C,
    confirm,
    downgrade,
    end_reading,
    end_writing,
    read,
    renew,
    repair_reader,
    stand_to_read,
    write,
)
from tests.support.spread import spread

if TYPE_CHECKING:
    from aioredlock_ng._scripts import Command

__all__ = ["place"]

K = b"k"
SLACK = 4_000
QUEUE = (READER_QUEUE_KEYS + K).decode()

NEW_RIGHTS = ("-zremrangebyscore", "-pexpireat")
"""The rights that readers need in addition to the rights for locks."""


class Reader(Waiter):
    """A process that waits to read."""

    def __init__(self, waiter: Waiter) -> None:
        super().__init__(waiter.node, waiter.heard)
        self.member = member_of(
            waiter.heard.manager_id, 1, GRACE / 1000, notified=waiter.node.messages, reader=True
        )


def own_entry(waiter: Waiter) -> bytes:
    return b"0" * 32 + b":" + waiter.heard.manager_id


# -- Messages -------------------------------------------------------------------------------------


async def test_a_writer_that_comes_is_announced_once_to_the_processes_that_read(
    place: Place,
) -> None:
    one, two, waiter = [await place.waiter() for _ in range(3)]
    for who in (one, two):
        await ask(who.node, read(own_entry(who)))
    await ask(waiter.node, stand(waiter.claim(1), K))
    told = [[b"-1 %b k" % who.heard.manager_id] for who in (one, two)]
    assert await messages(one, two) == told
    await ask(waiter.node, stand(waiter.claim(1), K))
    assert await messages(one, two) == [[], []]


async def test_a_forced_release_notifies_the_process_that_read(place: Place) -> None:
    one, two = [await place.waiter() for _ in range(2)]
    for who in (one, two):
        await ask(who.node, read(own_entry(who)))
    forced = READING.force_releasing((K,), (b"1",), 16, (own_entry(one),))
    assert await ask(two.node, forced) == ForceReleased(1)
    assert await messages(one, two) == [[b"0 %b k" % one.heard.manager_id], []]


async def test_all_waiting_readers_are_notified_of_their_offers_and_the_writer_of_its_rank(
    place: Place,
) -> None:
    holder, one, two, waiter = [await place.waiter() for _ in range(4)]
    one, two = Reader(one), Reader(two)
    await ask(holder.node, write(b"w"))
    for ticket, who in ((2, one), (3, two)):
        await ask(who.node, stand_to_read(who.member, ticket))
    await ask(waiter.node, stand(waiter.claim(1), K))
    await ask(holder.node, end_writing(b"w"))
    assert await messages(one, two, waiter) == [
        [one.message(0, K)],
        [two.message(0, K)],
        [waiter.message(-1, K)],
    ]
    assert GRACE - SLACK < int(await place.command("PTTL", "k")) <= GRACE
    await ask(one.node, read(A, claim=one.claim(2)))
    await ask(two.node, leave(two.member, K))
    await ask(one.node, end_reading(A))
    assert await messages(waiter) == [[waiter.message(0, K)]]
    assert await place.command("GET", "k") == OFFER + waiter.claim(1)


# -- The key --------------------------------------------------------------------------------------


async def test_the_key_of_readers_expires_with_its_latest_entry(place: Place) -> None:
    node = (await place.waiter()).node
    await ask(node, read(A, ttl=5_000))
    await ask(node, read(B, ttl=30_000))
    assert await place.command("TYPE", "k") == b"zset"
    assert 30_000 - SLACK < int(await place.command("PTTL", "k")) <= 30_000
    await ask(node, renew(A, ttl=60_000))
    assert 60_000 - SLACK < int(await place.command("PTTL", "k")) <= 60_000
    await ask(node, end_reading(A))
    assert 30_000 - 2 * SLACK < int(await place.command("PTTL", "k")) <= 30_000


@spread(
    "found",
    [(A, False), (b"anything", False), (b"anything", True), (b"4711", True)],
    ids=["entry", "other member", "other member that expires", "number that expires"],
)
async def test_a_sorted_set_without_expiry_or_without_entries_is_foreign_data(
    place: Place, found: tuple[bytes, bool]
) -> None:
    member, expires = found
    waiter = Reader(await place.waiter())
    node = waiter.node
    await place.command("ZADD", "k", 1, member.decode())
    if expires:
        await place.command("PEXPIRE", "k", 600_000)
    for command in (
        read(A),
        read(A, claim=waiter.claim(1)),
        write(b"w"),
        stand_to_read(waiter.member, 1),
        confirm(A, 16),
        repair_reader(A, 16),
    ):
        assert refused(await ask(node, command), "WRONGTYPE"), command.step
    assert await ask(node, end_reading(A)) == 0
    assert await ask(node, renew(A)) == KeyStates((KeyState.MISSING,))
    assert await ask(node, READING.watching((K,), (A,))) == KeyStates((KeyState.MISSING,))
    assert await ask(node, leave(waiter.member, K)) is LEFT
    (look,) = (await ask(node, READING.inspecting((K,)))).keys
    assert (look.kind, math.isinf(look.remaining)) == ("zset", not expires)
    assert refused(
        await ask(node, READING.force_releasing((K,), (b"1",), 16, (A,))), "NOTALOCK zset "
    )
    assert await place.command("ZSCORE", "k", member.decode()) == b"1"
    assert await place.command("EXISTS", QUEUE) == b"0"
    assert await ask(
        node, READING.force_releasing((K,), (b"1",), 16, (), any_key=True)
    ) == ForceReleased(1)
    assert await place.command("EXISTS", "k") == b"0"


async def test_a_key_of_another_type_is_refused_in_the_servers_words(place: Place) -> None:
    waiter = Reader(await place.waiter())
    await place.command("HSET", "k", "field", "1")
    for command in (
        read(A),
        stand_to_read(waiter.member, 1),
        confirm(A, 16),
        repair_reader(A, 16),
    ):
        assert refused(await ask(waiter.node, command), "WRONGTYPE"), command.step
    assert await ask(waiter.node, end_reading(A)) == 0
    assert await ask(waiter.node, renew(A)) == KeyStates((KeyState.MISSING,))
    assert await ask(waiter.node, downgrade(A, 16)) == KeyStates((KeyState.MISSING,))
    assert await place.command("TYPE", "k") == b"hash"


@spread("waits", [False, True], ids=["alone", "before a writer"])
async def test_a_reader_frees_its_key_though_another_client_has_removed_the_expiry(
    place: Place, waits: bool
) -> None:
    """Without its release, the key would stay for ever."""
    holder, waiter = await place.waiter(), await place.waiter()
    await ask(holder.node, read(A))
    if waits:
        await ask(waiter.node, stand(waiter.claim(1), K))
    await place.command("PERSIST", "k")
    assert await ask(holder.node, end_reading(A)) == 1
    # The string is the offer to the writer.
    assert await place.command("TYPE", "k") == (b"string" if waits else b"none")


async def test_the_departure_of_waiters_harms_no_key_of_another_type(place: Place) -> None:
    """The key may become another one while readers and writers wait for it."""
    holder, one, waiter = [await place.waiter() for _ in range(3)]
    one = Reader(one)
    await ask(holder.node, write(b"w"))
    await ask(one.node, stand_to_read(one.member, 1))
    await ask(waiter.node, stand(waiter.claim(2), K))
    await place.command("DEL", "k")
    await place.command("HSET", "k", "field", "1")
    assert await ask(waiter.node, leave(waiter.member, K)) is LEFT
    assert await ask(one.node, leave(one.member, K)) is LEFT
    assert await place.command("TYPE", "k") == b"hash"


async def test_without_usable_counters_no_reader_is_let_in(place: Place) -> None:
    node = (await place.waiter()).node
    await place.command("SET", "aioredlock_ng:fences", "text")
    assert refused(await ask(node, read(A)), "WRONGTYPE")
    assert await place.command("EXISTS", "k") == b"0"


async def test_a_damaged_counter_is_not_raised_further(place: Place) -> None:
    node = (await place.waiter()).node
    await place.command("ZADD", "aioredlock_ng:fences", 2**53, "1")
    reply = await ask(node, read(A))
    assert not isinstance(reply, Granted)
    assert float(await place.command("ZSCORE", "aioredlock_ng:fences", "1")) == 2**53


# -- A full server --------------------------------------------------------------------------------


@spread("readers", [0, 1])
async def test_a_full_server_lets_no_reader_in_and_renews_and_frees(
    place: Place, readers: int
) -> None:
    holder, late = await place.waiter(), Reader(await place.waiter())
    if readers:
        await ask(holder.node, read(A))
    await place.command("CONFIG", "SET", "maxmemory", "1")
    try:
        assert refused(await ask(late.node, read(B)), "OOM")
        assert refused(await ask(late.node, read(B, claim=late.claim(1))), "OOM")
        assert await place.command("EXISTS", "k") == b"%d" % readers
        if readers:
            assert await ask(holder.node, renew(A)) is ALL_OURS
            assert await ask(holder.node, end_reading(A)) == 1
            assert await place.command("EXISTS", "k") == b"0"
    finally:
        await place.command("CONFIG", "SET", "maxmemory", "0")
    assert await ask(late.node, read(B)) == Granted(15)


async def test_a_writer_becomes_a_reader_on_a_full_server(place: Place) -> None:
    node = (await place.waiter()).node
    await ask(node, write(A))
    await place.command("CONFIG", "SET", "maxmemory", "1")
    try:
        assert await ask(node, downgrade(A, 31)) is ALL_OURS
    finally:
        await place.command("CONFIG", "SET", "maxmemory", "0")
    assert await place.command("TYPE", "k") == b"zset"
    assert await ask(node, read(B)) == Granted(31)


async def test_waiting_readers_are_let_in_by_a_full_server_when_it_is_full_no_more(
    place: Place,
) -> None:
    holder, one = await place.waiter(), Reader(await place.waiter())
    await ask(holder.node, write(b"w"))
    await ask(one.node, stand_to_read(one.member, 1))
    await place.command("CONFIG", "SET", "maxmemory", "1")
    try:
        assert await ask(holder.node, end_writing(b"w")) == 1
        assert await messages(one) == [[one.message(0, K)]]
        assert refused(await ask(one.node, read(A, claim=one.claim(1))), "OOM")
    finally:
        await place.command("CONFIG", "SET", "maxmemory", "0")
    assert await ask(one.node, read(A, claim=one.claim(1))) == Granted(31)


# -- Rights ---------------------------------------------------------------------------------------


@spread(
    "rights",
    [NEW_RIGHTS, NEW_RIGHTS[:1], NEW_RIGHTS[1:]],
    ids=["neither", "no zrem…", "no pexpireat"],
)
async def test_without_the_rights_of_readers_a_user_locks_and_the_refusal_names_the_right(
    place: Place, rights: tuple[str, ...]
) -> None:
    """These are the users of an older version."""
    reader, waiting = await place.waiter(), Reader(await place.waiter())
    try:
        user = await place.limited(*rights)
        assert await ask(user.node, write(b"w", 16)) is GRANTED
        assert await ask(user.node, WRITING_RENEWAL) is ALL_OURS
        await ask(waiting.node, stand_to_read(waiting.member, 1))
        # The user cannot offer the key. A set without expiry would keep the lock for ever.
        assert await ask(user.node, end_writing(b"w")) == 1
        assert await place.command("EXISTS", "k") == b"0"
        assert await messages(waiting) == [[waiting.message(0, K)]]
        assert await ask(waiting.node, read(A, claim=waiting.claim(1))) == Granted(31)
        # The lock is held, and it becomes free.
        refusal = await ask(user.node, write(b"x", 32))
        assert refusal == Refused(refusal.left, 1, 0)
        await denied(user, place, read(B), left=[A])
        standing = await ask(user.node, stand(user.claim(1), K))
        assert isinstance(standing, Standing)
        assert TTL - SLACK < standing.left * 1000 <= TTL + GRACE
        assert isinstance((await ask(user.node, MUTEX.inspecting((K,)))).keys[0], ReadLocked)
        await ask(waiting.node, end_reading(A))
        assert await ask(user.node, write(b"x", 32, user.claim(1))) is GRANTED
        assert await ask(user.node, end_writing(b"x")) == 1
        await denied(user, place, read(B), left=[])
        await ask(reader.node, read(C))
        assert await ask(reader.node, end_reading(C)) == 1
    finally:
        await place.command("ACL", "DELUSER", "limited")


@spread("right", ["-zadd", "-zremrangebyscore", "-pexpireat", "-pexpireat -zrem"])
async def test_a_downgrade_that_the_server_refuses_leaves_the_writers_key(
    place: Place, right: str
) -> None:
    node = (await place.waiter()).node
    await ask(node, write(A))
    try:
        user = await place.limited(*right.split())
        reply = await ask(user.node, downgrade(A, 31))
        assert refused(reply, "can't run this command") or refused(reply, "no permissions"), reply
        assert await place.command("GET", "k") == A
        assert TTL - SLACK < int(await place.command("PTTL", "k")) <= TTL
    finally:
        await place.command("ACL", "DELUSER", "limited")
    assert await ask(node, downgrade(A, 31)) is ALL_OURS


async def test_a_downgrade_that_cannot_raise_the_counter_leaves_the_writers_key(
    place: Place,
) -> None:
    node = (await place.waiter()).node
    await ask(node, write(A))
    await place.command("DEL", FENCES.decode())
    await place.command("SET", FENCES.decode(), "somebody's data")
    assert refused(await ask(node, downgrade(A, 31)), "WRONGTYPE")
    assert await place.command("GET", "k") == A


@spread("right", ["-zrevrange", "-zrange", "-zrem", "-zrank", "-exists", "-publish", "-time"])
async def test_a_user_without_a_right_of_queues_never_leaves_a_set_that_does_not_expire(
    place: Place, right: str
) -> None:
    other = Reader(await place.waiter())
    try:
        user = await place.limited(right)
        for command in (
            read(A),
            renew(A),
            end_reading(A),
            write(A),
            downgrade(A, 31),
            end_reading(A),
            write(b"w", 99),
        ):
            await ask(user.node, command)
            assert await place.command("PTTL", "k") != b"-1", command.step
        await place.command("DEL", "k")
        await ask(user.node, write(b"w", 999))
        await ask(other.node, stand_to_read(other.member, 1))
        assert await ask(user.node, end_writing(b"w")) == 1
        assert await place.command("PTTL", "k") != b"-1"
        assert isinstance(await ask(other.node, read(B, claim=other.claim(1))), Granted)
    finally:
        await place.command("ACL", "DELUSER", "limited")


@spread("rights", ["-pttl -zrevrange", "-pttl -pexpireat", "-pttl -zremrangebyscore"])
async def test_an_offer_to_readers_that_cannot_expire_is_removed_again(
    place: Place, rights: str
) -> None:
    other = await place.waiter()
    try:
        reader = Reader(await place.limited(*rights.split()))
        assert isinstance(await ask(reader.node, stand_to_read(reader.member, 1)), Standing)
        assert await place.command("EXISTS", "k") == b"0"
        assert await ask(other.node, write(b"w")) is GRANTED
    finally:
        await place.command("ACL", "DELUSER", "limited")


async def test_a_user_that_cannot_distinguish_readers_from_other_data_waits_for_them(
    place: Place,
) -> None:
    reader = await place.waiter()
    await ask(reader.node, read(A))
    try:
        user = await place.limited("-zrevrange")
        refusal = await ask(user.node, write(b"w"))
        assert refusal == Refused(refusal.left, 1, 0)
        assert TTL - SLACK < refusal.left * 1000 <= TTL
        await place.command("PERSIST", "k")
        assert refused(await ask(user.node, write(b"w")), "WRONGTYPE")
    finally:
        await place.command("ACL", "DELUSER", "limited")


async def test_a_user_that_cannot_distinguish_readers_from_other_data_deletes_none_of_it(
    place: Place,
) -> None:
    """The members of somebody's set may look like entries that have expired."""
    await place.command("ZADD", "k", 1, "somebody's", 2, "data")
    await place.command("PEXPIRE", "k", TTL)
    try:
        user = await place.limited("-zrevrange")
        for command in (end_reading(A), renew(A), confirm(A, 31)):
            await denied(user, place, command, left=[b"somebody's", b"data"])
        await ask(user.node, repair_reader(A, 31))
        await ask(user.node, leave(Reader(user).member, K))
    finally:
        await place.command("ACL", "DELUSER", "limited")
    assert await place.command("ZCARD", "k") == b"2"


WRITING_RENEWAL = MUTEX.extending((K,), (b"w",), TTL)


async def denied(user: Waiter, place: Place, command: Command, left: list[bytes]) -> None:
    """The server refuses in its own words, and nothing of the command is left."""
    reply = await ask(user.node, command)
    assert refused(reply, "can't run this command") or refused(reply, "no permissions"), reply
    script = "return table.concat(redis.call('ZRANGE', KEYS[1], 0, -1), ' ')"
    assert await place.command("EVAL", script, 1, "k") == b" ".join(left)


def test_claims_of_readers_have_the_form_of_other_claims() -> None:
    member = member_of(b"a" * 16, 1, 5.0, notified=True, reader=True)
    assert claim_of(3, member) == b"3:aaaaaaaaaaaaaaaa:1:r#5000"
