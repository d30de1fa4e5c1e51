"""Where kinds of locks, missing rights and a full server meet on one key, no script takes a lease
from its holder, destroys other data, or leaves a key without expiry.
"""

from __future__ import annotations

from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import redis

from aioredlock_ng._core.over_mark import over_mark
from aioredlock_ng._core.queue_formats import claim_of, member_of
from aioredlock_ng._core.replies import GRANTED
from aioredlock_ng._scripts.exclusive_kinds import MUTEX, guarded_mutex
from aioredlock_ng._scripts.node_requests import standing, standing_for_slot, standing_to_read
from aioredlock_ng._scripts.reader_kind import read_side
from tests.contract.test_readers_in_queues import stand
from tests.contract.test_sets_in_queues import Both, both

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioredlock_ng._scripts import Command
    from tests.support.node_set import NodeSet

    Server = redis.Redis
    Lacking = Callable[[str], Server]

__all__ = ["both"]

READ = read_side(MUTEX)
TOKEN = b"1" * 32
ENTRY = TOKEN + b":" + b"d" * 16
LIFE = b"60000"
GUARDED = guarded_mutex(fencing=True, own_marker=b"0" * 40 + b":60000")


def call(server: Server, command: Command) -> object:
    """Return the reply of a server to a script, or its error."""
    try:
        return server.eval(command.script.source, len(command.keys), *command.keys, *command.args)
    except redis.ResponseError as error:
        return error


@pytest.fixture
def server(node_of_each_version: NodeSet) -> Iterator[Server]:
    node_of_each_version.wipe()
    with redis.Redis.from_url(node_of_each_version[0].url) as server:
        yield server


@pytest.fixture
def lacking(node_of_each_version: NodeSet, server: Server) -> Iterator[Lacking]:
    """Connect as a user that may do all but one thing."""
    at, clients = urlsplit(node_of_each_version[0].url), list[redis.Redis]()

    def connected(right: str) -> Server:
        rights = ("reset", "on", ">x", "~*", "&*", "+@all", f"-{right}")
        server.execute_command("ACL", "SETUSER", "poor", *rights)
        host, port = str(at.hostname), int(at.port or 0)
        clients.append(redis.Redis(host=host, port=port, username="poor", password="x"))
        return clients[-1]

    yield connected
    for client in clients:
        client.close()
    server.execute_command("ACL", "DELUSER", "poor")


@pytest.mark.parametrize("right", ["zrevrange", "pexpireat"])
def test_a_renewal_that_the_server_refuses_leaves_the_entry_of_the_reader(
    server: Server, lacking: Lacking, right: str
) -> None:
    assert call(server, READ.acquiring((b"a",), (), ENTRY, LIFE, 0)) == 1
    renewal = READ.extending((b"a",), [ENTRY], 60_000)
    assert isinstance(call(lacking(right), renewal), redis.ResponseError)
    assert server.zrange("a", 0, -1) == [ENTRY]
    assert call(server, MUTEX.acquiring((b"a",), (), b"2" * 32, LIFE, 0)) != 1


def test_a_user_who_cannot_distinguish_readers_from_other_data_deletes_no_data(
    server: Server, lacking: Lacking
) -> None:
    server.zadd("a", {"one": 1, "two": 2e12})
    server.pexpire("a", 60_000)
    call(lacking("zrevrange"), READ.acquiring((b"a",), (), ENTRY, LIFE, 0))
    assert server.zrange("a", 0, -1) == [b"one", b"two"]


@pytest.mark.parametrize("unit", [1, 1000], ids=["seconds", "milliseconds"])
def test_a_set_of_ids_that_look_like_entries_of_readers_is_not_a_lock(
    server: Server, unit: int
) -> None:
    seconds, microseconds = server.time()
    now = (seconds + microseconds / 1e6) * unit
    window = {b"%032x" % number: now - number * unit for number in range(3)}
    server.zadd("a", window)
    server.pexpire("a", 60_000)
    for own in (
        READ.acquiring((b"a",), (), ENTRY, LIFE, 0),
        MUTEX.acquiring((b"a",), (), TOKEN, LIFE, 0),
    ):
        reply = call(server, own)
        assert isinstance(reply, redis.ResponseError)
        assert "WRONGTYPE" in str(reply)
    assert dict(server.zrange("a", 0, -1, withscores=True)) == pytest.approx(window)


def test_a_waiter_enters_no_queue_that_cannot_expire(server: Server, lacking: Lacking) -> None:
    assert call(server, MUTEX.acquiring((b"gpu#1",), (), TOKEN, LIFE, 0)) == 1
    member = member_of(b"a" * 16, 1, 20.0, 1, notified=False)
    call(lacking("pexpire"), standing_for_slot((b"gpu#1",), claim_of(1, member), 20_000))
    assert [key for key in server.scan_iter("aioredlock_ng:*") if server.pttl(key) == -1] == []


