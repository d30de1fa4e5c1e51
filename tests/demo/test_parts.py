"""The demo's small parts: counters, messages, addresses, what may be done to which nodes, and the
pictures.
"""

from __future__ import annotations

import inspect
import io
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from rich.console import Console

from aioredlock_ng.cli.demo import command, conductor, messages
from aioredlock_ng.cli.demo.board import Board, NodeState, NodeView
from aioredlock_ng.cli.demo.conductor import FULL_SECONDS, HOLDER_TTL, WORKER_TTL, Conductor
from aioredlock_ng.cli.demo.counters import Counters
from aioredlock_ng.cli.demo.faulty_nodes import GivenNodes, NodesFailed, OwnNodes, address_of
from aioredlock_ng.cli.demo.ledger import Loss, PhaseLedger, judge
from aioredlock_ng.cli.demo.screen import LiveView, PlainView
from aioredlock_ng.cli.demo.summary import print_summary

if TYPE_CHECKING:
    from pathlib import Path

    from aioredlock_ng.testing import LocalNodes

CLOSED_PORTS = [f"redis://user:secret@127.0.0.1:{port}/0" for port in (1, 2, 3, 4, 5)]


def test_two_openings_of_the_counters_see_each_other(tmp_path: Path) -> None:
    with (
        Counters.create(tmp_path / "counters", 3) as ours,
        Counters(tmp_path / "counters", 3) as theirs,
    ):
        ours.write(2, 2**40)
        theirs.write(0, 5)

        assert (theirs.read(2), ours.read(0), ours.read(1)) == (2**40, 5, 0)
        assert ours.total() == theirs.total() == 2**40 + 5
        with pytest.raises(IndexError):
            ours.read(3)


@pytest.mark.parametrize(
    "message",
    [
        messages.Setup(["redis://:secret@h:1"], "/tmp/counters", 3, "demo:1", 25, 2.0),
        messages.Progress(2, 5, 0, 1, 0, [1, 22, 333]),
        messages.Hold(40, 1.0, 4.0),
        messages.Lost(12.5, cancelled=True),
        messages.End(),
    ],
)
def test_messages_survive_the_pipe(message: messages.Message) -> None:
    line = messages.encode(message)

    assert line.count(b"\n") == 1
    assert messages.decode(line) == message


@pytest.mark.parametrize(
    "line",
    [b"", b"Traceback (most recent call last):\n", b'["Nothing",{}]\n', b'["Hold",{}]\n', b"1\n"],
)
def test_a_line_that_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a message"):
        messages.decode(line)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://127.0.0.1:7001", "127.0.0.1:7001"),
        ("redis://user:secret@node-1", "node-1:6379"),
        ("rediss://:secret@[::1]:7001/3?ssl_ca_certs=x", "[::1]:7001"),
        ("unix://user:secret@/run/redis.sock?db=1", "/run/redis.sock"),
    ],
)
def test_addresses_are_shown_without_secrets(url: str, address: str) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize(("count", "expendable"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (7, 3)])
def test_a_quorum_of_own_nodes_is_never_taken_away(count: int, expendable: int) -> None:
    servers = SimpleNamespace(urls=[f"redis://127.0.0.1:{7000 + index}" for index in range(count)])
    nodes = OwnNodes(cast("LocalNodes", servers))

    assert len(nodes.expendable) == expendable
    assert count - len(nodes.expendable) > count // 2


def test_the_plan_without_options_ends_within_a_minute() -> None:
    assert inspect.signature(command.demo).parameters["seconds"].default == FULL_SECONDS
    servers = SimpleNamespace(
        urls=[f"redis://127.0.0.1:{7000 + index}" for index in range(command._NODES)]
    )
    nodes, anything = OwnNodes(cast("LocalNodes", servers)), cast("Any", None)
    play = Conductor(
        nodes, anything, anything, anything, anything, seconds=FULL_SECONDS, prefix="", contested=0
    )
    scenes = play._scenes()

    assert len(scenes) == 6
    assert sum(scene.share for scene in scenes) * play._unit == FULL_SECONDS
    # No option shortens the wait after a server lost its keys, nor the two holds whose leases are
    # lost. The sum assumes that no phase has time for them.
    assert FULL_SECONDS + WORKER_TTL + 2 * conductor._HOLD_TTLS * HOLDER_TTL < 60


def test_given_nodes_are_left_alone_unless_said_to_be_throw_away() -> None:
    careful = GivenNodes(CLOSED_PORTS, throw_away=False)
    bold = GivenNodes(CLOSED_PORTS, throw_away=True)

    assert list(careful.expendable) == []
    assert "--pause-nodes" in careful.left_out[0]
    assert list(bold.expendable) == [0, 1]
    bold.views[0].state = NodeState.DOWN
    assert list(bold.expendable) == [1]
    bold.views[1].state = NodeState.DOWN
    assert list(bold.expendable) == []


async def test_given_nodes_without_a_quorum_are_refused_by_address_and_without_secrets() -> None:
    with pytest.raises(
        NodesFailed, match=r"0 of 5 given nodes answer, 3 are needed \(127\.0\.0\.1:1: "
    ) as refusal:
        await GivenNodes(CLOSED_PORTS, throw_away=True).look()
    assert "secret" not in str(refusal.value)


