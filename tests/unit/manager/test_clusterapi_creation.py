"""Groups that the Cluster API provider creates: what is decided, and which files are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from manager.autoscaler import decision_settings
from manager.autoscaler.cloudprovider import plugin
from manager.autoscaler.cloudprovider.clusterapi import annotations, config, field_paths, groups, templates
from manager.autoscaler.cloudprovider.clusterapi.annotations import AnnouncedNode
from manager.autoscaler.cloudprovider.clusterapi.cloning import CopyRules
from manager.autoscaler.cloudprovider.clusterapi.config import ClusterApiConfig
from manager.autoscaler.cloudprovider.clusterapi.creation import GroupPlanner, PlannedGroup
from manager.autoscaler.cloudprovider.clusterapi.prices import MachineTypePrices
from manager.autoscaler.cloudprovider.clusterapi.topology import entry_of
from manager.autoscaler.cloudprovider.clusterapi.wire import ScalableKind, ScalableObject
from manager.autoscaler.cloudprovider.contract import GroupSpec
from manager.autoscaler.cloudprovider.errors import Refused
from manager.autoscaler.pricing.model import Machine, Unpriced
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared import names
from shared.api.core import Node, Taint
from shared.api.meta import ObjectMeta
from shared.errors import InvalidInput
from tests.support.apiserver import ROOT

GROUP = "cluster.x-k8s.io"
PREFIX = "nodeautoprovisioning"
ZONE = "topology.kubernetes.io/zone"
MACHINES = f"awsmachinetemplates.infrastructure.{GROUP}"
BOOTSTRAP = f"kubeadmconfigtemplates.bootstrap.{GROUP}"
NODE_LABELS = "spec.template.spec.joinConfiguration.nodeRegistration.kubeletExtraArgs[name=node-labels].value"
NODE_TAINTS = "spec.template.spec.joinConfiguration.nodeRegistration.taints"
DEDICATED = Taint("dedicated", "web", "NoSchedule")
TOPOLOGY = {
    "cluster": "prod",
    "class": "default-worker",
    "machine_type": "workerMachineType",
    "labels": "workerLabels",
    "taints": "workerTaints",
}


def document() -> dict[str, Any]:
    """A file as users write it."""
    return {
        "discover": [{"namespace": "fleet"}],
        "machine_types": [
            {
                "name": "m6i.xlarge",
                "allocatable": {"cpu": "3920m", "memory": "14Gi", "pods": "58", "ephemeral-storage": "90Gi"},
                "price": 0.23,
                "zones": ["a", "b"],
            },
            {
                "name": "g5.xlarge",
                "allocatable": {"cpu": "3920m", "memory": "14Gi", "nvidia.com/gpu": "1"},
                "labels": {"cloud.google.com/gke-accelerator": "a10g"},
                "price": 30,
            },
        ],
        "autoprovisioning": {
            "namespace": "fleet",
            "clone": {
                "machine_deployment": "workers",
                "templates": [
                    {"resource": MACHINES, "machine_type": "spec.template.spec.instanceType"},
                    {"resource": BOOTSTRAP, "labels": NODE_LABELS, "taints": NODE_TAINTS},
                ],
            },
            "synced_labels": ["team", "example.com/*"],
        },
    }


def changed(path: str, value: object) -> dict[str, Any]:
    """The file with another value, or a new field, at a JSON pointer like machine_types/0/name."""
    text = document()
    at: Any = text
    *steps, last = (step.replace("~1", "/") for step in path.split("/"))
    for step in steps:
        at = at[int(step) if step.isdigit() else step]
    at[int(last) if last.isdigit() else last] = value
    return text


def of_topology() -> dict[str, Any]:
    return changed("autoprovisioning", {"namespace": "fleet", "topology": TOPOLOGY})


def loaded(text: dict[str, Any]) -> ClusterApiConfig:
    return msgspec.convert(text, ClusterApiConfig)


def spec(machine_type: str = "m6i.xlarge", *taints: Taint, **labels: str) -> GroupSpec:
    return GroupSpec(machine_type, PREFIX, labels, taints)


def plan(wanted: GroupSpec, *existing: str, base: AnnouncedNode | None = None, **more: Any) -> PlannedGroup:
    text = document()
    text["autoprovisioning"] |= more
    return GroupPlanner(loaded(text)).plan(wanted, base or AnnouncedNode(), existing)


def source() -> dict[str, Any]:
    """A MachineDeployment as the API server has it."""
    labels = {f"{GROUP}/cluster-name": "prod", f"{GROUP}/deployment-name": "workers"}
    return {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "MachineDeployment",
        "metadata": {
            "name": "workers",
            "namespace": "fleet",
            "uid": "u",
            "resourceVersion": "7",
            "labels": labels | {"app.kubernetes.io/instance": "fleet"},
            "annotations": {
                f"{GROUP}/autoscaling-options-scaledownunneededtime": "5m",
                f"machineset.{GROUP}/skip-preflight-checks": "All",
                f"{GROUP}/paused": "",
                f"{GROUP}/cloned-from-name": "old",
                f"{GROUP}/cluster-api-autoscaler-node-group-max-size": "3",
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "argocd.argoproj.io/tracking-id": "x",
                f"{annotations.CAPACITY}labels": "tier=batch",
            },
            "ownerReferences": [{"kind": "Cluster", "name": "prod", "uid": "c"}],
        },
        "spec": {
            "clusterName": "prod",
            "replicas": 3,
            "paused": True,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels | {"node.cluster.x-k8s.io/pool": "x"}},
                "spec": {
                    "clusterName": "prod",
                    "version": "v1.36.3",
                    "bootstrap": {
                        "configRef": {
                            "apiGroup": f"bootstrap.{GROUP}",
                            "kind": "KubeadmConfigTemplate",
                            "name": "workers",
                        }
                    },
                    "infrastructureRef": {
                        "apiVersion": f"infrastructure.{GROUP}/v1beta1",
                        "kind": "AWSMachineTemplate",
                        "name": "workers-7",
                    },
                },
            },
        },
        "status": {"replicas": 3},
    }


def template(kind: str, api: str, inner: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": "workers", "namespace": "fleet", "resourceVersion": "3", "labels": {"team": "x"}}
    return {
        "apiVersion": f"{api}.{GROUP}/v1beta1",
        "kind": kind,
        "metadata": meta,
        "spec": {"template": {"spec": inner}},
    }


@pytest.fixture
def rules() -> CopyRules:
    found = loaded(document()).autoprovisioning
    assert found is not None
    assert found.clone is not None
    return CopyRules(GROUP, "fleet", found.clone)


def next_node(body: dict[str, Any]) -> Node:
    """As the autoscaler takes it from the group's annotations."""
    found = msgspec.convert(body, ScalableObject)
    group = groups.read_group(ScalableKind.MACHINE_DEPLOYMENT, found, groups.ApiKeys(GROUP))
    assert group is not None
    return templates.node(group, None, "arm64")


