"""The fence that an attempt proposes.

The scheme is proved in docs/fencing-proof.md. Each resource name belongs to a slot, and each node
keeps a counter per slot. Round 1 proposes a fence together with the acquire. A node whose counter
is lower stores the fence, and thereby acknowledges it. If fewer nodes than a quorum acknowledged
the fence, round 2 proposes a fence above every counter that the nodes reported. Round 2 is sent to
the nodes that have granted the attempt or may still grant it. For any two grants of a name, some
node acknowledged both fences. So the later fence is strictly above the earlier one. The order of
fences never depends on clocks. Clocks only make it likely that one round is enough.

A proposal is a multiple of `STEP`, and reserves the fences below the next multiple. A grant also
owns fences below its proposal, down to the counters that the proposal replaced; see `first_of`. The
later leases of the grant get these fences without further requests to the nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BLOCK",
    "LATEST_US",
    "SLOTS",
    "STEP",
    "FenceClock",
    "first_of",
    "following",
    "mark_of",
    "slot_of",
]

LATEST_US = 8 * 10**15
"""The largest fence that a clock proposes, in microseconds since 1970. Clocks reach it in 2223.

Numbers in Lua are doubles, which cannot distinguish neighbouring integers above 2**53. The vote of
a node with a counter above `LATEST_US` is `failed`; see `replies.BrokenCounter`."""

SLOTS = 16_384
"""Number of counters per node. The bound makes it unnecessary to delete counters.

Two resources in one slot may cause second rounds for each other, but their fences stay correct."""

STEP = 16
"""Number of fences that a proposal reserves. Fences count microseconds.

An acquire takes longer than `STEP` microseconds, so the reserved fences do not run ahead of the
next client's clock."""

BLOCK = 1024 * STEP
"""Greatest number of fences below its proposal that a grant owns. Each lease of the grant uses one
fence, and hardly any grant has that many leases.

Without this bound, a grant could own the fences of earlier leases if a node has forgotten its
counter."""


def slot_of(key: bytes) -> bytes:
    """Return the slot of a key's counter: the CRC-32 of the key modulo `SLOTS`, in decimal."""
    return b"%d" % (crc32(key) % SLOTS)


def first_of(stored: int, before: int) -> int:
    """Return the lowest fence of a grant.

    Args:
        stored: The fence that a quorum stored.
        before: The highest counter that the fence replaced on the nodes of the quorum.
    """
    return max(before - before % STEP + STEP, stored - BLOCK)


def following(fence: int, stored: int) -> int | None:
    """Return the next fence of a grant; None if the grant owns no further fence.

    Args:
        fence: The fence of the lease that ends.
        stored: The fence that a quorum stored for the grant.
    """
    return fence + 1 if fence + 1 < stored + STEP else None


def mark_of(counter: int) -> int:
    """Return the mark: the last number of the block of `STEP` numbers that contains the counter."""
    return counter - counter % STEP + STEP - 1


class FenceClock:
    """Proposes fences in microseconds, close to the fences of other processes.

    For one slot, each fence is higher than the previous fence.

    Attributes:
        offset: Microseconds by which other processes' fences are ahead of this machine's clock.
        refused: Indexes of the nodes that have reported a damaged counter, see
            `replies.BrokenCounter`. The library emits only one event for each of these nodes.
    """

    __slots__ = ("_fastest", "_last", "_slots", "offset", "refused")

    def __init__(self) -> None:
        self._last = 0
        # The slots for which the last fence was proposed. Other slots may get the same fence. If
        # each slot got a new fence, acquires of many names in a short time would drive the fences
        # ahead of the clock.
        self._slots: set[bytes] = set()
        self._fastest: dict[int, int] = {}
        self.offset = 0
        self.refused: set[int] = set()

    def propose(self, now_us: int, slots: Iterable[bytes], above: int = 0) -> int:
        """Return a multiple of `STEP` above `above`, and above every earlier fence of these slots.

        `now_us` is the time of the wall clock. `above` is a counter that a node reported; 0 for
        none.
        """
        base_us = now_us + self.offset
        # A clock that is wrong by centuries must not damage the counters, so its time is not used;
        # see `LATEST_US`.
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

        The counter is usually an earlier proposal of another process. So the offset grows until it
        is about the time by which the fastest clock of all processes is ahead of this machine's
        clock.

        A counter may also come from a process that proposed later, but whose request arrived first.
        If the offset became the whole difference between such a counter and our clock, processes
        would drive each other's fences further and further ahead. Another request can overtake our
        request only while our request is delayed. The delay is our request's round trip minus the
        node's shortest round trip. So this delay is subtracted from the difference.

        The times are microseconds of the wall clock. `proposed_us` is our fence minus the offset.
        """
        took = max(0, answered_us - proposed_us)
        self._fastest[node] = fastest = min(took, self._fastest.get(node, took))
        ahead = counter + 1 - proposed_us - (took - fastest)
        # The offset does not follow a counter of `LATEST_US` or more. Otherwise the next proposals
        # would spread the damage to the counters of every node.
        if self.offset < ahead and counter < LATEST_US:
            self.offset = ahead
