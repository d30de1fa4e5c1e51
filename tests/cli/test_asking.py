"""`inspect`, `ls`, `release`, `wait` and `bench` on real servers."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

from aioredlock_ng import Lock, LockHeld, QuorumUnreachable, Redlock
from aioredlock_ng.cli import waiting
from aioredlock_ng.cli.bench import bench
from aioredlock_ng.cli.releasing import release
from tests.cli.commands import NODE_TIMEOUT, OFFERED, PATIENCE, Cli, connected, line
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng import Lease, LockInfo, LockNotAcquired
    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import Node, NodeSet

pytestmark = pytest.mark.once

ACL = (Path(__file__).parents[2] / "docs" / "acl.md").read_text(encoding="utf-8")


async def test_inspect_shows_the_holder_of_a_lock(cli: Cli, three_nodes: NodeSet) -> None:
    async with (
        Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT, ttl=60.0) as redlock,
        redlock.lock("order:42") as lease,
    ):
        told = json.loads(cli("inspect", "order:42", "--json").stdout)
        assert (told["resource"], told["held"], told["token"]) == ("order:42", True, lease.token)
        assert (told["nodes"], told["total"]) == (3, 3)
        assert 0 < told["remaining"] <= 60
        assert [answer["token"] for answer in told["answers"]] == [lease.token] * 3
        lines = cli("inspect", "order:42").stdout.splitlines()
        assert lines[0].startswith(f"order:42: held by {lease.token[:6]}… on 3 of 3 nodes, ")
        assert len(lines) == 4
        assert lease.token not in "".join(lines)


async def test_inspect_ls_and_top_show_the_label_of_the_holder(cli: Cli) -> None:
    with cli.holding("order:42", "--owner", "the nightly import"):
        await eventually(
            lambda: json.loads(cli("inspect", "order:42", "--json").stdout)["owner"] is not None,
            PATIENCE,
        )
        owner = json.loads(cli("inspect", "order:42", "--json").stdout)["owner"]
        assert owner["label"] == "the nightly import"
        assert (
            f"  owner the nightly import, fence {owner['fence']}\n  since 20"
            in cli("inspect", "order:42").stdout
        )
        assert max(map(len, cli("inspect", "order:42").stdout.splitlines())) <= 80
        assert cli("ls").stdout.rstrip().endswith("\tthe nightly import\t0")
        shown = cli("top", "--once").stdout
        assert "the nightly import" in shown
        assert str(owner["fence"]) in shown
    with cli.holding("order:43"):
        await eventually(
            lambda: json.loads(cli("inspect", "order:43", "--json").stdout)["owner"] is not None,
            PATIENCE,
        )
        label = json.loads(cli("inspect", "order:43", "--json").stdout)["owner"]["label"]
        assert re.fullmatch(r"[^:]+:\d+:\w+", label)


async def test_inspect_without_fencing_shows_the_owner_too(cli: Cli) -> None:
    cli.env["AIOREDLOCK_NG_FENCING"] = "false"
    with cli.holding("order:42", "--owner", "the nightly import"):
        await eventually(
            lambda: json.loads(cli("inspect", "order:42", "--json").stdout)["owner"] is not None,
            PATIENCE,
        )


def test_inspect_and_ls_show_the_number_of_waiters(cli: Cli, three_nodes: NodeSet) -> None:
    for node in three_nodes:
        node.command("SET", "order:42", "token", "PX", "60000")
        for number in range(3):
            node.command(
                "ZADD",
                "aioredlock_ng:queue:order:42",
                str(number),
                f"0123456789abcdef:{number}:1000",
            )
    assert cli("inspect", "order:42").stdout.splitlines()[1] == "  3 waiting"
    for words in (("inspect", "order:42"), ("ls",)):
        told = json.loads(cli(*words, "--json").stdout)
        (lock,) = told if isinstance(told, list) else [told]
        assert (lock["held"], lock["waiting"], lock["offered"]) == (True, 3, False)
    assert cli("ls").stdout.endswith("\t-\t3\n")


def test_inspect_and_ls_show_a_lock_that_is_kept_for_a_waiter_without_a_holder(
    cli: Cli, three_nodes: NodeSet
) -> None:
    for node in three_nodes:
        node.command("SET", "order:42", OFFERED, "PX", "60000")
    head, queue, *nodes = cli("inspect", "order:42").stdout.splitlines()
    assert (head, queue) == ("order:42: offered to a waiter", "  1 waiting")
    assert all(re.fullmatch(r"  \S+: offered to a waiter, \S+ s left", node) for node in nodes)
    assert cli("ls").stdout == "order:42\t0/3\t-\toffered\t-\t1\n"
    for words in (("inspect", "order:42"), ("ls",)):
        shown = cli(*words, "--json").stdout
        told = json.loads(shown)
        (lock,) = told if isinstance(told, list) else [told]
        assert (lock["held"], lock["token"], lock["nodes"], lock["offered"]) == (
            False,
            None,
            0,
            True,
        )
        assert "0123456789abcdef" not in shown


async def test_inspect_ls_and_wait_name_the_last_holder_of_a_lock_kept_by_its_min_hold(
    cli: Cli, three_nodes: NodeSet
) -> None:
    async with Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT, owner="nightly") as redlock:
        async with redlock.lock("order:42", min_hold=60) as lease:
            pass
        short = f"{lease.token[:6]}…"
        head, owner, _, *nodes = cli("inspect", "order:42").stdout.splitlines()
        assert head.startswith(
            f"order:42: released, kept by the min_hold of {short} on 3 of 3 nodes, "
        )
        assert owner == f"  owner nightly, fence {lease.fence}"
        assert [f": {short}, over, " in node for node in nodes] == [True] * 3
        told = json.loads(cli("inspect", "order:42", "--json").stdout)
        assert (told["held"], told["over"], told["token"]) == (True, True, lease.token)
        assert [answer["over"] for answer in told["answers"]] == [True] * 3
        assert cli("ls").stdout.split("\t")[3:] == [f"{short} over", "nightly", "0\n"]
        assert f"{short} over" in cli("top", "--once").stdout
        answer = cli("wait", "order:42", "-w", "0")
        assert (
            answer.returncode,
            f"'order:42' is kept by the min_hold of {short}, " in answer.stderr,
        ) == (1, True)
        answer = cli("release", "order:42", "--force", input="y\n")
        assert f"is kept by the min_hold of {short}" in answer.stderr
        assert answer.stdout == "order:42: deleted on 3 of 3 nodes\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_a_terminal_cannot_encode_are_escaped(cli: Cli, encoding: str) -> None:
    cli.env["PYTHONIOENCODING"] = encoding
    with cli.holding("größe ✓"):
        for words in (("inspect", "größe ✓"), ("ls",)):
            told = cli(*words, encoding=encoding)
            assert (told.returncode, told.stderr) == (0, "")
            assert "\\u2713" in told.stdout


def test_inspect_writes_nothing(cli: Cli, three_nodes: NodeSet) -> None:
    three_nodes.wipe()
    answer = cli("inspect", "x")
    assert answer.returncode == 0
    assert answer.stdout.startswith("x: free\n")
    assert [node.command("DBSIZE") for node in three_nodes] == [b"0"] * 3


def test_inspect_shows_a_key_without_expiry_in_valid_json(cli: Cli, three_nodes: NodeSet) -> None:
    for node in three_nodes:
        node.command("SET", "x", "for\x1bever")
    told = json.loads(cli("inspect", "x", "--json").stdout)
    assert (told["held"], told["token"], told["remaining"]) == (True, None, None)
    assert {answer["foreign"] for answer in told["answers"]} == {"string"}
    answer = cli("inspect", "x").stdout
    assert "no expiry" in answer
    assert "\x1b" not in answer


def test_release_does_not_call_a_lock_held_whose_token_is_on_a_minority_of_the_nodes(
    cli: Cli, three_nodes: NodeSet
) -> None:
    three_nodes[0].command("SET", "x", "somebody", "PX", "60000")
    three_nodes[0].command("HSET", "data", "field", "value")
    declined = cli("release", "x", "--force", input="n\n").stderr
    assert declined.startswith(
        "x is not held, but somebo… has its key on 1 of 3 nodes.\n"
        "The key may belong to an attempt that is still going on. Delete it? [y/N] "
    )
    data = cli("release", "data", "--force", "--any-key", input="n\n").stderr
    assert data.startswith("data is not a lock but somebody's data (hash) on 1 of 3 nodes.\n")


def test_the_remaining_time_in_json_is_null_unless_the_lock_is_held_and_expires(
    cli: Cli, three_nodes: NodeSet
) -> None:
    for node in three_nodes:
        node.command("SET", "held", "token", "PX", "600000")
        node.command("SET", "gpu#1", "token", "PX", "600000")
        node.command("SET", "offered", OFFERED, "PX", "600000")
        node.command("SET", "no expiry", "value")
    three_nodes[0].command("SET", "left over", "somebody", "PX", "600000")

    def told(*words: str) -> Any:
        return json.loads(cli(*words, "--json").stdout)

    listed = [("ls", told("ls", "--all")), ("top", told("top", "--once")["locks"])]
    for name in ("held", "free", "offered", "left over", "no expiry"):
        listed += [("inspect", [told("inspect", name)]), ("wait", [told("wait", "-w", "0", name)])]
    listed.append(("slots", told("inspect", "--slots", "2", "gpu")["slots"]))
    for command, locks in listed:
        for lock in locks:
            number = lock["resource"] in ("held", "gpu#1")
            assert (type(lock["remaining"]) is float) == number, (command, lock["resource"])
            assert number or lock["remaining"] is None, (command, lock["resource"])
    rows = [row.split("\t") for row in cli("ls").stdout.splitlines()]
    assert {row[0]: row[2] for row in rows if not row[2].endswith(" left")} == {
        "left over": "-",
        "offered": "-",
    }


async def test_ls_lists_locks_and_nothing_else(cli: Cli, three_nodes: NodeSet) -> None:
    for node in three_nodes:
        node.command("HSET", "a hash", "field", "value")
        node.command("SET", "no expiry", "value")
        node.command("RPUSH", "a list", "value")
    three_nodes[0].command("SET", "left over", "somebody", "PX", "60000")
    async with (
        Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT, ttl=60.0) as redlock,
        redlock.lock("order:1") as first,
        redlock.lock("order:2"),
        redlock.lock(b"\xff"),
    ):
        told = json.loads(cli("ls", "--json").stdout)
        assert [(lock["resource"], lock["held"], lock["nodes"]) for lock in told] == [
            ("left over", False, 1),
            ("order:1", True, 3),
            ("order:2", True, 3),
            ("\\xff", True, 3),
        ]
        assert told[1]["token"] == first.token
        (only,) = cli("ls", "*:1").stdout.splitlines()
        assert only.split("\t")[:2] == ["order:1", "3/3"]
        assert (
            cli("ls", "--all", "no*").stdout
            == "no expiry\t3/3\tno expiry\tnot a lock: string\t-\t0\n"
        )
        every = json.loads(cli("ls", "--all", "--json").stdout)
        assert {lock["answers"][0]["foreign"] for lock in every} == {"", "hash", "list", "string"}
    assert cli("ls", "order:*").stdout == ""


@pytest.mark.parametrize(
    ("key_format", "words"),
    [(b"\xff{name}", "lone surrogate"), (b"aioredlock_ng:{name}", "keeps for itself")],
)
def test_an_invalid_key_format_is_refused_in_one_line(
    cli: Cli, key_format: bytes, words: str
) -> None:
    given = cli("inspect", "x", "--key-format", os.fsdecode(key_format))
    cli.env["AIOREDLOCK_NG_KEY_FORMAT"] = os.fsdecode(key_format)
    from_environment = cli("inspect", "x")
    for answer, named in (
        (given, "key_format "),
        (from_environment, "AIOREDLOCK_NG_KEY_FORMAT: key_format "),
    ):
        assert answer.returncode == 2
        assert answer.stderr.startswith(f"aioredlock-ng inspect: {named}")
        assert words in answer.stderr
        assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize("words", ["run x -- true", "ls"])
def test_a_misspelt_variable_is_reported(cli: Cli, words: str) -> None:
    """Without the report, the command would hold another key than the services, in silence."""
    cli.env["AIOREDLOCK_NG_KEYFORMAT"] = "lock:{name}"
    answer = cli(*words.split())
    assert answer.returncode == 0
    assert answer.stderr == (
        f"aioredlock-ng {words.split()[0]}: AIOREDLOCK_NG_KEYFORMAT is not a setting and was not"
        " read; did you mean AIOREDLOCK_NG_KEY_FORMAT?\n"
    )


async def test_ls_takes_a_key_format_as_it_is_written(cli: Cli, three_nodes: NodeSet) -> None:
    async with (
        Redlock(
            three_nodes.urls, node_timeout=NODE_TIMEOUT, key_format="lock[a*]:{name}?"
        ) as redlock,
        redlock.lock("order:1"),
        redlock.lock("order:2"),
        redlock.lock("job:1"),
    ):
        three_nodes[0].command("SET", "locka:order:3!", "another", "PX", "60000")
        told = json.loads(cli("ls", "order:*", "--json", "--key-format", "lock[a*]:{name}?").stdout)
        assert [lock["resource"] for lock in told] == ["order:1", "order:2"]


async def test_ls_finds_every_one_of_many(cli: Cli, three_nodes: NodeSet) -> None:
    for node in three_nodes:
        node.command(
            "EVAL", 'for i = 1, 2500 do redis.call("SET", "lock:" .. i, "t", "PX", 600000) end', "0"
        )
    # The same name, another type on one node: that node has no part in this lock.
    three_nodes[2].command("DEL", "lock:7")
    three_nodes[2].command("HSET", "lock:7", "field", "value")
    told = json.loads(cli("ls", "--key-format", "lock:{name}", "--json").stdout)
    assert {lock["resource"] for lock in told} == {str(number) for number in range(1, 2501)}
    (mixed,) = (lock for lock in told if lock["resource"] == "7")
    assert (mixed["nodes"], mixed["held"]) == (2, True)
    assert mixed["answers"][2]["detail"] == "not a lock: a hash without expiry"


@pytest.mark.faults
def test_ls_goes_on_without_a_minority_and_says_so(cli: Cli, three_nodes: NodeSet) -> None:
    three_nodes.crash(0)
    with cli.holding("x"):
        answer = cli("ls")
        assert answer.stdout.startswith("x\t2/3\t")
        assert answer.stderr.startswith("aioredlock-ng ls: without 127.0.0.1:")
    three_nodes.crash(1)
    answer = cli("ls")
    assert answer.returncode == 69
    assert answer.stdout == ""


def test_ls_needs_one_right_more_than_the_library(
    cli: Cli, start_server: Callable[..., LocalServer]
) -> None:
    server = start_server()
    for row in ACL.splitlines():
        if row.startswith("ACL SETUSER"):
            server.command(*row.split())
    server.command("SET", "lock:a", "token", "PX", "60000")
    words = (
        "ls",
        "--key-format",
        "lock:{name}",
        "--node",
        f"redis://locks:password@{server.address}",
    )
    refused = cli(*words)
    assert refused.returncode == 69
    assert "'scan' command" in refused.stderr
    assert "password" not in refused.stderr
    server.command("ACL", "SETUSER", "locks", "+scan")
    server.command("ZADD", "aioredlock_ng:queue:lock:a", "1", "0123456789abcdef:1:1000")
    (line,) = cli(*words).stdout.splitlines()
    assert line.startswith("a\t1/1\t")
    assert line.endswith("\t1"), "the rights of the library suffice for the queue"


def test_ls_on_a_terminal_shows_a_table_that_fits(cli: Cli) -> None:
    ours, theirs = pty.openpty()
    cli.env["COLUMNS"] = "60"
    with cli.holding("x"):
        answer = subprocess.run(
            cli.words("ls"),
            env=cli.env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            timeout=PATIENCE,
            check=False,
        )
    os.close(theirs)
    assert answer.returncode == 0
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert "looking at keys" in shown
    assert "100%" in shown
    assert "remaining" in shown
    assert "3 of 3" in shown
    assert max(map(len, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).splitlines())) <= 60


def test_release_needs_force_and_a_confirmation(cli: Cli, three_nodes: NodeSet) -> None:
    with cli.holding("x"):
        refused = cli("release", "x")
        assert refused.returncode == 2
        assert "--force" in refused.stderr
        for said in ("n\n", "\n", ""):
            declined = cli("release", "x", "--force", input=said)
            assert declined.returncode == 1
            assert "x is held by " in declined.stderr
            assert "nothing was done" in declined.stderr
        assert three_nodes.keys() == [{"x"}] * 3


def test_release_takes_a_lock_away(cli: Cli, three_nodes: NodeSet) -> None:
    with cli.started("run", "x", "--", "sh", "-c", "echo ready; read line") as holder:
        assert line(holder) == "ready"
        answer = cli("release", "x", "--force", input="y\n")
        assert answer.returncode == 0
        # The holder, told by two, may delete the third key before the command does.
        assert re.fullmatch(r"x: deleted on [23] of 3 nodes\n", answer.stdout)
        assert holder.wait(PATIENCE) == 75
    assert three_nodes.keys() == [set(), set(), set()]
    again = cli("release", "x", "--force", "--yes", "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout) == {"resource": "x", "deleted": 0, "total": 3}


def test_release_prints_a_name_that_is_not_utf_8_like_inspect(cli: Cli) -> None:
    name = os.fsdecode(b"order:\xff")
    releasing, inspecting = ["release", name, "--force", "--yes"], ["inspect", name]
    told = [json.loads(cli(*words, "--json").stdout) for words in (releasing, inspecting)]
    assert [one["resource"] for one in told] == ["order:\\xff"] * 2
    assert cli(*releasing).stdout == "order:\\xff: nobody had it\n"


def test_release_prints_the_name_as_given_where_the_encoding_is_not_utf_8(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "fsencode", lambda word: word.encode("latin-1"))
    release("größe", force=True, yes=True, node=three_nodes.urls)
    assert capsys.readouterr().out == "größe: nobody had it\n"


def test_release_takes_a_value_of_other_software_that_is_no_text(
    cli: Cli, three_nodes: NodeSet
) -> None:
    for node in three_nodes:
        node.command("EVAL", r'redis.call("SET", "x", "\255\254", "PX", 60000)', "0")
    answer = cli("release", "x", "--force", input="y\n")
    assert (answer.returncode, answer.stdout) == (0, "x: deleted on 3 of 3 nodes\n")
    assert three_nodes.keys() == [set(), set(), set()]


def test_release_refuses_data_that_is_no_lock_unless_any_key_is_given(
    cli: Cli, three_nodes: NodeSet
) -> None:
    for node in three_nodes:
        node.command("SET", "order:42", "paid")
        node.command("HSET", "cart", "item", "2")
    for name, kind in (("order:42", "string"), ("cart", "hash")):
        for yes in ((), ("--yes",)):
            refused = cli("release", name, "--force", *yes, input="y\n")
            assert (refused.returncode, refused.stdout) == (2, "")
            assert refused.stderr.count("\n") == 1
            for words in (
                f"key '{name}'",
                f"{three_nodes[0].url[8:]} (a {kind} without expiry)",
                "--any-key",
                "key_format",
            ):
                assert words in refused.stderr
        assert (
            f"{name}: taken by a key that is not a lock, on 3 of 3 nodes"
            in cli("inspect", name).stdout
        )
        waited = cli("wait", name, "-w", "0")
        assert (waited.returncode, "taken by a key that is not a lock" in waited.stderr) == (
            1,
            True,
        )
        declined = cli("release", name, "--force", "--any-key", input="n\n")
        assert declined.returncode == 1
        assert (
            f"{name} is not a lock but somebody's data ({kind}) on 3 of 3 nodes" in declined.stderr
        )
    assert three_nodes.keys() == [{"order:42", "cart"}] * 3
    for name in ("order:42", "cart"):
        assert (
            cli("release", name, "--force", "--any-key", input="y\n").stdout
            == f"{name}: deleted on 3 of 3 nodes\n"
        )
    assert three_nodes.keys() == [set()] * 3


@pytest.mark.parametrize("closed", ["<&-", "2>&-", ">&-"])
def test_release_with_a_closed_stream_counts_as_declined(
    cli: Cli, three_nodes: NodeSet, closed: str
) -> None:
    with cli.holding("x"):
        words = ["sh", "-c", f'exec "$@" {closed}', "sh", *cli.words("release", "x", "--force")]
        done = subprocess.run(
            words,
            env=cli.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert "Traceback" not in done.stderr
        assert three_nodes.keys() == [{"x"}] * 3


def test_release_leaves_a_holder_alone_that_came_during_the_question(
    cli: Cli, three_nodes: NodeSet
) -> None:
    with cli.holding("x") as first, cli.started("release", "x", "--force") as asking:
        assert asking.stderr is not None
        assert asking.stderr.read(len("x is held by")) == "x is held by"
        first.communicate("\n", timeout=PATIENCE)
        with cli.holding("x"):
            told = asking.communicate("y\n", timeout=PATIENCE)[1]
            assert asking.returncode == 1
            assert "a later holder was left alone" in told
            assert three_nodes.keys() == [{"x"}] * 3


def test_release_of_a_free_lock_asks_and_deletes_nothing(cli: Cli) -> None:
    answer = cli("release", "x", "--force", input="")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "x: nobody had it\n", "")


def looks(node: Node) -> int:
    """Return how many scripts a node has run. `wait` asks every node by a script."""
    found = re.search(rb"cmdstat_evalsha:calls=(\d+)", node.command("INFO", "commandstats"))
    return int(found[1]) if found else 0


def last_has_looked(nodes: NodeSet) -> bool:
    """Return True if each node has answered a script of the newest manager."""
    for node in nodes:
        told = node.command("CLIENT", "LIST").decode().splitlines()
        last = [client for client in told if re.search(r" flags=\w*t", client)][-1]
        # A server sends its answers before it reads the next command. So after PONG, the answer to
        # the script is on its way.
        if " cmd=evalsha" not in last or node.command("PING") != b"PONG":
            return False
    return True


@pytest.mark.faults
async def test_wait_outlives_a_moment_without_a_majority(cli: Cli, three_nodes: NodeSet) -> None:
    with (
        cli.holding("x", "--ttl", "60") as holder,
        cli.started("wait", "x", "--node-timeout", "0.5") as waiter,
    ):
        await eventually(lambda: connected(three_nodes) == 2, within=PATIENCE, every=0.05)
        # Without a majority from the first look on, it would give up.
        await eventually(lambda: last_has_looked(three_nodes), within=PATIENCE, every=0.05)
        before = looks(three_nodes[2])
        three_nodes.pause(0)
        three_nodes.pause(1)
        await eventually(lambda: looks(three_nodes[2]) >= before + 3, within=PATIENCE, every=0.05)
        three_nodes.resume(0)
        three_nodes.resume(1)
        assert waiter.poll() is None
        holder.communicate("\n", timeout=PATIENCE)
        assert waiter.wait(PATIENCE) == 0


async def test_wait_returns_when_the_lock_is_free_and_never_takes_it(
    cli: Cli, three_nodes: NodeSet
) -> None:
    with cli.holding("x", "--ttl", "60") as holder, cli.started("wait", "x") as waiter:
        await eventually(lambda: connected(three_nodes) == 2, within=PATIENCE, every=0.05)
        holder.communicate("\n", timeout=PATIENCE)
        freed = time.monotonic()
        assert waiter.wait(PATIENCE) == 0
        assert time.monotonic() - freed < 10
    assert three_nodes.keys() == [set(), set(), set()]


async def test_wait_under_nohup_outlives_a_hangup(cli: Cli, three_nodes: NodeSet) -> None:
    words = ["nohup", *cli.words("wait", "x")]
    with (
        cli.holding("x", "--ttl", "60") as holder,
        subprocess.Popen(words, env=cli.env, stdout=subprocess.PIPE, text=True) as waiter,
    ):
        await eventually(lambda: connected(three_nodes) == 2, within=PATIENCE, every=0.05)
        waiter.send_signal(signal.SIGHUP)
        holder.communicate("\n", timeout=PATIENCE)
        assert waiter.wait(PATIENCE) == 0


async def test_wait_sleeps_until_the_nodes_notify_it(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_TRACKED_LOOK", 60.0)
    async with Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT) as holder:
        lease = await holder.lock("x", ttl=50).acquire()
        asking = Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT, recovery_guard=None)
        wait = asyncio.create_task(waiting._wait(asking, "x", None))
        await eventually(lambda: connected(three_nodes) == 2, within=PATIENCE)
        await lease.release()
        assert not (await asyncio.wait_for(wait, 20)).held


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((OFFERED, OFFERED, OFFERED), "is offered to a waiter"),
        (("", OFFERED, ""), "is offered to a waiter"),
        (("the last holder", "the next one", ""), "is between two holders"),
    ],
)
def test_wait_does_not_end_between_two_holders(
    cli: Cli, three_nodes: NodeSet, values: tuple[str, ...], said: str
) -> None:
    for node, value in zip(three_nodes, values, strict=True):
        if value:
            node.command("SET", "x", value, "PX", "60000")
    answer = cli("wait", "x", "-w", "0")
    assert (answer.returncode, answer.stderr) == (1, f"aioredlock-ng wait: 'x' {said}\n")


async def test_wait_outlives_an_offer_and_the_holder_after_it(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[tuple[bool, bool]] = []
    inspect = Redlock.inspect

    async def noted(self: Redlock, name: str | bytes) -> LockInfo:
        info = await inspect(self, name)
        looked.append((info.held, info.offered))
        return info

    monkeypatch.setattr(Redlock, "inspect", noted)

    def put(value: str) -> None:
        for node in three_nodes:
            node.command("SET", "x", value, "PX", "60000")

    put(OFFERED)
    asking = Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT, recovery_guard=None)
    wait = asyncio.create_task(waiting._wait(asking, "x", None))
    await eventually(lambda: (False, True) in looked, within=PATIENCE)
    put("the next holder")
    await eventually(lambda: (True, False) in looked, within=PATIENCE)
    assert not wait.done()
    for node in three_nodes:
        node.command("DEL", "x")
    info = await asyncio.wait_for(wait, PATIENCE)
    assert (info.held, info.offered) == (False, False)


def test_wait_ends_when_a_key_expires(cli: Cli, three_nodes: NodeSet) -> None:
    for node in three_nodes:
        node.command("SET", "x", "a holder that died", "PX", "1500")
    assert cli("wait", "x", "-w", "20").returncode == 0


def test_wait_is_bounded_and_inspects_once_with_a_timeout_of_zero(cli: Cli) -> None:
    with cli.holding("x"):
        for words in (["-w", "0"], ["-w", "0.3", "-E", "5"]):
            answer = cli("wait", "x", *words)
            assert answer.returncode == (5 if "-E" in words else 1)
            assert answer.stderr.startswith("aioredlock-ng wait: 'x' is held by ")
        assert json.loads(cli("wait", "x", "-w", "0", "--json").stdout)["held"] is True
    assert cli("wait", "x", "-w", "0").stdout == ""
    free = cli("wait", "x", "-w", "0", "--json")
    assert (free.returncode, json.loads(free.stdout)["held"]) == (0, False)


def test_bench_measures_and_leaves_nothing(cli: Cli, three_nodes: NodeSet) -> None:
    answer = cli("bench", "--seconds", "3", "--coroutines", "5", "--json")
    told = json.loads(answer.stdout)
    assert told["cycles"] > 0
    assert told["failed"] == 0
    assert 0 < told["p50"] <= told["p99"] < told["seconds"]
    assert told["cycles_per_second"] == pytest.approx(told["cycles"] / told["seconds"])
    assert three_nodes.keys() == [set(), set(), set()]
    shown = cli("bench", "--seconds", "3").stdout
    assert "cycles of acquire and release per second" in shown
    assert re.search(
        r"p50 0\.[0-9]+ s, p99 [0-9.]+ s, 0 failed\n3 nodes, 1 at once, [0-9.]+ s\n", shown
    )


@pytest.mark.parametrize(("error", "status"), [(LockHeld, 1), (QuorumUnreachable, 69)])
def test_bench_has_different_exit_statuses_for_held_locks_and_a_missing_majority(
    error: type[LockNotAcquired],
    status: int,
    three_nodes: NodeSet,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    acquire = Lock.acquire

    async def acquired(lock: Lock) -> Lease:
        if lock.resource.endswith(":0"):
            raise error("no")
        return await acquire(lock)

    monkeypatch.setattr(Lock, "acquire", acquired)
    # The clock of the measurement stands still while nobody reads it.
    monkeypatch.setattr("aioredlock_ng.cli.bench.perf_counter", itertools.count(0, 0.01).__next__)
    with pytest.raises(typer.Exit) as ended:
        bench(0.1, node=three_nodes.urls)
    assert ended.value.exit_code == status
    told = capsys.readouterr().err
    assert re.fullmatch(
        rf"aioredlock-ng bench: none of (\d+) attempts .*: \1 {error.__name__}\n", told
    )


@pytest.mark.parametrize("command", ["inspect", "release", "wait", "bench", "ls"])
def test_errors_are_one_line_with_an_exit_status(cli: Cli, command: str) -> None:
    words = [
        command,
        *(["x"] if command not in ("bench", "ls") else []),
        *(["--force", "--yes"] if command == "release" else []),
    ]
    nowhere = cli(*words, "--node", "redis://:s3cr3t@127.0.0.1:1")
    assert nowhere.returncode == 69
    assert "127.0.0.1:1" in nowhere.stderr
    wrong = cli(*words, "--node", "http://:s3cr3t@127.0.0.1:1")
    assert wrong.returncode == 2
    cli.env.pop("AIOREDLOCK_NG_NODES")
    none = cli(*words)
    assert none.returncode == 2
    assert "AIOREDLOCK_NG_NODES" in none.stderr
    for answer in (nowhere, wrong, none):
        assert answer.stderr.startswith(f"aioredlock-ng {command}: ")
        assert answer.stderr.count("\n") == 1
        assert "s3cr3t" not in answer.stderr
        assert answer.stdout == ""
