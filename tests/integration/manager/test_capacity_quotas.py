"""CapacityQuotas on a real API server: followed once their kind is there, held to, and answered in their status."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manager.autoscaler import listers
from manager.autoscaler.reporting import object_status
from shared.api.capacityquota import VALID
from shared.kube.client import Client
from shared.kube.resources import CAPACITYQUOTAS
from tests.integration.manager.conftest import Cluster, StartManager
from tests.integration.manager.test_autoscaler import PATIENCE_SECONDS, WEB, Town, later_decisions, latest
from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.custom_kinds import CRDS, definition_of, is_served

NAME = f"{CAPACITYQUOTAS.plural}.{CAPACITYQUOTAS.group}"


@pytest.fixture
def town(
    server: ApiServer,
    cluster: Cluster,
    tmp_path: Path,
    start_manager: StartManager,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Town]:
    """Where the kind is looked for often, and a status written as soon as it says something else."""
    monkeypatch.setattr(listers, "ABSENT_SECONDS", 0.2)
    monkeypatch.setattr(object_status, "QUOTA_SECONDS", 0.0)
    town = Town(cluster, server.add_namespace(), tmp_path / "cloud.yaml", start_manager)
    yield town
    town.close()


@pytest.fixture
def kinds(cluster: Cluster) -> Iterator[list[str]]:
    """The names of kinds that the test makes, and that go with it."""
    made: list[str] = []
    yield made
    for name in made:
        cluster.client.delete(CRDS, name)
    eventually(lambda: not is_served(cluster.client, CAPACITYQUOTAS))


def make_kind(client: Client, made: list[str]) -> None:
    client.create(CRDS, definition_of(CAPACITYQUOTAS, "CapacityQuota"))
    made.append(NAME)
    eventually(lambda: is_served(client, CAPACITYQUOTAS))


def limits(nodes: object) -> dict[str, Any]:
    return {"selector": {"matchLabels": {"team": "web"}}, "limits": {"resources": {"nodes": nodes}}}


def add_quota(client: Client, nodes: object) -> None:
    body = {"apiVersion": CAPACITYQUOTAS.api_version, "kind": "CapacityQuota", "metadata": {"name": "small"}}
    client.create(CAPACITYQUOTAS, {**body, "spec": limits(nodes)})


def validity(client: Client) -> dict[str, str]:
    conditions = client.get(CAPACITYQUOTAS, "small").get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == VALID), {})


def used(client: Client) -> object:
    return client.get(CAPACITYQUOTAS, "small").get("status", {}).get("used")


def test_nothing_is_bought_beyond_a_quota_whose_status_says_what_is_used_of_it(town: Town, kinds: list[str]) -> None:
    make_kind(town.client, kinds)
    add_quota(town.client, 1)
    town.offer(WEB)
    manager = town.manager("0:10:web", capacity_quotas_enabled=True)
    town.pods(6, nodeSelector={"team": "web"})  # two fit on a node
    town.eventually_bound(2)
    later_decisions(manager)
    reason = 'exceeded quota: "CapacityQuota/small", resources: nodes'
    eventually(lambda: reason in str(latest(manager)["skipped"]), PATIENCE_SECONDS)
    assert len(town.nodes) == 1
    eventually(lambda: used(town.client) == {"resources": {"nodes": "1"}}, PATIENCE_SECONDS)
    assert validity(town.client)["status"] == "True"

    town.client.patch(CAPACITYQUOTAS, "small", {"spec": limits("few")})
    eventually(lambda: validity(town.client).get("status") == "False", PATIENCE_SECONDS)
    assert "CapacityQuota small: spec.limits.resources.nodes: 'few'" in validity(town.client)["message"]
    later_decisions(manager)
    assert "CapacityQuota small" in str(latest(manager)["invalid_objects"])
    assert len(town.nodes) == 1  # the last version that means something holds

    town.client.patch(CAPACITYQUOTAS, "small", {"spec": limits(2)})
    town.eventually_bound(4)
    eventually(lambda: used(town.client) == {"resources": {"nodes": "2"}}, PATIENCE_SECONDS)
    town.client.delete(CAPACITYQUOTAS, "small")
    town.eventually_bound(6)


def test_a_cluster_without_the_kind_holds_nothing_up_and_is_told_of_once(
    town: Town, kinds: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> int:
        return sum("does not know this kind" in each.message for each in caplog.records)

    town.offer(WEB)
    with caplog.at_level(logging.WARNING):
        manager = town.manager("0:10:web", capacity_quotas_enabled=True)
        town.pods(2, nodeSelector={"team": "web"})
        town.eventually_bound(2)
        assert told() == 1
        make_kind(town.client, kinds)
        add_quota(town.client, 1)
        eventually(lambda: validity(town.client).get("status") == "True", PATIENCE_SECONDS)
        town.pods(2, prefix="q", nodeSelector={"team": "web"})
        eventually(lambda: "CapacityQuota/small" in str(latest(manager).get("skipped")), PATIENCE_SECONDS)
        town.client.delete(CRDS, kinds.pop())
        town.eventually_bound(4)
