"""Which fence an attempt proposes; instants are arguments, and nothing here tells the time.

The scheme (proved in docs/fencing-proof.md): each node keeps a counter per slot of resource names. Round 1 proposes a fence
with the acquire; a node acknowledges it by storing it, if it is above its counter. Without a quorum of acknowledgements,
round 2 proposes one above every counter seen, to the nodes that granted or still may. Two leases share a node that
acknowledged both, the later one strictly above the earlier. Clocks only make one round likely; the order never depends on them.
"""

from __future__ import annotations

from zlib import crc32

__all__ = ["LATEST_US", "SLOTS", "FenceClock", "slot_of"]

LATEST_US = 8 * 10**15
"""Microseconds since 1970 (in 2223): beyond 2**53 a double, and so Lua, cannot tell a number from the next."""

SLOTS = 16_384
"""Counters per node: bounded memory, nothing to clean. Two resources in one slot cost a second round, never safety."""


def slot_of(key: bytes) -> bytes:
    """The field of a key's counter: CRC-32 of the key modulo `SLOTS`, in decimal; the same for every client."""
    return b"%d" % (crc32(key) % SLOTS)


class FenceClock:
    """Proposes fences in microseconds: of this process each higher than the last, and close to everybody else's.

    Attributes:
        offset: Microseconds by which the fences seen elsewhere are ahead of this machine's clock.
    """

    __slots__ = ("_fastest", "_last", "offset")

    def __init__(self) -> None:
        self._last = 0
        self._fastest: dict[int, int] = {}
        self.offset = 0

    def propose(self, now_us: int, above: int = 0) -> int:
        """A fence above `above` and above every earlier one, at `now_us` of the wall clock."""
        fence = now_us + self.offset
        if fence <= self._last:
            fence = self._last + 1
        if fence <= above:
            fence = above + 1
        self._last = fence
        return fence

    def overtaken(self, counter: int, node: int, proposed_us: int, answered_us: int) -> None:
        """A node's counter was not below what we proposed at `proposed_us`: what then would have been above it?

        Counters come from the past, so this converges on the fastest clock from below: of n fences that alternate with
        those of a faster clock, about the n-th part takes a second round. But a counter may also be of somebody who
        proposed after us and was faster; learned as it is, processes would drive each other ahead without end. Our question can
        have been overtaken only by as much as its round trip was longer than that node's shortest.

        Args:
            counter: The node's.
            node: Its index.
            proposed_us: Microseconds of the wall clock.
            answered_us: The same, when that node's answer came.
        """
        took = max(0, answered_us - proposed_us)
        self._fastest[node] = fastest = min(took, self._fastest.get(node, took))
        ahead = counter + 1 - proposed_us - (took - fastest)
        # What no clock shows is not learned: it would be carried to every counter that is met.
        if self.offset < ahead and counter < LATEST_US:
            self.offset = ahead
