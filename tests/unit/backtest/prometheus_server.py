"""A server with the range queries of Prometheus' HTTP API, over made-up series."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from tests.support.http_server import HttpServer, Request

MOST_POINTS = 11_000

Value = Callable[[float], float | None]


class PrometheusServer(HttpServer):
    """`series` are those of each query that contains its key: labels, and the value at a time (None: no sample)."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self.series: dict[str, Sequence[tuple[Mapping[str, str], Value]]] = {}
        self.queries: list[dict[str, str]] = []
        self.token = ""
        self.failures: list[int] = []  # statuses to answer first
        super().__init__(certificate)
        self.url += "/prometheus"

    def answer(self, request: Request) -> tuple[int, bytes]:
        fields = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        status, document = self._query(request.path, request.headers.get("Authorization", ""), fields)
        return status, json.dumps(document).encode()

    def _query(self, path: str, authorization: str, fields: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if self.failures:
            return self.failures.pop(), {"status": "error", "error": "not now"}
        if self.token and authorization != f"Bearer {self.token}":
            return 401, {"status": "error", "error": "who are you"}
        if path != "/prometheus/api/v1/query_range":
            return 404, {"status": "error", "error": "no such page"}
        self.queries.append(fields)
        start, end, step = (float(fields[name]) for name in ("start", "end", "step"))
        points = int((end - start) // step) + 1
        if points > MOST_POINTS:
            return 400, {
                "status": "error",
                "errorType": "bad_data",
                "error": "exceeded maximum resolution of 11,000 points",
            }
        found = next((series for key, series in self.series.items() if key in fields["query"]), None)
        if found is None:
            return 400, {"status": "error", "errorType": "bad_data", "error": f"parse error: {fields['query']}"}
        times = [start + step * point for point in range(points)]
        result = []
        for labels, value in found:
            values = [[time, f"{amount:g}"] for time in times if (amount := value(time)) is not None]
            if values:
                result.append({"metric": labels, "values": values})
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": result}}
