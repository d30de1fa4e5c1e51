"""Possible steps of the fences of readers and writers.

The model has three nodes, a hostile network and hostile clocks.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

from tests.model.rw_fence_state import (
    ACKNOWLEDGED,
    ACQUIRE,
    CONFIRM,
    DOWN_FIRST,
    DOWN_SECOND,
    DOWNGRADED,
    ENTRY,
    FENCED,
    FIRST,
    FLOOR,
    HEAD,
    IDLE,
    LOW,
    NODE_NAMES,
    ONE_ROUND,
    PHASE,
    PROPOSAL,
    READ,
    SAID,
    SECOND,
    SENT,
    STEP,
    STRING,
    TIME,
    WON,
    WON_FIRST,
    WON_SECOND,
    Rules,
    RwFenceState,
)
from tests.model.symmetry import NODES

if TYPE_CHECKING:
    from tests.model.explore import State, Step

QUORUM: Final = 2


class RwFencing:
    """Writers and readers, nodes, and everything that may happen between them.

    As in `Fencing`, keys vanish at any moment, so no exclusion is assumed. Requests arrive at any
    later moment or never. The client has any subset of the answers that were given.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._of = RwFenceState(rules)
        self.canonical = self._of.canonical
        self.broken = self._of.broken
        self.show = self._of.show

    def initial(self) -> State:
        """No client has asked for anything, and no node has a counter."""
        return bytes(self._of.size)

    def steps(self, state: State) -> list[Step]:
        """Whatever may happen next."""
        of, steps = self._of, list[tuple[str, bytes]]()
        for kind in (of.writers, of.attempts[self.rules.writers :]):
            for i in kind:
                phase = state[of.heads[i]]
                if phase == IDLE:
                    # Attempts that have not started are alike: only the first of them starts.
                    self._start(state, i, steps)
                    break
                if i in of.writers:
                    self._write_requests(state, i, steps)
                    if phase == FIRST:
                        self._decide_write(state, i, steps)
                else:
                    self._read_requests(state, i, steps)
                    if phase == FIRST:
                        self._decide_read(state, i, steps)
                if phase == SECOND:
                    self._decide_again(state, i, steps)
                if self.rules.repairing and phase in WON:
                    self._extend(state, i, steps)
        self._surroundings(state, steps)
        return steps

    def _start(self, state: State, i: int, steps: list[Step]) -> None:
        of, time = self._of, state[TIME]
        proposals = [*range(STEP * (time + 1), STEP * (time + self.rules.width) + 1, STEP)]
        if i not in of.writers and self.rules.floor != "proposal":
            proposals = [0]
        for proposal in proposals:
            after = bytearray(state)
            head = (FIRST, proposal, 0, of.floor(state), time)
            after[of.heads[i] : of.heads[i] + HEAD] = bytes(head)
            verb = (
                "proposes" if i in of.writers else "asks to read" + " and proposes" * (proposal > 0)
            )
            steps.append((f"{of.name(i)} {verb} {proposal or ''}".strip(), bytes(after)))

    def _write_requests(self, state: State, i: int, steps: list[Step]) -> None:
        """Let requests of a writer arrive.

        A request that the node would refuse might as well be lost.
        """
        rules, of, head, name = self.rules, self._of, self._of.heads[i], self._of.name(i)
        for x in range(NODES):
            vote, counter = state[of.votes[i] + x], state[of.counter + x]
            if vote == ACQUIRE and of.missing(state, x) and not state[of.until + x]:
                # Set the string. Store the proposal if it is above the counter.
                after, proposal = bytearray(state), state[head + PROPOSAL]
                of.enter(after, i, x, STRING)
                after[of.counter + x] = max(counter, proposal)
                stores = proposal > counter and state[head] == FIRST
                lowest = max(of.next_write(counter), proposal - STEP * rules.block)
                after[of.votes[i] + x] = FENCED + lowest if stores else SAID + counter
                self._tidy(after, i)
                what = f" and stores {proposal}" if stores else ""
                steps.append((f"{NODE_NAMES[x]} grants {name}{what}", bytes(after)))
            elif (
                vote == CONFIRM and state[of.keys[i] + x] == STRING and state[head + LOW] > counter
            ):
                # Store the fence of the second round: strictly above the counter, by the owner of
                # K.
                after = bytearray(state)
                after[of.counter + x] = state[head + LOW]
                after[of.votes[i] + x] = ACKNOWLEDGED
                steps.append(
                    (f"{NODE_NAMES[x]} acknowledges {state[head + LOW]} to {name}", bytes(after))
                )

    def _read_requests(self, state: State, i: int, steps: list[Step]) -> None:
        """Let requests of a reader arrive."""
        rules, of, head, name = self.rules, self._of, self._of.heads[i], self._of.name(i)
        for x in range(NODES):
            vote, counter = state[of.votes[i] + x], state[of.counter + x]
            if vote == ACQUIRE and not of.string(state, x) and not state[of.until + x]:
                # Add the entry. Raise the counter to the node's floor, mark it, and answer it, in
                # the same step. A writer that lost its key cannot set the key again where the
                # counter is marked.
                after = bytearray(state)
                of.enter(after, i, x, ENTRY)
                if rules.floor == "proposal" and not counter:
                    counter = state[head + PROPOSAL]
                counter = max(counter, state[of.floors + x]) | 1
                if rules.marks:
                    after[of.counter + x] = counter
                after[of.votes[i] + x] = SAID + counter
                steps.append((f"{NODE_NAMES[x]} lets {name} read at {counter}", bytes(after)))
            elif vote == CONFIRM and (state[of.keys[i] + x] == ENTRY or not rules.compare_token):
                # Raise the counter to the fence of the reader if K still has the entry.
                after = bytearray(state)
                after[of.counter + x] = max(counter, state[head + LOW])
                after[of.votes[i] + x] = ACKNOWLEDGED
                steps.append(
                    (f"{NODE_NAMES[x]} takes {state[head + LOW]} back from {name}", bytes(after))
                )

    def _decide_write(self, state: State, i: int, steps: list[Step]) -> None:
        """Let a writer look at its grants: a quorum stored the proposal, or it asks again."""
        rules, of, head, votes, time = (
            self.rules,
            self._of,
            self._of.heads[i],
            self._of.votes[i],
            state[TIME],
        )
        seen = state[votes : votes + NODES]
        proposal = state[head + PROPOSAL]
        if time - state[head + SENT] <= rules.round_ticks:
            quorums = combinations([vote - FENCED for vote in seen if vote >= FENCED], QUORUM)
            for lowest in {max(quorum) for quorum in quorums}:
                self._win(state, i, WON_FIRST, (lowest, proposal), steps)
        said = {
            x: proposal if seen[x] >= FENCED else seen[x] - SAID
            for x in range(NODES)
            if seen[x] >= SAID
        }
        for size in range(QUORUM, len(said) + 1):
            for quorum in combinations(said, size):
                if sum(seen[x] >= FENCED for x in quorum) >= QUORUM:
                    continue
                highest, after = max(said[x] for x in quorum), bytearray(state)
                for x in quorum:
                    after[votes + x] = CONFIRM
                after[head + PHASE], after[head + FLOOR], after[head + SENT] = (
                    SECOND,
                    of.floor(state),
                    time,
                )
                self._tidy(after, i)
                asked = "".join(NODE_NAMES[x] for x in quorum)
                lowest = max(of.next_write(highest), STEP * (time + 1))
                for fence in range(lowest, STEP * (time + rules.width) + 1, STEP):
                    after[head + LOW] = fence
                    steps.append((f"{of.name(i)} asks {asked} to confirm {fence}", bytes(after)))

    def _decide_read(self, state: State, i: int, steps: list[Step]) -> None:
        """Compare a reader's grants: counters of a quorum are equal, or the reader writes back."""
        of, head, votes = self._of, self._of.heads[i], self._of.votes[i]
        said = {x: state[votes + x] - SAID for x in range(NODES) if state[votes + x] >= SAID}
        for size in range(QUORUM, len(said) + 1):
            for quorum in combinations(said, size):
                highest, after = max(said[x] for x in quorum), bytearray(state)
                behind = [x for x in quorum if said[x] < highest] if self.rules.write_back else []
                for x in quorum:
                    after[votes + x] = CONFIRM if x in behind else ACKNOWLEDGED
                if not behind:
                    self._win(bytes(after), i, READ, (highest, highest), steps)
                    continue
                after[head + PHASE], after[head + LOW] = SECOND, highest
                asked = "".join(NODE_NAMES[x] for x in behind)
                steps.append((f"{of.name(i)} writes {highest} back to {asked}", bytes(after)))

    def _decide_again(self, state: State, i: int, steps: list[Step]) -> None:
        """Let an attempt count its acknowledgements, or ask a node that granted late as well."""
        of, head, votes = self._of, self._of.heads[i], self._of.votes[i]
        fence, writes = state[head + LOW], i in self._of.writers
        acknowledged = state[votes : votes + NODES].count(ACKNOWLEDGED)
        if acknowledged >= QUORUM and state[TIME] - state[head + SENT] <= self.rules.round_ticks:
            self._win(state, i, WON_SECOND if writes else READ, (fence, fence), steps)
        for x in range(NODES):
            vote = state[votes + x]
            # The last writer on this node may have a fence above the reader's. The reader must not
            # count the node.
            if vote >= SAID and (writes or vote - SAID <= fence or self.rules.counts_above):
                after = bytearray(state)
                after[votes + x] = CONFIRM
                verb = f"to confirm {fence}" if writes else f"to take {fence} back"
                steps.append((f"{of.name(i)} asks {NODE_NAMES[x]} too {verb}", bytes(after)))

    def _win(
        self, state: State, i: int, phase: int, fences: tuple[int, int], steps: list[Step]
    ) -> None:
        of, head, (first, last) = self._of, self._of.heads[i], fences
        if state[TIME] - state[head + SENT] > self.rules.round_ticks:
            return
        after, floor = bytearray(state), state[head + FLOOR]
        # A floor that the fences respect has no further effect. Another floor is the violation.
        respected = first > floor or (phase == READ and first == floor)
        after[head : head + HEAD] = bytes(
            (phase, after[head + PROPOSAL], first, 0 if respected else floor, 0)
        )
        self._tidy(after, i)
        which = f"fence {last}" if first == last else f"fences {first}-{last}"
        what = f"reads with fence {last}" if phase == READ else f"has the lease with {which}"
        steps.append((f"{of.name(i)} {what}", bytes(after)))

    def _tidy(self, after: bytearray, i: int) -> None:
        """Forget of an attempt what can make no difference any more, so that more states are the
        same.
        """
        head, votes = self._of.heads[i], self._of.votes[i]
        phase = after[head]
        if phase == FIRST:
            return
        for x in range(NODES):
            vote = after[votes + x]
            if vote >= FENCED and phase in ONE_ROUND:
                after[votes + x] = FENCED
            elif vote > SAID or (phase == READ and vote != ACKNOWLEDGED):
                after[votes + x] = SAID
        if phase == READ or (
            phase not in ONE_ROUND and ACQUIRE not in after[votes : votes + NODES]
        ):
            after[head + PROPOSAL] = 0

    def _extend(self, state: State, i: int, steps: list[Step]) -> None:
        """Let an extension arrive: it raises the counter, converts the key, or sets a missing key
        again.
        """
        of, name, phase = self._of, self._of.name(i), state[self._of.heads[i]]
        # The fence of a downgraded lease is that of other readers after it.
        fence = of.fence(state, i) | (phase in DOWNGRADED)
        if phase in (WON_FIRST, WON_SECOND):
            after = bytearray(state)
            after[of.heads[i]] = DOWN_FIRST if phase == WON_FIRST else DOWN_SECOND
            steps.append((f"{name} downgrades", bytes(after)))
        writes = phase in (WON_FIRST, WON_SECOND)
        for x in range(NODES):
            key, counter = state[of.keys[i] + x], state[of.counter + x]
            after = bytearray(state)
            after[of.counter + x] = max(counter, fence)
            if key:
                if phase in DOWNGRADED and key == STRING:
                    after[of.keys[i] + x] = ENTRY
                    steps.append((f"{NODE_NAMES[x]} turns {name} into a reader", bytes(after)))
                elif counter < fence:
                    steps.append(
                        (f"{NODE_NAMES[x]} raises its counter to {name}'s {fence}", bytes(after))
                    )
            elif (
                not state[of.until + x]
                and (of.missing(state, x) or not (writes or of.string(state, x)))
                and (counter <= fence or not self.rules.repair_checks_fence)
            ):
                if phase in DOWNGRADED:
                    of.enter_again(after, i, x)
                else:
                    of.enter(after, i, x, STRING if writes else ENTRY)
                steps.append((f"{NODE_NAMES[x]} takes {name}'s key back", bytes(after)))

    def _surroundings(self, state: State, steps: list[Step]) -> None:
        """Let keys vanish, nodes forget, and time pass."""
        rules, of, time = self.rules, self._of, state[TIME]
        for x in range(NODES):
            for i in of.attempts:
                if state[of.keys[i] + x]:
                    after = bytearray(state)
                    of.clear(after, [i], x)
                    steps.append((f"{of.name(i)}'s key on {NODE_NAMES[x]} goes", bytes(after)))
            if rules.forgetting and (state[of.counter + x] or not of.missing(state, x)):
                after = bytearray(state)
                of.clear(after, of.attempts, x)
                after[of.counter + x] = after[of.floors + x] = 0
                # A quarantine beyond the last tick is for ever, however long it is.
                after[of.until + x] = min(time + rules.guard, rules.ticks + 1) if rules.guard else 0
                steps.append((f"{NODE_NAMES[x]} forgets", bytes(after)))
        if time < rules.ticks:
            after = bytearray(state)
            after[TIME] = time + 1
            for x in range(NODES):
                if state[of.until + x] == time + 1:
                    after[of.until + x] = 0
                    if rules.floor == "node":
                        # The slowest clock that a node may have. A faster clock is like a later
                        # fence.
                        after[of.floors + x] = STEP * (time + 2)
            steps.append(("a tick passes", bytes(after)))
