"""Deliberate defects that are patched into the library for some runs.

The simulation must notice each of them.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from aioredlock_ng import lease as lease_module
from aioredlock_ng._core.fencing import BLOCK, FenceClock
from aioredlock_ng._core.keys import slot_in, slot_key
from aioredlock_ng._core.lease_state import LeaseState, Phase, Renewal
from aioredlock_ng._core.queue_formats import OFFER
from aioredlock_ng._core.quorum import Verdict, verdict
from aioredlock_ng._core.readers import READERS
from aioredlock_ng._core.recovery_guard import next_steps
from aioredlock_ng._core.validity import ttl_ms
from aioredlock_ng._core.votes import Refusal, counter_of, is_granted
from aioredlock_ng._election import candidate_arguments, term
from aioredlock_ng._election.term import Term
from aioredlock_ng._engine import engine, parts
from aioredlock_ng._engine.attempt import acquisition, releases
from aioredlock_ng._engine.attempt.acquisition import Acquisition
from aioredlock_ng._engine.attempt.call import Call as AcquireCall
from aioredlock_ng._engine.attempt.second_round import SecondRound
from aioredlock_ng._engine.keeping import batch, extender, min_hold, renewals
from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
from aioredlock_ng._engine.keeping.read_grant import ReadGrant
from aioredlock_ng._engine.keeping.schedule import Schedule
from aioredlock_ng._engine.trust import guard_task, markers
from aioredlock_ng._engine.waiting import queue_entry, slot_lines
from aioredlock_ng._engine.waiting.lines import Lines
from aioredlock_ng._engine.waiting.place import Place
from aioredlock_ng._nodes.channel import Channel
from aioredlock_ng._nodes.memory import members, queue_store
from aioredlock_ng._nodes.memory import server as memory_server
from aioredlock_ng._nodes.memory.keyspace import Keyspace, Writing
from aioredlock_ng._nodes.memory.queue_scripts import as_bytes
from aioredlock_ng._nodes.memory.queues import Queues
from aioredlock_ng._nodes.memory.server import MemoryServer
from aioredlock_ng._nodes.node import RedisNode
from aioredlock_ng._scripts import Command, decoding
from aioredlock_ng._threaded.calls import Call
from aioredlock_ng._threaded.lease_proxy import ThreadedLease
from aioredlock_ng._threaded.stalls import Stalls
from aioredlock_ng.lock import Lock
from aioredlock_ng.options import Options
from tests.simulation.world import ProcessLoop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

__all__ = ["MUTANTS", "Mutant", "mutated"]

COUNTED = 2
"""Number of holders up to which a node grants any slot, in the mutant `counting`."""

SOON_STALLED = 0.1
"""The `stall_limit` of every engine in seconds, in the mutant `impatient`."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect of the library.

    Attributes:
        what: Description of the defect.
        patches: Replacements. Each one has an object, the name of its attribute, and the new value.
    """

    name: str
    what: str
    patches: tuple[tuple[object, str, Any], ...]


def _nothing(*_: object, **__: object) -> None:
    """Do nothing, in place of a function of the library."""


def _clock() -> float:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ProcessLoop)
    return loop.clock()


def _record_from_now(spec: Any, token: bytes, _started: float, *rest: Any) -> LeaseRecord:
    return LeaseRecord(spec, token, _clock(), *rest)


def _refusal(*_: object) -> Refusal:
    return Refusal("the reply cannot be read")


_passed_on = LeaseRecord.passed_on


def _passed_on_from_now(self: LeaseRecord, spec: Any, now: float) -> LeaseRecord | None:
    successor = _passed_on(self, spec, now)
    if successor is not None:
        successor.started = now
        successor.deadline += now - self.started
    return successor


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


_asked = LeaseState.asked


def _asked_for_longer(self: LeaseState, renewal: Renewal) -> None:
    deadline = self.deadline
    _asked(self, renewal)
    self.deadline = deadline


def _renewed_for_longer(self: LeaseState, renewal: Renewal) -> bool:
    deadline = self.deadline
    done = _renewed(self, renewal)
    if done:
        self.deadline = max(self.deadline, deadline)
    return done


_batch = batch.Batch.__init__


class _SmallerQuorum:
    """The context of an engine, with a quorum that has one node too few."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.quorum = max(1, context.quorum - 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def _with_a_smaller_quorum(self: Any, context: Any, *rest: Any, **given: Any) -> None:
    _batch(self, _SmallerQuorum(context), *rest, **given)  # type: ignore[arg-type]


