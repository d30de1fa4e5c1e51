"""Readers and writers: every server answers as the in-memory node does, remaining times aside.

Rows of docs/model.md.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.queue_formats import claim_of, member_of
from aioredlock_ng._core.replies import (
    ALL_OURS,
    FREE,
    GRANTED,
    LEFT,
    ForceReleased,
    Free,
    Granted,
    Held,
    KeyState,
    KeyStates,
    Looked,
    MarkerRead,
    Quarantined,
    Reader,
    ReadLocked,
    Refused,
    Repaired,
    Standing,
    Unacknowledged,
    released,
)
from aioredlock_ng._scripts.exclusive_kinds import guarded_mutex
from aioredlock_ng._scripts.node_requests import (
    leaving,
    reading_marker,
    replacing_marker,
    standing,
    standing_to_read,
)
from aioredlock_ng._scripts.reader_kind import read_side
from tests.contract.guarded import BOTH
from tests.contract.test_sets_in_queues import Asked, Both, both
from tests.support.spread import spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioredlock_ng._core.replies import KeyLook
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng._scripts import Command

__all__ = ["both"]

# The random steps below run the same scripts on each version.
pytestmark = pytest.mark.versions("one")

every_version = pytest.mark.versions("all")
"""For large counters, markers and repairs, which the random steps do not have."""

TTL = 20_000
BRIEF = 100
K = (b"k",)
WRITING = guarded_mutex(fencing=True, own_marker=b"")
READING = read_side(WRITING)
TRUSTED_READING = read_side(BOTH)
# The manager `d` is that of the test's connections. No client is connected as `7`.
MANAGERS = {"a": b"a" * 16, "b": b"b" * 16, "d": b"d" * 16, "7": b"7" * 16}
OURS, MISSING, FOREIGN = KeyState.OURS, KeyState.MISSING, KeyState.FOREIGN


def reader(manager: str, *, notified: bool = False) -> bytes:
    return member_of(MANAGERS[manager], 1, 20.0, notified=notified, reader=True)


def writer(manager: str, *, notified: bool = False) -> bytes:
    return member_of(MANAGERS[manager], 2, 20.0, notified=notified)


ONE, TWO, LIVE, DEAD = (
    reader("a"),
    reader("b"),
    reader("d", notified=True),
    reader("7", notified=True),
)
WRITER, SECOND, LIVE_WRITER, DEAD_WRITER = (
    writer("a"),
    writer("b"),
    writer("d", notified=True),
    writer("7", notified=True),
)


def entry(name: str, manager: str = "a") -> bytes:
    """Return the token of a read lease, which is its entry as well."""
    return b"%b:%b" % (name.encode() * 32, MANAGERS[manager])


A, B, C = entry("a"), entry("b"), entry("c")


def read(token: bytes, *, ttl: int = TTL, claim: bytes = b"") -> Command:
    return READING.acquiring(K, (b"1",), token, b"%d" % ttl, 0, claim)


def write(token: bytes, fence: int = 16, claim: bytes = b"") -> Command:
    return WRITING.acquiring(K, (b"1",), token, b"%d" % TTL, fence, claim)


def end_reading(token: bytes) -> Command:
    return READING.releasing(K, token, None)


def end_writing(token: bytes) -> Command:
    return WRITING.releasing(K, token, None)


def renew(*tokens: bytes, ttl: int = TTL) -> Command:
    return READING.extending(K * len(tokens), tokens, ttl)


def downgrade(token: bytes, fence: int) -> Command:
    return READING.extending(K, (token,), TTL, ((fence, b"1"),))


def confirm(token: bytes, fence: int) -> Command:
    return READING.confirming(K, (b"1",), token, fence)


def stand_to_read(member: bytes, ticket: int) -> Command:
    return standing_to_read(K, claim_of(ticket, member), TTL)


def stand_to_write(member: bytes, ticket: int) -> Command:
    return standing(K, claim_of(ticket, member), TTL, TTL)


async def look(both: Both) -> KeyLook:
    (found,) = (await both.ask(READING.inspecting(K))).keys
    return found  # type: ignore[no-any-return]


async def readers(both: Both) -> list[bytes]:
    """Return the tokens of the read leases. Fail if a writer has the key."""
    found = await look(both)
    assert isinstance(found, (Free, ReadLocked)), found
    return [one.token for one in found.readers] if isinstance(found, ReadLocked) else []


async def waiting(both: Both) -> int | None:
    (found,) = (await both.ask(READING.inspecting(K, queues=True))).keys
    return found.waiting  # type: ignore[no-any-return]


async def ask(node: Node, command: Command) -> Any:
    """Ask one of the two nodes, if the answer contains times."""
    asked = Asked(command)
    node.ask(asked, 0)
    async with asyncio.timeout(30):
        return await asked.future


async def mark(node: Node, become: bytes) -> None:
    """Replace the marker of a node.

    A node refuses this if it comes more than a second after the reading. On a slow machine this may
    happen, and the node's own time shows it. Both are then done again.
    """
    late = True
    while late:
        found = await ask(node, reading_marker(BOTH.own_marker))
        assert isinstance(found, MarkerRead)
        written = await ask(
            node, replacing_marker(become, found.marker, found.node_ms, found.own_marker, b"n")
        )
        late = written.node_ms - found.node_ms > 1000
        assert not late or written.marker == found.marker


async def trust(node: Node) -> None:
    await mark(node, b"trusted")


# -- The steps, row by row ------------------------------------------------------------------------


async def test_several_readers_have_the_key_and_a_writer_is_refused(both: Both) -> None:
    assert await both.ask(read(A)) == Granted(15)
    assert await both.ask(read(B)) == Granted(15)
    assert await readers(both) == [A, B]
    assert await both.ask(write(b"w")) == Refused(1.0, 1, 0)
    assert await both.acquire(b"w", b"k") == Refused(1.0, 1, 0)


async def test_a_writer_keeps_readers_out(both: Both) -> None:
    assert await both.ask(write(b"w")) is GRANTED
    assert await both.ask(read(A)) == Refused(1.0, 1, 0)
    assert await look(both) == Held(1.0, b"w")


async def test_a_set_of_names_is_refused_because_of_readers_and_sets_nothing(both: Both) -> None:
    await both.ask(read(A))
    assert await both.acquire(b"w", b"a", b"k", b"z") == Refused(1.0, 2, 0)
    assert await both.ask(READING.inspecting((b"a", b"z"))) == Looked((FREE, FREE))


@every_version
async def test_a_reader_gets_the_last_number_of_the_block_of_the_last_writer(both: Both) -> None:
    await both.ask(write(b"w", 160))
    await both.ask(end_writing(b"w"))
    assert await both.ask(read(A)) == Granted(175)
    await both.ask(end_reading(A))
    assert await both.ask(write(b"w", 175)) == Granted(175), "the counter was raised with the entry"


async def test_without_fencing_a_reader_gets_no_counter(both: Both) -> None:
    kind = read_side(guarded_mutex(fencing=False, own_marker=b""))
    assert await both.ask(kind.acquiring(K, (b"1",), A, b"%d" % TTL, 0)) is GRANTED


@every_version
async def test_a_reader_confirms_a_fence_that_is_not_below_the_counter(both: Both) -> None:
    await both.ask(read(A))
    assert await both.ask(confirm(A, 31)) is GRANTED
    assert await both.ask(confirm(A, 31)) is GRANTED, "readers may have the same fence"
    assert await both.ask(confirm(A, 15)) == Unacknowledged(31)
    assert await both.ask(confirm(B, 47)) == Unacknowledged(0)
    await both.ask(end_reading(A))
    assert await both.ask(confirm(A, 47)) == Unacknowledged(0)
    await both.ask(write(A, 32))
    assert await both.ask(confirm(A, 47)) == Unacknowledged(0), "a writer's token is no entry"


async def test_a_writer_confirms_no_fence_while_readers_have_the_key(both: Both) -> None:
    await both.ask(read(A))
    assert await both.ask(WRITING.confirming(K, (b"1",), A, 48)) == Unacknowledged(0)
    assert await both.ask(WRITING.extending(K, (A,), TTL)) == KeyStates((MISSING,))
    assert await both.ask(WRITING.watching(K, (A,))) == KeyStates((MISSING,))


async def test_renewals_and_watches_know_own_entries_and_writers(both: Both) -> None:
    await both.ask(read(A))
    await both.ask(write(b"w"))
    assert await both.ask(renew(A)) is ALL_OURS
    assert await both.ask(renew(A, B)) == KeyStates((OURS, MISSING))
    assert await both.ask(READING.watching(K, (A,))) is ALL_OURS
    assert await both.ask(READING.watching(K * 2, (B, A))) == KeyStates((MISSING, OURS))
    await both.ask(end_reading(A))
    assert await both.ask(renew(A)) == KeyStates((MISSING,))
    await both.ask(write(b"w", 32))
    assert await both.ask(renew(A)) == KeyStates((FOREIGN,))
    assert await both.ask(READING.watching(K, (A,))) == KeyStates((FOREIGN,))


async def test_the_life_of_an_entry_is_never_shortened(both: Both) -> None:
    """Several leases of a process share one entry, and may have different ttls."""
    await both.ask(read(A, ttl=60_000))
    assert await both.ask(renew(A, ttl=BRIEF)) is ALL_OURS
    await both.ask(read(B, ttl=BRIEF))
    await asyncio.sleep(2 * BRIEF / 1000)
    for node in both.nodes:
        ((found),) = (await ask(node, READING.inspecting(K))).keys
        assert [one.token for one in found.readers] == [A], "each entry has an expiry of its own"
        assert 50 < found.readers[0].remaining <= 60
        assert 50 < found.remaining <= 60, "the key expires with its latest entry"


async def test_an_expired_entry_is_missing_though_others_keep_the_key(both: Both) -> None:
    await both.ask(read(A))
    await both.ask(read(B, ttl=BRIEF))
    await asyncio.sleep(2 * BRIEF / 1000)
    assert await readers(both) == [A]
    assert await both.ask(READING.watching(K, (B,))) == KeyStates((MISSING,))
    assert await both.ask(confirm(B, 99)) == Unacknowledged(0)
    assert await both.ask(renew(B)) == KeyStates((MISSING,))
    assert await both.ask(end_reading(B)) == released(0)
    assert await readers(both) == [A]


async def test_an_expired_entry_is_neither_released_by_force_nor_notified_of_a_writer(
    both: Both,
) -> None:
    expired, other = entry("e", "d"), entry("f", "d")
    await both.ask(read(A))
    await both.ask(read(expired, ttl=BRIEF))
    await asyncio.sleep(2 * BRIEF / 1000)
    forced = READING.force_releasing(K, (b"1",), 160, (expired,))
    await both.ask(stand_to_write(WRITER, 1))
    assert await both.ask(forced) == ForceReleased(0)
    await both.ask(leaving(K, WRITER))
    await both.ask(read(other))
    await both.ask(stand_to_write(WRITER, 2))
    assert await both.messages(1) == [b"-1 %b k" % MANAGERS["d"]]


async def test_a_dead_reader_keeps_a_writer_out_for_its_own_ttl_alone(both: Both) -> None:
    await both.ask(read(A, ttl=60_000))
    await both.ask(read(B, ttl=BRIEF))
    await both.ask(end_reading(A))
    await asyncio.sleep(2 * BRIEF / 1000)
    assert await look(both) == FREE
    assert await both.ask(write(b"w")) is GRANTED


@every_version
async def test_a_downgrade_turns_the_string_into_an_entry_and_raises_the_counter(
    both: Both,
) -> None:
    await both.ask(write(A, 160))
    assert await both.ask(downgrade(A, 175)) is ALL_OURS
    assert await readers(both) == [A]
    assert await both.ask(write(b"w", 999)) == Refused(1.0, 1, 0)
    assert await both.ask(downgrade(A, 175)) is ALL_OURS, "the next renewal is the same command"
    assert await both.ask(read(B)) == Granted(175)
    assert await both.ask(end_reading(A)) == released(1)
    assert await readers(both) == [B]


async def test_a_downgrade_leaves_the_key_of_another_writer(both: Both) -> None:
    await both.ask(write(b"w"))
    assert await both.ask(downgrade(A, 31)) == KeyStates((FOREIGN,))
    assert await look(both) == Held(1.0, b"w")
    await both.ask(end_writing(b"w"))
    assert await both.ask(downgrade(A, 31)) == KeyStates((MISSING,))
    assert await look(both) == FREE


async def test_a_downgrade_lets_the_waiting_readers_in_and_deletes_the_writers_label(
    both: Both,
) -> None:
    await both.ask(write(A))
    label = owner_key(b"k")
    await both.ask(WRITING.watching(K, (A,), ((label,), (TTL, b"writer"))))
    await both.ask(stand_to_read(ONE, 1))
    await both.ask(stand_to_write(WRITER, 2))
    assert await both.ask(downgrade(A, 31)) is ALL_OURS
    assert await both.ask(read(B, claim=claim_of(1, ONE))) == Granted(31)
    assert await readers(both) == [A, B]
    assert await both.ask(READING.inspecting((label,))) == Looked((FREE,))


async def test_a_node_that_missed_the_downgrade_deletes_the_string_and_the_writers_label(
    both: Both,
) -> None:
    await both.ask(write(A))
    label = owner_key(b"k")
    assert await both.ask(READING.watching(K, (A,), ((label,), (TTL, b"writer")))) is ALL_OURS
    assert await both.ask(end_reading(A)) == released(1)
    assert await look(both) == FREE
    assert await both.ask(READING.inspecting((label,))) == Looked((FREE,))


async def test_the_last_reader_frees_the_key_and_a_release_ends_own_entries_alone(
    both: Both,
) -> None:
    await both.ask(read(A))
    await both.ask(read(B))
    assert await both.ask(end_reading(C)) == released(0)
    assert await both.ask(end_writing(A)) == released(0)
    assert await both.ask(end_reading(A)) == released(1)
    assert await both.ask(end_reading(A)) == released(0)
    assert await readers(both) == [B]
    assert await both.ask(end_reading(B)) == released(1)
    assert await look(both) == FREE
    await both.ask(write(b"w", 32))
    assert await both.ask(end_reading(B)) == released(0)
    assert await look(both) == Held(1.0, b"w")


async def test_each_reader_has_a_label_of_its_own(both: Both) -> None:
    labels = {}
    for token, text in ((A, b"%b 15 1.0 one" % A[:16]), (B, b"%b 15 1.0 two" % B[:16])):
        await both.ask(read(token))
        labels[token] = READING.label_key(b"k", token)
        assert (
            await both.ask(READING.watching(K, (token,), ((labels[token],), (TTL, text))))
            is ALL_OURS
        )
    assert await both.ask(READING.watching(K, (C,), ((b"o:c",), (TTL, b"text")))) == KeyStates(
        (MISSING,)
    )
    (found,) = (await both.ask(READING.inspecting(K, (owner_key(b"k"),)))).keys
    assert [one.label.rpartition(b" ")[2] for one in found.readers] == [b"one", b"two"]
    assert await both.ask(READING.releasing(K, A, None, (labels[A],))) == released(1)
    kept = await both.ask(READING.inspecting((labels[A], labels[B], b"o:c")))
    assert [type(label) for label in kept.keys] == [Free, Held, Free]


async def test_a_forced_release_ends_the_entries_of_the_tokens_that_it_names(both: Both) -> None:
    for token in (A, B, C):
        await both.ask(read(token))
    assert await both.ask(READING.force_releasing(K, (b"1",), 16, (b"x",))) == ForceReleased(0)
    assert await both.ask(READING.force_releasing(K, (b"1",), 16, (A, B))) == ForceReleased(2)
    assert await readers(both) == [C]
    assert await both.ask(
        READING.force_releasing(K, (b"1",), 16, (C,), any_key=True)
    ) == ForceReleased(1)
    assert await look(both) == FREE


# -- The recovery guard ---------------------------------------------------------------------------


def trusted_read(token: bytes) -> Command:
    return TRUSTED_READING.acquiring(K, (b"1",), token, b"%d" % TTL, 0)


def repair_reader(token: bytes, fence: int) -> Command:
    return TRUSTED_READING.repairing_of(K, (b"1",), token, TTL, fence)


def repair_writer(token: bytes, fence: int) -> Command:
    return BOTH.repairing_of(K, (b"1",), token, TTL, fence)


@every_version
async def test_a_node_without_a_marker_lets_no_reader_in_and_keeps_no_entry(both: Both) -> None:
    for node in both.nodes:
        assert await ask(node, trusted_read(A)) == Quarantined(None)
        assert (await ask(node, READING.inspecting(K))).keys == (FREE,)
        assert await ask(node, repair_reader(A, 15)) is Repaired.UNTRUSTED
        await ask(node, read(B))
        assert await ask(node, trusted_read(A)) == Quarantined(None)
        (found,) = (await ask(node, READING.inspecting(K))).keys
        assert [one.token for one in found.readers] == [B]


@every_version
async def test_a_node_that_waits_lets_no_reader_in(both: Both) -> None:
    for node in both.nodes:
        await mark(node, b"waiting")
        reply = await ask(node, trusted_read(A))
        assert isinstance(reply, Quarantined)
        assert reply.left
        assert (await ask(node, READING.inspecting(K))).keys == (FREE,)


@every_version
async def test_the_fence_of_a_reader_is_above_the_floor_of_a_node_that_became_trusted(
    both: Both,
) -> None:
    """The counters may be lost, and with them the fences of earlier writers."""
    for node in both.nodes:
        before = (await ask(node, reading_marker(BOTH.own_marker))).node_ms
        await trust(node)
        reply = await ask(node, trusted_read(A))
        assert isinstance(reply, Granted)
        assert before * 1000 <= reply.counter <= (before + 10_000) * 1000
        assert reply.counter % 16 == 15
        # A first writer is not held up by the floor.
        await ask(node, end_reading(A))
        assert (
            await ask(node, BOTH.acquiring((b"other",), (b"2",), b"w", b"%d" % TTL, 16)) is GRANTED
        )


@every_version
async def test_a_reader_is_repaired_beside_readers_and_not_past_a_writer(both: Both) -> None:
    for node in both.nodes:
        await trust(node)
        assert await ask(node, repair_reader(A, 15)) is Repaired.DONE
        assert await ask(node, repair_reader(B, 31)) is Repaired.DONE
        assert await ask(node, renew(A, B)) is ALL_OURS
        assert await ask(node, repair_reader(A, 15)) is Repaired.DONE, "its entry is there"
        await ask(node, end_reading(A))
        assert await ask(node, repair_reader(A, 15)) is Repaired.OUTRUN, (
            "the counter is above the fence"
        )
        await ask(node, end_reading(B))
        await ask(node, write(b"w", 48))
        assert await ask(node, repair_reader(B, 999)) is Repaired.OUTRUN, "a writer has the key"
        await ask(node, end_writing(b"w"))
        assert await ask(node, repair_reader(B, 47)) is Repaired.OUTRUN, "a writer had it since"
        assert (await ask(node, READING.inspecting(K))).keys == (FREE,)


@every_version
async def test_a_repair_raises_the_counter_to_the_fence_of_a_reader(both: Both) -> None:
    for node in both.nodes:
        await trust(node)
        fence = (await ask(node, read(A))).counter + 16
        assert await ask(node, repair_reader(A, fence)) is Repaired.DONE
        assert await ask(node, read(B)) == Granted(fence)
        await ask(node, end_reading(A))
        assert await ask(node, repair_reader(A, fence + 16)) is Repaired.DONE
        assert await ask(node, read(C)) == Granted(fence + 16)


@every_version
async def test_a_writer_is_not_repaired_where_readers_are(both: Both) -> None:
    for node in both.nodes:
        await trust(node)
        await ask(node, read(A))
        assert await ask(node, repair_writer(b"w", 999)) is Repaired.OUTRUN
        (found,) = (await ask(node, READING.inspecting(K))).keys
        assert [one.token for one in found.readers] == [A]


@every_version
async def test_a_downgraded_lease_is_repaired_on_a_node_that_missed_the_downgrade(
    both: Both,
) -> None:
    for node in both.nodes:
        await trust(node)
        await ask(node, write(A, 16))
        assert await ask(node, repair_reader(A, 31)) is Repaired.DONE
        assert await ask(node, downgrade(A, 31)) is ALL_OURS


# -- Turns ----------------------------------------------------------------------------------------


async def test_the_release_of_a_writer_lets_all_waiting_readers_in_before_the_next_writer(
    both: Both,
) -> None:
    await both.ask(write(b"w", 16))
    assert await both.ask(stand_to_write(WRITER, 1)) == Standing(1.0, 0)
    assert await both.ask(stand_to_read(ONE, 2)) == Standing(1.0, 0)
    assert await both.ask(stand_to_read(TWO, 3)) == Standing(1.0, 1)
    assert await waiting(both) == 3
    assert await both.ask(end_writing(b"w")) == released(1)
    assert await look(both) == ReadLocked(1.0, ())
    assert await waiting(both) == 3
    assert await both.ask(stand_to_read(TWO, 3)) == Standing(0.0, 0)
    assert await both.ask(read(C)) == Refused(1.0, 1, 1), "a new reader comes behind the writer"
    assert await both.ask(write(b"x", claim=claim_of(1, WRITER))) == Refused(1.0, 1, 1)
    for token, who, ticket in ((A, ONE, 2), (B, TWO, 3)):
        assert await both.ask(read(token, claim=claim_of(ticket, who))) == Granted(31)
    assert await readers(both) == [A, B]
    await both.ask(end_reading(A))
    assert await both.ask(write(b"x", claim=claim_of(1, WRITER))) == Refused(1.0, 1, 1)
    await both.ask(end_reading(B))
    assert await both.ask(stand_to_write(WRITER, 1)) == Standing(0.0, 0)
    assert await both.ask(read(C)) == Refused(1.0, 1, 1)
    assert await both.ask(write(b"x", 64, claim=claim_of(1, WRITER))) is GRANTED


async def test_a_waiting_writer_keeps_new_readers_out(both: Both) -> None:
    await both.ask(read(A))
    assert await both.ask(stand_to_write(WRITER, 7)) == Standing(1.0, 0)
    assert await both.ask(read(B)) == Refused(1.0, 1, 7)
    assert await both.ask(stand_to_read(TWO, 8)) == Standing(None, 0)
    assert await both.ask(read(B, claim=claim_of(8, TWO))) == Refused(1.0, 1, 8)
    assert await both.ask(renew(A)) is ALL_OURS
    assert await both.leave(WRITER, b"k") is LEFT
    assert await both.ask(stand_to_read(TWO, 8)) == Standing(0.0, 0)
    assert await both.ask(read(B, claim=claim_of(8, TWO))) == Granted(15)


async def test_a_writer_whose_process_is_dead_keeps_no_reader_out(both: Both) -> None:
    await both.ask(read(A))
    await both.ask(stand_to_write(DEAD_WRITER, 1))
    assert await both.ask(read(B)) == Granted(15)
    assert await waiting(both) == 0
    await both.ask(stand_to_write(DEAD_WRITER, 1))
    await both.ask(stand_to_write(LIVE_WRITER, 2))
    assert await both.ask(read(C)) == Refused(1.0, 1, 2)


async def test_readers_whose_processes_are_dead_are_offered_nothing(both: Both) -> None:
    await both.ask(write(b"w"))
    await both.ask(stand_to_read(DEAD, 1))
    await both.ask(stand_to_write(WRITER, 2))
    await both.ask(end_writing(b"w"))
    assert await both.ask(stand_to_write(WRITER, 2)) == Standing(0.0, 0)
    assert await both.ask(write(b"x", 32, claim=claim_of(2, WRITER))) is GRANTED


async def test_a_reader_that_leaves_gives_its_offer_back(both: Both) -> None:
    await both.ask(write(b"w"))
    for member, ticket in ((ONE, 1), (LIVE, 2)):
        await both.ask(stand_to_read(member, ticket))
    await both.ask(stand_to_write(WRITER, 3))
    await both.ask(end_writing(b"w"))
    assert await both.leave(ONE, b"k") is LEFT
    assert await both.ask(stand_to_write(WRITER, 3)) == Standing(1.0, 0), (
        "another reader still has its offer"
    )
    assert await both.leave(LIVE, b"k") is LEFT
    assert await both.ask(stand_to_write(WRITER, 3)) == Standing(0.0, 0)
    assert await both.leave(WRITER, b"k") is LEFT
    assert await look(both) == FREE


async def test_a_writer_that_leaves_its_offer_lets_the_readers_in(both: Both) -> None:
    await both.ask(read(A))
    await both.ask(stand_to_write(WRITER, 1))
    await both.ask(stand_to_read(TWO, 2))
    await both.ask(end_reading(A))
    assert await both.ask(stand_to_write(WRITER, 1)) == Standing(0.0, 0)
    assert await both.leave(WRITER, b"k") is LEFT
    assert await both.ask(stand_to_read(TWO, 2)) == Standing(0.0, 0)


async def test_readers_find_a_free_key_by_themselves(both: Both) -> None:
    """An offer may expire, or its message may be lost."""
    await both.ask(stand_to_read(ONE, 1))
    assert await both.ask(stand_to_read(ONE, 1)) == Standing(0.0, 0)
    assert await both.ask(read(A, claim=claim_of(1, ONE))) == Granted(15)
    assert await both.ask(stand_to_read(TWO, 2)) == Standing(0.0, 0), "no writer waits"
    assert await both.ask(read(B, claim=claim_of(2, TWO))) == Granted(15)
    assert await waiting(both) == 0


async def test_a_writer_that_waits_behind_readers_and_writers_learns_its_rank(both: Both) -> None:
    await both.ask(read(A))
    assert await both.ask(stand_to_write(WRITER, 1)) == Standing(1.0, 0)
    assert await both.ask(stand_to_write(SECOND, 2)) == Standing(1.0, 1)
    assert await both.ask(stand_to_write(LIVE_WRITER, 3)) == Standing(None, 2)
    await both.ask(end_reading(A))
    assert await both.ask(write(b"x", 32, claim=claim_of(1, WRITER))) is GRANTED
    assert await both.ask(stand_to_write(SECOND, 2)) == Standing(1.0, 0)


async def test_the_members_of_semaphores_and_readers_of_a_slot_keep_apart(both: Both) -> None:
    """The key of a slot can be the key of a read-write lock too."""
    slot = (b"gpu#1",)
    acquiring = READING.acquiring(slot, (b"3",), A, b"%d" % TTL, 0)
    assert await both.ask(acquiring) == Granted(15)
    assert await both.acquire(b"t", b"gpu#1") == Refused(1.0, 1, 0)
    assert await both.ask(READING.releasing(slot, A, None)) == released(1)


# -- Random steps ---------------------------------------------------------------------------------

READERS = (ONE, TWO, LIVE, DEAD)
WRITERS = (WRITER, SECOND, LIVE_WRITER, DEAD_WRITER)
STEPS = (
    *(
        "read",
        "read",
        "claim to read",
        "claim to read",
        "write",
        "claim to write",
        "claim to write",
    ),
    *("stand to read", "stand to read", "stand to write", "stand to write", "leave"),
    *("end", "end", "end", "end", "renew", "downgrade", "confirm", "watch", "force"),
)


def steps(rng: random.Random, count: int) -> Iterator[Command]:
    """Random steps of readers and writers at one key.

    The tokens come from earlier steps, and may have expired.
    """
    tokens = [A]
    for number in range(count):
        step = rng.choice(STEPS)
        member = rng.choice(
            READERS if "read" in step else WRITERS if "write" in step else READERS + WRITERS
        )
        claim = claim_of((READERS + WRITERS).index(member) + 1, member)
        token, fence = rng.choice(tokens[-6:]), 16 * number
        match step:
            case "read" | "claim to read":
                tokens.append(b"%032x:%b" % (number, rng.choice(list(MANAGERS.values()))))
                yield read(tokens[-1], claim=claim if step != "read" else b"")
            case "write" | "claim to write":
                tokens.append(b"%032x" % number)
                yield write(tokens[-1], fence, claim if step != "write" else b"")
            case "stand to read":
                yield standing_to_read(K, claim, TTL)
            case "stand to write":
                yield standing(K, claim, TTL, TTL)
            case "leave":
                yield leaving(K, member)
            case "end":
                yield (
                    end_reading(token)
                    if b":" in token or rng.random() < 0.3
                    else end_writing(token)
                )
            case "renew":
                yield renew(*rng.choices(tokens[-6:], k=2))
            case "downgrade":
                yield downgrade(token, fence + 15)
            case "confirm":
                yield confirm(token, fence - rng.choice((1, 17, 33)))
            case "watch":
                yield READING.watching(K, (token,))
            case "force":
                yield READING.force_releasing(K, (b"1",), fence, (token, rng.choice(tokens)))


@spread("seed", range(40))
async def test_random_steps_have_the_same_effect_on_a_server_and_in_memory(
    both: Both, seed: int
) -> None:
    for command in steps(random.Random(seed), 120):
        await both.ask(command)
        await both.ask(READING.inspecting(K, queues=True))


def test_random_steps_reach_readers_and_writers() -> None:
    """Without that, the comparison would compare little."""
    names = {
        command.script.name for seed in range(3) for command in steps(random.Random(seed), 120)
    }
    assert names == {
        *(
            "acquire_read",
            "acquire_guarded",
            "stand_read",
            "stand",
            "leave",
            "release_read",
            "release",
        ),
        *("extend_read", "confirm_read", "watch_read", "force_release"),
    }


def test_a_lease_to_read_is_named_by_its_token() -> None:
    assert READING.token(b"a" * 32, MANAGERS["a"]) == A
    assert Reader(1.0, A).token == A
