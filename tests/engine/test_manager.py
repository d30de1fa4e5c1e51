"""Calls of operators to a manager, and their errors at the wrong time or place."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import ConfigurationError, Outcome, QuorumUnreachable, Redlock, RedlockClosed
from aioredlock_ng._core.fencing import slot_of
from aioredlock_ng._core.replies import ForceReleased, Held, NotALock
from aioredlock_ng._engine.trust.forcing import force_release
from aioredlock_ng._nodes.memory import MemoryNode, MemoryServer
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng.events import QuorumLost
from tests.support.rig import WAY, Rig
from tests.support.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioredlock_ng import Lease
    from aioredlock_ng._core.inspection import Look
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.memory import Connection
    from aioredlock_ng._scripts import Command
    from aioredlock_ng.events import Event

pytestmark = pytest.mark.virtual_time

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


async def test_stats_count_attempts_grants_refusals_and_releases(rig: Rig) -> None:
    process = await rig.process()
    async with process.lock("a"):
        stats = process.redlock.stats()
        assert (stats.acquired, stats.attempts, stats.held, stats.released) == (1, 1, 1, 0)
        assert await process.lock("a").try_acquire() is None
    stats = process.redlock.stats()
    assert (stats.acquired, stats.refused, stats.held, stats.released, stats.lost) == (
        1,
        1,
        0,
        1,
        0,
    )


async def test_stats_count_an_unreachable_quorum_only_for_callers_that_go_on_waiting(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.stop(0, 1)
    with pytest.raises(QuorumUnreachable):
        await process.lock("a").try_acquire()
    with pytest.raises(QuorumUnreachable):
        await process.lock("a", fail_fast=True).acquire()
    stats = process.redlock.stats()
    assert (stats.attempts, stats.refused, stats.unreachable) == (2, 2, 0)
    with pytest.raises(QuorumUnreachable):
        await process.lock("a", blocking_timeout=1).acquire()
    stats = process.redlock.stats()
    assert stats.refused - 2 == stats.unreachable > 0
    page = " ".join(OPERATIONS.read_text(encoding="utf-8").split())
    counted = page.partition("* **`unreachable`** counts ")[2].partition(" * **")[0]
    assert "the caller went on waiting" in counted
    assert "`try_acquire`, and `fail_fast=True`" in counted


async def test_leases_lists_the_leases_that_are_held_now(rig: Rig) -> None:
    process = await rig.process()
    async with process.lock("a") as lease:
        assert list(process.redlock.leases) == [lease]
        assert len(process.redlock.leases) == 1
    assert len(process.redlock.leases) == 0


async def test_inspect_shows_the_holder_and_the_remaining_time(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    assert not await other.redlock.locked("a")
    async with process.lock("a", ttl=5) as lease:
        await asyncio.sleep(0.01)
        info = await other.redlock.inspect("a")
        assert (info.held, info.token, info.nodes, info.total) == (True, lease.token, 3, 3)
        assert 4.9 < info.remaining <= 5
        assert await other.redlock.locked("a")
        rig.hang(0)
        info = await other.redlock.inspect("a")
        assert (info.held, info.nodes) == (True, 2)


async def test_a_lock_is_held_while_a_quorum_holds_it_and_silent_nodes_hold_nothing(
    rig: Rig,
) -> None:
    process = await rig.process()
    for index, ttl in enumerate((30, 20, 10)):
        rig.occupy(b"a", ttl=ttl, on=(index,), value=b"one")
    assert (await process.redlock.inspect("a")).remaining == pytest.approx(20, abs=0.1)
    rig.hang(0)
    assert (await process.redlock.inspect("a")).remaining == pytest.approx(10, abs=0.1)


async def test_locked_never_overstates_when_nodes_are_silent_or_disagree(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a", on=(0,), value=b"one")
    rig.occupy(b"a", on=(1,), value=b"two")
    assert not await process.redlock.locked("a")
    rig.hang(1, 2)
    with pytest.raises(QuorumUnreachable):
        await process.redlock.locked("a")


async def test_force_release_notifies_a_holder_of_the_same_manager(rig: Rig) -> None:
    process = await rig.process(ttl=60.0)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.5)
    assert await process.redlock.force_release("a") == 3
    await asyncio.wait_for(lease.wait_lost(), 0.1)
    assert lease.lost


async def test_force_release_wakes_a_waiter_of_the_same_manager_too(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    waiting = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0.5)
    assert await process.redlock.force_release("a") == 3
    lease = await asyncio.wait_for(waiting, 0.1)
    await lease.release()


async def test_force_release_frees_the_lock_and_notifies_the_holder(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    lease = await process.lock("a").acquire()
    await asyncio.sleep(1)
    assert await other.redlock.force_release("a") == 3
    await asyncio.wait_for(lease.wait_lost(), 0.5)
    assert lease.lost
    assert await other.redlock.force_release("a") == 0


async def test_force_release_of_a_token_leaves_every_other_holder_alone(rig: Rig) -> None:
    process, operator = await rig.process(), await rig.process()
    lease = await process.lock("a").acquire()
    token = lease.token
    await lease.release()
    after = await process.lock("a").acquire()
    assert await operator.redlock.force_release("a", token=token) == 0
    await after.verify()
    assert await operator.redlock.force_release("a", token=after.token) == 3
    await asyncio.wait_for(after.wait_lost(), 0.5)


async def test_force_release_spares_an_attempt_that_is_under_way(rig: Rig) -> None:
    """Deleting one of the two keys that a rival's attempt gets would leave it a lock that the next
    one gets as well.
    """
    rival, third, operator = [await rig.process() for _ in range(3)]
    rig.occupy(b"a", on=(1, 2))
    rival.nodes[1].hang()
    rival.nodes[2].hang()
    attempt = asyncio.create_task(rival.lock("a").acquire())
    await asyncio.sleep(0.005)
    assert await operator.redlock.force_release("a") == 2
    rival.nodes[1].resume()
    lease = await attempt
    assert await third.lock("a").try_acquire() is None
    await lease.release()


async def test_force_release_deletes_leftover_keys_without_a_majority(rig: Rig) -> None:
    process = await rig.process()
    for index, value in enumerate((b"one", b"two", b"three")):
        rig.occupy(b"a", on=(index,), value=value)
    assert await process.redlock.force_release("a") == 3
    assert rig.clean


async def test_force_release_spares_a_holder_that_is_granted_the_lock_meanwhile(rig: Rig) -> None:
    rival, operator = await rig.process(), await rig.process()
    rig.occupy(b"a", on=(0,), value=b"left over")
    forced = asyncio.create_task(operator.redlock.force_release("a"))
    await asyncio.sleep(0.005)
    async with rival.lock("a") as lease:
        assert await forced == 1
        assert rig.values(b"a") == [None, lease.token.encode(), lease.token.encode()]


async def test_force_release_does_not_take_silence_for_a_free_lock(rig: Rig) -> None:
    operator = await rig.process()
    rig.occupy(b"a", on=(0, 1))
    rig.hang(0, 1)
    forced = asyncio.create_task(operator.redlock.force_release("a"))
    await asyncio.sleep(0.15)
    rig.resume()
    with pytest.raises(QuorumUnreachable):
        await forced
    assert await operator.redlock.force_release("a") == 2


async def test_force_release_finds_a_holder_whose_nodes_answer_at_different_times(rig: Rig) -> None:
    operator = await rig.process()
    rig.occupy(b"a", on=(0, 2))
    rig.hang(2)
    forced = asyncio.create_task(operator.redlock.force_release("a"))
    await asyncio.sleep(0.2)
    rig.resume()
    rig.hang(0)
    await asyncio.sleep(0.2)
    rig.resume()
    assert await forced == 2
    assert rig.clean


async def test_force_release_takes_an_empty_key_away_too(rig: Rig) -> None:
    operator = await rig.process()
    for token in (None, ""):
        rig.occupy(b"a", value=b"")
        assert await operator.redlock.force_release("a", token=token) == 3


async def test_force_release_refuses_a_key_without_expiry_and_deletes_nothing(rig: Rig) -> None:
    operator = await rig.process()
    rig.occupy(b"order:42", ttl=math.inf, on=(0, 1), value=b"somebody's own data")
    rig.occupy(b"order:42", on=(2,), value=b"left over")
    for token in (None, "somebody's own data"):
        with pytest.raises(ConfigurationError) as caught:
            await operator.redlock.force_release("order:42", token=token)
        told = str(caught.value)
        for words in (
            "'order:42'",
            "memory-0 (a string without expiry), memory-1 (a string",
            "key_format",
            "any_key=True",
        ):
            assert words in told
        assert "somebody's own" not in told
    assert [value is None for value in rig.values(b"order:42")] == [False] * 3
    assert await operator.redlock.force_release("order:42", token="another") == 0
    assert await operator.redlock.force_release("order:42", any_key=True) == 2
    assert rig.values(b"order:42") == [None, None, b"left over"]


async def test_force_release_leaves_data_of_others_beside_a_holders_majority(rig: Rig) -> None:
    process, operator = await rig.process(), await rig.process()
    rig.occupy(b"a", ttl=math.inf, on=(2,), value=b"data")
    lease = await process.lock("a").acquire()
    assert await operator.redlock.force_release("a") == 2
    await asyncio.wait_for(lease.wait_lost(), 0.5)
    assert rig.values(b"a") == [None, None, b"data"]


async def test_force_release_leaves_data_of_others_even_if_the_lock_ends_before_its_deletion(
    rig: Rig,
) -> None:
    operator = await rig.process()
    data, held = NotALock("hash", math.inf), Held(5.0, b"token")
    answers: list[list[Look]] = [[held, held, data], [ForceReleased(0), ForceReleased(0), data]]

    async def ask(_command: Command) -> list[Look]:
        return answers.pop(0)

    assert await force_release(
        operator.redlock.engine().context, ask, MUTEX, b"a", slot_of(b"a")
    ) == [0, 0, 0]
    assert answers == []


async def test_force_release_names_data_that_came_between_its_inspection_and_its_deletion(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = await rig.process()
    rig.occupy(b"a", value=b"token")
    execute = MemoryServer.execute

    def executed(server: MemoryServer, command: Command, by: Connection) -> Reply:
        if command.script.name == "force_release":
            server.set(b"a", b"token", math.inf)
        return execute(server, command, by)

    monkeypatch.setattr(MemoryServer, "execute", executed)
    with pytest.raises(
        ConfigurationError, match=r"nothing was released.*memory-2 \(a string without expiry\)"
    ):
        await operator.redlock.force_release("a")
    assert rig.values(b"a") == [b"token"] * 3


async def test_force_release_refuses_an_any_key_that_is_no_bool(rig: Rig) -> None:
    operator = await rig.process()
    with pytest.raises(ConfigurationError, match="any_key must be True or False, not int"):
        await operator.redlock.force_release("a", any_key=1)  # type: ignore[arg-type]


# The tests of the decoders have all other replies that do not fit.
@pytest.mark.parametrize("garbage", [[], b"x", [[9, 9]], [[-9, b"x"]]], ids=repr)
async def test_a_node_that_answers_an_inspection_with_garbage_has_no_vote(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, garbage: Any
) -> None:
    process, operator = await rig.process(), await rig.process()
    lease = await process.lock("a").acquire()
    monkeypatch.setattr(rig.servers[1], "_inspect", lambda *_: garbage)
    info = await operator.redlock.inspect("a")
    assert (info.held, info.token, info.nodes) == (True, lease.token, 2)
    assert info.answers[1].token is None
    assert re.fullmatch(
        "the inspect script was answered with .*, which does not fit it", info.answers[1].detail
    )
    assert await operator.redlock.locked("a")
    monkeypatch.setattr(rig.servers[2], "_inspect", lambda *_: garbage)
    for call in (operator.redlock.inspect, operator.redlock.locked, operator.redlock.force_release):
        with pytest.raises(QuorumUnreachable) as caught:
            await call("a")
        assert [vote.outcome for vote in caught.value.votes] == [
            Outcome.HELD,
            Outcome.UNKNOWN,
            Outcome.UNKNOWN,
        ]
    await lease.release()


async def test_an_inspection_without_a_quorum_reports_the_answer_of_each_node(rig: Rig) -> None:
    operator = await rig.process()
    rig.hang(1, 2)
    with pytest.raises(
        QuorumUnreachable, match=r"memory-0: free; memory-1: unknown \(no answer in time\)"
    ):
        await operator.redlock.inspect("a")
    rig.occupy(b"a", ttl=9.8, on=(0,))
    with pytest.raises(
        QuorumUnreachable, match=r"memory-0: held \(9\.\d+ s left\); memory-1: unknown"
    ):
        await operator.redlock.locked("a")
    rig.occupy(b"a", ttl=math.inf, on=(0,))
    with pytest.raises(QuorumUnreachable, match=r"memory-0: held \(no expiry\); memory-1: unknown"):
        await operator.redlock.force_release("a")


@pytest.mark.parametrize(
    ("on", "instant"),
    [
        *(((0, 1, 2), step / 2000) for step in range(9)),
        # A token without a majority is deleted after two node timeouts.
        *(((0,), instant) for instant in (0.0, 0.0015, 0.1)),
        *(((0,), 0.234 + step / 2000) for step in range(24)),
    ],
)
async def test_force_release_cancelled_anywhere_deletes_everywhere_or_nowhere(
    rig: Rig, on: tuple[int, ...], instant: float
) -> None:
    operator = await rig.process()
    rig.occupy(b"a", on=on)
    forced = asyncio.create_task(operator.redlock.force_release("a"))
    await asyncio.sleep(instant)
    forced.cancel()
    await asyncio.wait([forced])
    await asyncio.sleep(0.5)
    assert rig.values(b"a") in (
        [None] * 3,
        [b"foreign" if index in on else None for index in range(3)],
    )


async def test_managers_of_one_process_exclude_each_other(rig: Rig) -> None:
    first, second = await rig.process(), await rig.process()
    async with first.lock("a"):
        assert await second.lock("a").try_acquire() is None
    async with second.lock("a"):
        assert await first.lock("a").try_acquire() is None


async def test_closing_one_manager_leaves_the_other_alone(rig: Rig) -> None:
    first, second = await rig.process(), await rig.process()
    held = await second.lock("a").acquire()
    await first.lock("b").acquire()
    await first.redlock.aclose()
    assert held.valid
    assert rig.keys() == [{b"a"}] * 3


async def test_use_before_open_after_close_and_twice_is_refused(rig: Rig) -> None:
    process = rig.new_process()
    lock = process.lock("a")
    with pytest.raises(RedlockClosed, match="not open"):
        await lock.acquire()
    assert await process.redlock.open() is process.redlock
    with pytest.raises(RedlockClosed, match="open already"):
        await process.redlock.open()
    lease = await lock.acquire()
    await process.redlock.aclose()
    await process.redlock.aclose()
    for use in (lock.acquire, lock.try_acquire):
        with pytest.raises(RedlockClosed):
            await use()
    assert await lease.release() is False


async def test_use_from_another_loop_is_refused_and_says_loop(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    errors: list[BaseException] = []

    def elsewhere() -> None:
        for use in (process.lock("b").acquire, lease.release, lease.extend, lease.verify):
            try:
                asyncio.run(use())
            except RedlockClosed as error:
                errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(errors) == 4
    assert all("loop" in str(error) for error in errors)
    assert lease.valid


async def test_opening_and_closing_may_happen_in_different_tasks(rig: Rig) -> None:
    process = rig.new_process()
    await asyncio.create_task(process.redlock.open())
    await asyncio.create_task(process.redlock.aclose())
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_forced_release_of_a_free_lock_keeps_no_later_lease_from_being_repaired(
    rig: Rig,
) -> None:
    """With raised fence counters, the nodes would refuse to set the keys of the lease again."""
    operator, process = await rig.process(), await rig.process()
    await asyncio.sleep(0.2)
    forced = asyncio.create_task(operator.redlock.force_release("a"))
    # The acquire reaches the nodes after the forced release has asked them for the holder.
    await asyncio.sleep(WAY / 2)
    lease = await process.lock("a").acquire()
    assert await forced == 0
    await asyncio.sleep(0.2)
    rig.vacate(b"a", on=[1])
    await asyncio.sleep(5)
    assert rig.values(b"a") == [lease.token.encode()] * 3
    assert lease.nodes == (3, 3)


@pytest.mark.parametrize("ticks", range(0, 30, 2))
async def test_an_opening_that_is_overtaken_by_a_close_fails_and_closes_no_later_manager(
    rig: Rig, ticks: int
) -> None:
    heard: list[Event] = []
    process = rig.new_process(sinks=[heard.append])
    opening = asyncio.create_task(process.redlock.open())
    await asyncio.sleep(ticks * WAY / 4)
    if opening.done():
        return
    await process.redlock.aclose()
    heard.clear()
    reopening = asyncio.create_task(process.redlock.open())
    with pytest.raises(RedlockClosed):
        await opening
    await reopening
    await process.redlock.wait_ready(1)
    assert not [event for event in heard if isinstance(event, QuorumLost)]


async def test_the_same_node_object_twice_is_refused() -> None:
    node = MemoryNode()
    with pytest.raises(ConfigurationError, match="twice"):
        Redlock([node, node])


async def test_the_nodes_of_a_manager_show_their_state(rig: Rig) -> None:
    process = await rig.process()
    rig.disconnect(1)
    assert [node.state for node in process.redlock.nodes] == ["up", "down", "up"]
    assert len(process.redlock.nodes) == 3


def without_a_loop(call: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Take the first step of a call where no asyncio event loop runs, as another library's loop
    would.
    """
    coroutine = call()
    with pytest.raises(
        RedlockClosed, match=r"aioredlock_ng needs asyncio, .*; in a trio program use .*asyncio"
    ):
        coroutine.send(None)
    coroutine.close()


