"""Define the kinds of findings about nodes that may lose locks."""

from __future__ import annotations

from typing import Final

from aioredlock_ng._doctor.finding_kind import ERROR, INFO, WARNING, Kind

__all__ = ["MAY_FORGET"]

MAY_FORGET: Final = (
    Kind(
        "eviction-policy",
        ERROR,
        "At its memory limit the node evicts held locks, and grants them to others. The"
        " volatile-* policies evict locks first, because locks have an expiry.",
        "Set maxmemory-policy to noeviction, by CONFIG SET and in the configuration file. Keep"
        " caches on other servers.",
    ),
    Kind(
        "evicted-keys",
        ERROR,
        "Some of these keys may have been locks. A lock that is evicted while it is held can be"
        " granted to others.",
        "Set maxmemory-policy to noeviction. CONFIG RESETSTAT resets the count.",
    ),
    Kind(
        "no-persistence",
        WARNING,
        "A restart loses every lock, and the node then grants locks that are held. Snapshots"
        " do not help, because a lock is younger than the last snapshot.",
        "Set appendonly yes and appendfsync always, or keep the node out for max_ttl after a"
        " restart.",
        "A restart loses every lock: each holder has one vote less, and the recovery guard"
        " keeps the node out for max_ttl.",
        "A restart loses every lock. The recovery guard keeps the node out for max_ttl if the first"
        " process that connects had used the node before the restart. Otherwise the node grants"
        " locks that are held.",
    ),
    Kind(
        "fsync",
        WARNING,
        "A power cut loses the locks of the last moments. A crash of the server alone does not.",
        "Set appendfsync always if two holders of a lock would be worse than slower writes.",
        "A power cut loses the locks of the last moments: each holder has one vote less. The"
        " node is then quarantined, so it does not grant these locks to others.",
        "A power cut loses the locks of the last moments. The file keeps the marker of the"
        " recovery guard, so the node then grants nothing for max_ttl, even if all processes are"
        " new.",
    ),
    Kind(
        "fsync-unknown",
        INFO,
        "It is unknown whether a power cut loses locks.",
        "Check the server's setting appendfsync yourself. Locks do not need the right to CONFIG"
        " GET; only the doctor does.",
    ),
    Kind(
        "persistence-failing",
        WARNING,
        "Locks granted since that failure are not on disk. The server may stop accepting writes"
        " (MISCONF), and then grants no locks.",
        "Check its disk and its log.",
    ),
    Kind(
        "replicas",
        WARNING,
        "A failover to a replica loses the locks that the replica did not have yet, and they"
        " are granted to others.",
        "A lock server needs no replicas, because the other nodes replace it. If it must have a"
        " replica, keep the node out for max_ttl after a failover.",
        "A failover to a replica loses locks, and the recovery guard then keeps the node out"
        " for max_ttl.",
        "A failover to a replica loses locks. The recovery guard then keeps the node out for"
        " max_ttl if the replica had the marker, or if the first process that connects had used"
        " the primary.",
    ),
    Kind(
        "restarted",
        WARNING,
        "The node may have lost locks that it granted before its start and that are still held.",
        "Restart one node at a time, and wait for max_ttl plus a third of it between two restarts."
        " Examine the node again after max_ttl.",
    ),
    Kind(
        "quarantined",
        WARNING,
        "The node grants nothing for now, because it may have forgotten locks that are still held."
        " Meanwhile, the set tolerates one failed node less.",
        "Wait. In future, restart one node at a time. Between two restarts, wait for the end of the"
        " quarantine (max_ttl plus up to 6 s), plus a third of the longest ttl.",
    ),
    Kind(
        "guard-time",
        WARNING,
        "The marker is damaged, so no manager copies it. Each manager that reads it keeps"
        " the node out for another max_ttl.",
        "Find the program that writes to the library's own keys (aioredlock_ng:*). Nothing"
        " else needs to be done.",
    ),
    Kind(
        "all-forgot",
        ERROR,
        "Locks granted before the loss are void, unless a majority kept them on disk. The nodes"
        " grant no lock until they have waited for the guard time.",
        "Wait, and find out what restarted or flushed all of them within one max_ttl.",
    ),
    Kind(
        "unmarked",
        INFO,
        "The node looks new, so the recovery guard does not trust it yet. It votes as soon as all"
        " nodes answer, or after max_ttl. With recovery_guard='strict' it votes after max_ttl"
        " only.",
        "Do nothing if the set is new. Otherwise do as for the finding 'quarantined'.",
    ),
    Kind(
        "other-keys",
        WARNING,
        "A lock whose name is such a key can never be acquired. A program that writes or"
        " deletes the key of a lock breaks the lock.",
        "Set key_format, such as 'lock:{name}', in all processes at once: locks of two"
        " formats do not exclude each other.",
    ),
)
