"""Try the library's scripts and commands on one node, and record refusals."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from hiredis import pack_command

from aioredlock_ng._core.fencing import slot_of
from aioredlock_ng._core.marker import read_marker, vouching
from aioredlock_ng._core.refusals import harmless, missing_right
from aioredlock_ng._core.replies import MarkerRead
from aioredlock_ng._core.tickets import QUEUE_KEYS, claim_of, member_of
from aioredlock_ng._core.validity import ttl_ms
from aioredlock_ng._core.votes import Garbled, Refusal, acquire_vote, is_granted
from aioredlock_ng._doctor.rights import COMMANDS_IN_SCRIPTS, COMMANDS_OF_QUEUES
from aioredlock_ng._scripts import Command, Request
from aioredlock_ng._scripts.kinds import (
    FENCES,
    LEAVE,
    MARKER,
    MARKER_KEY,
    MUTEX,
    STAND,
    guarded_mutex,
    needed,
)
from aioredlock_ng._scripts.replies import kind_of
from aioredlock_ng.records import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._doctor.interview import Interview
    from aioredlock_ng.options import Options

__all__ = ["Trials"]


class Trials:
    """The requests of an examination that write. `facts` and `refusals` contain the results."""

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
        # The counters of the locks stay untouched.
        self._counters = key + b":fences"
        self._token = secrets.token_hex(16).encode()
        self._ttl = ttl_ms(options.ttl)
        self._options = options
        self._needed = needed(fencing=options.fencing, guard=options.recovery_guard is not None)
        self._clock, self._wall = clock, wall
        self._leaves = False

    def owed(self) -> Request | None:
        """Return the request that deletes the keys that may still exist, or None."""
        return self._clearing() if self._leaves else None

    async def try_scripts(self) -> None:
        """Run the whole life of a lock on a key that nobody else knows.

        Only the grant is judged, and refusals are recorded.
        """
        key, token = (self._key,), self._token
        self._leaves = True  # until its deletion is confirmed
        reply = await self._call(Command(MUTEX.acquire, key, (token, self._ttl)))
        self.facts["granted"] = is_granted(reply)
        if not self.facts["granted"] and not isinstance(reply, Refusal):
            self.refusals.append(Refused("script acquire", str(acquire_vote("it", reply))))
        # The key exists at this point: for a missing key the script asks less.
        await self._call(Command(MUTEX.inspect, key))
        await self._call(Command(MUTEX.watch, key, (token,)))
        await self._call(Command(MUTEX.extend, key, (self._ttl, token)))
        await self._call(Command(MUTEX.release, key, (token,)))
        await self._call(Command(MUTEX.acquire_one.each, key, (b"0", b"", token, self._ttl)))
        if (hand_over := MUTEX.acquire_one.hand_over) is not None:
            await self._call(Command(hand_over, key, (b"0", b"", token, token, self._ttl)))
        await self._call(Command(MUTEX.release_one.each, key, (token,)))
        await self._call(MUTEX.force_releasing(key, (), 0, (token,)))
        # Counters do not expire, so they are created only after the right to delete is proved.
        if await self._cleared():
            await self._try_guarded_scripts(
                fencing=self._options.fencing, guard=self._options.recovery_guard is not None
            )
        self._leaves = not await self._cleared()
        # EVAL is sent to a server that has forgotten the scripts.
        self.refused("EVAL", await self._interview.ask("EVAL", MUTEX.inspect.source, 1, self._key))
        if any(
            refused.step.startswith("script ") and missing_right(refused.words) is not None
            for refused in self.refusals
        ):
            await self._try_commands()

    async def _try_guarded_scripts(self, *, fencing: bool, guard: bool) -> None:
        """Try the scripts of real locks with the manager's settings, and read the node's marker."""
        kind, key, token, slot = (
            guarded_mutex(fencing=True, vouch=b""),
            self._key,
            self._token,
            slot_of(self._key),
        )
        vouch = b"%b:%d" % (vouching(self.facts.get("run_id", "")), self._options.guard_ms)
        if fencing:
            reply = await self._call(
                Command(
                    kind.acquire,
                    (key, MARKER_KEY, self._counters),
                    (token, self._ttl, b"", 1, b"", b"", slot),
                )
            )
            self.facts["granted"] = self.facts["granted"] and is_granted(reply)
            await self._call(Command(kind.confirm, (key, self._counters), (token, 2, slot)))
            await self._call(
                Command(
                    kind.repair,
                    (key, MARKER_KEY, self._counters),
                    (token, self._ttl, vouch, 2, slot),
                )
            )
            await self._cleared()
            # The script confirms nothing, because the key is gone. But it needs the right to the
            # key of the locks' counters.
            await self._call(Command(kind.confirm, (key, FENCES), (token, 1, slot)))
        if guard:
            # The marker says whether the node is in quarantine. This reply says only whether it may
            # vote.
            reply = await self._call(
                Command(
                    kind.acquire,
                    (key, MARKER_KEY, FENCES),
                    (token, self._ttl, vouch, b"", b"", b"", slot),
                )
            )
            self.facts["granted"] = self.facts["granted"] and not isinstance(reply, Refusal)
            reply = await self._call(
                Command(MARKER, (MARKER_KEY,), (b"read", b"", b"0", vouch, b""))
            )
            if isinstance(reply, MarkerRead):
                now = self._clock()
                reading = read_marker(reply.marker, reply.node_ms, vouch, now, now)
                self.facts.update(trust=reading.trust.value, ready_in=reading.left(now))
        member = member_of(secrets.token_hex(8).encode(), 1, 0.1, notified=True)
        await self._call(Command(STAND, (key,), (claim_of(1, member), self._ttl, self._ttl)))
        await self._call(Command(LEAVE, (key,), (member,)))
        for name, arguments in COMMANDS_OF_QUEUES.items():
            reply = await self._interview.ask(name, *arguments(QUEUE_KEYS + key, member, self._ttl))
            if isinstance(reply, Refusal):
                self.refused(f"queue {name}", reply)

    async def _cleared(self) -> bool:
        """Delete the keys and return True if that was allowed."""
        return not self.refused("DEL", await self._interview.call("DEL", self._clearing()))

    def _clearing(self) -> Request:
        words: tuple[Any, ...] = ("DEL", self._key, self._counters)
        return Request(pack_command(words))

    async def _try_commands(self) -> None:
        """Try each command of the scripts by itself, only to find missing rights.

        Servers check the rights before anything else.
        """
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
