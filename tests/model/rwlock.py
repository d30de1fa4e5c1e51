"""Readers and writers in ticks on three nodes that may forget: grant, renewal, repair, downgrade,
release and death.

Each node has one key K. While a writer has it, K is a string with the writer's token. While readers
have it, K is a sorted set. Its members are the readers' tokens, and each score is the time at which
that reader's entry expires. The scripts of a node are the functions of `Nodes` in `rw_nodes.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.model.rw_nodes import NAMES, SENT, Nodes, Rules
from tests.model.symmetry import NODES, Alike, Symmetry

if TYPE_CHECKING:
    from tests.model.explore import State, Step

QUORUM: Final = 2

# Phases of a client. DOWNGRADED is a reader that was a writer. CONVERTING writes until a quorum of
# nodes has converted its key. That rule is known to be wrong. DEAD stopped without a release.
IDLE, ASKING_READ, ASKING_WRITE, READING, WRITING, DOWNGRADED, CONVERTING, DEAD = range(8)
HOLDS_READ: Final = (READING, DOWNGRADED)
HOLDS_WRITE: Final = (WRITING, CONVERTING)

# A client's head: its phase; ticks since its round was sent, the ttl if there is none; ticks to
# its deadline. Of a dead client the second cell counts the ticks since its death.
PHASE, AGE, VALID = range(3)
HEAD: Final = 3


class RwLock:
    """Clients that read, write, renew, downgrade, leave and die, as often as they like.

    Times count down, so the model is finite without a bound on the number of events. A request
    arrives at any later moment of its round, or never. A reply needs no message: the client chooses
    which replies it has when it acts.

    The keys of an attempt that is over can only refuse other clients. The loss of their requests
    has the same effect, so these keys vanish at once. The keys of a dead reader stay, because the
    model checks how long they refuse a writer.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        clients = len(rules.ttls)
        self._heads = [HEAD * i for i in range(clients)]
        self._nodes = Nodes(rules, HEAD * clients)
        self._size = self._nodes.end
        alike = Alike(clients, 0, HEAD, self._nodes.keys[0], 2 * NODES)
        same = len(set(rules.ttls)) == 1
        self._symmetry = Symmetry(self._nodes.quarantine, (alike,) if same else ())

    def initial(self) -> State:
        """No client holds or wants anything; every node remembers."""
        return bytes(self._size)

    def steps(self, state: State) -> list[Step]:
        """Whatever may happen next."""
        steps: list[Step] = []
        for i, head in enumerate(self._heads):
            phase = state[head]
            if phase == IDLE:
                for asking, what in ((ASKING_READ, "to read"), (ASKING_WRITE, "to write")):
                    after = bytearray(state)
                    after[head : head + HEAD] = bytes((asking, 0, 0))
                    steps.append((f"{NAMES[i]} asks all {what}", bytes(after)))
            elif phase in (ASKING_READ, ASKING_WRITE):
                self._asking(state, i, steps)
            elif phase != DEAD:
                self._holding(state, i, steps)
        self._nodes.forget(state, steps)
        self._tick(state, steps)
        return steps

    def _asking(self, state: State, i: int, steps: list[Step]) -> None:
        head, writes = self._heads[i], state[self._heads[i]] == ASKING_WRITE
        acquire = self._nodes.write_acquire if writes else self._nodes.read_acquire
        for x in range(NODES):
            acquire(state, i, x, steps)
        quorum = QUORUM if writes else self.rules.read_quorum
        if self._nodes.counted(state, i) >= quorum:
            valid = self.rules.ttls[i] - state[head + AGE]
            after = self._nodes.new_round(state, i)
            phase = WRITING if writes else READING
            after[head : head + HEAD] = bytes((phase, self.rules.ttls[i], valid))
            steps.append(
                (f"{NAMES[i]} {'writes' if writes else 'reads'} for {valid}", bytes(after))
            )
        self._leave(state, i, "gives up", steps)

    def _holding(self, state: State, i: int, steps: list[Step]) -> None:
        head, phase = self._heads[i], state[self._heads[i]]
        self._renewing(state, i, steps)
        after = self._nodes.new_round(state, i)
        after[head + AGE] = 0
        steps.append((f"{NAMES[i]} asks all to renew", bytes(after)))
        if phase == WRITING:
            # The body has stopped writing when it asks for the downgrade, so the client is a reader
            # from here on. It must not be a writer when the first node lets readers in.
            after[head] = CONVERTING if self.rules.writes_until_converted else DOWNGRADED
            steps.append((f"{NAMES[i]} asks all to downgrade", bytes(after)))
        if self._nodes.counted(state, i) >= QUORUM:
            valid = self.rules.ttls[i] - state[head + AGE]
            after = self._nodes.new_round(state, i)
            after[head + AGE], after[head + VALID] = self.rules.ttls[i], valid
            if phase == CONVERTING:
                after[head] = DOWNGRADED
            steps.append((f"{NAMES[i]} has renewed, for {valid}", bytes(after)))
        self._leave(state, i, "releases", steps)
        if self.rules.deaths and phase in HOLDS_READ:
            after = self._nodes.new_round(state, i)
            after[head : head + HEAD] = bytes((DEAD, 0, 0))
            steps.append((f"{NAMES[i]} dies", bytes(after)))

    def _renewing(self, state: State, i: int, steps: list[Step]) -> None:
        """Let requests of this round arrive, and requests of earlier rounds."""
        nodes, head = self._nodes, self._heads[i]
        under_way = state[head + AGE] < self.rules.ttls[i]
        for x in range(NODES):
            rounds = [False] if under_way and state[nodes.votes[i] + x] == SENT else []
            if self.rules.late_requests:
                rounds.append(True)
            for late in rounds:
                if state[head] == WRITING:
                    nodes.write_renew(state, i, x, steps, late=late)
                    nodes.write_repair(state, i, x, steps, late=late)
                else:
                    nodes.read_renew(state, i, x, steps, late=late)
                    nodes.read_repair(state, i, x, steps, late=late)
            if state[head] in (DOWNGRADED, CONVERTING) and self.rules.late_requests:
                # Requests that were sent before the downgrade.
                nodes.write_renew(state, i, x, steps, late=True)
                nodes.write_repair(state, i, x, steps, late=True)

    def _leave(self, state: State, i: int, what: str, steps: list[Step]) -> None:
        after = bytearray(state)
        self._end(after, i)
        steps.append((f"{NAMES[i]} {what}", bytes(after)))

    def _end(self, after: bytearray, i: int) -> None:
        after[self._heads[i] : self._heads[i] + HEAD] = bytes(HEAD)
        self._nodes.release(after, i)

    def _tick(self, state: State, steps: list[Step]) -> None:
        after = bytearray(state)
        self._nodes.tick(after)
        for i, head in enumerate(self._heads):
            phase, ttl = after[head], self.rules.ttls[i]
            if phase == DEAD:
                # A later process with this name starts anew when the keys are gone.
                after[head + AGE] += 1
                if not self._nodes.has_keys(after, i):
                    self._end(after, i)
                continue
            if phase == IDLE:
                continue
            if after[head + AGE] < ttl:
                after[head + AGE] += 1
                if after[head + AGE] == ttl:
                    after[self._nodes.votes[i] : self._nodes.votes[i] + NODES] = bytes(NODES)
                    if phase in (ASKING_READ, ASKING_WRITE):
                        self._end(after, i)
            if after[head] not in (IDLE, ASKING_READ, ASKING_WRITE):
                after[head + VALID] -= 1
                if not after[head + VALID]:
                    self._end(after, i)
        if after != state:
            steps.append(("a tick passes", bytes(after)))

    def broken(self, state: State) -> str:
        """Return what is wrong: a writer is not alone, or a dead reader outlives its ttl."""
        writers = [NAMES[i] for i, head in enumerate(self._heads) if state[head] in HOLDS_WRITE]
        if len(writers) > 1:
            return f"{' and '.join(writers)} write"
        readers = [NAMES[i] for i, head in enumerate(self._heads) if state[head] in HOLDS_READ]
        if writers and readers:
            return f"{' and '.join(readers)} read while {writers[0]} writes"
        for i, head in enumerate(self._heads):
            if state[head] == DEAD and state[head + AGE] >= self.rules.ttls[i]:
                return f"{NAMES[i]} has been dead for its ttl, and still refuses writers"
        return ""

    def canonical(self, state: State) -> State:
        """Return the state with clients and nodes in the order of what they are at."""
        return self._symmetry.canonical(state)

    def show(self, state: State) -> str:
        """Return nodes with whose keys they have and how long, then holders with what is left."""
        verbs = {READING: "reads", DOWNGRADED: "reads", WRITING: "writes", CONVERTING: "writes"}
        holders = [
            f"{NAMES[i]} {verbs[state[head]]} {state[head + VALID]}"
            for i, head in enumerate(self._heads)
            if state[head] in verbs
        ]
        return "   ".join([self._nodes.show(state, x) for x in range(NODES)] + holders)
