"""The behaviour of every kind of node with queues: part of the contract in `suite.py`."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.over_mark import over_mark
from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.queue_formats import OFFER, claim_of, is_offer, member_of, message_of
from aioredlock_ng._core.replies import (
    GRANTED,
    LEFT,
    ForceReleased,
    Free,
    Granted,
    Held,
    KeyState,
    KeyStates,
    Quarantined,
    Refused,
    Repaired,
    Standing,
    Unacknowledged,
    released,
)
from aioredlock_ng._core.votes import is_held
from aioredlock_ng._scripts import Command, Script
from aioredlock_ng._scripts.catalogue import FORCE_RELEASE
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng._scripts.node_requests import leaving, standing, standing_to_read
from aioredlock_ng._scripts.reader_kind import read_side
from tests.contract.guarded import BOTH, FENCED, GUARDED, acquire
from tests.support.spread import spread

if TYPE_CHECKING:
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng._scripts.exclusive_kinds import LockKind
    from tests.contract.suite import Listener, Place

__all__ = ["QueueContract", "Waiter", "leave", "stand"]

TTL = 20_000
GRACE = 5_000
"""Milliseconds that an offer to a waiter of these tests lives."""

MISSING = KeyStates((KeyState.MISSING,))

RAW_INSPECT = Script("inspect", lambda reply, _call: reply)
"""An inspection that shows offers as well, which the library reports as free."""

LIFE = 12_000
KEPT = 9_000
SLACK = 4_000
"""Milliseconds that a slow machine may take between two steps."""

every_kind = spread(
    "kind", [MUTEX, FENCED, GUARDED, BOTH], ids=["plain", "fenced", "guarded", "fenced and guarded"]
)


def stand(
    claim: bytes, *keys: bytes, life: int = LIFE, kept: int = KEPT, tracked: bool = False
) -> Command:
    return standing(keys, claim, life, kept, tracked=tracked)


def leave(member: bytes, *keys: bytes) -> Command:
    return leaving(keys, member)


class Waiter:
    """A waiting line of one process, with a connection of its own."""

    def __init__(
        self,
        node: Node,
        heard: Listener,
        line: int = 1,
        grace: int = GRACE,
        *,
        notified: bool = True,
    ) -> None:
        self.node, self.heard = node, heard
        self.member = member_of(heard.manager_id, line, grace / 1000, notified=notified)

    def claim(self, ticket: int) -> bytes:
        return claim_of(ticket, self.member)

    def message(self, milliseconds: int, key: bytes = b"a") -> bytes:
        return b"%d %b %b" % (milliseconds, self.member, key)

    def is_second(self, payload: bytes, left: int) -> bool:
        """True for a message that this is the second, and asks one grace after the milliseconds
        that the key has left.
        """
        message = message_of(payload)
        assert message is not None
        assert message.left is not None
        in_time = left - SLACK < message.left * 1000 - GRACE <= left
        return in_time and message.second and (message.member, message.key) == (self.member, b"a")


class QueueContract:
    """Subclasses have a fixture `place`, and `ask` and `trusted`."""

    async def ask(self, node: Node, command: Command) -> Any:
        raise NotImplementedError

    async def trusted(self, node: Node) -> bytes:
        raise NotImplementedError

    async def waiter(self, place: Place, **settings: Any) -> Waiter:
        node, heard = await place.node()
        return Waiter(node, heard, **settings)

    async def waiters(self, place: Place, count: int) -> list[Waiter]:
        """In the order of their tickets, which are 1, 2, …; the key "a" is held by "one"."""
        await place.put("a", "one", TTL)
        waiters = [await self.waiter(place) for _ in range(count)]
        for ticket, waiter in enumerate(waiters, 1):
            await self.ask(waiter.node, stand(waiter.claim(ticket), b"a"))
        return waiters

    async def dead(self, place: Place, ticket: int, key: bytes = b"a") -> bytes:
        """Put a member into a queue whose process is gone, and return it."""
        node, _ = await place.node()
        member = member_of(secrets.token_hex(8).encode(), 1, GRACE / 1000, notified=True)
        await self.ask(node, stand(claim_of(ticket, member), key))
        return member

    async def acquire(
        self, waiter: Waiter, token: bytes, *keys: bytes, ticket: int = 0, kind: LockKind = MUTEX
    ) -> Any:
        """A first attempt; with a ticket, the attempt of a waiter."""
        self.fence = getattr(self, "fence", 0) + 1
        claim = waiter.claim(ticket) if ticket else b""
        return await self.ask(
            waiter.node, kind.acquiring(keys, keys, token, b"%d" % TTL, self.fence, claim)
        )

    async def release(self, node: Node, token: bytes, *keys: bytes) -> Any:
        until = asyncio.get_running_loop().time() + 60
        return (await self.ask(node, MUTEX.releasing(keys, token, until))).deleted

    async def value(self, node: Node, key: bytes = b"a") -> tuple[int, bytes]:
        """Milliseconds that a key has left, and its value."""
        ((left, value),) = await self.ask(node, Command(RAW_INSPECT, (key,)))
        return left, value

    async def offered(self, node: Node, key: bytes = b"a") -> bytes:
        """The claim that a key is kept for; empty where it is free or held."""
        _, value = await self.value(node, key)
        return value.removeprefix(OFFER) if is_offer(value) else b""

    async def messages(self, *waiters: Waiter) -> list[list[bytes]]:
        """Return the new messages to each waiter, except texts without a meaning."""
        for waiter in waiters:
            # A message published before an answer comes before that answer.
            await self.value(waiter.node, b"nothing")
            await self.value(waiter.node, b"nothing")
        said = [list(filter(None, waiter.heard.messages)) for waiter in waiters]
        for waiter in waiters:
            waiter.heard.messages.clear()
        return said

    # -- A first attempt, and refusals ------------------------------------------------------------

    @every_kind
    async def test_a_first_attempt_enters_no_queue(self, place: Place, kind: LockKind) -> None:
        waiter = await self.waiter(place)
        await self.trusted(waiter.node)
        await place.put("a", "one", TTL)
        assert is_held(await self.acquire(waiter, b"two", b"a", kind=kind))
        assert await place.queue("a") == []

    @every_kind
    async def test_a_refusal_names_the_remaining_time_the_key_and_the_highest_ticket(
        self, place: Place, kind: LockKind
    ) -> None:
        first, second = await self.waiters(place, 2)
        await self.trusted(first.node)
        await self.ask(first.node, stand(first.claim(41), b"a"))
        await self.ask(second.node, stand(second.claim(7), b"a"))
        for keys, at in (((b"a",), 1), ((b"0", b"a", b"z"), 2)):
            refusal = await self.acquire(second, b"two", *keys, ticket=7, kind=kind)
            assert refusal == Refused(refusal.left, place=at, ticket=41)
            assert TTL - SLACK < refusal.left * 1000 <= TTL
        assert await self.value(first.node, b"0") == (-2, b""), "no key was taken"

    async def test_a_refusal_names_the_first_key_that_is_not_free(self, place: Place) -> None:
        waiter = await self.waiter(place)
        await place.put("b", "one", 60_000)
        await place.put("c", "one", TTL)
        await self.ask(waiter.node, stand(waiter.claim(9), b"c"))
        refusal = await self.acquire(waiter, b"two", b"a", b"b", b"c")
        # The ticket of the set must be above the tickets of all its names.
        assert refusal == Refused(refusal.left, place=2, ticket=9)
        assert 60_000 - SLACK < refusal.left * 1000 <= 60_000

    async def test_the_refusal_of_a_key_without_expiry_names_no_remaining_time(
        self, place: Place
    ) -> None:
        waiter = await self.waiter(place)
        await place.keep("a", "one")
        assert await self.acquire(waiter, b"two", b"a") == Refused(None, 1, 0)
        assert await self.ask(waiter.node, stand(waiter.claim(1), b"a")) == Standing(None, 0)

    async def test_a_ticket_beyond_all_tickets_counts_as_the_highest(self, place: Place) -> None:
        """Above 2**53 scores skip numbers, and servers write them in a form that is no ticket."""
        waiter, other = await self.waiter(place), await self.waiter(place)
        await place.put("a", "one", TTL)
        await self.ask(other.node, stand(b"%d:%b" % (10**30, other.member), b"a"))
        assert (await self.acquire(waiter, b"two", b"a")).ticket == 2**53
        for waits in (waiter, other):
            await self.ask(waits.node, stand(waits.claim(2**53 + 1), b"a"))
        members = sorted((waiter.member, other.member))
        assert await place.queue("a") == [(2**53, member) for member in members]
        first, second = sorted((waiter, other), key=lambda waits: waits.member)
        assert await self.release(waiter.node, b"one", b"a") == 1
        assert is_held(await self.acquire(second, b"two", b"a", ticket=2**53 + 1))
        assert await self.acquire(first, b"two", b"a", ticket=2**53 + 1) is GRANTED

    # -- Requests ---------------------------------------------------------------------------------

    @spread("labels", [(), (b"o:a", b"o:b")], ids=["without labels", "with labels"])
    async def test_an_inspection_counts_the_waiters_for_each_key(
        self, place: Place, labels: tuple[bytes, ...]
    ) -> None:
        waiters = await self.waiters(place, 3)
        looked = await self.ask(
            waiters[0].node, MUTEX.inspecting((b"a", b"b"), labels, queues=True)
        )
        held, free = looked.keys
        assert isinstance(held, Held)
        assert (held.token, held.label, held.waiting, free) == (b"one", b"", 3, Free(waiting=0))

    async def test_an_inspection_counts_the_waiter_of_an_offered_key_once(
        self, place: Place
    ) -> None:
        first, second = await self.waiters(place, 2)
        assert await self.release(first.node, b"one", b"a") == 1
        looking = MUTEX.inspecting((b"a",), queues=True)
        for _ in range(2):
            (look,) = (await self.ask(second.node, looking)).keys
            assert isinstance(look, Free)
            assert look.offered is not None
            assert 0 < look.offered * 1000 <= GRACE
            assert look.waiting == 2
            # It is back in the queue now, beside its offer.
            await self.ask(first.node, stand(first.claim(1), b"a"))
        await self.ask(first.node, leave(first.member, b"a"))
        await self.ask(second.node, leave(second.member, b"a"))
        assert (await self.ask(first.node, looking)).keys == (Free(waiting=0),)

    # -- Standing ---------------------------------------------------------------------------------

    async def test_waiters_stand_in_the_order_of_their_tickets(self, place: Place) -> None:
        await place.put("a", "one", TTL)
        waiters = [await self.waiter(place) for _ in range(3)]
        ranks = []
        for ticket, waiter in zip((5, 3, 4), waiters, strict=True):
            ranks.append((await self.ask(waiter.node, stand(waiter.claim(ticket), b"a"))).rank)
        assert ranks == [0, 0, 1]
        members = [waiters[at].member for at in (1, 2, 0)]
        assert await place.queue("a") == list(zip((3, 4, 5), members, strict=True))

    async def test_waiters_with_the_same_ticket_stand_in_the_order_of_their_members(
        self, place: Place
    ) -> None:
        await place.put("a", "one", TTL)
        waiters = sorted(
            [await self.waiter(place) for _ in range(3)], key=lambda waiter: waiter.member
        )
        for waiter in reversed(waiters):
            assert (await self.ask(waiter.node, stand(waiter.claim(4), b"a"))).rank == 0
        assert await place.queue("a") == [(4, waiter.member) for waiter in waiters]

    async def test_a_waiter_that_stands_again_has_one_place_by_its_latest_ticket(
        self, place: Place
    ) -> None:
        first, second = await self.waiters(place, 2)
        assert (await self.ask(first.node, stand(first.claim(3), b"a"))).rank == 1
        assert await place.queue("a") == [(2, second.member), (3, first.member)]

    async def test_two_lines_of_a_process_are_two_members(self, place: Place) -> None:
        (first,) = await self.waiters(place, 1)
        second = Waiter(first.node, first.heard, line=2)
        assert (await self.ask(second.node, stand(second.claim(2), b"a"))).rank == 1
        await self.release(first.node, b"one", b"a")
        assert await self.messages(first) == [[first.message(0), second.message(GRACE)]]

    async def test_the_first_waiter_learns_the_end_of_the_holder_and_the_second_that_of_an_offer(
        self, place: Place
    ) -> None:
        waiters = await self.waiters(place, 3)
        answers = [
            await self.ask(waiter.node, stand(waiter.claim(at), b"a"))
            for at, waiter in enumerate(waiters, 1)
        ]
        assert [answer.rank for answer in answers] == [0, 1, 2]
        lefts = [answer.left for answer in answers]
        assert TTL - SLACK < lefts[0] * 1000 <= TTL
        assert TTL + GRACE - SLACK < lefts[1] * 1000 <= TTL + GRACE
        assert lefts[2] is None, "the third cannot know"

    @spread("key", [b"a", b"a#1"])
    async def test_the_first_waiter_learns_whether_the_holder_watches_the_key(
        self, place: Place, key: bytes
    ) -> None:
        first, second = [await self.waiter(place) for _ in range(2)]
        await place.put(key.decode(), "one", TTL)

        async def watched() -> list[bool]:
            return [
                (await self.ask(waiter.node, stand(waiter.claim(ticket), key))).watched
                for ticket, waiter in enumerate((first, second), 1)
            ]

        assert await watched() == [False, False]
        for label, expected in ((b"two 0 0 web", False), (b"one 0 0 web", True)):
            words = (owner_key(key),), (TTL, label)
            await self.ask(first.node, MUTEX.watching((key,), (b"one",), words))
            assert await watched() == [expected, False]
        await self.release(first.node, b"one", key)
        assert await watched() == [False, False]

    async def test_the_second_waiter_learns_when_an_offer_to_the_first_waiter_expires(
        self, place: Place
    ) -> None:
        first, second, third = await self.waiters(place, 3)
        await self.release(first.node, b"one", b"a")
        waiters = {2: second, 3: third}
        standings = [
            await self.ask(waiters[ticket].node, stand(waiters[ticket].claim(ticket), b"a"))
            for ticket in (2, 3, 2)
        ]
        assert [standing.rank for standing in standings] == [0, 1, 0]
        before, later, after = [round(standing.left * 1000) for standing in standings]
        assert 0 < before <= GRACE
        assert after <= later - 20 <= before, "the third waiter refreshes 20 ms after the second"
        assert await self.ask(first.node, stand(first.claim(1), b"a")) == Standing(0.0, 0)

    async def test_a_waiter_that_stands_before_a_free_key_is_offered_the_key(
        self, place: Place
    ) -> None:
        waiter = await self.waiter(place)
        assert await self.ask(waiter.node, stand(waiter.claim(3), b"a")) == Standing(0.0, 0)
        assert await self.offered(waiter.node) == waiter.claim(3)

    async def test_a_free_key_is_offered_to_the_first_waiter_by_a_request_of_any_waiter(
        self, place: Place
    ) -> None:
        first, second = await self.waiters(place, 2)
        await place.delete("a")
        standing = await self.ask(second.node, stand(second.claim(2), b"a"))
        assert standing.rank == 0
        assert 0 < standing.left * 1000 <= GRACE
        assert await self.offered(first.node) == first.claim(1)
        assert await self.messages(first, second) == [[first.message(0)], [second.message(GRACE)]]

    async def test_a_queue_that_no_waiter_confirms_expires(self, place: Place) -> None:
        await place.put("a", "one", TTL)
        waiter = await self.waiter(place)
        await self.ask(waiter.node, stand(waiter.claim(1), b"a", life=20))
        await asyncio.sleep(0.03)
        assert await place.queue("a") == []
        assert (await self.acquire(waiter, b"two", b"a")).ticket == 0

    async def test_a_queue_lives_longer_if_a_waiter_further_back_confirms_it(
        self, place: Place
    ) -> None:
        await place.put("a", "one", TTL)
        waiters = [await self.waiter(place) for _ in range(3)]
        for rank, waiter in enumerate(waiters):
            await self.ask(waiter.node, stand(waiter.claim(rank), b"a"))
            life = LIFE * (1 + 2 * rank)
            assert life - SLACK < await place.queue_left("a") <= life
        await self.ask(waiters[0].node, stand(waiters[0].claim(0), b"a"))
        assert await place.queue_left("a") > 5 * LIFE - SLACK, (
            "the look of the first does not shorten it"
        )

    async def test_a_request_of_a_waiter_removes_the_dead_waiters_just_before_it_and_no_others(
        self, place: Place
    ) -> None:
        (first,) = await self.waiters(place, 1)
        await self.dead(place, 3)
        silent, living, last = (
            await self.waiter(place, notified=False),
            await self.waiter(place),
            await self.waiter(place),
        )
        await self.ask(living.node, stand(living.claim(5), b"a"))
        assert await place.queue("a") == [(1, first.member), (5, living.member)]
        for ticket in (2, 6, 7):
            await self.dead(place, ticket)
        assert (await self.ask(last.node, stand(last.claim(8), b"a"))).rank == 3
        await self.ask(silent.node, stand(silent.claim(9), b"a"))
        assert (await self.ask(last.node, stand(last.claim(10), b"a"))).rank == 4

    async def test_a_waiter_that_enters_or_refreshes_sends_nothing_to_the_waiter_before_it(
        self, place: Place
    ) -> None:
        first, second = await self.waiters(place, 2)
        await self.messages(first, second)
        await self.ask(second.node, stand(second.claim(2), b"a"))
        third = await self.waiter(place)
        await self.ask(third.node, stand(third.claim(3), b"a"))
        for waiter in (first, second):
            # An answer comes behind the messages that were published before.
            await self.value(waiter.node, b"nothing")
            await self.value(waiter.node, b"nothing")
            assert waiter.heard.messages == [], "not even an empty message, which would wake it"

    async def test_the_place_of_a_dead_process_is_not_waited_for(self, place: Place) -> None:
        await place.put("a", "one", TTL)
        node, _ = await place.node()
        member = member_of(secrets.token_hex(8).encode(), 1, 1.0, notified=True)
        await place.delete("a")
        assert await self.ask(node, stand(claim_of(3, member), b"a")) == Standing(0.0, -1), (
            "nobody hears of the offer"
        )
        assert await place.queue("a") == []

    # -- Offers -----------------------------------------------------------------------------------

    @spread("how", ["release", "release of several", "hand-over", "leave", "stand"])
    async def test_a_key_that_becomes_free_is_offered_and_the_first_two_waiters_are_notified(
        self, place: Place, how: str
    ) -> None:
        leaver, first, second, third = await self.waiters(place, 4)
        match how:
            case "release":
                await self.ask(leaver.node, leave(leaver.member, b"a"))
                await self.messages(first)
                assert await self.release(leaver.node, b"one", b"a") == 1
            case "release of several":
                await self.ask(leaver.node, leave(leaver.member, b"a"))
                await self.messages(first)
                await place.put("b", "one", TTL)
                assert await self.release(leaver.node, b"one", b"a", b"b", b"c") == 2
                assert await self.value(leaver.node, b"b") == (-2, b"")
            case "hand-over" | "leave":
                assert await self.release(leaver.node, b"one", b"a") == 1
                assert await self.offered(leaver.node) == leaver.claim(1)
                await self.messages(first)
                assert await self.ask(leaver.node, leave(leaver.member, b"a")) is LEFT
            case "stand":
                await self.ask(leaver.node, leave(leaver.member, b"a"))
                await place.delete("a")
                await self.messages(first)
                await self.ask(third.node, stand(third.claim(4), b"a"))
        left, value = await self.value(first.node)
        assert value == OFFER + first.claim(2)
        assert GRACE - SLACK < left <= GRACE
        assert [waiter.member for waiter in (second, third)] == [
            member for _, member in await place.queue("a")
        ]
        (*_, last), (*_, told), silent = await self.messages(first, second, third)
        assert (last, told, silent) == (first.message(0), second.message(GRACE), [])

    async def test_a_retired_key_is_not_offered_and_the_first_two_waiters_are_notified(
        self, place: Place
    ) -> None:
        """The second asks when the key expires, in case the first has died."""
        first, second, third = await self.waiters(place, 3)
        await self.messages(first, second, third)
        assert await self.ask(first.node, MUTEX.retiring((b"a",), b"one", 9_000, 60.0)) == released(
            1
        )
        assert await place.queue("a") == [(1, first.member), (2, second.member), (3, third.member)]
        left, value = await self.value(first.node)
        assert value == over_mark(b"one")
        assert 9_000 - SLACK < left <= 9_000
        told, (last,), silent = await self.messages(first, second, third)
        assert (told, silent) == ([first.message(-1)], [])
        assert second.is_second(last, 9_000)

    async def test_a_request_of_the_first_waiter_notifies_the_second_of_the_expiry(
        self, place: Place
    ) -> None:
        first, second, third = await self.waiters(place, 3)
        await self.messages(first, second, third)
        for ticket, waiter in enumerate((first, second, third), 1):
            await self.ask(waiter.node, stand(waiter.claim(ticket), b"a"))
            silent, told, silent_too = await self.messages(first, second, third)
            assert (silent, silent_too) == ([], [])
            assert [second.is_second(message, TTL) for message in told] == [True] * (
                waiter is first
            )

    async def test_a_key_without_waiters_is_deleted_by_its_release(self, place: Place) -> None:
        (waiter,) = await self.waiters(place, 1)
        await self.ask(waiter.node, leave(waiter.member, b"a"))
        assert await self.release(waiter.node, b"one", b"a") == 1
        assert await self.value(waiter.node) == (-2, b"")

    async def test_a_release_of_another_token_offers_nothing(self, place: Place) -> None:
        (waiter,) = await self.waiters(place, 1)
        assert await self.release(waiter.node, b"another", b"a") == 0
        assert (await self.value(waiter.node))[1] == b"one"
        assert await self.messages(waiter) == [[]]

    @spread("keys", [(b"a",), (b"a", b"b")], ids=["one key", "two keys"])
    async def test_a_release_of_a_deleted_key_offers_it_to_the_first_waiter(
        self, place: Place, keys: tuple[bytes, ...]
    ) -> None:
        (waiter,) = await self.waiters(place, 1)
        await place.put("b", "one", TTL)
        await place.delete("a")
        assert await self.release(waiter.node, b"one", *keys) == len(keys) - 1
        assert await self.offered(waiter.node) == waiter.claim(1)
        assert await self.messages(waiter) == [[waiter.message(0)]]

    async def test_an_early_release_of_a_deleted_key_offers_it_to_the_first_waiter(
        self, place: Place
    ) -> None:
        (waiter,) = await self.waiters(place, 1)
        await place.delete("a")
        until = asyncio.get_running_loop().time() + 60
        retiring = MUTEX.retiring((b"a",), b"one", 9_000, until, b"")
        assert await self.ask(waiter.node, retiring) == released(0)
        assert await self.offered(waiter.node) == waiter.claim(1)

    async def test_a_release_that_offers_deletes_the_label_of_its_attempt(
        self, place: Place
    ) -> None:
        (waiter,) = await self.waiters(place, 1)
        await place.put("label", "of one", TTL)
        until = asyncio.get_running_loop().time() + 60
        assert await self.ask(
            waiter.node, MUTEX.releasing((b"a",), b"one", until, (b"label",))
        ) == released(1)
        assert await self.offered(waiter.node) == waiter.claim(1)
        assert await self.value(waiter.node, b"label") == (-2, b"")

    async def test_a_message_can_name_a_key_of_any_bytes(self, place: Place) -> None:
        waiter = await self.waiter(place)
        key = b"a key: \r\n\0\xff of 1 b"
        await self.acquire(waiter, b"one", key)
        await self.ask(waiter.node, stand(waiter.claim(1), key))
        await self.release(waiter.node, b"one", key)
        assert await self.messages(waiter) == [[waiter.message(0, key)]]

    @every_kind
    async def test_an_offer_admits_only_its_member_and_the_members_before_it(
        self, place: Place, kind: LockKind
    ) -> None:
        others = sorted(
            [await self.waiter(place) for _ in range(3)], key=lambda waiter: waiter.member
        )
        before, member, behind = others
        await self.trusted(member.node)
        for asks, ticket, admitted in (
            (member, 5, True),
            (member, 9, True),
            (behind, 4, True),
            (before, 5, True),
            (behind, 5, False),
            (before, 6, False),
            (before, 0, False),
        ):
            await place.put("a", (OFFER + member.claim(5)).decode(), TTL)
            answer = await self.acquire(asks, b"two", b"a", ticket=ticket, kind=kind)
            assert (answer is GRANTED) == admitted
            if not admitted:
                assert is_held(answer)
                assert answer.left is not None
                assert TTL - SLACK < answer.left * 1000 <= TTL
                assert await self.offered(member.node) == member.claim(5)
            else:
                left, value = await self.value(member.node)
                assert value == b"two"
                assert TTL - SLACK < left <= TTL

    @spread(
        "value",
        [b"", b"5", b"5:", b":m", b"x:m", b"-5:m", b"1e+300:m", b" 5:m", b"offer:9:m"],
        ids=bytes.decode,
    )
    async def test_a_damaged_offer_admits_no_waiter_and_is_left_to_expire(
        self, place: Place, value: bytes
    ) -> None:
        waiter = await self.waiter(place)
        await place.put("a", (OFFER + value).decode(), TTL)
        for ticket in (0, 1, 9):
            assert is_held(await self.acquire(waiter, b"two", b"a", ticket=ticket))
        standing = await self.ask(waiter.node, stand(waiter.claim(1), b"a"))
        assert standing.rank == 0
        assert TTL - SLACK < standing.left * 1000 <= TTL
        assert await self.ask(waiter.node, leave(waiter.member, b"a")) is LEFT
        assert (await self.value(waiter.node))[1] == OFFER + value

    @spread("claim", [b"5", b"5:", b":m", b"x:m", b"-5:m"], ids=bytes.decode)
    async def test_an_invalid_claim_is_admitted_by_no_offer(
        self, place: Place, claim: bytes
    ) -> None:
        node, _ = await place.node()
        assert (
            await self.ask(node, MUTEX.acquiring((b"b",), (), b"two", b"%d" % TTL, 0, claim))
            is GRANTED
        )
        await place.put("a", (OFFER + b"9:m").decode(), TTL)
        assert is_held(
            await self.ask(node, MUTEX.acquiring((b"a",), (), b"two", b"%d" % TTL, 0, claim))
        )

    async def test_an_offer_that_was_not_used_ends_and_its_member_loses_its_place(
        self, place: Place
    ) -> None:
        first, second, third = await self.waiters(place, 3)
        await self.release(first.node, b"one", b"a")
        await place.delete("a")
        await self.messages(third)
        assert await self.acquire(second, b"two", b"a", ticket=2) is GRANTED
        assert await place.queue("a") == [(3, third.member)]
        assert await self.messages(third) == [[third.message(-1)]]
        # It comes back with its ticket, and so to its place.
        assert (await self.ask(first.node, stand(first.claim(1), b"a"))).rank == 0

    async def test_an_offer_ends_after_the_grace_of_its_member(self, place: Place) -> None:
        waiter = await self.waiter(place, grace=20)
        await self.acquire(waiter, b"one", b"a")
        await self.ask(waiter.node, stand(waiter.claim(1), b"a"))
        await self.release(waiter.node, b"one", b"a")
        await asyncio.sleep(0.03)
        assert await self.value(waiter.node) == (-2, b"")

    async def test_an_offer_lasts_an_hour_at_most(self, place: Place) -> None:
        node, _ = await place.node()
        await place.put("a", "one", TTL)
        await self.ask(node, stand(claim_of(1, b"-0123456789abcdef:1:" + b"9" * 20), b"a"))
        await self.release(node, b"one", b"a")
        left, value = await self.value(node)
        assert value.startswith(OFFER)
        assert 3_590_000 < left <= 3_600_000

    @spread("grace", [b"0", b"x", b""], ids=bytes.decode)
    async def test_an_offer_to_a_member_without_a_grace_ends_at_once(
        self, place: Place, grace: bytes
    ) -> None:
        node, _ = await place.node()
        member = b"-0123456789abcdef:1:" + grace
        await place.put("a", "one", TTL)
        await self.ask(node, stand(claim_of(1, member), b"a"))
        await self.release(node, b"one", b"a")
        await asyncio.sleep(0.01)
        assert await self.value(node) == (-2, b"")

    # -- Grants -----------------------------------------------------------------------------------

    @every_kind
    async def test_a_grant_removes_its_waiter_and_notifies_only_the_new_first_waiter(
        self, place: Place, kind: LockKind
    ) -> None:
        first, second, third = await self.waiters(place, 3)
        await self.trusted(first.node)
        await place.delete("a")
        assert await self.acquire(first, b"two", b"a", ticket=1, kind=kind) is GRANTED
        assert await place.queue("a") == [(2, second.member), (3, third.member)]
        assert await self.messages(first, second, third) == [[], [second.message(-1)], []]

    @every_kind
    async def test_a_grant_of_an_offer_notifies_nobody_because_the_offer_notified_the_second(
        self, place: Place, kind: LockKind
    ) -> None:
        first, second, third = await self.waiters(place, 3)
        await self.trusted(first.node)
        await self.messages(first, second, third)
        await self.release(first.node, b"one", b"a")
        offered = await self.messages(first, second, third)
        assert offered == [[first.message(0)], [second.message(GRACE)], []]
        # A refresh puts a waiter with an offer back into the queue.
        await self.ask(first.node, stand(first.claim(1), b"a"))
        assert await self.acquire(first, b"two", b"a", ticket=1, kind=kind) is GRANTED
        assert await place.queue("a") == [(2, second.member), (3, third.member)]
        assert await self.messages(first, second, third) == [[], [], []]

    async def test_an_offer_notifies_the_next_waiter_that_is_connected(self, place: Place) -> None:
        (first,) = await self.waiters(place, 1)
        await self.dead(place, 2)
        last = await self.waiter(place)
        # The waiter before it is dead already when it enters, and its entry is set again later.
        await self.ask(last.node, stand(last.claim(4), b"a"))
        await self.dead(place, 3)
        await self.messages(first, last)
        await self.release(first.node, b"one", b"a")
        assert await place.queue("a") == [(4, last.member)]
        assert await self.messages(first, last) == [[first.message(0)], [last.message(GRACE)]]

    @every_kind
    async def test_a_grant_of_several_keys_removes_its_waiter_from_all_their_queues(
        self, place: Place, kind: LockKind
    ) -> None:
        waiter, other = await self.waiter(place), await self.waiter(place)
        await self.trusted(waiter.node)
        for key in ("a", "b"):
            await place.put(key, "one", TTL)
            await self.ask(waiter.node, stand(waiter.claim(1), key.encode()))
            await self.ask(other.node, stand(other.claim(2), key.encode()))
            await self.release(waiter.node, b"one", key.encode())
        await self.messages(other)
        await place.delete("b")
        assert await self.acquire(waiter, b"two", b"a", b"b", b"c", ticket=1, kind=kind) is GRANTED
        assert await place.queue("a") == await place.queue("b") == [(2, other.member)]
        assert await self.messages(other) == [[other.message(-1, b"b")]]

    async def test_a_refused_attempt_for_several_keys_overwrites_no_offer(
        self, place: Place
    ) -> None:
        (waiter,) = await self.waiters(place, 1)
        await self.release(waiter.node, b"one", b"a")
        await place.put("b", "another", TTL)
        assert (await self.acquire(waiter, b"two", b"a", b"b", ticket=1)).place == 2
        assert await self.offered(waiter.node) == waiter.claim(1)
        assert await place.queue("a") == []

    async def test_a_grant_to_a_member_before_the_first_leaves_the_first_its_place(
        self, place: Place
    ) -> None:
        _, first = await self.waiters(place, 2)
        early = await self.waiter(place)
        await place.put("a", (OFFER + first.claim(2)).decode(), TTL)
        assert await self.acquire(early, b"two", b"a", ticket=1) is GRANTED
        assert first.member in [member for _, member in await place.queue("a")], (
            "it did not let the offer lapse"
        )

    async def test_a_first_attempt_that_takes_a_free_key_leaves_the_queue_as_it_is(
        self, place: Place
    ) -> None:
        first, second = await self.waiters(place, 2)
        await place.delete("a")
        assert await self.acquire(second, b"two", b"a") is GRANTED
        assert await place.queue("a") == [(1, first.member), (2, second.member)]
        assert await self.messages(first, second) == [[], []]

    async def test_a_grant_removes_dead_first_waiters_from_the_queue(self, place: Place) -> None:
        (waiter,) = await self.waiters(place, 1)
        await self.dead(place, 2)
        await self.dead(place, 3)
        last = await self.waiter(place)
        await self.ask(last.node, stand(last.claim(4), b"a"))
        await place.delete("a")
        assert await self.acquire(waiter, b"two", b"a", ticket=1) is GRANTED
        assert await place.queue("a") == [(4, last.member)]
        assert await self.messages(last) == [[last.message(-1)]]

    @spread("kind", [GUARDED, BOTH], ids=["guarded", "fenced and guarded"])
    async def test_a_node_that_is_not_trusted_keeps_the_places_of_waiters_that_it_refuses(
        self, place: Place, kind: LockKind
    ) -> None:
        first, second = await self.waiters(place, 2)
        await self.release(first.node, b"one", b"a")
        assert await self.acquire(first, b"two", b"a", ticket=1, kind=kind) == Quarantined(None)
        assert await place.queue("a") == [(2, second.member)]
        assert await self.offered(first.node) == first.claim(1)

    @spread(
        "attempt",
        [
            GUARDED.acquiring((b"a",), (b"a",), b"two", b"%d" % TTL, 2),
            BOTH.acquiring((b"a",), (b"a",), b"two", b"%d" % TTL, 2),
            read_side(GUARDED).acquiring((b"a",), (b"a",), b"2" * 32, b"%d" % TTL, 2),
        ],
        ids=["guarded", "fenced and guarded", "read"],
    )
    async def test_a_node_that_is_not_trusted_changes_no_key_even_for_a_moment(
        self, place: Place, attempt: Command
    ) -> None:
        watcher, other = await self.waiter(place), await self.waiter(place)
        await self.ask(watcher.node, MUTEX.watching((b"a",), (b"one",)))
        watcher.heard.forget()
        assert await self.ask(other.node, attempt) == Quarantined(None)
        await self.value(watcher.node, b"nothing")
        assert watcher.heard.told.empty()

    # -- Dead members, and members that poll ------------------------------------------------------

    async def test_an_offer_passes_over_members_whose_process_is_gone_and_removes_them(
        self, place: Place
    ) -> None:
        await place.put("a", "one", TTL)
        await self.dead(place, 1)
        closing = await self.waiter(place)
        await self.ask(closing.node, stand(closing.claim(2), b"a"))
        waiter = await self.waiter(place)
        await self.ask(waiter.node, stand(waiter.claim(3), b"a"))
        await closing.node.aclose(1.0)
        async with asyncio.timeout(30):
            while await place.publish(closing.heard.channel, "0 nobody a"):
                pass
        assert await self.release(waiter.node, b"one", b"a") == 1
        assert await self.offered(waiter.node) == waiter.claim(3)
        assert await place.queue("a") == []

    async def test_the_next_waiter_takes_over_the_offer_of_a_process_that_is_gone(
        self, place: Place
    ) -> None:
        first, second, third = await self.waiters(place, 3)
        assert await self.release(third.node, b"one", b"a") == 1
        await self.ask(second.node, stand(second.claim(2), b"a"))
        assert await self.offered(third.node) == first.claim(1), "its process is there"
        await first.node.aclose(1.0)
        async with asyncio.timeout(30):
            while await place.publish(first.heard.channel, "0 nobody a"):
                pass
        await self.ask(third.node, stand(third.claim(3), b"a"))
        late = await self.waiter(place)
        await self.ask(late.node, stand(late.claim(4), b"a"))
        assert await self.offered(third.node) == first.claim(1), "only the next waiter looks"
        await self.messages(second, third)
        assert (await self.ask(second.node, stand(second.claim(2), b"a"))) == Standing(0.0, 0)
        assert await self.offered(third.node) == second.claim(2)
        to_second, to_third = await self.messages(second, third)
        assert to_second == [second.message(0)]
        assert to_third == [third.message(GRACE)]
        assert await place.queue("a") == [(3, third.member), (4, late.member)]

    async def test_a_key_that_only_dead_processes_wait_for_is_deleted(self, place: Place) -> None:
        await place.put("a", "one", TTL)
        for ticket in (1, 2):
            await self.dead(place, ticket)
        node, _ = await place.node()
        assert await self.release(node, b"one", b"a") == 1
        assert await self.value(node) == (-2, b"")
        assert await place.queue("a") == []

    async def test_a_member_that_asks_by_itself_gets_no_message_and_keeps_its_place_and_offer(
        self, place: Place
    ) -> None:
        silent, second = await self.waiter(place, notified=False), await self.waiter(place)
        await place.put("a", "one", TTL)
        for ticket, waiter in ((1, silent), (2, second)):
            await self.ask(waiter.node, stand(waiter.claim(ticket), b"a"))
        assert await self.release(second.node, b"one", b"a") == 1
        assert await self.offered(second.node) == silent.claim(1)
        assert await self.messages(silent, second) == [[], [second.message(GRACE)]]
        assert await place.queue("a") == [(2, second.member)]
        assert is_held(await self.acquire(second, b"two", b"a", ticket=2))
        assert await self.acquire(silent, b"two", b"a", ticket=1) is GRANTED

    # -- Leaving ----------------------------------------------------------------------------------

    async def test_the_first_waiter_that_leaves_notifies_the_next_two_and_the_third_notifies_none(
        self, place: Place
    ) -> None:
        first, second, third, fourth = await self.waiters(place, 4)
        assert await self.ask(third.node, leave(third.member, b"a")) is LEFT
        assert await self.messages(first, second, fourth) == [[], [], []]
        assert await self.ask(first.node, leave(first.member, b"a")) is LEFT
        silent, told, (last,) = await self.messages(first, second, fourth)
        assert (silent, told) == ([], [second.message(-1)])
        assert fourth.is_second(last, TTL)
        assert await place.queue("a") == [(2, second.member), (4, fourth.member)]
        assert (await self.value(first.node))[1] == b"one"

    async def test_a_waiter_that_is_in_no_queue_leaves_without_a_message(
        self, place: Place
    ) -> None:
        first, _ = await self.waiters(place, 2)
        other = await self.waiter(place)
        assert await self.ask(other.node, leave(other.member, b"a", b"b")) is LEFT
        assert await self.messages(first) == [[]]
        assert len(await place.queue("a")) == 2

    async def test_the_last_waiter_that_leaves_frees_the_key_that_is_reserved_for_it(
        self, place: Place
    ) -> None:
        (waiter,) = await self.waiters(place, 1)
        await self.release(waiter.node, b"one", b"a")
        assert await self.ask(waiter.node, leave(waiter.member, b"a")) is LEFT
        assert await self.value(waiter.node) == (-2, b"")
        assert await place.queue("a") == []

    async def test_a_waiter_that_leaves_ends_no_offer_to_another_line(self, place: Place) -> None:
        (waiter,) = await self.waiters(place, 1)
        other = Waiter(waiter.node, waiter.heard, line=11)
        await self.ask(other.node, stand(other.claim(2), b"a"))
        await self.release(waiter.node, b"one", b"a")
        assert await self.ask(other.node, leave(other.member, b"a")) is LEFT
        assert await self.offered(waiter.node) == waiter.claim(1)

    # -- Several keys -----------------------------------------------------------------------------

    async def test_a_set_waits_for_the_first_held_key_and_reserves_the_keys_before_it(
        self, place: Place
    ) -> None:
        waiter, other = await self.waiter(place), await self.waiter(place)
        for key in ("c", "d"):
            await place.put(key, "one", TTL)
        standing = await self.ask(waiter.node, stand(waiter.claim(5), b"a", b"b", b"c", b"d"))
        assert standing.rank == 0
        assert TTL - SLACK < standing.left * 1000 <= TTL
        assert [await place.queue(key) for key in "abcd"] == [[], [], [(5, waiter.member)], []]
        for key in (b"a", b"b"):
            kept, value = await self.value(waiter.node, key)
            assert value == OFFER + waiter.claim(5)
            assert max(GRACE, KEPT - SLACK) < kept <= KEPT
            assert is_held(await self.acquire(other, b"two", key))
        await self.release(waiter.node, b"one", b"c", b"d")
        assert await self.acquire(waiter, b"set", b"a", b"b", b"c", b"d", ticket=5) is GRANTED

    async def test_a_set_whose_keys_are_free_again_stands_before_the_last(
        self, place: Place
    ) -> None:
        waiter = await self.waiter(place)
        assert await self.ask(waiter.node, stand(waiter.claim(5), b"a", b"b")) == Standing(0.0, 0)
        assert [await self.offered(waiter.node, key) for key in (b"a", b"b")] == [
            waiter.claim(5)
        ] * 2

    async def test_a_set_that_waits_for_an_earlier_key_than_before_gives_up_its_reservations(
        self, place: Place
    ) -> None:
        waiter, other = await self.waiter(place), await self.waiter(place)
        await place.put("c", "one", TTL)
        await self.ask(waiter.node, stand(waiter.claim(5), b"a", b"b", b"c"))
        for key in (b"b", b"c"):
            await self.ask(other.node, stand(other.claim(6), key))
        await self.messages(other)
        await place.put("a", "one", TTL)
        standing = await self.ask(waiter.node, stand(waiter.claim(5), b"a", b"b", b"c"))
        assert standing.rank == 0
        assert TTL - SLACK < standing.left * 1000 <= TTL
        assert [await place.queue(key) for key in "abc"] == [
            [(5, waiter.member)],
            [],
            [(6, other.member)],
        ]
        assert await self.offered(other.node, b"b") == other.claim(6)
        assert await self.messages(other) == [[other.message(0, b"b"), other.message(-1, b"c")]]

    async def test_a_set_that_waits_for_a_later_key_than_before_leaves_the_earlier_queue(
        self, place: Place
    ) -> None:
        waiter, other = await self.waiter(place), await self.waiter(place)
        for key in ("a", "b"):
            await place.put(key, "one", TTL)
        await self.ask(waiter.node, stand(waiter.claim(5), b"a", b"b"))
        await self.ask(other.node, stand(other.claim(6), b"a"))
        await self.release(waiter.node, b"one", b"a")
        await self.messages(waiter, other)
        assert (await self.ask(waiter.node, stand(waiter.claim(5), b"a", b"b"))).rank == 0
        assert [await place.queue(key) for key in "ab"] == [
            [(6, other.member)],
            [(5, waiter.member)],
        ]
        assert await self.offered(waiter.node) == waiter.claim(5), "it is kept for the set"
        assert await self.messages(other) == [[]], "it was told when the offer before it would end"

    async def test_a_set_that_leaves_gives_up_all_its_reservations(self, place: Place) -> None:
        waiter, other = await self.waiter(place), await self.waiter(place)
        await place.put("c", "one", TTL)
        await self.ask(waiter.node, stand(waiter.claim(5), b"a", b"b", b"c"))
        await self.ask(other.node, stand(other.claim(6), b"a"))
        assert await self.ask(waiter.node, leave(waiter.member, b"a", b"b", b"c")) is LEFT
        assert await self.offered(other.node) == other.claim(6)
        assert await self.value(other.node, b"b") == (-2, b"")
        assert await place.queue("c") == []

    # -- Offers and other requests ----------------------------------------------------------------

    async def test_a_repair_takes_back_a_key_that_is_only_offered(self, place: Place) -> None:
        """Otherwise a waiter could keep a key from its holder by asking again and again."""
        (waiter,) = await self.waiters(place, 1)
        await self.trusted(waiter.node)
        await self.release(waiter.node, b"one", b"a")
        repair = BOTH.repairing_of((b"a", b"b"), (b"a", b"b"), b"one", TTL, 99)
        await self.ask(waiter.node, acquire(b"three", 120, b"b", kind=BOTH))
        assert await self.ask(waiter.node, repair) is Repaired.OUTRUN
        await self.release(waiter.node, b"three", b"b")
        assert await self.ask(waiter.node, repair) is Repaired.OUTRUN, "the counter is higher"
        assert await self.offered(waiter.node) == waiter.claim(1)
        repair = BOTH.repairing_of((b"a", b"b"), (b"a", b"b"), b"one", TTL, 120)
        assert await self.ask(waiter.node, repair) is Repaired.DONE
        for key in (b"a", b"b"):
            left, value = await self.value(waiter.node, key)
            assert value == b"one"
            assert 0 < left <= TTL

    async def test_a_repair_counts_no_reader_whose_lease_has_expired(self, place: Place) -> None:
        node, heard = await place.node()
        await self.trusted(node)
        read = read_side(BOTH).acquiring((b"a",), (b"a",), b"2" * 32, b"50", 0)
        assert isinstance(await self.ask(node, read), Granted)
        # The offer to a waiting reader outlives the lease, and keeps the key.
        member = member_of(heard.manager_id, 1, 20.0, notified=True, reader=True)
        await self.ask(node, standing_to_read((b"a",), claim_of(1, member), LIFE))
        await asyncio.sleep(0.1)
        repair = BOTH.repairing_of((b"a",), (b"a",), b"one", TTL, 2**52)
        assert await self.ask(node, repair) is Repaired.DONE

    async def test_an_offer_is_no_lease(self, place: Place) -> None:
        (waiter,) = await self.waiters(place, 1)
        await self.trusted(waiter.node)
        await self.release(waiter.node, b"one", b"a")
        assert (
            await self.ask(waiter.node, Command(MUTEX.extend, (b"a",), (TTL, b"one"), tracked=True))
            == MISSING
        )
        assert (
            await self.ask(waiter.node, Command(MUTEX.watch, (b"a",), (b"one",), tracked=True))
            == MISSING
        )
        assert await self.ask(
            waiter.node, FENCED.confirming((b"a",), (b"a",), b"one", 99)
        ) == Unacknowledged(0)
        assert await self.release(waiter.node, b"one", b"a") == 0
        assert await self.ask(
            waiter.node, Command(FORCE_RELEASE, (b"a",), (1, 0, b"one"))
        ) == ForceReleased(0)
        assert await self.offered(waiter.node) == waiter.claim(1)

    async def test_a_tracked_request_is_notified_of_the_end_of_the_holder(
        self, place: Place
    ) -> None:
        (waiter,) = await self.waiters(place, 1)
        await self.ask(waiter.node, stand(waiter.claim(1), b"a", tracked=True))
        waiter.heard.forget()
        await place.delete("a")
        await waiter.heard.hears_of(b"a")
