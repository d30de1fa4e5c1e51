"""Observes a running world, and checks the invariants. The watch changes nothing in the world.

The library reports two events at the instant at which they happen: a grant (`Extender.adopt`) and a
downgrade (`LeaseRecord.downgrade`). The tasks of `process.py` report what they do. All other facts
come from observations at regular intervals.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioredlock_ng import AcquireTimeout, QuorumUnreachable
from aioredlock_ng._core.keys import slot_in, slot_key
from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.over_mark import without_mark
from aioredlock_ng._core.queue_formats import SLOT_QUEUE_KEYS
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._core.readers import READER_QUEUE_KEYS
from aioredlock_ng._core.validity import keys_life
from aioredlock_ng._core.waking import MOST_AHEAD
from aioredlock_ng._engine.keeping.reasons import MAX_HOLD
from tests.simulation.invariants import (
    MOST_TURNS,
    MOST_TURNS_FAR,
    Exclusion,
    Fences,
    Leftover,
    Leftovers,
    Stall,
    Violation,
    guarded_too_short,
    impatient,
    inside_lost,
    lingering,
    out_of_turn,
    overdue,
    overled,
    overrun,
    overtaken,
    too_early,
    too_impatient,
    too_many,
    too_patient,
    too_soon,
    unbacked,
)
from tests.simulation.plan import DRIFT_FACTOR
from tests.simulation.server import manager_in
from tests.simulation.threads import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng import Lease
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.spec import LineKey
    from aioredlock_ng._engine.waiting.line import Line
    from aioredlock_ng._engine.waiting.place import Place
    from aioredlock_ng.errors import RedlockError
    from tests.simulation.faults import Faults
    from tests.simulation.plan import Action, Plan
    from tests.simulation.process import Process
    from tests.simulation.server import Server
    from tests.simulation.world import ProcessLoop, World

__all__ = ["LOOK_EVERY", "Watch"]

LOOK_EVERY = 0.05
"""True seconds between two observations of the whole world."""

TOLERANCE = 0.03
"""Seconds by which the effect of a timer may be late."""

HOLDER_STALLED = "its holder's event loop stood still"
"""Beginning of the reason of each loss by `stall_limit` (`Stalls._fault`)."""

AFTER_SUSPEND = 0.55
"""Seconds of a process's clock for which timers may be late after a suspend.

These timers were set before the suspend (`wheel.MAX_SLEEP`).
"""


PROMPT = 0.2
"""Seconds until a waiter has acquired a free resource, besides two node timeouts and some round
trips.