def test_opening_without_an_asyncio_loop_names_the_cause_and_the_remedy() -> None:
    redlock = Redlock(["redis://127.0.0.1:1"])
    without_a_loop(redlock.open)
    without_a_loop(redlock.__aenter__)
    without_a_loop(redlock.diagnose)


def test_each_call_of_an_open_manager_without_an_asyncio_loop_names_the_cause() -> None:
    loop = VirtualLoop()
    rig = Rig(3)
    redlock = loop.run_until_complete(rig.process()).redlock
    lease = loop.run_until_complete(redlock.lock("a").acquire())
    semaphore, election, rwlock = (
        redlock.semaphore("s", 2),
        redlock.election("e"),
        redlock.rwlock("r"),
    )
    leading = redlock.election("led")
    loop.run_until_complete(leading.__aenter__())

    async def lead(_lease: Lease) -> None: ...

    async def work() -> None: ...

    calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
        *(redlock.open, redlock.aclose, redlock.lock("b").acquire, redlock.lock("b").try_acquire),
        *(
            lambda: redlock.inspect("a"),
            lambda: redlock.locked("a"),
            lambda: redlock.force_release("a"),
        ),
        *(redlock.wait_ready, lambda: redlock.wait_ready(0), redlock.diagnose),
        *(lease.verify, lease.extend, lease.release, lease.wait_lost),
        *(semaphore.acquire, semaphore.try_acquire, semaphore.__aenter__, semaphore.inspect),
        *(rwlock.read().acquire, rwlock.write().__aenter__),
        *(redlock.guard("g")(work), redlock.once("g", within=1)(work)),
        *(
            election.__aenter__,
            lambda: election.run(lead),
            election.watch().__anext__,
            leading.resign,
        ),
    ]
    for call in calls:
        without_a_loop(call)
    # The refused calls did not claim the candidate.
    assert loop.run_until_complete(election.run(lead)) is None
    loop.run_until_complete(leading.__aexit__(None, None, None))
    assert loop.run_until_complete(lease.release()) is True
    loop.run_until_complete(rig.close())
    loop.close()


