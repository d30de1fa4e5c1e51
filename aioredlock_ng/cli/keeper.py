"""Hold a lock for a child process, pass signals on, and end the child when the lock is lost."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from aioredlock_ng import AcquireTimeout, LockHeld
from aioredlock_ng._outlasting import outlast_cancellation

from .exits import say
from .signals import STOPPING, TO_THE_CHILD, TO_THE_GROUP
from .terminal import Terminal

if TYPE_CHECKING:
    from aioredlock_ng import Lease, Lock, Redlock

    from .child import Child

__all__ = ["Job", "Keeper"]

_NOTICE_AFTER: Final = 1.0
"""After this many seconds of waiting, this process reports if no majority of nodes is up."""

_LOOK: Final = 0.01
"""Seconds between two checks of the child's group after the end of the child."""

_KILLED_WITHIN: Final = 1.0
"""Longest wait in seconds for the end of killed processes.

In some containers no process reaps killed processes, which then stay as zombies.
"""

_TELL_EVERY: Final = 0.5
"""Longest time in seconds between two messages to the guardian.

Each message contains the time until which the child's group may live. When that time is over, the
guardian kills the group, unless a further message comes within one to two seconds.
"""


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of a keeper: exit statuses, times and the name of the command.

    Attributes:
        conflict_code: Exit status if another client holds the lock.
        lost_code: Exit status if the lock was lost.
        grace: Seconds between SIGTERM and SIGKILL, if the lock was lost, or if other processes of
            the child's group outlive the child.
        margin: If the lease is not renewed, the child receives SIGTERM this many seconds before the
            deadline.
        command: `run` or `elect`, for messages.
    """

    conflict_code: int
    lost_code: int
    grace: float
    margin: float = 0.0
    command: Literal["run", "elect"] = "run"


class Keeper:
    """Holds one lock while one child runs.

    `run` opens the manager `redlock` and starts the command of the child.

    Attributes:
        lost: True if the lock was lost, or if the child was ended because at most `margin` seconds
            of the lease were left.
        ended_by: The signal that ended the wait for the lock, or the child of a lock that was held
            to the end. Otherwise 0.
        stopped: True if SIGINT, SIGTERM or SIGQUIT came after the child was started, or SIGHUP
            while the child was ended. A command that survives SIGHUP has perhaps only read its
            configuration anew.
    """

    def __init__(self, redlock: Redlock, lock: Lock, child: Child, job: Job) -> None:
        self.lost = False
        self.stopped = False
        self.ended_by = 0
        self._redlock = redlock
        self._lock = lock
        self._child = child
        self._job = job
        self._terminal = Terminal()
        self._started = False
        self._ending = False
        self._stop_asked = False

    async def run(self) -> int:
        """Acquire the lock, run the child, and return the exit status.

        Raises:
            RedlockError: The acquire failed, but not because another client holds the lock.

        Safety: when this call ends, even by an exception, a started command has ended, and an
        acquired lock is released or lost.
        """
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[int] = loop.create_future()
        task = asyncio.current_task()
        assert task is not None
        loop.add_signal_handler(signal.SIGCHLD, self._child_changed)
        # The child may have ended before the handler was set. Then no signal calls the handler.
        self._child_changed()
        for number in (*TO_THE_GROUP, *TO_THE_CHILD):
            # A signal that is ignored from the start (nohup, a background job of a script) stays
            # ignored, in this process and in the child.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._signalled, number, task)
        try:
            async with self._redlock:
                notice = loop.call_later(_NOTICE_AFTER, self._notice)
                try:
                    lease = await self._lock.acquire()
                except (LockHeld, AcquireTimeout) as error:
                    say(self._job.command, str(error))
                    return self._job.conflict_code
                finally:
                    notice.cancel()
                return await self._hold(lease)
        except asyncio.CancelledError:
            if not self.ended_by:
                raise
            return 128 + self.ended_by
        finally:
            self._terminal.close()

    async def _hold(self, lease: Lease) -> int:
        self._started = True
        self._lease = lease
        self._tell_guardian()
        if all(map(os.isatty, (0, 1))):
            self._terminal.give(self._child.pid)
        self._child.start(
            {
                "AIOREDLOCK_NG_NAME": lease.resource,
                "AIOREDLOCK_NG_TOKEN": lease.token,
                "AIOREDLOCK_NG_FENCE": "" if lease.fence is None else str(lease.fence),
                # For a lock without slots the variable is empty. If the variable were not set,
                # the child would inherit the slot of an enclosing `run --slots`.
                "AIOREDLOCK_NG_SLOT": "" if lease.slot is None else str(lease.slot),
            }
        )
        lost = asyncio.ensure_future(self._until_lost())
        try:
            await asyncio.wait((self._over, lost), return_when=asyncio.FIRST_COMPLETED)
            ended = "had ended already" if self._over.done() else "was ended"
            stepped_down = lost.done() and not self._over.done() and lease.valid
        finally:
            # The group ends before this process writes the error line, because that write may block
            # if nobody reads. The group also ends before the release, so that none of its processes
            # still works when the next holder begins.
            ending = asyncio.ensure_future(self._end())
            try:
                await asyncio.wait((ending,))
            finally:
                # Without this wait, a second cancellation would leave the group alive.
                try:
                    await outlast_cancellation(
                        lambda: not ending.done(), lambda: asyncio.wait((ending,))
                    )
                finally:
                    lost.cancel()
                    # The group has ended, and its id may soon belong to another group. Without this
                    # call, the guardian could kill that group.
                    self._child.allow(math.inf)
        released = await lease.release()
        if released and not stepped_down:
            return self._status(self._over.result())
        self._terminal.take()
        self.lost = True
        why = f"the lock {lease.resource!r} was not renewed" if released else lease.lost_error()
        say(self._job.command, f"{why}; the command {ended}")
        return self._job.lost_code

    async def _until_lost(self) -> None:
        """Return when at most `margin` seconds of the lease are left.

        Until then, tell the guardian at short intervals how long the group may live.
        """
        margin = self._job.margin
        while (left := self._lease.remaining()) > margin:
            with contextlib.suppress(TimeoutError):
                nap = min(_TELL_EVERY, self._lease.ttl / 3)
                async with asyncio.timeout(min(nap, left - margin) if margin else nap):
                    await self._lease.wait_lost()
            self._tell_guardian()

    def _tell_guardian(self) -> None:
        """Let the group live until the time at which this process itself would send SIGKILL.

        If the lease is not renewed, this process sends SIGTERM when only the margin is left.
        SIGKILL follows after the grace time.
        """
        self._child.allow(self._lease.remaining() - self._job.margin + self._job.grace)

    async def _end(self) -> None:
        self._ending = True
        if self._over.done() and not self._child.has_group():
            return
        self._child.signal_group(signal.SIGTERM)
        self._child.signal_group(signal.SIGCONT)
        await self._group_ends(self._job.grace)
        self._child.signal_group(signal.SIGKILL)
        await asyncio.wait((self._over,), timeout=_KILLED_WITHIN)
        if not self._over.done():
            # For example, the command belongs to another user, as under sudo.
            say(self._job.command, "the command cannot be killed, and may run on without the lock")
        await self._over
        await self._group_ends(_KILLED_WITHIN)

    async def _group_ends(self, within: float) -> None:
        """Return when the child's group is empty, or after `within` seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        await asyncio.wait((self._over,), timeout=within)
        # The kernel reports only the end of a process's own children, so the rest of the group is
        # checked at intervals.
        while self._child.has_group() and (left := end - loop.time()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(_LOOK, left))

    def _status(self, status: int) -> int:
        if not os.WIFSIGNALED(status):
            return os.WEXITSTATUS(status)
        self.ended_by = number = os.WTERMSIG(status)
        if self._terminal.given and number in (signal.SIGINT, signal.SIGQUIT):
            # A keystroke, such as Control-C, sent the signal to the child's group only. A script
            # that runs this process is in this process's group, so this group gets the signal too.
            self._terminal.take()
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
            os.killpg(0, number)
        return 128 + number

    def _signalled(self, number: signal.Signals, task: asyncio.Task[object]) -> None:
        if self._started:
            stops = number in STOPPING and (number != signal.SIGHUP or self._ending)
            self.stopped = self.stopped or stops
            self._stop_asked = self._stop_asked or number == signal.SIGTSTP
            (self._child.signal if number in TO_THE_CHILD else self._child.signal_group)(number)
        elif number in STOPPING:
            self.ended_by = number
            task.cancel()
        elif number == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)

    def _child_changed(self) -> None:
        if self._over.done() or (status := self._child.poll()) is None:
            return
        if not os.WIFSTOPPED(status):
            self._over.set_result(status)
        elif self._stop_asked:
            self._suspend()
        elif os.WSTOPSIG(status) in (signal.SIGTTIN, signal.SIGTTOU):
            # The child needs the terminal. If this process has the terminal, the child gets it. If
            # this process is in the background, the child stays suspended until SIGCONT.
            if self._terminal.give(self._child.pid):
                self._child.signal_group(signal.SIGCONT)
        elif self._terminal.given:
            self._suspend()

    def _suspend(self) -> None:
        """Suspend this process because the child was suspended, so that the shell shows its prompt.

        SIGCONT resumes both processes. If the lock was lost meanwhile, the child is ended.
        """
        self._stop_asked = False
        given = self._terminal.given
        self._terminal.take()
        # A process of the group that ignores SIGTSTP would work on, while this process cannot renew
        # the lock.
        self._child.signal_group(signal.SIGSTOP)
        # Without this call, the guardian would kill the group during the suspension. A suspended
        # group does no harm, even if the lock is lost.
        self._child.allow(math.inf)
        # If the child's group has the terminal, only that group received the Control-Z, so this
        # process suspends its own group. Otherwise this process suspends only itself, because its
        # group has received the Control-Z already, or the signal was meant for this process alone.
        if given:
            os.killpg(0, signal.SIGSTOP)
        else:
            os.kill(os.getpid(), signal.SIGSTOP)
        self._tell_guardian()
        if given:
            self._terminal.give(self._child.pid)
        self._child.signal_group(signal.SIGCONT)

    def _notice(self) -> None:
        nodes = self._redlock.nodes
        missing = [node for node in nodes if node.state != "up"]
        if len(nodes) - len(missing) <= len(nodes) // 2:
            told = "; ".join(f"{node.address}: {node.state}: {node.reason}" for node in missing)
            say(self._job.command, f"waiting for a majority of the nodes; {told}")
