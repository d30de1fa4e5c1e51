"""Examines one node: a connection of its own, made as the library makes it, and everything tried that the library needs.

It judges nothing (see `_doctor/node_findings.py`), writes one key of its own that expires, and waits for no step longer than
`connect_timeout`.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

from hiredis import pack_command

from aioredlock_ng._core.fencing import slot_of
from aioredlock_ng._core.keys import BARE_FORMAT, OWN_KEYS, message_channel
from aioredlock_ng._core.marker import read_marker, vouching
from aioredlock_ng._core.refusals import harmless, missing_right
from aioredlock_ng._core.replies import MarkerRead
from aioredlock_ng._core.samples import TimeSample, clock_reading
from aioredlock_ng._core.server_info import facts_of, info_fields
from aioredlock_ng._core.tickets import QUEUE_KEYS, claim_of, member_of
from aioredlock_ng._core.validity import ttl_ms
from aioredlock_ng._core.votes import Garbled, Refusal, acquire_vote, is_granted
from aioredlock_ng._doctor.interview import Interview, NoAnswer
from aioredlock_ng._doctor.node_findings import is_no_voter
from aioredlock_ng._doctor.rights import COMMANDS_IN_SCRIPTS, COMMANDS_OF_QUEUES
from aioredlock_ng._doctor.timing import look_at_clock, measure
from aioredlock_ng._nodes.connect import ConnectFailed
from aioredlock_ng._nodes.handshake import TRIES, unknown_commands
from aioredlock_ng._scripts import Command, Request
from aioredlock_ng._scripts.kinds import (
    FENCES,
    LEAVE,
    MARKER,
    MARKER_KEY,
    MUTEX,
    SCRIPTS,
    STAND,
    guarded_mutex,
    needed,
)
from aioredlock_ng._scripts.replies import kind_of
from aioredlock_ng.records import NodeFacts, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.connect import Connector
    from aioredlock_ng.options import Options

__all__ = ["examine"]

_MESSAGE = b"doctor"
"""What is published to the doctor's own connection. No manager listens on that channel."""

_SAMPLE = 50
"""Keys looked at to tell whether other data lives beside the locks: few enough for any server."""


class _Ended(Exception):
    """The examination ends here, with the code of the finding and the words."""


async def examine(
    connector: Connector,
    key: bytes,
    options: Options,
    watch: float,
    clock: Callable[[], float],
    wall: Callable[[], float],
) -> NodeFacts:
    """Look at one node.

    Args:
        connector: How to reach it.
        key: Of the doctor's own, and of this call's own: a lock is taken and released there.
        options: `connect_timeout` bounds connecting and every step after it; `ttl` is the key's life.
        watch: Seconds between the two looks at its clock.
        clock: This machine's steady clock.
        wall: This machine's wall clock.

    Safety: cancelled at any await, the key's release is on its way (or its ttl ends it) and the connection is closed.
    """
    facts: dict[str, Any] = {"address": connector.address}
    try:
        wire = await connector.connect(options.connect_timeout)
    except ConnectFailed as error:
        facts.update(
            problem="authentication" if error.permanent else "unreachable",
            words=harmless(str(error)),
        )
        return NodeFacts(**facts)
    interview = Interview(wire, options.connect_timeout, clock)
    facts.update(endpoint=interview.endpoint, resp3=wire.resp3)
    examination = _Examination(interview, facts, key, options, clock, wall)
    try:
        await examination.run(watch)
    except _Ended as end:
        facts["problem"], facts["words"] = end.args
    except NoAnswer as error:
        facts.update(problem="silent", words=str(error))
    finally:
        interview.close(examination.owed())
    await interview.gone()
    return NodeFacts(**facts, refusals=tuple(examination.refusals))