@pytest.mark.parametrize(
    ("names", "call"),
    [
        (("a",), r"redlock\.lock\('a'\)"),
        ((b"a", "b"), r"redlock\.lock\(b'a', …\)"),
        (("x" * 1000,), r"redlock\.lock\('x{5,50}\.\.\.x+'\)"),
    ],
)
async def test_awaiting_or_entering_a_lock_by_a_plain_with_shows_the_right_line(
    rig: Rig, names: Any, call: str
) -> None:
    lock: Any = (await rig.process()).lock(*names)
    right = rf"; use `async with {call}:`, or `lease = await {call}\.acquire\(\)`$"
    with pytest.raises(TypeError, match="Lock cannot be awaited" + right):
        await lock
    with pytest.raises(TypeError, match="Lock does not support a plain `with`" + right), lock:
        raise AssertionError("no body begins")
    assert rig.clean


async def test_awaiting_or_entering_a_manager_by_a_plain_with_shows_the_right_line() -> None:
    redlock: Any = Redlock(["redis://127.0.0.1:1"])
    right = r"; use `async with Redlock\(\[\.\.\.\]\) as redlock:`, or `await redlock\.open\(\)`"
    with pytest.raises(TypeError, match="Redlock cannot be awaited" + right):
        await redlock
    with pytest.raises(TypeError, match="Redlock does not support a plain `with`" + right), redlock:
        raise AssertionError("no body begins")


