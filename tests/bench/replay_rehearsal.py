"""A cluster that lives by a day of demand, minute by minute, with the whole autoscaler in it, led by hand.

Played are the pods' controllers, a scheduler and the agents' predictions; all else is real. Whatever was written, the
autoscaler has seen it before its round begins.
"""

import itertools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry

from manager.autoscaler.cloudprovider import gke
from manager.autoscaler.cloudprovider.simulated import cloud_state
from manager.autoscaler.cloudprovider.simulated.config import GroupConfig
from manager.autoscaler.cloudprovider.simulated.state_store import SimulatedStateStore
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.loop import Autoscaler
from manager.autoscaler.utilization.decisions import ScanRule
from manager.informers import SharedInformers
from shared.api.core import Node
from shared.clock import ManualClock
from shared.kube import node_heartbeat
from shared.kube.client import Client, Patch
from shared.kube.errors import NotFound
from shared.kube.resources import NODES, PODS
from shared.quantity import Resources
from shared.telemetry import Loops
from tests.bench import replay_placing
from tests.bench.replay_demand import DAY_SECONDS, STEP_SECONDS, Day, Owner
from tests.bench.replay_figures import Seen
from tests.bench.replay_peaks import NodeModels, RunningPod
from tests.bench.replay_placing import Placed
from tests.support import eventually

MINUTE = 60.0
STEP_MINUTES = STEP_SECONDS // 60
SLICES = 4  # of a minute in which nodes are on their way out
BEAT_SECONDS = 10.0  # of the machine's time: a real control plane gives up nodes that are silent
PATIENCE_SECONDS = 60.0
GROUP, MACHINE_TYPE, MOST_NODES = "fleet", "n1-standard-8", 100
NODE_CPU_MILLI = gke.allocatable(gke.MACHINE_TYPES[MACHINE_TYPE])["cpu"]
FIRST_FULLNESS = 0.6  # of the nodes that are there to begin with
DOLLARS_PER_HOUR = 0.38
SELECTOR = {"customer": "shared"}
CLOUD: dict[str, Any] = {
    "name": GROUP,
    "machine_type": MACHINE_TYPE,
    "max": MOST_NODES,
    "labels": SELECTOR,
    "price": DOLLARS_PER_HOUR,
    "boot_seconds": 150,
    "delete_seconds": 30,
}
SMALLER: tuple[dict[str, Any], ...] = tuple(
    {**CLOUD, "name": f"fleet-{size}", "machine_type": f"n1-standard-{size}", "price": DOLLARS_PER_HOUR * size / 8}
    for size in (4, 2)
)
FENCE, FENCE_NODE = "fence", "control-plane"
ANNOTATION_FENCE = "bench.kubernetes.io/fence"  # of a domain whose annotations the manager keeps of pods
WAITING = (ScanRule.LOCKED, ScanRule.COOLING_DOWN)
SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
UNSCHEDULABLE = {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}


class ByHand(Loops):
    """Loops of which those that work by the clock work when they are told to."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.works: dict[str, Callable[[], None]] = {}

    def every(self, name: str, interval_seconds: Callable[[], float], work: Callable[[], None]) -> None:
        self.works[name] = work


class Led(Autoscaler):
    """The autoscaler, whose threads but the informers' are whoever leads it."""

    def follow(self) -> None:
        self._listers.start(self._process.loops)

    def sees(self) -> ClusterObjects:
        return self._listers.objects(self._clock.now())

    @property
    def is_taking_away(self) -> bool:
        """Whether nodes are on their way out that are drained by itself."""
        in_progress = self._removals.actuator.counts()
        return bool(in_progress.empty or in_progress.drained)

    def take_away(self) -> None:
        self._removals.actuator.run_pass()


@dataclass
class Living:
    """A pod. `minutes`: how long it runs, where it ends by itself; times are in minutes of the day."""

    owner: Owner
    name: str
    made_at: int
    minutes: int | None = None
    node: str = ""
    bound_at: int = 0
    is_judged: bool = False

    def ends(self, minute: int) -> bool:
        return bool(self.node) and self.minutes is not None and minute >= self.bound_at + self.minutes


