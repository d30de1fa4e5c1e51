"""Pages to look something up: the glossary is in order, the comparison has sources, no line of code
is cropped.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("one-redis", "troubleshooting", "lock-order", "comparison", "glossary", "code-map")
WIDTH = 88


def text(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def test_the_glossary_is_in_alphabetical_order() -> None:
    words = re.findall(r"^\*\*(.+?)\*\*:", text("glossary"), re.MULTILINE)
    assert len(words) >= 40
    assert words == sorted(words, key=str.casefold)


def test_every_statement_about_another_product_has_a_source() -> None:
    bullets = re.findall(r"^\* .+?(?=^\* |^$)", text("comparison"), re.MULTILINE | re.DOTALL)
    assert len(bullets) >= 20
    assert [bullet for bullet in bullets if "](https://" not in bullet] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_line_of_a_code_block_is_wider_than_the_page_shows(page: str) -> None:
    blocks = re.findall(r"^```\w+\n(.*?)^```", text(page), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert [line for line in lines if len(line) > WIDTH] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_index_leads_to_each_page(page: str) -> None:
    assert re.search(rf"^{page}$", text("index"), re.MULTILINE)
