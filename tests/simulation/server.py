"""Simulated servers: the keys and scripts of the in-memory server, behind connections that speak
RESP.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import hiredis

from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng._core.marker import Trust, read_marker
from aioredlock_ng._core.queue_formats import OFFER, is_offer
from aioredlock_ng._core.readers import READERS, is_reader
from aioredlock_ng._nodes.memory import MemoryServer
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.catalogue import COMMANDS, SCRIPTS
from aioredlock_ng._scripts.exclusive_kinds import MARKER_KEY
from tests.simulation.resp import encode, invalidation, message, subscribed
from tests.simulation.world import ProcessLoop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.network import Connection
    from tests.simulation.world import World

__all__ = ["Server", "manager_in", "offered_to"]

_OK = b"+OK\r\n"
_BY_SHA = {script.sha: script for script in SCRIPTS}
_BY_SOURCE = {script.source: script for script in SCRIPTS}
_TRIES = frozenset({COMMANDS.script.source, COMMANDS.script.sha})
_BY_NAME = {script.name: script for script in SCRIPTS}
LIES: tuple[Any, ...] = (b"garbage", [b"a", b"b"], [[b"a"]], [1, b"2"], [0, b"x"], -7)
"""Replies that no script can return."""

_OF_LOCKS = frozenset(
    {
        "acquire",
        "acquire_guarded",
        "acquire_each",
        "acquire_read",
        "hand_over_each",
        "confirm",
        "confirm_read",
        "release",
        "release_each",
        "release_read",
        "retire",
        "stand",
        "stand_read",
        "stand_slots",
        "leave",
        "watch",
    }
)

_ACQUIRING = frozenset({"acquire", "acquire_guarded", "acquire_read"})
_SETTING = _ACQUIRING | {"repair", "repair_read"}
_STANDING = frozenset({"stand", "stand_read", "stand_slots"})


def manager_in(member: bytes) -> bytes:
    """Return the manager to which a member of a queue belongs."""
    return member.lstrip(b"-").partition(b":")[0]


def offered_to(value: bytes) -> bytes:
    """Return the member of a queue for which an offer reserves a key. An offer to a reader has no
    ticket.
    """
    claim = value.removeprefix(OFFER)
    return claim if is_reader(claim) else claim.partition(b":")[2]


class Server:
    """One server, with its memory and its clock.

    Attributes:
        up: False while the server accepts no connections.
        life: Number of the present server process, from 1. A connection to an earlier process is
            reset.
        running_since: True time since when the server has been running. Infinity while it is not.
        queue_deleted_at: True time at which another client last deleted a queue.
        scripts_flushed_at: True time at which the scripts were last flushed.
        well_since: True time since when the server has been running with its memory. In runs with a
            recovery guard, the server must also be trusted. Infinity if it is not.
        trusted_since: True time since when the marker has shown that the server is trusted.
        owners: The process from which each token came.
        late: Tokens, and members of queues, that came over a dead connection or with the hash of a
            flushed script. Their release may have come before them, or may never come.
        forgot: How often the server lost its memory.
        forgot_at: True time at which the server last lost its memory.
        votes_until: True time at which the last key that the server has forgotten would have
            expired.
        repeated: A token that came with two acquires; empty if there is none.
        deleted_at: For each key of a lock, the true time at which another client last deleted it.
        voted: True once the server was trusted with its present memory, so that it may hold locks.
        lying: True while the server answers each script with an impossible reply.
        calls: Number of executed scripts that acquire, release or wait.
        wanted: For each key of a lock, the true time of the latest request of each process to set
            the key or to wait for it.
    """

    def __init__(self, world: World, index: int, rate: float, skew: float) -> None:
        self.world = world
        self.index = index
        self.name = f"n{index}"
        self.loop = ProcessLoop(world, self.name, rate)  # type: ignore[abstract]
        self.memory = MemoryServer(self.name)
        # The wall clock shows `skew` at the beginning of the run, as the wall clocks of processes
        # do.
        self.memory.skew = skew - self.loop.time()
        self.up = True
        self.life = 1
        self.forgot = 0
        self.voted = self.lying = False
        self.calls = 0
        self.running_since = 0.0
        self.queue_deleted_at = self.scripts_flushed_at = self.forgot_at = -math.inf
        self.votes_until = -math.inf
        self.repeated = b""
        self.deleted_at: dict[bytes, float] = {}
        self._asked: set[bytes] = set()
        self.well_since = self.trusted_since = math.inf
        self.owners: dict[bytes, str] = {}
        self.late: set[bytes] = set()
        self.wanted: defaultdict[bytes, dict[str, float]] = defaultdict(dict)
        self._rng = world.rng(f"{self.name} lies")
        self._scripts: set[bytes] = set()
        self._judged = b"", False
        self._ends: list[End] = []

    def accept(self, connection: Connection) -> End:
        """Accept a new connection."""
        end = End(self, connection)
        self._ends.append(end)
        return end

    def crash(self) -> None:
        """End the server process at once. The kernel resets all connections."""
        self.up = False
        self.life += 1
        for end in list(self._ends):
            end.drop()

    def restart(self, *, forget: bool) -> None:
        """Start a new server process, with or without the memory of the last one."""
        self.up = True
        self._scripts.clear()
        self.voted &= not forget
        if forget:
            self._note_loss()
        self._judged = b"", False
        self.loop.within(lambda: self.memory.restart(forget=forget))

    def flush(self) -> None:
        """Delete all data, as FLUSHALL does."""
        self._note_loss()
        self.voted = False
        self.loop.within(self.memory.flush)

    def _note_loss(self) -> None:
        """Note that the server is about to lose its memory, and the votes that it forgets."""
        self.forgot += 1
        self.forgot_at = self.world.now
        ends = [self.loop.true(over) for _, value, over in self._values() if not is_offer(value)]
        self.votes_until = max([self.votes_until, *ends])

    def delete(self, key: bytes) -> None:
        """Delete the key of a lock, as DEL of another client does."""
        self.deleted_at[key] = self.world.now
        self.loop.within(self.memory.delete, key)

    def delete_queue(self, key: bytes) -> None:
        """Delete the queue of a lock's key, as another client could."""
        self.queue_deleted_at = self.world.now
        self.memory.queues._queues.pop(key, None)

    def flush_scripts(self) -> None:
        """Delete all scripts, as SCRIPT FLUSH does."""
        self.scripts_flushed_at = self.world.now
        self._scripts.clear()

    def _values(self) -> Iterator[tuple[bytes, bytes, float]]:
        """Yield the keys of locks, with their values and with their expiry by the server's clock.

        A key of readers is yielded once for each entry, with the entry and its expiry.
        """
        now = self.loop.time()
        for key, (value, over) in self.memory._keys.items():
            if over <= now or key.startswith(OWN_KEYS):
                continue
            if value != READERS:
                yield key, value, over
                continue
            for entry, until in self.memory._entries[key].items():
                if until >= now:
                    yield key, entry, until

    def locks(self) -> list[tuple[bytes, bytes]]:
        """Return the keys of locks that have not expired, with their values.

        A value is a token, the over mark of a token, or the entry of one reader.
        """
        return [(key, token) for key, token, _ in self._values() if not is_offer(token)]

    def read(self) -> set[bytes]:
        """Return the keys of locks that readers hold."""
        return {key for key, (value, _) in self.memory._keys.items() if value == READERS}

    def offers(self) -> list[tuple[bytes, bytes, float]]:
        """Return the reserved keys, each with the waiter of its offer and the expiry by the
        server's clock.
        """
        return [
            (key, offered_to(value), over) for key, value, over in self._values() if is_offer(value)
        ]

    def queues(self) -> list[tuple[bytes, list[bytes]]]:
        """Return the queues that have not expired, with their members. The first waiter comes
        first.
        """
        now = self.loop.time()
        queues = self.memory.queues._queues.items()
        return [
            (
                key,
                [
                    member
                    for _, member in sorted((ticket, member) for member, ticket in queue.items())
                ],
            )
            for key, (queue, until) in queues
            if until > now
        ]

    def has(self, key: bytes, token: bytes) -> bool:
        """Return True if `key` holds `token` now. The token may be the entry of a reader."""
        return self.keeps(key, token) > self.world.now

    def keeps(self, key: bytes, token: bytes) -> float:
        """Return the true time at which `key` stops holding `token` unless it is renewed.

        The result is minus infinity if `key` does not hold `token`. The token may be the entry of a
        reader.
        """
        held = self.memory._keys.get(key)
        if held is None:
            return -math.inf
        if held[0] == READERS:
            return self.loop.true(self.memory._entries[key].get(token, -math.inf))
        return self.loop.true(held[1]) if held[0] == token else -math.inf

    def lost_at(self, key: bytes) -> float:
        """Return the true time at which a fault last deleted a key, whether it existed or not."""
        return max(self.forgot_at, self.deleted_at.get(key, -math.inf))

    @property
    def trusted(self) -> bool:
        """True if the marker shows that the server is trusted."""
        marker = self.memory._keys.get(MARKER_KEY)
        if marker is None:
            return False
        # The watch reads this property very often, and the marker seldom changes.
        if self._judged[0] is not marker[0]:
            own_marker = b"%b:0" % self.memory.run_id
            self._judged = (
                marker[0],
                read_marker(marker[0], 0, own_marker, 0.0, 0.0).trust is Trust.TRUSTED,
            )
        return self._judged[1]

    def lost(self) -> None:
        """Note that the server is about to end or to be flushed."""
        self.well_since = self.trusted_since = math.inf

    def look(self, *, guarded: bool) -> None:
        """Update the times since when the server has been running, trusted and well."""
        now = self.world.now
        if not self.up or self.loop.stopped or self.lying:
            self.running_since = self.well_since = math.inf
            return
        if self.running_since == math.inf:
            self.running_since = now
        if not self.trusted:
            self.trusted_since = math.inf
        elif self.trusted_since == math.inf:
            self.trusted_since = now
        if guarded and self.trusted_since == math.inf:
            self.well_since = math.inf
        elif self.well_since == math.inf:
            self.well_since = now

    def gone(self, end: End) -> None:
        """Forget a connection that has ended."""
        if end in self._ends:
            self._ends.remove(end)
            self.memory.detach(end)

    def execute(self, end: End, words: list[bytes]) -> bytes:
        """Execute a command of a connection, and return the encoded answer."""
        name = words[0].upper()
        tracked, end.caching = end.caching, False
        if name == b"EVALSHA" or name == b"EVAL":
            # The handshake asks which commands the server does not know. This server knows all of
            # them.
            return encode([]) if words[1] in _TRIES else self._run(end, words, tracked=tracked)
        if name == b"INFO":
            about = (
                b"redis_version:7.4.0\r\nrun_id:%b\r\nrole:master\r\ncluster_enabled:0\r\n"
                % self.memory.run_id
            )
            return encode(about)
        if name == b"SCRIPT":
            script = _BY_SOURCE[words[2]]
            self._scripts.add(script.sha)
            return encode(script.sha)
        if name == b"TIME":
            return encode([b"0", b"0"])
        if name == b"HELLO":
            return b"%0\r\n"
        if name == b"PUBLISH":
            return encode(self.memory.publish(words[1], words[2]))
        if name == b"SUBSCRIBE":
            end.subscribe(words[1])
            return subscribed(words[1])
        assert name == b"CLIENT", f"unknown command {words!r}"
        end.caching = words[1] == b"CACHING"
        return _OK

    def _run(self, end: End, words: list[bytes], *, tracked: bool) -> bytes:
        named, count = words[1], int(words[2])
        script = _BY_SHA[named] if words[0] == b"EVALSHA" else _BY_SOURCE[named]
        self.calls += script.name in _OF_LOCKS
        calls = _one_by_one(script.name, words[3 : 3 + count], words[3 + count :])
        if words[0] == b"EVALSHA" and named not in self._scripts:
            # A manager that closes meanwhile does not send the full script. Then the token may stay
            # on the server until it expires.
            self.late.update(args[0] for _, _, args in calls if args)
            return b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
        self._scripts.add(script.sha)
        if script.name == "hand_over_each" and words[4 + count] and not self.trusted:
            return encode([])
        commands = [
            Command(_BY_NAME[name], tuple(keys), tuple(args), tracked=tracked)
            for name, keys, args in calls
        ]
        replies = [self._call(end, command) for command in commands]
        if self.lying:
            return encode(self._rng.choice(LIES))
        if not script.name.endswith("_each"):
            return encode(replies[0])
        return encode(len(calls) if replies == [1] * len(calls) else replies)

    def _call(self, end: End, command: Command) -> Any:
        name = command.script.name
        if name in _SETTING:
            token = command.args[0]
            assert isinstance(token, bytes)
            self.owners[token] = end.owner
            if end.late:
                self.late.add(token)
            if name in _ACQUIRING:
                if token in self._asked:
                    self.repeated = token
                self._asked.add(token)
        if name in _SETTING or name in _STANDING:
            for key in command.keys:
                self.wanted[key][end.owner] = self.world.now
        if end.late and name in _STANDING:
            self.late.add(bytes(command.args[0]).partition(b":")[2])
        reply = self.memory.execute(command, end)
        self.voted |= self.trusted
        self.world.log.append(
            (self.world.now, self.name, end.owner, name, command.keys[:1], command.args[:1], reply)
        )
        return reply


