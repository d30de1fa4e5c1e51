"""The Lua files: known to servers by the SHA that we compute, the same bytes on every machine, each
with its header.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from redis.asyncio import Redis

from aioredlock_ng._scripts.catalogue import CALLED, COMMANDS, SCRIPTS

if TYPE_CHECKING:
    from aioredlock_ng._scripts import Script
    from tests.support.node_set import NodeSet

FOLDER = resources.files("aioredlock_ng._scripts").joinpath("lua")
PART = re.compile(r"^ *-- part: (\w+)$", re.MULTILINE)

EVERY: tuple[Script, ...] = (*SCRIPTS, COMMANDS.script)


def stored(name: str) -> str:
    """Return a Lua file as it is in the package."""
    return FOLDER.joinpath(f"{name}.lua").read_bytes().decode("ascii")


async def test_every_server_names_the_scripts_by_our_sha(node_of_each_version: NodeSet) -> None:
    async with Redis.from_url(node_of_each_version.urls[0]) as client:
        for script in SCRIPTS:
            assert str(await client.script_load(script.source.decode())) == script.sha.decode()


def test_every_lua_file_but_the_one_sent_in_full_is_loaded() -> None:
    files = {entry.name for entry in FOLDER.iterdir() if entry.name.endswith(".lua")}
    assert files == {f"{script.name}.lua" for script in (*SCRIPTS, COMMANDS.script)}


def test_a_script_opens_with_its_keys_arguments_and_return_values() -> None:
    for script in EVERY:
        header = []
        for line in stored(script.name).splitlines():
            if not line.startswith("--") or PART.fullmatch(line):
                break
            header.append(line)
        text = "\n".join(header)
        assert "-- KEYS" in text, script.name
        assert "-- Returns" in text, script.name
        arguments = "ARGV" in stored(script.name).replace(text, "")
        assert ("-- ARGV" in text) == arguments, script.name


def test_a_script_is_sent_with_its_parts_in_place_and_without_comments() -> None:
    for script in EVERY:
        text = stored(script.name)
        while found := PART.search(text):
            part = found[1]
            text = re.sub(
                rf"^ *-- part: {part}\n",
                lambda _, part=part: stored(f"parts/{part}"),
                text,
                flags=re.MULTILINE,
            )
        assert "\r" not in text, script.name
        lines = [line.strip(" ") for line in text.split("\n")]
        code = [line + "\n" for line in lines if line and not line.startswith("--")]
        assert "".join(code).encode("ascii") == script.source, script.name


def test_every_part_is_used_and_none_takes_keys_and_arguments_of_its_own() -> None:
    """A part that opens with what it does is not mistaken for a script."""
    parts = {entry.name.removesuffix(".lua") for entry in FOLDER.joinpath("parts").iterdir()}
    texts = [
        *(stored(script.name) for script in SCRIPTS),
        *(stored(f"parts/{part}") for part in parts),
    ]
    assert parts == {part for text in texts for part in PART.findall(text)}
    for part in parts:
        text = stored(f"parts/{part}")
        assert text.startswith("-- ")
        assert "ARGV" not in text


def test_each_name_that_scripts_give_to_keys_and_values_is_spelled_in_one_line() -> None:
    """A name with two spellings could get a mistake in one of them."""
    lines: dict[str, list[str]] = {}
    for path in Path(str(FOLDER)).rglob("*.lua"):
        for line in path.read_text("ascii").splitlines():
            if not line.lstrip().startswith("--"):
                for name in re.findall(r"aioredlock_ng:\w*:?", line):
                    lines.setdefault(name, []).append(f"{path.name}: {line.strip()}")
    assert lines.keys() > {"aioredlock_ng:queue:", "aioredlock_ng:offer:", "aioredlock_ng:owner:"}
    assert {name: found for name, found in lines.items() if len(found) > 1} == {}


GLOBAL = frozenset(
    {"KEYS", "ARGV", "redis", "string", "math", "table", "error", "ipairs", "pcall"}
    | {"tonumber", "type", "unpack"}
)
KEYWORDS = frozenset(
    {"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in"}
    | {"local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while"}
)
TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[A-Za-z_]\w*|\d\w*|\.\.|[^\s\w]")


def undeclared(source: str) -> set[str]:
    """Return the names that a Lua source uses outside the scope of their declarations."""
    tokens = [token for token in TOKEN.findall(source) if not token.startswith("'")]
    scopes: list[set[str]] = [set(GLOBAL)]
    found: set[str] = set()
    # The names of a loop, which the next block declares.
    coming: list[str] = []
    closing = False
    at = 0
    while at < len(tokens):
        token, before = tokens[at], tokens[at - 1] if at else ""
        if closing and token in KEYWORDS - {"and", "or", "not"}:
            closing = False
            scopes.pop()
        if token == "local" and tokens[at + 1] != "function":
            names = [tokens[at := at + 1]]
            while tokens[at + 1] == ",":
                names.append(tokens[at := at + 2])
            # The check misses the use of a name in the value of its own declaration.
            scopes[-1] |= set(names)
        elif token == "function":
            if tokens[at + 1] != "(":
                scopes[-1].add(tokens[at := at + 1])
            end = tokens.index(")", at)
            scopes.append({name for name in tokens[at + 2 : end] if name != ","})
            at = end
        elif token == "for":
            end = min(tokens.index(mark, at) for mark in ("=", "in") if mark in tokens[at:])
            coming, at = [name for name in tokens[at + 1 : end] if name != ","], end
        elif token in ("do", "then", "repeat"):
            scopes.append(set(coming))
            coming = []
        elif token in ("else", "elseif"):
            scopes.pop()
            if token == "else":
                scopes.append(set())
        elif token == "end":
            scopes.pop()
        elif token == "until":
            # The condition still sees the names of its block.
            closing = True
        elif (token[0].isalpha() or token[0] == "_") and token not in KEYWORDS:
            is_field = before == "." or (before in ("{", ",") and tokens[at + 1] == "=")
            if not is_field and not any(token in scope for scope in scopes):
                found.add(token)
        at += 1
    return found


def test_a_script_uses_each_name_within_the_scope_of_its_declaration() -> None:
    """A server would notice another name only when the line runs, and few lines run often."""
    assert undeclared("local a = 1 if a then local b = a end return b") == {"b"}
    assert undeclared("local function f(x) return x end return f(x)") == {"x"}
    assert undeclared("repeat local a = 1 until a for i = 1, 2 do f(i) end return i") == {"f", "i"}
    assert {script.name: undeclared(script.source.decode()) for script in EVERY} == {
        script.name: set() for script in EVERY
    }


def test_the_names_of_all_commands_that_scripts_call_are_declared() -> None:
    """The doctor names rights by that list, and a new connection asks whether the server knows its
    commands.
    """
    sources = [script.source.decode() for script in SCRIPTS]
    called = {
        name
        for source in sources
        for name in re.findall(r"(?:redis\.p?call|\bask)\('([A-Z]+)'", source)
    }
    # The scripts also work without these two, and call them in protected calls.
    assert called - {"PUBSUB", "TYPE"} == set(CALLED)
    assert len(CALLED) == len(set(CALLED))


READS = ("get", "mget", "pttl", "ttl", "exists", "strlen", "zscore", "zmscore")


async def test_the_reads_of_a_script_do_not_grow_with_the_names_of_a_lock(
    node_of_each_version: NodeSet,
) -> None:
    """Up to Redis 7.0 each of them tracks all keys of the script: a read per name costs the square
    of their number.
    """
    trust, fence = "run:1000", "5"
    steps: list[tuple[str, bool, tuple[str, ...]]] = [
        ("acquire", False, ("one", "60000")),
        ("acquire", False, ("two", "60000")),
        ("release", False, ("one",)),
        ("acquire_guarded", True, ("one", "60000", trust, fence, "", "", "slot")),
        ("acquire_guarded", True, ("two", "60000", trust, fence, "", "", "slot")),
        ("repair", True, ("one", "60000", trust, fence, "slot")),
        ("release", False, ("one",)),
        ("repair", True, ("one", "60000", trust, fence, "slot")),
        ("release", False, ("one",)),
    ]
    sources = {script.name: script.source.decode() for script in SCRIPTS}

    async with Redis.from_url(node_of_each_version.urls[0]) as client:

        async def reads(count: int) -> list[tuple[str, int]]:
            names, found = [f"name-{index}" for index in range(count)], []
            for script, guarded, arguments in steps:
                keys = [*names, "marker", "counters"] if guarded else names
                await client.set("marker", trust)
                found.append((script, await counted(script, keys, arguments)))
            await client.eval(sources["acquire"], count, *names, "one", "60000")
            for script, keys, arguments in (
                ("confirm", [*names, "counters"], ("one", "9", "slot")),
                ("extend", names, ("60000", *["one"] * count)),
                ("watch", names, ("one",) * count),
            ):
                found.append((script, await counted(script, keys, arguments)))
            await client.delete(*names, "counters")
            return found

        async def counted(script: str, keys: list[str], arguments: tuple[str, ...]) -> int:
            await client.config_resetstat()
            await client.eval(sources[script], len(keys), *keys, *arguments)
            statistics = await client.info("commandstats")
            return sum(statistics.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in READS)

        assert await reads(30) == await reads(3)
