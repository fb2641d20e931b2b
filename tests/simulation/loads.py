"""What surprises the promises of agents: replicas that are idle until a promise covers them, and then take what the
node's other pods leave, at once or hour by hour. New ones replace them, of which no model has seen a peak.
"""

import contextlib
import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from agent.metric_cache.series import Usage
from agent.metrics_advisor.source import Sample, UsageSource
from deploy.local.simulated import workloads
from deploy.local.simulated.curves import Curve
from shared.api.core import Pod
from shared.clock import SystemClock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.resources import PODS
from shared.quantity import MILLI_PER_CORE, Resources
from tests.simulation.stand_ins import seeded
from tests.simulation.virtual import WORLD

# The mean time from the end of one load to the replicas of the next, in hours, drawn once for a node. Where each load
# surprises it, a debt soon withholds all that it could lend, so that other nodes have to show what debts do to lending.
PAUSE_HOURS = (2, 60)
IDLE_HOURS = (8, 14)  # an agent learns, and so promises, each three hours
LOAD_HOURS = (4, 8)
REPLICAS = (1, 3)
RAMP_HOURS = (0, 0, 4)
LEAST_SHARE = 0.4
REQUEST = Resources(cpu_milli=10, memory_bytes=16 << 20)  # a small part of what a replica will use


@dataclass(frozen=True)
class Load:
    """A replica takes `share` of what is left of the node from `begins` on, growing for `ramp` seconds."""

    begins: float
    ramp: float
    share: float

    def at(self, now: float) -> float:
        return self.share * (float(now >= self.begins) if not self.ramp else _bounded((now - self.begins) / self.ramp))


class Loads:
    """Of one node; `hour_seconds` is an hour of the prediction."""

    def __init__(self, client: Client, seed: int, node: str, hour_seconds: float) -> None:
        self._client, self._node, self._hour_seconds = client, node, hour_seconds
        self._chance = seeded("loads", node, seed)
        self._pause_hours = self._chance.choice(PAUSE_HOURS)
        self._numbers = itertools.count()
        self.by_pod: dict[str, Load] = {}

    def run(self) -> None:
        clock, chance = SystemClock(), self._chance

        def wait(hours: float) -> None:
            clock.wait(threading.Event(), hours * self._hour_seconds)

        while True:
            wait(chance.expovariate(1 / self._pause_hours))
            idle_hours, replicas = chance.uniform(*IDLE_HOURS), chance.randint(*REPLICAS)
            begins = WORLD.now + idle_hours * self._hour_seconds
            ramp = chance.choice(RAMP_HOURS) * self._hour_seconds
            load = Load(begins, ramp, chance.uniform(LEAST_SHARE, 1.0) / replicas)
            self._replace([load] * replicas)
            wait(idle_hours + chance.uniform(*LOAD_HOURS))
            self._replace([])

    def _replace(self, loads: Sequence[Load]) -> None:
        """Deletes the pods of the last load, and creates one for each of these."""
        for name in sorted(self.by_pod):
            with contextlib.suppress(HeadroomError):
                self._client.delete(PODS, name, workloads.NAMESPACE, grace_period_seconds=0)
        self.by_pod = {f"load-{self._node}-{next(self._numbers)}": load for load in loads}
        spec = {"nodeName": self._node, "tolerations": [{"operator": "Exists"}]}
        for name in self.by_pod:
            pod = workloads.prod_pod(name, workloads.NAMESPACE, "load", REQUEST, curve=Curve.STEADY, spec=spec)
            with contextlib.suppress(HeadroomError):
                self._client.create(PODS, pod, workloads.NAMESPACE)


@dataclass(frozen=True)
class LoadedSource:
    """`source` with the loads of its node, which has `size`."""

    source: UsageSource
    loads: Loads
    size: Resources

    @property
    def description(self) -> str:
        return self.source.description

    def sample(self, pods: Sequence[Pod]) -> Sample | None:
        sample = self.source.sample(pods)
        if sample is None:
            return None
        cores = self.size.cpu_milli / MILLI_PER_CORE
        room = Usage(cores, self.size.memory_bytes).minus(sample.node)
        node, usages = sample.node, dict(sample.pods)
        for pod in pods:
            load = self.loads.by_pod.get(pod.metadata.name)
            if load is not None and pod.metadata.uid in usages:
                share = load.at(WORLD.now)
                taken = Usage(room.cpu_cores * share, room.memory_bytes * share)
                node, usages[pod.metadata.uid] = node.plus(taken), usages[pod.metadata.uid].plus(taken)
        return sample._replace(node=node, pods=usages)


def _bounded(share: float) -> float:
    return min(1.0, max(0.0, share))
