"""Keeps a lock for a child: takes it, starts the child, passes signals on, and ends the child when the lock is lost."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioredlock_ng import AcquireTimeout, LockHeld

from .exits import say
from .terminal import Terminal

if TYPE_CHECKING:
    from aioredlock_ng import Lease, Lock, Redlock

    from .child import Child

__all__ = ["Job", "Keeper"]

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""They end the waiting, and go to everybody in the child's group: a shell that dies must not leave its own child behind."""

_TO_THE_GROUP: Final = (*_STOPPING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
_TO_THE_CHILD: Final = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""Their default is to kill, and programs that are not meant by them do not expect them."""

_NOTICE_AFTER: Final = 1.0
"""Seconds without a majority of nodes after which people are told why nothing happens."""


_LOOK: Final = 0.01
"""Seconds between looks at a group whose first process has ended: nobody tells of the others."""

_KILLED_WITHIN: Final = 1.0
"""Seconds for which the killed are waited for: where nobody reaps them, as in some containers, they stay."""

_TELL_EVERY: Final = 0.5
"""Seconds, at most, between words to the guardian: after a suspension of the machine it waits twice as long for one."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the user wants besides the lock.

    Attributes:
        conflict_code: Exit status when another holds the lock.
        lost_code: Exit status when the lock was lost.
        grace: Seconds between SIGTERM and SIGKILL: on loss, and for who is left when the child itself has ended.
    """

    conflict_code: int
    lost_code: int
    grace: float


class Keeper:
    """One lock and one child.

    Args:
        redlock: Not yet open.
        lock: What to hold.
        child: Not yet started.
        job: What else is wanted.
    """

    def __init__(self, redlock: Redlock, lock: Lock, child: Child, job: Job) -> None:
        self._redlock = redlock
        self._lock = lock
        self._child = child
        self._job = job
        self._terminal = Terminal()
        self._started = False
        self._stop_asked = False
        self._stopped_by = 0

    async def run(self) -> int:
        """Everything, to the exit status.

        Raises:
            RedlockError: The lock cannot be had for another reason than another holder.

        Safety: when this ends, in whatever way, the child is over and the lock released or lost.
        """
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[int] = loop.create_future()
        task = asyncio.current_task()
        assert task is not None
        loop.add_signal_handler(signal.SIGCHLD, self._child_changed)
        # It may have been killed before.
        self._child_changed()
        for number in (*_TO_THE_GROUP, *_TO_THE_CHILD):
            # What is ignored from the start (nohup, a job of a script in the background) stays so, here and in the child.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._signalled, number, task)
        try:
            async with self._redlock:
                notice = loop.call_later(_NOTICE_AFTER, self._notice)
                try:
                    lease = await self._lock.acquire()
                except (LockHeld, AcquireTimeout) as error:
                    say("run", str(error))
                    return self._job.conflict_code
                finally:
                    notice.cancel()
                return await self._hold(lease)
        except asyncio.CancelledError:
            if not self._stopped_by:
                raise
            return 128 + self._stopped_by
        finally:
            self._terminal.take()

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
            }
        )
        lost = asyncio.ensure_future(self._until_lost())
        try:
            await asyncio.wait((self._over, lost), return_when=asyncio.FIRST_COMPLETED)
            ended = "had ended already" if self._over.done() else "was ended"
        finally:
            # Before anything is written: whoever does not read our errors must not keep the child alive. And before the
            # release: nobody of its group works on beside the next holder.
            await self._end()
            lost.cancel()
            # The group is over, and its number may soon be another's.
            self._child.allow(math.inf)
        if await lease.release():
            return self._status(self._over.result())
        self._terminal.take()
        say("run", f"{lease.lost_error()}; the command {ended}")
        return self._job.lost_code

    async def _until_lost(self) -> None:
        """Return when the lease is over; until then the guardian is told what each renewal gains."""
        while self._lease.valid:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_TELL_EVERY, self._lease.ttl / 3)):
                    await self._lease.wait_lost()
            self._tell_guardian()

    def _tell_guardian(self) -> None:
        """Until when the group may live if nothing more is heard of us: it is what we would grant it ourselves."""
        self._child.allow(self._lease.remaining() + self._job.grace)

    async def _end(self) -> None:
        """Leave nobody of the child's group who works without the lock."""
        if self._over.done() and not self._child.has_group():
            return
        self._child.signal_group(signal.SIGTERM)
        self._child.signal_group(signal.SIGCONT)
        await self._group_ends(self._job.grace)
        self._child.signal_group(signal.SIGKILL)
        await self._over
        await self._group_ends(_KILLED_WITHIN)

    async def _group_ends(self, within: float) -> None:
        """Return when nobody is left of the child's group, or after so many seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        await asyncio.wait((self._over,), timeout=within)
        # A process is told of its own children only: the others of the group must be looked at.
        while self._child.has_group() and (left := end - loop.time()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(_LOOK, left))

    def _status(self, status: int) -> int:
        if not os.WIFSIGNALED(status):
            return os.WEXITSTATUS(status)
        number = os.WTERMSIG(status)
        if self._terminal.given and number in (signal.SIGINT, signal.SIGQUIT):
            # Control-C went to the child's group only; a script that runs us expects it too.
            self._terminal.take()
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
            os.killpg(0, number)
        return 128 + number

    def _signalled(self, number: signal.Signals, task: asyncio.Task[object]) -> None:
        if self._started:
            self._stop_asked = self._stop_asked or number == signal.SIGTSTP
            (self._child.signal if number in _TO_THE_CHILD else self._child.signal_group)(number)
        elif number in _STOPPING:
            self._stopped_by = number
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
            # It wants to use the terminal: let it, if it is ours to give. In the background it stays stopped until SIGCONT.
            if self._terminal.give(self._child.pid):
                self._child.signal_group(signal.SIGCONT)
        elif self._terminal.given:
            self._suspend()

    def _suspend(self) -> None:
        """Control-Z: stop with the child, so that the shell has its prompt; go on with it, or end it when the lock is over."""
        self._stop_asked = False
        given = self._terminal.given
        self._terminal.take()
        # Stopped, it does no harm, and has its SIGTERM and its grace when it goes on.
        self._child.allow(math.inf)
        # Who gave the terminal away gets the whole job's Control-Z, and passes it on; otherwise all have had their own, or it
        # was meant for us alone.
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
            say("run", f"waiting for a majority of the nodes; {told}")
