"""The nodes of the read-write lock in ticks: each method is one script on one node, or the loss of
a node's memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tests.model.symmetry import NODES

if TYPE_CHECKING:
    from tests.model.explore import State, Step

NAMES: Final = "ABCD"
NODE_NAMES: Final = "xyz"

# A request of the present round: on its way or lost, answered by a yes that counts, or by another.
SENT, COUNTED, SPENT = range(3)

# A cell of a key is the ticks that are left of a reader's entry. In K as a string it is so much
# more.
STRING: Final = 64

Life = Literal["own", "carried", "last"]
"""When a reader's entry expires.

* own: by its own score, whatever other readers do.
* carried: with the key. The key has no scores, and each reader sets its expiry to a later time.
* last: with the key. The last reader that was granted or renewed sets the key's expiry.
"""


@dataclass(frozen=True, slots=True)
class Rules:
    """The times, and the rules that can be left out to see that they are needed.

    Attributes:
        ttls: How long a lease of each client lives, ticks. Its keys live as long from when a node
            got them.
        guard: Ticks for which a node that forgot grants nothing.
        forgetting: Nodes may lose their keys.
        deaths: Readers may die without a release.
        late_requests: Requests of a lease's earlier rounds may still arrive.
        read_quorum: How many nodes a reader needs.
        reader_life: When a reader's entry expires.
        repair_waits: A node in quarantine sets no missing key again.
        repair_past_writer: A reader's repair replaces the string of a writer.
        one_command: A node converts a writer's string into a reader's entry in one command. Else it
            frees the key first, and grants the reader later.
        writes_until_converted: A client is a writer until a quorum has converted its key.
    """

    ttls: tuple[int, ...] = (2, 2, 2)
    guard: int = 2
    forgetting: bool = True
    deaths: bool = False
    late_requests: bool = True
    read_quorum: int = 2
    reader_life: Life = "own"
    repair_waits: bool = True
    repair_past_writer: bool = False
    one_command: bool = True
    writes_until_converted: bool = False


class Nodes:
    """K on each node, the quarantine of each node, and the answer of each node to each client.

    Args:
        rules: The times and the rules.
        begin: The first cell of the nodes in a state.
    """

    def __init__(self, rules: Rules, begin: int) -> None:
        self.rules = rules
        clients = len(rules.ttls)
        self.quarantine = begin
        self.keys = [begin + NODES * (1 + 2 * i) for i in range(clients)]
        self.votes = [keys + NODES for keys in self.keys]
        self.end = begin + NODES * (1 + 2 * clients)

    def write_acquire(self, state: State, i: int, x: int, steps: list[Step]) -> None:
        """Delete expired entries.

        If K is then missing and the node is trusted, set K to the token.
        """
        if (
            not state[self.votes[i] + x]
            and not state[self.quarantine + x]
            and self._missing(state, x)
        ):
            after = bytearray(state)
            self._set_string(after, i, x)
            after[self.votes[i] + x] = COUNTED
            steps.append((f"{NODE_NAMES[x]} grants {NAMES[i]} to write", bytes(after)))

    def read_acquire(self, state: State, i: int, x: int, steps: list[Step]) -> None:
        """If K is not a string and the node is trusted, add the token with its own expiry."""
        if (
            not state[self.votes[i] + x]
            and not state[self.quarantine + x]
            and self._string(state, x) < 0
        ):
            after = bytearray(state)
            self._add_entry(after, i, x)
            after[self.votes[i] + x] = COUNTED
            steps.append((f"{NODE_NAMES[x]} grants {NAMES[i]} to read", bytes(after)))

    def write_renew(self, state: State, i: int, x: int, steps: list[Step], *, late: bool) -> None:
        """If K is a string with the token, set its expiry."""
        if state[self.keys[i] + x] > STRING:
            after = bytearray(state)
            self._set_string(after, i, x)
            self._answer(after, i, x, COUNTED, f"renews the writer {NAMES[i]}", steps, late=late)

    def read_renew(self, state: State, i: int, x: int, steps: list[Step], *, late: bool) -> None:
        """If K has an entry of the token, set its expiry.

        If K is a string with the token, convert K.

        The second case is the downgrade. A node that missed an earlier request to downgrade
        converts the key at the next renewal.
        """
        key = state[self.keys[i] + x]
        if not key:
            return
        after = bytearray(state)
        if key > STRING and not self.rules.one_command:
            after[self.keys[i] + x] = 0
            steps.append((f"{NODE_NAMES[x]} frees the key of {NAMES[i]}", bytes(after)))
            return
        what = (
            f"turns the writer {NAMES[i]} into a reader"
            if key > STRING
            else f"renews the reader {NAMES[i]}"
        )
        after[self.keys[i] + x] = 0
        self._add_entry(after, i, x)
        self._answer(after, i, x, COUNTED, what, steps, late=late)

    def write_repair(self, state: State, i: int, x: int, steps: list[Step], *, late: bool) -> None:
        """If K is missing and the node is trusted, set K to the token.

        The answer does not count.
        """
        if self._may_repair(state, x) and self._missing(state, x):
            after = bytearray(state)
            self._set_string(after, i, x)
            self._answer(after, i, x, SPENT, f"takes back the writer {NAMES[i]}", steps, late=late)

    def read_repair(self, state: State, i: int, x: int, steps: list[Step], *, late: bool) -> None:
        """If K is not a string, has no entry of the token, and the node is trusted, add the token.

        The answer does not count.
        """
        writer = self._string(state, x)
        if state[self.keys[i] + x] or not self._may_repair(state, x):
            return
        if writer >= 0 and not self.rules.repair_past_writer:
            return
        after = bytearray(state)
        what = f"takes back the reader {NAMES[i]}"
        if writer >= 0:
            after[self.keys[writer] + x] = 0
            what += f" in place of the writer {NAMES[writer]}"
        self._add_entry(after, i, x)
        vote = SPENT if self.rules.one_command else COUNTED
        self._answer(after, i, x, vote, what, steps, late=late)

    def release(self, after: bytearray, i: int) -> None:
        """Delete the string with the token, or its entry, on all nodes, and forget all answers."""
        after[self.keys[i] : self.keys[i] + NODES] = bytes(NODES)
        after[self.votes[i] : self.votes[i] + NODES] = bytes(NODES)

    def forget(self, state: State, steps: list[Step]) -> None:
        """Let each node that has a key lose its memory. It is in quarantine for the guard time."""
        for x in range(NODES if self.rules.forgetting else 0):
            if not self._missing(state, x):
                after = bytearray(state)
                for keys in self.keys:
                    after[keys + x] = 0
                after[self.quarantine + x] = self.rules.guard
                steps.append((f"{NODE_NAMES[x]} forgets", bytes(after)))

    def tick(self, after: bytearray) -> None:
        """Let a tick pass for keys and quarantines."""
        for x in range(NODES):
            if after[self.quarantine + x]:
                after[self.quarantine + x] -= 1
            for keys in self.keys:
                left = after[keys + x] & ~STRING
                if left:
                    after[keys + x] = after[keys + x] - 1 if left > 1 else 0

    def counted(self, state: State, i: int) -> int:
        """Return how many nodes gave a yes that counts in the client's round."""
        return state[self.votes[i] : self.votes[i] + NODES].count(COUNTED)

    def new_round(self, state: State, i: int) -> bytearray:
        """Return the state without the client's answers."""
        after = bytearray(state)
        after[self.votes[i] : self.votes[i] + NODES] = bytes(NODES)
        return after

    def has_keys(self, state: State | bytearray, i: int) -> bool:
        """True if any node has a key of the client."""
        return any(state[self.keys[i] : self.keys[i] + NODES])

    def show(self, state: State, x: int) -> str:
        """Return what K is on a node, and the node's quarantine."""
        writer = self._string(state, x)
        readers = [
            f"{NAMES[i]} {state[keys + x]}" for i, keys in enumerate(self.keys) if state[keys + x]
        ]
        if writer >= 0:
            what = f"write {NAMES[writer]} {state[self.keys[writer] + x] - STRING}"
        else:
            what = f"read {' '.join(readers)}" if readers else "-"
        quarantine = (
            f" quarantined {state[self.quarantine + x]}" if state[self.quarantine + x] else ""
        )
        return f"{NODE_NAMES[x]}: {what}{quarantine}"

    def _missing(self, state: State, x: int) -> bool:
        return not any(state[keys + x] for keys in self.keys)

    def _string(self, state: State, x: int) -> int:
        """Return which client K names as a string, -1 if K is not a string."""
        return next((i for i, keys in enumerate(self.keys) if state[keys + x] > STRING), -1)

    def _may_repair(self, state: State, x: int) -> bool:
        return not (self.rules.repair_waits and state[self.quarantine + x])

    def _set_string(self, after: bytearray, i: int, x: int) -> None:
        after[self.keys[i] + x] = STRING + self.rules.ttls[i]

    def _add_entry(self, after: bytearray, i: int, x: int) -> None:
        ttl = self.rules.ttls[i]
        after[self.keys[i] + x] = ttl
        if self.rules.reader_life == "own":
            return
        entries = [keys + x for keys in self.keys if after[keys + x]]
        life = ttl if self.rules.reader_life == "last" else max(after[entry] for entry in entries)
        for entry in entries:
            after[entry] = life

    def _answer(
        self,
        after: bytearray,
        i: int,
        x: int,
        vote: int,
        what: str,
        steps: list[Step],
        *,
        late: bool,
    ) -> None:
        earlier = "a request of an earlier round arrives: " if late else ""
        if not late:
            after[self.votes[i] + x] = vote
        steps.append((f"{earlier}{NODE_NAMES[x]} {what}", bytes(after)))
