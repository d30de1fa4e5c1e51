"""A program whose `multiprocessing` child ends with a lease acquired without `with`."""

from __future__ import annotations

import asyncio
import atexit
import multiprocessing
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import util
from typing import Any

import aioredlock_ng
import aioredlock_ng.sync

kept: list[Any] = []


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def leave(kind: str, urls: list[str]) -> None:
    """Hold "a", and wait for it once more."""
    if kind == "sync":
        redlock = aioredlock_ng.sync.Redlock(urls, ttl=40.0)
        kept.append(redlock.lock("a").acquire())
        threading.Thread(target=wait, args=(redlock,), daemon=True).start()
        while not redlock.stats().waiting:
            pass
    else:
        asyncio.run(leave_in_loop(urls))
    say("held")


def leave_with_another_default(kind: str, urls: list[str]) -> None:
    """Do the same as `leave` in a child that chooses how its own children start."""
    multiprocessing.set_start_method("spawn", force=True)
    leave(kind, urls)


def wait(redlock: aioredlock_ng.sync.Redlock) -> None:
    with suppress(aioredlock_ng.RedlockClosed):
        redlock.lock("a").acquire()


async def leave_in_loop(urls: list[str]) -> None:
    redlock = await aioredlock_ng.Redlock(urls, thread=True, ttl=40.0).open()
    kept.append(await redlock.lock("a").acquire())
    kept.append(asyncio.ensure_future(redlock.lock("a").acquire()))
    while not redlock.stats().waiting:
        await asyncio.sleep(0)


def leave_a_thread(kind: str, urls: list[str]) -> None:
    """Return while a thread, which is no daemon, works under a lock."""
    redlock, inside, finished = (
        aioredlock_ng.sync.Redlock(urls, ttl=40.0),
        threading.Event(),
        threading.Event(),
    )

    def work() -> None:
        with redlock.lock("a") as lease:
            inside.set()
            assert finished.wait(30)
            lease.check()
        say("held to the end")

    threading.Thread(target=work).start()
    inside.wait(30)
    if sys.version_info >= (3, 13):
        # Python itself waits for the thread first.
        finished.set()
    # The functions of the library have run by then.
    kept.append(util.Finalize(None, finished.set, exitpriority=-1_000_000))


def leave_to_atexit(kind: str, urls: list[str]) -> None:
    """Use a lock in an exit function of the program."""
    redlock = aioredlock_ng.sync.Redlock(urls, ttl=40.0)
    lease = redlock.lock("a").acquire()

    def last() -> None:
        with redlock.lock("b"):
            lease.check()
        say("held in atexit")

    atexit.register(last)


if __name__ == "__main__":
    work, method, kind, urls = sys.argv[1:]
    context: Any = multiprocessing.get_context(method)
    if work == "pool":
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            pool.submit(leave, kind, urls.split(",")).result()
    else:
        # A child of the program's default does not know its own start method.
        if work == "leave_with_another_default":
            multiprocessing.set_start_method(method)
            context = multiprocessing
        child = context.Process(target=globals()[work], args=(kind, urls.split(",")))
        child.start()
        child.join()
        sys.exit(child.exitcode)
