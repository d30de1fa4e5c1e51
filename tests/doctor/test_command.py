"""`python -m aioredlock_ng doctor` in a process of its own: its exit status, its three ways of
showing, what it never shows.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.demo.test_command_line import run
from tests.doctor.rewriting import RewritingProxy
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer

    StartServer = Callable[..., LocalServer]

pytestmark = pytest.mark.once

SECRET = "s3cr3t-p4ss"

# All nodes here are on one machine, which may be busy.
QUICK = (
    "--watch",
    "0.1",
    "--ignore",
    "same-host",
    "--ignore",
    "round-trip",
    "--ignore",
    "slow-quorum",
)


PATIENT = {"AIOREDLOCK_NG_CONNECT_TIMEOUT": "60"}
"""The longest time for an answer of a server, which may pause."""


def doctor(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aioredlock_ng", "doctor", *arguments]
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("AIOREDLOCK_NG_")
    }
    return subprocess.run(
        command,
        env={**inherited, **PATIENT, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


MANY = """
import contextlib, io, json, os, sys
from aioredlock_ng.cli import main

for arguments, env in json.loads(sys.argv[1]):
    out, err, status = io.StringIO(), io.StringIO(), None
    os.environ.update(env)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(["doctor", *arguments])
        except SystemExit as end:
            status = end.code
    for name in env:
        del os.environ[name]
    print(json.dumps([status, out.getvalue(), err.getvalue()]))
