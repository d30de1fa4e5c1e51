"""Read metrics as Prometheus would, over HTTP and with a parser."""

from __future__ import annotations

import contextlib
import urllib.request
from typing import TYPE_CHECKING

from prometheus_client import generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry

__all__ = ["Exposition", "exposed", "scraped", "served"]


class Exposition:
    """One answer to a scrape.

    Attributes:
        text: The answer.
        labels: Per sample's name, the names of its labels.
        types: Per family's name, its type.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.labels: dict[str, set[str]] = {}
        self.types: dict[str, str] = {}
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            self.types[family.name] = family.type
            for sample in family.samples:
                self.labels.setdefault(sample.name, set()).update(sample.labels)
                self._values[sample.name, frozenset(sample.labels.items())] = sample.value

    def value(self, name: str, **labels: str) -> float:
        """Return one sample's value."""
        return self._values[f"aioredlock_ng_{name}", frozenset(labels.items())]

    def state(self, node: str) -> str:
        """Return the one state that a node is in."""
        (state,) = [
            dict(labels)["state"]
            for (name, labels), value in self._values.items()
            if name == "aioredlock_ng_node_state" and dict(labels)["node"] == node and value
        ]
        return state


def exposed(registry: CollectorRegistry) -> Exposition:
    """Return the metrics that a scrape would show, without HTTP."""
    return Exposition(generate_latest(registry).decode())


def scraped(url: str) -> Exposition:
    """Scrape; blocks."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return Exposition(answer.read().decode())


@contextlib.contextmanager
def served(registry: CollectorRegistry) -> Iterator[str]:
    """Serve a registry on a free port, by prometheus_client's own server."""
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
