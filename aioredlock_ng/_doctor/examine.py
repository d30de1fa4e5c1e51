"""Examine one node over a separate connection, with the requests that the library needs.

The examination writes keys of its own, and deletes them. No request takes longer than
`connect_timeout`. The rules in `_doctor/node_findings.py` judge the answers.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.keys import BARE_FORMAT, OWN_KEYS, message_channel
from aioredlock_ng._core.refusals import harmless
from aioredlock_ng._core.samples import TimeSample, clock_reading
from aioredlock_ng._core.server_info import facts_of, info_fields
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._doctor.interview import AtReplica, Interview, NoAnswer
from aioredlock_ng._doctor.node_findings import is_no_voter
from aioredlock_ng._doctor.timing import look_at_clock, measure
from aioredlock_ng._doctor.trials import Trials
from aioredlock_ng._nodes.handshake import TRIES, unknown_commands
from aioredlock_ng._nodes.wire import ConnectFailed, NoTransport
from aioredlock_ng._scripts import Request
from aioredlock_ng._scripts.catalogue import SCRIPTS
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng.records import NodeFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.connect import Connector
    from aioredlock_ng.options import Options

__all__ = ["examine"]

_MESSAGE = b"doctor"
"""The message that the doctor publishes on a channel of its own, and must then receive."""

_SAMPLE = 50
"""Largest number of keys that are sampled to find data other than locks."""


class _Ended(Exception):
    """Ends the examination early. The arguments are the code of a finding and the reason."""


async def examine(
    connector: Connector,
    key: bytes,
    options: Options,
    watch: float,
    clock: Callable[[], float],
    wall: Callable[[], float],
) -> NodeFacts:
    """Examine one node, with two readings of its clock that are `watch` seconds apart.

    The examination acquires and releases a lock under `key`, with the ttl of the options. No other
    call may use this key. `clock` is a steady clock of this machine, and `wall` is its wall clock.

    Safety: a cancelled call closes the connection. The key is deleted or expires.
    """
    facts: dict[str, Any] = {"address": connector.address}
    try:
        wire = await connector.connect(options.connect_timeout)
    except ConnectFailed as error:
        if isinstance(error, NoTransport):
            facts["problem"] = "unusable-client"
        else:
            facts["problem"] = "authentication" if error.permanent else "unreachable"
        facts["words"] = harmless(str(error))
        return NodeFacts(**facts)
    interview = Interview(wire, options.connect_timeout, clock)
    facts.update(endpoint=interview.endpoint, resp3=wire.resp3)
    examination = _Examination(interview, facts, key, options, clock, wall)
    try:
        await examination.run(watch)
    except _Ended as end:
        facts["problem"], facts["words"] = end.args
    except AtReplica as error:
        # INFO may be hidden from the user, or the server became a replica after INFO.
        facts.update(role="slave", words=str(error))
    except NoAnswer as error:
        facts.update(problem="silent", words=str(error))
    finally:
        interview.close(*examination.owed())
    await interview.gone()
    return NodeFacts(**facts, refusals=tuple(examination.refusals))


class _Examination(Trials):
    """All steps of one examination."""

    async def run(self, watch: float) -> None:
        """Run all steps in order.

        Raises:
            _Ended, AtReplica, NoAnswer: The examination ends early.
        """
        await self._identify()
        # Nothing is written to a server that cannot be a node.
        if not is_no_voter(NodeFacts(**self.facts)):
            await self._prepare()
            # With the default `key_format`, the key of a lock is its bare name. Other data may have
            # the same key.
            if self._options.key_format == BARE_FORMAT:
                await self._sample_keys()
            await self._try(watch)

    async def _try(self, watch: float) -> None:
        first = await self._look_at_clock()
        await self.try_scripts()
        command = MUTEX.inspecting((self._key,))
        self.facts["round_trips"] = await measure(self._interview, command, watch, self._clock)
        if first is not None:
            await asyncio.sleep(first.sent + watch - self._clock())
            last = await self._look_at_clock()
            self.facts["clock"] = clock_reading(first, last) if last is not None else None

    async def _look_at_clock(self) -> TimeSample | None:
        reading = await look_at_clock(self._interview, self._clock, self._wall)
        if isinstance(reading, TimeSample):
            return reading
        self.refused("TIME", reading, ())
        return None

    async def _identify(self) -> None:
        reply = await self._interview.ask("INFO")
        words = str(reply)
        if isinstance(reply, Refusal) and words.startswith(("NOAUTH", "WRONGPASS")):
            raise _Ended("authentication", harmless(words))
        if isinstance(reply, Refusal) and words.startswith(("BUSY ", "LOADING ")):
            raise _Ended("not-ready", harmless(words))
        if not self.refused("INFO", reply, bytes) and isinstance(reply, bytes):
            info = info_fields(reply, self._interview.redact)
            if info.get("loading") == "1":
                raise _Ended(
                    "not-ready",
                    "LOADING: it still loads its data, so its INFO is not reliable yet",
                )
            self.facts.update(facts_of(info))
        tries = [await self._interview.call("EVAL", Request(request)) for request in TRIES]
        self.facts["unknown"] = tuple(unknown_commands(tries, self._needed))
        if self.facts.get("aof"):
            reply = await self._interview.ask("CONFIG", "GET", "appendfsync")
            if not self.refused("CONFIG GET", reply, (dict, list)):
                self.facts["fsync"] = self._interview.redact(_value_of(reply))

    async def _prepare(self) -> None:
        """Try the requests that a manager sends after a connect, and publish a message."""
        if self.facts["resp3"]:
            tracks = not self.refused(
                "CLIENT TRACKING",
                await self._interview.ask("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"),
            )
            # Without tracking, the server always refuses CLIENT CACHING, so the refusal would show
            # nothing new.
            if tracks:
                tracks = not self.refused(
                    "CLIENT CACHING", await self._interview.ask("CLIENT", "CACHING", "YES")
                )
            self.facts["tracking"] = tracks
        channel = message_channel(secrets.token_hex(8).encode())
        if self.facts["resp3"]:
            self.refused("SUBSCRIBE", await self._interview.subscribe(channel), bytes)
        # Even a manager without RESP3 needs PUBLISH, to notify processes that use RESP3.
        self.refused("PUBLISH", await self._interview.ask("PUBLISH", channel, _MESSAGE), int)
        for script in SCRIPTS:
            if self.refused(
                "SCRIPT LOAD", await self._interview.ask("SCRIPT", "LOAD", script.source), bytes
            ):
                break
        if self.facts["resp3"]:
            # Some servers deliver the message to its sender only after the reply to PUBLISH. So the
            # doctor checks the message only now, after the replies to SCRIPT LOAD.
            self.facts["messages"] = self._interview.messages == [_MESSAGE]

    async def _sample_keys(self) -> None:
        """Sample some keys, and record the types of the keys that cannot be locks.

        Refusals are not recorded, because locks work without the sample.
        """
        ask = self._interview.ask
        match await ask("SCAN", "0", "COUNT", _SAMPLE):
            case [bytes(), list(found)]:
                # Leave out the library's own keys, and the key of another doctor that may run at
                # the same time.
                ours = (OWN_KEYS, self._key[: -len(secrets.token_hex(8))])
                keys = [key for key in found if type(key) is bytes and not key.startswith(ours)][
                    :_SAMPLE
                ]
                kinds = await asyncio.gather(*(ask("TYPE", key) for key in keys))
                lives = await asyncio.gather(*(ask("PTTL", key) for key in keys))
                seen = [
                    (kind, life)
                    for kind, life in zip(kinds, lives, strict=True)
                    if type(kind) is bytes and type(life) is int
                ]
                # A lock is a string, or a sorted set while readers hold it. A lock always expires.
                # The time -2 means that the key expired after SCAN had returned the key.
                foreign = [
                    kind
                    for kind, life in seen
                    if life != -2 and (kind not in (b"string", b"zset") or life == -1)
                ]
                told = tuple(kind.decode("ascii", "replace") for kind in foreign)
                self.facts.update(sampled_keys=len(seen), foreign_keys=told)


def _value_of(reply: Reply) -> str:
    """Return the value of a setting from the reply to CONFIG GET, or "" if there is none.

    The reply is a map in RESP3 and a flat list in RESP2.
    """
    found = (
        [*reply.values()]
        if isinstance(reply, dict)
        else reply[1:2]
        if isinstance(reply, list)
        else []
    )
    return found[0].decode("utf-8", "replace") if found and type(found[0]) is bytes else ""
