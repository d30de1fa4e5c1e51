"""Real workers of a job queue and real producers, as processes of their own, over accounts that are
files.

Each queue has an environment of its own: it says which redis-py it works with, and no test of ours
shall be held back by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tomllib
from typing import TYPE_CHECKING

from tests.support.coverage import untraced
from tests.support.eventually import eventually

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

__all__ = ["Workers", "python_with"]


def python_with(name: str, *packages: str) -> Path:
    """Return the interpreter of an environment with these and what our package needs; the package
    itself is the checkout's.
    """
    from benchmarks import environments

    settings = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text(encoding="utf-8"))
    return environments.python_with(name, [*packages, *settings["project"]["dependencies"]])


class Workers:
    """Workers that have started when this is entered, and have gone when it is left.

    Args:
        commands: One worker each.
        broker: URL of the queue's server.
        bank: Folder of the accounts.
        ready: The words of a worker that is ready.
    """

    def __init__(
        self, commands: Sequence[Sequence[str | Path]], broker: str, bank: Path, ready: str
    ) -> None:
        self._commands = commands
        self._ready = ready
        self._bank = bank
        ours = {
            "BROKER": broker,
            "BANK": str(bank),
            "PYTHONPATH": str(EXAMPLES.parent),
            "PYTHONUNBUFFERED": "1",
        }
        self._environment = {**untraced(), **ours}
        self._processes: list[asyncio.subprocess.Process] = []
        self._listeners: list[asyncio.Task[None]] = []
        self.said = ""

    async def __aenter__(self) -> Self:
        try:
            for command in self._commands:
                process = await self._start(command)
                self._processes.append(process)
                self._listeners.append(asyncio.create_task(self._listen(process)))
            await eventually(lambda: self.said.count(self._ready) >= len(self._commands), within=50)
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.terminate()
        try:
            async with asyncio.timeout(30):
                await asyncio.gather(*self._listeners)
                for process in self._processes:
                    await process.wait()
        finally:
            for process in self._processes:
                # Processes of their own that workers have started, too: all of them are gone, or
                # end here.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            if error is not None:
                error.add_note(self.said)

    async def produce(self, *command: str | Path) -> str:
        """Run a producer to its end; return what it said."""
        process = await self._start(command)
        told, _ = await process.communicate()
        assert process.returncode == 0, told.decode()
        return told.decode()

    async def says(self, words: str, within: float = 20.0) -> None:
        """Wait until a worker has said so."""
        await eventually(lambda: words in self.said, within)

    async def balance(self, account: str, wanted: int, within: float = 30.0) -> None:
        """Wait until so much is in the account."""
        file = self._bank / account
        await eventually(lambda: file.exists() and int(file.read_text()) >= wanted, within)
        assert int(file.read_text()) == wanted

    async def _start(self, command: Sequence[str | Path]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=EXAMPLES.parent,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.said += line.decode(errors="replace")
