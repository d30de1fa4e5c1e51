"""One client process: takes locks, changes what they protect, and writes down what it saw; told by lines on stdin.

"drain": stop, releasing everything, and answer "drained" on stdout; "go": work on. The end of stdin ends it in good order.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..history import History, now
from .body import Body
from .port import NotGot
from .registers import PlainRegisters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .port import Client, Hold, How

__all__ = ["Worker", "main"]

_TICK_SECONDS: Final = 0.05
_STALL_SECONDS: Final = 0.1
"""A loop that comes round so late stood still, by the machine's doing or the nemesis's."""

WAIT_SECONDS: Final = 20.0
"""How long an acquisition waits at most: whoever waits so long for short holds while a majority is well was forgotten."""


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
        self._history.write("start", p=task["name"], pid=os.getpid(), kind=task["kind"], ttl=task["ttl"], of=task["number"])
        await self._client.open(task)
        watching = asyncio.create_task(self._watch())
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
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
        plans = {"quick": self._quick, "long": self._long, "careless": self._careless}
        self._jobs = [asyncio.create_task(self._job(plans[kind])) for kind in plans for _ in range(task[kind])]

    async def _job(self, plan: Callable[[], Awaitable[None]]) -> None:
        """An error that nobody expected is for the checker, and ends this job alone."""
        try:
            await plan()
        except Exception as error:
            self._history.write("error", why=repr(error), where=traceback.format_exc()[-1500:])

    async def _drain(self) -> None:
        """End every job, wherever it is: whoever waits gives up, whoever holds releases.

        Not by cancelling alone: redis-py, by which the fenced register is asked, swallows some cancellations.
        """
        self._working = False
        while self._jobs:
            for job in self._jobs:
                job.cancel()
            _, pending = await asyncio.wait(self._jobs, timeout=1.0)
            self._jobs = list(pending)

    async def _quick(self) -> None:
        """Many short holds: most of them alone on their name, some in a crowd, some on several names."""
        draw, pools = self._draw, self._task["pools"]
        while self._working:
            luck = draw.random()
            names = [draw.choice(pools["hot"] if luck < 0.06 else pools["quick"])]
            if luck > 0.93 and self._task["several"]:
                names = draw.sample(pools["quick"], draw.choice((2, 2, 3)))
            how: How = draw.choice(("with", "with", "flag", "try"))
            give_up = draw.random() * 0.006 if draw.random() < 0.03 else None
            seconds, fenced = draw.choice((0.0, 0.0, 0.002, 0.01)), draw.random() < 0.5
            await self._hold(names, how, seconds, give_up=give_up, fenced=fenced)
            await asyncio.sleep(draw.expovariate(1 / self._task["idle"]))

    async def _long(self) -> None:
        """Holds that live by renewal, and are told when they are lost."""
        draw, pools = self._draw, self._task["pools"]
        while self._working:
            # Those of the careless too: somebody must be there when they come late.
            pool = pools["careless" if draw.random() < 0.3 else "long"]
            seconds = draw.choice((0.4, 0.8, 1.5, 3.0)) * self._task["ttl"] / 1.5
            await self._hold([draw.choice(pool)], draw.choice(("with", "flag")), seconds, told=True)
            await asyncio.sleep(draw.random() * 0.05)

    async def _careless(self) -> None:
        """Reads, computes without ever yielding to the event loop, and writes without looking at the lock again."""
        draw, pool = self._draw, self._task["pools"]["careless"]
        while self._working:
            await self._hold([draw.choice(pool)], "flag", draw.uniform(0.05, 0.15), careless=True)
            await asyncio.sleep(draw.random() * 0.01)

    async def _hold(
        self,
        names: list[str],
        how: How,
        seconds: float,
        *,
        careless: bool = False,
        told: bool = False,
        fenced: bool = True,
        give_up: float | None = None,
    ) -> None:
        """One acquisition from the asking to its end, written down."""
        asked, body = now(), Body(self, names, seconds, careless=careless, told=told, fenced=fenced)
        try:
            async with asyncio.timeout(give_up) as limit:

                async def entered(hold: Hold) -> None:
                    if give_up is not None:
                        limit.reschedule(None)
                    await body.run(hold, asked, how)

                if not await self._client.hold(names, how, WAIT_SECONDS, entered) and not body.lost:
                    self._history.write("gone", i=body.number)
        except NotGot as error:
            self._history.write("fail", a=asked, n=names, w=how, why=error.why, v=error.votes)
        except TimeoutError:
            self._history.write("cut", a=asked, n=names, w=how, g=give_up)
        except asyncio.CancelledError:
            if not body.number:
                # At the end of a job, which may be long after it should have had its answer.
                self._history.write("cut", a=asked, n=names, w=how)
            raise

    async def _watch(self) -> None:
        """Write down when this process stood still, seen from inside, and for how much of it it computed."""
        before, worked = time.monotonic(), time.process_time_ns()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            after, works = time.monotonic(), time.process_time_ns()
            if after - before > _TICK_SECONDS + _STALL_SECONDS:
                self._history.write("stall", s=now() - int((after - before) * 1e9), c=works - worked)
            before, worked = after, works

    def next_write(self) -> int:
        """An id that no write of the run has or will have."""
        self._writes += 1
        process: int = self._task["number"]
        return (process << 40) | self._writes

    def next_number(self) -> int:
        """The next hold's number within this process."""
        self._number += 1
        return self._number

    @property
    def history(self) -> History:
        """This process's."""
        return self._history

    @property
    def client(self) -> Client:
        """This process's."""
        return self._client

    def read(self, name: str) -> int:
        """Read the plain register of a name."""
        return self._plain.read(self._index[name])

    def write(self, name: str, value: int) -> None:
        """Write it."""
        self._plain.write(self._index[name], value)

    def _say(self, word: str) -> None:
        sys.stdout.write(word + "\n")
        sys.stdout.flush()


def main(task: dict[str, Any]) -> None:
    """Run one process."""
    os.nice(task["nice"])
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(Worker(task).run())
