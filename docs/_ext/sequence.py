"""Draw the Mermaid sequence diagrams of pages as SVG during the build.

So the site needs no script and no network. The extension supports the lines below, as GitHub draws
them. Any other line is an error.

    sequenceDiagram
        participant A as holder A
        A->>B: a message          (-->> an answer, --x one that does not arrive)
        Note over A: what happens there
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sphinx.application import Sphinx

PARTICIPANT = re.compile(r"participant (?P<key>\w+)(?: as (?P<label>.+))?")
MESSAGE = re.compile(r"(?P<source>\w+)(?P<arrow>->>|-->>|--x)(?P<target>\w+): (?P<text>.+)")
NOTE = re.compile(r"Note over (?P<over>\w+): (?P<text>.+)")

LETTER, LINE, ROW, PADDING, LEAST = 7.2, 20, 44, 14, 130


class DiagramError(ValueError):
    """A line that is not understood."""


@dataclass(frozen=True)
class Message:
    """An arrow from one participant to another."""

    source: str
    target: str
    arrow: str
    text: str


@dataclass(frozen=True)
class Note:
    """A remark on one participant's line."""

    over: str
    text: str


def parse(source: str) -> tuple[dict[str, str], list[Message | Note]]:
    """Return the participants, key to label, and what happens, in order.

    Raises:
        DiagramError: A line is not supported, or names an unknown participant.
    """
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    if not lines or lines[0] != "sequenceDiagram":
        raise DiagramError("only a sequenceDiagram is drawn here; draw another kind as text or SVG")
    people: dict[str, str] = {}
    steps: list[Message | Note] = []
    for line in lines[1:]:
        if found := PARTICIPANT.fullmatch(line):
            people[found["key"]] = found["label"] or found["key"]
        elif found := MESSAGE.fullmatch(line):
            steps.append(Message(found["source"], found["target"], found["arrow"], found["text"]))
        elif found := NOTE.fullmatch(line):
            steps.append(Note(found["over"], found["text"]))
        else:
            raise DiagramError(f"not understood: {line!r}")
    for step in steps:
        for name in (step.source, step.target) if isinstance(step, Message) else (step.over,):
            if name not in people:
                raise DiagramError(f"{name!r} is no participant")
    return people, steps


def draw(source: str) -> str:
    """Return the diagram as an SVG element.

    Raises:
        DiagramError: See `parse`.
    """
    people, steps = parse(source)
    order = list(people)
    gaps = _gaps(order, people, steps)
    x = {
        name: _width(people[order[0]]) / 2 + PADDING + sum(gaps[:place])
        for place, name in enumerate(order)
    }
    bottom = 50 + ROW * len(steps) + 10
    # A note may be wider than the space left of the first line or right of the last.
    reach = [
        (x[step.over], _width(step.text) / 2 + PADDING) for step in steps if isinstance(step, Note)
    ]
    left = min([0.0, *(middle - half for middle, half in reach)])
    right = max(
        [
            x[order[-1]] + _width(people[order[-1]]) / 2 + PADDING,
            *(middle + half for middle, half in reach),
        ]
    )
    drawn = []
    for name in order:
        half = _width(people[name]) / 2 + 8
        drawn.append(
            f'<line class="life" x1="{x[name]:.0f}" y1="34" x2="{x[name]:.0f}" y2="{bottom}"/>'
        )
        drawn.append(
            f'<rect x="{x[name] - half:.0f}" y="4" width="{2 * half:.0f}" height="30" rx="4"/>'
        )
        drawn.append(_text(x[name], 24, people[name]))
    for row, step in enumerate(steps):
        y = 50 + ROW * row + ROW // 2
        drawn += _message(step, x, y) if isinstance(step, Message) else _note(step, x, y)
    told = escape("; ".join(_words(step, people) for step in steps), quote=True)
    size = f'viewBox="{left:.0f} 0 {right - left:.0f} {bottom + 4}" width="{right - left:.0f}"'
    return f'<svg class="sequence" role="img" aria-label="{told}" {size}>{"".join(drawn)}</svg>'


def _gaps(
    order: Sequence[str], people: dict[str, str], steps: Sequence[Message | Note]
) -> list[float]:
    """How far apart neighbours stand, so that each message fits between its two ends."""
    gaps = [
        max(LEAST, (_width(people[left]) + _width(people[right])) / 2 + 3 * PADDING)
        for left, right in pairwise(order)
    ]
    for step in steps:
        if isinstance(step, Message):
            low, high = sorted((order.index(step.source), order.index(step.target)))
            missing = _width(step.text) + 2 * PADDING - sum(gaps[low:high])
            for place in range(low, high):
                gaps[place] += max(0.0, missing) / (high - low)
    return gaps


def _message(step: Message, x: dict[str, float], y: int) -> list[str]:
    start, end = x[step.source], x[step.target]
    way = 1 if end > start else -1
    lost = step.arrow == "--x"
    tip = end - way * (12 if lost else 0)
    dashed = ' class="dashed"' if step.arrow.startswith("--") else ""
    head = (
        f'<path class="cross" d="M{tip - 5:.0f} {y - 5}l10 10m0 -10l-10 10"/>'
        if lost
        else f'<path class="head" d="M{tip:.0f} {y}l{-9 * way} -5v10z"/>'
    )
    line = f'<line{dashed} x1="{start:.0f}" y1="{y}" x2="{tip:.0f}" y2="{y}"/>'
    return [line, head, _text((start + end) / 2, y - 7, step.text)]


def _note(step: Note, x: dict[str, float], y: int) -> list[str]:
    half = _width(step.text) / 2 + 8
    left, width = f"{x[step.over] - half:.0f}", f"{2 * half:.0f}"
    box = f'<rect class="note" x="{left}" y="{y - 18}" width="{width}" height="28"/>'
    return [box, _text(x[step.over], y + 1, step.text)]


def _text(x: float, y: int, words: str) -> str:
    return f'<text x="{x:.0f}" y="{y}" text-anchor="middle">{escape(words)}</text>'


def _width(words: str) -> float:
    return LETTER * len(words)


def _words(step: Message | Note, people: dict[str, str]) -> str:
    if isinstance(step, Note):
        return f"{people[step.over]}: {step.text}"
    return f"{people[step.source]} to {people[step.target]}: {step.text}" + (
        " (lost)" if step.arrow == "--x" else ""
    )


class SequenceDiagram(SphinxDirective):
    """The directive behind a fenced block that says `mermaid`."""

    has_content: ClassVar[bool] = True

    def run(self) -> list[nodes.Node]:
        """Draw the block."""
        source = "\n".join(self.content)
        try:
            svg = draw(source)
        except DiagramError as error:
            return [self.state.document.reporter.warning(f"mermaid: {error}", line=self.lineno)]
        # Other formats than HTML get the lines themselves, which are readable too.
        html = nodes.raw("", f'<div class="diagram">{svg}</div>', format="html")
        text = nodes.literal_block(source, source, language="text")
        only = nodes.container("", text, classes=["sequence-source"])
        return [html] if self.env.app.builder.format == "html" else [only]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("mermaid", SequenceDiagram)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
