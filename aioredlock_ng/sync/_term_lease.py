"""Define the lease of a leader that runs in a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakSet

from aioredlock_ng.errors import LockLost, LockReleased
from aioredlock_ng.sync._lease import Lease

if TYPE_CHECKING:
    import aioredlock_ng
    from aioredlock_ng._election.term import Term
    from aioredlock_ng._threaded.engine_thread import EngineThread

__all__ = ["TermLease"]


class TermLease(Lease):
    """The lease of a leader, which also reports that its term must end."""

    __slots__ = ("_must_end", "_raised", "_term")

    def __init__(self, granted: aioredlock_ng.Lease, thread: EngineThread, term: Term) -> None:
        super().__init__(granted, thread)
        self._term = term
        self._must_end = asyncio.Event()
        # The errors that `check` raised. A body that raises one has obeyed the end of its term.
        self._raised: WeakSet[BaseException] = WeakSet()

    @property
    def leading(self) -> bool:
        """True while the body may act as the leader."""
        return self._term.leading and not self._thread.dead

    @property
    def must_end(self) -> bool:
        """True once the body must end. Any thread may read the property."""
        return self._must_end.is_set()

    def end(self) -> None:
        """Report that the body must end. The engine's loop runs this method."""
        self._must_end.set()

    def raised(self, error: BaseException) -> bool:
        """Return True if `check` raised this error."""
        # The exception of a body may be unhashable, for example if its class is a dataclass.
        return isinstance(error, (LockLost, LockReleased)) and error in self._raised

    def check(self) -> None:
        """Raise an error unless this candidate leads and need not step down. No I/O.

        Raises:
            LockLost: The body must step down, or the lease is lost.
            LockReleased: `resign()` was called, or the lease was released.
        """
        try:
            if self.must_end and not self.lost:
                over = self._term.error(lost=False)
                if over is not None:
                    raise over
            super().check()
        except (LockLost, LockReleased) as error:
            self._raised.add(error)
            raise

    def _is_over(self) -> bool:
        return self.must_end or super()._is_over()

    async def _until_over(self) -> None:
        loop = asyncio.get_running_loop()
        waits = [
            loop.create_task(self._must_end.wait()),
            loop.create_task(super()._until_over()),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()
        finally:
            for wait in waits:
                wait.cancel()
