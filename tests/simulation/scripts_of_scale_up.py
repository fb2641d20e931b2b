"""Scripts about new nodes."""

import json
from typing import Any

import yaml

from manager.autoscaler.cloudprovider.simulated import state_store
from manager.autoscaler.cluster_state import registry_store
from manager.autoscaler.cluster_state.registry import encode_registry
from manager.main import Manager
from shared import names
from shared.kube.resources import CONFIGMAPS, NODES
from tests.simulation.town import (
    HOME,
    Town,
    answered,
    decision,
    eventually,
    later_decisions,
    later_iterations,
    latest,
    log,
)
from tests.simulation.virtual import WORLD

WEB: dict[str, Any] = {"name": "web", "machine_type": "n1-standard-4", "max": 10, "labels": {"team": "web"}}
OTHER: dict[str, Any] = {**WEB, "name": "other"}
NEVER_SECONDS = 86_400  # longer than any script


def the_history_of_decisions_survives_a_restart_of_the_manager(town: Town) -> None:
    town.offer(WEB)
    first = town.manager("0:10:web", cluster_name="blue")
    town.pods(1)
    eventually(lambda: '"what":"increase"' in town.data(names.DECISIONS_CONFIG_MAP).get("decisions", ""))
    decided = [action for each in iterations(first) for action in each["decisions"]]
    first.close()

    second = town.manager("0:10:web", cluster_name="blue")
    eventually(lambda: log(second).earlier)
    assert decided[-1] in [action for each in answered(log(second).earlier) for action in each["decisions"]]
    later_decisions(second)
    assert not any(action["what"] == "increase" for each in iterations(second) for action in each["decisions"])


def a_dry_run_decides_and_writes_nothing(town: Town) -> None:
    town.offer(WEB)
    manager = town.manager("0:10:web", dry_run=True)
    town.pods(1)
    action = eventually(lambda: decision(manager, "web"))
    assert (action["what"], action["to_size"], action["done"], action["error"]) == ("increase", 1, False, "")
    later_iterations(manager)
    kept = {each["metadata"]["name"] for each in town.client.list(CONFIGMAPS, HOME).items}
    own = {names.REGISTRY_CONFIG_MAP, names.DECISIONS_CONFIG_MAP, "cluster-autoscaler-status"}
    assert not kept & {*own, state_store.CONFIG_MAP}
    assert not town.nodes
    assert not town.events()


def a_group_that_only_recommends_does_nothing_and_one_that_only_observes_decides_nothing(town: Town) -> None:
    town.offer(WEB, OTHER)
    groups = town.directory / "groups.yaml"
    listed = [
        {"name": name, "cloud_provider_group_name": name, "policy": "pending-pods", "mode": mode}
        for name, mode in (("web", "recommend"), ("other", "observe"))
    ]
    groups.write_text(yaml.safe_dump({"node_groups": listed}))
    manager = town.manager(node_groups=str(groups))
    town.pods(1)
    action = eventually(lambda: decision(manager, "web"))
    assert (action["mode"], action["to_size"], action["done"]) == ("recommend", 1, False)
    assert [each["groups"] for each in latest(manager)["skipped"]] == [["other"]]
    eventually(lambda: town.events("RecommendedScaleUp"))
    later_iterations(manager)
    assert town.targets() == {"web": 0, "other": 0}
    assert not town.registry().requests


def the_next_manager_knows_of_a_request_under_way(town: Town) -> None:
    before = _with_a_request(town)
    second = town.manager("0:10:web")
    later_decisions(second)
    assert town.targets() == {"web": 1}
    assert town.registry().requests == before
    town.offer(WEB)  # from now on machines boot at once, but this one does not
    town.pods(2, prefix="more")
    eventually(lambda: town.targets() == {"web": 2})


def a_registry_that_is_no_json_is_made_again_without_a_second_request(town: Town) -> None:
    _finds_registry(town, "no registry")


def a_registry_of_a_later_version_is_made_again_without_a_second_request(town: Town) -> None:
    _finds_registry(town, json.dumps({"version": 99}))


