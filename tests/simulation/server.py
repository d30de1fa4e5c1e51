"""Simulated lock servers: the in-memory server's keys and scripts, behind connections that speak
RESP.
"""

from __future__ import annotations

import math
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
"""Replies that no script can give."""

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

_SETTING = frozenset({"acquire", "acquire_guarded", "acquire_read", "repair", "repair_read"})
_STANDING = frozenset({"stand", "stand_read", "stand_slots"})


def manager_in(member: bytes) -> bytes:
    """The manager that a member of a queue belongs to."""
    return member.lstrip(b"-").partition(b":")[0]


def offered_to(value: bytes) -> bytes:
    """The member of a queue that an offer is for. An offer to a reader has no ticket."""
    claim = value.removeprefix(OFFER)
    return claim if is_reader(claim) else claim.partition(b":")[2]


class Server:
    """One server, its memory and its clock.

    Attributes:
        up: False while nobody can connect.
        life: Its processes are numbered from 1: a connection to one that has ended is reset.
        running_since: True time since when it has been running.
        queue_deleted_at: True time at which another client deleted a queue.
        scripts_flushed_at: True time at which its scripts were flushed.
        well_since: The same, and trusted, and it has forgotten nothing.
        trusted_since: True time since when its marker has said so.
        owners: Which process every token came from.
        late: Tokens, and members of queues, that came over a connection which was dead by then:
            their release may have been
            faster, over another; and those of a script that was flushed.
        forgot: How often it lost its memory.
        voted: Its memory has been trusted, so that it may hold locks.
        lying: It executes scripts, and answers each with what no script can return.
        calls: How many scripts it has executed that take, release or wait.
    """

    def __init__(self, world: World, index: int, rate: float, skew: float) -> None:
        self.world = world
        self.index = index
        self.name = f"n{index}"
        self.loop = ProcessLoop(world, self.name, rate)  # type: ignore[abstract]
        self.memory = MemoryServer(self.name)
        # Wall clocks show the true time but for their skew, as those of processes do.
        self.memory.skew = skew - self.loop.time()
        self.up = True
        self.life = 1
        self.forgot = 0
        self.voted = self.lying = False
        self.calls = 0
        self.running_since = 0.0
        self.queue_deleted_at = self.scripts_flushed_at = -math.inf
        self.well_since = self.trusted_since = math.inf
        self.owners: dict[bytes, str] = {}
        self.late: set[bytes] = set()
        self._rng = world.rng(f"{self.name} lies")
        self._scripts: set[bytes] = set()
        self._judged = b"", False
        self._ends: list[End] = []

    def accept(self, connection: Connection) -> End:
        """A new connection."""
        end = End(self, connection)
        self._ends.append(end)
        return end

    def crash(self) -> None:
        """End at once; the kernel resets all connections."""
        self.up = False
        self.life += 1
        for end in list(self._ends):
            end.drop()

    def restart(self, *, forget: bool) -> None:
        """A new process, with the memory of the one before or without."""
        self.up = True
        self._scripts.clear()
        self.forgot += forget
        self.voted &= not forget
        self._judged = b"", False
        self.loop.within(lambda: self.memory.restart(forget=forget))

    def flush(self) -> None:
        """FLUSHALL."""
        self.forgot += 1
        self.voted = False
        self.loop.within(self.memory.flush)

    def delete(self, key: bytes) -> None:
        """DEL of a lock's key by another client."""
        self.loop.within(self.memory.delete, key)

    def delete_queue(self, key: bytes) -> None:
        """DEL of the queue beside a lock's key by another client."""
        self.queue_deleted_at = self.world.now
        self.memory.queues._queues.pop(key, None)

    def flush_scripts(self) -> None:
        """SCRIPT FLUSH."""
        self.scripts_flushed_at = self.world.now
        self._scripts.clear()

    def _values(self) -> Iterator[tuple[bytes, bytes, float]]:
        """The locks' keys, their values, and when these end by the server's clock; of readers, each
        of their entries.
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
        """The locks' keys that have not expired, and their values: a token, the mark of one, or the
        entry of each reader.
        """
        return [(key, token) for key, token, _ in self._values() if not is_offer(token)]

    def read(self) -> set[bytes]:
        """The locks' keys held by readers."""
        return {key for key, (value, _) in self.memory._keys.items() if value == READERS}

    def offers(self) -> list[tuple[bytes, bytes, float]]:
        """The locks' keys that are kept for a waiter, the waiters, and when the offers end by the
        server's clock.
        """
        return [
            (key, offered_to(value), over) for key, value, over in self._values() if is_offer(value)
        ]

    def queues(self) -> list[tuple[bytes, list[bytes]]]:
        """The queues in which somebody waits here, and their members, the first one first."""
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
        """True while `key` holds `token`, which may be the entry of a reader."""
        held = self.memory._keys.get(key)
        if held is None or held[1] <= self.loop.time():
            return False
        if held[0] == READERS:
            return self.memory._entries[key].get(token, -math.inf) >= self.loop.time()
        return held[0] == token

    @property
    def trusted(self) -> bool:
        """True when its marker says so."""
        marker = self.memory._keys.get(MARKER_KEY)
        if marker is None:
            return False
        # The same one is looked at again and again.
        if self._judged[0] is not marker[0]:
            own_marker = b"%b:0" % self.memory.run_id
            self._judged = (
                marker[0],
                read_marker(marker[0], 0, own_marker, 0.0, 0.0).trust is Trust.TRUSTED,
            )
        return self._judged[1]

    def lost(self) -> None:
        """It is going to end, or to be flushed."""
        self.well_since = self.trusted_since = math.inf

    def look(self, *, guarded: bool) -> None:
        """Find out whether it is well."""
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
        """A connection is over."""
        if end in self._ends:
            self._ends.remove(end)
            self.memory.detach(end)

    def execute(self, end: End, words: list[bytes]) -> bytes:
        """One command of one connection."""
        name = words[0].upper()
        tracked, end.caching = end.caching, False
        if name == b"EVALSHA" or name == b"EVAL":
            # The handshake asks which commands are unknown: none.
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
            # A manager that has closed by then does not send the script in full.
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
    """The calls that one call of several is made of, as `*_each.lua` say; any other is one."""
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
    """The server's side of one connection; see `network.ServerEnd` and `memory_server.Connection`.

    Attributes:
        caching: True if the next command leaves the keys tracked that it reads.
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
        """Bytes have come; a stopped server reads them when it goes on."""
        self._server.loop.receive(self._handle, data)

    def closed(self) -> None:
        """The other side is gone."""
        self._server.loop.receive(self._end)

    @property
    def late(self) -> bool:
        """True when the connection has died or was given up, and this is what was under way."""
        return self._connection is None or self._connection.dead

    def drop(self) -> None:
        """The server's process ended."""
        connection, self._connection = self._connection, None
        self._server.gone(self)
        if connection is not None:
            connection.hang_up()

    def invalidated(self, keys: list[bytes] | None) -> None:
        """Tracked keys changed."""
        self._push(invalidation(keys))

    def notified(self, payload: bytes) -> None:
        """A message was published on the channel of this connection."""
        self._push(message(self._channel, payload))

    def subscribe(self, channel: bytes) -> None:
        """The process asks for the messages of its channel."""
        self._channel = channel
        self._server.memory.subscribe(self, channel)

    def unsubscribe(self) -> None:
        """Lose the subscription, though not the connection."""
        self._server.memory._subscribers.get(self._channel, {}).pop(self, None)

    def connect(self) -> None:
        """Of `memory_server.Connection`: processes connect by themselves."""

    def disconnect(self) -> None:
        """See `connect`."""

    def _push(self, data: bytes) -> None:
        """Send what nobody asked for, behind the answers so far."""
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
