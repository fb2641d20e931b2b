"""Devices of nodes, claims of pods, and what of them is not planned."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.estimator import problem
from manager.autoscaler.estimator.packing import Packing, refusals
from manager.autoscaler.snapshot import cluster, device_selectors, devices, equivalence_groups
from manager.autoscaler.snapshot.cluster import NodeState
from manager.autoscaler.snapshot.device_selectors import SelectorProblem
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared.api.core import Node, Pod
from shared.api.dra import Device, DeviceClass, DeviceSelector, ResourceClaim, ResourceClaimTemplate, ResourceSlice

DRIVER = "gpu.example.com"
GPU, BIG = "gpu", 'device.attributes["gpu.example.com"].memoryGi >= 80'
READY = {"type": "Ready", "status": "True"}
CANNOT = "cannot allocate all claims"


def node(name: str, **allocatable: str) -> Node:
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110", **allocatable}
    raw = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": amounts, "conditions": [READY]},
    }
    return msgspec.convert(raw, Node)


def slice_of(node_name: str, *memory: int, driver: str = DRIVER, **spec: Any) -> ResourceSlice:
    """Devices of this much memory each."""
    listed = [{"name": f"d{number}", "attributes": {"memoryGi": {"int": gi}}} for number, gi in enumerate(memory)]
    raw = {"driver": driver, "pool": {"name": node_name}, "nodeName": node_name, "devices": listed, **spec}
    return msgspec.convert({"metadata": {"name": f"{node_name}-{driver}"}, "spec": raw}, ResourceSlice)


def device_class(name: str = GPU, driver: str = DRIVER, extended: str = "") -> DeviceClass:
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    raw = {"metadata": {"name": name}, "spec": {"selectors": selectors, "extendedResourceName": extended}}
    return msgspec.convert(raw, DeviceClass)


def claim_spec(count: int = 1, *selectors: str, device_class: str = GPU, **exactly: Any) -> dict[str, Any]:
    listed = [{"cel": {"expression": each}} for each in selectors]
    request = {"deviceClassName": device_class, "selectors": listed, "count": count, **exactly}
    return {"devices": {"requests": [{"name": "r", "exactly": request}]}}


def claim(name: str, spec: dict[str, Any], on: str = "", held: tuple[str, ...] = (), by: str = "") -> ResourceClaim:
    """With `on`, the devices `held` are allocated there."""
    status: dict[str, Any] = {"reservedFor": [{"resource": "pods", "name": by}] if by else []}
    if on:
        there = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [on]}]}
        results = [{"driver": DRIVER, "pool": on, "device": each} for each in held]
        status["allocation"] = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [there]}}
    raw = {"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": status}
    return msgspec.convert(raw, ResourceClaim)


def pod(name: str, *claims: str, template: str = "", on: str = "", **more: Any) -> Pod:
    listed = [{"name": each, "resourceClaimName": each} for each in claims]
    if template:
        listed.append({"name": "made", "resourceClaimTemplateName": template})
    raw = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"containers": [{"name": "c", **more}], "resourceClaims": listed, "nodeName": on},
    }
    return msgspec.convert(raw, Pod)


class Cluster:
    """What is known of a cluster, and where pods fit."""

    def __init__(
        self,
        *nodes: Node,
        slices: tuple[ResourceSlice, ...] = (),
        classes: tuple[DeviceClass, ...] = (device_class(),),
        claims: tuple[ResourceClaim, ...] = (),
        templates: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        made = [
            msgspec.convert(
                {"metadata": {"name": name, "namespace": "ns"}, "spec": {"spec": spec}}, ResourceClaimTemplate
            )
            for name, spec in (templates or {}).items()
        ]
        self.surroundings = ReferencedObjects(
            device_classes={each.metadata.key: each for each in classes},
            resource_slices={each.metadata.key: each for each in slices},
            resource_claims={each.metadata.key: each for each in claims},
            resource_claim_templates={each.metadata.key: each for each in made},
        )
        self.nodes = devices.with_devices(nodes, self.surroundings.devices)

    def placed(self, *pods: Pod, there: tuple[Pod, ...] = ()) -> dict[str, list[str]]:
        """By node, the pods that go there, taken together; the rest under "": with why."""
        snapshot = cluster.take_snapshot(
            [(each, NodeState.READY) for each in self.nodes], there, surroundings=self.surroundings
        )
        assert not snapshot.refused
        found = equivalence_groups.build_equivalence_groups(pods, self.surroundings)
        packing = Packing(problem.packing_problem(snapshot, found.classes))
        went: dict[str, list[str]] = {}
        for position, each in enumerate(found.classes):
            first = len(packing.placements)
            count = packing.fill(position, len(each.pods), 0)
            names = iter(each.pods)
            for _, rows, counts, _ in packing.placements[first:]:
                for row, here in zip(rows.tolist(), counts.tolist(), strict=True):
                    went.setdefault(snapshot.nodes[row].name, []).extend(next(names)[3:] for _ in range(here))
            if count < len(each.pods):
                went.setdefault("", []).extend(refusals(packing, position, 0))
        went.update({"": [str(each) for each in found.refused.values()]} if found.refused else {})
        return went


def test_pods_take_the_devices_of_nodes_that_have_some() -> None:
    town = Cluster(node("bare"), node("gpus"), slices=(slice_of("gpus", 40, 40),), templates={"t": claim_spec()})
    assert town.placed(*(pod(f"p{number}", template="t") for number in range(3))) == {
        "gpus": ["p0", "p1"],
        "": [CANNOT],
    }
    assert town.placed(pod("p")) == {"bare": ["p"]}


def test_devices_of_claims_on_nodes_are_used() -> None:
    town = Cluster(
        node("gpus"),
        slices=(slice_of("gpus", 40, 40, 80),),
        claims=(claim("held", claim_spec(2), "gpus", ("d0", "d1"), by="old"), claim("orphan", claim_spec())),
        templates={"t": claim_spec(2), "one": claim_spec()},
    )
    there = (pod("old", "held", on="gpus"),)
    assert town.placed(pod("p", template="t"), there=there) == {"": [CANNOT]}
    assert town.placed(pod("p", template="one"), there=there) == {"gpus": ["p"]}


def test_an_allocation_without_a_pod_is_used_too() -> None:
    orphan = claim("orphan", claim_spec(), "gpus", ("d0",))
    town = Cluster(node("gpus"), slices=(slice_of("gpus", 40),), claims=(orphan,), templates={"t": claim_spec()})
    assert town.placed(pod("p", template="t")) == {"": [CANNOT]}


def test_nested_requests_take_of_one_another() -> None:
    town = Cluster(
        node("gpus"),
        slices=(slice_of("gpus", 40, 80),),
        templates={"any": claim_spec(), "big": claim_spec(1, BIG)},
    )
    assert town.placed(pod("a", template="big"), pod("b", template="any"), pod("c", template="any")) == {
        "gpus": ["a", "b"],
        "": [CANNOT],
    }
    assert town.placed(pod("a", template="big"), pod("b", template="big")) == {"gpus": ["a"], "": [CANNOT]}


def test_pods_that_share_a_claim_share_its_node() -> None:
    town = Cluster(
        node("a"),
        node("b"),
        slices=(slice_of("b", 40),),
        claims=(claim("shared", claim_spec()),),
    )
    resources = {"requests": {"cpu": "1500m"}}
    pods = [pod(f"p{number}", "shared", resources=resources) for number in range(3)]
    assert town.placed(*pods) == {"b": ["p0", "p1"], "": ["node(s) didn't match pod affinity rules"]}


def test_a_pod_goes_where_its_claim_is_allocated() -> None:
    held = claim("held", claim_spec(), "b", ("d0",), by="first")
    town = Cluster(node("a"), node("b"), slices=(slice_of("a", 40), slice_of("b", 40)), claims=(held,))
    there = (pod("first", "held", on="b"),)
    assert town.placed(pod("second", "held"), there=there) == {"b": ["second"]}
    assert town.placed(pod("second", "held", resources={"requests": {"cpu": "5"}}), there=there) == {
        "": ["Insufficient cpu"]
    }


@pytest.mark.parametrize("resource", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"])
def test_devices_serve_extended_resources(resource: str) -> None:
    town = Cluster(
        node("plugin", **{"example.com/gpu": "1"}),
        node(
            "z",
        ),
        slices=(slice_of("z", 40, 40),),
        classes=(device_class(extended="example.com/gpu"),),
        templates={"t": claim_spec()},
    )
    asking = {"requests": {resource: "1"}, "limits": {resource: "1"}}
    claiming = [pod("a", template="t"), pod("b", template="t")]
    assert town.placed(*claiming, pod("c", resources=asking)) == (
        {"z": ["a", "b"], "plugin": ["c"]} if resource == "example.com/gpu" else {"z": ["a", "b"], "": [CANNOT]}
    )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (claim_spec(adminAccess=True), "admin access is not planned"),
        (claim_spec(allocationMode="All"), "allocation mode All is not planned"),
        (claim_spec(device_class="none"), "device class none does not exist"),
        ({"devices": {"requests": [{"name": "r", "firstAvailable": [{}]}]}}, "alternatives (firstAvailable)"),
        ({"devices": {**claim_spec()["devices"], "constraints": [{}]}}, "constraints between its devices"),
        (claim_spec(1, "device.attributes['x'].y == 1"), "no such key: y"),
        (claim_spec(1, "cel.bind(x, 1, x == 1)"), "Undefined"),
    ],
)
def test_what_is_not_planned_is_refused_by_the_claims_name(spec: dict[str, Any], problem: str) -> None:
    town = Cluster(node("gpus"), slices=(slice_of("gpus", 40),), claims=(claim("mine", spec),))
    (said,) = town.placed(pod("p", "mine"))[""]
    assert problem in said
    assert "mine" in said


@pytest.mark.parametrize("field", ["consumesCounters", "allowMultipleAllocations"])
def test_devices_that_can_be_divided_are_not_planned(field: str) -> None:
    divided: dict[str, Any] = {
        "name": "d",
        "attributes": {"memoryGi": {"int": 1}},
        field: [{}] if field[0] == "c" else True,
    }
    town = Cluster(node("gpus"), slices=(slice_of("gpus", devices=[divided]),), templates={"t": claim_spec()})
    (said,) = town.placed(pod("p", template="t"))[""]
    assert "device d of gpus can be divided, which is not planned" in said


def test_requests_that_overlap_in_part_are_not_planned() -> None:
    odd = claim_spec(1, 'device.attributes["gpu.example.com"].memoryGi in [1, 2]')
    even = claim_spec(1, 'device.attributes["gpu.example.com"].memoryGi in [2, 3]')
    town = Cluster(node("n"), slices=(slice_of("n", 1, 2, 3),), claims=(claim("a", odd), claim("b", even)))
    (said,) = town.placed(pod("p", "a"))[""]
    assert "shares some of its devices" in said


@pytest.mark.parametrize(
    ("field", "kind"),
    [("resource_claims", "ResourceClaim"), ("device_classes", "DeviceClass"), ("resource_slices", "ResourceSlice")],
)
def test_a_kind_that_is_not_known_is_named(field: str, kind: str) -> None:
    known: dict[str, Any] = {each: {} for each in ("resource_claims", "device_classes", "resource_slices")}
    surroundings = ReferencedObjects(**{**known, field: None})
    found = equivalence_groups.build_equivalence_groups([pod("p", "mine")], surroundings)
    assert f"no {kind} is known," in str(found.refused["ns/p"])


def test_only_complete_pools_in_their_newest_generation_count() -> None:
    def amounts(*slices: ResourceSlice) -> object:
        town = Cluster(node("n"), slices=slices, templates={"t": claim_spec()})
        return town.surroundings.devices.of_node("n").get("deviceclass.resource.kubernetes.io/gpu", 0)

    assert amounts(slice_of("n", 1, 2)) == 2
    assert amounts(slice_of("n", 1, 2, pool={"name": "n", "resourceSliceCount": 2})) == 0
    old = msgspec.structs.replace(
        slice_of("n", 1, 2), metadata=msgspec.structs.replace(slice_of("n").metadata, name="o")
    )
    assert amounts(old, slice_of("n", 1, pool={"name": "n", "generation": 1})) == 1
    tainted = [{"name": "d", "taints": [{"key": "broken", "effect": "NoSchedule"}]}]
    assert amounts(slice_of("n", devices=tainted)) == 0
    assert amounts(slice_of("", 1)) == 0


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ('device.driver == "gpu.example.com"', True),
        ('device.attributes["gpu.example.com"].model.startsWith("a1")', True),
        ('device.attributes["gpu.example.com"].model.lowerAscii() == "a100"', True),
        ('"model" in device.attributes["gpu.example.com"]', True),
        ('has(device.attributes["gpu.example.com"].nothing)', False),
        ('has(device.attributes["other.example.com"].nothing)', False),
        ('device.attributes["other.example.com"].fast', True),
        ('device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0', True),
        ('device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("80Gi"))', False),
        ('device.attributes["gpu.example.com"].version.isLessThan(semver("2.0.0"))', True),
        ('device.attributes["gpu.example.com"].version.compareTo(semver("2.0.0-rc.1")) < 0', True),
        ('semver("2.0.0-rc.1").isLessThan(semver("2.0.0"))', True),
        ("!device.allowMultipleAllocations", True),
    ],
)
def test_selectors_read_devices_as_the_scheduler_does(expression: str, selected: bool) -> None:
    raw = {
        "name": "d",
        "attributes": {
            "model": {"string": "A100".lower()},
            "version": {"version": "1.10.0"},
            "other.example.com/fast": {"bool": True},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }
    assert device_selectors.selects([expression], DRIVER, msgspec.convert(raw, Device)) is selected


READ = 'device.attributes["gpu.example.com"]'


@pytest.mark.parametrize(
    "expression",
    [
        f"{READ}.serial == '1'",
        f"{READ}.serial.startsWith('1') || {READ}.memoryGi > 1",
        f"{READ} == {{'memoryGi': 1, 'serial': '1'}}",
        f"'extra' in {READ}",
        f"{READ}.exists(name, name == 'extra')",
        f"{READ}.map(name, name).size() == 3",
        f"size({READ}) == 3",
        f"{READ}['serial'] == '1'",
        f"{READ}['ser' + 'ial'] == '1'",
        f"{READ} . serial == '1'",
        f"[device][0].{READ.removeprefix('device.')}.serial == '1'",
        f"""{READ}.memoryGi > 0 && 'device.driver' != '' && {READ}["serial"] == "1" """,
    ],
)
def test_devices_are_told_apart_by_all_that_a_selector_may_read(expression: str) -> None:
    listed: list[dict[str, Any]] = [
        {"name": f"d{serial}", "attributes": {"memoryGi": {"int": 1}, "serial": {"string": str(serial)}}}
        for serial in range(3)
    ]
    listed[2]["attributes"]["extra"] = {"bool": True}
    on_node = slice_of("n", devices=listed)
    each = [device_selectors.selects([expression], DRIVER, one) for one in on_node.spec.devices or ()]
    assert 0 < sum(each) < 3
    known = Cluster(node("n"), slices=(on_node,), templates={"t": claim_spec(1, expression)})
    amounts = known.surroundings.devices.of_node("n")
    assert [amount for name, amount in amounts.items() if expression in name] == [sum(each)]


@pytest.mark.parametrize(
    ("expressions", "names"),
    [
        ([f"{READ}.serial == '1'", 'device.capacity["a"].memory.compareTo(quantity("1")) > 0'], {"serial", "memory"}),
        (["device.driver == 'a' && !device.allowMultipleAllocations"], set()),
        ([f"has({READ}.serial)"], {"serial"}),
        ([f"{READ}.serial == '1'", f"size({READ}) > 1"], None),
    ],
)
def test_what_selectors_read_by_name_is_all_that_they_can_read(expressions: list[str], names: set[str] | None) -> None:
    read = device_selectors.names_read(expressions)
    assert (None if read is None else {name for _, name in read}) == names


@pytest.mark.parametrize("expression", ["device.", "1 + 1", 'device.attributes["a"].b', "nothing == 1"])
def test_a_selector_that_cannot_be_judged_says_why(expression: str) -> None:
    with pytest.raises(SelectorProblem, match="selector "):
        device_selectors.selects([expression], DRIVER, Device())


@given(
    st.lists(st.integers(1, 3), max_size=6),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2)), min_size=1, max_size=4),
)
def test_nested_requests_fit_exactly_if_devices_can_be_given_to_them(
    sizes: list[int], asked: list[tuple[int, int]]
) -> None:
    """Each request is for a number of devices of at least a size; the pickiest takes its devices first."""
    free = sorted(sizes)
    fits = True
    for least, count in sorted(asked, reverse=True):
        fits &= len(free) >= count and free[-count] >= least
        del free[-count:]
    selectors = [f'device.attributes["{DRIVER}"].memoryGi >= {least}' for least, _ in asked]
    requests = [
        claim_spec(count, selector)["devices"]["requests"][0]
        for selector, (_, count) in zip(selectors, asked, strict=True)
    ]
    whole = claim("c", {"devices": {"requests": requests}})
    town = Cluster(node("n"), slices=(slice_of("n", *sizes),), claims=(whole,))
    assert ("n" in town.placed(pod("p", "c"))) == fits


def test_a_pod_that_is_about_to_be_bound_holds_its_devices() -> None:
    held = claim("held", claim_spec(), "n", ("d0",), by="a-first")
    town = Cluster(node("n"), slices=(slice_of("n", 40),), claims=(held,), templates={"t": claim_spec()})
    assert town.placed(pod("a-first", "held"), pod("b", template="t")) == {"n": ["a-first"], "": [CANNOT]}


def test_a_class_that_no_claim_names_serves_the_resource_of_its_name() -> None:
    town = Cluster(node("bare"), node("n"), slices=(slice_of("n", 40),))
    asked = {"requests": {"deviceclass.resource.kubernetes.io/gpu": "1"}}
    assert town.placed(pod("a", resources=asked), pod("b", resources=asked)) == {"n": ["a"], "": [CANNOT]}


def test_an_extended_resource_takes_of_the_classes_that_have_its_devices_too() -> None:
    large = device_class("large")
    selectors = (*(large.spec.selectors or ()), msgspec.convert({"cel": {"expression": BIG}}, DeviceSelector))
    large = msgspec.structs.replace(large, spec=msgspec.structs.replace(large.spec, selectors=selectors))
    town = Cluster(
        node("n"),
        slices=(slice_of("n", 80, 80),),
        classes=(device_class(), large),
        templates={"any": claim_spec()},
    )
    asked = {"requests": {"deviceclass.resource.kubernetes.io/large": "2"}}
    assert town.placed(pod("a", resources=asked)) == {"n": ["a"]}
    assert town.placed(pod("a", template="any", resources=asked)) == {"": [CANNOT]}
    assert town.placed(pod("a", resources=asked), pod("b", template="any")) == {"n": ["a"], "": [CANNOT]}