def a_registry_under_its_former_name_is_read_and_written_under_its_new_one(town: Town) -> None:
    _with_a_request(town)
    text = encode_registry(town.registry())
    town.client.delete(CONFIGMAPS, names.REGISTRY_CONFIG_MAP, HOME)
    former, key = registry_store.FORMER
    town.keep(former, **{key: text})
    later_decisions(town.manager("0:10:web"))
    assert town.targets() == {"web": 1}
    assert town.registry().requests["web"].nodes == 1


def a_group_that_the_cloud_refuses_backs_off_over_a_restart_and_another_one_helps(town: Town) -> None:
    town.offer(WEB | {"faults": {"refuse": "no such thing"}})
    first = town.manager("0:10:web")
    town.pods(1)
    eventually(lambda: town.events("FailedToScaleUpGroup"))
    eventually(lambda: town.registry().backoffs)
    assert town.targets() == {"web": 0}
    first.close()
    town.offer(WEB)
    second = town.manager("0:10:web")
    later_decisions(second)
    assert town.targets() == {"web": 0}
    assert "in backoff after failed scale-up" in [each["reason"] for each in latest(second)["skipped"]]
    second.close()
    town.offer(WEB, OTHER)
    town.manager("0:10:web", "0:10:other")
    town.eventually_bound(1)
    assert town.targets() == {"web": 0, "other": 1}


def machines_that_are_out_of_stock_are_taken_back_and_another_group_helps(town: Town) -> None:
    town.offer(WEB | {"faults": {"stock": 0}, "price": 0.01}, OTHER)
    manager = town.manager("0:10:web", "0:10:other")
    town.pods(1)
    town.eventually_bound(1)
    eventually(lambda: town.targets() == {"web": 0, "other": 1})
    assert town.registry().backoffs["web"].code == "RESOURCE_POOL_EXHAUSTED"
    eventually(lambda: town.events("ScaleUpFailed"))
    later_iterations(manager)
    assert town.targets() == {"web": 0, "other": 1}


def machines_that_never_register_are_given_up_and_another_group_helps(town: Town) -> None:
    town.offer(WEB | {"faults": {"never_register": True}, "price": 0.01}, OTHER)
    manager = town.manager("0:10:web", "0:10:other", max_node_provision_time_seconds=300)
    town.pods(1)
    eventually(lambda: town.targets() == {"web": 1, "other": 0})
    eventually(lambda: town.registry().unregistered)
    waits_since = WORLD.now
    town.eventually_bound(1)
    assert 250 < WORLD.now - waits_since < 400
    eventually(lambda: town.targets() == {"web": 0, "other": 1})
    eventually(lambda: town.events("ScaleUpTimedOut"))
    later_iterations(manager)
    assert town.targets() == {"web": 0, "other": 1}


def nothing_is_decided_while_the_cloud_is_out_and_all_goes_on_after_it(town: Town) -> None:
    town.offer(WEB, outage="for maintenance")
    manager = town.manager("0:10:web")
    town.pods(1)
    eventually(lambda: "for maintenance" in latest(manager).get("blocked_reason", ""))
    later_iterations(manager)
    assert not town.nodes
    town.offer(WEB)
    town.eventually_bound(1)


def a_group_is_created_for_what_no_group_takes_and_deleted_once_its_node_is_gone(town: Town) -> None:
    town.offer(WEB | {"max": 0}, autoprovisioning={"machine_types": ["n1-standard-2", "n1-standard-4"]})
    town.manager("0:0:web", node_autoprovisioning=True)
    town.pods(1, nodeSelector={"team": "db"})
    (node,) = set(town.eventually_bound(1).values())
    (group,) = town.targets().keys() - {"web"}
    assert group.startswith("nodeautoprovisioning-n1-standard-")
    assert list(town.registry().made_as) == [group]
    assert town.client.get(NODES, node)["metadata"]["labels"]["team"] == "db"
    eventually(lambda: town.events("CreatedNodeGroup"))
    eventually(lambda: not town.registry().requests)  # the node has been seen
    town.delete_pod("p0")
    town.client.delete(NODES, node)
    eventually(lambda: town.targets() == {"web": 0})
    eventually(lambda: town.events("DeletedNodeGroup"))


