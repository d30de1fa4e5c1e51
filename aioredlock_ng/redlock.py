"""The manager: from settings and URLs to open connections and locks; it takes no decision about any lock itself."""

from __future__ import annotations

import os
import random
import secrets
from dataclasses import asdict
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from aioredlock_ng._core.fencing import LATEST_US, slot_of
from aioredlock_ng._core.inspection import Unknown, deletion_of, lock_info, look_of, look_vote
from aioredlock_ng._core.keys import MAX_NAMES, KeyFormat, resource_name
from aioredlock_ng._core.owners import checked_label, owner_key
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._core.validity import ttl_ms, watch_after
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._engine.attempt.tokens import system_tokens
from aioredlock_ng._engine.clock import boottime, wall_us
from aioredlock_ng._engine.engine import Engine
from aioredlock_ng._engine.loops import running_loop
from aioredlock_ng._engine.spec import Life, LockSpec
from aioredlock_ng._engine.trust.forcing import force_release
from aioredlock_ng._nodes.channel import Outbox
from aioredlock_ng._nodes.connect import Connector
from aioredlock_ng._nodes.fleet import Fleet
from aioredlock_ng._nodes.node import RedisNode
from aioredlock_ng._nodes.port import NodeState
from aioredlock_ng._scripts.kinds import MUTEX, guarded_mutex, needed
from aioredlock_ng.doctor import PROBE, WATCH, diagnose
from aioredlock_ng.environment import naming_variables, settings_from
from aioredlock_ng.errors import ConfigurationError, QuorumUnreachable, RedlockClosed
from aioredlock_ng.guarded import Guard, LockOptions, guarded
from aioredlock_ng.lease import Lease
from aioredlock_ng.lock import Lock, OnLost
from aioredlock_ng.logs import Sinks, log_event
from aioredlock_ng.options import Options, positive_seconds
from aioredlock_ng.records import Diagnosis, LockInfo, Queued, Stats
from aioredlock_ng.usage import async_with_only

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import TracebackType

    import redis.asyncio

    from aioredlock_ng._core.inspection import Look
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng._scripts import Command
    from aioredlock_ng._scripts.kinds import LockKind
    from aioredlock_ng.events import EventSink

__all__ = ["Redlock"]

_MOST_SPECS = 4096
"""Names whose settings a manager keeps, about 2 MB."""


_RIGHT_USE = "`async with Redlock([...]) as redlock:`, or `await redlock.open()` and later `await redlock.aclose()`"


