"""The contract of a node, checked with a real node on every server version at hand.

More tests check the properties that only a real server has.
"""

from __future__ import annotations

import asyncio
import math
from hashlib import sha1
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis

from aioredlock_ng._core.inspection import deletion_of, look_of
from aioredlock_ng._core.queue_formats import QUEUE_KEYS
from aioredlock_ng._core.replies import (
    ALL_OURS,
    FREE,
    GRANTED,
    ForceReleased,
    Held,
    KeyState,
    KeyStates,
    Looked,
    NotALock,
    Refused,
    Released,
    Repaired,
    Unacknowledged,
)
from aioredlock_ng._core.votes import is_held
from aioredlock_ng._nodes.channel import Outbox
from aioredlock_ng._nodes.connect import Connector
from aioredlock_ng._nodes.node import RedisNode
from aioredlock_ng._scripts import Command, Script
from aioredlock_ng._scripts.catalogue import SCRIPTS
from aioredlock_ng._scripts.exclusive_kinds import FENCES, MUTEX
from aioredlock_ng.events import NodeDegraded
from tests.contract import guarded
from tests.contract.guarded import RUN_ID, arguments
from tests.contract.queue import stand
from tests.contract.suite import (
    TTL,
    Listener,
    MessageSink,
    NodeContract,
    Sink,
    acquire,
    ask,
    look,
    refused,
    release,
)
from tests.support.spread import spread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioredlock_ng._nodes.port import Node
    from tests.support.node_set import NodeSet


class RedisPlace:
    def __init__(self, nodes: NodeSet) -> None:
        self._server = nodes[0]
        self.nodes: list[RedisNode] = []

    async def node(self) -> tuple[Node, Listener]:
        loop = asyncio.get_running_loop()
        node, listener = (
            RedisNode(Connector(self._server.url), Outbox(loop, loop.time, RUN_ID), 30.0),
            Listener(),
        )
        self.nodes.append(node)
        await node.open(0, listener, loop.time, 10.0)
        return node, listener

    async def command(self, *args: Any) -> bytes:
        return await asyncio.to_thread(self._server.command, *map(str, args))

    async def delete(self, key: str) -> None:
        await self.command("DEL", key)

    async def flush(self) -> None:
        await self.command("FLUSHALL")

    async def put(self, key: str, value: str, ttl_ms: int) -> None:
        await self.command("SET", key, value, "PX", ttl_ms)

    async def keep(self, key: str, value: str) -> None:
        await self.command("SET", key, value)

    async def publish(self, channel: str, message: str) -> int:
        return int(await self.command("PUBLISH", channel, message))

    async def cut(self) -> None:
        await self.command("CLIENT", "KILL", "SKIPME", "yes")

    async def queue(self, key: str) -> list[tuple[int, bytes]]:
        script = "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')"
        async with Redis.from_url(self._server.url) as client:
            found = await client.eval(script, 1, QUEUE_KEYS + key.encode())
        return [
            (int(ticket), member) for member, ticket in zip(found[::2], found[1::2], strict=True)
        ]

    async def queue_left(self, key: str) -> int:
        return int(await self.command("PTTL", (QUEUE_KEYS + key.encode()).decode()))


@pytest.fixture
async def place(node_of_each_version: NodeSet) -> AsyncIterator[RedisPlace]:
    node_of_each_version.wipe()
    place = RedisPlace(node_of_each_version)
    yield place
    for node in place.nodes:
        await node.aclose(1.0)


