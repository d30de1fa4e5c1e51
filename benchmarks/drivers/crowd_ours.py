"""Fork many processes that want one lock, start them at the same time, and end them all.

The task has `urls`, `processes`, `coroutines` (waiters of each process), `ttl` and `phase` (see
`line.py`). With `limit` the processes use a semaphore instead of a lock. With `alone` each process
uses an `asyncio.Lock` or an `asyncio.Semaphore` instead of the library.

Every process prints one line when it is ready, and one line with its figures. A line on stdin
starts all processes. The end of stdin kills the remaining processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import hiredis
from line import Line

_DIE_WITH_PARENT = 1


class Counted(hiredis.Reader):
    """Count the replies and pushes of the whole process. Each command has one reply."""

    replies = 0
    pushes = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._none_yet = options.get("notEnoughData", False)

    def gets(self, *args: Any) -> Any:
        reply = super().gets(*args)
        if reply is not self._none_yet:
            if type(reply) is hiredis.PushNotification:
                Counted.pushes += 1
            else:
                Counted.replies += 1
        return reply


class Client:
    """Acquire and release leases of one open manager."""

    def __init__(self, redlock: Any, limit: int = 0) -> None:
        self._redlock = redlock
        self._limit = limit

    def acquire(self, key: str) -> Any:
        if self._limit:
            return self._redlock.semaphore(key, self._limit).acquire()
        return self._redlock.lock(key).acquire()

    def release(self, lease: Any) -> Any:
        return lease.release()

    def counted(self) -> dict[str, int]:
        """Return the counts of this process since its start."""
        stats = self._redlock.stats()
        return {
            "leases": stats.acquired,
            "attempts": stats.attempts,
            "replies": Counted.replies,
            "pushes": Counted.pushes,
        }

    async def close(self) -> None:
        await self._redlock.aclose()


class Alone:
    """An `asyncio.Lock`, or an `asyncio.Semaphore` with a limit, without any nodes."""

    def __init__(self, limit: int = 0) -> None:
        self._lock = asyncio.Semaphore(limit) if limit else asyncio.Lock()

    def acquire(self, key: str) -> Any:
        return self._lock.acquire()

    async def release(self, handle: object) -> None:
        self._lock.release()

    def counted(self) -> dict[str, int]:
        return {}

    async def close(self) -> None:
        """Do nothing, because there are no connections."""


class Crowd(Line):
    """A line that counts its costs from the opening of its window to the closing."""

    def opens(self) -> None:
        self._before = self.client.counted()

    def closes(self) -> None:
        self.counted = {
            name: count - self._before[name] for name, count in self.client.counted().items()
        }


async def _work(task: dict[str, Any], index: int, gate: int) -> None:
    client = await _connected(task)
    _say({"ready": True, "index": index, "pid": os.getpid(), "library": str(_home(task))})
    loop = asyncio.get_running_loop()
    begin = asyncio.Event()
    # Nothing is written to this pipe. Its end reaches all processes at the same time.
    loop.add_reader(gate, begin.set)
    await begin.wait()
    loop.remove_reader(gate)
    crowd = Crowd(client, task["coroutines"], task["phase"])
    figures = await crowd.run()
    _say({"index": index, "pid": os.getpid()} | figures | crowd.counted)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(client.close(), 1.0)


async def _connected(task: dict[str, Any]) -> Any:
    if task.get("alone"):
        return Alone(task["limit"] // task["processes"])
    from aioredlock_ng import Redlock

    redlock = await Redlock(task["urls"], ttl=task["ttl"]).open()
    # The first acquisition creates connections and scripts, which must not count.
    async with redlock.lock(f"own:{os.getpid()}"):
        pass
    return Client(redlock, task.get("limit", 0))


def _home(task: dict[str, Any]) -> Path:
    if task.get("alone"):
        return Path()
    import aioredlock_ng

    return Path(aioredlock_ng.__file__).parents[1]


def _say(line: dict[str, Any]) -> None:
    # The processes share the pipe, so each line must be a single write.
    os.write(1, (json.dumps(line) + "\n").encode())


def _child(task: dict[str, Any], index: int, gate: int, parent: int) -> None:
    """Run one process of the crowd. This function never returns."""
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        # The parent may have ended before the call of prctl.
        if os.getppid() == parent:
            asyncio.run(_work(task, index, gate))
    except BaseException as error:
        _say({"index": index, "failed": f"{type(error).__name__}: {error}"[:300]})
    finally:
        os._exit(0)


def main() -> None:
    """Fork the processes, start them, and kill the remaining ones at the end."""
    task = json.loads(sys.argv[1])
    # The library is imported once for all processes. The reader must be replaced before.
    hiredis.Reader = Counted  # type: ignore[misc]
    _home(task)
    gate, opener = os.pipe()
    parent = os.getpid()
    children: list[int] = []
    try:
        for index in range(task["processes"]):
            child = os.fork()
            if not child:
                os.close(opener)
                _child(task, index, gate, parent)
            children.append(child)
        if sys.stdin.readline():
            os.close(opener)
            sys.stdin.readline()
    finally:
        for child in children:
            # The process was not waited for, so its id is still valid. SIGKILL ends a stopped
            # process too.
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)


if __name__ == "__main__":
    main()
