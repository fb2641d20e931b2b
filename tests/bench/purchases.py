"""What the plan buys beside what the real kube-scheduler does with it."""

import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tests.bench.row import Measure, Row
from tests.support import purchases
from tests.support.apiserver import REAL, RealApiServer

ROUNDS = 100
SEED = 2


def measures_on(cluster: str) -> tuple[Measure, ...]:
    """Nothing on the embedded API server, which kube-scheduler cannot use."""
    return (partial(_rows, ROUNDS),) if cluster == REAL else ()


def _rows(rounds: int) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as folder:
        server = RealApiServer(Path(folder))
        try:
            with purchases.running(server, Path(folder), SEED) as buyer:
                bought = buyer.buy(rounds)
        finally:
            server.close()
    yield Row(
        f"purchases by plan, bound by kube-scheduler, {bought.rounds} rounds: nodes that stay idle",
        bought.idle,
        "nodes",
        0,
        "bought",
        bought.nodes,
    )
    missed = bought.promised - bought.bound
    yield Row(
        f"purchases by plan, bound by kube-scheduler, {bought.rounds} rounds: promised pods not bound",
        missed,
        "pods",
        0,
        "promised",
        bought.promised,
    )
