"""Simulate servers that are as busy as real ones, and count their work."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from aioredlock_ng._scripts.catalogue import SCRIPTS
from tests.simulation.server import End, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.network import Connection
    from tests.simulation.world import World

__all__ = ["EPOCH", "BusyServer", "Tally"]

EPOCH = 1.7e9
"""The time of the wall clocks, in seconds, when a world begins."""

_NAMES = {script.sha: script.name for script in SCRIPTS}
_EACH: dict[str, tuple[tuple[str, ...], int]] = {
    "acquire_each": (("acquire_guarded",), 2),
    "release_each": (("release",), 0),
    "hand_over_each": (("release", "acquire_guarded"), 2),
}
"""The scripts and the number of shared keys of commands with several calls.

A command with several calls is charged as much as its calls one by one. A real server needs less.
"""


class Tally(list[tuple[object, ...]]):
    """Count the work of the servers, in place of the world's log.

    Attributes:
        commands: Number of commands by script.
        pushes: Number of notified connections.
        votes: Number of nodes that granted the lock, by attempt.
    """

    def __init__(self) -> None:
        super().__init__()
        self._before: set[object] = set()
        self.votes: Counter[object] = Counter()
        self.start()

    def start(self) -> None:
        """Reset all counts."""
        # A part of the votes of these attempts came before, so the attempts do not count.
        self._before.update(self.votes)
        self.commands: Counter[str] = Counter()
        self.votes = Counter()
        self.pushes = 0

    def append(self, entry: tuple[object, ...]) -> None:
        # An entry of a server has the time, the server, the client, the script, the first key, the
        # first argument and the reply.
        if len(entry) != 7:
            return
        script, reply = str(entry[3]), entry[6]
        self.commands[script] += 1
        if script == "acquire_guarded" and (
            reply == 1 or (isinstance(reply, list) and reply[0] in (1, 2))
        ):
            arguments: Any = entry[5]
            if arguments[0] not in self._before:
                self.votes[arguments[0]] += 1

    def splits(self, quorum: int) -> int:
        """Return the number of attempts that some nodes granted, but no quorum."""
        return sum(votes < quorum for votes in self.votes.values())


class BusyServer(Server):
    """A server that needs time for each command.

    Args:
        costs: Seconds per script, or per key for `extend` and `watch`. The key "push" has the
            seconds for each notified connection.

    Attributes:
        busy: Seconds for which the server has worked.
    """

    def __init__(self, world: World, index: int, tally: Tally, costs: Mapping[str, float]) -> None:
        super().__init__(world, index, 1.0, EPOCH)
        self.busy = 0.0
        self._tally = tally
        self._costs = costs
        self._busy_until = 0.0

    def accept(self, connection: Connection) -> End:
        """See `Server`."""
        end = _BusyEnd(self, connection)
        self._ends.append(end)
        return end

    def execute(self, end: End, words: list[bytes]) -> bytes:
        """Execute a command as `Server` does. The reply is delayed until the server is done."""
        reply = super().execute(end, words)
        script = _NAMES.get(words[1], "") if words[0] == b"EVALSHA" else ""
        scripts, own = _EACH.get(script, ((script,), 0))
        calls = int(words[2]) - own if script in _EACH or script in ("extend", "watch") else 1
        self._work(sum(self._costs.get(script, 0.0) for script in scripts) * calls)
        return reply

    def push(self) -> None:
        """Record that a connection is notified."""
        self._tally.pushes += 1
        self._work(self._costs.get("push", 0.0))

    def when_done(self, call: Callable[[bytes], None], data: bytes) -> None:
        """Call back once the server has done all earlier work."""
        self.world.at(max(self.world.now, self._busy_until), call, data)

    def _work(self, seconds: float) -> None:
        self.busy += seconds
        self._busy_until = max(self._busy_until, self.world.now) + seconds


class _BusyEnd(End):
    def __init__(self, server: BusyServer, connection: Connection) -> None:
        super().__init__(server, connection)
        self._busy = server
        self._connection = _Later(server, connection)  # type: ignore[assignment]

    def invalidated(self, keys: list[bytes] | None) -> None:
        self._busy.push()
        super().invalidated(keys)

    def notified(self, payload: bytes) -> None:
        self._busy.push()
        super().notified(payload)


class _Later:
    """Delay the answers on a connection until the server is done."""

    def __init__(self, server: BusyServer, connection: Connection) -> None:
        self._server = server
        self._connection = connection

    @property
    def dead(self) -> bool:
        return self._connection.dead

    def answer(self, data: bytes) -> None:
        self._server.when_done(self._connection.answer, data)

    def hang_up(self) -> None:
        self._connection.hang_up()
