"""Possible steps of fences by DESIGN.md 6.

The model has three nodes, a few acquisitions at once, a hostile network and hostile clocks.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

from tests.model.fence_state import (
    ACKNOWLEDGED,
    ACQUIRE,
    CONFIRM,
    CONFIRMED,
    FENCED,
    FIRST,
    FLOOR,
    GIVEN_UP,
    HEAD,
    IDLE,
    NODE_NAMES,
    OVER_FIRST,
    OVER_SECOND,
    PHASE,
    PROPOSAL,
    READ,
    SAID,
    SECOND,
    SENT,
    TIME,
    WON_FIRST,
    WON_SECOND,
    FenceState,
    Rules,
)
from tests.model.symmetry import NODES

if TYPE_CHECKING:
    from tests.model.explore import State, Step

QUORUM: Final = 2


class Fencing:
    """Attempts, nodes, and everything that may happen between them.

    A request that was sent may be carried out at any later moment or never. Later requests and the
    state of its sender make no difference. Real connections keep the order until they break, so
    they allow less.

    A reply needs no message of its own. If a reply is late or lost, the client acts late or never.
    When a client acts, it has any subset of the replies.

    The model needs no steps to give up or to release. An attempt that does nothing more has given
    up. A key may vanish at any moment, as if it were released. A node that crashes and keeps its
    memory only loses messages.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._of = FenceState(rules)
        self.canonical = self._of.canonical
        self.broken = self._of.broken
        self.show = self._of.show

    def initial(self) -> State:
        """Nobody has asked for anything, no node has counted."""
        return bytes(self._of.size)

    def steps(self, state: State) -> list[Step]:
        """Whatever may happen next."""
        rules, steps = self.rules, list[tuple[str, bytes]]()
        for i, head in enumerate(self._of.heads):
            phase = state[head]
            if phase == IDLE:
                # Attempts that have not started are alike, so only the first of them starts.
                self._start(state, i, steps)
                break
            self._requests(state, i, steps)
            if phase == FIRST:
                self._decide(state, i, steps)
            elif phase == SECOND:
                self._decide_again(state, i, steps)
            if rules.keys_last and phase < GIVEN_UP:
                self._finish(state, i, steps)
            if rules.repairing and phase in (WON_FIRST, WON_SECOND):
                self._extend(state, i, steps)
        self._surroundings(state, steps)
        return steps

    def _start(self, state: State, i: int, steps: list[Step]) -> None:
        time, head, name = state[TIME], self._of.heads[i], self._of.name(i)
        abandoned = self.rules.same_token and i == 0
        phase, what = (GIVEN_UP, "gives up after proposing") if abandoned else (FIRST, "proposes")
        for proposal in range(
            time + 1, time + (1 if abandoned or self.rules.counting else self.rules.width) + 1
        ):
            after = bytearray(state)
            after[head : head + HEAD] = bytes((phase, proposal, 0, self._of.floor(state), time))
            steps.append((f"{name} {what} {proposal}", bytes(after)))

    def _requests(self, state: State, i: int, steps: list[Step]) -> None:
        """Let requests of this attempt arrive.

        A request that the node would refuse has the effect of a lost request, and is left out.
        """
        rules, of, head, name = self.rules, self._of, self._of.heads[i], self._of.name(i)
        for x in range(NODES):
            vote, counter = state[of.votes[i] + x], state[of.counter + x]
            if vote == ACQUIRE and not rules.read_when_storing and state[head] == FIRST:
                after = bytearray(state)
                after[of.votes[i] + x] = READ + self._first_above(counter, state[head + PROPOSAL])
                steps.append(
                    (f"{NODE_NAMES[x]} reads its counter {counter} for {name}", bytes(after))
                )
            elif (
                (vote == ACQUIRE or READ <= vote < FENCED)
                and not state[of.held + x]
                and not state[of.until + x]
            ):
                after = bytearray(state)
                self._grant(after, i, x)
                proposal = counter + 1 if rules.counting else state[head + PROPOSAL]
                after[of.counter + x] = max(counter, proposal)
                what = f"{NODE_NAMES[x]} grants {name}"
                if proposal > counter and state[head] == FIRST and not rules.counting:
                    what += f" and stores {proposal}"
                    if rules.block:
                        what += f" over {counter}"
                    first = self._first_above(counter, proposal) if vote == ACQUIRE else vote - READ
                    after[of.votes[i] + x] = FENCED + first
                else:
                    after[of.votes[i] + x] = SAID + (proposal if rules.counting else counter)
                self._tidy(after, i)
                steps.append((what, bytes(after)))
            elif vote == CONFIRM and (not rules.compare_token or of.has_token(state, i, x)):
                fence = state[head + CONFIRMED]
                if fence > counter or not rules.strict:
                    after = bytearray(state)
                    after[of.counter + x] = max(counter, fence)
                    after[of.votes[i] + x] = ACKNOWLEDGED
                    steps.append((f"{NODE_NAMES[x]} acknowledges {fence} to {name}", bytes(after)))

    def _decide(self, state: State, i: int, steps: list[Step]) -> None:
        """The client looks at the grants that it has: a quorum stored the proposal, or it has to
        ask again.
        """
        rules, head, votes, time = self.rules, self._of.heads[i], self._of.votes[i], state[TIME]
        seen = state[votes : votes + NODES]
        if time - state[head + SENT] <= rules.round_ticks:
            # The client counts any quorum of the nodes that stored the proposal.
            quorums = combinations([vote - FENCED for vote in seen if vote >= FENCED], QUORUM)
            for first in {
                max(firsts) if rules.above_largest else min(firsts) for firsts in quorums
            }:
                self._win(state, i, WON_FIRST, (first, state[head + PROPOSAL]), steps)
        said = {
            x: state[head + PROPOSAL] if seen[x] >= FENCED else seen[x] - SAID
            for x in range(NODES)
            if SAID <= seen[x] < READ or seen[x] >= FENCED
        }
        for size in range(QUORUM, len(said) + 1):
            for quorum in combinations(said, size):
                highest = max(said[x] for x in quorum)
                after = bytearray(state)
                for x in quorum:
                    after[votes + x] = ACKNOWLEDGED if rules.counting else CONFIRM
                if rules.counting:
                    after[head + CONFIRMED] = highest
                    self._win(bytes(after), i, WON_SECOND, (highest, highest), steps)
                elif sum(seen[x] >= FENCED for x in quorum) < QUORUM:
                    after[head + PHASE], after[head + FLOOR], after[head + SENT] = (
                        SECOND,
                        self._of.floor(state),
                        time,
                    )
                    self._tidy(after, i)
                    asked = "".join(NODE_NAMES[x] for x in quorum)
                    for fence in range(max(1 + highest, time + 1), time + rules.width + 1):
                        after[head + CONFIRMED] = fence
                        steps.append(
                            (f"{self._of.name(i)} asks {asked} to confirm {fence}", bytes(after))
                        )

    def _decide_again(self, state: State, i: int, steps: list[Step]) -> None:
        """A quorum acknowledged; or a late grant is asked to confirm as well."""
        head, votes, name = self._of.heads[i], self._of.votes[i], self._of.name(i)
        fence = state[head + CONFIRMED]
        acknowledged = state[votes : votes + NODES].count(ACKNOWLEDGED)
        if acknowledged >= QUORUM and state[TIME] - state[head + SENT] <= self.rules.round_ticks:
            self._win(state, i, WON_SECOND, (fence, fence), steps)
        for x in range(NODES):
            if state[votes + x] >= SAID:
                after = bytearray(state)
                after[votes + x] = CONFIRM
                steps.append((f"{name} asks {NODE_NAMES[x]} too to confirm {fence}", bytes(after)))

    def _first_above(self, counter: int, proposal: int) -> int:
        """Return the lowest fence that a lease may own if its proposal replaced this counter."""
        return max(counter + 1, proposal - self.rules.block)

    def _win(
        self, state: State, i: int, phase: int, fences: tuple[int, int], steps: list[Step]
    ) -> None:
        head, (first, last) = self._of.heads[i], fences
        after = bytearray(state)
        floor = self._of.highest(state) if self.rules.order == "success" else state[head + FLOOR]
        # A floor below the fences has nothing more to say; one that is not is the violation.
        after[head : head + HEAD] = bytes(
            (phase, after[head + PROPOSAL], first, 0 if first > floor else floor, 0)
        )
        self._tidy(after, i)
        which = f"fence {last}" if first == last else f"fences {first}-{last}"
        steps.append((f"{self._of.name(i)} has the lease with {which}", bytes(after)))

    def _tidy(self, after: bytearray, i: int) -> None:
        """Forget of an attempt what can make no difference any more, so that more states are the
        same.
        """
        head, votes = self._of.heads[i], self._of.votes[i]
        if after[head] == FIRST:
            return
        for x in range(NODES):
            vote = after[votes + x]
            if READ <= vote < FENCED:
                after[votes + x] = ACQUIRE
            elif vote >= FENCED and after[head] == WON_FIRST:
                after[votes + x] = FENCED
            elif vote > SAID:
                after[votes + x] = SAID
        if after[head] != WON_FIRST and ACQUIRE not in after[votes : votes + NODES]:
            after[head + PROPOSAL] = 0

    def _finish(self, state: State, i: int, steps: list[Step]) -> None:
        """The client gives up, or its lease is over: from now on its keys may go."""
        phase = state[self._of.heads[i]]
        after = bytearray(state)
        after[self._of.heads[i]] = {WON_FIRST: OVER_FIRST, WON_SECOND: OVER_SECOND}.get(
            phase, GIVEN_UP
        )
        steps.append(
            (
                f"{self._of.name(i)} {'gives up' if phase <= SECOND else 'ends its lease'}",
                bytes(after),
            )
        )

    def _extend(self, state: State, i: int, steps: list[Step]) -> None:
        """An extension arrives: it lifts the counter where the key is, and re-creates the key where
        it is missing.
        """
        of, name, fence = self._of, self._of.name(i), self._of.fence(state, i)
        for x in range(NODES):
            counter = state[of.counter + x]
            after = bytearray(state)
            after[of.counter + x] = max(counter, fence)
            if of.has_token(state, i, x):
                if counter < fence:
                    steps.append(
                        (f"{NODE_NAMES[x]} lifts its counter to {name}'s {fence}", bytes(after))
                    )
            elif (
                not state[of.held + x]
                and not state[of.until + x]
                and (counter <= fence or not self.rules.repair_checks_fence)
            ):
                self._grant(after, i, x)
                steps.append((f"{NODE_NAMES[x]} takes {name}'s key back", bytes(after)))

    def _surroundings(self, state: State, steps: list[Step]) -> None:
        """Keys go, nodes forget, time passes."""
        rules, of, time = self.rules, self._of, state[TIME]
        for x in range(NODES):
            held = state[of.held + x]
            if held and (not rules.keys_last or state[of.heads[of.owner(state, x)]] >= GIVEN_UP):
                after = bytearray(state)
                self._clear(after, x)
                steps.append((f"the key on {NODE_NAMES[x]} goes", bytes(after)))
            if rules.forgetting and (held or state[of.counter + x]):
                after = bytearray(state)
                self._clear(after, x)
                after[of.counter + x] = 0
                # A quarantine beyond the last tick is for ever, however long it is.
                after[of.until + x] = min(time + rules.guard, rules.ticks + 1) if rules.guard else 0
                steps.append((f"{NODE_NAMES[x]} forgets", bytes(after)))
        if time < rules.ticks:
            after = bytearray(state)
            after[TIME] = time + 1
            for x in range(NODES):
                if state[of.until + x] == time + 1:
                    after[of.until + x] = 0
            steps.append(("a tick passes", bytes(after)))

    def _grant(self, after: bytearray, i: int, x: int) -> None:
        """Give the key on a node to an attempt, as the newest of its tenants."""
        mine = self._of.tenures[i] + x
        others = [tenures + x for tenures in self._of.tenures if tenures + x != mine]
        for cell in others:
            after[cell] -= 0 < after[mine] < after[cell]
        after[mine] = 1 + max((after[cell] for cell in others), default=0)
        after[self._of.held + x] = 1

    def _clear(self, after: bytearray, x: int) -> None:
        after[self._of.held + x] = 0
        if self.rules.order != "tenancy":
            for tenures in self._of.tenures:
                after[tenures + x] = 0
