"""Define the rules for the set of nodes, and combine all findings in a diagnosis."""

from __future__ import annotations

from collections import defaultdict
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._doctor.finding_kinds import KINDS
from aioredlock_ng._doctor.node_findings import is_no_voter, node_findings
from aioredlock_ng.records import Diagnosis, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioredlock_ng.options import Options
    from aioredlock_ng.records import Finding, NodeFacts

    Nodes = Sequence[NodeFacts]

__all__ = ["diagnosis_of"]

_THIS_MACHINE = "this machine"

_SLOW_SHARE = 0.05
"""Share of the ttl above which a majority's round trip (p95) counts as slow."""

_ROOMY_TTL = 10
"""If the ttl is less than this many node timeouts, the ttl counts as short."""

_LOST: Final = ("foreign", "waiting", "excessive")
"""States of a node's marker that keep the node from voting, regardless of the other nodes."""

_WORST_FIRST: Final = {severity: rank for rank, severity in enumerate(Severity)}


def diagnosis_of(nodes: Nodes, options: Options) -> Diagnosis:
    """Return all findings, the worst first.

    Among findings of one severity, those about a single node come before those about the set.
    """
    found = [
        finding
        for facts in nodes
        for finding in node_findings(facts, options, alone=len(nodes) == 1)
    ]
    found += [finding for rule in _RULES for finding in rule(nodes, options)]
    found.sort(key=lambda finding: _WORST_FIRST[finding.severity])
    return Diagnosis(found[0].severity if found else None, tuple(found), tuple(nodes))


def _quorum(nodes: Nodes, options: Options) -> Iterator[Finding]:
    quorum = quorum_of(len(nodes))
    voting = sum(_can_vote(facts) and not _forgot(facts, nodes) for facts in nodes)
    if voting < quorum:
        yield KINDS["no-quorum"].found(
            (), f"{voting} of {len(nodes)} nodes can vote, {quorum} are needed"
        )


def _can_vote(facts: NodeFacts) -> bool:
    if facts.problem:
        # A node that was not examined counts as able to vote.
        return facts.problem == "not-examined"
    return bool(facts.granted) and not is_no_voter(facts)


def _forgot(facts: NodeFacts, nodes: Nodes) -> bool:
    """Return True if the recovery guard keeps the node from voting.

    While no other node is trusted, a node that has no marker or is founding counts as new, and may
    vote.
    """
    if facts.trust in ("none", "founding"):
        return any(other.trust == "trusted" for other in nodes)
    return facts.trust in _LOST


def _guard(nodes: Nodes, options: Options) -> Iterator[Finding]:
    for facts in nodes:
        kind = KINDS["quarantined" if _forgot(facts, nodes) else "unmarked"]
        match facts.trust:
            case "foreign":
                yield kind.found(
                    facts.address,
                    "its marker names another server process: the node was restarted or"
                    " failed over",
                )
            case "excessive":
                yield KINDS["guard-time"].found(
                    facts.address, "its marker names a guard time above 86,401 s"
                )
            case "none":
                yield kind.found(facts.address, "it has no marker: it lost all its data, or is new")
            case "waiting" | "founding" if 0 < (facts.marked_max_ttl or 0.0) < options.max_ttl:
                # A manager leaves a founding node alone until the ready time of its marker.
                later = f" in {facts.ready_in or 0.0:.1f} s" if facts.trust == "founding" else ""
                longest = max(options.max_ttl, *(other.marked_max_ttl or 0.0 for other in nodes))
                yield kind.found(
                    facts.address,
                    f"it is {facts.trust}, and its marker names a max_ttl of"
                    f" {facts.marked_max_ttl:g} s: a manager with a max_ttl of"
                    f" {options.max_ttl:g} s lets it wait anew{later}, for {longest + 1:g} s",
                )
            case "waiting" | "founding":
                yield kind.found(
                    facts.address,
                    f"it is {facts.trust}, and may vote in {facts.ready_in or 0.0:.1f} s",
                )


