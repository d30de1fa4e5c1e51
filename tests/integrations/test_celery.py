"""The decorator for Celery: real workers with processes, and a real broker."""

from __future__ import annotations

import re
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

import pytest
from celery.exceptions import TaskRevokedError

from aioredlock_ng import ConfigurationError, LockHeld, LockLost, UpgradeRefused
from aioredlock_ng.integrations.celery import locked
from aioredlock_ng.sync import Redlock
from tests.integrations.labels import sync_refusal
from tests.integrations.serving import held
from tests.integrations.working import PATIENCE, Worker, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once

COMMAND = [
    "-m",
    "celery",
    "-A",
    "tests.integrations.celery_tasks",
    "worker",
    "--loglevel=INFO",
    "--concurrency=2",
]


@pytest.fixture
def broker(start_server: Callable[..., LocalServer]) -> str:
    return start_server().url


@pytest.fixture
def worker(nodes: NodeSet, broker: str, tmp_path: Path) -> Iterator[Worker]:
    with Worker(COMMAND, tmp_path, broker) as worker:
        until(lambda: " ready." in worker.said)
        yield worker


@pytest.fixture
def tasks(
    nodes: NodeSet, broker: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """Puts a task into the queue."""
    from celery import Celery

    with Celery("client", broker=broker, backend=broker, set_as_current=False) as app:

        def put(task: str, name: str, then: str = "") -> Any:
            signature = app.signature(f"tests.integrations.celery_tasks.{task}", (name,))
            if then:
                signature |= app.signature(
                    "tests.integrations.celery_tasks.failing", (then,), immutable=True
                )
            return signature.apply_async()

        yield put


@pytest.mark.slow
def test_a_task_that_does_not_get_its_lock_fails_or_is_skipped_or_is_repeated(
    worker: Worker, tasks: Callable[..., Any], nodes: NodeSet
) -> None:
    first = tasks("failing", "a")
    worker.begun("a")
    failed, skipped, given_up = (tasks(task, "a") for task in ("failing", "skipping", "giving_up"))
    with pytest.raises(LockHeld, match="held by"):
        failed.get(PATIENCE)
    with pytest.raises(TaskRevokedError, match="'job:a' was not acquired"):
        skipped.get(PATIENCE)
    assert skipped.state == "REVOKED"
    with pytest.raises(LockHeld, match="held by"):
        given_up.get(PATIENCE)
    chain = tasks("skipping", "a", then="next")
    with pytest.raises(TaskRevokedError):
        chain.parent.get(PATIENCE)
    repeated = tasks("retrying", "a")
    until(lambda: repeated.state == "RETRY")
    worker.let_end("a")
    assert first.get(PATIENCE) < repeated.get(PATIENCE)
    # The chain did not go on.
    assert chain.state == "PENDING"
    assert re.search(r"failing\[\S+\] raised", worker.said)
    assert not re.search(r"skipping\[\S+\] raised", worker.said)
    until(lambda: not held(nodes))


@pytest.mark.slow
def test_a_revoked_or_slow_task_releases_its_lock_and_the_lock_of_a_killed_task_expires(
    worker: Worker, tasks: Callable[..., Any], nodes: NodeSet
) -> None:
    revoked = tasks("failing", "revoked")
    worker.begun("revoked")
    assert held(nodes) == {"job:revoked"}
    # The ttl is a minute.
    revoked.revoke(terminate=True)
    until(lambda: not held(nodes), within=20.0)
    with pytest.raises(TaskRevokedError):
        revoked.get(PATIENCE)

    limited = tasks("limited", "limited")
    with pytest.raises(Exception, match="SoftTimeLimitExceeded"):
        limited.get(PATIENCE)
    until(lambda: not held(nodes), within=20.0)

    killed = tasks("short", "killed")
    worker.begun("killed")
    killed.revoke(terminate=True, signal="SIGKILL")
    with pytest.raises(TaskRevokedError):
        killed.get(PATIENCE)
    with Redlock.from_env() as elsewhere, elsewhere.lock("job:killed", blocking_timeout=PATIENCE):
        assert held(nodes) == {"job:killed"}


@pytest.mark.slow
def test_as_many_tasks_run_as_there_are_slots(
    worker: Worker, tasks: Callable[..., Any], nodes: NodeSet
) -> None:
    first, second = (tasks("sharing", name) for name in "ab")
    assert worker.begun("a") != worker.begun("b")
    assert held(nodes) == {"room#1", "room#2"}
    worker.let_end("a")
    assert first.get(PATIENCE) > 0
    with Redlock.from_env() as elsewhere, elsewhere.semaphore("room", 2, blocking_timeout=PATIENCE):
        refused = tasks("sharing", "c")
        with pytest.raises(LockHeld, match="'room' was not acquired"):
            refused.get(PATIENCE)
    worker.let_end("b")
    assert second.get(PATIENCE) > 0


@pytest.mark.slow
def test_tasks_that_read_run_at_the_same_time_and_beside_no_writer(
    worker: Worker, tasks: Callable[..., Any], nodes: NodeSet
) -> None:
    first, second = (tasks("reading", name) for name in "ab")
    assert worker.begun("a") != worker.begun("b")
    with Redlock.from_env() as elsewhere:
        assert elsewhere.lock("room").try_acquire() is None
        for name, task in (("a", first), ("b", second)):
            worker.let_end(name)
            assert task.get(PATIENCE) > 0
        with elsewhere.lock("room", blocking_timeout=PATIENCE):
            refused = tasks("reading", "c")
            with pytest.raises(LockHeld, match="'room' was not acquired"):
                refused.get(PATIENCE)


@pytest.mark.slow
def test_a_task_with_min_hold_runs_once_in_that_time(
    worker: Worker, tasks: Callable[..., Any], nodes: NodeSet
) -> None:
    assert tasks("daily", "a").get(PATIENCE) > 0
    with pytest.raises(TaskRevokedError, match="'daily:a' was not acquired"):
        tasks("daily", "a").get(PATIENCE)
    assert held(nodes) == {"daily:a"}
    assert tasks("daily", "b").get(PATIENCE) > 0


@pytest.mark.slow
def test_a_task_that_loses_its_lock_fails(
    worker: Worker, tasks: Callable[..., Any], nodes: NodeSet
) -> None:
    lost = tasks("failing", "lost")
    worker.begun("lost")
    with Redlock.from_env() as elsewhere:
        elsewhere.force_release("job:lost")
    with pytest.raises(LockLost):
        lost.get(PATIENCE)


@pytest.mark.slow
def test_a_worker_that_shuts_down_warmly_lets_its_task_end_and_leaves_no_lock(
    worker: Worker, tasks: Callable[..., Any], nodes: NodeSet
) -> None:
    tasks("forgetful", "b").get(PATIENCE)
    assert held(nodes) == {"left:b"}
    last = tasks("failing", "a")
    worker.begun("a")
    worker.process.send_signal(signal.SIGTERM)
    until(lambda: "Warm shutdown" in worker.said)
    assert held(nodes) == {"job:a", "left:b"}
    worker.let_end("a")
    assert worker.process.wait(PATIENCE) == 0
    assert last.get(PATIENCE) > 0
    assert held(nodes) == set()


@pytest.mark.slow
def test_a_worker_that_shuts_down_at_once_leaves_no_lock(
    worker: Worker, tasks: Callable[..., Any], nodes: NodeSet
) -> None:
    tasks("failing", "a")
    worker.begun("a")
    worker.ends(signal.SIGQUIT)
    until(lambda: not held(nodes), within=20.0)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_other_pools_hold_the_lock_of_a_task(
    pool: str, tasks: Callable[..., Any], nodes: NodeSet, broker: str, tmp_path: Path
) -> None:
    with Worker([*COMMAND, f"--pool={pool}"], tmp_path, broker) as worker:
        running = tasks("failing", "a")
        worker.begun("a")
        assert held(nodes) == {"job:a"}
        worker.let_end("a")
        assert running.get(PATIENCE) > 0
        tasks("forgetful", "b").get(PATIENCE)
        assert worker.ends(signal.SIGTERM) == 0
        # The exit of the interpreter releases what is left.
        assert held(nodes) == set()


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["gevent", "eventlet"])
def test_a_worker_whose_pool_replaces_threads_ends_with_an_error_that_names_it(
    pool: str, nodes: NodeSet, broker: str, tmp_path: Path
) -> None:
    with Worker([*COMMAND, f"--pool={pool}"], tmp_path, broker) as worker:
        assert worker.process.wait(PATIENCE) != 0
        assert f"ConfigurationError: {pool} has replaced `thread" in worker.said


