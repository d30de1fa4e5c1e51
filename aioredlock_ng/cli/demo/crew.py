"""Start the worker processes, exchange messages with them, and end them even after an error."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import TYPE_CHECKING

from .messages import Begin, Drained, End, Progress, Ready, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from .messages import Message, Setup

__all__ = ["Crew", "WorkerFailed", "WorkerProcess"]

# On a busy machine, a worker may need this time to start its interpreter and to connect.
_READY_SECONDS = 40.0
# Longest wait until a worker has finished a phase. A worker's own wait for a lock is shorter.
_DRAIN_SECONDS = 15.0
_END_SECONDS = 3.0
_LINE_LIMIT = 4 * 1024 * 1024


class WorkerFailed(RuntimeError):
    """A worker process failed.

    If the process ended or gave no answer, the message ends with the last lines of its log.
    """


class WorkerProcess:
    """One worker process and the pipe to it.

    Args:
        log: The file for the standard error of the process.
        on_progress: Called with each `Progress` of the process.
    """

    def __init__(self, log: Path, on_progress: Callable[[Progress], None]) -> None:
        self._log = log
        self._on_progress = on_progress
        self._process: asyncio.subprocess.Process | None = None
        self._answers: asyncio.Queue[Message] = asyncio.Queue()
        self._listener: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._running().pid

    async def start(self, setup: Setup) -> None:
        """Start the process and wait until it is connected to the nodes."""
        with self._log.open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "aioredlock_ng.cli.demo.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=_LINE_LIMIT,
            )
        self._listener = asyncio.create_task(
            self._listen(), name=f"demo-worker-{self._process.pid}"
        )
        self.tell(setup)
        await self.answer(_READY_SECONDS, Ready)

    def tell(self, message: Message) -> None:
        """Send a message without waiting. Messages are too small to fill the pipe."""
        stdin = self._running().stdin
        assert stdin is not None
        stdin.write(encode(message))

    async def answer(self, seconds: float, *kinds: type[Message]) -> Message:
        """Return the next answer. Wait at most `seconds` for it.

        Raises:
            WorkerFailed: The process has ended, gave no answer in time, or gave an answer
                that is not one of `kinds`.
        """
        assert self._listener is not None
        next_answer = asyncio.create_task(self._answers.get())
        try:
            await asyncio.wait(
                {next_answer, self._listener}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if not next_answer.done():
                expected = " or ".join(kind.__name__ for kind in kinds)
                ended = (
                    "ended"
                    if self._listener.done()
                    else f"gave no answer ({expected}) in {seconds:g} s"
                )
                raise WorkerFailed(f"worker process {self.pid} {ended}{self._last_words()}")
            message = next_answer.result()
        finally:
            next_answer.cancel()
        if not isinstance(message, kinds):
            raise WorkerFailed(f"worker process {self.pid} answered {message}")
        return message

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. Nothing happens if the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._running().send_signal(number)

    async def end(self) -> None:
        """End the process, even if it is frozen. If needed, SIGKILL follows after a few seconds."""
        process = self._process
        if process is None:
            return
        self.signal(signal.SIGCONT)
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            if self._listener is not None:
                self._listener.cancel()

    async def _listen(self) -> None:
        stdout = self._running().stdout
        assert stdout is not None
        while line := await stdout.readline():
            message = decode(line)
            if isinstance(message, Progress):
                self._on_progress(message)
            else:
                self._answers.put_nowait(message)

    def _last_words(self) -> str:
        words = self._log.read_text(errors="replace").splitlines()[-12:]
        return ":\n" + "\n".join(words) if words else ""

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the worker process has not been started")
        return self._process


class Crew:
    """All worker processes: those that increment counters, and the holder that will lose its lock.

    Args:
        setup: The first message to each process.
        count: Number of processes that increment counters. The holder is an additional process.
        folder: The folder for the logs of all processes.
        on_progress: Called with each `Progress` of a process.
    """

    def __init__(
        self, setup: Setup, count: int, folder: Path, on_progress: Callable[[Progress], None]
    ) -> None:
        self._setup = setup
        self.workers: Sequence[WorkerProcess] = [
            WorkerProcess(folder / f"worker-{number}.log", on_progress) for number in range(count)
        ]
        self.holder = WorkerProcess(folder / "holder.log", on_progress)

    async def begin(self, phase: int, locked: bool) -> None:
        """Let all workers increment counters, with or without the lock."""
        for worker in self.workers:
            worker.tell(Begin(phase, locked))

    async def end(self) -> None:
        """Tell all workers to finish, and return once every worker has reported its increments."""
        for worker in self.workers:
            worker.tell(End())
        for worker in self.workers:
            await worker.answer(_DRAIN_SECONDS, Drained)

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.TaskGroup() as starts:
                for process in (*self.workers, self.holder):
                    starts.create_task(process.start(self._setup))
        except BaseException as error:
            await self._end_all()
            if isinstance(error, BaseExceptionGroup):
                raise error.exceptions[0] from None
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._end_all()

    async def _end_all(self) -> None:
        await asyncio.gather(
            *(process.end() for process in (*self.workers, self.holder)), return_exceptions=True
        )
