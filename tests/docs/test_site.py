"""The site is built without a warning, its links lead somewhere, nothing public is missing; no
network is needed to read it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from sphinx.util.inventory import InventoryFile

import aioredlock_ng
from tests.docs.building import build

DOCS = Path(__file__).parents[2] / "docs"

# The first worker builds the site for all workers of the session.
pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]


@dataclass
class Page(HTMLParser):
    """The links of a page, its anchors, and the files that a browser loads for it."""

    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    loaded: list[str] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)
    inside_block: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "pre":
            self.inside_block = True
            self.blocks.append("")
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found["id"]} if "id" in found else set()
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag in ("script", "img", "source", "iframe") and "src" in found:
            self.loaded.append(found["src"])
        elif tag == "link" and found.get("rel") not in (
            "canonical",
            "index",
            "search",
            "next",
            "prev",
        ):
            self.loaded.append(found["href"])

    def handle_endtag(self, tag: str) -> None:
        if tag == "pre":
            self.inside_block = False

    def handle_data(self, data: str) -> None:
        if self.inside_block:
            self.blocks[-1] += data


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    found = {}
    for path in sorted(site.rglob("*.html")):
        page = found[path] = Page()
        page.feed(path.read_text(encoding="utf-8"))
    return found


def test_every_internal_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else {unquote(parts.fragment)}
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append(f"{path.name}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    outside = [
        f"{path.name}: {link}"
        for path, page in pages.items()
        for link in page.loaded
        if urlsplit(link).netloc
    ]
    assert outside == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert not any("url(http" in style or "@import" in style for style in styles)


def test_no_code_block_is_cropped(site: Path, pages: dict[Path, Page]) -> None:
    # The theme shows 88 columns on a wide screen. Source pages have a width of their own.
    left_out = set((site / "_modules").rglob("*.html"))
    wide = [
        f"{path.relative_to(site)}: {line}"
        for path, page in pages.items()
        if path not in left_out
        for block in page.blocks
        for line in block.splitlines()
        if len(line) > 88
    ]
    assert wide == []


def test_every_code_block_has_a_copy_button_and_every_page_an_icon(
    site: Path, pages: dict[Path, Page]
) -> None:
    for path, page in pages.items():
        loaded = {link.partition("?")[0].rpartition("/")[2] for link in page.loaded}
        assert {"copybutton.js", "clipboard.min.js", "favicon.svg"} <= loaded, path.relative_to(
            site
        )


def test_a_copied_command_has_no_prompt(site: Path) -> None:
    script = (site / "_static" / "copybutton.js").read_text(encoding="utf-8")
    # The three switches: the prompt is a pattern, only lines with a prompt are copied, and without
    # it.
    (literal,) = re.findall(r"formatCopyText\(text, ('.*?'), true, true, true,", script)
    prompt = re.compile(f"^({ast.literal_eval(literal)})(.*)")
    for line in ("$ make test", ">>> make test", "... make test"):
        assert prompt.sub(r"\2", line) == "make test"


def test_each_page_links_to_its_source(site: Path, pages: dict[Path, Page]) -> None:
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sources = [
        path.relative_to(DOCS)
        for path in DOCS.rglob("*.md")
        if not path.relative_to(DOCS).parts[0].startswith("_")
    ]
    without = [
        source.as_posix()
        for source in sources
        if f"{project['urls']['Source'].rstrip('/')}/blob/main/docs/{source.as_posix()}?plain=1"
        not in pages[site / source.with_suffix(".html")].links
    ]
    assert sources
    assert without == []


def test_the_landing_page_leads_to_installing_an_example_and_all_parts(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    for section in ("install", "example", "picture", "where-to-go"):
        assert f'<section id="{section}">' in page
    cards = page.partition('<section id="where-to-go">')[2].partition("</section>")[0]
    assert cards.count("<li>") >= 12


def test_a_long_signature_has_one_parameter_a_line(site: Path) -> None:
    page = (site / "api" / "redlock.html").read_text(encoding="utf-8")
    signature = page.partition('id="aioredlock_ng.Redlock">')[2].partition("</dt>")[0]
    assert signature.count("<dd>") >= 10


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    known = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    package = Path(aioredlock_ng.__file__).parent
    modules = [
        "aioredlock_ng",
        "aioredlock_ng.events",
        "aioredlock_ng.fencing",
        "aioredlock_ng.testing",
    ]
    for part in ("compat", "integrations", "telemetry"):
        files = sorted((package / part).glob("*.py"))
        modules += [
            f"aioredlock_ng.{part}.{path.stem}" for path in files if not path.stem.startswith("_")
        ]
        modules += [f"aioredlock_ng.{part}"] if files else []
    missing = [
        f"{module}.{name}"
        for module in modules
        for name in getattr(import_module(module), "__all__", ())
        if not name.startswith("__") and f"{module}.{name}" not in known
    ]
    assert missing == []


def test_internal_methods_of_public_classes_are_not_in_the_reference(site: Path) -> None:
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    known = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    told = {name.rpartition(".")[2] for name in known if name.startswith("aioredlock_ng.Lease.")}
    assert told >= {"check", "lost", "release"}
    assert told.isdisjoint({"entered", "left", "lose", "lost_error", "was_gone"})


def test_the_site_shows_nothing_of_the_machine_that_built_it(site: Path) -> None:
    # The signature of a function whose default is `os.environ`, for one, would have all of it.
    told = [
        path.name
        for path in site.rglob("*.html")
        if "environ({" in path.read_text(encoding="utf-8")
    ]
    assert told == []


def test_the_doctests_of_the_site_pass(site: Path) -> None:
    told = (build("doctest", site.parent) / "output.txt").read_text(encoding="utf-8")
    assert "0 failures in tests" in told
    assert "0 tests\n" not in told
