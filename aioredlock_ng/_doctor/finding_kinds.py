"""Define every kind of finding, with its meaning for locks and the remedy."""

from __future__ import annotations

from typing import Final

from aioredlock_ng._doctor.finding_kind import ERROR, INFO, WARNING, Kind
from aioredlock_ng._doctor.loss_finding_kinds import MAY_FORGET

__all__ = ["KINDS", "Kind"]


_NO_VOTE = "It has no vote, so the set tolerates one loss less."
_UNTOLD = (
    "It cannot notify clients that a lock is free or deleted. If this is true of a majority of the"
    " nodes, waiters ask 10 to 13 times a second, and holders notice a loss at the next renewal."
)

_ALL = (
    # Nodes that cannot be examined.
    Kind(
        "unreachable",
        ERROR,
        _NO_VOTE,
        "Check that the server runs, that its address is right and that no firewall blocks the"
        " connection.",
    ),
    Kind(
        "authentication",
        ERROR,
        _NO_VOTE,
        "Correct the user and password in the node's URL, or the user on the server.",
    ),
    Kind(
        "unusable-client",
        ERROR,
        _NO_VOTE,
        "Give the node's URL, or a redis.asyncio.Redis with a connection class of redis-py.",
    ),
    Kind(
        "silent",
        ERROR,
        _NO_VOTE,
        "Check whether the server hangs, swaps or runs a slow command, and whether a proxy is"
        " in between.",
    ),
    Kind("not-ready", ERROR, _NO_VOTE, "Wait until it is ready and examine it again."),
    Kind(
        "not-examined",
        INFO,
        "Its state is unknown.",
        "Only nodes given by URL or as a redis.asyncio.Redis are examined.",
    ),
    # Nodes of the wrong kind.
    Kind(
        "replica",
        ERROR,
        "It accepts no writes and cannot vote. Its primary would vote twice if both are named.",
        "Name the primary instead, or turn the replica into a primary: REPLICAOF NO ONE.",
    ),
    Kind(
        "cluster",
        ERROR,
        "A cluster moves keys between servers, and a failover loses keys. So the node has no"
        " independent vote.",
        "Use a server outside of clusters, with cluster-enabled no.",
    ),
    Kind("old-version", ERROR, _NO_VOTE, "Use Redis 6.2 or newer, or Valkey."),
    Kind(
        "unknown-command",
        ERROR,
        "It has no vote, because it might grant a lock but could not renew or release the lock.",
        "Use Redis 6.2 or newer, or Valkey, and do not rename these commands.",
    ),
    *MAY_FORGET,
    # Nodes that lack something.
    Kind(
        "noloop-defect",
        INFO,
        "It notifies the library of the library's own changes (scripts ignore CLIENT TRACKING"
        " NOLOOP). This costs some work and breaks nothing.",
        "Use Redis 6.2.8, 7.0.5 or newer, or Valkey.",
    ),
    Kind(
        "no-resp3",
        WARNING,
        _UNTOLD,
        "Use Redis 6.2 or newer, or Valkey, without a proxy that speaks RESP2 alone.",
    ),
    Kind(
        "no-tracking",
        WARNING,
        _UNTOLD,
        "Allow CLIENT TRACKING and CLIENT CACHING.",
    ),
    Kind(
        "no-messages",
        WARNING,
        "It forwards no messages between processes: waiting processes ask at intervals"
        " instead of being notified.",
        "Allow SUBSCRIBE and PUBLISH.",
    ),
    Kind(
        "no-queue",
        WARNING,
        "Waiting processes have no order on this node. They ask at intervals instead of being"
        " notified. Without ZREVRANGE the node grants no read leases of read-write locks, and"
        " without ZREM it does not release them.",
        "Allow the commands of queues: ZADD, PEXPIRE, ZRANGE, ZREVRANGE, ZRANK, ZREM,"
        " EXISTS and DEL.",
    ),
    Kind(
        "no-readers",
        WARNING,
        "It grants no read leases of read-write locks, and has no vote on them. All other locks"
        " work.",
        "Allow the commands of readers: ZADD, ZSCORE, ZREM, ZREVRANGE, ZREMRANGEBYSCORE,"
        " PEXPIREAT and TIME.",
    ),
    Kind(
        "no-labels",
        WARNING,
        "Locks work. But if one node refuses labels, a manager uses no labels on any node. Then"
        " Election.leader and Election.watch() show '?' as the leader, and errors name no holder.",
        "Allow scripts, SET, GET, MGET and DEL to use the keys aioredlock_ng:owner:*.",
    ),
    Kind(
        "no-identity",
        WARNING,
        "Nothing shows whether the node is in a cluster, evicts keys or was restored from a"
        " snapshot. A replica is noticed only when it refuses a write.",
        "Allow INFO, or check these points yourself.",
    ),
    Kind(
        "no-script-load",
        INFO,
        "The first call of each script after a connect takes one more round trip.",
        "Allow SCRIPT LOAD.",
    ),
    Kind(
        "missing-right",
        ERROR,
        "It cannot vote, or cannot renew or release.",
        "See docs/acl.md for the rights.",
    ),
    Kind(
        "refused",
        ERROR,
        "It cannot grant locks in this state. With OOM it still renews and releases locks. With any"
        " other error it may refuse renewals and releases, too.",
        "Follow the server's message, and examine the node again.",
    ),
    # Clocks and round trips.
    Kind(
        "clock-rate",
        ERROR,
        "Keys expire by its clock, and leases by their holder's clock. So the key expires, and is"
        " granted to others, before the lease ends.",
        "Let chrony or ntpd slew its clock, instead of setting the clock in steps. Or raise"
        " drift_factor.",
    ),
    Kind(
        "clock-rate-unknown",
        INFO,
        "It is unknown whether its clock keeps within drift_factor. Its round trips are long"
        " for such a short watch.",
        "Use a longer watch.",
    ),
    Kind("clock-unknown", INFO, "Its clock was not compared.", "Allow the command TIME."),
    Kind(
        "round-trip",
        WARNING,
        "A round waits for an answer only until node_timeout. After that, the node counts as"
        " silent.",
        "Raise node_timeout to several round trips, or move the node nearer.",
    ),
    # The set of nodes.
    Kind(
        "no-quorum",
        ERROR,
        "No lock can be acquired.",
        "Repair the nodes that cannot vote. Remove the nodes that will not come back.",
    ),
    Kind(
        "same-server",
        ERROR,
        "One server has several votes: its loss alone may stop or split the set. Redlock"
        " refuses such a set.",
        "Name each server once.",
    ),
    Kind(
        "single-node",
        WARNING,
        "Its loss stops every lock. If it loses its data while all processes restart, it grants"
        " locks that are held.",
        "Use three independent nodes, which tolerate the loss of one, or five, which tolerate the"
        " loss of two.",
    ),
    Kind(
        "even-number",
        WARNING,
        "The set tolerates no more losses than a set with one node fewer, although more nodes can"
        " fail.",
        "Add or remove a node.",
    ),
    Kind(
        "same-host",
        WARNING,
        "The loss of one machine takes several votes at once, and its restart makes several"
        " nodes forget.",
        "Put each node on a machine of its own, preferably with power and network of its own.",
    ),
    Kind(
        "clock-offset",
        WARNING,
        "The clock of a node is wrong. If it is corrected in a step, the locks on that node"
        " expire that much earlier or later.",
        "Synchronise all clocks. Slew them instead of setting them in steps.",
    ),
    Kind(
        "client-clock",
        WARNING,
        "This machine's wall clock is wrong. No lease depends on it, but fences and logs do.",
        "Synchronise the clocks of clients as well.",
    ),
    Kind(
        "slow-quorum",
        WARNING,
        "One acquire or renewal in 20 spends at least this share of the ttl on the network.",
        "Raise ttl (and node_timeout), or move a majority of the nodes nearer.",
    ),
    Kind(
        "short-ttl",
        INFO,
        "If a majority is slow, a renewal has little time for a second try.",
        "Use a ttl of ten times node_timeout or more.",
    ),
)

KINDS: Final = {kind.code: kind for kind in _ALL}
