"""Locks of FastAPI routes on real uvicorn: who gets in, what the others are told, and what a loss
does.
"""

import asyncio
import threading
from contextlib import suppress
from typing import Annotated, Any

import anyio.to_thread
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

from aioredlock_ng import Lease, LockHeld, LockLost, Redlock
from aioredlock_ng.integrations.fastapi import (
    LockUnavailable,
    get_redlock,
    lock_for,
    redlock_lifespan,
)
from tests.integrations.serving import PATIENCE, fastapi_client, held
from tests.support.eventually import eventually
from tests.support.node_set import NodeSet

both_scopes = pytest.mark.parametrize("scope", ["function", "request"])


class Stage:
    """A handler that has begun, and goes on when it is told to."""

    def __init__(self) -> None:
        self.began, self.go, self.events = asyncio.Event(), asyncio.Event(), list[str]()

    async def play(self) -> None:
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # a rollback that awaits
            self.events.append("rolled back")
            raise
        self.events.append("done")


def make_app(stage: Stage, scope: Any = "function", **options: Any) -> FastAPI:
    app = FastAPI(lifespan=redlock_lifespan())

    @app.post("/orders/{order_id}")
    async def pay(
        order_id: int,
        lease: Annotated[Lease, Depends(lock_for("order:{order_id}", **options), scope=scope)],
    ) -> Any:
        await stage.play()
        return {"order": order_id, "fence": lease.fence}

    return app


async def test_a_request_that_comes_within_min_hold_of_the_one_before_is_refused(
    nodes: NodeSet,
) -> None:
    stage = Stage()
    stage.go.set()
    async with fastapi_client(make_app(stage, min_hold=30.0)) as client:
        answers = [await client.post("/orders/7") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 423]
        assert (await client.post("/orders/8")).status_code == 200
    assert held(nodes) == {"order:7", "order:8"}


@both_scopes
async def test_two_servers_let_one_request_in_at_a_time(nodes: NodeSet, scope: str) -> None:
    left, inside = [30], 0

    def app() -> FastAPI:
        app = FastAPI(lifespan=redlock_lifespan())

        @app.post(
            "/seats/{seat}",
            dependencies=[Depends(lock_for("seat:{seat}", blocking_timeout=PATIENCE), scope=scope)],
        )
        async def take(seat: str) -> dict[str, int]:
            nonlocal inside
            inside += 1
            assert inside == 1
            now = left[0]
            await asyncio.sleep(0.001)
            left[0] = now - 1
            inside -= 1
            return {"left": left[0]}

        return app

    async with fastapi_client(app()) as one, fastapi_client(app()) as two:
        answers = await asyncio.gather(*((one, two)[n % 2].post("/seats/a") for n in range(30)))
    assert [answer.status_code for answer in answers] == [200] * 30
    assert left == [0]
    assert nodes.keys() == [set()] * 3


@pytest.mark.parametrize(
    ("options", "status"), [({}, 423), ({"held_status": 409, "retry_after": 7}, 409)]
)
async def test_a_request_for_a_held_lock_is_refused_with_retry_after(
    nodes: NodeSet, elsewhere: Redlock, options: dict[str, Any], status: int
) -> None:
    stage = Stage()
    stage.go.set()
    async with fastapi_client(make_app(stage, **options)) as client:
        async with elsewhere.lock("order:42"):
            refused = await client.post("/orders/42")
            other = await client.post("/orders/43")
        free = await client.post("/orders/42")
    assert (refused.status_code, refused.headers["Retry-After"]) == (
        status,
        str(options.get("retry_after", 1)),
    )
    assert refused.json() == {"detail": "locked by another request; try again"}
    assert (other.status_code, free.status_code) == (200, 200)
    assert free.json()["fence"] > 0


async def test_a_request_waits_for_its_turn_and_no_longer_than_it_says(
    nodes: NodeSet, elsewhere: Redlock
) -> None:
    stage = Stage()
    stage.go.set()
    async with (
        fastapi_client(make_app(stage, blocking_timeout=PATIENCE)) as patient,
        fastapi_client(make_app(stage, blocking_timeout=1.5)) as hasty,
    ):
        async with elsewhere.lock("order:42"):
            waiting = asyncio.create_task(patient.post("/orders/42"))
            assert (await hasty.post("/orders/42")).status_code == 423
            assert not waiting.done()
        assert (await waiting).status_code == 200


