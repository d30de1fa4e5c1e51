"""The behaviour of every kind of node with fences and markers.

Part of the contract in `suite.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.replies import (
    ALL_OURS,
    BROKEN_COUNTER,
    GRANTED,
    Fenced,
    ForceReleased,
    Granted,
    MarkerRead,
    Quarantined,
    Refused,
    Repaired,
    Unacknowledged,
)
from aioredlock_ng._core.votes import is_held
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.catalogue import MARKER
from aioredlock_ng._scripts.exclusive_kinds import FENCES, MARKER_KEY, guarded_mutex
from tests.support.spread import spread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioredlock_ng._nodes.port import Node
    from tests.contract.suite import Place

__all__ = ["RUN_ID", "GuardedContract", "arguments", "replaced"]

RUN_ID = b"f" * 32 + b"whosever"
"""Stands for the run_id of the node's own process."""

GUARD = 60_000
TTL = 30_000

BOTH = guarded_mutex(fencing=True, own_marker=b"%b:%d" % (RUN_ID, GUARD))
FENCED = guarded_mutex(fencing=True, own_marker=b"")
GUARDED = guarded_mutex(fencing=False, own_marker=b"%b:%d" % (RUN_ID, GUARD))


def acquire(
    token: bytes, fence: int, *keys: bytes, kind: Any = FENCED, tell: bool = False
) -> Command:
    command: Command = kind.acquiring(keys, keys, token, b"%d" % TTL, fence, tell_counter=tell)
    return command


def confirm(token: bytes, fence: int, *keys: bytes) -> Command:
    return FENCED.confirming(keys, keys, token, fence)


def repair(token: bytes, fence: int, *keys: bytes) -> Command:
    return BOTH.repairing_of(keys, keys, token, TTL, fence)


def marker(
    become: bytes = b"read",
    was: bytes = b"",
    read_at: int = 0,
    own_marker: bytes = b"",
    nonce: bytes = b"n",
) -> Command:
    return Command(
        MARKER,
        (MARKER_KEY,),
        (become, was, read_at, own_marker or b"%b:%d" % (RUN_ID, GUARD), nonce),
    )


async def replaced(
    ask: Callable[[Node, Command], Awaitable[Any]],
    node: Node,
    become: bytes,
    was: bytes | None = None,
    **words: bytes,
) -> MarkerRead:
    """Ask a node to replace its marker, and return the answer to a request that came in time.

    A node refuses the request if it comes more than a second after the reading. On a slow machine
    this may happen, and the node's own time shows it. Both are then done again.

    Args:
        was: The marker to be replaced. None stands for the marker that the node returned.
    """
    while True:
        read = await ask(node, marker())
        said = read.marker if was is None else was
        reply = await ask(node, marker(become, said, read.node_ms, **words))
        assert isinstance(reply, MarkerRead)
        if reply.node_ms - read.node_ms <= 1000:
            return reply
        assert reply.marker == read.marker


def arguments(script: str) -> tuple[tuple[bytes, ...], tuple[Any, ...]]:
    """Keys and arguments with which a script of this name can be called."""
    own_marker = b"%b:%d" % (RUN_ID, GUARD)
    both = {
        "acquire_guarded": (
            (b"a", MARKER_KEY, FENCES),
            (b"one", TTL, own_marker, 1, b"", b"", b"a"),
        ),
        "confirm": ((b"a", FENCES), (b"one", 1, b"a")),
        "repair": ((b"a", MARKER_KEY, FENCES), (b"one", TTL, own_marker, 1, b"a")),
        "marker": ((MARKER_KEY,), (b"read", b"", 0, own_marker, b"")),
        "acquire": ((b"a",), (b"one", TTL)),
        "acquire_each": ((b"a", b"b"), (0, b"", b"one", TTL, b"two", TTL)),
        "release_each": ((b"a",), (b"one",)),
        "retire": ((b"a",), (b"one", TTL, b"")),
        "hand_over_each": ((b"a",), (0, b"", b"one", b"two", TTL)),
        "extend": ((b"a",), (TTL, b"one")),
        "release": ((b"a",), (b"one",)),
        "watch": ((b"a",), (b"one",)),
        "force_release": ((b"a",), (1, 0, b"one")),
        "stand": ((b"a",), (b"1:member", 1000, 1000)),
        "stand_slots": ((b"a#1", b"a#2"), (b"1:member", 1000)),
        "leave": ((b"a",), (b"member",)),
        "acquire_read": ((b"b", MARKER_KEY, FENCES), (b"one", TTL, own_marker, b"b", b"")),
        "confirm_read": ((b"b", FENCES), (b"one", 1, b"b")),
        "extend_read": ((b"b", FENCES), (TTL, b"one", b"", b"b")),
        "watch_read": ((b"b",), (b"one",)),
        "release_read": ((b"b",), (b"one",)),
        "repair_read": ((b"b", MARKER_KEY, FENCES), (b"one", TTL, own_marker, 1, b"b")),
        "stand_read": ((b"b",), (b"1:member", 1000)),
    }
    return both.get(script, ((b"a",), ()))


