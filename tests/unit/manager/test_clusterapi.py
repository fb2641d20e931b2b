"""The pure parts of the Cluster API provider: annotations, groups with their machines, and the next node."""

from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler import decision_settings
from manager.autoscaler.cloudprovider.clusterapi import annotations, groups, templates
from manager.autoscaler.cloudprovider.clusterapi.annotations import GroupAnnotations
from manager.autoscaler.cloudprovider.clusterapi.config import ClusterApiConfig, GroupSelector
from manager.autoscaler.cloudprovider.clusterapi.groups import ManagementObjects, ScalableGroup, ScalableGroups
from manager.autoscaler.cloudprovider.clusterapi.wire import (
    InfrastructureTemplate,
    MachineObject,
    ScalableKind,
    ScalableObject,
)
from manager.autoscaler.cloudprovider.contract import ErrorClass, InstanceState, NodeRef
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, Later, ProviderError, Refused
from manager.autoscaler.cloudprovider.ownership import SizeBounds
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from tests.support.apiserver import ROOT

GROUP = "cluster.x-k8s.io"
MIN, MAX = (f"{GROUP}/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max"))
CAPACITY = annotations.CAPACITY
MARK = f"{GROUP}/delete-machine"
KEYS = groups.ApiKeys(GROUP)
WEB = "MachineDeployment/fleet/web"


def owned_by(kind: str, name: str) -> list[dict[str, str]]:
    return [{"kind": kind, "name": name}]


def scalable(name: str = "web", replicas: int | None = 2, cluster: str = "prod", **more: Any) -> ScalableObject:
    """With `annotations`, `owners`, `template` and `ids` of its spec."""
    meta = {
        "name": name,
        "namespace": "fleet",
        "annotations": more.get("annotations", {MIN: "1", MAX: "5"}),
        "ownerReferences": more.get("owners", []),
        "labels": more.get("labels", {}),
    }
    spec = {"clusterName": cluster, "template": more.get("template", {}), "providerIDList": more.get("ids")}
    if replicas is not None:
        spec["replicas"] = replicas
    return msgspec.convert({"metadata": meta, "spec": spec}, ScalableObject)


def machine(name: str, owner: str = "web-1", **more: Any) -> MachineObject:
    """With `id`, `node`, `mark`, `leaving`, `kind` of its owner, and the rest of its status."""
    meta = {
        "name": name,
        "namespace": "fleet",
        "ownerReferences": owned_by(more.pop("kind", "MachineSet"), owner),
        "annotations": {MARK: more.pop("mark")} if "mark" in more else None,
        "deletionTimestamp": "2026-11-01T00:00:00Z" if more.pop("leaving", False) else None,
    }
    spec = {"providerID": more.pop("id", f"aws:///a/{name}")}
    node = more.pop("node", f"node-{name}")
    status = {"nodeRef": {"name": node} if node else None, **more}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, MachineObject)


def assembled(
    *machines: MachineObject,
    deployment: ScalableObject | None = None,
    sets: tuple[ScalableObject, ...] = (),
    more: tuple[tuple[ScalableKind, ScalableObject], ...] = (),
) -> ScalableGroups:
    """A MachineDeployment, by default with one MachineSet."""
    deployment = deployment or scalable()
    own = owned_by("MachineDeployment", deployment.metadata.name)
    sets = sets or (scalable("web-1", deployment.spec.replicas, owners=own),)
    kinds = [(ScalableKind.MACHINE_SET, each) for each in sets]
    everything = [*kinds, (ScalableKind.MACHINE_DEPLOYMENT, deployment), *more]
    return groups.assemble(ManagementObjects(list(machines), [each for _, each in kinds], everything), GROUP)


def web(*machines: MachineObject, **more: Any) -> ScalableGroup:
    return assembled(*machines, **more).groups[WEB]


def said(given: dict[str, str]) -> GroupAnnotations:
    return GroupAnnotations(WEB, GROUP, given)


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        ({}, None),
        ({"other": "1"}, None),
        ({MIN: "0", MAX: "0"}, None),
        ({MAX: "3"}, SizeBounds(0, 3)),
        ({MIN: "2", MAX: "2"}, SizeBounds(2, 2)),
    ],
)
def test_a_group_is_what_has_the_annotations_and_a_maximum(given: dict[str, str], bounds: SizeBounds | None) -> None:
    assert said(given).bounds() == bounds


