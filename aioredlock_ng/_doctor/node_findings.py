"""Define the rules that derive findings from the facts about one node and from the options."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aioredlock_ng._core.keys import BARE_FORMAT
from aioredlock_ng._core.refusals import CHANNELS, KEYS, cure_of, missing_right
from aioredlock_ng._core.server_info import is_too_old, version_of
from aioredlock_ng._doctor.finding_kinds import KINDS
from aioredlock_ng.records import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioredlock_ng.options import Options
    from aioredlock_ng.records import Finding, NodeFacts

__all__ = ["is_no_voter", "node_findings"]

_NOLOOP_MENDED = ((6, 2, 8), (7, 0, 5))
"""The first releases of Redis 6.2 and 7.0 in which scripts respect NOLOOP.

Redis pull request 11052 explains the defect.
"""

_OPTIONAL: Final = {
    "INFO": "no-identity",
    "SCRIPT LOAD": "no-script-load",
    "CLIENT TRACKING": "no-tracking",
    "CLIENT CACHING": "no-tracking",
    "SUBSCRIBE": "no-messages",
    "PUBLISH": "no-messages",
    "TIME": "clock-unknown",
    "CONFIG GET": "fsync-unknown",
}
"""Maps each request that voting does not need to the code of the finding for its refusal."""

_OPTIONAL_GROUPS: Final = {"queue": "no-queue", "readers": "no-readers", "labels": "no-labels"}
"""Maps each group of requests that voting does not need to the code of the finding.

The first word of a step, for example "queue" in "queue ZADD", names the group.
"""

_ON_OWN_KEYS: Final = frozenset(
    f"script {name}" for name in ("acquire_guarded", "confirm", "repair", "marker")
)
"""Steps that access the library's own keys, for example the marker and the counters."""


def node_findings(facts: NodeFacts, options: Options, *, alone: bool = False) -> Iterator[Finding]:
    """Yield all findings about one node. `alone` is True if the set has no other node."""
    if facts.problem:
        yield _problem(facts)
    if facts.role == "slave":
        primary = f" of {facts.primary}" if facts.primary else f": {facts.words}"
        yield KINDS["replica"].found(facts.address, f"it is a replica{primary}")
    if facts.cluster:
        yield KINDS["cluster"].found(facts.address, "it runs in cluster mode")
    if is_too_old(facts.server):
        yield KINDS["old-version"].found(facts.address, f"it is {facts.server}")
    elif facts.unknown:
        yield KINDS["unknown-command"].found(
            facts.address, f"it does not know {', '.join(facts.unknown)}"
        )
    # For a server that cannot be a node, nothing else is reported.
    if not is_no_voter(facts):
        for rule in _RULES:
            for finding in rule(facts, options):
                auto = options.recovery_guard == "auto"
                meaning = KINDS[finding.code].alone if alone and auto else ""
                yield replace(finding, meaning=meaning) if meaning else finding


def is_no_voter(facts: NodeFacts) -> bool:
    """Return True if the server cannot be a node, regardless of the settings."""
    return facts.role == "slave" or bool(facts.cluster or facts.unknown) or is_too_old(facts.server)


def _problem(facts: NodeFacts) -> Finding:
    kind, right = KINDS[facts.problem], missing_right(facts.words)
    if right:
        return _of_rights(kind.found(facts.address, facts.words), right, facts.words)
    return kind.found(facts.address, facts.words, remedy=cure_of(facts.words))


def _eviction(facts: NodeFacts, options: Options) -> Iterator[Finding]:
    evicts = facts.maxmemory_policy not in ("", "noeviction")
    if evicts and facts.maxmemory:
        limit = f"{facts.maxmemory / 2**20:.4g} MiB"
        yield KINDS["eviction-policy"].found(
            facts.address, f"maxmemory-policy is {facts.maxmemory_policy}, at {limit}"
        )
    elif evicts:
        what = (
            f"maxmemory-policy is {facts.maxmemory_policy}, but there is no maxmemory: nothing is"
            " evicted until a limit is set"
        )
        yield KINDS["eviction-policy"].found(facts.address, what, severity=Severity.WARNING)
    if facts.evicted_keys:
        what = f"it has evicted {facts.evicted_keys:,} keys since its statistics began"
        severity = Severity.ERROR if evicts else Severity.WARNING
        yield KINDS["evicted-keys"].found(facts.address, what, severity=severity)


