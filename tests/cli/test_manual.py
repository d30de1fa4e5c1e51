"""The help of every command: its width, its words, and its examples."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer

from aioredlock_ng.cli.app import build
from aioredlock_ng.cli.pages import PAGES
from tests.cli.commands import PATIENCE, Cli, with_programs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.once

APP: Any = typer.main.get_command(build())

EXAMPLES = [example for page in PAGES.values() for example in page.examples]

# Without end, or with servers of its own, or of several seconds: tested elsewhere.
NOT_RUN_HERE = (
    "aioredlock-ng top 'order:*'",
    "aioredlock-ng demo",
    "aioredlock-ng bench",
    "aioredlock-ng doctor",
)


def helped(name: str) -> str:
    group = APP.make_context("aioredlock-ng", [], resilient_parsing=True)
    if not name:
        return str(APP.get_help(group))
    command = APP.commands[name]
    return str(
        command.get_help(command.make_context(name, [], parent=group, resilient_parsing=True))
    )


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("name", "columns"), [("", 80), ("run", 80), *((name, 60) for name in ("", *PAGES))]
)
def test_no_line_of_a_help_is_wider_than_the_terminal_and_no_word_is_cut(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = helped(name)
    assert max(map(len, text.splitlines())) <= columns
    command = APP.commands[name] if name else APP
    told = [param.help for param in command.params] + [command.help]
    told += (
        [command.help.partition("\n\n")[0] for command in APP.commands.values()] if not name else []
    )
    assert [words for words in told if one_line(words) not in one_line(text)] == []


def test_the_list_of_commands_has_one_line_for_each_at_60_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    listed = helped("").partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == list(PAGES)


@pytest.mark.parametrize("name", ["", "inspect"])
def test_the_help_has_its_descriptions_without_docstrings(name: str) -> None:
    told = subprocess.run(
        [sys.executable, "-OO", "-m", "aioredlock_ng", *filter(None, [name]), "--help"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    for command, page in PAGES.items():
        if name in ("", command):
            shown = page.description if name else page.description.partition("\n\n")[0]
            assert one_line(shown) in one_line(told.stdout)


def test_the_value_of_an_option_has_a_readable_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in PAGES:
        text = helped(name)
        for param in APP.commands[name].params:
            if param.param_type_name == "argument":
                assert re.search(rf"^Usage: .*{re.escape(param.metavar)}", text), name
            elif not param.is_flag:
                assert re.search(rf"{param.opts[-1]} [A-Z]+\b", text), (name, param.opts)
        assert not re.search(r"\b(FLOAT|INTEGER|TEXT|SECS|None|range)\b|<", text), name


def test_every_help_shows_its_exit_statuses_and_its_examples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for name, page in PAGES.items():
        text = helped(name)
        assert page.examples, name
        for example in page.examples:
            assert example.startswith(f"aioredlock-ng {name}")
            assert f"\n  {example}\n" in f"{text}\n"
        for status, meaning in page.statuses:
            assert one_line(f"{status} {meaning}") in one_line(text), name


@pytest.mark.parametrize(
    "example", [example for example in EXAMPLES if example.startswith(NOT_RUN_HERE)]
)
def test_every_example_that_is_not_run_here_is_a_valid_command_line(example: str) -> None:
    _, name, *words = shlex.split(re.split(r"&&|\|\|", example)[0])
    command = APP.commands[name]
    words = words[: words.index("--")] if "--" in words else words
    assert command.make_context(name, words).params


@pytest.mark.parametrize(
    ("name", "option"),
    [
        (name, param.opts[-1])
        for name in PAGES
        for param in APP.commands[name].params
        if param.metavar in ("SECONDS", "SHARE")
    ],
)
def test_no_option_takes_nan(
    name: str, option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = [name, option, "nan", *(["x"] if name not in ("bench", "demo") else [])]
    with pytest.raises(SystemExit) as ended:
        APP(words, obj=["true"])
    assert ended.value.code == 2
    assert re.search(rf"Error: Invalid value for .*'{option}'", capsys.readouterr().err)


@pytest.fixture
def shell(cli: Cli, tmp_path: Path) -> Cli:
    """A shell that finds `aioredlock-ng`, in a folder with the scripts of the examples."""
    bodies = {
        "report.sh": 'echo "$0 $AIOREDLOCK_NG_NAME"',
        "move.sh": 'echo "$0 $AIOREDLOCK_NG_NAME"',
    }
    return with_programs(cli, tmp_path, bodies)


@pytest.mark.parametrize(
    "example", [example for example in EXAMPLES if not example.startswith(NOT_RUN_HERE)]
)
def test_each_example_of_the_help_works_on_real_servers(
    shell: Cli, example: str, tmp_path: Path
) -> None:
    settings = {
        "env": shell.env,
        "cwd": tmp_path,
        "input": "y\n",
        "capture_output": True,
        "text": True,
    }
    done = subprocess.run(["sh", "-c", example], check=False, timeout=PATIENCE, **settings)
    assert (done.returncode, done.stderr) == (0, ""), done
    if " run " in example:
        assert (
            done.stdout
            == f"{shlex.split(example.partition(' -- ')[2])[0]} {', '.join(taken(example))}\n"
        )


def taken(example: str) -> list[str]:
    words = shlex.split(example.partition(" -- ")[0])[2:]
    params: list[str] = APP.commands["run"].make_context("run", words).params["names"]
    return sorted(params)
