"""While old and new processes run side by side, one of them has the lock: real libraries against
ours, on real servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import Redlock
from aioredlock_ng.compat.aioredlock import Lock, LockAcquiringError
from benchmarks.environments import ROOT
from tests.compat.environments import python_of, variables
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioredlock_ng.compat.aioredlock import Aioredlock
    from tests.support.node_set import NodeSet

# The first of them may make an environment, from PyPI.
pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("peer.py")


@dataclass(frozen=True)
class Way:
    """How ours is set up beside one library: the key of a name, and whether all three nodes are in
    it or the first only.
    """

    library: str
    key_format: str = "{name}"
    nodes: int = 3

    def key(self, name: str) -> str:
        return self.key_format.format(name=name)


WAYS = [
    Way("aioredlock"),
    Way("redis-py", nodes=1),
    Way("pottery", key_format="redlock:{name}"),
    Way("redlock-ng"),
    Way("redlock-py"),
    Way("python-redis-lock", key_format="lock:{name}", nodes=1),
]


def test_the_page_names_the_key_and_the_key_format_of_each_library() -> None:
    page = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
    for way in WAYS:
        key, key_format = re.escape(way.key("order:42")), re.escape(way.key_format)
        row = rf"^\| {way.library}\b[^|]* \| `{key}` \| `\"{key_format}\"`[^|]* \|"
        found = re.search(rf"{row} {'one' if way.nodes == 1 else 'N'} \|", page, re.MULTILINE)
        assert found, row


class Old:
    """A process of the old kind."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def acquire(self, name: str, ttl: float = 30.0) -> bool:
        return bool(await self._asked(do="acquire", name=name, ttl=ttl))

    async def release(self) -> None:
        await self._asked(do="release")

    async def value(self) -> str:
        return str(await self._asked(do="value"))

    async def count(self, name: str, file: Path, seconds: float) -> int:
        return int(await self._asked(do="count", name=name, file=str(file), seconds=seconds))

    async def _asked(self, **task: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(task).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), 30)
        assert line, "it has ended; see its error output"
        return json.loads(line)


@contextlib.asynccontextmanager
async def old_process(library: str, urls: list[str]) -> AsyncIterator[Old]:
    python = await asyncio.to_thread(python_of, library)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        python, PROGRAM, library, *urls, stdin=pipe, stdout=pipe, env=variables()
    )
    try:
        yield Old(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.library)
async def test_the_old_and_the_new_library_exclude_each_other(
    way: Way, three_nodes: NodeSet
) -> None:
    urls = three_nodes.urls[: way.nodes]
    async with (
        old_process(way.library, urls) as old,
        Redlock(urls, key_format=way.key_format, node_timeout=3.0) as redlock,
    ):
        once, waits = (
            redlock.lock("order", blocking_timeout=0),
            redlock.lock("order", blocking_timeout=20),
        )

        assert await old.acquire("order")
        assert (await redlock.inspect("order")).token == await old.value()
        assert await once.try_acquire() is None
        await old.release()

        lease = await once.acquire()
        assert not await old.acquire("order")
        assert three_nodes[0].command("GET", way.key("order")).decode() == lease.token
        await lease.release()

        assert await old.acquire("order")
        waiting = asyncio.create_task(waits.acquire())
        await eventually(lambda: redlock.stats().waiting == 1 and redlock.stats().refused >= 2)
        await old.release()
        lease = await waiting
        assert not await old.acquire("order")
        await lease.release()
        assert await old.acquire("order")
        await old.release()
        assert not await redlock.locked("order")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.library)
async def test_no_count_is_lost_between_old_and_new(
    way: Way, three_nodes: NodeSet, tmp_path: Path, manager_of: Callable[..., Aioredlock]
) -> None:
    """A counter that is read, and written a little later: two at the same time lose a count."""
    urls, file, counted, old_is_done = (
        three_nodes.urls[: way.nodes],
        tmp_path / "counter",
        [0, 0],
        asyncio.Event(),
    )
    file.write_text("0")
    patient = manager_of(
        three_nodes.urls, retry_count=1000, retry_delay_min=1.0, retry_delay_max=1.0
    )

    async def once(index: int) -> None:
        before = int(file.read_text())
        await asyncio.sleep(0.001)
        file.write_text(str(before + 1))
        counted[index] += 1

    async def let_those_in_who_poll() -> None:
        await asyncio.sleep(0.005)

    async def by_redlock() -> None:
        while not old_is_done.is_set():
            async with redlock.lock("order", ttl=30):
                await once(0)
            await let_those_in_who_poll()

    async def by_the_changed_import() -> None:
        while not old_is_done.is_set():
            async with await patient.lock("order"):
                await once(1)
            await let_those_in_who_poll()

    async with (
        old_process(way.library, urls) as old,
        Redlock(urls, key_format=way.key_format, node_timeout=3.0) as redlock,
        asyncio.TaskGroup() as tasks,
    ):
        for _ in range(2):
            tasks.create_task(by_redlock())
        if way.library == "aioredlock":
            tasks.create_task(by_the_changed_import())
        old_counted = await old.count("order", file, 1.5)
        old_is_done.set()
    assert old_counted > 0
    assert counted[0] > 0
    assert (counted[1] > 0) == (way.library == "aioredlock")
    assert int(file.read_text()) == old_counted + sum(counted)


async def test_the_changed_import_and_aioredlock_exclude_each_other(
    three_nodes: NodeSet, manager_of: Callable[..., Aioredlock]
) -> None:
    manager = manager_of(three_nodes.urls, retry_count=1)
    async with old_process("aioredlock", three_nodes.urls) as old:
        assert await old.acquire("order")
        with pytest.raises(LockAcquiringError):
            await manager.lock("order")
        assert await manager.is_locked("order")
        found = await manager.get_lock("order", await old.value())
        assert found.valid
        await manager.extend(found, 60)
        assert int(three_nodes[0].command("PTTL", "order")) > 50_000
        await manager.unlock(Lock(manager, "order", await old.value()))
        assert not await manager.is_locked("order")

        assert await old.acquire("order")
        await old.release()

        for timeout in (None, 30.0):
            lock = await manager.lock("order", lock_timeout=timeout)
            assert not await old.acquire("order")
            await lock.extend()
            assert not await old.acquire("order")
            assert lock.valid
            await manager.unlock(lock)

        assert await old.acquire("order")
        patient = manager_of(three_nodes.urls, retry_count=100)
        assert await patient.is_locked("order")
        stats = patient._access._redlock.stats
        waiting = asyncio.create_task(patient.lock("order"))
        await eventually(lambda: stats().waiting == 1 and stats().refused)
        await old.release()
        lock = await waiting
        assert not await old.acquire("order")
        await manager.unlock(lock)
        await lock.release()
        assert await old.acquire("order")
        await old.release()


async def test_an_old_process_that_dies_lets_the_new_one_in_when_its_time_is_over(
    three_nodes: NodeSet, manager_of: Callable[..., Aioredlock]
) -> None:
    manager = manager_of(three_nodes.urls, retry_count=100)
    async with old_process("aioredlock", three_nodes.urls) as old:
        assert await old.acquire("order", ttl=5.0)
    lock = await manager.lock("order")
    assert lock.valid
    await manager.unlock(lock)
