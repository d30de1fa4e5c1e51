"""What processes tell each other and people through one node; nothing is ever decided by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.keys import PASSED_KEYS, TURN_KEYS
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.kinds import AWAIT_TURN, TURN_OVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._nodes.fleet import Fleet

__all__ = ["AwaitedTurn", "Hint", "end_turn"]

PASSED_MS = 100
"""Milliseconds for which it is known how many turns somebody let pass: three runs of hand-overs (`turns.FIRST_BOUND`). By then
who has had its turn, or is gone, stands in nobody's way."""


class Hint:
    """A command whose answer nobody waits for; a `Sink`."""

    __slots__ = ("command", "started")

    def __init__(self, command: Command, started: float) -> None:
        self.command = command
        self.started = started

    def send(self, fleet: Fleet, key: bytes) -> None:
        """Ask the lead of this key, if any node answers."""
        index = fleet.lead(key)
        if index is not None:
            fleet.nodes[index].ask(self, index)

    def stands(self) -> bool:
        """See `Sink.stands`: to be sent again where the server did not know the script."""
        return True

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""


class AwaitedTurn(Hint):
    """Somebody wants to be told when the turn of another process is over.

    A process that hands a lock on within itself changes the lock's key each time. Who waits for that key would be told each
    time, and ask in vain. This asks for another key instead, which changes when the process lets others go on.

    Args:
        key: The lock's.
        now: The engine's clock.
        passed: How many turns of others it will have let pass at the end of this one.
        on_reply: Takes this and the answer: `FREE`, or the most that any process lets pass, or why it could not be asked.
    """

    FREE = 0

    __slots__ = ("_on_reply", "key")

    def __init__(self, key: bytes, now: float, passed: int, on_reply: Callable[[AwaitedTurn, Reply], None]) -> None:
        super().__init__(Command(AWAIT_TURN, (TURN_KEYS + key,), (key, PASSED_KEYS + key, passed, PASSED_MS)), now)
        self.key = key
        self._on_reply = on_reply

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
        self._on_reply(self, reply)


def end_turn(context: Context, keys: Iterable[bytes]) -> None:
    """Tell those who await it that this process's turn with these keys is over; nothing is awaited."""
    for key in keys:
        Hint(Command(TURN_OVER, (TURN_KEYS + key,)), context.clock()).send(context.fleet, key)
