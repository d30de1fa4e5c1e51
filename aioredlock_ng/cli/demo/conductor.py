"""Play the phases of the demo in order, and count the updates of each phase."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioredlock_ng.cli.shown import seconds as seconds_of

from .faulty_nodes import force_release
from .ledger import Loss, PhaseLedger
from .messages import Hold, Kept, Lost, Refused, Rival, Taken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from .board import Board, View
    from .counters import Counters
    from .crew import Crew
    from .faulty_nodes import StagedNodes
    from .messages import Progress

__all__ = ["FULL_SECONDS", "HOLDER_TTL", "WORKER_TTL", "Conductor", "HolderFailed"]

FULL_SECONDS = 25.0
"""Default length of all phases together, in seconds. If no phase is left out, the shares
in `_scenes` add up to this length."""

WORKER_TTL = 2.0
"""Ttl of the workers' locks in seconds. The workers hold their locks for milliseconds."""

HOLDER_TTL = 1.0
"""Ttl in seconds of the lock that is taken from its holder.

The ttl is shorter than that of the workers, so that the holder notices the loss sooner.
"""

_REFRESH_SECONDS = 0.2
# Share of a phase that passes before its fault begins, so that the fault affects running work.
_LEAD_IN_SHARE = 0.1
# Longest wait for an answer of the holder. The holder's own wait for its lock is shorter.
_ANSWER_SECONDS = 40.0
# The holder works under its lock for this many ttls, so that it notices the loss before it writes.
# A holder that did not notice the loss would write an outdated value and so destroy updates.
_HOLD_TTLS = 4.0
_FREEZE_TTLS = 1.5


class HolderFailed(RuntimeError):
    """The process whose lock the demo takes away did not acquire this lock."""


@dataclass(frozen=True, slots=True)
class _Scene:
    title: str
    locked: bool
    share: float
    action: Callable[[float], Awaitable[None]] | None = None