"""
"""Runs several commands that fail at once. The imports take most of the time of such a command."""


def doctors(
    *commands: tuple[tuple[str, ...], dict[str, str]],
) -> list[subprocess.CompletedProcess[str]]:
    """Return the answers to several commands, which one process runs one after the other."""
    env = {name: word for name, word in os.environ.items() if not name.startswith("AIOREDLOCK_NG_")}
    done = subprocess.run(
        [sys.executable, "-c", MANY, json.dumps(commands)],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    return [
        subprocess.CompletedProcess(arguments, *json.loads(line))
        for (arguments, _), line in zip(commands, done.stdout.splitlines(), strict=True)
    ]


@pytest.fixture
def sound(start_server: StartServer) -> list[str]:
    return [
        start_server(["--appendfsync", "always"], appendonly=True, password=SECRET).url
        for _ in range(3)
    ]


def test_the_exit_status_is_that_of_the_worst_finding(
    sound: list[str], start_server: StartServer
) -> None:
    server = start_server()
    clean = doctor(*sound, *QUICK)
    assert clean.returncode == 0, clean.stdout
    remarked = doctor(*sound[:2], server.url, *QUICK)
    assert remarked.returncode == 0, remarked.stdout
    assert f"info: no-persistence: {server.address}: " in remarked.stdout
    unguarded = (*QUICK, "--recovery-guard", "none", "--no-fencing")
    warned = doctor(*sound[:2], server.url, *unguarded)
    assert warned.returncode == 1, warned.stdout
    assert f"warning: no-persistence: {server.address}: " in warned.stdout
    accepted = doctor(
        *sound[:2], server.url, *unguarded, "--ignore", "no-persistence", "--ignore", "restarted"
    )
    assert accepted.returncode == 0, accepted.stdout
    assert "no-persistence" not in accepted.stdout
    server.command("CONFIG", "SET", "maxmemory", "8mb")
    server.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    wrong = doctor(*sound[:2], server.url, *QUICK)
    assert wrong.returncode == 2, wrong.stdout
    assert f"error: eviction-policy: {server.address}: " in wrong.stdout
    assert wrong.stderr == ""


def test_lines_have_no_control_codes_and_name_the_remedy(sound: list[str]) -> None:
    answer = doctor(*sound, "--watch", "0.1", "--ignore", "round-trip", "--ignore", "slow-quorum")
    assert answer.returncode == 1
    assert "\x1b" not in answer.stdout
    assert "    means: " in answer.stdout
    assert "    to do: " in answer.stdout
    assert answer.stdout.splitlines()[-1].startswith("3 nodes examined: 1 warning")
    for line in answer.stdout.splitlines()[:3]:
        assert line.startswith("node 127.0.0.1:")
        assert "AOF always" in line


def test_the_json_has_nodes_findings_and_the_exit_status(
    sound: list[str], start_server: StartServer
) -> None:
    server = start_server()
    server.stop()
    answer = doctor(*sound, server.url, "--watch", "1", "--json")
    told = json.loads(answer.stdout)
    assert answer.returncode == told["exit_status"] == 2
    assert told["severity"] == "error"
    assert [node["problem"] for node in told["nodes"]] == ["", "", "", "unreachable"]
    first = told["findings"][0]
    assert (first["code"], first["severity"], first["nodes"]) == (
        "unreachable",
        "error",
        [server.address],
    )
    assert first["what"]
    assert first["meaning"]
    assert first["remedy"]
    assert told["nodes"][0]["round_trips"]["count"] >= 20
    clock = told["nodes"][0]["clock"]
    assert clock["rate"] == pytest.approx(1.0, abs=0.01 + clock["rate_error"])


@pytest.mark.parametrize("columns", ["60", "80"])
def test_a_terminal_gets_lines_that_fit_and_no_address_is_cut(
    columns: str, start_server: StartServer
) -> None:
    server = start_server()
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "aioredlock_ng", "doctor", server.url, "--watch", "0.1"]
    env = {**os.environ, **PATIENT, "COLUMNS": columns, "TERM": "xterm-256color"}
    env.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown = b""
        # The end of a pseudo-terminal is an error.
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:
            pass
    os.close(ours)
    text = shown.decode()
    assert process.returncode == 1
    plain = _without_codes(text)
    for words in (f"{server.address}: it keeps", "no-persistence", "single-node", "noeviction"):
        assert words in plain
    if columns != "60":
        assert "\x1b[" in text
        for words in ("what it means for the lock", "→"):
            assert words in plain
    assert max(map(len, plain.splitlines())) <= int(columns)
    assert not re.search(r"\d ms\b", plain)


def _without_codes(text: str) -> str:
    parts = text.replace("\r", "").split("\x1b[")
    return parts[0] + "".join(part.partition("m")[2] for part in parts[1:])


def test_nodes_and_settings_come_from_the_environment(sound: list[str]) -> None:
    answer = doctor(*QUICK, AIOREDLOCK_NG_NODES=" , ".join(sound), AIOREDLOCK_NG_TTL="0.5")
    assert answer.returncode == 0, answer.stdout
    assert "3 nodes examined" in answer.stdout
    assert "info: short-ttl: the set: ttl is 0.5 s" in answer.stdout
    given = doctor(sound[0], *QUICK, AIOREDLOCK_NG_NODES=",".join(sound), AIOREDLOCK_NG_TTL="0.5")
    assert "1 node examined" in given.stdout


def test_the_guard_comes_from_the_environment_unless_it_is_given(
    sound: list[str], start_server: StartServer
) -> None:
    urls = (*sound[:2], start_server().url)
    without = doctor(*urls, *QUICK, AIOREDLOCK_NG_RECOVERY_GUARD="none")
    assert without.returncode == 1, without.stdout
    assert "warning: no-persistence: " in without.stdout
    given = doctor(*urls, *QUICK, "--recovery-guard", "auto", AIOREDLOCK_NG_RECOVERY_GUARD="none")
    assert given.returncode == 0, given.stdout
    assert "info: no-persistence: " in given.stdout


def test_fencing_comes_from_the_environment_unless_it_is_given(start_server: StartServer) -> None:
    server = start_server()
    # Fences are counted in a key of the library's own, which this user may not touch.
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~doctor:*", "&*", "+@all")
    words = (f"redis://locks:word@{server.address}", *QUICK, "--recovery-guard", "none")
    without = doctor(*words, AIOREDLOCK_NG_FENCING="false")
    assert without.returncode == 1, without.stdout
    # Only the order of waiters lacks something.
    assert "error: missing-right" not in without.stdout
    given = doctor(*words, "--fencing", AIOREDLOCK_NG_FENCING="false")
    assert given.returncode == 2, given.stdout
    assert "error: missing-right: " in given.stdout


def test_nodes_can_be_given_by_the_option_node_too(sound: list[str]) -> None:
    named = doctor(
        "--node", sound[0], "--node", sound[1], *QUICK, AIOREDLOCK_NG_NODES="redis://127.0.0.1:1"
    )
    assert "2 nodes examined" in named.stdout
    beside = doctor("--node", sound[0], *sound[1:], *QUICK)
    assert beside.returncode == 0, beside.stdout
    assert "3 nodes examined" in beside.stdout


def test_a_wrong_environment_variable_is_named_as_by_the_other_commands() -> None:
    wrong = (
        ("RECOVERY_GUARD", "maybe", "must be one of auto, strict, none, got 'maybe'"),
        ("FENCING", "maybe", "must be one of true, false, got 'maybe'"),
        ("TTL", "long", "must be a number of seconds, got 'long'"),
    )
    answers = doctors(
        *((("redis://127.0.0.1:1",), {f"AIOREDLOCK_NG_{name}": value}) for name, value, _ in wrong)
    )
    for answer, (name, _, words) in zip(answers, wrong, strict=True):
        assert answer.returncode == 2
        assert answer.stderr == f"aioredlock-ng doctor: AIOREDLOCK_NG_{name} {words}\n"


def test_an_examination_that_cannot_begin_fails_with_one_line() -> None:
    wrong: tuple[tuple[tuple[str, ...], str], ...] = (
        ((), "AIOREDLOCK_NG_NODES is not set"),
        ((f"http://{SECRET}@127.0.0.1:1",), "not a URL of a Redis server"),
        ((f"redis://:{SECRET}@127.0.0.1:port",), "its port is not a number"),
        ((f"redis://:{SECRET}@127.0.0.1:1?colour=red",), "unknown option 'colour'"),
        (("redis://127.0.0.1:1", "--ignore", "bad-luck"), "no finding is called bad-luck"),
        (("redis://127.0.0.1:1", "--ttl", "0.1"), "too small for node_timeout"),
        (("redis://127.0.0.1:1", "--ttl", "61"), "above max_ttl"),
        (("redis://127.0.0.1:1", "--key-format", "x"), "key_format"),
        (("redis://127.0.0.1:1", "--recovery-guard", "maybe"), "recovery_guard"),
        (("redis://127.0.0.1:1", "--probe", "aioredlock_ng:x"), "keeps for itself"),
        (("redis://127.0.0.1:1", "--probe", ""), "must not be empty"),
    )
    answers = doctors(*((arguments, {}) for arguments, _ in wrong))
    for answer, (arguments, words) in zip(answers, wrong, strict=True):
        assert answer.returncode == 2, arguments
        assert answer.stderr.startswith("aioredlock-ng doctor: ")
        assert len(answer.stderr.splitlines()) == 1, answer.stderr
        assert words in answer.stderr
        assert SECRET not in answer.stdout + answer.stderr


def test_a_probe_that_is_not_utf8_is_accepted(start_server: StartServer) -> None:
    server = start_server()
    # This user may use no key that begins with a letter.
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~[^a-z]*", "&*", "+@all")
    url = f"redis://locks:word@{server.address}"
    unguarded = ("--recovery-guard", "none", "--no-fencing")
    answer = doctor(url, *QUICK, *unguarded, "--probe", "\udcff")
    assert answer.stderr == ""
    assert answer.returncode == 1, answer.stdout
    assert "error: " not in answer.stdout


@pytest.mark.parametrize("how", ["--plain", "--json"])
def test_passwords_are_never_shown(how: str, start_server: StartServer) -> None:
    server, other = start_server(password=SECRET), start_server(password="another")
    without_auth = start_server(["--rename-command", "AUTH", "", "--rename-command", "HELLO", ""])
    urls = [
        server.url,
        f"redis://{SECRET}-user:{SECRET}@{other.address}",
        f"redis://:{SECRET}@{without_auth.address}",
    ]
    answer = doctor(*urls, f"redis://:{SECRET}@127.0.0.1:1", how, "--watch", "0.1")
    assert answer.returncode == 2
    for word in ("authentication", "unreachable"):
        assert word in answer.stdout
    assert SECRET not in answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)]
)
async def test_a_doctor_stopped_by_a_signal_leaves_no_key(
    number: signal.Signals, status: int, start_server: StartServer
) -> None:
    server = start_server()
    held = asyncio.Event()

    def hold(data: bytes) -> bytes:
        # The lock is on the server from the answer to the acquire until that to the release.
        if not held.is_set() and server.command("DBSIZE") == b"1":
            held.set()
            proxy.to_client.stall()
        return data

    async with RewritingProxy(server.url, hold) as proxy:
        command = (sys.executable, "-m", "aioredlock_ng", "doctor", proxy.url, "--ttl", "50")
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.DEVNULL, env={**os.environ, **PATIENT}
        )
        await asyncio.wait_for(held.wait(), 60)
        process.send_signal(number)
        assert await process.wait() == status
        await eventually(lambda: server.command("DBSIZE") == b"0")


def test_help_names_the_doctor_and_the_extra_is_named_without_typer() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "aioredlock_ng", "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "doctor" in answer.stdout
    missing = run("doctor", "redis://127.0.0.1", hidden=("typer",))
    assert missing.returncode == 2
    assert 'with its extra "cli"' in missing.stderr