@pytest.mark.parametrize(
    ("given", "field", "problem"),
    [
        ({MIN: "3", MAX: "2"}, MAX, "below the minimum of 3"),
        ({MIN: "1"}, MAX, "missing, which means 0"),
        ({MIN: "-1", MAX: "2"}, MIN, "must be a whole number of at least 0"),
        ({MIN: "1", MAX: "many"}, MAX, "must be a whole number of at least 0"),
        ({MIN: "1", MAX: "1.5"}, MAX, "must be a whole number of at least 0"),
        ({MIN: "٣", MAX: "5"}, MIN, "must be a whole number of at least 0"),
    ],
)
def test_bounds_that_mean_nothing_are_refused_by_annotation_and_value(
    given: dict[str, str], field: str, problem: str
) -> None:
    with pytest.raises(InvalidAnswer, match=problem) as raised:
        said(given).bounds()
    assert (raised.value.group, raised.value.field, raised.value.value) == (WEB, field, given.get(field, ""))


@given(st.dictionaries(st.sampled_from([MIN, MAX]), st.text(max_size=12)))
def test_whatever_the_bounds_say_they_are_in_order_or_refused(given: dict[str, str]) -> None:
    try:
        found = said(given).bounds()
    except InvalidAnswer:
        return
    assert found is None or 0 <= found.min_size <= found.max_size


def test_options_of_a_group_are_read_as_cluster_autoscaler_reads_them() -> None:
    prefix = f"{GROUP}/autoscaling-options-"
    found = said(
        {
            f"{prefix}scaledownutilizationthreshold": "0.7",
            f"{prefix}scaledownunneededtime": "12m",
            f"{prefix}maxnodeprovisiontime": "20m",
            f"{prefix}zeroormaxnodescaling": "true",  # which is not read here
            f"{prefix}somethingnew": "x",
        }
    ).options()
    assert (found.scale_down_utilization_threshold, found.scale_down_unneeded_time_seconds) == (0.7, 720.0)
    assert (found.max_node_provision_time_seconds, found.zero_or_max_node_scaling) == (1200.0, None)
    with pytest.raises(InvalidAnswer, match=r"scaledownunneededtime: 'soon'"):
        said({f"{prefix}scaledownunneededtime": "soon"}).options()


@pytest.mark.parametrize(
    ("given", "field", "problem"),
    [
        ({"cpu": "four"}, "cpu", "quantity"),
        ({"cpu": "0"}, "cpu", "must be above 0"),
        ({"cpu": "4000"}, "cpu", "the unit is a core"),
        ({"memory": "16"}, "memory", "the unit is a byte"),
        ({"maxPods": "0"}, "maxPods", "must be a whole number of at least 1"),
        ({"gpu-count": "2"}, "gpu-type", "there are 2 of it"),
        ({"gpu-count": "two", "gpu-type": "nvidia.com/gpu"}, "gpu-count", "must be a whole number"),
        ({"labels": "tier"}, "labels", "'tier' is not a label"),
        ({"labels": "a=b,c d=e"}, "labels", "'c d=e' is not a label"),
        ({"taints": "key=value"}, "taints", "is not a taint"),
        ({"taints": "key=value:Never"}, "taints", "is not a taint"),
    ],
)
def test_capacities_that_mean_nothing_refuse_their_group_alone(given: dict[str, str], field: str, problem: str) -> None:
    lying = scalable("lying", annotations={MAX: "5"} | {CAPACITY + key: value for key, value in given.items()})
    found = assembled(more=((ScalableKind.MACHINE_DEPLOYMENT, lying),))
    assert list(found.groups) == [WEB]
    (refused,) = found.problems.values()
    assert isinstance(refused, InvalidAnswer)
    assert (refused.group, refused.field) == ("MachineDeployment/fleet/lying", CAPACITY + field)
    assert refused.problem
    with pytest.raises(ProviderError, match=problem):
        raise refused


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"annotations": {MAX: "5", f"{GROUP}/paused": ""}}, "paused"),
        ({"annotations": {MAX: "5", f"{GROUP}/replicas-managed-by": "external-autoscaler"}}, "external-autoscaler"),
        ({"replicas": None}, "no number of replicas"),
        ({"cluster": "other"}, "groups of several clusters, other, prod"),
    ],
)
def test_a_group_that_is_not_ours_to_scale_is_refused(more: dict[str, Any], problem: str) -> None:
    kept = scalable("kept", **more)
    found = assembled(more=((ScalableKind.MACHINE_DEPLOYMENT, kept),))
    assert problem in str(found.problems["MachineDeployment/fleet/kept"])
    assert (WEB in found.groups) == ("cluster" not in more)