@pytest.mark.faults
async def test_without_a_quorum_the_answer_is_503(nodes: NodeSet) -> None:
    stage = Stage()
    async with fastapi_client(make_app(stage, blocking_timeout=0.2)) as client:
        nodes.pause(0)
        nodes.pause(1)
        answer = await client.post("/orders/42")
        nodes.restore()
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json() == {"detail": "locks are not available; try again"}
        assert not stage.began.is_set()
        await eventually(lambda: nodes.keys() == [set()] * 3, within=PATIENCE)


@both_scopes
async def test_a_loss_cancels_the_endpoint_and_is_answered_by_503(
    nodes: NodeSet, elsewhere: Redlock, scope: str
) -> None:
    stage = Stage()
    async with fastapi_client(make_app(stage, scope)) as client:
        request = asyncio.create_task(client.post("/orders/42"))
        await stage.began.wait()
        await elsewhere.force_release("order:42")
        answer = await request
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json() == {
            "detail": "the lock was lost; the request may or may not have taken effect"
        }
        assert stage.events == ["rolled back"]
        stage.go.set()
        assert (await client.post("/orders/42")).status_code == 200


async def test_a_loss_that_the_endpoint_finds_itself_is_answered_by_503(
    nodes: NodeSet, elsewhere: Redlock
) -> None:
    app = FastAPI(lifespan=redlock_lifespan())

    @app.post("/orders/{order_id}")
    async def pay(
        order_id: str,
        lease: Annotated[Lease, Depends(lock_for("order:{order_id}"), scope="function")],
    ) -> None:
        await elsewhere.force_release(f"order:{order_id}")
        await lease.verify()

    async with fastapi_client(app) as client:
        assert (await client.post("/orders/42")).status_code == 503


@both_scopes
async def test_a_loss_in_a_task_group_is_answered_by_503_unless_another_error_is_beside_it(
    nodes: NodeSet, scope: Any
) -> None:
    app = FastAPI(lifespan=redlock_lifespan())
    seen: list[BaseException] = []

    @app.post("/orders/{order_id}")
    async def pay(
        order_id: str,
        lease: Annotated[Lease, Depends(lock_for("order:{order_id}"), scope=scope)],
    ) -> None:
        async def write() -> None:
            lease.check()

        async def fail() -> None:
            raise LookupError(order_id)

        # The event loop has no turn in between, so the endpoint finds the loss by its own call.
        for node in nodes:
            node.command("DEL", f"order:{order_id}")
        with suppress(LockLost):
            await lease.verify()
        async with asyncio.TaskGroup() as group, asyncio.TaskGroup() as inner:
            inner.create_task(write())
            group.create_task(write())
            if order_id == "broken":
                group.create_task(fail())

    @app.exception_handler(ExceptionGroup)
    async def own(request: Request, error: ExceptionGroup) -> JSONResponse:
        seen.append(error)
        return JSONResponse(None, status_code=500)

    @app.exception_handler(LockUnavailable)
    async def told(request: Request, error: LockUnavailable) -> JSONResponse:
        assert isinstance(error.__cause__, ExceptionGroup)
        return JSONResponse(None, status_code=error.status_code)

    async with fastapi_client(app) as client:
        assert (await client.post("/orders/42")).status_code == 503
        assert not seen
        assert (await client.post("/orders/broken")).status_code == 500
    (group,) = seen
    assert isinstance(group, ExceptionGroup)
    assert group.subgroup(LookupError) is not None


async def test_a_loss_that_only_the_release_finds_is_answered_by_503(nodes: NodeSet) -> None:
    app = FastAPI(lifespan=redlock_lifespan())

    @app.post(
        "/orders/{order_id}", dependencies=[Depends(lock_for("order:{order_id}"), scope="function")]
    )
    async def pay(order_id: str) -> str:
        # The event loop has no turn in between.
        for node in nodes:
            node.command("DEL", f"order:{order_id}")
        return "paid"

    async with fastapi_client(app) as client:
        answer = await client.post("/orders/42")
    assert answer.status_code == 503
    assert answer.json() == {
        "detail": "the lock was lost; the request may or may not have taken effect"
    }


async def test_a_loss_that_the_endpoint_swallows_is_answered_by_503(
    nodes: NodeSet, elsewhere: Redlock
) -> None:
    app, began = FastAPI(lifespan=redlock_lifespan()), asyncio.Event()

    @app.post(
        "/orders/{order_id}", dependencies=[Depends(lock_for("order:{order_id}"), scope="function")]
    )
    async def pay(order_id: str) -> str:
        began.set()
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            return "paid twice"
        return "paid"

    async with fastapi_client(app) as client:
        request = asyncio.create_task(client.post("/orders/42"))
        await began.wait()
        await elsewhere.force_release("order:42")
        assert (await request).status_code == 503


