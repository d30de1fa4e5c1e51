"""The body of `async with`: cancelled on loss as asyncio.timeout would do it, and left as the
caller expects it.
"""

# Errors at the end of a body are the subject, so whole bodies stand inside pytest.raises.
# ruff: noqa: PT012
from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioredlock_ng import (
    AcquireTimeout,
    LockHeld,
    LockLost,
    QuorumUnreachable,
    RedlockClosed,
    RedlockError,
)
from tests.support.rig import WAY

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


def task() -> asyncio.Task[object]:
    current = asyncio.current_task()
    assert current is not None
    return current


class HTTPError(Exception):
    """As frameworks raise them through a handler."""


@pytest.mark.parametrize(
    ("hung", "timeout", "expected", "on_lost"),
    [
        ((), 0, LockHeld, "cancel"),
        ((), 0.1, AcquireTimeout, "flag"),
        ((0, 1), 0.1, QuorumUnreachable, "cancel"),
        ((0, 1), 0, QuorumUnreachable, "flag"),
    ],
)
async def test_no_body_begins_without_the_lock(
    rig: Rig, hung: tuple[int, ...], timeout: float, expected: type[Exception], on_lost: Any
) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    rig.hang(*hung)
    begun = []
    with pytest.raises(expected) as caught:
        async with process.lock("a", blocking_timeout=timeout, on_lost=on_lost):
            begun.append(1)
    assert type(caught.value) is expected
    assert not begun


async def test_a_body_is_cancelled_on_loss_and_its_finally_completes(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    steps: list[str] = []
    with pytest.raises(LockLost) as caught:
        async with process.lock("a"):
            rig.hang(0, 1, 2)
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.5)
                steps.append("rolled back")
    assert steps == ["rolled back"]
    assert caught.value.resource == "a"
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert task().cancelling() == 0
    await asyncio.sleep(0)


