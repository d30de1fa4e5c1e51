"""A semaphore of named slots in ticks: each slot is an ordinary key with a quorum of its own, on
nodes that may forget.
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

# Phases of a client. Only a holder has a round of renewal.
IDLE, ASKING, HOLDING = range(3)
# A request of a renewal: on its way or lost, answered by a yes that counts, or by another. The
# answer to an acquire is the slot that the node granted.
SENT, COUNTED, SPENT = range(3)

# A client's head: its phase; ticks since its round was sent, the ttl if there is none; ticks to
# its deadline; the limit of its attempt or lease; the slot of its lease.
PHASE, AGE, VALID, LIMIT, SLOT = range(5)
HEAD: Final = 5

# A cell of a key is the slot times this number, plus the ticks that are left of the key.
SLOTS: Final = 16


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits, the times, and the rules that can be left out to see that they are needed.

    Attributes:
        clients: Number of clients.
        limits: The limits that clients use side by side. Each attempt may use any of them.
        ttl: How long a lease and its keys live, ticks.
        guard: Ticks for which a node that forgot grants nothing.
        forgetting: Nodes may lose their keys.
        counting: Each node counts its holders up to the limit, and a client needs any quorum of
            nodes.
            Else it needs a quorum of nodes that granted the same slot.
        repair_waits: A node in quarantine sets no missing key again.
    """

    clients: int = 3
    limits: tuple[int, ...] = (2,)
    ttl: int = 1
    guard: int = 1
    forgetting: bool = True
    counting: bool = False
    repair_waits: bool = True


