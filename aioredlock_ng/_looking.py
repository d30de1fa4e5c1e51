"""Ask all nodes about one lock, for `inspect` and `force_release`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.inspection import Unknown, look_of, look_vote
from aioredlock_ng._core.keys import resource_name
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng.errors import QuorumUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.inspection import Look
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._scripts import Command

__all__ = ["look_at"]


async def look_at(
    engine: Engine,
    name: str | bytes,
    command: Command,
    plainer: Command | None = None,
    *,
    read: Callable[[Reply], Look] = look_of,
) -> list[Look]:
    """Ask all nodes. If a node refuses the command, send the plainer command to all nodes.

    Args:
        engine: The open engine.
        name: Name of the lock.
        command: The request.
        plainer: A request that needs fewer rights.
        read: Converts a reply into a record.

    Raises:
        QuorumUnreachable: Fewer nodes than a quorum answered.
    """
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
            resource=resource_name((name,)),
            votes=votes,
            elapsed=engine.context.clock() - asked_at,
        )
    return looks