def _unanimous(n: int, _quorum: int, yes: int, no: int) -> Verdict:
    return verdict(n, n, yes, no)


async def _refused_at_once(_: Lock) -> None:
    """Ask no node, in place of `Lock.try_acquire`."""


def _store_maximum(self: MemoryServer, fence: int, slots: Any, granted: int) -> int:
    highest = max(fence, *(self.counters.get(slot, 0) for slot in slots))
    self.counters.update(dict.fromkeys(slots, highest))
    return 1


_release_lease = lease_module.Lease.release


async def _release_by_resource(self: lease_module.Lease) -> bool:
    for record in self._engine.extender.leases:
        if record.spec.keys == self._record.spec.keys:
            record.unschedule()
    return await _release_lease(self)


async def _release_unshielded(self: lease_module.Lease) -> bool:
    await asyncio.sleep(0)
    return await _release_lease(self)


_acquire_guarded = MemoryServer._acquire_guarded


def _unguarded(self: MemoryServer, command: Command, by: Any) -> Any:
    token, ttl, _, *rest = command.args
    return _acquire_guarded(
        self, Command(command.script, command.keys, (token, ttl, b"", *rest)), by
    )


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
    steps = iter(
        next_steps(
            [reading for reading in readings if reading is not None], guard_ms, now, strict=strict
        )
    )
    return [None if reading is None else next(steps) for reading in readings]


def _forgive_releases(_self: RedisNode, _channel: object, _owed: object) -> None:
    pass


def _released_only(self: extender.Extender, record: LeaseRecord) -> Any:
    if record.phase is not Phase.HELD:
        return None
    record.end(Phase.RELEASED)
    self._forget(record)
    return self._releases.send(record, self._context.clock())


_notify = queue_store.notify

_take_keys = MemoryServer._take


def _count_slots(self: MemoryServer, keys: Any, claim: bytes) -> Any:
    """Grant a slot that is held, while the node has fewer than `COUNTED` holders of the semaphore.

    The votes of a majority then limit the number of holders, but two holders may have the same
    slot.
    """
    refusal = _take_keys(self, keys, claim)
    slot = slot_in(keys[0])
    if refusal is None or slot is None:
        return refusal
    taken = sum(self.get(slot_key(slot[0], number)) is not None for number in range(1, 5))
    return None if taken < COUNTED else refusal


def _served_and_keeping(self: Queues, keys: Any, key: bytes, claim: bytes, *_: bytes) -> None:
    """Remove a served waiter from its queue, and leave the offers of other slots to this waiter."""
    member = claim.partition(b":")[2]
    self.remove(members.queue_for(member, key), member)
    self.notify_first(keys, members.queue_for(member, key))


_retirement = min_hold.retirement


def _rest_of_ttl(context: Any, record: LeaseRecord, now: float) -> Any:
    kept, record.kept_until = record.kept_until, min(record.kept_until, record.deadline)
    command = _retirement(context, record, now)
    record.kept_until = kept
    return command


_pass_on = Lines.pass_on


def _pass_on_and_forget(self: Lines, record: Any, successor: Any) -> None:
    """Pass the grant on, and let no task inherit the place of the contender in the queues."""
    with patch.object(self, "_inherit", lambda line, *_: self._leave_place(line)):
        _pass_on(self, record, successor)


_back_off = Place.back_off


def _back_off_in_line(self: Place) -> None:
    self.standing = False
    _back_off(self)


_acquire_read = MemoryServer._acquire_read


def _read_beside(self: MemoryServer, command: Command, by: Any) -> Any:
    """Replace the token of a writer by the entry of a reader."""
    key = command.keys[0]
    value = self.get(key) or READERS
    if value != READERS and not value.startswith(OFFER):
        self.delete(key, by)
    return _acquire_read(self, command, by)


