"""Start servers at the beginning of a `with` or `async with`, and close them at its end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from anyio import CancelScope, get_cancelled_exc_class, to_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

__all__ = ["Startable"]


class Startable:
    """The base of servers, whose `start` and `close` block the calling thread.

    Safety: if the task of an `async with` is cancelled at any point, the servers are closed before
    the cancellation leaves the block.
    """

    def start(self) -> Self:
        """Start the servers. The subclass implements this."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop the servers, if they run. The subclass implements this."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            await _in_thread(self.start)
        except get_cancelled_exc_class():
            await _in_thread(self.close)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await _in_thread(self.close)


async def _in_thread(act: Callable[[], object]) -> None:
    """Run `act` in a thread, and wait for its end even if the task is cancelled meanwhile.

    The call raises the exception of `act`, or else the cancellation.
    """
    pool = ThreadPoolExecutor(1)
    work = pool.submit(act)
    pool.shutdown(wait=False)
    cancellation: BaseException | None = None
    # The shield keeps the cancelled scopes of anyio out, but `task.cancel` passes it.
    with CancelScope(shield=True):
        while not work.done():
            try:
                await to_thread.run_sync(wait, [work])
            except get_cancelled_exc_class() as error:
                cancellation = error
    work.result()
    if cancellation is not None:
        raise cancellation