class Conductor:
    """The course of the demo: its phases, its faults and its counts.

    Args:
        nodes: The nodes, some of which the conductor makes fail.
        crew: The started worker processes.
        counters: The shared counters. Their sum shows how many updates are missing.
        board: The board, which the conductor keeps up to date.
        view: The view, which is refreshed several times a second.
        seconds: Approximate length of all phases together.
        prefix: Beginning of the lock names.
        contested: The counter whose lock is taken from its holder.
    """

    def __init__(
        self,
        nodes: StagedNodes,
        crew: Crew,
        counters: Counters,
        board: Board,
        view: View,
        *,
        seconds: float,
        prefix: str,
        contested: int,
    ) -> None:
        self._nodes = nodes
        self._crew = crew
        self._counters = counters
        self._board = board
        self._view = view
        self._unit = seconds / FULL_SECONDS
        self._prefix = prefix
        self._contested = contested
        self._started_at = time.monotonic()
        self._killed_at = -WORKER_TTL
        self._base = 0

    async def run(self) -> None:
        """Play every phase that these nodes allow.

        Raises:
            WorkerFailed: A worker process ended or did not answer.
            HolderFailed: The holder did not acquire the lock that the demo would have taken away.
            NodesFailed: A node did not react as the demo needs.

        Safety: a cancelled call may leave nodes paused or killed, and workers running. The caller
        must close the nodes and the crew.
        """
        scenes = self._scenes()
        self._board.planned = len(scenes)
        for words in self._nodes.left_out:
            self.event(f"left out: {words}")
        async with self._refreshing():
            for number, scene in enumerate(scenes):
                await self._play(number, scene)

    def event(self, words: str) -> None:
        """Put an event on the board and show it."""
        self._board.elapsed = time.monotonic() - self._started_at
        self._board.events.append((self._board.elapsed, words))
        self._view.event(words)

    def progress(self, report: Progress) -> None:
        """Add a worker's report to the counts of its phase."""
        ledger = self._board.phases[report.phase]
        ledger.add(
            # The counters are read after the report has come. Counters from an earlier moment may
            # lack updates that the report acknowledges, and these updates would look lost.
            gained=self._gained(),
            acknowledged=report.acknowledged,
            in_doubt=report.in_doubt,
            refused=report.refused,
            leases_lost=report.leases_lost,
            waits_us=report.waits_us,
        )

    def _gained(self) -> int:
        return self._counters.total() - self._base

    def _scenes(self) -> list[_Scene]:
        gone = len(self._nodes.expendable)
        total = len(self._nodes.urls)
        scenes = [_Scene("no lock", False, 3), _Scene("lock, all nodes up", True, 4)]
        if gone >= 1:
            scenes.append(_Scene(f"lock, 1 of {total} hung", True, 4.5, self._hang))
        if gone >= 2:
            scenes.append(_Scene(f"lock, 2 of {total} gone", True, 4.5, self._kill))
        if gone >= 1:
            scenes.append(_Scene("lock, nodes back", True, 4, self._bring_back))
        scenes.append(_Scene("lock, taken away", True, 5, self._lose))
        return scenes

    async def _play(self, number: int, scene: _Scene) -> None:
        ledger = PhaseLedger(scene.title, scene.locked)
        self._base = self._counters.total()
        self._board.phases.append(ledger)
        self._board.rate = 0.0
        self.event(f"phase {number + 1} of {self._board.planned}: {scene.title}")
        seconds = scene.share * self._unit
        began_at = time.monotonic()
        await self._crew.begin(number, scene.locked)
        if scene.action is not None:
            await asyncio.sleep(_LEAD_IN_SHARE * seconds)
            await scene.action(seconds)
        await asyncio.sleep(began_at + seconds - time.monotonic())
        await self._crew.end()
        ledger.seconds = time.monotonic() - began_at
        ledger.gained = self._gained()
        self.event(f"{scene.title}: {ledger.acknowledged:,} updates, {ledger.lost:,} of them lost")

    async def _hang(self, seconds: float) -> None:
        hung = self._nodes.expendable[0]
        # A node from `--url` comes back by itself after the time that `hang` gets. If the next
        # phase takes away a second node, the first node must stay away until that phase ends.
        await self._nodes.hang(hung, 2 * seconds if len(self._nodes.expendable) > 1 else seconds)
        self.event(f"node {hung + 1} hung ({self._nodes.hang_words})")

    async def _kill(self, seconds: float) -> None:
        killed = self._nodes.expendable[1]
        await self._nodes.kill(killed, seconds)
        self._killed_at = time.monotonic()
        self.event(f"node {killed + 1} gone ({self._nodes.kill_words})")

    async def _bring_back(self, seconds: float) -> None:
        # A server that lost its keys must stay away until every lease that it voted for has ended.
        not_before = self._killed_at + WORKER_TTL
        for index in self._nodes.expendable[:2]:
            await self._nodes.bring_back(index, not_before)
            self.event(f"node {index + 1} is back")

    async def _lose(self, seconds: float) -> None:
        holder = self._crew.holder
        for worker in self._crew.workers:
            worker.tell(Rival(self._contested, HOLDER_TTL))
        await self._hold()
        erased, since = await force_release(
            self._nodes, f"{self._prefix}:counter:{self._contested}"
        )
        how = f"released by force on {erased} of {len(self._nodes.urls)} nodes"
        self.event(f"process {holder.pid}: {how}")
        await self._told(how, since, "the deletion")

        await self._hold()
        holder.signal(signal.SIGSTOP)
        how = f"process frozen for {_FREEZE_TTLS:g} ttl"
        self.event(f"process {holder.pid}: frozen (SIGSTOP), it cannot renew")
        await asyncio.sleep(_FREEZE_TTLS * HOLDER_TTL)
        since = time.monotonic()
        holder.signal(signal.SIGCONT)
        await self._told(how, since, "SIGCONT")

    async def _hold(self) -> None:
        holder = self._crew.holder
        holder.tell(Hold(self._contested, HOLDER_TTL, _HOLD_TTLS * HOLDER_TTL))
        answer = await holder.answer(_ANSWER_SECONDS, Taken, Refused)
        if isinstance(answer, Refused):
            raise HolderFailed(f"the holder could not get its lock: {answer.why}")
        if isinstance(answer, Taken):
            self.event(
                f"process {holder.pid} holds the lock of counter {self._contested}, has read"
                f" {answer.value}, and continues its work"
            )

    async def _told(self, how: str, since: float, since_words: str) -> None:
        holder = self._crew.holder
        answer = await holder.answer(_ANSWER_SECONDS, Lost, Kept)
        noticed = None
        if isinstance(answer, Lost) and answer.cancelled:
            noticed = max(0.0, answer.at - since)
            self.event(
                f"process {holder.pid}: cancelled {seconds_of(noticed)} after {since_words},"
                " wrote nothing"
            )
        else:
            self.event(f"process {holder.pid}: it was NOT cancelled")
        self._board.losses.append(Loss(how, HOLDER_TTL, noticed, since_words))

    @contextlib.asynccontextmanager
    async def _refreshing(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._refresh(), name="demo-refresh")
        try:
            yield
        finally:
            task.cancel()

    async def _refresh(self) -> None:
        past: list[tuple[float, int, PhaseLedger]] = []
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            now = time.monotonic()
            self._board.elapsed = now - self._started_at
            if self._board.phases:
                ledger = self._board.phases[-1]
                acknowledged = ledger.acknowledged
                if not ledger.seconds:
                    ledger.gained = self._gained()
                past = [entry for entry in past if entry[2] is ledger and entry[0] > now - 1.1]
                past.append((now, acknowledged, ledger))
                first_at, first, _ = past[0]
                if now > first_at:
                    self._board.rate = (acknowledged - first) / (now - first_at)
            self._view.refresh()