class Rehearsal:
    """One variant's cluster, minute by minute."""

    def __init__(
        self,
        led: Led,
        informers: SharedInformers,
        client: Client,
        namespace: str,
        loops: ByHand,
        clock: ManualClock,
        day: Day,
        models: NodeModels,
        prices: Mapping[str, float],
    ) -> None:
        """`prices` are those of all groups, per hour."""
        self._led = led
        self._prices = prices
        self._informers = informers
        self._client = client
        self._namespace = namespace
        self._loops = loops
        self._clock = clock
        self._store = SimulatedStateStore(client, namespace)
        self._day = day
        self._models = models
        self._pods: dict[str, Living] = {}
        self._made = 0
        self._rests = False  # nothing would come of another round until something changes
        self._fences = 0
        self._fence_uid = ""
        self._is_behind = True  # something was written since the autoscaler was last seen to have seen everything
        self._beaten_at = time.monotonic()
        self.seen = Seen()

    def begin(self) -> None:
        """As many nodes as the first demand takes, and its pods."""
        self._add_fences()
        self._informers.start(self._loops)
        self._led.follow()
        eventually(lambda: not self._led.unsynced(), PATIENCE_SECONDS)
        self._demand(0)
        requested = sum(each.owner.request.cpu_milli for each in self._pods.values())
        size = math.ceil(requested / FIRST_FULLNESS / NODE_CPU_MILLI)
        group = GroupConfig(**CLOUD)
        names = (f"{GROUP}-{number:03d}" for number in itertools.count())
        long_ago = self._clock.now() - DAY_SECONDS
        first = cloud_state.raise_target(cloud_state.GroupEntry(), group, size, long_ago, lambda: next(names))
        self._store.change(lambda current: current.having(GROUP, first))
        self._turn_cloud()

    def live(self, minute: int) -> None:
        """One minute passes, with a round at its end where anything is due."""
        self._pass_minute()
        self._turn_cloud()
        nodes = self._seen_nodes()
        self._replace_lost(minute, {node.metadata.name for node in nodes})
        self._end_jobs(minute)
        if minute and minute % STEP_MINUTES == 0:
            self._demand(minute)
        self._bind(minute, nodes)
        running = self._running(minute // STEP_MINUTES, nodes)
        usage = {node.metadata.name: Resources() for node in nodes}
        usage |= replay_placing.sums((pod.node, pod.usage) for pod in running)
        is_step = minute % STEP_MINUTES == 0
        if is_step:
            self._models.train(list(usage), running, self._clock.now())
        if is_step or self._is_behind or not self._rests:
            self._catch_up()
            self._round(minute)
        self._note(usage)

    def _round(self, minute: int) -> None:
        began, thread_began = time.perf_counter(), time.thread_time()
        made = self._led.run_once()
        self.seen.walls.append(time.perf_counter() - began)
        self.seen.cpus.append(time.thread_time() - thread_began)
        if made.blocked_reason:
            raise RuntimeError(f"minute {minute}: {made.blocked_reason}")
        self._is_behind |= bool(made.actions)
        self._rests = not (made.actions or any(step.rule in WAITING for scan in made.scans for step in scan.steps))

    def _pass_minute(self) -> None:
        slices = SLICES if self._led.is_taking_away else 1
        for _ in range(slices):
            self._clock.advance(MINUTE / slices)
            if self._led.is_taking_away:
                self._catch_up()
                self._led.take_away()
                self._is_behind = True

    def _turn_cloud(self) -> None:
        """What the cloud owes by now; a second time for what the API server has added to a new Node."""
        now = self._clock.now()
        groups = {} if self._rests else self._store.read().groups
        instances = (each for entry in groups.values() for each in entry.instances)
        if any(each.phase != cloud_state.RUNNING and each.due is not None and each.due <= now for each in instances):
            for _ in range(2):
                self._catch_up()
                self._loops.works["simulated-cloud"]()
                self._is_behind = True
        if time.monotonic() - self._beaten_at > BEAT_SECONDS:
            self._beaten_at = time.monotonic()
            self._loops.works["simulated-cloud-heartbeats"]()
            node_heartbeat.renew_lease(self._client, FENCE_NODE, self._fence_uid, now)
        self._catch_up()

    def _seen_nodes(self) -> list[Node]:
        return [node for node in self._led.sees().nodes if node.metadata.name != FENCE_NODE]

    def _replace_lost(self, minute: int, nodes: Collection[str]) -> None:
        """Pods that were evicted, or whose node is gone, are made anew, as their controllers do."""
        there = {pod.metadata.name for pod in self._led.sees().pods}
        for pod in list(self._pods.values()):
            if pod.name in there and (not pod.node or pod.node in nodes):
                continue
            self._remove(pod)
            self._add(pod.owner, minute, pod.minutes)
            self.seen.replaced += 1

    def _end_jobs(self, minute: int) -> None:
        for pod in [each for each in self._pods.values() if each.ends(minute)]:
            self._remove(pod)

    def _demand(self, minute: int) -> None:
        step = minute // STEP_MINUTES
        for service in self._day.services:
            there = [each for each in self._pods.values() if each.owner == service.owner]
            for _ in range(service.replicas[step] - len(there)):
                self._add(service.owner, minute)
            # Those that wait go first, then the youngest, as a ReplicaSet has it.
            there.sort(key=lambda pod: (not pod.node, pod.made_at), reverse=True)
            for pod in there[: max(0, len(there) - service.replicas[step])]:
                self._remove(pod)
        for burst in self._day.bursts:
            if burst.begins == step:
                for _ in range(burst.pods):
                    self._add(burst.owner, minute, burst.steps * STEP_MINUTES)

    def _add(self, owner: Owner, minute: int, minutes: int | None = None) -> None:
        self._made += 1
        name = f"{owner.name}-{self._made}"
        self._pods[name] = Living(owner, name, minute, minutes)
        container = {"name": "main", "image": "none", "resources": {"requests": owner.request.quantities()}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": SAFE},
            "spec": {"containers": [container], "nodeSelector": SELECTOR, "terminationGracePeriodSeconds": 0},
        }
        self._client.create(PODS, body, self._namespace)
        self._is_behind = True

    def _remove(self, pod: Living) -> None:
        del self._pods[pod.name]
        self._is_behind = True
        with suppress(NotFound):
            self._client.delete(PODS, pod.name, self._namespace, grace_period_seconds=0)

    def _bind(self, minute: int, nodes: Sequence[Node]) -> None:
        pods = [Placed(pod.name, pod.owner.name, pod.owner.request, pod.node) for pod in self._pods.values()]
        for name, node in replay_placing.place(pods, replay_placing.open_nodes(nodes)):
            self._client.bind(self._namespace, name, node)
            self._is_behind = True
            pod = self._pods[name]
            pod.node, pod.bound_at = node, minute
            self.seen.waits.append(minute - pod.made_at)
        for pod in self._pods.values():
            if not pod.node and not pod.is_judged:
                pod.is_judged = self._is_behind = True
                self._client.patch(
                    PODS, pod.name, UNSCHEDULABLE, self._namespace, kind=Patch.STRATEGIC, subresource="status"
                )

    def _running(self, step: int, nodes: Sequence[Node]) -> list[RunningPod]:
        """The pods of these nodes, with what they use."""
        names = {node.metadata.name for node in nodes}
        return [
            RunningPod(pod.name, pod.node, pod.owner.request, self._day.usage(pod.owner, pod.name, step))
            for pod in self._pods.values()
            if pod.node in names
        ]

    def _note(self, usage: Mapping[str, Resources]) -> None:
        self._catch_up()
        groups = self._store.read().groups
        instances = [each for entry in groups.values() for each in entry.instances]
        seen, nodes = self.seen, self._seen_nodes()
        cpus = {node.metadata.name: Resources.parse(node.status.allocatable or {}).cpu_milli for node in nodes}
        seen.targets.append(sum(entry.target for entry in groups.values()))
        seen.machines.append(len(instances))
        seen.costs.append(sum(len(entry.instances) * self._prices[name] for name, entry in groups.items()))
        seen.pending.append(sum(not each.node for each in self._pods.values()))
        seen.overloaded.append(sum(used.cpu_milli > cpus.get(name, used.cpu_milli) for name, used in usage.items()))
        seen.open_nodes.append(len(replay_placing.open_nodes(nodes)))
        on_their_way = any(each.phase != cloud_state.RUNNING for each in instances) or self._led.is_taking_away
        if seen.pending[-1] or on_their_way or any(node.spec.taints for node in nodes):
            self._rests = False

    def _add_fences(self) -> None:
        """A node and a pod that are there to be written last: who has seen that, has seen everything."""
        taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
        capacity = {"cpu": "4", "memory": "16Gi", "pods": "110"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": FENCE_NODE},
            "spec": {"taints": [taint]},
            "status": {
                "capacity": capacity,
                "allocatable": capacity,
                "conditions": node_heartbeat.conditions(self._clock.now()),
            },
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": FENCE},
            "spec": {"containers": [{"name": "main", "image": "none"}], "nodeName": FENCE_NODE},
        }
        self._fence_uid = self._client.create(NODES, node).uid
        self._client.create(PODS, pod, self._namespace)

    def _catch_up(self) -> None:
        """Returns once the autoscaler has seen all that was written before, by whomever."""
        if not self._is_behind:
            return
        self._is_behind = False
        self._fences += 1
        number = str(self._fences)
        mark = {"metadata": {"annotations": {ANNOTATION_FENCE: number}}}
        self._client.patch(NODES, FENCE_NODE, mark)
        self._client.patch(PODS, FENCE, mark, self._namespace)

        def is_seen() -> bool:
            world = self._led.sees()
            metas = [*(node.metadata for node in world.nodes), *(pod.metadata for pod in world.pods)]
            marks = [each.annotation(ANNOTATION_FENCE) for each in metas if each.name in (FENCE_NODE, FENCE)]
            return marks == [number, number]

        eventually(is_seen, PATIENCE_SECONDS, 0.001)
