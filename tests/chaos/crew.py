"""The client processes of a run, one per place, and their replacements."""

from __future__ import annotations

import asyncio
import queue
from typing import TYPE_CHECKING, Any, Final

from .processes import Process

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .history import History

__all__ = ["Crew"]

_READY_SECONDS: Final = 120.0
_DRAIN_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 30.0
"""Seconds, a bound against hanging.

On a busy machine interpreters took up to 10 s for their end.
"""


class Crew:
    """Starts, stops, kills and replaces client processes.

    All methods belong to the event loop of the main thread.

    Args:
        roles: The number of coroutines of each kind, for each place. See `clients.worker`.
        task: Settings of all processes.
        folder: The folder of the histories.
        history: The history of the nemesis.
        python: The interpreter.
    """

    def __init__(
        self,
        roles: Sequence[dict[str, Any]],
        task: dict[str, Any],
        folder: Path,
        history: History,
        python: Path | None,
    ) -> None:
        self._roles = roles
        self._task = task
        self._folder = folder
        self._history = history
        self._python = python
        self._started = 0
        self._names: list[str] = [""] * len(roles)
        self._processes: list[Process | None] = [None] * len(roles)

    async def start(self) -> None:
        """Start all processes, and wait until they work."""
        await asyncio.gather(*(self._start(slot) for slot in range(len(self._names))))

    async def stop(self, slot: int, seconds: float) -> None:
        """Stop one process for some seconds."""
        process = self._processes[slot]
        assert process is not None
        name = self._names[slot]
        await asyncio.to_thread(process.stop)
        self._history.write("stop", p=name)
        await asyncio.sleep(seconds)
        self._history.write("cont", p=name)
        process.go_on()

    async def replace(self, slot: int) -> None:
        """Kill one process, and start another in its place."""
        process = self._processes[slot]
        assert process is not None
        await asyncio.to_thread(process.kill)
        self._history.write("kill", p=self._names[slot])
        await self._start(slot)

    async def drain(self) -> None:
        """Let all processes release their locks and rest.

        Record and replace a process that does not.
        """
        await asyncio.gather(*(self._drain(slot) for slot in range(len(self._names))))

    def go_on(self) -> None:
        """Let all processes work again."""
        for process in self._processes:
            assert process is not None
            process.say("go")

    async def close(self) -> None:
        """Let all processes end by themselves."""
        ends = [
            asyncio.to_thread(process.close, _CLOSE_SECONDS)
            for process in self._processes
            if process is not None
        ]
        statuses = await asyncio.gather(*ends)
        for name, status in zip(self._names, statuses, strict=True):
            if status:
                self._history.write("stuck", p=name, status=status)

    def kill(self) -> None:
        """Kill all processes."""
        for process in self._processes:
            if process is not None and process.running:
                process.kill()

    async def _start(self, slot: int) -> None:
        self._started += 1
        number = self._started
        name = self._names[slot] = f"client-{slot}.{number}"
        own = {"name": name, "number": number, "seed": self._task["seed"] * 1000 + number}
        own |= {"history": str(self._folder / f"{name}.jsonl"), **self._roles[slot]}
        process = Process(
            "clients.worker", self._task | own, self._folder / "clients.log", self._python
        )
        self._processes[slot] = process
        try:
            word = await asyncio.to_thread(process.line, _READY_SECONDS)
        except queue.Empty:
            word = ""
        if word != "ready":
            raise RuntimeError(f"{name} did not begin: see {self._folder / 'clients.log'}")

    async def _drain(self, slot: int) -> None:
        process = self._processes[slot]
        assert process is not None
        process.say("drain")
        try:
            word = await asyncio.to_thread(process.line, _DRAIN_SECONDS)
        except queue.Empty:
            word = ""
        if word != "drained":
            self._history.write("stuck", p=self._names[slot], status=0)
            await self.replace(slot)
            await self._drain(slot)
