"""`headroom plan -f`: the manager's own round out of what kubectl printed, or one line for what means nothing."""

import contextlib
import copy
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deploy import cli, dumped_cloud, plan
from manager.autoscaler.cluster_state import registry_store
from manager.autoscaler.cluster_state.registry import Registry, add_request, encode_registry
from manager.autoscaler.cluster_state.state import Increase
from shared import durations, names
from shared.api.core import Node
from shared.api.meta import ObjectMeta
from shared.errors import InvalidInput
from tests.support import schemas
from tests.support.properties import examples
from tests.unit.manager import utilized
from tests.unit.prices.cloud_prices import write_table

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
GKE, EKS, AKS = "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool"
KARPENTER, KOPS = "karpenter.sh/nodepool", "kops.k8s.io/instancegroup"
KWOK = "cluster-autoscaler.kwok.nodegroup/"
CLOUD = {
    "machine_types": [{"name": "big", "capacity": {"cpu": "8", "memory": "32Gi"}, "price": 0.3}],
    "groups": [{"name": "web", "machine_type": "big", "min": 0, "max": 4, "size": 2}],
    "autoprovisioning": {"machine_types": ["big"]},
}


def node(name: str, pool: str, machine: str = "n1-standard-4", cores: int = 4, **metadata: Any) -> dict[str, Any]:
    amounts = {"cpu": str(cores), "memory": f"{cores * 4}Gi", "pods": "110"}
    meta = {"name": name, "labels": {GKE: pool, INSTANCE_TYPE: machine}, **metadata}
    return {"kind": "Node", "metadata": meta, "status": {"capacity": amounts, "allocatable": amounts}}


def pod(name: str, cpu: str = "3", on: str | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    placed = {"nodeName": on} if on else {}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"containers": containers, **placed, **spec},
    }


def dumped(tmp_path: Path, *objects: dict[str, Any]) -> Path:
    path = tmp_path / "dump.yaml"
    path.write_text(yaml.safe_dump({"kind": "List", "items": list(objects)}))
    return path


def cloud(tmp_path: Path, **more: Any) -> str:
    path = tmp_path / "cloud.yaml"
    path.write_text(yaml.safe_dump({**CLOUD, **more}))
    return str(path)


def planned(path: Path, *flags: str) -> Any:
    found = json.loads(plan.main(["-f", str(path), "-o", "json", *flags]))
    assert list(schemas.problems(found, schemas.published("plan"))) == []
    return found


def changes(answer: Any) -> dict[str, tuple[int, int]]:
    return {each["group"]: (each["from_size"], each["to_size"]) for each in answer["decisions"]}


BOTH = (node("a1", "a"), node("b1", "b", "n1-standard-16", 16), pod("full-a", "4", "a1"), pod("full-b", "16", "b1"))


def test_groups_come_from_the_labels_of_nodes_and_prices_from_the_tables_that_know_them(tmp_path: Path) -> None:
    answer = planned(dumped(tmp_path, *BOTH, pod("web-0"), pod("web-1")))
    assert changes(answer) == {"a": (1, 3)}
    assert [(each["group"], each["machine_type"], each["chosen"]) for each in answer["options"]] == [
        ("a", "n1-standard-4", True),
        ("b", "n1-standard-16", False),
    ]
    assert answer["cost_per_hour"]["by_group"].keys() == {"a", "b"}
    assert answer["cost_per_hour"]["added"] == pytest.approx(answer["options"][0]["rank"]["nodes_price"])
    assert not answer["decisions"][0]["done"]


@pytest.mark.parametrize(
    ("labels", "annotations", "group"),
    [
        ({EKS: "workers"}, {}, "workers"),
        ({AKS: "nodepool1"}, {}, "nodepool1"),
        ({KOPS: "nodes-eu"}, {}, "nodes-eu"),
        ({KARPENTER: "default", INSTANCE_TYPE: "m6i.large"}, {}, "default/m6i.large"),
        ({KARPENTER: "default"}, {}, "default"),
        ({}, {f"{KWOK}name": "fake"}, "fake"),
        ({"something": "else"}, {}, None),
    ],
)
def test_a_node_says_its_group_in_the_words_of_its_cloud(
    labels: dict[str, str], annotations: dict[str, str], group: str | None
) -> None:
    found = Node(metadata=ObjectMeta(name="n", labels=labels, annotations=annotations))
    assert dumped_cloud.group_of(found) == group
    assert dumped_cloud.group_of(found, "something") == labels.get("something")


def test_a_label_of_ones_own_makes_groups_and_kwok_notes_their_bounds(tmp_path: Path) -> None:
    fake = node("k1", "", labels={"team": "x"}, annotations={f"{KWOK}min-count": "1", f"{KWOK}max-count": "2"})
    answer = planned(dumped(tmp_path, fake, *(pod(f"p{number}") for number in range(9))), "--group-label", "team")
    assert [(each["group"], each["to_size"], each["max_size"]) for each in answer["decisions"]] == [("x", 2, 2)]
    assert sum(each["unplaced"] for each in answer["pending"]) == 7


def test_the_nodes_of_an_escalator_group_are_those_with_its_label(tmp_path: Path) -> None:
    groups = tmp_path / "groups.yaml"
    group: dict[str, Any] = {
        "name": "g",
        "label_key": "customer",
        "label_value": "shared",
        "cloud_provider_group_name": "shared-nodes",
    }
    group |= {
        "max_nodes": 9,
        "slow_node_removal_rate": 1,
        "fast_node_removal_rate": 2,
        "scale_up_threshold_percent": 70,
    }
    group |= {"taint_upper_capacity_threshold_percent": 40, "taint_lower_capacity_threshold_percent": 10}
    group |= {"soft_delete_grace_period": "1m", "hard_delete_grace_period": "9m", "scale_up_cool_down_period": "2m"}
    groups.write_text(yaml.safe_dump({"node_groups": [group]}))
    shared: Any = {"labels": {"customer": "shared", EKS: "of-the-cloud"}}
    full = pod("full", "4", "a1", nodeSelector={"customer": "shared"})
    answer = planned(dumped(tmp_path, node("a1", "", **shared), node("b1", "b"), full), "--node-groups", str(groups))
    (scan,) = answer["scans"]
    assert (scan["error"], scan["untainted"], scan["cpu_percent"], scan["delta"]) == ("", 1, 100.0, 1)