class _Examination:
    """One run; what is known so far is in `facts` and `refusals`."""

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
        # Counters of its own too: those of the locks are left as they are.
        self._counters = key + b":fences"
        self._token = secrets.token_hex(16).encode()
        self._ttl = ttl_ms(options.ttl)
        self._options = options
        self._needed = needed(fencing=options.fencing, guard=options.recovery_guard is not None)
        self._clock, self._wall = clock, wall
        self._leaves = False

    async def run(self, watch: float) -> None:
        """All steps, in order.

        Raises:
            _Ended, NoAnswer: One of them was the last.
        """
        await self._identify()
        # Another kind of server is told as such, and not written to.
        if not is_no_voter(NodeFacts(**self.facts)):
            await self._prepare()
            # With a format of their own, locks meet no other data.
            if self._options.key_format == BARE_FORMAT:
                await self._sample_keys()
            await self._try(watch)

    def owed(self) -> Request | None:
        """What deletes the keys that may still be there; None when none are."""
        return self._clearing() if self._leaves else None

    async def _try(self, watch: float) -> None:
        first = await self._look_at_clock()
        await self._try_scripts()
        command = Command(MUTEX.inspect, (self._key,))
        self.facts["round_trips"] = await measure(self._interview, command, watch, self._clock)
        if first is not None:
            await asyncio.sleep(first.sent + watch - self._clock())
            last = await self._look_at_clock()
            self.facts["clock"] = clock_reading(first, last) if last is not None else None

    async def _look_at_clock(self) -> TimeSample | None:
        reading = await look_at_clock(self._interview, self._clock, self._wall)
        if isinstance(reading, TimeSample):
            return reading
        self._refused("TIME", reading, ())
        return None

    async def _identify(self) -> None:
        reply = await self._interview.ask("INFO")
        words = str(reply)
        if isinstance(reply, Refusal) and words.startswith(("NOAUTH", "WRONGPASS")):
            raise _Ended("authentication", harmless(words))
        if isinstance(reply, Refusal) and words.startswith(("BUSY ", "LOADING ")):
            raise _Ended("not-ready", harmless(words))
        if not self._refused("INFO", reply, bytes) and isinstance(reply, bytes):
            info = info_fields(reply, self._interview.redact)
            if info.get("loading") == "1":
                raise _Ended(
                    "not-ready",
                    "LOADING: it still reads its data, and says nothing of itself that holds",
                )
            self.facts.update(facts_of(info))
        tries = [await self._interview.call("EVAL", Request(request)) for request in TRIES]
        self.facts["unknown"] = tuple(unknown_commands(tries, self._needed))
        if self.facts.get("aof"):
            reply = await self._interview.ask("CONFIG", "GET", "appendfsync")
            if not self._refused("CONFIG GET", reply, (dict, list)):
                self.facts["fsync"] = self._interview.redact(_value_of(reply))

    async def _prepare(self) -> None:
        """What the handshake of a node says too."""
        if self.facts["resp3"]:
            tracks = not self._refused(
                "CLIENT TRACKING",
                await self._interview.ask("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"),
            )
            # Without tracking it is refused in any case.
            if tracks:
                tracks = not self._refused(
                    "CLIENT CACHING", await self._interview.ask("CLIENT", "CACHING", "YES")
                )
            self.facts["tracking"] = tracks
        channel = message_channel(secrets.token_hex(8).encode())
        if self.facts["resp3"]:
            self._refused("SUBSCRIBE", await self._interview.subscribe(channel), bytes)
        # Without RESP3 too: the other processes may have it.
        self._refused("PUBLISH", await self._interview.ask("PUBLISH", channel, _MESSAGE), int)
        for script in SCRIPTS:
            if self._refused(
                "SCRIPT LOAD", await self._interview.ask("SCRIPT", "LOAD", script.source), bytes
            ):
                break
        if self.facts["resp3"]:
            # Looked at only now: some servers deliver a message of one's own behind the reply to PUBLISH.
            self.facts["messages"] = self._interview.messages == [_MESSAGE]

    async def _sample_keys(self) -> None:
        """Look for keys that can be no locks, in three round trips.

        A refusal is no finding: the library itself needs none of these rights.
        """
        ask = self._interview.ask
        match await ask("SCAN", "0", "COUNT", _SAMPLE):
            case [bytes(), list(found)]:
                # Another doctor may be at work.
                ours = (OWN_KEYS, self._key[: -len(secrets.token_hex(8))])
                keys = [key for key in found if type(key) is bytes and not key.startswith(ours)][
                    :_SAMPLE
                ]
                kinds = await asyncio.gather(*(ask("TYPE", key) for key in keys))
                lives = await asyncio.gather(*(ask("PTTL", key) for key in keys))
                # A key may go meanwhile.
                seen = [
                    (kind, life)
                    for kind, life in zip(kinds, lives, strict=True)
                    if type(kind) is bytes and type(life) is int
                ]
                foreign = [
                    kind for kind, life in seen if life != -2 and (kind != b"string" or life == -1)
                ]
                told = tuple(kind.decode("ascii", "replace") for kind in foreign)
                self.facts.update(sampled_keys=len(seen), foreign_keys=told)

    async def _try_scripts(self) -> None:
        """A whole life of a lock. Nobody else knows the key: what a script answers is not judged, but for the grant."""
        key, token = (self._key,), self._token
        self._leaves = True  # until it is known to be gone
        reply = await self._call(Command(MUTEX.acquire, key, (token, self._ttl)))
        self.facts["granted"] = is_granted(reply)
        if not self.facts["granted"] and not isinstance(reply, Refusal):
            self.refusals.append(Refused("script acquire", str(acquire_vote("it", reply))))
        # Of a key that is there: it asks no more about others.
        await self._call(Command(MUTEX.inspect, key))
        await self._call(Command(MUTEX.watch, key, (token,)))
        await self._call(Command(MUTEX.extend, key, (self._ttl, token)))
        await self._call(Command(MUTEX.release, key, (token,)))
        await self._call(Command(MUTEX.acquire_one.each, key, (b"0", b"", token, self._ttl)))
        if (hand_over := MUTEX.acquire_one.hand_over) is not None:
            await self._call(Command(hand_over, key, (b"0", b"", token, token, self._ttl)))
        await self._call(Command(MUTEX.release_one.each, key, (token,)))
        await self._call(MUTEX.force_releasing(key, (), 0, (token,)))
        # Counters do not expire: none are made that could not be deleted.
        if await self._cleared():
            await self._try_guarded_scripts(
                fencing=self._options.fencing, guard=self._options.recovery_guard is not None
            )
        self._leaves = not await self._cleared()
        # What is sent to a server that has forgotten the scripts.
        self._refused("EVAL", await self._interview.ask("EVAL", MUTEX.inspect.source, 1, self._key))
        if any(
            refused.step.startswith("script ") and missing_right(refused.words) is not None
            for refused in self.refusals
        ):
            await self._try_commands()

    async def _try_guarded_scripts(self, *, fencing: bool, guard: bool) -> None:
        """What real locks are taken with, by the settings: fences, the recovery guard; and what the guard's marker says."""
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
            # It acknowledges nothing, for the key is gone; but the locks' counters are a key to be allowed too.
            await self._call(Command(kind.confirm, (key, FENCES), (token, 1, slot)))
        if guard:
            # Whether it is quarantined is told by the marker; here it is only whether it may vote.
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
                self._refused(f"queue {name}", reply)

    async def _cleared(self) -> bool:
        """Delete what there is."""
        return not self._refused("DEL", await self._interview.call("DEL", self._clearing()))

    def _clearing(self) -> Request:
        words: tuple[Any, ...] = ("DEL", self._key, self._counters)
        return Request(pack_command(words))

    async def _try_commands(self) -> None:
        """Each that is needed by itself; for the rights only, which are looked at before anything else."""
        for name, arguments in COMMANDS_IN_SCRIPTS.items():
            if name in self._needed:
                reply = await self._interview.ask(
                    name, *arguments(self._key, self._counters, self._token, self._ttl)
                )
                if isinstance(reply, Refusal) and missing_right(str(reply)) is not None:
                    self._refused(f"command {name}", reply)

    async def _call(self, command: Command) -> Reply:
        step = f"script {command.script.name}"
        reply = await self._interview.call(step, command)
        self._refused(step, reply)
        return reply

    def _refused(self, step: str, reply: Reply, expected: type | tuple[type, ...] = object) -> bool:
        if isinstance(reply, expected) and not isinstance(reply, (Refusal, Garbled)):
            return False
        told = isinstance(reply, (Refusal, Garbled))
        words = str(reply) if told else f"answered with {kind_of(reply)}, which does not fit"
        self.refusals.append(Refused(step, harmless(words)))
        return True


def _value_of(reply: Reply) -> str:
    """RESP3 answers CONFIG GET by a map, RESP2 by a flat list; empty where there is no such setting."""
    found = (
        [*reply.values()]
        if isinstance(reply, dict)
        else reply[1:2]
        if isinstance(reply, list)
        else []
    )
    return found[0].decode("utf-8", "replace") if found and type(found[0]) is bytes else ""
