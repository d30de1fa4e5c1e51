"""Waits for locks that others hold and end; it prints how late each waiter ran, in seconds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from typing import Any

import redis

from aioredlock_ng import Redlock

_HOLDER = """
import asyncio, sys
from aioredlock_ng import Redlock

async def main():
    redlock = await Redlock(sys.argv[2:], ttl=1.0).open()
    for index in range(int(sys.argv[1])):
        await redlock.lock(f"left:{index}").acquire()
    print("held", flush=True)
    await asyncio.sleep(30)

asyncio.run(main())
"""


def main() -> None:
    """Run each way of ending a lock and print the delays."""
    asyncio.run(_run(json.loads(sys.argv[1])))


async def _run(task: dict[str, Any]) -> None:
    async with Redlock(task["urls"]) as redlock:
        _say({"ready": True})
        await asyncio.to_thread(sys.stdin.readline)
        samples = task["samples"]
        _say(
            {
                "redis-py": await _released_by_redis_py(redlock, task["urls"], samples),
                "redis-cli": await _deleted_by_redis_cli(redlock, task["urls"], samples, task["cli"]),
                "expiry": await _left_by_the_dead(redlock, task["urls"], task["left"]),
            }
        )


async def _waiter(redlock: Redlock, name: str) -> asyncio.Task[float]:
    """Start a waiter and return when it has slept for a while, every node's answer read."""

    async def wait() -> float:
        lease = await redlock.lock(name).acquire()
        got = time.perf_counter()
        await lease.release()
        return got

    attempts = redlock.stats().attempts
    task = asyncio.create_task(wait())
    while redlock.stats().attempts == attempts:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.001)
    while any(node.pending for node in redlock.nodes):  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.001)
    # Longer than the 20 ms in which a wake-up that follows an attempt is taken for one of many.
    await asyncio.sleep(0.03)
    return task


async def _released_by_redis_py(redlock: Redlock, urls: list[str], samples: int) -> list[float]:
    clients = [redis.Redis.from_url(url) for url in urls]
    delays = []
    for number in range(samples):
        name = f"theirs:{number}"
        locks = [client.lock(name, timeout=60, thread_local=False) for client in clients]
        for lock in locks:
            lock.acquire()
        waiting = await _waiter(redlock, name)

        def release(locks: list[Any] = locks) -> float:
            for lock in locks[:2]:
                lock.release()
            # From here on a majority may be free.
            third = time.perf_counter()
            for lock in locks[2:]:
                lock.release()
            return third

        third = await asyncio.to_thread(release)
        delays.append(await waiting - third)
    for client in clients:
        client.close()
    return delays


async def _deleted_by_redis_cli(redlock: Redlock, urls: list[str], samples: int, cli: str) -> list[float]:
    if not cli:
        return []
    clients = [redis.Redis.from_url(url) for url in urls]
    delays = []
    async with contextlib.AsyncExitStack() as stack:
        shells = []
        for url in urls:
            shell = await asyncio.create_subprocess_exec(
                cli, "-u", url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            stack.push_async_callback(_end, shell)
            shells.append(shell)
        for number in range(samples):
            name = f"deleted:{number}"
            for client in clients:
                client.set(name, "somebody", px=60_000)
            waiting = await _waiter(redlock, name)
            began = time.perf_counter()
            for shell in shells:
                assert shell.stdin is not None
                os.write(shell.stdin.get_extra_info("pipe").fileno(), f"DEL {name}\n".encode())
            delays.append(await waiting - began)
            for shell in shells:
                assert shell.stdout is not None
                await shell.stdout.readline()
    for client in clients:
        client.close()
    return delays


async def _end(shell: asyncio.subprocess.Process) -> None:
    assert shell.stdin is not None
    shell.stdin.close()
    await shell.wait()


async def _left_by_the_dead(redlock: Redlock, urls: list[str], count: int) -> list[float]:
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _HOLDER, str(count), *urls, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    await asyncio.wait_for(holder.stdout.readline(), 20)
    names = [f"left:{index}" for index in range(count)]
    waiting = [await _waiter(redlock, name) for name in names]
    holder.send_signal(signal.SIGKILL)
    await holder.wait()
    ends: list[list[float]] = [[] for _ in names]
    for url in urls:
        with redis.Redis.from_url(url) as client:
            for index, name in enumerate(names):
                left = client.pttl(name)
                ends[index].append(time.perf_counter() + max(left, 0) / 1000)
    quorum = len(urls) // 2 + 1
    return [await task - sorted(end)[quorum - 1] for task, end in zip(waiting, ends, strict=True)]


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
