"""No token, stored value or raw reply is in any error, vote, event, log line, state, finding or
line of the command line.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import hiredis
import pytest

from aioredlock_ng import LockLost, QuorumUnreachable, Redlock, RedlockError
from aioredlock_ng._core.inspection import Unknown, look_vote
from aioredlock_ng._core.replies import ForceReleased, Free, Held, NotALock
from aioredlock_ng.compat.aioredlock import Aioredlock, Lock
from tests.cli.commands import Cli
from tests.support import tiers
from tests.support.eventually import eventually
from tests.support.node_set import trust
from tests.support.told import TOKEN, VALUE, Told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

FOUND = {
    "somebody's lock": f"SET {{}} {TOKEN} PX 600000",
    "a cached value": f"SET {{}} {VALUE.replace(' ', '_')} PX 600000",
    "a value for good": f"SET {{}} {VALUE.replace(' ', '_')}",
    "a hash": f"HSET {{}} {VALUE.replace(' ', '_')} {TOKEN}",
    "a list": f"RPUSH {{}} {VALUE.replace(' ', '_')} {TOKEN}",
}
IN_THE_WAY = {
    kind: words
    for kind, words in FOUND.items()
    if kind not in ("somebody's lock", "a cached value")
}


async def walk(urls: list[str], told: Told, name: str = "order") -> None:
    """Ask for a lock in every way, and for all that is known of it and of the nodes."""
    async with Redlock(urls, node_timeout=0.4, sinks=[told]) as redlock:
        await told.by(redlock.lock(name).try_acquire())
        await told.by(redlock.lock(name, blocking_timeout=0.2).acquire())
        await told.by(redlock.lock("free", name, blocking_timeout=0).acquire())
        await told.by(redlock.inspect(name))
        await told.by(redlock.locked(name))
        await told.by(redlock.force_release(name, token="another's"))
        for state in redlock.nodes:
            told(state)
        told(redlock.stats())
        told(await redlock.diagnose(watch=0.1))
    with pytest.deprecated_call():
        manager = Aioredlock(urls, retry_count=1, node_timeout=0.4)
    try:
        await told.by(manager.lock(name))
        note = Lock(manager, name, TOKEN)
        told.texts.append(repr(note))
        for call in (
            manager.unlock(note),
            manager.is_locked(name),
            manager.get_lock(name, "another's"),
            manager.extend(note),
        ):
            await told.by(call)
    finally:
        await manager.destroy()


@pytest.mark.parametrize("found", FOUND)
async def test_no_output_shows_the_value_under_a_locks_key(
    three_nodes: NodeSet, told: Told, found: str
) -> None:
    for node in three_nodes:
        trust(node)
        node.command(*FOUND[found].format("order").split())
    await walk(three_nodes.urls, told)


@pytest.mark.faults
@pytest.mark.parametrize("found", tiers.ends([*FOUND]))
async def test_no_error_without_a_quorum_shows_the_value_under_a_locks_key(
    three_nodes: NodeSet, told: Told, found: str
) -> None:
    three_nodes[0].command(*FOUND[found].format("order").split())
    async with Redlock(
        three_nodes.urls, node_timeout=3.0, recovery_guard=None, sinks=[told]
    ) as redlock:
        for index in (1, 2):
            three_nodes.pause(index)
        calls = (redlock.inspect, redlock.locked, redlock.force_release)
        for error in await asyncio.gather(
            *(call("order") for call in calls), return_exceptions=True
        ):
            assert isinstance(error, QuorumUnreachable)
            vote = error.votes[0]
            assert vote.outcome == ("not a lock" if found in ("a hash", "a list") else "held")
            told(error)
        for index in (1, 2):
            three_nodes.resume(index)


@pytest.mark.parametrize("found", IN_THE_WAY)
async def test_a_refused_force_release_names_all_but_the_value(
    three_nodes: NodeSet, told: Told, found: str
) -> None:
    for node in three_nodes:
        node.command(*FOUND[found].format("order").split())
    async with Redlock(three_nodes.urls, node_timeout=5.0, recovery_guard=None) as redlock:
        with pytest.raises(RedlockError) as caught:
            await redlock.force_release("order")
        kind = "a string" if found == "a value for good" else found
        for address in (node.address for node in redlock.nodes):
            assert "the key 'order' is not a lock; " in str(caught.value)
            assert f"{address} ({kind} without expiry)" in str(caught.value)
        told(caught.value)
        assert three_nodes.keys() == [{"order"}] * 3
        info = await redlock.inspect("order")
        assert {answer.foreign for answer in info.answers} == {kind.removeprefix("a ")}
        assert info.held, "nobody can acquire it"
        assert await redlock.force_release("order", any_key=True) == 3
        assert three_nodes.keys() == [set()] * 3


@pytest.mark.faults
async def test_the_token_of_a_lease_is_in_no_error_event_or_log_line(
    three_nodes: NodeSet, told: Told
) -> None:
    three_nodes.found()
    async with Redlock(three_nodes.urls, node_timeout=0.4, sinks=[told]) as redlock:
        lease = await redlock.lock("order").acquire()
        with contextlib.suppress(LockLost):
            async with lease_of(redlock, told) as tokens:
                for index in (1, 2):
                    three_nodes.pause(index)
                await told.by(lease.verify())
                await told.by(lease.extend())
                for index in (1, 2):
                    three_nodes.resume(index)
                await eventually(lambda: not any(node.pending for node in redlock.nodes))
                for node in three_nodes:
                    node.command("DEL", "order", "mine")
                await asyncio.sleep(30)
        await told.by(lease.verify())
        await told.by(lease.extend())
        told.texts.append(repr(lease))
    told.assert_harmless(lease.token, *tokens)


@contextlib.asynccontextmanager
async def lease_of(redlock: Redlock, told: Told) -> AsyncIterator[list[str]]:
    """A lock that is held by a body: its loss is told by an error."""
    tokens: list[str] = []
    try:
        async with redlock.lock("mine") as lease:
            tokens.append(lease.token)
            yield tokens
    except LockLost as lost:
        told(lost)
        raise


@pytest.mark.slow
@pytest.mark.once
def test_the_command_line_shows_the_beginning_of_tokens_and_no_value(
    three_nodes: NodeSet, told: Told
) -> None:
    for node in three_nodes:
        trust(node)
        for kind, words in FOUND.items():
            node.command(*words.format(kind.replace(" ", "-")).split())
    cli = Cli(three_nodes.urls)
    names = [kind.replace(" ", "-") for kind in FOUND]
    calls = [
        ("ls", "--all"),
        ("ls",),
        ("top", "--once"),
        ("doctor", "--watch", "0.1"),
        ("doctor", "--watch", "0.1", "--json"),
    ]
    calls += [
        (command, name, *more)
        for command, *more in (("inspect",), ("wait", "-w", "0"))
        for name in names
    ]
    calls += [
        ("release", name, "--force", *more) for name in names for more in ((), ("--any-key",))
    ]
    calls += [("inspect", kind.replace(" ", "-"), "--json") for kind in IN_THE_WAY]
    for call in calls:
        done = cli(*call, input="n\n")
        assert "Traceback" not in done.stderr
        told.texts += [done.stdout, done.stderr]
        if call[:2] == ("release", "a-hash") and "--any-key" not in call:
            assert done.returncode == 2
            assert "nothing was released: on 127.0.0.1:" in done.stderr
            assert "the key 'a-hash' is not a lock; " in done.stderr
    assert [len(keys) for keys in list(three_nodes.keys())] == [len(FOUND)] * 3, (
        "nothing was deleted"
    )
    assert (
        cli("release", "a-hash", "--force", "--any-key", input="y\n").stdout
        == "a-hash: deleted on 3 of 3 nodes\n"
    )


def array(*items: bytes) -> bytes:
    return b"*%d\r\n%b" % (len(items), b"".join(items))


def bulk(text: str) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text.encode())


LIES: dict[str, bytes | None] = {
    "a value": bulk(VALUE),
    "a status": f"+{VALUE}\r\n".encode(),
    "a token": array(bulk(TOKEN)),
    "what looks hold": array(array(b":10000\r\n", bulk(TOKEN), bulk(VALUE))),
    "a map": b"%1\r\n" + bulk(TOKEN) + bulk(VALUE),
    "our own command": None,
}


@contextlib.asynccontextmanager
async def liar(lie: bytes | None, run_id: str) -> AsyncIterator[str]:
    """A server that gets on with every client, and answers all that matters with a lie; None: it
    quotes what it is asked.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = hiredis.Reader()
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                parser.feed(data)
                words: Any
                while (words := parser.gets()) is not False:
                    writer.write(answer(words))
        writer.close()

    def answer(words: list[bytes]) -> bytes:
        match words[0].upper():
            case b"HELLO":
                return b"%1\r\n" + bulk("proto") + b":3\r\n"
            case b"INFO":
                return bulk(f"redis_version:7.0.15\r\nrole:master\r\nrun_id:{run_id}\r\n")
            case b"CLIENT" | b"SCRIPT" if words[1].upper() != b"TRACKING":
                return b"+OK\r\n"
            case _:
                return (
                    lie
                    or b"-ERR cannot do: " + b" ".join(words[:20]).replace(b"\r\n", b" ") + b"\r\n"
                )

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.parametrize("lie", tiers.ends([*LIES]))
async def test_no_output_shows_the_answers_of_a_lying_server(
    one_node: NodeSet, told: Told, lie: str
) -> None:
    async with liar(LIES[lie], "1" * 40) as first, liar(LIES[lie], "2" * 40) as second:
        urls = [first, one_node.urls[0], second]
        await walk(urls, told)
        for command in ("inspect", "ls"):
            done = await asyncio.to_thread(Cli(urls), command, "order")
            assert "Traceback" not in done.stderr
            assert done.returncode == 69 or lie == "what looks hold"
            told.texts += [done.stdout, done.stderr]


