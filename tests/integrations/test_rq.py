"""The decorator for RQ: real workers, which fork a process for each job, and a real server of the
queue.
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pytest
from redis import Redis
from rq import Queue, Retry
from rq.command import send_stop_job_command
from rq.job import JobStatus

from aioredlock_ng import ConfigurationError, LockHeld, QuorumUnreachable, UpgradeRefused
from aioredlock_ng.integrations import rq as integration
from aioredlock_ng.integrations.rq import SKIPPED, locked
from aioredlock_ng.sync import Redlock
from tests.integrations.serving import held
from tests.integrations.working import PATIENCE, Worker, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rq.job import Job

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once

JOBS = "tests.integrations.rq_jobs"


@pytest.fixture
def broker(start_server: Callable[..., LocalServer]) -> str:
    return start_server().url


@pytest.fixture
def workers(nodes: NodeSet, broker: str, tmp_path: Path) -> Iterator[list[Worker]]:
    """Two workers, each with a process per job."""
    command = ["-c", "from rq.cli import main; main()", "worker", "--url", broker]
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(command, tmp_path, broker)) for _ in range(2)]
        for worker in workers:
            until(lambda worker=worker: "Listening on" in worker.said)  # type: ignore[misc]
        yield workers


@pytest.fixture
def queue(broker: str) -> Iterator[Queue]:
    with Redis.from_url(broker) as connection:
        yield Queue(connection=connection)


def ended(job: Job, status: JobStatus) -> bool:
    return job.get_status(refresh=True) == status


@pytest.mark.slow
def test_a_job_that_does_not_get_its_lock_fails_or_is_skipped_or_is_repeated(
    workers: list[Worker], queue: Queue, nodes: NodeSet
) -> None:
    first = queue.enqueue(f"{JOBS}.failing", "a")
    workers[0].begun("a")
    failed, skipped, given_up = (
        queue.enqueue(f"{JOBS}.{job}", "a") for job in ("failing", "skipping", "giving_up")
    )
    until(lambda: ended(failed, JobStatus.FAILED))
    assert "LockHeld: 'job:a' was not acquired" in str(failed.latest_result().exc_string)
    until(lambda: ended(skipped, JobStatus.FINISHED))
    assert skipped.get_meta() == {SKIPPED: "job:a"}
    assert skipped.return_value() is None
    until(lambda: ended(given_up, JobStatus.FAILED))
    repeated = queue.enqueue(f"{JOBS}.repeating", "a")
    until(
        lambda: (
            repeated.get_status() and (repeated.refresh() or repeated.number_of_retries or 0) > 1
        )
    )
    workers[0].let_end("a")
    until(lambda: ended(first, JobStatus.FINISHED) and ended(repeated, JobStatus.FINISHED))
    assert first.return_value() < repeated.return_value()
    until(lambda: not held(nodes))


@pytest.mark.slow
def test_a_refused_job_names_the_id_of_the_job_that_holds_the_lock(
    workers: list[Worker], queue: Queue, nodes: NodeSet
) -> None:
    first = queue.enqueue(f"{JOBS}.labelled", "a")
    workers[0].begun("a")
    with Redlock.from_env() as elsewhere:
        until(lambda: elsewhere.inspect("job:a").owner is not None)
    refused = queue.enqueue(f"{JOBS}.failing", "a")
    until(lambda: ended(refused, JobStatus.FAILED))
    assert f"held by job {first.id}: " in str(refused.latest_result().exc_string)
    workers[0].let_end("a")
    until(lambda: ended(first, JobStatus.FINISHED))


@pytest.mark.slow
def test_the_lock_of_a_job_is_released_at_its_timeout_and_at_sigterm_and_expires_when_it_is_stopped(
    workers: list[Worker], queue: Queue, nodes: NodeSet
) -> None:
    limited = queue.enqueue(f"{JOBS}.failing", "limited", job_timeout=1)
    until(lambda: ended(limited, JobStatus.FAILED))
    assert "JobTimeoutException" in str(limited.latest_result().exc_string)
    until(lambda: not held(nodes), within=20.0)

    # The ttl is a minute.
    terminated = queue.enqueue(f"{JOBS}.failing", "terminated")
    os.kill(workers[0].begun("terminated"), signal.SIGTERM)
    until(lambda: not held(nodes), within=20.0)
    until(lambda: ended(terminated, JobStatus.FAILED))

    stopped = queue.enqueue(f"{JOBS}.short", "stopped")
    workers[0].begun("stopped")
    send_stop_job_command(queue.connection, stopped.id)
    until(lambda: ended(stopped, JobStatus.STOPPED))
    with Redlock.from_env() as elsewhere, elsewhere.lock("job:stopped", blocking_timeout=PATIENCE):
        assert held(nodes) == {"job:stopped"}


@pytest.mark.slow
def test_a_worker_that_shuts_down_lets_its_job_end_and_leaves_no_lock(
    workers: list[Worker], queue: Queue, nodes: NodeSet
) -> None:
    last = queue.enqueue(f"{JOBS}.failing", "a")
    workers[0].begun("a")
    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
    until(lambda: any("warm shut down requested" in worker.said for worker in workers))
    assert held(nodes) == {"job:a"}
    workers[0].let_end("a")
    assert [worker.process.wait(PATIENCE) for worker in workers] == [0, 0]
    assert ended(last, JobStatus.FINISHED)
    assert held(nodes) == set()


@pytest.mark.slow
def test_jobs_run_as_slots_readers_and_min_hold_allow(
    workers: list[Worker], queue: Queue, nodes: NodeSet
) -> None:
    first, second = (queue.enqueue(f"{JOBS}.sharing", name) for name in "ab")
    assert workers[0].begun("a") != workers[0].begun("b")
    assert held(nodes) == {"room#1", "room#2"}
    workers[0].let_end("a")
    until(lambda: ended(first, JobStatus.FINISHED))
    with Redlock.from_env() as elsewhere, elsewhere.semaphore("room", 2, blocking_timeout=PATIENCE):
        refused = queue.enqueue(f"{JOBS}.sharing", "c")
        until(lambda: ended(refused, JobStatus.FAILED))
        assert "LockHeld: 'room' was not acquired" in str(refused.latest_result().exc_string)
    workers[0].let_end("b")
    until(lambda: ended(second, JobStatus.FINISHED))

    readers = [queue.enqueue(f"{JOBS}.reading", name) for name in "de"]
    assert workers[0].begun("d") != workers[0].begun("e")
    with Redlock.from_env() as elsewhere:
        assert elsewhere.lock("room").try_acquire() is None
    for name, reader in zip("de", readers, strict=True):
        workers[0].let_end(name)
        until(lambda reader=reader: ended(reader, JobStatus.FINISHED))  # type: ignore[misc]

    ran = queue.enqueue(f"{JOBS}.daily", "a")
    until(lambda: ended(ran, JobStatus.FINISHED))
    skipped = queue.enqueue(f"{JOBS}.daily", "a")
    until(lambda: ended(skipped, JobStatus.FINISHED))
    assert ran.return_value() > 0
    assert skipped.get_meta() == {SKIPPED: "daily:a"}
    assert held(nodes) == {"daily:a"}


@pytest.mark.slow
def test_a_lease_that_a_job_acquired_without_with_is_left_to_expire(
    workers: list[Worker], queue: Queue, nodes: NodeSet
) -> None:
    left = queue.enqueue(f"{JOBS}.forgetful", "a")
    until(lambda: ended(left, JobStatus.FINISHED))
    assert held(nodes) == {"left:a"}
    with Redlock.from_env() as elsewhere:
        assert elsewhere.lock("left:a").try_acquire() is None


def test_outside_a_job_the_function_raises_the_error(nodes: NodeSet) -> None:
    with Redlock.from_env() as redlock, Redlock.from_env() as elsewhere:

        @locked(redlock, "job:{name}", held="skip", blocking_timeout=0)
        def job(name: str) -> str:
            redlock.current_lease.check()
            return name

        assert job("a") == "a"
        with elsewhere.lock("job:a"), pytest.raises(LockHeld):
            job("a")


def test_a_function_that_another_job_calls_raises_the_error(nodes: NodeSet, queue: Queue) -> None:
    with Redlock.from_env() as redlock, Redlock.from_env() as elsewhere:

        class Jobs:
            @locked(redlock, "job", held="skip")
            def skipping(self) -> int:
                return 1

            @locked(redlock, "job", held=Retry(max=2))
            def repeating(self) -> int:
                return 1

            def calling_skipping(self) -> str:
                return f"called: {self.skipping()}"

            def calling_repeating(self) -> str:
                return f"called: {self.repeating()}"

        jobs = Jobs()
        with elsewhere.lock("job"):
            skipped = queue.create_job(jobs.skipping)
            assert skipped.perform() is None
            assert skipped.meta == {SKIPPED: "job"}
            assert isinstance(queue.create_job(jobs.repeating).perform(), Retry)
            for function in (jobs.calling_skipping, jobs.calling_repeating):
                outer = queue.create_job(function)
                with pytest.raises(LockHeld):
                    outer.perform()
                assert outer.meta == {}
        assert queue.create_job(jobs.calling_skipping).perform() == "called: 1"


@pytest.mark.parametrize("choice", ["skip", Retry(max=2)], ids=["skip", "retry"])
def test_a_job_that_may_be_skipped_or_repeated_does_not_wait_for_its_lock(
    nodes: NodeSet, choice: Literal["skip"] | Retry
) -> None:
    with Redlock.from_env() as redlock, Redlock.from_env() as elsewhere:

        @locked(redlock, "job", held=choice)
        def job() -> None:
            pass

        with ThreadPoolExecutor() as pool, elsewhere.lock("job"), pytest.raises(LockHeld):
            pool.submit(job).result(10)


@pytest.mark.parametrize("choice", ["skip", Retry(max=2)], ids=["skip", "retry"])
def test_a_job_fails_if_its_own_caller_reads_its_lock(
    nodes: NodeSet, queue: Queue, choice: Literal["skip"] | Retry
) -> None:
    with Redlock.from_env() as redlock:

        class Jobs:
            @locked(redlock, "job", held=choice)
            def locked(self) -> None:
                pass

        job = queue.create_job(Jobs().locked)
        with redlock.rwlock("job").read(), pytest.raises(UpgradeRefused):
            job.perform()
        assert job.meta == {}


def test_without_a_quorum_a_job_fails_although_it_may_be_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Redlock(["redis://127.0.0.1:1"], connect_timeout=0.2) as redlock:
        job = locked(redlock, "job", held="skip", blocking_timeout=0)(lambda: None)
        current = SimpleNamespace(func=job)
        monkeypatch.setattr(integration, "get_current_job", lambda: current)
        with pytest.raises(QuorumUnreachable):
            job()
        again: Any = Retry(max=3)
        job = locked(redlock, "job", held=again, blocking_timeout=0)(lambda: None)
        current.func = job
        assert job() is again


def test_a_wrong_choice_is_refused_when_the_module_is_imported() -> None:
    with pytest.raises(ConfigurationError, match="held must be raise, skip or a Retry"):
        locked(Redlock(["redis://127.0.0.1:1"]), "job", held="retry")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigurationError, match="limit must be a whole number from 1 to 1,000, got 0"
    ):
        locked(Redlock(["redis://127.0.0.1:1"]), "job", limit=0)
    with pytest.raises(ConfigurationError, match="shared and limit exclude each other"):
        locked(Redlock(["redis://127.0.0.1:1"]), "job", limit=2, shared=True)
