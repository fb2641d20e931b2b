"""Groups that do not exist yet: which could be created for pending pods, and which are to go again."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from manager.autoscaler.cloudprovider import gke
from manager.autoscaler.cloudprovider.contract import Group, GroupSpec, Theoretical
from manager.autoscaler.cloudprovider.ownership import Ownership, SizeBounds
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.estimator.limits import ResourceBounds
from manager.autoscaler.pricing.gce import LABEL_ACCELERATOR
from manager.autoscaler.pricing.model import NVIDIA_GPU
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.scale_up import candidate_labels, candidates, groups, orchestrator
from manager.autoscaler.scale_up.candidate_labels import Popularity, TolerationMode, taints_for
from manager.autoscaler.scale_up.candidates import AutoprovisioningRules
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome
from manager.autoscaler.scale_up.options import ScaleUpInput, ScaleUpSettings
from manager.autoscaler.settings.estimates import TaintRules
from manager.autoscaler.snapshot import cluster, equivalence_groups, predicates
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared.api.core import Node, Pod, Taint
from shared.quantity import Amounts
from tests.support.candidates import first_specs

PREFIX = "nodeautoprovisioning"
TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
RULES = AutoprovisioningRules(node_autoprovisioning=True)


def bare(name: str, amounts: Amounts, labels: Mapping[str, str] | None = None) -> NodeTemplate:
    node = NodeInfo(name, {TYPE: name, **(labels or {})}, capacity=amounts, allocatable=amounts)
    return NodeTemplate(name, node)


MACHINES = {name: bare(name, amounts) for name, amounts in gke.MACHINE_TYPES.items()}
SMALL = {name: MACHINES[name] for name in ("n1-standard-1", "n1-standard-2")}


def pending(*specs: dict[str, Any], cpu: str = "100m") -> list[EquivalenceGroup]:
    pods = []
    for index, spec in enumerate(specs):
        container = {"name": "c", "resources": {"requests": {"cpu": cpu, **spec.pop("more", {})}}}
        meta = {"name": f"p{index}", "namespace": "ns"}
        pods.append(msgspec.convert({"metadata": meta, "spec": {"containers": [container], **spec}}, Pod))
    found = equivalence_groups.build_equivalence_groups(pods, ReferencedObjects())
    assert not found.refused
    return list(found.classes)


def tolerating(key: str, value: str = "", **more: Any) -> dict[str, Any]:
    operator = "Equal" if value else "Exists"
    return {"tolerations": [{"key": key, "operator": operator, "value": value}], **more}


def affine(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
    expression = {"key": key, "operator": operator, "values": list(values) or None}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def offered(specs: Sequence[GroupSpec]) -> list[GroupStatus]:
    """The specs as a cloud that refuses none would make them."""
    states = []
    for number, spec in enumerate(specs):
        amounts = {**gke.MACHINE_TYPES[spec.machine_type], **spec.extra_resources}
        quantities = {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items()}
        labels = {TYPE: spec.machine_type, **spec.labels}
        template = msgspec.convert(
            {
                "metadata": {"name": "x", "labels": labels},
                "spec": {"taints": [msgspec.to_builtins(taint) for taint in spec.taints]},
                "status": {"capacity": quantities, "allocatable": quantities},
            },
            Node,
        )
        states.append(
            candidates.candidate_state(Theoretical(spec, f"{PREFIX}-{spec.machine_type}-{number}", 1000, template))
        )
    return states


def provisioned(
    classes: Sequence[EquivalenceGroup],
    rules: AutoprovisioningRules = RULES,
    machines: Mapping[str, NodeTemplate] = MACHINES,
    **more: Any,
) -> ScaleUpDecision:
    states = offered(first_specs(classes, machines, rules))
    chosen = replace(ScaleUpSettings(Ownership(), FilePricing()), **more)
    situation = ScaleUpInput(cluster.snapshot_of_nodes([]), classes, states, 1)
    return orchestrator.decide(situation, chosen, random.Random(1))


def eventually(classes: list[EquivalenceGroup], rules: AutoprovisioningRules = RULES) -> list[GroupSpec]:
    """The groups that are created round after round until no pod is left."""
    created: list[GroupSpec] = []
    while classes:
        decision = provisioned(classes, rules, SMALL)
        assert decision.outcome is ScaleUpOutcome.GROW
        created += [each.spec for each in decision.creations]
        classes = [each for each in classes if each.pods[0] not in decision.triggered]
    return created


def test_seed_nap_tc_001_a_pod_with_big_requirements_gets_a_big_node_without_labels_and_taints() -> None:
    decision = provisioned(pending({}, cpu="12"))
    assert decision.creations[0].spec == GroupSpec("n1-highcpu-16", PREFIX)


def test_seed_nap_tc_007_a_group_of_ours_goes_when_neither_a_target_nor_an_instance_is_left() -> None:
    given = [
        Group(f"{PREFIX}-empty", 0, 9, 0, autoprovisioned=True),
        Group(f"{PREFIX}-wanted", 0, 9, 1, autoprovisioned=True),
        Group(f"{PREFIX}-leaving", 0, 9, 0, autoprovisioned=True),
        Group(f"{PREFIX}-unknown", 0, 9, 0, autoprovisioned=True),
        Group(f"{PREFIX}-by-hand", 0, 9, 0),
        Group("of-another", 0, 9, 0, autoprovisioned=True),
    ]
    counts = {each.id: 0 for each in given} | {f"{PREFIX}-leaving": 1}
    del counts[f"{PREFIX}-unknown"]
    assert candidates.unneeded_groups(given, counts, Ownership()) == [f"{PREFIX}-empty"]


def test_seed_nap_tc_008_no_group_is_created_without_quota() -> None:
    decision = provisioned(pending({}), bounds={"cpu": ResourceBounds(0, 0)})
    assert (decision.outcome, decision.creations) == (ScaleUpOutcome.NO_OPTIONS, ())
    assert {each.reason for each in decision.skipped} == {'exceeded quota: "cluster-wide", resources: cpu'}


def test_a_toleration_with_a_matching_selector_separates_and_one_without_does_not() -> None:
    separate = [
        tolerating("dedicated", "batch", nodeSelector={"dedicated": "batch"}),
        tolerating("dedicated", nodeSelector={"dedicated": "batch"}),
        tolerating("dedicated", "batch", **affine("dedicated", "batch", "web")),
    ]
    for spec in separate:
        created = eventually(pending(spec))
        assert [(dict(each.labels), each.taints) for each in created] == [
            ({"dedicated": "batch"}, (Taint("dedicated", "batch", "NoSchedule"),))
        ]
    plain = [
        tolerating("dedicated", "batch"),
        tolerating("dedicated", "web", nodeSelector={"dedicated": "batch"}),
        tolerating("node.kubernetes.io/not-ready"),
        {"tolerations": [{"operator": "Exists"}]},
    ]
    for spec in plain:
        assert [each.taints for each in eventually(pending(spec))] == [()]


def test_pods_set_apart_do_not_label_the_nodes_of_the_others() -> None:
    classes = pending(tolerating("dedicated", "x", nodeSelector={"dedicated": "x"}), {"nodeSelector": {"team": "a"}})
    found = {each.taints: dict(each.labels) for each in first_specs(classes, SMALL, RULES)}
    assert found == {(): {"team": "a"}, (Taint("dedicated", "x", "NoSchedule"),): {"dedicated": "x"}}


@pytest.mark.parametrize("mode", TolerationMode)
def test_pods_tolerate_the_taints_that_are_made_for_them(mode: TolerationMode) -> None:
    given = pending(
        tolerating("a", "1", nodeSelector={"a": "1"}),
        tolerating("b", nodeSelector={"b": "2"}),
        {"tolerations": [{"key": "c", "operator": "Exists", "effect": "NoExecute"}, {"key": "", "operator": "Exists"}]},
        {"tolerations": [{"key": "d", "value": "4"}, {"key": "d", "value": "5"}, {"key": "e", "operator": "Odd"}]},
    )
    for each in given:
        demands = each.facts.demands
        taints = taints_for(demands, mode)
        assert all(any(one.key == taint.key for one in demands.tolerations) for taint in taints)
        node = NodeInfo("n", dict(demands.selector), taints=taints)
        assert predicates.tolerates_taints(demands, node)


def test_a_node_has_one_value_of_each_taint_the_one_that_is_selected() -> None:
    both = [{"key": "d", "value": value, "effect": "NoSchedule"} for value in ("a", "b")]
    demands = [each.facts.demands for each in pending({"tolerations": both}, {"tolerations": both, **affine("d", "b")})]
    found = [taints_for(each, TolerationMode.ALWAYS) for each in demands]
    assert found == [(Taint("d", "a", "NoSchedule"),), (Taint("d", "b", "NoSchedule"),)]


def test_taints_of_a_nodes_moment_are_no_groups() -> None:
    keys = ("ToBeDeletedByClusterAutoscaler", "startup-taint.cluster-autoscaler.kubernetes.io/x", "mine", "own")
    given = {"tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]}
    rules = replace(RULES, autoprovisioning_tolerations=TolerationMode.ALWAYS, taints=TaintRules(("mine",)))
    assert {each.taints for each in first_specs(pending(given), SMALL, rules)} == {(Taint("own", "", "NoSchedule"),)}


def test_pods_too_large_for_a_machine_or_bound_to_another_do_not_label_it() -> None:
    classes = pending(
        {"nodeSelector": {"size": "large"}, "more": {"memory": "40Gi"}},
        {"nodeSelector": {"size": "small"}},
        {"nodeSelector": {TYPE: "n1-highmem-8", "team": "a"}},
        {"nodeSelector": {"kubernetes.io/hostname": "one"}},
    )
    found = {each.machine_type: dict(each.labels) for each in first_specs(classes, MACHINES, RULES)}
    assert found["n1-standard-1"] == {"size": "small"}
    assert found["n1-highmem-8"] == {"size": "large", "team": "a"}
    only_large = first_specs(pending({}, cpu="9"), MACHINES, RULES)
    assert {each.machine_type for each in only_large} == {"n1-standard-16", "n1-highcpu-16", "n1-highmem-16"}


ONE_TYPE = {"n1-standard-1": MACHINES["n1-standard-1"]}
SIZES = (("large", 4 << 30), ("small", 1 << 30))


def spread_over(key: str, **more: Any) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    return {"topologySpreadConstraints": [constraint], **more}


@pytest.mark.parametrize(
    ("many", "few", "chosen"),
    [
        (affine("x", operator="DoesNotExist"), {"nodeSelector": {"x": "a"}}, {}),
        ({**affine("x", "a", operator="NotIn"), "nodeSelector": {"y": "b"}}, {"nodeSelector": {"x": "a"}}, {"y": "b"}),
        (
            {"nodeSelector": {"x": "a"}},
            {**affine("x", operator="DoesNotExist"), "nodeSelector": {"y": "b"}},
            {"x": "a"},
        ),
    ],
)
def test_no_label_breaks_what_affinity_requires_of_the_pods_that_were_chosen(
    many: dict[str, Any], few: dict[str, Any], chosen: dict[str, str]
) -> None:
    classes = pending(*(dict(many) for _ in range(10)), *(dict(few) for _ in range(3)))
    (found,) = first_specs(classes, ONE_TYPE, RULES)
    assert found.labels == chosen
    assert len(provisioned(classes, machines=ONE_TYPE).triggered) == 10


def test_pods_that_no_such_machine_could_take_have_no_say() -> None:
    bound = [spread_over("nowhere", nodeSelector={"x": "a"}) for _ in range(2)]
    classes = pending(*bound, {"nodeSelector": {"x": "b"}})
    assert [each.labels for each in first_specs(classes, ONE_TYPE, RULES)] == [{"x": "b"}]


def test_what_is_of_no_use_is_followed_by_the_next_popular_labels() -> None:
    specs = [{"nodeSelector": {"x": value}} for value in "aaabbc"] + [{"nodeSelector": {"y": "d"}}]
    (found,) = candidates.alternatives(pending(*specs), ONE_TYPE, RULES)
    assert [each.labels for each in found] == [
        {"x": "a", "y": "d"},
        {"x": "b", "y": "d"},
        {"x": "c", "y": "d"},
        {"y": "d"},
    ]


def test_pods_are_told_apart_by_the_zones_that_they_name() -> None:
    classes = pending({"nodeSelector": {ZONE: "b"}}, affine(ZONE, "a", "b"), {}, affine(ZONE, "a", operator="NotIn"))
    found = {zone: [each.pods[0] for each in members] for zone, members in candidates.by_zone(classes).items()}
    free = ["ns/p2", "ns/p3"]
    assert found == {"": free, "a": ["ns/p1", *free], "b": ["ns/p0", "ns/p1", *free]}
    where = {ZONE: "b"}
    there = {"m": bare("m", gke.MACHINE_TYPES["n1-standard-1"], where)}
    (spec,) = (next(each) for each in candidates.alternatives(classes[:1], there, RULES, where))
    assert spec.labels == where


def test_a_zone_has_candidates_for_whoever_names_it_and_for_the_others_only_beside_them() -> None:
    where = {ZONE: "b"}
    there = {
        name: bare(name, {**gke.MACHINE_TYPES["n1-standard-1"], "memory": memory}, where) for name, memory in SIZES
    }
    named, free = pending({"nodeSelector": where, "more": {"memory": "2Gi"}}, {"nodeSelector": {"x": "a"}})
    found = [next(each) for each in candidates.alternatives([named, free], there, RULES, where)]
    assert [(each.machine_type, each.labels) for each in found] == [("large", {**where, "x": "a"})]
    assert not candidates.alternatives([free], there, RULES, where)


def test_of_many_taints_those_of_the_most_pods_have_candidates() -> None:
    def own(team: str) -> dict[str, Any]:
        return {"nodeSelector": {"team": team}, **tolerating("team", team)}

    most = candidates.MOST_TAINT_SETS
    popular, too_large = [own(f"z{number}") for number in range(most) for _ in "12"], own("z-large")
    classes = pending({}, own("a"), *popular, *({**too_large, "more": {"memory": "9Ti"}} for _ in "123"))
    found = {taint.value for each in first_specs(classes, ONE_TYPE, RULES) for taint in each.taints}
    assert found == {f"z{number}" for number in range(most)}


def test_labels_satisfy_what_affinity_requires() -> None:
    machine = {TYPE: "m", "arch": "arm"}
    demands = [
        (affine("team", "b", "a"), {"team": "a"}),
        (affine("team", operator="Exists"), {"team": "true"}),
        (affine("team", "x", operator="NotIn"), {}),
        (affine("arch", "x86"), None),
        (affine("arch", operator="DoesNotExist"), None),
        (affine("cores", "4", operator="Gt"), None),
        (affine("arch", "x86", "arm"), {}),
    ]
    for spec, wanted in demands:
        [each] = pending(spec)
        assert candidate_labels.wanted_labels(each.facts.demands, machine) == wanted


def test_pods_that_ask_for_gpus_get_candidates_of_the_type_they_select() -> None:
    classes = pending(
        {"more": {NVIDIA_GPU: "2"}, "nodeSelector": {LABEL_ACCELERATOR: "nvidia-tesla-p100"}},
        {"more": {NVIDIA_GPU: "3"}, "nodeSelector": {LABEL_ACCELERATOR: "nvidia-tesla-p100", "team": "a"}},
        {"more": {NVIDIA_GPU: "1"}},
    )
    found = first_specs(classes, {"n1-standard-2": MACHINES["n1-standard-2"]}, RULES)
    assert found == [
        GroupSpec("n1-standard-2", PREFIX, {LABEL_ACCELERATOR: gke.DEFAULT_ACCELERATOR}, (), {NVIDIA_GPU: 1}),
        GroupSpec("n1-standard-2", PREFIX, {LABEL_ACCELERATOR: "nvidia-tesla-p100"}, (), {NVIDIA_GPU: 2}),
        GroupSpec("n1-standard-2", PREFIX, {LABEL_ACCELERATOR: "nvidia-tesla-p100", "team": "a"}, (), {NVIDIA_GPU: 4}),
    ]


def test_a_number_of_gpus_that_no_machine_has_keeps_nobody_from_the_others() -> None:
    classes = pending({"more": {NVIDIA_GPU: "9"}}, {"more": {NVIDIA_GPU: "1"}})
    found = first_specs(classes, {"n1-standard-2": MACHINES["n1-standard-2"]}, RULES)
    assert [each.extra_resources for each in found] == [{NVIDIA_GPU: 1}, {NVIDIA_GPU: 9}]


def test_the_type_of_gpu_may_be_asked_for_by_affinity() -> None:
    classes = pending({"more": {NVIDIA_GPU: "1"}, **affine(LABEL_ACCELERATOR, "nvidia-tesla-v100")})
    found = first_specs(classes, {"n1-standard-2": MACHINES["n1-standard-2"]}, RULES)
    assert [each.labels for each in found] == [{LABEL_ACCELERATOR: "nvidia-tesla-v100"}]


def test_under_the_preset_all_pods_selectors_count_by_cpu_for_every_machine() -> None:
    rules = replace(RULES, popularity=Popularity.CPU)
    classes = pending({"nodeSelector": {"team": "a"}}, {"nodeSelector": {"team": "b"}, "more": {"cpu": "12"}})
    assert [each.labels for each in first_specs(classes, SMALL, rules)] == [{"team": "b"}] * 2


def test_the_number_of_groups_is_limited_in_all_and_of_those_created() -> None:
    existing = [Group("a", 0, 9, 1), Group(f"{PREFIX}-1", 0, 9, 1, autoprovisioned=True)]
    assert candidates.groups_left(existing, RULES) == 14
    assert candidates.groups_left(existing, replace(RULES, most_groups=3)) == 1
    assert candidates.groups_left(existing, replace(RULES, max_autoprovisioned_node_group_count=1)) == 0
    assert candidates.groups_left(existing, replace(RULES, node_autoprovisioning=False)) == 0
    classes = pending({})
    states = offered(first_specs(classes, SMALL, RULES))
    situation = ScaleUpInput(cluster.snapshot_of_nodes([]), classes, states, 1, new_groups=0)
    decision = orchestrator.decide(situation, ScaleUpSettings(Ownership(), FilePricing()), random.Random(1))
    assert decision.creations == ()
    assert {each.reason for each in decision.skipped} == {groups.AT_MOST_GROUPS}


def test_groups_that_come_with_others_count_as_many() -> None:
    (state,) = offered(first_specs(pending({}), ONE_TYPE, RULES))
    three = replace(state, makes=3)
    assert [candidates.creatable_groups(left, [three, state]) for left in (0, 2, 3, 5, 6)] == [0, 2, 1, 1, 2]
    assert candidates.creatable_groups(4, []) == 4


def test_only_the_machine_types_that_are_listed_are_offered() -> None:
    rules = replace(RULES, machine_types=frozenset({"n1-standard-4", "no-such-type"}))
    assert [each.machine_type for each in first_specs(pending({}), MACHINES, rules)] == ["n1-standard-4"]


# The example of "Node Auto-provisioning": 28 cores are there, 4 of them in a group that is not ours.

HIGHMEM = "nodeautoprovisioning_n1-highmem4_1234129"


def worked_example(
    max_cpu: int, classes: Sequence[EquivalenceGroup], *, new: bool, names: Sequence[str] = ()
) -> ScaleUpDecision:
    types = {"main": "n1-standard-2", "as": "n1-standard-16", HIGHMEM: "n1-highmem-4"}
    counts = {"main": 2, "as": 1, HIGHMEM: 2}
    there = [
        replace(MACHINES[types[name]].node, name=f"{name}-{number}")
        for name, count in counts.items()
        for number in range(count)
    ]
    full = [(row, PodInfo(requests=node.allocatable)) for row, node in enumerate(there)]
    listed = {
        "main": Group("main", 0, 100, 2),
        "as": Group("as", 0, 2, 1),
        HIGHMEM: Group(HIGHMEM, 0, 1000, 2, autoprovisioned=True),
    }
    states = [
        GroupStatus(group, template=replace(MACHINES[types[name]], group=name))
        for name, group in listed.items()
        if name in (names or listed)
    ]
    if new:
        machines = {"n1-standard-1": MACHINES["n1-standard-1"]}
        states += offered(first_specs(classes, machines, RULES))
    chosen = ScaleUpSettings(
        Ownership({"as": SizeBounds(0, 2)}),
        FilePricing(),
        bounds={"cpu": ResourceBounds(0, max_cpu)},
        expanders=("most-pods",),
    )
    situation = ScaleUpInput(cluster.snapshot_of_nodes(there, full), classes, states, len(there))
    return orchestrator.decide(situation, chosen, random.Random(1))


def many(cpu_milli: int, count: int = 100) -> list[EquivalenceGroup]:
    return [EquivalenceGroup(PodInfo(requests={"cpu": cpu_milli}), tuple(f"ns/p{each:03d}" for each in range(count)))]


def test_with_max_cpu_5_no_node_is_added_to_any_group_and_no_group_is_created() -> None:
    decision = worked_example(5, many(500), new=True)
    assert (decision.outcome, decision.increases, decision.creations) == (ScaleUpOutcome.NO_OPTIONS, (), ())


def test_with_max_cpu_32_one_node_more_of_highmem4_or_a_new_group_of_up_to_four_standard1() -> None:
    decision = worked_example(32, many(500), new=False)
    assert [str(each) for each in decision.increases] == [f"{HIGHMEM} 2->3 (max: 1000)"]
    assert [each.group for each in decision.considered] == [HIGHMEM]
    decision = worked_example(32, many(500), new=True, names=["main", "as"])
    assert [(each.spec.machine_type, each.nodes) for each in decision.creations] == [("n1-standard-1", 4)]


def test_with_max_cpu_80_one_node_more_of_as_or_highmem4_up_to_15_or_other_groups() -> None:
    decision = worked_example(80, many(500), new=False, names=["main", "as"])
    assert [str(each) for each in decision.increases] == ["as 1->2 (max: 2)"]
    decision = worked_example(80, many(500, 200), new=False, names=[HIGHMEM])
    assert [str(each) for each in decision.increases] == [f"{HIGHMEM} 2->15 (max: 1000)"]
    decision = worked_example(80, many(500, 200), new=True, names=["main"])
    assert [(each.spec.machine_type, each.nodes) for each in decision.creations] == [("n1-standard-1", 52)]


def test_the_group_that_is_neither_listed_nor_prefixed_stays_as_it_is() -> None:
    decision = worked_example(80, many(500), new=False, names=["main"])
    assert [(each.group, each.reason) for each in decision.skipped] == [("main", groups.NOT_OURS)]
    assert decision.increases == ()