The number stands for four observations. The first waiter in a queue may see a deletion late, and
another event may come in between. One node timeout is the life of an offer that no waiter takes.
The other one is the life of an attempt that is not answered.
"""

SPLIT_FOR = 2.3
"""Seconds after the end of a call that takes some names by itself, for which its offers may still
reserve one of these names.
"""

SAFETY_NET = 16.0
"""Seconds until the first waiter has sent a refresh (`place.REFRESH_EVERY`), and has acquired the
lock that it found free.
"""


@dataclass(slots=True)
class _Tracked:
    name: str
    process: Process
    record: LeaseRecord
    keys: frozenset[bytes]
    at: float
    lost_at: float = math.inf
    on: dict[int, float] = field(default_factory=dict)
    whole_since: float = math.inf
    owner: asyncio.Task[object] | None = None
    left: bool = False

    @property
    def reads(self) -> bool:
        """True for a read lease, even if the lease was a write lease before."""
        return self.record.spec.kind.shared

    @property
    def home(self) -> ProcessLoop:
        """The event loop of the task that holds the lease."""
        mailbox: Any = self.record.home
        return self.process.loop if mailbox is None else mailbox.loop

    @property
    def received(self) -> bool:
        """True once a task has received the lease."""
        # The engine does not know whether a caller on another loop was cancelled before the lease
        # arrived.
        return (
            self.record.taken if self.process.home is self.process.loop else self.owner is not None
        )

    @property
    def stalled(self) -> bool:
        """True if the lease was lost because the loop of its holder stood still."""
        return self.record.reason.startswith(HOLDER_STALLED)

    @property
    def undone(self) -> bool:
        """True if the lease was released because no task received it."""
        return (
            self.record.phase is Phase.RELEASED
            and not self.received
            and self.process.closing == math.inf
        )

    def may_work(self, clock: float) -> bool:
        """True while the body may still work on its lease.

        A body may work while the lease is valid. If the lease was lost because its loop stood
        still, the body may work until the deadline.
        """
        return self.record.remaining(clock) > 0.0 or (self.stalled and clock < self.record.deadline)

    @property
    def limit(self) -> float:
        """Instant at which the `max_hold` is over, by the clock of the process. Infinity without a
        `max_hold`.
        """
        max_hold = self.record.spec.max_hold
        return math.inf if max_hold is None else self.record.since + max_hold


@dataclass(slots=True)
class _Call:
    process: Process
    action: Action
    loop: ProcessLoop
    began: float
    stood: float
    at: float
    keys: frozenset[bytes]
    rivalled: bool = False


@dataclass(slots=True)
class _Standing:
    place: Place | None
    since: float
    times: int = 0
    waiters: int = 0
    deaf: bool = False
    turns: Counter[Process] = field(default_factory=Counter)
    tokens: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class _Entry:
    """A member of a queue on a node.

    Attributes:
        since: True time of the first observation of the member.
        over: True time since when its process has not waited there. Infinity while it waits.
    """

    since: float
    over: float = math.inf


class Watch:
    """All observations of one run.

    Attributes:
        violation: The first violation, or None.
        grants: Number of grants.
        contested: True while two leases may exclude each other.
        most_overtaken: Largest number of later requests that were granted before a waiter, minus
            the number of waiters.
        most_turns: Largest number of grants to the other side that a reader or a writer waited for.
    """

    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        self._quorum = quorum_of(plan.nodes)
        self.violation: Violation | None = None
        self.grants = 0
        self._tracked: list[_Tracked] = []
        self._of: dict[LeaseRecord, _Tracked] = {}
        self.contested = False
        min_holds = [action.min_hold or 0.0 for action in plan.actions] or [0.0]
        self._fences = {"success": Fences("success"), "interval": Fences("interval")}
        self._stall = Stall()
        self._granted_now: set[bytes] = set()
        # For each key: leases with a `min_hold`, each with the true time at which this ends. For
        # each token: its latest lease with a `min_hold`.
        self._keeping: dict[bytes, list[tuple[_Tracked, float]]] = {}
        self._min_holds: dict[bytes, _Tracked] = {}
        longest = max([plan.ttl, *(action.extended or 0.0 for action in plan.actions)])
        self._life = max(
            keys_life(longest, hold, 2 * plan.node_timeout + 0.1, DRIFT_FACTOR)
            for hold in min_holds
        )
        self._shaky: dict[bytes, float] = {}
        self._entries: dict[tuple[int, bytes, bytes], _Entry] = {}
        self._offers: dict[tuple[int, bytes, bytes, float], float] = {}
        self._overtaken: dict[tuple[Process, bytes], _Standing] = {}
        self.most_overtaken = self.most_turns = 0
        self._before = 0, 0
        # True time at which a process died that held a key and also waited for it, by key.
        self._deserted: dict[bytes, float] = {}
        # True time at which the attempt of each read grant began, by token.
        self._began: dict[bytes, float] = {}
        self._orphans: dict[tuple[int, bytes, bytes], float] = {}
        # Keys that no running process can release, once for each node. The second list has only
        # those keys that also keep readers out.
        self._stuck: list[bytes] = []
        self._stuck_to_all: list[bytes] = []
        self._abandoned: set[bytes] = set()
        self._inside: dict[Process, list[tuple[Lease, _Tracked]]] = {}
        # Leases whose body waits in a call of the library.
        self._asking: set[Lease] = set()
        self._calls: list[_Call] = []
        slowest = max(profile.usual for row in plan.profiles for profile in row)
        self._round_trip = 2 * slowest
        # Twelve round trips are enough for a message and some attempts against rivals.
        self._bound = PROMPT + 2 * plan.node_timeout + 12 * self._round_trip
        # A lock of several names reserves its first keys for two seconds while a later key is held.
        # A task that calls `try_acquire` may get some nodes at the instant at which a waiter gets
        # the other nodes.
        self._split: dict[bytes, float] = {}
        self._net = Stall()
        self._forgotten: dict[tuple[Process, LineKey], float] = {}
        self._limits: dict[bytes, int] = {}
        for action in plan.actions:
            if action.limit:
                name = action.resources[0].encode()
                self._limits[name] = max(action.limit, self._limits.get(name, 0))
        # After an attempt that reached no quorum, a waiter may wait for a second before its next
        # attempt.
        self._settled = 1.2 + 3 * plan.node_timeout + 2 * self._round_trip
        world.on_trouble = lambda words: self.found("callbacks", words)

    def attach(
        self, processes: Sequence[Process], servers: Sequence[Server], faults: Faults
    ) -> None:
        """Begin to observe these processes and servers."""
        self._processes = processes
        self._servers = servers
        self._faults = faults
        self._by_loop: dict[ProcessLoop, Process] = {process.loop: process for process in processes}
        self._by_manager = {process.manager: process for process in processes}
        self._by_name = {process.name: process for process in processes}
        self._world.at(LOOK_EVERY, self._look)

    def found(self, invariant: str, words: str) -> None:
        """Record a violation, unless `words` is empty. Only the first violation counts."""
        if words and self.violation is None:
            self.violation = Violation(invariant, self._world.now, words)
            self._world.note("VIOLATION", invariant, words)

    @property
    def exclusion_promised(self) -> bool:
        """True if the fault model of this run promises exclusion."""
        return self._plan.within_drift and not self._plan.beyond_guard

    @property
    def _fences_promised(self) -> bool:
        """True if the fault model of this run promises an order of fences.

        After nodes forgot their counters, the order depends on the clocks of the clients.
        """
        return not self._faults.forgetting or (
            self._plan.within_drift and not self._plan.beyond_guard
        )

    def adopted(self, loop: ProcessLoop, record: LeaseRecord) -> None:
        """Record a lease that was granted on this loop of an engine."""
        now = self._world.now
        process = self._by_loop[loop]
        if not self.grants:
            # Before the first grant, the nodes were new, or all tasks sent attempts at the same
            # instant. These commands do not belong to the cost of the crowd.
            self._before = self._asked()
        self.grants += 1
        name = f"lease {self.grants} ({record.token[:6].decode()}) of {process.name}"
        tracked = _Tracked(name, process, record, frozenset(record.spec.keys), now)
        self._world.note(
            process.name,
            "GRANTED",
            name,
            record.spec.resource,
            record.fence,
            round(record.deadline - loop.clock(), 6),
        )
        self._tracked.append(tracked)
        self._of[record] = tracked
        self._granted_now |= tracked.keys
        self._keeping_nodes(tracked)
        self._judge_min_hold(tracked)
        if record.fence is not None:
            in_success = self.exclusion_promised and not self._faults.forgetting
            fences = self._fences["success" if in_success else "interval"]
            began = loop.true(record.started)
            if tracked.reads:
                # A read lease that shares a grant has the fence of this grant, although the grant
                # may have been renewed since.
                began = self._began.setdefault(record.token, began)
            for known in self._fences.values():
                words = known.granted(tracked.keys, record.fence, began, now, reads=tracked.reads)
                if known is fences and self._fences_promised:
                    self.found("fences", words)
        self.contested = True
        self.after_step()
        self._judge_order(tracked)

    def _judge_min_hold(self, tracked: _Tracked) -> None:
        """Check a grant against the `min_hold` of earlier leases, and note its own `min_hold`.

        A lease that no task received has no `min_hold`.
        """
        now, record = self._world.now, tracked.record
        for key in tracked.keys:
            keeping = [(other, end) for other, end in self._keeping.get(key, ()) if end > now]
            for other, end in keeping:
                if self.exclusion_promised and other.received:
                    self.found("kept", too_early(tracked.name, key, end - now))
            if record.spec.life.min_hold:
                # The clock of the holder's process decides when the `min_hold` ends.
                end = now + record.spec.life.min_hold / tracked.process.loop.rate
                self._min_holds[record.token] = tracked
                keeping.append((tracked, end))
            self._keeping[key] = keeping

    def downgraded(self, record: LeaseRecord) -> None:
        """Record that a write lease became a read lease. From now on, its fence counts as the fence
        of a reader.
        """
        tracked, now = self._of[record], self._world.now
        self._world.note(tracked.process.name, "DOWNGRADED", tracked.name, record.fence)
        self._began[record.token] = now
        if record.fence is not None:
            for known in self._fences.values():
                known.granted(tracked.keys, record.fence, now, now, reads=True)

    def _judge_order(self, tracked: _Tracked) -> None:
        """Count this grant for each waiter that it overtakes.

        Only waiters for a single one of these names are counted. Readers enter together, and take
        turns with writers. So a reader counts only the writers that overtake it. A writer counts
        how often a process enters to read between two writers.

        If another client deletes the entries of a waiter, the waiter joins the queue again at its
        next refresh. Until then, no grants are counted.
        """
        now, record = self._world.now, tracked.record
        if any(
            map(
                self._may_be_forgotten,
                (line for process in self._processes for line in _lines(process)),
            )
        ):
            self._overtaken.clear()
            return
        began = tracked.process.loop.true(record.started)
        standing: dict[tuple[Process, bytes], _Standing] = {}
        lines = [
            (process, member, line)
            for process in self._processes
            if process.engine is not None
            for member, line in process.engine.lines._standing.items()
        ]
        for process, member, line in lines:
            if now - self._well_since(process) < self._settled or (
                line.slots is None and len(line.keys) > 1
            ):
                continue
            name = process, member
            mine = self._overtaken.get(name)
            if mine is None or mine.place is not line.place:
                mine = _Standing(line.place, now)
            standing[name] = mine
            wanted = not tracked.keys.isdisjoint(line.keys)
            if tracked.reads and line.shared:
                continue
            if (
                wanted
                and (line.shared or not line.holders)
                and record.token not in mine.tokens
                and began > mine.since
            ):
                mine.tokens.add(record.token)
                waiter = f"{process.name} ({member.decode()})"
                if tracked.reads or line.shared:
                    mine.turns[tracked.process if tracked.reads else process] += 1
                    turns = max(mine.turns.values())
                    self.most_turns = max(self.most_turns, turns)
                    far = self._plan.network == "continents"
                    self.found(
                        "order", out_of_turn(waiter, turns, MOST_TURNS_FAR if far else MOST_TURNS)
                    )
                    continue
                mine.times += 1
                mine.turns.clear()
                rivals = sum(not set(line.keys).isdisjoint(other.keys) for _, _, other in lines)
                mine.waiters = max(mine.waiters, rivals)
                mine.deaf = mine.deaf or any(link.deaf for link in process.links)
                self.most_overtaken = max(self.most_overtaken, mine.times - mine.waiters)
                self.found("order", overtaken(waiter, mine.times, mine.waiters, deaf=mine.deaf))
        self._overtaken = standing

    def after_step(self) -> None:
        """Check `exclusion` and `limit` while two leases may exclude each other."""
        if not self.contested or not self.exclusion_promised:
            return
        rivals = [
            (t.name, t.keys, t.may_work(t.process.loop.clock()), t.reads) for t in self._tracked
        ]
        self.found("exclusion", Exclusion.judge(rivals))
        holders = [
            (name, slot[0], valid)
            for (name, keys, valid, _), tracked in zip(rivals, self._tracked, strict=True)
            if tracked.record.spec.number is not None
            and (slot := slot_in(next(iter(keys)))) is not None
        ]
        self.found("limit", too_many(holders, self._limits))
        keys = [key for tracked in self._tracked for key in tracked.keys]
        alone = {key for tracked in self._tracked if not tracked.reads for key in tracked.keys}
        several = len(keys) != len(set(keys)) and any(keys.count(key) > 1 for key in alone)
        # If two leases of one key are not both read leases, or a semaphore may be full, the next
        # steps must be checked too.
        self.contested = several or len(holders) > min(self._limits.values(), default=0)

    def calls(self, process: Process, action: Action) -> _Call:
        """Record that an acquisition begins."""
        loop: Any = asyncio.get_running_loop()
        keys = frozenset(key.encode() for key in action.keys)
        call = _Call(process, action, loop, loop.time(), loop.stood, self._world.now, keys)
        for other in self._calls:
            if not keys.isdisjoint(other.keys):
                call.rivalled = other.rivalled = True
        call.rivalled = call.rivalled or any(
            not keys.isdisjoint(_taken(server)) for server in self._servers
        )
        self._calls.append(call)
        return call

    def over(self, call: _Call) -> None:
        """Record that a call has ended, and the hold of its lease too."""
        self._calls.remove(call)
        self._note_split(call)

    def _note_split(self, call: _Call) -> None:
        if len(call.action.resources) > 1 or call.action.how == "try":
            self._split.update(dict.fromkeys(call.keys, self._world.now))

    def answered(self, call: _Call, error: RedlockError | None) -> None:
        """Check an acquisition that has ended, with this error or with none."""
        process, action = call.process, call.action
        if process.dead:
            return
        took = call.loop.time() - call.began - (call.loop.stood - call.stood)
        allowed = 0.0 if action.how == "try" else action.blocking_timeout
        if allowed is not None:
            if action.how == "try":
                # These are two attempts of two rounds each, and the time between the attempts.
                allowed = 5 * self._plan.node_timeout + 0.02
            self.found("timeout", overrun(action.name, took, allowed, TOLERANCE))
        if isinstance(error, AcquireTimeout) and allowed is not None:
            waited = call.loop.time() - call.began
            self.found("timeout", impatient(action.name, waited, allowed, ROUNDING))
        patient = self._is_patient(call)
        # A node with a key whose release is late answers "held", and this answer is true.
        patient = patient and not any(name.encode() in self._stuck for name in action.keys)
        well_since = max(self._well_since(process), call.loop.resumed_at)
        if isinstance(error, QuorumUnreachable) and patient and well_since < call.at - 0.1:
            self.found("minority", f"{action.name}: {error}")

    def refused(self, call: _Call) -> None:
        """Check an acquisition that did not get a lock because the lock was not free.

        If no other call wanted one of the keys, and no node had a key, an offer or a queue at the
        beginning of the call, the lock was free.
        """
        quiet = call.at - self._settled
        if (
            call.process.dead
            or call.rivalled
            or self._well_since(call.process) > quiet
            or not self._is_patient(call)
        ):
            return
        # A request may have been sent long before it arrives.
        others = [
            at
            for server in self._servers
            for key in call.keys
            for owner, at in server.wanted[key].items()
            if owner != call.process.name
        ]
        if max(others, default=-math.inf) < quiet:
            words = f"{call.action.name} was refused, although nobody else wanted its keys"
            self.found("waiters", words)

    def _is_patient(self, call: _Call) -> bool:
        """Return True if a call waits for long enough to get the answers of a quorum."""
        action = call.action
        if action.how == "try":
            # On a server whose scripts were flushed, an attempt takes two round trips.
            flushed = sum(server.scripts_flushed_at > -math.inf for server in self._servers)
            slow = 2 * self._round_trip + TOLERANCE > self._plan.node_timeout
            return not (slow and flushed > self._plan.nodes - self._quorum)
        # If the timeout is short, the wait may end before the answers of slow nodes arrive.
        return action.blocking_timeout is None or action.blocking_timeout > self._settled

    def got(self, lease: Lease, *, left: bool) -> None:
        """Record that the running task received a lease. If `left` is True, the task never releases
        it.
        """
        tracked = self._of[lease._record]
        tracked.owner, tracked.left = asyncio.current_task(), left

    def ended(self, process: Process, lease: Lease) -> None:
        """Check a lease whose task is done with it.

        The release may have reported that the keys were gone before. This must not happen while a
        quorum had them.
        """
        record = lease._record
        tracked = self._of[record]
        if process.dead or record.phase is not Phase.RELEASED or not record.reason:
            return
        if self._well_on(tracked, tracked.at):
            self.found(
                "minority",
                f"{tracked.name} was reported as lost while a quorum had its keys: {record.reason}",
            )

    def unreachable(self, process: Process, lease: Lease, error: QuorumUnreachable) -> None:
        """Check the error of an `extend` or `verify` that reached no quorum."""
        tracked = self._of[lease._record]
        asked = self._world.now - 3 * self._plan.node_timeout
        if tracked.whole_since < asked and self._well_on(tracked, min(tracked.at, asked)):
            self.found("minority", f"{lease.token[:6]}: {error}")

    def enters(self, process: Process, lease: Lease) -> None:
        """Record that the body of a lease begins."""
        tracked = self._of[lease._record]
        self._inside.setdefault(process, []).append((lease, tracked))

    def asks(self, lease: Lease) -> None:
        """Record that the body of a lease calls the library."""
        self._asking.add(lease)

    def answers(self, lease: Lease) -> None:
        """Record that the call of `asks` has ended."""
        self._asking.discard(lease)

    def still_inside(self, process: Process, lease: Lease, step_down: float) -> None:
        """Check a body that is still working.

        A leader must end `step_down` seconds before its lease. For other bodies `step_down` is 0.0.
        """
        for inside, tracked in self._inside.get(process, ()):
            if inside is lease:
                self._judge_body(tracked)
                late = (
                    min(step_down - lease.remaining(), self._running_for(tracked.home))
                    if step_down
                    else 0.0
                )
                self.found("terms", overled(tracked.name, late, TOLERANCE))

    def _judge_body(self, tracked: _Tracked) -> None:
        """Check that the body of a lost lease is cancelled soon."""
        self._update(tracked)
        since = self._world.now - max(tracked.lost_at, tracked.home.resumed_at)
        self.found("notified", inside_lost(tracked.name, since, TOLERANCE + LOOK_EVERY))

    def leaves(self, process: Process, lease: Lease) -> None:
        """Record that the body of a lease ends."""
        self._inside[process] = [
            entry for entry in self._inside.get(process, []) if entry[0] is not lease
        ]

    def _update(self, tracked: _Tracked) -> None:
        phase = tracked.record.phase
        if phase is Phase.LOST and tracked.lost_at == math.inf:
            tracked.lost_at = self._world.now
            if tracked.stalled or tracked.record.forsaken:
                self._abandoned.add(tracked.record.token)
            self._lost(tracked)

    def _lost(self, tracked: _Tracked) -> None:
        """Record the loss of a lease, and check that the library had a reason for it."""
        record, process = tracked.record, tracked.process
        self._world.note(process.name, "LOST", tracked.name, record.reason)
        if process.dead or "closed" in record.reason:
            return
        if tracked.stalled:
            # Of a stop of the whole process, at most two intervals of the engine's check count as a
            # standstill.
            most = 2 * min((self._plan.stall_limit or math.inf) / 4, 1.0)
            # If the deadline passed while the process was stopped, the engine noticed the loss when
            # the process ran again.
            at, rate = (
                max(process.loop.true(record.lost_at), process.loop.resumed_at),
                process.loop.rate,
            )
            stood = tracked.home.stood_without(at, most / rate) * rate
            self.found(
                "stalled", too_impatient(tracked.name, stood, self._plan.stall_limit, TOLERANCE)
            )
        elif record.reason == MAX_HOLD:
            self.found("minority", too_soon(tracked.name, tracked.limit - process.loop.clock()))
        elif (record.spec.auto_extend or record.lost_at < record.deadline) and self._well_on(
            tracked, tracked.at
        ):
            self.found(
                "minority", f"{tracked.name} was lost while a quorum was well: {record.reason}"
            )

    def _well_on(self, tracked: _Tracked, since: float) -> bool:
        """Return True if a quorum that has the keys of a lease has had no fault since this true
        time.

        Each node of the quorum must have had the keys since this time, or for a ttl. Another quorum
        is not enough: without fences and guard, a node that did not grant a lease never gets its
        keys. If clock rates differ by more than the drift factor, keys may expire early. So the
        result is False in these runs.
        """
        if not self._plan.within_drift:
            return False
        had = max(since + LOOK_EVERY, self._world.now - tracked.record.ttl)
        links = [
            link
            for link in tracked.process.links
            if tracked.on.get(link.server.index, math.inf) <= had
        ]
        well = [link for link in links if max(link.calm_since, link.server.well_since) < since]
        return len(well) >= self._quorum and tracked.process.loop.resumed_at < since

    def _well_since(self, process: Process) -> float:
        """Return the true time since when a process has had a quorum without a fault. Infinity if
        it has none.

        The quorum has had the same nodes since then.
        """
        if process.dead or process.loop.stopped:
            return math.inf
        since = sorted(max(link.calm_since, link.server.well_since) for link in process.links)
        return max(since[self._quorum - 1], process.loop.resumed_at)

    def _look(self) -> None:
        now = self._world.now
        if self.violation is not None:
            return
        for server in self._servers:
            server.look(guarded=self._plan.guard is not None)
            if server.trusted:
                self.found("guard", guarded_too_short(server.name, server.votes_until - now))
            if server.repeated:
                self.found("tokens", f"{server.name} got {server.repeated[:6].decode()} twice")
        for process in self._processes:
            engine = process.engine
            if process.dead and now - process.died_at <= LOOK_EVERY:
                self._note_deserted(process)
            if engine is not None and not process.dead and not process.loop.stopped:
                for node, link in zip(engine.context.fleet.nodes, process.links, strict=True):
                    if not node.ready:
                        link.troubled()
        live: list[_Tracked] = []
        for tracked in self._tracked:
            self._update(tracked)
            phase, clock = tracked.record.phase, tracked.process.loop.clock()
            if phase is Phase.HELD:
                self._judge_notified(tracked, clock)
                self._judge_stalled(tracked)
                self._judge_owner(tracked)
                having = self._keeping_nodes(tracked)
                tracked.on = {index: tracked.on.get(index, now) for index in having}
                if len(tracked.on) < self._plan.nodes:
                    tracked.whole_since = math.inf
                elif tracked.whole_since == math.inf:
                    tracked.whole_since = now
                live.append(tracked)
            elif phase is Phase.ABANDONED:
                self._abandoned.add(tracked.record.token)
                if tracked.record.remaining(clock) > 0:
                    live.append(tracked)
            elif tracked.may_work(clock):
                live.append(tracked)
        self._tracked = live
        for process, inside in self._inside.items():
            for lease, tracked in inside:
                # A task that waits in a call of the library ends this call first.
                if not (process.dead or tracked.home.stopped or lease in self._asking):
                    self._judge_body(tracked)
        self._judge_leftovers()
        self._judge_queues()
        self._judge_waiters()
        self._granted_now.clear()
        self._world.at(now + LOOK_EVERY, self._look)

    def _keeping_nodes(self, tracked: _Tracked) -> list[int]:
        """Return the nodes that have all keys of a lease, and check that a quorum keeps them until
        the deadline.
        """
        now, record, loop = self._world.now, tracked.record, tracked.process.loop
        deadline, started = loop.true(record.deadline), loop.true(record.started)
        having, backing = [], 0
        for server in self._servers:
            until = min(server.keeps(key, record.token) for key in tracked.keys)
            if until > now:
                having.append(server.index)
            backing += until >= deadline or any(
                server.lost_at(key) >= started for key in tracked.keys
            )
        if deadline > now and self._plan.within_drift:
            self.found("backed", unbacked(tracked.name, backing, self._quorum))
        return having

    def _judge_notified(self, tracked: _Tracked, clock: float) -> None:
        process = tracked.process
        if process.dead or process.loop.stopped:
            return
        late = min(
            clock - min(tracked.record.deadline, tracked.limit), self._running_for(process.loop)
        )
        self.found("notified", overdue(tracked.name, late, TOLERANCE))

    def _judge_stalled(self, tracked: _Tracked) -> None:
        """Check that a lease is lost if the loop of its task stands still for `stall_limit` while
        the engine runs.
        """
        process, limit = tracked.process, self._plan.stall_limit
        if limit is None or tracked.home is process.loop or process.dead or process.loop.stopped:
            return
        stood = min(
            tracked.home.stood_at(self._world.now),
            self._world.now - max(tracked.at, process.loop.resumed_at),
        )
        self.found(
            "stalled", too_patient(tracked.name, stood * process.loop.rate, limit, TOLERANCE)
        )

    def _running_for(self, loop: ProcessLoop) -> float:
        """Return for how many true seconds the timers of a loop have been on time."""
        return (self._world.now - loop.resumed_at) - (
            AFTER_SUSPEND / loop.rate if loop.was_suspended else 0.0
        )

    def _judge_owner(self, tracked: _Tracked) -> None:
        # A loop of tasks runs only while its process runs.
        loop, now = tracked.home, self._world.now
        if (
            tracked.process.dead
            or loop.stopped
            or now - max(tracked.at, loop.resumed_at) < TOLERANCE
        ):
            return
        if tracked.owner is None:
            self.found("leftovers", f"{tracked.name} was granted, but no task has it")
        elif tracked.owner.done() and not tracked.left:
            self.found("leftovers", f"{tracked.name} is still held, but its task has ended")

    def _judge_leftovers(self) -> None:
        now, plan = self._world.now, self._plan
        live: set[bytes] = set()
        for process in self._processes:
            engine = process.engine
            if engine is None:
                continue
            live |= {record.token for record in engine.extender.leases}
            for asking in [*engine.lines.contenders(), *engine._past_the_lines]:
                for round_ in (asking.round, asking._second):  # type: ignore[attr-defined]
                    attempt = asking.round  # type: ignore[attr-defined]
                    second = round_ is asking._second  # type: ignore[attr-defined]
                    if round_ is not None and (round_.open or second) and attempt is not None:
                        live.add(attempt.token)
        seen: dict[tuple[int, bytes, bytes], float] = {}
        left = []
        self._stuck, self._stuck_to_all = [], []
        for server in self._servers:
            stuck: dict[bytes, None] = {}
            for key, value in server.locks():
                token, marked = without_mark(value)
                owner = self._by_name.get(server.owners.get(token, ""))
                if token in live:
                    # A process that died or stopped during an attempt keeps the key from other
                    # processes.
                    if owner is None or owner.dead or owner.loop.stopped:
                        stuck[key] = None
                    continue
                stuck[key] = None
                name = server.index, key, token
                since = seen[name] = self._orphans.get(name, now)
                if owner is None:
                    self.found("leftovers", f"{server.name} has {key!r} with an unknown token")
                    continue
                link = owner.links[server.index]
                calm = link.calm_since
                troubled = max(
                    since,
                    calm if calm < math.inf else now,
                    server.running_since,
                    owner.loop.resumed_at,
                )
                soon, slow = None, 1 / min(plan.rates)
                # A process that has no connection to a node when it closes cannot send a release to
                # this node.
                parted = calm + LOOK_EVERY >= owner.closing
                # The owner gives up an outstanding release when the key must have expired by the
                # owner's clock. If clock rates differ by more than the drift factor, the key may
                # live longer on the node.
                unowed = (
                    not plan.within_drift
                    and (troubled - since + LOOK_EVERY) * max(plan.rates) > plan.ttl
                )
                if (
                    not parted
                    and not unowed
                    and not owner.dead
                    and not owner.loop.stopped
                    and token not in self._abandoned
                    and token not in server.late
                ):
                    soon = 0.15 + 2 * self._round_trip
                if soon is not None and marked and not self._min_holds[token].undone:
                    # The over mark lives for the rest of the `min_hold`, from its arrival at the
                    # node.
                    min_hold = self._min_holds[token].record.spec.life.min_hold
                    soon += min_hold * (1 + DRIFT_FACTOR) * slow * max(1.0, *plan.rates)
                left.append(
                    Leftover(
                        server.name,
                        key,
                        token,
                        troubled,
                        soon,
                        self._life * slow + self._round_trip + 0.1,
                    )
                )
            self._stuck += stuck
            self._stuck_to_all += stuck.keys() - server.read()
        self._orphans = seen
        self.found("leftovers", Leftovers.judge(now, left))

    @property
    def crowd(self) -> tuple[int, int, float]:
        """Return the number of acquisitions, and of attempts and commands per node since the first
        one.
        """
        attempts, commands = (
            now - before for now, before in zip(self._asked(), self._before, strict=True)
        )
        return self.grants, attempts, commands / self._plan.nodes

    def _asked(self) -> tuple[int, int]:
        return sum(p.counters.attempts for p in self._processes), sum(
            server.calls for server in self._servers
        )

    @property
    def longest(self) -> tuple[float, float]:
        """The longest waits for free resources, in seconds.

        The first number is for waits that a message should end. The second number is for waits that
        a refresh may have to end.
        """
        return self._stall.longest, self._net.longest

    def _judge_queues(self) -> None:
        """Check that no entry and no offer stays after the end of its waiter's wait.

        Also note the keys whose first waiters know of the free key, but cannot send a request.
        """
        now = self._world.now
        entries: dict[tuple[int, bytes, bytes], _Entry] = {}
        offers: dict[tuple[int, bytes, bytes, float], float] = {}
        for server in self._servers:
            offered: dict[bytes, list[bytes]] = {}
            for key, member, over in server.offers():
                offered.setdefault(key, []).append(member)
                process = self._by_manager[manager_in(member)]
                if not process.dead and not _stands(process, member):
                    since = offers[server.index, key, member, over] = self._offers.get(
                        (server.index, key, member, over), now
                    )
                    self._judge_offer(server, key, member, since)
            locks = server.locks()
            taken = {*offered, *(key for key, _ in locks)}
            deserted = {key for key, value in locks if self._is_of_the_dead(server, value)}
            for key, members in server.queues():
                slots = _slots_of(key, members)
                for member in members:
                    process = self._by_manager[manager_in(member)]
                    name = server.index, key, member
                    entry = entries[name] = self._entries.get(name) or _Entry(now)
                    if not process.dead and _stands(process, member):
                        entry.over = math.inf
                    else:
                        entry.over = min(entry.over, now)
                        self._judge_entry(server, key, member, entry, process)
                # If a key is free, only the first waiter knows it, because the offers to the
                # waiters before it have ended.
                notified = 1 + sum(slot in taken for slot in slots)
                first = [*(member for slot in slots for member in offered.get(slot, ())), *members]
                # A release skips dead waiters. A dead holder releases nothing, and only the first
                # two waiters know when its key expires.
                known = (
                    first[:2]
                    if deserted.issuperset(slots)
                    else [m for m in first if not self._is_known_dead(m)][:notified]
                )
                if not any(map(self._can_ask, known)):
                    self._shaky.update(dict.fromkeys(slots, now))
        self._entries, self._offers = entries, offers

    def _is_known_dead(self, member: bytes) -> bool:
        """Return True if the process of a waiter died so long ago that nodes skip the waiter.

        By then, each node has noticed the end of the connection.
        """
        process = self._by_manager[manager_in(member)]
        return (
            process.dead and self._world.now - process.died_at > 2 * LOOK_EVERY + self._round_trip
        )

    def _is_of_the_dead(self, server: Server, value: bytes) -> bool:
        owner = self._by_name.get(server.owners.get(without_mark(value)[0], ""))
        return owner is not None and owner.dead

    def _can_ask(self, member: bytes) -> bool:
        process = self._by_manager[manager_in(member)]
        well = self._world.now - self._well_since(process) > self._settled
        return well and not process.dead and _stands(process, member)

    def _judge_offer(self, server: Server, key: bytes, member: bytes, since: float) -> None:
        """Check an offer to a process that no longer waits. The process must decline the offer as
        soon as it is notified.
        """
        process = self._by_manager[manager_in(member)]
        link = process.links[server.index]
        trouble = max(link.calm_since, server.running_since, process.loop.resumed_at)
        if process.loop.stopped or process.closing < math.inf or trouble > since - self._settled:
            return
        late = self._world.now - since
        # A server whose scripts were flushed gets the full script in a second round trip.
        trips = 2 if server.scripts_flushed_at > since - self._settled else 1
        if late > trips * self._round_trip + 0.02:
            self.found(
                "leftovers",
                f"{server.name} has reserved {key!r} for {member!r} for {late:.3f} s,"
                " although this process does not wait",
            )

    def _judge_entry(
        self, server: Server, key: bytes, member: bytes, entry: _Entry, process: Process
    ) -> None:
        link, loop = process.links[server.index], process.loop
        # An entry may arrive, or its removal may be sent, during a fault. Then the entry stays
        # until it is the first one, or until the queue expires.
        trouble = max(link.calm_since, server.running_since, loop.resumed_at)
        if (
            process.dead
            or loop.stopped
            or member in server.late
            or trouble > entry.since - self._settled
        ):
            return
        # A process that closes ignores the refusal of its last attempt. So an entry from this
        # attempt may stay.
        if entry.over > process.closing - self._plan.node_timeout - LOOK_EVERY:
            return
        allowed = 0.15 + self._plan.node_timeout + 2 * self._round_trip
        self.found(
            "leftovers", lingering(server.name, key, member, self._world.now - entry.over, allowed)
        )

    def _may_be_forgotten(self, line: Line[LeaseRecord]) -> bool:
        """Return True if a waiter may still wait for its next refresh, because its entries were
        deleted or the holder died.

        A process may hold a lock and be the first waiter for it in another line. If this process
        dies, no message notifies waiters for a slot or for a read lock that the key has expired.
        They find the free key by a refresh (docs/how-it-works.md).
        """
        rank = _rank(line)
        since = max(server.queue_deleted_at for server in self._servers)
        if line.shared or slot_in(line.keys[0]) is not None:
            since = max(since, *(self._deserted.get(key, -math.inf) for key in line.keys))
        return self._world.now - since < SAFETY_NET * (1 + 2 * rank)

    def _is_behind_the_dead(self, line: Line[LeaseRecord]) -> bool:
        """Return True if a waiter may still wait for its next refresh, because the waiters before
        it failed.

        The waiters before it knew of the free key, but could not send a request
        (docs/how-it-works.md).
        """
        rank = _rank(line)
        shaky = max(self._shaky.get(key, -math.inf) for key in line.keys)
        return rank > 0 and self._world.now - shaky < SAFETY_NET * (1 + 2 * rank)

    def _note_deserted(self, process: Process) -> None:
        """Note the keys that a killed process held while it also waited for them."""
        held = {
            key for tracked in self._tracked if tracked.process is process for key in tracked.keys
        }
        waited = {key for line in _lines(process) for key in line.keys}
        self._deserted.update(dict.fromkeys(held & waited, self._world.now))

    def _wanted_to_write(self) -> set[bytes]:
        """Return the keys for which readers cannot get a quorum, because a writer that may be alive
        waits.
        """
        wanted = [
            key
            for server in self._servers
            for key, members in server.queues()
            if not all(map(self._is_known_dead, members))
        ]
        return {key for key in wanted if wanted.count(key) > self._plan.nodes - self._quorum}

    def _judge_waiters(self) -> None:
        now = self._world.now
        waited_for: dict[tuple[bytes, ...], None] = {}
        excused = set()
        forgotten: dict[tuple[Process, LineKey], float] = {}
        counting = [tracked for tracked in self._tracked if _counts(tracked)]
        held = {key for tracked in counting for key in tracked.keys} | self._granted_now
        # A reader waits only for a writer that has the key, or that is before the reader in the
        # queues.
        barred_to_read = {
            key for tracked in counting if not tracked.reads for key in tracked.keys
        } | self._granted_now
        barred_to_read |= self._wanted_to_write()
        well = True
        for process in self._processes:
            engine = process.engine
            if engine is None or process.dead or process.loop.stopped:
                continue
            for line in engine.lines._all():
                keys = line.keys
                if line.queue and line.contender is None and not line.full:
                    forgotten[process, line.key] = self._forgotten.get((process, line.key), now)
                if line.contender is None or (line.holders and not line.shared):
                    continue
                since = self._well_since(process)
                if now - since < self._settled:
                    continue
                quiet = now - self._settled
                well = well and all(
                    max(link.calm_since, link.server.well_since) < quiet for link in process.links
                )
                stuck_keys = self._stuck_to_all if line.shared else self._stuck
                taken = barred_to_read if line.shared else held
                barred = {
                    key
                    for key in keys
                    if key in taken or stuck_keys.count(key) > self._plan.nodes - self._quorum
                }
                if line.shared:
                    excuses = bool(barred)
                    # Readers and writers of one key wait for different things, so their waits are
                    # measured apart.
                    keys = (*keys, b"to read")
                elif line.slots is None:
                    stuck = (
                        sum(key in keys for key in self._stuck) > self._plan.nodes - self._quorum
                    )
                    excuses = bool(barred) or stuck
                else:
                    excuses = len(barred) == len(keys)
                waited_for[keys] = None
                if excuses or self._may_be_forgotten(line) or self._is_behind_the_dead(line):
                    excused.add(keys)
        self._forgotten = forgotten
        for (process, key), since in forgotten.items():
            if now - since > 2 * LOOK_EVERY:
                self.found(
                    "waiters",
                    f"tasks of {process.name} wait for {key},"
                    " but none of them sends an attempt or has a place in the queues",
                )
        for call in self._calls:
            if not call.process.dead:
                self._note_split(call)
        split = {key for key, at in self._split.items() if now - at < self._bound + SPLIT_FOR}
        # Only a refresh ends the wait if a key stays on some nodes, or if two waiters in a row do
        # not take their offers.
        shaky = {key for key, at in self._shaky.items() if now - at < self._bound + SAFETY_NET}
        slow = {
            keys
            for keys in waited_for
            if not split.isdisjoint(keys)
            or not shaky.isdisjoint(keys)
            or any(key in keys for key in self._stuck)
        }
        words = self._stall.judge(now, self._bound, list(waited_for), excused | slow)
        words = words or self._net.judge(
            now, SAFETY_NET + 12 * self._round_trip, list(waited_for), excused
        )
        self.found("waiters" if well else "minority", words)


def _slots_of(queue: bytes, members: Sequence[bytes]) -> list[bytes]:
    """Return the keys for which the members of a queue wait."""
    name = queue.removeprefix(SLOT_QUEUE_KEYS)
    if name == queue:
        return [queue.removeprefix(READER_QUEUE_KEYS)]
    limits = [int(member.rpartition(b":")[2].partition(b"#")[0]) for member in members]
    return sorted({slot_key(name, number) for number in range(1, max(limits, default=1) + 1)})


def _taken(server: Server) -> set[bytes]:
    """Return the keys of locks that are held or reserved, or for which a process waits."""
    waited = {slot for key, members in server.queues() for slot in _slots_of(key, members)}
    return waited | {key for key, _ in server.locks()} | {key for key, _, _ in server.offers()}


def _counts(tracked: _Tracked) -> bool:
    """Return True if a lease may still keep other processes waiting.

    A lease that has expired counts no longer if its process is stopped or dead.
    """
    return (
        tracked.record.remaining(tracked.process.loop.clock()) > 0.0
        or not tracked.process.loop.stopped
    )


def _rank(line: Line[LeaseRecord]) -> int:
    """Return how many waiters a line knows before itself, at most `MOST_AHEAD`.

    More waiters do not delay its next refresh any further.
    """
    return 0 if line.place is None else min(line.place.queued[2] or 0, MOST_AHEAD)


def _lines(process: Process) -> list[Line[LeaseRecord]]:
    return [] if process.engine is None else list(process.engine.lines._standing.values())


def _stands(process: Process, member: bytes) -> bool:
    """Return True while a line of the process waits in the queues, or is about to send an attempt
    as a waiter.
    """
    line = None if process.engine is None else process.engine.lines._standing.get(member)
    if line is None or line.place is None:
        return False
    return (
        line.contender is None
        or not line.contender.unreachable
        or line.place.waiting
        or line.place.standing
    )