def test_the_same_spec_has_the_same_name_and_another_has_another() -> None:
    first = plan(spec(team="web")).name
    assert first == plan(spec(team="web")).name
    assert first.startswith(f"{PREFIX}-m6i-xlarge-")
    others = {plan(spec(team="api")).name, plan(spec()).name, plan(spec("g5.xlarge")).name}
    assert len({first, *others}) == 4


def test_a_group_is_in_the_first_zone_that_suits_and_has_none_yet() -> None:
    first = plan(spec())
    second = plan(spec(), first.name)
    assert (first.zone, second.zone) == ("a", "b")
    with pytest.raises(Refused, match="exist already"):
        plan(spec(), first.name, second.name)
    assert plan(GroupSpec("m6i.xlarge", PREFIX, {ZONE: "b"})).zone == "b"
    with pytest.raises(Refused, match="not offered in c"):
        plan(GroupSpec("m6i.xlarge", PREFIX, {ZONE: "c"}))
    assert plan(spec("g5.xlarge")).zone == ""


def test_labels_reach_nodes_by_cluster_api_where_it_passes_them_on_and_else_by_the_kubelet() -> None:
    labels = {"team": "web", "example.com/a": "b", "tier": "web", f"node.{GROUP}/pool": "p"}
    made = plan(GroupSpec("m6i.xlarge", PREFIX, labels))
    assert made.passed_labels == {"team": "web", "example.com/a": "b", f"node.{GROUP}/pool": "p"}
    assert made.own_labels == {"tier": "web"}
    assert made.label_text == "tier=web"


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (spec("c7g.large"), "c7g.large is not in the catalogue"),
        (GroupSpec("m6i.xlarge", PREFIX, {"kubernetes.io/arch": "arm64"}), "it is 'amd64' on all of them"),
        (GroupSpec("m6i.xlarge", PREFIX, {"karpenter.sh/nodepool": "x"}), "of this domain"),
        (GroupSpec("g5.xlarge", PREFIX, {ZONE: "a"}), "of this domain"),
        (GroupSpec("m6i.xlarge", PREFIX, {"team": "a b"}), "not a label's value"),
        (GroupSpec("m6i.xlarge", PREFIX, extra_resources={"nvidia.com/gpu": 1}), "has fewer"),
        (GroupSpec("m6i.xlarge", "Node_Groups"), "because of the prefix 'Node_Groups'"),
        (GroupSpec("m6i.xlarge", "n" * 50), "because of the prefix 'nnn"),
    ],
)
def test_a_group_that_cannot_be_is_refused(wanted: GroupSpec, problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        plan(wanted)


def test_what_no_field_gives_to_nodes_is_not_promised() -> None:
    clone = {"machine_deployment": "workers", "templates": [{"resource": MACHINES, "machine_type": "spec.type"}]}
    with pytest.raises(Refused, match=r"label tier: 'web': Cluster API does not copy it to nodes \(synced_labels\)"):
        plan(spec(tier="web"), clone=clone)
    with pytest.raises(Refused, match="taint dedicated: autoprovisioning has no field for taints"):
        plan(spec("m6i.xlarge", DEDICATED), clone=clone)
    assert plan(spec(team="web"), clone=clone).own_labels == {}


def test_what_all_nodes_of_the_source_have_need_not_be_given_again() -> None:
    base = AnnouncedNode(labels={"tier": "batch"}, taints=(DEDICATED,))
    made = plan(spec("m6i.xlarge", DEDICATED, tier="batch"), base=base)
    assert (made.own_labels, made.passed_labels, made.taints) == ({}, {}, ())
    with pytest.raises(Refused, match="it is 'batch' on all of them"):
        plan(spec(tier="web"), base=base)


def test_a_clone_is_an_empty_group_of_the_machine_type_that_scales_from_zero(rules: CopyRules) -> None:
    made = plan(spec("m6i.xlarge", DEDICATED, team="web", tier="batch"), base=AnnouncedNode(labels={"zone": "x"}))
    body = rules.deployment(source(), made)
    assert rules.problem(source()) == ""
    meta = body["metadata"]
    assert (meta["name"], meta["namespace"]) == (made.name, "fleet")
    assert meta["labels"] == {f"{GROUP}/cluster-name": "prod", names.LABEL_NODE_GROUP: made.name}
    kept = {key for key in meta["annotations"] if not key.startswith(annotations.CAPACITY)}
    assert kept == {
        f"{GROUP}/autoscaling-options-scaledownunneededtime",
        f"machineset.{GROUP}/skip-preflight-checks",
        f"{GROUP}/cluster-api-autoscaler-node-group-min-size",
        f"{GROUP}/cluster-api-autoscaler-node-group-max-size",
        names.ANNOTATION_NODE_GROUP_SPEC,
    }
    assert meta["annotations"][f"{GROUP}/cluster-api-autoscaler-node-group-max-size"] == "100"
    selected = {f"{GROUP}/cluster-name": "prod", f"{GROUP}/deployment-name": made.name}
    own = body["spec"]
    assert (own["replicas"], own["selector"], own.get("paused")) == (0, {"matchLabels": selected}, None)
    assert own["template"]["metadata"]["labels"] == {**selected, "node.cluster.x-k8s.io/pool": "x", "team": "web"}
    machine = own["template"]["spec"]
    assert (machine["failureDomain"], machine["version"]) == ("a", "v1.36.3")
    assert machine["infrastructureRef"]["name"] == machine["bootstrap"]["configRef"]["name"] == made.name
    node = next_node(body)
    assert node.status.allocatable == {
        "cpu": "3920m",
        "memory": "14Gi",
        "pods": "58",
        "ephemeral-storage": "90Gi",
    }
    labels = node.metadata.labels or {}
    expected = {"team": "web", "tier": "batch", "zone": "x", ZONE: "a", "kubernetes.io/arch": "amd64"}
    assert labels.items() >= expected.items()
    assert labels["node.kubernetes.io/instance-type"] == "m6i.xlarge"
    assert [(each.key, each.value, each.effect) for each in node.spec.taints or ()] == [
        ("dedicated", "web", "NoSchedule")
    ]


def test_gpus_of_a_machine_type_are_announced(rules: CopyRules) -> None:
    wanted = GroupSpec("g5.xlarge", PREFIX, {"cloud.google.com/gke-accelerator": "a10g"}, (), {"nvidia.com/gpu": 1})
    node = next_node(rules.deployment(source(), plan(wanted)))
    assert (node.status.allocatable or {})["nvidia.com/gpu"] == "1"


def test_a_copied_template_differs_in_the_configured_fields_alone(rules: CopyRules) -> None:
    made = plan(spec("m6i.xlarge", DEDICATED, tier="web"))
    machines = template("AWSMachineTemplate", "infrastructure", {"instanceType": "t3.small", "ami": {"id": "x"}})
    body = rules.template(machines, made)
    assert body["spec"] == {"template": {"spec": {"instanceType": "m6i.xlarge", "ami": {"id": "x"}}}}
    assert body["metadata"] == {"name": made.name, "namespace": "fleet", **made.marks}
    assert machines["spec"]["template"]["spec"]["instanceType"] == "t3.small"
    registration: dict[str, Any] = {
        "taints": [{"key": "a", "effect": "NoSchedule"}],
        "kubeletExtraArgs": [{"name": "v", "value": "2"}, {"name": "node-labels", "value": "a=b"}],
    }
    bootstrap = template(
        "KubeadmConfigTemplate", "bootstrap", {"joinConfiguration": {"nodeRegistration": registration}}
    )
    found = rules.template(bootstrap, made)["spec"]["template"]["spec"]["joinConfiguration"]["nodeRegistration"]
    assert found["kubeletExtraArgs"] == [{"name": "v", "value": "2"}, {"name": "node-labels", "value": "a=b,tier=web"}]
    assert found["taints"] == [
        {"key": "a", "effect": "NoSchedule"},
        {"key": "dedicated", "value": "web", "effect": "NoSchedule"},
    ]
    plain = rules.template(bootstrap, plan(spec()))
    assert plain["spec"] == bootstrap["spec"]
    bare = rules.template(template("KubeadmConfigTemplate", "bootstrap", {}), made)
    made_there = bare["spec"]["template"]["spec"]["joinConfiguration"]["nodeRegistration"]
    assert made_there["kubeletExtraArgs"] == [{"name": "node-labels", "value": "tier=web"}]


def test_a_template_without_a_place_for_a_field_is_refused(rules: CopyRules) -> None:
    odd = template("AWSMachineTemplate", "infrastructure", {})
    odd["spec"]["template"] = "none"
    with pytest.raises(
        Refused, match=r"AWSMachineTemplate workers has no place for spec\.template\.spec\.instanceType"
    ):
        rules.template(odd, plan(spec()))


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("metadata/labels", {f"topology.{GROUP}/owned": ""}, "a Cluster's topology created it"),
        ("metadata/deletionTimestamp", "2026-11-01T00:00:00Z", "being deleted"),
        (
            "spec/template/spec/infrastructureRef",
            {"apiGroup": "infra.example.com", "kind": "BoxTemplate", "name": "x"},
            r"boxtemplates\.infra\.example\.com, which autoprovisioning\.clone\.templates does not name",
        ),
        ("spec/template/spec/infrastructureRef", None, r"has no machine_type for kubeadmconfigtemplates"),
    ],
)
def test_not_every_machine_deployment_can_be_copied(rules: CopyRules, path: str, value: object, problem: str) -> None:
    body = source()
    *steps, last = path.split("/")
    at: Any = body
    for step in steps:
        at = at[step]
    at[last] = value
    found = rules.problem(body)
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(found)


