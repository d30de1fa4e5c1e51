"""The dashboard and the alert rules ask for what a scrape really has, and the rules are written as
Prometheus reads them.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from aioredlock_ng.events import LockAcquired, NodeUp
from aioredlock_ng.telemetry.prometheus import PrometheusSink
from tests.telemetry.doings import do_everything
from tests.telemetry.exposition import Exposition, exposed, scraped
from tests.telemetry.queries import Query, named_in

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tests.support.node_set import NodeSet

FOLDER = Path(__file__).parents[2] / "docs" / "telemetry"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
(GROUP,) = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
RULES: list[dict[str, Any]] = GROUP["rules"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]] + [
    rule["expr"] for rule in RULES
]
PAGE = FOLDER.parent / "telemetry.md"

every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])


def assert_answerable(text: str, seen: Exposition) -> None:
    query = Query(text)
    assert query.selected, f"{text} asks for nothing"
    known = set()
    for name, labels in query.selected.items():
        assert name in seen.labels, f"{name} is not exposed"
        assert labels <= seen.labels[name], f"{name} has no {labels - seen.labels[name]}"
        known |= seen.labels[name]
    assert query.grouped <= known


async def test_every_query_asks_for_metrics_and_labels_that_are_scraped(
    three_nodes: NodeSet, registry: CollectorRegistry, metrics_url: str
) -> None:
    await do_everything(three_nodes, PrometheusSink(registry))
    seen = scraped(metrics_url)
    for text in QUERIES:
        assert_answerable(text, seen)


def told(registry: CollectorRegistry) -> Exposition:
    sink = PrometheusSink(registry)
    sink(NodeUp("n:6379", "redis"))
    sink(LockAcquired("a", "abc123", 1, 0.1, 1, ()))
    return exposed(registry)


@pytest.mark.parametrize(
    "text",
    [
        "rate(aioredlock_ng_leases_lost[5m])",
        'aioredlock_ng_node_state{status="up"}',
        "sum by (resource) (aioredlock_ng_leases_held)",
        'sum(rate(aioredlock_ng_wakeups_total{node="n"}[5m]))',
    ],
)
def test_a_query_for_a_missing_metric_or_label_fails_the_check(
    text: str, registry: CollectorRegistry
) -> None:
    with pytest.raises(AssertionError):
        assert_answerable(text, told(registry))


def test_values_that_queries_select_exist(registry: CollectorRegistry) -> None:
    text = told(registry).text
    for query in QUERIES:
        for label, _, value in re.findall(r'(state|error|cause)(!?=)"(\w+)"', query):
            assert f'{label}="{value}"' in text, query


def test_every_metric_is_on_the_dashboard_and_on_the_page(registry: CollectorRegistry) -> None:
    asked = {name for query in QUERIES for name in Query(query).selected}
    page = PAGE.read_text(encoding="utf-8")
    for family, kind in told(registry).types.items():
        name = f"{family}_total" if kind == "counter" else family
        if not family.endswith("_created"):
            assert any(found.startswith(name) for found in asked), f"nobody looks at {name}"
            assert f"`{name}`" in page, f"docs/telemetry.md does not explain {name}"


def test_a_legend_names_labels_that_its_query_keeps() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            kept = Query(target["expr"]).legends
            assert named_in(target["legendFormat"]) <= kept, panel["title"]


def test_a_panel_has_a_title_and_a_description() -> None:
    for panel in PANELS:
        assert panel["title"], panel["id"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references), panel["title"]


def test_panels_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    places = [panel["gridPos"] for panel in PANELS]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in itertools.combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


def test_the_dashboard_can_be_imported_anywhere() -> None:
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance"]
    assert variables["datasource"]["query"] == "prometheus"
    assert "id" not in DASHBOARD
    assert DASHBOARD["schemaVersion"] >= 39


def test_the_alert_file_has_the_five_expected_rules() -> None:
    told = [
        "RedlockLeaseLost",
        "RedlockMemoryLost",
        "RedlockTermOutlived",
        "RedlockNodeAway",
        "RedlockAcquiresFail",
    ]
    assert [rule["alert"] for rule in RULES] == told
    assert set(GROUP) == {"name", "rules"}


@every_rule
def test_a_rule_has_the_fields_that_prometheus_and_people_need(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+m", rule.get("for", "0m"))
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "description"}
    for text in rule["annotations"].values():
        assert named_in(text) <= Query(rule["expr"]).legends
    assert f"### {rule['alert']}" in PAGE.read_text(encoding="utf-8"), (
        "the page does not say what to do"
    )


def test_each_alert_rule_has_a_scenario_that_fires_and_one_that_is_silent() -> None:
    tests = yaml.safe_load((FOLDER / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
    checks = [check for test in tests for check in test["alert_rule_test"]]
    for rule in RULES:
        own = [check for check in checks if check["alertname"] == rule["alert"]]
        assert any(check.get("exp_alerts") for check in own), rule["alert"]
        assert any(not check.get("exp_alerts") for check in own), rule["alert"]