def groups_that_are_not_listed_stay_as_they_are(town: Town) -> None:
    town.offer(WEB, OTHER)
    manager = town.manager("0:1:web")
    town.pods(4)  # two fit on the one node that is allowed
    town.eventually_bound(2)
    later_iterations(manager)
    assert town.targets() == {"web": 1, "other": 0}
    assert eventually(lambda: latest(manager)["unplaced"])


def a_group_is_brought_up_to_its_minimum_where_that_is_wanted(town: Town) -> None:
    town.offer(WEB | {"size": 0})
    town.manager("2:10:web", enforce_node_group_min_size=True)
    eventually(lambda: len(town.nodes) == 2)


def a_salvo_raises_several_groups_in_one_iteration(town: Town) -> None:
    town.offer(WEB, OTHER | {"labels": {"team": "other"}})
    town.pods(1, prefix="w", nodeSelector={"team": "web"})
    town.pods(1, prefix="o", nodeSelector={"team": "other"})
    town.eventually_unschedulable(2)
    manager = town.manager("0:10:web", "0:10:other", salvo_scale_up=True)
    town.eventually_bound(2)
    groups = (sorted(action["group"] for action in each["decisions"] if action["done"]) for each in iterations(manager))
    assert [each for each in groups if each] == [["other", "web"]]


def a_pod_need_not_wait_for_the_next_scan(town: Town) -> None:
    town.offer(WEB)
    manager = town.manager("0:10:web", scan_interval_seconds=NEVER_SECONDS)
    eventually(lambda: latest(manager))
    town.pods(1)
    town.eventually_bound(1)


def iterations(manager: Manager) -> list[Any]:
    found: list[Any] = answered(log(manager).iterations(20, brief=False))
    return found


def _with_a_request(town: Town) -> Any:
    """A manager has ended whose request the cloud takes its time for; the registry's requests."""
    town.offer(WEB | {"boot_seconds": NEVER_SECONDS})
    first = town.manager("0:10:web")
    town.pods(2)
    eventually(lambda: town.targets() == {"web": 1})
    first.close()
    requests = town.registry().requests
    assert requests["web"].nodes == 1
    return requests


def _finds_registry(town: Town, text: str) -> None:
    _with_a_request(town)
    town.keep(names.REGISTRY_CONFIG_MAP, **{registry_store.KEY: text})
    later_decisions(town.manager("0:10:web"))
    assert town.targets() == {"web": 1}
    assert town.registry().requests["web"].nodes == 1


SCRIPTS = (
    the_history_of_decisions_survives_a_restart_of_the_manager,
    a_dry_run_decides_and_writes_nothing,
    a_group_that_only_recommends_does_nothing_and_one_that_only_observes_decides_nothing,
    the_next_manager_knows_of_a_request_under_way,
    a_registry_that_is_no_json_is_made_again_without_a_second_request,
    a_registry_of_a_later_version_is_made_again_without_a_second_request,
    a_registry_under_its_former_name_is_read_and_written_under_its_new_one,
    a_group_that_the_cloud_refuses_backs_off_over_a_restart_and_another_one_helps,
    machines_that_are_out_of_stock_are_taken_back_and_another_group_helps,
    machines_that_never_register_are_given_up_and_another_group_helps,
    nothing_is_decided_while_the_cloud_is_out_and_all_goes_on_after_it,
    a_group_is_created_for_what_no_group_takes_and_deleted_once_its_node_is_gone,
    groups_that_are_not_listed_stay_as_they_are,
    a_group_is_brought_up_to_its_minimum_where_that_is_wanted,
    a_salvo_raises_several_groups_in_one_iteration,
    a_pod_need_not_wait_for_the_next_scan,
)
