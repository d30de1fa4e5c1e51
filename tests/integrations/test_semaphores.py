"""Requests under a semaphore on real servers: as many inside as slots, and the answers of a lock
for the others.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from aiohttp import web
from fastapi import Depends, FastAPI

from aioredlock_ng import ConfigurationError, Lease, Redlock
from aioredlock_ng.integrations import aiohttp as for_aiohttp
from aioredlock_ng.integrations import fastapi as for_fastapi
from tests.integrations.serving import PATIENCE, aiohttp_client, fastapi_client
from tests.support.eventually import eventually
from tests.support.node_set import NodeSet

Serve = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


class Room:
    """The requests that are inside, by slot. They stay until `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.inside: set[int] = set()
        self.most = 0

    async def visit(self, lease: Lease) -> int:
        assert lease.slot not in self.inside, "two requests have the same slot"
        self.inside.add(lease.slot)
        self.most = max(self.most, len(self.inside))
        try:
            await self.go.wait()
            await asyncio.sleep(0.002)
        finally:
            self.inside.remove(lease.slot)
        return int(lease.slot)


@asynccontextmanager
async def by_fastapi(
    visit: Callable[[Lease], Awaitable[int]], limit: int, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI(lifespan=for_fastapi.redlock_lifespan())
    slot = Depends(for_fastapi.semaphore_for("export:{shop}", limit, **options), scope="function")

    @app.post("/exports/{shop}")
    async def export(shop: str, lease: Annotated[Lease, slot]) -> int:
        return await visit(lease)

    async with fastapi_client(app) as client:
        yield client


@asynccontextmanager
async def by_aiohttp(
    visit: Callable[[Lease], Awaitable[int]], limit: int, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    @for_aiohttp.semaphore_for("export:{shop}", limit, **options)
    async def export(request: web.Request) -> web.Response:
        return web.json_response(await visit(for_aiohttp.lease_of(request)))

    app = web.Application()
    app.cleanup_ctx.append(for_aiohttp.redlock_ctx())
    app.router.add_post("/exports/{shop}", export)
    async with aiohttp_client(app) as client:
        yield client


both = pytest.mark.parametrize("serve", [by_fastapi, by_aiohttp])


@both
async def test_two_servers_let_as_many_requests_in_as_there_are_slots(
    nodes: NodeSet, serve: Serve
) -> None:
    room = Room()
    async with (
        serve(room.visit, 3, blocking_timeout=PATIENCE) as one,
        serve(room.visit, 3, blocking_timeout=PATIENCE) as two,
    ):
        requests = [asyncio.create_task((one, two)[n % 2].post("/exports/a")) for n in range(30)]
        await eventually(lambda: len(room.inside) == 3, within=PATIENCE)
        room.go.set()
        answers = await asyncio.gather(*requests)
    assert [answer.status_code for answer in answers] == [200] * 30
    assert {answer.json() for answer in answers} == {1, 2, 3}
    assert room.most == 3
    assert nodes.keys() == [set()] * 3


@both
@pytest.mark.parametrize(
    ("options", "status"), [({}, 429), ({"held_status": 423, "retry_after": 7}, 423)]
)
async def test_a_request_without_a_free_slot_is_refused_with_retry_after(
    nodes: NodeSet, serve: Serve, options: dict[str, Any], status: int
) -> None:
    room = Room()
    async with serve(room.visit, 2, **options) as client:
        inside = [asyncio.create_task(client.post("/exports/a")) for _ in range(2)]
        await eventually(lambda: len(room.inside) == 2, within=PATIENCE)
        refused = await client.post("/exports/a")
        room.go.set()
        assert sorted([(await request).json() for request in inside]) == [1, 2]
        assert (await client.post("/exports/a")).status_code == 200
    assert (refused.status_code, refused.headers["Retry-After"]) == (
        status,
        str(options.get("retry_after", 1)),
    )
    assert refused.json() == {"detail": "too many requests at a time; try again"}


@both
async def test_retry_after_with_min_hold_is_the_time_until_a_slot_may_be_free(
    nodes: NodeSet, serve: Serve
) -> None:
    room = Room()
    room.go.set()
    async with serve(room.visit, 2, min_hold=50) as client:
        answers = [await client.post("/exports/a") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 50 - PATIENCE < int(answers[2].headers["Retry-After"]) <= 50


@both
async def test_another_name_is_another_semaphore(
    nodes: NodeSet, elsewhere: Redlock, serve: Serve
) -> None:
    room = Room()
    room.go.set()
    async with serve(room.visit, 1) as client, elsewhere.semaphore("export:a", 1):
        assert (await client.post("/exports/a")).status_code == 429
        assert (await client.post("/exports/b")).status_code == 200


@both
async def test_the_loss_of_a_slot_cancels_its_request_alone(
    nodes: NodeSet, elsewhere: Redlock, serve: Serve
) -> None:
    room = Room()
    async with serve(room.visit, 2) as client:
        requests = [asyncio.create_task(client.post("/exports/a")) for _ in range(2)]
        await eventually(lambda: len(room.inside) == 2, within=PATIENCE)
        await elsewhere.force_release("export:a#2")
        await eventually(lambda: room.inside == {1}, within=PATIENCE)
        room.go.set()
        answers = {answer.status_code: answer for answer in [await request for request in requests]}
    assert answers[503].json() == {
        "detail": "the lock was lost; the request may or may not have taken effect"
    }
    assert answers[200].json() == 1


def test_openapi_lists_the_answer_of_a_semaphore_without_a_free_slot() -> None:
    app = FastAPI()
    dependency = for_fastapi.semaphore_for("export:{shop}", 2)

    @app.post("/exports/{shop}", dependencies=[Depends(dependency)])
    async def export(shop: str) -> None: ...

    for_fastapi.check_locks(app)
    responses = app.openapi()["paths"]["/exports/{shop}"]["post"]["responses"]
    assert responses["429"]["description"] == "Other requests hold all slots"
    assert responses["429"]["headers"].keys() == {"Retry-After"}
    assert "423" not in responses
    assert repr(dependency) == "semaphore_for('export:{shop}', 2)"


def test_a_mistake_in_a_route_names_the_semaphore() -> None:
    app = FastAPI()

    @app.post(
        "/exports/{shop}", dependencies=[Depends(for_fastapi.semaphore_for("export:{stock}", 2))]
    )
    async def export(shop: str) -> None: ...

    with pytest.raises(
        ConfigurationError,
        match=r"semaphore_for\('export:\{stock\}', 2\).*is not a parameter of export",
    ):
        for_fastapi.check_locks(app)


def test_an_option_that_the_manager_refuses_stops_the_app() -> None:
    @for_aiohttp.semaphore_for("export", 2, ttl=1000)
    async def export(request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_post("/", export)
    with pytest.raises(ConfigurationError, match="max_ttl"):
        for_aiohttp.check_locks(app, Redlock(["redis://127.0.0.1:1"]))


@pytest.mark.parametrize(
    ("limit", "options", "told"),
    [
        (0, {}, "limit must be a whole number from 1 to 1,000, got 0"),
        ("export:{id}", {}, "limit must be a whole number"),
        (2, {"held_status": 503}, "held_status must be 409, 423 or 429, got 503"),
        (2, {"ttl": -1}, "ttl"),
        (2, {"fair": 1}, "fair must be True or False"),
    ],
)
def test_a_mistake_is_refused_when_the_module_is_imported(
    limit: Any, options: Any, told: str
) -> None:
    for semaphore_for in (for_fastapi.semaphore_for, for_aiohttp.semaphore_for):
        with pytest.raises(ConfigurationError, match=told):
            semaphore_for("export", limit, **options)


def test_an_invalid_handler_or_placeholder_is_refused_by_the_name_of_the_function() -> None:
    with pytest.raises(ConfigurationError, match=r"semaphore_for\(\) is for handlers"):
        for_aiohttp.semaphore_for("export", 2)(
            lambda request: None  # type: ignore[arg-type, return-value]
        )
    with pytest.raises(ConfigurationError, match=r"semaphore_for\(\) got user"):
        for_fastapi.semaphore_for("export", 2, user=Depends(lambda: 1))
