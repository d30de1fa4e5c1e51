"""A run leaves out the tests that need what the machine lacks, and no others, and says so."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from aioredlock_ng.testing import find_server
from aioredlock_ng.testing.binaries import SERVER_ENV
from tests.support.coverage import untraced
from tests.support.server_versions import ONE_ENV

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.full, pytest.mark.once]


@pytest.fixture
def without_tls(tmp_path: Path) -> dict[str, str]:
    """An environment in which the only server does not look like one that was built with TLS."""
    script = tmp_path / "redis-server"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(find_server()))} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return {SERVER_ENV: str(script), ONE_ENV: "1"}


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--nodes=local",
        "-rp",
        *words,
    ]
    env = (
        {name: value for name, value in untraced().items() if not name.startswith("PYTEST_")}
        | {"CI": ""}
        | environ
    )
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("processes", ["-n0", "-n1"])
def test_without_a_server_with_tls_only_its_tests_are_left_out(
    processes: str, without_tls: dict[str, str]
) -> None:
    of_each_kind = (
        "tests/integration/test_redis_py_internals.py"
        "::test_the_transport_of_a_connection_can_be_taken_over_for_good"
    )
    of_certificates = (
        "tests/integration/test_loops.py"
        "::test_a_loop_that_ends_while_a_tls_server_is_silent_in_mid_handshake_leaves_nothing_open"
    )
    done = run(processes, of_each_kind, of_certificates, **without_tls)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left out: tests that need a server with TLS (1)\n" in done.stdout
    assert done.stdout.count("left out:") == 1
    assert " 1 deselected" in done.stdout
    passed = re.findall(r"^PASSED (.+)$", done.stdout, re.MULTILINE)
    kinds = {
        kind
        for name in passed
        if "for_good" in name
        for kind in ("tcp", "unix", "tls")
        if kind in name.partition("[")[2]
    }
    assert kinds == {"tcp", "unix"}
    assert any("mid_handshake" in name for name in passed)


def test_without_promtool_its_tests_are_left_out(tmp_path: Path) -> None:
    found = run(
        "--collect-only",
        "tests/telemetry/test_promtool.py",
        PATH=str(tmp_path),
        **{SERVER_ENV: str(find_server())},
    )
    assert found.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, found.stdout + found.stderr
    assert re.search(r"^left out: tests that need promtool \(\d+\)$", found.stdout, re.MULTILINE)


@pytest.mark.parametrize("ci", ["", "true"], ids=["elsewhere", "in_ci"])
def test_without_a_browser_its_tests_are_left_out_but_in_ci(tmp_path: Path, ci: str) -> None:
    found = run(
        "--collect-only",
        "--quiet",
        "tests/docs/test_rendering.py",
        PATH=str(tmp_path),
        CI=ci,
        **{SERVER_ENV: str(find_server())},
    )
    left_out = re.search(
        r"^left out: tests that need a browser \(\d+\)$", found.stdout, re.MULTILINE
    )
    if ci:
        assert left_out is None
        assert "test_a_laptop_shows_every_code_block_whole" in found.stdout
    else:
        assert found.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, found.stdout + found.stderr
        assert left_out


def test_continuous_integration_leaves_no_test_of_tls_out(without_tls: dict[str, str]) -> None:
    done = run("tests/integration/test_loops.py", CI="true", **without_tls)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert "CI=true, but no server with TLS is at hand" in done.stderr
