"""Read-write locks on the command line: `run --shared`, and readers in `inspect`, `ls`, `top`,
`wait` and `release`.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import Redlock
from tests.cli.commands import NODE_TIMEOUT, PATIENCE, Cli, line
from tests.support.eventually import eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once

SHOW = [
    "sh",
    "-c",
    'echo "$AIOREDLOCK_NG_NAME" "[$AIOREDLOCK_NG_SLOT]" "$AIOREDLOCK_NG_FENCE"; read line; exit 0',
]


@contextmanager
def two_readers(cli: Cli) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
    """Hold the lock `catalog` twice to read, until a line is written to each command."""
    options = ("run", "--shared", "--owner")
    with (
        cli.started(*options, "one", "catalog", "--", *SHOW) as one,
        cli.started(*options, "two", "catalog", "--", *SHOW) as two,
    ):
        assert {line(process).split()[0] for process in (one, two)} == {"catalog"}
        yield one, two


def inspected(cli: Cli) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("inspect", "catalog", "--json").stdout)
    return found


def test_shared_commands_run_together_and_exclude_other_commands(cli: Cli) -> None:
    with two_readers(cli) as readers:
        refused = cli("run", "-n", "catalog", "--", "true")
        assert refused.returncode == 1
        assert refused.stderr.startswith("aioredlock-ng run: 'catalog' was not acquired")
        assert refused.stderr.count("\n") == 1
        for process in readers:
            process.communicate("\n", timeout=PATIENCE)
            assert process.returncode == 0
    with cli.holding("catalog"):
        assert cli("run", "-n", "-E", "9", "--shared", "catalog", "--", "true").returncode == 9
    assert cli("run", "-n", "--shared", "catalog", "--", "true").returncode == 0


def test_the_fence_of_a_command_that_shares_is_not_below_that_of_the_last_writer(cli: Cli) -> None:
    show = ["sh", "-c", 'echo "$AIOREDLOCK_NG_FENCE"']
    writers, shared = [], []
    for _ in range(2):
        writers.append(int(cli("run", "catalog", "--", *show).stdout))
        shared.append(int(cli("run", "--shared", "catalog", "--", *show).stdout))
    assert sorted([*writers, *shared]) == [writers[0], shared[0], writers[1], shared[1]]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--shared", "a", "b"], "--shared takes one NAME"),
        (["--shared", "--slots", "2", "a"], "--shared and --slots contradict each other"),
        (["--shared", "--min-hold", "5", "a"], "--min-hold"),
    ],
)
def test_options_that_exclude_sharing_are_refused_before_anything_runs(
    cli: Cli, words: list[str], told: str
) -> None:
    answer = cli("run", *words, "--", "echo", "ran")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert told in answer.stderr
    assert answer.stderr.count("\n") == 1


async def test_inspect_ls_and_top_show_the_readers(cli: Cli) -> None:
    with two_readers(cli):
        await eventually(
            lambda: all(reader["owner"] for reader in inspected(cli)["readers"]), PATIENCE
        )
        told = inspected(cli)
        assert (told["held"], told["token"], told["nodes"], told["total"], told["waiting"]) == (
            True,
            None,
            3,
            3,
            0,
        )
        assert [answer["readers"] for answer in told["answers"]] == [2, 2, 2]
        assert {reader["owner"]["label"] for reader in told["readers"]} == {"one", "two"}
        assert all(0 < reader["remaining"] <= 10 for reader in told["readers"])
        shown = cli("inspect", "catalog").stdout
        assert re.match(r"catalog: read by 2 readers on 3 of 3 nodes, \S+ s left\n", shown)
        for reader in told["readers"]:
            label, fence = reader["owner"]["label"], reader["owner"]["fence"]
            pattern = rf"  reader {reader['token'][:6]}…, \S+ s left, {label}, fence {fence}\n"
            assert re.search(pattern, shown)
            assert reader["token"] not in shown
        assert len(re.findall(r"  127\.0\.0\.1:\d+: 2 readers, \S+ s left\n", shown)) == 3
        name, nodes, left, holder, owner, waiting = cli("ls").stdout.rstrip("\n").split("\t")
        assert (name, nodes, holder, waiting) == ("catalog", "3/3", "2 readers", "0")
        assert left.endswith(" s left")
        assert owner in ("one and 1 more", "two and 1 more")
        top = cli("top", "--once").stdout
        assert "2 readers" in top
        assert owner in top or "and 1 more" in top
        assert "●●●" in top
        (lock,) = json.loads(cli("top", "--once", "--json").stdout)["locks"]
        assert (lock["resource"], len(lock["readers"])) == ("catalog", 2)


async def test_a_writer_that_waits_for_readers_is_counted(cli: Cli, three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT, ttl=60.0) as redlock:
        reader = await redlock.rwlock("catalog").read().acquire()
        with cli.started("run", "catalog", "--", "true") as writer:
            await eventually(lambda: inspected(cli)["waiting"] == 1, PATIENCE)
            assert "\n  1 waiting\n" in cli("inspect", "catalog").stdout
            await reader.release()
            assert writer.wait(PATIENCE) == 0


def test_wait_waits_for_readers(cli: Cli) -> None:
    with two_readers(cli) as (one, two):
        refused = cli("wait", "-w", "0", "catalog")
        assert refused.returncode == 1
        assert re.fullmatch(
            r"aioredlock-ng wait: 'catalog' is read by 2 readers, \S+ s left\n", refused.stderr
        )
        with cli.started("wait", "catalog") as waiting:
            one.communicate("\n", timeout=PATIENCE)
            assert re.search("is read by 1 reader,", cli("wait", "-w", "0", "catalog").stderr)
            assert waiting.poll() is None
            two.communicate("\n", timeout=PATIENCE)
            assert waiting.wait(PATIENCE) == 0


def test_release_asks_and_takes_the_lock_from_all_readers(cli: Cli, three_nodes: NodeSet) -> None:
    with two_readers(cli) as readers:
        refused = cli("release", "catalog", "--force", input="n\n")
        assert refused.returncode == 1
        assert re.match(
            r"catalog is read by 2 readers on 3 of 3 nodes, \S+ s left\.\n", refused.stderr
        )
        assert all(process.poll() is None for process in readers)
        answer = cli("release", "catalog", "--force", input="y\n")
        assert answer.returncode == 0
        assert re.fullmatch(r"catalog: deleted on [23] of 3 nodes\n", answer.stdout)
        for process in readers:
            assert process.wait(PATIENCE) == 75
    assert three_nodes.keys() == [set(), set(), set()]


def test_release_without_a_question_takes_the_lock_from_all_readers(
    cli: Cli, three_nodes: NodeSet
) -> None:
    with two_readers(cli) as readers:
        answer = cli("release", "catalog", "--force", "--yes")
        assert answer.returncode == 0
        assert re.fullmatch(r"catalog: deleted on [23] of 3 nodes\n", answer.stdout), (
            "nodes are counted, not readers"
        )
        for process in readers:
            assert process.wait(PATIENCE) == 75
    assert three_nodes.keys() == [set(), set(), set()]


def test_a_sorted_set_that_is_no_lock_is_not_listed_as_readers(
    cli: Cli, three_nodes: NodeSet
) -> None:
    for node in three_nodes:
        node.command("ZADD", "scores", "9999999999999", "alice")
        node.command("PEXPIRE", "scores", "60000")
    assert cli("ls").stdout == ""
    assert "not a lock: zset" in cli("ls", "--all").stdout
    assert cli("run", "-n", "--shared", "scores", "--", "true").returncode != 0
    assert all(
        node.command("ZSCORE", "scores", "alice") == b"9999999999999" for node in three_nodes
    )
