"""The decorators for Django: views on its own server with threads, and commands as processes of
their own.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.db import transaction
from django.http import FileResponse, HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, TestCase, override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from aioredlock_ng import ConfigurationError, LockHeld, LockLost, UpgradeRefused
from aioredlock_ng.integrations import django as integration
from aioredlock_ng.integrations.django import get_redlock, locked, locked_command
from aioredlock_ng.sync import Redlock
from aioredlock_ng.testing import MemoryNodes
from tests.integrations import django_project
from tests.integrations.labels import sync_refusal
from tests.integrations.serving import PATIENCE, held, threaded_client
from tests.support.coverage import untraced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import httpx

    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once

django_project.configure()


@pytest.fixture
def project(nodes: NodeSet, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Adds a view to the project, which has the manager of this test."""

    def add(route: str, view: Callable[..., Any]) -> None:
        # A module whose list of patterns has changed is read anew.
        urls = type(sys)("urls")
        urls.urlpatterns = [*seen, path(route, view)]  # type: ignore[attr-defined]
        seen.append(path(route, view))
        settings.disable()
        settings.options["ROOT_URLCONF"] = urls
        settings.enable()

    seen: list[Any] = []
    settings = override_settings(
        AIOREDLOCK_NG={"nodes": nodes.urls, "ttl": 60, "node_timeout": 2.5}, ROOT_URLCONF="x"
    )
    settings.enable()
    yield add
    settings.disable()


def serving() -> AbstractContextManager[httpx.Client]:
    server = ThreadedWSGIServer(("127.0.0.1", 0), WSGIRequestHandler)
    server.set_app(WSGIHandler())
    return threaded_client(server)


def test_requests_for_one_name_are_refused_while_a_view_holds_its_lock(
    project: Callable[..., None], nodes: NodeSet
) -> None:
    begun, end = threading.Event(), threading.Event()

    @locked("seat:{seat}", retry_after=3)
    def book(request: Any, seat: int) -> JsonResponse:
        assert held(nodes) == {f"seat:{seat}"}
        begun.set()
        assert end.wait(PATIENCE)
        return JsonResponse({"fence": get_redlock().current_lease.fence})

    project("seats/<int:seat>", book)
    with serving() as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.get, "/seats/7")
        assert begun.wait(PATIENCE)
        # The converter gives both the same value.
        refused = client.get("/seats/07")
        assert (refused.status_code, refused.headers["Retry-After"]) == (423, "3")
        assert refused.json() == {"detail": "locked by another request; try again"}
        end.set()
        assert first.result(PATIENCE).json()["fence"] > 0
        assert client.get("/seats/7").status_code == 200
    assert held(nodes) == set()


def test_threads_of_a_server_lose_no_count(project: Callable[..., None], nodes: NodeSet) -> None:
    count = 0

    @locked("count", blocking_timeout=PATIENCE)
    def add(request: Any) -> HttpResponse:
        nonlocal count
        before = count
        threading.Event().wait(0.001)
        count = before + 1
        return HttpResponse("")

    project("count", add)
    with serving() as client, ThreadPoolExecutor(8) as pool:
        assert {
            answer.status_code for answer in pool.map(lambda _: client.get("/count"), range(40))
        } == {200}
    assert count == 40


def test_a_view_that_loses_its_lock_is_answered_by_503(
    project: Callable[..., None], nodes: NodeSet
) -> None:
    checked: list[bool] = []

    @locked("a")
    def view(request: Any, kind: str) -> HttpResponse:
        with Redlock.from_env() as elsewhere:
            elsewhere.force_release("a")
        lease = get_redlock().current_lease
        assert lease.wait_lost(PATIENCE)
        if kind == "checks":
            lease.check()
        checked.append(True)
        return HttpResponse("")

    project("<kind>", view)
    for kind in ("checks", "hopes"):
        answer = Client().get(f"/{kind}")
        assert answer.status_code == 503
        assert "may or may not have taken effect" in answer.json()["detail"]
    assert checked == [True]


def test_without_a_quorum_the_answer_is_503(project: Callable[..., None]) -> None:
    project("", locked("a", blocking_timeout=30)(lambda request: HttpResponse("")))
    with override_settings(
        AIOREDLOCK_NG={"nodes": ["redis://127.0.0.1:1"], "connect_timeout": 0.2}
    ):
        answer = Client().get("/")
    assert (answer.status_code, answer.json()) == (
        503,
        {"detail": "locks are not available; try again"},
    )


