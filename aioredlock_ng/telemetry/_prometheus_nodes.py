"""The Prometheus metrics of nodes. `PrometheusSink` makes and registers the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioredlock_ng.events import NodeDown, NodeQuarantined
from aioredlock_ng.telemetry._states import NODE_EVENTS, STATES, NodeStates

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import Counter, Gauge

    from aioredlock_ng.events import Event
    from aioredlock_ng.telemetry._states import NodeEvent

__all__ = ["Nodes"]


class Nodes:
    """The metrics of nodes.

    Args:
        counter: Makes a counter from its name, help and labels.
        gauge: Makes a gauge from its name, help, multiprocess mode and labels.
    """

    def __init__(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        self._states = NodeStates()
        self._outages = counter(
            "node_outages", "Lost connections and failed connections to nodes.", "node"
        )
        self._quarantines = counter(
            "node_quarantines", "Quarantines of nodes that may have forgotten locks.", "node"
        )
        self._state = gauge(
            "node_state",
            "1 for the present state of a node, 0 for the other states.",
            "livemax",
            "node",
            "state",
        )

    @property
    def takers(self) -> dict[type[Event], Callable[[Any], None]]:
        """The functions that count the events, by the type of the event."""
        return dict.fromkeys(NODE_EVENTS, self._take)

    def _take(self, event: NodeEvent) -> None:
        with self._states.taking(event) as (node, before, after):
            if after != before:
                for state in STATES:
                    self._state.labels(node, state).set(state == after)
        # Both counters are created before their first event, as those of `Elections`.
        outages, quarantines = self._outages.labels(node), self._quarantines.labels(node)
        if isinstance(event, NodeDown):
            outages.inc()
        elif isinstance(event, NodeQuarantined):
            quarantines.inc()
