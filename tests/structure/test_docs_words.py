"""The pages keep the rules of words and of code blocks that a machine can check."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / ".github").glob("*.md")),
    ROOT / "benchmarks" / "README.md",
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

COLUMNS = 88
"""The width of a code block on the site: a wider one is cropped."""

FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>[^\n]*)\n(?P<code>.*?)^ *(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
GENERATED = re.compile(r"<!-- (?P<name>[\w:-]+):begin -->.*?<!-- (?P=name):end -->", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?:])[*\")]* +")
REFUSED = re.compile(r"(?:Who|Whoever|What|Such|Those|Of these|One that)\b")


def blanked(pattern: re.Pattern[str], text: str) -> str:
    """Return the text without the matches, with all lines at their places."""
    return pattern.sub(lambda match: "\n" * match[0].count("\n"), text)


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a page with their lines: paragraphs, items and cells, without headings
    and code.
    """
    for pattern in (FENCE, GENERATED, COMMENT):
        text = blanked(pattern, text)
    paragraph: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        words = line.strip()
        starts_anew = (
            not words or words.startswith(("#", "|")) or re.match(r"(?:[*+-]|\d+\.) ", words)
        )
        if starts_anew and paragraph:
            yield from (
                (number - len(paragraph), part) for part in SENTENCE.split(" ".join(paragraph))
            )
            paragraph = []
        if words.startswith("|"):
            yield from ((number, cell.strip()) for cell in words.strip("|").split("|"))
        elif words and not words.startswith("#"):
            paragraph.append(re.sub(r"^(?:[*+-]|\d+\.) ", "", words))


def refused(text: str) -> list[str]:
    """Return the sentences that begin with a refused word. A question may."""
    found = []
    for line, sentence in sentences(text):
        bare = sentence.lstrip("*_([\"'")
        if REFUSED.match(bare) and not bare.rstrip("*_)\"'").endswith("?"):
            found.append(f"{line}: {sentence}")
    return found


def wide(text: str) -> list[str]:
    """Return the lines of code that the site would crop."""
    return [
        line
        for block in FENCE.finditer(text)
        # The options of a directive are not shown.
        if not block["language"].startswith(("{", "mermaid"))
        for line in block["code"].splitlines()
        if len(line) - len(block["indent"]) > COLUMNS
    ]


def test_no_sentence_of_a_page_begins_with_a_pronoun_that_hides_its_subject() -> None:
    hidden = {
        page.relative_to(ROOT).as_posix(): refused(page.read_text(encoding="utf-8"))
        for page in PAGES
    }
    assert {page: found for page, found in hidden.items() if found} == {}


def test_no_code_block_of_a_page_is_wider_than_the_site_shows() -> None:
    cropped = {
        page.relative_to(ROOT).as_posix(): wide(page.read_text(encoding="utf-8")) for page in PAGES
    }
    assert {page: found for page, found in cropped.items() if found} == {}


def test_no_example_is_wider_than_the_site_shows() -> None:
    lines = [
        (example.name, line)
        for example in EXAMPLES
        for line in example.read_text(encoding="utf-8").splitlines()
    ]
    assert [(name, line) for name, line in lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize(
    "text",
    [
        "A lock is free. Who comes first has it.",
        "Those that wait are woken.",
        "* **What a lock costs** is a round trip.",
        "| a | What it costs |",
        "Several\nlines. Such\nlocks expire.",
        "Two nodes fail. Of these, one answers.",
        "* One that waits is woken.",
    ],
)
def test_a_hidden_subject_is_found(text: str) -> None:
    assert len(refused(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "What holds the lock?",
        "## What a lock costs",
        "```text\nWho holds it\n```",
        "A lock. Whose is it?",
        "One lock.",
    ],
)
def test_a_question_a_heading_and_code_are_left_alone(text: str) -> None:
    assert refused(text) == []