def test_an_entry_of_a_topology_has_no_replicas_and_says_the_machine_type_by_a_variable() -> None:
    text = of_topology()
    text["autoprovisioning"]["synced_labels"] = ["team"]
    planner = GroupPlanner(loaded(text))
    assert planner.autoprovisioning.topology is not None
    made = planner.plan(spec("m6i.xlarge", DEDICATED, team="web", tier="x"), AnnouncedNode(), ())
    entry = entry_of(made, planner.autoprovisioning.topology)
    assert "replicas" not in entry
    assert (entry["class"], entry["name"], entry["failureDomain"]) == ("default-worker", made.name, "a")
    assert entry["metadata"]["labels"] == {"team": "web", names.LABEL_NODE_GROUP: made.name}
    assert entry["variables"]["overrides"] == [
        {"name": "workerMachineType", "value": "m6i.xlarge"},
        {"name": "workerLabels", "value": "tier=x"},
        {"name": "workerTaints", "value": [{"key": "dedicated", "value": "web", "effect": "NoSchedule"}]},
    ]
    plain = entry_of(planner.plan(spec("g5.xlarge"), AnnouncedNode(), ()), planner.autoprovisioning.topology)
    assert "failureDomain" not in plain
    assert plain["variables"]["overrides"] == [{"name": "workerMachineType", "value": "g5.xlarge"}]


