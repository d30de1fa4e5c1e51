"""A user without the rights of readers, as an older version needed none of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockLost, QuorumUnreachable, Redlock
from tests.support import server_versions, tiers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from aioredlock_ng.testing import LocalServer

    StartServer = Callable[..., LocalServer]

VERSIONS = tiers.ends(
    [pytest.param(version.binary, id=version.id) for version in server_versions.at_hand()]
)


@pytest.fixture(params=VERSIONS)
async def managers(
    request: pytest.FixtureRequest, start_server: StartServer
) -> AsyncIterator[tuple[Redlock, Redlock]]:
    """A manager whose user lacks the rights, and one with all rights."""
    binary: Path = request.param
    server = start_server(binary=binary)
    lacking = ("-zremrangebyscore", "-pexpireat")
    server.command("ACL", "SETUSER", "older", "on", ">word", "~*", "&*", "+@all", *lacking)
    url = f"redis://older:word@{server.address}"
    async with Redlock([url], ttl=30) as older, Redlock([server.url], ttl=30) as newer:
        await newer.wait_ready(30)
        yield older, newer


async def test_the_error_names_a_readers_missing_right_at_once(
    managers: tuple[Redlock, Redlock],
) -> None:
    older, _ = managers
    with pytest.raises(QuorumUnreachable, match=r"no permissions|can't run this command"):
        await asyncio.wait_for(older.rwlock("catalog").read().acquire(), 10)
    assert not (await older.inspect("catalog")).held


async def test_writers_and_locks_wait_for_readers_and_hand_over_to_them(
    managers: tuple[Redlock, Redlock],
) -> None:
    older, newer = managers
    reader = await newer.rwlock("catalog").read().acquire()
    writing = asyncio.create_task(older.rwlock("catalog").write().acquire())
    while not (await newer.inspect("catalog")).waiting:
        await asyncio.sleep(0.01)
    await reader.release()
    writer = await asyncio.wait_for(writing, 10)
    await writer.extend()
    reading = asyncio.create_task(newer.rwlock("catalog").read().acquire())
    while not (await newer.inspect("catalog")).waiting:
        await asyncio.sleep(0.01)
    await writer.release()
    # The readers are told. They need not find out by themselves.
    await (await asyncio.wait_for(reading, 10)).release()
    async with older.lock("catalog"):
        pass


@pytest.mark.slow
async def test_a_refused_downgrade_keeps_the_key_until_the_holder_is_notified_of_the_loss(
    managers: tuple[Redlock, Redlock],
) -> None:
    older, newer = managers
    writer = await older.rwlock("catalog", ttl=3).write().acquire()
    # A report that the key was deleted and set again may come before the refusal or after it.
    with contextlib.suppress(LockLost):
        await asyncio.wait_for(writer.downgrade(), 10)
    if not writer.lost:
        assert await newer.lock("catalog").try_acquire() is None
    await asyncio.wait_for(writer.wait_lost(), 10)
    with pytest.raises(LockLost):
        writer.check()
