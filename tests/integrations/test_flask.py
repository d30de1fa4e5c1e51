"""The decorator for Flask's views, on werkzeug's server with threads."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

import flask
import pytest
from flask.views import MethodView
from werkzeug.serving import make_server

from aioredlock_ng import ConfigurationError, LockHeld, LockLost
from aioredlock_ng.integrations._views import Refused, ViewLock, policy_of
from aioredlock_ng.integrations.flask import LockUnavailable, get_redlock, init_redlock, locked
from aioredlock_ng.sync import Redlock
from aioredlock_ng.testing import MemoryNodes
from tests.integrations.labels import sync_refusal
from tests.integrations.serving import PATIENCE, held, threaded_client
from tests.sync.test_locks import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    import httpx

    from aioredlock_ng.sync import Lease
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once


@pytest.fixture
def app(nodes: NodeSet) -> Iterator[flask.Flask]:
    app = flask.Flask("shop")
    # Errors of a view reach the test.
    app.testing = True
    init_redlock(app)
    yield app
    app.extensions["AIOREDLOCK_NG"].close()


def serving(app: flask.Flask) -> AbstractContextManager[httpx.Client]:
    return threaded_client(make_server("127.0.0.1", 0, app, threaded=True))


def test_requests_for_one_name_are_refused_while_a_view_holds_its_lock(
    app: flask.Flask, nodes: NodeSet
) -> None:
    begun, end = threading.Event(), threading.Event()

    @app.post("/seats/<int:seat>")
    @locked("seat:{seat}", retry_after=3)
    def book(seat: int) -> dict[str, int]:
        assert held(nodes) == {f"seat:{seat}"}
        begun.set()
        assert end.wait(PATIENCE)
        return {"fence": get_redlock().current_lease.fence}

    with serving(app) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, "/seats/7")
        assert begun.wait(PATIENCE)
        # The converter gives both the same value.
        refused = client.post("/seats/07")
        assert (refused.status_code, refused.headers["Retry-After"]) == (423, "3")
        assert refused.json() == {"detail": "locked by another request; try again"}
        end.set()
        assert first.result(PATIENCE).json()["fence"] > 0
        assert client.post("/seats/7").status_code == 200
    assert held(nodes) == set()


def test_threads_of_a_server_lose_no_count(app: flask.Flask, nodes: NodeSet) -> None:
    count = 0

    @app.post("/count")
    @locked("count", blocking_timeout=PATIENCE)
    def add() -> str:
        nonlocal count
        before = count
        threading.Event().wait(0.001)
        count = before + 1
        return ""

    with serving(app) as client, ThreadPoolExecutor(8) as pool:
        assert {
            answer.status_code for answer in pool.map(lambda _: client.post("/count"), range(40))
        } == {200}
    assert count == 40


def test_a_view_that_loses_its_lock_is_answered_by_503(app: flask.Flask, nodes: NodeSet) -> None:
    checked: list[bool] = []

    async def check_in_tasks(lease: Lease) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(lease.check))

    @app.post("/<kind>")
    @locked("a")
    def view(kind: str) -> str:
        with Redlock.from_env() as elsewhere:
            elsewhere.force_release("a")
        lease = get_redlock().current_lease
        assert lease.wait_lost(PATIENCE)
        if kind == "checks":
            lease.check()
        if kind == "checks-in-tasks":
            asyncio.run(check_in_tasks(lease))
        checked.append(True)
        return ""

    client = app.test_client()
    for kind in ("checks", "checks-in-tasks", "hopes"):
        answer = client.post(f"/{kind}")
        assert answer.status_code == 503
        assert "may or may not have taken effect" in answer.json["detail"]
    assert checked == [True]


def test_the_answer_to_a_lost_lock_keeps_no_object_of_the_view() -> None:
    kept: list[weakref.ref[object]] = []

    class Order:
        """A local object of the view."""

    def view() -> None:
        order = Order()
        kept.append(weakref.ref(order))
        redlock.force_release("a")
        redlock.current_lease.verify()

    lock = ViewLock(view, policy_of(("a",), {}))
    with Redlock(MemoryNodes(3)) as redlock:
        gc.collect()
        gc.disable()
        try:
            with suppress(Refused):
                lock.hold(redlock, view, (), {}, {})
                pytest.fail("the lock was not lost")
            # The thread of the engine drops its references a moment later.
            wait_until(lambda: kept[0]() is None)
        finally:
            gc.enable()


def test_without_a_quorum_the_answer_is_503(app: flask.Flask) -> None:
    init_redlock(app, Redlock(["redis://127.0.0.1:1"], connect_timeout=0.2))
    app.post("/")(locked("a", blocking_timeout=30)(lambda: ""))
    answer = app.test_client().post("/")
    assert (answer.status_code, answer.json["detail"]) == (
        503,
        "locks are not available; try again",
    )


def test_an_error_handler_may_answer_differently(app: flask.Flask) -> None:
    app.post("/")(locked("a", held_status=409)(lambda: ""))

    @app.errorhandler(LockUnavailable)
    def friendly(error: LockUnavailable) -> tuple[str, int]:
        assert isinstance(error.__cause__, LockHeld)
        return "one moment", error.code

    with Redlock.from_env() as elsewhere, elsewhere.lock("a"):
        answer = app.test_client().post("/")
    assert (answer.status_code, answer.text) == (409, "one moment")


def test_a_refused_request_names_the_label_of_the_request_that_holds_the_lock(
    app: flask.Flask,
) -> None:
    with Redlock.from_env() as elsewhere:

        @app.post("/text/<int:seat>")
        @locked("seat:{seat}", owner="{request.method} of seat {seat}")
        def by_text(seat: int) -> str:
            return sync_refusal(elsewhere, f"seat:{seat}")

        @app.post("/function/<int:seat>")
        @locked(
            "seat:{seat}", owner=lambda request, seat: f"{request.headers['x-request-id']}-{seat}"
        )
        def by_function(seat: int) -> str:
            return sync_refusal(elsewhere, f"seat:{seat}")

        @app.post("/none")
        @locked("seat:0", owner=lambda request: request.headers.get("x-request-id"))
        def unlabelled() -> str:
            return sync_refusal(elsewhere, "seat:0")

        client, headers = app.test_client(), {"x-request-id": "abc"}
        assert "held by POST of seat 7: " in client.post("/text/7").text
        assert "held by abc-7: " in client.post("/function/7", headers=headers).text
        assert f":{os.getpid()}:" in client.post("/none").text
        refused = client.post("/none", headers={"x-request-id": "a" * 201})
        assert (refused.status_code, refused.json["detail"]) == (
            400,
            (
                "not possible as a lock's owner: owner must have at most 200 bytes, "
                "got 201 characters; shorten it"
            ),
        )


def test_an_owner_that_does_not_fit_the_view_is_refused_when_the_module_is_imported() -> None:
    def view(seat: int) -> str:
        return ""

    for owner, told in (
        ("{user}", r"view\(\) needs user; there are: g, request, seat"),
        (lambda user: user, r"view\(\) needs user; there are: g, request, seat"),
        ("{seat", "owner '{seat': expected"),
        (7, "owner must be a text like"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            locked("seat:{seat}", owner=owner)(view)  # type: ignore[arg-type]


def test_names_are_made_of_arguments_and_of_attributes_of_g_and_request(
    app: flask.Flask, nodes: NodeSet
) -> None:
    @app.before_request
    def login() -> None:
        flask.g.user = 7

    @app.post("/<uuid:cart>/<path:item>")
    @locked("cart:{cart}/{item}", "user:{g.user}:{request.method}")
    def view(cart: UUID, item: str) -> list[str]:
        return sorted(held(nodes))

    class Carts(MethodView):
        @locked("cart:{cart}")
        def put(self, cart: str) -> list[str]:
            return sorted(held(nodes))

    class Decorated(MethodView):
        decorators = [locked("cart:{cart}")]  # noqa: RUF012

        def put(self, cart: str) -> list[str]:
            return sorted(held(nodes))

    app.add_url_rule("/carts/<cart>", view_func=Carts.as_view("carts"))
    app.add_url_rule("/decorated/<cart>", view_func=Decorated.as_view("decorated"))
    client, cart = app.test_client(), UUID(int=5)
    assert client.post(f"/{cart}/a/b").json == [f"cart:{cart}/a/b", "user:7:POST"]
    assert client.put("/carts/9").json == ["cart:9"]
    assert client.put("/decorated/9").json == ["cart:9"]


def test_a_value_with_the_separator_is_the_clients_error(app: flask.Flask) -> None:
    app.post("/<shop>/<order>")(locked("{shop}:{order}")(lambda shop, order: ""))
    answer = app.test_client().post("/a:b/c")
    assert (answer.status_code, answer.json["detail"]) == (400, "{shop} must not contain ':'")


def test_an_exception_of_the_view_releases_the_lock_and_an_inner_lock_has_its_own_error(
    app: flask.Flask, nodes: NodeSet
) -> None:
    @app.post("/<kind>")
    @locked("outer")
    def view(kind: str) -> str:
        if kind == "inner":
            get_redlock().lock("inner", blocking_timeout=0).acquire()
        raise LockLost("of another manager")

    with Redlock.from_env() as elsewhere, elsewhere.lock("inner"):
        with pytest.raises(LockHeld):
            app.test_client().post("/inner")
        with pytest.raises(LockLost, match="of another manager"):
            app.test_client().post("/other")
        assert held(nodes) == {"inner"}


def test_a_stream_is_refused_and_a_file_is_not(app: flask.Flask, nodes: NodeSet) -> None:
    @app.get("/stream")
    @locked("a")
    def stream() -> Any:
        return (line for line in "ab")

    @app.get("/file")
    @locked("a")
    def file() -> Any:
        return flask.send_file(__file__)

    with pytest.raises(ConfigurationError, match="after the view has released its lock"):
        app.test_client().get("/stream")
    with app.test_client().get("/file") as answer:
        assert answer.status_code == 200
    assert held(nodes) == set()


def test_the_nodes_may_be_in_the_settings_of_the_app(three_nodes: NodeSet) -> None:
    app = flask.Flask("shop")
    with pytest.raises(ConfigurationError, match="init_redlock"), app.app_context():
        get_redlock()
    app.config["AIOREDLOCK_NG"] = {"nodes": three_nodes.urls, "ttl": 7}
    init_redlock(app)
    with app.app_context():
        assert get_redlock().lock("a").ttl == 7
    for settings, words in (
        ("redis://:secret@10.0.0.1", "AIOREDLOCK_NG must be a dict"),
        ({"nodes": ["redis://:secret@10.0.0.1"], "tll": 7}, "AIOREDLOCK_NG contains tll"),
        ({"nodes": ["redis://:secret@10.0.0.1"], "ttl": -7}, "AIOREDLOCK_NG: ttl"),
    ):
        app.config["AIOREDLOCK_NG"] = settings
        with pytest.raises(ConfigurationError, match=words) as error:
            init_redlock(app)
        assert "secret" not in str(error.value)
    with pytest.raises(
        ConfigurationError, match=r"takes a Redlock of aioredlock_ng.sync, not builtins.str"
    ):
        init_redlock(app, "redis://:secret@10.0.0.1")  # type: ignore[arg-type]


def test_a_wrong_use_is_refused_when_the_module_is_imported() -> None:
    def view(order: int) -> str:
        return ""

    async def coroutine(order: int) -> str:
        return ""

    def generator(order: int) -> Iterator[str]:
        yield ""

    for template, options, function, words in (
        (
            "order:{number}",
            {},
            view,
            r"the lock of .*view\(\) needs number; there are: g, order, request",
        ),
        ("order:{order}", {}, coroutine, "coroutine function"),
        ("order:{order}", {}, generator, "yields its response"),
        ("order:{order}", {"timeout": 3}, view, "locked\\(\\) got timeout, which is not an option"),
        ("order:{order}", {"held_status": 500}, view, "held_status must be 409 or 423"),
        ("order:{order", {}, view, "lock name"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            locked(template, **options)(function)  # type: ignore[arg-type]
