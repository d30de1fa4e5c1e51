"""The command sells with real servers, a real web server and a real crowd.

It judges the outcome, and the page shows the figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng._core.fencing import STEP
from benchmarks.flash_sale import page
from benchmarks.flash_sale.__main__ import main
from benchmarks.flash_sale.field import ALL, named
from benchmarks.flash_sale.summary import bars, medians
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "flash-sale.md"
RESULTS = ROOT / "benchmarks" / "results" / "flash_sale.json"

pytestmark = pytest.mark.once

SMALL = (
    "--here",
    "--no-plots",
    "--rounds",
    "1",
    "--buyers",
    "8",
    "--requests",
    "200",
    "--seconds",
    "3",
    "--patience",
    "30",
)


def test_the_command_runs_in_its_small_size(tmp_path: Path) -> None:
    assert (
        main([*SMALL, "--only", "no lock", "asyncio.Lock", "ours, 5 nodes", "--out", str(tmp_path)])
        == 0
    )
    document = json.loads((tmp_path / "flash_sale.json").read_text())
    nobody, _, alone, _, ours, endless = document["turns"]
    assert (ours["sold"], ours["sold_out"], ours["entered"]) == (160, 40, 200)
    assert (ours["oversold"], ours["timeouts"], ours["refused"], ours["failed_requests"]) == (
        0,
        0,
        0,
        0,
    )
    assert ours["stock_commands"] == 360
    # One command on each of five nodes per grant, which serves `STEP` holds within a process. A
    # grant to the other process takes some more.
    assert 5 * 200 / STEP <= ours["commands_sent"] <= 20 * 200
    assert ours["commands_sent"] < ours["commands_all"]
    # A client sends CLIENT CACHING before a tracked read.
    assert set(ours["wire"]) <= {"evalsha", "client"}
    assert ours["in_both"] == []
    assert (endless["oversold"], endless["timeouts"], endless["sold_out"]) == (0, 0, 0)
    assert endless["sold"] > 0
    assert nobody["sold"] + nobody["sold_out"] == 200
    assert nobody["commands_sent"] == 0
    assert (alone["sold"], alone["oversold"], alone["commands_sent"]) == (160, 0, 0)
    assert [len(turn["shares"]) for turn in document["turns"]] == [2, 2, 1, 1, 2, 2]
    assert all(sum(turn["shares"]) >= turn["sold"] for turn in document["turns"])
    assert main([*SMALL, "--from-results", "--out", str(tmp_path)]) == 0
    rows = medians(document["turns"])
    parts = page.parts(document, rows, bars(rows))
    assert "| ours, 5 nodes | 5 |" in parts["tables"]
    assert "| kept |" in parts["bars"]
    assert document["machine"]["cpu"] in parts["machine"]
    assert "| ours, 5 nodes |" in parts["classic"]


def test_a_shop_that_cannot_open_is_recorded_as_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # pottery is not in this environment.
    main([*SMALL, "--only", "pottery", "--out", str(tmp_path)])
    document = json.loads((tmp_path / "flash_sale.json").read_text())
    assert all("No module named 'pottery'" in turn["failed"] for turn in document["turns"])
    assert "pottery" in capsys.readouterr().out


def _gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() or "\nState:\tZ" in Path(
        f"/proc/{pid}/status"
    ).read_text(encoding="utf-8")


if sys.platform == "linux":

    async def test_a_shop_does_not_outlive_the_process_that_opened_it(
        start_server: Callable[..., LocalServer], tmp_path: Path
    ) -> None:
        code = (
            "import os, sys, tempfile\n"
            "from pathlib import Path\n"
            "from benchmarks.flash_sale import field, web\n"
            "tempfile.tempdir = sys.argv[2]\n"
            "shop = web.Web(field.ALL[0], [], sys.argv[1], 2, Path(sys.executable)).__enter__()\n"
            "print(shop._process.pid, *(note.name for note in shop._noted()), flush=True)\n"
            "os._exit(0)"
        )
        command = [sys.executable, "-c", code, start_server().url, str(tmp_path)]
        told = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=True)
        pids = [int(word) for word in told.stdout.split()]
        assert len(pids) == 3
        await eventually(lambda: all(_gone(pid) for pid in pids), within=20.0)


def test_figures_of_a_partial_run_never_get_into_the_page() -> None:
    for less in ("--quick", "--here", "--no-plots"):
        with pytest.raises(SystemExit):
            main(["--page", less])


def test_the_page_shows_the_recorded_figures() -> None:
    document = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else None
    names = ("machine", "tables", "bars", "classic")
    if document is None:
        assert {page.shown(PAGE, name) for name in names} == {"not recorded yet"}
    else:
        assert not document["quick"]
        rows = medians(document["turns"])
        assert {name: page.shown(PAGE, name) for name in names} == page.parts(
            document, rows, bars(rows)
        )


def test_the_page_is_written_between_its_marks(tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text("<!-- flash-sale:one:begin -->\nold\n<!-- flash-sale:one:end -->\n")
    page.write(copy, {"one": "new\nlines"})
    assert (
        copy.read_text()
        == "<!-- flash-sale:one:begin -->\nnew\nlines\n<!-- flash-sale:one:end -->\n"
    )
    with pytest.raises(ValueError, match="two"):
        page.write(copy, {"two": "2"})


def test_contestants_are_called_by_the_beginning_of_their_names() -> None:
    assert [each.name for each in named(["ours", "no"])] == [
        "no lock",
        "ours, 1 node",
        "ours, 3 nodes",
        "ours, 5 nodes",
    ]
    assert len({each.name for each in ALL}) == len(ALL)
    with pytest.raises(ValueError, match="redlock-py"):
        named(["redlock-py"])
