"""Observes a running world and has the invariants judge it; it changes nothing in it.

The only thing inside the library that is looked at while it happens is the instant at which the extender adopts a
holding: that is when an attempt has been granted, in every way of acquiring.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioredlock_ng import QuorumUnreachable
from aioredlock_ng._core.keys import slot_in, slot_key
from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.outlook import MOST_AHEAD
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._core.tickets import SLOT_QUEUE_KEYS
from aioredlock_ng._engine.keeping.extender import _MAX_HOLD
from tests.simulation.invariants import (
    Exclusion,
    Fences,
    Leftover,
    Leftovers,
    Stall,
    Violation,
    inside_lost,
    lingering,
    overdue,
    overrun,
    overtaken,
    too_many,
    too_soon,
)
from tests.simulation.server import manager_in, offered_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng import Lease
    from aioredlock_ng._engine.keeping.holding import Holding
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
"""True seconds between looks at the whole world."""

TOLERANCE = 0.03
"""Seconds by which a timer's work may be seen late: one look, and rounding."""

AFTER_SUSPEND = 0.55
"""Seconds after a suspend for which timers armed before may be late (`wheel.MAX_SLEEP`)."""


PROMPT = 0.2
"""Seconds within which a free resource is taken by somebody who waits, besides two node timeouts and some round trips.

Four looks: as long as the first in a queue may not see a deletion, once more for what comes in between, and rounding. One
node timeout is the life of an offer that nobody takes, the other one that of an attempt that is not answered.
"""

SAFETY_NET = 16.0
"""Seconds until the first waiter has looked at its place (`place.LOOK_EVERY`), and has got what it found there."""


@dataclass(slots=True)
class _Tracked:
    name: str
    process: Process
    holding: Holding
    keys: frozenset[bytes]
    at: float
    lost_at: float = math.inf
    on: dict[int, float] = field(default_factory=dict)
    whole_since: float = math.inf
    owner: asyncio.Task[object] | None = None
    left: bool = False

    @property
    def limit(self) -> float:
        """Instant, by its process's clock, at which its max_hold is over; infinity without one."""
        max_hold = self.holding.spec.max_hold
        return math.inf if max_hold is None else self.holding.since + max_hold


@dataclass(slots=True)
class _Call:
    process: Process
    action: Action
    began: float
    stood: float
    at: float


@dataclass(slots=True)
class _Standing:
    place: Place | None
    since: float
    times: int = 0
    waiters: int = 0
    tokens: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class _Entry:
    """A member of a queue on a node: first seen there, and since when its process does not wait there any more."""

    since: float
    over: float = math.inf