def test_machines_belong_to_the_deployment_of_their_set_or_to_a_set_or_pool_of_their_own() -> None:
    found = assembled(
        machine("a"),
        machine("b", "alone"),
        machine("c", "pool", kind="MachinePool"),
        machine("d", "unknown"),
        sets=(
            scalable("web-1", 1, owners=owned_by("MachineDeployment", "web")),
            scalable("alone", 1),
            scalable("plain", 1, annotations={}),
        ),
        more=((ScalableKind.MACHINE_POOL, scalable("pool", ids=["aws:///a/c", "aws:///a/e"])),),
    )
    members = {name: [each.provider_id for each in group.instances] for name, group in found.groups.items()}
    assert members == {
        WEB: ["aws:///a/a"],
        "MachineSet/fleet/alone": ["aws:///a/b"],
        "MachinePool/fleet/pool": ["aws:///a/c", "aws:///a/e"],
    }
    assert found.by_instance["aws:///a/e"] == "MachinePool/fleet/pool"


@pytest.mark.parametrize(
    ("more", "state", "error"),
    [
        ({}, InstanceState.RUNNING, None),
        ({"node": ""}, InstanceState.CREATING, None),
        ({"leaving": True}, InstanceState.DELETING, None),
        (
            {"node": "", "failureReason": "InsufficientResources", "failureMessage": "no m6i left"},
            InstanceState.CREATING,
            (ErrorClass.OUT_OF_RESOURCES, "InsufficientResources", "no m6i left"),
        ),
        (
            {"node": "", "deprecated": {"v1beta1": {"failureReason": "CreateError", "failureMessage": "no"}}},
            InstanceState.CREATING,
            (ErrorClass.OTHER, "CreateError", "no"),
        ),
        (
            {"node": "", "phase": "Failed"},
            InstanceState.CREATING,
            (ErrorClass.OTHER, "ProvisioningFailed", "Cluster API reports a failure without a reason"),
        ),
        ({"phase": "Failed"}, InstanceState.RUNNING, None),
    ],
)
def test_an_instance_is_what_its_machine_says(
    more: dict[str, Any], state: InstanceState, error: tuple[ErrorClass, str, str] | None
) -> None:
    (found,) = web(machine("a", **more)).instances
    assert found.state is state
    told = None if found.error is None else (found.error.kind, found.error.code, found.error.message)
    assert told == error


def test_a_machine_is_known_by_its_own_name_until_it_has_an_id() -> None:
    (found,) = web(machine("a", id="", node="")).instances
    assert found.provider_id == "clusterapi://fleet/a"
    assert web(machine("a", id="", node="")).machine(NodeRef("", found.provider_id)) is not None


def test_a_node_is_found_by_its_id_or_by_the_machine_that_it_and_its_machine_name() -> None:
    found = assembled(machine("a", id=""), machine("b"))
    named = {f"{GROUP}/machine": "a", f"{GROUP}/cluster-namespace": "fleet"}
    assert found.by_machine == {("fleet/a", "node-a"): WEB, ("fleet/b", "node-b"): WEB}
    assert KEYS.machine_key(NodeRef("node-a", "x", annotations=named)) == "fleet/a"
    group = found.groups[WEB]
    assert group.machine(NodeRef("node-a", "x", annotations=named)) is group.machines[0]
    assert group.machine(NodeRef("impostor", "x", annotations=named)) is None
    assert group.machine(NodeRef("", "aws:///a/b")) is group.machines[1]


