"""RedisFence and its script on real servers: exact comparison, every type of key, expiry, refusals,
other languages' use.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis, RedisCluster
from redis.crc import key_slot
from redis.exceptions import NoPermissionError, ResponseError

from aioredlock_ng import ConfigurationError
from aioredlock_ng.fencing import GUARD_SCRIPT, MAX_FENCE, RedisFence, StaleFence
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

NOW = 1_800_000_000_000_000
"""As large as real fences are: microseconds since 1970."""

KEY, FENCE = "order:42", "{order:42}:fence"


@pytest.fixture
async def client(node_of_each_version: NodeSet) -> AsyncIterator[Redis]:
    async with Redis.from_url(node_of_each_version.urls[0]) as client:
        yield client


async def test_fences_of_any_size_that_differ_by_one_are_distinguished(client: Redis) -> None:
    guarded = RedisFence(client)
    for newer in (1, 10, NOW, 2**52 + 1, MAX_FENCE):
        await guarded.set(KEY, "new", fence=newer)
        assert await client.get(FENCE) == str(newer).encode()
        with pytest.raises(StaleFence) as caught:
            await guarded.set(KEY, "old", fence=newer - 1)
        error = caught.value
        assert (error.resource, error.fence, error.seen) == (KEY, newer - 1, newer)
        with pytest.raises(StaleFence):
            await guarded.get(KEY, fence=newer - 1)
        assert await guarded.get(KEY, fence=newer) == b"new"


async def test_a_read_keeps_older_holders_from_writing(client: Redis) -> None:
    guarded = RedisFence(client)
    assert await guarded.get(KEY, fence=NOW) is None
    await guarded.set(KEY, "a", fence=NOW)
    assert await guarded.get(KEY, fence=NOW + 1) == b"a"
    with pytest.raises(StaleFence):
        await guarded.set(KEY, "b", fence=NOW)
    assert await client.get(KEY) == b"a"


async def test_a_hash_is_guarded_as_a_whole(client: Redis) -> None:
    guarded = RedisFence(client)
    assert await guarded.hgetall(KEY, fence=NOW) == {}
    await guarded.hset(KEY, {"state": "paid", "cents": 1999}, fence=NOW)
    assert await guarded.hgetall(KEY, fence=NOW + 1) == {b"state": b"paid", b"cents": b"1999"}
    with pytest.raises(StaleFence):
        await guarded.hset(KEY, {"state": "new"}, fence=NOW)
    with pytest.raises(StaleFence):
        await guarded.hgetall(KEY, fence=NOW)
    assert await client.hgetall(KEY) == {b"state": b"paid", b"cents": b"1999"}


async def test_any_command_that_takes_its_key_first_is_guarded(client: Redis) -> None:
    guarded = RedisFence(client)
    assert await guarded.execute("INCRBY", "count", 3, fence=NOW) == 3
    assert await guarded.execute("RPUSH", "list", "a", b"\xff", fence=NOW) == 2
    assert await guarded.execute("LRANGE", "list", 0, -1, fence=NOW + 1) == [b"a", b"\xff"]
    for command, key in (("INCR", "count"), ("RPOP", "list")):
        await guarded.execute("EXISTS", key, fence=NOW + 1)
        with pytest.raises(StaleFence):
            await guarded.execute(command, key, fence=NOW)
    assert await client.get("count") == b"3"
    assert await client.llen("list") == 2
    await guarded.execute("RPUSH", "list", *range(7000), fence=NOW + 1)


async def test_clients_of_any_settings_are_refused_and_answered(
    node_of_each_version: NodeSet,
) -> None:
    settings: tuple[dict[str, Any], ...] = (
        {"decode_responses": True},
        {"protocol": 2},
        {"protocol": 3},
    )
    for setting in settings:
        async with Redis.from_url(node_of_each_version.urls[0], **setting) as client:
            guarded, text = RedisFence(client), "decode_responses" in setting
            key = f"h-{setting}"
            await guarded.hset(key, {"a": 1}, fence=NOW)
            answer = await guarded.hgetall(key, fence=NOW + 1)
            assert answer == ({"a": "1"} if text else {b"a": b"1"})
            with pytest.raises(StaleFence):
                await guarded.hset(key, {"a": 2}, fence=NOW)


async def test_a_text_and_its_bytes_have_one_fence_in_every_encoding(
    client: Redis, node_of_each_version: NodeSet
) -> None:
    (url,) = node_of_each_version.urls
    for encoding in ("utf-8", "latin-1"):
        async with Redis.from_url(url, encoding=encoding) as writer:
            key = f"é-{encoding}"
            await RedisFence(writer).set(key, "ö", fence=NOW + 1)
            assert await client.get(key.encode(encoding)) == "ö".encode(encoding)
            with pytest.raises(StaleFence) as caught:
                await RedisFence(client).set(key.encode(encoding), "old", fence=NOW)
            assert caught.value.seen == NOW + 1
            with pytest.raises(StaleFence) as caught:
                await RedisFence(writer).get(key, fence=NOW)
            assert caught.value.resource == key


async def test_a_key_that_the_client_cannot_write_is_refused() -> None:
    async with Redis(port=1, encoding="latin-1") as client:
        with pytest.raises(ConfigurationError, match=r"^key '€' cannot be written in latin-1"):
            await RedisFence(client).get("€", fence=NOW)


async def test_a_server_that_forgot_the_script_gets_it_again(client: Redis) -> None:
    guarded = RedisFence(client)
    await guarded.set(KEY, "a", fence=NOW)
    await client.script_flush()
    with pytest.raises(StaleFence):
        await guarded.set(KEY, "b", fence=NOW - 1)


async def test_deleted_data_is_not_brought_back_by_an_older_holder(client: Redis) -> None:
    guarded = RedisFence(client)
    await guarded.set(KEY, "a", fence=NOW)
    assert await guarded.delete(KEY, fence=NOW + 1)
    assert not await guarded.delete(KEY, fence=NOW + 1)
    with pytest.raises(StaleFence):
        await guarded.set(KEY, "a", fence=NOW)
    assert await client.exists(KEY) == 0


async def test_expired_data_is_not_brought_back_by_an_older_holder(client: Redis) -> None:
    guarded = RedisFence(client, keep=60)
    await guarded.set(KEY, "a", fence=NOW, ttl=0.001)

    async def gone() -> bool:
        return await client.get(KEY) is None

    await eventually(gone)
    with pytest.raises(StaleFence):
        await guarded.set(KEY, "a", fence=NOW - 1)
    assert await client.exists(KEY) == 0


async def test_without_keep_fences_are_remembered_for_ever(client: Redis) -> None:
    guarded = RedisFence(client)
    await guarded.set(KEY, "a", fence=NOW, ttl=5)
    assert await client.pttl(FENCE) == -1
    await guarded.delete(KEY, fence=NOW)
    assert await client.pttl(FENCE) == -1


async def test_with_keep_the_fence_outlives_its_data_by_as_much(client: Redis) -> None:
    guarded = RedisFence(client, keep=100)

    async def outlives(least: float, most: float) -> bool:
        return least * 1000 <= await client.pttl(FENCE) <= most * 1000

    assert await guarded.get(KEY, fence=NOW) is None
    assert await outlives(90, 100)
    await guarded.set(KEY, "a", fence=NOW, ttl=1000)
    assert await outlives(1090, 1100)
    await guarded.execute("PEXPIRE", KEY, 5_000_000, fence=NOW)
    assert await outlives(5090, 5100)
    await guarded.execute("PERSIST", KEY, fence=NOW + 1)
    assert await client.pttl(FENCE) == -1
    await guarded.set(KEY, "b", fence=NOW + 2, ttl=1000)
    assert await outlives(1090, 1100)
    await guarded.delete(KEY, fence=NOW + 3)
    assert await outlives(90, 100)
    await guarded.set(KEY, "b", fence=NOW + 3)
    assert await client.pttl(FENCE) == -1


async def test_a_client_without_keep_ends_the_expiry_of_one_with_it(client: Redis) -> None:
    await RedisFence(client, keep=100).get(KEY, fence=NOW)
    await RedisFence(client).get(KEY, fence=NOW)
    assert await client.pttl(FENCE) == -1


async def test_a_command_that_the_server_refuses_changes_nothing_but_the_fence(
    client: Redis,
) -> None:
    await client.hset(KEY, "a", "1")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await RedisFence(client).get(KEY, fence=NOW)
    assert await client.hgetall(KEY) == {b"a": b"1"}
    assert await client.get(FENCE) == str(NOW).encode()
    assert await client.pttl(FENCE) == -1


async def test_with_keep_the_fence_of_a_refused_command_expires_too(client: Redis) -> None:
    guarded = RedisFence(client, keep=100)
    with pytest.raises(ResponseError, match="Wrong number"):
        await guarded.execute("GET", KEY, "too many", fence=NOW)
    assert 90_000 <= await client.pttl(FENCE) <= 100_000
    await client.hset(KEY, "a", "1")
    await client.expire(KEY, 1000)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await guarded.get(KEY, fence=NOW + 1)
    assert 1_090_000 <= await client.pttl(FENCE) <= 1_100_000
    with pytest.raises(StaleFence):
        await guarded.get(KEY, fence=NOW)


@pytest.fixture
async def unasked() -> AsyncIterator[Redis]:
    """A client that cannot ask: nobody listens at its address."""
    async with Redis(port=1) as client:
        yield client


async def test_an_invalid_fence_is_refused_before_the_server_is_asked(unasked: Redis) -> None:
    for fence in (None, True, "7", -1, 2**53):
        with pytest.raises(ConfigurationError, match="fence"):
            await RedisFence(unasked).set(KEY, "a", fence=fence)


async def test_an_invalid_key_is_refused_before_the_server_is_asked(unasked: Redis) -> None:
    for key in (None, 5, "", b"", "\ud800"):
        with pytest.raises(ConfigurationError, match=r"^key"):
            await RedisFence(unasked).get(key, fence=NOW)
        with pytest.raises(ConfigurationError, match=r"^key"):
            RedisFence.fence_key(key)


async def test_an_impossible_ttl_is_refused_before_the_server_is_asked(unasked: Redis) -> None:
    for ttl in (0, -5, 1e-9, 0.0009, float("nan"), float("inf"), 1e10, "5", True):
        with pytest.raises(ConfigurationError, match=r"^ttl must be"):
            await RedisFence(unasked).set(KEY, "a", fence=NOW, ttl=ttl)


async def test_invalid_fields_are_refused_before_the_server_is_asked(unasked: Redis) -> None:
    for fields in ({}, None, [("a", "b")], "ab"):
        with pytest.raises(ConfigurationError, match=r"^fields must"):
            await RedisFence(unasked).hset(KEY, fields, fence=NOW)


@pytest.mark.parametrize(
    "given", [redis.Redis(), "redis://127.0.0.1", None], ids=["synchronous", "URL", "None"]
)
def test_a_client_that_is_not_for_asyncio_is_refused(given: Any) -> None:
    """A synchronous client would write and then raise, as its reply cannot be awaited."""
    with pytest.raises(
        ConfigurationError, match=r"^client must be a redis\.asyncio\.Redis or RedisCluster, not"
    ):
        RedisFence(given)


async def test_an_impossible_keep_is_refused(unasked: Redis) -> None:
    for keep in (0, -1, float("nan"), float("inf"), 1e10, "5", True):
        with pytest.raises(ConfigurationError, match="keep"):
            RedisFence(unasked, keep=keep)


async def raw(client: Redis, *args: str | int) -> Any:
    """Call the script as a client in another language does."""
    return await client.eval(GUARD_SCRIPT, 2, KEY, FENCE, *args)


async def test_the_script_serves_other_languages(client: Redis) -> None:
    await client.config_resetstat()
    assert await raw(client, NOW, "", "SET", "a", "PX", 100_000) == b"OK"
    assert await raw(client, NOW + 1, "", "GET") == b"a"
    with pytest.raises(ResponseError, match=f"^STALEFENCE {NOW + 1}$"):
        await raw(client, NOW, "", "SET", "b")
    assert await client.get(KEY) == b"a"
    counted = await client.info("errorstats")
    assert counted["errorstat_STALEFENCE"]["count"] == 1


async def test_the_script_refuses_a_fence_that_it_could_not_compare(client: Redis) -> None:
    for fence in ("", "-1", "1.5", "1e3", "0x10", " 7", "nan", 2**53, 2**53 + 1, "9" * 400):
        with pytest.raises(ResponseError, match="integer from 0 to 2\\^53 - 1"):
            await raw(client, fence, "", "SET", "a")
        assert await client.exists(KEY, FENCE) == 0, fence


async def test_a_keep_that_is_no_number_means_for_ever(client: Redis) -> None:
    for keep in ("", "-1", "1.5", "soon"):
        await client.delete(FENCE)
        assert await raw(client, NOW, keep, "SET", "a", "PX", 100_000) == b"OK"
        assert await client.pttl(FENCE) == -1, keep


async def test_a_fence_key_with_an_unreadable_value_refuses_all_writes(client: Redis) -> None:
    for stored in ("", "nan", "inf", "1.8e+15", "-5"):
        await client.set(FENCE, stored)
        with pytest.raises(ResponseError, match="something else"):
            await RedisFence(client).set(KEY, "a", fence=NOW)
        assert await client.exists(KEY) == 0, stored


async def test_the_documented_rights_suffice(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    rights = (
        "on >pw resetchannels ~order:* ~{order:* ~fence:order:* "
        "+evalsha +script|load +get +set +pttl +persist +pexpire"
    )
    server.command("ACL", "SETUSER", "shop", *rights.split())
    async with Redis.from_url(server.url, username="shop", password="pw") as client:
        guarded = RedisFence(client, keep=60)
        for key in (KEY, "order:{42}"):
            await guarded.set(key, "a", fence=NOW)
            assert await guarded.get(key, fence=NOW) == b"a"
        with pytest.raises((NoPermissionError, ResponseError)):
            await guarded.set("other", "a", fence=NOW)


@pytest.mark.slow
async def test_in_a_cluster_both_keys_are_in_one_slot(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server(["--cluster-enabled", "yes"])
    server.command("CLUSTER", "ADDSLOTS", *map(str, range(16384)))
    await eventually(lambda: b"cluster_state:ok" in server.command("CLUSTER", "INFO"))
    async with RedisCluster.from_url(server.url) as client:
        guarded = RedisFence(client)
        for key in (KEY, "order:{42}", "order{"):
            await guarded.set(key, "a", fence=NOW)
            with pytest.raises(StaleFence):
                await guarded.get(key, fence=NOW - 1)


keys = st.lists(
    st.sampled_from([b"{", b"}", b"a", b"{a}", b":fence", b"fence:", b"\xff"]),
    min_size=1,
    max_size=6,
).map(b"".join)


@given(keys)
def test_the_key_of_a_fence_is_in_the_slot_of_its_data(key: bytes) -> None:
    # Only a name that has a closing brace and yet no tag has no such key at all; a cluster then
    # refuses the call.
    if b"}" not in key or re.match(rb"[^{]*{[^}]+}", key):
        assert key_slot(RedisFence.fence_key(key)) == key_slot(key)


@given(keys, keys)
def test_no_two_keys_share_the_key_of_their_fence(one: bytes, other: bytes) -> None:
    assert (RedisFence.fence_key(one) == RedisFence.fence_key(other)) is (one == other)
    assert RedisFence.fence_key(one) != one


def test_the_script_documents_its_arguments_and_result_and_has_unix_line_ends() -> None:
    stored = resources.files("aioredlock_ng.fencing").joinpath("guard.lua").read_bytes()
    assert stored.decode("ascii") == GUARD_SCRIPT
    assert b"\r" not in stored
    header = [line for line in GUARD_SCRIPT.splitlines() if line.startswith("-- ")]
    assert [line.split()[1] for line in header[1:8]] == [
        "KEYS[1]",
        "KEYS[2]",
        "ARGV[1]",
        "ARGV[2]",
        "ARGV[3]",
        "ARGV[4..]",
        "Returns",
    ]