def _all_forgot(nodes: Nodes, options: Options) -> Iterator[Finding]:
    """Yield a finding if each node has no marker or must wait, and at least one node must wait.

    In this state, all nodes have lost their memory. The function yields a finding only if the
    option `recovery_guard` is "auto". With "strict", the nodes of a new set must wait as well.
    """
    told = [facts.trust for facts in nodes]
    if (
        options.recovery_guard == "auto"
        and set(told) <= {*_LOST, "none"}
        and any(trust in _LOST for trust in told)
    ):
        yield KINDS["all-forgot"].found(
            (), "all nodes lost their memory, or were restored from disk"
        )


def _duplicates(nodes: Nodes, options: Options) -> Iterator[Finding]:
    same: dict[str, list[str]] = defaultdict(list)
    for facts in nodes:
        same[facts.run_id or facts.endpoint or facts.address].append(facts.address)
    for addresses in same.values():
        if len(addresses) > 1:
            yield KINDS["same-server"].found(
                tuple(addresses), f"{' and '.join(addresses)} are the same server"
            )


def _number(nodes: Nodes, options: Options) -> Iterator[Finding]:
    count = len(nodes)
    if count == 1:
        yield KINDS["single-node"].found((), "there is one node")
    elif count % 2 == 0:
        losses = count - quorum_of(count)
        yield KINDS["even-number"].found(
            (), f"there are {count} nodes; they tolerate the loss of {losses or 'none'}"
        )


def _hosts(nodes: Nodes, options: Options) -> Iterator[Finding]:
    hosts: dict[str, dict[str, str]] = defaultdict(dict)
    for facts in nodes:
        if facts.endpoint:
            # One server under several addresses counts once here, because another rule reports it.
            hosts[_host_of(facts.endpoint)].setdefault(
                facts.run_id or facts.endpoint, facts.address
            )
    for host, servers in hosts.items():
        if len(servers) > 1:
            addresses = tuple(servers.values())
            yield KINDS["same-host"].found(
                addresses, f"{len(addresses)} of {len(nodes)} nodes are on {host}"
            )


def _host_of(endpoint: str) -> str:
    try:
        address = ip_address(endpoint.rpartition(":")[0].strip("[]").partition("%")[0])
    except ValueError:
        return _THIS_MACHINE  # The endpoint is the path of a socket.
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return _THIS_MACHINE if address.is_loopback else str(address)


def _clocks(nodes: Nodes, options: Options) -> Iterator[Finding]:
    read = sorted(
        ((facts.clock, facts.address) for facts in nodes if facts.clock is not None),
        key=lambda pair: pair[0].offset,
    )
    if not read:
        return
    (slow, slowest), (fast, fastest) = read[0], read[-1]
    apart, error = fast.offset - slow.offset, fast.offset_error + slow.offset_error
    if apart - error > options.drift(options.ttl):
        what = f"the clocks of {slowest} and {fastest} are {apart:.6g} s apart (± {error:.2g} s)"
        yield KINDS["clock-offset"].found((slowest, fastest), what)
    nearest = min((pair[0] for pair in read), key=lambda clock: abs(clock.offset))
    if abs(nearest.offset) - nearest.offset_error > options.max_ttl / 2:
        way = "behind" if nearest.offset > 0 else "ahead of"
        yield KINDS["client-clock"].found(
            (), f"this machine's clock is {abs(nearest.offset):.6g} s {way} the nearest node's"
        )


def _slowness(nodes: Nodes, options: Options) -> Iterator[Finding]:
    quorum = quorum_of(len(nodes))
    slow = sorted(facts.round_trips.p95 for facts in nodes if facts.round_trips is not None)
    if len(slow) >= quorum and slow[quorum - 1] > options.ttl * _SLOW_SHARE:
        trip = slow[quorum - 1]
        what = (
            f"one in 20 round trips of a majority took {trip:.3g} s or more,"
            f" which is {trip / options.ttl:.0%} of the ttl"
        )
        yield KINDS["slow-quorum"].found((), what)
    if options.ttl < options.node_timeout * _ROOMY_TTL:
        what = (
            f"ttl is {options.ttl:g} s, {options.ttl / options.node_timeout:.3g} times node_timeout"
        )
        yield KINDS["short-ttl"].found((), what)


_RULES: Final[tuple[Callable[[Nodes, Options], Iterator[Finding]], ...]] = (
    _guard,
    _all_forgot,
    _quorum,
    _duplicates,
    _number,
    _hosts,
    _clocks,
    _slowness,
)
