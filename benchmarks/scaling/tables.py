"""Format the figures of the study as the tables of docs/scaling.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.scaling.page import both, ms, number, rare, size, table
from benchmarks.scaling.summary import summary

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["sections"]

_LABELS = {
    "acquire": "acquire, with fence and recovery guard",
    "plain": "acquire, without either",
    "refused": "acquire that is refused",
    "confirm": "confirm: the second round of a fence",
    "release": "release",
    "extend": "renewal, per lease, in batches of {batch}",
    "watch": "check of the key, per lease, in batches of {batch}",
    "repair": "repair of a lost key",
}


def sections(document: dict[str, Any]) -> dict[str, str]:
    """Return the Markdown of each mark."""
    return {
        "machine": _machine(document),
        "short": "\n".join(f"* {line}" for line in summary(document)),
        "commands": _commands(document["measured"]),
        "batches": _batches(document["measured"]),
        "memory": _memory(document["measured"]),
        "latency": _latency(document["simulated"]["latency"]),
        "load": _load(document["simulated"]["load"]),
        "contention": _contention(document["simulated"]["contention"]),
        "networks": _networks(document["simulated"]["networks"]),
        "hot": _mixes(
            document["simulated"]["hot"],
            "share of acquisitions on one name",
            lambda row: f"{row['share']:.0%}",
        ),
        "resources": _mixes(
            document["simulated"]["resources"],
            "names, equally likely",
            lambda row: f"{row['resources']:,}",
        ),
        "nodes": _nodes(document["calculated"]["nodes"]),
        "clients": _clients(document["calculated"]["clients"]),
        "held": _held(document["calculated"]["resources"]),
        "waiting": _waiting(document["calculated"]["waiting"]),
        "sets": _sets(document["calculated"]["sets"]),
    }


def _machine(document: dict[str, Any]) -> str:
    machine = document["machine"]
    load = machine["load_average"][0]
    return (
        f"Measured on {machine['cores']} cores ({machine['cpu']}), {machine['system']}, CPython "
        f"{machine['python']}; {machine['server'].partition(' sha=')[0]}; on "
        f"{document['started'][:10]} in {document['seconds'] / 60:.0f} minutes, with a load "
        f"average of {load:g} from other work. The figures of one command differed by up to a "
        f"factor of {document['measured']['spread']:.1f} between rounds. Other machines have other "
        "figures, in about the same proportions."
    )


def _commands(measured: dict[str, Any]) -> str:
    rows = [
        [
            label.format(batch=measured["batch"]),
            *(
                f"{measured['commands'][name][how]:.1f}"
                for how in ("script", "pipelined", "single")
            ),
        ]
        for name, label in _LABELS.items()
    ]
    rows.append(["notifying one connection that a key is gone", "", "", f"{measured['push']:.1f}"])
    commands = table(
        ["server CPU, µs", "script alone", "50 commands in a packet", "a packet each"], rows
    )
    client = measured["client"]
    head = ["the asking process, CPU in µs", *(f"{nodes} nodes" for nodes in client)]
    row = ["acquire and release", *(f"{usec:.0f}" for usec in client.values())]
    return f"{commands}\n\n{table(head, [row])}"


def _batches(measured: dict[str, Any]) -> str:
    servers = measured["batches"]
    sizes = list(next(iter(servers.values()))["extend"])
    rows = [
        [name, *(f"{scripts['extend'][size]:.1f}" for size in sizes)]
        for name, scripts in servers.items()
    ]
    return table(
        ["server CPU per renewed lease, µs", *(f"{size} in a command" for size in sizes)], rows
    )


def _memory(measured: dict[str, Any]) -> str:
    memory = measured["memory"]
    rows = [
        ["a held lock: key, token, expiry", f"{memory['lock']:.0f}"],
        ["more for the same key, tracked by its holder", f"{memory['tracked']:.0f}"],
        ["more for each further process that tracks the key", f"{memory['tracked_again']:.0f}"],
        ["all fence counters together", f"{memory['counters']:,.0f}"],
        ["a connection that was just used", f"{memory['connection']:,.0f}"],
    ]
    return table([f"server memory, measured with {measured['locks']:,} locks", "bytes"], rows)


def _latency(found: list[dict[str, Any]]) -> str:
    nodes = list(dict.fromkeys(row["nodes"] for row in found))
    cells = {(row["network"], row["condition"], row["nodes"]): both(row) for row in found}
    kinds = list(dict.fromkeys((row["network"], row["condition"]) for row in found))
    rows = [
        [f"{network}, {condition}", *(cells[network, condition, n] for n in nodes)]
        for network, condition in kinds
    ]
    return table(["acquire, ms: p50 / p99", *(f"{n} nodes" for n in nodes)], rows)


def _load(found: list[dict[str, Any]]) -> str:
    rows = [
        [
            f"{row['offered']:,.0f}",
            f"{row['nodes']}",
            f"{row['busy']:.0%}",
            ms(row["p50"]),
            ms(row["p99"]),
        ]
        for row in found
    ]
    return table(["acquisitions/s", "nodes", "busiest server's core", "p50, ms", "p99, ms"], rows)


def _contention(found: list[dict[str, Any]]) -> str:
    head = [
        "processes",
        "acquisitions/s",
        "to another process/s",
        "commands each",
        "pushes each",
        "split votes each",
        "mean wait, ms",
    ]
    return table(
        [*head, "busiest server's core"],
        (
            [
                f"{row['processes']}",
                f"{row['rate']:,.0f}",
                f"{row['changes']:,.0f}",
                f"{row['commands']:.1f}",
                f"{row['pushes']:.1f}",
                f"{row['splits']:.2f}",
                ms(row["processes"] / row["rate"]),
                f"{row['busy']:.0%}",
            ]
            for row in found
        ),
    )


def _networks(found: list[dict[str, Any]]) -> str:
    nodes = list(dict.fromkeys(row["nodes"] for row in found))
    cells = {
        (row["network"], row["nodes"]): f"{number(row['rate'])} ({row['commands']:.0f})"
        for row in found
    }
    rows = [
        [name, *(cells[name, n] for n in nodes)]
        for name in dict.fromkeys(row["network"] for row in found)
    ]
    return table(["acquisitions/s (commands each)", *(f"{n} nodes" for n in nodes)], rows)


def _mixes(found: list[dict[str, Any]], what: str, label: Callable[[dict[str, Any]], str]) -> str:
    rows = [
        [
            label(row),
            f"{row['rate']:,.0f}",
            f"{row['commands']:.1f}",
            both(row["cold"]),
            *([both(row["hot"])] if "share" in row else []),
            f"{row['second_rounds']:.2%}",
        ]
        for row in found
    ]
    hot = ["hot: p50 / p99, ms"] if "share" in found[0] else []
    cold = "others: p50 / p99, ms" if hot else "p50 / p99, ms"
    return table([what, "acquisitions/s", "commands each", cold, *hot, "second rounds"], rows)


def _nodes(found: list[dict[str, Any]]) -> str:
    head = ["nodes", "may be down", "commands per acquire and release", "asking process, µs"]
    rows = [
        [
            f"{row['nodes']}",
            f"{row['bears']}",
            f"{row['commands']}",
            "-" if row["client"] is None else f"{row['client']:.0f}",
            *(rare(value) for value in row["down"].values()),
        ]
        for row in found
    ]
    downs = [
        f"no majority (nodes down {100 * float(down):g}% of the time)" for down in found[0]["down"]
    ]
    return table([*head, *downs], rows)


def _clients(found: list[dict[str, Any]]) -> str:
    rates = list(found[0]["busy"])
    rows = [
        [
            f"{row['clients']:,}",
            size(row["memory"]),
            "yes" if row["accepted"] else "**no**",
            *(f"{row['busy'][rate]:.1%} ({row['sets'][rate]:,})" for rate in rates),
        ]
        for row in found
    ]
    head = ["client processes", "connections' memory per node", "within maxclients' default"]
    return table([*head, *(f"core used at {rate}/s each (sets)" for rate in rates)], rows)


def _held(found: list[dict[str, Any]]) -> str:
    ttls = list(found[0]["busy"])
    rows = [
        [
            f"{row['resources']:,}",
            size(row["memory"]),
            *(f"{row['busy'][ttl]:.1%} ({row['sets'][ttl]:,})" for ttl in ttls),
        ]
        for row in found
    ]
    return table(
        [
            "locks held",
            "memory per node",
            *(f"core used by renewals, ttl {ttl} s (sets)" for ttl in ttls),
        ],
        rows,
    )


def _waiting(found: list[dict[str, Any]]) -> str:
    rows = [
        [f"{row['clients']:,}", f"{row['usec'] / 1e3:,.2f}", number(row["rate"])] for row in found
    ]
    return table(
        [
            "processes that wait for one lock",
            "lead server's CPU per hand-over, ms",
            "hand-overs/s that its core has room for",
        ],
        rows,
    )


def _sets(found: list[dict[str, Any]]) -> str:
    rows = [
        [
            f"{row['sets']}",
            f"{row['acquisitions']:,.0f}",
            f"{row['connections']}",
            rare(row["names_down"]),
            rare(row["some_down"]),
        ]
        for row in found
    ]
    head = [
        "sets of three",
        "acquisitions/s",
        "connections per process",
        "a given name cannot be locked",
    ]
    return table([*head, "some names cannot be locked"], rows)
