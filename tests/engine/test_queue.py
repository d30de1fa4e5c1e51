"""The queue of processes that wait for a lock: its order, its cost, its faults, its clean-up."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import LockNotAcquired, RedlockClosed
from aioredlock_ng._core.keys import message_channel
from aioredlock_ng._core.queue_formats import is_offer
from aioredlock_ng._engine.waiting.place import REFRESH_AFTER
from aioredlock_ng._nodes.memory import MemoryNode
from tests.support.rig import NODE_TIMEOUT, WAY, Rig

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng import Lease
    from tests.support.rig import Process

pytestmark = pytest.mark.virtual_time

KEY = b"a"

HAND_OVER = 6 * WAY
"""Seconds from a release to the next grant: the release, the message, the attempt and its answer,
and some room.
"""

GRACE = NODE_TIMEOUT
"""Seconds that an offer to a process lives."""

SETTLED = 0.05
"""Seconds after which a waiter stands in the queue of every node, and the first one tracks the key.
"""


def now() -> float:
    return asyncio.get_running_loop().time()


def waiting(process: Process, *names: str, **options: Any) -> asyncio.Future[Lease]:
    return asyncio.ensure_future(process.lock(*(names or ("a",)), **options).acquire())


async def waiters(
    rig: Rig, count: int, **options: Any
) -> list[tuple[Process, asyncio.Future[Lease]]]:
    """Processes that stand in the queues in this order."""
    line = []
    for _ in range(count):
        process = await rig.process(**options)
        line.append((process, waiting(process)))
        await asyncio.sleep(SETTLED)
    return line


def members(rig: Rig, key: bytes = KEY) -> list[list[bytes]]:
    """The members of each server's queue, and of its offer."""
    found = []
    for server in rig.servers:
        value = server.get(key) or b""
        offered = [value] if is_offer(value) else []
        found.append([member for _, member in server.queues.members(key)] + offered)
    return found


def kill(rig: Rig, process: Process) -> None:
    """End a process without a word: its connections are gone for good."""
    rig.processes.remove(process)
    for node in process.nodes:
        node.disconnect()
        node.connect = lambda: None  # type: ignore[method-assign]