def test_a_displaced_waiter_enters_no_queue_that_cannot_expire(
    server: Server, lacking: Lacking
) -> None:
    waiter, earlier = [member_of(b"a" * 16, line, 20.0, 1, notified=False) for line in (1, 2)]
    call(server, standing_for_slot((b"gpu#1",), claim_of(2, waiter), 20_000))
    assert server.exists("gpu#1"), "the free slot is offered to the waiter"
    acquiring = MUTEX.acquiring((b"gpu#1",), (), TOKEN, LIFE, 0, claim_of(1, earlier))
    assert call(lacking("pexpire"), acquiring) == 1
    assert [key for key in server.scan_iter("aioredlock_ng:*") if server.pttl(key) == -1] == []


@pytest.mark.parametrize("shared", [False, True])
def test_a_full_server_lets_a_lock_be_released_by_force(server: Server, shared: bool) -> None:
    kind = guarded_mutex(fencing=True, own_marker=b"")
    held, token = (read_side(kind), ENTRY) if shared else (kind, TOKEN)
    reply = call(server, held.acquiring((b"a",), (b"a",), token, LIFE, 5))
    assert not isinstance(reply, redis.ResponseError)
    server.config_set("maxmemory", 1)
    try:
        assert call(server, kind.force_releasing((b"a",), (b"a",), 7, (token,))) == 1
    finally:
        server.config_set("maxmemory", 0)


def test_a_full_server_keeps_a_lock_taken_no_longer_than_its_min_hold(server: Server) -> None:
    assert call(server, MUTEX.acquiring((b"a",), (), TOKEN, LIFE, 0)) == 1
    server.config_set("maxmemory", 1)
    try:
        assert call(server, MUTEX.retiring((b"a",), TOKEN, 1000, None)) == 1
    finally:
        server.config_set("maxmemory", 0)
    assert server.get("a") in {None, over_mark(TOKEN)}
    assert server.pttl("a") <= 1000


@pytest.mark.parametrize("reads", [False, True], ids=["writer waits", "reader waits"])
@pytest.mark.parametrize("shared", [False, True], ids=["of a writer", "of a reader"])
def test_a_repair_replaces_the_offers_to_waiters(server: Server, shared: bool, reads: bool) -> None:
    server.set("aioredlock_ng:marker", b"1" * 40 + b":60000")
    waiter = claim_of(1, member_of(b"a" * 16, 1, 20.0, notified=False, reader=reads))
    entering = (
        standing_to_read((b"a",), waiter, 20_000)
        if reads
        else standing((b"a",), waiter, 20_000, 20_000)
    )
    call(server, entering)
    assert server.exists("a"), "the free key is offered to the waiter"
    kind, token = (read_side(GUARDED), ENTRY) if shared else (GUARDED, TOKEN)
    # The key counts as missing, and not as held by another client.
    assert call(server, kind.extending((b"a",), [token], 60_000)) == [0]
    assert call(server, kind.watching((b"a",), (token,))) == [0]
    assert call(server, kind.repairing_of((b"a",), (b"a",), token, 60_000, 5)) == 1
    assert call(server, kind.watching((b"a",), (token,))) == 1


def test_a_repair_that_readers_of_one_key_prevent_sets_no_other_key(server: Server) -> None:
    server.set("aioredlock_ng:marker", b"1" * 40 + b":60000")
    assert call(server, READ.acquiring((b"b",), (), ENTRY, LIFE, 0)) == 1
    repair = GUARDED.repairing_of((b"a", b"b"), (b"a", b"b"), TOKEN, 60_000, 5)
    assert call(server, repair) == 0
    assert not server.exists("a")


async def test_a_slot_that_was_offered_to_readers_is_not_shown_as_free(both: Both) -> None:
    slot = b"gpu#1"
    assert await both.acquire(b"holder", slot) is GRANTED
    reader = member_of(b"d" * 16, 1, 20.0, notified=True, reader=True)
    await stand(both, 1, reader, slot)
    # The next command offers the slot to the reader, not to the new waiter.
    await both.expire(b"holder", slot)
    waiter = member_of(b"a" * 16, 2, 20.0, 1, notified=False)
    answer = await both.ask(standing_for_slot((slot,), claim_of(2, waiter), 20_000))
    assert answer.left
    assert answer.slots == ()


def test_members_with_the_same_ticket_are_in_the_order_of_bytes(server: Server) -> None:
    part = files("aioredlock_ng._scripts").joinpath("lua", "parts", "precedes.lua").read_text()
    compare = f"{part}\nreturn precedes(ARGV[1], ARGV[2]) and 1 or 0"
    members = [b"-ffff:1:9", b"aaaa:1:9", b"aaaa:1:90", b"aaaa:10:9", b"Aaaa:1:9", b"\xff", b""]
    for member, other in product(members, members):
        assert server.eval(compare, 0, member, other) == int(member < other), (member, other)
