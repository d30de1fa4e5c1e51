"""The marker and the floor of a lock server in memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aioredlock_ng._core.fencing import STEP
from aioredlock_ng._core.marker import Trust, read_marker
from aioredlock_ng._nodes.memory.queue_scripts import StandingServer
from aioredlock_ng._scripts.exclusive_kinds import MARKER_KEY

if TYPE_CHECKING:
    from aioredlock_ng._core.marker import Reading
    from aioredlock_ng._nodes.memory.keyspace import Connection

__all__ = ["FLOOR", "TrustingServer"]

FLOOR = b"floor"
"""The name of the floor among the fence counters."""


class TrustingServer(StandingServer):
    """A lock server with a marker, which decides whether the server's memory is trusted."""

    def _distrusted(self, own_marker: bytes, by: Connection) -> list[int] | None:
        """Return the refusal if the node is not trusted, else None; see parts/trust.lua.

        A node whose guard time has passed becomes trusted.
        """
        reading = self._read_marker(own_marker)
        distrusted = reading.trust in (Trust.NONE, Trust.FOREIGN, Trust.EXCESSIVE)
        if distrusted or reading.guard_ms < int(own_marker.partition(b":")[2]):
            return [-1, -1]
        if reading.ready_ms > reading.node_ms:
            return [-1, reading.ready_ms - reading.node_ms]
        if reading.trust is not Trust.TRUSTED:
            self.set(MARKER_KEY, b"%b:%d" % (reading.run_id, reading.guard_ms), math.inf, by)
            self._store_floor()
        return None

    def _store_floor(self) -> None:
        now = self._now_ms() * 1000
        self.counters[FLOOR] = max(now + -now % STEP, self.counters.get(FLOOR, 0))

    def _own(self, marker: bytes) -> bytes:
        """Return a marker with this server's run id in place of the placeholder.

        A marker with the run id of an earlier process of this server is returned unchanged.
        """
        named, _, guard = marker.partition(b":")
        return marker if named in self._past else b"%b:%b" % (self.run_id, guard)

    def _read_marker(self, own_marker: bytes) -> Reading:
        marker = self.get(MARKER_KEY) or b""
        return read_marker(marker, self._now_ms(), self._own(own_marker), 0.0, 0.0)

    def _now_ms(self) -> int:
        return int((self._clock() + self.skew) * 1000)