def test_a_task_that_is_called_as_a_function_or_eagerly_takes_its_lock(nodes: NodeSet) -> None:
    from celery import Celery

    with (
        Redlock.from_env() as redlock,
        Redlock.from_env() as elsewhere,
        Celery("eager", set_as_current=False) as app,
    ):

        @app.task
        @locked(redlock, "job:{name}", held="skip", blocking_timeout=0)
        def fence(name: str) -> int:
            assert held(nodes) == {f"job:{name}"}
            return int(redlock.current_lease.fence)

        @app.task(max_retries=3)
        @locked(redlock, "job:{name}", held="retry", blocking_timeout=0)
        def again(name: str) -> None:
            pass

        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            fence.delay()
        assert fence("a") < fence.apply(("a",)).get()
        with elsewhere.lock("job:a"):
            # A caller in the same process gets the error.
            with pytest.raises(LockHeld):
                fence("a")
            with pytest.raises(LockHeld):
                again("a")
            assert fence.apply(("a",)).state == "IGNORED"


@pytest.mark.parametrize("choice", ["skip", "retry"])
def test_a_task_fails_if_a_function_that_it_calls_does_not_get_its_lock(
    nodes: NodeSet, choice: Literal["skip", "retry"]
) -> None:
    """The calling task has begun, so it must be neither skipped nor repeated."""
    from celery import Celery

    with (
        Redlock.from_env() as redlock,
        Redlock.from_env() as elsewhere,
        Celery("eager", set_as_current=False) as app,
    ):
        calls = 0

        @locked(redlock, "job", held=choice)
        def helper() -> None:
            pass

        @app.task(max_retries=3, default_retry_delay=0)
        def outer() -> None:
            nonlocal calls
            calls += 1
            helper()

        with elsewhere.lock("job"):
            done = outer.apply()
        assert isinstance(done.result, LockHeld)
        assert (done.state, calls) == ("FAILURE", 1)