def test_only_what_was_made_of_the_same_spec_counts_as_an_earlier_try() -> None:
    made, other = plan(spec(team="web")), plan(spec(team="api"))
    theirs = msgspec.convert({"name": made.name, **made.marks}, ObjectMeta)
    assert made.matches(theirs)
    assert not made.matches(ObjectMeta(name=made.name))
    assert not made.matches(msgspec.structs.replace(theirs, annotations=other.marks["annotations"]))


def test_a_group_of_a_topology_is_named_by_its_entry_if_it_is_ours() -> None:
    labels = {f"topology.{GROUP}/deployment-name": "entry", names.LABEL_NODE_GROUP: "entry"}
    keys = groups.ApiKeys(GROUP)

    def identity(labels: dict[str, str]) -> str:
        meta = {"name": "prod-entry-x7k", "namespace": "fleet", "labels": labels}
        found = msgspec.convert({"metadata": meta, "spec": {"clusterName": "prod"}}, ScalableObject)
        return groups.id_of(ScalableKind.MACHINE_DEPLOYMENT, found, keys)

    assert identity(labels) == "Cluster/fleet/prod/entry"
    assert identity({**labels, names.LABEL_NODE_GROUP: "other"}) == "MachineDeployment/fleet/prod-entry-x7k"
    del labels[names.LABEL_NODE_GROUP]
    assert identity(labels) == "MachineDeployment/fleet/prod-entry-x7k"


