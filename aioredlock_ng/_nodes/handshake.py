"""What is said on every new connection before it may vote: who are you, tell me about changed keys, learn our scripts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hiredis import pack_command

from aioredlock_ng._core.server_info import facts_of, info_fields
from aioredlock_ng._core.votes import Dropped, Refusal, Unsent
from aioredlock_ng._nodes.connect import ConnectFailed
from aioredlock_ng._scripts import Request
from aioredlock_ng._scripts.kinds import SCRIPTS

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.channel import Channel

__all__ = ["Greeting", "greet"]


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a server told about itself.

    Attributes:
        run_id: Id of the server process, "" where it does not say.
        server: Name and version, "" where it does not say.
        tracking: True when it will tell about changed keys.
        lacks: What it refused that the library can do without, in words.
    """

    run_id: str
    server: str
    tracking: bool
    lacks: tuple[str, ...]


class _Answers:
    """Collects all answers of the handshake; one connection answers in the order of the questions."""

    def __init__(self, count: int, started: float) -> None:
        # Each question is sent by itself, and none ever again.
        self.command = Request(b"")
        self.started = started
        self.replies: list[Any] = []
        self._count = count
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stands(self) -> bool:
        """See `Sink.stands`."""
        return False

    def deliver(self, index: int, reply: Reply) -> None:
        self.replies.append(reply)
        if len(self.replies) == self._count and not self.complete.done():
            self.complete.set_result(None)


async def greet(channel: Channel, resp3: bool, started: float, within: float, by_sentinel: bool) -> Greeting:
    """Run the handshake in one write and judge the answers.

    Raises:
        ConnectFailed: The server must not vote: it cannot be asked, is a replica, or part of a cluster.

    Safety: cancelled, it leaves the channel open; the caller closes it.
    """
    requests: list[tuple[Any, ...]] = [("INFO",), ("CLIENT", "SETINFO", "LIB-NAME", "aioredlock_ng")]
    if resp3:
        requests.append(("CLIENT", "TRACKING", "ON", "NOLOOP"))
    requests += [("SCRIPT", "LOAD", script.source) for script in SCRIPTS]
    answers = _Answers(len(requests), started)
    for request in requests:
        channel.ask_raw(pack_command(request), answers)
    try:
        async with asyncio.timeout(within):
            await answers.complete
    except TimeoutError:
        raise ConnectFailed(f"connected, but no answer within {within:g} s") from None
    for reply in answers.replies:
        if isinstance(reply, (Dropped, Unsent)):
            raise ConnectFailed(str(reply))
        if isinstance(reply, Refusal) and str(reply).startswith(("NOAUTH", "WRONGPASS")):
            raise ConnectFailed(f"authentication failed: {reply}", permanent=True)
        # Accepted now, it would stay without identity and tracking, and refuse the releases that it is owed.
        if isinstance(reply, Refusal) and str(reply).startswith(("BUSY ", "LOADING ")):
            raise ConnectFailed(str(reply))
    about = answers.replies[0]
    facts = facts_of(info_fields(about) if isinstance(about, bytes) else {})
    if facts["primary"]:
        remedy = "its Sentinel has not noticed yet" if by_sentinel else "name the primary instead"
        raise ConnectFailed(f"is a replica of {facts['primary']}; {remedy}", permanent=not by_sentinel)
    if facts["cluster"]:
        raise ConnectFailed("runs in cluster mode; Redlock needs independent servers", permanent=True)
    lacks = []
    if isinstance(about, Refusal):
        lacks.append(f"identity unknown, INFO refused: {about}")
    policy = facts["maxmemory_policy"] or "noeviction"
    if policy != "noeviction" and facts["maxmemory"]:
        lacks.append(f"it may evict locks: maxmemory-policy is {policy}; noeviction keeps them")
    tracking = resp3 and answers.replies[2] == b"OK"
    if not tracking:
        refusal = answers.replies[2] if resp3 else "no RESP3"
        # Any other answer is not shown: it may be anything.
        why = refusal if isinstance(refusal, (Refusal, str)) else "not answered as servers do"
        lacks.append(f"no client tracking, waiting is timed: {why}")
    return Greeting(facts["run_id"], facts["server"], tracking, tuple(lacks))
