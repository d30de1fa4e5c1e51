"""Short runs on real servers: a healthy client passes, and each deliberate defect is found by the
right rule.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.command import main
from tests.chaos.plan import ClientFault, Fault, Phase, Plan
from tests.support.coverage import untraced

# A run takes some ten seconds, and many times that on a machine that does much else, or has to
# fetch what draws pictures.
pytestmark = [pytest.mark.once, pytest.mark.timeout(480)]

ROOT = Path(__file__).parents[2]


def test_a_short_run_passes_and_leaves_an_event_log_and_its_picture(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.chaos",
        "--duration",
        "6s",
        "--nodes",
        "3",
        "--clients",
        "4",
        "--seed",
        "1",
    ]
    # Processors that other tests use too: rounds are to end by answers, not by the clock.
    command += ["--node-timeout", "1", "--ttl", "4", "--out", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=untraced(), capture_output=True, text=True, check=False, timeout=450
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Violations: 0" in done.stdout
    acquisitions = re.search(r"\| acquisitions \| ([\d,]+)", done.stdout)
    assert acquisitions
    assert int(acquisitions[1].replace(",", "")) > 100
    lines = (tmp_path / "events.log").read_text().splitlines()
    instants = [json.loads(line)["t"] for line in lines]
    assert len(instants) > 200
    assert instants == sorted(instants)
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


STAND_STILL = tuple(ClientFault(0.1, slot, 0.7) for slot in (1, 3)) * 4
"""Stops of the processes with long holds, in turn, each for longer than the ttl."""

BRIEFLY = tuple(ClientFault(0.1, slot, 0.4) for slot in (1, 3)) * 4
FORGET = (Fault("flush", (0, 1), 0.2, 0.0, 0.0),) * 20
"""A majority forgets while a process is stopped in its hold."""
PART = (Fault("refuse", (0, 1), 0.8, 0.4, 0.0),) * 7
"""The nodes of a majority come back to the processes one after the other."""


@pytest.mark.timeout(540)
@pytest.mark.parametrize(
    ("defect", "found", "ttl", "stops", "faults"),
    [
        pytest.param("quorum", "overlap", "0.5", (), PART, id="quorum"),
        pytest.param("fence", "fence", "0.5", (), (), id="fence"),
        pytest.param("unfenced", "no fence", "0.5", (), (), id="unfenced"),
        pytest.param("tokens", "token of another grant", "0.5", (), (), id="tokens"),
        # The keys left behind must outlive the end of all holds, seconds later on a busy machine.
        pytest.param("release", "key left behind", "20", (), (), id="release"),
        pytest.param("deadline", "overlap", "0.5", STAND_STILL, (), id="deadline"),
        pytest.param("guard", "overlap", "0.5", BRIEFLY, FORGET, id="guard"),
        pytest.param("reader", "overlap", "0.5", (), (), id="reader"),
        pytest.param("slots", "too many holders", "0.5", (), (), id="slots"),
        pytest.param("terms", "two leaders work", "0.5", (), (), id="terms"),
        pytest.param("losses", "late write", "0.5", (), PART, id="losses"),
        pytest.param("min_hold", "granted before min_hold ended", "0.5", (), (), id="min_hold"),
    ],
)
def test_a_broken_client_is_caught(
    defect: str,
    found: str,
    ttl: str,
    stops: tuple[ClientFault, ...],
    faults: tuple[Fault, ...],
    tmp_path: Path,
) -> None:
    seconds = sum(fault.gap + fault.seconds for fault in stops or faults)
    attack = Phase("majority", (faults,), stops, (), seconds, rest=0.5 if seconds else 3.0)
    nothing = Phase("minority", (), (), (), 0.0, rest=0.0)
    options = [
        "--nodes",
        "3",
        "--clients",
        "5",
        "--ttl",
        ttl,
        "--node-timeout",
        "0.1",
        "--broken",
        defect,
    ]
    # A machine that stands still at the wrong moment of the schedule hides the defect. The checker
    # has three runs to find it. A longer run would not help.
    caught = False
    for folder in (tmp_path / name for name in ("first", "second", "third")):
        status = main(
            [*options, "--no-draw", "--out", str(folder)], Plan(0, 3, ((attack, nothing),))
        )
        caught = (
            re.search(rf"^\* {found}: [1-9]", (folder / "report.md").read_text(), re.MULTILINE)
            is not None
        )
        assert status == 1 or not caught
        if caught:
            break
    assert caught
