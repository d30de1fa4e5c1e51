"""Summarise the figures of the study in a few sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["summary"]


_WHERE = {"loopback": "over loopback", "one zone": "in one zone"}


def summary(document: dict[str, Any]) -> Iterator[str]:
    """Yield sentences in Markdown."""
    measured, calculated = document["measured"], document["calculated"]
    commands, share = measured["commands"], calculated["share"]
    pair = commands["acquire"]["single"] + commands["release"]["single"]
    yield (
        f"**A set of nodes does {_round(calculated['acquisitions']['single'])} to "
        f"{_round(calculated['acquisitions']['pipelined'])} acquisitions a second at {share:.0%} "
        "of one core of each server**, with any number of nodes. Every node serves every "
        f"acquisition. An acquire and its release take {pair:.0f} µs of each server's CPU. More "
        "nodes tolerate more failures, and do not raise the rate."
    )
    client = measured["client"]
    few, many = min(client, key=int), max(client, key=int)
    yield (
        f"**More nodes cost more messages.** An acquire and its release take {2 * int(few)} "
        f"commands with {few} nodes, and {2 * int(many)} commands with {many}. The asking process "
        f"took {min(client.values()):.0f} to {max(client.values()):.0f} µs of CPU for these "
        "commands. The CPU time grows less than the number of commands, because the requests of "
        "one loop tick to a node leave in one write."
    )
    rows = document["simulated"]["latency"]
    networks = list(dict.fromkeys(row["network"] for row in rows))
    spans = []
    for network in networks:
        times = [
            row["p50"] * 1e3
            for row in rows
            if row["network"] == network and row["condition"] == "all well"
        ]
        least, most = (float(f"{of(times):.2g}") for of in (min, max))
        span = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        spans.append(f"{span} ms {_WHERE.get(network, network)}")
    yield (
        "**The latency is a round trip to the median node**, and hardly depends on the number of "
        f"nodes. With {few} to {many} healthy nodes, the p50 is {', '.join(spans)}. With five "
        "nodes or more, one slow or dead node hardly changes the p50."
    )
    found = document["simulated"]["contention"]
    rates = [row["rate"] for row in found if row["processes"] > 1]
    yield (
        f"**One lock that many processes want does {_round(min(rates))} to {_round(max(rates))} "
        "acquisitions a second in one zone.** This rate is the limit that is reached first, and "
        "sharding does not raise it."
    )
    leases = ", or ".join(
        f"{_round(count)} locks at a ttl of {ttl} s" for ttl, count in calculated["leases"].items()
    )
    million = next(row for row in calculated["resources"] if row["resources"] == 1_000_000)
    yield (
        f"**Held locks cost renewals more than memory.** With {share:.0%} of its core a server can "
        f"renew {leases}. A million held locks take {million['memory'] / 1e6:,.0f} MB of memory on "
        "each node."
    )
    limit = measured["memory"]["maxclients"]
    yield (
        "**A client process has one connection to each node.** By default a server accepts "
        f"{limit:,.0f} connections (`maxclients`). With sharding a process has more connections, "
        "one to each node of each set."
    )


def _round(number: float) -> str:
    """Return a number with two digits, because the figures are not more precise."""
    return f"{float(f'{number:.2g}'):,.0f}"
