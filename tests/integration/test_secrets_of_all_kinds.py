"""No token and no stored value is in an error, event or log line: locks, slots, readers, writers
and elections.
"""

# ruff: noqa: PT012 - what is raised at the end of a body is the subject
from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, get_args

import pytest

from aioredlock_ng import (
    AcquireTimeout,
    LockHeld,
    LockLost,
    LockReleased,
    QuorumUnreachable,
    Redlock,
    UpgradeRefused,
    events,
)
from tests.cli.commands import Cli
from tests.support.eventually import eventually
from tests.support.node_set import trust
from tests.support.told import TOKEN, VALUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng import Election, Lease, Lock
    from tests.support.node_set import NodeSet
    from tests.support.told import Told

    Made = Callable[..., Lock]

NAME = "order"
PATIENCE = 20.0

KINDS: dict[str, tuple[list[str], Made]] = {
    "lock": ([NAME], lambda redlock, **options: redlock.lock(NAME, **options)),
    "several names": ([NAME], lambda redlock, **options: redlock.lock("free", NAME, **options)),
    "semaphore": (
        [f"{NAME}#1", f"{NAME}#2"],
        lambda redlock, **options: redlock.semaphore(NAME, 2, **options),
    ),
    "reader": ([NAME], lambda redlock, **options: redlock.rwlock(NAME, **options).read()),
    "writer": ([NAME], lambda redlock, **options: redlock.rwlock(NAME, **options).write()),
}
"""The keys of each kind of lock, and how it is made."""

OPTIONS: dict[str, Any] = {"node_timeout": 3.0}

SHORT: dict[str, Any] = {"node_timeout": 0.4, "max_ttl": 4.0, "ttl": 4.0}
"""Options of a manager that trusts restarted nodes after five seconds."""


async def ask(redlock: Redlock, made: Made, told: Told) -> None:
    """Ask for a lock that another client holds, and for all that is known of it."""
    lock = made(redlock, blocking_timeout=0)
    told.texts.append(repr(lock))
    await told.by(lock.try_acquire())
    for error, timeout in ((LockHeld, 0), (AcquireTimeout, 0.2)):
        with pytest.raises(error) as caught:
            await made(redlock, blocking_timeout=timeout).acquire()
        told(caught.value)
    if hasattr(lock, "inspect"):
        await told.by(lock.inspect())
    for key in (NAME, f"{NAME}#1"):
        await told.by(redlock.inspect(key))
        await told.by(redlock.locked(key))
        await told.by(redlock.force_release(key, token="another's"))
    for state in redlock.nodes:
        told(state)
    told(redlock.stats())


async def stand(election: Election, told: Told) -> None:
    """Stand for a while in an election that another client leads."""
    told.texts.append(repr(election))
    async for leader in election.watch():
        told.texts.append(repr(leader))
        break
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.3), election:
            raise AssertionError("another client leads")
    election.check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [TOKEN, VALUE.replace(" ", "_")], ids=["a token", "a value"])
async def test_no_output_shows_a_foreign_value_under_the_key(
    three_nodes: NodeSet, told: Told, kind: str, value: str
) -> None:
    keys, made = KINDS[kind]
    for node in three_nodes:
        trust(node)
        for key in keys:
            node.command("SET", key, value, "PX", "600000")
    async with Redlock(three_nodes.urls, **OPTIONS, sinks=[told]) as redlock:
        await ask(redlock, made, told)
        if kind == "lock":
            await stand(redlock.election(NAME, label="ann"), told)
            told(await redlock.diagnose(watch=0.1))
    assert {LockHeld, AcquireTimeout, events.AcquireFailed} <= told.kinds


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
async def test_no_output_shows_the_token_of_a_held_or_lost_lease(
    three_nodes: NodeSet, told: Told, kind: str
) -> None:
    three_nodes.found()
    keys, made = KINDS[kind]
    # A rival of a reader is a writer.
    rival = KINDS["writer"][1] if kind == "reader" else made
    tokens: list[str] = []
    async with (
        Redlock(three_nodes.urls, **OPTIONS, sinks=[told], owner="ann") as redlock,
        Redlock(three_nodes.urls, **OPTIONS, sinks=[told]) as other,
    ):
        with pytest.raises(LockLost) as lost:
            async with contextlib.AsyncExitStack() as stack:
                leases = [await stack.enter_async_context(made(redlock)) for _ in keys]
                tokens += [lease.token for lease in leases]
                told.texts += [repr(lease) for lease in leases]
                await ask(other, rival, told)
                if kind == "reader":
                    with pytest.raises(UpgradeRefused) as refused:
                        await KINDS["writer"][1](redlock).acquire()
                    told(refused.value)
                for node in three_nodes:
                    node.command("DEL", *keys)
                await asyncio.sleep(PATIENCE)
        told(lost.value)
        for lease in leases:
            await told.by(lease.verify())
            await told.by(lease.extend())
            told.texts.append(repr(lease))
    assert {LockHeld, AcquireTimeout, LockLost, events.LockAcquired, events.LeaseLost} <= told.kinds
    told.assert_harmless(*tokens)


