"""Shows a diagnosis to people: tables on a terminal, lines elsewhere; never changes or leaves out what was found."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from aioredlock_ng import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import Console

    from aioredlock_ng import Diagnosis, Finding, NodeFacts

__all__ = ["print_lines", "print_tables"]

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_SEEN = ("server", "up", "on disk", "when full", "round trip (p50, p95, p99)", "clock against ours")


def print_tables(diagnosis: Diagnosis, console: Console) -> None:
    """Print for a terminal."""
    seen = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("node", *_SEEN):
        seen.add_column(head, overflow="fold")
    for facts in diagnosis.nodes:
        seen.add_row(*map(Text, (facts.address, *_what_was_seen(facts))))
    console.print(seen)
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
    """Print for a log: a line for each finding with everything to search for, then what those alike mean."""
    for facts in diagnosis.nodes:
        seen = ", ".join(f"{head} {value}" for head, value in zip(_SEEN, _what_was_seen(facts), strict=True) if value != "-")
        write(f"node {facts.address}: {seen or 'nothing is known'}\n")
    for group in _alike(diagnosis.findings):
        for finding in group:
            write(f"{finding.severity}: {finding.code}: {_where(finding)}: {finding.what}\n")
        write(f"    means: {group[0].meaning}\n    to do: {group[0].remedy}\n")
    write(f"{_verdict(diagnosis)}\n")


def _alike(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Those that differ in nothing but where and what was seen, together, at the place of the first."""
    groups: dict[tuple[str, ...], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.severity, finding.code, finding.meaning, finding.remedy].append(finding)
    return list(groups.values())


def _where(finding: Finding) -> str:
    return ", ".join(finding.nodes) or "the set"


def _verdict(diagnosis: Diagnosis) -> str:
    counts = []
    for severity, word in ((Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.INFO, "remark")):
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
        "-" if facts.uptime is None else _duration(facts.uptime),
        disk,
        facts.maxmemory_policy or "-",
        "-" if trips is None else " ".join(f"{value * 1000:.3g}" for value in (trips.p50, trips.p95, trips.p99)) + " ms",
        "-" if clock is None else f"{_signed(clock.offset)} ± {_milliseconds(clock.offset_error)}",
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"


def _signed(seconds: float) -> str:
    return f"{seconds * 1000:+.2f} ms" if abs(seconds) < 1 else f"{seconds:+,.2f} s"


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
