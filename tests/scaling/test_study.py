"""The command runs from end to end in its small size. The page shows the full-size figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.scaling.__main__ import main
from benchmarks.scaling.calculated import calculate
from benchmarks.scaling.fleet import NETWORKS, simulated
from benchmarks.scaling.page import write_page
from benchmarks.scaling.scenarios import contention, latency, load, mix
from benchmarks.scaling.tables import sections

if TYPE_CHECKING:
    from random import Random

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "scaling.md"
RESULTS = ROOT / "benchmarks" / "results" / "scaling.json"

pytestmark = pytest.mark.once

COSTS = {"acquire_guarded": 30e-6, "release": 20e-6, "confirm": 20e-6, "push": 5e-6}


def shown(name: str) -> str:
    """Return the text of the page between two marks."""
    found = re.search(
        rf"<!-- scaling:{name}:begin -->\n(.*?)\n<!-- scaling:{name}:end -->",
        PAGE.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert found, f"no marks for {name}"
    return found[1]


def test_the_command_runs_in_its_small_size(tmp_path: Path) -> None:
    assert main(["--quick", "--no-plots", "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "scaling.json").read_text())
    assert document["quick"] is True
    commands = document["measured"]["commands"]
    assert all(figures["script"] > 0 for figures in commands.values())
    for row in document["simulated"]["latency"]:
        one_way = NETWORKS[row["network"]].least
        assert 2 * one_way < row["p50"] <= row["p99"] < 2.0
    alone = document["simulated"]["contention"][0]
    assert alone["commands"] == pytest.approx(2 * alone["nodes"], rel=0.2), (
        "alone: one acquire and one release per node"
    )
    assert main(["--from-results", "--no-plots", "--out", str(tmp_path)]) == 0


def test_quick_figures_never_get_into_the_page() -> None:
    with pytest.raises(SystemExit):
        main(["--quick"])
    assert json.loads(RESULTS.read_text(encoding="utf-8"))["quick"] is False


def test_the_page_shows_the_recorded_figures() -> None:
    parts = sections(json.loads(RESULTS.read_text(encoding="utf-8")))
    assert {name: shown(name) for name in parts} == parts


def test_the_page_shows_every_plot() -> None:
    named = set(re.findall(r"images/(scaling-\w+\.png)", PAGE.read_text(encoding="utf-8")))
    assert named == {path.name for path in (ROOT / "docs" / "images").glob("scaling-*.png")}


def test_a_page_without_a_mark_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- scaling:one:begin -->\nold\n<!-- scaling:one:end -->\n")
    with pytest.raises(ValueError, match="two"):
        write_page(page, {"one": "1", "two": "2"})
    write_page(page, {"one": "new"})
    assert page.read_text() == "<!-- scaling:one:begin -->\nnew\n<!-- scaling:one:end -->\n"


def test_the_recorded_calculations_follow_from_the_recorded_figures() -> None:
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert calculate(document["measured"], document["simulated"]) == document["calculated"]


def test_a_simulation_repeats_exactly() -> None:
    def once() -> list[dict[str, Any]]:
        return [
            latency("one zone", 3, "all well", COSTS, (2, 5)),
            contention("one zone", 3, 3, COSTS, (20, 0.1)),
        ]

    with simulated():
        assert once() == once()


def test_a_dead_minority_is_not_waited_for_and_a_slow_one_neither() -> None:
    with simulated():
        times = {
            c: latency("one zone", 5, c, COSTS, (3, 10))["p50"]
            for c in ("all well", "one slow", "one dead")
        }
    assert times["one dead"] < 2 * times["all well"]
    assert times["one slow"] < 2 * times["all well"]


def test_servers_are_busy_for_as_long_as_commands_take() -> None:
    with simulated():
        row = load(3, 2_000, 5, COSTS, 0.1)
    assert row["busy"] == pytest.approx(
        row["rate"] * (COSTS["acquire_guarded"] + COSTS["release"]), rel=0.15
    )


def test_one_hot_name_is_served_in_turn_and_others_are_not_held_up() -> None:
    with simulated():
        row = mix(_half, 3, 5, COSTS, 0.1)
    assert row["hot"]["p50"] > 2 * row["cold"]["p50"]


def _half(rng: Random) -> tuple[bool, str]:
    return (True, "hot") if rng.random() < 0.5 else (False, f"cold {rng.randrange(1_000_000)}")
