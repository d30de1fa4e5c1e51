"""Ask all nodes about one lock or semaphore, for `inspect` and `force_release`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.inspection import Unknown, look_of, look_vote, semaphore_info
from aioredlock_ng._core.keys import resource_name
from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng.errors import QuorumUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.inspection import Look
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._engine.spec import LockSpec
    from aioredlock_ng._scripts import Command
    from aioredlock_ng._scripts.exclusive_kinds import LockKind
    from aioredlock_ng.records import SemaphoreInfo

__all__ = ["inspecting", "look_at", "look_at_slots"]


def inspecting(
    kind: LockKind, keys: tuple[bytes, ...], *, labelled: bool
) -> tuple[Command, Command]:
    """Return two commands that inspect keys and their queues.

    The second command reads no labels, for servers that deny the right to read them. If `labelled`
    is False, the first command reads no labels either.
    """
    plain = kind.inspecting(keys, queues=True)
    if not labelled:
        return plain, plain
    return kind.inspecting(keys, tuple(map(owner_key, keys)), queues=True), plain


async def look_at(
    engine: Engine,
    name: str | bytes,
    command: Command,
    plainer: Command | None = None,
    *,
    read: Callable[[Reply], Look] = look_of,
) -> list[Look]:
    """Send `command` to all nodes, and return the replies as `read` converts them.

    If a node refuses `command`, send `plainer`, which needs fewer rights, to all nodes instead.

    Raises:
        QuorumUnreachable: Fewer nodes than a quorum answered.
    """
    replies = await _replies(engine, resource_name((name,)), command, plainer, read)
    return [read(reply) for reply in replies]


async def look_at_slots(engine: Engine, spec: LockSpec) -> SemaphoreInfo:
    """Return the state of a semaphore's slots, from the answers of all nodes.

    Raises:
        QuorumUnreachable: Fewer nodes than a quorum answered.
    """
    command, plain = inspecting(
        spec.kind, spec.keys, labelled=engine.context.options.owner is not False
    )
    replies = await _replies(engine, spec.resource, command, plain, look_of)
    addresses = [node.address for node in engine.context.fleet.nodes]
    return semaphore_info(spec.resource, addresses, replies, len(spec.keys))


async def _replies(
    engine: Engine,
    resource: str,
    command: Command,
    plainer: Command | None,
    read: Callable[[Reply], Look],
) -> list[Reply]:
    asked_at = engine.context.clock()
    replies = await engine.poll(command)
    if (
        plainer is not None
        and plainer is not command
        and any(isinstance(reply, Refusal) for reply in replies)
    ):
        replies = await engine.poll(plainer)
    looks = [read(reply) for reply in replies]
    if sum(not isinstance(look, Unknown) for look in looks) < quorum_of(len(looks)):
        votes = tuple(
            look_vote(node.address, look)
            for node, look in zip(engine.context.fleet.nodes, looks, strict=True)
        )
        told = "; ".join(map(str, votes))
        raise QuorumUnreachable(
            f"no quorum answered: {told}",
            resource=resource,
            votes=votes,
            elapsed=engine.context.clock() - asked_at,
        )
    return replies