def _one_by_one(
    script: str, keys: list[bytes], args: list[bytes]
) -> list[tuple[str, list[bytes], list[bytes]]]:
    """Return the single calls of one call of an `*_each` script. A call of another script is one
    call.
    """
    if script == "release_each":
        return [("release", [key], [token]) for key, token in zip(keys, args, strict=False)]
    handing = script == "hand_over_each"
    if not handing and script != "acquire_each":
        return [(script, keys, args)]
    own, own_marker, *each = args
    calls = []
    for key in keys[:-2] if own == b"2" else keys:
        if handing:
            calls.append(("release", [key], [each.pop(0)]))
        token, ttl, *each = each
        if own == b"2":
            fence, slot, *each = each
            calls.append(
                (
                    "acquire_guarded",
                    [key, *keys[-2:]],
                    [token, ttl, own_marker, fence, b"", b"", slot],
                )
            )
        else:
            calls.append(("acquire", [key], [token, ttl]))
    return calls


class End:
    """The server's side of one connection.

    The class implements `network.ServerEnd` and the connection of the in-memory server.

    Attributes:
        caching: True if the server tracks the keys that the next command reads.
    """

    def __init__(self, server: Server, connection: Connection) -> None:
        self._server = server
        self._connection: Connection | None = connection
        self.owner = connection.link.loop.name
        self._reader = hiredis.Reader()
        self._answers: list[bytes] | None = None
        self._channel = b""
        self.caching = False
        server.memory.attach(self)

    def received(self, data: bytes) -> None:
        """Handle bytes that have arrived. A stopped server reads them when it goes on."""
        self._server.loop.receive(self._handle, data)

    def closed(self) -> None:
        """Handle the end of the process's side."""
        self._server.loop.receive(self._end)

    @property
    def late(self) -> bool:
        """True if the connection is closed, cut or aborted, so that the present request is a late
        one.
        """
        return self._connection is None or self._connection.dead

    def drop(self) -> None:
        """Close the connection, because the server process has ended."""
        connection, self._connection = self._connection, None
        self._server.gone(self)
        if connection is not None:
            connection.hang_up()

    def invalidated(self, keys: list[bytes] | None) -> None:
        """Send the message that tracked keys have changed."""
        self._push(invalidation(keys))

    def notified(self, payload: bytes) -> None:
        """Send a message that was published on the channel of this connection."""
        self._push(message(self._channel, payload))

    def subscribe(self, channel: bytes) -> None:
        """Subscribe to the channel of the process."""
        self._channel = channel
        self._server.memory.subscribe(self, channel)

    def unsubscribe(self) -> None:
        """End the subscription, and keep the connection."""
        self._server.memory._subscribers.get(self._channel, {}).pop(self, None)

    def connect(self) -> None:
        """Do nothing, because simulated processes connect by themselves."""

    def disconnect(self) -> None:
        """Do nothing, because only simulated faults break a connection."""

    def _push(self, data: bytes) -> None:
        """Send a push message, after the answers to the commands before it."""
        if self._answers is not None:
            self._answers.append(data)
        elif self._connection is not None:
            self._connection.answer(data)

    def _end(self) -> None:
        self._connection = None
        self._server.gone(self)

    def _handle(self, data: bytes) -> None:
        if self._connection is None:
            return
        self._reader.feed(data)
        self._answers = answers = []
        words: Any
        while (words := self._reader.gets()) is not False:
            answers.append(self._server.execute(self, words))
        self._answers = None
        if answers:
            self._connection.answer(b"".join(answers))
