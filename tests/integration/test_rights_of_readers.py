"""A user without the rights of readers, as an older version needed none of them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import LockLost, QuorumUnreachable, Redlock
from tests.support import server_versions, tiers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

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
    options: dict[str, Any] = {"ttl": 30.0, "node_timeout": 5.0}
    async with Redlock([url], **options) as older, Redlock([server.url], **options) as newer:
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


ACL_DOC = Path(__file__).parents[2] / "docs" / "acl.md"


@pytest.mark.parametrize("missing", ["zremrangebyscore", "pexpireat", "zrevrange", "zrem"])
async def test_the_docs_say_whether_a_missing_right_prevents_the_acquire_or_the_release(
    missing: str, start_server: StartServer
) -> None:
    page = " ".join(ACL_DOC.read_text(encoding="utf-8").split())
    refused = re.search(r"A user without ([^.]*) cannot acquire read leases\.", page)
    kept = re.search(
        r"A user without ([^.]*) acquires read leases, but cannot release them\.", page
    )
    assert refused
    assert kept
    server = start_server()
    server.command("ACL", "SETUSER", "reader", "on", ">word", "~*", "&*", "+@all", f"-{missing}")
    url = f"redis://reader:word@{server.address}"
    async with Redlock([url], ttl=30, node_timeout=5.0) as redlock:
        reading = redlock.rwlock("catalog").read()
        if missing == "zrem":
            assert await (await reading.acquire()).release()
            assert server.command("EXISTS", "catalog") == b"1"
        else:
            with pytest.raises(QuorumUnreachable):
                await asyncio.wait_for(reading.acquire(), 10)
    assert (f"`{missing}`" in refused[1]) == (missing != "zrem")
    assert (f"`{missing}`" in kept[1]) == (missing == "zrem")


@pytest.mark.slow
async def test_a_refused_downgrade_keeps_the_key_until_the_holder_is_notified_of_the_loss(
    managers: tuple[Redlock, Redlock],
) -> None:
    older, newer = managers
    writer = await older.rwlock("catalog", ttl=6).write().acquire()
    # A report that the key was deleted and set again may come before the refusal or after it.
    with contextlib.suppress(LockLost):
        await asyncio.wait_for(writer.downgrade(), 10)
    if not writer.lost:
        assert await newer.lock("catalog").try_acquire() is None
    await asyncio.wait_for(writer.wait_lost(), 30)
    with pytest.raises(LockLost):
        writer.check()
