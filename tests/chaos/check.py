"""Judges a run by its histories alone: `python -m tests.chaos.check DIR`.

The exit status is 1 on any violation. The report is a Markdown table. It is printed, and written
beside the histories as report.md. With `--page FILE` it is also written between the marks of a
page.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .judgement import percentile, summary, worst
from .record import load
from .rules import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .judgement import Judgement
    from .record import Record

__all__ = ["check", "main"]

_SHOWN = 5
_BEGIN, _END = "<!-- chaos:begin -->", "<!-- chaos:end -->"


def check(folder: Path) -> tuple[Record, Judgement]:
    """Read the histories of a folder, and judge them."""
    record = load(folder)
    return record, judge(record)


def main(arguments: list[str]) -> int:
    """Check a folder; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.check", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the histories are")
    parser.add_argument(
        "--page", type=Path, help="write the figures into this page, such as docs/proof.md"
    )
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    record, judgement = check(folder)
    meta = json.loads((folder / "meta.json").read_text()) if (folder / "meta.json").exists() else {}
    report = "\n".join(_report(record, judgement, meta))
    (folder / "report.md").write_text(report + "\n")
    sys.stdout.write(report + "\n")
    if options.page is not None:
        _write_into(options.page, report)
    return 1 if judgement.violations else 0


def _write_into(page: Path, report: str) -> None:
    """Replace the text between the marks of a page."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    if not after:
        raise ValueError(f"{page} has no {_BEGIN} … {_END}")
    page.write_text(f"{before}{_BEGIN}\n{report}\n{_END}{after}", encoding="utf-8")


def _report(record: Record, judgement: Judgement, meta: dict[str, Any]) -> Iterator[str]:
    figures = summary(record)
    if meta:
        broken = f", broken: {meta['broken']}" if meta["broken"] else ""
        yield (
            f"{figures['seconds'] / 60:.1f} minutes, seed {meta['seed']},"
            f" {meta['nodes']} nodes ({meta['server']}),"
            f" {meta['clients']} client processes ({meta['kind']}{broken}),"
            f" {meta['processors']} processors, Python {meta['python']}, commit {meta['commit']}."
        )
        yield ""
    yield "| | |"
    yield "|---|---:|"
    for label, value in _rows(record, judgement, figures):
        yield f"| {label} | {value} |"
    yield ""
    yield from _notes(record, judgement, figures)
    for title, findings in (
        ("Violations", judgement.violations),
        ("Not promised", judgement.beyond),
    ):
        yield ""
        yield f"{title}: {len(findings):,}"
        for kind, of_kind in worst(findings):
            yield f"* {kind}: {len(of_kind):,}"
            if title == "Violations":
                for finding in sorted(of_kind, key=lambda finding: finding.at)[:_SHOWN]:
                    yield f"  * {(finding.at - record.begin) / 1e9:.3f} s: {finding.what}"


def _rows(
    record: Record, judgement: Judgement, figures: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    violations = judgement.violations

    def broken(*kinds: str) -> str:
        return f"{sum(finding.kind in kinds for finding in violations):,}"

    rate = figures["acquired"] / max(figures["seconds"], 1e-9)
    yield (
        "acquisitions",
        f"{figures['acquired']:,} ({rate:.0f} a second)",
    )
    yield "faults", f"{figures['faults']:,}"
    yield "seconds without a majority, on purpose", f"{figures['seconds_without_majority']:.0f}"
    yield "**two holders at once**, beyond what is not promised", broken("overlap")
    yield (
        "**more holders of a semaphore than slots**",
        broken("too many holders", "slot beyond the limit"),
    )
    yield "**two leaders that work at once**", broken("two leaders work")
    yield "**grants before the end of `min_hold`**", broken("granted before min_hold ended")
    yield "**registers that changed under a reader**", broken("changed under a reader")
    yield "waiters passed too often", broken("overtaken", "reader passed", "writer passed")
    yield "grants with `fair` or `min_hold` that were passed on", broken("passed on")
    yield (
        f"**lost updates, fenced register**, of {judgement.fenced_writes:,} writes",
        broken("lost update, fenced"),
    )
    yield (
        f"lost updates, plain register, unexplained, of {judgement.plain_writes:,} writes",
        broken("lost update, plain"),
    )
    yield "fences that were not greater than every one before", broken("fence")
    yield f"**keys left behind**, in {figures['rests']:,} inspections", broken("key left behind")
    yield f"keys that live too long, in {len(record.looks):,} inspections", broken("endless key")
    # Rounded down: a hundred is all of them.
    share = (
        int(1e6 * judgement.got_well / judgement.asked_well) / 1e4 if judgement.asked_well else 0.0
    )
    well = f"{judgement.got_well:,} of {judgement.asked_well:,}"
    yield f"**acquired while a majority was well** ({well})", f"{share:.7g} %"
    yield "leases lost needlessly while a majority was well", broken("lost needlessly")
    for label, values in (
        ("leases 0.15 s old or more", judgement.notices),
        ("younger leases", judgement.notices_young),
        ("leases to read", judgement.notices_readers),
    ):
        p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
        if p50 is not None and p99 is not None:
            figure = f"{p50:.1f} ms, **{p99:.1f} ms**, {max(values) / 1e6:.1f} ms"
            yield f"time to the notice, {len(values):,} {label}", figure
    p50, p99 = (percentile(judgement.hand_overs, share) for share in (0.5, 0.99))
    if p50 is not None and p99 is not None:
        longest = max(judgement.hand_overs) / 1e6
        figure = f"{p50:.1f} ms, **{p99:.1f} ms**, {longest:.1f} ms"
        yield f"time of {len(judgement.hand_overs):,} hand-overs between processes", figure
    yield "deleted keys, holder ended before the notice", f"{judgement.ended_first:,}"
    yield "standstills of clients, seconds", f"{figures['stood_still']:.1f}"
    yield "late writes after a standstill, plain register", f"{judgement.late:,}"
    yield "old fences refused, fenced register", f"{judgement.refused:,}"
    yield "single attempts that found another holder", f"{judgement.held_well:,}"
    yield "acquisitions cancelled by their caller", f"{len(record.cut):,}"
    yield "failures during standstills, not counted above", f"{judgement.stood_still:,}"


def _notes(record: Record, judgement: Judgement, figures: dict[str, Any]) -> Iterator[str]:
    """Explain the rows that have more figures, or conditions."""
    by_kind = ", ".join(f"{kind} {count:,}" for kind, count in figures["acquired_kinds"].items())
    if by_kind:
        yield f"* Acquisitions by kind: {by_kind}."
    faults = ", ".join(
        f"{kind.replace('_', ' ')} {count}" for kind, count in figures["node_faults"].items()
    )
    processes = f"processes stopped {figures['stops']}, killed {figures['kills']}"
    yield f"* Faults by kind: {faults}; {processes}." if faults else f"* Faults: {processes}."
    if figures["rests"]:
        yield "* The inspections for keys left behind took place while no client worked."
    if record.looks:
        yield "* The inspections for keys that live too long took place while clients worked."
    if judgement.notices or judgement.notices_young or judgement.notices_readers:
        yield (
            "* The time to the notice begins with the deletion of the keys. "
            "Its three figures are p50, p99 and the longest."
        )
    if judgement.hand_overs:
        yield (
            "* The time of a hand-over begins with the release. The next process had waited. Its "
            "three figures are p50, p99 and the longest. A stopped waiter delays the next one."
        )
    yield "* The standstills of clients are those that the nemesis did not cause."
    yield "* The old fences are those of reads and writes."
    yield "* Failures during standstills: the process, the relay or the machine stood still."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
