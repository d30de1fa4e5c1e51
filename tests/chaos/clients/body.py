"""What one holder does while it has the lock, and what it writes down of it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from ..history import now

if TYPE_CHECKING:
    from .port import Hold, How
    from .worker import Worker

__all__ = ["Body"]

_SAYS_SECONDS: Final = 0.25


class Body:
    """What one holder does: reads the plain and mostly the fenced register of each name, thinks, writes them."""

    def __init__(self, worker: Worker, names: list[str], seconds: float, *, careless: bool, told: bool, fenced: bool) -> None:
        self._worker = worker
        self._names = names
        self._seconds = seconds
        self._careless = careless
        self._told = told
        self._fenced = fenced
        self.number = 0
        self.lost = False

    async def run(self, hold: Hold, asked: int, how: How) -> None:
        """Between acquire and release."""
        history = self._worker.history
        self.number = number = self._worker.next_number()
        about: dict[str, Any] = {"f": hold.fence, "v": hold.votes, "k": hold.token}
        history.write("got", i=number, a=asked, n=self._names, w=how, d=hold.deadline(), **about)
        listening = asyncio.create_task(self._listen(hold)) if self._told and how != "with" else None
        plain: list[list[Any]] = []
        fenced: list[list[Any]] = []
        try:
            await self._work(hold, plain, fenced)
        except asyncio.CancelledError:
            self._note_loss(hold)
            raise
        finally:
            if listening is not None:
                listening.cancel()
            history.write("end", i=number, d=hold.deadline(), l=hold.lost(), p=plain, x=fenced)

    async def _work(self, hold: Hold, plain: list[list[Any]], fenced: list[list[Any]]) -> None:
        worker, client = self._worker, self._worker.client
        guarded = self._fenced and hold.fence is not None
        read: list[tuple[str, int, int]] = []
        for name in self._names:
            before = -1
            if guarded:
                try:
                    before = await client.read(name, hold)
                except Exception as error:
                    if not client.clashes(error):
                        raise
                    fenced.append([name, 0, 0, "refused at the first read", now()])
            read.append((name, worker.read(name), before))
        if self._careless:
            time.sleep(self._seconds)
        else:
            await self._think(hold)
            if hold.lost():
                self._note_loss(hold)
                return
        for name, before, before_fenced in read:
            value = worker.next_write()
            plain.append([name, before, value, now()])
            worker.write(name, value)
            if before_fenced >= 0:
                write = [name, before_fenced, value, "unsure", now()]
                fenced.append(write)
                try:
                    await client.write(name, value, hold)
                    write[3] = "done"
                except Exception as error:
                    if not client.clashes(error):
                        raise
                    write[3] = "refused"

    async def _think(self, hold: Hold) -> None:
        """One who holds for long says meanwhile up to when: of a killed process nothing else is known."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds
        while (left := end - loop.time()) > _SAYS_SECONDS and self._told:
            await asyncio.sleep(_SAYS_SECONDS)
            self._worker.history.write("held", i=self.number, d=hold.deadline(), v=hold.votes)
        await asyncio.sleep(left)

    async def _listen(self, hold: Hold) -> None:
        await hold.wait_lost()
        if hold.lost():
            self._note_loss(hold)

    def _note_loss(self, hold: Hold) -> None:
        why = hold.lost()
        if why and not self.lost:
            self.lost = True
            self._worker.history.write("lost", i=self.number, d=hold.deadline(), why=why)
