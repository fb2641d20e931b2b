"""What people and controllers do to the cluster: they create, resize and delete pods, edit the policy, drain nodes.

What not all worlds have draws from a source of chance of its own, so that the others stay as they are.
"""

import contextlib
import json
import random
import threading
from collections.abc import Callable

from deploy.local.options import ProfileName
from deploy.local.profile import PROFILES, colocation_config
from shared import names
from shared.clock import SystemClock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import CONFIGMAPS, NODEMETRICS, NODES, PODDISRUPTIONBUDGETS, PODS
from tests.simulation.faults import USERS, Fault, FaultKind
from tests.simulation.stand_ins import seeded
from tests.simulation.virtual import WORLD

NAMESPACE = "default"
MEAN_PAUSE_SECONDS = 30.0
MOST_PODS = 40
APPS = ("web", "batch")
PROTECTED_SECONDS = 90.0  # the mean time until a user changes a disruption budget
_CPU_MILLI = (250, 500, 1000, 2000)
_MEMORY_MIB = (256, 1024, 2048)


class Users:
    """All users as one process. `quiet` stops them, so that the cluster can settle."""

    def __init__(self, client: Client, seed: int, nodes: list[str]) -> None:
        self._client = client
        self._chance = seeded("users", seed)
        self._nodes = nodes
        self._alive: list[str] = []
        self._made = 0
        self.quiet = False
        self._acts: list[tuple[int, Callable[[], None]]] = [
            (6, self._create_pods),
            (2, self._create_many_pods),
            (4, self._delete_pods),
            (2, self._delete_most_pods),
            (4, self._create_mid_pod),
            (1, self._edit_policy),
            (1, self._cordon),
        ]

    def run(self) -> None:
        clock = SystemClock()
        while True:
            clock.wait(threading.Event(), self._chance.expovariate(1 / MEAN_PAUSE_SECONDS))
            if self.quiet:
                continue
            weights, acts = zip(*self._acts, strict=True)
            try:
                self._chance.choices(acts, weights)[0]()
            except HeadroomError:
                continue  # a user tries something else

    def strike(self, fault: Fault, chance: random.Random) -> None:
        """What a tenant or a compromised node does on purpose."""

        def act() -> None:
            try:
                if fault.kind is FaultKind.HOSTILE_POD:
                    self._create_hostile_pod(chance)
                else:
                    self._write_hostile_report(chance)
            except HeadroomError:
                return  # refused, as it should be

        WORLD.spawn(act, "hostile", WORLD.outside)

    def _create_pods(self) -> None:
        if len(self._alive) >= MOST_PODS:
            return
        for _ in range(self._chance.randint(1, 5)):
            cpu, memory = self._chance.choice(_CPU_MILLI), self._chance.choice(_MEMORY_MIB)
            self._create({"cpu": f"{cpu}m", "memory": f"{memory}Mi"}, {"app": APPS[0]})

    def _create_many_pods(self) -> None:
        """So many that nodes of several groups are bought."""
        for _ in range(min(12, MOST_PODS - len(self._alive))):
            cpu = self._chance.choice(_CPU_MILLI)
            self._create({"cpu": f"{cpu}m", "memory": "1Gi"}, {"app": APPS[1]})

    def _create_mid_pod(self) -> None:
        amounts = {names.MID_CPU: str(self._chance.choice(_CPU_MILLI)), names.MID_MEMORY: "256Mi"}
        tolerations = [{"key": names.LABEL_SIMULATED, "operator": "Exists"}]
        self._create(amounts, {names.LABEL_PRIORITY_CLASS: "koord-mid"}, tolerations=tolerations)

    def _create(self, amounts: dict[str, str], labels: dict[str, str], **spec: object) -> None:
        self._made += 1
        name = f"user-{self._made}"
        resources = {"requests": amounts, "limits": amounts}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": labels,
                "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},  # it has no controller
            },
            "spec": {"containers": [{"name": "main", "image": "image", "resources": resources}], **spec},
        }
        self._client.create(PODS, pod, NAMESPACE)
        self._alive.append(name)

    def _delete_pods(self) -> None:
        self._delete(self._chance.randint(1, 6))

    def _delete_most_pods(self) -> None:
        """Leaves a few on most nodes, which are then drained."""
        self._delete(len(self._alive) * 2 // 3)

    def _delete(self, most: int) -> None:
        for _ in range(min(len(self._alive), most)):
            name = self._alive.pop(self._chance.randrange(len(self._alive)))
            with contextlib.suppress(NotFound):  # evicted
                self._client.delete(PODS, name, NAMESPACE, grace_period_seconds=0)

    def _edit_policy(self) -> None:
        config = colocation_config(PROFILES[ProfileName.PRODUCTION])
        config |= {"midCPUThresholdPercent": self._chance.choice((20, 50, 100)), "degradeTimeMinutes": 15}
        data = {names.CONFIG_KEY_COLOCATION: json.dumps(config)}
        self._client.patch(CONFIGMAPS, names.CONFIG_MAP, {"data": data}, names.INSTALL_NAMESPACE)

    def _cordon(self) -> None:
        """Cordons or uncordons one of the nodes that no cloud made."""
        name, cordons = self._chance.choice(self._nodes), self._chance.random() < 0.3
        self._client.patch(NODES, name, {"spec": {"unschedulable": cordons or None}})

    def _create_hostile_pod(self, chance: random.Random) -> None:
        amounts = {names.MID_CPU: "1000000", names.MID_MEMORY: "1Ti"}
        self._create(
            amounts,
            {names.LABEL_PRIORITY_CLASS: "koord-mid"},
            nodeName=chance.choice(self._nodes),
            tolerations=[{"operator": "Exists"}],
        )

    def _write_hostile_report(self, chance: random.Random) -> None:
        amounts = chance.choice(({"cpu": "1e9"}, {"cpu": "-5"}, {"memory": "999Ei"}, {"cpu": "", "memory": "x"}, {}))
        status = {"prodReclaimableMetric": {"resource": {"resources": amounts}}}
        self._client.patch(NODEMETRICS, self._nodes[-1], {"status": status}, subresource="status")


class Budgets:
    """Users who protect the pods of their applications by disruption budgets, change these, and take them away."""

    def __init__(self, client: Client, seed: int) -> None:
        self._client = client
        self._chance = seeded("budgets", seed)

    def run(self) -> None:
        clock = SystemClock()
        while True:
            clock.wait(threading.Event(), self._chance.expovariate(1 / PROTECTED_SECONDS))
            app = self._chance.choice(APPS)
            with contextlib.suppress(HeadroomError):
                self._protect(app, self._chance.choice((0, 0, 1, 4, MOST_PODS)))

    def _protect(self, app: str, least: int) -> None:
        """`least` of its pods must be ready, if above 0."""
        with contextlib.suppress(NotFound):
            self._client.delete(PODDISRUPTIONBUDGETS, app, NAMESPACE)
        if least:
            budget = {
                "apiVersion": PODDISRUPTIONBUDGETS.api_version,
                "kind": "PodDisruptionBudget",
                "metadata": {"name": app, "namespace": NAMESPACE},
                "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": app}}},
            }
            self._client.create(PODDISRUPTIONBUDGETS, budget, NAMESPACE)


def start(client: Client, seed: int, nodes: list[str]) -> Users:
    """Starts them, in the running task's process."""
    users = Users(client, seed, nodes)
    WORLD.spawn(users.run, USERS)
    return users
