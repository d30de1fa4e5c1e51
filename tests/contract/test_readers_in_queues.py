"""Readers in the queues: every server answers as the in-memory node does, remaining times aside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.queue_formats import claim_of, member_of
from aioredlock_ng._core.replies import (
    ALL_OURS,
    FREE,
    GRANTED,
    Free,
    Looked,
    ReadLocked,
    Refused,
    Standing,
    released,
)
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng._scripts.node_requests import standing, standing_for_slot, standing_to_read
from aioredlock_ng._scripts.reader_kind import read_side
from tests.contract.test_sets_in_queues import OTHER, SET, TTL, Asked, Both, both

if TYPE_CHECKING:
    from aioredlock_ng._scripts import Command

__all__ = ["both"]

READ = read_side(MUTEX)


def reader(manager: str) -> bytes:
    """A waiting reader that asks by itself."""
    return member_of(manager.encode() * 16, 1, 20.0, notified=False, reader=True)


ONE, TWO = reader("a"), reader("b")


def entry(number: int) -> bytes:
    return READ.token(b"%032x" % number, b"d" * 16)


async def read(both: Both, number: int, key: bytes, claim: bytes = b"") -> Any:
    return await both.ask(READ.acquiring((key,), (), entry(number), TTL, 0, claim))


async def stand(both: Both, ticket: int, who: bytes, key: bytes) -> Any:
    return await both.ask(standing_to_read((key,), claim_of(ticket, who), 20_000))


async def lives(both: Both, key: bytes) -> list[float]:
    """Return the seconds that a key with readers has left on each node."""
    found = []
    for node in both.nodes:
        asked = Asked(MUTEX.inspecting((key,)))
        node.ask(asked, 0)
        (look,) = (await asked.future).keys
        assert isinstance(look, ReadLocked)
        found.append(look.remaining)
    return found


async def test_a_set_that_readers_refuse_keeps_its_reserved_keys(both: Both) -> None:
    assert await read(both, 1, b"b") is GRANTED
    assert await both.acquire(b"set", b"a", b"b") == Refused(1.0, 2, 0)
    assert await both.stand(claim_of(1, SET), b"a", b"b") == Standing(1.0, 0)
    assert await both.acquire(b"set", b"a", b"b", claim=claim_of(1, SET)) == Refused(1.0, 2, 1)
    (kept, _) = (await both.ask(MUTEX.inspecting((b"a", b"c")))).keys
    assert isinstance(kept, Free)
    assert kept.offered is not None


async def test_a_release_by_an_earlier_writer_offers_no_key_that_readers_hold(both: Both) -> None:
    assert await read(both, 1, b"a") is GRANTED
    assert await both.stand(claim_of(1, OTHER), b"a") == Standing(1.0, 0)
    assert await both.ask(MUTEX.releasing((b"a",), b"writer", None)) == released(0)
    assert all(left > 0.9 for left in await lives(both, b"a"))


async def test_a_set_learns_that_readers_have_its_first_key_although_its_last_is_held(
    both: Both,
) -> None:
    assert await read(both, 1, b"a") is GRANTED
    assert await both.acquire(b"holds b", b"b") is GRANTED
    assert await both.acquire(b"set", b"a", b"b") == Refused(1.0, 1, 0)


async def test_readers_enter_beside_a_set_that_waits_for_another_key(both: Both) -> None:
    assert await both.acquire(b"holds a", b"a") is GRANTED
    assert await both.acquire(b"holds b", b"b") is GRANTED
    assert await both.stand(claim_of(1, SET), b"a", b"b") == Standing(1.0, 0)
    await both.expire(b"holds a", b"a")
    assert await both.ask(standing((b"a", b"b"), claim_of(1, SET), 20_000, 0)) == Standing(1.0, 0)
    assert await read(both, 1, b"a") is GRANTED


async def test_all_readers_enter_before_the_next_writer_when_a_writer_expires(both: Both) -> None:
    assert await both.acquire(b"writer", b"a") is GRANTED
    for ticket, who in ((1, ONE), (2, TWO)):
        assert (await stand(both, ticket, who, b"a")).rank == ticket - 1
    assert await both.stand(claim_of(3, OTHER), b"a") == Standing(1.0, 0)
    await both.expire(b"writer", b"a")
    assert await read(both, 1, b"a", claim_of(1, ONE)) is GRANTED
    assert await read(both, 2, b"a", claim_of(2, TWO)) is GRANTED


async def test_a_downgrade_shortens_no_life_and_deletes_the_label_of_the_writer(both: Both) -> None:
    writes = b"%032x" % 7
    assert await both.acquire(writes, b"a") is GRANTED
    label: Command = MUTEX.watching((b"a",), (writes,), ((owner_key(b"a"),), (20_000, b"label")))
    assert await both.ask(label) is ALL_OURS
    assert await both.ask(READ.extending((b"a",), (writes,), 1_000)) is ALL_OURS
    assert all(left > 10.0 for left in await lives(both, b"a"))
    assert await both.ask(READ.releasing((b"a",), writes, None)) == released(1)
    assert await both.ask(MUTEX.inspecting((b"a",), (owner_key(b"a"),))) == Looked((FREE,))


async def test_an_offer_to_a_reader_ends_although_other_readers_keep_the_key(both: Both) -> None:
    hasty = member_of(b"c" * 16, 1, 1.0, notified=False, reader=True)
    assert await read(both, 1, b"a") is GRANTED
    assert await stand(both, 1, hasty, b"a") == Standing(0.0, 0)
    assert await both.stand(claim_of(2, OTHER), b"a") == Standing(1.0, 0)
    await asyncio.sleep(1.1)
    assert await read(both, 2, b"a", claim_of(1, hasty)) == Refused(1.0, 1, 2)
    assert await stand(both, 1, hasty, b"a") == Standing(None, 0)


async def test_an_offer_that_has_ended_counts_as_no_waiter(both: Both) -> None:
    hasty = member_of(b"c" * 16, 1, 1.0, notified=False, reader=True)
    assert await read(both, 1, b"a") is GRANTED
    assert await stand(both, 1, hasty, b"a") == Standing(0.0, 0)
    await asyncio.sleep(1.1)
    (look,) = (await both.ask(MUTEX.inspecting((b"a",), queues=True))).keys
    assert look.waiting == 0


async def test_a_key_that_readers_hold_is_offered_to_no_waiter_for_a_slot(both: Both) -> None:
    slot = b"gpu#1"
    assert await read(both, 1, slot) is GRANTED
    for_any_slot = claim_of(1, member_of(b"a" * 16, 1, 20.0, 1, notified=False))
    await both.ask(standing_for_slot((slot,), for_any_slot, 20_000))
    # The process of this reader is not connected to the node, so the reader gets no offer.
    absent = member_of(b"e" * 16, 1, 20.0, notified=True, reader=True)
    await stand(both, 2, absent, slot)
    attempt = MUTEX.acquiring((slot,), (), b"%032x" % 2, TTL, 0, for_any_slot)
    assert isinstance(await both.ask(attempt), Refused)
    assert await both.ask(READ.watching((slot,), (entry(1),))) is ALL_OURS
