"""Every kind of finding, with what it means for a lock and what to do; it never judges when one applies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aioredlock_ng.records import Finding, Severity

__all__ = ["KINDS", "Kind"]

_ERROR, _WARNING, _INFO = Severity


@dataclass(frozen=True, slots=True)
class Kind:
    """What all findings of one kind say.

    Attributes:
        code: Its name, for machines and for the table in docs/operations.md.
        severity: Unless the rule that finds it says otherwise.
        meaning: For the lock.
        remedy: What to do, unless the rule knows better.
        guarded: The meaning where the recovery guard is on, and then not more than an info; "": the same.
        alone: The meaning where the guard is on and the set has one node; "": the same. Nobody but a process that was there
            before can tell such a node that it forgot.
    """

    code: str
    severity: Severity
    meaning: str
    remedy: str
    guarded: str = ""
    alone: str = ""

    def found(
        self,
        nodes: str | tuple[str, ...],
        what: str,
        *,
        severity: Severity | None = None,
        remedy: str | None = None,
        guard: bool = False,
    ) -> Finding:
        """The finding at one node, at several, or (an empty tuple) in the set as a whole."""
        where = (nodes,) if isinstance(nodes, str) else nodes
        if guard and self.guarded:
            return Finding(self.code, _INFO, where, what, self.guarded, remedy or self.remedy)
        return Finding(
            self.code, severity or self.severity, where, what, self.meaning, remedy or self.remedy
        )


_NO_VOTE = "It has no vote: with it, the set bears one loss less."
_UNTOLD = (
    "It cannot tell that a lock is free or gone: if a majority is like this, waiters look ten times a second, and holders learn"
    " of a loss by the next renewal."
)

_ALL = (
    # Nodes that cannot be examined.
    Kind(
        "unreachable",
        _ERROR,
        _NO_VOTE,
        "Is the server running, its address right, the way to it open?",
    ),
    Kind(
        "authentication",
        _ERROR,
        _NO_VOTE,
        "Correct the user and password in the node's URL, or the user on the server.",
    ),
    Kind(
        "silent",
        _ERROR,
        _NO_VOTE,
        "Is the server hung, swapping, running a slow command, or is a proxy in between?",
    ),
    Kind("not-ready", _ERROR, _NO_VOTE, "Wait until it is ready and examine it again."),
    Kind(
        "not-examined",
        _INFO,
        "Nothing is known of it.",
        "Only nodes given by URL or as a redis.asyncio.Redis are examined.",
    ),
    # Nodes of the wrong kind.
    Kind(
        "replica",
        _ERROR,
        "It takes no writes and votes for nobody; its primary would vote twice if both are named.",
        "Name the primary instead, or make it a server of its own: REPLICAOF NO ONE.",
    ),
    Kind(
        "cluster",
        _ERROR,
        "A cluster moves keys between servers, and a failover forgets them: no independent vote.",
        "Use a server of its own, with cluster-enabled no.",
    ),
    Kind("old-version", _ERROR, _NO_VOTE, "Use Redis 6.2 or newer, or Valkey."),
    Kind(
        "unknown-command",
        _ERROR,
        "It has no vote: locks could be granted there, and then neither renewed nor released.",
        "Use Redis 6.2 or newer, or Valkey, and do not rename these commands.",
    ),
    # Nodes that may forget.
    Kind(
        "eviction-policy",
        _ERROR,
        "At its memory limit it evicts held locks, and grants them to others; volatile-* evicts them first, for they expire.",
        "CONFIG SET maxmemory-policy noeviction, and in its configuration; keep caches on other servers.",
    ),
    Kind(
        "evicted-keys",
        _ERROR,
        "Locks may have been among them: an evicted lock is granted to others while it is held.",
        "Set maxmemory-policy to noeviction; the count starts anew with CONFIG RESETSTAT.",
    ),
    Kind(
        "no-persistence",
        _WARNING,
        "A restart forgets every lock, and grants what is held. Snapshots do not help: a lock is younger than the last one.",
        "appendonly yes and appendfsync always, or keep it out for max_ttl after a restart.",
        "A restart forgets every lock: their holders have a vote less, and the recovery guard keeps it out for max_ttl.",
        "A restart forgets every lock. The recovery guard keeps it out for max_ttl if a process that used it before is still"
        " there. If all processes are new, it grants what is held.",
    ),
    Kind(
        "fsync",
        _WARNING,
        "A power cut forgets the locks of the last moments; a crash of the server alone does not.",
        "appendfsync always, where two holders would cost more than some writes per second.",
        "A power cut forgets the locks of the last moments: their holders have a vote less. No others get them: it is then"
        " quarantined.",
        "A power cut forgets the locks of the last moments. They are granted to others only if all processes are new as well.",
    ),
    Kind(
        "fsync-unknown",
        _INFO,
        "Whether a power cut forgets locks is not known.",
        "Look at its appendfsync yourself; nothing but this examination needs the right.",
    ),
    Kind(
        "persistence-failing",
        _WARNING,
        "What it has granted since is not on disk; it may stop taking writes (MISCONF), locks included.",
        "Look at its disk and its log.",
    ),
    Kind(
        "replicas",
        _WARNING,
        "A failover to a replica forgets the locks that it did not have yet, and grants them to others.",
        "A lock server needs no replicas: the other nodes are its spare. If it must have one, keep it out for max_ttl "
        "after a failover.",
        "A failover to a replica forgets locks, and the recovery guard then keeps the node out for max_ttl.",
        "A failover to a replica forgets locks. The recovery guard then keeps the node out for max_ttl, if the replica had its"
        " marker or a process that used the primary is still there.",
    ),
    Kind(
        "restarted",
        _WARNING,
        "Locks that it granted before its start may still be held, though it does not know them.",
        "Restart nodes one by one, a max_ttl apart; examine it again after that.",
    ),
    Kind(
        "quarantined",
        _WARNING,
        "It grants nothing for now: it may have forgotten locks that are still held. With it, the set bears one loss less.",
        "Wait, and restart nodes one by one, a max_ttl and a second apart.",
    ),
    Kind(
        "guard-time",
        _WARNING,
        "The marker is damaged, and no manager copies it. Each manager that sees it lets the node wait for max_ttl anew.",
        "Find out who writes to the library's own keys (aioredlock_ng:*); nothing else needs to be done.",
    ),
    Kind(
        "all-forgot",
        _ERROR,
        "Locks granted before are void, unless a majority kept them on disk. No lock is granted until the nodes have waited.",
        "Wait; find out what restarted or flushed all of them within one max_ttl.",
    ),
    Kind(
        "unmarked",
        _INFO,
        "It is new to the recovery guard: it votes as soon as a manager has seen all nodes, or after max_ttl.",
        "Nothing, for a set that is new; see quarantined otherwise.",
    ),
    Kind(
        "other-keys",
        _WARNING,
        "A lock with the name of such a key can never be acquired. A program that writes or deletes"
        " keys of that name breaks a lock.",
        "Set key_format, such as 'lock:{name}', in all processes at once: locks of two formats do not exclude each other.",
    ),
    # Nodes that lack something.
    Kind(
        "noloop-defect",
        _INFO,
        "It reports our own changes to us (CLIENT TRACKING NOLOOP is ignored in scripts): some needless work, nothing wrong.",
        "Redis 6.2.8, 7.0.5 or newer, or Valkey.",
    ),
    Kind(
        "no-resp3",
        _WARNING,
        _UNTOLD,
        "Use Redis 6.2 or newer, or Valkey, without a proxy that speaks RESP2 alone.",
    ),
    Kind(
        "no-tracking",
        _WARNING,
        _UNTOLD,
        "Let CLIENT TRACKING and CLIENT CACHING through.",
    ),
    Kind(
        "no-messages",
        _WARNING,
        "It passes on no messages between processes: waiting processes look at intervals instead of being notified.",
        "Let SUBSCRIBE and PUBLISH through.",
    ),
    Kind(
        "no-queue",
        _WARNING,
        "Processes that wait have no order on this node. They look at intervals instead of being notified.",
        "Let the commands of queues through: ZADD, PEXPIRE, ZRANGE, ZREVRANGE, ZRANK, ZREM, EXISTS and DEL.",
    ),
    Kind(
        "no-identity",
        _WARNING,
        "The same server listed twice, a replica, a cluster member or an evicting server would not be noticed.",
        "Let INFO through, or make sure of these yourself.",
    ),
    Kind(
        "no-script-load",
        _INFO,
        "The first call of each script after a (re)connect takes one round trip more.",
        "Let SCRIPT LOAD through.",
    ),
    Kind(
        "missing-right",
        _ERROR,
        "It votes for nobody, or cannot renew or release.",
        "See docs/acl.md for the rights.",
    ),
    Kind(
        "refused",
        _ERROR,
        "It grants, renews or releases no locks as it is.",
        "Do what its words say, and examine it again.",
    ),
    # Time.
    Kind(
        "clock-rate",
        _ERROR,
        "Keys end by its clock, leases by their holder's: the key is gone, and granted to others, before the lease is over.",
        "Let its clock be slewed, not stepped (chrony's and ntpd's usual mode); or raise drift_factor.",
    ),
    Kind(
        "clock-rate-unknown",
        _INFO,
        "Whether its clock keeps within drift_factor is not known: its round trips are long for so short a watch.",
        "Watch it for longer.",
    ),
    Kind(
        "clock-unknown", _INFO, "Its clock was not compared.", "Let TIME through while you examine."
    ),
    Kind(
        "round-trip",
        _WARNING,
        "Rounds go on without it whenever it is later than node_timeout: it counts as lost then.",
        "Raise node_timeout to several round trips, or bring the node nearer.",
    ),
    # The set.
    Kind(
        "no-quorum",
        _ERROR,
        "No lock can be acquired.",
        "Mend the nodes above, or take those out that are gone for good.",
    ),
    Kind(
        "same-server",
        _ERROR,
        "One server with several votes: its loss alone may stop or split the set. Redlock refuses such a set.",
        "Name each server once.",
    ),
    Kind(
        "single-node",
        _WARNING,
        "Its loss stops every lock. If it forgets while every process is started anew, it grants what is held.",
        "Three independent nodes bear the loss of one, five of two.",
    ),
    Kind(
        "even-number",
        _WARNING,
        "It bears no more losses than one node fewer, and more nodes can fail.",
        "Add a node, or take one out.",
    ),
    Kind(
        "same-host",
        _WARNING,
        "The loss of one machine takes several votes at once, and its restart makes several nodes forget.",
        "Put each node on a machine of its own, better with power and network of its own.",
    ),
    Kind(
        "clock-offset",
        _WARNING,
        "One of these clocks is wrong. When it is set right in a step, the locks on that node end early or late by as much.",
        "Keep all clocks disciplined, by slewing.",
    ),
    Kind(
        "client-clock",
        _WARNING,
        "This machine's wall clock is wrong. No lease depends on it, but fences and logs do.",
        "Keep the clocks of clients disciplined too.",
    ),
    Kind(
        "slow-quorum",
        _WARNING,
        "Each acquire and renewal spends this much of a lease's life on the way.",
        "Raise ttl (and node_timeout), or bring a majority of the nodes nearer.",
    ),
    Kind(
        "short-ttl",
        _INFO,
        "A renewal that finds a majority slow has little time for a second try.",
        "A ttl of ten times node_timeout or more.",
    ),
)

KINDS: Final = {kind.code: kind for kind in _ALL}