def board(**counted: Any) -> Board:
    nodes = [NodeView(f"127.0.0.1:{7001 + index}", state) for index, state in enumerate(NodeState)]
    found = Board(nodes, "5 servers", "4 processes")
    found.phases.append(PhaseLedger("no lock", False, acknowledged=1000, gained=400, seconds=1.0))
    found.phases.append(
        PhaseLedger("healthy", True, seconds=1.0, **{"acknowledged": 100, "gained": 100, **counted})
    )
    found.phases[1].add(gained=found.phases[1].gained, waits_us=[1000, 2000, 250_000])
    found.losses.append(Loss("released by force on 5 of 5 nodes", 1.0, 0.312, "the deletion"))
    found.events.append((0.5, "node 2 [hung]"))
    found.planned = 3
    return found


def printed(shown: Board, width: int = 80) -> str:
    out = io.StringIO()
    verdict = judge(shown.phases, shown.losses)
    print_summary(
        Console(file=out, color_system=None, width=width), shown, verdict, ascii_only=True
    )
    return out.getvalue()


def test_the_summary_names_losses_latencies_and_the_verdict() -> None:
    words = printed(board(refused=2))

    assert "without the lock: 600 of 1,000 updates lost" in words
    assert "under the lock: 0 of 100 updates lost" in words
    assert "0.00200 | " in words
    assert "0.250|" in words
    assert "noticed 0.312 s after the deletion" in " ".join(words.split())
    assert "2 times a worker did not get its lock in time" in words
    assert "passed" in words
    assert "FAILED" not in words
    assert words.isascii()


@pytest.mark.parametrize("width", [80, 60])
def test_the_summary_fits_and_has_times_in_seconds_only(width: int) -> None:
    shown = board(acknowledged=1_234_567, gained=1_234_567, refused=12, leases_lost=3, in_doubt=4)
    shown.phases[1].title = "lock, 2 of 99 gone"
    words = printed(shown, width)

    assert max(map(len, words.splitlines())) <= width
    assert not re.search(r"\d ms", words)
    for head in (
        "phase",
        "updates",
        "lost",
        *(("per s", "p50 (s)", "p99 (s)") if width == 80 else ()),
    ):
        assert re.search(rf"\| *{re.escape(head)} *\|", words)
    assert "|lock, 2 of 99 gone |" in words
    assert " 1,234,567 |" in words


def test_the_summary_of_a_run_with_losses_says_failed() -> None:
    words = printed(board(gained=93))

    assert "FAILED: 7 updates were lost under the lock in phase 'healthy'" in words
    assert "passed" not in words


@pytest.mark.parametrize("width", [110, 80, 60])
def test_the_live_picture_shows_every_node_phase_and_event(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system=None, width=width, height=24)
    shown = board()
    shown.events.append(
        (1.5, "process 4711: cancelled 0.00412 s after the deletion, wrote nothing, by [SIGSTOP]")
    )
    with LiveView(console, shown) as view:
        view.event("node 2 [hung]")
        view.refresh()
        words = out.getvalue()

    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", words).splitlines()
    assert max(map(len, lines)) <= width
    for expected in (
        "hung",
        "killed",
        "starting",
        "127.0.0.1:7003",
        "no lock",
        "healthy",
        "600",
        "node 2 [hung]",
    ):
        assert expected in words
    assert "…" not in words.replace("… starting", "")
    told = " ".join(line.strip("│ ") for line in lines)
    assert shown.events[-1][1] in " ".join(told.split())
    frames = words.split("aioredlock-ng demo")[1:]
    assert all(frame.count("\n") < 24 for frame in frames)


def test_updates_in_flight_are_not_lost_in_any_picture(tmp_path: Path) -> None:
    pictures: list[int] = []
    shown = Board([], "5 servers", "4 processes")
    view = SimpleNamespace(event=lambda words: pictures.append(shown.phases[-1].lost))
    nothing = cast("Any", None)
    with Counters.create(tmp_path / "counters", 2) as counters:
        play = Conductor(
            nothing,
            nothing,
            counters,
            shown,
            cast("Any", view),
            seconds=FULL_SECONDS,
            prefix="",
            contested=1,
        )
        shown.phases.append(PhaseLedger("healthy", True))
        for number in range(1, 4):
            # A worker writes, reports, and writes again. An event comes before the next report.
            counters.write(0, 10 * number)
            play.progress(messages.Progress(0, 10, 0, 0, 0, [1000] * 10))
            counters.write(1, number)
            play.event("node 1 hung")
        # A stopped worker never acknowledged its last update. So the update does not count as lost.
        counters.write(1, 3)
        play.event("a worker was stopped between read and write")
        # An acknowledged update is lost if another worker overwrites it.
        counters.write(0, 25)
        play.progress(messages.Progress(0, 0, 0, 0, 0, []))
        play.event("the end")

    assert pictures == [0, 0, 0, 0, 2]


def test_plain_output_has_no_control_codes_and_fits() -> None:
    out = io.StringIO()
    shown = board()
    with PlainView(
        Console(file=out, color_system=None, force_terminal=False, width=80), shown
    ) as view:
        view.event("node 2 [hung]")
        view.refresh()
        view.refresh()

    assert "node 2 [hung]" in out.getvalue()
    assert out.getvalue().count("- 100 updates, 0 per s, 0 lost, p50 0.00200 s, p99 0.250 s") == 1
    assert "\x1b" not in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 80