@pytest.mark.parametrize("choice", ["skip", "retry"])
def test_a_task_fails_if_its_own_caller_reads_its_lock(
    nodes: NodeSet, choice: Literal["skip", "retry"]
) -> None:
    """No repetition can succeed, and the lock is not held by another task."""
    from celery import Celery

    with Redlock.from_env() as redlock, Celery("eager", set_as_current=False) as app:
        calls: list[None] = []

        @app.task(max_retries=3, default_retry_delay=0)
        @locked(redlock, "job", held=choice, owner=lambda: calls.append(None))
        def job() -> None:
            pass

        with redlock.rwlock("job").read():
            done = job.apply()
        assert isinstance(done.result, UpgradeRefused)
        assert (done.state, len(calls)) == ("FAILURE", 1)


def test_autoretry_sends_a_task_after_the_release_of_its_lock(
    nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the repeated task could be skipped because of its own first run."""
    from celery import Celery
    from celery.canvas import Signature
    from celery.exceptions import Retry

    sent: list[set[str]] = []
    monkeypatch.setattr(Signature, "apply_async", lambda _: sent.append(held(nodes)))
    with Redlock.from_env() as redlock, Celery("retrying", set_as_current=False) as app:

        @app.task(autoretry_for=(LookupError,), default_retry_delay=0)
        @locked(redlock, "job", held="skip")
        def job() -> None:
            raise LookupError

        job.push_request(called_directly=False, args=(), kwargs={}, retries=0)
        try:
            with pytest.raises(Retry):
                job.run()
        finally:
            job.pop_request()
    assert sent == [set()]


def test_a_refused_task_names_the_id_of_the_task_that_holds_the_lock(nodes: NodeSet) -> None:
    from celery import Celery, current_task

    with (
        Redlock.from_env() as redlock,
        Redlock.from_env() as elsewhere,
        Celery("eager", set_as_current=False) as app,
    ):

        @app.task(bind=True)
        @locked(redlock, "job", owner="task {self.request.id} of {shop}")
        def bound(self: Any, shop: str) -> str:
            return sync_refusal(elsewhere, "job")

        @app.task
        @locked(redlock, "job", owner=lambda shop: f"task {current_task.request.id} of {shop}")
        def plain(shop: str) -> str:
            return sync_refusal(elsewhere, "job")

        for task in (bound, plain):
            assert "held by task 4711 of tea: " in task.apply(("tea",), task_id="4711").get()


@pytest.mark.parametrize("choice", ["skip", "retry"])
def test_a_task_that_may_be_skipped_or_repeated_does_not_wait_for_its_lock(
    nodes: NodeSet, choice: Literal["skip", "retry"]
) -> None:
    with Redlock.from_env() as redlock, Redlock.from_env() as elsewhere:

        @locked(redlock, "job", held=choice)
        def job() -> None:
            pass

        with ThreadPoolExecutor() as pool, elsewhere.lock("job"), pytest.raises(LockHeld):
            pool.submit(job).result(10)


def test_without_a_quorum_a_task_fails_although_it_may_be_skipped() -> None:
    from celery import Celery

    from aioredlock_ng import QuorumUnreachable

    with (
        Redlock(["redis://127.0.0.1:1"], connect_timeout=0.2) as redlock,
        Celery("eager", set_as_current=False) as app,
    ):

        @app.task
        @locked(redlock, "job", held="skip", blocking_timeout=0)
        def report() -> None:
            pass

        assert isinstance(report.apply().result, QuorumUnreachable)


def test_a_wrong_use_is_refused_when_the_module_is_imported() -> None:
    from celery import Celery

    redlock = Redlock(["redis://127.0.0.1:1"])
    app = Celery("refused", set_as_current=False)

    def job(name: str) -> None: ...

    for arguments, options, words in (
        (("job:{name}",), {}, "takes a manager of aioredlock_ng.sync first"),
        ((redlock, 7), {}, r'@locked\(redlock, "job:\{job_id\}"\)'),
        (
            (redlock, "job:{number}"),
            {},
            r"locked\('job:\{number\}'\) of .*: \{number\} names no parameter",
        ),
        ((redlock, "job:{name}"), {"held": "wait"}, "held must be one of raise, skip, retry"),
        ((redlock, "job:{name}"), {"ttl": -1.0}, "ttl"),
        (
            (redlock, "job:{name}"),
            {"owner": "job {number}"},
            r"owner: \{number\} names no parameter; there are: name",
        ),
        ((redlock, "job:{name}"), {"owner": "job {name"}, "owner 'job {name'"),
        (
            (redlock, "job:{name}"),
            {"owner": lambda number: "job"},
            r"owner: \{number\} names no parameter",
        ),
        (
            (redlock, "job:{name}"),
            {"limit": 0},
            "limit must be a whole number from 1 to 1,000, got 0",
        ),
        ((redlock, "job:{name}"), {"limit": 2, "min_hold": -1.0}, "min_hold"),
        (
            (redlock, "job:{name}"),
            {"limit": 2, "shared": True},
            "shared and limit exclude each other",
        ),
    ):
        names = arguments if len(arguments) > 1 else (*arguments, "x")
        with pytest.raises((ConfigurationError, TypeError), match=words):
            locked(*names, **options)(job)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="below the decorator that makes the task"):
        locked(redlock, "job:{name}")(app.task(job))
