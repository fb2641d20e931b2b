"""A status as a JSON patch that leaves no part of an older report."""

from shared.api.nodemetric import NodeMetricReport


def body(status: NodeMetricReport) -> list[dict[str, object]]:
    """Replaces the previous status, of any writer."""
    return [{"op": "add", "path": "/status", "value": status}]
