"""Show a whole diagnosis, as tables on a terminal or as lines elsewhere."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rich import box
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from aioredlock_ng import Severity

from .shown import seconds
from .tables import Column, fitted
from .wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import Console

    from aioredlock_ng import Diagnosis, Finding, NodeFacts

__all__ = ["print_lines", "print_tables"]

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_SEEN = ("server", "up", "on disk", "when full", "round trip (p50, p95, p99)", "clock against ours")

_NARROW = 80
"""Smallest width of a terminal for tables, in columns. In a narrower table, a line of the advice
would have only a few words."""


def print_tables(diagnosis: Diagnosis, console: Console) -> None:
    """Print tables for a terminal, or wrapped lines if the terminal is too narrow for tables."""
    width = console.width
    rows = [(facts.address, *_what_was_seen(facts)) for facts in diagnosis.nodes]
    seen = fitted([Column(head) for head in ("node", *_SEEN)], rows, width)
    if width < _NARROW:
        print_lines(diagnosis, lambda line: _print_wrapped(console, line))
        return
    if Measurement.get(console, console.options.update(max_width=1000), seen).maximum <= width:
        console.print(seen)
    else:
        for facts in diagnosis.nodes:
            _print_wrapped(console, _node_line(facts))
        console.print()
    if diagnosis.findings:
        found = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_lines=True)
        for head in ("", "what was found", "what it means for the lock, and what to do"):
            found.add_column(head, overflow="fold")
        for group in _alike(diagnosis.findings):
            first = group[0]
            what = Text(first.code, style="bold")
            for finding in group:
                what.append(f"\n{_where(finding)}: {finding.what}", style="not bold")
            advice = Text.assemble(first.meaning, "\n", ("→ ", "bold"), first.remedy)
            found.add_row(Text(first.severity, style=_STYLES[first.severity]), what, advice)
        console.print(found)
    style = _STYLES[diagnosis.severity] if diagnosis.severity else "bold green"
    console.print(Text(_verdict(diagnosis), style=style))


def print_lines(diagnosis: Diagnosis, write: Callable[[str], object]) -> None:
    """Print lines for a log: one per node and one per finding.

    The meaning and the remedy are printed once for all findings that share them.
    """
    for facts in diagnosis.nodes:
        write(_node_line(facts))
    for group in _alike(diagnosis.findings):
        for finding in group:
            write(f"{finding.severity}: {finding.code}: {_where(finding)}: {finding.what}\n")
        write(f"    means: {group[0].meaning}\n    to do: {group[0].remedy}\n")
    write(f"{_verdict(diagnosis)}\n")


def _node_line(facts: NodeFacts) -> str:
    seen = ", ".join(
        f"{head} {value}"
        for head, value in zip(_SEEN, _what_was_seen(facts), strict=True)
        if value != "-"
    )
    return f"node {facts.address}: {seen or 'nothing is known'}\n"


def _print_wrapped(console: Console, text: str) -> None:
    for line in text.splitlines():
        words = line.lstrip()
        indent = line[: len(line) - len(words)]
        console.print(
            Text("\n".join(wrapped(words, console.width, indent, f"{indent}  "))), soft_wrap=True
        )


def _alike(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Group the findings that differ only in `nodes` and `what`."""
    groups: dict[tuple[str, ...], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.severity, finding.code, finding.meaning, finding.remedy].append(finding)
    return list(groups.values())


def _where(finding: Finding) -> str:
    return ", ".join(finding.nodes) or "the set"


def _verdict(diagnosis: Diagnosis) -> str:
    counts = []
    for severity, word in (
        (Severity.ERROR, "error"),
        (Severity.WARNING, "warning"),
        (Severity.INFO, "remark"),
    ):
        count = sum(finding.severity is severity for finding in diagnosis.findings)
        if count:
            counts.append(f"{count} {word}{'s' if count > 1 else ''}")
    nodes = f"{len(diagnosis.nodes)} node{'s' if len(diagnosis.nodes) > 1 else ''}"
    return f"{nodes} examined: {', '.join(counts) or 'nothing found'}"


def _what_was_seen(facts: NodeFacts) -> tuple[str, ...]:
    trips, clock = facts.round_trips, facts.clock
    disk = "-" if facts.aof is None else f"AOF {facts.fsync}".strip() if facts.aof else "no AOF"
    return (
        facts.server or "-",
        seconds(facts.uptime),
        disk,
        facts.maxmemory_policy or "-",
        "-" if trips is None else ", ".join(map(seconds, (trips.p50, trips.p95, trips.p99))),
        "-" if clock is None else f"{clock.offset:+,.5f} s ± {clock.offset_error:.5f} s",
    )
