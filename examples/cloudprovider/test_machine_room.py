"""Run it with `pytest` where Headroom is installed."""

import json
from pathlib import Path

import pytest
from machine_room import PLUGIN, RowOptions

from headroom_api.cloudproviders import (
    Client,
    Connection,
    Guard,
    Loops,
    ManagedGroups,
    ManualClock,
    NodeRef,
    Ownership,
    Provider,
    ProviderRequest,
    Refused,
    Unsupported,
)

ROW = {"name": "row-a", "capacity": {"cpu": "16", "memory": "64Gi"}, "machines": ["a1", "a2", "a3"]}
NOBODY = Client(Connection("http://127.0.0.1:1"), "test")


@pytest.fixture
def provider(tmp_path: Path) -> Provider:
    file = tmp_path / "room.yaml"
    file.write_text(json.dumps({"rows": [ROW], "power": str(tmp_path / "power")}))
    groups = ManagedGroups(own_options={"row-a": RowOptions(spare_machines=1)})
    return PLUGIN.make(
        ProviderRequest(
            config=file, client=NOBODY, namespace="default", clock=ManualClock(), groups=groups, loops=Loops()
        )
    )


def test_a_row_grows_by_the_machines_that_are_off_and_shrinks_by_those_that_go(provider: Provider) -> None:
    guard = Guard(provider, Ownership({"row-a": None}))
    assert guard.observe().groups["row-a"].group.target_size == 0
    guard.increase("row-a", 2)
    assert [each.provider_id for each in guard.observe().groups["row-a"].instances] == [
        "machine-room://a1",
        "machine-room://a2",
    ]
    guard.delete_nodes("row-a", [NodeRef("n1", "machine-room://a1")])
    assert guard.observe().groups["row-a"].group.target_size == 1


def test_spare_machines_stay_off(provider: Provider) -> None:
    with pytest.raises(Refused):
        provider.increase("row-a", 3)


def test_what_it_does_not_do_it_says(provider: Provider) -> None:
    with pytest.raises(Unsupported):
        provider.machine_types()
