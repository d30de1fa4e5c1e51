"""The recovery guard: rules that find the nodes which may have forgotten locks.

A node that lost its memory would grant locks that other clients still hold. So each node carries a
marker that names a server process; see `marker.lua`. The marker is valid for the memory of this
server process only. A node without a marker, or with the marker of another server process, does not
vote. A manager gives this node a marker with a ready time, one guard time from now. At the ready
time, every lock that the node may have forgotten has expired.

A set of nodes is new if *all* of its nodes answer and no node carries a marker. A new set need not
wait for the guard time. Many managers may open a new set at the same moment, some before the last
server is up. So the nodes themselves store that they are new: their markers say *founding*. If a
manager finds all nodes founding within one second, it promotes them to trusted nodes. A node is
promoted only if it still has the marker that the manager read. A nonce in the marker distinguishes
one founding from another.

A set whose nodes have all forgotten their locks looks new, too. A manager is a *witness* if it read
a trusted marker less than the guard time ago. A witness neither founds nor promotes nodes. If nodes
were founded again after a loss, the witness quarantines them. If another manager has already made a
founded node trusted, the witness quarantines that node, too. After the guard time every earlier
lock has expired, and the memory of the witness no longer counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioredlock_ng._core.marker import Trust

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._core.marker import Reading

__all__ = [
    "FRESH",
    "Memory",
    "Step",
    "all_forgot",
    "new_set_words",
    "next_steps",
    "remembered",
]

FRESH = 1.0
"""A manager promotes nodes only if it read the markers of all nodes within this many seconds.