def test_names_are_made_of_arguments_and_of_attributes_of_the_request(
    project: Callable[..., None], nodes: NodeSet
) -> None:
    @locked("cart:{cart}/{item}", "by:{request.method}")
    def view(request: Any, cart: UUID, item: str) -> JsonResponse:
        return JsonResponse(sorted(held(nodes)), safe=False)

    class Carts(View):
        @locked("cart:{cart}")
        def get(self, request: Any, cart: str) -> JsonResponse:
            return JsonResponse(sorted(held(nodes)), safe=False)

    @method_decorator(locked("cart:{cart}"), name="dispatch")
    class Decorated(View):
        def get(self, request: Any, cart: str) -> JsonResponse:
            return JsonResponse(sorted(held(nodes)), safe=False)

    project("carts/<cart>", Carts.as_view())
    project("decorated/<cart>", Decorated.as_view())
    project("<uuid:cart>/<path:item>", view)
    client, cart = Client(), UUID(int=5)
    assert client.get(f"/{cart}/a/b").json() == ["by:GET", f"cart:{cart}/a/b"]
    assert client.get("/carts/9").json() == ["cart:9"]
    assert client.get("/decorated/9").json() == ["cart:9"]


def test_a_value_with_the_separator_is_the_clients_error(project: Callable[..., None]) -> None:
    project(
        "<shop>/<order>", locked("{shop}:{order}")(lambda request, shop, order: HttpResponse(""))
    )
    answer = Client().get("/a:b/c")
    assert (answer.status_code, answer.json()["detail"]) == (400, "{shop} must not contain ':'")


def test_an_exception_of_the_view_releases_the_lock_and_an_inner_lock_has_its_own_error(
    project: Callable[..., None], nodes: NodeSet
) -> None:
    @locked("outer")
    def view(request: Any, kind: str) -> HttpResponse:
        if kind == "inner":
            get_redlock().lock("inner", blocking_timeout=0).acquire()
        raise LockLost("of another manager")

    project("<kind>", view)
    with Redlock.from_env() as elsewhere, elsewhere.lock("inner"):
        with pytest.raises(LockHeld):
            Client().get("/inner")
        with pytest.raises(LockLost, match="of another manager"):
            Client().get("/other")
        assert held(nodes) == {"inner"}


def test_a_stream_is_refused_and_a_file_is_not(
    project: Callable[..., None], nodes: NodeSet
) -> None:
    project("stream", locked("a")(lambda request: StreamingHttpResponse(iter("ab"))))
    project("file", locked("a")(lambda request: FileResponse(io.BytesIO(b"a"))))
    with pytest.raises(ConfigurationError, match="after the view has released its lock"):
        Client().get("/stream")
    answer = Client().get("/file")
    assert answer.status_code == 200
    answer.close()
    assert held(nodes) == set()


def test_an_async_method_behind_a_locked_dispatch_does_not_run_without_the_lock(
    project: Callable[..., None], nodes: NodeSet
) -> None:
    ran: list[set[str]] = []

    @method_decorator(locked("a"), name="dispatch")
    class Asynchronous(View):
        async def get(self, request: Any) -> HttpResponse:
            ran.append(held(nodes))
            return HttpResponse("")

    # `View.dispatch` is a plain function, and returns the coroutine of `get`.
    project("", Asynchronous.as_view())
    with pytest.raises(ConfigurationError, match="coroutine, which would run after the release"):
        asyncio.run(AsyncClient().get("/"))
    assert ran == []
    assert held(nodes) == set()


def test_a_transaction_around_the_lock_is_refused_and_inside_of_it_is_not(
    project: Callable[..., None],
) -> None:
    def view(request: Any) -> HttpResponse:
        with transaction.atomic():
            return HttpResponse("")

    project("around", transaction.atomic(locked("a")(view)))
    project("inside", locked("a")(view))
    with pytest.raises(
        ConfigurationError, match="a transaction of the database 'default' is open around the lock"
    ):
        Client().get("/around")
    assert Client().get("/inside").status_code == 200


