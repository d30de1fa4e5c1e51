"""One section says how to install the package.

No text names an index that does not have the package.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "benchmarks").rglob("*.md"),
    *(
        path
        for folder in ("aioredlock_ng", "examples", "docs")
        for path in (ROOT / folder).rglob("*.py")
    ),
]


def from_the_index(text: str) -> list[str]:
    """Return the commands that install the package by its plain name."""
    return re.findall(
        r"""pip install[^\n`]*?["' ]aioredlock[-_]ng\b(?!(?:\[[^\]\n]*\])? @ git).*""", text
    )


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        ("pip install aioredlock-ng", True),
        ('pip install "aioredlock-ng[cli]"', True),
        ('pip install "aioredlock-ng @ git+URL"', False),
        ('pip install "aioredlock-ng[cli] @ git+URL"', False),
        ('pip install ".[cli]"', False),
    ],
)
def test_only_a_plain_name_counts_as_an_installation_from_the_index(
    command: str, refused: bool
) -> None:
    assert bool(from_the_index(command)) is refused


def test_no_text_says_to_install_the_package_from_an_index_that_does_not_have_it() -> None:
    assert {
        path.name: found
        for path in TEXTS
        if (found := from_the_index(path.read_text(encoding="utf-8")))
    } == {}


def test_the_site_shows_the_section_of_the_readme_and_no_text_of_its_own() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    section = index.partition("\n## Install\n")[2].partition("\n## ")[0].strip()
    start, end = "## Install", "## Use"
    assert (
        section
        == f'```{{include}} ../README.md\n:start-after: "{start}"\n:end-before: "{end}"\n```'
    )
    included = README.partition(start)[2].partition(end)[0]
    assert "$ pip install ." in included
    assert "\n## " not in included


def test_the_steps_of_a_release_name_each_text_that_the_first_release_changes() -> None:
    before = re.compile(r"""on PyPI yet|pip install (?:"?\.|"[^"\n]* @ git)|Without a checkout""")
    texts = [
        path
        for path in TEXTS
        if path.suffix == ".md" and path.name not in {"RELEASING.md", "CONTRIBUTING.md"}
    ]
    to_change = {
        path.relative_to(ROOT).as_posix()
        for path in texts
        if before.search(path.read_text(encoding="utf-8"))
    }
    steps = (
        (ROOT / "RELEASING.md")
        .read_text(encoding="utf-8")
        .partition("* **Texts.**")[2]
        .partition("\n## ")[0]
    )
    assert to_change == {"README.md", "docs/tutorial.md"}
    assert [name for name in (*to_change, "tests/docs/test_install.py") if name not in steps] == []


def test_ci_runs_the_test_command_of_the_readme() -> None:
    section = README.partition("\n## Run the tests\n")[2].partition("\n## ")[0]
    (command,) = re.findall(r"^\$ (.+)$", section, re.MULTILINE)
    commands = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith(command) for line in commands)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{command.removeprefix('make ')}:", makefile, re.MULTILINE)