def _agree_on_the_highest(self: SecondRound, attempt: Any) -> bool:
    """Use the highest counter as the fence, and store the fence on no other node."""
    self._fence = max(map(counter_of, filter(is_granted, attempt.replies)))
    attempt.agree(self._fence)
    return True


_extend_read = MemoryServer._extend_read


def _release_and_acquire(self: MemoryServer, command: Command, by: Any) -> Any:
    """Release the key of a writer that downgrades.

    The writer gets an entry as a reader only if no waiting writer is offered the key.
    """
    freed = False
    for at, key in enumerate(command.keys[:-1]):
        entry = as_bytes(command.args[3 * at + 1])
        if self.get(key) == entry:
            freed = True
            self.queues.give_back(Writing(self, by), key)
            if self.get(key) in (None, READERS):
                self.keep_entry(key, entry, int(command.args[0]) / 1000, by)
    return 1 if freed else _extend_read(self, command, by)


_renew_entries = Keyspace._renew_entries


def _live_together(self: Keyspace, key: bytes, entries: Any, by: Any) -> None:
    """Let each entry live as long as the longest entry of its key."""
    _renew_entries(self, key, dict.fromkeys(entries, max(entries.values(), default=0.0)), by)


def _take_any_back(_self: Queues, keys: Any, key: bytes, _claim: bytes) -> None:
    keys.remove(key)


def _writers_first(self: Queues, keys: Any, key: bytes) -> bool:
    return self.offer_after_readers(keys, key)


_begin = Acquisition._begin


def _begin_with_the_same_token(self: Acquisition, *given: Any, **named: Any) -> Any:
    before, context = self.round, self.context
    if before is None:
        return _begin(self, *given, **named)
    # A reader's token has the name of its manager at the end.
    token = before.token.partition(b":")[0]
    with patch.object(context, "new_token", lambda: token):
        return _begin(self, *given, **named)


_margins_of = term.margins_of


def _without_margin(*given: Any) -> term.Margins:
    return replace(_margins_of(*given), step_down=0.0)


_stalls = Stalls.__init__


def _soon_stalled(self: Stalls, engine: Any, thread: Any, _limit: float | None) -> None:
    _stalls(self, engine, thread, SOON_STALLED)


