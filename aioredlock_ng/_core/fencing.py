"""Which fence an attempt proposes; instants are arguments, and nothing here tells the time.

The scheme (proved in docs/fencing-proof.md): each node keeps a counter per slot of resource names. Round 1 proposes a fence
with the acquire; a node acknowledges it by storing it, if it is above its counter. Without a quorum of acknowledgements,
round 2 proposes one above every counter seen, to the nodes that granted or still may. Two leases share a node that
acknowledged both, the later one strictly above the earlier. Clocks only make one round likely; the order never depends on them.

A proposal is a multiple of `STEP`. The fences from there to the next multiple come with it: no other attempt can be granted
one of those any more. A grant also owns fences below its own, down to the counters that it replaced; see `first_of`. They
are for the leases that the grant is passed on to without a question to the nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BLOCK", "LATEST_US", "SLOTS", "STEP", "FenceClock", "first_of", "following", "slot_of"]

LATEST_US = 8 * 10**15
"""Microseconds since 1970 (in 2223): beyond 2**53 a double, and so Lua, cannot tell a number from the next.

No clock proposes more, and a node whose counter is above does not count: `replies.BrokenCounter`."""

SLOTS = 16_384
"""Counters per node: bounded memory, nothing to clean. Two resources in one slot cost a second round, never safety."""

STEP = 16
"""Fences that come with a proposal. Microseconds: no two clients can take one name so soon after each other, so the fences
that are skipped put no client behind the clock."""

BLOCK = 1024 * STEP
"""The most fences below a proposal that a grant owns. Hardly any run has as many leases.
Without a bound a node that forgot its counter would give back fences that earlier leases have had."""


def slot_of(key: bytes) -> bytes:
    """The field of a key's counter: CRC-32 of the key modulo `SLOTS`, in decimal; the same for every client."""
    return b"%d" % (crc32(key) % SLOTS)


def first_of(stored: int, before: int) -> int:
    """Return the lowest fence of a grant.

    Args:
        stored: The fence that a quorum stored.
        before: The highest counter that it replaced on the nodes of that quorum.
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
    """Proposes fences in microseconds: of one slot each higher than the last, and all close to everybody else's.

    Attributes:
        offset: Microseconds by which the fences seen elsewhere are ahead of this machine's clock.
        refused: Nodes that have said a counter beyond all clocks, so that it is logged once.
    """

    __slots__ = ("_fastest", "_last", "_slots", "offset", "refused")

    def __init__(self) -> None:
        self._last = 0
        # Those for which the last was proposed: others may have the same. A burst of names would run ahead of the clock.
        self._slots: set[bytes] = set()
        self._fastest: dict[int, int] = {}
        self.offset = 0
        self.refused: set[int] = set()

    def propose(self, now_us: int, slots: Iterable[bytes], above: int = 0) -> int:
        """A fence above `above` and every earlier one of these slots, at `now_us` of the wall clock; a multiple of `STEP`."""
        base_us = now_us + self.offset
        # A clock that is wrong by centuries proposes nothing: second rounds then go by the counters alone.
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
        """A node's counter was not below what we proposed at `proposed_us`: what then would have been above it?

        Counters come from the past, so this converges on the fastest clock from below: of n fences that alternate with
        those of a faster clock, about the n-th part takes a second round. But a counter may also be of somebody who
        proposed after us and was faster; learned as it is, processes would drive each other ahead without end. Our question can
        have been overtaken only by as much as its round trip was longer than that node's shortest.

        Args:
            counter: The node's.
            node: Its index.
            proposed_us: Microseconds of the wall clock, rounded as the proposal was: so was what the counter is from.
            answered_us: Microseconds of the wall clock, when that node's answer came.
        """
        took = max(0, answered_us - proposed_us)
        self._fastest[node] = fastest = min(took, self._fastest.get(node, took))
        ahead = counter + 1 - proposed_us - (took - fastest)
        # What no clock shows is not learned: it would be carried to every counter that is met.
        if self.offset < ahead and counter < LATEST_US:
            self.offset = ahead
