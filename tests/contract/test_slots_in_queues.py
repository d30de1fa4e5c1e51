"""Semaphores in the queues: every server answers like the in-memory node except for times."""

from __future__ import annotations

import asyncio
import random
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng._core.queue_formats import claim_of, member_of
from aioredlock_ng._core.replies import (
    FREE,
    GRANTED,
    LEFT,
    Free,
    Looked,
    Refused,
    Standing,
    released,
)
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng._scripts.node_requests import standing_for_slot
from tests.contract.test_sets_in_queues import Asked, Both, both
from tests.support.spread import spread

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["both"]

# The random steps below run the same scripts on each version.
pytestmark = pytest.mark.versions("one")

GRACE = 20.0


def member(manager: str, limit: int) -> bytes:
    """Return a waiter that polls.

    A waiter that receives messages would need a connected process.
    """
    return member_of(manager.encode() * 16, 1, GRACE, limit, notified=False)


ONE, TWO, THREE = member("a", 3), member("b", 3), member("c", 3)
LOW, MIDDLE = member("e", 1), member("e", 2)
# The test is connected as the manager `d`. No client is connected as `7`.
LIVE, DEAD = (member_of(manager * 16, 1, GRACE, 2, notified=True) for manager in (b"d", b"7"))
PLAIN = member_of(b"f" * 16, 1, GRACE, notified=False)


def slots(limit: int = 3) -> tuple[bytes, ...]:
    return tuple(b"gpu#%d" % number for number in range(1, limit + 1))


async def stand(both: Both, ticket: int, who: bytes, limit: int = 3) -> Any:
    return await both.ask(standing_for_slot(slots(limit), claim_of(ticket, who), 20_000))


async def fill(both: Both, limit: int = 3) -> None:
    for number, key in enumerate(slots(limit), 1):
        assert await both.acquire(b"t%d" % number, key) is GRANTED


async def offered(both: Both, limit: int = 3) -> list[bool]:
    """Return for each slot whether it is offered to a waiter."""
    looked = await both.ask(MUTEX.inspecting(slots(limit)))
    return [type(look) is Free and look.offered is not None for look in looked.keys]


async def offers_left(both: Both) -> list[list[float]]:
    """Return for each node the seconds that the offer of each slot has left."""
    found = []
    for node in both.nodes:
        asked = Asked(MUTEX.inspecting(slots()))
        node.ask(asked, 0)
        looks = (await asked.future).keys
        found.append([look.offered or 0.0 if type(look) is Free else 0.0 for look in looks])
    return found


async def test_any_slot_that_is_released_is_offered_to_the_first_waiter(
    both: Both,
) -> None:
    await fill(both)
    assert await stand(both, 1, ONE) == Standing(1.0, 0)
    assert await stand(both, 2, TWO) == Standing(1.0, 1)
    assert await stand(both, 3, THREE) == Standing(None, 2)
    assert await both.release(b"t2", b"gpu#2") == released(1)
    assert await offered(both) == [False, True, False]
    assert await both.acquire(b"x", b"gpu#2", claim=claim_of(2, TWO)) == Refused(1.0, 1, 2 + 1)
    assert await both.acquire(b"x", b"gpu#2", claim=claim_of(1, ONE)) is GRANTED
    assert await stand(both, 2, TWO) == Standing(1.0, 0)


async def test_an_offer_of_a_slot_names_the_highest_ticket_of_all_waiters_and_offers(
    both: Both,
) -> None:
    """The task behind the offered task takes a ticket from the offer without an attempt."""
    first, second = (member_of(b"d" * 16, line, GRACE, 3, notified=True) for line in (1, 2))
    await fill(both)
    await stand(both, 3, first)
    await stand(both, 6, second)
    assert await both.release(b"t3", b"gpu#3") == released(1)
    assert await both.messages(2) == [b"0:6 %b gpu#3" % first, b"20000 %b gpu#3" % second]
    assert await both.release(b"t1", b"gpu#1") == released(1)
    assert (await both.messages(4))[2:] == [b"0:6 %b gpu#3" % second, b"0:6 %b gpu#1" % first]
    await stand(both, 2, ONE)
    assert await both.release(b"t2", b"gpu#2") == released(1)
    assert (await both.messages(5))[4:] == [b"0:6 %b gpu#2" % first], (
        "no queue has the ticket any more, but an offer"
    )


