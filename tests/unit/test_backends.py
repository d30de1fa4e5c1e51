"""Where a run's nodes come from: given URLs first, then containers, then local processes; `--nodes`
forces one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aioredlock_ng.testing import LocalServer
from tests.support import backends
from tests.support.backends import NODES_ENV, DockerBackend, choose
from tests.support.coverage import untraced

ROOT = Path(__file__).parents[2]
TWO = "redis://:secret@127.0.0.1:1, redis://127.0.0.1:2"


@pytest.fixture(autouse=True)
def _no_container_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DockerBackend, "__init__", lambda _: None)


@pytest.mark.parametrize(
    ("forced", "given", "engine", "expected"),
    [
        (None, TWO, True, "urls"),
        (None, TWO, False, "urls"),
        (None, "", True, "docker"),
        (None, " , ", True, "docker"),
        (None, "", False, "local"),
        ("urls", TWO, True, "urls"),
        ("docker", TWO, True, "docker"),
        ("local", TWO, True, "local"),
    ],
)
def test_the_first_available_or_the_forced_back_end_is_chosen(
    forced: str | None, given: str, engine: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NODES_ENV, given)
    monkeypatch.setattr(backends, "docker_answers", lambda: engine)
    assert choose(forced).name == expected


@pytest.mark.parametrize(
    ("forced", "words"), [("urls", NODES_ENV), ("docker", "needs a Docker engine")]
)
def test_a_forced_back_end_that_is_missing_is_an_error(
    forced: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NODES_ENV, raising=False)
    monkeypatch.setattr(backends, "docker_answers", lambda: False)
    with pytest.raises(RuntimeError, match=words):
        choose(forced)


def test_docker_does_not_answer_without_an_engine_at_its_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert not backends.docker_answers()


def test_the_header_names_the_back_end_and_shows_no_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(NODES_ENV, TWO)
    assert choose(None).headline() == f"given by {NODES_ENV}: 127.0.0.1:1, 127.0.0.1:2"


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one test that needs nodes."""
    test = "tests/integration/test_bad_input.py::test_check_may_be_called_from_a_thread"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words, test]
    env = {
        key: value for key, value in untraced().items() if not key.startswith("PYTEST_")
    } | environ
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize(
    ("forced", "processes"),
    # Shared among processes, as by `make test`, the one that prints neither collects the tests nor
    # has nodes.
    [
        ("local", "-n0"),
        ("local", "-n1"),
        ("urls", "-n0"),
        pytest.param("docker", "-n0", marks=pytest.mark.containers),
    ],
)
def test_the_header_of_a_run_names_its_nodes_and_the_run_uses_them(
    forced: str, processes: str
) -> None:
    with LocalServer() as given:
        done = run(f"--nodes={forced}", processes, **{NODES_ENV: given.url})
        used = b"cmdstat_evalsha" in given.command("INFO", "commandstats")
    assert done.returncode == 0, done.stdout + done.stderr
    told = {
        "docker": "nodes: containers, image ",
        "local": "nodes: local processes, ",
        "urls": f"nodes: given by {NODES_ENV}: {given.address}\n",
    }
    assert told[forced] in done.stdout
    assert used is (forced == "urls")


@pytest.mark.full
@pytest.mark.once
def test_a_run_that_requires_an_engine_ends_at_once_where_none_answers(tmp_path: Path) -> None:
    done = run(AIOREDLOCK_NG_REQUIRE_DOCKER="1", DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert "AIOREDLOCK_NG_REQUIRE_DOCKER=1, but no Docker engine answers" in done.stderr
