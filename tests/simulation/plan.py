"""The plan of a run: settings, network, clocks, actions and faults.

A seed determines the whole plan. Semaphores, minimum holds, read-write locks, elections, fair
waiters, late calls, lies and threads are drawn by generators of their own. So these parts do not
change the other random choices of a seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.network import Profile

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Action", "Fault", "Plan", "plan_of"]

DRIFT_FACTOR = 0.01
"""The drift factor of the library, as a share of the ttl."""

WITHIN = 0.0045
"""Clock rates between 1 - `WITHIN` and 1 + `WITHIN` differ by less than the drift factor."""


@dataclass(frozen=True, slots=True)
class Action:
    """One acquisition, and the use of its lease. All times are in seconds.

    Attributes:
        name: Process, task and number. A shortened run keeps actions by this name.
        how: "with", "acquire", "try", or "lead". A leader has a term of the election with the name
            of the only resource.
        then: Event during the hold: "extend", "verify", "abandon", "leave" (the lease is never
            released), "downgrade" (a write lease becomes a read lease), "again" (a reader acquires
            a second read lease), "resign" (a leader resigns), or "" for none.
        cancel_after: Seconds until the task is cancelled. An `int` counts callbacks instead. None:
            never.
        limit: Limit of the semaphore with the name of the only resource. 0 for a lock.
        min_hold: Seconds after the grant for which no other lease is granted. None: no minimum.
        side: "read" or "write" for the read-write lock with the name of the only resource. "" for a
            lock.
        fair: True if the task does not wait in the line of its process.
        extended: The ttl that "extend" asks for. None: the present ttl.
        after: Share of the hold after which "extend", "verify" or "abandon" happens.
    """

    name: str
    process: int
    task: int
    think: float
    how: str
    resources: tuple[str, ...]
    ttl: float
    blocking_timeout: float | None
    auto_extend: bool
    max_hold: float | None
    hold: float
    then: str
    cancel_after: float | int | None
    limit: int = 0
    min_hold: float | None = None
    side: str = ""
    fair: bool = False
    extended: float | None = None
    after: float = 0.0

    @property
    def step_down(self) -> float:
        """Seconds before the end of the lease at which the body of a leader is cancelled."""
        return self.ttl / 3

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a lock, which needs all, or of a semaphore, which needs one of them."""
        if not self.limit:
            return self.resources
        return tuple(f"{self.resources[0]}#{number}" for number in range(1, self.limit + 1))


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: Name of a method of `faults.Faults`.
        at: True time at which the fault begins.
        lasts: Seconds from the beginning to the end of the fault.
        process: Index of the process, for kinds that affect one process.
        node: Index of the server, for kinds that affect one server.
        extra: A number from 0 to 1, by which a kind chooses its strength or its variant.
    """

    name: str
    kind: str
    at: float
    lasts: float
    process: int
    node: int
    extra: float


@dataclass(frozen=True, slots=True)
class Plan:
    """All that determines a run.

    Attributes:
        theme: Main subject of the run.
        profiles: Delays of messages, for each process and each node.
        rates: Clock rates of the processes, then of the servers.
        skews: Wall-clock times at the beginning of the run, of the processes and then of the
            servers.
        within_drift: True if clock rates differ by less than the drift factor. Then no two leases
            may be valid at once, except in runs with `beyond_guard`.
        beyond_guard: True if nodes forget and there is no recovery guard.
        threads: For each process, True if its engine has a loop of its own.
        stall_limit: The `stall_limit` of these processes.
        callers: Number of loops of tasks that each of these processes has.
    """

    seed: int
    theme: str
    nodes: int
    processes: int
    network: str
    profiles: tuple[tuple[Profile, ...], ...]
    node_timeout: float
    ttl: float
    max_ttl: float
    fencing: bool
    guard: str | None
    rates: tuple[float, ...]
    skews: tuple[float, ...]
    within_drift: bool
    beyond_guard: bool
    actions: tuple[Action, ...]
    faults: tuple[Fault, ...]
    threads: tuple[bool, ...]
    stall_limit: float | None
    callers: int

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all actions and faults. Shortening a plan can leave out each of them."""
        return (*(action.name for action in self.actions), *(fault.name for fault in self.faults))

    @property
    def steady(self) -> bool:
        """True for a crowd without faults in which every task waits until it is served."""
        patient = all(
            action.blocking_timeout is None and action.cancel_after is None
            for action in self.actions
        )
        sure = not any(profile.tail or profile.loss for row in self.profiles for profile in row)
        # Candidates of elections always wait without a limit. So their waits do not show that the
        # tasks of a crowd are patient.
        patient = patient and not any(action.how == "lead" for action in self.actions)
        return (
            self.theme == "queue"
            and self.network != "continents"
            and not self.faults
            and patient
            and sure
        )

    def keeping(self, names: Collection[str]) -> Plan:
        """Return the plan with only the actions and faults of these names."""
        actions = tuple(action for action in self.actions if action.name in names)
        faults = tuple(fault for fault in self.faults if fault.name in names)
        return replace(self, actions=actions, faults=faults)


