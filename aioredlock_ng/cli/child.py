"""Provide the child process that executes the user's command for `run` and `elect`.

In this module, "this process" is the process of `aioredlock-ng`. The child is forked while this
process has one thread and no event loop, because a fork of a process with threads could deadlock.
The child waits for a message on a pipe. This process sends the message after it has acquired the
lock. The child then executes the command.

A second small process, the guardian, has a pipe to this process. When this process dies for any
reason, the pipe closes, and the guardian kills the child's process group. On Linux, the kernel also
kills the child when this process dies. While this process holds the lock, it sends messages to the
guardian. Each message contains the time until which the group may live. If this process hangs or is
suspended, no message extends that time, and the guardian kills the group.
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

from aioredlock_ng._clock import boottime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Child"]

_PR_SET_PDEATHSIG = 1
_CANNOT_EXECUTE, _NOT_FOUND = 126, 127

_LIMIT: Final = struct.Struct("d")
"""Format of a message to the guardian: the time until which the group may live.

The time is in seconds, as `boottime` returns it. The last message, `_ALL_IS_WELL`, is shorter than
this format, so the guardian recognises the last message by its length.
"""

_ALL_IS_WELL: Final = b"."

_SILENCE: Final = 1.0
"""Seconds for which the guardian waits for a further message after the limit has passed.

In this time, the guardian can still read a message that extends the limit but comes late, for
example after a suspension of the machine.
"""


class Child:
    """A forked process that executes a command after `start`, in a process group of its own.

    Args:
        command: The program, which is looked up in PATH, and its arguments. No shell is involved.
        word: `run` or `elect`, for the error message if the command cannot be executed.

    Attributes:
        pid: The id of the process and of its group.
    """

    def __init__(self, command: Sequence[str], word: str = "run") -> None:
        parent = os.getpid()
        # If this process ignored SIGCHLD, the kernel would discard the child's exit status.
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
        # A suspended guardian does not read, so its pipe can become full. A write to the full pipe
        # must not block this process.
        os.set_blocking(self._leash, False)
        # The blocked signals are inherited from the program that started this process. If SIGCHLD
        # stayed blocked, this process would not notice the end of the child. The child was forked
        # before, so it keeps the inherited mask.
        self._mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        # Parent and child both create the group, so that the group exists before the first of them
        # uses it.
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)

    def start(self, environ: Mapping[str, str]) -> None:
        """Let the child become the command, with `environ` added to the child's environment."""
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._gate, "wb") as gate:
            gate.write(json.dumps(environ).encode() + b"\n")
        self._gate = -1

    def allow(self, seconds: float) -> None:
        """Let the group live for `seconds` from now. This limit replaces the previous limit.

        The guardian kills the group one to two seconds after the limit. With `math.inf`, which is
        the initial limit, the guardian kills the group only when this process dies. If the pipe is
        full, the message to the guardian is dropped.
        """
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._leash, _LIMIT.pack(boottime() + seconds))

    def signal(self, number: int) -> None:
        """Send a signal to the child alone, if this process may do so."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Send a signal to every process in the group that this process may send it to."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def has_group(self) -> bool:
        """Return True if the child or another process is in the group."""
        if self._ended:
            # If this process is the first process of a container, it inherits the orphans of the
            # child and must reap them.
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
        """Return the child's wait status if the child ended or was suspended since the last call.

        Otherwise return None.
        """
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        self._ended = bool(pid) and not os.WIFSTOPPED(status)
        return status if pid else None

    def close(self) -> None:
        """End the guardian without killing the group.

        If `start` was not called, the child ends without running the command. The next child
        inherits the signal mask that this child inherited.
        """
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        # Without this message the guardian would kill the group, so the write waits for room in the
        # pipe.
        os.set_blocking(self._leash, True)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._leash, _ALL_IS_WELL)
        os.close(self._leash)
        os.waitpid(self._guardian, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


def _occupy_standard_streams() -> None:
    """Open the null device for each standard stream that is closed.

    If a standard stream stayed closed, a pipe of this process could get the stream's descriptor.
    Streams that are opened here are closed again when the command starts.
    """
    while (there := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(there)


def _become(command: Sequence[str], gate: int, parent: int, caller: str) -> NoReturn:
    status = _CANNOT_EXECUTE
    try:
        os.setpgid(0, 0)
        for number in signal.valid_signals():
            # Without this loop, Python's signal handlers would stay until exec. The signals that
            # Python ignores, such as SIGPIPE, would stay ignored even after exec.
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
        for name, value in json.loads(word).items():
            os.environb[name.encode()] = _encoded(value)
        os.execvp(command[0], list(command))  # noqa: S606
    # A ValueError means that a word of the command contains a NUL.
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            status = _NOT_FOUND
        reason = getattr(error, "strerror", error)
        words = f"aioredlock-ng {caller}: cannot execute {command[0]!r}: {reason}\n"
        os.write(2, words.encode(errors="backslashreplace"))
    finally:
        os._exit(status)


def _encoded(value: str) -> bytes:
    """Return the bytes of a variable. In an ASCII locale, a name in UTF-8 keeps its bytes."""
    try:
        return os.fsencode(value)
    except UnicodeEncodeError:
        return value.encode()


def _die_with(parent: int) -> None:
    """On Linux, make the kernel kill this process when its parent dies, even after exec."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # If the parent died before this call, the kernel does not kill this process, so the process
        # ends itself.
        if os.getppid() != parent:
            os._exit(0)


def _guard(leash: int, group: int) -> NoReturn:
    """Run the guardian, and kill the group if the parent dies or does not extend the limit."""
    try:
        # A signal to the parent's group or session must not reach the guardian.
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        # A program that reads the parent's output until the end of the file must not wait for the
        # guardian. So the guardian does not keep the parent's streams open.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        if not _ends_well(leash):
            os.killpg(group, signal.SIGKILL)
    finally:
        os._exit(0)


def _ends_well(leash: int) -> bool:
    """Read the parent's messages, and return True if the message `_ALL_IS_WELL` arrives.

    Return False if the parent has ended without this message, or has let the limit pass.
    """
    words = select.poll()
    words.register(leash, select.POLLIN)
    limit = math.inf
    while True:
        # The limit is checked at short intervals, because the timeout of `poll` does not count the
        # time for which the machine is suspended.
        passed = boottime() >= limit
        if words.poll(_SILENCE * 1000):
            word = os.read(leash, _LIMIT.size)
            if len(word) < _LIMIT.size:
                return word == _ALL_IS_WELL
            (limit,) = _LIMIT.unpack(word)
        elif passed:
            return False
