"""The scripts of the queue on a real server, called as any client could."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis

from aioredlock_ng._core.replies import Standing
from aioredlock_ng._core.votes import is_held
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.catalogue import (
    ACQUIRE_READ,
    FORCE_RELEASE,
    RELEASE,
    RELEASE_EACH,
    RELEASE_READ,
    STAND,
)
from aioredlock_ng._scripts.exclusive_kinds import MUTEX

if TYPE_CHECKING:
    from aioredlock_ng._scripts import Script
    from tests.support.node_set import Node, NodeSet

ONE, OTHER, GONE = (
    "-00000000000000aa:1:60000",
    "-00000000000000bb:1:60000",
    "00000000000000cc:1:60000",
)


def run(node: Node, script: Script, keys: tuple[str, ...], *args: object) -> bytes:
    return node.command("EVAL", script.source.decode(), str(len(keys)), *keys, *map(str, args))


def calls_of(client: redis.Redis) -> dict[str, int]:
    return {
        name.removeprefix("cmdstat_"): figures["calls"]
        for name, figures in client.info("commandstats").items()
    }


def assert_readable(node: Node) -> None:
    with redis.Redis.from_url(node.url) as client:
        raw = client.eval(MUTEX.acquire.source.decode(), 1, "a", "token", "10000", "")
    command = MUTEX.acquiring((b"a",), (b"0",), b"token", b"10000", 0)
    assert is_held(command.read(raw))


def test_a_poll_without_time_to_reserve_reserves_no_key(
    node_of_each_version: NodeSet,
) -> None:
    node = node_of_each_version[0]
    node.command("SET", "b", "held", "PX", "60000")
    run(node, STAND, ("a", "b"), f"1:{ONE}", 12000, 30000)
    assert node.command("GET", "a").startswith(b"aioredlock_ng:offer:")
    node.command("DEL", "a")
    run(node, STAND, ("a", "b"), f"1:{ONE}", 12000, 0)
    assert node.command("EXISTS", "a") == b"0"


def test_an_offer_to_a_set_becomes_a_key_that_is_kept_for_it(node_of_each_version: NodeSet) -> None:
    node = node_of_each_version[0]
    node.command("SET", "b", "held", "PX", "60000")
    node.command("SET", "a", f"aioredlock_ng:offer:1:{ONE}", "PX", "100")
    run(node, STAND, ("a", "b"), f"1:{ONE}", 12000, 30000)
    assert int(node.command("PTTL", "a")) > 1000
    # Members before it may still have the key.
    assert run(node, MUTEX.acquire, ("a",), "token", 10000, f"2:{OTHER}") != b"1"
    run(node, STAND, ("a", "b"), f"7:{ONE}", 12000, 30000)
    node.command("DEL", "a")
    run(node, STAND, ("a", "b"), f"7:{ONE}", 12000, 30000)
    assert run(node, MUTEX.acquire, ("a",), "token", 10000, f"2:{OTHER}") == b"1"


def test_a_key_that_is_deleted_by_force_is_offered_to_the_first_in_its_queue(
    node_of_each_version: NodeSet,
) -> None:
    node = node_of_each_version[0]
    node.command("SET", "a", "held", "PX", "60000")
    run(node, STAND, ("a",), f"1:{ONE}", 12000, 30000)
    # A process that is gone stands before it.
    run(node, STAND, ("a",), f"0:{GONE}", 12000, 30000)
    assert run(node, FORCE_RELEASE, ("a",), 1, 0, "another") == b"0"
    assert node.command("GET", "a") == b"held"
    assert run(node, FORCE_RELEASE, ("a",), 1, 0, "held") == b"1"
    assert node.command("GET", "a") == f"aioredlock_ng:offer:1:{ONE}".encode()
    assert node.command("EXISTS", "aioredlock_ng:queue:a") == b"0"


def test_a_key_of_another_type_that_is_deleted_by_force_is_offered_too(
    node_of_each_version: NodeSet,
) -> None:
    node = node_of_each_version[0]
    node.command("SET", "a", "held", "PX", "60000")
    run(node, STAND, ("a",), f"1:{ONE}", 12000, 30000)
    node.command("DEL", "a")
    node.command("HSET", "a", "field", "value")
    assert run(node, FORCE_RELEASE, ("a",), 0, 1) == b"1"
    assert node.command("GET", "a") == f"aioredlock_ng:offer:1:{ONE}".encode()


def test_a_key_without_waiters_is_deleted_by_force(node_of_each_version: NodeSet) -> None:
    node = node_of_each_version[0]
    node.command("SET", "a", "held", "PX", "60000")
    assert run(node, FORCE_RELEASE, ("a",), 1, 0, "held") == b"1"
    assert node.command("EXISTS", "a") == b"0"


def test_a_strange_ticket_in_a_queue_makes_no_refusal_unreadable(
    node_of_each_version: NodeSet,
) -> None:
    node = node_of_each_version[0]
    for ticket in ("inf", "1e300", "-inf", "2.5"):
        node.command("SET", "a", "held", "PX", "60000")
        node.command("DEL", "aioredlock_ng:queue:a")
        node.command("ZADD", "aioredlock_ng:queue:a", ticket, "somebody")
        assert_readable(node)


def test_a_strange_offer_makes_no_refusal_unreadable(node_of_each_version: NodeSet) -> None:
    node = node_of_each_version[0]
    node.command("SET", "a", f"aioredlock_ng:offer:{'9' * 30}:somebody", "PX", "60000")
    assert_readable(node)


def test_a_strange_member_before_a_waiter_makes_no_poll_unreadable(
    node_of_each_version: NodeSet,
) -> None:
    node = node_of_each_version[0]
    node.command("SET", "a", "held", "PX", "60000")
    node.command("ZADD", "aioredlock_ng:queue:a", "0", f"somebody:{'9' * 30}")
    command = Command(STAND, (b"a",), (f"1:{ONE}".encode(), 12000, 30000))
    with redis.Redis.from_url(node.url) as client:
        raw = client.eval(STAND.source.decode(), 1, "a", f"1:{ONE}", "12000", "30000")
    assert isinstance(command.read(raw), Standing)


@pytest.mark.parametrize("script", [RELEASE, RELEASE_EACH], ids=lambda script: script.name)
def test_a_release_without_waiters_calls_three_commands(
    node_of_each_version: NodeSet, script: Script
) -> None:
    node = node_of_each_version[0]
    node.command("SET", "a", "token", "PX", "60000")
    with redis.Redis.from_url(node.url) as client:
        client.config_resetstat()
        assert run(node, script, ("a",), "token") == b"1"
        calls = calls_of(client)
    assert {name: calls.get(name) for name in ("get", "exists", "del")} == {
        "get": 1,
        "exists": 1,
        "del": 1,
    }
    assert not any(name.startswith(("z", "mget", "publish")) for name in calls)


def test_a_read_without_waiters_reads_no_queue(node_of_each_version: NodeSet) -> None:
    node = node_of_each_version[0]
    entry, other = f"{'a' * 32}:{'b' * 16}", f"{'c' * 32}:{'d' * 16}"
    taking = (ACQUIRE_READ, ("a", "marker", "fences"))
    run(node, *taking, other, 60000, "", "", "")
    with redis.Redis.from_url(node.url) as client:
        client.config_resetstat()
        assert run(node, *taking, entry, 60000, "", "", "") == b"1"
        assert run(node, RELEASE_READ, ("a",), entry) == b"1"
        calls = calls_of(client)
    assert calls["exists"] == 3, "the queue of writers; all queues; the key that is left"
    assert "publish" not in calls
    assert "zrange" not in calls
