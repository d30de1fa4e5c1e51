"""Where the Prometheus sink registers: once per registry or not at all, in one process or many."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.multiprocess import MultiProcessCollector

from aioredlock_ng import ConfigurationError
from aioredlock_ng.events import LeaseLost
from aioredlock_ng.telemetry.prometheus import PrometheusSink
from tests.telemetry.exposition import exposed

if TYPE_CHECKING:
    from pathlib import Path


def test_a_second_sink_in_one_registry_is_refused_with_the_remedy(
    registry: CollectorRegistry,
) -> None:
    first = PrometheusSink(registry)
    with pytest.raises(ConfigurationError, match="give the sink that made them to every Redlock"):
        PrometheusSink(registry)
    first(LeaseLost("a", "abc123", "", 1.0))
    assert exposed(registry).value("leases_lost_total", cause="gone") == 1
    PrometheusSink(CollectorRegistry())


def test_a_refused_sink_leaves_nothing_in_the_registry(registry: CollectorRegistry) -> None:
    Counter("aioredlock_ng_hand_overs", "One of the application's own.", registry=registry)
    with pytest.raises(ConfigurationError, match="aioredlock_ng_"):
        PrometheusSink(registry)
    assert [family for family in exposed(registry).types if family.startswith("aioredlock_ng")] == [
        "aioredlock_ng_hand_overs",
        "aioredlock_ng_hand_overs_created",
    ]


@pytest.mark.parametrize("registry", ["app", None, 7])
def test_an_invalid_registry_is_refused(registry: object) -> None:
    with pytest.raises(
        ConfigurationError, match=r"registry must be a prometheus_client\.CollectorRegistry"
    ):
        PrometheusSink(registry)  # type: ignore[arg-type]


def test_the_names_of_metrics_contain_their_units(registry: CollectorRegistry) -> None:
    PrometheusSink(registry)
    for family, kind in exposed(registry).types.items():
        if not family.endswith("_created"):
            assert family.startswith("aioredlock_ng_")
            assert family.endswith("_seconds") == (kind == "histogram"), family
            assert kind in ("counter", "gauge", "histogram"), family


@pytest.mark.once
def test_the_processes_of_a_server_add_up(tmp_path: Path) -> None:
    """prometheus_client's multiprocess mode, which has to be chosen before it is imported."""
    code = """
import sys
from aioredlock_ng.events import *
from aioredlock_ng.telemetry.prometheus import PrometheusSink
sink = PrometheusSink()
for event in (
    LockAcquired("a", "abc123", 1, 0.02, 1, ()), LockAcquired("b", "abc124", 2, 0.02, 1, ()),
    LeaseReleased("a", "abc123", 0.1), NodeUp("n", ""), WaiterWoken("a", "notified"),
):
    sink(event)
if sys.argv[1] == "sees the node down":
    sink(NodeDown("n", ""))
print("ready", flush=True)
sys.stdin.read()
"""
    surroundings = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, what],
            env=surroundings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for what in ("sees the node up", "sees the node down")
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=str(tmp_path))  # type: ignore[no-untyped-call]
        seen = exposed(registry)
        assert seen.value("acquire_wait_seconds_count") == 4
        assert seen.value("acquire_wait_seconds_bucket", le="0.025") == 4
        assert seen.value("leases_held") == 2
        assert seen.value("wakeups_total", cause="notified") == 2
        assert (
            seen.value("node_state", node="n", state="down")
            == seen.value("node_state", node="n", state="up")
            == 1
        )
        assert seen.value("node_outages_total", node="n") == 1
    finally:
        for worker in workers:
            worker.communicate()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("multiprocess", [False, True])
def test_a_forked_child_reports_no_lease_and_no_election_of_its_parent(
    tmp_path: Path, *, multiprocess: bool
) -> None:
    """The gauges of the child count its own events only, and the node that it sees has a state."""
    code = """
import os, sys
from aioredlock_ng.events import *
from aioredlock_ng.telemetry.prometheus import PrometheusSink
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from tests.telemetry.exposition import exposed
sink, parent, registry = PrometheusSink(), os.getpid(), REGISTRY
events = (
    NodeUp("n", ""), LockAcquired("a", "abc123", 1, 0.02, 1, ()), TermBegan("a", "us", 1)
)
for event in events:
    sink(event)
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        mark_process_dead(parent)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
    else:
        seen = exposed(registry)
        assert seen.value("leases_held") == seen.value("election_leading") == 0
    for event in events:
        sink(event)
    seen = exposed(registry)
    assert seen.value("leases_held") == seen.value("election_leading") == 1
    assert seen.state("n") == "up"
except BaseException as error:
    sys.exit(repr(error))
"""
    directory = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)} if multiprocess else {}
    subprocess.run([sys.executable, "-c", code], env=os.environ | directory, check=True, timeout=60)


def test_the_error_without_the_library_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None; "
        "import aioredlock_ng.telemetry.prometheus"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'install aioredlock-ng with its extra "prometheus"' in told.stderr
