"""Turns the study's figures into the tables of docs/scaling.md, and puts them between its marks; it computes nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from benchmarks.scaling.summary import summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = ["sections", "write_page"]

_LABELS = {
    "acquire": "acquire, with fence and recovery guard",
    "plain": "acquire, without either",
    "refused": "acquire that is refused",
    "confirm": "confirm: the second round of a fence",
    "release": "release",
    "extend": "renewal, per lease, in batches of {batch}",
    "watch": "look at the key, per lease, in batches of {batch}",
    "repair": "repair of a lost key",
}


def sections(document: dict[str, Any]) -> dict[str, str]:
    """Markdown by the name of its mark."""
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
        "hot": _mixes(document["simulated"]["hot"], "of all acquisitions hit one name", lambda row: f"{row['share']:.0%}"),
        "resources": _mixes(document["simulated"]["resources"], "names, all as likely", lambda row: f"{row['resources']:,}"),
        "nodes": _nodes(document["calculated"]["nodes"]),
        "clients": _clients(document["calculated"]["clients"]),
        "held": _held(document["calculated"]["resources"]),
        "waiting": _waiting(document["calculated"]["waiting"]),
        "sets": _sets(document["calculated"]["sets"]),
    }


def write_page(page: Path, parts: dict[str, str]) -> None:
    """Replace what is between the marks of the page.

    Raises:
        ValueError: A mark is missing, or is nobody's.
    """
    text = page.read_text(encoding="utf-8")
    marks = re.findall(r"<!-- scaling:(\w+):begin -->", text)
    if sorted(marks) != sorted(parts):
        raise ValueError(f"{page.name} has marks for {sorted(marks)}, figures are for {sorted(parts)}")
    for name, part in parts.items():
        begin, end = f"<!-- scaling:{name}:begin -->", f"<!-- scaling:{name}:end -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"{page.name} has no {end}")
        text = f"{before}{begin}\n{part}\n{end}{after}"
    page.write_text(text, encoding="utf-8")


def _machine(document: dict[str, Any]) -> str:
    machine = document["machine"]
    load = machine["load_average"][0]
    return (
        f"Measured on {machine['cores']} cores ({machine['cpu']}), {machine['system']}, CPython {machine['python']}; "
        f"{machine['server'].partition(' sha=')[0]}; on {document['started'][:10]} in {document['seconds'] / 60:.0f} minutes, "
        f"while other work had loaded it by {load:g}. Rounds of measuring the same command differed by up to a factor of "
        f"{document['measured']['spread']:.1f}; other machines have other figures; how they hang together stays the same."
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _commands(measured: dict[str, Any]) -> str:
    rows = [
        [
            label.format(batch=measured["batch"]),
            *(f"{measured['commands'][name][how]:.1f}" for how in ("script", "pipelined", "single")),
        ]
        for name, label in _LABELS.items()
    ]
    rows.append(["telling one connection that a key is gone", "", "", f"{measured['push']:.1f}"])
    commands = _table(["server CPU, µs", "script alone", "50 commands in a packet", "a packet each"], rows)
    client = measured["client"]
    head = ["the asking process, CPU in µs", *(f"{nodes} nodes" for nodes in client)]
    return f"{commands}\n\n{_table(head, [['acquire and release', *(f'{usec:.0f}' for usec in client.values())]])}"


def _batches(measured: dict[str, Any]) -> str:
    servers = measured["batches"]
    sizes = list(next(iter(servers.values()))["extend"])
    rows = [[name, *(f"{scripts['extend'][size]:.1f}" for size in sizes)] for name, scripts in servers.items()]
    return _table(["server CPU per renewed lease, µs", *(f"{size} in a command" for size in sizes)], rows)


def _memory(measured: dict[str, Any]) -> str:
    memory = measured["memory"]
    rows = [
        ["a held lock: key, token, expiry", f"{memory['lock']:.0f}"],
        ["the same key tracked by its holder", f"{memory['tracked']:.0f}"],
        ["the same key tracked by another process, each", f"{memory['tracked_again']:.0f}"],
        ["all fence counters, once", f"{memory['counters']:,.0f}"],
        ["a connection that was just used", f"{memory['connection']:,.0f}"],
    ]
    return _table([f"server memory, by {measured['locks']:,} locks", "bytes"], rows)


def _ms(seconds: float | None) -> str:
    """Milliseconds in three digits."""
    if seconds is None:
        return "-"
    value = seconds * 1e3
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _number(value: float) -> str:
    """Three digits at most."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _both(row: dict[str, Any]) -> str:
    return f"{_ms(row['p50'])} / {_ms(row['p99'])}"


