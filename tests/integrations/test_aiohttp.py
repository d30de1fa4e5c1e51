"""Locks of aiohttp handlers on real servers: who gets in, what the others are told, and what a loss
does.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from uuid import UUID

import aiohttp
import httpx
import pytest
from aiohttp import web

from aioredlock_ng import ConfigurationError, LockHeld, LockLost, Redlock, sync
from aioredlock_ng.integrations.aiohttp import (
    REDLOCK,
    LockUnavailable,
    check_locks,
    lease_of,
    locked,
    redlock_ctx,
    semaphore_for,
)
from tests.integrations.labels import refusal
from tests.integrations.serving import PATIENCE, aiohttp_client, held
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.typedefs import Handler

    from tests.support.node_set import NodeSet


def make_app(handler: Any, path: str = "/accounts/{id}", **settings: Any) -> web.Application:
    app = web.Application(**settings)
    app.cleanup_ctx.append(redlock_ctx())
    app.router.add_route("*", path, handler)
    return app


async def names(request: web.Request) -> web.Response:
    return web.json_response([str(name) for name in lease_of(request).resources])


class Stage:
    """A handler that has begun, and goes on when it is told to."""

    def __init__(self, **options: Any) -> None:
        self.began, self.go, self.events = asyncio.Event(), asyncio.Event(), list[str]()
        self.handler = locked("account:{id}", **options)(self.play)

    async def play(self, request: web.Request) -> web.Response:
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # a rollback that awaits
            self.events.append("rolled back")
            raise
        return web.json_response({"fence": lease_of(request).fence})


async def test_a_request_that_comes_within_min_hold_of_the_one_before_is_refused(
    nodes: NodeSet,
) -> None:
    stage = Stage(min_hold=30.0)
    stage.go.set()
    async with aiohttp_client(make_app(stage.handler)) as client:
        answers = [await client.get("/accounts/7") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 423]
    assert held(nodes) == {"account:7"}


async def test_two_servers_let_one_request_in_at_a_time(nodes: NodeSet) -> None:
    left, inside = [30], 0

    @locked("account:{id}", blocking_timeout=PATIENCE)
    async def take(request: web.Request) -> web.Response:
        nonlocal inside
        inside += 1
        assert inside == 1
        now = left[0]
        await asyncio.sleep(0.001)
        left[0] = now - 1
        inside -= 1
        return web.json_response(left[0])

    async with aiohttp_client(make_app(take)) as one, aiohttp_client(make_app(take)) as two:
        answers = await asyncio.gather(*((one, two)[n % 2].post("/accounts/a") for n in range(30)))
    assert [answer.status_code for answer in answers] == [200] * 30
    assert left == [0]
    assert nodes.keys() == [set()] * 3


@pytest.mark.parametrize(
    ("options", "status"), [({}, 423), ({"held_status": 409, "retry_after": 7}, 409)]
)
async def test_a_request_for_a_held_lock_is_refused_with_retry_after(
    nodes: NodeSet, elsewhere: Redlock, options: dict[str, Any], status: int
) -> None:
    stage = Stage(**options)
    stage.go.set()
    async with aiohttp_client(make_app(stage.handler)) as client:
        async with elsewhere.lock("account:42"):
            refused = await client.post("/accounts/42")
            other = await client.post("/accounts/43")
        free = await client.post("/accounts/42")
    assert (refused.status_code, refused.headers["Retry-After"]) == (
        status,
        str(options.get("retry_after", 1)),
    )
    assert refused.headers["Content-Type"].startswith("application/json")
    assert refused.json() == {"detail": "locked by another request; try again"}
    assert (other.status_code, free.status_code) == (200, 200)
    assert free.json()["fence"] > 0


async def test_a_refused_request_names_the_label_of_the_request_that_holds_the_lock(
    nodes: NodeSet, elsewhere: Redlock
) -> None:
    async def told(request: web.Request) -> web.Response:
        return web.json_response(await refusal(elsewhere, "account:7"))

    for options, label in (
        ({"owner": "request {rid} for {id}", "query": {"rid": int}}, "request 8 for 7"),
        ({"owner": "{request.method} {request.path}"}, "GET /accounts/7"),
        (
            {
                "owner": lambda request, id: (  # noqa: A006
                    f"{request.headers['x-request-id']}-{id}"
                ),
            },
            "abc-7",
        ),
    ):
        async with aiohttp_client(make_app(locked("account:{id}", **options)(told))) as client:
            answer = await client.get("/accounts/7?rid=08", headers={"x-request-id": "abc"})
            assert f"held by {label}: " in answer.json()


async def test_a_request_whose_text_cannot_be_a_label_is_answered_by_400(nodes: NodeSet) -> None:
    for lock in (
        locked("a", owner="{rid}", query={"rid": str}),
        semaphore_for("a", 2, owner=lambda request: request.query["rid"]),
    ):
        async with aiohttp_client(make_app(lock(names))) as client:
            refused = await client.get("/accounts/7", params={"rid": "a\n"})
            assert refused.status_code == 400
            assert refused.json()["detail"].startswith(
                "not possible as a lock's owner: owner must be one line"
            )
            assert (await client.get("/accounts/7", params={"rid": "a"})).status_code == 200


@pytest.mark.parametrize(
    ("owner", "told"),
    [
        (
            "{user}",
            (
                r"the lock account:\{id\} needs user; variables of this path are: id; "
                "if a value comes from the query"
            ),
        ),
        (lambda user, request: user, r"needs user; variables of this path are: id"),
        ("{id", "owner '{id': expected"),
        (names, "coroutine function; use a plain function"),
    ],
)
def test_an_owner_that_does_not_fit_the_route_stops_the_app(owner: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        check_locks(make_app(locked("account:{id}", owner=owner)(names)))


async def test_a_request_waits_for_its_turn(nodes: NodeSet, elsewhere: Redlock) -> None:
    stage = Stage(blocking_timeout=PATIENCE)
    stage.go.set()
    app = make_app(stage.handler)
    async with aiohttp_client(app) as client:
        async with elsewhere.lock("account:42"):
            request = asyncio.create_task(client.post("/accounts/42"))
            await eventually(lambda: app[REDLOCK].stats().waiting, within=PATIENCE)
            assert not stage.began.is_set()
        assert (await request).status_code == 200


@pytest.mark.faults
async def test_without_a_quorum_the_answer_is_503(nodes: NodeSet) -> None:
    stage = Stage(blocking_timeout=0.2)
    async with aiohttp_client(make_app(stage.handler)) as client:
        nodes.pause(0)
        nodes.pause(1)
        answer = await client.post("/accounts/42")
        nodes.restore()
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json() == {"detail": "locks are not available; try again"}
        assert not stage.began.is_set()
        await eventually(lambda: nodes.keys() == [set()] * 3, within=PATIENCE)


async def test_a_loss_cancels_the_handler_and_is_answered_by_503(
    nodes: NodeSet, elsewhere: Redlock
) -> None:
    stage = Stage()
    async with aiohttp_client(make_app(stage.handler)) as client:
        request = asyncio.create_task(client.post("/accounts/42"))
        await stage.began.wait()
        await elsewhere.force_release("account:42")
        answer = await request
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json() == {
            "detail": "the lock was lost; the request may or may not have taken effect"
        }
        assert stage.events == ["rolled back"]
        stage.go.set()
        assert (await client.post("/accounts/42")).status_code == 200


async def test_a_loss_in_a_task_group_is_answered_by_503_unless_another_error_is_beside_it(
    nodes: NodeSet,
) -> None:
    seen: list[BaseException] = []

    @locked("account:{id}")
    async def pay(request: web.Request) -> web.Response:
        lease, account = lease_of(request), request.match_info["id"]

        async def write() -> None:
            lease.check()

        async def fail() -> None:
            raise LookupError(account)

        # The event loop has no turn in between, so the handler finds the loss by its own call.
        for node in nodes:
            node.command("DEL", f"account:{account}")
        with suppress(LockLost):
            await lease.verify()
        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            if account == "broken":
                group.create_task(fail())
        return web.Response()

    @web.middleware
    async def see(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except (LockUnavailable, ExceptionGroup) as error:
            seen.append(error)
            raise

    async with aiohttp_client(make_app(pay, middlewares=[see])) as client:
        assert (await client.post("/accounts/42")).status_code == 503
        assert (await client.post("/accounts/broken")).status_code == 500
    unavailable, group = seen
    assert isinstance(unavailable.__cause__, ExceptionGroup)
    assert isinstance(group, ExceptionGroup)
    assert group.subgroup(LookupError) is not None


async def test_a_loss_that_only_the_release_finds_is_answered_by_503(nodes: NodeSet) -> None:
    @locked("account:{id}")
    async def pay(request: web.Request) -> web.Response:
        # The event loop has no turn in between.
        for node in nodes:
            node.command("DEL", "account:42")
        return web.Response(text="paid")

    async with aiohttp_client(make_app(pay)) as client:
        answer = await client.post("/accounts/42")
    assert answer.status_code == 503
    assert answer.json() == {
        "detail": "the lock was lost; the request may or may not have taken effect"
    }


@pytest.mark.parametrize("written", [b"", b"one\n"], ids=["prepared", "written"])
async def test_a_loss_amid_a_stream_closes_the_connection_before_its_end(
    nodes: NodeSet, elsewhere: Redlock, written: bytes
) -> None:
    began = asyncio.Event()

    @locked("account:{id}")
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if written:
            await response.write(written)
        began.set()
        await asyncio.sleep(PATIENCE)
        return response

    async with aiohttp_client(make_app(stream)) as client:
        request = asyncio.create_task(client.get("/accounts/42"))
        await began.wait()
        assert held(nodes) == {"account:42"}
        await elsewhere.force_release("account:42")
        with pytest.raises(httpx.RemoteProtocolError):
            await request


async def test_a_stream_is_within_the_lock_and_a_returned_response_is_not(nodes: NodeSet) -> None:
    seen: dict[str, set[str]] = {}

    class Told(web.Response):
        async def prepare(self, request: web.BaseRequest) -> Any:
            seen["sent"] = held(nodes)
            return await super().prepare(request)

    @locked("account:{id}")
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.match_info["id"] == "returned":
            return Told(text="done")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        seen["streamed"] = held(nodes)
        await response.write_eof()
        return response

    async with aiohttp_client(make_app(handler)) as client:
        assert (await client.get("/accounts/streamed")).text == "one\n"
        assert (await client.get("/accounts/returned")).text == "done"
    assert seen == {"streamed": {"account:streamed"}, "sent": set()}
    assert nodes.keys() == [set()] * 3


@pytest.mark.parametrize("cancelling", [False, True], ids=["default", "handler_cancellation"])
@pytest.mark.parametrize("waiting", [False, True], ids=["holding", "waiting"])
async def test_a_client_that_gives_up_leaves_no_key(
    nodes: NodeSet, elsewhere: Redlock, cancelling: bool, waiting: bool
) -> None:
    stage = Stage(blocking_timeout=None)
    app = make_app(stage.handler)

    async def begun(request: asyncio.Task[Any]) -> None:
        await eventually(
            lambda: app[REDLOCK].stats().waiting if waiting else stage.began.is_set(),
            within=PATIENCE,
        )
        request.cancel()
        await asyncio.wait([request])

    async with (
        aiohttp_client(app, handler_cancellation=cancelling) as client,
        aiohttp.ClientSession() as session,
    ):
        url = f"{client.base_url}/accounts/42"
        if waiting:
            async with elsewhere.lock("account:42"):
                await begun(asyncio.create_task(session.post(url)))
                if cancelling:
                    await eventually(lambda: app[REDLOCK].stats().waiting == 0, within=PATIENCE)
        else:
            await begun(asyncio.create_task(session.post(url)))
        if cancelling:
            await eventually(lambda: nodes.keys() == [set()] * 3, within=PATIENCE)
            assert stage.events == ([] if waiting else ["rolled back"])
        else:
            await eventually(stage.began.is_set, within=PATIENCE)
            assert held(nodes) == {"account:42"}
            stage.go.set()
            await eventually(lambda: nodes.keys() == [set()] * 3, within=PATIENCE)
            assert stage.events == []


async def test_the_handlers_own_errors_pass_as_they_are(nodes: NodeSet, elsewhere: Redlock) -> None:
    caught: list[BaseException] = []

    @web.middleware
    async def catch(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except (LookupError, LockHeld, LockLost) as error:
            caught.append(error)
            raise web.HTTPInternalServerError from error

    @locked("account:{id}")
    async def handler(request: web.Request) -> web.Response:
        if request.match_info["id"] == "conflict":
            raise web.HTTPConflict(text="sold out")
        async with request.app[REDLOCK].lock("another", blocking_timeout=0) as another:
            if request.match_info["id"] == "lost":
                await elsewhere.force_release("another")
                await another.verify()
            raise LookupError

    async with aiohttp_client(make_app(handler, middlewares=[catch])) as client:
        conflict = await client.post("/accounts/conflict")
        assert (conflict.status_code, conflict.text) == (409, "sold out")
        assert (await client.post("/accounts/own")).status_code == 500
        assert (await client.post("/accounts/lost")).status_code == 500
        async with elsewhere.lock("another"):
            assert (await client.post("/accounts/inner")).status_code == 500
    assert list(map(type, caught)) == [LookupError, LockLost, LockHeld]
    assert nodes.keys() == [set()] * 3


async def test_a_middleware_answers_in_the_apps_own_words(
    nodes: NodeSet, elsewhere: Redlock
) -> None:
    @web.middleware
    async def catch(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except LockUnavailable as error:
            told = type(error.__cause__).__name__
            return web.json_response(
                told, status=error.status, headers={"Retry-After": error.headers["Retry-After"]}
            )

    async with (
        aiohttp_client(make_app(locked("account:{id}")(names), middlewares=[catch])) as client,
        elsewhere.lock("account:42"),
    ):
        answer = await client.post("/accounts/42")
    assert (answer.status_code, answer.json(), answer.headers["Retry-After"]) == (
        423,
        "LockHeld",
        "1",
    )


ID = UUID(int=0xABC)

GIVEN: list[tuple[str, Callable[..., Any], str, Any]] = [
    ("/{id}", locked("a:{id}"), "/7", ["a:7"]),
    ("/{id}", locked("a:{id}", path={"id": int}), "/007", ["a:7"]),
    (r"/{id:\d+}", locked("a:{id}", path={"id": int}), "/007", ["a:7"]),
    ("/{id}", locked("a:{id}", path={"id": UUID}), f"/{ID.hex}", [f"a:{ID}"]),
    ("/{id}", locked("a:{id.hex}", path={"id": UUID}), f"/{str(ID).upper()}", [f"a:{ID.hex}"]),
    ("/{id}", locked("a:{id.numerator}", path={"id": Fraction}), "/7", ["a:7"]),
    ("/{item}", locked("{item}:{size}", query={"size": str}), "/x?size=a:b", ["x:a:b"]),
    ("/{a}/{b}", locked("a:{a}", "a:{b}", path={"a": int, "b": int}), "/1/2", ["a:1", "a:2"]),
    ("/{a}/{b}", locked("a:{a}", "a:{b}", path={"a": int, "b": int}), "/1/01", ["a:1"]),
    ("/x", locked("cron"), "/x", ["cron"]),
    (
        "/{id}",
        locked("a:{id}", path={"id": int}),
        "/x",
        "id is not possible: invalid literal for int() with base 10: 'x'",
    ),
    ("/{item}", locked("{item}:{size}", query={"size": str}), "/x", "size is missing"),
    (
        "/{item}",
        locked("{item}:{size}", query={"size": str}),
        "/x:y?size=z",
        "{item} must not contain ':'",
    ),
    ("/x", locked("{size}", query={"size": str}), "/x?size=", None),
]


async def test_equal_values_share_a_lock_and_an_unusable_value_is_the_clients_mistake(
    nodes: NodeSet,
) -> None:
    app = web.Application()
    app.cleanup_ctx.append(redlock_ctx())
    for number, (path, lock, _, _) in enumerate(GIVEN):
        app.router.add_route("*", f"/{number}{path}", lock(names))
    async with aiohttp_client(app) as client:
        for number, (_, _, url, told) in enumerate(GIVEN):
            answer = await client.get(f"/{number}{url}")
            if isinstance(told, list):
                assert (answer.status_code, answer.json()) == (200, told), url
            else:
                assert answer.status_code == 400, url
                assert answer.json()["detail"] == told or told is None


async def test_methods_views_and_subapps_may_have_one_lock_or_two(nodes: NodeSet) -> None:
    class Shop:
        @locked("shop:{id}")
        async def buy(self, request: web.Request) -> web.StreamResponse:
            return await names(request)

    class Account(web.View):
        @locked("view:{id}")
        async def get(self) -> web.StreamResponse:
            return await names(self.request)

    @locked("outer:{id}")
    @locked("inner:{id}")
    async def both(request: web.Request) -> web.StreamResponse:
        return web.json_response(
            [lease_of(request).resource, *sorted(lease.resource for lease in app[REDLOCK].leases)]
        )

    app, below = make_app(Shop().buy, "/shop/{id}"), web.Application()
    below.router.add_view("/view/{id}", Account)
    below.router.add_post("/both/{id}", both)
    app.add_subapp("/below", below)
    async with aiohttp_client(app) as client:
        assert (await client.get("/shop/1")).json() == ["shop:1"]
        assert (await client.get("/below/view/1")).json() == ["view:1"]
        assert (await client.post("/below/both/1")).json() == ["inner:1", "inner:1", "outer:1"]
    assert nodes.keys() == [set()] * 3


class _View(web.View):
    @locked("a:{ix}")
    async def get(self) -> web.StreamResponse:
        return web.Response()


@pytest.mark.parametrize(
    ("path", "handler", "told"),
    [
        (
            "/{id}",
            locked("a:{ix}")(names),
            r"\* /\{id\}: the lock a:\{ix\} needs ix; variables of this path are: id",
        ),
        ("/{id}", locked("o:{id}")(locked("a:{ix}")(names)), "needs ix"),
        (
            "/fixed",
            locked("a:{id}")(names),
            r"/fixed: .*variables of this path are: none; .*query=",
        ),
        ("/{id}", _View, "needs ix"),
        ("/{id}", locked("a:{id}", ttl=61.0)(names), "ttl"),
        ("/{id}", locked("a:{id}", ttl=0.01)(names), "ttl=0.01 is too small"),
    ],
)
async def test_a_lock_that_does_not_fit_its_route_is_refused_at_start(
    nodes: NodeSet, path: str, handler: Any, told: str
) -> None:
    app = make_app(handler, path)
    with pytest.raises(ConfigurationError, match=told):
        async with aiohttp_client(app):
            pass


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: locked("a:{id"), "expected"),
        (lambda: locked("a:{id}", path={"ix": int}), "path names ix, which is no placeholder"),
        (lambda: locked("a:{id}", query={"ix": int}), "query names ix, which is no placeholder"),
        (lambda: locked("a:{id}", path={"id": int}, query={"id": int}), "not from both"),
        (
            lambda: locked("a:{id}", path={1: int}),  # type: ignore[dict-item]
            "path names 1, which is no placeholder",
        ),
        (
            lambda: locked("a:{id}", path=["id"]),  # type: ignore[arg-type]
            "path must be a mapping like .*, not list",
        ),
        (
            lambda: locked("a:{id}", query="id"),  # type: ignore[arg-type]
            "query must be a mapping like .*, not str",
        ),
        (lambda: locked("a:{id}", query=""), "query must be a mapping"),  # type: ignore[arg-type]
        (
            lambda: locked("a:{id}", path={"id": 3}),  # type: ignore[dict-item]
            (
                "path must contain a converter from the text of id to a value, "
                r"like \{'id': int\}; got 3"
            ),
        ),
        (
            lambda: locked("a:{id}", query={"id": None}),  # type: ignore[dict-item]
            "query must contain a converter",
        ),
        (
            lambda: locked("a:{id}", path={"id": float}),
            "path converts id to a float; the result must be a str, int, UUID",
        ),
        (
            lambda: locked("a:{id}", path={"id": bytes}),  # type: ignore[dict-item]
            "path converts id to a bytes",
        ),
        (
            lambda: locked("a:{id}", path={"id": date}),
            r"path converts id to a date; .* date\.fromisoformat",
        ),  # type: ignore[dict-item]
        (lambda: locked("a", ttl=-1), "ttl must be a finite positive number of seconds, got -1"),
        (
            lambda: redlock_ctx("redis://:secret@x"),
            r"takes an aioredlock_ng\.Redlock, not builtins\.str: write redlock_ctx\(Redlock",
        ),  # type: ignore[arg-type]
        (
            lambda: redlock_ctx(sync.Redlock(["redis://x"])),
            r"takes an aioredlock_ng\.Redlock, not aioredlock_ng\.sync\..*Redlock: write",
        ),  # type: ignore[arg-type]
        (lambda: locked("a:{id}", held_status=500), "held_status"),
        (
            lambda: locked("a:{id}")(lambda request: None),  # type: ignore[arg-type,return-value]
            "async def",
        ),
    ],
)
def test_invalid_arguments_are_refused_at_the_declaration(
    make: Callable[[], object], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told) as error:
        make()
    assert "secret" not in str(error.value)


async def test_a_lease_is_there_only_within_the_handler(nodes: NodeSet) -> None:
    @web.middleware
    async def ask(request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = await handler(request)
        with pytest.raises(ConfigurationError, match="no lock is held for this request"):
            lease_of(request)
        return answer

    async with aiohttp_client(make_app(locked("account:{id}")(names), middlewares=[ask])) as client:
        assert (await client.get("/accounts/1")).json() == ["account:1"]


async def test_the_error_of_an_app_without_a_manager_names_the_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = web.Application()
    app.router.add_get("/{id}", locked("account:{id}")(names))
    async with aiohttp_client(app) as client:
        assert (await client.get("/1")).status_code == 500
    assert "write app.cleanup_ctx.append(redlock_ctx())" in caplog.text


async def test_a_manager_of_ones_own_is_opened_and_closed(nodes: NodeSet) -> None:
    mine = Redlock(nodes.urls, ttl=3.0)
    app = web.Application()
    app.cleanup_ctx.append(redlock_ctx(mine))
    check_locks(app)
    async with aiohttp_client(app):
        assert app[REDLOCK] is mine
        # A node that is paused while the manager opens may be down.
        assert any(node.state != "down" for node in mine.nodes)
    assert mine.nodes[0].state == "down"