async def test_a_def_endpoint_is_answered_at_once_and_learns_of_the_loss_from_its_lease(
    nodes: NodeSet, elsewhere: Redlock
) -> None:
    app = FastAPI(lifespan=redlock_lifespan())
    began, go, ended = threading.Event(), threading.Event(), threading.Event()
    told: list[object] = []

    @app.post("/orders/{order_id}")
    def pay(
        order_id: str,
        lease: Annotated[Lease, Depends(lock_for("order:{order_id}"), scope="function")],
    ) -> None:
        lease.check()
        began.set()
        go.wait(PATIENCE)
        try:
            lease.check()
        except LockLost as error:
            told.append(error)
        ended.set()

    async with fastapi_client(app) as client:
        request = asyncio.create_task(client.post("/orders/42"))
        await eventually(began.is_set, within=PATIENCE)
        await elsewhere.force_release("order:42")
        assert (await request).status_code == 503
        assert not ended.is_set()
        go.set()
        await eventually(ended.is_set, within=PATIENCE)
        assert len(told) == 1


async def test_a_lock_needs_none_of_the_threads_that_def_endpoints_occupy(nodes: NodeSet) -> None:
    stage, began, go = Stage(), threading.Event(), threading.Event()
    stage.go.set()
    app = make_app(stage)

    @app.get("/slow")
    def slow() -> None:
        began.set()
        go.wait(PATIENCE)

    anyio.to_thread.current_default_thread_limiter().total_tokens = 1
    async with fastapi_client(app) as client:
        occupied = asyncio.create_task(client.get("/slow"))
        await eventually(began.is_set, within=PATIENCE)
        assert (await client.post("/orders/42")).status_code == 200
        assert not occupied.done()
        go.set()
        assert (await occupied).status_code == 200


@both_scopes
async def test_the_endpoints_own_errors_pass_as_they_are(
    nodes: NodeSet, elsewhere: Redlock, scope: Any
) -> None:
    app = FastAPI(lifespan=redlock_lifespan())
    lock = Depends(lock_for("order:{what}"), scope=scope)

    @app.post("/{what}", dependencies=[lock])
    async def pay(what: str, redlock: Annotated[Redlock, Depends(get_redlock)]) -> None:
        if what == "conflict":
            raise HTTPException(409, "taken", headers={"X-By": "me"})
        async with redlock.lock("another", blocking_timeout=0) as another:
            if what == "lost":
                await elsewhere.force_release("another")
                await another.verify()
            raise LookupError(what)

    @app.exception_handler(LookupError)
    @app.exception_handler(LockHeld)
    @app.exception_handler(LockLost)
    async def own(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse(type(error).__name__, status_code=418)

    async with fastapi_client(app) as client:
        conflict = await client.post("/conflict")
        assert (conflict.status_code, conflict.json(), conflict.headers["X-By"]) == (
            409,
            {"detail": "taken"},
            "me",
        )
        assert "Retry-After" not in conflict.headers
        assert (await client.post("/own")).json() == "LookupError"
        assert (await client.post("/lost")).json() == "LockLost"
        async with elsewhere.lock("another"):
            assert (await client.post("/inner")).json() == "LockHeld"
        await eventually(lambda: nodes.keys() == [set()] * 3)


async def test_an_exception_handler_answers_in_the_apps_own_words(
    nodes: NodeSet, elsewhere: Redlock
) -> None:
    app = make_app(Stage())

    @app.exception_handler(LockUnavailable)
    async def own(request: Request, error: LockUnavailable) -> JSONResponse:
        return JSONResponse(
            type(error.__cause__).__name__, status_code=error.status_code, headers=error.headers
        )

    async with fastapi_client(app) as client, elsewhere.lock("order:42"):
        answer = await client.post("/orders/42")
    assert (answer.status_code, answer.json(), answer.headers["Retry-After"]) == (
        423,
        "LockHeld",
        "1",
    )


async def test_one_dependency_used_twice_in_a_request_takes_one_lock(nodes: NodeSet) -> None:
    app = FastAPI(lifespan=redlock_lifespan())
    OrderLock = Annotated[  # noqa: N806
        Lease, Depends(lock_for("order:{order_id}"), scope="function")
    ]

    async def cart(lease: OrderLock) -> str:
        return lease.token

    @app.post("/orders/{order_id}")
    async def pay(
        order_id: str, lease: OrderLock, token: Annotated[str, Depends(cart, scope="function")]
    ) -> bool:
        return lease.token == token

    async with fastapi_client(app) as client:
        assert (await client.post("/orders/42")).json() is True
    assert held(nodes) == set()