def _latency(found: list[dict[str, Any]]) -> str:
    nodes = list(dict.fromkeys(row["nodes"] for row in found))
    cells = {(row["network"], row["condition"], row["nodes"]): _both(row) for row in found}
    kinds = list(dict.fromkeys((row["network"], row["condition"]) for row in found))
    rows = [[f"{network}, {condition}", *(cells[network, condition, n] for n in nodes)] for network, condition in kinds]
    return _table(["acquire, ms: p50 / p99", *(f"{n} nodes" for n in nodes)], rows)


def _load(found: list[dict[str, Any]]) -> str:
    rows = [
        [f"{row['offered']:,.0f}", f"{row['nodes']}", f"{row['busy']:.0%}", _ms(row["p50"]), _ms(row["p99"])] for row in found
    ]
    return _table(["acquisitions/s", "nodes", "busiest server's core", "p50, ms", "p99, ms"], rows)


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
    return _table(
        [*head, "busiest server's core"],
        (
            [
                f"{row['processes']}",
                f"{row['rate']:,.0f}",
                f"{row['changes']:,.0f}",
                f"{row['commands']:.1f}",
                f"{row['pushes']:.1f}",
                f"{row['splits']:.2f}",
                _ms(row["processes"] / row["rate"]),
                f"{row['busy']:.0%}",
            ]
            for row in found
        ),
    )


def _networks(found: list[dict[str, Any]]) -> str:
    nodes = list(dict.fromkeys(row["nodes"] for row in found))
    cells = {(row["network"], row["nodes"]): f"{_number(row['rate'])} ({row['commands']:.0f})" for row in found}
    rows = [[name, *(cells[name, n] for n in nodes)] for name in dict.fromkeys(row["network"] for row in found)]
    return _table(["acquisitions/s (commands each)", *(f"{n} nodes" for n in nodes)], rows)


def _mixes(found: list[dict[str, Any]], what: str, label: Any) -> str:
    rows = [
        [
            label(row),
            f"{row['rate']:,.0f}",
            f"{row['commands']:.1f}",
            _both(row["cold"]),
            *([_both(row["hot"])] if "share" in row else []),
            f"{row['second_rounds']:.2%}",
        ]
        for row in found
    ]
    hot = ["hot: p50 / p99, ms"] if "share" in found[0] else []
    cold = "others: p50 / p99, ms" if hot else "p50 / p99, ms"
    return _table([what, "acquisitions/s", "commands each", cold, *hot, "second rounds"], rows)


def _nodes(found: list[dict[str, Any]]) -> str:
    head = ["nodes", "may be down", "commands per acquire and release", "asking process, µs"]
    rows = [
        [
            f"{row['nodes']}",
            f"{row['bears']}",
            f"{row['commands']}",
            "-" if row["client"] is None else f"{row['client']:.0f}",
            *(_rare(value) for value in row["down"].values()),
        ]
        for row in found
    ]
    downs = [f"no majority, each down {float(down):g} of the time" for down in found[0]["down"]]
    return _table([*head, *downs], rows)


def _rare(share: float) -> str:
    """A share of time, and what it is in a year."""
    seconds = share * 365 * 86_400
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit} a year"
    return "under 1 s a year"


def _size(bytes_: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if bytes_ >= size:
            return f"{bytes_ / size:,.1f} {unit}"
    return f"{bytes_ / 1e3:,.0f} kB"


def _clients(found: list[dict[str, Any]]) -> str:
    rates = list(found[0]["busy"])
    rows = [
        [
            f"{row['clients']:,}",
            _size(row["memory"]),
            "yes" if row["accepted"] else "**no**",
            *(f"{row['busy'][rate]:.1%} ({row['sets'][rate]:,})" for rate in rates),
        ]
        for row in found
    ]
    head = ["client processes", "connections' memory per node", "within maxclients' default"]
    return _table([*head, *(f"core at {rate}/s each (sets)" for rate in rates)], rows)


def _held(found: list[dict[str, Any]]) -> str:
    ttls = list(found[0]["busy"])
    rows = [
        [f"{row['resources']:,}", _size(row["memory"]), *(f"{row['busy'][ttl]:.1%} ({row['sets'][ttl]:,})" for ttl in ttls)]
        for row in found
    ]
    return _table(["locks held", "memory per node", *(f"core for renewals at ttl {ttl} s (sets)" for ttl in ttls)], rows)


def _waiting(found: list[dict[str, Any]]) -> str:
    rows = [[f"{row['clients']:,}", f"{row['usec'] / 1e3:,.2f}", _number(row["rate"])] for row in found]
    return _table(["processes that wait for one lock", "lead server's CPU per hand-over, ms", "hand-overs/s at most"], rows)


def _sets(found: list[dict[str, Any]]) -> str:
    rows = [
        [
            f"{row['sets']}",
            f"{row['acquisitions']:,.0f}",
            f"{row['connections']}",
            _rare(row["names_down"]),
            _rare(row["some_down"]),
        ]
        for row in found
    ]
    head = ["sets of three", "acquisitions/s", "connections per process", "a given name cannot be locked"]
    return _table([*head, "some names cannot be locked"], rows)
