"""Labels of owners on real servers: whatever is wrong with them, the lock is held, watched and
released as without.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import LockLost, Redlock
from aioredlock_ng.events import NodeDegraded
from tests.support import server_versions
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aioredlock_ng.events import Event
    from aioredlock_ng.testing import LocalServer

    StartServer = Callable[..., LocalServer]

AT_HAND = server_versions.at_hand()
OLDEST_AND_NEWEST = dict.fromkeys((AT_HAND[0], AT_HAND[-1]))
"""The scripts that write labels have the same tests in `tests/contract`, on every version."""

pytestmark = pytest.mark.parametrize(
    "binary", [pytest.param(version.binary, id=version.id) for version in OLDEST_AND_NEWEST]
)

NARROW = ("~lock:*", "~aioredlock_ng:marker", "~aioredlock_ng:fences", "&*", "+@all")
"""Keys that a user had a right to who took no labels into account."""

OWNER = "aioredlock_ng:owner:lock:a"


def manager(*servers: LocalServer, user: str = "", **options: Any) -> Redlock:
    urls = [server.url.replace("redis://", f"redis://{user}") for server in servers]
    # No label goes by itself, and no renewal notices a loss, while it is waited for.
    return Redlock(urls, ttl=60, node_timeout=5.0, key_format="lock:{name}", **options)


async def test_a_user_without_the_right_to_labels_holds_watches_and_releases(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    server.command("ACL", "SETUSER", "locks", "on", ">word", *NARROW)
    heard: list[Event] = []
    async with manager(server, user="locks:word@", sinks=[heard.append]) as redlock:
        lease = await redlock.lock("a").acquire()
        await eventually(lambda: any(isinstance(event, NodeDegraded) for event in heard))
        assert (await redlock.inspect("a")).held
        assert await lease.release() is True
        assert server.command("EXISTS", "lock:a") == b"0"

        async def hold() -> None:
            async with redlock.lock("a"):
                await asyncio.sleep(0.3)
                server.command("DEL", "lock:a")
                await asyncio.sleep(60)

        with pytest.raises(LockLost):
            async with asyncio.timeout(15):
                await hold()
    assert len([event for event in heard if isinstance(event, NodeDegraded)]) == 1


async def test_a_reader_without_the_right_to_labels_releases(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    server.command("ACL", "SETUSER", "locks", "on", ">word", *NARROW)
    heard: list[Event] = []
    async with manager(server, user="locks:word@", sinks=[heard.append]) as redlock:
        lease = await redlock.rwlock("a").read().acquire()
        await eventually(lambda: any(isinstance(event, NodeDegraded) for event in heard))
        assert await lease.release() is True
        assert server.command("EXISTS", "lock:a") == b"0"
    assert len([event for event in heard if isinstance(event, NodeDegraded)]) == 1


async def test_a_label_of_another_type_is_replaced_and_spoils_no_inspection(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    server.command("HSET", OWNER, "field", "1")
    async with manager(server, owner="ours") as redlock:
        lease = await redlock.lock("a").acquire()
        info = await redlock.inspect("a")
        assert (info.held, info.owner) == (True, None)
        await eventually(lambda: server.command("TYPE", OWNER) == b"string")
        owner = (await redlock.inspect("a")).owner
        assert owner is not None
        assert owner.label == "ours"
        assert await lease.release() is True
        assert server.command("EXISTS", OWNER) == b"0"


async def test_a_full_server_watches_and_releases_without_a_label(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    async with manager(server) as redlock:
        async with redlock.lock("a") as lease:
            server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
            server.command("CONFIG", "SET", "maxmemory", "100kb")
            await asyncio.sleep(0.3)
            assert lease.valid
            assert server.command("EXISTS", OWNER) == b"0"
        assert server.command("EXISTS", "lock:a") == b"0"

        server.command("CONFIG", "SET", "maxmemory", "0")

        async def hold() -> None:
            async with redlock.lock("a"):
                server.command("CONFIG", "SET", "maxmemory", "100kb")
                await asyncio.sleep(0.3)
                server.command("DEL", "lock:a")
                await asyncio.sleep(60)

        with pytest.raises(LockLost):
            async with asyncio.timeout(15):
                await hold()


async def test_a_lost_lease_takes_its_label_along_but_not_the_next_ones(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    async with manager(server) as redlock, manager(server, owner="the next") as other:
        lease = await redlock.lock("a").acquire()
        await eventually(lambda: server.command("EXISTS", OWNER) == b"1")
        await other.force_release("a")
        await eventually(lambda: lease.lost)
        await eventually(lambda: server.command("EXISTS", OWNER) == b"0")
        lease = await redlock.lock("a").acquire()
        await eventually(lambda: server.command("EXISTS", OWNER) == b"1")
        await other.force_release("a")
        following = await other.lock("a").acquire()
        await eventually(lambda: b"the next" in server.command("GET", OWNER))
        await asyncio.sleep(0.1)
        assert lease.lost
        assert b"the next" in server.command("GET", OWNER)
        await following.release()
        assert server.command("EXISTS", OWNER) == b"0"


async def test_labels_of_names_of_any_bytes_and_length_come_and_go(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    names = [b"\x00\xff\r\n$5", b"x" * 65_536, "ünï\n"]
    async with manager(server) as redlock:
        lease = await redlock.lock(*names).acquire()
        await eventually(lambda: server.command("DBSIZE") == b"8")
        for name in names:
            assert (await redlock.inspect(name)).owner is not None
        assert await lease.release() is True
        assert server.command("DBSIZE") == b"2"


async def test_a_pending_release_to_a_node_that_was_away_deletes_the_label_too(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    async with manager(server) as redlock:
        lease = await redlock.lock("a").acquire()
        await eventually(lambda: server.command("EXISTS", OWNER) == b"1")
        server.command("SCRIPT", "FLUSH")
        server.command("CLIENT", "KILL", "SKIPME", "yes")
        await lease.release()
        await eventually(lambda: server.command("EXISTS", "lock:a", OWNER) == b"0")