_THEMES = {
    # Anything may go wrong. The other themes make rare combinations frequent.
    "mixed": 58,
    # The answers to one process are slow, and its leases are not renewed in the background.
    "answers": 12,
    # Majorities forget while holders are stopped.
    "forgetting": 12,
    # Connections break again and again.
    "cuts": 10,
    # There are no faults, and ttls are long. So each long wait is an error.
    "calm": 8,
}
_FOUNDINGS = 0.1
"""Share of the runs in which servers and processes start late or fail while a set is being founded.
"""

_WITNESSES = 0.06
"""Share of the other runs in which all nodes forget several times, while processes that knew them
still run.
"""

_CROWDS = 0.12
"""Share of the other runs in which many tasks of few processes want one name, each for a moment."""

_QUEUES = 0.1
"""Share of the other runs in which many processes want one name or overlapping sets, and waiters
may fail.
"""

_SEMAPHORES = 0.3
"""Share of the runs in which names are semaphores.

Some clients may have another limit. A few clients acquire one slot as an ordinary lock.
"""

_MIN_HOLDS = 0.2
"""Share of the runs in which some leases have a `min_hold`. Most of these leases are released
before its end.
"""
_RWLOCKS = 0.3
"""Share of the runs in which names are read-write locks.

Some clients, and all locks of several names, use these names as ordinary locks.
"""
_MIXED = 0.3
"""Share of the runs with semaphores in which other clients use the names of semaphores and slots as
read-write locks.
"""

_ELECTIONS = 0.2
"""Share of the runs in which some tasks are candidates of elections. Other tasks may lock the same
names.
"""

_FAIR = 0.15
"""Share of the runs in which some tasks wait with `fair=True`, beside tasks in the lines of their
processes.
"""

_LIARS = 0.1
"""Share of the runs in which a server answers with impossible replies for a while."""

_THREADS = 0.25
"""Share of the runs in which some processes have `thread=True`, and the loops of their tasks may
block.
"""

_LONG = 0.3
"""Share of the runs in which majorities forget and the ttl is `LONG_TTL`."""

LONG_TTL = 6.0
"""A ttl in seconds, so long that a guard time of half the ttl ends before the locks that a node
forgot. With a ttl of at most two seconds, the additional second of the guard hides this defect.
"""

_SIZES = (55, 30, 14, 0.5)
"""Weights of the sizes of a run about queues: 2 to 5 processes, 6 to 12, 13 to 30, or more.

A run of the largest size takes seconds.
"""

