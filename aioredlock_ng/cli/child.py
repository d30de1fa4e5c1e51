"""The process that `run` holds a lock for: forked before anything else, started once the lock is there, never left behind.

The fork happens while this process has one thread and no event loop, so it needs no `preexec_fn`; until the lock is held, the
child waits at a pipe, and without the lock it never becomes the command. When this process dies, however that happens, a
second small process, the guardian, sees its pipe close and kills the child's whole group; on Linux the kernel also kills the
child itself. The guardian does the same when this process hangs or is stopped for longer than it said that the group may live.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import struct
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from aioredlock_ng._engine.clock import boottime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Child"]

_PR_SET_PDEATHSIG = 1
_CANNOT_EXECUTE, _NOT_FOUND = 126, 127

_LIMIT: Final = struct.Struct("d")
"""What the guardian is told: the instant up to which the group may live. Anything shorter is the last word."""

_ALL_IS_WELL: Final = b"."

_SILENCE: Final = 1.0
"""Seconds without a word that must follow the limit: what was told while the guardian or the machine slept counts first."""


class Child:
    """A command that has not begun yet, in a process group of its own.

    Args:
        command: The program, searched in PATH, and its arguments; no shell sees them.

    Attributes:
        pid: Its process id, and that of its group.
    """

    def __init__(self, command: Sequence[str]) -> None:
        parent = os.getpid()
        # Inherited as ignored, it would have the kernel throw the exit status away.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _occupy_standard_streams()
        self._ended = False
        behind, self._gate = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            _become(command, behind, parent)
        os.close(behind)
        watching, self._leash = os.pipe()
        self._guardian = os.fork()
        if self._guardian == 0:
            os.close(self._gate)
            os.close(self._leash)
            _guard(watching, self.pid)
        os.close(watching)
        # A guardian that is stopped does not read, and must not stop us.
        os.set_blocking(self._leash, False)
        # The child does it too; whoever is first, the group is there before anybody uses it.
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)

    def start(self, environ: Mapping[str, str]) -> None:
        """Let it become the command, with `environ` on top of this process's environment."""
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._gate, "wb") as gate:
            gate.write(json.dumps(environ).encode() + b"\n")
        self._gate = -1

    def allow(self, seconds: float) -> None:
        """Let its group live for so long from now, and a little more, unless the guardian is told anew.

        Args:
            seconds: `math.inf`, as at the beginning: as long as this process. A word that finds the pipe full is dropped.
        """
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._leash, _LIMIT.pack(boottime() + seconds))

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Send a signal to everybody in its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def has_group(self) -> bool:
        """Whether anybody is in its group, itself included."""
        if self._ended:
            # Orphans of it are ours to bury where we are a container's first process.
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-self.pid, os.WNOHANG)[0]:
                    pass
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True

    def poll(self) -> int | None:
        """What has become of it since the last call, as `os.waitpid` tells: ended or stopped; None: nothing."""
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        self._ended = bool(pid) and not os.WIFSTOPPED(status)
        return status if pid else None

    def close(self) -> None:
        """It is over: the guardian may go. A child that never started ends by itself and is waited for."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        # This word must not be dropped.
        os.set_blocking(self._leash, True)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._leash, _ALL_IS_WELL)
        os.close(self._leash)
        os.waitpid(self._guardian, 0)


def _occupy_standard_streams() -> None:
    """Where one of them is closed, no pipe of ours may become it; what is opened here is closed again for the command."""
    while (there := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(there)


def _become(command: Sequence[str], gate: int, parent: int) -> NoReturn:
    """In the child: wait for the word, then be the command."""
    status = _CANNOT_EXECUTE
    try:
        os.setpgid(0, 0)
        for number in signal.valid_signals():
            # Python's own handlers would be seen until exec, and what it ignores (SIGPIPE) even after.
            if number in (signal.SIGPIPE, getattr(signal, "SIGXFSZ", None)) or callable(
                signal.getsignal(number)
            ):
                signal.signal(number, signal.SIG_DFL)
        _die_with(parent)
        word = b""
        while part := os.read(gate, 65_536):
            word += part
        if not word.endswith(b"\n"):
            os._exit(0)
        os.environ.update(json.loads(word))
        os.execvp(command[0], list(command))  # noqa: S606
    # ValueError: there is a NUL in a word.
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            status = _NOT_FOUND
        words = f"aioredlock-ng run: cannot execute {command[0]!r}: {getattr(error, 'strerror', error)}\n"
        os.write(2, words.encode(errors="backslashreplace"))
    finally:
        os._exit(status)


def _die_with(parent: int) -> None:
    """Where the kernel can, let it kill this process when the parent dies, before exec and after."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # It may have died before.
        if os.getppid() != parent:
            os._exit(0)


def _guard(leash: int, group: int) -> NoReturn:
    """In the second process: when the first is gone or silent for too long, nobody holds the lock any more: kill the group."""
    try:
        # Whoever kills the first one's group or session must not hit this, and nobody who reads its output wait for it.
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        if not _ends_well(leash):
            os.killpg(group, signal.SIGKILL)
    finally:
        os._exit(0)


def _ends_well(leash: int) -> bool:
    """Listen until the first process says that all is well; False when it is gone, or lets the limit pass."""
    words = select.poll()
    words.register(leash, select.POLLIN)
    limit = math.inf
    while True:
        # Looked at every now and then: a timeout does not count the time for which the machine is suspended.
        passed = boottime() >= limit
        if words.poll(_SILENCE * 1000):
            word = os.read(leash, _LIMIT.size)
            if len(word) < _LIMIT.size:
                return word == _ALL_IS_WELL
            (limit,) = _LIMIT.unpack(word)
        elif passed:
            return False
