"""What is said of nodes in quarantine: states, errors and events; it decides nothing."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from aioredlock_ng._core.guard import LONGEST_MS, Trust, all_forgot, new_set_words
from aioredlock_ng.events import AllNodesForgot, NodeQuarantined, NodeTrusted

if TYPE_CHECKING:
    from aioredlock_ng._core.guard import Reading
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.trust.markers import Markers
    from aioredlock_ng._nodes.port import NodeState

__all__ = ["Quarantine", "flush_advice"]

_FORGOT = "a restart, a flush or a failover made it forget"
_NEW_OR_FORGOT = f"it is new, or {_FORGOT}"
_EXCESSIVE = f"its marker named a guard time above {LONGEST_MS:,} ms, which no manager writes"


def flush_advice() -> str:
    """Return advice for test suites, "" outside of one: anywhere else it would be dangerous."""
    return (
        "a test suite that flushes its servers uses recovery_guard=None"
        if "pytest" in sys.modules
        else ""
    )


class Quarantine:
    """Puts into words what the markers mean.

    Args:
        context: The engine's surroundings.
        markers: The markers as last read.
        strict: Whether a new set waits the guard time too.
    """

    def __init__(self, context: Context, markers: Markers, *, strict: bool) -> None:
        self._context = context
        self._markers = markers
        self._strict = strict
        self._void = False
        self._quarantined: set[int] = set()

    def greeted(self, index: int) -> None:
        """There is a new connection to a node: its quarantine, if it is in one, is told once more."""
        self._quarantined.discard(index)

    def state(self, index: int, state: NodeState) -> NodeState:
        """The node's health with what its marker says."""
        reading = self._markers.readings[index]
        why = self._markers.refusals[index]
        if state.state != "up" or not (
            why or (reading is not None and reading.trust is not Trust.TRUSTED)
        ):
            return state
        if not why and reading is not None:
            why = self._why(index, reading)
            if reading.trust is not Trust.FOUNDING:
                why = f"may have forgotten locks, {reading.left(self._context.clock()):.1f} s left; {why}"
        return replace(state, state="quarantined", reason=why)

    def words(self, index: int) -> str:
        """Return why a node is in quarantine, where that is not that it may have forgotten locks.

        The server's own words, where it refuses to keep a marker: then its quarantine never ends.
        Or that the set is new.
        """
        reading = self._markers.readings[index]
        if (
            not self._markers.refusals[index]
            and reading is not None
            and reading.trust is Trust.FOUNDING
        ):
            return self._why(index, reading)
        return self._markers.refusals[index]

    def _why(self, index: int, reading: Reading) -> str:
        """Return the reason for a quarantine that ends by itself."""
        if reading.trust is Trust.FOUNDING:
            nodes = [node.state() for node in self._context.fleet.nodes]
            missing = [
                (node.address, node.reason or "no answer yet")
                for node, read in zip(nodes, self._markers.readings, strict=True)
                if read is None
            ]
            return new_set_words(missing, reading.left(self._context.clock()))
        why = (
            _EXCESSIVE
            if index in self._markers.excessive
            else _NEW_OR_FORGOT
            if self._strict
            else _FORGOT
        )
        advice = flush_advice()
        return f"{why}; {advice}" if advice else why

    def say(self) -> None:
        self._say_void()
        for index, node in enumerate(self._context.fleet.nodes):
            why, reading = self._markers.refusals[index], self._markers.readings[index]
            left = inf if why else self._markers.left(index)
            if left is not None and index not in self._quarantined:
                self._quarantined.add(index)
                if not why and reading is not None:
                    why = self._why(index, reading)
                self._context.emit(NodeQuarantined(node.address, left, why))
            elif left is None and reading is not None and index in self._quarantined:
                self._quarantined.discard(index)
                self._context.emit(NodeTrusted(node.address))

    def _say_void(self) -> None:
        """Say once that no node knows the locks of before; anew after a node was trusted again."""
        before, now = self._void, self._context.clock()
        if any(
            reading is not None and reading.trust is Trust.TRUSTED
            for reading in self._markers.readings
        ):
            self._void = False
        elif all_forgot(
            self._markers.readings, self._markers.memories, now, self._markers.known_ms
        ):
            self._void = True
        if self._void and not before:
            nodes = tuple(node.address for node in self._context.fleet.nodes)
            left = min(
                reading.left(now) for reading in self._markers.readings if reading is not None
            )
            self._context.emit(AllNodesForgot(nodes, left))
