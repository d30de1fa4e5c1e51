"""The contract of every kind of node.

A module per kind of node subclasses this and provides the place.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from aioredlock_ng._core.keys import message_channel
from aioredlock_ng._core.over_mark import OVER
from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.replies import (
    ALL_OURS,
    FREE,
    GRANTED,
    ForceReleased,
    Held,
    KeyState,
    KeyStates,
    Looked,
    Released,
    Repaired,
)
from aioredlock_ng._core.votes import Refusal, is_held
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from tests.contract.guarded import GuardedContract, repair
from tests.contract.queue import QueueContract, stand

if TYPE_CHECKING:
    from aioredlock_ng._core.replies import KeyLook
    from aioredlock_ng._nodes.port import Node

WITHIN = 30.0
"""Seconds after which something that must happen has not happened."""

HEARD_WITHIN = 15.0
"""Seconds within which the message about a changed key comes. They are fewer than the ttl, because
the expiry of the key is a change, too.
"""

TTL = 20_000

SLACK = 5_000
"""Milliseconds that a slow machine may take between two steps."""

OURS, MISSING, FOREIGN = KeyState.OURS, KeyState.MISSING, KeyState.FOREIGN


class Sink:
    """Keeps the answer."""

    def __init__(self, *, stands: bool = True) -> None:
        self.open = stands
        self.started = asyncio.get_running_loop().time()
        self.replies: list[Any] = []
        self._answered = asyncio.Event()

    def asks(self, command: Command) -> None:
        self.command: Command = command

    def stands(self) -> bool:
        return self.open

    def deliver(self, index: int, reply: Any) -> None:
        self.replies.append(reply)
        self._answered.set()

    async def reply(self) -> Any:
        async with asyncio.timeout(WITHIN):
            await self._answered.wait()
        assert len(self.replies) == 1, "exactly one answer per question"
        return self.replies[0]


class Listener:
    """Keeps the messages and events of a node."""

    def __init__(self) -> None:
        self.manager_id = secrets.token_hex(8).encode()
        self.messages: list[bytes] = []
        self.events: list[object] = []
        self.told: asyncio.Queue[list[bytes] | None] = asyncio.Queue()

    def invalidated(self, index: int, keys: list[bytes] | None) -> None:
        self.told.put_nowait(keys)

    def notified(self, index: int, message: bytes) -> None:
        self.messages.append(message)

    @property
    def channel(self) -> str:
        """Where messages for it are published."""
        return message_channel(self.manager_id).decode()

    def identify(self, index: int, run_id: str) -> str:
        return ""

    def present(self, index: int, is_present: bool) -> None:
        pass

    def emit(self, event: object) -> None:
        self.events.append(event)

    def forget(self) -> None:
        while not self.told.empty():
            self.told.get_nowait()

    async def hears_of(self, key: bytes) -> None:
        """Wait for the message that this key, or any key, changed."""
        async with asyncio.timeout(HEARD_WITHIN):
            while (keys := await self.told.get()) is not None and key not in keys:
                pass


class LateSink(Sink):
    """Records whether a message came before the answer."""

    def __init__(self, heard: Listener) -> None:
        super().__init__()
        self.heard = heard
        self.late = False

    def deliver(self, index: int, reply: Any) -> None:
        self.late = not self.heard.told.empty()
        super().deliver(index, reply)


class MessageSink(Sink):
    """Notes how many messages had come when the answer came."""

    def __init__(self, heard: Listener) -> None:
        super().__init__()
        self.heard = heard
        self.messages = -1

    def deliver(self, index: int, reply: Any) -> None:
        self.messages = len(self.heard.messages)
        super().deliver(index, reply)


class Place(Protocol):
    """One server and ways to it."""

    async def node(self) -> tuple[Node, Listener]:
        """Open one more connection."""

    async def delete(self, key: str) -> None:
        """Delete a key by another client."""

    async def flush(self) -> None:
        """Delete all keys by another client."""

    async def put(self, key: str, value: str, ttl_ms: int) -> None:
        """Overwrite a key by another client."""

    async def keep(self, key: str, value: str) -> None:
        """Overwrite a key by another client, without expiry."""

    async def publish(self, channel: str, message: str) -> int:
        """Publish a message by another client, and return how many connections receive it."""

    async def cut(self) -> None:
        """Close all connections of nodes at the server's side."""

    async def queue(self, key: str) -> list[tuple[int, bytes]]:
        """Return the members of a key's queue with their tickets, the first one first."""

    async def queue_left(self, key: str) -> int:
        """Return the milliseconds that a key's queue has left."""


