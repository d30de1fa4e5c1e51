"""The fence that an attempt proposes. Instants are arguments.

The scheme is proved in docs/fencing-proof.md. Each node keeps a counter per slot of resource names.
Round 1 proposes a fence together with the acquire. A node whose counter is lower stores the fence,
and thereby acknowledges it. Without a quorum of acknowledgements, round 2 proposes a fence above
every counter seen. It goes to the nodes that granted or still may grant. Any two leases share a
node that acknowledged both fences. The later fence is strictly above the earlier one. The order
never depends on clocks. Clocks only make it likely that one round is enough.

A proposal is a multiple of `STEP`. It reserves all fences up to the next multiple. No other attempt
can be granted one of them any more. A grant also owns fences below its own, down to the counters
that it replaced; see `first_of`. The successors of its first lease get these fences without a
question to the nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BLOCK", "LATEST_US", "SLOTS", "STEP", "FenceClock", "first_of", "following", "slot_of"]

LATEST_US = 8 * 10**15
"""The largest fence that a clock proposes, in microseconds since 1970. Clocks reach it in 2223.

Lua has doubles, which cannot distinguish neighbouring integers above 2**53. A node whose counter is
higher than this does not count: see `replies.BrokenCounter`."""

SLOTS = 16_384
"""Counters per node. The number bounds the memory, so that nothing needs cleaning.

Two resources in one slot cost a second round. Safety does not suffer."""

STEP = 16
"""Number of fences that a proposal reserves, in microseconds.

Two clients need more microseconds than that to acquire one name. So the reserved fences are never
ahead of the next client's clock."""

BLOCK = 1024 * STEP
"""Largest number of fences below its proposal that a grant owns. Hardly any run has more leases.

Without a bound a node that forgot its counter would allow fences that earlier leases have had."""


def slot_of(key: bytes) -> bytes:
    """Return the field of a key's counter: CRC-32 of the key modulo `SLOTS`, in decimal.

    Every client computes the same field.
    """
    return b"%d" % (crc32(key) % SLOTS)


def first_of(stored: int, before: int) -> int:
    """Return the lowest fence of a grant.

    Args:
        stored: The fence that a quorum stored.
        before: The highest counter that this fence replaced on the nodes of that quorum.
    """
    return max(before - before % STEP + STEP, stored - BLOCK)


def following(fence: int, stored: int) -> int | None:
    """Return the next fence of a grant; None if the grant owns no more.

    Args:
        fence: The fence of the lease that ends.
        stored: The fence that a quorum stored for the grant.
    """
    return fence + 1 if fence + 1 < stored + STEP else None


class FenceClock:
    """Propose fences in microseconds, close to those of other processes.

    For one slot each fence is higher than the last.

    Attributes:
        offset: Microseconds by which other processes' fences are ahead of this machine's clock.
        refused: Nodes that have reported a counter beyond all clocks. Each of these nodes is logged
            once.
    """

    __slots__ = ("_fastest", "_last", "_slots", "offset", "refused")

    def __init__(self) -> None:
        self._last = 0
        # The slots for which the last fence was proposed. Other slots may get the same fence.
        # Otherwise a burst of names would run ahead of the clock.
        self._slots: set[bytes] = set()
        self._fastest: dict[int, int] = {}
        self.offset = 0
        self.refused: set[int] = set()

    def propose(self, now_us: int, slots: Iterable[bytes], above: int = 0) -> int:
        """Return a fence above `above` and above every earlier fence of these slots.

        Args:
            now_us: The wall clock in microseconds, near which the fence lies.
            slots: The slots of the attempt's keys.
            above: A counter that a node reported.

        Returns:
            A multiple of `STEP`.
        """
        base_us = now_us + self.offset
        # The time of a clock that is wrong by centuries is not proposed. Second rounds then use the
        # counters alone.
        fence = base_us if above < base_us < LATEST_US else above + 1
        fence += -fence % STEP
        if fence <= self._last:
            if self._slots.isdisjoint(slots):
                self._slots.update(slots)
                return self._last
            fence = self._last + STEP
        self._last = fence
        self._slots.clear()
        self._slots.update(slots)
        return fence

    def overtaken(self, counter: int, node: int, proposed_us: int, answered_us: int) -> None:
        """Learn the offset from a node whose counter was not below the proposal.

        Counters come from the past, so the offset approaches the fastest clock from below. If n
        fences alternate with those of a faster clock, about one of n takes a second round.

        A counter may also come from a process that proposed later and whose request arrived first.
        If the whole difference to such a counter were learned, processes would drive each other
        ahead without end. Another request can overtake this one only while this one is delayed. The
        delay is the difference between its round trip and the node's shortest. So the difference is
        subtracted.

        Args:
            counter: The node's counter.
            node: Its index.
            proposed_us: The wall clock at the proposal in microseconds, rounded as the proposal
                was. The fence behind the counter was rounded the same way.
            answered_us: The wall clock in microseconds when the node's answer came.
        """
        took = max(0, answered_us - proposed_us)
        self._fastest[node] = fastest = min(took, self._fastest.get(node, took))
        ahead = counter + 1 - proposed_us - (took - fastest)
        # A counter beyond all clocks is not learned. It would spread to the counters of every
        # node.
        if self.offset < ahead and counter < LATEST_US:
            self.offset = ahead
