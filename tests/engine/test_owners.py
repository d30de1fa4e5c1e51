"""The label beside a lock's keys: there once a lease has lived a moment, gone with it, never taken for another's."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import ConfigurationError, Redlock
from aioredlock_ng._core.owners import (
    MAX_LABEL,
    WAITING_KEYS,
    key_waited_for,
    label_life,
    owner_key,
    pack_owner,
    read_owner,
)
from aioredlock_ng._nodes.memory import MemoryServer
from aioredlock_ng.records import Owner

if TYPE_CHECKING:
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time


async def owner_of(process: Any, name: str) -> Owner | None:
    return (await process.redlock.inspect(name)).owner  # type: ignore[no-any-return]


async def test_who_holds_a_lock_is_shown_once_it_is_held_for_a_moment(rig: Rig) -> None:
    holder, other = await rig.process(), await rig.process()

    async def hold() -> int | None:
        async with holder.lock("a") as lease:
            assert await owner_of(other, "a") is None
            await asyncio.sleep(0.3)
            return lease.fence

    task = asyncio.create_task(hold(), name="report for 7")
    await asyncio.sleep(0.2)
    owner = await owner_of(other, "a")
    fence = await task
    assert owner is not None
    assert owner.label == f"{socket.gethostname()}:{os.getpid()}:report for 7"
    assert owner.fence == fence
    assert await owner_of(other, "a") is None
    await asyncio.sleep(0.01)
    assert [server.get(owner_key(b"a")) for server in rig.servers] == [None] * 3


async def test_a_short_lease_writes_no_label(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.05)
    await lease.release()
    assert [server.get(owner_key(b"a")) for server in rig.servers] == [None] * 3


async def test_a_label_lives_as_long_as_its_lease(rig: Rig) -> None:
    process, other = await rig.process(ttl=2.0, owner="billing"), await rig.process()
    lease = await process.lock("a").acquire()
    for _ in range(20):
        await asyncio.sleep(30)
        owner = await owner_of(other, "a")
        assert owner is not None
        assert owner.label == "billing"
    assert await lease.release() is True


@pytest.mark.parametrize("auto_extend", [True, False])
async def test_a_label_lives_as_long_as_a_lease_that_is_given_a_longer_life(rig: Rig, auto_extend: bool) -> None:
    process, other = await rig.process(ttl=1.0, max_ttl=3600, owner="billing"), await rig.process()
    lease = await process.lock("a", auto_extend=auto_extend).acquire()
    await asyncio.sleep(0.5)
    for _ in range(10):
        await lease.extend(600)
        for _ in range(5):
            await asyncio.sleep(100)
            owner = await owner_of(other, "a")
            assert owner is not None
            assert owner.label == "billing"
    assert await lease.release() is True
    await asyncio.sleep(0.01)
    assert rig.servers[0].get(owner_key(b"a")) is None


async def test_what_a_killed_holder_leaves_is_not_taken_for_the_next_one(rig: Rig) -> None:
    killed, other = await rig.process(ttl=2.0, owner="the killed"), await rig.process(ttl=2.0, owner=False)
    await killed.lock("a").acquire()
    await asyncio.sleep(0.5)
    rig.processes.remove(killed)
    for node in killed.nodes:
        node.disconnect()
    lease = await other.lock("a").acquire()
    await asyncio.sleep(1)
    assert await owner_of(await rig.process(), "a") is None
    assert rig.servers[0].get(owner_key(b"a")) is not None
    await lease.release()
    await asyncio.sleep(label_life(2.0))
    assert rig.servers[0].get(owner_key(b"a")) is None
    await killed.redlock.aclose()


async def test_every_name_of_a_lock_has_the_label(rig: Rig) -> None:
    process = await rig.process(owner="both")
    lease = await process.lock("a", "b").acquire()
    await asyncio.sleep(0.3)
    for name in ("a", "b"):
        owner = await owner_of(process, name)
        assert owner is not None
        assert owner.label == "both"
    await lease.release()
    await asyncio.sleep(0.01)
    assert [server.get(owner_key(key)) for server in rig.servers for key in (b"a", b"b")] == [None] * 6


@pytest.mark.parametrize("options", [{"owner": False}, {"fencing": False, "recovery_guard": None}])
async def test_without_labels_nothing_is_written_beside_the_locks(rig: Rig, options: dict[str, Any]) -> None:
    process = await rig.process(**options)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(60)
    assert lease.valid
    assert rig.servers[0].get(owner_key(b"a")) is None
    assert await owner_of(process, "a") is None
    assert await lease.release() is True


def notes(rig: Rig) -> dict[bytes, bytes | None]:
    everywhere = [(key, server.get(key)) for server in rig.servers for key in list(server._keys)]
    return {key_waited_for(key): value for key, value in everywhere if key.startswith(WAITING_KEYS)}


async def test_who_waits_for_long_is_noted_on_one_node_and_for_a_while(rig: Rig) -> None:
    holder, waiter = await rig.process(), await rig.process()
    lease = await holder.lock("a").acquire()
    waiting = [asyncio.create_task(waiter.lock("a").acquire()) for _ in range(3)]
    await asyncio.sleep(0.9)
    assert notes(rig) == {}
    await asyncio.sleep(2.1)
    assert notes(rig) == {b"a": b"3"}
    for task in waiting[1:]:
        task.cancel()
    await asyncio.sleep(30)
    assert notes(rig) == {b"a": b"1"}
    await lease.release()
    await (await waiting[0]).release()
    await asyncio.sleep(13)
    assert notes(rig) == {}


async def test_a_note_costs_one_command_in_five_seconds(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, waiter = await rig.process(), await rig.process()
    lease = await holder.lock("a").acquire()
    executed: list[str] = []
    execute = MemoryServer.execute

    def counted(self: MemoryServer, command: Any, by: Any) -> Any:
        executed.append(command.script.name)
        return execute(self, command, by)

    monkeypatch.setattr(MemoryServer, "execute", counted)
    waiting = asyncio.create_task(waiter.lock("a").acquire())
    await asyncio.sleep(60)
    assert 6 <= executed.count("note") <= 13
    waiting.cancel()
    await asyncio.wait([waiting])
    await lease.release()


async def test_without_labels_no_waiter_is_noted(rig: Rig) -> None:
    waiter = await rig.process(owner=False)
    rig.occupy(b"a")
    waiting = asyncio.create_task(waiter.lock("a").acquire())
    await asyncio.sleep(30)
    assert notes(rig) == {}
    waiting.cancel()
    await asyncio.wait([waiting])


def test_a_label_is_read_as_it_was_written() -> None:
    token = b"0123456789abcdef0123456789abcdef"
    value = pack_owner(token, 17, 1_700_000_000_123, "host:1:two words, ünï")
    assert read_owner(value, token.decode()) == Owner("host:1:two words, ünï", 17, 1_700_000_000.123)
    assert read_owner(value, "f" * 32) is None
    assert read_owner(pack_owner(token, None, 0, "x"), token.decode()) == Owner("x", None, 0.0)
    assert token not in value
    assert len(pack_owner(token, 2**53, 2**42, "x" * 1000)) < MAX_LABEL + 60


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"x",
        b"0123456789abcdef x y z",
        b"0123456789abcdef 1",
        b"0123456789abcdef 1 " + b"9" * 5000 + b" x",
        b"\xff\xff \xff",
    ],
)
def test_what_somebody_else_wrote_there_is_no_label(value: bytes) -> None:
    assert read_owner(value, "0123456789abcdef0123456789abcdef") is None


@pytest.mark.parametrize("owner", ["", "  ", "two\nlines", 7, None, "x" * 201])
def test_what_is_no_label_is_refused(owner: object) -> None:
    with pytest.raises(ConfigurationError, match="owner must"):
        Redlock(["redis://127.0.0.1:1"], owner=owner)  # type: ignore[arg-type]


@pytest.mark.parametrize(("word", "owner"), [("false", False), ("true", True), ("billing-3", "billing-3")])
def test_the_label_from_the_environment(word: str, owner: object) -> None:
    environ = {"AIOREDLOCK_NG_NODES": "redis://127.0.0.1:1", "AIOREDLOCK_NG_OWNER": word}
    assert Redlock.from_env(environ)._options.owner == owner
