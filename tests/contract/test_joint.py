"""Calls sent as one are answered like single calls, by every server version.

The failure of one call does not affect the others.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng._core.replies import GRANTED, Granted, KeyState, KeyStates, Quarantined, Released
from aioredlock_ng._core.votes import Unsent, is_held
from aioredlock_ng._nodes.channel import Outbox
from aioredlock_ng._nodes.connect import Connector
from aioredlock_ng._nodes.node import RedisNode
from aioredlock_ng._scripts.exclusive_kinds import FENCES, MARKER_KEY, MUTEX, LockKind
from tests.contract.guarded import BOTH, GUARD, RUN_ID, replaced
from tests.contract.queue import every_kind
from tests.contract.suite import Listener, Sink, ask, look, refused
from tests.support.eventually import eventually
from tests.support.spread import spread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from aioredlock_ng._scripts import Command
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.usefixtures("place")

GONE = Released(1)

TTL = 60_000
"""Longer than a test waits for the deletion of a key, which would otherwise expire."""


class Place:
    """One connection. Requests of one tick are sent together."""

    def __init__(self, nodes: NodeSet) -> None:
        self.server = nodes[0]
        loop = asyncio.get_running_loop()
        self.outbox = Outbox(loop, loop.time, RUN_ID)
        self.node = RedisNode(Connector(self.server.url), self.outbox, 30.0)
        self.heard = Listener()

    async def command(self, *args: Any) -> bytes:
        return await asyncio.to_thread(self.server.command, *map(str, args))

    async def trust(self) -> None:
        await replaced(ask, self.node, b"trusted")

    def together(self, commands: Iterable[Command], *, given_up: Iterable[int] = ()) -> list[Sink]:
        sinks = []
        for index, command in enumerate(commands):
            sink = Sink(stands=index not in set(given_up))
            sink.asks(command)
            self.outbox.ask_all(sink)
            sinks.append(sink)
        return sinks

    async def cut(self, commands: Iterable[Command], *, given_up: Iterable[int]) -> list[Sink]:
        """Ask in one tick, and lose the connection while the server has not answered."""
        self.server.pause()
        sinks = self.together(commands, given_up=given_up)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert self.node._channel is not None
        self.node._channel.close("cut")
        return sinks

    async def gone(self, *keys: str) -> None:
        """Wait until these keys are deleted."""

        async def none_exists() -> bool:
            return await self.command("EXISTS", *keys) == b"0"

        await eventually(none_exists)

    async def calls(self) -> int:
        """Scripts called since the last time this was asked."""
        told = await self.command("INFO", "commandstats")
        await self.command("CONFIG", "RESETSTAT")
        lines = [line for line in told.decode().splitlines() if line.startswith("cmdstat_eval")]
        return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


@pytest.fixture
async def place(node_of_each_version: NodeSet) -> AsyncIterator[Place]:
    node_of_each_version.wipe()
    place = Place(node_of_each_version)
    loop = asyncio.get_running_loop()
    await place.node.open(0, place.heard, loop.time, 10.0)
    yield place
    await place.node.aclose(1.0)


def acquire(
    token: bytes, key: bytes, fence: int = 1, kind: LockKind = MUTEX, slot: bytes = b""
) -> Command:
    return kind.acquiring((key,), (slot or key,), token, b"%d" % TTL, fence)


def release(token: bytes, key: bytes) -> Command:
    return MUTEX.releasing((key,), token, asyncio.get_running_loop().time() + 60)


async def answers(sinks: list[Sink]) -> list[Any]:
    return [await sink.reply() for sink in sinks]


async def test_releases_that_are_sent_together_offer_a_deleted_key_to_its_first_waiter(
    place: Place,
) -> None:
    # A member that begins with "-" polls the nodes, so it needs no connection.
    await place.command("ZADD", "aioredlock_ng:queue:k1", 7, "-abc:1:5000")
    await place.command("SET", "k2", "two")
    sinks = place.together([release(b"one", b"k1"), release(b"two", b"k2")])
    assert await answers(sinks) == [Released(0), Released(1)]
    assert await place.command("GET", "k1") == b"aioredlock_ng:offer:7:-abc:1:5000"


def likened(reply: Any) -> Any:
    """Return the part of a reply that two runs have in common, without the remaining time."""
    return "held" if is_held(reply) else str(reply) if isinstance(reply, Exception) else reply


@every_kind
@spread("seed", range(4))
async def test_each_joined_call_is_answered_as_if_it_had_been_sent_alone(
    place: Place, kind: LockKind, seed: int
) -> None:
    await place.trust()
    rng = random.Random(seed)
    tokens: dict[bytes, list[bytes]] = {}
    for prefix in (b"together", b"alone"):
        await place.command("HSET", (prefix + b"hash").decode(), "field", "1")
    for number in range(40):
        row: list[tuple[str, bytes, bytes, int]] = []
        key = b"k0"
        for at in range(rng.choice((1, 2, 3, 8, 80))):
            if rng.random() < 0.7:
                key = b"k%d" % rng.randrange(12)
            if rng.random() < 0.5 and tokens.get(key):
                row.append(("release", rng.choice(tokens[key]), key, 0))
            else:
                row.append(
                    ("acquire", b"%d-%d" % (number, at), key, number * 100 + rng.randrange(150))
                )
        for how, token, key, _ in row:
            if how == "acquire":
                tokens.setdefault(key, []).append(token)
        if rng.random() < 0.3:
            # A request that is sent again alone comes behind the rest.
            row.sort(key=lambda one: one[0], reverse=True)
            row.append(("acquire", b"%d" % number, b"hash", 1))

        def commands(
            prefix: bytes, row: list[tuple[str, bytes, bytes, int]] = row
        ) -> list[Command]:
            slot = prefix + b"slot"
            return [
                acquire(token, prefix + key, fence, kind, slot)
                if how == "acquire"
                else release(token, prefix + key)
                for how, token, key, fence in row
            ]

        together = await answers(place.together(commands(b"together")))
        alone = [await ask(place.node, command) for command in commands(b"alone")]
        assert list(map(likened, together)) == list(map(likened, alone))
    for key in tokens:
        assert await place.command("GET", f"together{key.decode()}") == await place.command(
            "GET", f"alone{key.decode()}"
        )
    scores = [
        await place.command("ZSCORE", FENCES.decode(), f"{prefix}slot")
        for prefix in ("together", "alone")
    ]
    assert scores[0] == scores[1]


@every_kind
async def test_many_calls_of_one_tick_are_few_commands(place: Place, kind: LockKind) -> None:
    await place.trust()
    await place.calls()
    names = [b"k%d" % index for index in range(64)]
    assert (
        await answers(place.together(acquire(b"one", name, 5, kind) for name in names))
        == [GRANTED] * 64
    )
    assert await place.calls() == 2
    assert await answers(place.together(release(b"one", name) for name in names)) == [GONE] * 64
    assert await place.calls() == 2


async def test_a_node_that_waits_for_longer_leases_than_ours_gets_joined_calls_too(
    place: Place,
) -> None:
    await place.trust()
    own = (await place.command("GET", MARKER_KEY.decode())).decode().partition(":")[0]
    await place.command("SET", MARKER_KEY.decode(), f"{own}:{GUARD + 1}")
    await place.calls()
    assert (
        await answers(place.together(acquire(b"one", name, 5, BOTH) for name in (b"a", b"b")))
        == [GRANTED] * 2
    )
    assert await place.calls() == 1


@spread("found", ["", f"{'0' * 40}:{GUARD}", f"own:{GUARD - 1}", "own:86401001"])
async def test_a_node_that_is_not_trusted_grants_none_of_the_joined_calls(
    place: Place, found: str
) -> None:
    await place.trust()
    own = (await place.command("GET", MARKER_KEY.decode())).decode().partition(":")[0]
    await place.command("DEL", MARKER_KEY.decode())
    if found:
        await place.command("SET", MARKER_KEY.decode(), found.replace("own", own))
    assert (
        await answers(place.together(acquire(b"one", name, 5, BOTH) for name in (b"a", b"b")))
        == [Quarantined(None)] * 2
    )
    assert await place.command("EXISTS", "a", "b") == b"0"


async def test_joined_calls_make_a_node_trusted_whose_wait_is_over(place: Place) -> None:
    await place.trust()
    marker = (await place.command("GET", MARKER_KEY.decode())).decode()
    await place.command("SET", MARKER_KEY.decode(), f"{marker}:1")
    assert (
        await answers(place.together(acquire(b"one", name, 5, BOTH) for name in (b"a", b"b")))
        == [GRANTED] * 2
    )
    assert (await place.command("GET", MARKER_KEY.decode())).decode() == marker


async def test_a_full_server_refuses_each_acquire_in_its_own_words_and_executes_releases(
    place: Place,
) -> None:
    assert (
        await answers(place.together(acquire(b"one", name) for name in (b"a", b"b")))
        == [GRANTED] * 2
    )
    await place.command("CONFIG", "SET", "maxmemory", "1")
    try:
        for reply in await answers(place.together(acquire(b"two", name) for name in (b"c", b"d"))):
            assert isinstance(reply, Exception)
            assert "OOM" in str(reply)
        assert await answers(place.together(release(b"one", name) for name in (b"a", b"b"))) == [
            GONE,
            GONE,
        ]
    finally:
        await place.command("CONFIG", "SET", "maxmemory", "0")
    assert await place.command("EXISTS", "a", "b", "c", "d") == b"0"


async def test_after_a_script_flush_each_call_that_was_not_given_up_is_sent_again(
    place: Place,
) -> None:
    await place.command("SCRIPT", "FLUSH")
    sinks = place.together((acquire(b"one", name) for name in (b"a", b"b", b"c")), given_up=[1])
    first, second, third = await answers(sinks)
    assert (first, third) == (GRANTED, GRANTED)
    assert isinstance(second, Unsent)
    assert await place.command("EXISTS", "a", "c") == b"2"
    assert await place.command("EXISTS", "b") == b"0"


@every_kind
async def test_after_a_script_flush_calls_are_sent_as_one_again(
    place: Place, kind: LockKind
) -> None:
    """Where a user may not load scripts, too."""
    await place.trust()

    async def all_kinds() -> int:
        for commands in (
            [acquire(b"one", b"a", 5, kind), acquire(b"one", b"b", 5, kind)],
            [release(b"one", b"a"), release(b"one", b"b")],
            [acquire(b"two", b"a", 6, kind)],
            [release(b"two", b"a"), acquire(b"three", b"a", 7, kind)],
        ):
            assert await answers(place.together(commands)) == [
                command.read(1) for command in commands
            ]
        calls = await place.calls()
        await place.command("DEL", FENCES.decode(), "a")
        return calls

    await place.command("SCRIPT", "FLUSH")
    await place.command("ACL", "SETUSER", "default", "-script")
    try:
        assert await all_kinds() > 4
        assert await all_kinds() == 4
    finally:
        await place.command("ACL", "SETUSER", "default", "+@all")


async def test_releases_after_a_script_flush_are_executed_and_notified(place: Place) -> None:
    """The repeated releases come behind later requests.

    A caller in between was refused, so it is notified that the key is free.
    """
    assert (
        await answers(place.together(acquire(b"one", name) for name in (b"a", b"b")))
        == [GRANTED] * 2
    )
    await place.command("SCRIPT", "FLUSH")
    await place.command("SCRIPT", "LOAD", MUTEX.acquire.source.decode())
    place.heard.forget()
    sinks = place.together(
        [release(b"one", b"a"), release(b"one", b"b"), acquire(b"two", b"a")], given_up=[0, 1]
    )
    first, second, third = await answers(sinks)
    assert (first, second) == (GONE, GONE)
    assert is_held(third)
    await place.heard.hears_of(b"a")
    assert await place.command("EXISTS", "a", "b") == b"0"


async def test_each_joined_release_that_is_refused_stays_pending_alone(place: Place) -> None:
    """The server stopped writing.

    Each caller gets the refusal. The release is executed when the server writes again.
    """
    assert (
        await answers(place.together(acquire(b"one", name) for name in (b"a", b"b")))
        == [GRANTED] * 2
    )
    await place.command("CONFIG", "SET", "min-replicas-to-write", "1")
    try:
        for reply in await answers(
            place.together([release(b"one", name) for name in (b"a", b"b")], given_up=[0, 1])
        ):
            assert refused(reply, "NOREPLICAS")
        assert place.node.state().owed == 2
    finally:
        await place.command("CONFIG", "SET", "min-replicas-to-write", "0")
    await place.gone("a", "b")


async def test_releases_under_way_on_a_lost_connection_stay_pending_one_by_one(
    place: Place,
) -> None:
    assert (
        await answers(place.together(acquire(b"one", name) for name in (b"a", b"b")))
        == [GRANTED] * 2
    )
    sinks = await place.cut((release(b"one", name) for name in (b"a", b"b")), given_up=[0, 1])
    assert place.node.state().owed == 2
    place.server.resume()
    assert all(isinstance(reply, Exception) for reply in await answers(sinks))
    await place.gone("a", "b")


@every_kind
async def test_a_release_and_the_acquire_behind_it_are_one_command(
    place: Place, kind: LockKind
) -> None:
    await place.trust()
    names = [b"k%d" % index for index in range(20)]
    assert (
        await answers(place.together(acquire(b"one", name, 5, kind) for name in names))
        == [GRANTED] * 20
    )
    await place.calls()
    one = [release(b"one", b"k0"), acquire(b"two", b"k0", 6, kind)]
    assert await answers(place.together(one)) == [GONE, GRANTED]
    assert await place.calls() == 1
    assert await place.command("GET", "k0") == b"two"
    assert int(await place.command("PTTL", "k0")) > TTL / 2
    # Two rows of hand-overs, with other requests between them and around.
    row = [release(b"one", b"k1")]
    for name in names[2:]:
        row += [release(b"one", name), acquire(b"two", name, 6, kind)]
    row += [acquire(b"two", b"k1", 6, kind)]
    assert await answers(place.together(row)) == [GONE, *[GONE, GRANTED] * 18, GRANTED]
    assert await place.calls() == 4, "a release, 16 hand-overs, 2 of them, an acquire"
    for name in names:
        assert await place.command("GET", name.decode()) == b"two"


async def test_a_hand_over_is_fenced(place: Place) -> None:
    await place.trust()
    assert await answers(place.together([acquire(b"one", b"a", 5, BOTH)])) == [GRANTED]
    # Acquires that are not above the counter get the counter, and keep the key.
    row = [
        release(b"one", b"a"),
        acquire(b"two", b"a", 5, BOTH),
        release(b"two", b"a"),
        acquire(b"three", b"a", 6, BOTH),
    ]
    assert await answers(place.together(row)) == [GONE, Granted(5), GONE, GRANTED]
    assert await place.command("GET", "a") == b"three"
    assert await place.command("ZSCORE", FENCES.decode(), "a") == b"6"


@spread("found", ["gone", "another's", "of another type"])
async def test_a_key_no_longer_held_is_not_handed_over_and_does_not_stop_other_hand_overs(
    place: Place, found: str
) -> None:
    assert (
        await answers(place.together(acquire(b"one", name) for name in (b"a", b"b", b"c")))
        == [GRANTED] * 3
    )
    await place.command("DEL", "b")
    if found == "another's":
        await place.command("SET", "b", "theirs")
    elif found == "of another type":
        await place.command("HSET", "b", "field", "1")
    await place.calls()
    names = (b"a", b"b", b"c")
    handed = [
        command for name in names for command in (release(b"one", name), acquire(b"two", name))
    ]
    said = list(map(likened, await answers(place.together(handed))))
    assert [*said[:3], *said[4:]] == [GONE, GRANTED, Released(0), GONE, GRANTED]
    assert await place.command("GET", "a") == await place.command("GET", "c") == b"two"
    assert await place.calls() == (5 if found == "of another type" else 1), (
        "an error ends it: four are asked alone"
    )
    if found == "gone":
        assert said[3] is GRANTED
        assert await place.command("GET", "b") == b"two"
    elif found == "another's":
        assert said[3] == "held"
        assert await place.command("GET", "b") == b"theirs"
    else:
        assert "WRONGTYPE" in str(said[3])
        assert await place.command("TYPE", "b") == b"hash"


@spread("found", ["", "own:86401001"])
async def test_a_node_that_is_not_trusted_gives_up_keys_and_takes_none(
    place: Place, found: str
) -> None:
    await place.trust()
    own = (await place.command("GET", MARKER_KEY.decode())).decode().partition(":")[0]
    assert await answers(place.together([acquire(b"one", b"a", 5, BOTH)])) == [GRANTED]
    await place.command("DEL", MARKER_KEY.decode())
    if found:
        await place.command("SET", MARKER_KEY.decode(), found.replace("own", own))
    assert await answers(
        place.together([release(b"one", b"a"), acquire(b"two", b"a", 6, BOTH)])
    ) == [GONE, Quarantined(None)]
    assert await place.command("EXISTS", "a") == b"0"


async def test_an_unusable_counter_refuses_the_acquire_of_a_hand_over_and_not_its_release(
    place: Place,
) -> None:
    await place.trust()
    assert await answers(place.together([acquire(b"one", b"a", 5, BOTH)])) == [GRANTED]
    await place.command("SET", FENCES.decode(), "text")
    first, second = await answers(
        place.together([release(b"one", b"a"), acquire(b"two", b"a", 6, BOTH)])
    )
    assert first == GONE
    assert "WRONGTYPE" in str(second)
    assert await place.command("EXISTS", "a") == b"0"


async def test_a_full_server_hands_over(place: Place) -> None:
    """It needs no more memory for that; one by one, it would refuse the second."""
    assert await answers(place.together([acquire(b"one", b"a")])) == [GRANTED]
    await place.command("CONFIG", "SET", "maxmemory", "1")
    try:
        assert await answers(place.together([release(b"one", b"a"), acquire(b"two", b"a")])) == [
            GONE,
            GRANTED,
        ]
    finally:
        await place.command("CONFIG", "SET", "maxmemory", "0")
    assert await place.command("GET", "a") == b"two"


async def test_a_hand_over_that_was_not_executed_sets_no_key_for_a_caller_that_gave_up(
    place: Place,
) -> None:
    assert await answers(place.together([acquire(b"one", b"a")])) == [GRANTED]
    await place.command("SCRIPT", "FLUSH")
    place.heard.forget()
    first, second = await answers(
        place.together([release(b"one", b"a"), acquire(b"two", b"a")], given_up=[0, 1])
    )
    assert first == GONE
    assert isinstance(second, Unsent)
    await place.heard.hears_of(b"a")
    assert await place.command("EXISTS", "a") == b"0"


async def test_a_hand_over_under_way_on_a_lost_connection_leaves_its_release_pending(
    place: Place,
) -> None:
    assert await answers(place.together([acquire(b"one", b"a")])) == [GRANTED]
    sinks = await place.cut([release(b"one", b"a"), acquire(b"two", b"a")], given_up=[0])
    assert place.node.state().owed == 1
    place.server.resume()
    assert all(isinstance(reply, Exception) for reply in await answers(sinks))


async def test_a_tracker_on_another_connection_is_notified_of_a_hand_over(place: Place) -> None:
    other = Listener()
    node = RedisNode(
        Connector(place.server.url),
        Outbox(asyncio.get_running_loop(), place.outbox.clock, RUN_ID),
        30.0,
    )
    await node.open(0, other, place.outbox.clock, 10.0)
    try:
        assert await answers(place.together([acquire(b"one", b"a")])) == [GRANTED]
        assert await ask(node, look(b"a")) == KeyStates((KeyState.FOREIGN,))
        other.forget()
        assert await answers(place.together([release(b"one", b"a"), acquire(b"two", b"a")])) == [
            GONE,
            GRANTED,
        ]
        await other.hears_of(b"a")
    finally:
        await node.aclose(1.0)


async def test_hurried_calls_leave_first_and_later_calls_of_the_tick_leave_as_one(
    place: Place,
) -> None:
    assert await answers(place.together([acquire(b"one", b"a")])) == [GRANTED]
    await place.calls()
    handed = place.together([release(b"one", b"a"), acquire(b"two", b"a")])
    place.outbox.hurry()
    assert place.node.state().pending == 1
    behind = []
    for name in (b"b", b"c"):
        behind += place.together([acquire(b"one", name)])
        place.outbox.hurry()
    assert place.node.state().pending == 1, "hurried once in this tick"
    assert await answers([*handed, *behind]) == [GONE, GRANTED, GRANTED, GRANTED]
    assert await place.calls() == 2
    again = place.together([release(b"two", b"a")])
    place.outbox.hurry()
    assert place.node.state().pending == 1, "that was another tick"
    assert await answers(again) == [GONE]


async def test_a_node_that_missed_a_hand_over_that_was_given_up_takes_part_in_the_next(
    place: Place,
) -> None:
    """It lags, and the others have decided meanwhile: it would stay behind from one holder to the
    next.
    """
    await place.command("SET", "a", "theirs")
    row = [release(b"one", b"a"), acquire(b"two", b"a")]
    assert likened((await answers(place.together(row, given_up=[0, 1])))[1]) == "held"
    await place.command("DEL", "a")
    row = [
        release(b"two", b"a"),
        acquire(b"three", b"a"),
        release(b"three", b"a"),
        acquire(b"four", b"a"),
    ]
    assert await answers(place.together(row, given_up=[0, 1, 2, 3])) == [
        Released(0),
        GRANTED,
        GONE,
        GRANTED,
    ]
    assert await place.command("GET", "a") == b"four"