_NETWORKS = {
    # name: (shortest, longest) base delay of one way, spread, node_timeout, ttls; all in seconds
    "loopback": ((0.00005, 0.0001), 0.00003, 0.05, (0.3, 0.5, 1.0)),
    "zone": ((0.0002, 0.0005), 0.0001, 0.05, (0.3, 0.6, 1.0)),
    "zones": ((0.0005, 0.002), 0.0004, 0.1, (0.6, 1.0, 2.0)),
    "continents": ((0.01, 0.08), 0.003, 0.4, (2.0, 3.0)),
}


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed."""
    rng = Random(f"plan {seed}")
    theme = rng.choices(list(_THEMES), list(_THEMES.values()))[0]
    if Random(f"founding {seed}").random() < _FOUNDINGS:
        theme = "founding"
    elif Random(f"witness {seed}").random() < _WITNESSES:
        theme = "witness"
    elif Random(f"crowd {seed}").random() < _CROWDS:
        theme = "crowd"
    elif Random(f"queue {seed}").random() < _QUEUES:
        theme = "queue"
    network = rng.choices(list(_NETWORKS), (30, 25, 25, 20))[0]
    if theme in ("calm", "forgetting", "founding", "crowd", "witness"):
        network = rng.choice(("loopback", "zone", "zones"))
    if theme == "queue":
        network = rng.choice(("loopback", "zone", "zone", "zones", "zones", "continents"))
    (least, most), spread, node_timeout, ttls = _NETWORKS[network]
    nodes = rng.choices((3, 5, 2, 4, 1), (70, 20, 3, 5, 2))[0]
    if theme == "cuts":
        nodes = rng.choice((1, 1, 3))
    elif theme == "witness":
        nodes = rng.choice((1, 1, 3, 3, 5))
    processes = rng.choice((1, 2, 2, 3, 3, 4) if theme == "mixed" else (2, 2, 3))
    far = [1.0] * processes
    if theme == "queue":
        processes = rng.choices(
            (rng.randint(2, 5), rng.randint(6, 12), rng.randint(13, 30), rng.randint(31, 200)),
            _SIZES,
        )[0]
        # A distant process has four times the delay. Between continents its round trips would
        # exceed the node timeout.
        far = [
            rng.choice((1.0, 1.0, 1.0, 4.0)) if network != "continents" else 1.0
            for _ in range(processes)
        ]
    tail = rng.choice((0.0, 0.0, 0.005, 0.02))
    loss = rng.choice((0.0, 0.0, 0.0, 0.003))
    if theme == "queue" and _is_steady(seed):
        tail = loss = 0.0
    profiles = tuple(
        tuple(
            Profile(
                rng.uniform(least, most) * far[process],
                spread,
                tail,
                loss,
                node_timeout * rng.uniform(0.1, 0.5)
                if theme == "answers" and process == 0
                else 0.0,
            )
            for _ in range(nodes)
        )
        for process in range(processes)
    )
    ttl = 5.0 if theme == "calm" else rng.choice(ttls)
    if theme == "forgetting" and Random(f"long ttl {seed}").random() < _LONG:
        ttl = LONG_TTL
    fencing, guard = rng.choices(
        ((True, "auto"), (True, "strict"), (False, "auto"), (True, None), (False, None)),
        (65, 8, 7, 8, 12),
    )[0]
    if theme in ("founding", "witness") or (theme == "forgetting" and guard is None):
        guard = "auto"
    within = rng.random() < 0.92
    limit = WITHIN if within else 0.2
    rates = tuple(
        1.0 + limit * rng.choice((-1.0, -1.0, 0.0, 1.0, 1.0, rng.uniform(-1, 1)))
        for _ in range(processes + nodes)
    )
    max_ttl = ttl * rng.choice((1.0, 1.5))
    plan = Plan(
        seed=seed,
        theme=theme,
        nodes=nodes,
        processes=processes,
        network=network,
        profiles=profiles,
        node_timeout=node_timeout,
        ttl=ttl,
        max_ttl=max_ttl,
        fencing=fencing,
        guard=guard,
        rates=rates,
        skews=(),
        within_drift=within,
        beyond_guard=False,
        actions=(),
        faults=(),
        threads=(False,) * processes,
        stall_limit=None,
        callers=1,
    )
    actions = _with_min_holds(seed, plan, _with_semaphores(seed, plan, _actions(rng, plan)))
    actions = _with_fair(
        seed, plan, _with_elections(seed, plan, _with_rwlocks(seed, plan, actions))
    )
    actions = _with_late_calls(seed, plan, actions)
    length = ttl * rng.choice((4, 6, 10))
    special = {
        "forgetting": _bursts,
        "founding": _founding,
        "witness": _witnessed,
        "queue": _unfair,
    }
    faults = special[theme](rng, plan) if theme in special else _faults(rng, plan, length)
    if theme != "queue":
        faults += _lies(seed, plan, length)
    forgetting = any(fault.kind in ("flush", "crash_empty") for fault in faults)
    # If nodes forget, fences rise only if the wall clocks differ by less than half the guard time.
    # In other runs the wall clocks may show any time.
    apart = 0.2 * max_ttl if forgetting else rng.choice((0.0, 0.5, 300.0))
    skews = tuple(1.7e9 + rng.uniform(-apart, apart) for _ in range(processes + nodes))
    plan = replace(
        plan, actions=actions, faults=faults, skews=skews, beyond_guard=forgetting and guard is None
    )
    return _with_threads(seed, plan, length)


def _is_mixed(seed: int) -> bool:
    """Return True if the plan of a seed with semaphores has read-write locks too, even on names of
    slots.
    """
    return Random(f"mixed {seed}").random() < _MIXED


def _with_semaphores(seed: int, plan: Plan, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Return the actions, some of them with semaphores.

    Steady crowds keep their locks, because the invariant `effort` has bounds for locks only.
    """
    rng = Random(f"semaphores {seed}")
    if rng.random() >= _SEMAPHORES or (plan.theme == "queue" and _is_steady(seed)):
        return actions
    limit = rng.choice((1, 2, 2, 3, 4))
    others = rng.choice((0.0, 0.0, 0.3))
    mix, mixed = Random(f"mix {seed}"), _is_mixed(seed)
    changed = []
    for action in actions:
        own = rng.randint(1, 4) if rng.random() < others else limit
        as_lock = rng.random() < 0.05 or (mixed and mix.random() < 0.2)
        if len(action.resources) > 1 or (mixed and mix.random() < 0.3):
            changed.append(action)
        elif as_lock:
            changed.append(
                replace(action, resources=(f"{action.resources[0]}#{rng.randint(1, limit)}",))
            )
        else:
            changed.append(replace(action, limit=own))
    return tuple(changed)