async def test_slots_that_are_free_are_offered_to_as_many_waiters_as_there_are(both: Both) -> None:
    await fill(both)
    assert await stand(both, 1, ONE) == Standing(1.0, 0)
    assert await stand(both, 2, TWO) == Standing(1.0, 1)
    assert await both.release(b"t1", b"gpu#1") == released(1)
    assert await both.release(b"t3", b"gpu#3") == released(1)
    assert await offered(both) == [True, False, True]
    assert await stand(both, 2, TWO) == Standing(0.0, 0, (3,))
    assert await stand(both, 1, ONE) == Standing(0.0, 0, (1, 3)), (
        "it may take what those behind it are offered"
    )


async def test_a_call_offers_at_most_32_slots_and_notifies_the_next_waiter(both: Both) -> None:
    """A thousand offers in one call would block a server for seconds."""
    waiters = [
        member_of((b"d" if at == 32 else b"a") * 16, at, GRACE, 70, notified=at == 32)
        for at in range(50)
    ]
    await both.acquire(b"t1", b"gpu#1")
    for ticket, who in enumerate(waiters, 1):
        # This call does not show the free slots to the server.
        await both.ask(standing_for_slot(slots(1), claim_of(ticket, who), 20_000))
    last, following = waiters[-1], waiters[32]
    assert await stand(both, 50, last, 70) == Standing(None, 17), "free slots are for earlier ones"
    assert await offered(both, 70) == [False, *[True] * 32, *[False] * 37]
    assert await both.messages(2) == [
        b"20000 %b gpu#33" % following,
        b"-1 %b gpu#1" % following,
    ]
    assert await stand(both, 33, following, 70) == Standing(0.0, 0, tuple(range(34, 42)))
    assert await offered(both, 70) == [False, *[True] * 50, *[False] * 19]
    assert await stand(both, 50, last, 70) == Standing(0.0, 0, tuple(range(51, 59)))


async def test_a_waiter_that_gets_a_slot_leaves_its_other_offers_to_the_next_waiter(
    both: Both,
) -> None:
    """Nodes may offer different slots to one waiter. The waiter takes one slot on all nodes."""
    await fill(both)
    assert await stand(both, 1, ONE) == Standing(1.0, 0)
    assert await both.release(b"t1", b"gpu#1") == released(1)
    assert await stand(both, 2, TWO) == Standing(1.0, 0)
    assert await both.release(b"t2", b"gpu#2") == released(1)
    # The first may take the offer to the second, because its ticket is lower.
    assert await both.acquire(b"x", b"gpu#2", claim=claim_of(1, ONE)) is GRANTED
    assert await offered(both) == [True, False, False]
    assert await stand(both, 2, TWO) == Standing(0.0, 0, (1,))


async def test_a_grant_of_an_offered_slot_notifies_the_new_first_waiter_of_each_limit(
    both: Both,
) -> None:
    """The offer of a slot notifies only a waiter that accepts this slot."""
    await fill(both)
    members = [
        member_of(b"d" * 16, number, GRACE, limit, notified=True)
        for number, limit in ((1, 3), (2, 1), (3, 3))
    ]
    for ticket, (who, limit) in enumerate(zip(members, (3, 1, 3), strict=True), 1):
        await stand(both, ticket, who, limit)
    await both.release(b"t3", b"gpu#3")
    before = len(await both.messages(2))
    assert await both.acquire(b"new", b"gpu#3", claim=claim_of(1, members[0])) is GRANTED
    notified = (await both.messages(before + 2))[before:]
    assert notified == [b"-1 %b gpu#1" % who for who in members[1:]]


@spread("order", list(permutations((1, 2, 3))), ids=lambda order: "".join(map(str, order)))
async def test_the_lowest_slot_is_offered_to_the_first_waiter_in_any_order_of_releases(
    both: Both, order: tuple[int, ...]
) -> None:
    """Releases reach the nodes in different orders.

    Each node must offer the same slot to the same waiter.
    """
    await fill(both)
    for ticket, who in enumerate((ONE, TWO, THREE), 1):
        await stand(both, ticket, who)
    for number in order:
        assert await both.release(b"t%d" % number, b"gpu#%d" % number) == released(1)
    for ticket, who in enumerate((ONE, TWO, THREE), 1):
        assert await stand(both, ticket, who) == Standing(0.0, 0, tuple(range(ticket, 4)))


