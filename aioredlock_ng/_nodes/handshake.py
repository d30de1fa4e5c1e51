"""The first requests on a new connection, before its node may vote.

The requests read the identity of the server, and set up tracking, messages and scripts.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hiredis import pack_command

from aioredlock_ng._core.keys import message_channel
from aioredlock_ng._core.refusals import is_busy, is_unknown_command
from aioredlock_ng._core.replies import UnknownCommands
from aioredlock_ng._core.server_info import facts_of, info_fields, is_too_old
from aioredlock_ng._core.votes import Dropped, Refusal, Unsent
from aioredlock_ng._nodes.channel import Subscription
from aioredlock_ng._nodes.port import SAME_SERVER
from aioredlock_ng._nodes.wire import ConnectFailed
from aioredlock_ng._scripts import Request
from aioredlock_ng._scripts.catalogue import COMMANDS, SCRIPTS
from aioredlock_ng._scripts.decoding import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.channel import Channel
    from aioredlock_ng._nodes.wire import Wire

__all__ = ["TRIES", "Greeting", "duplicate", "greet", "no_tracking", "unknown_commands"]

TRIES = (COMMANDS.packed_in_full(), COMMANDS.packed)
"""Requests whose replies show which commands the server does not know; see `unknown_commands`."""

_USABLE = "Redis 6.2 or newer, or Valkey"


@dataclass(frozen=True, slots=True)
class Greeting:
    """The facts that a server reported about itself.

    Attributes:
        run_id: Id of the server process, "" if unknown.
        server: Name and version, "" if unknown.
        tracking: True if the server reports changes of tracked keys.
        messages: True if the server delivers messages of other processes, and accepts messages to
            them.
        lacks: Descriptions of missing features and of risky settings. The server may vote in spite
            of them.
    """

    run_id: str
    server: str
    tracking: bool
    messages: bool
    lacks: tuple[str, ...]


class _Answers:
    """The sink of all requests of the handshake. Replies come in the order of the requests."""

    def __init__(self, count: int, started: float) -> None:
        # A placeholder, which is never sent: `greet` passes the bytes of each request to the
        # channel.
        self.command = Request(b"")
        self.started = started
        self.replies: list[Reply] = []
        self._count = count
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stands(self) -> bool:
        return False

    def deliver(self, index: int, reply: Reply) -> None:
        self.replies.append(reply)
        if len(self.replies) == self._count and not self.complete.done():
            self.complete.set_result(None)


async def greet(
    channel: Channel,
    wire: Wire,
    started: float,
    within: float,
    by_sentinel: bool,
    needed: Sequence[str],
    manager_id: bytes,
) -> Greeting:
    """Send all requests of the handshake in one write, and check the replies.

    Without RESP3 there is no subscription, because a subscribed RESP2 connection can send no other
    commands.

    Raises:
        ConnectFailed: The server did not answer within `within` seconds, or must not vote. For
            example, the server is busy, is a replica, or is too old.

    Safety: a cancellation leaves the channel open. The caller closes the channel.
    """
    requests: list[tuple[Any, ...]] = [
        ("INFO",),
        ("CLIENT", "SETINFO", "LIB-NAME", "aioredlock_ng"),
    ]
    if wire.resp3:
        # CLIENT CACHING needs a right of its own, so the handshake tries the command. The command
        # has no effect here, because the next request reads no key.
        requests += [
            ("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"),
            ("CLIENT", "CACHING", "YES"),
            # A release ignores a refused PUBLISH. The next waiter would then wait for a message
            # that never comes. The message has no receiver, because SUBSCRIBE comes later.
            ("PUBLISH", message_channel(manager_id), b""),
        ]
    loads: list[tuple[Any, ...]] = [("SCRIPT", "LOAD", script.source) for script in SCRIPTS]
    answers = _Answers(len(requests) + wire.resp3 + len(loads) + len(TRIES), started)
    subscription = Subscription(message_channel(manager_id), answers)
    for request in map(pack_command, requests):
        channel.ask_raw(request, answers)
    if wire.resp3:
        channel.ask(subscription)
    for request in (*map(pack_command, loads), *TRIES):
        channel.ask_raw(request, answers)
    try:
        async with asyncio.timeout(within):
            await answers.complete
    except TimeoutError:
        raise ConnectFailed(f"connected, but no answer within {within:g} s") from None
    _check_replies(answers.replies)
    about = answers.replies[0]
    facts = facts_of(info_fields(about, wire.redact) if isinstance(about, bytes) else {})
    _check_server(facts, by_sentinel)
    if unknown := unknown_commands(answers.replies[-len(TRIES) :], needed):
        raise ConnectFailed(
            f"does not know {', '.join(unknown)} (too old, or renamed);"
            f" use {_USABLE}, with these commands",
            permanent=True,
        )
    lacks = []
    if not isinstance(about, bytes):
        lacks.append(f"identity unknown, INFO {_said(about)}")
    policy = facts["maxmemory_policy"] or "noeviction"
    if policy != "noeviction" and facts["maxmemory"]:
        lacks.append(f"it may evict locks: maxmemory-policy is {policy}; noeviction keeps them")
    not_tracking = _why_no_tracking(answers.replies) if wire.resp3 else "no RESP3"
    if not_tracking:
        lacks.append(no_tracking(not_tracking))
    published = wire.resp3 and type(answers.replies[4]) is int
    if not subscription.confirmed:
        why = f"SUBSCRIBE {_said(answers.replies[5])}" if wire.resp3 else "no RESP3"
        lacks.append(f"no messages from other processes, waiters poll: {why}")
    elif not published:
        why = f"PUBLISH {_said(answers.replies[4])}"
        lacks.append(f"no messages to other processes, waiters poll: {why}")
    messages = subscription.confirmed and published
    return Greeting(facts["run_id"], facts["server"], not not_tracking, messages, tuple(lacks))


def no_tracking(reason: str) -> str:
    """Return the description of a server without tracking."""
    return f"no client tracking, waiters poll: {reason}"


def duplicate(address: str, other: str, run_id: str) -> ConnectFailed:
    """Return the error for a node that is the same server as another node."""
    words = f"{address} and {other} {SAME_SERVER} (run_id {run_id[:8]}…)"
    return ConnectFailed(words, permanent=True)


def _check_replies(replies: Sequence[Reply]) -> None:
    for reply in replies:
        if isinstance(reply, (Dropped, Unsent)):
            raise ConnectFailed(str(reply))
        if isinstance(reply, Refusal) and str(reply).startswith(("NOAUTH", "WRONGPASS")):
            raise ConnectFailed(f"authentication failed: {reply}", permanent=True)
        # A busy or loading server refuses most requests, such as outstanding releases. So the node
        # does not use this connection, and connects again later.
        if isinstance(reply, Refusal) and is_busy(str(reply)):
            raise ConnectFailed(str(reply))


def _check_server(facts: Mapping[str, Any], by_sentinel: bool) -> None:
    if facts["primary"]:
        remedy = "its Sentinel has not noticed yet" if by_sentinel else "name the primary instead"
        raise ConnectFailed(
            f"is a replica of {facts['primary']}; {remedy}", permanent=not by_sentinel
        )
    if facts["cluster"]:
        raise ConnectFailed(
            "runs in cluster mode; Redlock needs independent servers", permanent=True
        )
    if is_too_old(facts["server"]):
        raise ConnectFailed(
            f"is {facts['server']}, which is too old; use {_USABLE}", permanent=True
        )


def _why_no_tracking(replies: Sequence[Reply]) -> str:
    """Return the server's refusal of tracking, or "" if the server tracks keys."""
    steps = {"CLIENT TRACKING": replies[2], "CLIENT CACHING": replies[3]}
    refused = (f"{step} {_said(reply)}" for step, reply in steps.items() if reply != b"OK")
    return next(refused, "")


def unknown_commands(replies: Sequence[Reply], needed: Sequence[str]) -> list[str]:
    """Return the commands that the server does not know, of EVAL, EVALSHA and those in `needed`.

    `replies` are the replies to `TRIES`. A command that is refused for another reason, such as a
    missing right, counts as known.
    """
    by_source, by_name = replies
    tries = {"EVAL": by_source, "EVALSHA": by_name}
    unknown = [
        name
        for name, reply in tries.items()
        if isinstance(reply, Refusal) and is_unknown_command(str(reply))
    ]
    told = COMMANDS.read(by_source)
    if isinstance(told, UnknownCommands):
        # These names come from `needed`, so the error message repeats no words of the server.
        unknown += [name for name in needed if name.encode() in told.names]
    return unknown


def _said(reply: Reply) -> str:
    """Quote a refusal. Name only the kind of any other reply, which may contain secrets."""
    return (
        f"refused: {reply}" if isinstance(reply, Refusal) else f"was answered with {kind_of(reply)}"
    )
