"""Pods with claims over successive iterations: what is bought for them, while drivers publish devices late."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared import durations
from shared.api.core import Node, Pod
from shared.api.dra import ResourceClaimTemplate
from tests.unit.manager.test_devices import DRIVER, claim, claim_spec, device_class, slice_of
from tests.unit.manager.test_disagreements import DAY, TYPE, Town

TEMPLATE = {"metadata": {"name": "one-gpu", "namespace": "ns"}, "spec": {"spec": claim_spec()}}
CLAIMS: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}


class GpuTown(Town):
    """Each small node has two devices, from `publishes_seconds` after it has come."""

    publishes_seconds = 0.0
    extended = ""
    has_driver: Callable[[Node], bool] = staticmethod(lambda _: True)

    def surroundings(self) -> ReferencedObjects:
        nodes = [name for name in self.nodes if self._has_devices(self.nodes[name])]
        template = msgspec.convert(TEMPLATE, ResourceClaimTemplate)
        claims = [
            claim(f"{name}-claim", claim_spec(), pod.spec.node_name, (f"d{place}",), by=name)
            for node in nodes
            for place, (name, pod) in enumerate(self._claiming(node))
        ]
        return ReferencedObjects(
            device_classes={"gpu": device_class(extended=self.extended)},
            resource_slices={f"{name}-{DRIVER}": slice_of(name, 40, 40) for name in nodes},
            resource_claims={each.metadata.key: each for each in claims},
            resource_claim_templates={template.metadata.key: template},
        )

    def needs_devices(self, pod: Pod, node: Node) -> str:
        if pod.spec.resource_claims is None:
            return ""
        free = 2 - len(self._claiming(node.metadata.name)) if self._has_devices(node) else 0
        return "" if free > 0 else "cannot allocate all claims"

    def _claiming(self, node: str) -> list[tuple[str, Pod]]:
        on_node = sorted((name, pod) for name, pod in self.pods.items() if pod.spec.node_name == node)
        return [(name, pod) for name, pod in on_node if pod.spec.resource_claims]

    def _has_devices(self, node: Node) -> bool:
        came = durations.instant(node.metadata.creation_timestamp or "")
        is_small = (node.metadata.labels or {})[TYPE] == "small"
        return is_small and self.has_driver(node) and self.now - came >= self.publishes_seconds


@pytest.fixture
def town() -> GpuTown:
    town = GpuTown()
    town.refuses = town.needs_devices
    town.add_node("small")
    town.pass_time(120)
    return town


def name_claims(town: GpuTown) -> None:
    """Says in each pod's status which claim was made for it."""
    for name, pod in town.pods.items():
        if pod.spec.resource_claims:
            made = [{"name": "gpu", "resourceClaimName": f"{name}-claim"}]
            status = msgspec.convert(
                {**msgspec.to_builtins(pod.status), "resourceClaimStatuses": made}, type(pod.status)
            )
            town.pods[name] = msgspec.structs.replace(pod, status=status)


@pytest.mark.parametrize("extended", ["", "example.com/gpu"])
@pytest.mark.parametrize("publishes_seconds", [0.0, 90.0])
def test_each_two_claims_get_a_node_and_no_pod_gets_a_second_one(
    town: GpuTown, publishes_seconds: float, extended: str
) -> None:
    """Also where the same devices serve an extended resource."""
    town.extended = extended
    town.pass_time(90)  # by then the node there is old enough to be the template of others
    town.publishes_seconds = publishes_seconds
    for number in range(5):
        town.add_pod(f"p{number}", **CLAIMS)
    name_claims(town)
    town.pass_time(600)
    assert town.pending() == []
    assert town.bought == {"small": 2}, "three pods beyond those that the node there has devices for"
    assert not any(each.disagreements for each in town.seen)


def test_a_group_without_devices_helps_no_pod_with_claims(town: GpuTown) -> None:
    town.max_sizes["small"] = 0
    town.nodes.clear()
    town.cloud.members["small"].clear()
    town.restart()
    town.add_node("large")
    town.pass_time(120)
    town.add_pod("p", **CLAIMS)
    town.pass_time(DAY, 600)
    assert not town.bought


def test_nodes_whose_driver_never_publishes_devices_are_not_bought_again(town: GpuTown) -> None:
    for number in range(5):
        town.add_pod(f"p{number}", **CLAIMS)
    name_claims(town)
    first = next(iter(town.nodes))
    town.has_driver = lambda node: node.metadata.name == first
    town.pass_time(1200, 20)
    for number in range(3):  # by which the scheduler shows that it is there
        town.add_pod(f"plain-{number}", cpu="100m")
        town.pass_time(400, 20)
    assert town.bought == {"small": 2}
    assert len(town.pending()) == 3
    assert town.last.disagreements[0].plugin == "DynamicResources"
    town.pass_time(0.5 * DAY, 900)
    assert town.bought == {"small": 2}
