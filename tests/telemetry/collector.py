"""A collector for OTLP over HTTP that keeps every span and metric that it receives."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["Collector"]


class Collector:
    """Collect the requests that exporters post to /v1/traces and /v1/metrics.

    Attributes:
        url: The base URL, without a slash at its end. Exporters append the path.
    """

    def __init__(self) -> None:
        bodies: dict[str, list[bytes]] = {"/v1/traces": [], "/v1/metrics": []}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                packed = self.headers.get("Content-Encoding") == "gzip"
                bodies[self.path].append(gzip.decompress(body) if packed else body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """Keep requests out of standard error."""

        self._bodies = bodies
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def spans(self) -> list[Span]:
        """Return every span that came."""
        requests = map(ExportTraceServiceRequest.FromString, self._bodies["/v1/traces"])
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> dict[str, Metric]:
        """Return every metric by name, as it came last."""
        requests = map(ExportMetricsServiceRequest.FromString, self._bodies["/v1/metrics"])
        return {
            metric.name: metric
            for request in requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def close(self) -> None:
        """Stop, and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
