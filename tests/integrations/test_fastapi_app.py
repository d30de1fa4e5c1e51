"""The manager in a FastAPI app: lifespans, the dependency, overrides in tests, and what OpenAPI
says.
"""

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI

from aioredlock_ng import ConfigurationError, Lease, Redlock
from aioredlock_ng.integrations.fastapi import check_locks, get_redlock, lock_for, redlock_lifespan
from tests.integrations.serving import fastapi_client, held
from tests.support.node_set import NodeSet

Manager = Annotated[Redlock, Depends(get_redlock)]


def add_routes(app: FastAPI) -> FastAPI:
    @app.post(
        "/orders/{order_id}", dependencies=[Depends(lock_for("order:{order_id}"), scope="function")]
    )
    async def pay(order_id: int, redlock: Manager) -> list[str]:
        return [lease.resource for lease in redlock.leases]

    return app


async def test_the_lifespan_is_a_part_of_the_apps_own(nodes: NodeSet) -> None:
    order: list[str] = []
    mine = Redlock(nodes.urls, ttl=3.0)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with redlock_lifespan(mine)(app) as state:
            order.append("open")
            yield {**state, "answer": 42}
            order.append("closing")
            assert mine.stats().released == 1

    app = add_routes(FastAPI(lifespan=lifespan))

    @app.get("/ttl")
    async def ttl(redlock: Manager) -> list[Any]:
        return [redlock is mine, redlock.lock("x").ttl]

    async with fastapi_client(app) as client:
        assert (await client.get("/ttl")).json() == [True, 3.0]
        assert (await client.post("/orders/7")).json() == ["order:7"]
    assert order == ["open", "closing"]
    assert mine.nodes[0].state == "down"
    assert app.state.redlock is None


async def test_a_lifespan_inside_another_gives_the_app_the_inner_manager_until_its_end(
    nodes: NodeSet,
) -> None:
    app, inner, outer = FastAPI(), Redlock(nodes.urls), Redlock(nodes.urls)
    async with redlock_lifespan(outer)(app):
        async with redlock_lifespan(inner)(app):
            assert app.state.redlock is inner
        assert app.state.redlock is outer

    async def fail() -> None:
        async with redlock_lifespan(outer)(app):
            del app.state.redlock
            raise LookupError

    with pytest.raises(LookupError):
        await fail()


async def test_the_manager_closes_when_the_app_fails_to_start(nodes: NodeSet) -> None:
    mine = Redlock(nodes.urls)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with redlock_lifespan(mine)(app):
            raise LookupError("no database")
            yield

    app = FastAPI(lifespan=lifespan)
    with pytest.raises(LookupError):
        async with app.router.lifespan_context(app):
            pass
    assert mine.nodes[0].state == "down"


async def test_without_nodes_in_the_environment_the_app_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AIOREDLOCK_NG_NODES", raising=False)
    app = FastAPI(lifespan=redlock_lifespan())
    with pytest.raises(ConfigurationError, match="AIOREDLOCK_NG_NODES is not set"):
        async with app.router.lifespan_context(app):
            pass


async def test_the_error_of_an_app_without_a_manager_names_the_remedy() -> None:
    app = add_routes(FastAPI())
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://app"
    ) as client:
        with pytest.raises(
            ConfigurationError, match=r"lifespan=redlock_lifespan\(\).*dependency get_redlock"
        ):
            await client.post("/orders/7")


async def test_an_override_gives_locks_and_endpoints_another_manager(
    nodes: NodeSet, elsewhere: Redlock
) -> None:
    app = add_routes(FastAPI())
    app.dependency_overrides[get_redlock] = lambda: elsewhere
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://app"
    ) as client:
        assert (await client.post("/orders/7")).json() == ["order:7"]
    assert elsewhere.stats().released == 1


def test_the_synchronous_test_client_works_within_its_with(nodes: NodeSet) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the HTTP client that it will need some day
        from fastapi.testclient import TestClient
    with TestClient(add_routes(FastAPI(lifespan=redlock_lifespan()))) as client:
        assert [client.post("/orders/7").json() for _ in range(3)] == [["order:7"]] * 3
    assert held(nodes) == set()


async def test_one_app_object_starts_again_after_it_has_ended(nodes: NodeSet) -> None:
    app = add_routes(FastAPI(lifespan=redlock_lifespan(Redlock(nodes.urls))))
    for _ in range(2):
        async with fastapi_client(app) as client:
            assert (await client.post("/orders/7")).status_code == 200


def described(app: FastAPI, path: str) -> dict[str, Any]:
    responses: dict[str, Any] = app.openapi()["paths"][path]["post"]["responses"]
    return responses


async def test_openapi_shows_the_answers_of_routes_with_locks_once_the_app_has_started(
    nodes: NodeSet,
) -> None:
    app, router = add_routes(FastAPI(lifespan=redlock_lifespan())), APIRouter()

    @router.post("/ship", responses={409: {"description": "Shipped already"}})
    async def ship(
        order_id: str, lease: Annotated[Lease, Depends(lock_for("o:{order_id}", held_status=409))]
    ) -> None: ...

    @router.post("/free")
    async def free() -> None: ...

    app.include_router(router, prefix="/v1")
    assert "423" not in described(app, "/orders/{order_id}")
    async with fastapi_client(app) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
    responses = paths["/orders/{order_id}"]["post"]["responses"]
    assert responses.keys() == {"200", "422", "423", "503"}
    for status in ("423", "503"):
        assert responses[status]["headers"]["Retry-After"]["schema"] == {"type": "integer"}
        assert responses[status]["content"]["application/json"]["schema"]["required"] == ["detail"]
    assert [
        parameter["name"] for parameter in paths["/orders/{order_id}"]["post"]["parameters"]
    ] == ["order_id"]
    assert paths["/orders/{order_id}"]["post"]["parameters"][0]["schema"]["type"] == "integer"
    ship_responses = paths["/v1/ship"]["post"]["responses"]
    assert ship_responses.keys() == {"200", "409", "422", "503"}
    assert ship_responses["409"]["description"] == "Shipped already"
    assert paths["/v1/free"]["post"]["responses"].keys() == {"200"}


def test_openapi_can_be_written_without_starting_the_app() -> None:
    app = add_routes(FastAPI())
    check_locks(app)
    check_locks(app)
    assert described(app, "/orders/{order_id}").keys() == {"200", "422", "423", "503"}


def test_a_route_can_name_the_answers_itself() -> None:
    app, lock = FastAPI(), lock_for("cron")

    @app.post("/cron", dependencies=[Depends(lock, scope="function")], responses=lock.responses)
    async def cron() -> None: ...

    assert described(app, "/cron").keys() == {"200", "423", "503"}


async def test_requests_at_the_same_time_of_one_app_get_the_lock_one_by_one(nodes: NodeSet) -> None:
    app, inside = FastAPI(lifespan=redlock_lifespan()), [0]

    @app.post("/x", dependencies=[Depends(lock_for("x", blocking_timeout=None), scope="function")])
    async def x() -> int:
        inside[0] += 1
        await asyncio.sleep(0)
        inside[0] -= 1
        return inside[0]

    async with fastapi_client(app) as client:
        assert [
            answer.json()
            for answer in await asyncio.gather(*(client.post("/x") for _ in range(20)))
        ] == [0] * 20