def test_the_transaction_of_a_test_case_of_django_is_none(project: Callable[..., None]) -> None:
    project("", locked("a")(lambda request: HttpResponse("")))

    class Case(TestCase):
        def test(self) -> None:
            assert self.client.get("/").status_code == 200

    result = unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(unittest.TestResult())
    assert result.testsRun == 1
    assert result.wasSuccessful(), result.errors + result.failures


def test_the_settings_are_read_anew_when_a_test_overrides_them(nodes: NodeSet) -> None:
    # Without the setting, the environment has the nodes.
    before = get_redlock()
    assert before.lock("a").ttl == 60
    with override_settings(AIOREDLOCK_NG={"nodes": nodes.urls, "ttl": 7}):
        within = get_redlock()
        assert within.lock("a").ttl == 7
        assert get_redlock() is within
    assert get_redlock() is not before
    with (
        override_settings(AIOREDLOCK_NG={"nodes": MemoryNodes(3)}),
        get_redlock().lock("a") as lease,
    ):
        assert lease.nodes[1] == 3
    with override_settings(AIOREDLOCK_NG="redis://:secret@10.0.0.1"):
        with pytest.raises(ConfigurationError, match="AIOREDLOCK_NG must be a dict") as error:
            get_redlock()
        assert "secret" not in str(error.value)


class Import(BaseCommand):
    """A command in the process of the tests."""

    body: Callable[[], object]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--shop")

    @locked_command("import:{shop}", held="skip")
    def handle(self, *args: Any, shop: Any, **options: Any) -> None:
        self.body()


def test_a_refused_request_names_the_label_of_the_request_that_holds_the_lock(
    project: Callable[..., None],
) -> None:
    with Redlock.from_env() as elsewhere:

        @locked("seat:{seat}", owner="{request.method} of seat {seat}")
        def by_text(request: Any, seat: int) -> HttpResponse:
            return HttpResponse(sync_refusal(elsewhere, f"seat:{seat}"))

        class ByFunction(View):
            @locked(
                "seat:{seat}",
                owner=lambda request, seat: f"{request.headers['x-request-id']}-{seat}",
            )
            def get(self, request: Any, seat: int) -> HttpResponse:
                return HttpResponse(sync_refusal(elsewhere, f"seat:{seat}"))

        project("text/<int:seat>", by_text)
        project("function/<int:seat>", ByFunction.as_view())
        assert b"held by GET of seat 7: " in Client().get("/text/7").content
        assert (
            b"held by abc-7: "
            in Client().get("/function/7", headers={"x-request-id": "abc"}).content
        )
        refused = Client().get("/function/7", headers={"x-request-id": "a\t"})
        assert refused.status_code == 400
        assert "owner must be one line of text" in refused.json()["detail"]
    with pytest.raises(ConfigurationError, match=r"needs user; there are: request, seat"):
        locked("seat:{seat}", owner=lambda user: user)(lambda request, seat: None)


class Labelled(BaseCommand):
    told = ""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--shop")

    @locked_command("import", owner=lambda shop: f"import of {shop}")
    def handle(self, *args: Any, shop: Any, **options: Any) -> None:
        with Redlock.from_env() as elsewhere:
            self.told = sync_refusal(elsewhere, "import")


def test_a_refused_command_names_the_label_of_the_command_that_holds_the_lock(
    project: Callable[..., None],
) -> None:
    command = Labelled()
    call_command(command, shop="tea")
    assert "held by import of tea: " in command.told
    with pytest.raises(CommandError, match="owner must have at most 200 bytes"):
        call_command(command, shop="x" * 200)

    class Other(BaseCommand):
        @locked_command("import", owner="{user}")
        def handle(self, *args: Any, **options: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="owner: this command has no option user"):
        call_command(Other())
    with pytest.raises(ConfigurationError, match=r"owner 'import of \{shop': expected"):
        locked_command("import", owner="import of {shop")


