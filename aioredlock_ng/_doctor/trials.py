"""Try the library's scripts and commands on one node, and record refusals."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng._core.fencing import slot_of
from aioredlock_ng._core.keys import slot_key
from aioredlock_ng._core.marker import process_name, read_marker
from aioredlock_ng._core.over_mark import over_mark
from aioredlock_ng._core.queue_formats import QUEUE_KEYS, SLOT_QUEUE_KEYS, claim_of, member_of
from aioredlock_ng._core.readers import READER_QUEUE_KEYS
from aioredlock_ng._core.refusals import KEYS, harmless, missing_right
from aioredlock_ng._core.replies import MarkerRead
from aioredlock_ng._core.validity import ttl_ms
from aioredlock_ng._core.votes import Garbled, Refusal, acquire_vote, is_granted
from aioredlock_ng._doctor.label_trial import ask_for_labels, deleting_labels
from aioredlock_ng._doctor.rights import (
    COMMANDS_IN_SCRIPTS,
    COMMANDS_OF_QUEUES,
    COMMANDS_OF_READERS,
)
from aioredlock_ng._scripts import Command, Request
from aioredlock_ng._scripts.catalogue import needed
from aioredlock_ng._scripts.decoding import kind_of
from aioredlock_ng._scripts.exclusive_kinds import MUTEX, guarded_mutex
from aioredlock_ng._scripts.node_requests import (
    leaving,
    reading_marker,
    standing,
    standing_for_slot,
    standing_to_read,
)
from aioredlock_ng._scripts.reader_kind import read_side
from aioredlock_ng.records import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._doctor.interview import Interview
    from aioredlock_ng.options import Options

__all__ = ["Trials"]

_COUNTERS_LIVE: Final = 3_600_000
"""Life of the doctor's fence counters in milliseconds. No examination lasts that long."""

