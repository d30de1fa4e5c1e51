"""Servers that are too old, or lack a command that the scripts call, have no vote, and say so in
words.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import QuorumUnreachable, Redlock
from aioredlock_ng._scripts.catalogue import CALLED, OF_QUEUES, OF_READERS
from tests.support import server_versions, tiers
from tests.support.fake_server import FakeServer, bulk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aioredlock_ng.testing import LocalServer

    StartServer = Callable[..., LocalServer]

AT_HAND = server_versions.at_hand()
VERSIONS = tiers.ends([pytest.param(version.binary, id=version.id) for version in AT_HAND])
NEWEST = AT_HAND[-1]
NAMES = [name for name in CALLED if name not in OF_QUEUES | OF_READERS]


def each_on_the_newest(names: Sequence[str], few: int) -> list[object]:
    """Return pairs of a version and a name.

    The newest version has all names. Each other version has a few, which change by version.
    """
    return [
        *(pytest.param(NEWEST.binary, name, id=f"{NEWEST.id}-{name}") for name in names),
        *tiers.ends(
            [
                pytest.param(version.binary, name, id=f"{version.id}-{name}")
                for place, version in enumerate(AT_HAND[:-1])
                for name in [names[(few * place + more) % len(names)] for more in range(few)]
            ]
        ),
    ]


async def refused(url: str, words: str, **options: Any) -> None:
    """The node is refused, and a caller without any limit is told at once."""
    async with Redlock([url], connect_timeout=30.0, **options) as redlock:
        assert redlock.nodes[0].state == "refused"
        with pytest.raises(QuorumUnreachable, match=words):
            await asyncio.wait_for(redlock.lock("order").acquire(), 30)


@pytest.mark.parametrize(("binary", "name"), each_on_the_newest(NAMES, 3))
async def test_a_server_without_a_command_of_the_scripts_is_refused_by_name(
    binary: Path, name: str, start_server: StartServer
) -> None:
    server = start_server(["--rename-command", name, ""], binary=binary)
    await refused(
        server.url, rf"does not know {name} \(too old, or renamed\); use Redis 6\.2 or newer"
    )


PLAIN: dict[str, Any] = {"fencing": False, "recovery_guard": None}


async def test_without_pexpire_plain_locks_are_refused_too(start_server: StartServer) -> None:
    """They were granted there, and neither renewed nor released."""
    await refused(
        start_server(["--rename-command", "PEXPIRE", ""]).url, "does not know PEXPIRE", **PLAIN
    )


@pytest.mark.parametrize("name", ["ZADD", "TIME"])
async def test_a_server_without_a_command_that_the_settings_do_not_need_is_taken(
    name: str, start_server: StartServer
) -> None:
    server = start_server(["--rename-command", name, ""])
    async with Redlock([server.url], **PLAIN) as redlock, redlock.lock("order") as lease:
        await lease.extend()
        assert server.command("EXISTS", "order") == b"1"
    assert server.command("EXISTS", "order") == b"0"


@pytest.mark.parametrize(("binary", "name"), each_on_the_newest(("EVALSHA", "EVAL"), 1))
async def test_a_server_that_runs_no_scripts_is_refused_by_name(
    binary: Path, name: str, start_server: StartServer
) -> None:
    server = start_server(["--rename-command", name, ""], binary=binary)
    await refused(server.url, f"does not know {name} ")


@pytest.mark.parametrize("version", ["2.8.24", "5.0.14", "6.0.16"])
async def test_a_server_that_says_an_old_version_is_refused_by_version(version: str) -> None:
    async with FakeServer(version) as fake:
        await refused(
            fake.url, rf"is redis {version}, which is too old; use Redis 6\.2 or newer, or Valkey"
        )


async def test_an_old_server_that_hides_its_version_is_refused_by_its_unknown_commands() -> None:
    async with FakeServer(info=b"-NOPERM no\r\n", eval=b"*1\r\n" + bulk("MGET")) as fake:
        await refused(fake.url, "does not know MGET ")


@pytest.mark.parametrize(
    "info",
    [
        "redis_version:6.2.0",
        "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.8",
        "",
    ],
)
async def test_servers_of_a_new_enough_or_hidden_version_are_accepted(info: str) -> None:
    async with (
        FakeServer(info=bulk(f"{info}\r\nrole:master\r\n")) as fake,
        Redlock([fake.url], recovery_guard=None, connect_timeout=30.0) as redlock,
    ):
        assert redlock.nodes[0].state == "up"


@pytest.mark.parametrize(
    ("binary", "lacking"),
    [
        *each_on_the_newest(("-eval", "-mget", "-time", "-zadd"), 1),
        pytest.param(NEWEST.binary, "-@all", marks=pytest.mark.slow),
    ],
)
async def test_a_missing_right_is_not_reported_as_a_missing_command(
    binary: Path, lacking: str, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", "&*", "+@all", lacking)
    url = f"redis://locks:word@{server.address}"
    async with Redlock([url], node_timeout=1.0, connect_timeout=30.0) as redlock:
        assert redlock.nodes[0].state in ("up", "quarantined")
        assert "does not know" not in redlock.nodes[0].reason


async def test_the_trial_commands_are_in_the_single_write_of_the_handshake_and_touch_no_key() -> (
    None
):
    """The fake server answers only after the last command.

    A client that waited for an answer in between would wait for ever.
    """
    answers: list[bytes] = []

    def later(reply: bytes) -> Callable[[list[bytes]], bytes]:
        def answer(words: list[bytes]) -> bytes:
            # Before INFO it is redis-py that asks.
            if not answers and words[0] != b"INFO":
                return reply
            answers.append(reply)
            return b""

        return answer

    def last(_: list[bytes]) -> bytes:
        gathered, answers[:] = b"".join([*answers, b"*0\r\n"]), []
        return gathered

    said = bulk("redis_version:7.0.15\r\nrole:master\r\n")
    async with FakeServer(
        info=later(said),
        client=later(b"+OK\r\n"),
        script=later(b"+sha\r\n"),
        eval=later(b"*0\r\n"),
        evalsha=last,
    ) as fake:
        async with Redlock([fake.url], recovery_guard=None, connect_timeout=30) as redlock:
            assert redlock.nodes[0].state == "up"
        tries = [words for words in fake.asked if words[0] in (b"EVAL", b"EVALSHA")][:2]
    assert [words[2] for words in tries] == [b"0", b"0"], "no keys"
