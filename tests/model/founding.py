"""How a set of nodes comes to be trusted without waiting (DESIGN.md 7): markers, promoters, and
nodes that forget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.model.symmetry import NODES, Alike, Symmetry

if TYPE_CHECKING:
    from tests.model.explore import State, Step

QUORUM: Final = 2
CLIENT_NAMES: Final = "AB"
PROMOTER_NAMES: Final = "PQR"
NODE_NAMES: Final = "xyz"

# Values of a node's marker. Stale: the node restarted with the data of an earlier process, which
# was founding. Waiting: no promoter promotes the node.
NONE, FOUNDING, TRUSTED, STALE, WAITING = range(5)
MARKERS: Final = ("none", "founding", "trusted", "stale", "waiting")
# Phases of a client.
IDLE, ASKING, HOLDING = range(3)
# Phases of a promoter: it reads markers, or it has decided and its writes are on their way.
READING, PROMOTING = range(2)

# The one second of DESIGN.md 7 is one tick; all that is longer is the same.
SECOND: Final = 1
LONG: Final = SECOND + 1

# The cells of a client's head: its phase, ticks since it asked, ticks until its deadline.
PHASE, AGE, VALID = range(3)
HEAD: Final = 3


@dataclass(frozen=True, slots=True)
class Rules:
    """The times, the limits, and what can be left out to see that it is needed.

    Attributes:
        ttl: How long leases live, ticks.
        guard: Ticks from the node's time, as the marker's writer read it, to the ready time.
        promoters: Number of promoters at once; each starts anew as often as it likes.
        clients: Number of explicit clients of the lock, two or none. Without clients, no trusted
            node must have forgotten a vote that may count.
        total_loss: A node may forget though no other is trusted.
        settled: Else a node may forget only while some other has been trusted for more ticks than
            this.
        compare_nonce: Only the marker that was read is promoted.
        compare_process: Only a marker of the present process is promoted.
        read_all: A promoter must have read all nodes as founding; else a quorum is enough.
        read_together: A promoter must have read these nodes within a second.
        mark_within: Markers are refused so many ticks after their writer read the node.
        fresh_promotions: Promotions are refused a second after the promoter read the node.
        witnesses: All clients that mark or promote have known every trusted node. Then any number
            of nodes may forget.
        memory: Ticks for which witnesses know that a node that forgot had been trusted; None: the
            ttl.
    """

    ttl: int = 2
    guard: int = 3
    promoters: int = 2
    clients: int = 0
    total_loss: bool = False
    settled: int = SECOND
    compare_nonce: bool = True
    compare_process: bool = True
    read_all: bool = True
    read_together: bool = True
    mark_within: int = SECOND
    fresh_promotions: bool = True
    witnesses: bool = False
    memory: int | None = None


class Founding:
    """Nodes with markers, promoters, and clients that write markers.

    Any client that has read a node as unmarked may write a marker. The marker says founding, unless
    witnesses know a trusted node. Other knowledge of the client makes no difference, because a
    client that is cut off has none. A quarantine without founding is a marker that no promoter
    promotes.

    A promoter that has decided may be paused, or its writes may be on their way. The writes arrive
    at any later moment or never.

    Without clients, any trusted node may have given a vote at any moment, and the vote counts for a
    ttl. With clients, the model has their attempts and leases. Their traces are longer and more
    convincing.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._promoter = HEAD * rules.clients
        self._rows = self._promoter + rules.promoters
        self._marker, self._ready, self._since, self._debt = (
            self._rows + row * NODES for row in range(4)
        )
        self._known = self._debt + NODES
        self._memory = rules.ttl if rules.memory is None else rules.memory
        fixed = self._debt + (2 if rules.witnesses else 1) * NODES
        self._lefts = [fixed + 2 * i * NODES for i in range(rules.clients)]
        self._votes = [left + NODES for left in self._lefts]
        # A promoter's reads: 0 for none, else 1 + 2 * the ticks since the read. The number is 1
        # more if the marker was replaced.
        self._reads = [fixed + (2 * rules.clients + p) * NODES for p in range(rules.promoters)]
        self._size = fixed + (2 * rules.clients + rules.promoters) * NODES
        clients = Alike(rules.clients, 0, HEAD, fixed, 2 * NODES)
        promoters = Alike(rules.promoters, self._promoter, 1, self._reads[0], NODES)
        self._symmetry = Symmetry(self._rows, (clients, promoters))

    def initial(self) -> State:
        """New servers, never marked."""
        return bytes(self._size)

    def steps(self, state: State) -> list[Step]:
        """Whatever may happen next."""
        steps: list[Step] = []
        for i in range(self.rules.clients):
            self._lock(state, i, steps)
        for p in range(self.rules.promoters):
            self._promote(state, p, steps)
        for x in range(NODES):
            self._mark(state, x, steps)
            self._forget(state, x, steps)
        self._tick(state, steps)
        return steps

    def _lock(self, state: State, i: int, steps: list[Step]) -> None:
        """A client asks, gets votes, has the lock."""
        ttl, head, name, votes = self.rules.ttl, HEAD * i, CLIENT_NAMES[i], self._votes[i]
        if state[head] == IDLE:
            after = bytearray(state)
            after[head] = ASKING
            steps.append((f"{name} asks all", bytes(after)))
        elif state[head] == ASKING:
            for x in range(NODES):
                free = not any(state[left + x] for left in self._lefts)
                if state[self._marker + x] == TRUSTED and free and not state[votes + x]:
                    after = bytearray(state)
                    after[self._lefts[i] + x], after[votes + x] = ttl, 1
                    steps.append((f"{NODE_NAMES[x]} grants {name}", bytes(after)))
            if sum(state[votes : votes + NODES]) >= QUORUM:
                after = bytearray(state)
                valid = ttl - state[head + AGE]
                after[head : head + HEAD] = bytes((HOLDING, 0, valid))
                after[votes : votes + NODES] = bytes(NODES)
                steps.append((f"{name} has the lock for {valid}", bytes(after)))

    def _promote(self, state: State, p: int, steps: list[Step]) -> None:
        """A promoter reads; decides at once when it has read enough; its writes arrive; it starts
        anew.
        """
        rules, name, reads = self.rules, PROMOTER_NAMES[p], self._reads[p]
        if state[self._promoter + p] == READING:
            enough = NODES if rules.read_all else QUORUM
            for x in range(NODES):
                if state[self._marker + x] == FOUNDING and state[reads + x] != 1:
                    after = bytearray(state)
                    after[reads + x] = 1
                    what = f"{name} reads {NODE_NAMES[x]} as founding"
                    if NODES - after[reads : reads + NODES].count(
                        0
                    ) >= enough and not self._is_known(state):
                        after[self._promoter + p] = PROMOTING
                        what += " and decides"
                    steps.append((what, bytes(after)))
            return
        for x in range(NODES):
            read, marker = state[reads + x], state[self._marker + x]
            if (
                read
                and (marker == FOUNDING or (marker == STALE and not rules.compare_process))
                and (read & 1 or not rules.compare_nonce)
                and ((read - 1) // 2 <= SECOND or not rules.fresh_promotions)
            ):
                after = bytearray(state)
                self._trust(after, x)
                steps.append((f"{name} promotes {NODE_NAMES[x]}", bytes(after)))
        after = bytearray(state)
        after[self._promoter + p] = READING
        after[reads : reads + NODES] = bytes(NODES)
        steps.append((f"{name} starts anew", bytes(after)))

    def _mark(self, state: State, x: int, steps: list[Step]) -> None:
        """Somebody who has read that there is no marker of this process writes one; the ready time
        counts from when it read.
        """
        if state[self._marker + x] not in (NONE, STALE):
            return
        for age in range(self.rules.mark_within + 1):
            after = bytearray(state)
            known = self._is_known(state)
            after[self._marker + x], after[self._ready + x] = (
                WAITING if known else FOUNDING,
                self.rules.guard - age,
            )
            self._replace(after, x)
            if not after[self._ready + x]:
                self._trust(after, x)
            by = "a witness" if known else "one"
            steps.append((f"{NODE_NAMES[x]} is marked by {by} who read it {age} ago", bytes(after)))

    def _is_known(self, state: State) -> bool:
        """Witnesses know that some node is trusted, or was until a while ago."""
        if not self.rules.witnesses:
            return False
        return any(
            state[self._marker + x] == TRUSTED or state[self._known + x] for x in range(NODES)
        )

    def _forget(self, state: State, x: int, steps: list[Step]) -> None:
        """A node loses its memory, as far as the limits let it; or comes back as a new process,
        with data that is too old.
        """
        marker = state[self._marker + x]
        if marker == NONE or (marker == TRUSTED and not self._may_forget(state, x)):
            return
        after = bytearray(state)
        for left in self._lefts:
            after[left + x] = 0
        after[self._ready + x] = after[self._since + x] = 0
        if marker == TRUSTED and not self.rules.clients:
            after[self._debt + x] = self.rules.ttl
        if marker == TRUSTED and self.rules.witnesses:
            after[self._known + x] = self._memory
        if marker in (FOUNDING, TRUSTED):
            after[self._marker + x] = STALE
            steps.append((f"{NODE_NAMES[x]} restarts with the data of its founding", bytes(after)))
        after[self._marker + x] = NONE
        self._replace(after, x)
        steps.append((f"{NODE_NAMES[x]} forgets", bytes(after)))

    def _may_forget(self, state: State, x: int) -> bool:
        """The limits: some other node has been trusted for more than a second, or all who are there
        know this one.
        """
        if self.rules.witnesses:
            return True
        others = [y for y in range(NODES) if y != x and state[self._marker + y] == TRUSTED]
        return (
            self.rules.total_loss
            if not others
            else any(state[self._since + y] > self.rules.settled for y in others)
        )

    def _trust(self, after: bytearray, x: int) -> None:
        after[self._marker + x], after[self._ready + x], after[self._since + x] = TRUSTED, 0, 0

    def _replace(self, after: bytearray, x: int) -> None:
        """The marker on this node is no longer the one that anybody has read."""
        for reads in self._reads:
            after[reads + x] += after[reads + x] & 1

    def _tick(self, state: State, steps: list[Step]) -> None:
        after = bytearray(state)
        for x in range(NODES):
            if after[self._marker + x] in (FOUNDING, WAITING):
                after[self._ready + x] -= 1
                if not after[self._ready + x]:
                    self._trust(after, x)
            elif after[self._marker + x] == TRUSTED:
                after[self._since + x] = min(after[self._since + x] + 1, LONG)
            known = [self._known + x] if self.rules.witnesses else []
            for cell in (self._debt + x, *known, *[left + x for left in self._lefts]):
                after[cell] -= after[cell] > 0
        for p, reads in enumerate(self._reads):
            for x in range(NODES):
                if 0 < after[reads + x] <= 2 * LONG:
                    after[reads + x] += 2
                if (
                    after[reads + x] > 2 * LONG
                    and after[self._promoter + p] == READING
                    and self.rules.read_together
                ):
                    after[reads + x] = 0
        for i in range(self.rules.clients):
            head, left = HEAD * i, self._lefts[i]
            counted = {ASKING: AGE, HOLDING: VALID}.get(after[head])
            if counted:
                after[head + counted] += 1 if counted == AGE else -1
                if after[head + AGE] == self.rules.ttl or (
                    counted == VALID and not after[head + VALID]
                ):
                    after[head : head + HEAD] = bytes(HEAD)
                    after[left : left + 2 * NODES] = bytes(2 * NODES)
        if after != state:
            steps.append(("a tick passes", bytes(after)))

    def broken(self, state: State) -> str:
        """Two that may use the resource; or, without clients, a node that forgot a vote that may
        count and votes again.
        """
        holders = [CLIENT_NAMES[i] for i in range(self.rules.clients) if state[HEAD * i] == HOLDING]
        if len(holders) > 1:
            return f"{' and '.join(holders)} have the lock"
        for x in range(NODES):
            if state[self._debt + x] and state[self._marker + x] == TRUSTED:
                return (
                    f"{NODE_NAMES[x]} is trusted, and has forgotten votes"
                    f" that may count for {state[self._debt + x]} more"
                )
        return ""

    def canonical(self, state: State) -> State:
        """Clients, promoters and nodes in the order of what they are at."""
        return self._symmetry.canonical(state)

    def show(self, state: State) -> str:
        """Nodes with their marker, ticks to its ready time, and whose key they have or what they
        forgot; then the holders.
        """
        nodes = []
        for x in range(NODES):
            ready = f" {state[self._ready + x]}" if state[self._ready + x] else ""
            debt = f", forgot {state[self._debt + x]}" if state[self._debt + x] else ""
            keys = "".join(
                f", {CLIENT_NAMES[i]} {state[left + x]}"
                for i, left in enumerate(self._lefts)
                if state[left + x]
            )
            if self.rules.witnesses and state[self._known + x]:
                debt += f", known {state[self._known + x]}"
            nodes.append(f"{NODE_NAMES[x]}: {MARKERS[state[self._marker + x]]}{ready}{debt}{keys}")
        holding = [i for i in range(self.rules.clients) if state[HEAD * i] == HOLDING]
        return "   ".join(
            nodes + [f"{CLIENT_NAMES[i]} holds {state[HEAD * i + VALID]}" for i in holding]
        )