def _persistence(facts: NodeFacts, options: Options) -> Iterator[Finding]:
    guard = options.recovery_guard is not None
    if facts.aof is False:
        yield KINDS["no-persistence"].found(
            facts.address, "it keeps no append-only file", guard=guard
        )
    elif facts.fsync == "no":
        what = "appendfsync is no: the system flushes at its own pace, about every 30 s"
        yield KINDS["fsync"].found(facts.address, what, guard=guard)
    elif facts.fsync == "everysec":
        what = "appendfsync is everysec: the last second is not on disk yet"
        yield KINDS["fsync"].found(facts.address, what, severity=Severity.INFO, guard=guard)
    if facts.failing:
        yield KINDS["persistence-failing"].found(
            facts.address, f"INFO reports err for {', '.join(facts.failing)}"
        )


def _memory(facts: NodeFacts, options: Options) -> Iterator[Finding]:
    if facts.replicas:
        attached = "a replica is" if facts.replicas == 1 else f"{facts.replicas} replicas are"
        yield KINDS["replicas"].found(
            facts.address, f"{attached} attached", guard=options.recovery_guard is not None
        )
    # With the recovery guard, `findings.py` detects restarts by the marker, which is more precise
    # than the uptime. So the uptime counts only without the guard.
    if (
        options.recovery_guard is None
        and facts.uptime is not None
        and facts.uptime <= options.max_ttl
    ):
        longest = f"leases may last {options.max_ttl:g} s (max_ttl)"
        what = f"it started {facts.uptime:g} s ago, and {longest}"
        # A server with an append-only file has restored its locks from that file, so the finding is
        # less severe.
        severity = Severity.INFO if facts.aof else Severity.WARNING
        yield KINDS["restarted"].found(facts.address, what, severity=severity)


def _other_keys(facts: NodeFacts, options: Options) -> Iterator[Finding]:
    if facts.foreign_keys and options.key_format == BARE_FORMAT:
        kinds = ", ".join(
            f"{kind} without expiry" if kind == "string" else kind
            for kind in sorted(set(facts.foreign_keys))
        )
        count = f"{len(facts.foreign_keys)} of {facts.sampled_keys} sampled keys are not locks"
        yield KINDS["other-keys"].found(
            facts.address, f"the server has other keys: {count} ({kinds})"
        )


def _optional(step: str) -> str:
    """Return the code of the finding for a refused step; "" if the step is essential."""
    return _OPTIONAL.get(step) or _OPTIONAL_GROUPS.get(step.partition(" ")[0], "")


def _abilities(facts: NodeFacts, options: Options) -> Iterator[Finding]:
    version = version_of(facts.server)
    mended = (version[:2] == first[:2] and version < first for first in _NOLOOP_MENDED)
    if facts.server.startswith("redis ") and any(mended):
        yield KINDS["noloop-defect"].found(facts.address, f"it is {facts.server}")
    if facts.resp3 is False:
        yield KINDS["no-resp3"].found(facts.address, "it refuses RESP3 (HELLO 3)")
    if facts.messages is False and not any(
        _optional(refused.step) == "no-messages" for refused in facts.refusals
    ):
        yield KINDS["no-messages"].found(facts.address, "a message published there did not arrive")
    if facts.server and not facts.run_id:
        yield KINDS["no-identity"].found(facts.address, "its INFO has no run_id")


