"""The wheel holds the package, whole, and nothing else."""

from __future__ import annotations

import configparser
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.coverage import untraced

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "uv",
        "build",
        "--quiet",
        "--wheel",
        "--out-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(build, env=untraced(), check=True, timeout=55)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_source_file_every_script_and_the_pytest_plugin(
    wheel: zipfile.ZipFile,
) -> None:
    package = ROOT / "aioredlock_ng"
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix in {".py", ".lua", ".typed"}
    }
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert inside == sources | {"pytest_aioredlock_ng.py"}
    assert any(name.endswith(".lua") for name in inside)
    assert "aioredlock_ng/py.typed" in inside


def test_the_wheel_has_the_command_and_the_pytest_plugin_as_entry_points(
    wheel: zipfile.ZipFile,
) -> None:
    (entries,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    found = configparser.ConfigParser()
    found.read_string(wheel.read(entries).decode())
    assert {section: dict(found[section]) for section in found.sections()} == {
        "console_scripts": {"aioredlock-ng": "aioredlock_ng.cli:main"},
        "pytest11": {"pytest_aioredlock_ng": "pytest_aioredlock_ng"},
    }


def test_the_wheel_names_its_licence_and_its_dependencies(wheel: zipfile.ZipFile) -> None:
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    lines = wheel.read(metadata).decode().splitlines()
    assert "License-Expression: MIT" in lines
    assert "Requires-Python: >=3.11" in lines
    required = {
        line.partition(": ")[2]
        for line in lines
        if line.startswith("Requires-Dist") and "extra ==" not in line
    }
    assert required == {"anyio>=4", "hiredis>=3.2", "redis[hiredis]>=5.3"}
