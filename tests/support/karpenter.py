"""Real Karpenter with its kwok provider, on an API server of the tests, and what kubelets would do on its nodes."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.local import ports
from shared.kube.errors import AlreadyExists, NotFound
from shared.kube.resources import NODECLAIMS, NODEPOOLS, Resource
from tests.apiserver.module_build import BuiltController
from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.foreign_controller import ForeignController

NODE_CLASSES = Resource("karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses", namespaced=False)
KWOK_LABEL = "kwok.x-k8s.io/node"  # on Nodes that Karpenter's kwok provider makes
ZONES = ("test-zone-a", "test-zone-b")
NODE_CLASS = {"group": NODE_CLASSES.group, "version": NODE_CLASSES.version, "kind": "KWOKNodeClass", "name": "default"}
# cores by machine type, each with 4 GiB a core, at 0.05 an hour and core, and 10 % more in the second zone
MACHINE_TYPES = {"c-1": 1, "c-2": 2, "c-4": 4, "c-16": 16}


def price(cores: int, zone: str) -> float:
    return round(0.05 * cores * (1.0 if zone == ZONES[0] else 1.1), 4)


def catalogue() -> list[dict[str, Any]]:
    """In Headroom's words."""
    return [
        {
            "name": name,
            "allocatable": {"cpu": f"{cores * 1000 - 100}m", "memory": f"{4 * cores - 1}Gi", "pods": "110"},
            "capacity": {"cpu": str(cores), "memory": f"{4 * cores}Gi"},
            "offerings": [{"zone": zone, "price": price(cores, zone)} for zone in ZONES],
        }
        for name, cores in MACHINE_TYPES.items()
    ]


def instance_types(missing: Sequence[tuple[str, str]] = ()) -> list[dict[str, Any]]:
    """In Karpenter's; of `missing` machine types with a zone it knows nothing."""

    def offering(cores: int, zone: str) -> dict[str, Any]:
        labels = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": zone}
        requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
        return {"Price": price(cores, zone), "Available": True, "Requirements": requirements}

    return [
        {
            "name": name,
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": {
                "cpu": str(cores),
                "memory": f"{4 * cores}Gi",
                "pods": "110",
                "ephemeral-storage": "20Gi",
            },
            "offerings": [offering(cores, zone) for zone in ZONES if (name, zone) not in missing],
        }
        for name, cores in MACHINE_TYPES.items()
    ]


class Karpenter(ForeignController):
    """It runs from the beginning; `stop` and `start` restart it, with an offer of another day."""

    def __init__(self, server: ApiServer, built: BuiltController, directory: Path) -> None:
        super().__init__("karpenter", KWOK_LABEL, server, built, directory)
        # Of CapacityBuffers, whose kind it brings as well, it knows nothing unless told; other tests make that kind.
        own = [body for body in self._own_definitions() if "karpenter" in body["spec"]["group"]]
        self._define(own, (NODECLAIMS, NODE_CLASSES))
        self.start()
        self._keep_nodes_alive()

    def start(self, missing: Sequence[tuple[str, str]] = ()) -> None:
        offer = self._directory / "instance-types.json"
        offer.write_text(json.dumps(instance_types(missing)))
        health = ports.free()
        environment = {
            "SYSTEM_NAMESPACE": "kube-system",
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": str(ports.free()),
            "HEALTH_PROBE_PORT": str(health),
            "INSTANCE_TYPES_FILE_PATH": str(offer),
        }
        self._launch((), environment, f"{health}/healthz")

    def add_node_class(self, name: str = "default", registration_seconds: int = 1) -> None:
        body = {
            "apiVersion": NODE_CLASSES.api_version,
            "kind": "KWOKNodeClass",
            "metadata": {"name": name},
            "spec": {"nodeRegistrationDelay": f"{registration_seconds}s"},
        }
        with contextlib.suppress(AlreadyExists):
            self.client.create(NODE_CLASSES, body)
        eventually(lambda: _ready(self.client.get(NODE_CLASSES, name)))

    def add_node_pool(self, name: str, labels: dict[str, str], **spec: Any) -> None:
        """One by which Karpenter itself buys nodes with these labels and this `spec`, and keeps them."""
        ref = {key: NODE_CLASS[key] for key in ("group", "kind", "name")}
        template = {"metadata": {"labels": labels}, "spec": {"nodeClassRef": ref, "requirements": [], **spec}}
        body = {
            "apiVersion": NODEPOOLS.api_version,
            "kind": "NodePool",
            "metadata": {"name": name},
            "spec": {"template": template, "disruption": {"consolidateAfter": "Never"}},
        }
        self.client.create(NODEPOOLS, body)

    def clear(self) -> None:
        """Takes away all NodePools, and all claims with their nodes, those of a Karpenter that does not run as well."""
        for pool in self.client.list(NODEPOOLS).items:
            self.client.delete(NODEPOOLS, pool["metadata"]["name"])
        for claim in self.client.list(NODECLAIMS).items:
            with contextlib.suppress(NotFound):
                self.client.delete(NODECLAIMS, claim["metadata"]["name"])
        eventually(lambda: not self.client.list(NODECLAIMS).items and not self.nodes())


def _ready(found: dict[str, Any]) -> bool:
    conditions = found.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