def _refusals(facts: NodeFacts, options: Options) -> Iterator[Finding]:
    essential: dict[str, list[str]] = defaultdict(list)
    for refused in facts.refusals:
        if not _optional(refused.step):
            essential[refused.words].append(refused.step)
    rights = {words: missing_right(words) for words in essential}
    told: set[str | None] = set()
    for words, steps in essential.items():
        right = rights[words]
        if right is None:
            yield KINDS["refused"].found(
                facts.address, f"{', '.join(steps)}: {words}", remedy=cure_of(words)
            )
        # A refusal that does not name the missing right is reported only if no other refusal names
        # a right.
        elif right not in told and (right or not any(rights.values())):
            told.add(right)
            own_keys = right == KEYS and _ON_OWN_KEYS.issuperset(steps)
            yield _of_rights(
                KINDS["missing-right"].found(facts.address, ""), right, words, own_keys=own_keys
            )
    for refused in facts.refusals:
        right = missing_right(refused.words)
        if right is not None and refused.step == "CLIENT CACHING":
            # Redis 6.2 does not name the subcommand in its refusal, so the right is set here.
            right = "client|caching"
        if (code := _optional(refused.step)) and right not in told - {None}:
            # One missing right may cause several refusals, as for SUBSCRIBE and PUBLISH. The right
            # is reported once.
            told.add(right)
            finding = KINDS[code].found(
                facts.address, f"{refused.step} is refused: {refused.words}"
            )
            own_keys = right == KEYS and refused.step.startswith(("queue ", "labels "))
            yield (
                finding
                if right is None
                else _of_rights(finding, right, refused.words, own_keys=own_keys)
            )


def _of_rights(finding: Finding, right: str, words: str, *, own_keys: bool = False) -> Finding:
    """Return a copy of the finding with the code `missing-right` and the remedy for that right."""
    if own_keys:
        what = f"its user has no right to the library's own keys: {words}"
        remedy = "ACL SETUSER <user> ~aioredlock_ng:* (docs/acl.md)"
    elif right == KEYS:
        what = f"its user has no right to the doctor's key: {words}"
        remedy = (
            "Grant ~pattern for the locks' keys (docs/acl.md). If the pattern fits your locks"
            " but not the doctor's key, give the doctor a name that fits (--probe)."
        )
    elif right == CHANNELS:
        what = f"its user has no right to the library's channels: {words}"
        remedy = "ACL SETUSER <user> &aioredlock_ng:* (docs/acl.md)"
    elif right:
        what, remedy = (
            f"its user has no right to {right}: {words}",
            f"ACL SETUSER <user> +{right} (docs/acl.md)",
        )
    else:
        what, remedy = (
            f"its user has no right to a command in a script: {words}",
            "Grant the rights that docs/acl.md lists.",
        )
    return replace(finding, code="missing-right", what=what, remedy=remedy)


def _clock(facts: NodeFacts, options: Options) -> Iterator[Finding]:
    clock = facts.clock
    if clock is None:
        return
    drift = options.drift(options.ttl)
    # A key lives for ttl seconds, and a lease for ttl - drift seconds. If the node's clock gains
    # more than the share `allowed`, the key expires before the lease ends.
    allowed = drift / (options.ttl - drift)
    advanced = (
        f"its clock advanced {clock.rate:.6g} s (± {clock.rate_error:.2%}) in one second of this"
        " machine's clock"
    )
    sure = 1 - clock.rate_error
    if clock.rate * sure > 1 + allowed:
        yield KINDS["clock-rate"].found(
            facts.address, f"{advanced}; drift_factor allows for {1 + allowed:.6g}"
        )
    elif clock.rate < (1 - allowed) * sure:
        what = f"{advanced}: locks of dead holders block others for longer than their ttl"
        yield KINDS["clock-rate"].found(facts.address, what, severity=Severity.WARNING)
    elif clock.rate_error > allowed:
        yield KINDS["clock-rate-unknown"].found(
            facts.address, f"{advanced}; drift_factor allows for {1 + allowed:.6g}"
        )


def _round_trips(facts: NodeFacts, options: Options) -> Iterator[Finding]:
    trips = facts.round_trips
    if trips is None:
        return
    limit = f"node_timeout is {options.node_timeout:g} s"
    if trips.p50 >= options.node_timeout:
        what = f"half of {trips.count} round trips took {trips.p50:.3g} s or more; {limit}"
        yield KINDS["round-trip"].found(facts.address, what, severity=Severity.ERROR)
    elif trips.p95 * 2 > options.node_timeout:
        what = f"one in 20 of {trips.count} round trips took {trips.p95:.3g} s or more; {limit}"
        yield KINDS["round-trip"].found(facts.address, what)


_RULES: Final[tuple[Callable[[NodeFacts, Options], Iterator[Finding]], ...]] = (
    _eviction,
    _persistence,
    _memory,
    _other_keys,
    _abilities,
    _refusals,
    _clock,
    _round_trips,
)