async def test_a_server_that_quotes_a_command_it_lacks_does_not_spread_the_token(
    start_server: Callable[..., LocalServer], told: Told
) -> None:
    servers = [start_server(["--rename-command", "EVALSHA", ""]) for _ in range(2)]
    await walk([server.url for server in servers], told, "o")
    assert any("does not know EVALSHA" in text for text in told.texts)


def test_the_vote_of_every_inspection_shows_neither_token_nor_value() -> None:
    looks = [
        Free(),
        Held(9.8, TOKEN.encode(), VALUE.encode()),
        Held(float("inf"), VALUE.encode()),
        NotALock("hash", 3.0),
    ]
    looks += [
        NotALock("other", float("inf")),
        ForceReleased(1),
        ForceReleased(0),
        Unknown(None),
        Unknown([[TOKEN.encode()]]),
    ]
    votes = [str(look_vote("n", look)) for look in looks]
    assert votes == [
        "n: free",
        "n: held (9.8 s left)",
        "n: held (no expiry)",
        "n: not a lock (a hash, 3 s left)",
        "n: not a lock (a key of another type without expiry)",
        "n: free (deleted)",
        "n: unknown (nothing to delete)",
        "n: unknown (no answer in time)",
        "n: unknown (an answer that does not fit the script)",
    ]
