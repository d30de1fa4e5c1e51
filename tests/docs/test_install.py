"""One section says how the package is installed, and no text tells a reader to install it from where it is not."""

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
    *(path for folder in ("aioredlock_ng", "examples", "docs") for path in (ROOT / folder).rglob("*.py")),
]


def from_the_index(text: str) -> list[str]:
    """Return the commands that install the package by its plain name."""
    return re.findall(r"""pip install[^\n`]*?["' ]aioredlock[-_]ng\b(?!(?:\[[^\]\n]*\])? @ git).*""", text)


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
def test_only_a_plain_name_counts_as_an_installation_from_the_index(command: str, refused: bool) -> None:
    assert bool(from_the_index(command)) is refused


def test_no_text_tells_to_install_the_package_from_an_index_that_does_not_have_it() -> None:
    assert {path.name: found for path in TEXTS if (found := from_the_index(path.read_text(encoding="utf-8")))} == {}


def test_ci_runs_the_test_command_of_the_readme() -> None:
    section = README.partition("\n## Run the tests\n")[2].partition("\n## ")[0]
    (command,) = re.findall(r"^\$ (.+)$", section, re.MULTILINE)
    commands = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith(command) for line in commands)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{command.removeprefix('make ')}:", makefile, re.MULTILINE)
