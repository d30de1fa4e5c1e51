"""One client process: it takes locks, changes the registers that they protect, and records that.

Lines on stdin control it. "drain": release all locks, rest, and answer "drained" on stdout. "go":
work again. It ends when stdin ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..history import History, now
from .body import Body
from .port import NotGot, Wish
from .registers import PlainRegisters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .port import Client, Hold, How

__all__ = ["Worker", "main"]

_TICK_SECONDS: Final = 0.05
_STALL_SECONDS: Final = 0.1
"""Seconds. A tick that comes later by so much means a standstill of the loop."""


class Worker:
    """The coroutines of one process.

    Args:
        task: See `crew.Crew`.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        self._task = task
        self._draw = random.Random(task["seed"])
        self._history = History(Path(task["history"]))
        self._plain = PlainRegisters(Path(task["registers"]))
        self._index = {name: index for index, name in enumerate(task["names"])}
        self._client: Client = importlib.import_module(f".{task['kind']}", __package__).make()
        self._writes = self._number = 0
        self._jobs: list[asyncio.Task[None]] = []
        self._working = False

    async def run(self) -> None:
        """Work until stdin ends."""
        task = self._task
        self._history.write(
            "start",
            p=task["name"],
            pid=os.getpid(),
            kind=task["kind"],
            ttl=task["ttl"],
            of=task["number"],
        )
        await self._client.open(task)
        watching = asyncio.create_task(self._watch())
        if task["thread"]:
            threading.Thread(target=self._watch_process, daemon=True).start()
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        self._say("ready")
        self._history.write("open")
        self._begin()
        while line := await lines.readline():
            if line == b"drain\n":
                await self._drain()
                self._history.write("drained")
                self._say("drained")
            else:
                self._begin()
        await self._drain()
        await self._client.close()
        watching.cancel()
        self._history.write("closed")

    def _begin(self) -> None:
        task = self._task
        self._working = True
        plans = {
            "quick": self._quick,
            "long": self._long,
            "careless": self._careless,
            "seat": self._seat,
            "once": self._once,
            "fair": self._fair,
            "chair": self._chair,
            "page": self._page,
            "blocking": self._blocking,
        }
        self._jobs = [
            asyncio.create_task(self._job(plan))
            for kind, plan in plans.items()
            for _ in range(task[kind])
        ]

    async def _job(self, plan: Callable[[], Awaitable[None]]) -> None:
        """Run a job. Record an unexpected error for the checker; it ends this job alone."""
        try:
            await plan()
        except Exception as error:
            self._history.write("error", why=repr(error), where=traceback.format_exc()[-1500:])

    async def _drain(self) -> None:
        """Cancel every job, so that it stops waiting, or releases its locks.

        It cancels more than once, because redis-py swallows some cancellations.
        """
        self._working = False
        while self._jobs:
            for job in self._jobs:
                job.cancel()
            _, pending = await asyncio.wait(self._jobs, timeout=1.0)
            self._jobs = list(pending)

    async def _quick(self) -> None:
        """Take many short locks: most without rivals, some in a crowd, some with several names."""
        draw, pools = self._draw, self._task["pools"]
        while self._working:
            luck = draw.random()
            names = [draw.choice(pools["hot"] if luck < 0.06 else pools["quick"])]
            if 0.06 < luck < 0.08 and self._task["several"]:
                # A lock is a writer too.
                names = [draw.choice(pools["page"])]
            if luck > 0.92 and self._task["several"]:
                names = draw.sample(pools["quick"], draw.choice((2, 2, 3)))
                if luck > 0.99:
                    names[0] = draw.choice(pools["page"])
                elif luck > 0.98:
                    # A slot of a semaphore is a lock like any other.
                    names[0] = self._slot_of(draw.choice(pools["seat"]))
            how: How = draw.choice(("with", "with", "flag", "try"))
            give_up = draw.random() * 0.006 if draw.random() < 0.03 else None
            seconds, fenced = draw.choice((0.0, 0.0, 0.002, 0.01)), draw.random() < 0.5
            await self._hold(Wish(tuple(names), how), seconds, give_up=give_up, fenced=fenced)
            await asyncio.sleep(draw.expovariate(1 / self._task["idle"]))

    async def _long(self) -> None:
        """Take locks that live by renewal, and listen for their loss."""
        draw, pools = self._draw, self._task["pools"]
        while self._working:
            # The names of careless holders too. A late write needs another holder meanwhile.
            pool = pools["careless" if draw.random() < 0.3 else "long"]
            seconds = draw.choice((0.4, 0.8, 1.5, 3.0)) * self._task["ttl"] / 1.5
            how: How = draw.choice(("with", "flag"))
            await self._hold(Wish((draw.choice(pool),), how), seconds, told=True)
            await asyncio.sleep(draw.random() * 0.05)

    async def _careless(self) -> None:
        """Take locks, block the event loop, and write without a check of the lease."""
        draw, pools = self._draw, self._task["pools"]
        while self._working:
            wish = Wish((draw.choice(pools["careless"]),), "flag")
            if self._task["several"] and draw.random() < 0.1:
                wish = Wish((draw.choice(pools["page"]),), "flag", kind="write")
            await self._hold(wish, draw.uniform(0.05, 0.15), careless=True)
            await asyncio.sleep(draw.random() * 0.01)

    async def _blocking(self) -> None:
        """Take locks and block the event loop, some for longer than a ttl. A thread renews them."""
        draw, pool = self._draw, self._task["pools"]["long"]
        while self._working:
            seconds = draw.uniform(0.5, 1.5) * self._task["ttl"]
            await self._hold(Wish((draw.choice(pool),), "flag"), seconds, careless=True)
            await asyncio.sleep(draw.uniform(0.5, 2.0))

    async def _seat(self) -> None:
        """Take slots of semaphores, with different limits side by side, some for long."""
        draw, pool, ttl = self._draw, self._task["pools"]["seat"], self._task["ttl"]
        while self._working:
            long = draw.random() < 0.15
            seconds = (
                draw.choice((0.3, 0.6, 1.5)) * ttl if long else draw.choice((0.0, 0.002, 0.01))
            )
            wish = Wish(
                (draw.choice(pool),),
                draw.choice(("with", "with", "flag", "try")),
                kind="semaphore",
                limit=draw.choice((1, 2, 3, 3, 3, self._task["limit"])),
                min_hold=draw.choice((0.1, 0.4)) * ttl if draw.random() < 0.1 else 0.0,
                fair=draw.random() < 0.1,
            )
            give_up = draw.random() * 0.01 if draw.random() < 0.05 else None
            await self._hold(wish, seconds, told=long, give_up=give_up)
            await asyncio.sleep(draw.expovariate(1 / self._task["idle"]))

    async def _page(self) -> None:
        """Read often and write seldom, some for long. Some writers become readers."""
        draw, pool, ttl = self._draw, self._task["pools"]["page"], self._task["ttl"]
        while self._working:
            reads = draw.random() < 0.7
            long = draw.random() < 0.03
            seconds = (
                draw.choice((0.3, 0.6, 1.2)) * ttl if long else draw.choice((0.0, 0.002, 0.01))
            )
            wish = Wish(
                (draw.choice(pool),),
                draw.choice(("with", "with", "flag", "try")),
                kind="read" if reads else "write",
                downgrade=not reads and draw.random() < 0.4,
            )
            give_up = draw.random() * 0.01 if draw.random() < 0.05 else None
            await self._hold(wish, seconds, told=long, give_up=give_up, fenced=draw.random() < 0.5)
            await asyncio.sleep(draw.expovariate(1 / self._task["idle"]))

    async def _once(self) -> None:
        """Take locks with a `min_hold`, and plain locks of the same names."""
        draw, pool, ttl = self._draw, self._task["pools"]["once"], self._task["ttl"]
        while self._working:
            names = [draw.choice(pool)]
            if draw.random() < 0.1:
                names.append(draw.choice(self._task["pools"]["quick"]))
            wish = Wish(
                tuple(names),
                draw.choice(("try", "try", "with", "flag")),
                min_hold=draw.choice((0.0, 0.0, 0.1, 0.4, self._task["min_hold"] / ttl)) * ttl,
                fair=draw.random() < 0.2,
            )
            seconds = draw.choice((0.0, 0.0, 0.01, 0.1 * ttl, 0.6 * ttl))
            give_up = draw.random() * 0.01 if draw.random() < 0.05 else None
            await self._hold(wish, seconds, told=seconds > 0.1, give_up=give_up)
            await asyncio.sleep(draw.random() * 0.2)

    async def _fair(self) -> None:
        """Take locks of names that all tasks ask for with `fair=True`."""
        draw, pool = self._draw, self._task["pools"]["fair"]
        while self._working:
            wish = Wish((draw.choice(pool),), draw.choice(("with", "flag")), fair=True)
            await self._hold(wish, draw.choice((0.0, 0.002, 0.01, 0.05)))
            await asyncio.sleep(draw.random() * 0.05)

    async def _chair(self) -> None:
        """Stand in elections, with bodies that end by themselves or are cancelled."""
        draw, pool, ttl = self._draw, self._task["pools"]["chair"], self._task["ttl"]
        while self._working:
            wish = Wish(
                (draw.choice(pool),),
                draw.choice(("with", "run")),
                kind="election",
                rejoin=draw.random() < 0.5,
            )
            await self._hold(wish, draw.choice((0.0, 0.05, 0.3, 0.8, 1.6)) * ttl, told=True)
            await asyncio.sleep(draw.random() * 0.2)

    def _slot_of(self, semaphore: str) -> str:
        return f"{semaphore}#{self._draw.randint(1, 3)}"

    async def _hold(
        self, wish: Wish, seconds: float, *, give_up: float | None = None, **how: bool
    ) -> None:
        """Record one acquisition, from the call to its end."""
        asked, body = now(), Body(self, wish, seconds, **how)
        # If the process is killed, the checker knows from this line what it asked for.
        self._history.write("ask", at=asked, **wish.about())
        try:
            async with asyncio.timeout(give_up) as limit:

                async def entered(hold: Hold) -> None:
                    nonlocal asked, body
                    if body.number:
                        body = Body(self, wish, seconds, **how)
                    if give_up is not None:
                        limit.reschedule(None)
                    try:
                        await body.run(hold, asked)
                    finally:
                        # A candidate that lost its term stands again.
                        asked = now()

                if not await self._client.hold(wish, entered) and not body.lost:
                    self._history.write("gone", i=body.number)
                if not body.number:
                    # A candidate may resign, or lose its lease, before its body begins.
                    self._history.write("cut", a=asked, **wish.about())
        except NotGot as error:
            # A single attempt does not wait.
            wait = {} if wish.how == "try" else {"wait": wish.wait}
            about = wish.about() | wait
            self._history.write("fail", a=asked, why=error.why, v=error.votes, **about)
        except TimeoutError:
            self._history.write("cut", a=asked, g=give_up, **wish.about())
        except asyncio.CancelledError:
            if not body.number:
                # At the end of a job, which may be long after it should have had its answer.
                self._history.write("cut", a=asked, **wish.about())
            raise

    async def _watch(self) -> None:
        """Record when the event loop stood still, and how long the process computed meanwhile.

        An engine on this loop stood still too. An engine in a thread of its own did not.
        """
        word = "blocked" if self._task["thread"] else "stall"
        before, worked = time.monotonic(), time.process_time_ns()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            after, works = time.monotonic(), time.process_time_ns()
            if after - before > _TICK_SECONDS + _STALL_SECONDS:
                self._history.write(word, s=now() - int((after - before) * 1e9), c=works - worked)
            before, worked = after, works

    def _watch_process(self) -> None:
        """Record when the whole process stood still, and with it the thread of the engine."""
        before, worked = time.monotonic(), time.process_time_ns()
        while True:
            time.sleep(_TICK_SECONDS)
            after, works = time.monotonic(), time.process_time_ns()
            if after - before > _TICK_SECONDS + _STALL_SECONDS:
                self._history.write(
                    "stall", s=now() - int((after - before) * 1e9), c=works - worked
                )
            before, worked = after, works

    def next_write(self) -> int:
        """Return an id that no other write of the run has."""
        self._writes += 1
        process: int = self._task["number"]
        return (process << 40) | self._writes

    def next_number(self) -> int:
        """Return the number of the next hold within this process."""
        self._number += 1
        return self._number

    @property
    def working(self) -> bool:
        """False once the process is to rest."""
        return self._working

    @property
    def history(self) -> History:
        """The history of this process."""
        return self._history

    @property
    def client(self) -> Client:
        """The lock library of this process."""
        return self._client

    def read(self, name: str) -> int:
        """Read the plain register of a name."""
        return self._plain.read(self._index[name])

    def write(self, name: str, value: int) -> None:
        """Write the plain register of a name."""
        self._plain.write(self._index[name], value)

    def _say(self, word: str) -> None:
        sys.stdout.write(word + "\n")
        sys.stdout.flush()


def main(task: dict[str, Any]) -> None:
    """Run one process."""
    os.nice(task["nice"])
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(Worker(task).run())
