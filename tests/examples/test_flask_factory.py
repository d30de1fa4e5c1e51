"""The Flask example with an application factory."""

from __future__ import annotations

import runpy
import threading
from typing import TYPE_CHECKING, Any

import flask
import pytest

from aioredlock_ng.integrations.flask import get_redlock, init_redlock
from aioredlock_ng.sync import Redlock
from aioredlock_ng.testing import MemoryNodes

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once


@pytest.fixture
def names() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "flask_factory.py"))


@pytest.fixture
def create_app(names: dict[str, Any]) -> Callable[..., flask.Flask]:
    create: Callable[..., flask.Flask] = names["create_app"]
    return create


def manager_of(app: flask.Flask) -> Redlock:
    with app.app_context():
        return get_redlock()


def test_the_app_of_a_factory_takes_the_nodes_of_the_environment(
    create_app: Callable[..., flask.Flask], nodes: NodeSet
) -> None:
    app = create_app()
    with manager_of(app), Redlock.from_env() as elsewhere:
        with elsewhere.lock("seat:12"):
            assert app.test_client().post("/seats/12").status_code == 423
        assert app.test_client().post("/seats/12").json["fence"] > 0
    assert nodes.keys() == [set()] * 3


def test_a_view_of_two_apps_takes_its_lock_from_the_manager_of_the_app_that_is_asked(
    create_app: Callable[..., flask.Flask],
) -> None:
    one, two = (create_app({"AIOREDLOCK_NG": {"nodes": MemoryNodes(3)}}) for _ in range(2))
    with manager_of(one) as manager, manager_of(two), manager.lock("seat:12"):
        assert one.test_client().post("/seats/12").status_code == 423
        assert two.test_client().post("/seats/12").status_code == 200


def test_no_thread_is_left_of_apps_whose_managers_were_closed(
    create_app: Callable[..., flask.Flask],
) -> None:
    before = set(threading.enumerate())
    for _ in range(20):
        app = create_app({"AIOREDLOCK_NG": {"nodes": MemoryNodes(3)}})
        assert app.test_client().post("/seats/12").status_code == 200
        manager_of(app).close()
    assert set(threading.enumerate()) <= before


def test_apps_that_share_a_manager_made_at_import_exclude_each_other(
    names: dict[str, Any],
) -> None:
    with Redlock(MemoryNodes(3)) as redlock:
        apps = [flask.Flask(name) for name in ("one", "two")]
        for app in apps:
            init_redlock(app, redlock)
            app.register_blueprint(names["shop"])
        with redlock.lock("seat:12"):
            assert [app.test_client().post("/seats/12").status_code for app in apps] == [423] * 2
        assert [app.test_client().post("/seats/12").status_code for app in apps] == [200] * 2