def test_flags_list_the_groups_that_may_grow(tmp_path: Path) -> None:
    path = dumped(tmp_path, *BOTH, pod("web-0"), pod("web-1"))
    assert changes(planned(path, "--nodes", "0:9:b")) == {"b": (1, 2)}
    assert changes(planned(path, "--nodes", "0:2:a", "--nodes", "0:9:b", "--expander", "most-pods")) == {"b": (1, 2)}


def test_machines_that_nobody_has_a_price_for_cost_what_googles_do_as_they_do_for_the_manager(tmp_path: Path) -> None:
    path = dumped(tmp_path, node("a1", "a", "m5.xlarge"), node("b1", "b", "m5.4xlarge", 16), pod("p", "4", "a1"))
    more = dumped(tmp_path, *yaml.safe_load(path.read_text())["items"], pod("q", "16", "b1"), pod("web"))
    answer = planned(more)
    assert changes(answer) == {"a": (1, 2)}
    assert answer["cost_per_hour"]["added"] == planned(more, "--prices", "gce")["cost_per_hour"]["added"]
    prices = tmp_path / "prices.yaml"
    prices.write_text("machine_types: {m5.xlarge: 0.192, m5.4xlarge: 0.01}")
    answer = planned(more, "--prices", str(prices))
    assert (changes(answer), answer["cost_per_hour"]["added"]) == ({"b": (1, 2)}, 0.01)


def test_a_simulated_clouds_file_tells_of_groups_without_nodes_and_of_such_as_could_be(tmp_path: Path) -> None:
    path = dumped(tmp_path, pod("web-0"), pod("db", nodeSelector={"disk": "ssd"}))
    answer = planned(path, "--cloud-config", cloud(tmp_path), "--node-autoprovisioning")
    assert answer["outcome"] == "scale up"
    new = [each for each in answer["options"] if not each["exists"]]
    assert [each["labels"] for each in new] == [{"disk": "ssd"}]
    assert {each["machine_type"] for each in answer["options"]} == {"big"}
    assert answer["options"][0]["node_price"] == 0.3


def test_nodes_of_a_simulated_cloud_count_as_the_size_of_their_groups(tmp_path: Path) -> None:
    there = node("web-1", "", annotations={"kwok.x-k8s.io/node": "fake", f"{KWOK}name": "web"})
    there["spec"] = {"providerID": "kwok:web-1"}
    answer = planned(dumped(tmp_path, there, pod("p", "4", "web-1"), pod("q")), "--cloud-config", cloud(tmp_path))
    assert changes(answer) == {"web": (1, 2)}


def test_yaml_and_table_say_the_same(tmp_path: Path) -> None:
    path = dumped(tmp_path, *BOTH, pod("web-0"), pod("huge", "99"), pod("gated", schedulingGates=[{"name": "later"}]))
    answer = planned(path)
    assert yaml.safe_load(plan.main(["-f", str(path), "-o", "yaml"]))["options"] == answer["options"]
    table = plan.main(["-f", str(path)])
    rank = answer["options"][0]["rank"]
    for said in (
        "2 nodes in 2 groups",
        "3 pods: 1 get a new node, 1 get none, 1 not considered now",
        f"{rank['nodes_price']:.4f}",
        f"{rank['pods_price']:.4f}",
        f"{rank['stabilized_ratio']:.3f}",
        f"{rank['suppressed_unfitness']:.3f}",
        f"{rank['rank']:.3f}",
        "shop/huge, 99 cpu",
        "a, b: Insufficient cpu",
        "shop/gated: waiting for scheduling gates: [later]",
        "theoretical minimum",
    ):
        assert said in table
    assert all(len(line) <= 160 and line == line.rstrip() for line in table.splitlines())


def owned(name: str, on: str, cpu: str = "100m", kind: str = "ReplicaSet", **spec: Any) -> dict[str, Any]:
    found = pod(name, cpu, on, **spec)
    found["metadata"]["ownerReferences"] = [{"kind": kind, "name": "web", "controller": True}]
    found["status"] = {"phase": "Running"}
    return found


def why_here(answer: Any) -> dict[str, tuple[str, str]]:
    return {row["node"]: (row["standing"], row["reason"]) for row in answer["scale_down"]["nodes"]}


def test_every_node_says_why_it_is_still_here(tmp_path: Path) -> None:
    objects = [node(name, "a") for name in ("empty", "idle", "kept", "full")]
    objects += [owned("w", "idle"), pod("bare", "100m", "kept"), owned("db", "full", "3")]
    path = dumped(tmp_path, *objects)
    answer = planned(path)
    assert why_here(answer) == {
        "empty": ("unneeded", ""),
        "idle": ("unneeded", ""),
        "kept": ("needed", "BlockedByPod"),
        "full": ("needed", "NotUnderutilized"),
    }
    prices = {row["node"]: row["cost_per_hour"] for row in answer["scale_down"]["nodes"]}
    assert answer["scale_down"]["savable_per_hour"] == pytest.approx(prices["empty"] + prices["idle"])
    table = plan.main(["-f", str(path)])
    for words in (
        "2 nodes could be deleted (",
        "none of them now:",
        "2 nodes are not deleted:",
        "NotUnderutilized      1  full: 75.0% of its",
    ):
        assert words in table
    assert "kept" in plan.main(["-f", str(path), "--all-nodes"])
    again = planned(path, "--scale-down-utilization-threshold", "0.01")
    assert why_here(again)["idle"] == ("needed", "NotUnderutilized")
    assert planned(path, "--scale-down-enabled", "false")["scale_down"]["unjudged"] == 4


