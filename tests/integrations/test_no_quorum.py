"""Requests while no quorum of nodes can grant: answered at once, and told when to come again."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest
from aiohttp import web
from fastapi import Depends, FastAPI

from aioredlock_ng import ConfigurationError, LockHeld, LockLost, QuorumUnreachable, Redlock
from aioredlock_ng.integrations._policy import Policy
from aioredlock_ng.integrations.aiohttp import locked, redlock_ctx
from aioredlock_ng.integrations.fastapi import lock_for, redlock_lifespan
from tests.integrations.serving import PATIENCE, aiohttp_client, fastapi_client
from tests.support.eventually import eventually
from tests.support.node_set import NodeSet

Serve = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@asynccontextmanager
async def by_fastapi(redlock: Redlock, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI(lifespan=redlock_lifespan(redlock))

    @app.post("/orders/{order_id}", dependencies=[Depends(lock_for("order:{order_id}", **options))])
    async def pay(order_id: str) -> None: ...

    async with fastapi_client(app) as client:
        yield client


@asynccontextmanager
async def by_aiohttp(redlock: Redlock, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    @locked("order:{order_id}", **options)
    async def pay(request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.cleanup_ctx.append(redlock_ctx(redlock))
    app.router.add_post("/orders/{order_id}", pay)
    async with aiohttp_client(app) as client:
        yield client


both = pytest.mark.parametrize("serve", [by_fastapi, by_aiohttp])


@both
@pytest.mark.faults
async def test_a_request_does_not_wait_for_a_majority_that_is_gone(
    nodes: NodeSet, serve: Serve
) -> None:
    redlock = Redlock.from_env()
    async with serve(redlock, blocking_timeout=None) as client:
        assert (await client.post("/orders/42")).status_code == 200
        nodes.crash(0)
        nodes.crash(1)
        await eventually(lambda: not redlock.ready, within=PATIENCE)
        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*(client.post("/orders/42") for _ in range(5)))
        assert [(answer.status_code, answer.headers["Retry-After"]) for answer in answers] == [
            (503, "1")
        ] * 5


@both
@pytest.mark.faults
async def test_without_fail_fast_a_request_waits_for_the_majority(
    nodes: NodeSet, serve: Serve
) -> None:
    redlock = Redlock.from_env(recovery_guard=None)
    async with serve(redlock, blocking_timeout=PATIENCE, fail_fast=False) as client:
        nodes.crash(0)
        nodes.crash(1)
        await eventually(lambda: not redlock.ready, within=PATIENCE)
        waiting = asyncio.create_task(client.post("/orders/42"))
        await eventually(lambda: redlock.stats().waiting, within=PATIENCE)
        nodes.restart(0)
        nodes.restart(1)
        assert (await waiting).status_code == 200


@both
@pytest.mark.faults
async def test_retry_after_is_the_remaining_quarantine(nodes: NodeSet, serve: Serve) -> None:
    redlock = Redlock.from_env()
    async with serve(redlock) as client:
        assert redlock.ready
        nodes.wipe(0)
        nodes.wipe(1)
        await eventually(lambda: not redlock.ready, within=PATIENCE)
        answer = await client.post("/orders/42")
        assert answer.status_code == 503
        assert 61 - PATIENCE < int(answer.headers["Retry-After"]) <= 61


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (None, "7"),
        (0.0, "7"),
        (6.5, "7"),
        (7.0001, "8"),
        (60.2, "61"),
        (1e9, "3600"),
        (math.inf, "3600"),
    ],
)
def test_retry_after_is_whole_seconds_rounded_up_and_an_hour_at_most(
    known: float | None, said: str
) -> None:
    error = QuorumUnreachable("no")
    error.retry_after = known
    policy = Policy(("a",), {}, 423, 7)
    assert policy.answer(error).headers == {"Retry-After": said}
    assert policy.answer(LockLost("no")).headers == {"Retry-After": "7"}


def test_retry_after_of_a_held_lock_is_not_the_life_of_its_keys() -> None:
    """A holder renews its keys until it releases them, so their life says nothing about the end of
    its request.
    """
    held = LockHeld("no")
    held.retry_after = 9.5
    assert Policy(("a",), {}, 423, 7).answer(held).headers == {"Retry-After": "7"}


@pytest.mark.parametrize(("left", "said"), [(None, "7"), (3.0, "7"), (19.2, "20"), (1000.0, "30")])
def test_retry_after_is_the_remaining_min_hold(left: float | None, said: str) -> None:
    held = LockHeld("no")
    held.retry_after = left
    assert Policy(("a",), {"min_hold": 30.0}, 423, 7).answer(held).headers == {"Retry-After": said}


@pytest.mark.parametrize("option", ["fail_fast", "fair"])
def test_a_switch_is_refused_unless_it_is_true_or_false(option: str) -> None:
    decorators: tuple[Callable[..., Any], ...] = (lock_for, locked)
    for decorate in decorators:
        with pytest.raises(ConfigurationError, match=f"{option} must be True or False, not float"):
            decorate("a", **{option: 1.0})