async def test_a_waiter_keeps_the_time_of_its_offer_when_slots_are_shared_out_again(
    both: Both,
) -> None:
    """A new time for each offer would let a stopped process delay the others for longer."""
    brief = member_of(b"a" * 16, 1, GRACE / 2, 3, notified=False)
    await fill(both)
    await stand(both, 1, brief)
    await stand(both, 2, TWO)
    assert await both.release(b"t3", b"gpu#3") == released(1)
    # A renewed offer would have more left, unless the next requests take longer than this.
    await asyncio.sleep(1.0)
    before = [offers[2] for offers in await offers_left(both)]
    assert await both.release(b"t1", b"gpu#1") == released(1)
    assert await stand(both, 1, brief) == Standing(0.0, 0, (1, 3))
    for (first, _, second), left in zip(await offers_left(both), before, strict=True):
        assert 0 < first <= left < GRACE / 2
        assert second > first + GRACE / 4, "this offer is to the other waiter"


async def test_a_waiter_with_a_lower_limit_is_passed_over_for_higher_slots_alone(
    both: Both,
) -> None:
    await fill(both)
    assert await stand(both, 1, LOW, limit=1) == Standing(1.0, 0)
    assert await stand(both, 2, TWO) == Standing(1.0, 0), "nobody before it takes slot 2 or 3"
    assert await stand(both, 3, THREE) == Standing(1.0, 1)
    assert await both.release(b"t3", b"gpu#3") == released(1)
    assert await both.acquire(b"x", b"gpu#3", claim=claim_of(2, TWO)) is GRANTED
    assert await stand(both, 3, THREE) == Standing(1.0, 0)
    assert await both.release(b"t1", b"gpu#1") == released(1)
    assert await both.acquire(b"x", b"gpu#1", claim=claim_of(3, THREE)) == Refused(1.0, 1, 3)
    assert await both.acquire(b"x", b"gpu#1", claim=claim_of(1, LOW)) is GRANTED


async def test_a_lock_that_waits_for_the_key_of_a_slot_comes_first_and_gets_no_other_slot(
    both: Both,
) -> None:
    await fill(both)
    assert await stand(both, 1, ONE) == Standing(1.0, 0)
    assert await both.stand(claim_of(9, PLAIN), b"gpu#2") == Standing(1.0, 0)
    assert await both.release(b"t1", b"gpu#1") == released(1)
    assert await both.acquire(b"x", b"gpu#1", claim=claim_of(1, ONE)) is GRANTED
    assert await stand(both, 2, TWO) == Standing(1.0, 0)
    assert await both.release(b"t2", b"gpu#2") == released(1)
    assert await both.stand(claim_of(9, PLAIN), b"gpu#2") == Standing(0.0, 0)
    assert await both.leave(PLAIN, b"gpu#2") is LEFT
    assert await stand(both, 2, TWO) == Standing(0.0, 0, (2,))


async def test_a_waiter_for_any_slot_keeps_waiting_when_an_earlier_lock_waiter_gets_its_slot(
    both: Both,
) -> None:
    await fill(both)
    assert await stand(both, 5, ONE) == Standing(1.0, 0)
    assert await both.release(b"t1", b"gpu#1") == released(1)
    assert await both.acquire(b"x", b"gpu#1", claim=claim_of(1, PLAIN)) is GRANTED
    assert await both.release(b"t2", b"gpu#2") == released(1)
    assert await stand(both, 5, ONE) == Standing(0.0, 0, (2,)), (
        "it waits in the queue that the slots share"
    )
    assert await both.acquire(b"y", b"gpu#2", claim=claim_of(5, ONE)) is GRANTED
    assert await both.release(b"x", b"gpu#1") == released(1)
    assert await offered(both) == [False, False, False], "it waits nowhere else"


async def test_a_waiter_for_any_slot_keeps_waiting_when_its_slot_is_reserved_for_an_earlier_set(
    both: Both,
) -> None:
    await fill(both)
    assert await both.acquire(b"holds z", b"z") is GRANTED
    assert await stand(both, 5, ONE) == Standing(1.0, 0)
    assert await stand(both, 7, TWO) == Standing(1.0, 1)
    assert await both.release(b"t1", b"gpu#1") == released(1)
    assert await both.stand(claim_of(1, PLAIN), b"gpu#1", b"z") == Standing(1.0, 0)
    assert await both.release(b"t2", b"gpu#2") == released(1)
    assert await both.acquire(b"x", b"gpu#2", claim=claim_of(7, TWO)) == Refused(1.0, 1, 7)
    assert await both.acquire(b"y", b"gpu#2", claim=claim_of(5, ONE)) is GRANTED


async def test_a_waiter_that_leaves_passes_on_each_slot_that_is_offered_to_it(both: Both) -> None:
    await fill(both)
    assert await stand(both, 1, ONE) == Standing(1.0, 0)
    assert await both.release(b"t1", b"gpu#1") == released(1)
    assert await stand(both, 2, TWO) == Standing(1.0, 0)
    assert await both.leave(ONE, *slots()) is LEFT
    assert await stand(both, 2, TWO) == Standing(0.0, 0, (1,))
    assert await both.leave(TWO, *slots()) is LEFT
    assert await both.ask(MUTEX.inspecting((b"gpu#1",))) == Looked((FREE,))


