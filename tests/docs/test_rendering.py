"""Every page of the site is measured in a browser, at the widths of a laptop and of a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The first worker builds the site for all workers of the session.
pytestmark = [pytest.mark.once, pytest.mark.browser, pytest.mark.timeout(300)]

LAPTOP, PHONE = 1280, 390

BLOCKS = """[...document.querySelectorAll('pre')].map(block =>
    [block.scrollWidth > block.clientWidth, block.textContent.trim().slice(0, 60)])"""

WIDTH = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"

# Text and its background, for texts whose contrast is below 4.5 (WCAG 2.1, level AA).
PALE = """(() => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    // Reading a pixel takes long, and a page has few colours. Texts also share their ancestors.
    const remembered = (compute) => {
        const known = new Map();
        return (key) => known.has(key) ? known.get(key) : known.set(key, compute(key)).get(key);
    };
    const parse = remembered((colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, alpha] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, alpha / 255];
    });
    const over = (above, below) =>
        [0, 1, 2].map(i => above[i] * above[3] + below[i] * (1 - above[3])).concat([1]);
    const behind = remembered((element) => element === null ? [255, 255, 255, 1] : over(
        parse(getComputedStyle(element).backgroundColor), behind(element.parentElement)));
    const luminance = (colour) => {
        const [r, g, b] = colour.slice(0, 3).map(part => part / 255)
            .map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (one, other) => {
        const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const pale = new Set();
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        const text = texts.currentNode.textContent.trim();
        const style = getComputedStyle(element);
        if (!text || !element.getBoundingClientRect().width || style.visibility === 'hidden')
            continue;
        const below = behind(element);
        const front = over(parse(element.closest('svg') ? style.fill : style.color), below);
        if (contrast(front, below) < 4.5)
            pale.add(`${text.slice(0, 30)}: ${style.color}`);
    }
    return [...pale];
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


def measured(browser: Browser, site: Path) -> dict[str, Any]:
    """Return the cropped blocks, the width and the pale texts of each page, by the page's path.

    Each page is opened once. Opening it takes much longer than the measurements.
    """
    found = {}
    for page in sorted(site.rglob("*.html")):
        browser.open(page)
        path = page.relative_to(site).as_posix()
        found[path] = browser.evaluate(f"[{BLOCKS}, {WIDTH}, {PALE}]")
    assert len(found) > 100
    return found


def test_a_laptop_shows_every_code_block_whole_and_every_text_clearly(
    browser: Browser, site: Path
) -> None:
    browser.look(LAPTOP)
    pages = measured(browser, site)
    blocks = [(page, *block) for page, (found, _, _) in pages.items() for block in found]
    assert len(blocks) > 200
    assert [f"{page}: {text}" for page, cropped, text in blocks if cropped] == []
    assert {page: width for page, (_, width, _) in pages.items() if width > LAPTOP} == {}
    assert {page: pale for page, (_, _, pale) in pages.items() if pale} == {}


def test_in_dark_mode_every_text_stands_out_from_its_background(
    browser: Browser, site: Path
) -> None:
    browser.look(LAPTOP, dark=True)
    pages = measured(browser, site)
    assert {page: pale for page, (_, _, pale) in pages.items() if pale} == {}


def test_no_page_is_wider_than_the_window_of_a_phone(browser: Browser, site: Path) -> None:
    browser.look(PHONE)
    pages = measured(browser, site)
    assert {page: width for page, (_, width, _) in pages.items() if width > PHONE} == {}


def test_the_measurements_notice_a_cropped_block_a_wide_page_and_a_pale_text(
    browser: Browser, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    wide = "x" * 400
    page.write_text(
        f"<pre style='overflow: auto; width: 300px'>{wide}</pre>"
        f"<p style='color: #777; background: #888'>{wide}</p>"
    )
    browser.look(PHONE)
    browser.open(page)
    assert browser.evaluate(BLOCKS) == [[True, "x" * 60]]
    assert browser.evaluate(WIDTH) > PHONE
    assert browser.evaluate(PALE) == [f"{'x' * 30}: rgb(119, 119, 119)"]


def test_dark_mode_has_a_dark_background(browser: Browser, site: Path) -> None:
    browser.look(LAPTOP, dark=True)
    browser.open(site / "index.html")
    colour = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in colour.strip("rgb()").split(",")) < 64
