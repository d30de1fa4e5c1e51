"""docs/migrating.md says how our locks and a loop around SET NX work side by side."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import ConfigurationError, Redlock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.node_set import Node, NodeSet

RELEASE = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)
SOON = 30.0
"""Seconds within which a holder is notified, even on a machine that pauses processes."""


@pytest.fixture
async def redlock(one_node: NodeSet) -> AsyncIterator[Redlock]:
    one_node.found()
    async with Redlock(one_node.urls, ttl=50.0, node_timeout=3.0) as opened:
        yield opened


@pytest.fixture
def node(one_node: NodeSet) -> Node:
    return one_node[0]


async def test_a_loop_around_set_nx_and_a_lock_exclude_each_other(
    redlock: Redlock, node: Node
) -> None:
    assert node.command("SET", "order", "mine", "NX", "PX", "30000") == b"OK"
    assert await redlock.lock("order").try_acquire() is None
    assert node.command("EVAL", RELEASE, "1", "order", "mine") == b"1"

    lease = await redlock.lock("order", blocking_timeout=0).acquire()
    assert node.command("SET", "order", "mine", "NX", "PX", "30000") != b"OK"
    assert node.command("EVAL", RELEASE, "1", "order", "mine") == b"0"
    assert node.command("GET", "order").decode() == lease.token
    assert await lease.release()
    assert node.command("SET", "order", "mine", "NX", "EX", "30") == b"OK"


@pytest.mark.parametrize(
    "command", [("DEL", "order"), ("PEXPIRE", "order", "200"), ("GETSET", "order", "1796085712")]
)
async def test_a_command_that_compares_no_value_ends_the_lease_of_the_next_holder(
    redlock: Redlock, node: Node, command: tuple[str, ...]
) -> None:
    lease = await redlock.lock("order").acquire()
    node.command(*command)
    await asyncio.wait_for(lease.wait_lost(), SOON)
    assert lease.lost


async def test_a_key_of_setnx_without_expiry_blocks_a_lock_until_it_is_deleted(
    redlock: Redlock, node: Node
) -> None:
    assert node.command("SETNX", "order", "mine") == b"1"
    assert await redlock.lock("order").try_acquire() is None
    with pytest.raises(ConfigurationError, match="a string without expiry"):
        await redlock.force_release("order")
    assert await redlock.force_release("order", any_key=True) == 1
    lease = await redlock.lock("order", blocking_timeout=0).acquire()
    assert await lease.release()