The script marker.lua checks the same bound at each write."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The last trusted marker that a manager has read from one node.

    Attributes:
        run_id: The run id of the process that the marker named.
        at: The latest local instant at which the node may have granted a lock while it had that
            memory. At this instant the manager last read the marker, or first found the marker
            gone.
        lost: The latest reading without the remembered marker; None if there was none.
    """

    run_id: bytes
    at: float
    lost: Reading | None = None

    def contradicts(self, reading: Reading) -> bool:
        """True if the node has lost the remembered memory.

        A flushed node keeps its run id. So its next trusted marker looks like the remembered one.
        """
        return (
            self.lost is not None
            or reading.trust is not Trust.TRUSTED
            or reading.run_id != self.run_id
        )

    def waited(self, trusted: Reading, known_ms: int) -> bool:
        """True if the node itself shows that it has waited before its marker became trusted.

        There are two signs of this wait. First, the trusted marker follows a waiting one whose
        ready time has passed. An operator may have lowered the guard time, so the ready time may
        come before this manager's guard time has passed.

        Second, the node's clock has advanced by the guard time, and the second that marker.lua
        adds, since the node was read without the remembered marker. A manager that was paused may
        process this reading late, so its own instant `at` may be too late.
        """
        lost = self.lost
        if lost is None or lost.run_id != trusted.run_id:
            return False
        if lost.trust is Trust.WAITING and lost.ready_ms <= trusted.node_ms:
            return True
        return trusted.node_ms - lost.node_ms >= known_ms + 1000


@dataclass(frozen=True, slots=True)
class Step:
    """A marker to be written: its state and its guard time."""

    trust: Trust
    guard_ms: int


def remembered(
    memory: Memory | None, before: Reading | None, after: Reading | None, now: float, known_ms: int
) -> Memory | None:
    """Return a manager's memory of a node after a new reading of the node's marker.

    `before` is the previous reading, and `after` is the new one. A reading is None if the node did
    not answer. If the previous reading matched the memory, the node may have granted locks until
    now. The age of the memory then counts from `now`. `known_ms` is the longest guard time that was
    ever read.
    """
    if memory is not None and before is not None and not memory.contradicts(before):
        memory = Memory(memory.run_id, now)
    if after is None:
        return memory
    if memory is None:
        return Memory(after.run_id, now) if after.trust is Trust.TRUSTED else None
    over = now - memory.at > known_ms / 1000
    if after.trust is Trust.TRUSTED and (
        over or memory.waited(after, known_ms) or not memory.contradicts(after)
    ):
        return Memory(after.run_id, now)
    return Memory(memory.run_id, memory.at, after)


def _losses(
    readings: Sequence[Reading | None],
    memories: Sequence[Memory | None],
    now: float,
    longest_ms: int,
) -> list[bool | None]:
    """Return for each node whether its reading contradicts the manager's memory of the node.

    The result is None for a node without a recent memory.
    """
    return [
        None
        if memory is None or now - memory.at > longest_ms / 1000
        else reading is not None and memory.contradicts(reading)
        for reading, memory in zip(readings, memories, strict=True)
    ]


def all_forgot(
    readings: Sequence[Reading | None],
    memories: Sequence[Memory | None],
    now: float,
    known_ms: int,
) -> bool:
    """True if all nodes answered, some lost their memory, and no other node is trusted."""
    losses = _losses(readings, memories, now, known_ms)
    return any(losses) and all(
        reading is not None and (lost or reading.trust is not Trust.TRUSTED)
        for reading, lost in zip(readings, losses, strict=True)
    )


def new_set_words(missing: Sequence[tuple[str, str]], left: float) -> str:
    """Return the reason why a founding node does not vote yet, for messages.

    Args:
        missing: For each node that does not answer, its address and the reason.
        left: Seconds until the founding node votes, even if other nodes still do not answer.
    """
    if not missing:
        return f"new set: the nodes vote once all answer within a second, or in {left:.0f} s"
    named = " and ".join(f"{address} is up too ({why})" for address, why in missing)
    return f"new set: the nodes vote when {named}, or in {left:.0f} s"


def next_steps(
    readings: Sequence[Reading | None],
    guard_ms: int,
    now: float,
    *,
    strict: bool,
    known_ms: int = 0,
    memories: Sequence[Memory | None] | None = None,
) -> list[Step | None]:
    """Return the new marker for each node; None to leave the node's marker as it is.

    Args:
        readings: The reading of each node; None if it did not answer.
        guard_ms: This manager's guard time in milliseconds. A shorter guard time in a marker is
            raised to this value before the node votes.
        now: The local instant.
        strict: True if even a new set of nodes must wait for the guard time.
        known_ms: The longest guard time that was ever read, perhaps from a node that does not
            answer now.
        memories: This manager's memory of each node; None for a node from which the manager has
            read no trusted marker.
    """
    known = [reading for reading in readings if reading is not None]
    longest = max([guard_ms, known_ms, *(reading.guard_ms for reading in known)])
    losses = _losses(readings, memories or [None] * len(readings), now, longest)
    is_witness = any(lost is not None for lost in losses)
    some_trusted = any(reading.trust is Trust.TRUSTED for reading in known)
    is_new = (
        not (strict or is_witness)
        and len(known) == len(readings)
        and all(r.trust is Trust.FOUNDING and now - r.at <= FRESH for r in known)
    )
    # If a trusted node has lost nothing, the set was not founded again after a loss. In that case
    # the founding nodes keep their markers, because a manager may be promoting them one after the
    # other.
    keeps_some = any(
        reading is not None and reading.trust is Trust.TRUSTED and not lost
        for reading, lost in zip(readings, losses, strict=True)
    )
    is_refounded = any(losses) and not keeps_some
    steps: list[Step | None] = []
    for reading, lost in zip(readings, losses, strict=True):
        if reading is None:
            steps.append(None)
        elif (lost and reading.trust in (Trust.TRUSTED, Trust.FOUNDING)) or (
            is_refounded and reading.trust is Trust.FOUNDING
        ):
            steps.append(Step(Trust.WAITING, longest))
        else:
            must_wait = strict or is_witness or some_trusted
            steps.append(_step(reading, guard_ms, longest, now, must_wait, is_new))
    return steps


def _step(
    reading: Reading, guard_ms: int, longest: int, now: float, must_wait: bool, is_new: bool
) -> Step | None:
    left = reading.left(now)
    # When a manager writes a ready time, this time is at most the guard time plus a second later
    # than the node's clock. A later ready time shows that the node's clock was set back, or that
    # the marker is damaged.
    is_too_late = left > reading.guard_ms / 1000 + 1.0 + FRESH
    match reading.trust:
        case Trust.NONE:
            return Step(Trust.WAITING if must_wait else Trust.FOUNDING, longest)
        case Trust.FOREIGN | Trust.EXCESSIVE:
            return Step(Trust.WAITING, longest)
        case Trust.TRUSTED:
            return Step(Trust.TRUSTED, guard_ms) if reading.guard_ms < guard_ms else None
        case Trust.FOUNDING if is_new:
            return Step(Trust.TRUSTED, longest)
        case Trust.FOUNDING if left > 0.0 and not is_too_late:
            # The marker's guard time may be too short for this manager. Nevertheless the marker is
            # not changed, because another manager may be promoting the node.
            return None
        case _:
            if reading.guard_ms < guard_ms or is_too_late:
                return Step(Trust.WAITING, longest)
            return Step(Trust.TRUSTED, reading.guard_ms) if left == 0.0 else None
