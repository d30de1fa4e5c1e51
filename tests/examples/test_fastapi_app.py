"""The FastAPI example: two instances of the app, as two server processes would be, and real
requests at the same time.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import httpx
import pytest

from aioredlock_ng import Redlock
from examples import fastapi_app
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.node_set import NodeSet


@pytest.fixture
async def clients(
    nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[httpx.AsyncClient]]:
    monkeypatch.setattr(fastapi_app, "seats", {})
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(2):
            app = fastapi_app.create_app()
            await stack.enter_async_context(app.router.lifespan_context(app))
            client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://seats")
            clients.append(await stack.enter_async_context(client))
        yield clients


async def test_one_of_many_buyers_gets_the_seat(
    clients: list[httpx.AsyncClient], nodes: NodeSet
) -> None:
    buyers = [f"buyer{number}" for number in range(20)]
    answers = await asyncio.gather(
        *(clients[n % 2].post("/seats/12", params={"buyer": b}) for n, b in enumerate(buyers))
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 19
    (sold,) = (answer.json() for answer in answers if answer.status_code == 200)
    assert fastapi_app.seats == {"12": sold["buyer"]}
    # Sooner than a key that is left behind would go by itself.
    await eventually(lambda: nodes.keys() == [set()] * 3, within=5.0)


async def test_different_seats_do_not_wait_for_each_other(clients: list[httpx.AsyncClient]) -> None:
    answers = await asyncio.gather(
        *(clients[0].post(f"/seats/{n}", params={"buyer": "ann"}) for n in range(20))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert len(fastapi_app.seats) == 20


async def test_a_busy_lock_is_answered_with_try_again(
    clients: list[httpx.AsyncClient], nodes: NodeSet
) -> None:
    async with Redlock(nodes.urls, node_timeout=0.5) as elsewhere, elsewhere.lock("seat:12"):
        answer = await clients[0].post("/seats/12", params={"buyer": "ann"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (423, "1")
    assert fastapi_app.seats == {}


async def test_the_readiness_probe_answers_that_the_process_is_ready(
    clients: list[httpx.AsyncClient],
) -> None:
    answer = await clients[0].get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True})