async def test_the_repr_of_a_manager_has_its_state_and_addresses_and_no_password(rig: Rig) -> None:
    urls = [
        "redis://user:s3cr3t@10.0.0.1:6379/3",
        "rediss://:s3cr3t@10.0.0.2",
        "unix://:s3cr3t@/run/redis.sock",
    ]
    shown = repr(Redlock(urls))
    assert shown == "<Redlock closed 10.0.0.1:6379/3, 10.0.0.2:6379, /run/redis.sock>"
    process = await rig.process()
    assert repr(process.redlock) == "<Redlock open memory-0, memory-1, memory-2>"
    await process.redlock.aclose()
    assert repr(process.redlock) == "<Redlock closed memory-0, memory-1, memory-2>"


@pytest.mark.parametrize("options", [{}, {"fencing": False, "recovery_guard": None}])
async def test_a_manager_has_another_id_each_time_it_is_opened(options: dict[str, Any]) -> None:
    """A manager that was made before a fork is opened in both processes."""
    redlock, ids = Redlock([MemoryNode()], **options), set()
    for _ in range(3):
        async with redlock:
            ids.add(redlock.engine().reports.manager_id)
    assert len(ids) == 3
    assert all(re.fullmatch(b"[0-9a-f]{16}", manager_id) for manager_id in ids)
