"""The aiohttp example: two servers on loopback share the accounts and get requests at once."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from aiohttp.test_utils import TestClient, TestServer

from examples import aiohttp_app
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.node_set import NodeSet


@pytest.fixture
async def clients(
    nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[TestClient]]:
    monkeypatch.setattr(aiohttp_app, "balances", {"ann": 100, "bob": 100, "cid": 100})
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(TestClient(TestServer(aiohttp_app.create_app())))
            for _ in range(2)
        ]


async def test_no_money_is_made_or_lost_by_transfers_at_the_same_time(
    clients: list[TestClient], nodes: NodeSet
) -> None:
    draw = random.Random(3)
    pairs = [draw.sample(sorted(aiohttp_app.balances), 2) for _ in range(40)]

    async def send(number: int, source: str, target: str) -> int:
        params = {"from": source, "to": target, "amount": "1"}
        async with clients[number % 2].post("/transfer", params=params) as answer:
            return answer.status

    statuses = await asyncio.gather(*(send(number, *pair) for number, pair in enumerate(pairs)))
    assert set(statuses) == {200}
    expected = {"ann": 100, "bob": 100, "cid": 100}
    for source, target in pairs:
        expected[source] -= 1
        expected[target] += 1
    assert aiohttp_app.balances == expected
    # Sooner than a key that is left behind would go by itself.
    await eventually(lambda: nodes.keys() == [set()] * 3, within=5.0)


async def test_an_error_of_the_handler_passes_and_gives_the_lock_back(
    clients: list[TestClient], nodes: NodeSet
) -> None:
    async with clients[0].post(
        "/transfer", params={"from": "ann", "to": "bob", "amount": "101"}
    ) as answer:
        assert (answer.status, await answer.text()) == (409, "ann has only 100")
    # Sooner than a key that is left behind would go by itself.
    await eventually(lambda: nodes.keys() == [set()] * 3, within=5.0)


async def test_a_lock_that_cannot_be_had_is_answered_with_try_again(
    clients: list[TestClient], nodes: NodeSet
) -> None:
    for node in nodes:
        node.command("LPUSH", "account:bob", "no lock at all")
    async with clients[0].post(
        "/transfer", params={"from": "ann", "to": "bob", "amount": "1"}
    ) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert aiohttp_app.balances["ann"] == 100


async def test_a_transfer_from_an_account_to_itself_is_refused(
    clients: list[TestClient], nodes: NodeSet
) -> None:
    async with clients[0].post(
        "/transfer", params={"from": "ann", "to": "ann", "amount": "1"}
    ) as answer:
        assert (answer.status, await answer.text()) == (
            400,
            "two different accounts that exist, please",
        )
    assert nodes.keys() == [set()] * 3
