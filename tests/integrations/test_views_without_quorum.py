"""Views of Flask and Django while no quorum of nodes can grant: answered long before
`blocking_timeout` is over.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import flask
import pytest
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import path

from aioredlock_ng.integrations import django as for_django
from aioredlock_ng.integrations import flask as for_flask
from tests.integrations import django_project
from tests.integrations.serving import PATIENCE
from tests.integrations.working import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from aioredlock_ng.sync import Redlock
    from tests.support.node_set import NodeSet

    Answer = tuple[int, str | None]
    App = tuple[Redlock, Callable[[], Answer]]
    Serve = Callable[..., AbstractContextManager[App]]

pytestmark = [pytest.mark.once, pytest.mark.faults]

django_project.configure()

WAIT = 10 * PATIENCE
"""The view's `blocking_timeout`."""


def by_flask() -> Iterator[App]:
    app = flask.Flask("shop")
    for_flask.init_redlock(app)
    app.get("/")(for_flask.locked("a", blocking_timeout=WAIT)(lambda: ""))

    def get() -> Answer:
        answer = app.test_client().get("/")
        return answer.status_code, answer.headers.get("Retry-After")

    redlock = app.extensions["AIOREDLOCK_NG"]
    yield redlock, get
    redlock.close()


def by_django() -> Iterator[App]:
    view = for_django.locked("a", blocking_timeout=WAIT)(lambda request: HttpResponse(""))
    urls: Any = type(django_project)("urls")
    urls.urlpatterns = [path("", view)]

    def get() -> Answer:
        answer = Client().get("/")
        return answer.status_code, answer.headers.get("Retry-After")

    with override_settings(ROOT_URLCONF=urls, AIOREDLOCK_NG=None):
        yield for_django.get_redlock(), get


@pytest.fixture(params=[by_flask, by_django])
def app(nodes: NodeSet, request: pytest.FixtureRequest) -> Iterator[App]:
    yield from request.param()


def test_a_view_does_not_wait_for_nodes_that_are_all_down(app: App, nodes: NodeSet) -> None:
    redlock, get = app
    assert get() == (200, None)
    for index in range(3):
        nodes.crash(index)
    until(lambda: not any(node.state == "up" for node in redlock.nodes))
    began = time.monotonic()
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: get(), range(5)))
    assert answers == [(503, "1")] * 5
    assert time.monotonic() - began < WAIT / 2