@pytest.mark.parametrize(
    ("body", "path", "problem"),
    [({"spec": []}, "spec.a", "spec is no object"), ({"spec": {"a": {}}}, "spec.a[k=v].b", "a is no list")],
)
def test_a_path_ends_where_something_else_is_in_the_way(body: dict[str, Any], path: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        field_paths.change_at(body, path, lambda _: "new")


def test_prices_are_those_of_the_machine_types() -> None:
    prices = MachineTypePrices({"m6i.xlarge": 0.23})
    assert prices.node_price(Machine({}, {"node.kubernetes.io/instance-type": "m6i.xlarge"})) == 0.23
    with pytest.raises(Unpriced, match="no price of t3"):
        prices.node_price(Machine({}, {"node.kubernetes.io/instance-type": "t3"}))
    assert prices.pod_price({"cpu": 1000}) > 0


@pytest.fixture
def load(tmp_path: Path) -> Callable[[dict[str, Any]], ClusterApiConfig]:
    def load(text: dict[str, Any]) -> ClusterApiConfig:
        file = tmp_path / "cloud.yaml"
        file.write_text(yaml.safe_dump(text))
        return config.load(file)

    return load


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("machine_types", [], "machine_types"),
        ("machine_types/0/price", -1, "machine_types[0].price"),
        ("machine_types/0/price", 160, "machine_types[0].price"),
        ("machine_types/0/allocatable", {"cpu": "4"}, "machine_types[0].allocatable.memory"),
        ("machine_types/0/allocatable/memory", "14", "machine_types[0].allocatable.memory"),
        ("machine_types/1/allocatable/amd.com~1gpu", "1", "machine_types[1].allocatable"),
        ("machine_types/0/zones", ["a b"], "machine_types[0].zones[0]"),
        ("machine_types/0/labels", {"a b": "c"}, "machine_types[0].labels.a b"),
        ("machine_types/1/name", "m6i.xlarge", "machine_types[1].name"),
        ("autoprovisioning/namespace", "other", "autoprovisioning.namespace"),
        ("autoprovisioning/namespace", "A", "autoprovisioning.namespace"),
        ("autoprovisioning/topology", TOPOLOGY, "autoprovisioning"),
        ("autoprovisioning", {"namespace": "fleet"}, "autoprovisioning"),
        ("autoprovisioning/machine_types", ["c7g"], "autoprovisioning.machine_types[0]"),
        ("autoprovisioning/max", 0, "autoprovisioning.max"),
        ("autoprovisioning/synced_labels", ["a b"], "autoprovisioning.synced_labels[0]"),
        ("autoprovisioning/prefix", "x", "autoprovisioning"),
        ("autoprovisioning/clone/machine_deployment", "", "autoprovisioning.clone.machine_deployment"),
        ("autoprovisioning/clone/templates", [], "autoprovisioning.clone.templates"),
        (
            "autoprovisioning/clone/templates/0/machine_type",
            "status.x",
            "autoprovisioning.clone.templates[0].machine_type",
        ),
        (
            "autoprovisioning/clone/templates/0/machine_type",
            "spec.a[k=v]",
            "autoprovisioning.clone.templates[0].machine_type",
        ),
        ("autoprovisioning/clone/templates/0/machine_type", None, "autoprovisioning.clone.templates"),
        ("autoprovisioning/clone/templates/1/resource", "kubeadm", "autoprovisioning.clone.templates[1].resource"),
        ("autoprovisioning/clone/templates/1/resource", MACHINES, "autoprovisioning.clone.templates[1].resource"),
        ("discover", [{"labels": {"tier": "x"}}], "autoprovisioning.namespace"),
    ],
)
def test_a_file_that_means_nothing_is_refused_by_field_and_value(
    load: Callable[[dict[str, Any]], ClusterApiConfig], path: str, value: object, field: str
) -> None:
    with pytest.raises(InvalidInput) as raised:
        load(changed(path, value))
    assert raised.value.field == field


