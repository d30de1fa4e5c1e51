"""aioredlock's names mean what they mean in aioredlock 0.7.3, and `valid` tells the truth; on real
servers.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import ConfigurationError, Redlock
from aioredlock_ng._core.replies import KeyState
from aioredlock_ng._core.votes import Garbled
from aioredlock_ng._scripts import Command
from aioredlock_ng.compat import aioredlock
from aioredlock_ng.compat.aioredlock import (
    Aioredlock,
    Lock,
    LockAcquiringError,
    LockError,
    LockRuntimeError,
    _access,
)
from aioredlock_ng.compat.aioredlock import lock as lock_module
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.node_set import NodeSet

    Make = Callable[..., Aioredlock]

EXPIRING: dict[str, Any] = {"node_timeout": 0.4, "retry_count": 100}
"""Settings for locks of half a second. After a pause of the machine, the lock is taken again."""


@pytest.mark.parametrize(
    ("reply", "record"),
    [
        (1, KeyState.OURS),
        (0, KeyState.MISSING),
        (2, KeyState.FOREIGN),
        *((reply, None) for reply in (3, -1, True, 1.0, b"1", [1], None)),
    ],
)
def test_a_reply_to_a_prolongation_is_decoded_or_has_no_vote(
    reply: Any, record: KeyState | None
) -> None:
    read = Command(_access._PROLONG, (b"a",), (b"t", 1000)).read(reply)
    assert type(read) is Garbled if record is None else read is record


def test_every_public_name_of_aioredlock_is_here() -> None:
    wanted = {
        "Aioredlock",
        "Lock",
        "LockError",
        "LockAcquiringError",
        "LockRuntimeError",
        "Sentinel",
    }
    assert wanted <= set(aioredlock.__all__)
    assert issubclass(LockAcquiringError, LockError)
    assert issubclass(LockRuntimeError, LockError)
    assert issubclass(LockError, aioredlock.AioredlockError)


def test_making_a_manager_warns_at_the_line_that_makes_it() -> None:
    with pytest.warns(DeprecationWarning, match=r"use aioredlock_ng\.Redlock") as caught:
        Aioredlock()
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "name", ["retry_count", "retry_delay_min", "retry_delay_max", "internal_lock_timeout"]
)
@pytest.mark.parametrize(
    ("value", "error"), [(-1, ValueError), (0, ValueError), ("word", ValueError), (None, TypeError)]
)
def test_unusable_settings_are_refused(name: str, value: object, error: type[Exception]) -> None:
    with pytest.deprecated_call(), pytest.raises(error, match=f"^{name} must be"):
        Aioredlock(**{name: value})  # type: ignore[arg-type]


def test_a_count_that_is_too_large_is_refused() -> None:
    with pytest.deprecated_call(), pytest.raises(ValueError, match=r"^retry_count must be from 1"):
        Aioredlock(retry_count=10**400)


async def test_an_error_names_the_argument_that_the_caller_wrote(
    one_node: NodeSet, manager_of: Make
) -> None:
    with pytest.raises(ValueError, match=r"^internal_lock_timeout=61 is above max_ttl=60"):
        manager_of(one_node.urls, internal_lock_timeout=61, recovery_guard="auto")
    manager = manager_of(one_node.urls)
    with pytest.raises(
        ValueError,
        match=r"^lock_timeout=0\.2 is too small .* raise lock_timeout or lower node_timeout$",
    ):
        await manager.lock("order", lock_timeout=0.2)
    with pytest.raises(ValueError, match=r"^lock_timeout=0\.2 is too small"):
        await manager.extend(Lock(manager, "order", "worker-7", valid=True), 0.2)


async def test_locks_of_one_line_have_identifiers_of_their_own(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls, retry_count=50)
    first = await manager.lock("order")
    waiting = [asyncio.ensure_future(manager.lock("order")) for _ in range(3)]
    await asyncio.sleep(0)
    await manager.unlock(first)
    seen = {first.id}
    for one in waiting:
        lock = await one
        seen.add(lock.id)
        await manager.unlock(lock)
    assert len(seen) == 4


async def test_a_lock_is_taken_extended_and_released(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls)
    assert await manager.is_locked("order") is False
    lock = await manager.lock("order")
    assert lock.valid is True
    assert (lock.resource, lock.lock_timeout, lock.lock_manager) == ("order", None, manager)
    assert await manager.is_locked("order") is True
    await manager.extend(lock)
    await lock.extend()
    assert lock.valid is True
    assert await lock.is_locked() is True
    await manager.unlock(lock)
    assert lock.valid is False
    assert await manager.is_locked(lock) is False


async def test_the_nodes_have_the_keys_of_aioredlock_and_nothing_else(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    for node in three_nodes:
        node.command("FLUSHALL")
    lock = await manager_of(three_nodes.urls).lock("order", lock_timeout=30)
    lease = lock.lease
    assert lease is not None
    # By then ours, by its own name, has put everything there that it ever does.
    await eventually(lambda: lease.remaining() < 29.2)
    for node in three_nodes:
        assert node.command("GET", "order").decode() == lock.id
        assert 20_000 < int(node.command("PTTL", "order")) <= 30_000
        assert node.command("DBSIZE") == b"1"
    await lock.release()


async def test_locks_of_two_resources_do_not_meet(three_nodes: NodeSet, manager_of: Make) -> None:
    manager = manager_of(three_nodes.urls)
    first, second = await manager.lock("one"), await manager.lock("two")
    await manager.unlock(first)
    assert (first.valid, second.valid) == (False, True)
    await manager.unlock(second)
    assert (await manager.is_locked("one"), await manager.is_locked("two")) == (False, False)


async def test_a_held_lock_is_an_ordinary_refusal_after_the_time_of_its_tries(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    holder, other = manager_of(three_nodes.urls), manager_of(three_nodes.urls, retry_count=3)
    lock = await holder.lock("order")
    await other.is_locked("order")
    for manager in (holder, other):
        began = time.monotonic()
        with pytest.raises(LockAcquiringError, match="order"):
            await manager.lock("order")
        assert 0.35 < time.monotonic() - began < 10
    assert lock.valid
    await lock.release()


async def test_one_try_does_not_wait(three_nodes: NodeSet, manager_of: Make) -> None:
    lock = await manager_of(three_nodes.urls).lock("order")
    with pytest.raises(LockAcquiringError):
        await manager_of(three_nodes.urls, retry_count=1).lock("order")
    await lock.release()


async def test_a_waiting_lock_is_woken_by_the_release(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    holder, waiter = manager_of(three_nodes.urls), manager_of(three_nodes.urls, retry_count=100)
    lock = await holder.lock("order")
    waiting = asyncio.create_task(waiter.lock("order"))
    await eventually(lambda: waiter._access._redlock.stats().waiting if waiter._access._open else 0)
    await holder.unlock(lock)
    assert (await waiting).valid
    await waiter.unlock(waiting.result())


async def test_a_cancelled_lock_leaves_no_key(three_nodes: NodeSet, manager_of: Make) -> None:
    holder, waiter = manager_of(three_nodes.urls), manager_of(three_nodes.urls, retry_count=100)
    lock = await holder.lock("order")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waiter.lock("order"), 0.1)
    await holder.unlock(lock)
    assert await holder.is_locked("order") is False


@pytest.mark.faults
async def test_no_majority_is_the_other_kind_of_error(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls, retry_count=2, node_timeout=1.0)
    lock = await manager.lock("order")
    lapsing = await manager.lock("lapsing", lock_timeout=3)
    three_nodes.pause(0)
    three_nodes.pause(1)
    try:
        with pytest.raises(LockRuntimeError, match="another"):
            await manager.lock("another")
        with pytest.raises(LockRuntimeError):
            await manager.extend(lock)
        assert lock.valid, "a renewal that nobody confirmed is not a loss"
        assert await manager.is_locked("order") is False
        with pytest.raises(LockRuntimeError):
            await manager.get_lock("order", lock.id)
        await eventually(lambda: not lapsing.valid)
        with pytest.raises(LockRuntimeError):
            await manager.unlock(lapsing)
    finally:
        three_nodes.restore()
    await manager.unlock(lock)


@pytest.mark.faults
async def test_a_minority_that_is_gone_stops_no_lock(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    three_nodes.crash(0)
    manager = manager_of(three_nodes.urls)
    async with await manager.lock("order") as lock:
        await lock.extend()
        assert await manager.is_locked("order")
    assert not lock.valid


@pytest.mark.faults
async def test_one_node_down_one_held_and_one_free_are_an_ordinary_refusal(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls, retry_count=1)
    three_nodes.crash(0)
    three_nodes[1].command("SET", "order", "another's", "PX", "30000")
    with pytest.raises(LockAcquiringError, match="held by another"):
        await manager.lock("order")


async def test_valid_turns_false_when_the_keys_are_gone(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls)
    watched, timed = await manager.lock("watched"), await manager.lock("timed", lock_timeout=30)
    assert watched.valid
    assert timed.valid
    for node in three_nodes:
        node.command("DEL", "watched", "timed")
    await eventually(lambda: not watched.valid and not timed.valid)
    with pytest.raises(RuntimeError, match="not valid"):
        await manager.extend(watched)
    await manager.unlock(watched)
    await timed.release()


async def test_valid_turns_false_when_the_timeout_is_over(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls, **EXPIRING)
    lock = await manager.lock("order", lock_timeout=0.5)
    assert lock.lock_timeout == 0.5
    await eventually(lambda: not lock.valid)
    with pytest.raises(RuntimeError):
        await lock.extend()
    await manager.unlock(lock)


async def test_a_lock_without_timeout_outlives_it(three_nodes: NodeSet, manager_of: Make) -> None:
    manager = manager_of(three_nodes.urls, internal_lock_timeout=5, node_timeout=2.0)
    lock = await manager.lock("order")
    stats = manager._access._redlock.stats
    await eventually(lambda: stats().renewals >= 4, within=20)
    assert lock.valid
    assert await manager.is_locked("order")
    await manager.unlock(lock)


async def test_an_extension_sets_the_given_ttl_or_the_ttl_of_the_lock(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls)
    lock = await manager.lock("order", lock_timeout=20)
    await manager.extend(lock, lock_timeout=50)
    assert int(three_nodes[0].command("PTTL", "order")) > 40_000
    await lock.extend()
    assert 10_000 < int(three_nodes[0].command("PTTL", "order")) <= 20_000
    for bad in (0, -1):
        with pytest.raises(ValueError, match="lock_timeout must be a finite positive number"):
            await manager.extend(lock, bad)
        with pytest.raises(ValueError, match="lock_timeout must be a finite positive number"):
            await manager.lock("another", bad)
    await manager.unlock(lock)


async def test_unlocking_a_lock_that_another_client_holds_now_is_refused(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    old = manager_of(three_nodes.urls, **EXPIRING)
    new = manager_of(three_nodes.urls, retry_count=100)
    lost = await old.lock("order", lock_timeout=0.5)
    taken = await new.lock("order")
    with pytest.raises(LockAcquiringError, match="another client holds it"):
        await old.unlock(lost)
    assert taken.valid
    assert await new.is_locked("order")
    await new.unlock(taken)
    await old.unlock(lost)
    await old.unlock(lost)


async def test_leaving_the_context_releases_also_after_an_error(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager, locks = manager_of(three_nodes.urls), []

    async def fails() -> None:
        async with await manager.lock("order") as lock:
            locks.append(lock)
            raise KeyError(lock.valid)

    with pytest.raises(KeyError, match="True"):
        await fails()
    assert not locks[0].valid
    assert not await manager.is_locked("order")


async def test_extending_a_lost_lock_is_refused(three_nodes: NodeSet, manager_of: Make) -> None:
    manager = manager_of(three_nodes.urls)
    lock = await manager.lock("order")
    for node in three_nodes:
        node.command("SET", "order", "another's", "PX", "30000")
    with pytest.raises((LockAcquiringError, RuntimeError), match=r"lost|not valid"):
        await manager.extend(lock)
    assert not lock.valid
    with pytest.raises(LockAcquiringError, match="another client holds it"):
        async with lock:
            pass


async def test_a_lock_released_meanwhile_cannot_be_extended(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls)
    lock = await manager.lock("order")
    extending = asyncio.create_task(manager.extend(lock))
    await asyncio.sleep(0)
    await manager.unlock(lock)
    with pytest.raises(RuntimeError, match="released meanwhile"):
        await extending
    assert not await manager.is_locked("order")


async def test_an_exception_of_the_body_wins_over_a_lock_that_another_has(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    old, new, begun = (
        manager_of(three_nodes.urls, **EXPIRING),
        manager_of(three_nodes.urls, retry_count=100),
        asyncio.Event(),
    )

    async def loses() -> None:
        async with await old.lock("order", lock_timeout=0.5):
            begun.set()
            await asyncio.get_running_loop().create_future()

    losing = asyncio.create_task(loses())
    await begun.wait()
    taken = await new.lock("order")
    losing.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await losing
    assert "another client holds it" in caught.value.__notes__[0]
    await taken.release()


@pytest.mark.parametrize("resource", [42, 4.5, b"raw\xff"])
async def test_every_key_that_aioredis_accepts_is_a_name(
    resource: Any, three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls, retry_count=1)
    async with await manager.lock(resource) as lock:
        assert lock.resource == resource
        assert await lock.is_locked()
        with pytest.raises(LockAcquiringError):
            await manager.lock(resource)
        if not isinstance(resource, bytes):
            await eventually(lambda: three_nodes.keys() == [{str(resource)}] * 3)


@pytest.mark.parametrize("resource", [["order"], {}, None, True, "\ud800", ""])
async def test_a_resource_that_cannot_be_a_name_is_refused_before_anything_is_sent(
    resource: Any, manager_of: Make
) -> None:
    manager = manager_of(["redis://127.0.0.1:1"])
    by_hand = Lock(manager, resource, "0123", valid=True)
    calls = (
        lambda: manager.lock(resource),
        lambda: manager.get_lock(resource, "0123"),
        lambda: manager.extend(by_hand),
        lambda: manager.unlock(by_hand),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"^resource "):
            await call()


@pytest.mark.parametrize("given", ["order", b"order", None])
async def test_unlock_and_extend_take_locks_only(given: Any, manager_of: Make) -> None:
    manager = manager_of(["redis://127.0.0.1:1"])
    kind = type(given).__name__
    with pytest.raises(TypeError, match=rf"unlock\(\) takes a Lock, not {kind}; pass the Lock"):
        await manager.unlock(given)
    with pytest.raises(TypeError, match=rf"extend\(\) takes a Lock, not {kind}; pass the Lock"):
        await manager.extend(given)


async def test_an_identifier_that_cannot_be_a_token_is_refused(manager_of: Make) -> None:
    manager = manager_of(["redis://127.0.0.1:1"])
    by_hand = Lock(manager, "order", "\ud800", valid=True)
    calls = (
        lambda: manager.get_lock("order", "\ud800"),
        lambda: manager.extend(by_hand),
        lambda: manager.unlock(by_hand),
    )
    for call in calls:
        with pytest.raises(ConfigurationError, match=r"^identifier .* has a lone surrogate"):
            await call()


async def test_is_locked_takes_names_and_locks_only(three_nodes: NodeSet, manager_of: Make) -> None:
    manager = manager_of(three_nodes.urls)
    with pytest.raises(TypeError, match="not int"):
        await manager.is_locked(12345)  # type: ignore[arg-type]
    three_nodes[0].command("SET", "order", "someone's")
    assert not await manager.is_locked("order")
    three_nodes[1].command("SET", "order", "another's")
    assert await manager.is_locked("order")


async def test_an_identifier_finds_its_lock_again(three_nodes: NodeSet, manager_of: Make) -> None:
    manager, other = manager_of(three_nodes.urls), manager_of(three_nodes.urls, retry_count=1)
    lock = await manager.lock("order", lock_timeout=20, lock_identifier="worker-7")
    assert lock.id == "worker-7"
    again = await manager.get_lock("order", "worker-7")
    assert again == lock
    assert again.valid
    assert again.lock_timeout is not None
    assert 15 <= again.lock_timeout <= 20
    asked = await manager.lock("order", lock_timeout=40, lock_identifier="worker-7")
    assert int(three_nodes[0].command("PTTL", "order")) > 30_000
    with pytest.raises(ValueError, match=r"lock_timeout=20 .* pass a lock_timeout again"):
        await manager.lock("order", lock_identifier="worker-7")
    for wrong in ("worker-8", ""):
        with pytest.raises(LockAcquiringError):
            await manager.get_lock("order", wrong)
    with pytest.raises(LockAcquiringError):
        await other.lock("order", lock_identifier="worker-7")
    await again.release()
    assert not any(one.valid for one in (lock, again, asked))
    with pytest.raises(LockAcquiringError):
        await manager.get_lock("order", "worker-7")


async def test_releasing_an_expired_lock_does_not_forget_the_later_lock_of_its_identifier(
    one_node: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(one_node.urls, retry_count=100)
    before = await manager.lock("order", lock_timeout=4, lock_identifier="worker-7")
    await eventually(lambda: not before.valid)
    await eventually(lambda: one_node.keys() == [set()])  # the key outlives the lease by the drift
    later = await manager.lock("order", lock_timeout=20, lock_identifier="worker-7")
    with pytest.raises(LockAcquiringError, match="another client holds it now"):
        await before.release()
    assert await manager.get_active_locks() == [later]
    assert (await manager.get_lock("order", "worker-7")).lease == later.lease


async def test_a_lock_of_another_manager_counts_down_the_ttl_on_the_nodes(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager, other = manager_of(three_nodes.urls), manager_of(three_nodes.urls)
    lock = await manager.lock("order", lock_timeout=6)
    found = await other.get_lock("order", lock.id)
    assert found.valid
    assert found.lease is None
    assert await found.is_locked()
    await eventually(lambda: not found.valid)
    await eventually(lambda: three_nodes.keys() == [set()] * 3)
    await other.unlock(found)
    for node in three_nodes:
        node.command("SET", "order", "forever")
    found = await other.get_lock("order", "forever")
    assert found.lock_timeout is None
    assert found.valid


async def test_a_lock_of_another_manager_runs_out_while_the_machine_sleeps(
    one_node: NodeSet, manager_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = 0.0
    monkeypatch.setattr(lock_module, "boottime", lambda: time.monotonic() + slept)
    one_node[0].command("SET", "order", "old-token", "PX", "20000")
    manager = manager_of(one_node.urls)
    found = await manager.get_lock("order", "old-token")
    # A shorter extension does not end the lock earlier.
    await manager.extend(found, 5)
    # Only a clock that advances during suspend moves by these times.
    slept = 10.0
    assert found.valid
    slept = 30.0
    assert not found.valid


@pytest.mark.parametrize("identifier", [None, "worker-7"])
async def test_a_lock_made_by_hand_from_name_and_identifier_is_unlocked_and_its_renewal_ends(
    identifier: str | None, three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls)
    lock = await manager.lock("order", lock_identifier=identifier)
    await manager.unlock(Lock(manager, "order", lock.id))
    assert not lock.valid
    assert manager._access._redlock.leases == ()
    assert not await manager.is_locked("order")
    assert await manager.get_active_locks() == []


@pytest.mark.parametrize("identifier", [None, "worker-7"])
async def test_a_lock_made_by_hand_from_name_and_identifier_is_extended(
    identifier: str | None, three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls)
    lock = await manager.lock("order", lock_timeout=10, lock_identifier=identifier)
    again = Lock(manager, "order", lock.id, valid=True)
    await manager.extend(again, 50)
    assert lock.lease is not None
    assert lock.lease.remaining() > 40
    assert int(three_nodes[0].command("PTTL", "order")) > 40_000
    await again.release()
    assert (again.valid, lock.valid) == (False, False)
    with pytest.raises(RuntimeError, match="pass valid=True"):
        await manager.extend(Lock(manager, "order", lock.id))


async def test_the_identifier_on_the_nodes_names_a_lock_as_the_one_that_was_chosen_does(
    one_node: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(one_node.urls, retry_count=100)
    lock = await manager.lock("order", lock_identifier="worker-7")
    token = one_node[0].command("GET", "order").decode()
    assert (await manager.get_lock("order", token)).lease == lock.lease
    await manager.unlock(Lock(manager, "order", token))
    assert not lock.valid


async def test_a_number_and_its_text_name_the_same_lock(
    one_node: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(one_node.urls, retry_count=100)
    for written in (42, "42", b"42"):
        lock = await manager.lock("42", lock_identifier="worker-7")
        await manager.unlock(Lock(manager, written, "worker-7"))
        assert not lock.valid


@pytest.mark.parametrize(
    "options", [{}, {"fencing": True, "recovery_guard": "auto"}], ids=["plain", "fenced"]
)
async def test_another_manager_unlocks_by_the_identifier_and_the_holder_loses_its_lock_at_once(
    options: dict[str, Any], three_nodes: NodeSet, manager_of: Make
) -> None:
    manager, other = (
        manager_of(three_nodes.urls, **options),
        manager_of(three_nodes.urls, **options),
    )
    renewed, found = await manager.lock("renewed"), await manager.lock("found", lock_timeout=30)
    await other.unlock(Lock(other, "renewed", renewed.id))
    await (await other.get_lock("found", found.id)).release()
    assert not await other.is_locked("renewed")
    assert not await other.is_locked("found")
    await eventually(lambda: not renewed.valid and not found.valid)
    assert manager._access._redlock.leases == ()
    # No error when nobody has it.
    await other.unlock(Lock(other, "renewed", renewed.id))


async def test_another_manager_extends_by_the_identifier_and_never_shortens_a_life(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager, other = manager_of(three_nodes.urls), manager_of(three_nodes.urls)
    lock = await manager.lock("order", lock_timeout=20)

    def left() -> list[int]:
        return [int(node.command("PTTL", "order")) for node in three_nodes]

    found = await other.get_lock("order", lock.id)
    await found.extend()
    for ours in (Lock(other, "order", lock.id, valid=True), found):
        await other.extend(ours, 5)
        assert ours.valid
    assert min(left()) > 15_000
    await other.extend(Lock(other, "order", lock.id, valid=True), 50)
    await eventually(lambda: min(left()) > 40_000)
    assert lock.valid
    await lock.release()


async def test_a_lock_that_was_extended_by_its_identifier_is_valid_for_the_time_it_was_given(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    lock = await manager_of(three_nodes.urls).lock("order", lock_timeout=20)
    other = manager_of(three_nodes.urls)
    again = Lock(other, "order", lock.id, valid=True)
    await other.extend(again, 6)
    assert again.valid
    await eventually(lambda: not again.valid)
    with pytest.raises(RuntimeError, match="not valid"):
        await other.extend(again)


@pytest.mark.parametrize("identifier", ["77", b"77", 77])
async def test_every_identifier_that_aioredis_accepts_finds_the_lock_of_an_old_process(
    identifier: Any, one_node: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(one_node.urls)
    one_node[0].command("SET", "order", "77", "PX", "20000")
    found = await manager.get_lock("order", identifier)
    assert (found.id, found.valid) == (identifier, True)
    await found.extend()
    await found.release()
    assert one_node.keys() == [set()]


async def test_an_unknown_identifier_is_refused_by_unlock_and_extend(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager, other = manager_of(three_nodes.urls), manager_of(three_nodes.urls, retry_count=1)
    lock = await manager.lock("order", lock_identifier="worker-7")
    for stranger in (manager, other):
        with pytest.raises(LockAcquiringError, match="hold another identifier"):
            await stranger.unlock(Lock(stranger, "order", "worker-8"))
        unknown = Lock(stranger, "order", "worker-8", valid=True)
        with pytest.raises(LockAcquiringError, match="is not held by this identifier"):
            await stranger.extend(unknown)
        assert not unknown.valid
    # The identifier that lock() was given is not on the nodes.
    with pytest.raises(LockAcquiringError, match="only the manager that acquired a lock knows"):
        await other.unlock(Lock(other, "order", "worker-7"))
    assert lock.valid
    assert manager._access._redlock.leases == (lock.lease,)
    await lock.release()
    with pytest.raises(LockAcquiringError, match="is not held by this identifier"):
        await other.extend(Lock(other, "order", "worker-7", valid=True))


async def test_extending_by_an_identifier_works_on_every_server_and_leaves_other_keys_alone(
    node_of_each_version: NodeSet, manager_of: Make
) -> None:
    manager, node = manager_of(node_of_each_version.urls, retry_count=1), node_of_each_version[0]
    node.command("SET", "order", "old-token", "PX", "5000")
    await manager.extend(Lock(manager, "order", "old-token", valid=True), 30)
    assert int(node.command("PTTL", "order")) > 20_000
    node.command("SET", "order", "old-token")
    await manager.extend(Lock(manager, "order", "old-token", valid=True), 30)
    assert node.command("PTTL", "order") == b"-1"
    node.command("DEL", "order")
    node.command("LPUSH", "order", "old-token")
    with pytest.raises(LockAcquiringError, match="not held by this identifier"):
        await manager.extend(Lock(manager, "order", "old-token", valid=True), 30)
    assert node.command("LLEN", "order") == b"1"


@pytest.mark.faults
async def test_without_a_majority_an_identifier_is_neither_extended_nor_unlocked(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    lock = await manager_of(three_nodes.urls).lock("order", lock_timeout=30)
    other = manager_of(three_nodes.urls, retry_count=2)
    again = Lock(other, "order", lock.id, valid=True)
    await other.is_locked("order")
    three_nodes.pause(0)
    three_nodes.pause(1)
    try:
        with pytest.raises(LockRuntimeError, match="no quorum confirmed it"):
            await again.extend()
        assert again.valid
        with pytest.raises(LockRuntimeError):
            await again.release()
    finally:
        three_nodes.restore()
    assert lock.valid
    await lock.release()


async def test_the_active_locks_are_the_valid_locks(three_nodes: NodeSet, manager_of: Make) -> None:
    manager = manager_of(three_nodes.urls, **EXPIRING)
    kept, released, over = [
        await manager.lock(name, lock_timeout=ttl)
        for name, ttl in (("a", 30), ("b", 30), ("c", 0.5))
    ]
    await released.release()
    await eventually(lambda: not over.valid)
    assert await manager.get_active_locks() == [kept]
    for node in three_nodes:
        node.command("DEL", "a")
    assert await manager.get_active_locks() == []


async def test_expired_locks_without_a_release_are_forgotten(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls, **EXPIRING)
    await asyncio.gather(
        *(manager.lock(f"short-{number}", lock_timeout=0.5) for number in range(60))
    )
    short = list(manager._locks.values())
    await eventually(lambda: not any(lock.valid for lock in short))
    await asyncio.gather(*(manager.lock(f"long-{number}", lock_timeout=30) for number in range(10)))
    assert len(manager._locks) < 60
    assert len(await manager.get_active_locks()) == 10


async def test_destroying_releases_everything_for_good(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls)
    locks = [await manager.lock("one"), await manager.lock("two", lock_timeout=30)]
    await manager.destroy()
    assert not any(lock.valid for lock in locks)
    assert three_nodes.keys() == [set()] * 3
    await manager.unlock(locks[0])
    assert await manager.is_locked("one") is False
    assert await manager.get_active_locks() == []
    with pytest.raises(LockRuntimeError, match="destroyed"):
        await manager.lock("one")
    await manager.destroy()


async def test_a_manager_that_was_never_used_can_be_destroyed(manager_of: Make) -> None:
    await manager_of().destroy()


def test_calls_from_another_event_loop_are_refused(three_nodes: NodeSet) -> None:
    with pytest.deprecated_call():
        manager = Aioredlock(three_nodes.urls)
    with asyncio.Runner() as runner:
        runner.run(manager.lock("order"))

        async def elsewhere() -> None:
            with pytest.raises(LockRuntimeError, match="loop"):
                await manager.lock("order")
            with pytest.raises(LockRuntimeError, match="loop"):
                await manager.destroy()

        with asyncio.Runner() as other:
            other.run(elsewhere())
        runner.run(manager.destroy())
    assert three_nodes.keys() == [set()] * 3


async def test_many_first_locks_at_once_open_the_manager_once(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls, node_timeout=2.0)
    locks = await asyncio.gather(*(manager.lock(f"order-{number}") for number in range(50)))
    assert all(lock.valid for lock in locks)
    await asyncio.gather(*(lock.release() for lock in locks))


@pytest.mark.faults
async def test_a_first_use_that_is_cancelled_leaves_the_next_to_open_it(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls)
    for index in range(3):
        three_nodes.pause(index)
    try:
        first = asyncio.create_task(manager.lock("order"))
        await eventually(manager._access._opening.locked)
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    finally:
        three_nodes.restore()
    async with await manager.lock("order"):
        assert await manager.is_locked("order")


async def test_a_redlock_and_an_aioredlock_manager_exclude_each_other(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls, retry_count=1)
    async with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:
        lock = await manager.lock("order")
        assert await redlock.lock("order").try_acquire() is None
        await lock.release()
        async with redlock.lock("order"):
            with pytest.raises(LockAcquiringError):
                await manager.lock("order")


async def test_fencing_and_the_recovery_guard_can_be_switched_on(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    manager = manager_of(three_nodes.urls, fencing=True, recovery_guard="auto")
    async with await manager.lock("order") as lock:
        assert lock.lease is not None
        assert lock.lease.fence is not None
    with pytest.raises(ValueError, match="max_ttl"):
        await manager.lock("order", lock_timeout=61)


async def test_a_lock_made_by_hand_has_the_attributes_it_was_given(manager_of: Make) -> None:
    manager = manager_of()
    lock = Lock(manager, "potato", 1, 1.0)
    assert (lock.resource, lock.id, lock.lock_timeout, lock.valid) == ("potato", 1, 1.0, False)
    assert Lock(manager, "potato", 1, valid=True).valid
    assert lock == Lock(manager, "potato", 1)
    assert lock != Lock(manager, "potato", 2)
    assert lock != "potato"
    assert len({lock, Lock(manager, "potato", 1)}) == 1


async def test_no_repr_shows_a_whole_token_or_a_password(
    three_nodes: NodeSet, manager_of: Make
) -> None:
    lock = await manager_of(three_nodes.urls).lock("order")
    assert str(lock.id) not in repr(lock)
    assert "valid=True" in repr(lock)
    await lock.release()
