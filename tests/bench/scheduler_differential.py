"""Our predicates beside kube-scheduler's filters: random pods, each with every node of its cluster."""

import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tests.bench.row import Measure, Row
from tests.support import scheduler_differential
from tests.support.apiserver import REAL, RealApiServer

PODS = 10_000
SEED = 1


def measures_on(cluster: str) -> tuple[Measure, ...]:
    """Nothing on the embedded API server, which kube-scheduler cannot use."""
    return (partial(_rows, PODS),) if cluster == REAL else ()


def _rows(pods: int) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as folder:
        server = RealApiServer(Path(folder))
        try:
            with scheduler_differential.running(server, Path(folder), SEED) as differential:
                count = differential.compare(pods)
        finally:
            server.close()
    about = f"predicates against kube-scheduler, {count.pods:,} random pods with {count.nodes:,} answers about a node"
    yield Row(f"{about}: differ", len(count.differences), "pods", 0, "pods that fit on a node", count.with_a_node)
