"""The example of an outside API: processes that share its limit, a slot that is lost, and a wait
that ends.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from aioredlock_ng import Redlock
from aioredlock_ng.testing import lose_at
from examples import api_limit
from tests.support.coverage import untraced

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.node_set import NodeSet


class Api:
    """The outside API.

    Its first calls are answered when as many are inside as there are free slots.
    """

    def __init__(self) -> None:
        self.calls = self.inside = self.most = 0
        self.free_slots = api_limit.LIMIT - 1
        self.full = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        self.calls += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == self.free_slots:
            self.full.set()
        await self.full.wait()
        await asyncio.sleep(0.01)
        self.inside -= 1
        return web.Response(text=f"sunny in {request.match_info['city']}")


@pytest.fixture
async def api() -> Api:
    return Api()


@pytest.fixture
async def base(api: Api) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{city}", api.answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


@pytest.mark.slow
async def test_processes_together_never_make_more_calls_at_a_time_than_the_limit(
    nodes: NodeSet, api: Api, base: str
) -> None:
    """This process holds a slot too."""
    async with Redlock.from_env() as redlock, redlock.semaphore("api:weather", api_limit.LIMIT):
        processes = [
            await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    EXAMPLES / "api_limit.py",
                    *(f"{base}{host}-{number}" for number in range(6)),
                ),
                env=untraced(),
                stdout=asyncio.subprocess.PIPE,
            )
            for host in range(2)
        ]
        told = [(await process.communicate())[0].decode().splitlines() for process in processes]
    expected = [
        f"{base}{host}-{number}: sunny in {host}-{number}"
        for host in range(2)
        for number in range(6)
    ]
    assert sorted(line for lines in told for line in lines) == expected
    assert (api.calls, api.most) == (12, api.free_slots)


async def test_a_call_whose_slot_is_lost_is_made_again(
    nodes: NodeSet, api: Api, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.full.set()
    with lose_at("api:weather", "released"):
        await api_limit.main([f"{base}oslo"])
    assert capsys.readouterr().out == f"{base}oslo: sunny in oslo\n"
    assert api.calls == 2


async def test_a_call_without_a_free_slot_ends_and_calls_nothing(
    nodes: NodeSet,
    api: Api,
    base: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api_limit, "PATIENCE", 3.0)
    async with Redlock.from_env() as other:
        for _ in range(api_limit.LIMIT):
            await other.semaphore("api:weather", api_limit.LIMIT).acquire()
        await api_limit.main([f"{base}oslo"])
    assert capsys.readouterr().out == f"{base}oslo: no free slot within 3 s\n"
    assert api.calls == 0


async def test_an_error_of_the_api_is_shown(
    nodes: NodeSet, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await api_limit.main([f"{base}no/such/page"])
    assert "404" in capsys.readouterr().out


async def test_a_call_that_hangs_frees_its_slot(
    nodes: NodeSet, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the answer is late. The connection must not time out first.
    hasty = httpx.Timeout(30, read=0.1)
    async with Redlock.from_env() as redlock, httpx.AsyncClient(timeout=hasty) as client:
        with pytest.raises(httpx.ReadTimeout):
            await api_limit.fetch(redlock, client, f"{base}oslo")
        assert not redlock.leases