def test_marks_on_nodes_say_since_when_they_are_not_needed(tmp_path: Path) -> None:
    now: dict[str, Any] = {"creationTimestamp": "2026-01-01T01:00:00Z"}
    marked = [node(name, "a", **now) for name in ("long", "lately", "oddly")]
    for each, value in zip(marked, ("1767225600", "1767229000", "soon"), strict=True):
        taint = {"key": "DeletionCandidateOfClusterAutoscaler", "value": value, "effect": "PreferNoSchedule"}
        each["spec"] = {"taints": [taint]}
    answer = planned(dumped(tmp_path, *marked, node("full", "b"), owned("w", "full", "3")))
    found = answer["scale_down"]["nodes"]
    rows = {row["node"]: (row["standing"], row["unneeded_since"]) for row in found if row["node"] != "full"}
    assert rows == {
        "long": ("goes", "2026-01-01T00:00:00Z"),
        "lately": ("unneeded", "2026-01-01T00:56:40Z"),
        "oddly": ("unneeded", None),
    }
    (act,) = (each for each in answer["decisions"] if each["what"] == "remove nodes")
    assert (act["node_names"], act["to_size"], act["done"]) == (["long"], 2, False)
    assert act["cost_per_hour"] == -answer["scale_down"]["saved_per_hour"] < 0


@pytest.mark.parametrize("kind", ["ReplicationController", "ReplicaSet", "StatefulSet", "Job"])
def test_who_makes_pods_again_and_what_budgets_allow_comes_from_the_files(tmp_path: Path, kind: str) -> None:
    objects = [node("a1", "a"), node("a2", "a"), owned("w", "a1", kind=kind), owned("db", "a2", "3", kind)]
    assert why_here(planned(dumped(tmp_path, *objects)))["a1"][0] == "unneeded", f"nobody asked for {kind}s"
    others = {"kind": kind, "metadata": {"name": "other", "namespace": "shop"}}
    answer = planned(dumped(tmp_path, *objects, others))
    assert why_here(answer)["a1"] == ("needed", "BlockedByPod")
    known = {"kind": kind, "metadata": {"name": "web", "namespace": "shop"}}
    assert why_here(planned(dumped(tmp_path, *objects, others, known)))["a1"][0] == "unneeded"
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "shop"},
        "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 0},
    }
    assert why_here(planned(dumped(tmp_path, *objects, known, budget)))["a1"] == ("needed", "BlockedByPod")


def test_groups_that_scale_by_utilization_say_how_full_they_are(tmp_path: Path) -> None:
    groups = tmp_path / "groups.yaml"
    group = {**utilized.VALID, "cloud_provider_group_name": "jobs", "label_key": GKE, "label_value": "jobs"}
    groups.write_text(yaml.safe_dump({"node_groups": [{**group, "policy": "utilization"}]}))
    born: dict[str, Any] = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    objects = [*(node(f"j{at}", "jobs", **born) for at in range(3)), node("a1", "a"), owned("w", "a1")]
    path = dumped(tmp_path, *objects)
    answer = planned(path, "--node-groups", str(groups))
    (scan,) = answer["scans"]
    assert (scan["group"], scan["cpu_percent"], scan["delta"], scan["taint"]) == ("jobs", 0.0, -5, ["j0", "j1"])
    assert why_here(answer)["j2"][1] == "other nodes of its group are deleted first"
    table = plan.main(["-f", str(path), "--node-groups", str(groups)])
    assert "jobs: j0, j1 would be tainted" in table


