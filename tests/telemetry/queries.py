"""Find the metrics and labels of a PromQL query in its syntax tree.

This module evaluates no query.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import promql_parser

__all__ = ["FROM_THE_SCRAPE", "Query", "named_in"]

# Grafana replaces these variables by values before it sends a query.
_GRAFANA = {"$__rate_interval": "5m", "$__range": "1h", "$job": "shop", "$instance": "a:8000"}

FROM_THE_SCRAPE = {"job", "instance"}
"""Labels that Prometheus itself adds."""


@dataclass
class Query:
    """One query.

    Attributes:
        text: As written.
        selected: Per metric, the labels that it is selected by.
        grouped: Labels that results are grouped by.
    """

    text: str
    selected: dict[str, set[str]] = field(default_factory=dict)
    grouped: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        text = self.text
        for variable, value in _GRAFANA.items():
            text = text.replace(variable, value)
        assert "$" not in text, text
        self._read(promql_parser.parse(text))

    def _read(self, node: Any) -> None:
        match node:
            case promql_parser.VectorSelector():
                labels = {matcher.name for matcher in node.matchers.matchers}
                assert node.name
                self.selected.setdefault(node.name, set()).update(labels - FROM_THE_SCRAPE)
            case promql_parser.MatrixSelector():
                self._read(node.vector_selector)
            case promql_parser.AggregateExpr():
                assert (
                    node.modifier is None or node.modifier.type == promql_parser.AggModifierType.By
                )
                self.grouped.update(
                    set(node.modifier.labels if node.modifier else ()) - FROM_THE_SCRAPE
                )
                self._read(node.expr)
            case promql_parser.BinaryExpr():
                self._read(node.lhs)
                self._read(node.rhs)
            case promql_parser.Call():
                for argument in node.args:
                    self._read(argument)
            case promql_parser.ParenExpr() | promql_parser.UnaryExpr():
                self._read(node.expr)
            case promql_parser.NumberLiteral():
                pass
            case _:
                raise AssertionError(
                    f"{type(node).__name__} in {self.text}: say here what it reads"
                )

    @property
    def legends(self) -> set[str]:
        """Labels that a legend may name: those grouped by, and those of the scrape."""
        return self.grouped | FROM_THE_SCRAPE


def named_in(legend: str) -> set[str]:
    """Return the labels that a legend or an annotation names."""
    return set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", legend))