@async_with_only(lambda _: _RIGHT_USE)
class Redlock:
    """Locks over N independent Redis nodes.

    Use it as `async with Redlock([...]) as redlock:`, or `await open()` and `await aclose()`, which may happen in
    different tasks of one event loop. It opens one connection per node and keeps it alive in the background.

    Args:
        nodes: URLs (`redis://`, `rediss://`, `unix://`), `redis.asyncio.Redis` clients (their settings are used, they
            themselves are never touched), or node objects. An odd number; 1 is no Redlock but works.
        ttl: Seconds that a lock lives without renewal.
        node_timeout: Seconds that one node may take to answer before a round goes on without it.
        drift_factor: Share of the ttl given up for clock drift, 0 to 0.5.
        min_validity: Seconds that must be left for a grant to count; None: a twentieth of the ttl.
        key_format: Redis key of a name; contains `{name}` once.
        max_ttl: The longest ttl a lock may ask for, seconds; with a recovery guard at most 86,400, a day: the nodes remember
            the longest that any manager had, and wait for it where they forgot (docs/operations.md, "To lower max_ttl").
        connect_timeout: Seconds for connecting and handshake with one node.
        close_timeout: Seconds that `aclose` waits for releases under way.
        fencing: Give every lease a fencing token, `lease.fence`. False: plain `SET NX PX`, no repair of lost keys.
        recovery_guard: "auto": a node that lost its memory (restart, flush, failover) grants nothing for `max_ttl` and
            a second, but a wholly new set of nodes may vote at once. "strict": that waits too. None: no guard.
        owner: What `inspect` shows of who holds a lock: a label beside the keys of leases that live longer than a tenth of a
            second. True: host, process and task; a text of your own, one printable line of at most 200 bytes; False: none.
        sinks: Called with every event (see `aioredlock_ng.events`), beside the log; must be quick and not block.
        clock: Seconds that never jump back; for simulation. Default: boot time, which goes on during suspend.
        wall_clock: Seconds since 1970, only for the value of fences; their order never depends on it.
        rng: Randomness for tokens and jitter; for simulation. Default: the system's for tokens.

    Raises:
        ConfigurationError: A node or a setting is unusable; says which, why, and what to do.
    """

    def __init__(
        self,
        nodes: Iterable[str | redis.asyncio.Redis | Node],
        *,
        ttl: float = 10.0,
        node_timeout: float = 0.1,
        drift_factor: float = 0.01,
        min_validity: float | None = None,
        key_format: str = "{name}",
        max_ttl: float = 60.0,
        connect_timeout: float = 2.0,
        close_timeout: float = 1.0,
        fencing: bool = True,
        recovery_guard: Literal["auto", "strict"] | None = "auto",
        owner: str | bool = True,
        sinks: Iterable[EventSink] = (),
        clock: Callable[[], float] = boottime,
        wall_clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._options = Options(
            ttl=ttl,
            node_timeout=node_timeout,
            drift_factor=drift_factor,
            min_validity=min_validity,
            key_format=key_format,
            max_ttl=max_ttl,
            connect_timeout=connect_timeout,
            close_timeout=close_timeout,
            fencing=fencing,
            recovery_guard=recovery_guard,
            owner=owner,
        )
        _check_surroundings(clock, wall_clock, rng)
        self._keys = KeyFormat(key_format)
        self._life = self._life_of(self._options.ttl)
        # By name, for locks with the manager's own settings. A new one costs a microsecond, and
        # four objects for the garbage collector to visit.
        self._specs: dict[str, LockSpec] = {}
        self._given = _checked_nodes(nodes)
        self._sinks = _checked_sinks(sinks)
        self._clock = clock
        self._wall_us = wall_us if wall_clock is None else lambda: int(wall_clock() * 1e6)
        self._rng = rng
        # Nobody guesses it: it must not occur in a name or a token.
        self._run_id = b"%040x" % (secrets.randbits(160) if rng is None else rng.getrandbits(160))
        self._kind = self._kind_of(self._options)
        self._engine: Engine | None = None
        self._nodes: list[Node] = []

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ, **options: Any) -> Self:
        """From the environment.

        `AIOREDLOCK_NG_NODES` holds the URLs, comma separated; a comma within a password is written as %2C. Optional are
        `AIOREDLOCK_NG_TTL`, `_NODE_TIMEOUT`, `_MIN_VALIDITY`, `_MAX_TTL`, `_CONNECT_TIMEOUT`, `_CLOSE_TIMEOUT` (seconds),
        `_DRIFT_FACTOR` (a share), `_KEY_FORMAT`, `_FENCING` (true or false), `_RECOVERY_GUARD` (auto, strict or none) and
        `_OWNER` (a text, true or false).

        Args:
            environ: Where to look. A variable that is nearly one of these is named in the log.
            options: Settings that win over the environment; see the class.

        Raises:
            ConfigurationError: `AIOREDLOCK_NG_NODES` is missing, or a value is unusable; names the variable.
        """
        urls, found = settings_from(environ, options)
        with naming_variables("nodes", *found):
            return cls(urls, **found, **options)

    def __repr__(self) -> str:
        """Whether it is open, and the addresses of its nodes, without credentials."""
        state = "closed" if self._engine is None else "open"
        return f"<{type(self).__name__} {state} {', '.join(node.address for node in self._given)}>"

    async def open(self) -> Self:
        """Connect; nodes that are down now are connected in the background.

        Returns:
            Itself.

        Raises:
            ConfigurationError: Two nodes are the same server, or `wall_clock` tells no time of this age.
            RedlockClosed: It is open already, maybe in another event loop or in the process before a fork. Or no asyncio
                event loop runs here, as under trio.

        Safety: cancelled, everything is closed again.
        """
        loop = running_loop()
        if self._engine is not None:
            try:
                self._engine.usable()
            except RedlockClosed as error:
                raise RedlockClosed(f"{error}: make a new Redlock in this one") from None
            raise RedlockClosed("this Redlock is open already")
        if not 0 <= (wall_us := self._wall_us()) < LATEST_US:
            raise ConfigurationError(
                f"wall_clock must tell seconds since 1970, from 0 to {LATEST_US / 1e6:g}; it tells {wall_us / 1e6:g}"
            )
        rng = self._rng
        # Drawn anew, for a Redlock that was made before a fork is opened in both processes.
        manager_id = secrets.token_hex(8).encode() if rng is None else self._run_id[:16]
        outbox = Outbox(loop, self._clock, self._run_id if self._kind.vouch else b"")
        timeout = self._options.connect_timeout
        tell = Sinks(self._sinks) if self._sinks else None
        commands = needed(
            fencing=self._options.fencing, guard=self._options.recovery_guard is not None
        )
        self._nodes = [
            RedisNode(given, outbox, timeout, commands) if isinstance(given, Connector) else given
            for given in self._given
        ]
        engine = self._engine = Engine(
            Fleet(self._nodes, outbox),
            self._options,
            Sinks((log_event,) if tell is None else (log_event, tell)),
            tell=tell,
            clock=self._clock,
            wall_us=self._wall_us,
            draw=random.random if rng is None else rng.random,
            new_token=system_tokens().__next__
            if rng is None
            else lambda: b"%032x" % rng.getrandbits(128),
            run_id=self._run_id,
            manager_id=manager_id,
        )
        try:
            await engine.open()
            self._refuse_twins()
            engine.availability.begin()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def aclose(self) -> None:
        """Release the leases still held, end the acquisitions that wait, disconnect. Idempotent.

        Raises:
            RedlockClosed: Called from another loop or a forked process; nothing was closed or released.

        Safety: cancelled while it waits for the nodes (`close_timeout` at most), the releases are on their way and
        the connections are closed all the same.
        """
        engine = self._engine
        if engine is not None:
            engine.usable()
            self._engine = None
            await engine.aclose()

    async def __aenter__(self) -> Self:
        """See `open`."""
        return await self.open()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """See `aclose`."""
        await self.aclose()

    def lock(
        self,
        name: str | bytes,
        *more: str | bytes,
        ttl: float | None = None,
        blocking_timeout: float | None = None,
        auto_extend: bool = True,
        max_hold: float | None = None,
        on_lost: OnLost = "cancel",
        owner: str | None = None,
        fail_fast: bool = False,
        fair: bool = False,
    ) -> Lock:
        """Describe a lock; no I/O happens, and this works before `open`.

        Args:
            name: The resource, 1 to 65,536 bytes.
            more: Further resources to take together: all or nothing; at most 1,000 in all.
            ttl: Seconds that it lives without renewal, at most `max_ttl`; None: the manager's.
            blocking_timeout: Seconds that `acquire` waits at most; None: for ever; 0: one attempt without
                waiting, and a second one where rivals of the same instant split the votes; see `Lock.try_acquire`.
            auto_extend: Renew in the background until released.
            max_hold: Seconds after which the lease is lost even though it could be renewed; None: never.
            on_lost: "cancel": the task inside `async with` is cancelled on loss, also within
                `anyio.CancelScope(shield=True)`, as `asyncio.timeout` does. "flag": it is only told at the end, and by
                `lease.lost`, `lease.check()`, `lease.wait_lost()`.
            owner: The label of its leases, as a request's or a job's id: one printable line of at most 200 bytes. None: the
                manager's. A manager with `owner=False` writes none.
            fail_fast: While it is known that no quorum of nodes can grant, make one attempt instead
                of waiting for `blocking_timeout`. It waits for other holders as without.
            fair: Serve the waiting tasks of the whole fleet strictly in the order in which they came. Without
                it processes take turns, and each serves several of its own tasks per turn, which is quicker.

        Raises:
            ConfigurationError: An argument is unusable.
        """
        if blocking_timeout is not None:
            blocking_timeout = positive_seconds("blocking_timeout", blocking_timeout, zero=True)
        if on_lost not in ("cancel", "flag"):
            raise ConfigurationError(f"on_lost must be 'cancel' or 'flag', got {on_lost!r}")
        usual = ttl is None and max_hold is None and owner is None
        usual = usual and auto_extend is True and fail_fast is False and fair is False
        if not usual or more or type(name) is not str:
            spec = self._spec(
                (name, *more), ttl, auto_extend, max_hold, owner, fail_fast=fail_fast, fair=fair
            )
        elif (known := self._specs.get(name)) is not None:
            spec = known
        else:
            if len(self._specs) >= _MOST_SPECS:
                self._specs.clear()
            self._specs[name] = spec = self._spec((name,))
        return Lock(self, spec, blocking_timeout, on_lost)

    def guard(self, template: str, **options: Unpack[LockOptions]) -> Guard:
        """Decorate a coroutine function: each call runs inside `async with redlock.lock(name)`; see docs/workers.md.

        Args:
            template: The name, with parameters of the function, their attributes and formats: "report:{user.id}:{day:%F}".
            options: As for `lock`.

        Raises:
            ConfigurationError: At decoration: no coroutine function, unknown placeholder, unusable option. At the call: a
                value that has no stable text, or contains the separator behind it, so that two calls could mean one name.

        A call raises what `async with redlock.lock(…)` raises: `LockNotAcquired` without having begun, `LockLost` after it
        was cancelled or, when it finished all the same, instead of its result.

        Safety: as `Lock`.
        """
        return guarded(partial(self.lock, **options), template)

    async def locked(self, name: str | bytes) -> bool:
        """True when a quorum of nodes holds the same token for `name` right now, whoever's it is.

        True too when a quorum has keys of other types there: nobody can acquire the lock. False
        while its key is kept for a waiter (`inspect(name).offered`).

        Raises:
            QuorumUnreachable: Too few nodes answered to say.
            ConfigurationError, RedlockClosed: As everywhere.

        Safety: cancelled, nothing has changed.
        """
        return (await self.inspect(name)).held

    async def inspect(self, name: str | bytes) -> LockInfo:
        """Ask all nodes who holds `name`, for how long, and how many wait for it. Writes nothing.

        Raises:
            QuorumUnreachable: Too few nodes answered to say.
            ConfigurationError, RedlockClosed: As everywhere.

        Safety: cancelled, nothing has changed.
        """
        key = self._keys.key(name)
        # Its holder may write labels though this manager does not.
        labels = (owner_key(key),) if self._options.owner is not False else ()
        plain = self._kind.inspecting((key,), queues=True)
        # A user that may not read labels is still told who has the lock.
        command = self._kind.inspecting((key,), labels, queues=True) if labels else plain
        looks = await self._look(name, command, plain)
        return lock_info(resource_name((name,)), [node.address for node in self._nodes], looks)

    async def force_release(
        self, name: str | bytes, *, token: str | None = None, any_key: bool = False
    ) -> int:
        """Take the lock from whoever holds it; its holder loses it. An operator's last resort.

        Looks first, and deletes the keys of the token that has a majority of nodes. Where none has, waits for a little more
        than two node timeouts and deletes what is still there: an attempt under way without a majority is not hit, if its
        `node_timeout` is no longer than this manager's.

        A key that is no string, or does not expire, is no lock of this library and may be somebody's
        data. It is refused where no token has a majority, and left alone beside a holder's majority.

        Args:
            name: The lock.
            token: Only from the holder with this token, the whole one, as `inspect` told it (the log shows only the beginning),
                or who has the same grant after it; None: from whoever holds it.
            any_key: Delete such a key too, whatever it holds.

        Returns:
            On how many nodes a key was deleted; 0 as well where another has it than `token` says.

        Raises:
            QuorumUnreachable: Too few nodes answered to be sure that it is gone.
            ConfigurationError: `name` is unusable, `token` is no str, or `any_key` no bool. Or the
                key is no lock and `any_key` is False: nothing was deleted.
            RedlockClosed: As everywhere.

        Safety: cancelled, the keys are deleted on all nodes that answer, or on none.
        """
        key = self._keys.key(name)
        # An empty one is that of a key without a value, as others may write it.
        if token is not None and not isinstance(token, str):
            raise ConfigurationError(
                f"token must be the whole token as a str, or None, not {type(token).__name__}"
            )
        if not isinstance(any_key, bool):
            raise ConfigurationError(f"any_key must be True or False, not {type(any_key).__name__}")
        engine = self.engine()
        engine.usable()
        # The servers tell everybody but us (NOLOOP): a holder or a waiter of our own must not be the last to know.
        changed: Iterable[int] = range(len(self._nodes))
        try:

            def ask(command: Command) -> Awaitable[list[Look]]:
                # Nor is who stands in line to begin with what is being taken away.
                engine.doubt(key)
                return self._look(
                    name,
                    command,
                    read=look_of if command.script is self._kind.inspect else deletion_of,
                )

            deleted = await force_release(
                engine.context, ask, self._kind, key, slot_of(key), token, any_key=any_key
            )
            changed = [index for index, keys in enumerate(deleted) if keys]
        finally:
            for index in changed:
                engine.invalidated(index, [key])
        return sum(deleted)

    async def diagnose(self, *, watch: float = WATCH, probe: str | bytes = PROBE) -> Diagnosis:
        """Examine the nodes over connections of their own, open or not, and tell what weakens them as a set.

        Takes and releases a lock on each node, under a name of its own, and reads settings; takes about `watch` seconds,
        and a few `connect_timeout`s where a node hangs.

        Args:
            watch: Seconds between two looks at each node's clock; longer tells its rate more exactly.
            probe: The beginning of that lock's name, where the servers allow certain keys only.

        Raises:
            ConfigurationError: An argument is unusable.
            RedlockClosed: No asyncio event loop runs here.

        Safety: cancelled at any await, the connections are closed, and the lock is released or ends by its ttl.
        """
        running_loop()
        return await diagnose(self._given, self._options, watch=watch, probe=probe)

    @property
    def nodes(self) -> tuple[NodeState, ...]:
        """Health of every node, in the order given."""
        if self._engine is not None:
            return self._engine.states()
        return tuple(
            NodeState(given.address, "down", "this Redlock is not open") for given in self._given
        )

    @property
    def ready(self) -> bool:
        """True while a quorum of nodes is connected and may grant locks. No I/O, from any thread.

        False before `open` and after `aclose`. For health checks; see `wait_ready`.
        """
        return self._engine is not None and self._engine.ready

    async def wait_ready(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until a quorum of nodes is connected and may grant locks.

        Args:
            timeout: Seconds to wait at most; None: for ever; 0: raise at once unless it is so.

        Raises:
            QuorumUnreachable: It is not so after `timeout`; names each node that cannot, and why.
            ConfigurationError: `timeout` is unusable.
            RedlockClosed: Not open, closed meanwhile, or called from another loop or a forked process.

        Safety: cancelled, nothing has changed.
        """
        if timeout is not None:
            timeout = positive_seconds("timeout", timeout, zero=True)
        engine = self.engine()
        engine.usable()
        await engine.availability.wait(timeout)

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The leases that this manager holds now."""
        engine = self._engine
        return (
            ()
            if engine is None
            else tuple(Lease(engine, holding) for holding in engine.extender.holdings)
        )

    def stats(self) -> Stats:
        """Counters since `open`, and this process's places in the queues. No node is asked.

        Raises:
            RedlockClosed: Not open.
        """
        engine = self.engine()
        counters = asdict(engine.context.counters)
        lines = engine.lines
        held = len(engine.extender.holdings)
        queued = tuple(
            Queued(", ".join(map(self._keys.name, keys)), ticket, rank)
            for keys, ticket, rank in (place.queued for place in lines.places())
        )
        return Stats(
            **counters,
            held=held,
            waiting=len(lines.contenders()),
            standing=len(queued),
            queued=queued,
        )

    def engine(self) -> Engine:
        """For `Lock`: the open engine.

        Raises:
            RedlockClosed: Not open.
        """
        if self._engine is None:
            raise RedlockClosed(
                "this Redlock is not open; use `async with redlock:` or `await redlock.open()` first"
            )
        return self._engine

    def _spec(
        self,
        names: tuple[str | bytes, ...],
        ttl: float | None = None,
        auto_extend: bool = True,
        max_hold: float | None = None,
        owner: str | None = None,
        *,
        fail_fast: bool = False,
        fair: bool = False,
    ) -> LockSpec:
        """Check the arguments of `lock`, and return the settings that follow from them."""
        if len(names) > MAX_NAMES:
            raise ConfigurationError(
                f"a lock takes at most {MAX_NAMES:,} names at once, got {len(names):,}; take one that stands for them"
            )
        # In one order everywhere: two sets that share names cannot wait for each other.
        keys = tuple(sorted(map(self._keys.key, names)))
        if len(set(keys)) != len(keys):
            raise ConfigurationError(
                f"lock names {resource_name(names)!r} contain one name twice; name each once"
            )
        slots = tuple(dict.fromkeys(map(slot_of, keys)))
        if max_hold is not None:
            max_hold = positive_seconds("max_hold", max_hold)
        if not isinstance(auto_extend, bool):
            raise ConfigurationError(
                f"auto_extend must be True or False, not {type(auto_extend).__name__}"
            )
        if not isinstance(fail_fast, bool):
            raise ConfigurationError(
                f"fail_fast must be True or False, not {type(fail_fast).__name__}"
            )
        if not isinstance(fair, bool):
            raise ConfigurationError(f"fair must be True or False, not {type(fair).__name__}")
        if owner is not None:
            owner = checked_label(owner)
        life = self._life if ttl is None else self._life_of(self._options.check_ttl(ttl))
        resource = resource_name(names)
        return LockSpec(
            self._kind,
            resource,
            names,
            keys,
            slots,
            life,
            auto_extend,
            max_hold,
            owner,
            fail_fast,
            fair,
        )

    def _kind_of(self, options: Options) -> LockKind:
        vouch = (
            b"" if options.recovery_guard is None else b"%b:%d" % (self._run_id, options.guard_ms)
        )
        return (
            guarded_mutex(fencing=options.fencing, vouch=vouch)
            if options.fencing or vouch
            else MUTEX
        )

    def _life_of(self, ttl: float) -> Life:
        options = self._options
        return Life(
            ttl,
            b"%d" % ttl_ms(ttl),
            options.drift(ttl),
            options.least_validity(ttl),
            watch_after(ttl),
        )

    async def _look(
        self,
        name: str | bytes,
        command: Command,
        plainer: Command | None = None,
        *,
        read: Callable[[Reply], Look] = look_of,
    ) -> list[Look]:
        """Ask all nodes; where one refuses that, all of them the plainer command.

        Args:
            name: The lock's.
            command: What to ask.
            plainer: See above.
            read: What an answer means.

        Raises:
            QuorumUnreachable: Fewer than a quorum answered.
        """
        asked_at = self._clock()
        replies = await self.engine().poll(command)
        if (
            plainer is not None
            and plainer is not command
            and any(isinstance(reply, Refusal) for reply in replies)
        ):
            replies = await self.engine().poll(plainer)
        looks = [read(reply) for reply in replies]
        if sum(not isinstance(look, Unknown) for look in looks) < quorum_of(len(looks)):
            votes = tuple(
                look_vote(node.address, look) for node, look in zip(self._nodes, looks, strict=True)
            )
            told = "; ".join(map(str, votes))
            raise QuorumUnreachable(
                f"no quorum answered: {told}",
                resource=resource_name((name,)),
                votes=votes,
                elapsed=self._clock() - asked_at,
            )
        return looks

    def _refuse_twins(self) -> None:
        for node in self._nodes:
            state = node.state()
            if state.state == "refused" and "are the same server" in state.reason:
                raise ConfigurationError(
                    f"{state.reason}; name each server once, or the quorum means nothing"
                )


def _check_surroundings(clock: object, wall_clock: object, rng: object) -> None:
    if not callable(clock):
        raise ConfigurationError(
            f"clock must be a callable that returns seconds, not {type(clock).__name__}; leave it out"
        )
    if wall_clock is not None and not callable(wall_clock):
        raise ConfigurationError(
            f"wall_clock must be a callable that returns seconds since 1970, or None, not {type(wall_clock).__name__}"
        )
    if rng is not None and not all(
        callable(getattr(rng, draw, None)) for draw in ("random", "getrandbits")
    ):
        raise ConfigurationError(f"rng must be a random.Random or None, not {type(rng).__name__}")


def _checked_nodes(nodes: Iterable[object]) -> list[Connector | Node]:
    if isinstance(nodes, (str, bytes, dict)) or not hasattr(nodes, "__iter__"):
        raise ConfigurationError(
            f"nodes must be a list of URLs, clients or node objects, not {type(nodes).__name__}"
        )
    checked: list[Any] = [node if hasattr(node, "ask") else Connector(node) for node in nodes]
    if not checked:
        raise ConfigurationError(
            "nodes is empty; name at least one server, better three or five independent ones"
        )
    seen: dict[object, str] = {}
    for node in checked:
        identity = node.identity if isinstance(node, Connector) else id(node)
        if identity in seen:
            raise ConfigurationError(
                f"nodes names the same server twice: {seen[identity]} and {node.address}; name each server once,"
                " or the quorum means nothing"
            )
        seen[identity] = node.address
    return checked


def _checked_sinks(sinks: Iterable[EventSink]) -> tuple[EventSink, ...]:
    if callable(sinks) or not hasattr(sinks, "__iter__"):
        raise ConfigurationError(
            f"sinks must be a list of callables that take an event, not {type(sinks).__name__}"
        )
    checked = tuple(sinks)
    for sink in checked:
        if not callable(sink):
            raise ConfigurationError(
                f"sinks must be callables that take an event; {sink!r} is none"
            )
        if iscoroutinefunction(sink) or iscoroutinefunction(getattr(sink, "__call__", None)):  # noqa: B004
            raise ConfigurationError(
                f"sinks are called and never awaited; {sink!r} is a coroutine function; give a plain one"
            )
    return checked
