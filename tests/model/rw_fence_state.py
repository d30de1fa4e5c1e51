"""The states of the fencing model with readers: their cells, the violations among them, and their
text.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final, Literal

from tests.model.symmetry import NODES, Alike, Symmetry

if TYPE_CHECKING:
    from tests.model.explore import State

NODE_NAMES: Final = "xyz"

Order = Literal["tenancy", "interval"]
"""In which sense the fences of an earlier and a later lease must be in order; see
`fence_state.Order`.
"""

Floor = Literal["node", "proposal", "none"]
"""Effect of a read grant where the node may have lost its counter.

* node: it raises the counter to the node's floor. That is the time at which the node's quarantine
  ended, by the node's clock. Writers do not compare their fences with the floor.
* proposal: it stores a fence that the reader proposed, if the node has no counter.
* none: it answers the counter as it is.
"""

# Phases of an attempt. Writers come first, and each may go on as a reader after a downgrade.
IDLE, FIRST, SECOND, WON_FIRST, WON_SECOND, DOWN_FIRST, DOWN_SECOND, READ = range(8)
WON: Final = (WON_FIRST, WON_SECOND, DOWN_FIRST, DOWN_SECOND, READ)
ONE_ROUND: Final = (WON_FIRST, DOWN_FIRST)
DOWNGRADED: Final = (DOWN_FIRST, DOWN_SECOND)

# Between an attempt and a node: the acquire is on its way; the confirmation or write-back is on its
# way; acknowledged. From SAID on: granted, and the node said that its counter is `vote - SAID`.
# From FENCED on: granted to a writer, and its proposal is stored. `vote - FENCED` is the lowest
# fence above the counter that the proposal replaced.
ACQUIRE, CONFIRM, ACKNOWLEDGED, SAID = range(4)
FENCED: Final = 128

# Writers' fences are multiples of it. The odd number above a writer's fence is the fence of
# readers. In the library the step is 16, and the readers' fence is the last number of the writer's
# block.
STEP: Final = 2

# State of K for an attempt on a node: 0 for none, an entry in the set, or the string.
ENTRY, STRING = 1, 2

# The cells of a state: the time, a head for each attempt, then rows of one cell per node.
# LOW: the fence of the second round; of a lease, the lowest fence that it owns.
TIME: Final = 0
HEADS: Final = 1
PHASE, PROPOSAL, LOW, FLOOR, SENT = range(5)
HEAD: Final = 5


@dataclass(frozen=True, slots=True)
class Rules:
    """The scheme, its surroundings, and the rules that can be left out to see that they are needed.

    Attributes:
        writers: Write acquisitions, all of which may run at once.
        readers: Read acquisitions, all of which may run at once.
        width: A clock reads, at tick t, anything from t + 1 to t + width.
        block: How many fences a write lease may own below the fence that its quorum stored.
        order: The sense in which fences must be in order.
        ticks: Tick at which the time stops.
        forgetting: Nodes may lose key and counter.
        guard: Ticks for which a node that forgot grants nothing.
        round_ticks: The most ticks between reading the clock for a fence and having the lease.
        repairing: Holders extend: they raise counters and set missing keys again. Writers
            downgrade.
        floor: Effect of a read grant on a node that lost its counter.
        marks: A read grant raises the counter to the readers' fence.
        write_back: A reader writes its fence back to a quorum if the counters of its nodes differ.
        compare_token: A node takes a write-back only while it has the reader's token.
        counts_above: A reader counts a node although its counter was above the reader's fence.
        repair_checks_fence: A node whose counter is above the lease's fence sets no key again.
    """

    writers: int = 2
    readers: int = 1
    width: int = 2
    block: int = 0
    order: Order = "tenancy"
    ticks: int = 0
    forgetting: bool = False
    guard: int = 0
    round_ticks: int = 0
    repairing: bool = False
    floor: Floor = "none"
    marks: bool = True
    write_back: bool = True
    compare_token: bool = True
    counts_above: bool = False
    repair_checks_fence: bool = True


class RwFenceState:
    """Reads and changes states of the fencing model with readers.

    A node's tenures number the attempts that had its key in the order in which they got it. Readers
    without a writer between them have the same number.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.writers = range(rules.writers)
        self.attempts = range(rules.writers + rules.readers)
        rows = HEADS + HEAD * len(self.attempts)
        self.heads = [HEADS + HEAD * i for i in self.attempts]
        self.counter, self.until, self.floors = (rows + row * NODES for row in range(3))
        self.votes = [rows + (3 + 3 * i) * NODES for i in self.attempts]
        self.keys = [votes + NODES for votes in self.votes]
        self.tenures = [votes + 2 * NODES for votes in self.votes]
        self.size = rows + (3 + 3 * len(self.attempts)) * NODES
        kinds = [
            Alike(len(kind), self.heads[kind[0]], HEAD, self.votes[kind[0]], 3 * NODES)
            for kind in (self.writers, self.attempts[rules.writers :])
            if kind
        ]
        self.canonical = Symmetry(rows, kinds).canonical

    def fence(self, state: State, i: int) -> int:
        """Return the fence that a quorum stored for a lease; 0 for an attempt without a lease.

        A reader of a set without any fence has 0 too, which orders it before all writers.
        """
        phase = state[self.heads[i]]
        if phase in ONE_ROUND:
            return state[self.heads[i] + PROPOSAL]
        return state[self.heads[i] + LOW] if phase in WON else 0

    def floor(self, state: State) -> int:
        """Return the value that the fence of requests sent now must not be below.

        A writer's fence must be above it.
        """
        return (
            max(self.fence(state, i) for i in self.attempts)
            if self.rules.order == "interval"
            else 0
        )

    def string(self, state: State, x: int) -> bool:
        """True if K is a string on a node."""
        return any(state[keys + x] == STRING for keys in self.keys)

    def missing(self, state: State, x: int) -> bool:
        """True if K is missing on a node."""
        return not any(state[keys + x] for keys in self.keys)

    def next_write(self, counter: int) -> int:
        """Return the lowest fence of a writer that is above a counter."""
        return (counter // STEP + 1) * STEP

    def enter(self, after: bytearray, i: int, x: int, key: int) -> None:
        """Give an attempt the key on a node, as the newest of its tenants."""
        after[self.keys[i] + x] = key
        if self.rules.order == "interval":
            return
        after[self.tenures[i] + x] = 0
        others = {after[self.tenures[j] + x] for j in self.attempts} - {0}
        groups = [
            [j for j in self.attempts if after[self.tenures[j] + x] == number]
            for number in sorted(others)
        ]
        groups.append([i])
        number, readers_before = 0, False
        for group in groups:
            readers = not any(j in self.writers for j in group)
            number += not (readers and readers_before)
            readers_before = readers
            for j in group:
                after[self.tenures[j] + x] = number

    def enter_again(self, after: bytearray, i: int, x: int) -> None:
        """Give a downgraded lease an entry on a node.

        It re-enters as a reader, so its time as a writer stays before that of the readers there.
        Only a writer that stored its fence since then shows that the lease comes back too late.
        """
        mine = after[self.tenures[i] + x]
        stored = [j for j in self.writers if self._tenure(after, j, x) > mine]
        if mine and not stored:
            after[self.keys[i] + x] = ENTRY
        else:
            self.enter(after, i, x, ENTRY)

    def clear(self, after: bytearray, attempts: range | list[int], x: int) -> None:
        """Delete the keys of attempts on a node."""
        for i in attempts:
            after[self.keys[i] + x] = 0

    def _tenure(self, state: State | bytearray, i: int, x: int) -> int:
        """Return as which of its tenants a node was counted for this lease, 0 if it was not."""
        vote = state[self.votes[i] + x]
        counted = vote >= FENCED if state[self.heads[i]] in ONE_ROUND else vote == ACKNOWLEDGED
        return state[self.tenures[i] + x] if counted else 0

    def broken(self, state: State) -> str:
        """Return what is wrong: two leases own one fence, or fences are in the wrong order."""
        leases = [i for i in self.attempts if state[self.heads[i]] in WON]
        for i in leases:
            if floor := state[self.heads[i] + FLOOR]:
                fence = state[self.heads[i] + LOW]
                return f"{self.name(i)} has fence {fence} after a lease with {floor}"
        for i, j in combinations(leases, 2):
            # Writers come first, so the first of a pair is a reader only if both are.
            if i in self.writers:
                wrong = (
                    self._two_writers(state, i, j)
                    if j in self.writers
                    else self._writer_and_reader(state, i, j)
                )
                if wrong:
                    return wrong
        return ""

    def _two_writers(self, state: State, i: int, j: int) -> str:
        low, high = sorted((i, j), key=lambda lease: self.fence(state, lease))
        names, fence = (self.name(low), self.name(high)), self.fence(state, low)
        if state[self.heads[high] + LOW] <= fence:
            return f"{names[0]} and {names[1]} have the same fence {fence}"
        for x in range(NODES if self.rules.order == "tenancy" else 0):
            if self._tenure(state, low, x) > self._tenure(state, high, x) > 0:
                return f"{NODE_NAMES[x]} gave its key to {names[1]} and then to {names[0]}"
        return ""

    def _writer_and_reader(self, state: State, i: int, j: int) -> str:
        first, last, read = state[self.heads[i] + LOW], self.fence(state, i), self.fence(state, j)
        reads = f"{self.name(j)} reads {read}"
        if first <= read < last:
            return f"{reads}, among {self.name(i)}'s fences {first}-{last}"
        for x in range(NODES if self.rules.order == "tenancy" else 0):
            written, was_read = self._tenure(state, i, x), self._tenure(state, j, x)
            if 0 < written < was_read and read < last:
                return f"{reads} on {NODE_NAMES[x]} after {self.name(i)} wrote {last}"
            if 0 < was_read < written and read >= first:
                return f"{reads} on {NODE_NAMES[x]} before {self.name(i)} wrote {first}"
        return ""

    def name(self, i: int) -> str:
        """Return what an attempt is called in a trace: A to C are writers, R to T readers."""
        return "ABC"[i] if i in self.writers else "RST"[i - self.rules.writers]

    def show(self, state: State) -> str:
        """Return the nodes with whose key and which counter they have."""
        nodes = [f"t={state[TIME]}"] if self.rules.ticks else []
        for x in range(NODES):
            owners = [self.name(i) for i in self.attempts if state[self.keys[i] + x]]
            quarantine = (
                f" quarantined until {state[self.until + x]}" if state[self.until + x] else ""
            )
            floor = f" floor {state[self.floors + x]}" if state[self.floors + x] else ""
            counter = state[self.counter + x]
            nodes.append(f"{NODE_NAMES[x]}: {''.join(owners) or '-'} {counter}{floor}{quarantine}")
        return "   ".join(nodes)
