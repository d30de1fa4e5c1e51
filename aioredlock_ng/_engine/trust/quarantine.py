"""Describe quarantines: the states of nodes, the reasons in errors, and the events."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from aioredlock_ng._core.marker import LONGEST_MS, Trust
from aioredlock_ng._core.recovery_guard import all_forgot, new_set_words
from aioredlock_ng.events import AllNodesForgot, NodeQuarantined, NodeTrusted

if TYPE_CHECKING:
    from aioredlock_ng._core.marker import Reading
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.trust.markers import Markers
    from aioredlock_ng._nodes.port import NodeState

__all__ = ["Quarantine", "flush_advice"]

_FORGOT = "a restart, a flush or a failover made it forget"
_NEW_OR_FORGOT = f"it is new, or {_FORGOT}"
_EXCESSIVE = f"its marker named a guard time above {LONGEST_MS:,} ms, which no manager writes"


def flush_advice() -> str:
    """Return advice for a test suite that flushes its servers; "" outside of pytest.

    In production the advice would be dangerous, because `recovery_guard=None` turns the recovery
    guard off.
    """
    return (
        "a test suite that flushes its servers should use recovery_guard=None"
        if "pytest" in sys.modules
        else ""
    )


class Quarantine:
    """Describes and reports the quarantines of one manager's nodes.

    Args:
        markers: The markers as last read.
        strict: True if even a new set of nodes must wait for the guard time.
    """

    def __init__(self, context: Context, markers: Markers, *, strict: bool) -> None:
        self._context = context
        self._markers = markers
        self._strict = strict
        self._void = False
        self._quarantined: set[int] = set()

    def connected(self, index: int) -> None:
        """Let `report` announce a node's quarantine again, because the node has reconnected."""
        self._quarantined.discard(index)

    def state(self, index: int, state: NodeState) -> NodeState:
        """Return `state`, changed to "quarantined" if the node is up but may not vote."""
        reading = self._markers.readings[index]
        why = self._markers.refusals[index]
        if state.state != "up" or not (
            why or (reading is not None and reading.trust is not Trust.TRUSTED)
        ):
            return state
        if not why and reading is not None:
            why = self._why(index, reading)
            if reading.trust is not Trust.FOUNDING:
                left = reading.left(self._context.clock())
                why = f"may have forgotten locks, {left:.1f} s left; {why}"
        return replace(state, state="quarantined", reason=why)

    def words(self, index: int) -> str:
        """Return the reason for a quarantine, if the reason is a new set or a refused marker.

        Return "" in all other cases, for example if the node may have forgotten locks.
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
                for node, read in zip(nodes, self._markers.answered(), strict=True)
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

    def report(self) -> None:
        """Emit an event for each node that has entered or left quarantine since the last call."""
        self._report_void()
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

    def _report_void(self) -> None:
        """Report if all nodes have lost their memory.

        A second report follows only if a node was trusted in between.
        """
        before, now = self._void, self._context.clock()
        if any(
            reading is not None and reading.trust is Trust.TRUSTED
            for reading in self._markers.readings
        ):
            self._void = False
        elif all_forgot(
            self._markers.answered(), self._markers.memories, now, self._markers.known_ms
        ):
            self._void = True
        if self._void and not before:
            nodes = tuple(node.address for node in self._context.fleet.nodes)
            left = min(
                reading.left(now) for reading in self._markers.readings if reading is not None
            )
            self._context.emit(AllNodesForgot(nodes, left))
