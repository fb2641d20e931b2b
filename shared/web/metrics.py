"""Metrics of HTTP ports: `headroom_http_...`."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.web.server import Server


class HttpCollector(Collector):
    """The metrics of all ports of a process, by port name; register it once."""

    def __init__(self, ports: Mapping[str, Server]) -> None:
        self._ports = ports

    def collect(self) -> Iterator[Metric]:
        """The metrics at scrape time."""
        there = GaugeMetricFamily("headroom_http_connections", "Connections there are", labels=["port"])
        cut = CounterMetricFamily(
            "headroom_http_connections_cut",
            "Connections that were refused, or cut before their clients ended them",
            labels=["port", "reason"],
        )
        refused = CounterMetricFamily(
            "headroom_http_requests_refused",
            "Requests that were refused before the application was asked",
            labels=["port", "code"],
        )
        for port, server in self._ports.items():
            there.add_metric([port], server.connections)
            for reason, count in server.counts.connections.items():
                cut.add_metric([port, reason], count)
            for code, count in server.counts.requests.items():
                refused.add_metric([port, str(code)], count)
        yield from (there, cut, refused)