def _mutants() -> Iterator[Mutant]:
    def one(name: str, what: str, *patches: tuple[object, str, Any]) -> Mutant:
        return Mutant(name, what, patches)

    yield one(
        "quorum", "a quorum has one node too few", (parts, "quorum_of", lambda n: max(1, n // 2))
    )
    yield one(
        "elapsed",
        "the time that an attempt took is not subtracted",
        (acquisition, "LeaseRecord", _record_from_now),
        (acquisition, "is_in_time", lambda *_: True),
    )
    yield one("drift", "the drift is not subtracted", (Options, "drift", lambda *_: 0.0))
    yield one(
        "renewed-drift",
        "a renewal does not subtract the drift",
        (renewals, "deadline_of", lambda started, ttl, _: started + ttl),
    )
    yield one(
        "cleanup", "the keys of a failed attempt are not released", (Acquisition, "_undo", _nothing)
    )
    yield one(
        "release",
        "a release deletes the key whatever its token",
        (MemoryServer, "_release", _delete_anybodys),
    )
    yield one(
        "repair",
        "a renewal sets a lost key again, and counts it as renewed",
        (MemoryServer, "_extend", _set_again),
    )
    yield one(
        "deadline",
        "a renewal's deadline counts from its reply",
        (LeaseState, "renewed", _renewed_from_reply),
    )
    yield one(
        "fence",
        "a node acknowledges every fence, and stores the maximum",
        (MemoryServer, "_store", _store_maximum),
    )
    yield one(
        "block",
        "a client proposes a fence that another grant may own",
        (FenceClock, "propose", _propose_any),
    )
    yield one(
        "below",
        "a grant owns fences of earlier grants",
        (acquisition, "first_of", lambda stored, _: stored - BLOCK),
    )
    yield one(
        "longer",
        "a renewal with a shorter ttl leaves the deadline as it was",
        (LeaseState, "asked", _asked_for_longer),
        (LeaseState, "renewed", _renewed_for_longer),
    )
    yield one(
        "one-fewer",
        "a renewal needs one node less than a quorum",
        (batch.Batch, "__init__", _with_a_smaller_quorum),
    )
    yield one(
        "hasty",
        "verify() declares a loss if a single node lacks the keys",
        (lease_module, "verdict", _unanimous),
    )
    yield one(
        "passed-on",
        "a passed-on grant gets a new deadline",
        (LeaseRecord, "passed_on", _passed_on_from_now),
    )
    yield one(
        "extender",
        "a release stops the renewals of its resource",
        (lease_module.Lease, "release", _release_by_resource),
    )
    yield one(
        "same-token",
        "all attempts of an acquisition have one token",
        (Acquisition, "_begin", _begin_with_the_same_token),
    )
    yield one(
        "given-up",
        "an acquisition gives up before its blocking_timeout",
        (AcquireCall, "_nearly_time_out", lambda self, _: self._time_out()),
    )
    yield one(
        "late-grant",
        "a late grant of a failed attempt is not released",
        (releases, "may_have_set", is_granted),
    )
    yield one(
        "unshielded",
        "a cancelled release is not sent",
        (lease_module.Lease, "release", _release_unshielded),
    )
    yield one("untaken", "try_acquire() never gets a lock", (Lock, "try_acquire", _refused_at_once))
    yield one(
        "cancelled", "a cancelled acquisition goes on", (engine.Engine, "cancelled", _nothing)
    )
    yield one("wakeups", "messages to waiters are lost", (Lines, "notified", _nothing))
    yield one(
        "anybody",
        "an offer admits every client",
        (memory_server, "admits", lambda value, _: value.startswith(OFFER)),
    )
    yield one(
        "entry", "a grant leaves the entry of its waiter in the queue", (Queues, "served", _nothing)
    )
    yield one(
        "no-offer", "a release offers the key to no waiter", (Queues, "offer", lambda *_: False)
    )
    yield one(
        "take-back",
        "a refresh takes the key back even if it is held",
        (Queues, "take_back", _take_any_back),
    )
    yield one(
        "out-of-reach",
        "a waiter that reaches no quorum stays in the queues",
        (Place, "back_off", _back_off_in_line),
    )
    yield one(
        "refusing",
        "a served waiter stays in the queues of other nodes",
        (Place, "served", lambda self, _: self.stop()),
    )
    yield one(
        "kept",
        "keys that are reserved for a set stay reserved for ever",
        (queue_entry, "KEPT_FOR", 1000.0),
    )
    yield one("undying", "a queue never expires", (queue_entry, "QUEUE_LIFE", 1e6))
    yield one(
        "handoff",
        "a release does not pass the grant on",
        (extender.Extender, "release", _released_only),
    )
    yield one(
        "guard", "nodes that forgot vote at once", (MemoryServer, "_acquire_guarded", _unguarded)
    )
    yield one(
        "half-guard",
        "the guard time is half of the max_ttl",
        (Options, "guard_ms", property(lambda self: ttl_ms(self.max_ttl) // 2)),
    )
    yield one(
        "founding",
        "a founding leaves out the nodes that do not answer",
        (markers.Markers, "_take", _forget_the_silent),
        (guard_task, "next_steps", _found_without_the_silent),
    )
    yield one(
        "witness",
        "a witness treats nodes that forgot as a new set",
        (guard_task, "next_steps", _remember_nothing),
    )
    yield one(
        "owed",
        "outstanding releases are not sent after a reconnect",
        (RedisNode, "_pay", _forgive_releases),
    )
    yield one(
        "shapes",
        "the type and range of numbers are not checked",
        (decoding, "is_int", lambda *_: True),
    )
    yield one("garbled", "an unreadable reply counts as a refusal", (Channel, "_garbled", _refusal))
    yield one(
        "counting",
        "nodes count holders of a semaphore, and ignore its slots",
        (MemoryServer, "_take", _count_slots),
    )
    yield one(
        "beyond",
        "an attempt asks for a slot beyond the limit",
        (slot_lines, "free_slot", lambda *_: 5),
    )
    yield one(
        "hoarding",
        "a served waiter keeps offers of other slots",
        (Queues, "served", _served_and_keeping),
    )
    yield one(
        "unheard",
        "a slot is offered to no waiter of its semaphore",
        (Queues, "_offer_slot", lambda *_: False),
    )
    yield one(
        "forgotten",
        "after a grant the rest of the line has no place in queues",
        (Lines, "pass_on", _pass_on_and_forget),
    )
    yield one(
        "forgone",
        "a release frees the keys in spite of a min_hold",
        (min_hold, "retirement", _nothing),
    )
    yield one(
        "short-mark",
        "an over mark lives for the rest of the ttl only",
        (min_hold, "retirement", _rest_of_ttl),
    )
    yield one(
        "shortened",
        "a renewal shortens the keys of a min_hold to the ttl",
        (renewals, "kept_for", lambda *_: 0.0),
    )
    yield one(
        "shared-grant",
        "a shared read grant ends with the first of its leases",
        (ReadGrant, "outlives", lambda *_: False),
        (ReadGrant, "leave", lambda self, lease: bool(self.leases.pop(lease, None) or True)),
    )
    yield one(
        "beside",
        "a node whose key has a writer's token grants reads",
        (MemoryServer, "_acquire_read", _read_beside),
    )
    yield one(
        "write-back",
        "a reader stores its fence on no other node",
        (SecondRound, "_agree", _agree_on_the_highest),
    )
    yield one(
        "downgrade",
        "a downgrade releases the key first",
        (MemoryServer, "_extend_read", _release_and_acquire),
    )
    yield one(
        "carried",
        "a reader's entry lives as long as the longest entry",
        (Keyspace, "_renew_entries", _live_together),
    )
    yield one(
        "barging",
        "a waiting writer does not keep readers out",
        (Queues, "writer_waits", lambda *_: False),
    )
    yield one(
        "writers-first",
        "a writer's release ignores waiting readers",
        (Queues, "offer", _writers_first),
    )
    yield one(
        "no-step-down",
        "a leader works until its lease ends",
        (candidate_arguments, "margins_of", _without_margin),
    )
    yield one("term-goes-on", "the end of a term does not cancel its body", (Term, "end", _nothing))
    yield one("timer", "no timer watches the deadline", (Schedule, "watch_deadline", _nothing))
    yield one(
        "undo", "a cancelled call to another loop keeps its grant", (Call, "_give_back", _nothing)
    )
    yield one(
        "unnotified",
        "a body on another loop is not notified of a loss",
        (ThreadedLease, "_report_loss", _nothing),
    )
    yield one(
        "stall-limit",
        "a loop that stands still keeps its leases for ever",
        (Stalls, "_fault", lambda *_: ""),
    )
    yield one(
        "impatient",
        "a loop that stands still loses its leases although no limit is set",
        (Stalls, "__init__", _soon_stalled),
    )
    yield one(
        "forsaken",
        "the keys of a loop that stands still are released",
        (extender.Extender, "forsake", extender.Extender.lose),
    )
    yield one(
        "undone-hold",
        "a grant that no task received keeps its min_hold",
        (ThreadedLease, "forgo_min_hold", _nothing),
    )
    yield one(
        "monotonic",
        "the library's clock stands still during a suspend",
        (ProcessLoop, "clock", ProcessLoop.time),
    )


MUTANTS = {mutant.name: mutant for mutant in _mutants()}
"""All mutants by name."""


@contextmanager
def _patched(mutant: Mutant) -> Iterator[None]:
    with ExitStack() as stack:
        for target, name, by in mutant.patches:
            stack.enter_context(patch.object(target, name, by))
        yield


def mutated(name: str | None) -> AbstractContextManager[None]:
    """Patch the mutant of this name into the library. None leaves the library as it is."""
    return nullcontext() if name is None else _patched(MUTANTS[name])