def test_marked_machines_are_on_their_way_out_while_there_are_more_machines_than_replicas() -> None:
    group = web(machine("a", mark="headroom x"), machine("b"), machine("c"))
    assert group.is_shrinking
    assert [each.state for each in group.instances] == [InstanceState.DELETING, *[InstanceState.RUNNING] * 2]
    assert not group.stale_marks
    group.check_removal()


def test_a_mark_that_no_write_has_followed_is_stale_and_those_of_others_are_not_ours() -> None:
    group = web(machine("a", mark="headroom x"), machine("b", mark="yes"))
    assert [each.metadata.name for each in group.stale_marks] == ["a"]
    assert [each.state for each in group.instances] == [InstanceState.RUNNING] * 2


def test_a_set_that_has_not_yet_followed_its_deployment_keeps_the_marks() -> None:
    """The deployment already has its new number, and the set its old one, or the other way round."""
    sets = (scalable("web-1", 1, owners=owned_by("MachineDeployment", "web")),)
    assert not web(machine("a", mark="headroom x"), machine("b"), sets=sets).stale_marks


@pytest.mark.parametrize(
    ("machines", "sets", "problem"),
    [
        ([machine("a"), machine("b", mark="yes")], (), "Machine b has the mark"),
        ([machine("a"), machine("b", mark="")], (), "Machine b has the mark"),
        ([machine("a")], (), "1 Machines and 2 replicas"),
        ([machine("a"), machine("b"), machine("c")], (), "3 Machines and 2 replicas"),
        ([machine("a"), machine("b", mark="headroom x")], (), "1 Machines and 2 replicas"),
        (
            [machine("a"), machine("b", "web-2")],
            tuple(scalable(name, 1, owners=owned_by("MachineDeployment", "web")) for name in ("web-1", "web-2")),
            "being rolled out",
        ),
    ],
)
def test_no_machine_is_named_where_others_could_go_instead(
    machines: list[MachineObject], sets: tuple[ScalableObject, ...], problem: str
) -> None:
    with pytest.raises(Later, match=problem):
        web(*machines, sets=sets).check_removal()


def test_after_a_removal_the_named_machines_go_and_more_may_be_named() -> None:
    before = web(machine("a"), machine("b"))
    after = before.resized(1, before.machines[:1])
    assert [each.state for each in after.instances] == [InstanceState.DELETING, InstanceState.RUNNING]
    assert after.settled == 1
    after.check_removal()


