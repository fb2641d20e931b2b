"""The pure parts of the Karpenter provider: catalogue, groups, claims, and what became of them."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
import yaml

from manager.autoscaler.cloudprovider.contract import ErrorClass, GroupSpec, InstanceError, InstanceState
from manager.autoscaler.cloudprovider.errors import Refused
from manager.autoscaler.cloudprovider.karpenter import claims, config, ended_claims, groups, waiting
from manager.autoscaler.cloudprovider.karpenter.catalogue import LABEL_CAPACITY_TYPE, LABEL_NODE_POOL, CataloguePrices
from manager.autoscaler.cloudprovider.karpenter.claims import (
    NodeClaim,
    NodeClaimStatus,
    NodeClassReference,
    NodeDefaults,
)
from manager.autoscaler.cloudprovider.karpenter.config import KarpenterCloud, KarpenterGroup
from manager.autoscaler.cloudprovider.karpenter.groups import BuyingState
from manager.autoscaler.cloudprovider.karpenter.registry import SoldOut
from manager.autoscaler.cloudprovider.node_template import LABEL_MACHINE_TYPE, LABEL_ZONE
from manager.autoscaler.pricing.model import Machine, Unpriced
from shared import names
from shared.api.core import Condition, Taint
from shared.kube import objects
from tests.unit.manager.clouds import KARPENTER_FILE

NOW = 1_800_000_000.0
CREATED = "2027-01-15T08:00:00Z"  # NOW
PREFIX = "nodeautoprovisioning"
ON_DEMAND, SPOT = "on-demand", "spot"


@pytest.fixture(scope="module")
def cloud() -> KarpenterCloud:
    return msgspec.convert(yaml.safe_load(KARPENTER_FILE), KarpenterCloud)


def claim(name: str = "web-x", /, **fields: Any) -> NodeClaim:
    """One of the group web, as the API server gives it; conditions by type."""
    conditions = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, (status, reason, message) in fields.pop("conditions", {}).items()
    ]
    requirements = {
        LABEL_MACHINE_TYPE: "m6i.xlarge",
        LABEL_ZONE: "a",
        LABEL_CAPACITY_TYPE: ON_DEMAND,
    }
    body = {
        "metadata": {
            "name": name,
            "creationTimestamp": CREATED,
            "labels": {names.LABEL_NODE_GROUP: "web", **fields.pop("labels", {})},
            **fields.pop("metadata", {}),
        },
        "spec": {"requirements": [{"key": k, "operator": "In", "values": [v]} for k, v in requirements.items()]},
        "status": {"conditions": conditions, **fields},
    }
    return objects.decode(msgspec.json.encode(body), NodeClaim)


TRUE = ("True", "", "")
UP = {claims.LAUNCHED: TRUE, claims.REGISTERED: TRUE}
WEB = KarpenterGroup(name="web", machine_type="m6i.xlarge", zone="a", labels={"team": "web"})


def test_a_claim_asks_for_one_offering_and_carries_what_its_node_is_to_have(cloud: KarpenterCloud) -> None:
    dedicated, booting = Taint("dedicated", "web", "NoSchedule"), Taint("booting", "", "NoExecute")
    group = msgspec.structs.replace(WEB, taints=(dedicated,))
    defaults = NodeDefaults(labels=(("env", "prod"),), startup_taints=(booting,))
    body: Any = msgspec.json.decode(
        msgspec.json.encode(claims.body("web-1", group, cloud.machine_types[0], defaults, 600.0))
    )
    assert body["metadata"]["labels"] == {"team": "web", "env": "prod", names.LABEL_NODE_GROUP: "web"}
    wanted = {each["key"]: each["values"] for each in body["spec"]["requirements"]}
    assert wanted == {
        "node.kubernetes.io/instance-type": ["m6i.xlarge"],
        "topology.kubernetes.io/zone": ["a"],
        "karpenter.sh/capacity-type": [ON_DEMAND],
        "kubernetes.io/arch": ["amd64"],
        "kubernetes.io/os": ["linux"],
    }
    assert [each["key"] for each in body["spec"]["taints"]] == ["dedicated"]
    assert [each["key"] for each in body["spec"]["startupTaints"]] == ["booting"]
    assert (body["spec"]["expireAfter"], body["spec"]["terminationGracePeriod"]) == ("Never", "10m0s")
    assert body["metadata"]["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}


def test_a_node_with_devices_is_initialized_once_they_are_there(cloud: KarpenterCloud) -> None:
    body: Any = claims.body("gpu-1", WEB, cloud.machine_types[1], NodeDefaults(), 600.0)
    assert body["spec"]["resources"] == {"requests": {"nvidia.com/gpu": "1"}}


def test_a_created_group_can_be_rebuilt_from_its_claims(cloud: KarpenterCloud) -> None:
    group = msgspec.structs.replace(WEB, autoprovisioned=True)
    body: Any = claims.body("web-1", group, cloud.machine_types[0], NodeDefaults(), 600.0)
    read = objects.decode(msgspec.json.encode(body), NodeClaim)
    assert read.created_group == group
    assert claim(metadata={"annotations": {names.ANNOTATION_NODE_GROUP_SPEC: "{"}}).created_group is None
    assert (
        claim(
            metadata={"annotations": body["metadata"]["annotations"]}, labels={names.LABEL_NODE_GROUP: "x"}
        ).created_group
        is None
    )


@pytest.mark.parametrize(
    ("labels", "ours"),
    [
        ({}, True),
        ({LABEL_NODE_POOL: "default"}, False),
        ({names.LABEL_NODE_GROUP: ""}, False),
    ],
)
def test_a_claim_of_a_nodepool_is_never_ours(labels: dict[str, str], ours: bool) -> None:
    assert claim(labels=labels).is_ours is ours


@pytest.mark.parametrize(
    ("given", "age", "state", "error"),
    [
        (claim(), 10, InstanceState.CREATING, ""),
        (claim(), 61, InstanceState.CREATING, "LaunchTimeout"),
        (
            claim(conditions={claims.LAUNCHED: ("Unknown", "LaunchFailed", "no subnet")}),
            61,
            InstanceState.CREATING,
            "LaunchFailed",
        ),
        (claim(conditions={claims.LAUNCHED: TRUE}, providerID="aws:///a/i-1"), 600, InstanceState.CREATING, ""),
        (claim(conditions=UP, providerID="aws:///a/i-1"), 600, InstanceState.RUNNING, ""),
        (claim(conditions=UP, metadata={"deletionTimestamp": CREATED}), 600, InstanceState.DELETING, ""),
    ],
)
def test_the_conditions_of_a_claim_say_how_its_machine_is(
    given: NodeClaim, age: float, state: InstanceState, error: str
) -> None:
    stuck = {"web-x"} if claims.is_stuck(given, age, 60.0) else ()
    found = claims.instance(given, stuck)
    assert (found.state, found.error.code if found.error else "") == (state, error)
    assert found.provider_id == (given.status.provider_id or "karpenter://web-x")


HASHES = (("karpenter.k8s.aws/ec2nodeclass-hash", "12"), ("karpenter.k8s.aws/ec2nodeclass-hash-version", "v4"))
DEFAULTS = NodeDefaults(NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default"), hashes=HASHES)
DEDICATED = Taint("dedicated", "web", "NoSchedule")


def launched(cloud: KarpenterCloud, *conditions: Condition, **annotations: str) -> NodeClaim:
    """A claim of WEB as the API server has it after a while."""
    body: Any = claims.body("web-1", WEB, cloud.machine_types[0], DEFAULTS, 600.0)
    body["metadata"]["annotations"] |= {f"karpenter.k8s.aws/{key}": value for key, value in annotations.items()}
    body["metadata"]["labels"]["karpenter.k8s.aws/instance-cpu"] = "4"  # as Karpenter adds them
    found = objects.decode(msgspec.json.encode(body), NodeClaim)
    return msgspec.structs.replace(found, status=NodeClaimStatus(conditions=conditions))


def test_a_claim_has_not_drifted_as_long_as_the_next_one_of_its_group_is_the_same(cloud: KarpenterCloud) -> None:
    assert groups.drift_reason(launched(cloud), WEB, DEFAULTS) == ""
    taints = (DEDICATED, DEDICATED)
    group = msgspec.structs.replace(WEB, taints=taints)
    body: Any = claims.body("web-1", group, cloud.machine_types[0], DEFAULTS, 600.0)
    assert groups.drift_reason(objects.decode(msgspec.json.encode(body), NodeClaim), group, DEFAULTS) == ""


@pytest.mark.parametrize(
    ("group", "defaults", "reason"),
    [
        (
            msgspec.structs.replace(WEB, zone="b"),
            DEFAULTS,
            "it was launched as m6i.xlarge/a/on-demand, but its group launches m6i.xlarge/b/on-demand now",
        ),
        (
            WEB,
            replace(DEFAULTS, node_class=NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "other")),
            "it was launched by EC2NodeClass default, but its group launches by EC2NodeClass other now",
        ),
        (
            msgspec.structs.replace(WEB, taints=(DEDICATED,)),
            DEFAULTS,
            "it was launched with taints that differ from its group's",
        ),
        (
            WEB,
            replace(DEFAULTS, labels=(("env", "prod"),)),
            "it was launched with a label env that differs from its group's",
        ),
    ],
)
def test_a_claim_has_drifted_once_its_group_would_launch_another(
    cloud: KarpenterCloud, group: KarpenterGroup, defaults: NodeDefaults, reason: str
) -> None:
    assert groups.drift_reason(launched(cloud), group, defaults) == reason


@pytest.mark.parametrize(
    ("annotations", "has_drifted"),
    [
        ({}, False),
        ({"ec2nodeclass-hash": "12", "ec2nodeclass-hash-version": "v4"}, False),
        ({"ec2nodeclass-hash": "11", "ec2nodeclass-hash-version": "v4"}, True),
        ({"ec2nodeclass-hash": "11", "ec2nodeclass-hash-version": "v3"}, False),
        ({"ec2nodeclass-hash": "11"}, False),
    ],
)
def test_a_claim_has_drifted_once_its_node_class_has_another_hash_of_the_same_version(
    cloud: KarpenterCloud, annotations: dict[str, str], has_drifted: bool
) -> None:
    reason = "its node class has changed since it was launched (karpenter.k8s.aws/ec2nodeclass-hash)"
    assert groups.drift_reason(launched(cloud, **annotations), WEB, DEFAULTS) == (reason if has_drifted else "")


@pytest.mark.parametrize(("status", "has_drifted"), [("True", True), ("False", False), ("Unknown", False)])
def test_a_claim_that_says_so_has_drifted(cloud: KarpenterCloud, status: str, has_drifted: bool) -> None:
    said = Condition("Drifted", status, "AMIDrift", "another image")
    expected = "its NodeClaim says that it has drifted: AMIDrift another image" if has_drifted else ""
    assert groups.drift_reason(launched(cloud, said), WEB, DEFAULTS) == expected


def known(*given: NodeClaim) -> dict[str, NodeClaim]:
    return {each.metadata.name: each for each in given}


LAUNCHED_ONLY = {claims.LAUNCHED: TRUE}


@pytest.mark.parametrize(
    ("before", "events", "kind", "code"),
    [
        (claim(), [(ended_claims.STOCK_OUT, "none left")], ErrorClass.OUT_OF_RESOURCES, ended_claims.STOCK_OUT),
        (claim(), [], ErrorClass.OUT_OF_RESOURCES, ended_claims.VANISHED),
        (claim(), [("BadImage", "no such image")], ErrorClass.OTHER, "BadImage"),
        (claim(conditions=LAUNCHED_ONLY), [], ErrorClass.OTHER, ended_claims.ENDED_BEFORE_REGISTRATION),
    ],
)
def test_a_claim_that_vanishes_before_it_is_a_node_has_failed(
    before: NodeClaim, events: list[tuple[str, str]], kind: ErrorClass, code: str
) -> None:
    (failed,) = ended_claims.failures(known(before), {}, set(), {"web-x": events}, NOW)
    assert (failed.claim.group, failed.error.kind, failed.error.code) == ("web", kind, code)
    assert str(failed.claim.offering) == f"m6i.xlarge/a/{ON_DEMAND}"


def test_what_we_delete_and_what_has_been_a_node_has_not_failed() -> None:
    assert not ended_claims.failures(known(claim()), {}, {"web-x"}, {}, NOW)
    assert not ended_claims.failures(known(claim(conditions=UP)), {}, set(), {}, NOW)
    assert not ended_claims.failures(known(claim()), {"web-x": claim()}, set(), {}, NOW)


def test_a_node_that_others_delete_is_told_once_with_the_reason() -> None:
    up = claim(conditions=UP, nodeName="n1")
    leaving = claim(
        conditions={**UP, claims.DISRUPTION_REASON: ("True", "Expired", "")}, metadata={"deletionTimestamp": CREATED}
    )
    (told,) = ended_claims.deletions_by_others(known(up), {"web-x": leaving}, set())
    assert (told.node, told.reason) == ("n1", "Expired")
    assert not ended_claims.deletions_by_others(known(leaving), {}, set())  # it is being told already
    assert not ended_claims.deletions_by_others(known(up), {"web-x": leaving}, {"web-x"})
    assert [each.node for each in ended_claims.deletions_by_others(known(up), {}, set())] == ["n1"]
    at_once = claim(conditions=UP, nodeName="n1", metadata={"deletionTimestamp": CREATED})
    assert [each.node for each in ended_claims.deletions_by_others(known(claim()), {"web-x": at_once}, set())] == ["n1"]


OFFERING = claim().offering
OUT_OF_STOCK = InstanceError(ErrorClass.OUT_OF_RESOURCES, ended_claims.STOCK_OUT, "none left")


def test_one_claim_tries_an_offering_that_never_launched_and_one_that_did_has_no_bound() -> None:
    assert waiting.count_at_once(OFFERING, 3, (), []) == 1
    assert waiting.count_at_once(OFFERING, 3, (), [claim()]) == 0
    assert waiting.count_at_once(OFFERING, 3, (), [claim(metadata={"deletionTimestamp": CREATED})]) == 1
    assert waiting.count_at_once(OFFERING, 3, (str(OFFERING),), [claim()]) == 3


def test_an_offering_has_launched_once_a_claim_of_it_has_a_machine(cloud: KarpenterCloud) -> None:
    launched = claim(conditions=LAUNCHED_ONLY)
    assert waiting.launched_offerings((), [claim()], cloud.catalogue) == ()
    assert waiting.launched_offerings((), [launched], cloud.catalogue) == (str(OFFERING),)
    assert waiting.launched_offerings((str(OFFERING), "gone/a/spot"), [], cloud.catalogue) == (str(OFFERING),)


@pytest.mark.parametrize(
    ("launched", "there", "error", "refusal", "becomes"),
    [
        ((), [claim()], None, "", "staying"),
        ((str(OFFERING),), [], None, "", "ready"),
        ((), [claim()], OUT_OF_STOCK, "", ended_claims.STOCK_OUT),
        ((str(OFFERING),), [], None, "not in the catalogue any more", waiting.NOT_TRIED),
        ((), [], None, "", waiting.NOT_TRIED),
    ],
)
def test_a_claim_waits_until_the_one_that_tries_its_offering_has_launched_or_failed(
    launched: tuple[str, ...], there: list[NodeClaim], error: InstanceError | None, refusal: str, becomes: str
) -> None:
    errors = {} if error is None else {OFFERING: error}
    settled = waiting.settle([claim("web-y")], launched, there, errors, lambda _: refusal, NOW)
    found = [
        *("ready" for _ in settled.ready),
        *("staying" for _ in settled.staying),
        *(each.error.code for each in settled.failed),
    ]
    assert found == [becomes]


def spec(machine_type: str = "m6i.xlarge", /, **labels: str) -> GroupSpec:
    return GroupSpec(machine_type, PREFIX, {key.replace("__", "/"): value for key, value in labels.items()})


def test_a_group_is_made_of_the_cheapest_offering_of_those_that_may_be_bought(cloud: KarpenterCloud) -> None:
    state = BuyingState(cloud)
    made = state.made_of(spec(), NOW)
    assert (made.zone, made.capacity_type) == ("b", ON_DEMAND)  # spot is cheaper, and not wanted
    assert made.name.startswith(f"{PREFIX}-m6i.xlarge-")
    in_a = state.made_of(GroupSpec("m6i.xlarge", PREFIX, {LABEL_ZONE: "a"}), NOW)
    assert (in_a.zone, in_a.labels) == ("a", {})  # Karpenter gives the label
    assert in_a.name != made.name


def test_an_offering_that_is_sold_out_is_left_alone_for_a_while(cloud: KarpenterCloud) -> None:
    sold_out = {f"m6i.xlarge/b/{ON_DEMAND}": SoldOut(NOW + 60, "none left")}
    state = BuyingState(cloud, sold_out=sold_out)
    cheaper, other = state.made_of(spec(), NOW + 61), state.made_of(spec(), NOW)
    assert (cheaper.zone, other.zone) == ("b", "a")
    assert cheaper.name != other.name  # so that the failure of one backs off that one
    in_b = GroupSpec("m6i.xlarge", PREFIX, {LABEL_ZONE: "b"})
    with pytest.raises(Refused, match=r"out of stock, retried in 60 s: none left"):
        state.made_of(in_b, NOW)
    assert state.refusal(cheaper, NOW).endswith("none left")
    assert not state.refusal(other, NOW)


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"karpenter.sh/nodepool": "default"}, "a group must not set labels of this domain"),
        ({"karpenter.k8s.aws/instance-family": "c6i"}, "'m6i' on all of them"),
        ({"karpenter.k8s.aws/instance-hypervisor": "nitro"}, "a group must not set labels of this domain"),
        ({"topology.kubernetes.io/zone": "c"}, "not offered in c"),
        ({"karpenter.sh/capacity-type": SPOT}, "not offered in spot"),
        ({"kubernetes.io/arch": "arm64"}, "'amd64' on all of them"),
        ({names.LABEL_NODE_GROUP: "web"}, "on all of them"),
        ({"a b": "c"}, "not a label's key"),
    ],
)
def test_what_karpenter_alone_decides_no_group_asks_for(
    cloud: KarpenterCloud, labels: dict[str, str], problem: str
) -> None:
    with pytest.raises(Refused) as raised:
        BuyingState(cloud).made_of(GroupSpec("m6i.xlarge", PREFIX, labels), NOW)
    assert problem in raised.value.problem


def test_labels_that_all_machines_of_the_type_have_are_no_hindrance(cloud: KarpenterCloud) -> None:
    wanted = {"karpenter.k8s.aws/instance-family": "m6i", "team": "a"}
    made = BuyingState(cloud).made_of(GroupSpec("m6i.xlarge", PREFIX, wanted), NOW)
    assert made.labels == {"team": "a"}
    labels = BuyingState(cloud).template(made).metadata.labels or {}
    assert labels.items() >= wanted.items()
    assert labels["topology.kubernetes.io/zone"] == "b"


def test_devices_that_the_machine_type_lacks_are_refused(cloud: KarpenterCloud) -> None:
    state = BuyingState(cloud)
    gpus = GroupSpec("m6i.xlarge", PREFIX, extra_resources={"nvidia.com/gpu": 1})
    with pytest.raises(Refused, match=r"nvidia.com/gpu: 1: machine type m6i.xlarge has fewer"):
        state.made_of(gpus, NOW)
    assert state.made_of(GroupSpec("g5.xlarge", PREFIX), NOW).zone == "a"


def test_while_nothing_can_be_bought_no_group_is_made(cloud: KarpenterCloud) -> None:
    with pytest.raises(Refused, match="EC2NodeClass default is not ready"):
        BuyingState(cloud, problem="EC2NodeClass default is not ready").made_of(spec(), NOW)


def test_a_machine_type_that_is_smaller_than_the_catalogue_says_is_withheld(cloud: KarpenterCloud) -> None:
    less = {"m6i.xlarge": {"cpu": 3900, "memory": 14 << 30, "pods": 58}}
    (told,) = cloud.catalogue.mismatches(less).values()
    assert told == "the catalogue says of machine type m6i.xlarge: cpu 3920m, and a node of it has 3900m"
    state = BuyingState(cloud, withheld=cloud.catalogue.mismatches(less))
    assert state.machine_types() == ("g5.xlarge",)
    assert state.refusal(WEB, NOW) == told
    with pytest.raises(Refused, match="a node of it has 3900m"):
        state.made_of(spec(), NOW)


def test_a_little_less_memory_and_more_of_anything_is_no_mismatch(cloud: KarpenterCloud) -> None:
    assert not cloud.catalogue.mismatches({"m6i.xlarge": {"cpu": 4000, "memory": round(13.9 * 2**30), "pods": 110}})
    assert cloud.catalogue.mismatches({"m6i.xlarge": {"memory": 13 << 30}})


FAMILY = "karpenter.k8s.aws/instance-family"


@pytest.mark.parametrize(
    ("carried", "told"),
    [
        ({}, ""),
        ({FAMILY: "m6i"}, ""),
        ({FAMILY: "m6a"}, "label karpenter.k8s.aws/instance-family m6i, and a node of it has m6a"),
        ({FAMILY: None}, "label karpenter.k8s.aws/instance-family m6i, and a node of it has none"),
    ],
)
def test_a_machine_type_whose_nodes_have_other_labels_is_withheld(
    cloud: KarpenterCloud, carried: dict[str, str | None], told: str
) -> None:
    found = cloud.catalogue.mismatches({}, {"m6i.xlarge": carried})
    assert found == ({"m6i.xlarge": f"the catalogue says of machine type m6i.xlarge: {told}"} if told else {})


def test_the_youngest_claim_says_what_its_machine_type_has() -> None:
    older = claim(allocatable={"cpu": "3"})
    younger = claim(
        "web-y", allocatable={"cpu": "2", "odd": "?"}, metadata={"creationTimestamp": "2027-01-15T09:00:00Z"}
    )
    assert claims.latest_reports([younger, claim("web-z"), older]) == {"m6i.xlarge": {"cpu": 2000}}


def test_prices_are_by_machine_type_zone_and_capacity_type(cloud: KarpenterCloud) -> None:
    prices = CataloguePrices(lambda: cloud.catalogue)

    def machine(zone: str, capacity_type: str) -> Machine:
        labels = {
            LABEL_MACHINE_TYPE: "m6i.xlarge",
            LABEL_ZONE: zone,
            LABEL_CAPACITY_TYPE: capacity_type,
        }
        return Machine({}, labels)

    assert prices.node_price(machine("a", ON_DEMAND)) == 0.23
    assert prices.node_price(machine("a", SPOT)) == 0.08
    with pytest.raises(Unpriced, match=r"m6i.xlarge in b"):
        prices.node_price(machine("b", SPOT))


@pytest.mark.parametrize(
    ("kind", "plural", "path"),
    [("EC2NodeClass", "", "ec2nodeclasses"), ("AKSNodeClass", "", "aksnodeclasses"), ("Shape", "shapen", "shapen")],
)
def test_the_path_of_a_node_class_follows_from_its_kind(kind: str, plural: str, path: str) -> None:
    assert config.NodeClassRef(group="x.y", version="v1", kind=kind, name="a", plural=plural).resource_name == path