async def test_an_inspection_counts_the_waiters_for_each_slot(both: Both) -> None:
    await fill(both)
    assert await stand(both, 1, ONE) == Standing(1.0, 0)
    assert await stand(both, 2, TWO) == Standing(1.0, 1)
    assert await both.stand(claim_of(9, PLAIN), b"gpu#2") == Standing(1.0, 0)
    looked = await both.ask(MUTEX.inspecting(slots(), queues=True))
    assert [look.waiting for look in looked.keys] == [2, 3, 2]
    assert await both.release(b"t1", b"gpu#1") == released(1)
    looked = await both.ask(MUTEX.inspecting(slots(), queues=True))
    assert [look.waiting for look in looked.keys] == [2, 2, 1]


def steps(rng: random.Random, count: int) -> Iterator[tuple[Any, ...]]:
    """Random steps of waiters with several limits, a dead one and a plain one, on three slots."""
    members = (ONE, TWO, THREE, LOW, MIDDLE, LIVE, DEAD, PLAIN)
    for number in range(count):
        who = rng.choice(members)
        key = rng.choice(slots())
        kind = rng.choice(
            ("acquire", "claim", "claim", "release", "release", "stand", "stand", "leave")
        )
        yield kind, who, key, members.index(who) + 1, b"t%d" % number


@spread("seed", range(40))
async def test_random_steps_have_the_same_effect_on_a_server_and_in_memory(
    both: Both, seed: int
) -> None:
    holders: dict[bytes, bytes] = {}
    for kind, who, key, ticket, token in steps(random.Random(seed), 120):
        limit = {LOW: 1, MIDDLE: 2, LIVE: 2, DEAD: 2}.get(who, 3)
        keys = (key,) if who is PLAIN else slots(limit)
        claim = claim_of(ticket, who)
        match kind:
            case "acquire" | "claim":
                if (
                    key in keys
                    and await both.acquire(token, key, claim=claim if kind == "claim" else b"")
                    is GRANTED
                ):
                    holders[key] = token
            case "release":
                assert await both.release(holders.pop(key, b"nobody"), key) in (
                    released(0),
                    released(1),
                )
            case "stand" if who is PLAIN:
                await both.stand(claim, key)
            case "stand":
                await stand(both, ticket, who, limit)
            case "leave":
                await both.leave(who, *keys)
        await both.ask(MUTEX.inspecting(slots(), queues=True))


DAMAGED_PLAIN = (b"nobody:20000", b"a:b:c#20000", b"-e5:1:0#20000", b"\xff\x00\r\n#:20000")
DAMAGED = (
    b"\xff\x00\r\n:1:3#20000",
    b"-e5:1:00000000000000000000000003#20000",
    b"-e5:1:%b#20000" % (b"9" * 30),
    b"-e5:1:%b#20000" % (b"9" * 400),
    b"-e5:#:5000#20000",
)


@spread("seed", range(8))
async def test_damaged_members_and_odd_keys_have_the_same_effect_on_a_server_and_in_memory(
    both: Both, seed: int
) -> None:
    rng = random.Random(seed)
    odd = (b"gpu#0", b"gpu#01", b"gpu#2000", b"#1", b"gpu#", b"gpu\n\x00#1#2", b"plain")
    held: dict[bytes, bytes] = {}
    for number in range(150):
        plain = rng.random() < 0.4
        who, token = (
            rng.choice((PLAIN, *DAMAGED_PLAIN) if plain else (ONE, LIVE, *DAMAGED)),
            b"t%d" % number,
        )
        key = rng.choice((*slots(), *odd) if plain else slots())
        claim = claim_of(rng.randrange(1, 6), who)
        match rng.choice(("acquire", "claim", "release", "release", "stand", "stand", "leave")):
            case "acquire" | "claim" as kind:
                if (
                    await both.acquire(token, key, claim=claim if kind == "claim" else b"")
                    is GRANTED
                ):
                    held[key] = token
            case "release":
                await both.release(held.pop(key, b"nobody"), key)
            case "stand" if plain:
                await both.stand(claim, key)
            case "stand":
                await both.ask(standing_for_slot(slots(), claim, 20_000))
            case "leave":
                await both.leave(who, *((key,) if plain else slots()))
        await both.ask(MUTEX.inspecting((*slots(), *odd)))
