"""The manager with the example of a cloud provider, installed from its wheel."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.errors import InvalidInput
from shared.kube.resources import PODS
from tests.integration.manager.conftest import Cluster, StartManager
from tests.support import eventually, example_packages
from tests.support.apiserver import ApiServer

pytestmark = pytest.mark.embedded_only("a provider of another package is asked; of a server it wants nothing new")

PATIENCE_SECONDS = 60.0
ROW = {"name": "row-a", "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"}, "machines": ["a1", "a2", "a3"]}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings of a manager whose machines stand in a room, beside this checkout's packages."""
    site = tmp_path / "site"
    example_packages.install(example_packages.build_wheel("cloudprovider", tmp_path), site)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "machine_room", raising=False)
    file = tmp_path / "room.yaml"
    file.write_text(yaml.safe_dump({"rows": [ROW], "power": str(tmp_path / "power")}))
    return {"cloud_provider": "machine-room", "cloud_config": str(file), "expander": "least-waste"}


def test_the_manager_switches_machines_on_for_pods_that_fit_nowhere(
    server: ApiServer, cluster: Cluster, start_manager: StartManager, room: dict[str, Any], tmp_path: Path
) -> None:
    namespace = server.add_namespace()
    for name in ("a", "b"):
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "3"}}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
        cluster.client.create(PODS, body, namespace)
        status = {"status": {"conditions": [UNSCHEDULABLE]}}
        cluster.client.patch(PODS, name, status, namespace, subresource="status")
    start_manager(**room, nodes=("0:3:row-a",), scan_interval_seconds=0.1)
    power = tmp_path / "power" / "row-a"
    eventually(lambda: power.exists() and power.read_text().split() == ["a1", "a2"], PATIENCE_SECONDS)


def test_options_of_its_own_in_the_node_groups_file_are_checked_where_the_file_is_read(
    start_manager: StartManager, room: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "groups.yaml"
    group = {"name": "a", "cloud_provider_group_name": "row-a", "policy": "pending-pods"}
    file.write_text(yaml.safe_dump({"node_groups": [{**group, "machine-room": {"spare_machines": "many"}}]}))
    with pytest.raises(InvalidInput, match=r"groups\.yaml: group a: node_groups\[0\]\.machine-room\.spare_machines"):
        start_manager(**room, node_groups=str(file))


def test_a_provider_that_cannot_be_made_stops_the_start_with_its_entry_point(
    start_manager: StartManager, room: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = tmp_path / "site" / "machine_room.py"
    module.write_text(module.read_text() + "\nPLUGIN = 'not a plug-in'\n")
    with pytest.raises(InvalidInput, match=r"entry point machine-room = machine_room:PLUGIN .* stands for a str"):
        start_manager(**room, nodes=("0:3:row-a",))