async def test_a_body_is_cancelled_no_later_than_its_deadline(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    with pytest.raises(LockLost):
        async with process.lock("a") as lease:
            rig.hang(0, 1, 2)
            deadline = now() + lease.remaining()
            try:
                await asyncio.sleep(60)
            finally:
                assert now() == pytest.approx(deadline, abs=1e-5)


async def test_an_outer_cancellation_in_the_same_tick_wins(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)

    async def hold() -> None:
        async with process.lock("a") as lease:
            rig.hang(0, 1, 2)
            asyncio.get_running_loop().call_later(lease.remaining(), holder.cancel)
            await asyncio.sleep(60)

    holder = asyncio.ensure_future(hold())
    await asyncio.wait([holder])
    assert holder.cancelled()
    assert process.redlock.stats().lost == 1


async def test_an_outer_timeout_in_the_same_tick_wins(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as timeout, process.lock("a") as lease:
            rig.hang(0, 1, 2)
            timeout.reschedule(now() + lease.remaining())
            await asyncio.sleep(60)
    assert task().cancelling() == 0


async def test_a_timeout_inside_the_body_stays_a_timeout(rig: Rig) -> None:
    process = await rig.process()
    async with process.lock("a") as lease:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.sleep(60)
        assert lease.valid


async def test_a_body_that_never_awaits_learns_of_its_loss_at_exit(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    with pytest.raises(LockLost):
        async with process.lock("a"):
            asyncio.get_running_loop().advance(5)  # type: ignore[attr-defined]
    assert task().cancelling() == 0
    await asyncio.sleep(0)


@pytest.mark.parametrize("on_lost", ["cancel", "flag"])
async def test_a_body_that_never_awaits_learns_at_exit_that_its_keys_were_deleted(
    rig: Rig, on_lost: Any
) -> None:
    process, rival = await rig.process(), await rig.process()
    with pytest.raises(LockLost, match="no longer held its key when it was released"):
        async with process.lock("a", on_lost=on_lost):
            rig.vacate(b"a")
            rig.occupy(b"a")
    assert task().cancelling() == 0
    assert rig.values(b"a") == [b"foreign"] * 3
    rig.vacate(b"a")
    await rival.lock("a").acquire()


async def test_keys_that_expired_after_the_deadline_are_no_loss(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    async with process.lock("a", auto_extend=False):
        await asyncio.sleep(0.98)
        # Its release comes when the keys are gone.
        rig.ways[:] = [0.04] * 3
    assert rig.clean


async def test_deleted_keys_are_a_note_on_the_bodys_own_error(rig: Rig) -> None:
    process = await rig.process()
    with pytest.raises(HTTPError) as caught:
        async with process.lock("a"):
            rig.vacate(b"a")
            raise HTTPError("409")
    assert any("was lost" in note for note in caught.value.__notes__)


async def test_a_body_that_ended_its_own_lease_leaves_without_an_error(rig: Rig) -> None:
    process = await rig.process()
    async with process.lock("a") as lease:
        assert await lease.release() is True
    async with process.lock("a") as lease:
        lease.abandon()


@pytest.mark.parametrize("how", ["lost", "overdue"])
@pytest.mark.parametrize("on_lost", ["cancel", "flag"])
async def test_a_body_does_not_begin_with_a_lease_that_has_already_ended(
    rig: Rig, on_lost: Any, how: str
) -> None:
    process = await rig.process(ttl=10.0)
    lock = process.lock("a", on_lost=on_lost)
    begun = []

    async def holder() -> None:
        async with lock:
            begun.append(1)

    record = asyncio.create_task(holder())
    await asyncio.sleep(0)

    def over() -> None:
        (lease,) = process.redlock.leases
        if how == "lost":
            lease.lose("while its caller was on its way")
        else:
            # The process does something else for longer than the ttl; the timer of the deadline has
            # no turn yet.
            asyncio.get_running_loop().advance(20)  # type: ignore[attr-defined]

    # Behind the answers, before their caller goes on.
    asyncio.get_running_loop().call_at(now() + 2 * WAY + 1e-10, over)
    with pytest.raises(
        QuorumUnreachable, match=r"the lease ended before this task ran: .*was lost after"
    ):
        await record
    assert not begun
    async with lock:
        begun.append(2)
    assert begun == [2]


async def test_the_body_is_not_cancelled_in_its_own_extend_though_another_task_extends_too(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=1.0)
    told: list[LockLost] = []

    async def extend_at(lease: Lease, instant: float) -> None:
        await asyncio.sleep(instant)
        await lease.extend()

    with pytest.raises(LockLost):
        async with process.lock("a", auto_extend=False) as lease:
            rig.hang(0, 1, 2)
            # Its round is over before the deadline, and the body's own is not.
            helper = asyncio.create_task(extend_at(lease, 0.87))
            try:
                await extend_at(lease, 0.93)
            except LockLost as error:
                told.append(error)
    assert told
    assert task().cancelling() == 0
    with pytest.raises(QuorumUnreachable):
        await helper


async def test_the_bodys_own_error_passes_through_unwrapped(rig: Rig) -> None:
    process = await rig.process()
    error = HTTPError("409")
    with pytest.raises(HTTPError) as caught:
        async with process.lock("a"):
            raise error
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    await asyncio.sleep(0.01)
    assert rig.clean


async def test_the_bodys_own_error_wins_over_the_loss_and_carries_a_note(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    with pytest.raises(HTTPError) as caught:
        async with process.lock("a"):
            rig.hang(0, 1, 2)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise HTTPError("503") from None
    assert "lost" in caught.value.__notes__[0]
    assert task().cancelling() == 0


async def test_the_loss_of_an_inner_lock_carries_a_note_about_the_loss_of_the_outer_lock(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=1.0)
    with pytest.raises(LockLost) as caught:
        async with process.lock("outer"), process.lock("inner") as inner:
            asyncio.get_running_loop().advance(5)  # type: ignore[attr-defined]
            inner.check()
    assert caught.value.resource == "inner"
    (note,) = caught.value.__notes__
    assert "'outer' was lost" in note


async def test_a_lease_lost_in_one_task_cancels_only_the_task_inside(rig: Rig) -> None:
    process = await rig.process(ttl=30.0)
    entered = asyncio.Event()

    async def hold(name: str) -> None:
        async with process.lock(name):
            entered.set()
            await asyncio.sleep(5)

    victim = asyncio.ensure_future(hold("a"))
    bystander = asyncio.ensure_future(hold("b"))
    waiting = asyncio.ensure_future(hold("a"))
    await entered.wait()
    await asyncio.sleep(1)
    rig.vacate(b"a")
    await asyncio.wait([victim, bystander, waiting])
    assert isinstance(victim.exception(), LockLost)
    assert bystander.exception() is None
    assert waiting.exception() is None


async def test_a_loss_found_by_check_is_raised_without_a_phantom_cancellation(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    went_on = False
    with pytest.raises(LockLost):
        async with process.lock("a") as lease:
            asyncio.get_running_loop().advance(5)  # type: ignore[attr-defined]
            with pytest.raises(LockLost):
                lease.check()
            await asyncio.sleep(0.1)
            assert task().cancelling() == 0
            went_on = True
    assert went_on, "the body was told by an exception, not cancelled as well"
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    "call",
    [
        "extend",
        "verify",
    ],
)
async def test_a_loss_found_by_extend_or_verify_is_raised_without_a_phantom_cancellation(
    rig: Rig, call: str
) -> None:
    process = await rig.process(ttl=30.0)
    went_on = False
    with pytest.raises(LockLost):
        async with process.lock("a") as lease:
            rig.vacate(b"a")
            with pytest.raises(LockLost):
                await getattr(lease, call)()
            await asyncio.sleep(0.1)
            assert task().cancelling() == 0
            went_on = True
    assert went_on, "the body was told by an exception, not cancelled as well"


@pytest.mark.parametrize("cancels", [1, 2, 5])
async def test_a_cancelled_exit_still_waits_until_a_quorum_has_released(
    rig: Rig, cancels: int
) -> None:
    process = await rig.process()

    async def hold() -> None:
        async with process.lock("a"):
            await asyncio.sleep(0.5)

    holder = asyncio.ensure_future(hold())
    await asyncio.sleep(0.4)
    rig.ways[:] = [0.02] * 3
    await asyncio.sleep(0.105)
    for _ in range(cancels):
        holder.cancel()
        await asyncio.sleep(0.001)
    await asyncio.wait([holder])
    assert holder.cancelled()
    assert [bool(keys) for keys in rig.keys()].count(False) >= 2  # noqa: SIM118


async def test_a_deadline_that_passes_during_an_extend_ends_it_at_the_deadline(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    with pytest.raises(LockLost):
        async with process.lock("a", auto_extend=False) as lease:
            rig.hang(0, 1, 2)
            deadline = now() + lease.remaining()
            await asyncio.sleep(lease.remaining() - 0.01)
            try:
                await lease.extend()
            finally:
                assert now() == pytest.approx(deadline, abs=1e-5)


async def test_on_lost_flag_cancels_nothing_and_the_exit_raises_the_loss(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    with pytest.raises(LockLost):
        async with process.lock("a", on_lost="flag") as lease:
            rig.hang(0, 1, 2)
            await asyncio.sleep(5)
            assert lease.lost
            with pytest.raises(LockLost):
                lease.check()
    assert task().cancelling() == 0


async def test_the_loss_of_a_lease_from_acquire_cancels_no_task(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    lease = await process.lock("a").acquire()
    rig.hang(0, 1, 2)
    await asyncio.sleep(5)
    assert lease.lost
    assert task().cancelling() == 0


async def test_a_lock_may_be_entered_and_left_in_different_tasks(rig: Rig) -> None:
    process = await rig.process()
    lock = process.lock("a")
    stack = contextlib.AsyncExitStack()
    lease = await asyncio.create_task(stack.enter_async_context(lock))
    assert lease.valid
    await asyncio.create_task(stack.aclose())
    await asyncio.sleep(0.01)
    assert rig.clean


async def over_and_held(process: Process) -> tuple[contextlib.AsyncExitStack, asyncio.Task[None]]:
    """One Lock object with two entries: a stack's, lost, whose task is alive; and a task's, held
    until it is cancelled.
    """
    lock = process.lock("a", on_lost="flag", max_hold=0.5)
    stack = contextlib.AsyncExitStack()
    lost, entered = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        lease = await stack.enter_async_context(lock)
        await lease.wait_lost()
        lost.set()
        await asyncio.sleep(3600)

    async def second() -> None:
        async with lock as lease:
            entered.set()
            try:
                await asyncio.sleep(3600)
            finally:
                assert lease.valid, "another's leaving must not end it"

    alive = asyncio.create_task(first())
    await lost.wait()
    holder = asyncio.create_task(second())
    holder.add_done_callback(lambda _: alive.cancel())
    await entered.wait()
    return stack, holder


async def end(holder: asyncio.Task[None]) -> None:
    holder.cancel()
    await asyncio.wait([holder])
    assert holder.cancelled()


async def test_leaving_in_another_task_never_releases_the_lease_of_a_task_that_is_inside(
    rig: Rig,
) -> None:
    process = await rig.process()
    stack, holder = await over_and_held(process)
    with pytest.raises(
        RedlockError, match="nothing was released, because it is unclear which of them ends; call"
    ):
        await stack.aclose()
    await asyncio.sleep(0.1)
    assert process.redlock.stats().held == 1
    await end(holder)
    await asyncio.sleep(0.01)
    assert rig.clean


async def test_the_bodys_own_error_wins_over_an_ambiguous_exit(rig: Rig) -> None:
    process = await rig.process()
    stack, holder = await over_and_held(process)
    with pytest.raises(HTTPError) as caught:
        async with stack:
            raise HTTPError("409")
    assert "nothing was released" in caught.value.__notes__[0]
    await end(holder)


async def test_a_lease_with_an_ambiguous_exit_is_released_when_the_other_entries_are_left(
    rig: Rig,
) -> None:
    process = await rig.process()
    lock = process.lock("a", on_lost="flag", max_hold=60)
    first, second = contextlib.AsyncExitStack(), contextlib.AsyncExitStack()
    lease = await asyncio.create_task(first.enter_async_context(lock))
    rig.vacate(b"a")
    await lease.wait_lost()
    again = await asyncio.create_task(second.enter_async_context(lock))
    with pytest.raises(RedlockError, match="unclear which of them ends"):
        await asyncio.create_task(second.aclose())
    assert again.valid
    # As many have been left now as there were.
    await asyncio.create_task(first.aclose())
    await asyncio.sleep(0.01)
    assert rig.clean
    async with lock as lease:
        assert lease.valid


async def test_the_entries_of_one_task_end_in_reverse_order(rig: Rig) -> None:
    process = await rig.process()
    lock = process.lock("a", on_lost="flag")
    with pytest.raises(LockLost):
        async with lock as outer:
            rig.vacate(b"a")
            await outer.wait_lost()
            async with lock as inner:
                assert inner.valid
            assert not inner.valid
            await asyncio.sleep(0.01)
            assert rig.clean


async def test_leaving_a_lock_that_was_not_entered_is_an_error(rig: Rig) -> None:
    process = await rig.process()
    lock = process.lock("a")
    with pytest.raises(RedlockError, match="no `async with` of this Lock object is open"):
        await lock.__aexit__(None, None, None)


async def test_an_exit_in_a_task_cancelled_from_outside_stays_a_cancellation_after_a_loss(
    rig: Rig,
) -> None:
    """The loss cancels the task that entered the lock, and that task has ended."""
    process = await rig.process()
    lock = process.lock("a")
    stack = contextlib.AsyncExitStack()
    lease = await asyncio.create_task(stack.enter_async_context(lock))

    async def body() -> None:
        async with stack:
            await asyncio.sleep(100)

    leaving = asyncio.create_task(body())
    await asyncio.sleep(0.1)
    rig.vacate(b"a")
    await lease.wait_lost()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert leaving.cancelled()


async def test_a_loss_cancels_a_body_behind_an_anyio_shield(rig: Rig) -> None:
    """A shield keeps out the cancellation of anyio's scopes, not that of `asyncio.timeout` or of a
    lost lock.
    """
    process = await rig.process()
    went_on = False
    with pytest.raises(LockLost):
        async with process.lock("a"):
            await asyncio.sleep(1)
            rig.vacate(b"a")
            with anyio.CancelScope(shield=True):
                await asyncio.sleep(60)
                went_on = True
    assert not went_on
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            with anyio.CancelScope(shield=True):
                await asyncio.sleep(60)


async def test_nested_locks_are_released_innermost_first_and_the_outer_loss_ends_both(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=30.0)
    with pytest.raises(LockLost, match="'outer'"):
        async with process.lock("outer"), process.lock("inner") as inner:
            await asyncio.sleep(1)
            rig.vacate(b"outer")
            await asyncio.sleep(60)
    assert not inner.lost
    await asyncio.sleep(0.01)
    assert rig.clean


async def test_a_lock_held_by_this_very_task_is_no_deadlock(rig: Rig) -> None:
    process = await rig.process()
    async with process.lock("a"):
        with pytest.raises(LockHeld):
            await process.lock("a").acquire()


@pytest.mark.parametrize("kind", ["asyncio", "anyio"])
async def test_a_task_group_inside_the_body_is_ended_by_the_loss(rig: Rig, kind: str) -> None:
    process = await rig.process(ttl=30.0)
    ended: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("child")

    with pytest.raises(LockLost):
        async with process.lock("a"):
            if kind == "asyncio":
                async with asyncio.TaskGroup() as group:
                    group.create_task(child())
                    await asyncio.sleep(1)
                    rig.vacate(b"a")
            else:
                async with anyio.create_task_group() as scope:
                    scope.start_soon(child)
                    await asyncio.sleep(1)
                    rig.vacate(b"a")
    assert ended == ["child"]


async def test_an_exit_under_a_cancelled_anyio_scope_releases_all_the_same(rig: Rig) -> None:
    process = await rig.process()
    with anyio.CancelScope() as scope:
        async with process.lock("a"):
            scope.cancel()
            await asyncio.sleep(60)
    assert scope.cancelled_caught
    await asyncio.sleep(0.01)
    assert rig.clean


@pytest.mark.parametrize("way", ["release", "aclose"])
async def test_under_a_cancelled_anyio_scope_slow_nodes_are_waited_for_and_nothing_spins(
    rig: Rig, way: str
) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    rig.ways[:] = [0.02] * 3
    began = asyncio.get_running_loop().time()
    with anyio.CancelScope() as scope:
        scope.cancel()
        # Unshielded, it would be cancelled again at each step of the loop, and virtual time stand
        # still.
        await (lease.release() if way == "release" else process.redlock.aclose())
    assert scope.cancelled_caught
    assert now() - began == pytest.approx(0.04, abs=1e-6)
    assert rig.clean


async def test_closing_the_manager_ends_the_body_and_releases(rig: Rig) -> None:
    process = await rig.process()

    async def hold() -> None:
        async with process.lock("a"):
            await asyncio.sleep(60)

    holder = asyncio.ensure_future(hold())
    await asyncio.sleep(0.1)
    await process.redlock.aclose()
    await asyncio.wait([holder])
    assert isinstance(holder.exception(), LockLost)
    assert "closed" in str(holder.exception())
    assert rig.clean


@pytest.mark.parametrize("how", ["acquire", "try_acquire", "enter"])
@pytest.mark.parametrize("halves", range(6))
async def test_closing_at_any_instant_of_an_acquire_leaves_no_key_and_no_unguarded_body(
    rig: Rig, how: str, halves: int
) -> None:
    process = await rig.process()
    unguarded = False

    async def work() -> None:
        nonlocal unguarded
        lock = process.lock("a")
        if how == "enter":
            async with lock as lease:
                unguarded = not lease.valid
                await asyncio.sleep(60)
                unguarded = True
        else:
            await getattr(lock, how)()

    working = asyncio.ensure_future(work())
    await asyncio.sleep(halves * WAY / 2)
    await process.redlock.aclose()
    await asyncio.wait([working])
    assert not unguarded
    if how == "enter":
        assert isinstance(working.exception(), (LockLost, RedlockClosed))
    elif working.exception() is not None:
        assert isinstance(working.exception(), RedlockClosed)
    await asyncio.sleep(0.3)
    assert rig.clean


async def test_one_lock_object_serves_many_tasks(rig: Rig) -> None:
    process = await rig.process()
    lock = process.lock("a")
    inside = 0

    async def work() -> None:
        nonlocal inside
        async with lock as lease:
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.001)
            lease.check()
            inside -= 1

    await asyncio.gather(*(work() for _ in range(50)))
    await asyncio.sleep(0.01)
    assert rig.clean


async def test_a_body_whose_own_timeout_beats_the_answer_to_its_extend_is_cancelled(
    rig: Rig,
) -> None:
    """The loss would have been raised by `extend`; the timeout that fires in the same instant
    throws that away.
    """
    process = await rig.process(ttl=1.0)
    went_on = False
    with pytest.raises(LockLost):
        async with process.lock("a") as lease:
            rig.hang(0, 1, 2)
            await asyncio.sleep(lease.remaining() - 0.05)
            with pytest.raises((TimeoutError, LockLost)):
                async with asyncio.timeout(lease.remaining()):
                    await lease.extend()
            assert lease.lost
            await asyncio.sleep(0.1)
            went_on = True
    assert not went_on
    assert task().cancelling() == 0


@pytest.mark.parametrize("look", ["lost", "wait_lost", "repr"])
async def test_a_task_that_inspects_its_expired_lease_is_still_cancelled(
    rig: Rig, look: str
) -> None:
    process = await rig.process(ttl=1.0)
    went_on = False
    with pytest.raises(LockLost):
        async with process.lock("a") as lease:
            asyncio.get_running_loop().advance(5)  # type: ignore[attr-defined]
            if look == "lost":
                assert lease.lost
            elif look == "wait_lost":
                await lease.wait_lost()
            else:
                assert repr(lease)
            await asyncio.sleep(0.1)
            went_on = True
    assert not went_on


async def test_a_lock_whose_lease_is_over_is_waited_for_by_its_last_holder_too(rig: Rig) -> None:
    """Its deadline has passed, though no timer has come round: that is no deadlock."""
    process = await rig.process(ttl=1.0)
    with contextlib.suppress(LockLost):
        async with process.redlock.lock("a", on_lost="flag") as lease:
            asyncio.get_running_loop().advance(5)  # type: ignore[attr-defined]
            assert not lease.valid
            again = await process.lock("a").acquire()
            assert again.valid


async def test_code_outside_of_any_task_is_not_taken_for_the_holder(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    driven = process.lock("a").acquire()
    asyncio.get_running_loop().call_soon(driven.send, None)
    await asyncio.sleep(0.01)
    assert process.redlock.stats().waiting == 1
    driven.close()
    assert process.redlock.stats().waiting == 0
    await lease.release()
    await asyncio.sleep(0.1)
    assert rig.clean


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 has no eager tasks")
@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_loss_found_by_an_eager_task_of_the_body_cancels_the_body_only_inside_it(
    rig: Rig, goes_on: bool
) -> None:
    """The body's task runs while the eager task finds the loss. Before Python 3.13, a cancellation
    at this moment could not be taken back.
    """
    process = await rig.process(ttl=1.0)
    loop = asyncio.get_running_loop()
    went_on = False

    async def write(lease: Lease) -> None:
        lease.check()

    with pytest.raises(LockLost):
        async with process.lock("a") as lease:
            loop.advance(5)  # type: ignore[attr-defined]
            writer = asyncio.eager_task_factory(loop, write(lease))  # type: ignore[attr-defined]
            if goes_on:
                await asyncio.sleep(0)
                went_on = True
    assert not went_on
    assert task().cancelling() == 0
    await asyncio.sleep(0.1)
    assert isinstance(writer.exception(), LockLost)
