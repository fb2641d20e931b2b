"""Several targets raised at once, of which the cloud hangs at the first."""

import threading
from collections.abc import Iterator, Mapping

import pytest

from manager.autoscaler.actuation.group_writer import GroupWriter
from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cloudprovider.errors import NoAnswer, NotAsked
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cluster_state.registry import Registry
from manager.autoscaler.cluster_state.registry_store import RegistryStore
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.decision_settings import load
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared.clock import SystemClock
from shared.kube.configmap_store import ConfigMapStore
from tests.support.observing import observed
from tests.unit.manager.clouds import MemoryCloud
from tests.unit.manager.objects import NOW


class Shelf(ConfigMapStore):
    """Out of the cluster."""

    def __init__(self) -> None:
        self.text: str | None = None

    def read(self) -> tuple[str | None, str]:
        return self.text, self.text or ""

    def write(self, text: str, annotations: Mapping[str, str] | None = None) -> str:
        self.text = text
        return text


@pytest.fixture
def hang() -> Iterator[threading.Event]:
    hang = threading.Event()
    yield hang
    hang.set()


def test_groups_that_were_not_asked_are_as_before(hang: threading.Event) -> None:
    config = load(AutoscalerSettings(cloud_provider="simulated", nodes=("0:10:a", "0:10:b"), parallel_scale_up=True))
    cloud = MemoryCloud(Group("a", 0, 10, 0), Group("b", 0, 10, 0))

    def trouble() -> None:
        hang.wait(30)

    cloud.trouble = trouble
    guard = Guard(cloud, config.ownership, deadline_seconds=0.2)
    observed(guard)
    groups = GroupWriter(
        config, guard, threading.Lock(), RegistryStore(Shelf(), lambda: True), lambda: True, SystemClock()
    )
    errors, kept = groups.raise_targets([Increase(each, 0, 2, 10) for each in "ab"], Registry(), NOW)
    (asked,) = [group for group, error in errors.items() if isinstance(error, NoAnswer)]
    (other,) = {"a", "b"} - {asked}
    assert isinstance(errors[other], NotAsked)
    assert list(kept.backoffs) == list(kept.requests) == [asked]
