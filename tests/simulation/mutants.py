"""Deliberate defects, put into the library from outside for the time of some runs: the simulation must notice each."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from aioredlock_ng import lease as lease_module
from aioredlock_ng._core.fencing import BLOCK, FenceClock
from aioredlock_ng._core.guard import next_steps
from aioredlock_ng._core.keys import slot_in, slot_key
from aioredlock_ng._core.lease_state import LeaseState, Phase, Renewal
from aioredlock_ng._core.tickets import OFFER
from aioredlock_ng._core.votes import Refusal, is_granted
from aioredlock_ng._engine import engine, parts
from aioredlock_ng._engine.attempt import acquisition, releases
from aioredlock_ng._engine.attempt.acquisition import Acquisition
from aioredlock_ng._engine.keeping import extender
from aioredlock_ng._engine.keeping.holding import Holding
from aioredlock_ng._engine.keeping.schedule import Schedule
from aioredlock_ng._engine.trust import guard, markers
from aioredlock_ng._engine.waiting import entry, lines
from aioredlock_ng._engine.waiting.lines import Lines
from aioredlock_ng._engine.waiting.place import Place
from aioredlock_ng._nodes.channel import Channel
from aioredlock_ng._nodes.memory import queues
from aioredlock_ng._nodes.memory import server as memory_server
from aioredlock_ng._nodes.memory.queues import Queues
from aioredlock_ng._nodes.memory.server import MemoryServer
from aioredlock_ng._nodes.memory.standing import as_bytes
from aioredlock_ng._nodes.node import RedisNode
from aioredlock_ng._scripts import Command, replies
from aioredlock_ng.options import Options
from tests.simulation.world import ProcessLoop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

__all__ = ["MUTANTS", "Mutant", "mutated"]

COUNTED = 2
"""Holders that a node counts until it refuses, where it should keep slots apart."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect.

    Attributes:
        what: What is wrong, in words.
        patches: What to replace: of which object, which attribute, by what.
    """

    name: str
    what: str
    patches: tuple[tuple[object, str, Any], ...]


def _nothing(*_: object, **__: object) -> None:
    """Leave it out."""


def _clock() -> float:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ProcessLoop)
    return loop.clock()


def _holding_from_now(spec: Any, token: bytes, _started: float, *rest: Any) -> Holding:
    return Holding(spec, token, _clock(), *rest)


def _refusal(*_: object) -> Refusal:
    return Refusal("it cannot be read")


_passed_on = Holding.passed_on


def _passed_on_from_now(self: Holding, spec: Any, now: float) -> Holding | None:
    heir = _passed_on(self, spec, now)
    if heir is not None:
        heir.started = now
        heir.deadline += now - self.started
    return heir


def _propose_any(self: FenceClock, now_us: int, _slots: object, above: int = 0) -> int:
    self._last = max(now_us + self.offset, self._last + 1, above + 1)
    return self._last


def _delete_anybodys(self: MemoryServer, command: Command, by: Any) -> int:
    return sum(self.delete(key, by) for key in command.keys)


def _set_again(self: MemoryServer, command: Command, by: Any) -> Any:
    ttl, *tokens = command.args
    for key, token in zip(command.keys, tokens, strict=True):
        if self.get(key) in (None, token):
            self.set(key, as_bytes(token), int(ttl) / 1000, by)
    return self._whose(command.keys, tokens, by)


_renewed = LeaseState.renewed


def _renewed_from_reply(self: LeaseState, renewal: Renewal) -> bool:
    later = Renewal(renewal.started, renewal.ttl, renewal.deadline + _clock() - renewal.started)
    self._sent = tuple(later if sent is renewal else sent for sent in self._sent)
    return _renewed(self, later)


def _store_maximum(self: MemoryServer, fence: int, slots: Any, granted: int) -> int:
    highest = max(fence, *(self.counters.get(slot, 0) for slot in slots))
    self.counters.update(dict.fromkeys(slots, highest))
    return 1


_release_lease = lease_module.Lease.release


async def _release_by_resource(self: lease_module.Lease) -> bool:
    for holding in self._engine.extender.holdings:
        if holding.spec.keys == self._holding.spec.keys:
            holding.unschedule()
    return await _release_lease(self)


async def _release_unshielded(self: lease_module.Lease) -> bool:
    await asyncio.sleep(0)
    return await _release_lease(self)


_acquire_guarded = MemoryServer._acquire_guarded


def _unguarded(self: MemoryServer, command: Command, by: Any) -> Any:
    token, ttl, _, *rest = command.args
    return _acquire_guarded(self, Command(command.script, command.keys, (token, ttl, b"", *rest)), by)


_take = markers.Markers._take


def _forget_the_silent(self: markers.Markers, index: int, reply: Any, asked_at: float) -> str:
    if reply is None:
        self.readings[index] = None
        return ""
    return _take(self, index, reply, asked_at)


def _remember_nothing(*readings: Any, memories: object, **given: Any) -> list[Any]:
    return next_steps(*readings, **given)


def _found_without_the_silent(
    readings: Any, guard_ms: int, now: float, *, strict: bool, known_ms: int, memories: object
) -> list[Any]:
    steps = iter(next_steps([reading for reading in readings if reading is not None], guard_ms, now, strict=strict))
    return [None if reading is None else next(steps) for reading in readings]


def _forgive_releases(_self: RedisNode, _channel: object, _owed: object) -> None:
    pass


def _released_only(self: extender.Extender, holding: Holding) -> Any:
    if holding.phase is not Phase.HELD:
        return None
    holding.end(Phase.RELEASED)
    self._forget(holding)
    return self._releases.send(holding.spec, holding.token, holding.granted, holding.longest_ttl, self._context.clock())


_notify = queues._notify

_take_keys = MemoryServer._take


def _count_slots(self: MemoryServer, keys: Any, claim: bytes) -> Any:
    """A node grants a slot that is held if another one is free there: a majority counts holders, and keeps no slots apart."""
    refusal = _take_keys(self, keys, claim)
    slot = slot_in(keys[0])
    if refusal is None or slot is None:
        return refusal
    taken = sum(self.get(slot_key(slot[0], number)) is not None for number in range(1, 5))
    return None if taken < COUNTED else refusal


def _served_and_keeping(self: Queues, keys: Any, key: bytes, claim: bytes, *_: bytes) -> None:
    """Leave other slots that were offered to the member as they are."""
    member = claim.partition(b":")[2]
    self.remove(queues.queue_for(member, key), member)
    self.notify_first(keys, queues.queue_for(member, key))


_pass_on = Lines.pass_on


def _pass_on_and_forget(self: Lines, holding: Any, successor: Any) -> None:
    """Give the place of a contender that is served to nobody."""
    with patch.object(self, "_inherit", lambda line, *_: self._leave_place(line)):
        _pass_on(self, holding, successor)


_back_off = Place.back_off


def _back_off_in_line(self: Place) -> None:
    self.standing = False
    _back_off(self)


_stand = Place.stand


def _mutants() -> Iterator[Mutant]:
    def one(name: str, what: str, *patches: tuple[object, str, Any]) -> Mutant:
        return Mutant(name, what, patches)

    yield one("quorum", "a quorum is one node less", (parts, "quorum_of", lambda n: max(1, n // 2)))
    yield one(
        "elapsed",
        "the time that an attempt took is not subtracted",
        (acquisition, "Holding", _holding_from_now),
        (acquisition, "deadline_of", lambda *_: float("inf")),
    )
    yield one("drift", "drift is ignored", (Options, "drift", lambda *_: 0.0))
    yield one("cleanup", "a failed attempt is not undone", (Acquisition, "_undo", _nothing))
    yield one("release", "a release deletes the key whatever its token", (MemoryServer, "_release", _delete_anybodys))
    yield one("repair", "a renewal sets a missing key again, and counts it", (MemoryServer, "_extend", _set_again))
    yield one("deadline", "a renewal's deadline counts from its reply", (LeaseState, "renewed", _renewed_from_reply))
    yield one("fence", "fences are acknowledged by maximum", (MemoryServer, "_store", _store_maximum))
    yield one("block", "a fence is proposed that another grant may own", (FenceClock, "propose", _propose_any))
    yield one("below", "a grant owns fences of grants before it", (acquisition, "first_of", lambda stored, _: stored - BLOCK))
    yield one("passed-on", "a passed-on grant counts from the passing on", (Holding, "passed_on", _passed_on_from_now))
    yield one("extender", "a release stops the renewals of its resource", (lease_module.Lease, "release", _release_by_resource))
    yield one("late-grant", "a grant that comes after the refusal is ignored", (releases, "may_have_set", is_granted))
    yield one("unshielded", "a cancelled release is given up", (lease_module.Lease, "release", _release_unshielded))
    yield one("cancelled", "a cancelled acquisition is not given up", (engine.Engine, "cancelled", _nothing))
    yield one("wakeups", "messages to waiters are lost", (Lines, "notified", _nothing))
    yield one("anybody", "an offer admits every client", (memory_server, "admits", lambda value, _: value.startswith(OFFER)))
    yield one("entry", "a grant leaves its entry in the queue", (Queues, "served", _nothing))
    yield one("no-offer", "a release offers the key to no waiter", (Queues, "offer", lambda *_: False))
    yield one("out-of-reach", "a waiter without a quorum stays in the queues", (Place, "back_off", _back_off_in_line))
    yield one("refusing", "a waiter that is served stays where it was refused", (Place, "served", lambda self, _: self.stop()))
    yield one("kept", "names kept for a set stay kept for ever", (entry, "KEPT_FOR", 1000.0))
    yield one("undying", "a queue never expires", (entry, "QUEUE_LIFE", 1e6))
    yield one("handoff", "a release does not pass the grant on", (extender.Extender, "release", _released_only))
    yield one("guard", "nodes that forgot vote at once", (MemoryServer, "_acquire_guarded", _unguarded))
    yield one(
        "founding",
        "nodes that do not answer are forgotten, and left out of a founding",
        (markers.Markers, "_take", _forget_the_silent),
        (guard, "next_steps", _found_without_the_silent),
    )
    yield one("witness", "a witness founds and promotes", (guard, "next_steps", _remember_nothing))
    yield one("owed", "releases are not owed across a reconnect", (RedisNode, "_pay", _forgive_releases))
    yield one("shapes", "numbers are read whatever their type and range", (replies, "is_int", lambda *_: True))
    yield one("garbled", "a reply that cannot be read counts as a refusal", (Channel, "_garbled", _refusal))
    yield one("counting", "nodes count the holders of a semaphore", (MemoryServer, "_take", _count_slots))
    yield one("beyond", "an attempt asks for a slot beyond the limit", (lines, "free_slot", lambda *_: 5))
    yield one("hoarding", "a served waiter keeps offers of other slots", (Queues, "served", _served_and_keeping))
    yield one("unheard", "a slot is offered to no waiter of its semaphore", (Queues, "_offer_slot", lambda *_: False))
    yield one("forgotten", "the line of a served contender is forgotten", (Lines, "pass_on", _pass_on_and_forget))
    yield one("timer", "no timer watches the deadline", (Schedule, "watch_deadline", _nothing))
    yield one("monotonic", "the clock stands still during a suspend", (ProcessLoop, "clock", ProcessLoop.time))


MUTANTS = {mutant.name: mutant for mutant in _mutants()}
"""By name."""


@contextmanager
def _patched(mutant: Mutant) -> Iterator[None]:
    with ExitStack() as stack:
        for target, name, by in mutant.patches:
            stack.enter_context(patch.object(target, name, by))
        yield


def mutated(name: str | None) -> AbstractContextManager[None]:
    """With the defect of that name; None: as the library is."""
    return nullcontext() if name is None else _patched(MUTANTS[name])
