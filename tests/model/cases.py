"""Explorations of the full rules, and of rules with a part left out.

The full rules must have no violation. Every other case must have one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tests.model import fence_state, founding, mutex, rw_fence_state, rw_nodes, slots
from tests.model.fencing import Fencing
from tests.model.founding import Founding
from tests.model.mutex import Mutex
from tests.model.rw_fencing import RwFencing
from tests.model.rwlock import RwLock
from tests.model.slots import Slots

if TYPE_CHECKING:
    from tests.model.explore import Model


@dataclass(frozen=True, slots=True)
class Case:
    """One exploration.

    Attributes:
        name: The subject of the exploration, in the words of DESIGN.md.
        model: The model with its rules.
        steps: Number of steps of the shortest way to a violation; 0 if there must be none.
    """

    name: str
    model: Model
    steps: int = 0


# More fences than there are values: a lease may own all down to the counters of its quorum.
_ALL: Final = 9

# Small enough for every run of the suite.
SMALL: Final = (
    Case(
        "fences by tenancy: 2 attempts, 3 values",
        Fencing(fence_state.Rules(attempts=2, block=_ALL)),
    ),
    Case("fences by tenancy: 3 attempts, 1 value", Fencing(fence_state.Rules(width=1, block=_ALL))),
    Case(
        "fences by interval: 2 attempts, 3 values",
        Fencing(fence_state.Rules(attempts=2, block=_ALL, order="interval")),
    ),
    Case(
        "fences by interval: 3 attempts, 1 value",
        Fencing(fence_state.Rules(width=1, block=_ALL, order="interval")),
    ),
    Case(
        "fences by success: 2 attempts, 3 values",
        Fencing(fence_state.Rules(attempts=2, block=_ALL, order="success", keys_last=True)),
    ),
    Case(
        "fences with repair: 2 attempts, 2 values",
        Fencing(fence_state.Rules(attempts=2, width=2, block=_ALL, repairing=True)),
    ),
    Case(
        "fences of nodes that forget: 2 attempts, 2 ticks",
        Fencing(
            fence_state.Rules(attempts=2, width=1, forgetting=True, guard=2, round_ticks=1, ticks=2)
        ),
    ),
    Case(
        "fences of nodes that forget, with blocks: 2 attempts, 2 ticks",
        Fencing(fence_state.Rules(attempts=2, width=1, block=1, forgetting=True, guard=2, ticks=2)),
    ),
    Case("mutual exclusion: 2 clients, ttl 3", Mutex(mutex.Rules())),
    Case("mutual exclusion: 3 clients, ttl 2", Mutex(mutex.Rules(ttls=(2, 2, 2), guard=2))),
    Case("mutual exclusion: ttl 3 and 2", Mutex(mutex.Rules(ttls=(3, 2)))),
    Case("founding: 1 promoter, ttl 2", Founding(founding.Rules(promoters=1))),
    Case(
        "founding: all nodes forget beside witnesses, ttl 2",
        Founding(founding.Rules(promoters=1, witnesses=True)),
    ),
    Case("slots: 3 clients, limit 2, ttl 1", Slots(slots.Rules())),
    Case("slots: 3 clients, limits 1 and 2, ttl 1", Slots(slots.Rules(limits=(1, 2)))),
    Case("readers and writers: 2 clients, ttl 2", RwLock(rw_nodes.Rules(ttls=(2, 2)))),
    Case("readers and writers: 3 clients, ttl 1", RwLock(rw_nodes.Rules(ttls=(1, 1, 1), guard=1))),
    Case(
        "readers and writers: readers die, ttl 2",
        RwLock(rw_nodes.Rules(ttls=(2, 2), forgetting=False, deaths=True)),
    ),
    Case(
        "read fences with repair: 1 writer, 1 reader, 3 values",
        RwFencing(rw_fence_state.Rules(writers=1, width=3, repairing=True)),
    ),
    Case("read fences: 2 writers, 1 reader, 1 value", RwFencing(rw_fence_state.Rules(width=1))),
    Case(
        "read fences by interval: 1 writer, 2 readers, 1 value",
        RwFencing(rw_fence_state.Rules(writers=1, readers=2, width=1, order="interval")),
    ),
    Case(
        "read fences of nodes that forget: 1 writer, 1 reader, 2 ticks",
        RwFencing(
            rw_fence_state.Rules(
                writers=1, width=1, forgetting=True, guard=2, round_ticks=1, ticks=2, floor="node"
            )
        ),
    ),
)

# The largest first, so that two processes end at about the same time.
LARGE: Final = (
    Case(
        "fences by tenancy: 3 attempts, 4 values", Fencing(fence_state.Rules(width=4, block=_ALL))
    ),
    Case(
        "fences of nodes that forget, by tenancy: 2 attempts, 4 ticks",
        Fencing(
            fence_state.Rules(attempts=2, width=2, forgetting=True, guard=3, round_ticks=1, ticks=4)
        ),
    ),
    Case("founding: 2 promoters, 2 clients, ttl 2", Founding(founding.Rules(clients=2))),
    Case(
        "fences of nodes that forget, with blocks: 2 attempts, 4 ticks",
        Fencing(
            fence_state.Rules(
                attempts=2, width=2, block=1, forgetting=True, guard=4, round_ticks=1, ticks=4
            )
        ),
    ),
    Case(
        "fences by success, keys last: 3 attempts, 4 values",
        Fencing(fence_state.Rules(width=4, block=_ALL, order="success", keys_last=True)),
    ),
    Case(
        "fences by interval: 3 attempts, 3 values",
        Fencing(fence_state.Rules(block=_ALL, order="interval")),
    ),
    Case(
        "fences of nodes that forget, by interval: 2 attempts, 3 ticks",
        Fencing(
            fence_state.Rules(
                attempts=2,
                width=2,
                order="interval",
                forgetting=True,
                guard=3,
                round_ticks=1,
                ticks=3,
            )
        ),
    ),
    Case(
        "fences with repair: 3 attempts, 2 values",
        Fencing(fence_state.Rules(width=2, block=_ALL, repairing=True)),
    ),
    Case("mutual exclusion: 2 clients, ttl 7", Mutex(mutex.Rules(ttls=(7, 7), guard=7))),
    Case("mutual exclusion: 3 clients, ttl 4", Mutex(mutex.Rules(ttls=(4, 4, 4), guard=4))),
    Case(
        "mutual exclusion: 2 clients, ttl 5, repairs count",
        Mutex(mutex.Rules(ttls=(5, 5), guard=5, repair_counts=True)),
    ),
    Case("founding: 2 promoters, ttl 3", Founding(founding.Rules(ttl=3, guard=4))),
    Case(
        "founding: 2 promoters, ttl 2, all nodes forget beside witnesses",
        Founding(founding.Rules(witnesses=True)),
    ),
    Case(
        "founding: 2 promoters, ttl 2, late promotions",
        Founding(founding.Rules(fresh_promotions=False)),
    ),
    Case(
        "slots: 3 clients, limits 1 and 2, ttl 2", Slots(slots.Rules(limits=(1, 2), ttl=2, guard=2))
    ),
    Case("readers and writers: 2 clients, ttl 3", RwLock(rw_nodes.Rules(ttls=(3, 3), guard=3))),
    Case("read fences: 2 writers, 1 reader, 3 values", RwFencing(rw_fence_state.Rules(width=3))),
    Case(
        "read fences: 1 writer, 2 readers, 2 values",
        RwFencing(rw_fence_state.Rules(writers=1, readers=2)),
    ),
    Case(
        "read fences with blocks: 2 writers, 1 reader, 2 values",
        RwFencing(rw_fence_state.Rules(block=_ALL)),
    ),
    Case(
        "read fences with repair: 2 writers, 1 reader, 1 value",
        RwFencing(rw_fence_state.Rules(width=1, repairing=True)),
    ),
    Case(
        "read fences with repair: 1 writer, 2 readers, 1 value",
        RwFencing(rw_fence_state.Rules(writers=1, readers=2, width=1, repairing=True)),
    ),
    Case(
        "read fences of nodes that forget: 1 writer, 1 reader, 3 ticks",
        RwFencing(rw_fence_state.Rules(writers=1, forgetting=True, guard=2, ticks=3, floor="node")),
    ),
)

# The shortest times that show what there is to see.
_QUICK: Final = founding.Rules(ttl=1, guard=2, mark_within=0)

KNOWN_WRONG: Final = (
    Case(
        "fences: count grants, take the maximum",
        Fencing(fence_state.Rules(attempts=2, counting=True)),
        10,
    ),
    Case(
        "fences: acknowledge without comparing the token",
        Fencing(fence_state.Rules(attempts=2, compare_token=False)),
        13,
    ),
    Case(
        "fences: acknowledge what is not above the counter",
        Fencing(fence_state.Rules(width=2, strict=False)),
        18,
    ),
    Case("fences: the same token over attempts", Fencing(fence_state.Rules(same_token=True)), 16),
    Case(
        "fences: a counter lost without quarantine",
        Fencing(fence_state.Rules(attempts=2, width=1, forgetting=True)),
        9,
    ),
    Case(
        "fences: clocks as far apart as the guard less a round",
        Fencing(
            fence_state.Rules(attempts=2, width=2, forgetting=True, guard=2, round_ticks=1, ticks=2)
        ),
        11,
    ),
    Case(
        "fences: a block as long as the guard less a round",
        Fencing(
            fence_state.Rules(
                attempts=2, width=1, block=1, forgetting=True, guard=2, round_ticks=1, ticks=2
            )
        ),
        11,
    ),
    Case(
        "fences: a block above the smallest counter of its quorum",
        Fencing(fence_state.Rules(attempts=2, block=_ALL, above_largest=False)),
        9,
    ),
    Case(
        "fences: a block above counters read before storing",
        Fencing(fence_state.Rules(attempts=2, block=_ALL, read_when_storing=False)),
        13,
    ),
    Case(
        "fences: repair below the node's counter",
        Fencing(fence_state.Rules(attempts=2, repairing=True, repair_checks_fence=False)),
        11,
    ),
    Case(
        "fences in the order of success, while keys go at any moment",
        Fencing(fence_state.Rules(attempts=2, width=2, order="success")),
        9,
    ),
    Case("mutual exclusion: no guard", Mutex(mutex.Rules(guard=0)), 9),
    Case("mutual exclusion: the guard one tick short", Mutex(mutex.Rules(guard=2)), 11),
    Case(
        "mutual exclusion: a guard shorter than another client's ttl",
        Mutex(mutex.Rules(ttls=(3, 2), guard=2)),
        11,
    ),
    Case(
        "mutual exclusion: a quarantined node accepts repairs",
        Mutex(mutex.Rules(ttls=(2, 2), guard=2, repair_waits=False, late_requests=False)),
        17,
    ),
    Case(
        "mutual exclusion: a holder one tick beyond its deadline",
        Mutex(mutex.Rules(overstay=1)),
        11,
    ),
    Case("mutual exclusion: the same token over attempts", Mutex(mutex.Rules(same_token=True)), 11),
    Case(
        "founding: promote without comparing the nonce",
        Founding(replace(_QUICK, compare_nonce=False)),
        15,
    ),
    Case(
        "founding: promote the marker of a process that is no more",
        Founding(replace(_QUICK, compare_process=False)),
        14,
    ),
    Case("founding: promote after reading a quorum", Founding(replace(_QUICK, read_all=False)), 12),
    Case(
        "founding: promote after reading all, but not within a second",
        Founding(replace(_QUICK, read_together=False)),
        13,
    ),
    Case(
        "founding: markers written however long after the read",
        Founding(founding.Rules(mark_within=3)),
        6,
    ),
    Case("founding: a guard without the extra second", Founding(founding.Rules(guard=2)), 8),
    Case(
        "founding: witnesses that forget one tick too early",
        Founding(replace(_QUICK, promoters=1, ttl=2, guard=3, witnesses=True, memory=1)),
        13,
    ),
    Case(
        "founding: beyond the limit, no other node is trusted",
        Founding(replace(_QUICK, total_loss=True)),
        11,
    ),
    Case(
        "founding: beyond the limit, the others trusted for only a second",
        Founding(replace(_QUICK, settled=0)),
        15,
    ),
    Case("slots: nodes count holders up to the limit", Slots(slots.Rules(counting=True)), 12),
    Case("slots: no guard", Slots(slots.Rules(guard=0)), 13),
    Case(
        "readers and writers: the guard one tick short",
        RwLock(rw_nodes.Rules(ttls=(2, 2), guard=1)),
        10,
    ),
    Case(
        "readers and writers: a quarantined node accepts repairs",
        RwLock(rw_nodes.Rules(ttls=(2, 2), repair_waits=False, late_requests=False)),
        17,
    ),
    Case(
        "readers and writers: readers need one node",
        RwLock(rw_nodes.Rules(ttls=(2, 2), read_quorum=1)),
        7,
    ),
    Case(
        "readers and writers: a reader's life is carried by others",
        RwLock(rw_nodes.Rules(ttls=(2, 2), deaths=True, reader_life="carried")),
        9,
    ),
    Case(
        "readers and writers: the last reader sets the expiry of all",
        RwLock(rw_nodes.Rules(ttls=(3, 1, 1), forgetting=False, reader_life="last")),
        11,
    ),
    Case(
        "readers and writers: a reader's repair replaces a writer's key",
        RwLock(
            rw_nodes.Rules(
                ttls=(1, 1, 1), forgetting=False, late_requests=False, repair_past_writer=True
            )
        ),
        15,
    ),
    Case(
        "readers and writers: downgrade as release and acquire",
        RwLock(rw_nodes.Rules(ttls=(2, 2), one_command=False)),
        10,
    ),
    Case(
        "readers and writers: a client writes until a quorum has converted its key",
        RwLock(rw_nodes.Rules(ttls=(2, 2), writes_until_converted=True)),
        10,
    ),
    Case("read fences: no write-back", RwFencing(rw_fence_state.Rules(write_back=False)), 10),
    Case(
        "read fences: no write-back, and a later reader",
        RwFencing(
            rw_fence_state.Rules(writers=1, readers=2, width=1, order="interval", write_back=False)
        ),
        11,
    ),
    Case(
        "read fences: write back without comparing the token",
        RwFencing(rw_fence_state.Rules(compare_token=False)),
        12,
    ),
    Case(
        "read fences: count a node whose counter is above",
        RwFencing(rw_fence_state.Rules(counts_above=True)),
        17,
    ),
    Case(
        "read fences: a reader's repair on a node with a higher counter",
        RwFencing(rw_fence_state.Rules(writers=1, repairing=True, repair_checks_fence=False)),
        11,
    ),
    Case(
        "read fences: a read grant does not mark the counter, and a writer repairs",
        RwFencing(rw_fence_state.Rules(writers=1, width=1, repairing=True, marks=False)),
        12,
    ),
    Case(
        "read fences of nodes that forget: the counter as it is",
        RwFencing(
            rw_fence_state.Rules(
                writers=1, width=1, forgetting=True, guard=2, round_ticks=1, ticks=3
            )
        ),
        11,
    ),
    Case(
        "read fences of nodes that forget: clocks further apart than the guard",
        RwFencing(
            rw_fence_state.Rules(
                writers=1, width=3, forgetting=True, guard=1, ticks=1, floor="node"
            )
        ),
        11,
    ),
)
