"""The files that docs/deployment.md describes agree with the page, and work on real servers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from aioredlock_ng import Redlock, Severity
from aioredlock_ng._core.backoff import reconnect_delay
from aioredlock_ng._doctor.finding_kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
DOCUMENTS = list(
    yaml.safe_load_all(
        (ROOT / "examples" / "kubernetes" / "redlock-nodes.yaml").read_text(encoding="utf-8")
    )
)


def of(kind: str, name: str = "redlock") -> dict[str, Any]:
    (found,) = (
        document
        for document in DOCUMENTS
        if document["kind"] == kind and document["metadata"]["name"] == name
    )
    return dict(found)


SET = of("StatefulSet")["spec"]
POD = SET["template"]["spec"]
(CONTAINER,) = POD["containers"]
CLIENT = of("Secret", "redlock-client")["stringData"]
CONFIG = of("ConfigMap")["data"]["valkey.conf"]
USERS = of("Secret", "redlock-users")["stringData"]["users.acl"].splitlines()


def test_the_probes_of_programs_that_take_locks_never_restart_them_for_want_of_a_majority() -> None:
    (source,) = re.findall(r"```yaml\n(readinessProbe.*?)```", PAGE, re.DOTALL)
    probes = yaml.safe_load(source)
    assert probes["readinessProbe"]["httpGet"]["path"] == "/healthz"
    assert "httpGet" not in probes["livenessProbe"]


def test_each_of_five_pods_has_a_disk_and_a_machine_of_its_own() -> None:
    assert SET["replicas"] == 5
    assert [claim["metadata"]["name"] for claim in SET["volumeClaimTemplates"]] == ["data"]
    assert {"name": "data", "mountPath": "/data"} in CONTAINER["volumeMounts"]
    (apart,) = POD["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    labels = SET["template"]["metadata"]["labels"]
    assert apart["labelSelector"]["matchLabels"] == SET["selector"]["matchLabels"] == labels
    assert not re.search(r"replicaof|slaveof|cluster-enabled", CONFIG)


def test_clients_name_each_pod_by_its_own_name() -> None:
    service = of("Service")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert SET["serviceName"] == service["metadata"]["name"]
    space = service["metadata"]["namespace"]
    names = [
        f"redlock-{number}.{SET['serviceName']}.{space}.svc:6379"
        for number in range(SET["replicas"])
    ]
    urls = CLIENT["AIOREDLOCK_NG_NODES"].split(",")
    assert [url.partition("@")[2] for url in urls] == names
    redlock = Redlock.from_env(CLIENT)
    assert [node.address for node in redlock.nodes] == names
    (user,) = (line for line in USERS if line.startswith("user locks "))
    for url in urls:
        name, _, password = url.removeprefix("redis://").partition("@")[0].partition(":")
        assert name == "locks"
        assert f">{password} " in user


def test_the_user_has_the_rights_that_the_page_of_rights_lists() -> None:
    page = (ROOT / "docs" / "acl.md").read_text(encoding="utf-8")
    listed = " ".join(re.findall(r"^ACL SETUSER locks (.+)$", page, re.MULTILINE))
    (user,) = (line for line in USERS if line.startswith("user locks "))
    assert {*listed.split()} - {">password"} <= {*user.split()}
    assert CLIENT["AIOREDLOCK_NG_KEY_FORMAT"] == "lock:{name}"


def test_nodes_restart_one_at_a_time_and_each_after_the_quarantine_of_the_last() -> None:
    budget = of("PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"] == SET["selector"]["matchLabels"]
    assert SET["updateStrategy"] == {"type": "RollingUpdate"}
    assert SET["podManagementPolicy"] == "Parallel"
    ready = CONTAINER["readinessProbe"]["initialDelaySeconds"]
    assert ready == 75
    # max_ttl plus a second. The quarantine begins when the first program has connected again.
    assert ready > 60.0 + 1.0 + reconnect_delay(99, 1.0)
    alive = CONTAINER["livenessProbe"]
    assert alive["periodSeconds"] * alive["failureThreshold"] == 120
    assert "limits" in CONTAINER["resources"]
    assert "cpu" not in CONTAINER["resources"]["limits"]


@pytest.mark.parametrize("page", ["deployment", "operations"])
def test_the_pause_between_two_restarts_includes_the_time_until_a_program_connects(
    page: str,
) -> None:
    text = " ".join((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").split())
    rule = re.search(r"(?:One restart at a time|Restart nodes one by one)\.\*\* .*? \* ", text)
    assert rule
    assert "The quarantine begins when the first pro" in rule[0]
    assert f"up to {reconnect_delay(99, 1.0):g} s" in rule[0]
    assert "(max_ttl plus up to 6 s)" in KINDS["quarantined"].remedy


def test_the_page_names_the_settings_of_the_manifest() -> None:
    for words in (
        "5 replicas",
        "`publishNotReadyAddresses: true`",
        "Readiness after 75 s",
        "`maxUnavailable: 1`",
        "two minutes",
    ):
        assert words in PAGE, words


@pytest.mark.once
async def test_the_servers_and_users_of_the_manifest_suffice_for_the_library(
    start_server: Callable[..., LocalServer],
) -> None:
    ours = ("bind ", "port ", "dir ", "aclfile ")
    settings = [
        shlex.split(line) for line in CONFIG.splitlines() if line and not line.startswith(ours)
    ]
    arguments = [word for name, *values in settings for word in (f"--{name}", *values)]
    servers = [start_server(arguments) for _ in range(3)]
    for server in servers:
        # The default user last: it is the one that gives the others their rights.
        for line in reversed(USERS):
            name, *rules = line.removeprefix("user ").split()
            # A server older than 7.2 knows no CLIENT SETINFO, and refuses a rule that names it.
            known = b"setinfo" in server.command("CLIENT", "HELP").lower()
            server.command(
                "ACL",
                "SETUSER",
                name,
                *(rule for rule in rules if known or rule != "+client|setinfo"),
            )
    urls = [f"redis://locks:change-me@127.0.0.1:{server.port}" for server in servers]
    async with Redlock.from_env({**CLIENT, "AIOREDLOCK_NG_NODES": ",".join(urls)}) as redlock:
        async with redlock.lock("order:42") as lease:
            await lease.verify()
            await lease.extend()
        diagnosis = await redlock.diagnose(watch=0.2, probe="doctor")
    found = {
        finding.code for finding in diagnosis.findings if finding.severity is not Severity.INFO
    }
    assert found <= {"same-host", "round-trip", "slow-quorum"}, diagnosis.findings
    assert {(node.maxmemory_policy, node.aof, node.fsync) for node in diagnosis.nodes} == {
        ("noeviction", True, "always")
    }

    async with Redis(port=servers[0].port, username="probe", password="probe") as probe:
        assert await probe.ping()
        with pytest.raises(NoPermissionError):
            await probe.get("lock:order:42")
    async with Redis(port=servers[0].port) as nobody:
        with pytest.raises(AuthenticationError):
            await nobody.get("lock:order:42")


def test_compose_starts_the_five_nodes_that_the_page_names() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    ports = [service["ports"][0].removesuffix(":6379") for service in services.values()]
    assert ports == [f"127.0.0.1:{port}" for port in range(6381, 6386)]
    (line,) = re.findall(r"AIOREDLOCK_NG_NODES=(redis://127\S+)", PAGE.replace(",\\\n", ","))
    assert line.split(",") == [f"redis://{port}" for port in ports]
    for service in services.values():
        assert service["command"][-4:] == ["--save", "", "--appendonly", "no"]


async def test_the_doctor_reports_the_findings_that_the_page_names_for_compose(
    three_nodes: NodeSet,
) -> None:
    three_nodes.found()
    diagnosis = await Redlock(three_nodes.urls).diagnose(watch=0.2)
    found = {finding.code: finding.severity for finding in diagnosis.findings}
    assert found["same-host"] is Severity.WARNING
    assert found["no-persistence"] is Severity.INFO
    assert "reports `same-host` and `no-persistence` there" in PAGE


def test_every_finding_that_the_page_names_is_a_finding_of_the_doctor() -> None:
    table = PAGE.partition("## Services of providers")[2].partition("Three instances")[0]
    said = [
        line.strip("| ").rpartition("|")[2] for line in table.splitlines() if line.startswith("| ")
    ][1:]
    assert len(said) == 12
    for words in said:
        codes = re.findall(r"`([a-z0-9-]+)`", words)
        assert codes, words
        assert set(codes) <= KINDS.keys(), words
        if "error" in words:
            assert {KINDS[code].severity for code in codes} == {Severity.ERROR}, words
        if "warning" in words:
            assert {KINDS[code].severity for code in codes} == {Severity.WARNING}, words
        if codes[0] in ("replicas", "no-persistence"):
            assert "remark" in words
            assert KINDS[codes[0]].guarded
