"""Test that the lock of a cancelled request is not released while its thread still runs."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Annotated, Any

import anyio.to_thread
import httpx
import pytest
from aiohttp import web
from fastapi import APIRouter, Depends, FastAPI
from fastapi.concurrency import run_in_threadpool

from aioredlock_ng import Lease, LockLost, LockReleased, Redlock
from aioredlock_ng.events import Event, LeaseAbandoned, LeaseReleased, LeasesRenewed
from aioredlock_ng.integrations._threads import Work, outlasting, watched
from aioredlock_ng.integrations.aiohttp import locked, redlock_ctx
from aioredlock_ng.integrations.fastapi import lock_for, redlock_lifespan
from tests.integrations.limits import AnyioLimit, AsyncioLimit, Hasty
from tests.integrations.serving import PATIENCE, aiohttp_client, fastapi_client, held
from tests.support import tiers
from tests.support.eventually import eventually
from tests.support.node_set import NodeSet

both_scopes = pytest.mark.parametrize("scope", ["function", "request"])


class Job:
    """Work for a thread, which begins, goes on when it is told to, and ends."""

    def __init__(self) -> None:
        self.began, self.go, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.times = 0
        self.lease: Lease | None = None

    def work(self) -> str:
        self.times += 1
        self.began.set()
        assert self.go.wait(PATIENCE)
        self.ended.set()
        return "done"


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.go.set()


def plain(job: Job) -> Any:
    def endpoint(name: str) -> str:
        return job.work()

    return endpoint


def an_object(job: Job) -> Any:
    class Endpoint:
        def __call__(self, name: str) -> str:
            return job.work()

    return Endpoint()


def a_partial(job: Job) -> Any:
    def endpoint(name: str, factor: int) -> str:
        return job.work() * factor

    return functools.partial(endpoint, factor=1)


def events_of(app: FastAPI, *, thread: bool = False) -> list[Event]:
    """Give the app a manager, and list what it tells."""
    told = list[Event]()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
        async with redlock_lifespan(Redlock.from_env(sinks=[told.append], thread=thread))(
            app
        ) as state:
            yield state

    app.router.lifespan_context = lifespan
    return told


def kinds(told: list[Event], *kinds: type[Event]) -> list[type[Event]]:
    return [type(event) for event in told if isinstance(event, kinds)]


@pytest.mark.parametrize(
    ("scope", "make", "included"),
    [
        ("function", plain, False),
        pytest.param("request", plain, True, marks=pytest.mark.full),
        pytest.param("function", plain, True, marks=pytest.mark.full),
        ("request", plain, False),
        pytest.param("function", an_object, True, marks=pytest.mark.full),
        pytest.param("request", a_partial, False, marks=pytest.mark.full),
    ],
)
async def test_a_cancelled_def_endpoint_keeps_its_lock_until_its_thread_has_ended(
    nodes: NodeSet, job: Job, scope: Any, make: Any, included: bool
) -> None:
    app, router = FastAPI(), APIRouter()
    told = events_of(app)
    lock = Depends(lock_for("job:{name}", ttl=5.0), scope=scope)
    (router if included else app).add_api_route(
        "/jobs/{name}", make(job), methods=["POST"], dependencies=[lock]
    )
    app.include_router(router, prefix="/in")
    await keeps_its_lock(app, "/in/jobs/a" if included else "/jobs/a", told, nodes, job)


@both_scopes
async def test_with_an_engine_in_a_thread_a_def_endpoint_keeps_its_lock_until_its_thread_has_ended(
    nodes: NodeSet, job: Job, scope: Any
) -> None:
    app = FastAPI()
    told = events_of(app, thread=True)
    lock = Depends(lock_for("job:{name}", ttl=5.0), scope=scope)
    app.add_api_route("/jobs/{name}", plain(job), methods=["POST"], dependencies=[lock])
    await keeps_its_lock(app, "/jobs/a", told, nodes, job)


async def keeps_its_lock(
    app: FastAPI, url: str, told: list[Event], nodes: NodeSet, job: Job
) -> None:
    """Cancel a request whose endpoint works in a thread.

    Only the end of the thread ends the lease.
    """
    limit = AsyncioLimit()
    app.add_middleware(Hasty, limit=limit)
    async with fastapi_client(app) as client:
        request = asyncio.create_task(client.post(url))
        await eventually(job.began.is_set, within=PATIENCE)
        limit.expire()
        assert (await request).status_code == 504
        assert not job.ended.is_set()
        told.clear()
        await eventually(lambda: kinds(told, LeasesRenewed), within=PATIENCE)
        assert (await client.post(url)).status_code == 423
        assert job.times == 1
        job.go.set()
        await eventually(
            lambda: kinds(told, LeaseReleased, LeaseAbandoned) == [LeaseReleased], within=PATIENCE
        )
        await eventually(lambda: nodes.keys() == [set()] * 3, within=PATIENCE)
        assert job.ended.is_set()
        assert (await client.post(url)).json() == "done"


async def test_a_time_limit_by_anyio_waits_for_the_thread_and_then_releases_at_once(
    nodes: NodeSet, job: Job
) -> None:
    app, limit = FastAPI(), AnyioLimit()
    told = events_of(app)
    app.add_api_route(
        "/jobs/{name}", plain(job), methods=["POST"], dependencies=[Depends(lock_for("job:{name}"))]
    )
    app.add_middleware(Hasty, limit=limit)
    async with fastapi_client(app) as client:
        request = asyncio.create_task(client.post("/jobs/a"))
        await eventually(job.began.is_set, within=PATIENCE)
        limit.expire()
        assert held(nodes) == {"job:a"}
        job.go.set()
        assert (await request).status_code == 504
        await eventually(lambda: nodes.keys() == [set()] * 3, within=PATIENCE)
        assert kinds(told, LeaseReleased, LeaseAbandoned) == [LeaseReleased]


async def test_a_request_cancelled_before_its_thread_begins_releases_at_once_and_runs_nothing(
    nodes: NodeSet, job: Job
) -> None:
    app, limit, waiting = FastAPI(), AsyncioLimit(), Job()
    told = events_of(app)
    app.add_api_route(
        "/jobs/{name}", plain(job), methods=["POST"], dependencies=[Depends(lock_for("job:{name}"))]
    )
    app.add_middleware(Hasty, limit=limit)
    limiter = anyio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = 1
    async with fastapi_client(app) as client:
        occupied = asyncio.create_task(run_in_threadpool(waiting.work))
        await eventually(waiting.began.is_set, within=PATIENCE)
        request = asyncio.create_task(client.post("/jobs/a"))
        await eventually(lambda: limiter.statistics().tasks_waiting == 1, within=PATIENCE)
        assert held(nodes) == {"job:a"}
        limit.expire()
        assert (await request).status_code == 504
        await eventually(lambda: nodes.keys() == [set()] * 3, within=PATIENCE / 2)
        assert kinds(told, LeaseReleased, LeaseAbandoned) == [LeaseReleased]
        waiting.go.set()
        await occupied
    assert job.times == 0


async def test_a_thread_does_not_begin_once_its_request_is_over() -> None:
    done, work = list[str](), Work()
    work.enter()
    endpoint = watched(done.append)
    endpoint("in time")
    assert not work.still_used(lambda: None)
    with pytest.raises(LockReleased):
        await asyncio.to_thread(work.run, lambda: done.append("late"))
    assert done == ["in time"]


@pytest.mark.parametrize("thread", [False, True], ids=["", "thread=True"])
async def test_a_loss_under_a_def_endpoint_is_answered_at_once_and_its_thread_sees_it(
    nodes: NodeSet, elsewhere: Redlock, job: Job, thread: bool
) -> None:
    app, found = (
        FastAPI(lifespan=redlock_lifespan(Redlock.from_env(thread=thread))),
        list[Exception](),
    )

    @app.post("/jobs/{name}")
    def endpoint(
        name: str, lease: Annotated[Lease, Depends(lock_for("job:{name}"), scope="function")]
    ) -> None:
        job.work()
        try:
            lease.check()
        except LockLost as error:
            found.append(error)

    async with fastapi_client(app) as client:
        request = asyncio.create_task(client.post("/jobs/a"))
        await eventually(job.began.is_set, within=PATIENCE)
        await elsewhere.force_release("job:a")
        assert (await request).status_code == 503
        assert not job.ended.is_set()
        async with elsewhere.lock("job:a", blocking_timeout=0):
            job.go.set()
            await eventually(lambda: found, within=PATIENCE)
            assert held(nodes) == {"job:a"}


def a_dependency(app: FastAPI, job: Job, lock: Any) -> None:
    @app.post("/jobs/{name}", dependencies=[lock, Depends(lambda: job.work())])
    async def endpoint(name: str) -> None: ...


def a_dependency_that_yields(app: FastAPI, job: Job, lock: Any) -> None:
    def dependency() -> Iterator[str]:
        yield job.work()

    @app.post("/jobs/{name}", dependencies=[lock, Depends(dependency)])
    async def endpoint(name: str) -> None: ...


def run_in_threadpool_in_the_body(app: FastAPI, job: Job, lock: Any) -> None:
    @app.post("/jobs/{name}", dependencies=[lock])
    async def endpoint(name: str) -> None:
        await run_in_threadpool(job.work)


def to_thread_in_the_body(app: FastAPI, job: Job, lock: Any) -> None:
    @app.post("/jobs/{name}", dependencies=[lock])
    async def endpoint(name: str) -> None:
        try:
            await asyncio.to_thread(job.work)
        except asyncio.CancelledError as error:
            raise LookupError from error


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    tiers.ends(
        [
            a_dependency,
            a_dependency_that_yields,
            run_in_threadpool_in_the_body,
            to_thread_in_the_body,
        ]
    ),
)
async def test_the_lock_of_a_cancelled_request_whose_thread_ends_unseen_is_left_to_expire(
    nodes: NodeSet, elsewhere: Redlock, job: Job, make: Any
) -> None:
    app, limit = FastAPI(), AsyncioLimit()
    told = events_of(app)
    make(app, job, Depends(lock_for("job:{name}", ttl=5.0), scope="function"))
    app.add_middleware(Hasty, limit=limit)
    async with fastapi_client(app) as client:
        request = asyncio.create_task(client.post("/jobs/a"))
        await eventually(job.began.is_set, within=PATIENCE)
        limit.expire()
        await request
        assert kinds(told, LeaseReleased, LeaseAbandoned) == [LeaseAbandoned]
        assert held(nodes) == {"job:a"}
        assert await elsewhere.lock("job:a").try_acquire() is None
        assert not job.ended.is_set()
        assert await elsewhere.lock("job:a", blocking_timeout=PATIENCE).acquire()


async def test_an_aiohttp_handler_that_is_cancelled_amid_a_thread_leaves_its_lock_to_expire(
    nodes: NodeSet, elsewhere: Redlock, job: Job
) -> None:
    told = list[Event]()

    @locked("job:{name}", ttl=5.0)
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=await asyncio.to_thread(job.work))

    app = web.Application()
    app.cleanup_ctx.append(redlock_ctx(Redlock.from_env(sinks=[told.append])))
    app.router.add_post("/jobs/{name}", handler)
    async with aiohttp_client(app, handler_cancellation=True) as client:
        request = asyncio.create_task(client.post("/jobs/a"))
        await eventually(job.began.is_set, within=PATIENCE)
        request.cancel()
        await eventually(lambda: kinds(told, LeaseReleased, LeaseAbandoned), within=PATIENCE)
        assert kinds(told, LeaseReleased, LeaseAbandoned) == [LeaseAbandoned]
        assert held(nodes) == {"job:a"}
        assert await elsewhere.lock("job:a").try_acquire() is None
        assert not job.ended.is_set()


async def test_a_time_limit_in_a_child_task_leaves_a_lock_with_a_running_thread_to_expire(
    job: Job,
) -> None:
    abandoned, limits = list[bool](), list[asyncio.Timeout]()
    lease: Any = SimpleNamespace(abandon=lambda: abandoned.append(True))

    async def child() -> None:
        async with asyncio.timeout(None) as limit:
            limits.append(limit)
            await asyncio.to_thread(job.work)

    async def work() -> None:
        with outlasting(lease):
            async with asyncio.TaskGroup() as group:
                group.create_task(child())

    working = asyncio.create_task(work())
    await eventually(job.began.is_set, within=PATIENCE)
    limits[0].reschedule(asyncio.get_running_loop().time())
    with pytest.raises(ExceptionGroup):
        await working
    assert abandoned == [True]
    assert not job.ended.is_set()


@both_scopes
async def test_an_error_in_a_thread_releases_at_once(nodes: NodeSet, scope: Any) -> None:
    app = FastAPI()
    told = events_of(app)

    def wrong() -> None:
        raise LookupError("wrong")

    lock = Depends(lock_for("job:{name}"), scope=scope)
    app.add_api_route("/one/{name}", lambda name: wrong(), methods=["POST"], dependencies=[lock])
    app.add_api_route(
        "/two/{name}", lambda name: None, methods=["POST"], dependencies=[lock, Depends(wrong)]
    )
    async with app.router.lifespan_context(app):
        for url in ("/one/a", "/two/a"):
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://app"
            ) as client:
                with pytest.raises(LookupError):
                    await client.post(url)
        assert kinds(told, LeaseReleased, LeaseAbandoned) == [LeaseReleased] * 2


@pytest.mark.slow
async def test_a_server_that_stops_does_not_wait_for_a_thread_and_leaves_its_lock_to_expire(
    nodes: NodeSet, elsewhere: Redlock, job: Job
) -> None:
    app = FastAPI()
    told = events_of(app)
    lock = Depends(lock_for("job:{name}", ttl=5.0), scope="function")
    app.add_api_route("/jobs/{name}", plain(job), methods=["POST"], dependencies=[lock])
    async with fastapi_client(app, timeout_graceful_shutdown=0) as client:
        request = asyncio.create_task(client.post("/jobs/a"))
        await eventually(job.began.is_set, within=PATIENCE)
    with pytest.raises(httpx.HTTPError):
        (await request).raise_for_status()
    assert not job.ended.is_set()
    assert kinds(told, LeaseReleased, LeaseAbandoned) == [LeaseAbandoned]
    assert held(nodes) == {"job:a"}
    assert await elsewhere.lock("job:a").try_acquire() is None
    assert await elsewhere.lock("job:a", blocking_timeout=PATIENCE).acquire()


class _Again:
    """Handles a request once more that failed, as a middleware that retries does."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self.app(scope, receive, send)
        except ConnectionError:
            await self.app(scope, receive, send)


async def test_a_request_that_a_middleware_handles_once_more_runs_its_def_endpoint_again(
    nodes: NodeSet,
) -> None:
    app = FastAPI(lifespan=redlock_lifespan())
    calls = []

    @app.post("/jobs/{name}", dependencies=[Depends(lock_for("job:{name}"), scope="function")])
    def endpoint(name: str) -> int:
        calls.append(name)
        if len(calls) == 1:
            raise ConnectionError
        return len(calls)

    app.add_middleware(_Again)
    async with fastapi_client(app) as client:
        answer = await client.post("/jobs/a")
        assert (answer.status_code, answer.json()) == (200, 2)
