"""A password appears nowhere: whatever a server quotes, and whatever a parser says of a URL that it
cannot read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from redis.asyncio import Redis, Sentinel
from redis.credentials import CredentialProvider, UsernamePasswordCredentialProvider

from aioredlock_ng import ConfigurationError, QuorumUnreachable, Redlock
from aioredlock_ng.compat.aioredlock import Aioredlock, SentinelConfigError
from aioredlock_ng.compat.aioredlock import Sentinel as CompatSentinel
from tests.support.fake_server import FakeServer, bulk
from tests.support.said import everything_said

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.events import Event

PLAIN = "s3cr3t-w0rd"
SPELT = 's3cr3t/"w0rd@\u00e9'
MARK = "s3cr3t"
"""The beginning of both, in every spelling."""


class Provider(CredentialProvider):
    """Hands out a new password each time, as a cloud's does."""

    def __init__(self) -> None:
        self.given = 0

    def get_credentials(self) -> tuple[str, str]:
        self.given += 1
        return "u", f"{self.given}-{PLAIN}"


def by_url(fake: FakeServer, password: str) -> object:
    return f"redis://u:{quote(password, safe='')}@127.0.0.1:{fake.port}"


def by_option(fake: FakeServer, password: str) -> object:
    return f"redis://127.0.0.1:{fake.port}?username=u&password={quote(password, safe='')}"


def by_client(fake: FakeServer, password: str) -> object:
    return Redis(port=fake.port, username="u", password=password)


def by_provider(fake: FakeServer, password: str) -> object:
    return Redis(
        port=fake.port, credential_provider=UsernamePasswordCredentialProvider("u", password)
    )


def by_own_provider(fake: FakeServer, password: str) -> object:
    return Redis(port=fake.port, credential_provider=Provider())


OPENED: list[bytes] = []
"""The password as the fake heard it last."""


def quoting(begin: str) -> Callable[[list[bytes]], bytes]:
    """Refuse with the words of the command, as a careless proxy does."""

    def answer(words: list[bytes]) -> bytes:
        return b"-%b: %b\r\n" % (
            begin.encode(),
            b" ".join(words).replace(b"\r", b"").replace(b"\n", b""),
        )

    return answer


def remembering(words: list[bytes]) -> bytes:
    OPENED[:] = words[-1:]
    return b"%1\r\n+proto\r\n:3\r\n"


def telling(begin: str) -> Callable[[list[bytes]], bytes]:
    """Refuse with the password of the connection."""
    return lambda words: (
        b"-%b you came with %b and %b\r\n"
        % (
            begin.encode(),
            OPENED[0],
            quote(OPENED[0], safe="").encode(),
        )
    )


STAGES: dict[str, dict[str, Any]] = {
    "HELLO and AUTH are quoted": {"hello": quoting("ERR bad"), "auth": quoting("ERR bad")},
    "a wrong password is quoted": {"hello": quoting("WRONGPASS bad")},
    "INFO is refused": {"hello": remembering, "info": telling("NOPERM")},
    "INFO shows it": {
        "hello": remembering,
        "info": lambda _: bulk(
            f"redis_version:7.0.15\r\nrole:slave\r\nmaster_host:{OPENED[0].decode()}\r\n"
        ),
    },
    "tracking is refused": {"hello": remembering, "client": telling("ERR")},
    "scripts are refused": {
        "hello": remembering,
        "evalsha": telling("ERR"),
        "eval": telling("ERR"),
    },
    "its marker is refused": {
        "hello": remembering,
        "evalsha": telling("NOPERM"),
        "eval": telling("NOPERM"),
    },
}


CASES = [
    *((stage, password, by_url) for stage in STAGES for password in (PLAIN, SPELT)),
    # This way has the plain password only.
    *((stage, PLAIN, by_own_provider) for stage in STAGES),
    *(
        (stage, SPELT, way)
        for stage in ("HELLO and AUTH are quoted", "scripts are refused")
        for way in (by_option, by_client, by_provider)
    ),
]


