"""Metrics of HTTP ports: `headroom_http_...`."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from shared.metric_families import CounterFamily, GaugeFamily
from shared.web.server import Server

_CONNECTIONS = GaugeFamily("headroom_http_connections", "Number of open connections.", ("port",))
_CONNECTIONS_CUT = CounterFamily(
    "headroom_http_connections_cut",
    "Connections that the server rejected or closed before their clients did, by reason.",
    ("port", "reason"),
)
_REQUESTS_REFUSED = CounterFamily(
    "headroom_http_requests_refused",
    "Requests that the server rejected before the application saw them.",
    ("port", "code"),
)


class HttpCollector(Collector):
    """The metrics of all ports of a process, by port name; register it once."""

    def __init__(self, ports: Mapping[str, Server]) -> None:
        self._ports = ports

    def collect(self) -> Iterator[Metric]:
        """The metrics at scrape time."""
        there = _CONNECTIONS.scraped()
        cut = _CONNECTIONS_CUT.scraped()
        refused = _REQUESTS_REFUSED.scraped()
        for port, server in self._ports.items():
            there.add_metric([port], server.connections)
            for reason, count in server.counts.connections.items():
                cut.add_metric([port, reason], count)
            for code, count in server.counts.requests.items():
                refused.add_metric([port, str(code)], count)
        yield from (there, cut, refused)
