"""Missing ACL rights, tried by doing on every server version at hand: each is named, and what it
costs is told.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import Severity
from aioredlock_ng._doctor.rights import (
    COMMANDS_IN_SCRIPTS,
    COMMANDS_OF_QUEUES,
    COMMANDS_OF_READERS,
)
from aioredlock_ng._scripts.catalogue import CALLED, OF_QUEUES, OF_READERS
from tests.doctor.test_findings_on_servers import examine, of, the
from tests.support import server_versions
from tests.support.spread import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer

    StartServer = Callable[..., LocalServer]

AT_HAND = server_versions.at_hand()
VERSIONS = [pytest.param(version.binary, id=version.id) for version in AT_HAND]
ACL_DOC = Path(__file__).parents[2] / "docs" / "acl.md"

ERROR, WARNING, INFO = Severity

RIGHTS = {
    "evalsha": ERROR,
    "eval": ERROR,
    "set": ERROR,
    "get": ERROR,
    "mget": ERROR,
    "pttl": ERROR,
    "pexpire": ERROR,
    "del": ERROR,
    "zadd": ERROR,
    "zscore": ERROR,
    "time": ERROR,
    "zrange": WARNING,
    "zrevrange": WARNING,
    "zrank": WARNING,
    "zrem": WARNING,
    "exists": WARNING,
    "zremrangebyscore": WARNING,
    "pexpireat": WARNING,
    "script|load": INFO,
    "client|tracking": WARNING,
    "client|caching": WARNING,
    "subscribe": WARNING,
    "publish": WARNING,
    "info": WARNING,
    "config|get": INFO,
}

KEYS = ["~lock:*", "~aioredlock_ng:*", "resetchannels", "&aioredlock_ng:*"]
ALL = [f"+{right}" for right in RIGHTS]
BESIDE_LABELS = [
    f"~aioredlock_ng:{key}" for key in ("marker", "fences", "queue:*", "slots:*", "readers:*")
]


OWN_WORDS = {
    "script|load",
    "client|tracking",
    "client|caching",
    "subscribe",
    "publish",
    "config|get",
}
"""Rights to subcommands and channels. The servers differ in these rights and in their refusals."""

MISSING = [
    *((right, version) for right in RIGHTS if right in OWN_WORDS for version in AT_HAND),
    *rows([right for right in RIGHTS if right not in OWN_WORDS], AT_HAND, 0),
]
"""The servers check all other rights in the same way, so one version for each right is enough."""


@pytest.mark.parametrize(
    ("missing", "binary"),
    [pytest.param(right, version.binary, id=f"{right}-{version.id}") for right, version in MISSING],
)
async def test_a_missing_right_is_named_and_nothing_else(
    missing: str, binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary, appendonly=True)
    rights = [right for right in ALL if right != f"+{missing}"]
    server.command("ACL", "SETUSER", "locks", "on", ">word", *KEYS, *rights)
    diagnosis = await examine([f"redis://locks:word@{server.address}"])
    finding = the(diagnosis, "missing-right")
    assert finding.severity is RIGHTS[missing]
    assert f"no right to {missing}: " in finding.what
    assert f"+{missing} " in finding.remedy
    assert diagnosis.nodes[0].granted == (missing not in ("evalsha", "set", "get", "zadd"))
    assert not of(diagnosis, "refused")
    # Without the right to DEL, the doctor's key stays until its ttl is over.
    assert (server.command("DBSIZE") == b"0") == (missing != "del")


@pytest.mark.parametrize("binary", VERSIONS)
async def test_a_key_outside_the_users_pattern_is_a_finding_with_the_remedy(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    server.command("ACL", "SETUSER", "locks", "on", ">word", *KEYS, "+@all")
    url = f"redis://locks:word@{server.address}"
    finding = the(await examine([url], probe="another"), "missing-right")
    assert finding.severity is ERROR
    assert "no right to the doctor's key" in finding.what
    assert "--probe" in finding.remedy
    assert not of(await examine([url], probe="lock:another"), "missing-right")
    assert not of(await examine([url], probe="another", key_format="lock:{name}"), "missing-right")


@pytest.mark.parametrize("binary", VERSIONS)
async def test_the_librarys_own_keys_outside_the_users_pattern_are_a_finding(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~lock:*", "&*", "+@all")
    url = f"redis://locks:word@{server.address}"
    finding = the(await examine([url]), "missing-right")
    assert finding.severity is ERROR
    assert "the library's own keys" in finding.what
    assert "~aioredlock_ng:*" in finding.remedy
    # Without fences and the guard they are needed for the order of waiters alone.
    finding = the(await examine([url], fencing=False, recovery_guard=None), "missing-right")
    assert finding.severity is WARNING
    assert "the library's own keys" in finding.what
    assert "~aioredlock_ng:*" in finding.remedy
    assert "no order" in finding.meaning


@pytest.mark.parametrize("binary", VERSIONS)
async def test_queues_of_slots_and_readers_outside_the_users_pattern_are_a_finding(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    own = ("marker", "fences", "queue:*", "owner:*")
    server.command(
        "ACL",
        "SETUSER",
        "locks",
        "on",
        ">word",
        "~lock:*",
        *(f"~aioredlock_ng:{key}" for key in own),
        "&*",
        "+@all",
    )
    url = f"redis://locks:word@{server.address}"
    finding = the(await examine([url]), "missing-right")
    assert finding.severity is WARNING
    assert "the library's own keys" in finding.what
    assert "~aioredlock_ng:*" in finding.remedy
    server.command("ACL", "SETUSER", "locks", "~aioredlock_ng:slots:*")
    assert of(await examine([url]), "missing-right"), "the queues of readers"
    server.command("ACL", "SETUSER", "locks", "~aioredlock_ng:readers:*")
    assert not of(await examine([url]), "missing-right")


@pytest.mark.parametrize("binary", VERSIONS)
async def test_keys_of_labels_outside_the_users_pattern_are_a_finding(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    server.command(
        "ACL", "SETUSER", "locks", "on", ">word", "~lock:*", *BESIDE_LABELS, "&*", "+@all"
    )
    url = f"redis://locks:word@{server.address}"
    diagnosis = await examine([url])
    finding = the(diagnosis, "missing-right")
    assert finding.severity is WARNING
    assert "the library's own keys" in finding.what
    assert "~aioredlock_ng:*" in finding.remedy
    assert "Locks work" in finding.meaning
    assert "Election.leader" in finding.meaning
    assert diagnosis.nodes[0].granted
    assert server.command("DBSIZE") == b"0"
    # Managers with these options write no labels.
    assert not of(await examine([url], owner=False), "missing-right")
    assert not of(await examine([url], fencing=False, recovery_guard=None), "missing-right")
    server.command("ACL", "SETUSER", "locks", "~aioredlock_ng:owner:*")
    assert not (await examine([url])).nodes[0].refusals


@pytest.mark.parametrize(
    "rule",
    [
        "%R~aioredlock_ng:owner:*",
        "%W~aioredlock_ng:owner:*",
        # No script may have a lock's key and its label together.
        "(~aioredlock_ng:owner:* +set +get +mget +del)",
        # The label of a read lease ends with a part of its token.
        "~aioredlock_ng:owner:*:doctor:????????????????",
    ],
)
async def test_a_right_to_labels_that_is_too_small_is_a_finding(
    rule: str, start_server: StartServer
) -> None:
    server = start_server()
    server.command(
        "ACL", "SETUSER", "locks", "on", ">word", "~lock:*", *BESIDE_LABELS, "&*", "+@all", rule
    )
    diagnosis = await examine([f"redis://locks:word@{server.address}"])
    assert "Election.leader" in the(diagnosis, "missing-right").meaning
    assert server.command("DBSIZE") == b"0"


async def test_a_pattern_for_locks_that_excludes_slots_is_no_error(
    start_server: StartServer,
) -> None:
    server = start_server()
    server.command(
        "ACL",
        "SETUSER",
        "locks",
        "on",
        ">word",
        "~*:lock",
        "~*:lock:fences",
        "~aioredlock_ng:*",
        "&*",
        "+@all",
    )
    diagnosis = await examine([f"redis://locks:word@{server.address}"], key_format="{name}:lock")
    assert not of(diagnosis, "missing-right")
    assert diagnosis.nodes[0].granted


@pytest.mark.parametrize("binary", VERSIONS)
async def test_the_librarys_channels_outside_the_users_pattern_are_a_finding(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    server.command(
        "ACL", "SETUSER", "locks", "on", ">word", "resetchannels", "&another:*", "~*", "+@all"
    )
    diagnosis = await examine([f"redis://locks:word@{server.address}"])
    finding = the(diagnosis, "missing-right")
    assert finding.severity is WARNING
    assert "the library's channels" in finding.what
    assert "&aioredlock_ng:*" in finding.remedy
    assert diagnosis.nodes[0].messages is False


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"fencing": False, "recovery_guard": None}, set()),
        ({"fencing": True, "recovery_guard": None}, {"zadd", "zscore"}),
        ({"fencing": False, "recovery_guard": "auto"}, {"time"}),
    ],
)
async def test_only_missing_rights_that_the_settings_need_are_errors(
    options: dict[str, Any], needed: set[str], start_server: StartServer
) -> None:
    server = start_server()
    rights = [right for right in ALL if right not in ("+zadd", "+zscore", "+time")]
    server.command("ACL", "SETUSER", "locks", "on", ">word", *KEYS, *rights)
    diagnosis = await examine([f"redis://locks:word@{server.address}"], **options)
    wrong = [
        finding.what
        for finding in diagnosis.findings
        if finding.severity is ERROR and finding.code == "missing-right"
    ]
    assert {what.partition("no right to ")[2].partition(":")[0] for what in wrong} == needed


@pytest.mark.parametrize("binary", VERSIONS)
async def test_missing_rights_that_only_readers_need_are_warnings_about_readers(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(binary=binary)
    rights = [right for right in ALL if right not in ("+zremrangebyscore", "+pexpireat")]
    server.command("ACL", "SETUSER", "locks", "on", ">word", *KEYS, *rights)
    diagnosis = await examine([f"redis://locks:word@{server.address}"])
    findings = of(diagnosis, "missing-right")
    assert [finding.severity for finding in findings] == [WARNING, WARNING]
    assert all("no read leases" in finding.meaning for finding in findings)
    assert diagnosis.nodes[0].granted
    assert server.command("DBSIZE") == b"0"


async def test_several_missing_rights_are_several_findings(start_server: StartServer) -> None:
    server = start_server()
    server.command(
        "ACL", "SETUSER", "locks", "on", ">word", "~*", "+evalsha", "+info", "+client|tracking"
    )
    diagnosis = await examine([f"redis://locks:word@{server.address}"])
    named = {
        finding.what.partition("no right to ")[2].partition(":")[0]
        for finding in of(diagnosis, "missing-right")
    }
    assert named >= {"eval", "get", "pttl", "set", "pexpire", "del", "script|load", "time"}


async def test_no_right_to_the_database_is_named(start_server: StartServer) -> None:
    server = start_server()
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", *ALL)
    finding = the(await examine([f"redis://locks:word@{server.address}/2"]), "missing-right")
    assert finding.severity is ERROR
    assert "no right to select" in finding.what


@pytest.mark.parametrize("binary", VERSIONS)
async def test_the_rights_in_the_docs_satisfy_the_doctor(
    binary: Path, start_server: StartServer
) -> None:
    server = start_server(["--appendfsync", "always"], binary=binary, appendonly=True)
    lines = re.findall(r"^ACL SETUSER .*$", ACL_DOC.read_text(), re.MULTILINE)
    assert lines
    for line in lines:
        server.command(*line.split())
    diagnosis = await examine([f"redis://locks:password@{server.address}"])
    assert diagnosis.nodes[0].granted
    assert {finding.code for finding in diagnosis.findings if finding.severity is not INFO} == {
        "single-node"
    }
    assert diagnosis.nodes[0].trust == "none"


def test_the_page_names_the_rights_that_the_doctor_does_not_try() -> None:
    page = ACL_DOC.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^ ].*?) \| ", page, re.MULTILINE)
    listed = {right for row in rows for right in re.findall(r"`([a-z|]+)`", row.replace("\\", ""))}
    # `test_no_right_to_the_database_is_named` tries `select`.
    assert listed > {*RIGHTS, "select"}
    untried = re.search(r"The doctor does not try ([^.]+)\.", " ".join(page.split()))
    assert untried
    assert set(re.findall(r"`([a-z|]+)`", untried[1])) == listed - {*RIGHTS, "select"}


def test_every_command_in_a_script_can_be_tried_by_itself() -> None:
    # The scripts can do without TYPE: it only names what is not a lock.
    of_waiters = COMMANDS_OF_QUEUES.keys() | {"PUBLISH"}
    assert set(CALLED) == COMMANDS_IN_SCRIPTS.keys() | of_waiters | COMMANDS_OF_READERS.keys()
    assert COMMANDS_OF_READERS.keys() - COMMANDS_IN_SCRIPTS.keys() == OF_READERS
    assert COMMANDS_OF_QUEUES.keys() - COMMANDS_IN_SCRIPTS.keys() == OF_QUEUES - {"PUBLISH"}
