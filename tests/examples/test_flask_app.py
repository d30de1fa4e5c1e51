"""The Flask example."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng.sync import Redlock

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet


@pytest.mark.once
def test_a_seat_is_sold_once_and_refused_while_another_request_has_it(nodes: NodeSet) -> None:
    names = runpy.run_path(str(EXAMPLES / "flask_app.py"))
    client = names["app"].test_client()
    assert client.get("/healthz").json == {"ready": True}
    with Redlock.from_env() as elsewhere, elsewhere.lock("seat:12"):
        assert client.post("/seats/12").status_code == 423
    sold = client.post("/seats/12")
    assert sold.status_code == 200
    assert sold.json["fence"] > 0
    assert client.post("/seats/12").status_code == 409
    names["app"].extensions["AIOREDLOCK_NG"].close()
    assert nodes.keys() == [set()] * 3
