"""Servers in containers, by testcontainers: faults as a container engine makes them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from aioredlock_ng import Redlock
from aioredlock_ng.testing import find_server
from tests.support.backends import version_of
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.containers

NOT_TO_BE_PULLED = "127.0.0.1:1/none:1"
"""Nothing listens there."""


def test_five_containers_are_five_servers_on_loopback_ports(five_containers: NodeSet) -> None:
    assert len({node.info()["run_id"] for node in five_containers}) == 5
    assert all(url.startswith("redis://127.0.0.1:") for url in five_containers.urls)


@pytest.mark.once
def test_an_image_that_cannot_be_pulled_is_replaced_by_one_of_the_hosts_own_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.support.containers import IMAGE_ENV, REQUIRE_IMAGE, ContainerNode, image

    wanted = NOT_TO_BE_PULLED
    monkeypatch.setenv(IMAGE_ENV, wanted)
    monkeypatch.delenv(REQUIRE_IMAGE, raising=False)
    image.cache_clear()
    try:
        found = image()
        # For the processes that this one starts.
        named = os.environ[IMAGE_ENV]
    finally:
        image.cache_clear()
    version = version_of(find_server())
    assert found.name == named != wanted
    assert (
        found.description
        == f"image {named}, built from the host's {version} because {wanted} cannot be pulled"
    )
    with contextlib.closing(ContainerNode(found.name)) as node:
        told = node.start().info()
    assert version.rpartition(" ")[2] in {told["redis_version"], told.get("valkey_version")}


@pytest.mark.once
def test_a_required_image_that_cannot_be_pulled_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.support.containers import IMAGE_ENV, REQUIRE_IMAGE, image

    monkeypatch.setenv(IMAGE_ENV, NOT_TO_BE_PULLED)
    monkeypatch.setenv(REQUIRE_IMAGE, "1")
    image.cache_clear()
    try:
        with pytest.raises(RuntimeError, match=r"none:1 cannot be pulled"):
            image()
        assert os.environ[IMAGE_ENV] == NOT_TO_BE_PULLED
    finally:
        image.cache_clear()


async def test_a_paused_container_answers_only_when_resumed(five_containers: NodeSet) -> None:
    async with Redis.from_url(five_containers.urls[0]) as client:
        await client.ping()
        five_containers.pause(0)
        late = asyncio.ensure_future(client.set("a", "1"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(late), 0.1)
        five_containers.resume(0)
        assert await late


async def test_a_killed_container_comes_back_empty_on_its_port(five_containers: NodeSet) -> None:
    url = five_containers.urls[1]
    five_containers[1].command("SET", "a", "1")
    five_containers.crash(1)
    async with Redis.from_url(url) as client:
        with pytest.raises(RedisError):
            await client.ping()
    five_containers.restart(1)
    assert five_containers.urls[1] == url
    assert five_containers[1].command("DBSIZE") == b"0"


async def test_a_lock_is_taken_with_one_container_paused_and_one_killed(
    five_containers: NodeSet,
) -> None:
    async with Redlock(five_containers.urls) as redlock:
        five_containers.pause(0)
        five_containers.crash(1)
        async with redlock.lock("orders:42") as lease:
            assert lease.valid
            assert lease.nodes == (3, 5)


async def test_containers_that_come_back_vote_again(five_containers: NodeSet) -> None:
    # The one that was killed is quarantined for max_ttl plus a second.
    async with Redlock(five_containers.urls, ttl=4.0, max_ttl=4.0) as redlock:
        five_containers.pause(0)
        five_containers.crash(1)
        async with redlock.lock("orders:42"):
            pass
        five_containers.resume(0)
        five_containers.restart(1)

        async def all_vote() -> bool:
            async with redlock.lock("orders:42") as lease:
                # The slowest two answer after the lock is given.
                await asyncio.sleep(0.05)
                return lease.nodes == (5, 5)

        assert await eventually(all_vote, within=60)
