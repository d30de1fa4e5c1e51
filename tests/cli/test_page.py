"""docs/cli.md, the help and the code say the same."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from aioredlock_ng.cli import exits
from aioredlock_ng.cli.pages import PAGES

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
OPTIONS = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))


@cache
def helped(*words: str) -> str:
    command = [sys.executable, "-m", "aioredlock_ng", *words, "--help"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def commands() -> list[str]:
    return re.findall(r"^  (\w+)  ", helped().partition("Commands:")[2], flags=re.MULTILINE)


def test_every_command_is_on_the_page() -> None:
    assert commands() == [
        "run",
        "elect",
        "inspect",
        "ls",
        "release",
        "wait",
        "top",
        "bench",
        "doctor",
        "demo",
    ]
    for command in commands():
        assert re.search(rf"^\| \[?`{command}[ `]", PAGE, flags=re.MULTILINE), command


@pytest.mark.parametrize(
    "command", ["run", "elect", "inspect", "ls", "wait", "release", "top", "bench"]
)
def test_every_option_of_a_command_is_on_the_page(command: str) -> None:
    # Pages of their own explain the options of the other two commands.
    options = set(re.findall(r"--[a-z][a-z-]+", helped(command).partition("Options:")[2]))
    assert "--node" in options
    assert sorted(options - OPTIONS) == []


def test_options_on_the_page_exist() -> None:
    known = set().union(
        *(re.findall(r"--[a-z][a-z-]+", text) for text in (helped(), *map(helped, commands())))
    )
    assert OPTIONS - known - {"--all"} == set()


@pytest.mark.parametrize(
    "status", [exits.HELD, exits.USAGE, exits.NO_QUORUM, exits.NO_OUTPUT, exits.LOST]
)
def test_the_page_has_every_exit_status(status: int) -> None:
    table = PAGE.partition("## Exit statuses")[2].partition("##")[0]
    assert re.search(rf"^\| {status} \|", table, flags=re.MULTILINE)
    assert status == exits.NO_OUTPUT or re.search(rf"\b{status}\b", helped("run"))


def test_the_help_of_each_command_has_the_exit_statuses_that_the_page_has_for_it() -> None:
    table = PAGE.partition("## Exit statuses")[2].partition("##")[0]
    rows = re.findall(r"^\| ([0-9, ]+) \| (`.*`) \|", table, flags=re.MULTILINE)
    assert rows
    for statuses, names in rows:
        for name in re.findall(r"`(\w+)`", names):
            assert set(statuses.split(", ")) <= {status for status, _ in PAGES[name].statuses}, name


def test_the_console_script_is_the_front_door() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, name = settings["project"]["scripts"]["aioredlock-ng"].partition(":")
    from aioredlock_ng.__main__ import main

    assert getattr(import_module(module), name) is main


def test_run_imports_the_modules_of_no_other_command() -> None:
    code = (
        "import sys\nfrom aioredlock_ng.cli import main\n"
        "try:\n    main(['run', 'x'])\nexcept SystemExit:\n    pass\n"
        "print(*sorted(name[18:] for name in sys.modules if name.startswith('aioredlock_ng.cli.')))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert (
        told.stdout
        == "app child exits keeper manual output pages run settings signals terminal wrapping\n"
    )
    assert "no command" in told.stderr


@pytest.mark.parametrize(("command", "package"), [("run", "typer"), ("ls", "rich")])
def test_the_error_names_a_missing_extra(command: str, package: str) -> None:
    code = (
        f"import sys\nsys.modules[{package!r}] = None\n"
        f"from aioredlock_ng.cli import main\nmain([{command!r}, 'x'])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert told.returncode == 2
    assert 'Install aioredlock-ng with its extra "cli".' in told.stderr
    assert "Traceback" not in told.stderr