@pytest.mark.parametrize(("stage", "password", "way"), CASES)
async def test_a_password_that_a_server_quotes_is_shown_nowhere(
    stage: str,
    password: str,
    way: Callable[[FakeServer, str], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    events: list[Event] = []
    async with FakeServer(**STAGES[stage]) as fake:
        node: Any = way(fake, password)
        async with Redlock(
            [node], connect_timeout=5, node_timeout=0.2, sinks=[events.append]
        ) as redlock:
            with pytest.raises(QuorumUnreachable) as caught:
                await redlock.lock("order", blocking_timeout=0.1).acquire()
            said += [
                everything_said(caught.value),
                repr(caught.value.votes),
                repr(redlock.nodes),
                repr(events),
            ]
            diagnosis = await redlock.diagnose(watch=0.01)
            said.append(repr(diagnosis))
    assert any(MARK.encode() in word for words in fake.asked for word in words), (
        "the server has heard it"
    )
    text = "\n".join([*said, caplog.text, *(repr(record.args) for record in caplog.records)])
    assert MARK not in text
    # The rest of the words is still there.
    assert "***" in text


@pytest.mark.slow
async def test_a_sentinels_password_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    class Own(CredentialProvider):
        def get_credentials(self) -> tuple[str, str]:
            return "u", PLAIN

    async with FakeServer(hello=quoting("ERR bad"), auth=quoting("WRONGPASS bad")) as fake:
        for settings in (
            {"username": "u", "password": PLAIN},
            {"credential_provider": UsernamePasswordCredentialProvider("u", PLAIN)},
            {"credential_provider": Own()},
        ):
            asking: Any = {**settings, "protocol": 2}
            sentinel = Sentinel([("127.0.0.1", fake.port)], sentinel_kwargs=asking)
            async with Redlock([sentinel.master_for("primary")]) as redlock:
                with pytest.raises(QuorumUnreachable) as caught:
                    await redlock.lock("order").try_acquire()
                assert redlock.nodes[0].reason
                text = everything_said(caught.value) + repr(redlock.nodes) + caplog.text
                assert MARK not in text
            await sentinel.aclose()
    assert any(MARK.encode() in word for words in fake.asked for word in words), (
        "the Sentinel has heard it"
    )


URLS = [
    "redis://127.0.0.1?db={}",
    "redis://127.0.0.1?socket_timeout={}",
    "redis://u:{}@127.0.0.1:99999",
    "redis://u:{}@127.0.0.1?db=x",
    "redis://127.0.0.1?password={}&ssl_cert_reqs=x",
    "redis://:[{}@127.0.0.1",
    "redis://u:x[{}]y@127.0.0.1",
    "redis://u:\uff1a{}@127.0.0.1",
    "redis://:x/{}@127.0.0.1",
]


def test_no_error_behind_a_refused_url_shows_its_password() -> None:
    for url in URLS:
        filled = url.format(PLAIN)
        with pytest.raises(ConfigurationError) as caught:
            Redlock([filled])
        assert MARK not in everything_said(caught.value), url
        with pytest.raises(ConfigurationError) as caught:
            Redlock.from_env({"AIOREDLOCK_NG_NODES": filled})
        assert MARK not in everything_said(caught.value), url


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "url", ["redis://:x/{}@127.0.0.1:1/0", "redis://:{}/x@h:1/0", "redis://:[{}@h:1/0"]
)
def test_no_error_of_a_migrated_programs_url_shows_its_password(url: str) -> None:
    filled = url.format(PLAIN)
    for refused in (lambda: Aioredlock([filled]), lambda: CompatSentinel(filled, "primary")):
        with pytest.raises((ConfigurationError, SentinelConfigError)) as caught:
            refused()
        assert MARK not in everything_said(caught.value)
