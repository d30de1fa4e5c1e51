"""Upper bound of the time after a fault until every client can use the node again.

The bound follows from the library's own rules. A client reconnects after a delay that doubles with
each failure. The delay also doubles while connections break soon after they were made. A node that
forgot is in quarantine. A longer time is a finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioredlock_ng._core.backoff import reconnect_delay
from aioredlock_ng._nodes.node import STEADY

if TYPE_CHECKING:
    from .plan import Kind

__all__ = ["Settling"]

_HANDSHAKE: Final = 0.5
"""Seconds for connecting, the greeting, and answering what waited, on a busy machine."""

_START: Final = 0.3
"""Seconds that a server may take to be back after its start."""


class Settling:
    """The state of each node's connections, in planned time.

    Args:
        nodes: Number of nodes.
        guard: Seconds of quarantine.
    """

    def __init__(self, nodes: int, guard: float) -> None:
        self._guard = guard
        self._failures = [0] * nodes
        self._connected_at = [-STEADY] * nodes

    def after(
        self, kind: Kind, nodes: tuple[int, ...], at: float, seconds: float, *, drop: bool
    ) -> float:
        """Return the seconds from the end of a fault until its nodes are in use again.

        Args:
            kind: The fault.
            nodes: The nodes that it hits.
            at: Instant of its begin.
            seconds: Its length.
            drop: True if connections are dropped at the end of a stall.
        """
        forgot = self._guard if kind in {"kill", "flush"} else 0.0
        if kind in {"cut", "client_kill", "refuse", "kill"} or (kind == "stall" and drop):
            outage = seconds if kind in {"refuse", "kill"} else 0.0
            begin = at + seconds - outage
            slowest = max(
                self._reconnect(node, begin, outage + (_START if kind == "kill" else 0.0))
                for node in nodes
            )
            return slowest + _HANDSHAKE + forgot
        return (0.2 if kind == "script_flush" else _HANDSHAKE) + forgot

    def _reconnect(self, node: int, at: float, outage: float) -> float:
        """The longest possible time from the end of an outage to the attempt that succeeds."""
        failures = 0 if at - self._connected_at[node] > STEADY else self._failures[node]
        # As many attempts as there can be, with the shortest delays; and then the longest of the
        # next.
        tried_at = reconnect_delay(failures, 0.0)
        while tried_at <= outage:
            failures += 1
            tried_at += reconnect_delay(failures, 0.0)
        delay = reconnect_delay(failures, 1.0)
        self._failures[node] = failures + 1
        self._connected_at[node] = at + outage + delay
        return delay
