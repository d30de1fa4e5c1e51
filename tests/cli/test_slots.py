"""Semaphores on the command line: `run --slots`, `inspect --slots`, `wait --slots`, and slots in
`ls`, `top` and `release`.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockInfo, Redlock, SemaphoreInfo
from aioredlock_ng.cli import waiting
from tests.cli.commands import NODE_TIMEOUT, OFFERED, PATIENCE, Cli, line
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once

SHOW = [
    "sh",
    "-c",
    'echo "$AIOREDLOCK_NG_NAME" "$AIOREDLOCK_NG_SLOT" "$AIOREDLOCK_NG_FENCE"; read line; exit 0',
]

RUN = ["run", "--slots", "2", "gpu", "--", *SHOW]
"""A command that holds one of two slots until a line is written to it."""


def test_as_many_commands_run_as_there_are_slots_and_each_knows_its_own(cli: Cli) -> None:
    with cli.started(*RUN) as one, cli.started(*RUN) as two:
        told = [line(process).split() for process in (one, two)]
        assert [words[0] for words in told] == ["gpu", "gpu"]
        assert sorted(words[1] for words in told) == ["1", "2"]
        assert all(int(words[2]) for words in told)
        refused = cli("run", "-n", "--slots", "2", "gpu", "--", "true")
        assert refused.returncode == 1
        assert refused.stderr.startswith(
            "aioredlock-ng run: 'gpu' was not acquired, held by others, in all 2 slots"
        )
        assert refused.stderr.count("\n") == 1
        assert (
            cli("run", "-w", "0.2", "-E", "9", "--slots", "2", "gpu", "--", "true").returncode == 9
        )
        one.communicate("\n", timeout=PATIENCE)
        again = cli(
            "run",
            "-n",
            "--slots",
            "2",
            "gpu",
            "--",
            "sh",
            "-c",
            'echo "$AIOREDLOCK_NG_SLOT"; exit 7',
        )
        assert (again.returncode, again.stdout.strip()) == (7, told[0][1])
        two.communicate("\n", timeout=PATIENCE)


def test_the_command_of_a_lock_inherits_no_slot(cli: Cli) -> None:
    inner = cli.words("run", "x", "--", "sh", "-c", 'echo "[$AIOREDLOCK_NG_SLOT]"')
    answer = cli("run", "--slots", "2", "gpu", "--", *inner)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "[]\n", "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "--slots", "0", "gpu", "--", "true"], "--slots"),
        (["run", "--slots", "1001", "gpu", "--", "true"], "--slots"),
        (["run", "--slots", "2", "gpu", "cpu", "--", "true"], "--slots takes one NAME"),
        (["inspect", "--slots", "0", "gpu"], "--slots"),
        (["wait", "--slots", "1001", "gpu"], "--slots"),
    ],
)
def test_an_invalid_number_of_slots_is_refused_before_anything_runs(
    cli: Cli, words: list[str], told: str
) -> None:
    answer = cli(*words)
    assert answer.returncode == 2
    assert told in answer.stderr
    assert "Traceback" not in answer.stderr


async def test_inspect_shows_each_slot_and_how_many_wait(cli: Cli, three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT, ttl=60.0) as redlock:
        lease = await redlock.semaphore("gpu", 4, owner="the nightly import").acquire()
        # The others are free on every node, or the next slot is offered to a waiter.
        offered = lease.slot % 4 + 1
        for node in three_nodes:
            node.command("SET", f"gpu#{offered}", OFFERED, "PX", "60000")
            node.command("ZADD", "aioredlock_ng:slots:gpu", "1", "0123456789abcdef:7:4#1000")

        def told() -> dict[str, object]:
            found: dict[str, object] = json.loads(
                cli("inspect", "--slots", "4", "gpu", "--json").stdout
            )
            return found

        await eventually(
            lambda: told()["slots"][lease.slot - 1]["owner"] is not None,  # type: ignore[index]
            PATIENCE,
        )
        found = told()
        assert (found["resource"], found["limit"], found["held"], found["waiting"]) == (
            "gpu",
            4,
            1,
            2,
        )
        assert [slot["resource"] for slot in found["slots"]] == [
            f"gpu#{number}" for number in range(1, 5)
        ]  # type: ignore[attr-defined]
        assert found["slots"][lease.slot - 1]["token"] == lease.token  # type: ignore[index]
        shown = cli("inspect", "--slots", "4", "gpu").stdout
        assert shown.startswith("gpu: 1 of 4 slots held\n  2 waiting\n")
        held = (
            rf"  #{lease.slot}: held by {lease.token[:6]}… on 3 of 3 nodes, "
            r"\S+ s left, the nightly import"
        )
        assert re.search(f"^{held}$", shown, re.MULTILINE)
        assert f"\n  #{offered}: offered to a waiter\n" in shown
        assert lease.token not in shown
        await lease.release()


def test_slots_that_are_free_have_one_line(cli: Cli) -> None:
    assert (
        cli("inspect", "--slots", "1000", "gpu").stdout
        == "gpu: 0 of 1000 slots held\n  #1 to #1000: free\n"
    )


@pytest.mark.faults
def test_inspect_of_slots_names_a_node_that_is_silent_and_needs_a_majority(
    cli: Cli, three_nodes: NodeSet
) -> None:
    three_nodes.crash(0)
    shown = cli("inspect", "--slots", "2", "gpu")
    assert shown.returncode == 0
    assert re.fullmatch(
        r"gpu: 0 of 2 slots held\n  #1 to #2: free\n  127\.0\.0\.1:\d+: \S.*\n", shown.stdout
    )
    three_nodes.crash(1)
    none = cli("inspect", "--slots", "2", "gpu")
    assert (none.returncode, none.stdout) == (69, "")
    assert none.stderr.startswith("aioredlock-ng inspect: no quorum answered: ")
    assert none.stderr.count("\n") == 1


async def test_a_thousand_held_slots_are_inspected_and_listed(
    cli: Cli, three_nodes: NodeSet
) -> None:
    for node in three_nodes:
        node.command(
            "EVAL",
            'for i = 1, 1000 do redis.call("SET", "gpu#" .. i, "t" .. i, "PX", 600000) end',
            "0",
        )
    async with Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT) as redlock:
        info = await redlock.semaphore("gpu", 1000).inspect()
    assert (info.held, info.waiting) == (1000, 0)
    assert [slot.token for slot in info.slots] == [f"t{number}" for number in range(1, 1001)]
    shown = cli("inspect", "--slots", "1000", "gpu").stdout.splitlines()
    assert len(shown) == 1001
    told = json.loads(cli("ls", "gpu#*", "--json").stdout)
    assert [lock["resource"] for lock in told] == [f"gpu#{number}" for number in range(1, 1001)], (
        "in the order of their numbers"
    )


def test_top_and_ls_list_slots_in_the_order_of_their_numbers(
    cli: Cli, three_nodes: NodeSet
) -> None:
    for node in three_nodes:
        for name in ("gpu#10", "gpu#9", "gpu#1", "gpu", "gpu#1#2", "gpus"):
            node.command("SET", name, "token", "PX", "60000")
    names = ["gpu", "gpu#1", "gpu#9", "gpu#10", "gpu#1#2", "gpus"]
    assert [row.split("\t")[0] for row in cli("ls").stdout.splitlines()] == names
    assert [
        lock["resource"] for lock in json.loads(cli("top", "--once", "--json").stdout)["locks"]
    ] == names


def test_release_takes_one_slot_away_by_its_name(cli: Cli, three_nodes: NodeSet) -> None:
    with cli.started(*RUN) as one, cli.started(*RUN) as two:
        holders = {line(process).split()[1]: process for process in (one, two)}
        answer = cli("release", "gpu#2", "--force", input="y\n")
        assert answer.returncode == 0
        assert answer.stderr.startswith("gpu#2 is held by ")
        # The holder, told by two, may delete the third key before the command does.
        assert re.fullmatch(r"gpu#2: deleted on [23] of 3 nodes\n", answer.stdout)
        assert holders["2"].wait(PATIENCE) == 75
        assert holders["1"].poll() is None
        assert "gpu" in holders["2"].stderr.read()  # type: ignore[union-attr]
        holders["1"].communicate("\n", timeout=PATIENCE)
        assert holders["1"].returncode == 0
    assert three_nodes.keys() == [set(), set(), set()]


async def test_wait_with_the_name_of_a_slot_waits_for_this_slot(
    cli: Cli, three_nodes: NodeSet
) -> None:
    async with Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT) as redlock:
        lease = await redlock.semaphore("gpu", 2).acquire()
        assert cli("wait", "-w", "0", f"gpu#{lease.slot}").returncode == 1
        assert cli("wait", "-w", "0", f"gpu#{3 - lease.slot}").returncode == 0
        await lease.release()


def test_the_help_of_run_does_not_promise_that_a_command_with_a_slot_runs_alone(cli: Cli) -> None:
    told = " ".join(cli("run", "--help").stdout.split())
    assert "Without --shared and --slots the command runs alone." in told
    assert "With --slots N, up to N commands run at the same time." in told


@pytest.mark.parametrize("command", ["inspect", "release", "wait"])
def test_the_help_says_how_the_slots_of_a_semaphore_are_named(cli: Cli, command: str) -> None:
    assert '  Slot 1 of the semaphore "gpu" is the lock "gpu#1".\n' in cli(command, "--help").stdout


async def test_wait_for_slots_ends_when_the_first_of_them_is_free(
    cli: Cli, three_nodes: NodeSet
) -> None:
    async with Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT, ttl=60.0) as redlock:
        leases = [await redlock.semaphore("gpu", 2).acquire() for _ in range(2)]
        refused = cli("wait", "-w", "0", "--slots", "2", "gpu")
        assert refused.returncode == 1
        message = (
            r"aioredlock-ng wait: 'gpu' has no free slot, 2 of 2 slots held, "
            r"the first has [2-5]\d\.\d s left\n"
        )
        assert re.fullmatch(message, refused.stderr)
        assert cli("wait", "-w", "0.3", "-E", "9", "--slots", "2", "gpu").returncode == 9
        assert cli("wait", "-w", "0", "--slots", "3", "gpu").returncode == 0
        with cli.started("wait", "--slots", "2", "gpu", "--json") as waiter:
            with pytest.raises(subprocess.TimeoutExpired):
                waiter.wait(1.0)
            await leases[1].release()
            told = json.loads(waiter.communicate(timeout=PATIENCE)[0])
        assert waiter.returncode == 0
        assert [slot["held"] for slot in told["slots"]].count(True) == 1
        await leases[0].release()
    assert three_nodes.keys() == [set(), set(), set()]


async def test_wait_for_slots_sleeps_until_the_nodes_notify_it(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_TRACKED_LOOK", 60.0)
    looks: list[int] = []
    look = waiting._look

    async def counted(
        redlock: Redlock, name: str | bytes, slots: int | None
    ) -> LockInfo | SemaphoreInfo:
        looks.append(1)
        return await look(redlock, name, slots)

    monkeypatch.setattr(waiting, "_look", counted)
    async with Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT) as holder:
        leases = [await holder.semaphore("gpu", 2, ttl=50).acquire() for _ in range(2)]
        asking = Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT, recovery_guard=None)
        wait = asyncio.create_task(waiting._wait(asking, "gpu", None, 2))
        await eventually(lambda: looks, within=PATIENCE)
        # Many changes in a row cost a look each tenth of a second.
        before, began = len(looks), time.monotonic()
        for _ in range(100):
            await leases[0].extend()
        changed, took = len(looks) - before, time.monotonic() - began
        await leases[1].release()
        info = await asyncio.wait_for(wait, 20)
        await leases[0].release()
    assert isinstance(info, SemaphoreInfo)
    assert info.held == 1
    assert changed <= took / 0.1 + 1


@pytest.mark.parametrize("kept", [1, 2])
def test_a_slot_that_is_offered_to_a_waiter_is_not_free(
    cli: Cli, three_nodes: NodeSet, kept: int
) -> None:
    for node in three_nodes:
        for number in range(1, kept + 1):
            node.command("SET", f"gpu#{number}", OFFERED, "PX", "60000")
    answer = cli("wait", "-w", "0", "--slots", "2", "gpu")
    said = "aioredlock-ng wait: 'gpu' has no free slot, 0 of 2 slots held\n"
    assert (answer.returncode, answer.stderr) == ((1, said) if kept == 2 else (0, ""))
