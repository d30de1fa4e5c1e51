"""Possible steps of a lock in ticks: acquire, extend, repair and release.

The lock has three nodes. A node that forgot grants nothing for the time of the guard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.model.symmetry import NODES, Alike, Symmetry

if TYPE_CHECKING:
    from tests.model.explore import State, Step

QUORUM: Final = 2
NAMES: Final = "ABCD"
NODE_NAMES: Final = "xyz"

# Phases of a client. Only a holder has a round of extension.
IDLE, ASKING, HOLDING = range(3)
# Where a request of the present round is: on its way or lost, answered by a yes that counts, or by
# one that does not.
SENT, COUNTED, SPENT = range(3)

# The cells of a client's head: its phase; ticks since its round was sent, the ttl if there is none;
# ticks to its deadline.
PHASE, AGE, VALID = range(3)
HEAD: Final = 3


@dataclass(frozen=True, slots=True)
class Rules:
    """The times, and what can be left out to see that it is needed.

    Attributes:
        ttls: How long a lease of each client lives, ticks. Its keys live as long from when a node
            got them.
        guard: Ticks for which a node that forgot grants nothing.
        forgetting: Nodes may lose their keys.
        overstay: Ticks by which holders use their lease beyond its deadline.
        same_token: A client's next attempt has the token of the one before; its releases may be
            under way.
        repairs: Holders set missing keys again.
        repair_waits: Not on a node in quarantine.
        repair_counts: A repaired key counts in the round that repaired it.
        late_requests: Requests of a lease's earlier rounds may still arrive.
    """

    ttls: tuple[int, ...] = (3, 3)
    guard: int = 3
    forgetting: bool = True
    overstay: int = 0
    same_token: bool = False
    repairs: bool = True
    repair_waits: bool = True
    repair_counts: bool = False
    late_requests: bool = True


class Mutex:
    """Clients that ask, hold, extend and leave, as often as they like.

    Times count down: a key, a quarantine and a lease have ticks left. So the model is finite
    without a bound on the number of events. All clocks run alike, and the events of a tick happen
    in any order. A request arrives at any later moment of its round, or never. A reply needs no
    message: the client chooses which replies it has when it acts.

    The keys and requests of an attempt that is over can only refuse other clients. The loss of the
    other clients' requests has the same effect. So these keys and requests vanish at once, except
    where the next attempt has the same token. For the same reason a repair that the node refuses
    because of its fence counter counts as a lost repair.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        clients = len(rules.ttls)
        self._heads = [HEAD * i for i in range(clients)]
        self._quarantine = HEAD * clients
        self._lefts = [self._quarantine + NODES * (1 + 3 * i) for i in range(clients)]
        self._votes = [left + NODES for left in self._lefts]
        self._releases = [left + 2 * NODES for left in self._lefts]
        self._size = self._quarantine + NODES * (1 + 3 * clients)
        alike = Alike(clients, 0, HEAD, self._lefts[0], 3 * NODES)
        self._symmetry = Symmetry(self._quarantine, (alike,) if len(set(rules.ttls)) == 1 else ())

    def initial(self) -> State:
        """Nobody holds or wants anything; every node remembers."""
        return bytes(self._size)

    def steps(self, state: State) -> list[Step]:
        """Whatever may happen next."""
        steps: list[Step] = []
        for i, head in enumerate(self._heads):
            phase = state[head]
            if phase == IDLE:
                self._start(state, i, steps)
            elif phase == ASKING:
                self._asking(state, i, steps)
            else:
                self._holding(state, i, steps)
            self._late_releases(state, i, steps)
        if self.rules.forgetting:
            self._forget(state, steps)
        self._tick(state, steps)
        return steps

    def _start(self, state: State, i: int, steps: list[Step]) -> None:
        after = bytearray(state)
        after[self._heads[i] : self._heads[i] + HEAD] = bytes((ASKING, 0, 0))
        steps.append((f"{NAMES[i]} asks all", bytes(after)))

    def _asking(self, state: State, i: int, steps: list[Step]) -> None:
        ttl, votes = self.rules.ttls[i], self._votes[i]
        for x in range(NODES):
            if not state[votes + x] and not state[self._quarantine + x] and self._free(state, x):
                after = bytearray(state)
                after[self._lefts[i] + x] = ttl
                after[votes + x] = COUNTED
                steps.append((f"{NODE_NAMES[x]} grants {NAMES[i]}", bytes(after)))
        if state[votes : votes + NODES].count(COUNTED) >= QUORUM:
            after = bytearray(state)
            valid = ttl - state[self._heads[i] + AGE] + self.rules.overstay
            after[self._heads[i] : self._heads[i] + HEAD] = bytes((HOLDING, ttl, valid))
            after[votes : votes + NODES] = bytes(NODES)
            steps.append((f"{NAMES[i]} has the lock for {valid}", bytes(after)))
        after = bytearray(state)
        self._end(after, i)
        steps.append((f"{NAMES[i]} gives up", bytes(after)))

    def _holding(self, state: State, i: int, steps: list[Step]) -> None:
        rules, head, votes, lefts = self.rules, self._heads[i], self._votes[i], self._lefts[i]
        ttl = rules.ttls[i]
        after = bytearray(state)
        after[head + AGE] = 0
        after[votes : votes + NODES] = bytes(NODES)
        steps.append((f"{NAMES[i]} asks all to extend", bytes(after)))
        extending = state[head + AGE] < ttl
        for x in range(NODES):
            if state[lefts + x]:
                what, vote = "extends", COUNTED
            elif (
                rules.repairs
                and self._free(state, x)
                and not (rules.repair_waits and state[self._quarantine + x])
            ):
                what, vote = "takes back the key of", COUNTED if rules.repair_counts else SPENT
            else:
                continue
            if extending and state[votes + x] == SENT:
                after = bytearray(state)
                after[lefts + x], after[votes + x] = ttl, vote
                steps.append((f"{NODE_NAMES[x]} {what} {NAMES[i]}", bytes(after)))
            if rules.late_requests:
                after = bytearray(state)
                after[lefts + x] = ttl
                steps.append(
                    (
                        f"a request of an earlier round arrives: {NODE_NAMES[x]} {what} {NAMES[i]}",
                        bytes(after),
                    )
                )
        if state[votes : votes + NODES].count(COUNTED) >= QUORUM:
            after = bytearray(state)
            valid = ttl - state[head + AGE] + rules.overstay
            after[head + AGE], after[head + VALID] = ttl, valid
            after[votes : votes + NODES] = bytes(NODES)
            steps.append((f"{NAMES[i]} has extended, for {valid}", bytes(after)))
        after = bytearray(state)
        self._end(after, i)
        steps.append((f"{NAMES[i]} releases", bytes(after)))

    def _end(self, after: bytearray, i: int) -> None:
        """The attempt or lease is over; its releases are sent."""
        after[self._heads[i] : self._heads[i] + HEAD] = bytes(HEAD)
        after[self._votes[i] : self._votes[i] + NODES] = bytes(NODES)
        if self.rules.same_token:
            after[self._releases[i] : self._releases[i] + NODES] = b"\1" * NODES
        else:
            after[self._lefts[i] : self._lefts[i] + NODES] = bytes(NODES)

    def _late_releases(self, state: State, i: int, steps: list[Step]) -> None:
        for x in range(NODES):
            if state[self._releases[i] + x] and state[self._lefts[i] + x]:
                after = bytearray(state)
                after[self._releases[i] + x] = after[self._lefts[i] + x] = 0
                steps.append(
                    (
                        f"{NAMES[i]}'s release of an earlier attempt reaches {NODE_NAMES[x]}",
                        bytes(after),
                    )
                )

    def _forget(self, state: State, steps: list[Step]) -> None:
        for x in range(NODES):
            if not self._free(state, x):
                after = bytearray(state)
                for lefts in self._lefts:
                    after[lefts + x] = 0
                after[self._quarantine + x] = self.rules.guard
                steps.append((f"{NODE_NAMES[x]} forgets", bytes(after)))

    def _tick(self, state: State, steps: list[Step]) -> None:
        after = bytearray(state)
        for x in range(NODES):
            for cell in (self._quarantine + x, *[lefts + x for lefts in self._lefts]):
                if after[cell]:
                    after[cell] -= 1
        for i, head in enumerate(self._heads):
            if after[head] == IDLE:
                continue
            if after[head + AGE] < self.rules.ttls[i]:
                after[head + AGE] += 1
                if after[head + AGE] == self.rules.ttls[i]:
                    after[self._votes[i] : self._votes[i] + NODES] = bytes(NODES)
                    if after[head] == ASKING:
                        self._end(after, i)
            if after[head] == HOLDING:
                after[head + VALID] -= 1
                if not after[head + VALID]:
                    self._end(after, i)
        if after != state:
            steps.append(("a tick passes", bytes(after)))

    def _free(self, state: State, x: int) -> bool:
        return not any(state[lefts + x] for lefts in self._lefts)

    def broken(self, state: State) -> str:
        """Two that may use the resource."""
        holders = [NAMES[i] for i, head in enumerate(self._heads) if state[head] == HOLDING]
        return f"{' and '.join(holders)} have the lock" if len(holders) > 1 else ""

    def canonical(self, state: State) -> State:
        """Clients and nodes in the order of what they are at."""
        return self._symmetry.canonical(state)

    def show(self, state: State) -> str:
        """Nodes with whose key they have, how long, and their quarantine; holders with what they
        have left.
        """
        nodes = []
        for x in range(NODES):
            keys = [
                f"{NAMES[i]} {state[lefts + x]}"
                for i, lefts in enumerate(self._lefts)
                if state[lefts + x]
            ]
            quarantine = (
                f" quarantined {state[self._quarantine + x]}" if state[self._quarantine + x] else ""
            )
            nodes.append(f"{NODE_NAMES[x]}: {keys[0] if keys else '-'}{quarantine}")
        holders = [
            f"{NAMES[i]} holds {state[head + VALID]}"
            for i, head in enumerate(self._heads)
            if state[head] == HOLDING
        ]
        return "   ".join(nodes + holders)