@pytest.mark.parametrize(
    ("most", "flags", "limit"),
    [
        (5, (), ""),
        (5, ("--max-cpu", "10"), 'exceeded quota: "cluster-wide", resources: cpu'),
        (5, ("--max-cpu", "13"), 'exceeded quota: "cluster-wide", resources: cpu'),
        (5, ("--max-nodes-total", "1"), 'exceeded quota: "max-nodes-total", resources: nodes'),
        (1, (), "max node group size reached"),
        (2, (), "max node group size reached"),
    ],
)
def test_a_replacement_that_a_limit_forbids_names_the_limit(
    tmp_path: Path, most: int, flags: tuple[str, ...], limit: str
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("machine_types: {large: 1.0, small: 0.2}")
    dear, cheap = node("large", "large", "large", 8), node("small", "small", "small", 2)
    path = dumped(tmp_path, dear, cheap, *(owned(f"w{at}", "large", "1500m") for at in "ab"), pod("full", "2", "small"))
    path_flags = ("--prices", str(prices), "--consolidation", "price", "--consolidation-min-node-age", "0s")
    bounds = ("--nodes", "0:5:large", "--nodes", f"0:{most}:small", "--disruption-budgets", "100%")
    answer = planned(path, *path_flags, *bounds, *flags)
    (row,) = (each for each in answer["scale_down"]["nodes"] if each["node"] == "large")
    assert changes(answer) == ({} if limit else {"small": (1, 3)})
    assert row["replacement"] == (
        f"large is not replaced, NoNewNode: cheaper nodes, at less than 1/h, cannot be launched: "
        f"group small may not get 2 more nodes ({limit})"
        if limit
        else "large is replaced: 1 node at 1/h by 2 of small at 0.4/h, which saves 438/month"
    )


def test_what_is_done_besides_a_scale_up_has_a_title_of_its_own_and_every_node_says_why(tmp_path: Path) -> None:
    waiting = pod("web", nodeSelector={"pool": "none"})
    idle = node("a1", "a"), node("a2", "a")
    for more, title in (([], "No pod needs a new node."), ([waiting], "No group can help.")):
        table = plan.main(["-f", str(dumped(tmp_path, *idle, pod("done", "0", "a1"), *more))])
        assert table.startswith(f"{title}\n\nChanges:\n")
    why = "unneeded; deleted after it has been unneeded for more than 10m0s"
    (row,) = (line for line in table.splitlines() if line.startswith("  a2 "))
    assert row.endswith(why)


@pytest.mark.parametrize(("preset", "is_shown"), [("least-cost", False), ("seed", False), ("cluster-autoscaler", True)])
def test_what_counts_against_new_groups_is_shown_where_it_does(tmp_path: Path, preset: str, is_shown: bool) -> None:
    config = cloud(tmp_path, groups=[])
    flags = ("--cloud-config", config, "--node-autoprovisioning", "--expander-preset", preset)
    table = plan.main(["-f", str(dumped(tmp_path, node("n", "x"), pod("web", "6"))), *flags])
    assert "(new)" in table
    assert ("  NEW  " in table, "x NEW." in table) == (is_shown, is_shown)


@pytest.mark.parametrize("bad", ["0", "none"])
def test_a_node_without_cpu_does_not_keep_its_group_from_growing(tmp_path: Path, bad: str) -> None:
    broken = node("a1", "a")
    broken["status"] = {"allocatable": {"cpu": bad, "memory": "16Gi", "pods": "110"}}
    answer = planned(dumped(tmp_path, broken, node("a2", "a"), pod("full", "4", "a2"), pod("web")))
    assert changes(answer) == {"a": (2, 3)}


def test_a_quota_cuts_what_the_fast_path_would_buy(tmp_path: Path) -> None:
    large, small = ([pod(f"{cpu}-{number}", cpu) for number in range(10)] for cpu in ("600m", "400m"))
    path = dumped(tmp_path, node("a1", "a", cores=1), pod("full", "1", "a1"), *large, *small)
    answer = planned(path, "--fastpath-binpacking-enabled", "--max-cpu", "13")
    assert changes(answer) == {"a": (1, 13)}
    assert answer["unplaced"] == []  # a small pod fits beside each large one


def test_the_table_says_by_what_options_are_chosen(tmp_path: Path) -> None:
    path = dumped(tmp_path, *BOTH, pod("web-0"))
    assert "Options, the lowest rank wins:" in plan.main(["-f", str(path)])
    said = plan.main(["-f", str(path), "--expander", "least-waste,price"])
    assert "Options, chosen by least-waste" in said
    assert "lowest rank" not in said


def test_a_pod_written_by_hand_is_in_the_default_namespace_and_replaces_the_one_of_its_name(tmp_path: Path) -> None:
    known = {**pod("web"), "metadata": {"name": "web", "namespace": "default"}}
    by_hand = tmp_path / "web.yaml"
    by_hand.write_text(yaml.safe_dump({**pod("web", "1"), "metadata": {"name": "web"}}))
    answer = planned(dumped(tmp_path, *BOTH, known), "-f", str(by_hand))
    assert [(each["pods"], each["requests"]) for each in answer["pending"]] == [(["default/web"], {"cpu": 1000})]


NOW = 1_700_000_000.0


def booting(name: str, pool: str, *, seconds: float) -> dict[str, Any]:
    """A Node that came so long ago and reports since; it has never been ready."""
    made, reported = durations.timestamp(NOW - seconds), durations.timestamp(NOW)
    found = node(name, pool, creationTimestamp=made)
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": made, "lastHeartbeatTime": reported}
    found["status"]["conditions"] = [ready]
    return found


def kept_books(text: str, namespace: str = names.INSTALL_NAMESPACE) -> dict[str, Any]:
    metadata = {"name": names.REGISTRY_CONFIG_MAP, "namespace": namespace}
    return {"kind": "ConfigMap", "metadata": metadata, "data": {registry_store.KEY: text}}


@pytest.mark.parametrize(("seconds", "bought"), [(60, {}), (3600, {"a": (2, 3)})])
def test_without_books_a_node_that_has_not_started_is_on_its_way_while_it_is_young(
    seconds: float, bought: dict[str, tuple[int, int]], tmp_path: Path
) -> None:
    assert changes(planned(dumped(tmp_path, *BOTH, booting("a2", "a", seconds=seconds), pod("web")))) == bought


@pytest.mark.parametrize(
    ("namespace", "bought"), [(names.INSTALL_NAMESPACE, {"a": (2, 3)}), ("", {"a": (2, 3)}), ("elsewhere", {})]
)
def test_files_may_have_the_books_of_the_manager(
    namespace: str, bought: dict[str, tuple[int, int]], tmp_path: Path
) -> None:
    """Those by which nothing is on its way: whoever starts then was not asked for."""
    there = kept_books(encode_registry(Registry()), namespace)
    assert changes(planned(dumped(tmp_path, *BOTH, booting("a2", "a", seconds=60), pod("web"), there))) == bought


@pytest.mark.parametrize(
    "text",
    [
        "{broken",
        '{"version": 99}',
        encode_registry(add_request(Registry(), Increase("a", 1, 2, 9), NOW + 9e4, 900)),
    ],
)
def test_books_that_cannot_be_read_are_passed_by_and_told_of(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = (*BOTH, booting("a2", "a", seconds=60), pod("web"), kept_books(text))
    assert changes(planned(dumped(tmp_path, *objects))) == {}
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        f"registry cannot be read and is ignored: ConfigMap {names.INSTALL_NAMESPACE}/{names.REGISTRY_CONFIG_MAP}"
        in line
    )


def test_a_file_that_has_nothing_to_plan_with_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "web.yaml"
    other.write_text(yaml.safe_dump({"kind": "Deployment", "metadata": {"name": "web"}}))
    planned(dumped(tmp_path, *BOTH), "-f", str(other))
    (line,) = capsys.readouterr().err.splitlines()
    assert "web.yaml has nothing to plan with" in line


def test_a_machine_type_that_the_cloud_does_not_have_is_told_and_limits_of_new_groups_are_shown(tmp_path: Path) -> None:
    path = dumped(tmp_path, pod("db", nodeSelector={"disk": "ssd"}))
    flags = ["--cloud-config", cloud(tmp_path), "--node-autoprovisioning"]
    answer = planned(path, *flags, "--machine-types", "big", "--machine-types", "bigger")
    assert [(each["object"], "'bigger'" in each["problem"]) for each in answer["invalid_objects"]] == [
        ("machine type bigger", True)
    ]
    assert [(each["what"], each["max_size"]) for each in answer["decisions"]] == [("create group", 1000)]


def test_a_plan_names_the_cluster_as_far_as_it_is_known(tmp_path: Path) -> None:
    path = dumped(tmp_path, *BOTH)
    assert planned(path)["cluster"] == ""
    assert planned(path, "--cluster-name", "prod-1")["cluster"] == "prod-1"
    told = [plan.main(["-f", str(path), *flags]).splitlines() for flags in ((), ("--cluster-name", "prod-1"))]
    lines = [next(line for line in each if line.startswith("Cluster  ")) for each in told]
    heads = [line.rpartition(" ")[0] for line in lines]  # the time comes last
    assert heads[1] == heads[0].replace("Cluster  ", "Cluster  prod-1, ")


def quota(nodes: object, **selector: Any) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": selector}, "limits": {"resources": {"nodes": nodes}}}
    return {"kind": "CapacityQuota", "metadata": {"name": "small"}, "spec": spec}


def test_capacity_quotas_of_a_dump_limit_what_is_added_where_they_are_to_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = [pod(f"p{number}", nodeSelector={GKE: "a"}) for number in range(3)]
    flags = ("--nodes", "0:10:a", "--nodes", "0:10:b")
    path = dumped(tmp_path, *BOTH, *waiting, quota(2, **{GKE: "a"}))
    assert changes(planned(path, *flags)) == {"a": (1, 4)}
    assert "1 CapacityQuota ignored: --capacity-quotas-enabled" in capsys.readouterr().err
    answer = planned(path, *flags, "--capacity-quotas-enabled")
    assert changes(answer) == {"a": (1, 2)}
    reason = 'exceeded quota: "CapacityQuota/small", resources: nodes'
    assert sum(row["count"] for row in answer["unplaced"]) == 2
    assert all([reason] in [each["reasons"] for each in row["reasons"]] for row in answer["unplaced"])
    spoilt = planned(dumped(tmp_path, *BOTH, *waiting, quota("few")), *flags, "--capacity-quotas-enabled")
    assert changes(spoilt) == {"a": (1, 4)}
    (row,) = spoilt["invalid_objects"]
    assert row["object"] == "CapacityQuota small"
    assert "spec.limits.resources.nodes: 'few'" in row["problem"]


def buffer(ref: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"kind": "CapacityBuffer", "metadata": {"name": "spare"}, "spec": {**ref, **spec}}


def test_provisioning_requests_of_a_dump_are_bought_for_where_they_are_to_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    template = {"kind": "PodTemplate", "metadata": {"name": "worker"}, "template": {"spec": {"containers": containers}}}
    pod_sets = [{"podTemplateRef": {"name": "worker"}, "count": 40}]
    spec = {"provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io", "podSets": pod_sets}
    request = {"kind": "ProvisioningRequest", "metadata": {"name": "job"}, "spec": spec}
    flags, enabled = ("--nodes", "0:99:a"), "--enable-provisioning-requests"
    dump = dumped(tmp_path, *BOTH, template, request)
    assert planned(dump, *flags)["requests"] == []
    assert "1 ProvisioningRequest ignored: --enable-provisioning-requests" in capsys.readouterr().err
    answer = planned(dump, *flags, enabled)
    (row,) = answer["requests"]
    assert (row["request"], row["pods"], row["state"]) == ("default/job", 40, "requested")
    assert [each["outcome"] for each in answer["request_decisions"]] == ["scale up"]


def test_capacity_buffers_of_a_dump_are_bought_for_where_they_are_to_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_pod = pod("x")["spec"]
    template = {"kind": "PodTemplate", "metadata": {"name": "chunk"}, "template": {"spec": of_pod}}
    workload = {
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"template": {"spec": of_pod}},
        "status": {"replicas": 10},
    }
    flags, enabled = ("--nodes", "0:10:a"), "--capacity-buffer-pod-injection-enabled"
    fixed = dumped(tmp_path, *BOTH, template, buffer({"podTemplateRef": {"name": "chunk"}}, replicas=40))
    assert planned(fixed, *flags)["buffers"] == []
    assert "1 CapacityBuffer ignored: --capacity-buffer-pod-injection-enabled" in capsys.readouterr().err
    (row,) = planned(fixed, *flags, enabled)["buffers"]
    assert (row["buffer"], row["chunks"], row["triggered"] > 0) == ("default/spare", 40, True)
    share = buffer({"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}}, percentage=25)
    (row,) = planned(dumped(tmp_path, *BOTH, workload, share), *flags, enabled)["buffers"]
    assert row["chunks"] == 3
    spoilt = planned(dumped(tmp_path, *BOTH, share), *flags, enabled)
    assert [(each["object"], "there is none" in each["problem"]) for each in spoilt["invalid_objects"]] == [
        ("CapacityBuffer default/spare", True)
    ]


def test_sums_by_size_are_marked_and_how_to_get_prices_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [node("a1", "a", "m5.large"), pod("web-0"), pod("web-1")]
    there[0]["metadata"]["labels"] |= {"topology.kubernetes.io/region": "us-east-1"}
    path = dumped(tmp_path, *there)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    remedy = "`headroom prices refresh aws --region us-east-1` fetches prices; until then ~ marks what rests on a price"
    said = plan.main(["-f", str(path)])
    assert said.startswith(remedy)
    for begins in ("Cost ", "Scale up, ", "  increase ", "  \\*  "):
        line = re.search(rf"^{begins}.*$", said, re.MULTILINE)
        assert line is not None, said
        assert re.search(r" ~[+0-9.]", line[0]), line[0]
    assert "1 node estimated by size" in said
    assert "m5.large" not in capsys.readouterr().err
    answer = planned(path)
    assert (answer["cost_per_hour"]["estimated"], answer["cost_per_hour"]["estimated_groups"]) == (1, ["a"])
    assert remedy in capsys.readouterr().err
    write_table(tmp_path / "data" / "headroom" / "prices")
    known = plan.main(["-f", str(path)])
    assert "~" not in known
    assert "estimated" not in known
    assert planned(path)["cost_per_hour"]["total"] == pytest.approx(0.096)


def test_several_files_are_one_cluster_and_json_is_read_too(tmp_path: Path) -> None:
    path = dumped(tmp_path, *BOTH)
    more = tmp_path / "more.json"
    more.write_text(json.dumps({"kind": "List", "items": [pod("web-0")]}))
    assert changes(planned(path, "-f", str(more))) == {"a": (1, 2)}


def test_the_same_files_get_the_same_answer_in_any_order(tmp_path: Path) -> None:
    objects = [*BOTH, *(pod(f"web-{number}") for number in range(5))]
    first = planned(dumped(tmp_path, *objects))
    again = planned(dumped(tmp_path, *reversed(objects)))
    assert {**first, "time": ""} == {**again, "time": ""}


def test_nothing_is_bought_for_what_nodes_will_lend_with_their_next_report(tmp_path: Path) -> None:
    metric = {
        "kind": "NodeMetric",
        "metadata": {"name": "a1"},
        "status": {
            "updateTime": "2026-01-01T00:00:00Z",
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": "500m", "memory": "1Gi"}}},
            "prodReclaimableMetric": {"resource": {"resources": {"cpu": "3", "memory": "8Gi"}}},
        },
    }
    enabled = {"colocation-config": '{"enable": true, "midCPUThresholdPercent": 50}'}
    config_map = {"kind": "ConfigMap", "metadata": {"name": "slo-controller-config"}, "data": enabled}
    mid = [pod(name) for name in ("mid-0", "mid-1", "mid-2")]
    for each in mid:
        each["spec"]["containers"][0]["resources"] = {"requests": {"kubernetes.io/mid-cpu": "1000"}}
    objects = [node("a1", "a"), pod("prod", "4", "a1"), *mid]
    answer = planned(dumped(tmp_path, *objects, metric, config_map))
    assert sum(row["reclaimed"] for row in answer["pending"]) == 2, "half of four cores is Mid"
    assert sum(row["unplaced"] for row in answer["pending"]) == 1, "an empty node has nothing that Mid could reclaim"
    assert changes(answer) == {}
    batch = pod("batch")
    batch["spec"]["containers"][0]["resources"] = {"requests": {"kubernetes.io/batch-cpu": "2000"}}
    answer = planned(dumped(tmp_path, *objects[:2], batch, metric, config_map))
    assert changes(answer) == {"a": (1, 2)}, "an empty node is all Batch's"
    namespaces = {"headroom-system": enabled, "koordinator-system": {}}
    maps = [
        {"kind": "ConfigMap", "metadata": {"name": "slo-controller-config", "namespace": namespace}, "data": data}
        for namespace, data in namespaces.items()
    ]
    assert changes(planned(dumped(tmp_path, *objects[:2], batch, metric, *maps))) == {"a": (1, 2)}
    moved = planned(dumped(tmp_path, *objects, metric, *maps), "--config-namespace", "koordinator-system")
    assert sum(row["reclaimed"] for row in moved["pending"]) == 0, "that policy lends nothing"
    unknown = planned(dumped(tmp_path, *objects))
    assert sum(row["unplaced"] for row in unknown["pending"]) == 3, "nobody knows of any Mid"


@pytest.mark.parametrize(
    ("objects", "flags", "words"),
    [
        ([{"metadata": {}}], [], ["dump.yaml", "items[0]", "not a Kubernetes object"]),
        ([pod("p")], [], ["dump.yaml", "there is no Node", "--cloud-config"]),
        ([], [], ["dump.yaml", "there is no Node and no Pod", "kubectl get nodes,pods -A -o json"]),
        ([{**node("a", "x"), "kind": "Deployment"}], [], ["dump.yaml", "there is no Node and no Pod"]),
        ([{**pod("p"), "spec": {"containers": "none"}}], [], ["dump.yaml", "Pod p spec.containers", "none"]),
        ([node("a", "x", creationTimestamp="yesterday")], [], ["dump.yaml", "Node a metadata.creationTimestamp"]),
        (
            [{**node("a", "x"), "status": {"conditions": [{"type": "Ready", "lastTransitionTime": "soon"}]}}],
            [],
            ["dump.yaml", "Node a status.conditions[0].lastTransitionTime", "soon"],
        ),
        ([node("a", "x")], ["--group-label", "nothing"], ["'nothing'", "no node has a group label"]),
        ([node("a", "x")], ["--expander", "cheapest"], ["--expander", "cheapest"]),
        ([node("a", "x")], ["--nodes", "5:1:x"], ["--nodes", "5:1:x", "above the maximum"]),
        ([node("a", "x")], ["--max-cpu", "-1"], ["--max-cpu", "-1"]),
        ([node("a", "x")], ["--prices", "/nowhere.yaml"], ["/nowhere.yaml"]),
        ([node("a", "x")], ["--cloud-provider", "externalgrpc", "--cloud-config", "x"], ["--cloud-provider"]),
        ([node("a", "x")], ["--cloud-provider", "simulated"], ["--cloud-config", "needs a file"]),
        ([node("a", "x")], ["--cloud-config", "/nowhere.yaml"], ["/nowhere.yaml"]),
        ([node("a", "x")], ["-o", "xml"], ["output", "xml"]),
    ],
)
def test_bad_input_is_one_line_that_names_it_and_status_2(
    objects: list[dict[str, Any]],
    flags: list[str],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["headroom", "plan", "-f", str(dumped(tmp_path, *objects)), *flags])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert said.out == ""
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("flags", "status", "words"),
    [
        (["--cloud-config", "x"], 2, ["--cloud-config", "cloudConfig: 'x'", "its own settings", "--expander"]),
        (["--top", "5"], 1, ["no answer of a manager from http://127.0.0.1:1/api/v1/plan"]),
        (["-f", "{nodes}"], 2, ["dump.yaml", "there is no Pod in it"]),
        (["-f", "/nowhere.yaml"], 2, ["/nowhere.yaml"]),
    ],
)
def test_what_a_manager_cannot_be_asked_is_told_in_one_line(
    flags: list[str],
    status: int,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes = dumped(tmp_path, node("a", "x"))
    arguments = [flag.format(nodes=nodes) for flag in flags]
    monkeypatch.setattr("sys.argv", ["headroom", "plan", "--manager", "http://127.0.0.1:1", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert (ended.value.code, [word for word in words if word not in line]) == (status, [])


JUNK = st.one_of(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False),
    st.sampled_from(["", "x", "-5", "99999999999999999999Gi", "1e400", "2026-99-99T99:99:99Z", "a" * 300]),
    st.sampled_from([[], {}, [1], [{}], {"cpu": "-1"}, {"cpu": "x"}, {"name": None}]),
)
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
KEEP_AWAY = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
EVERY_KIND = [
    *BOTH,
    pod(
        "web",
        nodeSelector={"a": "b"},
        tolerations=[{"key": "k"}],
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [KEEP_AWAY]}},
        topologySpreadConstraints=[SPREAD],
        overhead={"cpu": "1"},
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    ),
    {"kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {"template": {"spec": pod("d")["spec"]}}},
    {"kind": "NodeMetric", "metadata": {"name": "a1"}, "status": {"updateTime": "2026-01-01T00:00:00Z"}},
    {"kind": "ConfigMap", "metadata": {"name": "slo-controller-config"}, "data": {"colocation-config": "{}"}},
    {"kind": "ConfigMap", "metadata": {"name": names.REGISTRY_CONFIG_MAP}, "data": {registry_store.KEY: "{}"}},
    {
        "kind": "ConfigMap",
        "metadata": {"name": "cluster-autoscaler-priority-expander"},
        "data": {"priorities": "1: [a]"},
    },
    {"kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "shop"}, "spec": {"volumeName": "v"}},
    {"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {}}}},
    {"kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "b"}}},
    {"kind": "ReplicationController", "metadata": {"name": "old", "namespace": "shop"}, "spec": {"replicas": 2}},
    {"kind": "ReplicaSet", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 2}},
    {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}},
        "status": {"disruptionsAllowed": 1},
    },
    owned("w", "a1"),
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container inside, with each of its keys."""
    for key, each in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(each, dict | list):
            yield from places(each)


@examples(60)
@given(st.data())
def test_whatever_stands_in_a_file_is_planned_with_or_refused(data: st.DataObject) -> None:
    objects = copy.deepcopy(EVERY_KIND)
    for _ in range(data.draw(st.integers(1, 3))):
        value, key = data.draw(st.sampled_from(list(places(objects))))
        value[key] = data.draw(JUNK)
    with tempfile.TemporaryDirectory() as folder:
        path = dumped(Path(folder), *objects)
        with contextlib.suppress(InvalidInput):
            assert planned(path, "--expander", "priority,price")["dry_run"]


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "- " * 100_000,
        '{"kind": "Node", "a": ' + "[" * 100_000,
        '{"kind": "List", "items": [' * 5000 + "]}" * 5000,
    ],
)
def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "deep.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"deep\.json"):
        plan.main(["-f", str(tmp_path / "deep.json")])


def test_a_file_is_as_true_as_the_moment_it_was_written_whatever_people_note_in_it(tmp_path: Path) -> None:
    made = node("a1", "a", creationTimestamp="2026-01-01T00:00:00Z", annotations={"until": "2099-01-01T00:00:00Z"})
    changed = [{"manager": "kubectl", "time": "2026-01-02T00:00:00Z"}]
    noted = {**pod("p"), "spec": {**pod("p")["spec"], "note": "not before 2098-01-01T00:00:00Z"}}
    assert planned(dumped(tmp_path, made, noted))["time"] == "2026-01-01T00:00:00Z"
    made["metadata"]["managedFields"] = changed
    assert planned(dumped(tmp_path, made, noted))["time"] == "2026-01-02T00:00:00Z"
    heartbeat = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-03T00:00:00Z"}
    made["status"]["conditions"] = [heartbeat]
    assert planned(dumped(tmp_path, made, noted))["time"] == "2026-01-03T00:00:00Z"


def bare(name: str, **labels: str) -> dict[str, Any]:
    """A node as kubeadm, kind and machines of one's own make it: nothing says which group it is in."""
    found = node(name, "")
    found["metadata"]["labels"] = labels
    return found


def test_of_nodes_without_pods_it_is_not_known_what_is_idle_nor_which_could_go(tmp_path: Path) -> None:
    path = dumped(tmp_path, node("a1", "a"), node("a2", "a"))
    answer = planned(path)
    assert answer["cost_per_hour"]["total"] > 0
    assert answer["cost_per_hour"]["idle"] is None
    assert {row["standing"] for row in answer["scale_down"]["nodes"]} == {"unjudged"}
    assert answer["decisions"] == []
    table = plan.main(["-f", str(path)])
    assert "the idle part is unknown" in table
    assert table.count("there is no Pod in") == 1
    assert "could be deleted (" not in table


def test_nodes_of_no_group_have_a_cost_and_may_be_found_unneeded_and_none_is_added(tmp_path: Path) -> None:
    plane = bare("plane", **{"node-role.kubernetes.io/control-plane": ""})
    objects = [plane, bare("w1"), bare("w2"), bare("w3"), owned("db", "w1", "3"), owned("web", "w2"), pod("huge", "9")]
    path = dumped(tmp_path, *objects)
    answer = planned(path)
    assert 0 < answer["cost_per_hour"]["idle"] < answer["cost_per_hour"]["total"]
    assert [(each["unplaced"], each["triggered"]) for each in answer["pending"]] == [(1, 0)]
    rows = why_here(answer)
    assert (rows["w2"], rows["w3"]) == (("unneeded", ""), ("unneeded", ""))
    assert (rows["w1"][0], rows["plane"]) == ("needed", ("needed", "NotAutoscaled"))
    assert all(each["what"] == "taint" for each in answer["decisions"])
    assert "no node has a group label" in plan.main(["-f", str(path)])


def test_lists_of_one_kind_are_read_as_api_servers_answer_them(tmp_path: Path) -> None:
    """Their items do not say their kind again."""
    path = dumped(tmp_path)
    nodes, pods = ([each for each in BOTH if each["kind"] == kind] for kind in ("Node", "Pod"))
    lists = [
        {
            "kind": f"{kind}List",
            "items": [{key: value for key, value in each.items() if key != "kind"} for each in found],
        }
        for kind, found in (("Node", nodes), ("Pod", [*pods, pod("web")]))
    ]
    path.write_text("\n---\n".join(map(yaml.safe_dump, lists)))
    assert changes(planned(path)) == {"a": (1, 2)}
    one = tmp_path / "nodes.json"
    one.write_text(json.dumps(lists[0]))
    assert planned(one)["cost_per_hour"]["total"] > 0


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_what_is_null_counts_as_absent(tmp_path: Path, suffix: str) -> None:
    hollow = pod("hollow")
    hollow["spec"] = {"containers": [{"name": "c", "resources": None}], "nodeName": None, "tolerations": None}
    path = tmp_path / f"dump.{suffix}"
    path.write_text(json.dumps({"kind": "List", "items": [*BOTH, hollow]}, indent=1))
    assert sum(each["count"] for each in planned(path)["pending"]) == 1


def test_how_long_nodes_are_unneeded_is_said_once_and_the_dearest_come_first(tmp_path: Path) -> None:
    cheap = [node(f"cheap{at}", "a") for at in range(3)]
    dear = [node(f"dear{at}", "b", "n1-standard-16", 16) for at in range(3)]
    path = dumped(tmp_path, *cheap, *dear, owned("db", "cheap0", "3"))
    answer = planned(path)
    could_go = [row for row in answer["scale_down"]["nodes"] if row["standing"] == "unneeded"]
    prices = [row["cost_per_hour"] for row in could_go]
    assert prices == sorted(prices, reverse=True)
    assert {(row["reason"], row["unneeded_since"], row["ripe_at"]) for row in could_go} == {("", None, None)}
    table = plan.main(["-f", str(path), "--top", "1"])
    assert table.count("--scale-down-unneeded-time, 10m0s") == 1
    assert "NotUnneededLongEnough" not in table
    assert f"{answer['scale_down']['savable_per_hour'] * 730:,.0f} $/month" in table
    assert f"and {len(could_go) - 1} more" in table
    assert could_go[0]["node"] in table


@pytest.mark.parametrize("text", ['{"kind": "List", "items": [', '{"kind": "List"} {"kind": "List"}'])
def test_json_that_ends_too_soon_or_too_late_is_refused_at_its_byte(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cut.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"cut\.json: \(document\)"):
        plan.main(["-f", str(path)])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_an_answer_that_cannot_be_written_is_one_line_and_status_1(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deploy.cli", "plan", "-f", str(dumped(tmp_path, *BOTH))]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "the answer cannot be written" in line


def test_a_clouds_file_that_means_nothing_is_refused_by_field(tmp_path: Path) -> None:
    path = cloud(tmp_path, groups=[{"name": "web", "machine_type": "abacus"}])
    with pytest.raises(InvalidInput, match=r"cloud\.yaml: groups\[0\]\.machine_type: 'abacus'"):
        plan.main(["-f", str(dumped(tmp_path, pod("p"))), "--cloud-config", path])


def refused(name: str, message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {**pod(name, "1"), "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("message", "is_shown"),
    [
        (
            "0/2 nodes are available: 2 node(s) exceed max volume count. preemption: 0/2 nodes are available: 2 No.",
            True,
        ),
        ("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) exceed max volume count.", False),
        ("0/2 nodes are available: 2 Insufficient cpu.", False),  # there may be room since
        ("0/1 nodes are available: 1 node(s) exceed max volume count.", False),  # it has not seen the other node
        ("0/2 nodes are available: 2 node(s) cpu usage exceed threshold.", False),  # our extender; it passes
        ("waiting for minCount pods from a gang", False),
    ],
)
def test_a_refusal_that_no_room_explains_is_read_from_the_pod(tmp_path: Path, message: str, is_shown: bool) -> None:
    answer = planned(dumped(tmp_path, node("a1", "a"), node("a2", "a"), refused("web", message)))
    assert [row["pods"] for row in answer["disagreements"]] == ([["shop/web"]] if is_shown else [])


CLASS = {
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
}


def claiming(name: str, claim: str, on: str | None = None) -> list[dict[str, Any]]:
    """A pod and its ResourceClaim for a GPU, allocated if it is on a node."""
    spec = {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "gpu"}}]}}
    made: dict[str, Any] = {"kind": "ResourceClaim", "metadata": {"name": claim, "namespace": "shop"}, "spec": spec}
    if on:
        results = [{"driver": "gpu.example.com", "pool": on, "device": "d0"}]
        allocation = {"devices": {"results": results}}
        made["status"] = {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": name}]}
    return [pod(name, "1", on, resourceClaims=[{"name": "gpu", "resourceClaimName": claim}]), made]


def gpus_of(name: str, count: int) -> dict[str, Any]:
    devices = [{"name": f"d{number}"} for number in range(count)]
    spec = {"driver": "gpu.example.com", "pool": {"name": name}, "nodeName": name, "devices": devices}
    return {"kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def test_devices_of_a_groups_node_are_those_of_its_new_ones(tmp_path: Path) -> None:
    there = (node("a1", "a"), node("b1", "b"), CLASS, gpus_of("a1", 1), *claiming("old", "c0", on="a1"))
    waiting = (*claiming("w1", "c1"), *claiming("w2", "c2"))
    answer = planned(dumped(tmp_path, *there, *waiting))
    assert changes(answer)["a"] == (1, 3), "one device each, and that of the node there is in use"
    assert "b" not in {each["group"] for each in answer["options"]}
    assert not answer["invalid_objects"]


def test_kinds_that_a_dump_lacks_are_named_where_a_pod_needs_them(tmp_path: Path) -> None:
    waiting, claim = claiming("w", "c")
    for lacking, kind in ((CLASS, "DeviceClass"), (gpus_of("a1", 1), "ResourceSlice"), (claim, "ResourceClaim")):
        listed = [each for each in (CLASS, gpus_of("a1", 1), claim) if each != lacking]
        (said,) = planned(dumped(tmp_path, node("a1", "a"), waiting, *listed))["invalid_objects"]
        assert said["object"] == "shop/w"
        assert f"no {kind} is known," in said["problem"]