def _with_min_holds(seed: int, plan: Plan, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Give some leases a `min_hold`.

    Calm and steady runs have none, because the duration of their waits is judged. If many tasks
    want one name, few leases have a `min_hold`, and it is short. Otherwise the run would last too
    long.
    """
    rng = Random(f"min_hold {seed}")
    if (
        rng.random() >= _MIN_HOLDS
        or plan.theme == "calm"
        or (plan.theme == "queue" and _is_steady(seed))
    ):
        return actions
    crowded = plan.theme in ("crowd", "queue")
    often = 0.1 if crowded else rng.choice((0.3, 1.0))
    shares = (0.02, 0.1, 0.3) if crowded else (0.2, 0.5, 1.0, plan.max_ttl / plan.ttl)
    changed = []
    for action in actions:
        min_hold, early = plan.ttl * rng.choice(shares), rng.choice((0.0, 0.01, 0.3, 0.7))
        if rng.random() >= often:
            changed.append(action)
            continue
        max_hold = action.max_hold
        if max_hold is not None:
            max_hold = max(max_hold, min_hold)
        hold = min(action.hold, min_hold * early) if rng.random() < 0.8 else action.hold
        changed.append(replace(action, min_hold=min_hold, max_hold=max_hold, hold=hold))
    return tuple(changed)


def _with_rwlocks(seed: int, plan: Plan, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Turn some locks of one name into read-write locks."""
    rng = Random(f"rwlocks {seed}")
    mixed = _is_mixed(seed) and any(action.limit for action in actions)
    if (rng.random() >= _RWLOCKS and not mixed) or (plan.theme == "queue" and _is_steady(seed)):
        return actions
    # Most actions read, or as many write as read, or most of them write.
    shares = rng.choice(((85, 10, 5), (45, 45, 10), (20, 70, 10)))
    downgraded, again = rng.choice((0.0, 0.2, 0.5)), rng.choice((0.0, 0.0, 0.2))
    changed = []
    for action in actions:
        side = rng.choices(("read", "write", ""), shares)[0]
        draw = rng.random()
        if action.limit or len(action.resources) > 1 or ("#" in action.resources[0] and not mixed):
            changed.append(action)
            continue
        then = action.then
        if then == "" and side == "write" and draw < downgraded:
            then = "downgrade"
        elif then == "" and side == "read" and action.how == "with" and draw < again:
            then = "again"
        changed.append(
            replace(action, side=side, then=then, min_hold=None if side else action.min_hold)
        )
    return tuple(changed)


def _with_elections(seed: int, plan: Plan, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Turn some locks of one name into terms of an election.

    A term waits without a time limit, and its lease is always renewed. Elections need labels. A
    manager without fencing and without a recovery guard writes no labels.
    """
    rng = Random(f"elections {seed}")
    labelled = plan.fencing or plan.guard is not None
    if rng.random() >= _ELECTIONS or not labelled or (plan.theme == "queue" and _is_steady(seed)):
        return actions
    often, resigned = rng.choice((0.2, 0.6, 1.0)), rng.choice((0.0, 0.2))
    changed = []
    for action in actions:
        draw = rng.random()
        plain = (
            len(action.resources) == 1
            and not action.limit
            and not action.side
            and action.min_hold is None
        )
        if rng.random() >= often or not plain:
            changed.append(action)
            continue
        then = (
            "resign"
            if draw < resigned
            else action.then
            if action.then in ("extend", "verify")
            else ""
        )
        changed.append(
            replace(action, how="lead", then=then, blocking_timeout=None, auto_extend=True)
        )
    return tuple(changed)


def _with_fair(seed: int, plan: Plan, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Let some tasks wait for locks with `fair=True`."""
    rng = Random(f"fair {seed}")
    if rng.random() >= _FAIR or (plan.theme == "queue" and _is_steady(seed)):
        return actions
    often = rng.choice((0.2, 1.0))
    return tuple(
        replace(
            action,
            fair=rng.random() < often
            and not action.limit
            and not action.side
            and action.how != "lead",
        )
        for action in actions
    )


def _with_late_calls(seed: int, plan: Plan, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Let some leases change their ttl when they are extended, and some calls come late in a hold.

    Terms of elections are left out, because their `step_down` belongs to their ttl.
    """
    rng = Random(f"late calls {seed}")
    changed = []
    for action in actions:
        ttl = rng.choice((None, 0.5 * action.ttl, 0.7 * action.ttl, plan.max_ttl))
        after = rng.choice((0.0, rng.random()))
        if action.how == "lead" or action.then not in ("extend", "verify", "abandon"):
            changed.append(action)
            continue
        extended = ttl if action.then == "extend" else None
        changed.append(replace(action, extended=extended, after=after))
    return tuple(changed)


def _lies(seed: int, plan: Plan, length: float) -> tuple[Fault, ...]:
    """Return a fault in which a server answers with impossible replies, or no fault."""
    rng = Random(f"lies {seed}")
    if rng.random() >= _LIARS or plan.theme == "calm":
        return ()
    node = rng.randrange(plan.nodes)
    return (
        Fault("lie", "lie", rng.random() * length, rng.uniform(0.1, 2.0) * plan.ttl, 0, node, 0.0),
    )


def _with_threads(seed: int, plan: Plan, length: float) -> Plan:
    """Give some engines a thread of their own, and let the loops of their tasks block."""
    rng = Random(f"threads {seed}")
    if rng.random() >= _THREADS:
        return plan
    often = rng.choice((0.5, 1.0, 1.0))
    threads = tuple(rng.random() < often for _ in range(plan.processes))
    limit = plan.ttl * rng.choice((0.4, 1.0, 2.0)) if rng.random() < 0.5 else None
    threaded = [process for process, has in enumerate(threads) if has]
    count = rng.choices((0, rng.randint(1, 3), rng.randint(3, 10)), (15, 40, 45))[0]
    if not threaded or plan.theme == "calm" or (plan.theme == "queue" and _is_steady(seed)):
        count = 0
    begin, span = (_start(plan), 1.0) if plan.theme == "queue" else (0.3, length)
    blocks = [
        Fault(
            name=f"b{number}",
            kind="block",
            at=begin + rng.random() * span,
            lasts=plan.ttl * rng.choice((0.05, 0.3, 1.0, 2.0, 4.0)) * rng.uniform(0.5, 1.5),
            process=rng.choice(threaded),
            node=0,
            extra=rng.random(),
        )
        for number in range(count)
    ]
    # Some processes are stopped as a whole while one of their loops is blocked.
    stops = [
        replace(
            block,
            name=f"{block.name}s",
            kind="pause",
            at=block.at + 0.3 * block.lasts,
            lasts=rng.uniform(0.1, 1.0) * plan.ttl,
        )
        for block in blocks
        if rng.random() < 0.2
    ]
    # A few callbacks after its start, a call is often between its grant on the engine's loop and
    # the arrival of its lease on the task's loop.
    often = 0.0 if plan.theme == "queue" and _is_steady(seed) else rng.choice((0.0, 0.0, 0.3))
    actions = tuple(
        replace(action, cancel_after=rng.randint(1, 8))
        if threads[action.process] and rng.random() < often
        else action
        for action in plan.actions
    )
    callers = Random(f"callers {seed}").choice((1, 1, 2))
    faults = (*plan.faults, *blocks, *stops)
    return replace(
        plan, actions=actions, faults=faults, threads=threads, stall_limit=limit, callers=callers
    )


def _crowd(rng: Random, plan: Plan) -> tuple[Action, ...]:
    """Return actions of many tasks that want one name, each for a moment.

    The grant is handed over between processes, and passed on within processes.
    """
    cancelled = rng.choice((0.0, 0.1, 0.3))
    hold = rng.choice((0.0, 0.001, 0.004, 0.012))
    return tuple(
        Action(
            name=f"p{process}.{task}.{number}",
            process=process,
            task=task,
            think=rng.choice((0.0, 0.0, 0.001, 0.05)),
            how=rng.choice(("with", "acquire")),
            resources=("r0",),
            ttl=plan.ttl,
            blocking_timeout=rng.choice((None, None, None, plan.ttl, rng.random() * 0.1)),
            auto_extend=rng.random() < 0.75,
            max_hold=rng.choice((None, None, None, 0.8 * plan.ttl)),
            hold=rng.choice((hold, hold, hold, 1.5 * plan.ttl)) if rng.random() < 0.3 else hold,
            then=rng.choices(("", "extend", "verify"), (90, 5, 5))[0],
            cancel_after=rng.randint(1, 40) if rng.random() < cancelled else None,
        )
        for process in range(plan.processes)
        for task in range(rng.randint(3, 7))
        for number in range(rng.randint(3, 8))
    )


def _is_steady(seed: int) -> bool:
    """Return True for the runs about queues without faults, in which no task gives up.

    The cost of these runs is judged.
    """
    return Random(f"steady {seed}").random() < 0.2


def _start(plan: Plan) -> float:
    """Return the time at which the tasks begin to wait.

    In most runs every node is trusted and connected by then.
    """
    return 0.0 if Random(f"start {plan.seed}").random() < 0.2 else 3.0 + 5 * plan.node_timeout


def _queue(rng: Random, plan: Plan) -> tuple[Action, ...]:
    """Return actions of many processes that want one name, or sets of names that overlap."""
    steady = _is_steady(plan.seed)
    names = rng.choice((("r0",), ("r0",), ("r0",), ("r0", "r1"), ("r0", "r1", "r2")))[
        : 1 if steady else 3
    ]
    tasks = rng.choice((1, 1, 1, 2)) if plan.processes <= 30 else 1
    each = min(8, max(2, 80 // (plan.processes * tasks))) if plan.processes <= 30 else 1
    # A renewal makes the first waiter send a refresh, which would add to the cost. So leases of
    # steady runs are too short for renewals.
    hold = rng.choice(
        (0.0, 0.001, 0.004, 0.012, 0.05) if steady else (0.0, 0.004, 0.012, 0.05, 0.2)
    )
    think = rng.choice((0.0, 0.001, 0.01))
    numbers = [
        (process, task, number)
        for process in range(plan.processes)
        for task in range(tasks)
        for number in range(each)
    ]
    then = {
        name: "" if steady else rng.choices(("", "verify", "extend", "leave"), (94, 2, 2, 2))[0]
        for name in numbers
    }
    return tuple(
        Action(
            name="p{}.{}.{}".format(*name),
            process=name[0],
            task=name[1],
            think=think * rng.random() + _start(plan) * (name[2] == 0),
            how="acquire" if steady else rng.choice(("with", "acquire", "acquire")),
            resources=tuple(sorted(rng.sample(names, rng.randint(1, len(names))))),
            ttl=plan.ttl,
            blocking_timeout=None
            if steady
            else rng.choice((None, None, None, 3 * plan.ttl, rng.random() * 0.2)),
            # If a lease that no task releases were renewed, its waiters would wait for ever.
            auto_extend=then[name] != "leave" and (steady or rng.random() < 0.8),
            max_hold=None,
            hold=hold
            if steady
            else rng.choice((hold, hold, hold, 0.0, 0.3 * plan.ttl * rng.random())),
            then=then[name],
            cancel_after=rng.randint(1, 40) if not steady and rng.random() < 0.05 else None,
        )
        for name in numbers
    )


def _actions(rng: Random, plan: Plan) -> tuple[Action, ...]:
    """Return the actions of all processes."""
    if plan.theme == "crowd":
        return _crowd(rng, plan)
    if plan.theme == "queue":
        return _queue(rng, plan)
    ttl = plan.ttl
    many = rng.random() < 0.25
    if plan.theme in ("forgetting", "answers", "cuts", "witness"):
        many = False
    names = [
        f"r{index}" for index in range(rng.randint(4, 10) if many else rng.choice((1, 1, 1, 2, 3)))
    ]
    if plan.theme in ("forgetting", "answers", "witness"):
        names = names[:1]
    wide = rng.choice((0.0, 0.0, 0.3)) if len(names) > 1 else 0.0
    hasty = rng.random() < 0.4 or plan.theme == "calm"
    if plan.theme in ("forgetting", "answers", "witness"):
        hasty = False
    cancelled = rng.choice((0.0, 0.1, 0.4))
    actions = []
    for process in range(plan.processes):
        for task in range(rng.choice((1, 2, 3))):
            for number in range(
                rng.randint(2, 6 if hasty or plan.theme in ("forgetting", "witness") else 4)
            ):
                resources = (
                    tuple(rng.sample(names, 2)) if rng.random() < wide else (rng.choice(names),)
                )
                how = rng.choices(("with", "acquire", "try"), (50, 40, 10))[0]
                then = rng.choices(("", "extend", "verify", "abandon", "leave"), (75, 10, 5, 7, 3))[
                    0
                ]
                if how == "with" and then == "leave":
                    then = ""
                if hasty:
                    hold = rng.choice((0.0, 0.01 * ttl, 0.1 * ttl, 0.5 * ttl))
                else:
                    hold = ttl * rng.choice((0.1, 0.5, 0.9, 1.4, 2.5))
                if plan.theme == "calm":
                    hold *= 0.1
                own_renewals = plan.theme == "answers" and rng.random() < 0.6
                if own_renewals:
                    then, hold = "extend", ttl * rng.uniform(1.0, 1.4)
                cancel: float | int | None = None
                if rng.random() < cancelled:
                    cancel = (
                        rng.randint(1, 40)
                        if rng.random() < 0.6
                        else rng.uniform(0.0, hold + 0.2 * ttl)
                    )
                actions.append(
                    Action(
                        name=f"p{process}.{task}.{number}",
                        process=process,
                        task=task,
                        think=rng.choice((0.0, 0.0, 0.01, 0.2, rng.random())) * ttl,
                        how=how,
                        resources=resources,
                        ttl=ttl * rng.choice((1.0, 1.0, 1.0, 0.7)),
                        blocking_timeout=rng.choice(
                            (None, None, None, ttl, 3 * ttl, rng.random() * ttl)
                        ),
                        # A lease that no task releases must expire, because other tasks wait for
                        # it.
                        auto_extend=rng.random() < 0.75 and then != "leave" and not own_renewals,
                        max_hold=rng.choice((None, None, None, None, 0.8 * ttl, 2 * ttl)),
                        hold=hold,
                        then=then,
                        cancel_after=cancel,
                    )
                )
    return tuple(actions)


_KINDS = {
    "hang": 10,
    "slow": 10,
    "slow_one_way": 10,
    "crash": 8,
    "crash_empty": 8,
    "flush": 6,
    "flush_scripts": 3,
    "partition": 8,
    "partition_one_way": 10,
    "isolate_node": 6,
    "cut": 14,
    "pause": 16,
    "pause_between": 16,
    "suspend": 6,
    "kill": 4,
}


def _bursts(rng: Random, plan: Plan) -> tuple[Fault, ...]:
    """Return faults in which a process is stopped, and all nodes but one forget."""
    faults: list[Fault] = []
    at = 2.2
    for _ in range(rng.randint(1, 3)):
        at += rng.random() * 2 * plan.ttl
        process, whole = rng.randrange(plan.processes), rng.randrange(plan.nodes)
        stop = rng.choice(("pause", "pause", "suspend", "partition"))
        nodes = [node for node in range(plan.nodes) if node != whole]
        lasts = plan.ttl * rng.uniform(0.5, 1.2)
        if stop == "partition":
            faults += [Fault("", stop, at, lasts, process, node, 0.0) for node in nodes]
        else:
            faults.append(Fault("", stop, at, lasts, process, 0, 0.0))
        for node in nodes:
            when = at + rng.random() * 0.2 * plan.ttl
            faults.append(
                Fault("", rng.choice(("flush", "crash_empty")), when, 0.02, process, node, 0.0)
            )
        if rng.random() < 0.3:
            # Another process cannot reach the one node that remembers.
            faults.append(
                Fault("", "partition", at, 2 * lasts, (process + 1) % plan.processes, whole, 0.0)
            )
        at += plan.max_ttl + 3.5
    return tuple(
        replace(fault, name=f"f{number}")
        for number, fault in enumerate(sorted(faults, key=lambda f: f.at))
    )


def _witnessed(rng: Random, plan: Plan) -> tuple[Fault, ...]:
    """Return faults in which all nodes forget while a process that may hold a lease is stopped or
    loses a connection.
    """
    faults: list[Fault] = []
    at = 2.2
    for _ in range(rng.randint(1, 3)):
        at += rng.random() * 2 * plan.ttl
        process = rng.randrange(plan.processes)
        stop = rng.choice(("pause", "pause", "suspend", "cut"))
        faults.append(
            Fault(
                "",
                stop,
                at,
                plan.ttl * rng.uniform(0.5, 1.2),
                process,
                rng.randrange(plan.nodes),
                0.0,
            )
        )
        how, within = rng.choice(("flush", "crash_empty")), rng.choice((0.0, 0.02, 0.2 * plan.ttl))
        for node in range(plan.nodes):
            when = at + 0.001 + rng.random() * within
            faults.append(
                Fault("", how, when, rng.choice((0.001, 0.02, 0.1 * plan.ttl)), process, node, 0.0)
            )
        at += plan.max_ttl + 3.5
    return tuple(
        replace(fault, name=f"f{number}")
        for number, fault in enumerate(sorted(faults, key=lambda f: f.at))
    )


_OF_QUEUES = {
    "kill_holder": 10,
    "kill_first": 10,
    "pause_first": 16,
    "pause": 6,
    "suspend": 3,
    "pause_between": 4,
    "kill": 3,
    "hang": 8,
    "cut": 10,
    "partition": 6,
    "partition_one_way": 4,
    "isolate_node": 3,
    "slow_one_way": 3,
    "flush": 4,
    "crash": 4,
    "crash_empty": 4,
    "flush_scripts": 1,
    "delete": 12,
    "delete_queue": 8,
    "unsubscribe": 8,
}


def _unfair(rng: Random, plan: Plan) -> tuple[Fault, ...]:
    """Return faults of waiters, holders and nodes, while many tasks wait.

    A steady run has no faults, and another run may have none.
    """
    count = rng.choices((0, rng.randint(1, 3), rng.randint(4, 15)), (10, 45, 45))[0] * (
        not _is_steady(plan.seed)
    )
    kinds, weights = list(_OF_QUEUES), list(_OF_QUEUES.values())
    if rng.random() < 0.4:
        kinds = rng.choices(kinds, weights, k=2)
        weights = [1, 1]
    span = rng.choice((0.2, 0.4, 1.0, 3.0))
    faults = [
        Fault(
            name="",
            kind=rng.choices(kinds, weights)[0],
            at=_start(plan) + 0.02 + rng.random() * span,
            lasts=plan.ttl * rng.choice((0.05, 0.2, 0.5, 1.0, 3.0)) * rng.uniform(0.5, 1.5),
            process=rng.randrange(plan.processes),
            node=rng.randrange(plan.nodes),
            extra=rng.random(),
        )
        for _ in range(count)
    ]
    return tuple(
        replace(fault, name=f"f{number}")
        for number, fault in enumerate(sorted(faults, key=lambda f: f.at))
    )


_BEFORE = {
    "flush": 4,
    "crash_empty": 3,
    "crash": 2,
    "cut": 2,
    "hang": 2,
    "slow_one_way": 2,
    "partition": 3,
    "isolate_node": 1,
    "pause_between": 4,
}


def _founding(rng: Random, plan: Plan) -> tuple[Fault, ...]:
    """Return faults of a new set: servers and processes start late, and nodes forget, stop or are
    cut off.
    """

    def one(kind: str, at: float, lasts: float) -> Fault:
        return Fault(
            "",
            kind,
            at,
            lasts,
            rng.randrange(plan.processes),
            rng.randrange(plan.nodes),
            rng.random(),
        )

    faults = [
        one(rng.choice(("crash", "crash", "pause", "partition")), 0.0, rng.uniform(0.05, 1.5))
        for _ in range(rng.randint(0, 3))
    ]
    kinds = rng.choices(list(_BEFORE), list(_BEFORE.values()), k=rng.randint(3, 16))
    span = rng.choice((0.02, 0.2, 1.5, 2.0 + plan.max_ttl))
    faults += [
        one(kind, rng.random() * span, rng.choice((0.01, 0.1, 0.5, 1.2)) * rng.uniform(0.5, 1.5))
        for kind in kinds
    ]
    return tuple(
        replace(fault, name=f"f{number}")
        for number, fault in enumerate(sorted(faults, key=lambda f: f.at))
    )


def _faults(rng: Random, plan: Plan, length: float) -> tuple[Fault, ...]:
    """Return no faults, a few, some or many. Some runs have at most two kinds of faults."""
    count = rng.choices(
        (0, rng.randint(1, 3), rng.randint(3, 8), rng.randint(8, 20)), (15, 25, 35, 25)
    )[0]
    kinds = list(_KINDS)
    weights = [_KINDS[kind] for kind in kinds]
    if rng.random() < 0.3:
        kinds = rng.choices(kinds, weights, k=2)
        weights = [1, 1]
    if plan.theme == "calm":
        count = 0
    elif plan.theme == "cuts":
        kinds, weights, count = ["cut", "slow_one_way", "hang"], [8, 1, 1], 3 * count
    faults = []
    # Most runs have no fault before the nodes are trusted, because the guard relies on them.
    begin = 0.0 if rng.random() < 0.3 else 0.3
    for number in range(count):
        kind = rng.choices(kinds, weights)[0]
        lasts = plan.ttl * rng.choice((0.05, 0.2, 0.5, 1.0, 2.0)) * rng.uniform(0.5, 1.5)
        faults.append(
            Fault(
                name=f"f{number}",
                kind=kind,
                at=begin + rng.random() * length,
                lasts=lasts,
                process=rng.randrange(plan.processes),
                node=rng.randrange(plan.nodes),
                extra=rng.random(),
            )
        )
    return tuple(sorted(faults, key=lambda fault: fault.at))