class Slots:
    """Clients that ask for any free slot, hold, renew and release, as often as they like.

    A node may grant any free slot up to the limit of the attempt. So the model covers a client that
    names a slot, and a node that chooses the slot. Times, requests and replies are those of
    `Mutex`.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._heads = [HEAD * i for i in range(rules.clients)]
        self._quarantine = HEAD * rules.clients
        self._keys = [self._quarantine + NODES * (1 + 2 * i) for i in range(rules.clients)]
        self._votes = [keys + NODES for keys in self._keys]
        self._size = self._quarantine + NODES * (1 + 2 * rules.clients)
        alike = Alike(rules.clients, 0, HEAD, self._keys[0], 2 * NODES)
        self._symmetry = Symmetry(self._quarantine, (alike,))

    def initial(self) -> State:
        """No client holds or wants anything; every node remembers."""
        return bytes(self._size)

    def steps(self, state: State) -> list[Step]:
        """Whatever may happen next."""
        steps: list[Step] = []
        for i, head in enumerate(self._heads):
            phase = state[head]
            if phase == IDLE:
                for limit in self.rules.limits:
                    after = bytearray(state)
                    after[head : head + HEAD] = bytes((ASKING, 0, 0, limit, 0))
                    up_to = f" for a slot up to {limit}" if len(self.rules.limits) > 1 else ""
                    steps.append((f"{NAMES[i]} asks all{up_to}", bytes(after)))
            elif phase == ASKING:
                self._asking(state, i, steps)
            else:
                self._holding(state, i, steps)
        self._forget(state, steps)
        self._tick(state, steps)
        return steps

    def _asking(self, state: State, i: int, steps: list[Step]) -> None:
        head, keys, votes, ttl = self._heads[i], self._keys[i], self._votes[i], self.rules.ttl
        for x in range(NODES):
            if state[votes + x] or state[self._quarantine + x]:
                continue
            for slot in self._free(state, x, state[head + LIMIT]):
                after = bytearray(state)
                after[keys + x], after[votes + x] = SLOTS * slot + ttl, slot
                which = "" if self.rules.counting else f" slot {slot}"
                steps.append((f"{NODE_NAMES[x]} grants {NAMES[i]}{which}", bytes(after)))
                if self.rules.counting:
                    # The node only counts, so the number of the slot makes no difference.
                    break
        for slot in range(1, state[head + LIMIT] + 1):
            same = [
                x
                for x in range(NODES)
                if state[votes + x] == slot or (self.rules.counting and state[votes + x])
            ]
            if len(same) >= QUORUM:
                after = bytearray(state)
                valid = ttl - state[head + AGE]
                after[head : head + HEAD] = bytes((HOLDING, ttl, valid, state[head + LIMIT], slot))
                after[votes : votes + NODES] = bytes(NODES)
                for x in range(NODES):
                    # The keys of other slots are released.
                    if not self.rules.counting and state[keys + x] // SLOTS != slot:
                        after[keys + x] = 0
                which = "a permit" if self.rules.counting else f"slot {slot}"
                steps.append((f"{NAMES[i]} has {which} for {valid}", bytes(after)))
        self._leave(state, i, "gives up", steps)

    def _holding(self, state: State, i: int, steps: list[Step]) -> None:
        head, keys, votes, ttl = self._heads[i], self._keys[i], self._votes[i], self.rules.ttl
        after = bytearray(state)
        after[head + AGE] = 0
        after[votes : votes + NODES] = bytes(NODES)
        steps.append((f"{NAMES[i]} asks all to renew", bytes(after)))
        for x in range(NODES):
            if state[keys + x]:
                what, vote = "renews", COUNTED
            elif self._may_repair(state, i, x):
                what, vote = "takes back the key of", SPENT
            else:
                continue
            key = (state[keys + x] // SLOTS or state[head + SLOT]) * SLOTS + ttl
            after = bytearray(state)
            after[keys + x] = key
            steps.append(
                (
                    f"a request of an earlier round arrives: {NODE_NAMES[x]} {what} {NAMES[i]}",
                    bytes(after),
                )
            )
            if state[head + AGE] < ttl and state[votes + x] == SENT:
                after[votes + x] = vote
                steps.append((f"{NODE_NAMES[x]} {what} {NAMES[i]}", bytes(after)))
        if state[votes : votes + NODES].count(COUNTED) >= QUORUM:
            after = bytearray(state)
            valid = ttl - state[head + AGE]
            after[head + AGE], after[head + VALID] = ttl, valid
            after[votes : votes + NODES] = bytes(NODES)
            steps.append((f"{NAMES[i]} has renewed, for {valid}", bytes(after)))
        self._leave(state, i, "releases", steps)

    def _may_repair(self, state: State, i: int, x: int) -> bool:
        """True if a node sets the missing key of a lease again: the same slot, on a node that
        remembers.
        """
        waits = self.rules.repair_waits and state[self._quarantine + x]
        return not waits and state[self._heads[i] + SLOT] in self._free(
            state, x, state[self._heads[i] + LIMIT]
        )

    def _leave(self, state: State, i: int, what: str, steps: list[Step]) -> None:
        after = bytearray(state)
        self._end(after, i)
        steps.append((f"{NAMES[i]} {what}", bytes(after)))

    def _end(self, after: bytearray, i: int) -> None:
        after[self._heads[i] : self._heads[i] + HEAD] = bytes(HEAD)
        after[self._keys[i] : self._keys[i] + NODES] = bytes(NODES)
        after[self._votes[i] : self._votes[i] + NODES] = bytes(NODES)

    def _forget(self, state: State, steps: list[Step]) -> None:
        for x in range(NODES if self.rules.forgetting else 0):
            if any(state[keys + x] for keys in self._keys):
                after = bytearray(state)
                for keys in self._keys:
                    after[keys + x] = 0
                after[self._quarantine + x] = self.rules.guard
                steps.append((f"{NODE_NAMES[x]} forgets", bytes(after)))

    def _tick(self, state: State, steps: list[Step]) -> None:
        after, ttl = bytearray(state), self.rules.ttl
        for x in range(NODES):
            if after[self._quarantine + x]:
                after[self._quarantine + x] -= 1
            for keys in self._keys:
                if key := after[keys + x]:
                    after[keys + x] = key - 1 if key % SLOTS > 1 else 0
        for i, head in enumerate(self._heads):
            phase = after[head]
            if phase != IDLE and after[head + AGE] < ttl:
                after[head + AGE] += 1
                if after[head + AGE] == ttl:
                    after[self._votes[i] : self._votes[i] + NODES] = bytes(NODES)
                    if phase == ASKING:
                        self._end(after, i)
            if phase == HOLDING:
                after[head + VALID] -= 1
                if not after[head + VALID]:
                    self._end(after, i)
        if after != state:
            steps.append(("a tick passes", bytes(after)))

    def _free(self, state: State, x: int, limit: int) -> list[int]:
        """Return the slots up to a limit of which a node has no key."""
        taken = {state[keys + x] // SLOTS for keys in self._keys}
        return [slot for slot in range(1, limit + 1) if slot not in taken]

    def broken(self, state: State) -> str:
        """Return what is wrong: more holders than the greatest of their limits."""
        limits = sorted(state[head + LIMIT] for head in self._heads if state[head] == HOLDING)
        for holders, limit in enumerate(limits, 1):
            if holders > limit:
                return f"{holders} holders with limits up to {limit}"
        return ""

    def canonical(self, state: State) -> State:
        """Return the state with clients and nodes in the order of what they are at."""
        return self._symmetry.canonical(state)

    def show(self, state: State) -> str:
        """Return the nodes with the owner and the ticks of each slot, then the holders."""
        nodes = []
        for x in range(NODES):
            keys = sorted(
                (state[keys + x] // SLOTS, NAMES[i], state[keys + x] % SLOTS)
                for i, keys in enumerate(self._keys)
                if state[keys + x]
            )
            slots = " ".join(
                f"{name if self.rules.counting else f'{slot}={name}'} {left}"
                for slot, name, left in keys
            )
            quarantine = (
                f" quarantined {state[self._quarantine + x]}" if state[self._quarantine + x] else ""
            )
            nodes.append(f"{NODE_NAMES[x]}: {slots or '-'}{quarantine}")
        holders = [
            f"{NAMES[i]} has"
            f" {'a permit' if self.rules.counting else f'slot {state[head + SLOT]}'}"
            f" for {state[head + VALID]}"
            for i, head in enumerate(self._heads)
            if state[head] == HOLDING
        ]
        return "   ".join(nodes + holders)
