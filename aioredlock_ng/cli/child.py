"""Provide the child process of `run`, which never outlives this process.

The child is forked before anything else, and starts once the lock is held. At the time of the fork
this process has one thread and no event loop, so the fork needs no `preexec_fn`. Until the lock is
held, the child waits at a pipe. Without the lock it never becomes the command.

A second small process, the guardian, kills the child's whole group when its pipe closes, which
happens at any death of this process. On Linux the kernel also kills the child itself. While this
process holds the lock, its messages to the guardian limit the life of the group. If this process
hangs or is stopped, no message extends the limit, and the guardian kills the group.
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
"""Format of a message to the guardian: the time until which the group may live.

A shorter message is the last one.
"""

_ALL_IS_WELL: Final = b"."

_SILENCE: Final = 1.0
"""Seconds without a message after the limit, before the guardian kills the group.

Messages that were sent while the guardian or the machine slept are read first.
"""


class Child:
    """A command that has not begun yet, in a process group of its own.

    Args:
        command: The program, searched in PATH, and its arguments. No shell is involved.
        word: The command of the command line, for an error message.

    Attributes:
        pid: The id of the process and of its group.
    """

    def __init__(self, command: Sequence[str], word: str = "run") -> None:
        parent = os.getpid()
        # If SIGCHLD were inherited as ignored, the kernel would discard the exit status.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _occupy_standard_streams()
        self._ended = False
        behind, self._gate = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            _become(command, behind, parent, word)
        os.close(behind)
        watching, self._leash = os.pipe()
        self._guardian = os.fork()
        if self._guardian == 0:
            os.close(self._gate)
            os.close(self._leash)
            _guard(watching, self.pid)
        os.close(watching)
        # A stopped guardian does not read, and a write to it must not block this process.
        os.set_blocking(self._leash, False)
        # Parent and child both create the group, so that it exists before either uses it.
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)

    def start(self, environ: Mapping[str, str]) -> None:
        """Let the child become the command, with `environ` added to this process's environment."""
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._gate, "wb") as gate:
            gate.write(json.dumps(environ).encode() + b"\n")
        self._gate = -1

    def allow(self, seconds: float) -> None:
        """Let the guardian kill the group slightly later than `seconds` from now.

        Each message replaces the limit of the message before.

        Args:
            seconds: The time. With `math.inf`, the initial value, the guardian waits for the death
                of this process. A message is dropped if the pipe is full.
        """
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._leash, _LIMIT.pack(boottime() + seconds))

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Send a signal to every process in the group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def has_group(self) -> bool:
        """Return True if a process is in the group, including the child."""
        if self._ended:
            # In a container's first process, orphans of the child must be reaped here.
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
        """Return the change of the child since the last call, as `os.waitpid` reports it.

        The child ended or stopped. The result is None without a change.
        """
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        self._ended = bool(pid) and not os.WIFSTOPPED(status)
        return status if pid else None

    def close(self) -> None:
        """Dismiss the guardian. A child that never started ends by itself, and is waited for."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        # This message must not be dropped.
        os.set_blocking(self._leash, True)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._leash, _ALL_IS_WELL)
        os.close(self._leash)
        os.waitpid(self._guardian, 0)


def _occupy_standard_streams() -> None:
    """Open closed standard streams, so that no pipe of this process gets a descriptor from 0 to 2.

    Streams opened here are closed again for the command.
    """
    while (there := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(there)


def _become(command: Sequence[str], gate: int, parent: int, caller: str) -> NoReturn:
    """Wait in the child for the start message, and then become the command."""
    status = _CANNOT_EXECUTE
    try:
        os.setpgid(0, 0)
        for number in signal.valid_signals():
            # Python's signal handlers would stay until exec, and the signals that Python ignores
            # (SIGPIPE) even longer.
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
    # A ValueError means a NUL in a word.
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            status = _NOT_FOUND
        reason = getattr(error, "strerror", error)
        words = f"aioredlock-ng {caller}: cannot execute {command[0]!r}: {reason}\n"
        os.write(2, words.encode(errors="backslashreplace"))
    finally:
        os._exit(status)


def _die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent dies, before and after exec.

    Only Linux can do this.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died before.
        if os.getppid() != parent:
            os._exit(0)


def _guard(leash: int, group: int) -> NoReturn:
    """Kill the group when the first process is gone or silent for too long.

    This runs in the guardian. The lock is no longer held at that time.
    """
    try:
        # A signal to the first process's group or session must not reach the guardian. A reader of
        # that process's output must not wait for the guardian.
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
    """Read messages until the first process sends its last one.

    Return False if that process is gone or lets the limit pass.
    """
    words = select.poll()
    words.register(leash, select.POLLIN)
    limit = math.inf
    while True:
        # The limit is checked at short intervals, because a timeout does not count the time for
        # which the machine is suspended.
        passed = boottime() >= limit
        if words.poll(_SILENCE * 1000):
            word = os.read(leash, _LIMIT.size)
            if len(word) < _LIMIT.size:
                return word == _ALL_IS_WELL
            (limit,) = _LIMIT.unpack(word)
        elif passed:
            return False
