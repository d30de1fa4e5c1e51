"""docs/fastapi.md and docs/aiohttp.md run as they stand, and their tables are what the code says.

docs/sync-frameworks.md quotes examples, which have tests.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import LockHeld
from aioredlock_ng.integrations import aiohttp, fastapi
from aioredlock_ng.integrations._views import ViewOptions, policy_of
from aioredlock_ng.integrations.aiohttp import locked
from aioredlock_ng.integrations.fastapi import lock_for
from tests.support.pages import blocks, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.node_set import NodeSet

DOCS = Path(__file__).parents[2] / "docs"

pages = pytest.mark.parametrize(
    ("page", "function"), [("fastapi.md", lock_for), ("aiohttp.md", locked)]
)


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword arguments of a function with their defaults."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


@pages
async def test_the_pages_blocks_run_one_after_another(
    page: str, function: Callable[..., Any], nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(DOCS / page):
        await run(block, nodes, monkeypatch, names)


@pages
def test_every_option_is_in_the_table_with_its_default(
    page: str, function: Callable[..., Any]
) -> None:
    table = (
        (DOCS / page)
        .read_text(encoding="utf-8")
        .partition(f"## Options of `{function.__name__}`")[2]
    )
    options = options_of(function)
    rows = {
        name: row[2]
        for row in re.findall(r"^\| ((`\w+`(?:, )?)+) \|([^|]*)\|", table, re.MULTILINE)
        for name in re.findall(r"\w+", row[0])
    }
    assert rows.keys() == options.keys()
    for name in ("blocking_timeout", "held_status", "retry_after"):
        assert re.match(r" \d+", rows[name])[0] == f" {options[name]:g}"  # type: ignore[index]


FRAMEWORKS = (DOCS / "sync-frameworks.md").read_text(encoding="utf-8")
QUOTATION = re.compile(
    r"^<!-- (?P<file>examples/\S+) -->\n```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL
)


def test_the_page_of_frameworks_quotes_examples() -> None:
    found = [(match["file"], match["code"]) for match in QUOTATION.finditer(FRAMEWORKS)]
    assert len(found) == FRAMEWORKS.count("```python") == 7
    for file, code in found:
        assert code in (DOCS.parent / file).read_text(encoding="utf-8"), file


def test_the_page_of_frameworks_has_every_option_of_views_with_its_default() -> None:
    rows = dict(
        re.findall(
            r"^\| `(\w+)` \|.*\| (\S[^|]*) \|$",
            FRAMEWORKS.partition("| option of `locked`")[2],
            re.MULTILINE,
        )
    )
    assert rows.keys() == ViewOptions.__annotations__.keys()
    policy = policy_of(("a",), {})
    assert int(rows["held_status"]) == policy.held_status
    assert rows["retry_after"] == policy.answer(LockHeld("held")).headers["Retry-After"]


@pytest.mark.parametrize(
    ("page", "function", "semaphore_for"),
    [
        ("fastapi.md", lock_for, fastapi.semaphore_for),
        ("aiohttp.md", locked, aiohttp.semaphore_for),
    ],
)
def test_a_semaphore_has_the_options_of_a_lock_and_another_status(
    page: str, function: Callable[..., Any], semaphore_for: Callable[..., Any]
) -> None:
    assert options_of(semaphore_for) | {"shared": False} == options_of(function) | {
        "held_status": 429
    }
    told = "`semaphore_for` has the same options, without `shared`. Its `held_status` is 429"
    assert told in (DOCS / page).read_text(encoding="utf-8")
