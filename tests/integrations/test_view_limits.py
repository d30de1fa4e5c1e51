"""`limit`, `shared` and `min_hold` of views in threads, on the servers of Flask and Django, and of
Django's commands.
"""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import flask
import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.http import JsonResponse
from django.test import override_settings
from django.urls import path
from werkzeug.serving import make_server

from aioredlock_ng import ConfigurationError
from aioredlock_ng.integrations import django as for_django
from aioredlock_ng.integrations import flask as for_flask
from aioredlock_ng.sync import Lease, Redlock
from tests.integrations import django_project
from tests.integrations.serving import PATIENCE, held, threaded_client
from tests.integrations.working import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import httpx

    from tests.support.node_set import NodeSet

    Serve = Callable[..., AbstractContextManager[httpx.Client]]

pytestmark = pytest.mark.once

django_project.configure()


class Room:
    """The requests that are inside, by slot. They stay until `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.inside: set[int] = set()

    def visit(self, lease: Lease) -> int:
        assert lease.slot not in self.inside, "two requests have the same slot"
        self.inside.add(lease.slot)
        try:
            assert self.go.wait(PATIENCE)
        finally:
            self.inside.remove(lease.slot)
        return int(lease.slot)


@contextmanager
def by_flask(visit: Callable[[Lease], int | None], **options: Any) -> Iterator[httpx.Client]:
    app = flask.Flask("shop")
    for_flask.init_redlock(app)

    @app.get("/exports/<shop>")
    @for_flask.locked("export:{shop}", **options)
    def export(shop: str) -> Any:
        return flask.jsonify(visit(for_flask.get_redlock().current_lease))

    with threaded_client(make_server("127.0.0.1", 0, app, threaded=True)) as client:
        yield client
    app.extensions["AIOREDLOCK_NG"].close()


@contextmanager
def by_django(visit: Callable[[Lease], int | None], **options: Any) -> Iterator[httpx.Client]:
    @for_django.locked("export:{shop}", **options)
    def export(request: Any, shop: str) -> JsonResponse:
        return JsonResponse(visit(for_django.get_redlock().current_lease), safe=False)

    urls = type(django_project)("urls")
    urls.urlpatterns = [path("exports/<shop>", export)]  # type: ignore[attr-defined]
    server = ThreadedWSGIServer(("127.0.0.1", 0), WSGIRequestHandler)
    server.set_app(WSGIHandler())
    with (
        override_settings(ROOT_URLCONF=urls, AIOREDLOCK_NG=None),
        threaded_client(server) as client,
    ):
        yield client


both = pytest.mark.parametrize("serve", [by_flask, by_django])


@both
@pytest.mark.parametrize(
    ("options", "status"), [({}, 429), ({"held_status": 423, "retry_after": 7}, 423)]
)
def test_a_request_beyond_the_slots_is_refused_with_retry_after(
    nodes: NodeSet, serve: Serve, options: dict[str, Any], status: int
) -> None:
    room = Room()
    with serve(room.visit, limit=2, **options) as client, ThreadPoolExecutor(2) as pool:
        inside = [pool.submit(client.get, "/exports/a") for _ in range(2)]
        until(lambda: len(room.inside) == 2)
        refused = client.get("/exports/a")
        room.go.set()
        assert sorted(request.result(PATIENCE).json() for request in inside) == [1, 2]
        assert client.get("/exports/a").status_code == 200
    assert (refused.status_code, refused.headers["Retry-After"]) == (
        status,
        str(options.get("retry_after", 1)),
    )
    assert refused.json() == {"detail": "too many requests at a time; try again"}
    assert held(nodes) == set()


@both
def test_the_loss_of_a_slot_is_answered_by_503(nodes: NodeSet, serve: Serve) -> None:
    def visit(lease: Lease) -> int:
        with Redlock.from_env() as elsewhere:
            elsewhere.force_release(f"export:a#{lease.slot}")
        assert lease.wait_lost(PATIENCE)
        return 0

    with serve(visit, limit=2) as client:
        answer = client.get("/exports/a")
    assert answer.status_code == 503
    assert "may or may not have taken effect" in answer.json()["detail"]


@both
@pytest.mark.parametrize(
    ("options", "statuses"), [({}, [200, 423]), ({"limit": 2}, [200, 200, 429])]
)
def test_retry_after_with_min_hold_is_the_time_left(
    nodes: NodeSet, serve: Serve, options: dict[str, Any], statuses: list[int]
) -> None:
    with serve(lambda lease: None, min_hold=50, **options) as client:
        answers = [client.get("/exports/a") for _ in statuses]
        assert client.get("/exports/b").status_code == 200
    assert [answer.status_code for answer in answers] == statuses
    assert 50 - PATIENCE < int(answers[-1].headers["Retry-After"]) <= 50


@both
def test_views_that_read_run_at_the_same_time_and_beside_no_writer(
    nodes: NodeSet, serve: Serve
) -> None:
    together = threading.Barrier(2, timeout=PATIENCE)

    def visit(lease: Lease) -> int:
        together.wait()
        with Redlock.from_env() as elsewhere:
            assert elsewhere.lock("export:a").try_acquire() is None
        together.wait()
        return int(lease.fence)

    with (
        serve(visit, shared=True) as client,
        ThreadPoolExecutor(2) as pool,
        Redlock.from_env() as elsewhere,
    ):
        requests = [pool.submit(client.get, "/exports/a") for _ in range(2)]
        assert [request.result(PATIENCE).status_code for request in requests] == [200, 200]
        with elsewhere.rwlock("export:a").write():
            refused = client.get("/exports/a")
    assert (refused.status_code, refused.headers["Retry-After"]) == (423, "1")
    assert held(nodes) == set()


def test_a_view_that_reads_and_asks_to_write_is_an_error_of_the_server(nodes: NodeSet) -> None:
    app = flask.Flask("shop")
    for_flask.init_redlock(app)

    @app.put("/exports")
    @for_flask.locked("exports", shared=True)
    @for_flask.locked("exports")
    def rebuild() -> str:
        return ""

    assert app.test_client().put("/exports").status_code == 500
    assert held(nodes) == set()
    app.extensions["AIOREDLOCK_NG"].close()


@pytest.mark.parametrize(
    ("names", "options", "told"),
    [
        (["a"], {"limit": 0}, "limit must be a whole number from 1 to 1,000, got 0"),
        (["a"], {"limit": True}, "limit must be a whole number"),
        (
            ["a", "b"],
            {"limit": 2},
            "a semaphore has one name, got 2; limit= is not possible for several locks",
        ),
        (
            ["a"],
            {"held_status": 429},
            "held_status must be 409 or 423, got 429; 429 is for a semaphore",
        ),
        (["a"], {"limit": 2, "held_status": 503}, "held_status must be 409, 423 or 429, got 503$"),
        (["a"], {"min_hold": -1}, "min_hold"),
        (["a"], {"shared": 1}, "shared must be True or False, not int"),
        (["a"], {"shared": True, "limit": 2}, "shared and limit exclude each other"),
        (["a", "b"], {"shared": True}, "a read-write lock has one name, got 2"),
        (["a"], {"shared": True, "min_hold": 5}, "min_hold is not possible for a read-write lock"),
    ],
)
def test_a_bad_combination_is_refused_when_the_module_is_imported(
    names: list[str], options: dict[str, Any], told: str
) -> None:
    for locked in (for_flask.locked, for_django.locked):
        with pytest.raises(ConfigurationError, match=told):
            locked(*names, **options)


class Import(BaseCommand):
    """At most two at a time."""

    @for_django.locked_command("import", held="skip", limit=2)
    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(f"slot {for_django.get_redlock().current_lease.slot}")


class Report(BaseCommand):
    """Beside other reports, and beside no import."""

    @for_django.locked_command("stock", held="skip", shared=True)
    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write("reported")


class Nightly(BaseCommand):
    """Once a minute."""

    @for_django.locked_command("nightly", min_hold=60)
    def handle(self, *args: Any, **options: Any) -> None: ...


def test_as_many_commands_run_as_there_are_slots(nodes: NodeSet) -> None:
    out = io.StringIO()
    with (
        override_settings(AIOREDLOCK_NG=None),
        Redlock.from_env() as elsewhere,
        elsewhere.semaphore("import", 2) as other,
    ):
        call_command(Import(), stdout=out)
        assert out.getvalue() == f"slot {3 - other.slot}\n"
        with elsewhere.semaphore("import", 2):
            call_command(Import(), stdout=out)
    assert out.getvalue().splitlines()[1].startswith("skipped: 'import' was not acquired")


def test_a_command_that_reads_runs_beside_readers_and_beside_no_writer(nodes: NodeSet) -> None:
    out = io.StringIO()
    with override_settings(AIOREDLOCK_NG=None), Redlock.from_env() as elsewhere:
        with elsewhere.rwlock("stock").read():
            call_command(Report(), stdout=out)
        assert out.getvalue() == "reported\n"
        with elsewhere.lock("stock"):
            call_command(Report(), stdout=out)
    assert out.getvalue().splitlines()[1].startswith("skipped: 'stock' was not acquired")


def test_a_command_with_min_hold_runs_once_in_that_time(nodes: NodeSet) -> None:
    with override_settings(AIOREDLOCK_NG=None):
        call_command(Nightly())
        with pytest.raises(CommandError, match="'nightly' was not acquired") as error:
            call_command(Nightly())
    assert error.value.returncode == 1


def test_an_invalid_limit_of_a_command_is_refused_when_the_module_is_imported() -> None:
    with pytest.raises(
        ConfigurationError, match="limit must be a whole number from 1 to 1,000, got 1001"
    ):
        for_django.locked_command("import", limit=1001)
    with pytest.raises(ConfigurationError, match="shared and limit exclude each other"):
        for_django.locked_command("import", limit=2, shared=True)
