"""What every node does where processes compete for one key, whatever is behind it: part of the contract of `suite.py`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng._core.keys import PRECEDENCE_KEYS
from aioredlock_ng._scripts.kinds import MUTEX
from tests.contract.guarded import BOTH, FENCED, GUARDED

if TYPE_CHECKING:
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng._scripts import Command
    from aioredlock_ng._scripts.kinds import LockKind
    from tests.contract.suite import Listener, Place

__all__ = ["PrecedenceContract"]

TTL = 20_000
KEY = PRECEDENCE_KEYS + b"a"
LONG = 10_000
"""Milliseconds that nobody waits for."""

every_kind = pytest.mark.parametrize("kind", [FENCED, GUARDED, BOTH], ids=["fenced", "guarded", "both"])


class PrecedenceContract:
    """Subclasses have a fixture `place`, and `ask`, `said` and `trusted`."""

    async def ask(self, node: Node, command: Command) -> Any:
        raise NotImplementedError

    async def trusted(self, node: Node) -> bytes:
        raise NotImplementedError

    async def said(self, node: Node) -> tuple[int, bytes]:
        """Milliseconds that the precedence has left, and what it says."""
        ((left, value),) = await self.ask(node, MUTEX.inspecting((KEY,)))
        return left, value

    async def compete(self, node: Node, kind: LockKind, who: bytes, wants: int = 0, times: int = 0) -> Any:
        self.fence = getattr(self, "fence", 0) + 1
        precedence = (KEY, who, wants, times)
        return await self.ask(node, kind.acquiring((b"a",), (b"a",), b"of-" + who, b"%d" % TTL, self.fence, precedence))

    @every_kind
    async def test_who_was_outrun_most_often_goes_first_when_the_key_is_free(self, place: Place, kind: LockKind) -> None:
        node, _ = await place.node()
        await self.trusted(node)
        await place.put("a", "held", TTL)
        assert (await self.compete(node, kind, b"p0"))[0] == 0
        assert await self.said(node) == (-2, b""), "who does not want it does not ask for it"
        for who, times, said in (
            (b"p1", 3, b"p1:10000:3"),
            (b"p2", 3, b"p1:10000:3"),
            (b"p2", 4, b"p2:10000:4"),
            (b"p2", 5, b"p2:10000:5"),
            (b"p1", 4, b"p2:10000:5"),
        ):
            refused, left = await self.compete(node, kind, who, LONG, times)
            assert refused == 0
            assert TTL // 2 < left <= TTL
            left, value = await self.said(node)
            assert value == said
            assert TTL < left <= TTL + LONG
        await place.delete("a")
        for who, times in ((b"p3", 0), (b"p1", 9), (b"p3", 0)):
            assert await self.compete(node, kind, who, LONG * bool(times), times) == [0, LONG]
            left, value = await self.said(node)
            assert value == b"p2:10000:5:", "from now on it is counted"
            assert left <= LONG
        ((left, value),) = await self.ask(node, MUTEX.inspecting((b"a",)))
        assert (left, value) == (-2, b""), "nothing is left of those that were sent away"
        assert await self.compete(node, kind, b"p2", LONG, 6) == 1
        assert await self.said(node) == (-2, b"")

    @every_kind
    async def test_it_is_over_soon_after_the_key_was_found_free(self, place: Place, kind: LockKind) -> None:
        node, _ = await place.node()
        await self.trusted(node)
        await place.put("a", "held", TTL)
        assert (await self.compete(node, kind, b"p1", 30, 2))[0] == 0
        await place.delete("a")
        assert await self.compete(node, kind, b"p2") == [0, 30]
        await asyncio.sleep(0.035)
        assert await self.compete(node, kind, b"p2") == 1

    async def test_who_does_not_compete_is_sent_away_by_nobody(self, place: Place) -> None:
        node, _ = await place.node()
        await place.put("a", "held", TTL)
        assert (await self.compete(node, FENCED, b"p1", LONG, 2))[0] == 0
        await place.delete("a")
        assert await self.ask(node, MUTEX.acquiring((b"a",), (b"a",), b"any", b"%d" % TTL, 0)) == 1

    async def test_who_is_sent_away_is_not_told_of_others_that_are(self, place: Place) -> None:
        """Else they would wake each other as long as it lasts."""
        node, heard = await place.node()
        other, _ = await place.node()
        await place.put("a", "held", TTL)
        assert (await self.compete(other, FENCED, b"p1", LONG, 2))[0] == 0
        await place.delete("a")
        assert await self.compete(node, FENCED, b"p2") == [0, LONG]
        await self._forget(heard)
        assert await self.compete(other, FENCED, b"p3") == [0, LONG]
        await self._forget(heard, nothing=True)

    @pytest.mark.parametrize("value", ["", "no precedence", "p1:x:1", "p1:5", ":5:1"])
    async def test_what_is_no_precedence_stops_nobody(self, place: Place, value: str) -> None:
        node, _ = await place.node()
        await place.put(KEY.decode(), value, TTL)
        assert await self.compete(node, FENCED, b"p2") == 1
        assert (await self.compete(node, FENCED, b"p3", LONG, 2))[0] == 0
        assert (await self.said(node))[1] == b"p3:10000:2"

    async def _forget(self, heard: Listener, *, nothing: bool = False) -> None:
        """Let everything arrive that is on its way."""
        await asyncio.sleep(0.02)
        assert not nothing or heard.told.empty()
        heard.forget()
