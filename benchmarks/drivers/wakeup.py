"""Wait for locks that end in several ways, and print the delay of the waiter in seconds.

The caller of `main` chooses the client that waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import redis

__all__ = ["Connect", "Wait", "main"]

Wait = Callable[[str], Awaitable[Awaitable[float]]]
Connect = Callable[[list[str]], AbstractAsyncContextManager[Wait]]

# For each name on stdin the program acquires the lock on all nodes, and later releases it. It
# prints the time at which a majority may be free.
_RELEASER = """
import sys, time
import redis

clients = [redis.Redis.from_url(url) for url in sys.argv[1:]]
for name in sys.stdin:
    locks = [client.lock(name.strip(), timeout=60) for client in clients]
    for lock in locks:
        lock.acquire()
    print("held", flush=True)
    sys.stdin.readline()
    for index, lock in enumerate(locks):
        if index == len(locks) // 2:
            third = time.perf_counter()
        lock.release()
    print(third, flush=True)
"""

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


def main(connect: Connect) -> None:
    """Run each way of ending a lock and print the delays.

    Args:
        connect: A context manager of the client for these URLs. It yields a function, which takes
            the name of a held lock and returns once its waiter sleeps. The returned awaitable
            gives the time of `time.perf_counter` at which the waiter ran.
    """
    asyncio.run(_run(json.loads(sys.argv[1]), connect))


async def _run(task: dict[str, Any], connect: Connect) -> None:
    urls, samples = task["urls"], task["samples"]
    async with connect(urls) as wait:
        _say({"ready": True})
        await asyncio.to_thread(sys.stdin.readline)
        figures = {
            "redis-py": await _released_by_redis_py(wait, urls, samples),
            "redis-cli": await _deleted_by_redis_cli(wait, urls, samples, task["cli"]),
        }
        if task["left"]:
            figures["expiry"] = await _left_by_the_dead(wait, urls, task["left"])
        _say(figures)


async def _released_by_redis_py(wait: Wait, urls: list[str], samples: int) -> list[float]:
    """Return the delays after releases by redis-py's Lock in another process.

    In this process redis-py would compete with the waiter for the interpreter.
    """
    async with contextlib.AsyncExitStack() as stack:
        theirs = await _started(stack, sys.executable, "-c", _RELEASER, *urls)
        delays = []
        for number in range(samples):
            await _answer(theirs, name := f"theirs:{number}")
            waiting = await wait(name)
            released = float(await _answer(theirs, "release"))
            delays.append(await waiting - released)
        return delays


async def _deleted_by_redis_cli(wait: Wait, urls: list[str], samples: int, cli: str) -> list[float]:
    if not cli:
        return []
    clients = [redis.Redis.from_url(url) for url in urls]
    delays = []
    async with contextlib.AsyncExitStack() as stack:
        shells = [await _started(stack, cli, "-u", url) for url in urls]
        minority, others = shells[: len(urls) // 2], shells[len(urls) // 2 :]
        for number in range(samples):
            name = f"deleted:{number}"
            for client in clients:
                client.set(name, "somebody", px=60_000)
            waiting = await wait(name)
            for shell in minority:
                await _answer(shell, f"DEL {name}")
            # From here on a majority may be free.
            began = time.perf_counter()
            for shell in others:
                _type(shell, f"DEL {name}")
            delays.append(await waiting - began)
            for shell in others:
                assert shell.stdout is not None
                await shell.stdout.readline()
    for client in clients:
        client.close()
    return delays


async def _started(stack: contextlib.AsyncExitStack, *command: str) -> asyncio.subprocess.Process:
    """Start a process that answers each line with a line. The process ends with the stack."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    stack.push_async_callback(_end, process)
    return process


def _type(process: asyncio.subprocess.Process, line: str) -> None:
    """Write a line at once, without waiting for the event loop."""
    assert process.stdin is not None
    os.write(process.stdin.get_extra_info("pipe").fileno(), f"{line}\n".encode())


async def _answer(process: asyncio.subprocess.Process, line: str) -> bytes:
    _type(process, line)
    assert process.stdout is not None
    return await process.stdout.readline()


async def _end(shell: asyncio.subprocess.Process) -> None:
    assert shell.stdin is not None
    shell.stdin.close()
    await shell.wait()


async def _left_by_the_dead(wait: Wait, urls: list[str], count: int) -> list[float]:
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _HOLDER, str(count), *urls, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    await asyncio.wait_for(holder.stdout.readline(), 20)
    names = [f"left:{index}" for index in range(count)]
    waiting = [await wait(name) for name in names]
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
