"""The label beside a lock's keys: there once a lease has lived a moment, gone with it, never taken
for another's.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import AcquireTimeout, ConfigurationError, LockHeld, QuorumUnreachable, Redlock
from aioredlock_ng._core.inspection import holder_label
from aioredlock_ng._core.owners import MAX_LABEL, label_life, owner_key, pack_owner, read_owner
from aioredlock_ng._core.replies import Free, Held, Looked, NotALock
from aioredlock_ng._core.votes import Garbled, Refusal
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng.events import AcquireFailed, Event
from aioredlock_ng.records import Owner
from tests.support.rig import WAY

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time


async def owner_of(process: Any, name: str) -> Owner | None:
    return (await process.redlock.inspect(name)).owner  # type: ignore[no-any-return]


async def test_the_label_of_a_holder_is_shown_once_the_lock_is_held_for_a_moment(rig: Rig) -> None:
    holder, other = await rig.process(), await rig.process()

    async def hold() -> int | None:
        async with holder.lock("a") as lease:
            assert await owner_of(other, "a") is None
            await asyncio.sleep(0.3)
            return lease.fence

    task = asyncio.create_task(hold(), name="report for 7")
    await asyncio.sleep(0.2)
    owner = await owner_of(other, "a")
    fence = await task
    assert owner is not None
    assert owner.label == f"{socket.gethostname()}:{os.getpid()}:report for 7"
    assert owner.fence == fence
    assert await owner_of(other, "a") is None
    await asyncio.sleep(0.01)
    assert [server.get(owner_key(b"a")) for server in rig.servers] == [None] * 3


async def test_a_short_lease_writes_no_label(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.05)
    await lease.release()
    assert [server.get(owner_key(b"a")) for server in rig.servers] == [None] * 3


async def test_a_label_lives_as_long_as_its_lease(rig: Rig) -> None:
    process, other = await rig.process(ttl=2.0, owner="billing"), await rig.process()
    lease = await process.lock("a").acquire()
    for _ in range(20):
        await asyncio.sleep(30)
        owner = await owner_of(other, "a")
        assert owner is not None
        assert owner.label == "billing"
    assert await lease.release() is True


@pytest.mark.parametrize("auto_extend", [True, False])
async def test_a_label_lives_as_long_as_a_lease_that_is_given_a_longer_life(
    rig: Rig, auto_extend: bool
) -> None:
    process, other = await rig.process(ttl=1.0, max_ttl=3600, owner="billing"), await rig.process()
    lease = await process.lock("a", auto_extend=auto_extend).acquire()
    await asyncio.sleep(0.5)
    for _ in range(10):
        await lease.extend(600)
        for _ in range(5):
            await asyncio.sleep(100)
            owner = await owner_of(other, "a")
            assert owner is not None
            assert owner.label == "billing"
    assert await lease.release() is True
    await asyncio.sleep(0.01)
    assert rig.servers[0].get(owner_key(b"a")) is None


async def test_the_label_of_a_killed_holder_is_not_taken_for_that_of_the_next_holder(
    rig: Rig,
) -> None:
    killed, other = (
        await rig.process(ttl=2.0, owner="the killed"),
        await rig.process(ttl=2.0, owner=False),
    )
    await killed.lock("a").acquire()
    await asyncio.sleep(0.5)
    rig.processes.remove(killed)
    for node in killed.nodes:
        node.disconnect()
    lease = await other.lock("a").acquire()
    await asyncio.sleep(1)
    assert await owner_of(await rig.process(), "a") is None
    assert rig.servers[0].get(owner_key(b"a")) is not None
    await lease.release()
    await asyncio.sleep(label_life(2.0))
    assert rig.servers[0].get(owner_key(b"a")) is None
    await killed.redlock.aclose()


async def test_every_name_of_a_lock_has_the_label(rig: Rig) -> None:
    process = await rig.process(owner="both")
    lease = await process.lock("a", "b").acquire()
    await asyncio.sleep(0.3)
    for name in ("a", "b"):
        owner = await owner_of(process, name)
        assert owner is not None
        assert owner.label == "both"
    await lease.release()
    await asyncio.sleep(0.01)
    assert [server.get(owner_key(key)) for server in rig.servers for key in (b"a", b"b")] == [
        None
    ] * 6


@pytest.mark.parametrize("options", [{"owner": False}, {"fencing": False, "recovery_guard": None}])
async def test_without_labels_nothing_is_written_beside_the_locks(
    rig: Rig, options: dict[str, Any]
) -> None:
    process = await rig.process(**options)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(60)
    assert lease.valid
    assert rig.servers[0].get(owner_key(b"a")) is None
    assert await owner_of(process, "a") is None
    assert await lease.release() is True


def test_a_label_is_read_as_it_was_written() -> None:
    token = b"0123456789abcdef0123456789abcdef"
    value = pack_owner(token, 17, 1_700_000_000_123, "host:1:two words, ünï")
    assert read_owner(value, token.decode()) == Owner(
        "host:1:two words, ünï", 17, 1_700_000_000.123
    )
    assert read_owner(value, "f" * 32) is None
    assert read_owner(pack_owner(token, None, 0, "x"), token.decode()) == Owner("x", None, 0.0)
    assert token not in value
    assert len(pack_owner(token, 2**53, 2**42, "x" * 1000)) < MAX_LABEL + 60


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"x",
        b"0123456789abcdef x y z",
        b"0123456789abcdef 1",
        b"0123456789abcdef 1 " + b"9" * 5000 + b" x",
        b"\xff\xff \xff",
    ],
)
def test_a_value_that_another_client_wrote_is_no_label(value: bytes) -> None:
    assert read_owner(value, "0123456789abcdef0123456789abcdef") is None


@pytest.mark.parametrize("owner", ["", "two\nlines", 7, "x" * 201])
def test_an_invalid_label_is_refused(owner: object) -> None:
    with pytest.raises(ConfigurationError, match="owner must"):
        Redlock(["redis://127.0.0.1:1"], owner=owner)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "owner"), [("false", False), ("TRUE", True), ("billing-3", "billing-3")]
)
def test_the_environment_sets_the_label(word: str, owner: object) -> None:
    environ = {"AIOREDLOCK_NG_NODES": "redis://127.0.0.1:1", "AIOREDLOCK_NG_OWNER": word}
    assert Redlock.from_env(environ)._options.owner == owner


async def held_for_a_while(rig: Rig, owner: str = "web-1") -> tuple[Process, Lease]:
    """A lock "a" whose label is on all nodes."""
    holder = await rig.process(owner=owner)
    lease = await holder.lock("a").acquire()
    await asyncio.sleep(0.3)
    return holder, lease


def looks(asked: list[Any]) -> int:
    """Return how many of these commands are inspections, over all nodes."""
    return [command.script for command in asked].count(MUTEX.inspect)


@pytest.mark.parametrize(("blocking_timeout", "kind"), [(0, LockHeld), (0.5, AcquireTimeout)])
async def test_the_error_names_the_holder(
    rig: Rig, blocking_timeout: float, kind: type[LockHeld | AcquireTimeout]
) -> None:
    heard: list[Event] = []
    await held_for_a_while(rig)
    other = await rig.process(sinks=[heard.append])
    with pytest.raises(
        kind, match=r"^'a' was not acquired, (still )?held by web-1( after 0.5 s)?: memory-0: held"
    ) as caught:
        await other.lock("a", blocking_timeout=blocking_timeout).acquire()
    assert caught.value.owner == "web-1"
    (failed,) = [event for event in heard if isinstance(event, AcquireFailed)]
    assert failed.reason == str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.owner, str(again), again.votes) == (
        "web-1",
        str(caught.value),
        caught.value.votes,
    )


async def test_the_error_calls_a_holder_without_a_label_another(rig: Rig) -> None:
    other = await rig.process()
    rig.occupy(b"a")
    with pytest.raises(LockHeld, match="held by another: ") as caught:
        await other.lock("a", blocking_timeout=0).acquire()
    assert caught.value.owner is None


async def test_the_owner_is_named_by_its_own_name_in_a_lock_that_has_the_same_words(
    rig: Rig,
) -> None:
    holder = await rig.process(owner="web-1")
    await holder.lock("held by another").acquire()
    await asyncio.sleep(0.3)
    with pytest.raises(LockHeld, match=r"^'held by another' was not acquired, held by web-1: "):
        await (await rig.process()).lock("held by another", blocking_timeout=0).acquire()


async def test_of_several_names_the_owner_of_the_first_that_is_held_is_named(rig: Rig) -> None:
    await held_for_a_while(rig)
    with pytest.raises(LockHeld) as caught:
        await (await rig.process()).lock("0", "a", blocking_timeout=0).acquire()
    assert caught.value.owner == "web-1"


async def test_no_node_is_asked_for_the_owner_if_no_error_is_raised(rig: Rig) -> None:
    _, lease = await held_for_a_while(rig)
    other = await rig.process()
    asked = other.questions()
    assert await other.lock("a").try_acquire() is None
    waiting = asyncio.create_task(other.lock("a", blocking_timeout=5).acquire())
    await asyncio.sleep(1)
    await lease.release()
    await (await waiting).release()
    assert asked
    assert looks(asked) == 0


async def test_without_labels_no_owner_is_asked_for(rig: Rig) -> None:
    await held_for_a_while(rig)
    other = await rig.process(owner=False)
    asked = other.questions()
    with pytest.raises(LockHeld) as caught:
        await other.lock("a", blocking_timeout=0).acquire()
    assert caught.value.owner is None
    assert looks(asked) == 0


async def test_a_holder_in_this_process_is_named_without_asking(rig: Rig) -> None:
    process = await rig.process(owner="web-1")
    lease = await process.lock("a").acquire()
    asked = process.questions()
    with pytest.raises(LockHeld, match="held by web-1: "):
        await process.lock("a", blocking_timeout=0).acquire()
    with pytest.raises(AcquireTimeout, match=r"still held by web-1 in this process after 0\.2 s"):
        await process.lock("a", blocking_timeout=0.2).acquire()
    assert looks(asked) == 0
    await lease.release()
    async with process.lock("a"):
        with pytest.raises(LockHeld, match="this very task") as caught:
            await process.lock("a").acquire()
    assert caught.value.owner == "web-1"


@pytest.mark.parametrize(
    ("hung", "owner"), [((), "web-1"), ((1,), "web-1"), ((0, 2), None), ((0, 1, 2), None)]
)
@pytest.mark.parametrize("blocking_timeout", [0.04, 15.0])
async def test_the_owner_of_a_lock_is_asked_for_within_the_time_to_wait(
    rig: Rig, hung: tuple[int, ...], owner: str | None, blocking_timeout: float
) -> None:
    await held_for_a_while(rig)
    other = await rig.process(node_timeout=0.05)
    waiting = asyncio.create_task(other.lock("a", blocking_timeout=blocking_timeout).acquire())
    loop = asyncio.get_running_loop()
    called = loop.time()
    # After its first attempt, before the inspection.
    await asyncio.sleep(0.01)
    rig.hang(*hung)
    # The refreshes of a longer wait find that no quorum answers any more.
    lost = len(hung) > 1 and blocking_timeout == 15.0
    with pytest.raises(QuorumUnreachable if lost else AcquireTimeout) as caught:
        await waiting
    assert getattr(caught.value, "owner", None) == owner
    assert loop.time() - called == pytest.approx(blocking_timeout)


@pytest.mark.parametrize(
    ("hung", "owner"), [((), "web-1"), ((1,), "web-1"), ((0, 2), None), ((0, 1, 2), None)]
)
async def test_asking_for_the_owner_delays_lock_held_by_the_node_timeout_at_most(
    rig: Rig, hung: tuple[int, ...], owner: str | None
) -> None:
    await held_for_a_while(rig)
    other = await rig.process(node_timeout=0.05)
    trying = asyncio.create_task(other.lock("a", blocking_timeout=0).acquire())
    loop = asyncio.get_running_loop()
    called = loop.time()
    # After its attempt, before the inspection is answered.
    await asyncio.sleep(2.5 * WAY)
    rig.hang(*hung)
    with pytest.raises(LockHeld) as caught:
        await trying
    assert caught.value.owner == owner
    assert caught.value.elapsed == pytest.approx(2 * WAY)
    assert loop.time() - called == pytest.approx(2 * WAY + (2 * WAY if owner else 0.05))


@pytest.mark.parametrize("blocking_timeout", [0, 1])
async def test_a_crowd_that_gives_up_at_once_asks_for_the_owner_once(
    rig: Rig, blocking_timeout: float
) -> None:
    await held_for_a_while(rig)
    other = await rig.process()
    asked = other.questions()
    calls = (other.lock("a", blocking_timeout=blocking_timeout).acquire() for _ in range(50))
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [getattr(error, "owner", None) for error in errors] == ["web-1"] * 50
    assert looks(asked) == 3


async def test_a_caller_cancelled_while_it_asks_for_the_owner_takes_the_answer_from_no_other(
    rig: Rig,
) -> None:
    heard: list[Event] = []
    await held_for_a_while(rig)
    other = await rig.process(sinks=[heard.append])
    crowd = [asyncio.create_task(other.lock("a", blocking_timeout=0).acquire()) for _ in range(3)]
    await asyncio.sleep(3 * WAY)
    crowd[0].cancel()
    await asyncio.wait(crowd)
    assert crowd[0].cancelled()
    assert [getattr(task.exception(), "owner", None) for task in crowd[1:]] == ["web-1"] * 2
    assert [type(event) for event in heard].count(AcquireFailed) == 3
    assert other.redlock.stats().waiting == 0


async def test_the_name_of_a_task_neither_ends_the_line_nor_moves_the_cursor(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()

    async def hold() -> None:
        async with process.lock("a"):
            await asyncio.sleep(0.3)

    record = asyncio.create_task(hold(), name="two\nlines\x1b[31m" + "x" * 1000)
    await asyncio.sleep(0.2)
    for asking in (process, other):
        with pytest.raises(LockHeld) as caught:
            await asking.lock("a", blocking_timeout=0).acquire()
        assert caught.value.owner is not None
        assert ":two\ufffdlines\ufffd[31mxxx" in caught.value.owner
        assert len(caught.value.owner) <= MAX_LABEL
        assert str(caught.value).isprintable()
    await record


TOKEN = b"0123456789abcdef0123456789abcdef"
NAMED = Looked((Held(1.0, TOKEN, pack_owner(TOKEN, 1, 0, "web-1")),))
UNNAMED = Looked((Held(1.0, TOKEN),))
RIVAL = Looked((Held(1.0, b"f" * 32, pack_owner(b"f" * 32, 1, 0, "rival")),))
FREE = Looked((Free(),))
OTHER = Looked((NotALock("hash", 1.0),))


def labelled(label: bytes) -> list[Looked | None]:
    return [Looked((Held(1.0, TOKEN, label),))] * 2 + [None]


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ([None, None, None], (False, None)),
        ([NAMED, None, None], (False, None)),
        ([NAMED, NAMED, None], (True, "web-1")),
        ([UNNAMED, NAMED, None], (True, "web-1")),
        ([UNNAMED, UNNAMED, None], (True, None)),
        ([NAMED, RIVAL, None], (False, None)),
        ([NAMED, RIVAL, FREE], (True, None)),
        ([FREE, FREE, None], (True, None)),
        ([Refusal("NOPERM"), NAMED, NAMED], (True, "web-1")),
        (labelled(b"somebody's value"), (True, None)),
        (labelled(pack_owner(TOKEN, 1, 0, "x\x1b[31m\ny")), (True, "x\ufffd[31m\ufffdy")),
        (labelled(pack_owner(TOKEN, 1, 0, "")), (True, None)),
        ([OTHER, OTHER, None], (True, None)),
        ([Garbled("no"), OTHER, NAMED], (True, None)),
    ],
)
def test_an_owner_is_named_by_a_majority_and_decided_as_early_as_it_can_be(
    replies: list[Any], expected: object
) -> None:
    assert holder_label(replies, 2) == expected


async def test_a_lock_may_name_its_own_owner(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process(owner=False)

    @process.redlock.guard("b", owner="job 7")
    async def job() -> Owner | None:
        await asyncio.sleep(0.3)
        return await owner_of(process, "b")

    async with process.lock("a", owner="request 42"), process.lock("c"):
        await asyncio.sleep(0.3)
        named = await owner_of(process, "a")
        assert named is not None
        assert named.label == "request 42"
        usual = await owner_of(process, "c")
        assert usual is not None
        assert usual.label.startswith(f"{socket.gethostname()}:{os.getpid()}:")
        with pytest.raises(LockHeld, match="held by request 42: "):
            await (await rig.process()).lock("a", blocking_timeout=0).acquire()
    owner = await job()
    assert owner is not None
    assert owner.label == "job 7"
    async with other.lock("a", owner="request 43"):
        await asyncio.sleep(0.3)
        assert await owner_of(process, "a") is None


@pytest.mark.parametrize("options", [{}, {"shared": True}])
async def test_a_guard_labels_each_call_by_its_arguments(rig: Rig, options: Any) -> None:
    process, other = await rig.process(owner="the process"), await rig.process()
    entered = asyncio.Event()

    @process.redlock.guard("report:{user_id}", owner="job {job_id}", **options)
    async def report(user_id: int, job_id: str | None = "7") -> None:
        entered.set()
        await asyncio.sleep(10)

    @process.redlock.guard(
        "report:{user_id}", owner=lambda job_id: job_id and f"job {job_id}", **options
    )
    async def other_report(user_id: int, job_id: str | None = "7") -> None:
        entered.set()
        await asyncio.sleep(10)

    for function, job, label in (
        (report, "7", "job 7"),
        (report, "8", "job 8"),
        (other_report, "9", "job 9"),
        (other_report, None, "the process"),
    ):
        entered.clear()
        call = asyncio.create_task(function(1, job_id=job))
        await entered.wait()
        await asyncio.sleep(0.3)
        with pytest.raises(LockHeld, match=f"held by {label}[: ]") as caught:
            await other.lock("report:1", blocking_timeout=0).acquire()
        assert caught.value.owner == label
        call.cancel()
        await asyncio.wait([call])


async def test_a_guard_with_slots_labels_each_call_by_its_arguments(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()

    @process.redlock.guard("report", limit=2, owner="job {job_id}")
    async def report(job_id: str) -> None:
        await asyncio.sleep(0.4)

    async with asyncio.TaskGroup() as calls:
        for job_id in "ab":
            calls.create_task(report(job_id))
        await asyncio.sleep(0.3)
        slots = (await other.redlock.semaphore("report", 2).inspect()).slots
        assert {slot.owner and slot.owner.label for slot in slots} == {"job a", "job b"}


async def test_a_manager_without_labels_writes_none_for_a_guard_with_an_owner(rig: Rig) -> None:
    process = await rig.process(owner=False)

    @process.redlock.guard("a", owner=lambda number: f"job {number}")
    async def job(number: int) -> Owner | None:
        await asyncio.sleep(0.3)
        return await owner_of(process, "a")

    assert await job(7) is None


@pytest.mark.parametrize("owner", ["", "  ", "two\nlines", 7, True, False, "x" * 201])
def test_an_unusable_label_of_a_lock_is_refused(owner: Any) -> None:
    redlock = Redlock(["redis://127.0.0.1:1"])
    with pytest.raises(ConfigurationError, match="owner must"):
        redlock.lock("a", owner=owner)
    with pytest.raises(ConfigurationError, match="owner must"):
        redlock.guard("a", owner=owner)


async def test_a_refused_inspection_by_a_manager_without_labels_is_not_repeated(rig: Rig) -> None:
    process = await rig.process(owner=False)
    rig.refuse("NOPERM no permissions to run the 'mget' command", *range(len(rig.servers)))
    asked = process.questions()
    with pytest.raises(QuorumUnreachable):
        await process.redlock.inspect("a")
    assert len(asked) == len(rig.servers)


async def test_after_a_refusal_of_labels_no_release_names_the_label_of_an_ended_reader(
    rig: Rig,
) -> None:
    process = await rig.process()
    lock = process.redlock.rwlock("a").read()
    async with lock as lease:
        nested = await lock.acquire()
        assert nested.token == lease.token
        await asyncio.sleep(1)
        await nested.release()
        process.redlock.engine().extender.watcher._answered(Refusal("NOPERM no right to it"), 0)
        sent = process.questions()
    assert {command.keys for command in sent if command.owed_until is not None} == {(b"a",)}
