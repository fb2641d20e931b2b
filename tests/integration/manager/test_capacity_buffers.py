"""CapacityBuffers on a real API server: bought for, kept from scale-down, and answered in their status."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manager.autoscaler import listers
from manager.autoscaler.pod_injection import chunk_sources
from manager.autoscaler.reporting import object_status
from shared.kube.resources import CAPACITYBUFFERS, DEPLOYMENTS, PODTEMPLATES
from tests.integration.manager.conftest import Cluster, StartManager
from tests.integration.manager.test_autoscaler import PATIENCE_SECONDS, WEB, Town, later_decisions, latest
from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.custom_kinds import CRDS, definition_of, is_served

AT_ONCE: dict[str, Any] = {
    "capacity_buffer_pod_injection_enabled": True,
    "scale_down_unneeded_time_seconds": 0.3,
    "scale_down_delay_after_add_seconds": 0.0,
    "scale_down_delay_after_failure_seconds": 0.0,
    "node_delete_delay_after_taint_seconds": 0.0,
    "scale_down_peaks": False,
}


class BufferTown(Town):
    """A town whose API server knows CapacityBuffers."""

    def add_buffer(self, name: str, **spec: Any) -> None:
        self.client.create(CAPACITYBUFFERS, self._body("CapacityBuffer", name, spec=spec), self.namespace)

    def add_template(self, name: str) -> None:
        template = {"metadata": {"labels": {"app": "web"}}, "spec": self._pod()}
        self.client.create(PODTEMPLATES, {**self._body("PodTemplate", name), "template": template}, self.namespace)

    def add_deployment(self, name: str) -> None:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": self._pod()}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        self.client.create(DEPLOYMENTS, self._body("Deployment", name, spec=spec), self.namespace)

    def change(self, name: str, **spec: Any) -> None:
        self.client.patch(CAPACITYBUFFERS, name, {"spec": spec}, self.namespace)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(CAPACITYBUFFERS, name, self.namespace).get("status", {})
        return found

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        return next((each for each in self.status(name).get("conditions", ()) if each["type"] == kind), {})

    def eventually_says(self, name: str, kind: str, reason: str) -> dict[str, Any]:
        eventually(lambda: self.condition(name, kind).get("reason") == reason, PATIENCE_SECONDS)
        return self.condition(name, kind)

    def told(self, name: str, reason: str) -> bool:
        """Whether an Event on the buffer says so."""
        return any(event["involvedObject"]["name"] == name for event in self.cluster.events(reason))

    def eventually_has(self, nodes: int) -> None:
        eventually(lambda: len(self.nodes) == nodes, PATIENCE_SECONDS)

    def _body(self, kind: str, name: str, **more: Any) -> dict[str, Any]:
        version = {"CapacityBuffer": CAPACITYBUFFERS, "PodTemplate": PODTEMPLATES, "Deployment": DEPLOYMENTS}[kind]
        return {"apiVersion": version.api_version, "kind": kind, "metadata": {"name": name}, **more}

    def _pod(self) -> dict[str, Any]:
        """Of which two fit on a node."""
        resources = {"requests": {"cpu": "1900m"}}
        return {
            "nodeSelector": {"team": "web"},
            "containers": [{"name": "c", "image": "none", "resources": resources}],
        }


@pytest.fixture
def town(
    server: ApiServer,
    cluster: Cluster,
    tmp_path: Path,
    start_manager: StartManager,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[BufferTown]:
    """Where everything is looked at often, and a status written as soon as it says something else."""
    monkeypatch.setattr(listers, "ABSENT_SECONDS", 0.2)
    monkeypatch.setattr(chunk_sources, "READ_SECONDS", 0.2)
    monkeypatch.setattr(object_status, "BUFFER_SECONDS", 0.0)
    definition = definition_of(CAPACITYBUFFERS, "CapacityBuffer")
    cluster.client.create(CRDS, definition)
    eventually(lambda: is_served(cluster.client, CAPACITYBUFFERS))
    town = BufferTown(cluster, server.add_namespace(), tmp_path / "cloud.yaml", start_manager)
    yield town
    town.close()
    cluster.client.delete(CRDS, definition["metadata"]["name"])
    eventually(lambda: not is_served(cluster.client, CAPACITYBUFFERS))


def test_room_is_bought_once_and_again_when_pods_have_taken_it_and_goes_with_its_buffer(town: BufferTown) -> None:
    town.add_template("chunk")
    town.add_buffer("spare", podTemplateRef={"name": "chunk"}, replicas=2)
    town.offer(WEB)
    manager = town.manager("0:10:web", **AT_ONCE)
    said = town.eventually_says("spare", "Provisioning", "FitsExistingCapacity")
    assert (said["status"], said["message"]) == ("True", "of 2 chunks 2 have room on nodes")
    status = town.status("spare")
    assert (status["replicas"], status["podTemplateRef"]) == (2, {"name": "chunk"})
    eventually(lambda: town.told("spare", "TriggeredScaleUp"), PATIENCE_SECONDS)
    later_decisions(manager)
    before = {each.metadata.name for each in town.nodes}
    assert len(before) == 1  # which stays, though no pod is on it

    town.pods(1, nodeSelector={"team": "web"})
    (node,) = town.eventually_bound(1).values()
    assert len({node} & before) == 1  # it did not wait for another one
    town.eventually_has(2)
    town.eventually_says("spare", "Provisioning", "FitsExistingCapacity")
    later_decisions(manager)
    assert len(town.nodes) == 2

    town.change("spare", limits={"nvidia.com/gpu": 1})
    refused = town.eventually_says("spare", "ReadyForProvisioning", "error")
    assert "a chunk requests nothing of what is limited; the last valid version stays in effect" in refused["message"]
    eventually(lambda: "CapacityBuffer" in str(latest(manager)["invalid_objects"]), PATIENCE_SECONDS)
    later_decisions(manager)
    assert len(town.nodes) == 2

    town.client.delete(CAPACITYBUFFERS, "spare", town.namespace)
    town.eventually_has(1)
    assert town.bound == {"p0": node}


def test_a_buffer_waits_for_its_workload_and_is_bought_for_when_that_is_there(town: BufferTown) -> None:
    town.offer(WEB)
    town.manager("0:10:web", **AT_ONCE)
    town.add_buffer("spare", scalableRef={"apiGroup": "apps", "kind": "Deployment", "name": "web"}, replicas=3)
    missing = town.eventually_says("spare", "ReadyForProvisioning", "error")
    assert f"'Deployment {town.namespace}/web': there is none" in missing["message"]
    town.add_deployment("web")
    town.eventually_says("spare", "ReadyForProvisioning", "AttributesSetSuccessfully")
    town.eventually_has(2)
    town.eventually_says("spare", "Provisioning", "FitsExistingCapacity")
