"""A status as a JSON patch that leaves nothing of an older report behind."""

from shared.api.nodemetric import NodeMetricReport


def body(status: NodeMetricReport) -> list[dict[str, object]]:
    """Puts the status in the place of the one before, whoever wrote that."""
    return [{"op": "add", "path": "/status", "value": status}]
