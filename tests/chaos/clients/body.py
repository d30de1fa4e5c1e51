"""The work of one holder while it has the lock, and its lines in the history."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from ..history import now

if TYPE_CHECKING:
    from .port import Hold, Wish
    from .worker import Worker

__all__ = ["Body"]

_SAYS_SECONDS: Final = 0.25


class Body:
    """One holder: it reads the registers of its names, computes, and writes the registers.

    A reader reads them again instead, because they must not change while it holds the lock.

    Args:
        worker: The process.
        wish: The acquisition that was requested.
        seconds: Seconds for which the holder computes.
        careless: It blocks the event loop, and does not check the lease before it writes.
        told: It listens for the loss of its lease, and reports its deadline meanwhile.
        fenced: It uses the fenced register besides the plain one.

    Attributes:
        number: The number of the hold within the process; 0 before the lock is acquired.
        lost: True once the loss of the lease is recorded.
    """

    def __init__(
        self,
        worker: Worker,
        wish: Wish,
        seconds: float,
        *,
        careless: bool = False,
        told: bool = False,
        fenced: bool = True,
    ) -> None:
        self._worker = worker
        self._wish = wish
        self._names = wish.names
        self._seconds = seconds
        self._careless = careless
        self._told = told
        self._fenced = fenced
        self._plain_writes: list[list[Any]] = []
        self._fenced_writes: list[list[Any]] = []
        self._reads: list[list[Any]] = []
        self.number = 0
        self.lost = False

    async def run(self, hold: Hold, asked: int) -> None:
        """Do the work of the holder, between acquire and release."""
        history, wish = self._worker.history, self._wish
        self.number = number = self._worker.next_number()
        about: dict[str, Any] = {"f": hold.fence, "v": hold.votes, "k": hold.token, **wish.about()}
        if hold.slot is not None:
            # Each slot has registers of its own.
            self._names = (f"{wish.names[0]}#{hold.slot}",)
            about["s"] = hold.slot
        if hold.since is not None:
            about["b"] = hold.since
        history.write("got", i=number, a=asked, d=hold.deadline(), **about)
        listens = self._told and wish.how not in ("with", "run")
        listening = asyncio.create_task(self._listen(hold)) if listens else None
        ended: dict[str, Any] = {}
        try:
            if wish.kind == "read":
                await self._only_read(hold, await self._read_all(hold))
            else:
                await self._work(hold)
        except asyncio.CancelledError:
            self._note_loss(hold)
            if wish.kind == "election" and not self.lost and self._worker.working:
                ended["o"] = "stepped down"
            raise
        finally:
            if listening is not None:
                listening.cancel()
            if hold.lost():
                ended["z"] = hold.lost_at()
            if self._reads:
                ended["r"] = self._reads
            ended |= {"p": self._plain_writes, "x": self._fenced_writes}
            history.write("end", i=number, d=hold.deadline(), l=hold.lost(), **ended)

    async def _read_fenced(self, name: str, hold: Hold) -> int:
        """Read a fenced register. Return -1 if there is none, or if it refuses the fence."""
        client = self._worker.client
        if not self._fenced or hold.fence is None:
            return -1
        try:
            return await client.read(name, hold)
        except Exception as error:
            if not client.clashes(error):
                raise
            self._fenced_writes.append([name, 0, 0, "refused at a read", now()])
            return -1

    async def _read_all(self, hold: Hold) -> list[tuple[str, int, int]]:
        """Return each name with its plain and its fenced register, -1 without the latter."""
        read: list[tuple[str, int, int]] = []
        for name in self._names:
            fenced = await self._read_fenced(name, hold)
            read.append((name, self._worker.read(name), fenced))
        return read

    async def _only_read(self, hold: Hold, first: list[tuple[str, int, int]]) -> None:
        """Compute, and read the registers again.

        The instant of each read is taken after it. So a change before that instant is certain.
        """
        await self._think(hold)
        if hold.lost():
            self._note_loss(hold)
            return
        for name, plain, fenced in first:
            self._reads.append([name, "plain", plain, self._worker.read(name), now()])
            if fenced >= 0 and (again := await self._read_fenced(name, hold)) >= 0:
                self._reads.append([name, "fenced", fenced, again, now()])

    async def _downgrade(self, hold: Hold, written: list[tuple[str, int, int]]) -> None:
        """Become a reader. The registers must keep what was written before."""
        # The nodes may let readers in before the call returns.
        self._worker.history.write("down", i=self.number)
        await self._worker.client.downgrade(hold)
        self._worker.history.write("downgraded", i=self.number, f=hold.fence, d=hold.deadline())
        if hold.lost():
            self._note_loss(hold)
            return
        await self._only_read(hold, written)

    async def _work(self, hold: Hold) -> None:
        worker, client = self._worker, self._worker.client
        read = await self._read_all(hold)
        if self._careless:
            # A process that is killed meanwhile cannot report that its event loop was blocked.
            worker.history.write("blocks", i=self.number)
            time.sleep(self._seconds)
        else:
            await self._think(hold)
            if hold.lost():
                self._note_loss(hold)
                return
        written: list[tuple[str, int, int]] = []
        for name, before, before_fenced in read:
            # The loss may have come during the fenced write of another name.
            if not self._careless and hold.lost():
                self._note_loss(hold)
                return
            value = worker.next_write()
            self._plain_writes.append([name, before, value, now()])
            worker.write(name, value)
            if before_fenced >= 0:
                write = [name, before_fenced, value, "unsure", now()]
                self._fenced_writes.append(write)
                try:
                    await client.write(name, value, hold)
                    write[3] = "done"
                except Exception as error:
                    if not client.clashes(error):
                        raise
                    write[3] = "refused"
                    before_fenced = -1
            written.append((name, value, value if before_fenced >= 0 else -1))
        if self._wish.downgrade and not hold.lost():
            await self._downgrade(hold, written)

    async def _think(self, hold: Hold) -> None:
        """Wait, and report the deadline of a long hold meanwhile.

        It counts if the process is killed.
        """
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