class GuardedContract:
    """Subclasses have a fixture `place`, and `ask`."""

    async def ask(self, node: Node, command: Command) -> Any:
        raise NotImplementedError

    async def mark(self, node: Node, command: Command) -> tuple[bytes, int, bytes]:
        """The marker, the node's time and its own word."""
        reply = await self.ask(node, command)
        assert isinstance(reply, MarkerRead)
        return reply.marker, reply.node_ms, reply.own_marker

    async def trusted(self, node: Node) -> bytes:
        """Make the node trusted; returns its own word."""
        return (await replaced(self.ask, node, b"trusted")).own_marker

    async def test_a_fence_is_acknowledged_only_strictly_above_the_counter(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        for fence, answer in ((10, GRANTED), (10, Granted(10)), (9, Granted(10)), (11, GRANTED)):
            assert await self.ask(node, acquire(b"t%d" % fence, fence, b"a")) == answer
            await place.delete("a")

    async def test_an_acquire_returns_the_highest_counter_that_its_fence_replaces(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        assert await self.ask(node, acquire(b"one", 16, b"a", tell=True)) == Fenced(15)
        assert await self.ask(node, acquire(b"two", 32, b"b", tell=True)) == Fenced(31)
        await place.delete("a")
        await place.delete("b")
        assert await self.ask(node, acquire(b"three", 48, b"a", b"b", tell=True)) == Fenced(32)
        assert is_held(await self.ask(node, acquire(b"four", 64, b"a", tell=True)))
        await place.delete("a")
        assert await self.ask(node, acquire(b"five", 48, b"a", tell=True)) == Granted(48), (
            "it replaces none"
        )

    async def test_a_held_key_is_refused_and_changes_no_counter(self, place: Place) -> None:
        node, _ = await place.node()
        await self.ask(node, acquire(b"one", 10, b"a"))
        refusal = await self.ask(node, acquire(b"two", 99, b"a"))
        assert refusal == Refused(refusal.left, place=1, ticket=0)
        assert 0 < refusal.left <= TTL / 1000
        await place.delete("a")
        assert await self.ask(node, acquire(b"three", 11, b"a")) is GRANTED, "99 was not stored"

    async def test_of_several_keys_the_first_that_is_held_is_named(self, place: Place) -> None:
        node, _ = await place.node()
        await self.ask(node, acquire(b"one", 10, b"b", b"c"))
        refusal = await self.ask(node, acquire(b"two", 99, b"a", b"b", b"c"))
        assert refusal == Refused(refusal.left, place=2, ticket=0)
        assert 0 < refusal.left <= TTL / 1000

    async def test_several_keys_have_one_fence_above_all_their_counters(self, place: Place) -> None:
        node, _ = await place.node()
        assert await self.ask(node, acquire(b"one", 10, b"a")) is GRANTED
        assert await self.ask(node, acquire(b"two", 20, b"b")) is GRANTED
        await place.delete("a")
        await place.delete("b")
        assert await self.ask(node, acquire(b"three", 15, b"a", b"b")) == Granted(20)
        assert await self.ask(node, confirm(b"three", 21, b"a", b"b")) is GRANTED
        await place.delete("a")
        assert await self.ask(node, acquire(b"four", 21, b"a")) == Granted(21)

    async def test_a_confirmation_needs_the_token_and_a_greater_fence(self, place: Place) -> None:
        node, _ = await place.node()
        await self.ask(node, acquire(b"one", 10, b"a"))
        assert await self.ask(node, confirm(b"two", 99, b"a")) == Unacknowledged(0)
        assert await self.ask(node, confirm(b"one", 10, b"a")) == Unacknowledged(10)
        assert await self.ask(node, confirm(b"one", 11, b"a")) is GRANTED
        await place.delete("a")
        assert await self.ask(node, confirm(b"one", 12, b"a")) == Unacknowledged(0)

    async def test_without_a_marker_nothing_is_granted(self, place: Place) -> None:
        node, _ = await place.node()
        assert await self.ask(node, acquire(b"one", 1, b"a", kind=GUARDED)) == Quarantined(None)
        await self.trusted(node)
        assert await self.ask(node, acquire(b"one", 1, b"a", kind=GUARDED)) is GRANTED
        await place.flush()
        assert await self.ask(node, acquire(b"two", 2, b"a", kind=BOTH)) == Quarantined(None)

    async def test_a_quarantined_node_still_refuses_a_held_key_as_held(self, place: Place) -> None:
        node, _ = await place.node()
        await place.put("a", "other", TTL)
        assert isinstance(await self.ask(node, acquire(b"one", 1, b"a", kind=BOTH)), Refused)

    @spread("kind", [b"waiting", b"founding"], ids=bytes.decode)
    async def test_a_waiting_node_reports_the_rest_of_its_wait(
        self, place: Place, kind: bytes
    ) -> None:
        node, _ = await place.node()
        written = await replaced(self.ask, node, kind)
        parts = written.marker.split(b":")
        assert parts[0] == written.own_marker.split(b":")[0]
        assert int(parts[1]) == GUARD
        assert int(parts[2]) == written.node_ms + GUARD + 1000
        assert parts[3:] == ([b"n"] if kind == b"founding" else [])
        refusal = await self.ask(node, acquire(b"one", 1, b"a", kind=BOTH))
        assert isinstance(refusal, Quarantined)
        assert refusal.left is not None
        assert GUARD - 3000 < refusal.left * 1000 <= GUARD + 1000

    async def test_a_node_whose_ready_time_has_come_is_trusted(self, place: Place) -> None:
        node, _ = await place.node()
        own = await self.trusted(node)
        await place.put(MARKER_KEY.decode(), f"{own.decode()}:1", 600_000)
        assert await self.ask(node, acquire(b"one", 1, b"a", kind=BOTH)) is GRANTED
        assert (await self.mark(node, marker()))[0] == own

    async def test_the_marker_of_another_process_does_not_count(self, place: Place) -> None:
        node, _ = await place.node()
        await place.put(MARKER_KEY.decode(), f"{'0' * 40}:{GUARD}", 600_000)
        assert await self.ask(node, acquire(b"one", 1, b"a", kind=BOTH)) == Quarantined(None)

    async def test_a_guard_time_too_short_for_the_voter_does_not_count(self, place: Place) -> None:
        node, _ = await place.node()
        own = await self.trusted(node)
        process = own.split(b":")[0].decode()
        await place.put(MARKER_KEY.decode(), f"{process}:{GUARD - 1}", 600_000)
        assert await self.ask(node, acquire(b"one", 1, b"a", kind=BOTH)) == Quarantined(None)
        await place.put(MARKER_KEY.decode(), f"{process}:{GUARD + 1}", 600_000)
        assert await self.ask(node, acquire(b"one", 1, b"a", kind=BOTH)) is GRANTED

    @spread("rest", [":", "x", ":abc", "::n", ":5x", ":1:n:m", f":{10**17}"])
    async def test_a_marker_that_only_begins_like_a_marker_does_not_count(
        self, place: Place, rest: str
    ) -> None:
        node, _ = await place.node()
        own = await self.trusted(node)
        await place.put(MARKER_KEY.decode(), own.decode() + rest, 600_000)
        assert await self.ask(node, acquire(b"one", 1, b"a", kind=BOTH)) == Quarantined(None)
        assert await self.ask(node, repair(b"one", 5, b"a")) is Repaired.UNTRUSTED

    async def test_a_guard_time_above_a_day_and_a_second_is_none(self, place: Place) -> None:
        node, _ = await place.node()
        process = (await self.trusted(node)).split(b":")[0].decode()
        for damaged in (86_401_001, 10**15):
            await place.put(MARKER_KEY.decode(), f"{process}:{damaged}", 600_000)
            assert await self.ask(node, acquire(b"one", 1, b"a", kind=BOTH)) == Quarantined(None)
            assert await self.ask(node, repair(b"one", 5, b"a")) is Repaired.UNTRUSTED
        await place.put(MARKER_KEY.decode(), f"{process}:86401000", 600_000)
        assert await self.ask(node, acquire(b"one", 1, b"a", kind=BOTH)) is GRANTED

    async def test_a_client_that_has_read_a_trusted_marker_can_make_it_wait(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        own = await self.trusted(node)
        waiting = (await replaced(self.ask, node, b"waiting", own_marker=own)).marker
        assert waiting.startswith(own + b":")
        assert waiting.count(b":") == 2
        refusal = await self.ask(node, acquire(b"one", 1, b"a", kind=BOTH))
        assert isinstance(refusal, Quarantined)
        assert refusal.left is not None
        assert refusal.left > 0

    async def test_a_marker_is_replaced_only_while_it_is_as_it_was_read(self, place: Place) -> None:
        node, _ = await place.node()
        founding = (await replaced(self.ask, node, b"founding", b"", nonce=b"mine")).marker
        assert founding.endswith(b":mine")
        for become, was in ((b"founding", b""), (b"trusted", founding[:-1] + b"x")):
            kept = await replaced(self.ask, node, become, was, nonce=b"yours")
            assert kept.marker == founding
        trusted = await replaced(self.ask, node, b"trusted", founding)
        assert trusted.marker.count(b":") == 1

    async def test_a_waiting_node_is_not_trusted_before_it_is_ready(self, place: Place) -> None:
        node, _ = await place.node()
        waiting = await replaced(self.ask, node, b"waiting")
        assert (await replaced(self.ask, node, b"trusted")).marker == waiting.marker
        over = b"%b:%d" % (waiting.own_marker, waiting.node_ms - 1)
        await place.put(MARKER_KEY.decode(), over.decode(), 600_000)
        assert (await replaced(self.ask, node, b"trusted", over)).marker == waiting.own_marker

    @spread("late", [-1500, 1500])
    async def test_a_marker_that_was_read_more_than_a_second_ago_decides_nothing(
        self, place: Place, late: int
    ) -> None:
        node, _ = await place.node()
        was, now, _ = await self.mark(node, marker())
        value, at, _ = await self.mark(node, marker(b"trusted", was, now + late))
        # While a slow machine pauses, a time that was too late comes true.
        assert (value == b"") == (abs(at - now - late) > 1000)

    async def test_a_marker_names_the_process_that_was_read_and_not_the_present_one(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        earlier = b"%b:%d" % (await self.earlier_process(place), GUARD)
        assert (await replaced(self.ask, node, b"trusted", own_marker=earlier)).marker == earlier
        assert await self.ask(node, acquire(b"one", 1, b"a", kind=BOTH)) == Quarantined(None)

    async def earlier_process(self, place: Place) -> bytes:
        return b"0123456789" * 4

    async def test_a_repair_sets_missing_keys_and_lifts_the_counter(self, place: Place) -> None:
        node, _ = await place.node()
        await self.trusted(node)
        assert await self.ask(node, repair(b"one", 5, b"a", b"b")) is Repaired.DONE
        assert await self.ask(node, confirm(b"one", 5, b"a", b"b")) == Unacknowledged(5)
        assert await self.ask(node, repair(b"one", 7, b"a", b"b")) is Repaired.DONE
        assert await self.ask(node, confirm(b"one", 7, b"a", b"b")) == Unacknowledged(7)

    async def test_a_repair_sets_no_key_that_another_holds_or_has_a_higher_fence_for(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        await self.trusted(node)
        await place.put("a", "other", TTL)
        assert await self.ask(node, repair(b"one", 5, b"a", b"b")) is Repaired.OUTRUN
        await place.delete("a")
        await self.ask(node, acquire(b"two", 9, b"a", kind=BOTH))
        await place.delete("a")
        assert await self.ask(node, repair(b"one", 5, b"a")) is Repaired.OUTRUN
        assert await self.ask(node, acquire(b"three", 10, b"a", b"b", kind=BOTH)) is GRANTED, (
            "no key was set"
        )

    async def test_a_key_that_is_released_by_force_is_not_repaired(self, place: Place) -> None:
        node, _ = await place.node()
        await self.trusted(node)
        for key, fence, forced, counter in (
            (b"a", 10, 5, 11),
            (b"b", 20, 25, 25),
            (b"c", 2**52, 1, 2**52 + 1),
        ):
            assert await self.ask(node, acquire(b"one", fence, key, kind=BOTH)) is GRANTED
            assert await self.ask(
                node, BOTH.force_releasing((key,), (key,), forced, (b"one",))
            ) == ForceReleased(1)
            assert await self.ask(node, repair(b"one", fence, key)) is Repaired.OUTRUN
            assert await self.ask(node, acquire(b"two", counter, key, kind=BOTH)) == Granted(
                counter
            )

    async def test_a_refused_force_release_raises_no_counter(self, place: Place) -> None:
        node, _ = await place.node()
        await place.keep("a", "one")
        refusal = await self.ask(node, FENCED.force_releasing((b"a",), (b"a",), 50, (b"one",)))
        assert str(refusal).startswith("NOTALOCK")
        await place.delete("a")
        assert await self.ask(node, acquire(b"two", 10, b"a")) is GRANTED

    async def test_a_repair_waits_for_a_quarantined_node(self, place: Place) -> None:
        node, _ = await place.node()
        assert await self.ask(node, repair(b"one", 5, b"a")) is Repaired.UNTRUSTED
        await replaced(self.ask, node, b"waiting")
        assert await self.ask(node, repair(b"one", 5, b"a")) is Repaired.UNTRUSTED

    async def test_a_forced_release_leaves_a_counter_beyond_all_clocks_and_does_not_spread_it(
        self, place: Place
    ) -> None:
        node, _ = await place.node()
        await self.trusted(node)
        for key, beside, beyond in ((b"a", b"b", 2**53), (b"c", b"d", 2**60)):
            for name, fence in ((key, beyond), (beside, 10)):
                assert await self.ask(node, acquire(b"one", fence, name, kind=BOTH)) is GRANTED
            assert await self.ask(
                node, BOTH.force_releasing((key, beside), (key, beside), 5, (b"one",))
            ) == ForceReleased(2)
            assert await self.ask(node, repair(b"one", 10, key)) is Repaired.OUTRUN
            assert await self.ask(node, acquire(b"two", 10, key, kind=BOTH)) == BROKEN_COUNTER
            assert await self.ask(node, acquire(b"two", 10, beside, kind=BOTH)) == Granted(11)

    async def test_connections_are_not_notified_of_each_others_fences(self, place: Place) -> None:
        node, heard = await place.node()
        other, _ = await place.node()
        await self.ask(node, acquire(b"one", 10, b"a"))
        await self.ask(node, confirm(b"one", 11, b"a"))
        assert await self.ask(node, FENCED.watching((b"a",), (b"one",))) is ALL_OURS
        await self.ask(other, acquire(b"two", 12, b"b"))
        heard.forget()
        await self.ask(other, acquire(b"three", 13, b"c"))
        await place.put("a", "other", TTL)
        async with asyncio.timeout(30):
            keys = await heard.told.get()
        assert keys == [b"a"], "the first that is heard of is the key, not the counters"
