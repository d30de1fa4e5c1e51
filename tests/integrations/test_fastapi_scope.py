"""How long a FastAPI route's lock is held: streams, background tasks, clients that go away,
middleware in between.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from typing import Annotated, Any

import httpx
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.middleware.base import BaseHTTPMiddleware

from aioredlock_ng import Lease, Redlock
from aioredlock_ng.integrations.fastapi import lock_for, redlock_lifespan
from tests.integrations.limits import AnyioLimit, AsyncioLimit, Hasty
from tests.integrations.serving import PATIENCE, fastapi_client, held
from tests.support.eventually import eventually
from tests.support.node_set import NodeSet

Dispatch = Callable[[Request, Callable[[Request], Awaitable[Response]]], Awaitable[Response]]

both_scopes = pytest.mark.parametrize("scope", ["function", "request"])


async def passing(
    request: Request, call_next: Callable[[Request], Awaitable[Response]]
) -> Response:
    return await call_next(request)


def wrapped(app: FastAPI, *dispatches: Dispatch) -> FastAPI:
    for dispatch in dispatches:
        app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    return app


middlewares = pytest.mark.parametrize(
    "dispatches", [(), (passing,)], ids=["bare", "BaseHTTPMiddleware"]
)


@both_scopes
@middlewares
async def test_function_scope_ends_before_the_response_and_request_scope_after_background_tasks(
    nodes: NodeSet, scope: Any, dispatches: tuple[Dispatch, ...]
) -> None:
    app, seen = FastAPI(lifespan=redlock_lifespan()), dict[str, set[str]]()

    @app.get("/stream/{name}", dependencies=[Depends(lock_for("stream:{name}"), scope=scope)])
    async def stream(name: str) -> StreamingResponse:
        seen["endpoint"] = held(nodes)

        async def lines() -> AsyncIterator[str]:
            yield "one\n"
            seen["stream"] = held(nodes)
            yield "two\n"

        return StreamingResponse(lines())

    @app.get("/later/{name}", dependencies=[Depends(lock_for("later:{name}"), scope=scope)])
    async def later(name: str, background: BackgroundTasks) -> None:
        background.add_task(lambda: seen.update(background=held(nodes)))

    kept = scope == "request"
    async with fastapi_client(wrapped(app, *dispatches)) as client:
        assert (await client.get("/stream/a")).text == "one\ntwo\n"
        assert seen == {"endpoint": {"stream:a"}, "stream": {"stream:a"} if kept else set()}
        await client.get("/later/a")
        await eventually(lambda: "background" in seen, within=PATIENCE)
        assert seen["background"] == ({"later:a"} if kept else set())
        await eventually(lambda: nodes.keys() == [set()] * 3, within=PATIENCE)


async def test_in_function_scope_the_lock_is_free_when_the_answer_is_there(nodes: NodeSet) -> None:
    app = FastAPI(lifespan=redlock_lifespan())

    @app.post(
        "/orders/{order_id}", dependencies=[Depends(lock_for("order:{order_id}"), scope="function")]
    )
    async def pay(order_id: str) -> None: ...

    async with fastapi_client(app) as client:
        assert [(await client.post("/orders/42")).status_code for _ in range(20)] == [200] * 20


@middlewares
async def test_a_loss_amid_a_stream_ends_it_and_is_logged(
    nodes: NodeSet,
    elsewhere: Redlock,
    dispatches: tuple[Dispatch, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, ended = FastAPI(lifespan=redlock_lifespan()), list[str]()

    @app.get("/stream/{name}", dependencies=[Depends(lock_for("stream:{name}"))])
    async def stream(name: str) -> StreamingResponse:
        async def lines() -> AsyncIterator[str]:
            try:
                yield "one\n"
                await asyncio.sleep(PATIENCE)
                yield "two\n"
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        return StreamingResponse(lines())

    got = b""

    async def read(client: httpx.AsyncClient) -> None:
        nonlocal got
        async with client.stream("GET", "/stream/a") as response:
            async for chunk in response.aiter_bytes():
                got += chunk
                await elsewhere.force_release("stream:a")

    async with fastapi_client(wrapped(app, *dispatches)) as client:
        if dispatches:
            # Starlette's class ends a response properly whatever happened behind it.
            await read(client)
        else:
            with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
                await read(client)
    assert (got, ended) == (b"one\n", ["cancelled"])
    assert "LockLost" in caplog.text


@middlewares
@both_scopes
async def test_a_loss_behind_middleware_is_answered_by_503(
    nodes: NodeSet, elsewhere: Redlock, dispatches: tuple[Dispatch, ...], scope: Any
) -> None:
    app, began = FastAPI(lifespan=redlock_lifespan()), asyncio.Event()

    @app.post(
        "/orders/{order_id}", dependencies=[Depends(lock_for("order:{order_id}"), scope=scope)]
    )
    async def pay(order_id: str) -> None:
        began.set()
        await asyncio.sleep(PATIENCE)

    async with fastapi_client(wrapped(app, *dispatches, *dispatches)) as client:
        request = asyncio.create_task(client.post("/orders/42"))
        await began.wait()
        await elsewhere.force_release("order:42")
        answer = await request
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


async def test_an_endpoint_that_yields_runs_within_the_lock(nodes: NodeSet) -> None:
    app, seen = FastAPI(lifespan=redlock_lifespan()), list[set[str]]()

    @app.get("/export/{name}", dependencies=[Depends(lock_for("export:{name}"))])
    async def export(name: str) -> AsyncIterator[str]:
        seen.append(held(nodes))
        yield name
        seen.append(held(nodes))

    async with fastapi_client(app) as client:
        assert (await client.get("/export/a")).text == '"a"\n'
        assert seen == [{"export:a"}] * 2
        await eventually(lambda: nodes.keys() == [set()] * 3, within=PATIENCE)


@both_scopes
@middlewares
async def test_a_client_that_leaves_a_stream_gives_the_lock_back(
    nodes: NodeSet, scope: Any, dispatches: tuple[Dispatch, ...]
) -> None:
    app = FastAPI(lifespan=redlock_lifespan())

    @app.get("/stream/{name}", dependencies=[Depends(lock_for("stream:{name}"), scope=scope)])
    async def stream(name: str) -> StreamingResponse:
        async def lines() -> AsyncIterator[str]:
            yield "one\n"
            await asyncio.sleep(PATIENCE)

        return StreamingResponse(lines())

    async with fastapi_client(wrapped(app, *dispatches)) as client:
        async with client.stream("GET", "/stream/a") as response:
            assert await anext(response.aiter_bytes()) == b"one\n"
            assert held(nodes) == ({"stream:a"} if scope == "request" else set())
        await eventually(lambda: nodes.keys() == [set()] * 3, within=PATIENCE / 2)


@both_scopes
async def test_an_endpoint_whose_client_gave_up_runs_to_its_end_within_the_lock(
    nodes: NodeSet, scope: Any
) -> None:
    app, began, go = FastAPI(lifespan=redlock_lifespan()), asyncio.Event(), asyncio.Event()
    ended = list[set[str]]()

    @app.post(
        "/orders/{order_id}", dependencies=[Depends(lock_for("order:{order_id}"), scope=scope)]
    )
    async def pay(order_id: str) -> None:
        began.set()
        await go.wait()
        ended.append(held(nodes))

    async with fastapi_client(app) as client:
        request = asyncio.create_task(
            client.post("/orders/42", timeout=httpx.Timeout(PATIENCE, read=0.2))
        )
        await began.wait()
        with pytest.raises(httpx.ReadTimeout):
            await request
        assert held(nodes) == {"order:42"}
        go.set()
        await eventually(lambda: ended == [{"order:42"}], within=PATIENCE)
        await eventually(lambda: nodes.keys() == [set()] * 3, within=PATIENCE)


@pytest.mark.parametrize(
    ("scope", "dispatches", "limit", "waiting"),
    # All triples: the fourth item follows from the other three.
    [
        (scope, dispatches, limit, waiting)
        for scope in ("function", "request")
        for dispatches in ((), (passing,))
        for limit in (AsyncioLimit, AnyioLimit)
        for waiting in ((scope == "function") ^ bool(dispatches) ^ (limit is AsyncioLimit),)
    ],
)
async def test_a_time_limit_around_the_app_leaves_no_key(
    nodes: NodeSet,
    elsewhere: Redlock,
    scope: Any,
    dispatches: tuple[Dispatch, ...],
    limit: Any,
    waiting: bool,
) -> None:
    app, began, ended = FastAPI(lifespan=redlock_lifespan()), asyncio.Event(), list[str]()

    @app.post(
        "/orders/{order_id}",
        dependencies=[Depends(lock_for("order:{order_id}", blocking_timeout=None), scope=scope)],
    )
    async def pay(order_id: str) -> None:
        began.set()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            ended.append("left")

    limit = limit()
    wrapped(app, *dispatches).add_middleware(Hasty, limit=limit)
    async with fastapi_client(app) as client:
        async with elsewhere.lock("order:42") if waiting else nullcontext():
            request = asyncio.create_task(client.post("/orders/42"))
            await eventually(
                lambda: app.state.redlock.stats().waiting if waiting else began.is_set(),
                within=PATIENCE,
            )
            limit.expire()
            assert (await request).status_code == 504
        await eventually(lambda: nodes.keys() == [set()] * 3, within=PATIENCE / 2)
    assert ended == ([] if waiting else ["left"])


async def test_a_time_limit_in_a_base_http_middleware_lets_the_endpoint_go_on_within_its_lock(
    nodes: NodeSet,
) -> None:
    app, limit = FastAPI(lifespan=redlock_lifespan()), AsyncioLimit()
    began, go, ended = asyncio.Event(), asyncio.Event(), list[set[str]]()

    async def hasty(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        try:
            async with limit:
                return await call_next(request)
        except TimeoutError:
            return JSONResponse("too slow", status_code=504)

    @app.post(
        "/orders/{order_id}", dependencies=[Depends(lock_for("order:{order_id}"), scope="function")]
    )
    async def pay(order_id: str) -> None:
        began.set()
        await go.wait()
        ended.append(held(nodes))

    async with fastapi_client(wrapped(app, hasty)) as client:
        request = asyncio.create_task(client.post("/orders/42"))
        await began.wait()
        limit.expire()
        assert (await request).status_code == 504
        assert held(nodes) == {"order:42"}
        go.set()
        await eventually(lambda: ended == [{"order:42"}], within=PATIENCE)
        await eventually(lambda: nodes.keys() == [set()] * 3, within=PATIENCE)


async def test_a_server_that_stops_in_the_middle_of_a_request_leaves_no_key(nodes: NodeSet) -> None:
    app, began = FastAPI(lifespan=redlock_lifespan()), asyncio.Event()

    @app.post("/orders/{order_id}")
    async def pay(
        order_id: str,
        lease: Annotated[Lease, Depends(lock_for("order:{order_id}"), scope="function")],
    ) -> None:
        began.set()
        await asyncio.sleep(PATIENCE)

    async with fastapi_client(app, timeout_graceful_shutdown=0) as client:
        request = asyncio.create_task(client.post("/orders/42"))
        await began.wait()
        assert held(nodes) == {"order:42"}
    with pytest.raises(httpx.HTTPError):
        (await request).raise_for_status()
    assert nodes.keys() == [set()] * 3