class TestRedisNode(NodeContract):
    async def test_a_message_to_the_connection_whose_script_published_it_comes_beside_the_answer(
        self, place: RedisPlace
    ) -> None:
        """Redis 6.2 and 7.0 send it before the answer; Valkey 8 and later send it right behind."""
        node, heard = await place.node()
        script = Script("commands", lambda reply, call: True)
        script.source = (
            b"redis.call('SET', KEYS[1], '1') return redis.call('PUBLISH', ARGV[1], ARGV[2])"
        )
        script.sha = sha1(script.source, usedforsecurity=False).hexdigest().encode()
        sinks = [MessageSink(heard) for _ in range(3)]
        for number, sink in enumerate(sinks):
            sink.asks(Command(script, (b"a",), (heard.channel.encode(), b"%d" % number)))
            node.ask(sink, 0)
        # Three times NOSCRIPT, and then they are sent in full.
        assert [await sink.reply() for sink in sinks] == [True] * 3
        assert [sink.messages for sink in sinks] in ([1, 2, 3], [0, 1, 2])
        await ask(node, Command(MUTEX.inspect, (b"a",)))
        assert heard.messages == [b"0", b"1", b"2"]

    async def test_without_the_right_to_track_single_commands_a_node_says_that_it_tracks_nothing(
        self, place: RedisPlace
    ) -> None:
        if b"redis_version:6.2" in await place.command("INFO", "server"):
            # No user of this version can lose the right to a single subcommand.
            with pytest.raises(RuntimeError, match="Unknown command or category name in ACL"):
                await place.command("ACL", "SETUSER", "default", "-client|caching")
            return
        await place.command("ACL", "SETUSER", "default", "-client|caching")
        try:
            node, heard = await place.node()
            assert (node.state().state, node.tracking, node.messages) == ("up", False, True)
            (told,) = [event.reason for event in heard.events if isinstance(event, NodeDegraded)]
            assert told.startswith(
                "no client tracking, waiters poll: CLIENT CACHING refused: NOPERM"
            )
            # The refusal answers no other request.
            assert await ask(node, look(b"a")) == KeyStates((KeyState.MISSING,))
            assert await ask(node, acquire(b"one", b"a")) is GRANTED
            assert await ask(node, MUTEX.watching((b"a",), (b"one",))) is ALL_OURS
        finally:
            await place.command("ACL", "SETUSER", "default", "+client|caching")

    async def test_a_tracked_command_after_a_script_flush_leaves_its_keys_tracked(
        self, place: RedisPlace
    ) -> None:
        node, heard = await place.node()
        await place.command("SCRIPT", "FLUSH")
        assert await ask(node, look(b"a")) == KeyStates((KeyState.MISSING,))
        heard.forget()
        await place.put("a", "another", TTL)
        await heard.hears_of(b"a")

    async def test_counters_are_exact_up_to_two_to_the_fifty_third(self, place: RedisPlace) -> None:
        """Servers write scores in different forms. The scripts must read the exact number."""
        node, _ = await place.node()
        await self.trusted(node)
        await ask(node, acquire(b"one", b"a"))
        for counter in (1_600_000_000_000_000, 1_600_000_000_000_016, 8 * 10**15 + 1, 2**53 - 1):
            await place.command("ZADD", FENCES.decode(), counter, "a")
            assert await ask(node, guarded.confirm(b"one", counter - 1, b"a")) == Unacknowledged(
                counter
            )
            assert await ask(node, guarded.repair(b"one", counter, b"a")) is Repaired.DONE
            forced = guarded.FENCED.force_releasing((b"a",), (b"a",), 1, (b"one",))
            assert await ask(node, forced) == ForceReleased(1)
            raised = counter + 1 if counter <= 8 * 10**15 else counter
            assert float(await place.command("ZSCORE", FENCES.decode(), "a")) == raised
            await ask(node, acquire(b"one", b"a"))

    @pytest.mark.parametrize(
        "missing", [("resetchannels", "allchannels"), ("-subscribe", "+subscribe")]
    )
    async def test_without_the_right_to_subscribe_a_node_locks_and_names_the_missing_right(
        self, place: RedisPlace, missing: tuple[str, str]
    ) -> None:
        await place.command("ACL", "SETUSER", "default", missing[0])
        try:
            node, heard = await place.node()
            state = node.state()
            assert (state.state, state.tracking, state.messages, node.messages) == (
                "up",
                True,
                False,
                False,
            )
            (told,) = [event.reason for event in heard.events if isinstance(event, NodeDegraded)]
            assert told.startswith(
                "no messages from other processes, waiters poll: SUBSCRIBE refused: NOPERM"
            )
            assert await ask(node, acquire(b"one", b"a")) is GRANTED
            assert await ask(node, release(b"one", b"a")) == Released(1)
        finally:
            await place.command("ACL", "SETUSER", "default", missing[1])
        assert await place.publish(heard.channel, "turn a") == 0

    async def test_without_the_right_to_publish_a_node_says_that_it_delivers_no_messages(
        self, place: RedisPlace
    ) -> None:
        await place.command("ACL", "SETUSER", "default", "-publish")
        try:
            node, heard = await place.node()
            assert (node.state().state, node.tracking, node.messages) == ("up", True, False)
            (told,) = [event.reason for event in heard.events if isinstance(event, NodeDegraded)]
            assert told.startswith(
                "no messages to other processes, waiters poll: PUBLISH refused: NOPERM"
            )
            assert await ask(node, acquire(b"one", b"a")) is GRANTED
            assert await ask(node, release(b"one", b"a")) == Released(1)
        finally:
            await place.command("ACL", "SETUSER", "default", "+publish")

    @pytest.mark.parametrize(
        "change", [("UNLINK", "a"), ("RENAME", "a", "b"), ("PEXPIRE", "a", "50000")]
    )
    async def test_a_waiter_is_notified_of_every_kind_of_change(
        self, place: RedisPlace, change: tuple[str, ...]
    ) -> None:
        holder, _ = await place.node()
        waiter, heard = await place.node()
        await ask(holder, acquire(b"one", b"a"))
        await ask(waiter, stand(b"1:-0123456789abcdef:1:1000", b"a", tracked=True))
        heard.forget()
        await place.command(*change)
        await heard.hears_of(b"a")

    @spread("script", [script.name for script in SCRIPTS])
    async def test_scripts_that_the_server_forgot_are_answered_all_the_same(
        self, place: RedisPlace, script: str
    ) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"one", b"a"))
        await place.command("SCRIPT", "FLUSH")
        kind = next(s for s in SCRIPTS if s.name == script)
        reply = await ask(node, Command(kind, *arguments(script)))
        assert not isinstance(reply, Exception)
        assert await ask(node, Command(MUTEX.inspect, (b"c",))) == Looked((FREE,))

    async def test_an_inspection_of_a_name_leaves_nothing_tracked(self, place: RedisPlace) -> None:
        """A server remembers each tracked name for the life of the connection and counts the
        names as its memory.
        """
        node, _ = await place.node()
        for name in (b"a", b"b", b"c"):
            assert await ask(node, MUTEX.inspecting((name,), (b"o:" + name,))) == Looked((FREE,))
        assert b"tracking_total_keys:0\r\n" in await place.command("INFO", "stats")
        await place.put("a", "somebody", TTL)
        await ask(node, MUTEX.inspecting((b"a",), (b"o:a",)))
        assert b"tracking_total_keys:0\r\n" in await place.command("INFO", "stats")

    async def test_an_acquire_given_up_before_its_noscript_is_not_sent_again(
        self, place: RedisPlace
    ) -> None:
        node, _ = await place.node()
        await place.command("SCRIPT", "FLUSH")
        given_up = Sink(stands=False)
        given_up.asks(acquire(b"one", b"a"))
        node.ask(given_up, 0)
        assert refused(await given_up.reply(), "NOSCRIPT")
        assert await place.command("EXISTS", "a") == b"0"

    async def test_a_release_behind_a_forgotten_acquire_leaves_nothing(
        self, place: RedisPlace
    ) -> None:
        node, _ = await place.node()
        await place.command("SCRIPT", "FLUSH")
        first, second = Sink(stands=False), Sink()
        first.asks(acquire(b"one", b"a"))
        node.ask(first, 0)
        second.asks(release(b"one", b"a"))
        node.ask(second, 0)
        assert await second.reply() == Released(0)
        assert await place.command("EXISTS", "a") == b"0"

    async def test_a_release_that_is_sent_again_notifies_a_caller_refused_before_its_execution(
        self, place: RedisPlace
    ) -> None:
        """A server does not notify a connection of its own deletions (NOLOOP)."""
        node, listener = await place.node()
        assert await ask(node, acquire(b"one", b"a")) is GRANTED
        await place.command("SCRIPT", "FLUSH")
        await place.command("SCRIPT", "LOAD", MUTEX.acquire.source.decode())
        listener.forget()
        first, second = Sink(), Sink()
        first.asks(release(b"one", b"a"))
        node.ask(first, 0)
        second.asks(acquire(b"two", b"a"))
        node.ask(second, 0)
        assert is_held(await second.reply())
        assert await first.reply() == Released(1)
        await listener.hears_of(b"a")

    async def test_an_acquire_and_its_release_after_a_script_flush_keep_their_order(
        self, place: RedisPlace
    ) -> None:
        node, _ = await place.node()
        await place.command("SCRIPT", "FLUSH")
        sinks = [Sink() for _ in range(4)]
        for sink, command in zip(
            sinks,
            (
                acquire(b"one", b"a"),
                release(b"one", b"a"),
                acquire(b"two", b"a"),
                release(b"two", b"a"),
            ),
            strict=True,
        ):
            sink.asks(command)
            node.ask(sink, 0)
        assert [await sink.reply() for sink in sinks] == [GRANTED, Released(1)] * 2
        assert await place.command("EXISTS", "a") == b"0"

    @spread("keys", [(b"hash",), (b"a", b"hash")], ids=["alone", "among others"])
    async def test_a_key_of_another_type_is_refused_in_the_servers_words_and_nothing_is_set(
        self, place: RedisPlace, keys: tuple[bytes, ...]
    ) -> None:
        node, _ = await place.node()
        await place.command("HSET", "hash", "field", "1")
        assert refused(await ask(node, acquire(b"one", *keys)), "WRONGTYPE")
        assert await place.command("EXISTS", "a") == b"0"
        assert await place.command("TYPE", "hash") == b"hash"

    async def test_a_key_of_another_type_is_refused_beside_a_fence_too(
        self, place: RedisPlace
    ) -> None:
        node, _ = await place.node()
        await self.trusted(node)
        await place.command("HSET", "hash", "field", "1")
        assert refused(
            await ask(node, guarded.acquire(b"one", 5, b"a", b"hash", b"c", kind=guarded.BOTH)),
            "WRONGTYPE",
        )
        assert await place.command("EXISTS", "a", "c") == b"0"

    async def test_a_key_of_another_type_is_not_repaired(self, place: RedisPlace) -> None:
        node, _ = await place.node()
        await self.trusted(node)
        await place.command("HSET", "hash", "field", "1")
        assert await ask(node, guarded.repair(b"one", 5, b"hash")) is Repaired.OUTRUN
        assert await place.command("TYPE", "hash") == b"hash"
        assert await ask(node, guarded.confirm(b"one", 9, b"hash")) == Unacknowledged(0)

    async def test_a_key_of_another_type_is_released_by_force_only_with_any_key(
        self, place: RedisPlace
    ) -> None:
        node, _ = await place.node()
        await place.command("HSET", "hash", "field", "1")
        assert refused(
            await ask(node, MUTEX.force_releasing((b"hash",), (), 0, ())), "NOTALOCK hash -1"
        )
        await place.command("PEXPIRE", "hash", TTL)
        assert refused(
            await ask(node, MUTEX.force_releasing((b"hash",), (), 0, ())), "NOTALOCK hash "
        )
        assert await place.command("EXISTS", "hash") == b"1"
        assert await ask(
            node, MUTEX.force_releasing((b"hash",), (), 0, (), any_key=True)
        ) == ForceReleased(1)
        assert await place.command("EXISTS", "hash") == b"0"

    @spread("labelled", [False, True])
    async def test_an_inspection_names_the_type_of_each_key_that_is_no_lock(
        self, place: RedisPlace, labelled: bool
    ) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"one", b"a"))
        await place.command("HSET", "hash", "field", "1")
        await place.command("RPUSH", "list", "1")
        await place.command("PEXPIRE", "list", TTL)
        keys = (b"a", b"hash", b"none", b"list")
        looks = await ask(
            node, MUTEX.inspecting(keys, tuple(b"o:" + key for key in keys) if labelled else ())
        )
        held, hashed, none, listed = map(look_of, [looks] * 4, range(4))
        assert isinstance(held, Held)
        assert held.token == b"one"
        assert (hashed, none) == (NotALock("hash", math.inf), FREE)
        assert isinstance(listed, NotALock)
        assert listed.kind == "list"
        assert TTL - 5000 < listed.remaining * 1000 <= TTL

    async def test_without_the_right_to_read_types_an_inspection_reports_another_type(
        self, place: RedisPlace
    ) -> None:
        await place.command("HSET", "hash", "field", "1")
        await place.command("ACL", "SETUSER", "default", "-type")
        try:
            node, _ = await place.node()
            assert look_of(await ask(node, MUTEX.inspecting((b"hash",)))) == NotALock(
                "other", math.inf
            )
            refusal = await ask(node, MUTEX.force_releasing((b"hash",), (), 0, ()))
            assert deletion_of(refusal) == NotALock("other", math.inf)
        finally:
            await place.command("ACL", "SETUSER", "default", "+type")

    async def test_a_key_of_another_type_spoils_no_renewal_or_release_of_another_key(
        self, place: RedisPlace
    ) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"one", b"a"))
        await place.command("HSET", "hash", "field", "1")
        assert (
            await ask(node, Command(MUTEX.extend, (b"hash", b"a"), (TTL, b"one", b"one")))
        ).states[1] is KeyState.OURS
        assert await ask(node, release(b"one", b"hash", b"a")) == Released(1)

    async def test_the_refusal_of_a_lock_without_expiry_names_no_remaining_time(
        self, place: RedisPlace
    ) -> None:
        node, _ = await place.node()
        await place.command("SET", "a", "another")
        assert await ask(node, acquire(b"one", b"a")) == Refused(None, 1, 0)
        assert await ask(node, acquire(b"one", b"b", b"a")) == Refused(None, 2, 0)

    async def test_a_key_has_the_form_that_other_libraries_write(self, place: RedisPlace) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"token", b"a"))
        assert await place.command("GET", "a") == b"token"
        assert TTL - 5000 < int(await place.command("PTTL", "a")) <= TTL
        await place.delete("a")
        await place.command("SET", "a", "theirs", "NX", "PX", TTL)
        assert is_held(await ask(node, acquire(b"token", b"a")))