class Stopped:
    """A process that a signal has stopped: its connections stay, and it neither hears nor says
    anything.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._kept: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        for node in process.nodes:
            for name in ("ask", "_answer", "_pass_on", "_pass_on_message"):
                setattr(node, name, self._keeping(getattr(node, name)))

    def _keeping(self, act: Callable[..., None]) -> Callable[..., None]:
        return lambda *args: self._kept.append((act, args))

    def go_on(self) -> None:
        for node in self._process.nodes:
            for name in ("ask", "_answer", "_pass_on", "_pass_on_message"):
                delattr(node, name)
        for act, args in self._kept:
            act(*args)


class Silent(MemoryNode):
    """A connection over which no message comes."""

    @property
    def messages(self) -> bool:
        return False


async def silent_process(rig: Rig, **options: Any) -> Process:
    process = rig.new_process(**options)
    for node in process.nodes:
        node.__class__ = Silent
    await process.redlock.open()
    return process


@dataclass
class Traffic:
    """The commands that the servers executed, and the messages that they delivered."""

    commands: int = 0
    messages: int = 0


def traffic(rig: Rig) -> Traffic:
    """Count from now on."""
    counted = Traffic()
    for server in rig.servers:

        def execute(command: Any, by: Any, execute: Any = server.execute) -> Any:
            counted.commands += 1
            return execute(command, by)

        def publish(channel: bytes, message: bytes, publish: Any = server.publish) -> int:
            received: int = publish(channel, message)
            counted.messages += received
            return received

        server.execute = execute  # type: ignore[method-assign]
        server.publish = publish  # type: ignore[method-assign]
    return counted


@dataclass
class Figures:
    """The commands and messages per acquisition and node that a crowd cost."""

    attempts: float
    commands: float
    messages: float
    shares: list[float] = field(repr=False)


async def compete(rig: Rig, processes: list[Process], rounds: int, hold: float = 0.002) -> Figures:
    """Let each process take the lock again and again, until all together had it so often."""
    counted, total, served = traffic(rig), rounds * len(processes), [0] * len(processes)
    before = sum(process.redlock.stats().attempts for process in processes)

    async def work(index: int) -> None:
        while sum(served) < total:
            async with processes[index].lock("a"):
                served[index] += 1
                await asyncio.sleep(hold)

    await asyncio.gather(*map(work, range(len(processes))))
    attempts = sum(process.redlock.stats().attempts for process in processes) - before
    acquisitions, nodes = sum(served), len(rig.servers)
    return Figures(
        attempts=attempts / acquisitions,
        commands=counted.commands / acquisitions / nodes,
        messages=counted.messages / acquisitions / nodes,
        shares=[each * len(served) / acquisitions for each in served],
    )


# Order.


@pytest.mark.parametrize(
    ("rig", "distances"),
    [
        (3, [1.0] * 8),
        (3, [5.0, 1.0, 5.0, 0.2, 1.0, 5.0, 0.2, 1.0]),
        (5, [0.2, 5.0, 1.0, 0.2, 5.0, 5.0, 1.0, 0.2]),
    ],
    indirect=["rig"],
)
async def test_processes_are_served_in_the_order_in_which_they_came(
    rig: Rig, distances: list[float]
) -> None:
    holder = await rig.process()
    lease = await holder.lock("a").acquire()
    order: list[int] = []

    async def work(number: int, process: Process) -> None:
        async with process.lock("a"):
            order.append(number)
            await asyncio.sleep(0.001)

    working = []
    for number, away in enumerate(distances):
        process = await rig.process(away=away)
        working.append(asyncio.create_task(work(number, process)))
        await asyncio.sleep(0.03)
    await lease.release()
    await asyncio.gather(*working)
    assert order == list(range(len(distances)))


async def test_a_process_that_comes_back_stands_behind_all_that_wait(rig: Rig) -> None:
    processes = [await rig.process() for _ in range(4)]
    order: list[int] = []

    async def work(number: int) -> None:
        await asyncio.sleep(0.01 * number)
        for _ in range(10):
            async with processes[number].lock("a"):
                order.append(number)
                await asyncio.sleep(0.05)

    await asyncio.gather(*map(work, range(4)))
    assert order == [0, 1, 2, 3] * 10


async def test_a_far_process_keeps_its_turn_while_its_round_trip_is_within_the_node_timeout(
    rig: Rig,
) -> None:
    holder, far, near = await rig.process(), await rig.process(away=40.0), await rig.process()
    lease = await holder.lock("a").acquire()
    first = waiting(far)
    await asyncio.sleep(0.3)
    second = waiting(near)
    await asyncio.sleep(0.1)
    await lease.release()
    lease = await first
    assert not second.done()
    await lease.release()
    await (await second).release()


# Cost.


@pytest.mark.parametrize("most", [40, pytest.param(200, marks=pytest.mark.slow)])
async def test_the_cost_and_the_shares_of_a_crowd_do_not_depend_on_its_size(most: int) -> None:
    figures = {}
    for count in (10, most):
        async with Rig(3) as rig:
            processes = [await rig.process() for _ in range(count)]
            figures[count] = await compete(rig, processes, 20 if count < 200 else 10)
    for each in figures.values():
        assert each.attempts <= 2.3, figures
        assert each.commands <= 6, figures
        assert each.messages <= 5, figures
        assert min(each.shares) >= 0.85, (figures, sorted(each.shares))
    for name in ("attempts", "commands", "messages"):
        assert getattr(figures[most], name) == pytest.approx(
            getattr(figures[10], name), rel=0.15
        ), figures


async def test_a_short_hold_costs_the_next_process_four_commands_per_node(rig: Rig) -> None:
    holder, process = await rig.process(), await rig.process()
    lease = await holder.lock("a").acquire()
    asked = process.questions()
    first = waiting(process)
    await asyncio.sleep(0.012)
    await lease.release()
    lease = await first
    assert len(asked) <= 4 * 3, [command.script.name for command in asked]
    await lease.release()


async def test_waiters_behind_the_second_make_no_attempt_while_the_holder_renews(rig: Rig) -> None:
    holder = await rig.process()
    lease = await holder.lock("a", ttl=3.0).acquire()
    line = await waiters(rig, 5)
    await asyncio.sleep(30)
    assert [process.redlock.stats().attempts for process, _ in line[2:]] == [1] * 3
    await lease.release()
    for _, each in line:
        await (await each).release()


# Faults.


@pytest.mark.parametrize("killed", [1, 3])
async def test_a_killed_waiter_costs_the_waiters_behind_it_no_time(rig: Rig, killed: int) -> None:
    holder = await rig.process()
    lease = await holder.lock("a").acquire()
    line = await waiters(rig, killed + 1)
    for process, each in line[:killed]:
        kill(rig, process)
        each.cancel()
    before = now()
    await lease.release()
    await (await line[-1][1]).release()
    assert now() - before < HAND_OVER + 2 * WAY
    for process, _ in line[:killed]:
        await process.redlock.aclose()


async def test_a_waiter_killed_with_an_offer_costs_no_whole_grace(rig: Rig) -> None:
    holder = await rig.process()
    lease = await holder.lock("a").acquire()
    (process, first), (_, second) = await waiters(rig, 2)
    Stopped(process)
    before = now()
    await lease.release()
    kill(rig, process)
    lease = await second
    assert now() - before < REFRESH_AFTER + 2 * HAND_OVER < GRACE
    await lease.release()
    first.cancel()
    await process.redlock.aclose()


async def test_two_neighbours_killed_with_an_offer_cost_a_busy_queue_little_time(rig: Rig) -> None:
    holder = await rig.process()
    lease = await holder.lock("a").acquire()
    line = await waiters(rig, 8)
    dying = line[:2]
    for process, _ in dying:
        Stopped(process)
    before = now()
    await lease.release()
    # A busy process waits again at once, so it enters the queue while the lock is offered.
    again = asyncio.ensure_future(holder.lock("a").acquire())
    await asyncio.sleep(HAND_OVER)
    for process, each in dying:
        kill(rig, process)
        each.cancel()
    lease = await line[2][1]
    assert now() - before < GRACE + len(line) * REFRESH_AFTER + 2 * HAND_OVER < 4 * GRACE
    for each in (*[waiter for _, waiter in line[3:]], again):
        await lease.release()
        lease = await each
    await lease.release()
    for process, _ in dying:
        await process.redlock.aclose()


async def test_a_stopped_process_costs_the_others_one_grace_and_keeps_its_ticket(rig: Rig) -> None:
    holder = await rig.process()
    lease = await holder.lock("a").acquire()
    (process, first), *others = await waiters(rig, 6)
    stopped = Stopped(process)
    costs = []
    for _, each in others[:3]:
        before = now()
        await lease.release()
        lease = await each
        costs.append(now() - before)
        await asyncio.sleep(0.01)
    assert GRACE <= costs[0] < GRACE + 2 * HAND_OVER
    assert max(costs[1:]) < HAND_OVER, "once"
    stopped.go_on()
    await asyncio.sleep(SETTLED)
    await lease.release()
    lease = await first
    assert not any(each.done() for _, each in others[3:])
    for _, each in others[3:]:
        await lease.release()
        lease = await each
    await lease.release()


@pytest.mark.parametrize("how", ["cut", "hung"])
async def test_a_waiter_that_reaches_a_minority_leaves_the_queues_and_blocks_no_waiter(
    rig: Rig, how: str
) -> None:
    holder = await rig.process()
    lease = await holder.lock("a", ttl=60).acquire()
    ((process, first),) = await waiters(rig, 1)
    for node in process.nodes[:2]:
        if how == "cut":
            node.disconnect()
        else:
            node.hang()
    # These reach a quorum only with the one node that the waiter reaches as well.
    others = [await rig.process() for _ in range(3)]
    for other in others:
        other.nodes[0].disconnect()
    if how == "hung":
        # Silence is known after a request, which comes after ten seconds at most.
        await asyncio.sleep(11)
    await asyncio.sleep(2 * NODE_TIMEOUT)
    lone = process.redlock.engine().reports.manager_id
    assert not any(lone in member for member in members(rig)[2])
    line = []
    for other in others:
        line.append(waiting(other))
        await asyncio.sleep(NODE_TIMEOUT + SETTLED)
    for each in line:
        before = now()
        await lease.release()
        lease = await each
        # An attempt of the lone waiter may be in the way until it is undone.
        assert now() - before < 2 * HAND_OVER + (NODE_TIMEOUT if how == "hung" else 0.0)
        await asyncio.sleep(0.1)
    await lease.release()
    for node in process.nodes[:2]:
        if how == "cut":
            node.connect()
        else:
            node.resume()
    async with asyncio.timeout(2):
        await (await first).release()


async def test_a_holder_that_dies_is_followed_at_its_expiry_by_the_first_in_the_queue(
    rig: Rig,
) -> None:
    holder = await rig.process(ttl=1.0)
    expires = now() + 1.0 + WAY
    await holder.lock("a").acquire()
    kill(rig, holder)
    (_, first), (second_process, second) = await waiters(rig, 2)
    for server in rig.servers:
        server.forget_trackers()
    lease = await first
    assert 0 <= now() - expires < HAND_OVER
    assert not second.done()
    assert second_process.redlock.stats().attempts == 1
    await lease.release()
    await (await second).release()
    await holder.redlock.aclose()


@pytest.mark.parametrize("restarted", [(0,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("guard", ["auto", None])
async def test_nodes_that_restart_empty_do_not_stop_the_waiting(
    rig: Rig, restarted: tuple[int, ...], guard: str | None
) -> None:
    options: dict[str, Any] = {"recovery_guard": guard, "max_ttl": 5.0, "ttl": 2.0}
    holder = await rig.process(**options)
    lease = await holder.lock("a").acquire()
    order: list[int] = []

    async def work(number: int, process: Process) -> None:
        async with process.lock("a"):
            order.append(number)

    working = []
    for number in range(3):
        working.append(asyncio.create_task(work(number, await rig.process(**options))))
        await asyncio.sleep(SETTLED)
    for index in restarted:
        rig.servers[index].restart()
    quarantine = 6.0 if len(restarted) > 1 and guard is not None else 0.0
    await asyncio.sleep(2 * NODE_TIMEOUT)
    before = now()
    await lease.release()
    async with asyncio.timeout(quarantine + 2):
        await asyncio.gather(*working)
    assert sorted(order) == [0, 1, 2]
    if len(restarted) == 1:
        assert order == [0, 1, 2]
        assert now() - before < 3 * HAND_OVER


async def test_a_deletion_by_another_client_on_a_quorum_wakes_exactly_the_first(rig: Rig) -> None:
    rig.occupy(KEY, ttl=600)
    line = await waiters(rig, 4)
    await asyncio.sleep(1)
    attempts = [process.redlock.stats().attempts for process, _ in line]
    rig.vacate(KEY, on=[1])
    await asyncio.sleep(0.2)
    assert [process.redlock.stats().attempts for process, _ in line] == attempts, (
        "one node is not a quorum"
    )
    before = now()
    rig.vacate(KEY, on=[0])
    lease = await line[0][1]
    assert now() - before < HAND_OVER
    assert [process.redlock.stats().attempts for process, _ in line] == [
        attempts[0] + 1,
        *attempts[1:],
    ]
    rig.vacate(KEY, on=[2])
    await lease.release()
    for _, each in line[1:]:
        await (await each).release()


async def test_a_lost_message_costs_ten_seconds_at_most(rig: Rig) -> None:
    holder = await rig.process()
    lease = await holder.lock("a", ttl=60).acquire()
    ((_, first),) = await waiters(rig, 1)

    def lost(channel: bytes, message: bytes) -> int:
        return 1

    for server in rig.servers:
        server.forget_trackers()
        server.publish = lost  # type: ignore[method-assign]
    before = now()
    await lease.release()
    await (await first).release()
    assert 0.5 < now() - before < 10.1


async def test_a_message_for_a_line_that_no_longer_waits_is_answered_by_leaving(rig: Rig) -> None:
    holder, gone = await rig.process(), await rig.process()
    lease = await holder.lock("a").acquire()
    manager = gone.redlock.engine().reports.manager_id
    assert all(message_channel(manager) in server._subscribers for server in rig.servers)
    for server in rig.servers:
        server.queues.add(KEY, b"1:%b:77:100" % manager, 60.0)
    ((_, second),) = await waiters(rig, 1)
    before = now()
    await lease.release()
    lease = await second
    assert now() - before < HAND_OVER + 2 * WAY, "a round trip, and not the life of an offer"
    assert members(rig) == [[], [], []]
    await lease.release()


async def test_the_lowest_ticket_is_granted_a_key_that_is_reserved_for_another_waiter(
    rig: Rig,
) -> None:
    holder = await rig.process()
    lease = await holder.lock("a").acquire()
    (_, first), (_, second) = await waiters(rig, 2)
    server = rig.servers[0]
    server.queues.remove(KEY, members(rig)[0][0])
    before = now()
    await lease.release()
    lease = await first
    assert now() - before < HAND_OVER
    await asyncio.sleep(2 * WAY)
    assert lease.nodes == (3, 3)
    assert rig.values(KEY) == [lease.token.encode()] * 3
    await lease.release()
    await (await second).release()


# Nothing is left.


async def test_a_late_refusal_after_success_leaves_no_entry_in_a_queue(rig: Rig) -> None:
    holder = await rig.process()
    lease = await holder.lock("a").acquire()
    ((_, first),) = await waiters(rig, 1)
    rig.ways[2] = 0.02
    rig.occupy(KEY, ttl=60, on=[2])
    await lease.release()
    lease = await first
    assert lease.nodes[0] == 2
    await asyncio.sleep(0.2)
    assert members(rig) == [[], [], []]
    await lease.release()


@pytest.mark.parametrize("halves", range(14))
@pytest.mark.parametrize("how", ["cancel", "timeout", "close"])
@pytest.mark.parametrize("amid", ["arrival", "hand-over", "hand-over behind another"])
async def test_a_waiter_that_ends_at_any_instant_is_left_in_no_queue(
    rig: Rig, amid: str, how: str, halves: int
) -> None:
    """All requests and answers arrive at multiples of `WAY`.

    So a step of half of it meets each of these instants, and one instant between each two of them.
    """
    holder, process, other = [await rig.process() for _ in range(3)]
    lease = await holder.lock("a").acquire()
    rivals: list[asyncio.Future[Lease]] = []
    if amid == "hand-over behind another":
        rivals.append(waiting(other))
        await asyncio.sleep(SETTLED)
    instant = halves * WAY / 2
    settled = 0.0 if amid == "arrival" else SETTLED
    options = {"blocking_timeout": settled + instant + WAY / 8} if how == "timeout" else {}
    each = waiting(process, **options)
    await asyncio.sleep(settled)
    released = None if amid == "arrival" else asyncio.ensure_future(lease.release())
    await asyncio.sleep(instant)
    if how == "cancel":
        each.cancel()
    elif how == "close":
        await process.redlock.aclose()
    if how == "timeout" and released is None:
        await asyncio.wait([each])
    if released is None:
        await asyncio.sleep(0.01)
        released = asyncio.ensure_future(lease.release())
    await released
    for rival in rivals:
        async with asyncio.timeout(HAND_OVER + 0.02):
            await (await rival).release()
    with suppress(asyncio.CancelledError, LockNotAcquired, RedlockClosed):
        await (await each).release()
    async with asyncio.timeout(0.02):
        await (await other.lock("a").acquire()).release()
    await asyncio.sleep(2 * NODE_TIMEOUT)
    assert members(rig) == [[], [], []]
    assert rig.clean


async def test_a_queue_of_killed_waiters_is_forgotten(rig: Rig) -> None:
    rig.occupy(KEY, ttl=600)
    line = await waiters(rig, 3)
    for process, each in line:
        kill(rig, process)
        each.cancel()
    assert [len(queue) for queue in members(rig)] == [3, 3, 3]
    # The third would have confirmed the queue after 50 s, and kept it for twice as long.
    await asyncio.sleep(101)
    assert members(rig) == [[], [], []]
    for process, _ in line:
        await process.redlock.aclose()


async def test_a_queue_lives_as_long_as_a_process_waits_in_it(rig: Rig) -> None:
    rig.occupy(KEY, ttl=600)
    line = await waiters(rig, 3)
    for _ in range(50):
        await asyncio.sleep(1)
        assert [len(queue) for queue in members(rig)] == [3, 3, 3]
    for _, each in line:
        each.cancel()
    await asyncio.wait([each for _, each in line])


# Expiry.


@pytest.mark.parametrize("way", [WAY, WAY / 100])
@pytest.mark.parametrize("micros", [0, 100, 500, 900])
async def test_a_lock_that_expires_is_asked_for_once_and_soon(
    rig: Rig, micros: int, way: float
) -> None:
    rig.ways[:] = [way] * 3
    ttl = 0.5 + micros / 1e6
    rig.occupy(KEY, ttl=ttl)
    expires = now() + ttl
    process = await rig.process()
    first = waiting(process)
    await asyncio.sleep(SETTLED)
    for server in rig.servers:
        server.forget_trackers()
    lease = await first
    assert 0 <= now() - expires < 0.01
    assert process.redlock.stats().attempts == 2
    await lease.release()


# Several names.


async def test_the_free_names_of_a_set_are_reserved_for_a_bounded_time(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    b = await other.lock("b", ttl=30).acquire()
    both = waiting(process, "a", "b")
    await asyncio.sleep(SETTLED)
    assert await other.lock("a").try_acquire() is None
    # The holder of "b" waits for "a": without an end of the keeping neither would ever go on.
    before = now()
    async with asyncio.timeout(10.5):
        a = await other.lock("a").acquire()
    assert now() - before > 1.0
    await a.release()
    await b.release()
    async with asyncio.timeout(10.5):
        await (await both).release()


# Without messages.


async def test_without_messages_a_release_is_seen_within_a_tenth_of_a_second_and_for_few_commands(
    rig: Rig,
) -> None:
    holder, process = await rig.process(), await silent_process(rig)
    lease = await holder.lock("a", ttl=60).acquire()
    asked = process.questions()
    first = waiting(process)
    await asyncio.sleep(2)
    # The first in the queue also tracks the key, where the servers can notify of that at least.
    assert 3 * 20 <= len(asked) <= 3 * 2 * 42
    for server in rig.servers:
        server.forget_trackers()
    before = now()
    await lease.release()
    await (await first).release()
    assert now() - before < 0.1 + 3 * WAY


async def test_processes_without_messages_are_served_in_order(rig: Rig) -> None:
    holder = await rig.process()
    lease = await holder.lock("a", ttl=60).acquire()
    order: list[int] = []
    line = []
    for number in range(4):
        each = waiting(await silent_process(rig))
        each.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]
        line.append(each)
        await asyncio.sleep(SETTLED)
    for each in line:
        await lease.release()
        lease = await each
    await lease.release()
    assert order == [0, 1, 2, 3]


@pytest.mark.parametrize("silent", [1, 2, 3])
async def test_processes_that_poll_and_processes_that_are_notified_do_not_starve_each_other(
    rig: Rig, silent: int
) -> None:
    processes = [await silent_process(rig) for _ in range(silent)]
    processes += [await rig.process() for _ in range(4 - silent)]
    figures = await compete(rig, processes, 30)
    assert min(figures.shares) > 0.8, figures.shares


async def test_a_process_that_hears_a_minority_only_polls(rig: Rig) -> None:
    holder, process = await rig.process(), rig.new_process()
    for node in process.nodes[:2]:
        node.__class__ = Silent
    await process.redlock.open()
    lease = await holder.lock("a", ttl=60).acquire()
    first = waiting(process)
    await asyncio.sleep(1)
    for server in rig.servers:
        server.forget_trackers()
    before = now()
    await lease.release()
    await (await first).release()
    # The request that is under way, the next request, and the attempt.
    assert now() - before < 0.1 + 5 * WAY


async def test_a_waiter_sends_no_request_for_a_renewal_by_a_holder_that_watches_its_key(
    rig: Rig,
) -> None:
    holder, process = await rig.process(ttl=9.0), await rig.process()
    lease = await holder.lock("a").acquire()
    await asyncio.sleep(0.2)
    asked = process.questions()
    first = waiting(process)
    await asyncio.sleep(60.0)
    looks = [command for command in asked if command.script.name == "stand"]
    assert not any(command.tracked for command in looks)
    # A refresh goes to each of the three nodes, and the refreshes come every 7.5 to 10 s.
    assert 3 * 60 / 10 - 3 <= len(looks) <= 3 * 60 / 7.5 + 3
    await lease.release()
    await (await first).release()


async def deleted_while_held(rig: Rig, holder: Process) -> tuple[Lease, float]:
    """Delete the key of a holder while another process waits.

    Return the holder's lease, and the seconds until the other process had released the lock.
    """
    process = await rig.process()
    lease = await holder.lock("a").acquire()
    await asyncio.sleep(0.2)
    first = waiting(process)
    await asyncio.sleep(1)
    before = now()
    for server in rig.servers:
        server.delete(b"a")
    await (await first).release()
    return lease, now() - before


async def test_the_first_waiter_gets_a_deleted_key_as_soon_as_the_holder_notices(rig: Rig) -> None:
    lease, seconds = await deleted_while_held(rig, await rig.process())
    assert lease.lost
    # The bound covers the report to the holder, its request to verify the loss, its release, the
    # message to the waiter, and the waiter's attempt.
    assert seconds < 8 * WAY


async def test_a_waiter_tracks_the_key_of_a_holder_that_does_not_watch_it(rig: Rig) -> None:
    _, seconds = await deleted_while_held(rig, await rig.process(owner=False))
    assert seconds <= 7 * WAY


async def test_a_waiter_sends_one_request_per_renewal_to_a_node_that_reports_renewals(
    rig: Rig,
) -> None:
    holder, process = await rig.process(ttl=9.0, owner=False), await rig.process()
    lease = await holder.lock("a").acquire()
    first = waiting(process)
    await asyncio.sleep(1)
    asked, renewals = process.questions(), 20
    await asyncio.sleep(3.0 * renewals)
    looks = [command for command in asked if command.script.name == "stand"]
    assert len(asked) == len(looks)
    # Two of the three nodes report renewals. The third is requested every 7.5 to 10 s.
    assert sum(command.tracked for command in looks) == pytest.approx(2 * renewals, abs=2)
    assert (
        3.0 * renewals / 10 - 1
        <= sum(not command.tracked for command in looks)
        <= 3.0 * renewals / 7.5
    )
    await lease.release()
    await (await first).release()


@pytest.mark.parametrize("rig", [1, 3], indirect=True)
async def test_a_renewal_causes_no_attempt_of_a_waiter(rig: Rig) -> None:
    holder, process = await rig.process(ttl=3.0), await rig.process()
    lease = await holder.lock("a").acquire()
    first = waiting(process)
    await asyncio.sleep(10)
    assert process.redlock.stats().attempts == 1
    await lease.release()
    await (await first).release()
