"""`top`: what a frame says, in words, in JSON, and on a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockInfo, NodeAnswer, NodeState, Owner, Redlock
from aioredlock_ng.cli.top_view import Frame, Lane, draw
from tests.cli.commands import OFFERED, PATIENCE, Cli, line
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once


def test_top_prints_a_frame_as_json(cli: Cli) -> None:
    with cli.holding("order:1", "--ttl", "30"):
        began = time.monotonic()
        told = json.loads(cli("top", "--once", "--json").stdout)
        took = time.monotonic() - began
        assert [(node["state"], node["tracking"]) for node in told["nodes"]] == [("up", True)] * 3
        assert all(0 < node["round_trip"] < took for node in told["nodes"])
        (lock,) = told["locks"]
        assert (lock["resource"], lock["held"], lock["nodes"], lock["seen_for"]) == (
            "order:1",
            True,
            3,
            0.0,
        )
        assert 0 < lock["remaining"] <= 30
        assert told["problem"] == ""
        assert json.loads(cli("top", "other:*", "--once", "--json").stdout)["locks"] == []


async def test_processes_that_wait_are_counted_by_their_places_on_a_majority(
    cli: Cli, three_nodes: NodeSet
) -> None:
    member = b"0123456789abcdef:1:1000".decode()
    three_nodes[0].command("ZADD", "aioredlock_ng:queue:order:1", "1", member)
    with cli.holding("order:1", "--ttl", "30"):
        async with Redlock(three_nodes.urls) as redlock, Redlock(three_nodes.urls) as other:
            waiting = [
                asyncio.create_task(manager.lock("order:1").acquire())
                for manager in (redlock, redlock, other)
            ]

            async def counted() -> bool:
                answer = await asyncio.to_thread(cli, "top", "--once", "--json")
                return [lock["waiting"] for lock in json.loads(answer.stdout)["locks"]] == [2]

            await eventually(counted, PATIENCE)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)


def test_a_lock_that_is_kept_for_a_waiter_stays_in_the_frames_without_a_holder(
    cli: Cli, three_nodes: NodeSet
) -> None:
    for node in three_nodes:
        node.command("SET", "order:1", OFFERED, "PX", "60000")
    (lock,) = json.loads(cli("top", "--once", "--json").stdout)["locks"]
    assert (lock["held"], lock["token"], lock["offered"], lock["waiting"]) == (False, None, True, 1)
    (row,) = (line for line in cli("top", "--once").stdout.splitlines() if "order:1" in line)
    assert re.split(r" {2,}", row.strip()) == [
        "order:1",
        "offered",
        "-",
        "-",
        "0/3",
        "○○○",
        "-",
        "1",
        "0.0 s",
    ]


def test_addresses_are_shown_as_they_are() -> None:
    nodes = tuple(NodeState(address, "up") for address in ("[fd00::1]:6379", "[fe80::2]:6379"))
    shown = rendered(Frame(nodes, (None,) * 2, (Lane(),) * 2, (), ""), 24)
    assert all(node.address in "\n".join(shown) for node in nodes)


def test_top_prints_each_frame_as_a_line_of_json(cli: Cli) -> None:
    with cli.holding("x"), cli.started("top", "--json", "--interval", "0.1") as process:
        first, second = json.loads(line(process)), json.loads(line(process))
        assert first["locks"][0]["seen_for"] == 0.0
        assert second["locks"][0]["seen_for"] > 0.0
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == -signal.SIGINT


@pytest.mark.faults
def test_top_shows_a_node_that_is_down(cli: Cli, three_nodes: NodeSet) -> None:
    with cli.holding("x", "--ttl", "30"):
        three_nodes.crash(1)
        answer = cli("top", "--once")
        assert answer.returncode == 0
        assert "down: " in answer.stdout
        assert "●?●" in answer.stdout
    three_nodes.crash(0)
    answer = cli("top", "--once", "--json")
    assert answer.returncode == 69
    told = json.loads(answer.stdout)
    assert told["problem"].startswith("no majority of the nodes could be scanned: ")
    assert [node["state"] for node in told["nodes"]] == ["down", "down", "up"]


@contextmanager
def _on_a_terminal(cli: Cli) -> Iterator[tuple[subprocess.Popen[bytes], int, bytes]]:
    """Run `top` on a terminal until it has shown two frames.

    Yield the process, our end of the terminal, and the output until then.
    """
    ours, theirs = pty.openpty()
    words = cli.words("top", "--interval", "0.1")
    with (
        cli.holding("order:1"),
        subprocess.Popen(words, env=cli.env, stdin=theirs, stdout=theirs, stderr=theirs) as process,
    ):
        os.close(theirs)
        shown = b""
        # The second frame too: in that one the lanes are two marks long.
        while shown.count(b"order:1") < 2:
            shown += os.read(ours, 65_536)
        yield process, ours, shown
    os.close(ours)


def test_top_on_a_terminal_runs_until_control_c(cli: Cli) -> None:
    with _on_a_terminal(cli) as (process, ours, shown):
        process.send_signal(signal.SIGINT)
        # The alternate screen is left again.
        while b"\x1b[?1049l" not in shown:
            shown += os.read(ours, 65_536)
        assert process.wait(PATIENCE) == -signal.SIGINT


def test_top_prints_one_frame_after_another_on_a_terminal_that_cannot_redraw(cli: Cli) -> None:
    cli.env["TERM"] = "dumb"
    with _on_a_terminal(cli) as (process, _, shown):
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == -signal.SIGINT
    assert b"\x1b" not in shown


def test_a_lane_shows_slower_answers_higher_and_none_as_a_cross() -> None:
    lane = Lane()
    for round_trip in (0.0001, 0.0005, 0.0006, 0.01, 1.0, 100.0, None):
        lane.add("up", round_trip)
    assert lane.text().plain == "▁▁▂▆██x"
    for _ in range(100):
        lane.add("up", 0.0001)
    assert lane.text().plain == "▁" * 40


def test_locks_that_do_not_fit_on_the_screen_are_counted() -> None:
    answers = (
        NodeAnswer("a:1", "token", 5.0),
        NodeAnswer("b:1", "another", 5.0),
        NodeAnswer("c:1", None, None, "timed out"),
    )
    locks = tuple(
        (LockInfo(f"lock {number}", True, "token", 1, 3, 5.0, answers), 0.0) for number in range(50)
    )
    frame = Frame((NodeState("a:1", "up"),), (0.001,), (Lane(),), locks, "")
    for height in (12, 24, 70):
        shown = rendered(frame, height)
        assert len(shown) <= height
        listed = [text for text in shown if "lock " in text and "seen for" not in text]
        assert all("●○?" in text for text in listed)
        assert (f"and {50 - len(listed)} more" in shown[-1]) == (len(listed) < 50)


def busy_frame() -> Frame:
    """Three nodes, of which the last is down for a long reason, and a lock with every value in its
    row.
    """
    nodes = (
        NodeState("10.0.0.1:6379", "up", server="redis 7.0.15"),
        NodeState(
            "10.0.0.2:6379",
            "quarantined",
            "it has forgotten its locks and votes again in 41 s",
            server="redis 7.0.15",
        ),
        NodeState(
            "10.0.0.3:6379",
            "down",
            "Error 111 connecting to 10.0.0.3:6379. Connection refused by the node",
        ),
    )
    lanes = (Lane(), Lane(), Lane())
    for _ in range(100):
        for lane in lanes:
            lane.add("up", 0.00042)
    answers = tuple(NodeAnswer(node.address, "5da5b42a4711", 8.7) for node in nodes)
    owner = Owner("web-3:4711:Task-12", 1795430400123456, 0.0)
    lock = LockInfo("order:42", True, "5da5b42a4711", 3, 3, 8.7, answers, owner, 7)
    return Frame(nodes, (0.00042, 0.0312, None), lanes, ((lock, 12.0),), "")


VALUES = {
    "lock": "order:42",
    "holder": "5da5b4…",
    "owner": "web-3:4711:Task-12",
    "fence": "1795430400123456",
    "nodes": "3/3",
    "on": "●●●",
    "remaining": "8.7 s left",
    "waiting": "7",
    "seen for": "12.0 s",
}


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (140, []),
        (100, ["fence"]),
        (80, ["fence", "seen for"]),
        (60, ["fence", "holder", "nodes", "seen for"]),
    ],
)
def test_a_column_of_top_is_shown_whole_or_left_out(width: int, left_out: list[str]) -> None:
    lines = rendered(busy_frame(), 24, width)
    assert max(map(len, lines)) <= width
    (at,) = (number for number, line in enumerate(lines) if line.split()[:1] == ["lock"])
    head, row = lines[at], lines[at + 2]
    shown = re.split(r" {2,}", head.strip())
    assert shown == [name for name in VALUES if name not in left_out]
    assert re.split(r" {2,}", row.strip()) == [VALUES[name] for name in shown]


@pytest.mark.parametrize("width", [80, 60])
def test_the_nodes_of_top_are_shown_without_a_cut_word(width: int) -> None:
    lines = rendered(busy_frame(), 24, width)
    words = " ".join(" ".join(lines).split())
    for node, took in zip(busy_frame().nodes, ("0.00042 s", "0.031 s", "-"), strict=True):
        (row,) = (line for line in lines if line.split()[:2] == [node.address, node.state])
        assert took in re.split(r" {2,}", row.strip()) or width < 80
        assert "▁▁▁▁▁▁▁▁" in row
        assert not node.reason or f"{node.address} is {node.state}: {node.reason}" in words
    assert ("redis 7.0.15" in words) == (width >= 80)


@pytest.mark.parametrize("width", [80, 60])
def test_a_name_longer_than_half_the_line_ends_in_an_ellipsis_on_one_line(width: int) -> None:
    frame = busy_frame()
    ((lock, age),) = frame.locks
    long = replace(lock, resource="tenant:" + "4711:" * 60)
    lines = rendered(replace(frame, locks=((long, age),) * 50), 24, width)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= width
    listed = [line for line in lines if "tenant:" in line]
    assert len(listed) > 1
    assert all(re.match(r" tenant:[4711:]+…  ", line) and "8.7 s left" in line for line in listed)


@pytest.mark.parametrize(
    ("name", "shown"), [("order:42", "order:42"), ("tenant:4711:gpu#12", "tenan…#12")]
)
def test_a_terminal_of_20_columns_shows_each_node_with_its_state_and_each_lock_with_its_time(
    name: str, shown: str
) -> None:
    frame = busy_frame()
    ((lock, age),) = frame.locks
    locks = ((replace(lock, resource=name, remaining=120.0), age),)
    lines = rendered(replace(frame, locks=locks), 40, 20)
    assert max(map(len, lines)) <= 20
    rows = [line.split(maxsplit=1) for line in lines]
    assert [shown, "120 s left"] in rows
    for address, state in (("10.0.0.1", "up"), ("10.0.0.2", "quaran"), ("10.0.0.3", "down")):
        assert any(row[0].startswith(address) and row[1].startswith(state) for row in rows if row)
    assert not any("……" in line for line in lines)


@pytest.mark.parametrize("width", [80, 60])
def test_a_problem_of_many_words_is_shown_whole(width: int) -> None:
    problem = (
        "no majority of the nodes could be scanned: "
        "10.0.0.1:6379: timed out; 10.0.0.2:6379: connection refused"
    )
    lines = rendered(replace(busy_frame(), locks=(), problem=problem), 24, width)
    assert problem in " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= width


def test_piped_frames_have_every_column(cli: Cli) -> None:
    with cli.holding("order:1"):
        head = next(
            line
            for line in cli("top", "--once").stdout.splitlines()
            if line.split()[:1] == ["lock"]
        )
        assert re.split(r" {2,}", head.strip()) == list(VALUES)
        cli.env["COLUMNS"] = "60"
        assert max(map(len, cli("top", "--once").stdout.splitlines())) <= 60


def rendered(frame: Frame, height: int, width: int = 120) -> list[str]:
    from rich.console import Console

    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(draw(frame, width, height))
    return capture.get().splitlines()
