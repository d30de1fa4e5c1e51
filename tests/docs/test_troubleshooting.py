"""The messages that docs/troubleshooting.md quotes are messages of the package."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from aioredlock_ng._doctor.finding_kinds import KINDS

ROOT = Path(__file__).parents[2]
PAGES = ("troubleshooting", "one-redis", "lock-order")
FEW_WORDS = 3
"""Words of a variable part, such as a reason that a server gave, that are not looked for."""

LEVELS = {"Errors": "ERROR", "Warnings": "WARNING", "Information": "INFO"}
"""The sections of the log in operations.md, and the level of their lines."""

PLACEHOLDER = re.compile(r"%%|%[-#0-9.]*[a-z]")


def quoted(page: str) -> list[str]:
    """The messages in the text blocks, which also have settings.

    An indented line goes on with the one before.
    """
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    found = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    whole = [block.replace("\n    ", " ") for block in found]
    return [line for block in whole for line in block.splitlines() if not line.startswith("append")]


def template(node: ast.expr) -> str | None:
    """A text of the source as a pattern, with a group for each of its variable parts."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        parts = [re.escape(part) for part in PLACEHOLDER.split(node.value)]
        return "(.*?)".join(parts)
    if isinstance(node, ast.JoinedStr):
        texts = [part.value if isinstance(part, ast.Constant) else None for part in node.values]
        return "".join("(.*?)" if text is None else re.escape(str(text)) for text in texts)
    return None


@cache
def templates() -> tuple[re.Pattern[str], ...]:
    """Every text of the package that has three letters in a row, the longest first."""
    found = set()
    for path in (ROOT / "aioredlock_ng").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            pattern = template(node) if isinstance(node, ast.expr) else None
            if pattern is not None and re.search(r"[a-z]{3}", pattern.replace("(.*?)", "")):
                found.add(pattern)
    return tuple(
        re.compile(f"{pattern}(.*)", re.DOTALL) for pattern in sorted(found, key=len, reverse=True)
    )


def is_said(text: str) -> bool:
    """True for a text that the package can say: templates one behind the other, with few words in
    their gaps.
    """
    if len(text.split()) < FEW_WORDS:
        return True
    return any(
        (match := pattern.fullmatch(text)) and all(map(is_said, match.groups()))
        for pattern in templates()
    )


def test_a_quoted_message_is_a_message_of_the_package() -> None:
    messages = [line for page in PAGES for line in quoted(page)]
    assert messages
    assert [message for message in messages if not is_said(message)] == []


def explained() -> list[tuple[str, str]]:
    """The lines of the log that operations explains, each with its level.

    A line has the level behind it, or the level of its section.
    """
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    log = page.partition("\n## The log\n")[2].partition("\n## ")[0]
    return [
        (line, level or LEVELS.get(section.partition("\n")[0], ""))
        for section in log.split("\n### ")
        for line, level in re.findall(
            r"^(?:\* |  )`([^`]+)`(?: \(([A-Z]+)\))?\\?$", section, re.MULTILINE
        )
    ]


@cache
def logged() -> tuple[tuple[re.Pattern[str], str], ...]:
    """The texts that the package logs, each with its level. The longest text is the first."""
    found = []
    for name in ("logs.py", "environment.py"):
        tree = ast.parse((ROOT / "aioredlock_ng" / name).read_text(encoding="utf-8"))
        texts = {
            ast.unparse(node.targets[0]): node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
        }
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("_log"), attr=level), args=[text, *_]
                ):
                    pattern = template(texts.get(ast.unparse(text), text))
                    assert pattern is not None, ast.unparse(text)
                    found.append((pattern, "ERROR" if level == "exception" else level.upper()))
    return tuple(
        (re.compile(pattern, re.DOTALL), level)
        for pattern, level in sorted(found, key=lambda one: len(one[0]), reverse=True)
    )


def test_the_lines_of_the_log_that_operations_explains_are_messages_of_the_package() -> None:
    lines = explained()
    assert len(lines) > 30
    assert [line for line, _ in lines if not is_said(line.removeprefix("… "))] == []


def test_the_lines_of_the_log_that_operations_explains_have_the_levels_of_the_package() -> None:
    # A line that begins with "…" is the end of the first line of its section.
    whole = [(line, level) for line, level in explained() if not line.startswith("…")]
    real = [
        (line, next(level for pattern, level in logged() if pattern.fullmatch(line)))
        for line, _ in whole
    ]
    assert whole == real
    assert {level for _, level in real} == {"ERROR", "WARNING", "INFO"}


@pytest.mark.parametrize(
    "message",
    [
        "node 10.0.0.1:6379 grants no lock for 61.0 s more: a restart made it forget what it knew",
        "lock 'order:42' went away after 12.345 s: held longer than max_hold (token 1a2b3c…)",
        "no quorum: 1 of 3 nodes can vote, 2 are needed now: …",
    ],
)
def test_a_message_that_the_package_does_not_have_is_found(message: str) -> None:
    assert not is_said(message)


def test_the_findings_of_the_table_are_findings_of_the_doctor() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    table = page.partition("## The doctor says")[2]
    codes = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert len(codes) == 5
    assert set(codes) <= KINDS.keys()