def acquire(token: bytes, *keys: bytes, ttl: int = TTL) -> Command:
    return Command(MUTEX.acquire, keys, (token, ttl))


def release(token: bytes, *keys: bytes) -> Command:
    return Command(MUTEX.release, keys, (token,), asyncio.get_running_loop().time() + 60)


def retire(token: bytes, left: int, *keys: bytes, label: bytes = b"") -> Command:
    return MUTEX.retiring(keys, token, left, asyncio.get_running_loop().time() + 60, label)


def look(*keys: bytes) -> Command:
    """A command that leaves its keys tracked."""
    return MUTEX.watching(keys, (b"no token",) * len(keys))


async def ask(node: Node, command: Command) -> Any:
    sink = Sink()
    sink.asks(command)
    node.ask(sink, 0)
    return await sink.reply()


async def looks(node: Node, command: Command) -> tuple[KeyLook, ...]:
    """Return the state of the keys that the command inspects."""
    reply = await ask(node, command)
    assert isinstance(reply, Looked)
    return reply.keys


class NodeContract(GuardedContract, QueueContract):
    """The suite; subclasses have a fixture `place`."""

    async def ask(self, node: Node, command: Command) -> Any:
        return await ask(node, command)

    async def test_a_free_key_is_granted_and_a_held_key_is_refused_with_its_remaining_time(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        assert await ask(node, acquire(b"one", b"a")) is GRANTED
        reply = await ask(node, acquire(b"two", b"a"))
        assert is_held(reply)
        assert reply.left is not None
        assert TTL - SLACK < reply.left * 1000 <= TTL
        (look,) = await looks(node, Command(MUTEX.inspect, (b"a",)))
        assert isinstance(look, Held)
        assert look.token == b"one"
        assert 0 < look.remaining * 1000 <= TTL

    async def test_several_keys_are_taken_all_or_none(self, place: Place) -> None:
        node, _ = await place.node()
        assert await ask(node, acquire(b"one", b"b", ttl=5000)) is GRANTED
        reply = await ask(node, acquire(b"two", b"a", b"b", b"c"))
        assert is_held(reply)
        assert reply.left is not None
        assert 0 < reply.left <= 5
        first, second, third = await looks(node, Command(MUTEX.inspect, (b"a", b"b", b"c")))
        assert isinstance(second, Held)
        assert (first, second.token, third) == (FREE, b"one", FREE)
        assert await ask(node, acquire(b"two", b"a", b"c")) is GRANTED

    async def test_a_release_deletes_only_keys_that_hold_its_token(self, place: Place) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"one", b"a"))
        await ask(node, acquire(b"two", b"b"))
        assert await ask(node, release(b"two", b"a", b"b")) == Released(1)
        assert is_held(await ask(node, acquire(b"three", b"a")))
        assert await ask(node, release(b"one", b"a")) == Released(1)
        assert await ask(node, release(b"one", b"a")) == Released(0)

    async def test_a_batch_is_renewed_key_by_key(self, place: Place) -> None:
        node, _ = await place.node()
        for token, key in ((b"one", b"a"), (b"two", b"b"), (b"three", b"d")):
            await ask(node, acquire(token, key, ttl=5_000))
        args = (60_000, b"one", b"another", b"three", b"three")
        assert await ask(node, Command(MUTEX.extend, (b"a", b"b", b"c", b"d"), args)) == KeyStates(
            (OURS, FOREIGN, MISSING, OURS)
        )
        answers = await looks(node, Command(MUTEX.inspect, (b"a", b"b", b"c", b"d")))
        assert [isinstance(look, Held) and look.remaining > 50 for look in answers] == [
            True,
            False,
            False,
            True,
        ]
        assert answers[2] == FREE, "a missing key is not set again"
        assert (
            await ask(node, Command(MUTEX.extend, (b"a", b"d"), (60_000, b"one", b"three")))
            is ALL_OURS
        )

    async def test_watching_shows_which_keys_are_held_and_writes_nothing(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"one", b"a"))
        assert await ask(node, Command(MUTEX.watch, (b"a",), (b"one",))) is ALL_OURS
        assert await ask(node, Command(MUTEX.watch, (b"a", b"b"), (b"two", b"two"))) == KeyStates(
            (FOREIGN, MISSING)
        )

    async def test_labels_are_written_beside_the_keys_that_hold_their_tokens_alone(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"one", b"a"))
        await ask(node, acquire(b"two", b"b"))
        labels = (b"o:a", b"o:b", b"o:c"), (TTL, b"of a", TTL, b"of b", TTL, b"of c")
        watching = MUTEX.watching((b"a", b"b", b"c"), (b"one", b"one", b"one"), labels)
        assert await ask(node, watching) == KeyStates((OURS, FOREIGN, MISSING))
        first, second, third = await looks(node, MUTEX.inspecting((b"a", b"b", b"c"), labels[0]))
        assert isinstance(first, Held)
        assert isinstance(second, Held)
        assert (first.label, second.label, third) == (b"of a", b"", FREE)
        (look,) = await looks(node, MUTEX.inspecting((b"o:a",)))
        assert isinstance(look, Held)
        assert look.token == b"of a"
        assert TTL - SLACK < look.remaining * 1000 <= TTL
        watching = MUTEX.watching((b"a",), (b"one",), ((b"o:a",), (TTL, b"again")))
        assert await ask(node, watching) is ALL_OURS
        (look,) = await looks(node, MUTEX.inspecting((b"a",), (b"o:a",)))
        assert isinstance(look, Held)
        assert look.label == b"again"

    async def test_a_release_deletes_the_labels_of_the_keys_that_it_deletes(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        for key, token in ((b"a", b"one"), (b"b", b"two")):
            await ask(node, acquire(token, key))
            await ask(node, MUTEX.watching((key,), (token,), ((b"o:" + key,), (TTL, b"label"))))
        until = asyncio.get_running_loop().time() + 60
        assert await ask(
            node, MUTEX.releasing((b"a", b"b"), b"one", until, (b"o:a", b"o:b"))
        ) == Released(1)
        first, second = await looks(node, MUTEX.inspecting((b"a", b"b"), (b"o:a", b"o:b")))
        assert isinstance(second, Held)
        assert (first, second.token, second.label) == (FREE, b"two", b"label")
        (label,) = await looks(node, MUTEX.inspecting((b"o:a",)))
        assert label == FREE

    async def test_a_release_of_one_key_deletes_the_key_and_its_label(self, place: Place) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"one", b"a"))
        await ask(node, MUTEX.watching((b"a",), (b"one",), ((b"o:a",), (TTL, b"label"))))
        until = asyncio.get_running_loop().time() + 60
        assert await ask(node, MUTEX.releasing((b"a",), b"one", until, (b"o:a",))) == Released(1)
        assert await looks(node, MUTEX.inspecting((b"a", b"o:a"))) == (FREE, FREE)

    async def test_a_release_deletes_the_labels_of_its_token_though_the_keys_are_gone(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        token, another = b"0123456789abcdef-and-more", b"fedcba9876543210-and-more"
        for key, label in (
            (b"a", b"0123456789abcdef 1 2 x"),
            (b"b", b"fedcba9876543210 1 2 x"),
            (b"c", b"0123456789abcdef"),
        ):
            await ask(node, acquire(another, key))
            await ask(node, MUTEX.watching((key,), (another,), ((b"o:" + key,), (TTL, label))))
        until = asyncio.get_running_loop().time() + 60
        keys, label_keys = (b"a", b"b", b"c", b"d"), (b"o:a", b"o:b", b"o:c", b"o:d")
        assert await ask(node, MUTEX.releasing(keys, token, until, label_keys)) == Released(0)
        *held, last = await looks(node, MUTEX.inspecting(keys, label_keys))
        labels = [b"", b"fedcba9876543210 1 2 x", b"0123456789abcdef"]
        assert [(look.token, look.label) for look in held if isinstance(look, Held)] == [
            (another, label) for label in labels
        ]
        assert last == FREE

    async def test_a_retired_key_stays_taken_for_the_time_named_and_only_where_it_held_the_token(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"one", b"a"))
        await ask(node, acquire(b"two", b"b"))
        assert await ask(node, retire(b"one", 9_000, b"a", b"b", b"c")) == Released(1)
        first, second, third = await looks(node, MUTEX.inspecting((b"a", b"b", b"c")))
        assert isinstance(first, Held)
        assert isinstance(second, Held)
        assert (first.token, first.over, second.token, second.over, third) == (
            b"one",
            True,
            b"two",
            False,
            FREE,
        )
        assert 9_000 - SLACK < first.remaining * 1000 <= 9_000
        assert is_held(await ask(node, acquire(b"three", b"a")))

    async def test_no_script_takes_the_mark_of_a_retired_key_for_a_token(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"one", b"a"))
        await ask(node, retire(b"one", 9_000, b"a"))
        assert await ask(node, retire(b"one", 60_000, b"a")) == Released(0)
        assert await ask(node, release(b"one", b"a")) == Released(0)
        assert await ask(node, MUTEX.extending((b"a",), (b"one",), 60_000)) == KeyStates((FOREIGN,))
        assert await ask(node, MUTEX.watching((b"a",), (b"one",))) == KeyStates((FOREIGN,))
        assert await ask(node, repair(b"one", 1, b"a")) is Repaired.OUTRUN
        (look,) = await looks(node, MUTEX.inspecting((b"a",)))
        assert isinstance(look, Held)
        assert look.over
        assert look.remaining <= 9, "nothing has prolonged it"
        assert await ask(
            node, MUTEX.force_releasing((b"a",), (), 0, (OVER + b"one",))
        ) == ForceReleased(1)
        assert await ask(node, acquire(b"two", b"a")) is GRANTED

    async def test_a_late_retirement_prolongs_no_key(self, place: Place) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"one", b"a", ttl=5_000))
        assert await ask(node, retire(b"one", 60_000, b"a")) == Released(1)
        (look,) = await looks(node, MUTEX.inspecting((b"a",)))
        assert isinstance(look, Held)
        assert 0 < look.remaining <= 5

    async def test_a_retirement_writes_the_label_for_as_long_as_the_key_stays(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"one", b"a"))
        await ask(node, retire(b"one", 9_000, b"a", label=b"of one"))
        (look,) = await looks(node, MUTEX.inspecting((b"a",), (owner_key(b"a"),)))
        assert isinstance(look, Held)
        assert (look.label, look.over) == (b"of one", True)
        (label,) = await looks(node, MUTEX.inspecting((owner_key(b"a"),)))
        assert isinstance(label, Held)
        assert label.remaining <= 9

    async def test_a_retirement_notifies_the_trackers_of_its_keys(self, place: Place) -> None:
        node, _ = await place.node()
        watcher, heard = await place.node()
        await ask(node, acquire(b"one", b"a"))
        await ask(watcher, look(b"a"))
        heard.forget()
        await ask(node, retire(b"one", 9_000, b"a"))
        await heard.hears_of(b"a")

    async def test_force_release_deletes_the_keys_of_the_tokens_it_names(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"one", b"a"))
        assert await ask(node, MUTEX.force_releasing((b"a",), (), 0, ())) == ForceReleased(0)
        assert await ask(
            node, MUTEX.force_releasing((b"a",), (), 0, (b"two", b"three"))
        ) == ForceReleased(0)
        assert await ask(
            node, MUTEX.force_releasing((b"a",), (), 0, (b"two", b"one"))
        ) == ForceReleased(1)
        assert await ask(
            node, MUTEX.force_releasing((b"a",), (), 0, (b"two", b"one"))
        ) == ForceReleased(0)
        assert await ask(node, acquire(b"two", b"a")) is GRANTED

    async def test_force_release_refuses_a_key_without_expiry_unless_any_key_is_set(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        await place.keep("a", "one")
        assert await looks(node, MUTEX.inspecting((b"a",))) == (Held(math.inf, b"one"),)
        assert refused(
            await ask(node, MUTEX.force_releasing((b"a",), (), 0, (b"one",))), "NOTALOCK string -1"
        )
        assert await ask(node, MUTEX.force_releasing((b"a",), (), 0, (b"two",))) == ForceReleased(0)
        assert await ask(
            node, MUTEX.force_releasing((b"a",), (), 0, (b"two",), any_key=True)
        ) == ForceReleased(0)
        assert await looks(node, MUTEX.inspecting((b"a",))) == (Held(math.inf, b"one"),)
        assert await ask(
            node, MUTEX.force_releasing((b"a",), (), 0, (b"one",), any_key=True)
        ) == ForceReleased(1)
        assert await looks(node, MUTEX.inspecting((b"a",))) == (FREE,)

    async def test_a_refused_force_release_deletes_no_other_key_of_it(self, place: Place) -> None:
        node, _ = await place.node()
        await ask(node, acquire(b"one", b"a"))
        await place.keep("b", "one")
        assert refused(
            await ask(node, MUTEX.force_releasing((b"a", b"b"), (), 0, (b"one",))), "NOTALOCK"
        )
        answers = await looks(node, MUTEX.inspecting((b"a", b"b")))
        assert [isinstance(look, Held) and look.token for look in answers] == [b"one", b"one"]

    async def test_an_acquire_and_its_release_queued_in_one_tick_leave_nothing(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        sinks = []
        for number in range(50):
            token = b"%d" % number
            for command in (acquire(token, b"a"), release(token, b"a")):
                sinks.append(Sink())
                sinks[-1].asks(command)
                node.ask(sinks[-1], 0)
        assert [await sink.reply() for sink in sinks] == [GRANTED, Released(1)] * 50
        assert await looks(node, Command(MUTEX.inspect, (b"a",))) == (FREE,)

    async def test_a_caller_that_gave_up_is_still_answered_once_and_in_order(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        given_up, after = Sink(stands=False), Sink()
        given_up.asks(acquire(b"one", b"a"))
        node.ask(given_up, 0)
        after.asks(release(b"one", b"a"))
        node.ask(after, 0)
        assert await after.reply() == Released(1)
        assert await given_up.reply() is GRANTED

    @pytest.mark.parametrize("how", ["delete", "flush", "release", "overwrite"])
    async def test_a_tracked_request_is_notified_when_the_key_changes(
        self, place: Place, how: str
    ) -> None:
        holder, _ = await place.node()
        waiter, heard = await place.node()
        await ask(holder, acquire(b"one", b"a"))
        assert is_held(await ask(waiter, acquire(b"two", b"a")))
        await ask(waiter, stand(b"1:-0123456789abcdef:1:1000", b"a", tracked=True))
        heard.forget()
        match how:
            case "delete":
                await place.delete("a")
            case "flush":
                await place.flush()
            case "release":
                await ask(holder, release(b"one", b"a"))
            case "overwrite":
                await place.put("a", "another", TTL)
        await heard.hears_of(b"a")

    async def test_a_tracked_request_is_notified_when_the_key_expires(self, place: Place) -> None:
        node, heard = await place.node()
        await ask(node, acquire(b"one", b"a"))
        await ask(node, stand(b"1:-0123456789abcdef:1:1000", b"a", tracked=True))
        heard.forget()
        # One request sets the ttl and tracks the key, which can therefore not expire between both.
        renewal = Command(MUTEX.extend, (b"a",), (100, b"one"), tracked=True)
        assert await ask(node, renewal) is ALL_OURS
        await heard.hears_of(b"a")
        assert await looks(node, MUTEX.inspecting((b"a",))) == (FREE,)

    @pytest.mark.parametrize("changed", [b"a", b"b", b"c"])
    async def test_a_waiter_for_several_keys_is_notified_of_a_change_of_each_key(
        self, place: Place, changed: bytes
    ) -> None:
        holder, _ = await place.node()
        waiter, heard = await place.node()
        for key in (b"b", b"c"):
            await ask(holder, acquire(key, key))
        command = stand(b"1:-0123456789abcdef:1:1000", b"a", b"b", b"c", tracked=True, kept=0)
        await ask(waiter, command)
        heard.forget()
        await place.put(changed.decode(), "another", TTL)
        await heard.hears_of(changed)

    async def test_the_answer_to_a_tracked_request_comes_before_its_notifications(
        self, place: Place
    ) -> None:
        holder, _ = await place.node()
        waiter, heard = await place.node()
        for key in (b"%d" % number for number in range(20)):
            await ask(holder, acquire(b"one", key))
            heard.forget()
            looked, released = LateSink(heard), Sink()
            looked.asks(stand(b"1:-0123456789abcdef:1:1000", key, tracked=True))
            released.asks(release(b"one", key))
            waiter.ask(looked, 0)
            holder.ask(released, 0)
            # Else the release was quicker.
            if (await looked.reply()).left > 0:
                assert not looked.late
                await heard.hears_of(key)
            await released.reply()

    async def test_a_connection_is_not_notified_of_its_own_release(self, place: Place) -> None:
        node, heard = await place.node()
        other, other_heard = await place.node()
        await ask(node, acquire(b"one", b"a"))
        for tracking in (node, other):
            assert await ask(tracking, look(b"a")) == KeyStates((KeyState.FOREIGN,))
        heard.forget()
        await ask(node, release(b"one", b"a"))
        await other_heard.hears_of(b"a")
        await ask(node, Command(MUTEX.inspect, (b"b",)))
        assert heard.told.empty()

    async def test_a_renewed_lease_is_notified_when_its_key_is_deleted(self, place: Place) -> None:
        node, heard = await place.node()
        await ask(node, acquire(b"one", b"a"))
        assert (
            await ask(node, Command(MUTEX.extend, (b"a",), (TTL, b"one"), tracked=True)) is ALL_OURS
        )
        heard.forget()
        await place.delete("a")
        await heard.hears_of(b"a")

    async def test_a_tracker_of_a_missing_key_is_notified_when_it_is_set(
        self, place: Place
    ) -> None:
        node, heard = await place.node()
        assert await ask(node, look(b"a")) == KeyStates((KeyState.MISSING,))
        heard.forget()
        await place.put("a", "another", TTL)
        await heard.hears_of(b"a")

    async def test_no_other_command_leaves_a_key_tracked(self, place: Place) -> None:
        node, heard = await place.node()
        other, _ = await place.node()
        await ask(other, acquire(b"one", b"a"))
        for command in (
            acquire(b"two", b"a"),
            acquire(b"two", b"a", b"b"),
            release(b"two", b"a"),
            MUTEX.inspecting((b"a", b"b"), (b"o:a", b"o:b")),
            MUTEX.force_releasing((b"a",), (), 0, (b"two",)),
            Command(MUTEX.extend, (b"a",), (TTL, b"two")),
            Command(MUTEX.watch, (b"a",), (b"two",)),
        ):
            heard.forget()
            await ask(node, command)
            await place.put("a", "another", TTL)
            await place.put("b", "another", TTL)
            await place.delete("b")
            # A message would come before the answer to this request.
            await ask(node, MUTEX.inspecting((b"a",)))
            assert heard.told.empty(), command.script.name

    async def test_a_tracked_command_among_others_of_one_tick_tracks_its_own_keys_alone(
        self, place: Place
    ) -> None:
        node, heard = await place.node()
        commands = [
            acquire(b"one", b"a"),
            look(b"b"),
            acquire(b"one", b"c"),
            MUTEX.inspecting((b"d",)),
            look(b"e"),
        ]
        sinks = [Sink() for _ in commands]
        for sink, command in zip(sinks, commands, strict=True):
            sink.asks(command)
            node.ask(sink, 0)
        missing = KeyStates((KeyState.MISSING,))
        assert [await sink.reply() for sink in sinks] == [
            GRANTED,
            missing,
            GRANTED,
            Looked((FREE,)),
            missing,
        ]
        heard.forget()
        for key in "abcde":
            await place.put(key, "another", TTL)
        await heard.hears_of(b"b")
        await heard.hears_of(b"e")
        assert heard.told.empty()

    async def test_a_message_reaches_its_manager_and_no_other(self, place: Place) -> None:
        node, heard = await place.node()
        other, other_heard = await place.node()
        assert node.messages
        assert node.state().messages
        assert await place.publish(heard.channel, "turn a") == 1
        assert await place.publish(heard.channel, "head a\r\n\0") == 1
        assert await place.publish("aioredlock_ng:nobody", "turn a") == 0
        for node_of_either in (node, other):
            await ask(node_of_either, acquire(b"one", b"a"))
        assert heard.messages == [b"turn a", b"head a\r\n\0"]
        assert other_heard.messages == []

    async def test_a_message_comes_before_the_answer_to_a_later_request(self, place: Place) -> None:
        node, heard = await place.node()
        for number in range(20):
            sink = Sink()
            sink.asks(acquire(b"one", b"%d" % number))
            assert await place.publish(heard.channel, str(number)) == 1
            node.ask(sink, 0)
            assert await sink.reply() is GRANTED
            assert heard.messages[-1] == b"%d" % number

    async def test_a_message_to_a_manager_that_closed_reaches_no_connection(
        self, place: Place
    ) -> None:
        node, heard = await place.node()
        assert await place.publish(heard.channel, "turn a") == 1
        await node.aclose(1.0)
        assert await place.publish(heard.channel, "turn a") == 0
        assert not node.messages

    async def test_after_a_reconnect_messages_arrive_again(self, place: Place) -> None:
        node, heard = await place.node()
        await place.cut()
        async with asyncio.timeout(WITHIN):
            while node.state().connections < 2 or not node.ready:
                await heard.told.get()
        assert await place.publish(heard.channel, "turn a") == 1
        await ask(node, acquire(b"one", b"a"))
        assert heard.messages == [b"turn a"]

    async def test_after_closing_nothing_is_sent(self, place: Place) -> None:
        node, _ = await place.node()
        assert node.ready
        await node.aclose(1.0)
        assert not node.ready
        assert isinstance(await ask(node, acquire(b"one", b"a")), Exception)
        other, _ = await place.node()
        assert await ask(other, acquire(b"two", b"a")) is GRANTED

    async def test_state_names_the_node_and_its_health(self, place: Place) -> None:
        node, _ = await place.node()
        state = node.state()
        assert (state.address, state.state, state.reason) == (node.address, "up", "")
        assert (state.tracking, state.messages) == (True, True)
        assert state.server
        assert state.pending == 0


def refused(reply: Any, words: str) -> bool:
    return isinstance(reply, Refusal) and words in str(reply)
