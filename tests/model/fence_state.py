"""The states of the fencing model: their cells, the violations among them, and their text.

Nothing here changes a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final, Literal

from tests.model.symmetry import NODES, Alike, Symmetry

if TYPE_CHECKING:
    from tests.model.explore import State

NODE_NAMES: Final = "xyz"

Order = Literal["tenancy", "interval", "success"]
"""In which sense an earlier lease's fence must be smaller.

* tenancy: on every node that stored the fences of both, the earlier one had its key first.
* interval: the earlier one had succeeded before the later one sent the requests that carried its
  fence.
* success: the earlier one had succeeded before the later one did.

In every sense, no two leases own the same fence. An order holds for all fences that a lease owns.
"""

# Phases of an attempt.
IDLE, FIRST, SECOND, WON_FIRST, WON_SECOND, GIVEN_UP, OVER_FIRST, OVER_SECOND = range(8)
# Between an attempt and a node: the acquire is on its way; the confirmation is on its way;
# acknowledged. From SAID on: granted, and the node said that its counter is `vote - SAID`. From
# FENCED on: granted, and the proposal stored. `vote - FENCED` is the lowest fence above the counter
# that it replaced, or the lowest of a block. From READ on: that is known, nothing is stored.
ACQUIRE, CONFIRM, ACKNOWLEDGED, SAID = range(4)
READ, FENCED = 64, 128

# The cells of a state: the time, a head for each attempt, then rows of one cell per node.
TIME: Final = 0
HEADS: Final = 1
# CONFIRMED: the fence of the second round; of a lease, the lowest fence that it owns.
PHASE, PROPOSAL, CONFIRMED, FLOOR, SENT = range(5)
HEAD: Final = 5


@dataclass(frozen=True, slots=True)
class Rules:
    """The scheme, its surroundings, and what can be left out of it to see that it is needed.

    Attributes:
        attempts: Acquisitions, all of which may run at once; a client's next attempt is one more of
            them.
        width: A client's clock reads, at tick t, anything from t + 1 to t + width.
        block: How many fences a lease may own below the one that its quorum stored.
        order: The sense in which an earlier lease's fence must be smaller.
        keys_last: Keys outlive the validity of their lease; else they may go at any moment.
        ticks: Tick at which the time stops.
        forgetting: Nodes may lose key and counter.
        guard: Ticks for which a node that forgot grants nothing.
        round_ticks: The most ticks between reading the clock for a fence and having the lease with
            it.
        repairing: Holders extend: they lift counters and re-create missing keys.
        strict: A node acknowledges only a fence above its counter; else it keeps the larger of
            both.
        compare_token: A node acknowledges only while it has the attempt's key.
        same_token: The second attempt is the first one's client again, with the same token. The
            first was given up as soon as
            its requests were sent.
        counting: No proposals: each node counts its grants, and the fence is the largest count.
        repair_checks_fence: A node whose counter is above the lease's fence takes no key back.
        above_largest: A lease owns the fences above the largest counter that its quorum replaced.
            Else it owns those above the smallest.
        read_when_storing: A node reads that counter in the step that stores the proposal.
            Else it reads the counter in an earlier step.
    """

    attempts: int = 3
    width: int = 3
    block: int = 0
    order: Order = "tenancy"
    keys_last: bool = False
    ticks: int = 0
    forgetting: bool = False
    guard: int = 0
    round_ticks: int = 0
    repairing: bool = False
    strict: bool = True
    compare_token: bool = True
    same_token: bool = False
    counting: bool = False
    repair_checks_fence: bool = True
    above_largest: bool = True
    read_when_storing: bool = True


class FenceState:
    """Reads states of the fencing model.

    A node's tenures number the attempts that had its key in the order in which they got it; the
    last of them has it now, if anybody has. Where the order is not that of tenancies, only the
    present one is remembered.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        rows = HEADS + HEAD * rules.attempts
        self.heads = [HEADS + HEAD * i for i in range(rules.attempts)]
        self.counter, self.held, self.until = (rows + row * NODES for row in range(3))
        self.votes = [rows + (3 + 2 * i) * NODES for i in range(rules.attempts)]
        self.tenures = [votes + NODES for votes in self.votes]
        self.size = rows + (3 + 2 * rules.attempts) * NODES
        attempts = Alike(rules.attempts, HEADS, HEAD, self.votes[0], 2 * NODES)
        self.canonical = Symmetry(rows, () if rules.same_token else (attempts,)).canonical

    def owner(self, state: State, x: int) -> int:
        """Whose key is on a node that has one."""
        return max(range(len(self.tenures)), key=lambda i: state[self.tenures[i] + x])

    def has_token(self, state: State, i: int, x: int) -> bool:
        """Whether the key on a node holds this attempt's token."""
        if not state[self.held + x]:
            return False
        owner = self.owner(state, x)
        return owner == i or (self.rules.same_token and owner < 2 and i < 2)

    def fence(self, state: State, i: int) -> int:
        """Return the fence that a quorum stored for a lease, present or over; 0 for an attempt
        without one.
        """
        phase = state[self.heads[i]]
        if phase in (WON_FIRST, OVER_FIRST):
            return state[self.heads[i] + PROPOSAL]
        return state[self.heads[i] + CONFIRMED] if phase in (WON_SECOND, OVER_SECOND) else 0

    def first(self, state: State, i: int) -> int:
        """Return the lowest fence that a lease owns, present or over."""
        return state[self.heads[i] + CONFIRMED]

    def highest(self, state: State) -> int:
        """The largest fence that any lease ever had."""
        return max(self.fence(state, i) for i in range(len(self.heads)))

    def floor(self, state: State) -> int:
        """Return the value that the fence of requests sent now must exceed."""
        return self.highest(state) if self.rules.order == "interval" else 0

    def _stored_at(self, state: State, i: int, x: int) -> int:
        """Return the tenure in which a node stored this lease's fence; 0 if it did not store it."""
        vote = state[self.votes[i] + x]
        stored = (
            vote >= FENCED
            if state[self.heads[i]] in (WON_FIRST, OVER_FIRST)
            else vote == ACKNOWLEDGED
        )
        return state[self.tenures[i] + x] if stored else 0

    def broken(self, state: State) -> str:
        """Return what is wrong: two leases own one fence, or fences are in the wrong order."""
        leases = sorted(
            (fence, i) for i in range(len(self.heads)) if (fence := self.fence(state, i))
        )
        for _, i in leases:
            if floor := state[self.heads[i] + FLOOR]:
                fence = self.first(state, i)
                return f"{self.name(i)} has fence {fence} after a lease with {floor}"
        for (fence, i), (_, j) in pairwise(leases):
            if self.first(state, j) <= fence:
                return f"{self.name(i)} and {self.name(j)} have the same fence {fence}"
        if self.rules.order == "tenancy":
            for (low, i), (high, j) in combinations(leases, 2):
                for x in range(NODES):
                    if self._stored_at(state, i, x) > self._stored_at(state, j, x) > 0:
                        first, then = (
                            f"{self.name(j)} (fence {high})",
                            f"{self.name(i)} (fence {low})",
                        )
                        return f"{NODE_NAMES[x]} gave its key to {first} and then to {then}"
        return ""

    def name(self, i: int) -> str:
        """Return the name of an attempt in a trace."""
        return ("A", "A again", "B", "C")[i] if self.rules.same_token else "ABCD"[i]

    def show(self, state: State) -> str:
        """Nodes with whose key and which counter they have."""
        nodes = [f"t={state[TIME]}"] if self.rules.ticks else []
        for x in range(NODES):
            key = self.name(self.owner(state, x)) if state[self.held + x] else "-"
            quarantine = (
                f" quarantined until {state[self.until + x]}" if state[self.until + x] else ""
            )
            nodes.append(f"{NODE_NAMES[x]}: {key} {state[self.counter + x]}{quarantine}")
        return "   ".join(nodes)