def test_a_command_in_the_same_process_is_skipped_or_fails(
    project: Callable[..., None], nodes: NodeSet
) -> None:
    command, out, done = Import(), io.StringIO(), list[set[str]]()

    async def check_in_tasks() -> None:
        lease = get_redlock().current_lease
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(lease.verify))

    command.body = lambda: done.append(held(nodes))
    with Redlock.from_env() as elsewhere:
        with elsewhere.lock("import:a"):
            call_command(command, shop="a", stdout=out)
            assert done == []
            assert out.getvalue().startswith("skipped: 'import:a' was not acquired")
        call_command(command, shop="a", stdout=out)
        assert done == [{"import:a"}]
        command.body = lambda: (
            elsewhere.force_release("import:a"),
            get_redlock().current_lease.wait_lost(PATIENCE),
        )
        with pytest.raises(CommandError, match="was lost") as error:
            call_command(command, shop="a")
        assert error.value.returncode == 75
        command.body = lambda: (elsewhere.force_release("import:a"), asyncio.run(check_in_tasks()))
        with pytest.raises(CommandError, match="was lost") as error:
            call_command(command, shop="a")
        assert error.value.returncode == 75
        with get_redlock().rwlock("import:a").read(), pytest.raises(UpgradeRefused):
            call_command(command, shop="a")
        command.body = lambda: get_redlock().lock("inner", blocking_timeout=0).acquire()
        with elsewhere.lock("inner"), pytest.raises(LockHeld):
            call_command(command, shop="a")
    with pytest.raises(ConfigurationError, match="NoneType"):
        call_command(command, shop=None)
    with override_settings(
        AIOREDLOCK_NG={"nodes": ["redis://127.0.0.1:1"], "connect_timeout": 0.2}
    ):
        with pytest.raises(CommandError) as error:
            call_command(command, shop="a")
        assert error.value.returncode == 69


def test_a_command_that_is_a_coroutine_function_does_not_run_without_the_lock(
    project: Callable[..., None],
) -> None:
    ran: list[str] = []

    class Asynchronous(BaseCommand):
        @locked_command("import")
        async def handle(self, **options: Any) -> None:  # type: ignore[override]
            ran.append("import")

    with pytest.raises(ConfigurationError, match="coroutine, which would run after the release"):
        call_command(Asynchronous())
    assert ran == []


@contextmanager
def command(shop: str) -> Iterator[subprocess.Popen[str]]:
    run = [sys.executable, "-u", "-m", "tests.integrations.django_project", "stay", shop]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        run,
        cwd=root,
        env={**untraced(), "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_second_command_ends_with_status_1_and_sigterm_and_ctrl_c_release_the_lock(
    nodes: NodeSet,
) -> None:
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)):
        with command("a") as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "begun\n"
            assert held(nodes) == {"import:a"}
            with command("a") as second:
                out, errors = second.communicate(timeout=PATIENCE)
            assert (second.returncode, out) == (1, "")
            assert "CommandError: 'import:a' was not acquired, held by" in errors
            first.send_signal(number)
            assert first.wait(PATIENCE) == status
        # The ttl is a minute.
        assert held(nodes) == set()


def test_a_wrong_use_is_refused_when_the_module_is_imported() -> None:
    def view(request: Any, order: int) -> HttpResponse:
        return HttpResponse("")

    async def coroutine(request: Any, order: int) -> HttpResponse:
        return HttpResponse("")

    class Asynchronous(View):
        async def get(self, request: Any, order: int) -> HttpResponse:
            return HttpResponse("")

    for template, function, words in (
        ("a", Asynchronous.as_view(), "coroutine function"),
        ("order:{number}", view, r"the lock of .*view\(\) needs number; there are: order, request"),
        ("order:{order}", coroutine, "coroutine function"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            locked(template)(function)
    with pytest.raises(ConfigurationError, match="held must be raise or skip"):
        locked_command("import", held="retry")  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_is_forked_while_another_thread_makes_the_manager_makes_its_own(
    nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    making, go, make = threading.Event(), threading.Event(), integration.manager_from

    def wait_first(*arguments: Any) -> Redlock:
        making.set()
        assert go.wait(PATIENCE)
        return make(*arguments)

    with override_settings(AIOREDLOCK_NG={"nodes": nodes.urls}), ThreadPoolExecutor(1) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(integration, "manager_from", wait_first)
            made = pool.submit(get_redlock)
            assert making.wait(PATIENCE)
        if not (child := os.fork()):
            # A child that hangs dies.
            signal.alarm(int(PATIENCE))
            status = 1
            try:
                with get_redlock() as redlock, redlock.lock("child"):
                    status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        go.set()
        assert made.result(PATIENCE) is get_redlock()
