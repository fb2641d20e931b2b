"""ProvisioningRequests on a real API server: answered in their conditions, bought for as a whole, booked, and over."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manager.autoscaler import listers
from manager.autoscaler.pod_injection import chunk_sources, request_planning, request_states
from manager.autoscaler.reporting import object_status
from shared.kube.errors import AlreadyExists
from shared.kube.resources import PODS, PODTEMPLATES, PROVISIONINGREQUESTS
from tests.integration.manager.conftest import Cluster, StartManager
from tests.integration.manager.test_autoscaler import PATIENCE_SECONDS, WEB, Town, later_decisions, latest
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule
from tests.support.custom_kinds import CRDS, definition_of, is_served
from tests.unit.manager.requests import ATOMIC, CHECK

AT_ONCE: dict[str, Any] = {
    "enable_provisioning_requests": True,
    "scale_down_unneeded_time_seconds": 0.3,
    "scale_down_delay_after_add_seconds": 0.0,
    "scale_down_delay_after_failure_seconds": 0.0,
    "node_delete_delay_after_taint_seconds": 0.0,
    "scale_down_peaks": False,
}


class QueueTown(Town):
    """A town whose API server knows ProvisioningRequests."""

    def add_template(self, name: str = "worker") -> None:
        """Pods of which two fit on a node."""
        pod = {
            "nodeSelector": {"team": "web"},
            "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "1900m"}}}],
        }
        body = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": {"spec": pod}}
        self.client.create(PODTEMPLATES, body, self.namespace)

    def ask(self, name: str, kind: str, count: int, template: str = "worker", **parameters: str) -> None:
        pod_sets = [{"podTemplateRef": {"name": template}, "count": count}]
        body = {
            "apiVersion": PROVISIONINGREQUESTS.api_version,
            "kind": "ProvisioningRequest",
            "metadata": {"name": name},
            "spec": {"provisioningClassName": kind, "podSets": pod_sets, "parameters": parameters},
        }
        self.client.create(PROVISIONINGREQUESTS, body, self.namespace)

    def eventually_says(self, name: str, kind: str, reason: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def look() -> bool:
            nonlocal found
            status = self.client.get(PROVISIONINGREQUESTS, name, self.namespace).get("status", {})
            found = {each["type"]: each for each in status.get("conditions", ())}
            return bool(found.get(kind, {}).get("reason") == reason)

        try:
            eventually(look, PATIENCE_SECONDS)
        except AssertionError as error:
            error.add_note(f"conditions: {found}")
            raise
        return found

    def consume(self, name: str, count: int) -> None:
        for number in range(count):
            annotations = {"autoscaling.x-k8s.io/consume-provisioning-request": name}
            resources = {"requests": {"cpu": "1900m"}}
            spec = {
                "nodeSelector": {"team": "web"},
                "containers": [{"name": "c", "image": "none", "resources": resources}],
            }
            meta = {"name": f"{name}-{number}", "annotations": annotations}
            self.client.create(
                PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, self.namespace
            )

    def told(self, name: str, reason: str) -> bool:
        """Whether an Event on the request says so."""
        return any(event["involvedObject"]["name"] == name for event in self.cluster.events(reason))

    def eventually_has(self, nodes: int) -> None:
        eventually(lambda: len(self.nodes) == nodes, PATIENCE_SECONDS)


@pytest.fixture
def town(
    server: ApiServer,
    cluster: Cluster,
    tmp_path: Path,
    start_manager: StartManager,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[QueueTown]:
    """Where everything is looked at often, and asked again at once."""
    monkeypatch.setattr(listers, "ABSENT_SECONDS", 0.2)
    monkeypatch.setattr(chunk_sources, "READ_SECONDS", 0.2)
    monkeypatch.setattr(object_status, "REQUEST_SECONDS", 0.0)
    monkeypatch.setattr(request_planning, "FIRST_RETRY_SECONDS", 0.2)
    monkeypatch.setattr(request_planning, "MOST_RETRY_SECONDS", 0.2)
    definition = definition_of(PROVISIONINGREQUESTS, "ProvisioningRequest")
    with contextlib.suppress(AlreadyExists):  # of another cloud's tests
        cluster.client.create(CRDS, definition)
    eventually(lambda: is_served(cluster.client, PROVISIONINGREQUESTS))
    town = QueueTown(cluster, server.add_namespace(), tmp_path / "cloud.yaml", start_manager)
    yield town
    for each in cluster.client.list(PROVISIONINGREQUESTS, town.namespace).items:
        cluster.client.delete(PROVISIONINGREQUESTS, each["metadata"]["name"], town.namespace)
    town.close()


def test_room_is_bought_as_a_whole_booked_and_taken_by_the_pods_it_is_for(town: QueueTown) -> None:
    town.add_template()
    town.offer(WEB)
    manager = town.manager("0:3:web", **AT_ONCE)
    town.ask("job", ATOMIC, 3)
    said = town.eventually_says("job", "Provisioned", "CapacityIsProvisioned")
    assert (said["Accepted"]["status"], said["Provisioned"]["status"]) == ("True", "True")
    eventually(lambda: town.told("job", "TriggeredScaleUp"), PATIENCE_SECONDS)
    before = {each.metadata.name for each in town.nodes}
    assert len(before) == 2  # which stay, though no pod is on them
    later_decisions(manager)

    town.ask("second", CHECK, 2)  # a half node is left beside the booking
    town.eventually_says("second", "Provisioned", "CapacityIsNotFound")
    town.ask("large", ATOMIC, 4)  # two nodes more, and the group may have one
    said = town.eventually_says("large", "Provisioned", "CapacityIsNotFound")
    assert said["Provisioned"]["message"].startswith("of 4 pods ")
    rows = {each["request"]: each for each in latest(manager)["requests"]}
    assert rows[f"{town.namespace}/job"]["state"] == "booked"
    later_decisions(manager)
    assert {each.metadata.name for each in town.nodes} == before

    town.consume("job", 3)
    assert set(town.eventually_bound(3).values()) == before
    town.eventually_says("job", "BookingExpired", "CapacityBookingConsumed")
    for name in ("second", "large"):
        town.client.delete(PROVISIONINGREQUESTS, name, town.namespace)
    assert {each.metadata.name for each in town.nodes} == before


def test_a_booking_outlives_its_manager_and_frees_its_nodes_when_its_time_is_over_or_it_is_deleted(
    town: QueueTown, monkeypatch: pytest.MonkeyPatch
) -> None:
    town.ask("early", ATOMIC, 1)
    town.ask("broken", ATOMIC, 10**9)
    town.offer(WEB)
    manager = town.manager("0:3:web", **AT_ONCE)
    said = town.eventually_says("early", "Accepted", "FailedToCreatePods")
    assert "there is none" in said["Accepted"]["message"]
    said = town.eventually_says("broken", "Failed", "FailedToCreatePods")
    assert "spec.podSets[0].count: 1000000000: more than 10000 pods" in said["Failed"]["message"]
    town.add_template()
    town.eventually_says("early", "Provisioned", "CapacityIsProvisioned")
    town.ask("late", ATOMIC, 2)
    town.eventually_says("late", "Provisioned", "CapacityIsProvisioned")
    assert len(town.nodes) == 2

    manager.close()
    again = town.manager("0:3:web", **AT_ONCE)
    eventually(lambda: latest(again).get("requests"), PATIENCE_SECONDS)
    later_decisions(again)
    assert len(town.nodes) == 2

    town.client.delete(PROVISIONINGREQUESTS, "late", town.namespace)
    town.eventually_has(1)
    monkeypatch.setattr(request_states, "BOOKED_SECONDS", 0.0)
    town.eventually_says("early", "BookingExpired", "CapacityReservationTimeExpired")
    town.eventually_has(0)


@pytest.mark.embedded_only("faults are the embedded server's")
def test_what_cannot_be_told_is_bought_and_promised_once_and_told_later(town: QueueTown, server: ApiServer) -> None:
    town.add_template()
    town.offer(WEB)
    manager = town.manager("0:9:web", **AT_ONCE)
    server.fault(rule("status", "provisioningrequests", method="PATCH", times=0, status=503))
    town.ask("job", ATOMIC, 2)
    town.eventually_has(1)
    town.ask("check", CHECK, 1)

    def stages() -> dict[str, str]:
        return {each["request"].rpartition("/")[2]: each["state"] for each in latest(manager).get("requests", ())}

    eventually(lambda: stages() == {"job": "booked", "check": "pending"}, PATIENCE_SECONDS)
    later_decisions(manager)
    assert stages() == {"job": "booked", "check": "pending"}
    server.kill()
    server.start()
    town.eventually_says("job", "Provisioned", "CapacityIsProvisioned")
    town.eventually_says("check", "Provisioned", "CapacityIsNotFound")
    later_decisions(manager)
    assert town.targets() == {"web": 1}
