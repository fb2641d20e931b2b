"""A namespace with objects of Cluster API, of an older version and in a group of its own, and our provider there."""

import contextlib
from pathlib import Path
from typing import Any

import yaml

from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import Ownership
from shared.clock import ManualClock
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, ApiError
from shared.kube.resources import Resource
from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.clusterapi import definition
from tests.support.custom_kinds import CRDS
from tests.support.observing import guarded

GROUP = "capi.example.com"
MACHINES, DEPLOYMENTS, SETS, POOLS = (
    Resource(GROUP, "v1beta1", plural, namespaced=True)
    for plural in ("machines", "machinedeployments", "machinesets", "machinepools")
)
KINDS = {"Machine": MACHINES, "MachineDeployment": DEPLOYMENTS, "MachineSet": SETS, "MachinePool": POOLS}
MIN, MAX = (f"{GROUP}/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max"))
MARK = f"{GROUP}/delete-machine"


class Fleet:
    """One namespace, as Cluster API and people see it, and our provider, which a test may begin anew."""

    def __init__(self, server: ApiServer, file: Path) -> None:
        self.client = server.client()
        self.server = server
        self.namespace = server.add_namespace()
        self.file = file
        self.clock = ManualClock()
        self._guards: list[Guard] = []
        for kind, resource in KINDS.items():
            with contextlib.suppress(AlreadyExists):
                self.client.create(CRDS, definition(kind, resource, scales=kind != "Machine"))
        eventually(lambda: all(map(self._knows, KINDS.values())))
        self.web = f"MachineDeployment/{self.namespace}/web"
        self.add("MachineDeployment", "web", {MIN: "1", MAX: "5"})
        self.add("MachineSet", "web-1", owner=("MachineDeployment", "web"))
        for name in "abc":
            self.add_machine(name)
        self.guard = self.begin()
        self.guard.observe()

    def configure(self, **more: Any) -> None:
        self.file.write_text(yaml.safe_dump({"api_group": GROUP, "discover": [{"namespace": self.namespace}]} | more))

    def begin(self, client: Client | None = None, *, writes: bool = True, **more: Any) -> Guard:
        self.configure(**more)
        given: dict[str, Any] = {"client": client or self.client, "clock": self.clock}
        self._guards.append(guarded("clusterapi", self.file, Ownership(opted_in=True), writes=writes, **given))
        return self._guards[-1]

    def add(
        self,
        kind: str,
        name: str,
        annotations: dict[str, str] | None = None,
        owner: tuple[str, str] | None = None,
        **spec: Any,
    ) -> None:
        meta: dict[str, Any] = {"name": name, "annotations": annotations or {}}
        if owner is not None:
            reference = {"apiVersion": f"{GROUP}/v1beta1", "kind": owner[0], "name": owner[1]}
            reference["uid"] = self.client.get(KINDS[owner[0]], owner[1], self.namespace)["metadata"]["uid"]
            meta["ownerReferences"] = [reference]
        spec = {"clusterName": "prod", "replicas": 3} | spec
        body = {"apiVersion": f"{GROUP}/v1beta1", "kind": kind, "metadata": meta, "spec": spec}
        self.client.create(KINDS[kind], body, self.namespace)

    def add_machine(self, name: str, owner: tuple[str, str] = ("MachineSet", "web-1")) -> None:
        """With a node of its own."""
        self.add("Machine", name, owner=owner, providerID=f"capi:///{name}")
        status = {"nodeRef": {"name": f"node-{name}"}, "phase": "Running"}
        self.client.patch(MACHINES, name, {"status": status}, self.namespace, subresource="status")

    def scale(self, replicas: int) -> None:
        """Somebody else does."""
        self.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": replicas}}, self.namespace)

    def annotate(self, key: str, value: str | None) -> None:
        self.client.patch(DEPLOYMENTS, "web", {"metadata": {"annotations": {key: value}}}, self.namespace)

    def deployment(self) -> dict[str, Any]:
        return self.client.get(DEPLOYMENTS, "web", self.namespace)

    def replicas(self) -> int:
        return int(self.deployment()["spec"]["replicas"])

    def marked(self) -> list[str]:
        found = self.client.list(MACHINES, self.namespace).items
        return sorted(each["metadata"]["name"] for each in found if MARK in each["metadata"].get("annotations", {}))

    def states(self, guard: Guard | None = None) -> dict[str, str]:
        found = (guard or self.guard).observe().groups[self.web].instances
        return {each.provider_id.rpartition("/")[2]: each.state.value for each in found}

    def close(self) -> None:
        for guard in self._guards:
            guard.close()
        self.client.close()

    def _knows(self, resource: Resource) -> bool:
        try:
            self.client.list(resource)
        except ApiError:
            return False
        return True
