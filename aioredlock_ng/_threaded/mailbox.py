"""Call functions on an event loop from other threads, in order, with few wake-ups."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng._engine.loops import running_loop

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Mailbox", "home"]


class Mailbox:
    """The callbacks that other threads have posted to one event loop.

    `call_soon_threadsafe` writes to a socket for each call. Here, all calls that come before the
    loop wakes up share one write. The callbacks run in the order of the posts.
    """

    __slots__ = ("_awake", "_posts", "_waking", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._posts: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._awake = False
        # The identifiers of the threads that are waking the loop.
        self._waking: set[int] = set()

    @property
    def closed(self) -> bool:
        return self.loop.is_closed()

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call `callback` on the loop. Any thread may use this method.

        Raises:
            RuntimeError: The loop is closed, so the callback never runs.
        """
        self._posts.append((callback, arguments))
        # `_run` clears `_awake` before it reads the posts. So each post is either read by a run
        # that is already scheduled, or schedules a run.
        if not self._awake or threading.get_ident() in self._waking:
            self._wake()
        elif self.loop.is_closed():
            # The loop was closed before it ran the callbacks of an earlier wake-up.
            raise RuntimeError("Event loop is closed")

    def _wake(self) -> None:
        here = threading.get_ident()
        try:
            # A signal handler may interrupt the next lines, call `post`, and wait for an answer.
            # `_waking` then contains this thread, so the handler's own `post` wakes the loop.
            self._waking.add(here)
            self._awake = True
            self.loop.call_soon_threadsafe(self._run)
        except BaseException:
            # A signal handler may have raised the exception before `call_soon_threadsafe` ran. If
            # `_awake` stayed True, no post would ever wake the loop again.
            self._awake = False
            # Another thread may have posted meanwhile, and may rely on this wake-up.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._run)
            raise
        finally:
            self._waking.discard(here)

    def _run(self) -> None:
        self._awake = False
        # Posts that arrive from now on schedule another run. If this run called them, too, an
        # endless series of posts would starve the loop.
        for _ in range(len(self._posts)):
            callback, arguments = self._posts.popleft()
            try:
                callback(*arguments)
            except (SystemExit, KeyboardInterrupt):
                # The exception ends the loop. If the loop runs again, it must call the other
                # callbacks.
                self._wake()
                raise
            except BaseException as error:
                self.loop.call_exception_handler(
                    {"message": f"Exception in callback {callback!r}", "exception": error}
                )


class _Here(threading.local):
    """The mailbox of the event loop that ran last in the current thread."""

    mailbox: Mailbox | None = None


_here: Final = _Here()
"""The variable is global, because all managers of a process share the mailbox of a loop."""


def home() -> Mailbox:
    """Return the mailbox of the running event loop.

    Raises:
        RedlockClosed: No loop of asyncio runs in this thread.
    """
    loop, mailbox = running_loop(), _here.mailbox
    if mailbox is None or mailbox.loop is not loop:
        mailbox = _here.mailbox = Mailbox(loop)
    return mailbox
