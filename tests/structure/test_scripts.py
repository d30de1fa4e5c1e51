"""The Lua files: known to servers by the SHA that we compute, the same bytes on every machine, each with its header."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from aioredlock_ng._scripts.kinds import SCRIPTS

if TYPE_CHECKING:
    from aioredlock_ng._scripts import Script
    from tests.support.node_set import NodeSet

every_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)


async def test_every_server_names_the_scripts_by_our_sha(node_of_each_version: NodeSet) -> None:
    async with Redis.from_url(node_of_each_version.urls[0]) as client:
        for script in SCRIPTS:
            assert str(await client.script_load(script.source.decode())) == script.sha.decode()


def test_every_lua_file_is_loaded() -> None:
    files = {entry.name for entry in resources.files("aioredlock_ng._scripts").iterdir() if entry.name.endswith(".lua")}
    assert files == {f"{script.name}.lua" for script in SCRIPTS}


@every_script
def test_a_script_opens_with_what_it_takes_and_returns(script: Script) -> None:
    header = []
    for line in script.source.decode("ascii").splitlines():
        if not line.startswith("--"):
            break
        header.append(line)
    text = "\n".join(header)
    assert "-- KEYS" in text
    assert "-- Returns" in text
    assert ("-- ARGV" in text) == (b"ARGV" in script.source.replace(text.encode(), b""))


@every_script
def test_a_script_is_stored_with_unix_line_ends(script: Script) -> None:
    stored = resources.files("aioredlock_ng._scripts").joinpath(f"{script.name}.lua").read_bytes()
    assert b"\r" not in stored
    assert stored == script.source