def test_the_next_node_is_what_the_annotations_say_over_the_infrastructure_provider() -> None:
    given = {
        MAX: "5",
        CAPACITY + "memory": "16Gi",
        CAPACITY + "gpu-type": "nvidia.com/gpu",
        CAPACITY + "gpu-count": "2",
        CAPACITY + "maxPods": "58",
        CAPACITY + "labels": "tier=web,topology.kubernetes.io/zone=a",
        CAPACITY + "taints": "dedicated=web:NoSchedule,new=:NoExecute",
    }
    labels = {"node.cluster.x-k8s.io/pool": "p", "sub.node.cluster.x-k8s.io/x": "y", "private": "not a node's"}
    taints = [{"key": "dedicated", "value": "old", "effect": "NoSchedule"}, {"key": "k", "effect": "NoSchedule"}]
    template = {"metadata": {"labels": labels}, "spec": {"taints": taints}}
    group = web(deployment=scalable(annotations=given, template=template))
    said = {"capacity": {"cpu": "4", "memory": "8Gi"}, "nodeInfo": {"architecture": "arm64"}}
    found = templates.node(group, msgspec.convert({"status": said}, InfrastructureTemplate), "amd64")
    assert found.status.capacity == {"pods": "58", "cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "2"}
    assert found.metadata.labels == {
        "kubernetes.io/hostname": "template-web",
        "kubernetes.io/arch": "arm64",
        "kubernetes.io/os": "linux",
        "node.cluster.x-k8s.io/pool": "p",
        "sub.node.cluster.x-k8s.io/x": "y",
        "tier": "web",
        "topology.kubernetes.io/zone": "a",
    }
    kept = [(each.key, each.value, each.effect) for each in found.spec.taints or ()]
    assert kept == [("dedicated", "web", "NoSchedule"), ("k", "", "NoSchedule"), ("new", "", "NoExecute")]


def test_a_group_of_which_nothing_says_what_its_nodes_have_has_no_template() -> None:
    with pytest.raises(Refused, match="nothing says how much cpu and memory its nodes have"):
        templates.node(web(), None, "amd64")


@pytest.mark.parametrize(("provider", "owned"), [("clusterapi", True), ("aws", False)])
def test_groups_that_ask_for_an_autoscaler_need_not_be_listed(
    provider: str, owned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    found = decision_settings.load(AutoscalerSettings(cloud_provider=provider, expander="least-waste"))
    assert found.ownership.owns(WEB) == owned
    assert ("no group is listed" in caplog.text) != owned


def test_a_selection_is_by_namespace_cluster_and_labels() -> None:
    selector = GroupSelector(namespace="fleet", cluster_name="prod", labels={"tier": "web"})
    assert selector.takes("fleet", "prod", {"tier": "web", "more": "x"})
    for other in (("other", "prod", {"tier": "web"}), ("fleet", "test", {"tier": "web"}), ("fleet", "prod", {})):
        assert not selector.takes(*other)
    assert GroupSelector().takes("any", "any", {})


def test_only_what_may_be_selected_is_listed() -> None:
    everything = ClusterApiConfig()
    assert (everything.namespaces, everything.cluster_selector) == ([None], None)
    two = ClusterApiConfig(
        discover=(GroupSelector(namespace="b", cluster_name="y"), GroupSelector(namespace="a", cluster_name="x"))
    )
    assert (two.namespaces, two.cluster_selector) == (["a", "b"], f"{GROUP}/cluster-name in (x,y)")
    mixed = ClusterApiConfig(discover=(GroupSelector(namespace="b"), GroupSelector(cluster_name="x")))
    assert (mixed.namespaces, mixed.cluster_selector) == ([None], None)


def test_the_annotations_of_the_example_are_ones() -> None:
    document = yaml.safe_load((ROOT / "examples" / "cluster-api" / "workers.yaml").read_text())
    group = groups.read_group(ScalableKind.MACHINE_DEPLOYMENT, msgspec.convert(document, ScalableObject), KEYS)
    assert group is not None
    assert group.bounds == SizeBounds(0, 10)
    labels = templates.node(group, None, "amd64").metadata.labels or {}
    assert labels["topology.kubernetes.io/zone"] == "eu-central-1a"
    assert (group.options.scale_down_unneeded_time_seconds, group.options.max_node_provision_time_seconds) == (
        300.0,
        1200.0,
    )


@given(
    kinds=st.lists(st.sampled_from(["plain", "leaving", "ours", "theirs"]), max_size=6),
    replicas=st.integers(0, 6),
    count=st.integers(1, 3),
)
def test_whatever_is_there_only_named_machines_go(kinds: list[str], replicas: int, count: int) -> None:
    """Cluster API takes away as many as are too many: those that leave anyway, marked ones, then any others."""
    marks: dict[str, dict[str, Any]] = {
        "ours": {"mark": "headroom x"},
        "theirs": {"mark": "yes"},
        "leaving": {"leaving": True},
        "plain": {},
    }
    machines = [machine(f"m{number}", **marks[kind]) for number, kind in enumerate(kinds)]
    group = web(*machines, deployment=scalable(replicas=replicas))
    free = [each for each in group.staying if each not in group.marked]
    named = free[-count:]
    try:
        group.check_removal()
    except Later:
        return
    after = group.resized(replicas - len(named), named)
    marked = {each.metadata.name for each in after.marked}
    order = sorted(after.machines, key=lambda each: (not each.is_leaving, each.metadata.name not in marked))
    gone = {each.metadata.name for each in order[: len(order) - after.replicas] if not each.is_leaving}
    assert gone == {each.metadata.name for each in (*group.marked, *named)}
    assert sum(each.state is InstanceState.DELETING for each in after.instances) == len(kinds) - after.replicas
