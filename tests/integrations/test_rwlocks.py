"""Requests that read, on real servers: beside each other, beside no writer, and with the answers of
a lock.
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
    """The requests that are inside. They stay until `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.inside: list[str] = []

    async def visit(self, method: str, lease: Lease) -> int:
        assert self.inside.count("PUT") == 0, "a request beside a writer"
        assert method == "GET" or not self.inside, "a writer beside a request"
        self.inside.append(method)
        try:
            await self.go.wait()
            await asyncio.sleep(0.002)
        finally:
            self.inside.remove(method)
        return int(lease.fence)


@asynccontextmanager
async def by_fastapi(
    visit: Callable[[str, Lease], Awaitable[int]], **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI(lifespan=for_fastapi.redlock_lifespan())
    reading = Depends(
        for_fastapi.lock_for("catalog:{shop}", shared=True, **options), scope="function"
    )
    writing = Depends(for_fastapi.lock_for("catalog:{shop}", **options), scope="function")

    @app.get("/catalogs/{shop}")
    async def show(shop: str, lease: Annotated[Lease, reading]) -> int:
        return await visit("GET", lease)

    @app.put("/catalogs/{shop}")
    async def rebuild(shop: str, lease: Annotated[Lease, writing]) -> int:
        return await visit("PUT", lease)

    async with fastapi_client(app) as client:
        yield client


@asynccontextmanager
async def by_aiohttp(
    visit: Callable[[str, Lease], Awaitable[int]], **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    @for_aiohttp.locked("catalog:{shop}", shared=True, **options)
    async def show(request: web.Request) -> web.Response:
        return web.json_response(await visit("GET", for_aiohttp.lease_of(request)))

    @for_aiohttp.locked("catalog:{shop}", **options)
    async def rebuild(request: web.Request) -> web.Response:
        return web.json_response(await visit("PUT", for_aiohttp.lease_of(request)))

    app = web.Application()
    app.cleanup_ctx.append(for_aiohttp.redlock_ctx())
    app.router.add_get("/catalogs/{shop}", show)
    app.router.add_put("/catalogs/{shop}", rebuild)
    async with aiohttp_client(app) as client:
        yield client


both = pytest.mark.parametrize("serve", [by_fastapi, by_aiohttp])


@both
async def test_requests_of_two_servers_read_at_the_same_time_and_beside_no_writer(
    nodes: NodeSet, serve: Serve
) -> None:
    room = Room()
    options = {"blocking_timeout": PATIENCE}
    async with serve(room.visit, **options) as one, serve(room.visit, **options) as two:
        readers = [asyncio.create_task(client.get("/catalogs/a")) for client in (one, two)]
        await eventually(lambda: len(room.inside) == 2, within=PATIENCE)
        room.go.set()
        answers = await asyncio.gather(
            *readers,
            *(
                (one, two)[n % 2].request("PUT" if n % 6 == 0 else "GET", "/catalogs/a")
                for n in range(24)
            ),
        )
    assert [answer.status_code for answer in answers] == [200] * 26
    assert nodes.keys() == [set()] * 3


@both
@pytest.mark.parametrize(
    ("options", "status"), [({}, 423), ({"held_status": 409, "retry_after": 7}, 409)]
)
async def test_a_refused_reader_or_writer_is_answered_with_retry_after(
    nodes: NodeSet, elsewhere: Redlock, serve: Serve, options: dict[str, Any], status: int
) -> None:
    room = Room()
    async with serve(room.visit, **options) as client:
        async with elsewhere.rwlock("catalog:a").write():
            refused = await client.get("/catalogs/a")
        inside = [asyncio.create_task(client.get("/catalogs/a")) for _ in range(2)]
        await eventually(lambda: len(room.inside) == 2, within=PATIENCE)
        writing = await client.put("/catalogs/a")
        room.go.set()
        assert [(await request).status_code for request in inside] == [200, 200]
        assert (await client.put("/catalogs/a")).status_code == 200
    for answer in (refused, writing):
        assert (answer.status_code, answer.headers["Retry-After"]) == (
            status,
            str(options.get("retry_after", 1)),
        )
        assert answer.json() == {"detail": "locked by another request; try again"}


@both
async def test_requests_read_the_version_of_the_last_writer(nodes: NodeSet, serve: Serve) -> None:
    room = Room()
    room.go.set()
    async with serve(room.visit) as client:
        written = (await client.put("/catalogs/a")).json()
        versions = {(await client.get("/catalogs/a")).json() for _ in range(3)}
        assert (await client.put("/catalogs/a")).json() > max(versions)
    assert len(versions) == 1
    assert min(versions) >= written


@both
async def test_a_loss_cancels_every_request_that_reads(
    nodes: NodeSet, elsewhere: Redlock, serve: Serve
) -> None:
    room = Room()
    async with serve(room.visit) as client:
        requests = [asyncio.create_task(client.get("/catalogs/a")) for _ in range(2)]
        await eventually(lambda: len(room.inside) == 2, within=PATIENCE)
        await elsewhere.force_release("catalog:a")
        answers = [await request for request in requests]
    assert not room.inside
    assert [answer.status_code for answer in answers] == [503, 503]
    assert answers[0].json() == {
        "detail": "the lock was lost; the request may or may not have taken effect"
    }


@both
async def test_without_a_quorum_a_request_that_reads_is_answered_by_503(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOREDLOCK_NG_NODES", "redis://127.0.0.1:1")
    async with serve(Room().visit) as client:
        answer = await client.get("/catalogs/a")
    assert answer.status_code == 503
    assert answer.json() == {"detail": "locks are not available; try again"}


async def test_a_request_to_fastapi_that_reads_and_asks_to_write_is_an_error_of_the_server(
    nodes: NodeSet,
) -> None:
    app = FastAPI(lifespan=for_fastapi.redlock_lifespan())
    reading = for_fastapi.lock_for("catalog", shared=True)
    writing = for_fastapi.lock_for("catalog")

    @app.put("/catalog", dependencies=[Depends(reading), Depends(writing)])
    async def rebuild() -> None: ...

    async with fastapi_client(app) as client:
        assert (await client.put("/catalog")).status_code == 500
    assert nodes.keys() == [set()] * 3


async def test_a_request_to_aiohttp_that_reads_and_asks_to_write_is_an_error_of_the_server(
    nodes: NodeSet,
) -> None:
    @for_aiohttp.locked("catalog", shared=True)
    @for_aiohttp.locked("catalog")
    async def rebuild(request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.cleanup_ctx.append(for_aiohttp.redlock_ctx())
    app.router.add_put("/catalog", rebuild)
    async with aiohttp_client(app) as client:
        assert (await client.put("/catalog")).status_code == 500
    assert nodes.keys() == [set()] * 3


def test_openapi_lists_the_answer_to_a_request_that_may_not_read_now() -> None:
    app = FastAPI()
    dependency = for_fastapi.lock_for("catalog:{shop}", shared=True)

    @app.get("/catalogs/{shop}", dependencies=[Depends(dependency)])
    async def show(shop: str) -> None: ...

    for_fastapi.check_locks(app)
    responses = app.openapi()["paths"]["/catalogs/{shop}"]["get"]["responses"]
    assert (
        responses["423"]["description"] == "Another request holds the write lock, or waits for it"
    )
    assert repr(dependency) == "lock_for('catalog:{shop}', shared=True)"


@pytest.mark.parametrize(
    ("names", "options", "told"),
    [
        (
            ["a", "b"],
            {},
            "a read-write lock has one name, got 2; shared=True is not possible for several locks",
        ),
        (["a"], {"shared": "yes"}, "shared must be True or False, not str"),
        (["a"], {"min_hold": 5.0}, "min_hold is not possible for a read-write lock"),
        (["a"], {"fair": True}, "fair is not possible for a read-write lock"),
        (["a"], {"held_status": 429}, "429 is for a semaphore"),
        (["a"], {"ttl": -1}, "ttl"),
    ],
)
def test_a_bad_combination_is_refused_when_the_module_is_imported(
    names: list[str], options: dict[str, Any], told: str
) -> None:
    for locked in (for_fastapi.lock_for, for_aiohttp.locked):
        with pytest.raises(ConfigurationError, match=told):
            locked(*names, **{"shared": True, **options})