def test_a_topology_is_of_a_cluster_that_is_selected(load: Callable[[dict[str, Any]], ClusterApiConfig]) -> None:
    text = of_topology()
    assert load(text).autoprovisioning is not None
    text["discover"] = [{"namespace": "fleet", "cluster_name": "test"}]
    with pytest.raises(InvalidInput, match=r"autoprovisioning.namespace: 'fleet': no entry of `discover`"):
        load(text)


def test_groups_can_be_created_and_prices_be_asked_only_with_a_file_that_says_how(tmp_path: Path) -> None:
    found = plugin.find("clusterapi")
    assert (found.creates_groups, found.has_prices) == (False, False)
    file = tmp_path / "cloud.yaml"
    file.write_text(yaml.safe_dump(document()))
    settings = AutoscalerSettings(cloud_provider="clusterapi", node_autoprovisioning=True, expander="least-waste")
    problem = "no group can be created in clusterapi: it needs `autoprovisioning` in its configuration"
    with pytest.raises(InvalidInput, match=problem):
        decision_settings.load(settings)
    created = msgspec.structs.replace(settings, cloud_config=str(file), expander="price", prices="provider")
    assert decision_settings.load(created).autoprovisioning.node_autoprovisioning


def test_the_example_copies_its_own_machine_deployment(load: Callable[[dict[str, Any]], ClusterApiConfig]) -> None:
    values = yaml.safe_load((ROOT / "examples" / "cluster-api" / "values.yaml").read_text())
    found = load(values["manager"]["autoscaler"]["cloudConfig"]).autoprovisioning
    assert found is not None
    assert found.clone is not None
    workers = yaml.safe_load((ROOT / "examples" / "cluster-api" / "workers.yaml").read_text())
    assert workers["metadata"]["name"] == found.clone.machine_deployment
    assert CopyRules(GROUP, found.namespace, found.clone).problem(workers) == ""
