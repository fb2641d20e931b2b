"""What an autoscaler is given: the cluster, the forecasts of the node side, and the process that it runs in."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from manager.autoscaler.context import OfferedBy
from manager.autoscaler.listers import Expected, Peaks
from manager.informers import SharedInformers
from shared.clock import Clock
from shared.kube.client import Client
from shared.kube.events import Recorder
from shared.telemetry import Loops


@dataclass(frozen=True)
class NodeForecasts:
    """What nodes will lend and use, as the node side sees it.

    See `ClusterObjects` for `expected` and `peaks`, and `planning.plan` for `offered_by`.
    """

    expected: Expected
    offered_by: OfferedBy
    peaks: Peaks


@dataclass(frozen=True)
class ClusterAccess:
    """The cluster, and what this process may do there.

    `namespace` is the manager's own. Without a `recorder` there are no Events. A dry run writes nothing at all.
    """

    client: Client
    informers: SharedInformers
    namespace: str
    recorder: Recorder | None
    is_leader: Callable[[], bool]
    dry_run: bool = False

    def may_write(self) -> bool:
        return not self.dry_run and self.is_leader()


@dataclass(frozen=True)
class ProcessParts:
    """Clock, threads and metrics of the process; `chance` breaks ties."""

    clock: Clock
    loops: Loops
    registry: CollectorRegistry
    chance: random.Random = field(default_factory=random.Random)
