"""The version has one source, and a release must agree with it."""

from __future__ import annotations

import re
import subprocess
import tomllib
import zipfile
from typing import TYPE_CHECKING

import pytest

import aioredlock_ng
from tests.packaging.workflows import ROOT
from tools.release_check import PLACEHOLDER, reasons

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.once

VERSION = aioredlock_ng.__version__
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def holding(words: str, *, but: tuple[str, ...]) -> list[str]:
    """The tracked text files that hold these words."""
    found = []
    for name in tracked():
        path = ROOT / name
        if not name.startswith(but) and path.is_file() and path.suffix != ".png":
            found += [name] if words in path.read_text(encoding="utf-8") else []
    return found


def test_the_version_stands_in_the_package_and_in_no_settings() -> None:
    assert SETTINGS["project"]["dynamic"] == ["version"]
    assert "version" not in SETTINGS["project"]
    source = SETTINGS["tool"]["hatch"]["version"]["path"]
    assert re.findall(
        r'^__version__ = "(.+)"$', (ROOT / source).read_text(encoding="utf-8"), re.MULTILINE
    ) == [VERSION]
    stated = re.compile(
        rf'^(__version__|version|release) *= *["\']{re.escape(VERSION)}', re.MULTILINE
    )
    pythons = [name for name in tracked() if name.endswith((".py", ".toml", ".cfg"))]
    assert [
        name for name in pythons if stated.search((ROOT / name).read_text(encoding="utf-8"))
    ] == [source]


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", changelog, re.MULTILINE)
    assert newest
    assert newest[1] == VERSION


def test_the_placeholders_of_urls_stand_in_one_place() -> None:
    urls = SETTINGS["project"]["urls"]
    hosts = {url.split("/")[2] for url in urls.values() if PLACEHOLDER in url}
    for host in hosts:
        assert holding(host, but=("tests/packaging/",)) == ["pyproject.toml"], host


@pytest.fixture
def release(tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that lists the faults of a release."""

    def check(
        tag: str = "v1.2.3",
        heading: str = "1.2.3 (2026-01-31)",
        host: str = "example.org",
        **files: str,
    ) -> list[str]:
        changelog, dist = tmp_path / "CHANGELOG.md", tmp_path / "dist"
        changelog.write_text(
            f"# Changelog\n\n## {heading}\n\n## 1.0.0 (2025-01-01)\n", encoding="utf-8"
        )
        dist.mkdir()
        (dist / ".gitignore").touch()
        with zipfile.ZipFile(dist / "aioredlock_ng-1.2.3-py3-none-any.whl", "w") as wheel:
            wheel.writestr(
                "aioredlock_ng-1.2.3.dist-info/METADATA",
                "Name: aioredlock-ng\nVersion: 1.2.3\n"
                f"Project-URL: Source, https://{host}/\n\n# Title\n",
            )
        (dist / files.get("sdist", "aioredlock_ng-1.2.3.tar.gz")).touch()
        return reasons(tag, changelog, dist)

    return check


def test_a_release_in_which_all_agrees_may_be_published(release: Callable[..., list[str]]) -> None:
    assert release() == []


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"tag": "v1.2.4", "heading": "1.2.4 (2026-01-31)"}, "The tag v1.2.4 is not"),
        ({"tag": "1.2.3"}, "The tag 1.2.3 is not"),
        ({"heading": "1.2.3 (unreleased)"}, "The changelog begins with"),
        ({"heading": "1.2.2 (2026-01-31)"}, "The changelog begins with"),
        ({"host": f"repository{PLACEHOLDER}"}, "has placeholders"),
        ({"sdist": "aioredlock_ng-1.2.2.tar.gz"}, "The files are not all of version 1.2.3"),
        ({"sdist": "aioredlock_ng-1.2.3.zip"}, "one wheel and one source distribution"),
    ],
    ids=["tag", "no-v", "unreleased", "changelog", "placeholder", "sdist", "no-sdist"],
)
def test_a_release_in_which_something_disagrees_is_refused(
    wrong: dict[str, str], reason: str, release: Callable[..., list[str]]
) -> None:
    (found,) = release(**wrong)
    assert reason in found