async def test_no_output_shows_the_token_of_a_released_lease(
    three_nodes: NodeSet, told: Told
) -> None:
    three_nodes.found()
    tokens: list[str] = []
    async with Redlock(three_nodes.urls, **OPTIONS, sinks=[told]) as redlock:
        async with redlock.rwlock(NAME).write() as lease:
            tokens.append(lease.token)
            with pytest.raises(LockHeld) as nested:
                await redlock.lock(NAME).acquire()
            told(nested.value)
            await lease.downgrade()
        kept = await redlock.lock("kept", min_hold=2.0).acquire()
        tokens.append(kept.token)
        await kept.release()
        await told.by(redlock.inspect("kept"))
        await told.by(redlock.lock("kept", blocking_timeout=0).acquire())
        for over in (lease, kept):
            with pytest.raises(LockReleased) as released:
                over.check()
            told(released.value)
            await told.by(over.verify())
            await told.by(over.extend())
    assert {events.LeaseDowngraded, events.LeaseReleased} <= told.kinds
    told.assert_harmless(*tokens)


UNTOLD = {
    events.NodeDegraded,
    events.TaskFailed,
    events.AcquireCancelled,
    events.WaiterWoken,
    events.LossFound,
}
"""Events of other tests, and events without a text."""


@pytest.mark.slow
@pytest.mark.faults
async def test_the_token_of_a_leader_is_in_no_event_while_nodes_hang_and_forget(
    three_nodes: NodeSet, told: Told
) -> None:
    """The events are all that there are, but for `UNTOLD`."""
    three_nodes.found()
    tokens: list[str] = []

    async def main(lease: Lease) -> None:
        tokens.append(lease.token)
        for index in (1, 2):
            await asyncio.to_thread(three_nodes.pause, index)
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            # The body outlives its term, which is an event and fails the probe.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(PATIENCE)
            await eventually(lambda: events.TermOutlived in told.kinds, within=PATIENCE)
            with pytest.raises(LockLost) as probe:
                election.check()
            told(probe.value)
            for index in (1, 2):
                await asyncio.to_thread(three_nodes.resume, index)

    async with Redlock(three_nodes.urls, **SHORT, sinks=[told], owner="ann") as redlock:
        # The first of two waiting tasks gets the lease of the other one.
        async with redlock.lock("line") as lease:
            tokens.append(lease.token)
            waiting = asyncio.create_task(redlock.lock("line").acquire())
            await asyncio.sleep(0.1)
        await told.by((await waiting).release())
        async with redlock.rwlock("written").write() as lease:
            await lease.downgrade()
        abandoned = await redlock.lock("left").acquire()
        tokens.append(abandoned.token)
        abandoned.abandon()
        renewed = await redlock.lock("renewed").acquire()
        tokens.append(renewed.token)
        await eventually(lambda: events.LeasesRenewed in told.kinds, within=PATIENCE)
        await renewed.release()
        election = redlock.election("chief", label="ann", rejoin=False)
        with pytest.raises(LockLost) as lost:
            await election.run(main)
        told(lost.value)
        await eventually(lambda: redlock.ready, within=PATIENCE)
        for index in range(3):
            three_nodes.crash(index)
        await eventually(lambda: not redlock.ready, within=PATIENCE)
        with pytest.raises(QuorumUnreachable) as nobody:
            await redlock.lock("line", blocking_timeout=0).acquire()
        told(nobody.value)
        for index in range(3):
            three_nodes.restart(index)
        await eventually(lambda: redlock.ready, within=PATIENCE)
        # The restarts may take longer than the guard time. Then the nodes count as a new set.
        three_nodes.wipe()
        await eventually(lambda: events.AllNodesForgot in told.kinds, within=PATIENCE)
        await eventually(lambda: redlock.ready, within=PATIENCE)
        await told.by(redlock.lock("line").try_acquire())
    assert set(get_args(events.Event)) - told.kinds <= UNTOLD
    told.assert_harmless(*tokens)


@pytest.mark.slow
@pytest.mark.once
async def test_the_command_line_shows_no_token_of_any_kind_of_lock(
    three_nodes: NodeSet, told: Told
) -> None:
    three_nodes.found()
    cli = Cli(three_nodes.urls)
    async with Redlock(three_nodes.urls, node_timeout=5.0, owner="ann") as redlock:
        leases = [
            await redlock.lock("a-lock").acquire(),
            await redlock.semaphore("slots", 2).acquire(),
            await redlock.rwlock("catalog").read().acquire(),
            await redlock.lock("over", min_hold=30).acquire(),
        ]
        await leases[3].release()
        for call in (
            *(("ls",), ("ls", "--all"), ("top", "--once"), ("doctor", "--watch", "0.1")),
            *(("inspect", name) for name in ("a-lock", "slots#1", "catalog", "over")),
            *(("run", "-n", name, "--", "true") for name in ("a-lock", "catalog", "over")),
        ):
            done = await asyncio.to_thread(cli, *call)
            assert "Traceback" not in done.stderr
            told.texts += [done.stdout, done.stderr]
        for lease in leases[:3]:
            await lease.release()
    told.assert_harmless(*(lease.token for lease in leases))