_EXPIRING: Final = """
redis.call('ZADD', KEYS[1], 0, 'doctor')
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""


class Trials:
    """The part of an examination that writes keys. `facts` and `refusals` receive the results."""

    def __init__(
        self,
        interview: Interview,
        facts: dict[str, Any],
        key: bytes,
        options: Options,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.facts = facts
        self.refusals: list[Refused] = []
        self._interview = interview
        self._key = key
        # These counters belong to the doctor. The counters of real locks stay unchanged.
        self._counters = key + b":fences"
        self._token = secrets.token_hex(16).encode()
        self._ttl = ttl_ms(options.ttl)
        self._options = options
        self._needed = needed(fencing=options.fencing, guard=options.recovery_guard is not None)
        self._clock, self._wall = clock, wall
        self._leaves = False

    def owed(self) -> tuple[Request, ...]:
        """Return the requests that delete the doctor's keys; empty if no key is left."""
        if not self._leaves:
            return ()
        # A DEL of all keys would delete nothing if the user had no right to the keys of labels. So
        # the labels have a DEL of their own.
        return self._clearing(), deleting_labels(self._key, self._token)

    async def try_scripts(self) -> None:
        """Run every step in the life of a lock, under a key that only this examination uses.

        `facts["granted"]` is False if the first acquire fails, or an acquire with a fence fails, or
        the server refuses an acquire with the recovery guard. Refusals, and replies that do not fit
        their script, are added to `refusals`.
        """
        keys, token, ttl = (self._key,), self._token, b"%d" % self._ttl
        taking, freeing = MUTEX.acquire_one, MUTEX.release_one
        # The trial leaves keys behind until the server confirms their deletion.
        self._leaves = True
        reply = await self._call(MUTEX.acquiring(keys, (), token, ttl, 0))
        self.facts["granted"] = is_granted(reply)
        if not self.facts["granted"] and not isinstance(reply, Refusal):
            self.refusals.append(Refused("script acquire", str(acquire_vote("it", reply))))
        # The key must exist here. For a missing key the script calls fewer commands, so a missing
        # right could stay unnoticed.
        await self._call(MUTEX.inspecting(keys))
        await self._call(MUTEX.watching(keys, (token,)))
        await self._call(MUTEX.extending(keys, (token,), self._ttl))
        await self._call(MUTEX.releasing(keys, token, None))
        acquire, release = (self._key, token, ttl), (self._key, token)
        await self._call(Command(taking.each, *taking.together(taking.each, [acquire])))
        if (hand_over := taking.hand_over) is not None:
            await self._call(Command(hand_over, *taking.together(hand_over, [release, acquire])))
        await self._call(Command(freeing.each, *freeing.together(freeing.each, [release])))
        await self._call(MUTEX.acquiring(keys, (), token, ttl, 0))
        await self._call(MUTEX.retiring(keys, token, self._ttl, None))
        await self._call(MUTEX.force_releasing(keys, (), 0, (over_mark(token),)))
        # Some of the next requests leave keys that no other client deletes. So these requests are
        # sent only if the server allows the doctor to delete keys.
        if await self._cleared():
            await self._try_guarded_scripts(
                fencing=self._options.fencing, guard=self._options.recovery_guard is not None
            )
            if self._options.labelled and await self._cleared():
                await self._try_labels()
        self._leaves = not await self._cleared()
        # EVAL is tried, too, because the library sends EVAL to a server that has lost the scripts.
        self.refused("EVAL", await self._interview.ask("EVAL", MUTEX.inspect.source, 1, self._key))
        if any(
            refused.step.startswith("script ") and missing_right(refused.words) is not None
            for refused in self.refusals
        ):
            await self._try_commands()

    async def _try_guarded_scripts(self, *, fencing: bool, guard: bool) -> None:
        """Try the scripts for queues and readers, and for fences and the guard if these are on."""
        keys, token, slots = (self._key,), self._token, (slot_of(self._key),)
        ttl = b"%d" % self._ttl
        process = process_name(self.facts.get("run_id", ""))
        own_marker = b"%b:%d" % (process, self._options.guard_ms)
        if fencing:
            await self._let_counters_expire()
            unguarded = guarded_mutex(fencing=True, own_marker=b"", counters=self._counters)
            both = guarded_mutex(fencing=True, own_marker=own_marker, counters=self._counters)
            reply = await self._call(unguarded.acquiring(keys, slots, token, ttl, 1))
            self.facts["granted"] = self.facts["granted"] and is_granted(reply)
            await self._call(both.confirming(keys, slots, token, 2))
            await self._call(both.repairing_of(keys, slots, token, self._ttl, 2))
            await self._cleared()
            # The key is gone, so the script confirms nothing. The script's reply still shows
            # whether the right to the counters of real locks is missing.
            locks = guarded_mutex(fencing=True, own_marker=b"")
            await self._call(locks.confirming(keys, slots, token, 1))
        if guard:
            # A node in quarantine grants nothing, so only an error reply counts as a failure here.
            # The marker, which is read next, shows whether the node is in quarantine.
            guarded = guarded_mutex(fencing=False, own_marker=own_marker)
            reply = await self._call(guarded.acquiring(keys, slots, token, ttl, 0))
            self.facts["granted"] = self.facts["granted"] and not isinstance(reply, Refusal)
            reply = await self._call(reading_marker(own_marker))
            if isinstance(reply, MarkerRead):
                now = self._clock()
                reading = read_marker(reply.marker, reply.node_ms, own_marker, now, now)
                self.facts.update(
                    trust=reading.trust.value,
                    ready_in=reading.left(now),
                    marked_max_ttl=reading.guard_ms / 1000 or None,
                )
        member = member_of(secrets.token_hex(8).encode(), 1, 0.1, notified=True)
        await self._call(standing(keys, claim_of(1, member), self._ttl, self._ttl))
        await self._leave(keys, member)
        for name, arguments in COMMANDS_OF_QUEUES.items():
            queue = QUEUE_KEYS + self._key
            reply = await self._interview.ask(name, *arguments(queue, member, self._ttl))
            if isinstance(reply, Refusal):
                self.refused(f"queue {name}", reply)
        await self._try_queue_of_slots()
        if await self._cleared():
            await self._try_to_read(own_marker)

    async def _try_queue_of_slots(self) -> None:
        slot = (slot_key(self._key, 1),)
        member = member_of(secrets.token_hex(8).encode(), 1, 0.1, 1, notified=True)
        # Without the right to ZREM, the doctor cannot remove the member. So the queue gets a life
        # of 1 ms.
        command = standing_for_slot(slot, claim_of(1, member), 1)
        reply = await self._interview.call("script stand_slots", command)
        # The user's key pattern may exclude the keys of slots. Locks work without the right to
        # those keys, so the doctor must not conclude that the node cannot vote.
        if not _is_about_keys(reply):
            self.refused("script stand_slots", reply)
            await self._leave(slot, member)
        # A user may have the right to the queues of locks, but not to the queues of semaphores and
        # readers. So these queues are tried, too.
        for queue, whose in ((SLOT_QUEUE_KEYS, "semaphores"), (READER_QUEUE_KEYS, "readers")):
            reply = await self._interview.ask("DEL", queue + self._key)
            if _is_about_keys(reply):
                self.refused(f"queue of {whose}", reply)

    async def _leave(self, keys: tuple[bytes, ...], member: bytes) -> None:
        """Try the script `leave`. If a right is missing, `COMMANDS_OF_QUEUES` finds its name."""
        reply = await self._interview.call("script leave", leaving(keys, member))
        if not isinstance(reply, Refusal) or missing_right(str(reply)) is None:
            self.refused("script leave", reply)

    async def _try_to_read(self, own_marker: bytes) -> None:
        """Try the commands of readers, and run every step in the life of a read lease.

        A refused script is recorded only if no other request was refused. On an old server, a
        script's refusal does not name the forbidden command, but the refusal of a single command
        does.
        """
        keys, slots, manager = (self._key,), (slot_of(self._key),), secrets.token_hex(8).encode()
        for name, arguments in COMMANDS_OF_READERS.items():
            reply = await self._interview.ask(name, *arguments(self._key, b"0", self._ttl))
            if isinstance(reply, Refusal):
                self.refused(f"readers {name}", reply)
        await self._cleared()
        fencing = self._options.fencing
        if fencing:
            await self._let_counters_expire()
        kind, both = (
            read_side(guarded_mutex(fencing=fencing, own_marker=word, counters=self._counters))
            for word in (b"", own_marker)
        )
        token = kind.token(self._token, manager)
        member = member_of(manager, 1, 0.1, notified=True, reader=True)
        for command in (
            kind.acquiring(keys, slots, token, b"%d" % self._ttl, 0),
            *((kind.confirming(keys, slots, token, 2**40 - 1),) if fencing else ()),
            kind.extending(keys, (token,), self._ttl),
            kind.watching(keys, (token,)),
            *((both.repairing_of(keys, slots, token, self._ttl, 2**40 - 1),) if fencing else ()),
            kind.releasing(keys, token, None),
            standing_to_read(keys, claim_of(1, member), self._ttl),
            leaving(keys, member),
        ):
            reply = await self._interview.call(f"script {command.script.name}", command)
            if not self.refusals:
                self.refused(f"readers {command.script.name}", reply)

    async def _try_labels(self) -> None:
        """Try all requests on the keys of labels. A user's key pattern may exclude these keys.

        A refused script is recorded if the refusal concerns keys, or if no other request was
        refused.
        """
        commands, scripts = await ask_for_labels(self._interview, self._key, self._token, self._ttl)
        # A command that is refused for both labels is recorded once.
        refusals = {name: reply for name, reply in commands if isinstance(reply, Refusal)}
        for name, refusal in refusals.items():
            self.refused(f"labels {name}", refusal)
        for name, reply in scripts:
            if _is_about_keys(reply) or not self.refusals:
                self.refused(f"labels {name}", reply)

    async def _let_counters_expire(self) -> None:
        """Create the doctor's counters with an expiry, before a script adds a counter.

        Without this expiry, the counters would stay for ever after a lost connection, because no
        script sets an expiry for them. The reply is ignored, because the replies of the scripts
        also show a missing right.
        """
        await self._interview.ask("EVAL", _EXPIRING, 1, self._counters, _COUNTERS_LIVE)

    async def _cleared(self) -> bool:
        """Delete the doctor's keys, and return True if the server allowed the deletion."""
        return not self.refused("DEL", await self._interview.call("DEL", self._clearing()))

    def _clearing(self) -> Request:
        return Request.of("DEL", self._key, self._counters)

    async def _try_commands(self) -> None:
        """Try each command of the scripts by itself, and record only missing rights."""
        for name, arguments in COMMANDS_IN_SCRIPTS.items():
            if name in self._needed:
                reply = await self._interview.ask(
                    name, *arguments(self._key, self._counters, self._token, self._ttl)
                )
                if isinstance(reply, Refusal) and missing_right(str(reply)) is not None:
                    self.refused(f"command {name}", reply)

    async def _call(self, command: Command) -> Reply:
        step = f"script {command.script.name}"
        reply = await self._interview.call(step, command)
        self.refused(step, reply)
        return reply

    def refused(self, step: str, reply: Reply, expected: type | tuple[type, ...] = object) -> bool:
        if isinstance(reply, expected) and not isinstance(reply, (Refusal, Garbled)):
            return False
        told = isinstance(reply, (Refusal, Garbled))
        words = str(reply) if told else f"answered with {kind_of(reply)}, which is unexpected"
        self.refusals.append(Refused(step, harmless(words)))
        return True


def _is_about_keys(reply: Reply) -> bool:
    """Return True if the server refuses the request because of the keys in it."""
    return isinstance(reply, Refusal) and missing_right(str(reply)) == KEYS