class Watch:
    """Everything that is observed in one run.

    Attributes:
        violation: The first that was found.
        grants: How many.
        contested: True while more than one lease of a resource is about.
        most_overtaken: How many grants passed a waiter, beyond the number of those that waited with it.
    """

    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        self._quorum = quorum_of(plan.nodes)
        self.violation: Violation | None = None
        self.grants = 0
        self._tracked: list[_Tracked] = []
        self._of: dict[Holding, _Tracked] = {}
        self.contested = False
        self._fences = {"success": Fences("success"), "interval": Fences("interval")}
        self._stall = Stall()
        self._granted_now: set[bytes] = set()
        self._shaky: dict[bytes, float] = {}
        self._entries: dict[tuple[int, bytes, bytes], _Entry] = {}
        self._offers: dict[tuple[int, bytes, bytes, float], float] = {}
        self._overtaken: dict[tuple[Process, bytes], _Standing] = {}
        self.most_overtaken = 0
        self._before = 0, 0
        self._orphans: dict[tuple[int, bytes, bytes], float] = {}
        self._stuck: list[bytes] = []
        self._abandoned: set[bytes] = set()
        self._inside: dict[Process, list[tuple[Lease, _Tracked]]] = {}
        slowest = max(profile.usual for row in plan.profiles for profile in row)
        self._round_trip = 2 * slowest
        # A message, and some attempts against rivals.
        self._bound = PROMPT + 2 * plan.node_timeout + 12 * self._round_trip
        # A set keeps the keys before the one that it waits for, for two seconds. And whoever does not wait may take some
        # nodes at the very instant at which a waiter takes the others.
        by_themselves = [action for action in plan.actions if len(action.resources) > 1 or action.how == "try"]
        self._split = {key.encode() for action in by_themselves for key in action.keys}
        self._net = Stall()
        self._forgotten: dict[tuple[Process, LineKey], float] = {}
        self._limits: dict[bytes, int] = {}
        for action in plan.actions:
            if action.limit:
                name = action.resources[0].encode()
                self._limits[name] = max(action.limit, self._limits.get(name, 0))
        # After a quorum could not be asked a waiter may wait a second until it asks again.
        self._settled = 1.2 + 3 * plan.node_timeout + 2 * self._round_trip
        world.on_trouble = lambda words: self.found("callbacks", words)

    def attach(self, processes: Sequence[Process], servers: Sequence[Server], faults: Faults) -> None:
        """Begin to look."""
        self._processes = processes
        self._servers = servers
        self._faults = faults
        self._by_loop: dict[ProcessLoop, Process] = {process.loop: process for process in processes}
        self._by_manager = {process.manager: process for process in processes}
        self._world.at(LOOK_EVERY, self._look)

    def found(self, invariant: str, words: str) -> None:
        """Something is wrong; only the first counts."""
        if words and self.violation is None:
            self.violation = Violation(invariant, self._world.now, words)
            self._world.note("VIOLATION", invariant, words)

    @property
    def exclusion_promised(self) -> bool:
        """The fault model of this run allows it."""
        return self._plan.within_drift and not self._plan.beyond_guard

    @property
    def _fences_promised(self) -> bool:
        """Nodes that forgot their counters leave the order to the clients' clocks."""
        return not self._faults.forgetting or (self._plan.within_drift and not self._plan.beyond_guard)

    def adopted(self, loop: ProcessLoop, holding: Holding) -> None:
        """A lease was granted."""
        now = self._world.now
        process = self._by_loop[loop]
        if not self.grants:
            # Until then the nodes were being founded, or everybody asked at one instant.
            self._before = self._asked()
        self.grants += 1
        name = f"lease {self.grants} ({holding.token[:6].decode()}) of {process.name}"
        tracked = _Tracked(name, process, holding, frozenset(holding.spec.keys), now)
        self._world.note(
            process.name, "GRANTED", name, holding.spec.resource, holding.fence, round(holding.deadline - loop.clock(), 6)
        )
        self._tracked.append(tracked)
        self._of[holding] = tracked
        self._granted_now |= tracked.keys
        if holding.fence is not None:
            in_success = self.exclusion_promised and not self._faults.forgetting
            fences = self._fences["success" if in_success else "interval"]
            for known in self._fences.values():
                words = known.granted(tracked.keys, holding.fence, loop.true(holding.started), now)
                if known is fences and self._fences_promised:
                    self.found("fences", words)
        self.contested = True
        self.after_step()
        self._judge_order(tracked)

    def _judge_order(self, tracked: _Tracked) -> None:
        """Count, for everybody who waits for one of these keys alone, how many it was passed by since.

        A waiter whose entries another client has deleted comes back with its next look. Until then nothing is counted.
        """
        now, holding = self._world.now, tracked.holding
        if any(map(self._may_be_forgotten, (line for process in self._processes for line in _lines(process)))):
            self._overtaken.clear()
            return
        began = tracked.process.loop.true(holding.started)
        standing: dict[tuple[Process, bytes], _Standing] = {}
        lines = [
            (process, member, line)
            for process in self._processes
            if process.engine is not None
            for member, line in process.engine.lines._standing.items()
        ]
        for process, member, line in lines:
            if now - self._well_since(process) < self._settled or (line.slots is None and len(line.keys) > 1):
                continue
            name = process, member
            mine = self._overtaken.get(name)
            if mine is None or mine.place is not line.place:
                mine = _Standing(line.place, now)
            standing[name] = mine
            wanted = not tracked.keys.isdisjoint(line.keys)
            if wanted and not line.holders and holding.token not in mine.tokens and began > mine.since:
                mine.times += 1
                mine.tokens.add(holding.token)
                rivals = sum(not set(line.keys).isdisjoint(other.keys) for _, _, other in lines)
                mine.waiters = max(mine.waiters, rivals)
                self.most_overtaken = max(self.most_overtaken, mine.times - mine.waiters)
                self.found("order", overtaken(f"{process.name} ({member.decode()})", mine.times, mine.waiters))
        self._overtaken = standing

    def after_step(self) -> None:
        """Judge exclusion where more than one lease of a resource is about."""
        if not self.contested or not self.exclusion_promised:
            return
        rivals = [(t.name, t.keys, t.holding.remaining(t.process.loop.clock()) > 0.0) for t in self._tracked]
        self.found("exclusion", Exclusion.judge(rivals))
        holders = [
            (name, slot[0], valid)
            for (name, keys, valid), tracked in zip(rivals, self._tracked, strict=True)
            if tracked.holding.spec.number is not None and (slot := slot_in(next(iter(keys)))) is not None
        ]
        self.found("limit", too_many(holders, self._limits))
        keys = [key for tracked in self._tracked for key in tracked.keys]
        # Another lease may be valid for as long as it is not known to have ended.
        self.contested = len(keys) != len(set(keys)) or len(holders) > min(self._limits.values(), default=0)

    def calls(self, process: Process, action: Action) -> _Call:
        """An acquisition begins."""
        loop = process.loop
        return _Call(process, action, loop.time(), loop.stood, self._world.now)

    def answered(self, call: _Call, error: RedlockError | None) -> None:
        """It has ended."""
        process, action = call.process, call.action
        if process.dead:
            return
        took = process.loop.time() - call.began - (process.loop.stood - call.stood)
        allowed = 0.0 if action.how == "try" else action.blocking_timeout
        if allowed is not None:
            if action.how == "try":
                # Two attempts of two rounds each, and what is between them.
                allowed = 5 * self._plan.node_timeout + 0.02
            self.found("timeout", overrun(action.name, took, allowed, TOLERANCE))
        # Who has little patience may not live to see the answers from far away.
        patient = action.how == "try" or action.blocking_timeout is None or action.blocking_timeout > self._settled
        # A node on which somebody's release is late says "held" in earnest.
        patient = patient and not any(name.encode() in self._stuck for name in action.keys)
        if isinstance(error, QuorumUnreachable) and patient and self._well_since(process) < call.at - 0.1:
            self.found("minority", f"{action.name}: {error}")

    def got(self, lease: Lease, *, left: bool) -> None:
        """A task got a lease; `left`: it will not be released by that task."""
        tracked = self._of[lease._holding]
        tracked.owner, tracked.left = asyncio.current_task(), left

    def ended(self, process: Process, lease: Lease) -> None:
        """Its task is through with it; was it right to be told, if it was, that it had been gone before its release?"""
        holding = lease._holding
        tracked = self._of[holding]
        if process.dead or holding.phase is not Phase.RELEASED or not holding.reason:
            return
        if self._well_on(tracked, tracked.at):
            self.found("minority", f"{tracked.name} was told that it was gone while a quorum had it: {holding.reason}")

    def unreachable(self, process: Process, lease: Lease, error: QuorumUnreachable) -> None:
        """A lease could not be extended or verified."""
        tracked = self._of[lease._holding]
        asked = self._world.now - 3 * self._plan.node_timeout
        if tracked.whole_since < asked and self._well_on(tracked, min(tracked.at, asked)):
            self.found("minority", f"{lease.token[:6]}: {error}")

    def enters(self, process: Process, lease: Lease) -> None:
        """A body begins."""
        tracked = self._of[lease._holding]
        self._inside.setdefault(process, []).append((lease, tracked))

    def still_inside(self, process: Process, lease: Lease) -> None:
        """It goes on."""
        for inside, tracked in self._inside.get(process, ()):
            if inside is lease:
                self._update(tracked)
                since = self._world.now - max(tracked.lost_at, process.loop.resumed_at)
                self.found("told", inside_lost(tracked.name, since, TOLERANCE + LOOK_EVERY))

    def leaves(self, process: Process, lease: Lease) -> None:
        """It ends."""
        self._inside[process] = [entry for entry in self._inside.get(process, []) if entry[0] is not lease]

    def _update(self, tracked: _Tracked) -> None:
        phase = tracked.holding.phase
        if phase is Phase.LOST and tracked.lost_at == math.inf:
            tracked.lost_at = self._world.now
            self._lost(tracked)

    def _lost(self, tracked: _Tracked) -> None:
        """Was it right to lose it?"""
        holding, process = tracked.holding, tracked.process
        self._world.note(process.name, "LOST", tracked.name, holding.reason)
        if process.dead or "closed" in holding.reason:
            return
        if holding.reason == _MAX_HOLD:
            self.found("minority", too_soon(tracked.name, tracked.limit - process.loop.clock()))
        elif holding.spec.auto_extend and self._well_on(tracked, tracked.at):
            self.found("minority", f"{tracked.name} was lost while a quorum was well: {holding.reason}")

    def _well_on(self, tracked: _Tracked, since: float) -> bool:
        """True when a quorum has been well all the time, and has had its keys all the time, or for a ttl.

        Not just any quorum: without fences and guard, a node that did not grant a lease never gets its keys. And where
        clocks are beyond drift, keys go before their time.
        """
        if not self._plan.within_drift:
            return False
        had = max(since + LOOK_EVERY, self._world.now - tracked.holding.ttl)
        links = [link for link in tracked.process.links if tracked.on.get(link.server.index, math.inf) <= had]
        well = [link for link in links if max(link.calm_since, link.server.well_since) < since]
        return len(well) >= self._quorum and tracked.process.loop.resumed_at < since

    def _well_since(self, process: Process) -> float:
        """True time since when one and the same quorum has been well for a process; infinity when none is."""
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
        for process in self._processes:
            engine = process.engine
            if engine is not None and not process.dead and not process.loop.stopped:
                for node, link in zip(engine.context.fleet.nodes, process.links, strict=True):
                    if not node.ready:
                        link.troubled()
        live: list[_Tracked] = []
        for tracked in self._tracked:
            self._update(tracked)
            phase, clock = tracked.holding.phase, tracked.process.loop.clock()
            if phase is Phase.HELD:
                self._judge_told(tracked, clock)
                self._judge_owner(tracked)
                token = tracked.holding.token
                having = [s.index for s in self._servers if all(s.has(key, token) for key in tracked.keys)]
                tracked.on = {index: tracked.on.get(index, now) for index in having}
                if len(tracked.on) < self._plan.nodes:
                    tracked.whole_since = math.inf
                elif tracked.whole_since == math.inf:
                    tracked.whole_since = now
                live.append(tracked)
            elif phase is Phase.ABANDONED:
                self._abandoned.add(tracked.holding.token)
                if tracked.holding.remaining(clock) > 0:
                    live.append(tracked)
        self._tracked = live
        self._judge_leftovers()
        self._judge_queues()
        self._judge_waiters()
        self._granted_now.clear()
        self._world.at(now + LOOK_EVERY, self._look)

    def _judge_told(self, tracked: _Tracked, clock: float) -> None:
        process = tracked.process
        loop = process.loop
        if process.dead or loop.stopped:
            return
        running = (self._world.now - loop.resumed_at) - (AFTER_SUSPEND if loop.was_suspended else 0.0)
        late = min(clock - min(tracked.holding.deadline, tracked.limit), running)
        self.found("told", overdue(tracked.name, late, TOLERANCE))

    def _judge_owner(self, tracked: _Tracked) -> None:
        loop, now = tracked.process.loop, self._world.now
        if tracked.process.dead or loop.stopped or now - max(tracked.at, loop.resumed_at) < TOLERANCE:
            return
        if tracked.owner is None:
            self.found("leftovers", f"{tracked.name} was granted, and nobody has it")
        elif tracked.owner.done() and not tracked.left:
            self.found("leftovers", f"{tracked.name} is kept though its owner has ended")

    def _judge_leftovers(self) -> None:
        now, plan = self._world.now, self._plan
        live: set[bytes] = set()
        for process in self._processes:
            engine = process.engine
            if engine is None:
                continue
            live |= {holding.token for holding in engine.extender.holdings}
            for asking in [*engine.lines.contenders(), *engine._past_the_lines]:
                for round_ in (asking.round, asking._second):  # type: ignore[attr-defined]
                    if round_ is not None and (round_.open or round_ is asking._second) and asking.round is not None:  # type: ignore[attr-defined]
                        live.add(asking.round.token)  # type: ignore[attr-defined]
        seen: dict[tuple[int, bytes, bytes], float] = {}
        left = []
        owners = {process.name: process for process in self._processes}
        self._stuck = []
        for server in self._servers:
            for key, token in server.locks():
                owner = owners.get(server.owners.get(token, ""))
                if token in live:
                    # Who is stopped in the middle of an attempt stands in everybody's way.
                    if owner is None or owner.dead or owner.loop.stopped:
                        self._stuck.append(key)
                    continue
                self._stuck.append(key)
                name = server.index, key, token
                since = seen[name] = self._orphans.get(name, now)
                if owner is None:
                    self.found("leftovers", f"{server.name} has {key!r} of an unknown token")
                    continue
                link = owner.links[server.index]
                calm = link.calm_since
                troubled = max(since, calm if calm < math.inf else now, server.running_since, owner.loop.resumed_at)
                soon = None
                # Who closes without a connection to a node cannot tell it.
                parted = calm + LOOK_EVERY >= owner.closing
                # Where clocks are beyond drift, keys may outlive the time for which their owner owes the release.
                unowed = not plan.within_drift and (troubled - since + LOOK_EVERY) * max(plan.rates) > plan.ttl
                if (
                    not parted
                    and not unowed
                    and not owner.dead
                    and not owner.loop.stopped
                    and token not in self._abandoned
                    and token not in server.late
                ):
                    soon = 0.15 + 2 * self._round_trip
                slow = 1 / min(plan.rates)
                left.append(Leftover(server.name, key, token, troubled, soon, plan.ttl * slow + self._round_trip + 0.1))
        self._orphans = seen
        self.found("leftovers", Leftovers.judge(now, left))

    @property
    def crowd(self) -> tuple[int, int, float]:
        """Acquisitions, and what they took from the first one on: attempts, and commands per node."""
        attempts, commands = (now - before for now, before in zip(self._asked(), self._before, strict=True))
        return self.grants, attempts, commands / self._plan.nodes

    def _asked(self) -> tuple[int, int]:
        return sum(p.counters.attempts for p in self._processes), sum(server.calls for server in self._servers)

    @property
    def longest(self) -> tuple[float, float]:
        """Seconds for which somebody waited for what was free: what a message should end, and what a look may."""
        return self._stall.longest, self._net.longest

    def _judge_queues(self) -> None:
        """No entry stays whose process has stopped to wait; note where those that come first cannot ask."""
        now = self._world.now
        entries: dict[tuple[int, bytes, bytes], _Entry] = {}
        offers: dict[tuple[int, bytes, bytes, float], float] = {}
        for server in self._servers:
            offered = {}
            for key, value, over in server.offers():
                offered[key] = member = offered_to(value)
                process = self._by_manager[manager_in(member)]
                if not process.dead and not _stands(process, member):
                    since = offers[server.index, key, value, over] = self._offers.get((server.index, key, value, over), now)
                    self._judge_offer(server, key, member, since)
            taken = {*offered, *(key for key, _ in server.locks())}
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
                # Beside a free key only the first knows of it: the offer to the one before has ended.
                told = 1 + sum(slot in taken for slot in slots)
                first = [*(offered[slot] for slot in slots if slot in offered), *members]
                if not any(map(self._can_ask, [member for member in first if not self._is_known_dead(member)][:told])):
                    self._shaky.update(dict.fromkeys(slots, now))
        self._entries, self._offers = entries, offers

    def _is_known_dead(self, member: bytes) -> bool:
        """True for who was killed before it can have got the latest message: the nodes pass it over."""
        process = self._by_manager[manager_in(member)]
        return process.dead and self._world.now - process.died_at > 2 * LOOK_EVERY + self._round_trip

    def _can_ask(self, member: bytes) -> bool:
        process = self._by_manager[manager_in(member)]
        well = self._world.now - self._well_since(process) > self._settled
        return well and not process.dead and _stands(process, member)

    def _judge_offer(self, server: Server, key: bytes, member: bytes, since: float) -> None:
        """Who does not wait any more says so when it gets the message."""
        process = self._by_manager[manager_in(member)]
        link = process.links[server.index]
        trouble = max(link.calm_since, server.running_since, process.loop.resumed_at)
        if process.loop.stopped or process.closing < math.inf or trouble > since - self._settled:
            return
        late = self._world.now - since
        if late > self._round_trip + 0.02:
            self.found("leftovers", f"{server.name} keeps {key!r} for {member!r}, which does not wait, for {late:.3f} s")

    def _judge_entry(self, server: Server, key: bytes, member: bytes, entry: _Entry, process: Process) -> None:
        link, loop = process.links[server.index], process.loop
        # What came, or was sent, while anything was wrong goes when its turn comes, or with the queue.
        trouble = max(link.calm_since, server.running_since, loop.resumed_at)
        if process.dead or loop.stopped or member in server.late or trouble > entry.since - self._settled:
            return
        # Who closes no longer answers to a refusal that was under way.
        if entry.over > process.closing - self._plan.node_timeout - LOOK_EVERY:
            return
        allowed = 0.15 + self._plan.node_timeout + 2 * self._round_trip
        self.found("leftovers", lingering(server.name, key, member, self._world.now - entry.over, allowed))

    def _may_be_forgotten(self, line: Line[Holding]) -> bool:
        """True until a waiter has looked again after another client has deleted its entries."""
        rank = 0 if line.place is None else min(line.place.queued[2] or 0, MOST_AHEAD)
        deleted = max(server.queue_deleted_at for server in self._servers)
        return self._world.now - deleted < SAFETY_NET * (1 + 2 * rank)

    def _judge_waiters(self) -> None:
        now = self._world.now
        waited_for: dict[tuple[bytes, ...], None] = {}
        excused = set()
        forgotten: dict[tuple[Process, LineKey], float] = {}
        held = {key for tracked in self._tracked if _counts(tracked) for key in tracked.keys} | self._granted_now
        well = True
        for process in self._processes:
            engine = process.engine
            if engine is None or process.dead or process.loop.stopped:
                continue
            for line in engine.lines._all():
                keys = line.keys
                if line.queue and line.contender is None and not line.full:
                    forgotten[process, line.key] = self._forgotten.get((process, line.key), now)
                if line.contender is None or line.holders:
                    continue
                since = self._well_since(process)
                if now - since < self._settled:
                    continue
                quiet = now - self._settled
                well = well and all(max(link.calm_since, link.server.well_since) < quiet for link in process.links)
                waited_for[keys] = None
                barred = {key for key in keys if key in held or self._stuck.count(key) > self._plan.nodes - self._quorum}
                if line.slots is None:
                    stuck = sum(key in keys for key in self._stuck) > self._plan.nodes - self._quorum
                    excuses = bool(barred) or stuck
                else:
                    excuses = len(barred) == len(keys)
                if excuses or self._may_be_forgotten(line):
                    excused.add(keys)
        self._forgotten = forgotten
        for (process, key), since in forgotten.items():
            if now - since > 2 * LOOK_EVERY:
                self.found("waiters", f"tasks of {process.name} wait for {key}, and none of them asks or stands in the queues")
        # A key that stays on some nodes is met by a look; so are two in a row that do not take what they are offered.
        shaky = {key for key, at in self._shaky.items() if now - at < self._bound + SAFETY_NET}
        slow = {
            keys
            for keys in waited_for
            if not self._split.isdisjoint(keys) or not shaky.isdisjoint(keys) or any(key in keys for key in self._stuck)
        }
        words = self._stall.judge(now, self._bound, list(waited_for), excused | slow)
        words = words or self._net.judge(now, SAFETY_NET + 12 * self._round_trip, list(waited_for), excused)
        self.found("waiters" if well else "minority", words)


def _slots_of(queue: bytes, members: Sequence[bytes]) -> list[bytes]:
    """The keys that a queue is for."""
    name = queue.removeprefix(SLOT_QUEUE_KEYS)
    if name == queue:
        return [queue]
    limits = [int(member.rpartition(b":")[2].partition(b"#")[0]) for member in members]
    return sorted({slot_key(name, number) for number in range(1, max(limits, default=1) + 1)})


def _counts(tracked: _Tracked) -> bool:
    """False for what a process that is stopped or killed has left of a lease that has expired."""
    return tracked.holding.remaining(tracked.process.loop.clock()) > 0.0 or not tracked.process.loop.stopped


def _lines(process: Process) -> list[Line[Holding]]:
    return [] if process.engine is None else list(process.engine.lines._standing.values())


def _stands(process: Process, member: bytes) -> bool:
    """True while a line of the process waits in the queues, or is about to ask as one that does."""
    line = None if process.engine is None else process.engine.lines._standing.get(member)
    if line is None or line.place is None:
        return False
    return line.contender is None or not line.contender.unreachable or line.place.waiting
