"""While old and new processes run side by side, one of them has the lock: real libraries against ours, on real servers."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import Redlock
from aioredlock_ng.compat.aioredlock import LockAcquiringError
from benchmarks.clients import ALL, PYTHON_REDIS_LOCK
from benchmarks.environments import ROOT, python_with
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioredlock_ng.compat.aioredlock import Aioredlock
    from tests.support.node_set import NodeSet

# The first of them may make an environment, from PyPI.
pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("peer.py")
REQUIREMENTS = {client.name: client.requirements for client in (*ALL, PYTHON_REDIS_LOCK)} | {
    "redlock-py": ("redlock-py==1.0.8", "redis==8.1.0", "hiredis==3.5.0")
}


@dataclass(frozen=True)
class Way:
    """How ours is set up beside one library: the key of a name, and whether all three nodes are in it or the first only."""

    library: str
    key_format: str = "{name}"
    nodes: int = 3

    def key(self, name: str) -> str:
        return self.key_format.format(name=name)


# docs/migrating.md says the same.
WAYS = [
    Way("aioredlock"),
    Way("redis-py", nodes=1),
    Way("pottery", key_format="redlock:{name}"),
    Way("redlock-ng"),
    Way("redlock-py"),
    Way("python-redis-lock", key_format="lock:{name}", nodes=1),
]


def python_of(library: str) -> Path:
    """Return the interpreter of its environment; one process at a time makes what is missing."""
    folder = ROOT / ".cache"
    folder.mkdir(exist_ok=True)
    with (folder / "peers.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return python_with(library, REQUIREMENTS[library])


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
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(python, PROGRAM, library, *urls, stdin=pipe, stdout=pipe, env=variables)
    try:
        yield Old(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.library)
async def test_old_and_new_exclude_each_other(way: Way, three_nodes: NodeSet) -> None:
    urls = three_nodes.urls[: way.nodes]
    async with old_process(way.library, urls) as old, Redlock(urls, key_format=way.key_format) as redlock:
        once, waits = redlock.lock("order", blocking_timeout=0), redlock.lock("order", blocking_timeout=20)

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
        assert await old.acquire("order", ttl=1.0)
    lock = await manager.lock("order")
    assert lock.valid
    await manager.unlock(lock)
