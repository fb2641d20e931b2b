"""AWS without AWS: its configuration, and what is decided about fleets, sizes, templates and errors."""

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from manager.autoscaler import decision_settings
from manager.autoscaler.cloudprovider.aws import config, failures, fleet, groups, templates
from manager.autoscaler.cloudprovider.aws.drift import drift_of
from manager.autoscaler.cloudprovider.aws.fleet import FleetStep, Joining, LaunchProgress
from manager.autoscaler.cloudprovider.aws.messages import Activity, Call, Member, ScalingGroup, Tag, TemplateRef
from manager.autoscaler.cloudprovider.aws.nodegroups import ManagedNodegroups, NodegroupNode
from manager.autoscaler.cloudprovider.aws.snapshot import Snapshot
from manager.autoscaler.cloudprovider.contract import ErrorClass, InstanceState
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, Later, Refused, Unavailable, Unsupported
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared.api.core import Node
from shared.clock import ManualClock
from shared.errors import InvalidInput
from tests.support.apiserver import ROOT

NOW = 1_700_000_000.0


def test_the_documentation_names_every_permission() -> None:
    named = (ROOT / "docs" / "how-to" / "aws.md").read_text()
    assert [call.value for call in Call if call.value not in named] == []


@given(zone=st.text(st.characters(exclude_characters="/")), instance=st.text(st.characters(exclude_characters="/")))
def test_an_instance_is_found_in_the_id_that_was_made_of_it(zone: str, instance: str) -> None:
    assert groups.instance_id(groups.provider_id(zone, instance)) == instance


@pytest.mark.parametrize(
    ("message", "kind", "code"),
    [
        ("VcpuLimitExceeded - You have requested more", ErrorClass.OUT_OF_RESOURCES, "VcpuLimitExceeded"),
        (
            "We currently do not have sufficient m5.large capacity in the Availability Zone you requested",
            ErrorClass.OUT_OF_RESOURCES,
            "InsufficientInstanceCapacity",
        ),
        ("The image id '[ami-1]' does not exist", ErrorClass.OTHER, "else"),
        ("", ErrorClass.OTHER, "else"),
    ],
)
def test_a_stockout_is_told_from_other_failures(message: str, kind: ErrorClass, code: str) -> None:
    found = failures.code_in(message, "else")
    assert (failures.error_class(found), found) == (kind, code)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("RequestLimitExceeded", 503, Later),
        ("Throttling", 400, Later),
        ("EC2ThrottledException", 400, Later),
        ("ScalingActivityInProgress", 400, Later),
        ("Whatever", 500, Unavailable),
        ("Whatever", 429, Later),
        ("ExpiredToken", 403, Later),
        ("InternalFailure", 400, Unavailable),
        ("UnauthorizedOperation", 403, Refused),
        ("InsufficientInstanceCapacity", 400, Refused),
    ],
)
def test_later_is_told_from_no_and_from_no_answer(code: str, status: int, kind: type[Exception]) -> None:
    assert type(failures.provider_error(code, status, "why", "web")) is kind


SIZES = st.integers(0, 20)


@given(delta=st.integers(-20, 20), target=SIZES, least=SIZES, most=SIZES, staying=SIZES)
def test_a_new_target_is_within_the_clouds_bounds_and_ends_no_instance(
    delta: int, target: int, least: int, most: int, staying: int
) -> None:
    with contextlib.suppress(Refused):
        assert target < groups.raised_size("web", delta, target=target, most=most) <= most
    with contextlib.suppress(Refused):
        lowered = groups.lowered_size("web", delta, target=target, least=least, staying=staying)
        assert max(least, staying) <= lowered < target


@given(count=st.integers(0, 100), answered=st.integers(0, 6), refused=st.booleans())
def test_every_instance_of_a_fleet_joins_waits_or_goes(count: int, answered: int, refused: bool) -> None:
    given_ids = tuple(f"i-{number}" for number in range(count))
    calls: list[int] = []

    def attach(batch: object) -> None:
        if len(calls) == answered:
            raise (Refused if refused else Unavailable)("aws", "web", "no")
        calls.append(len(batch) if isinstance(batch, tuple) else 0)

    found = fleet.attach_instances(given_ids, attach)
    assert found.joined + found.orphans + found.later == given_ids
    assert len(found.joined) == sum(calls)
    assert max(calls, default=0) <= fleet.ATTACHED_AT_ONCE
    assert (found.error is None) is (len(found.joined) == count)
    assert not found.orphans or refused
    assert not found.later or not refused


@pytest.mark.parametrize(
    ("running", "age", "expected"),
    [
        ((True, True), 0.0, FleetStep.ATTACH),
        ((True, True), 999.0, FleetStep.ATTACH),
        ((True, False), 59.0, FleetStep.WAIT),
        ((True, False), 60.0, FleetStep.GIVE_UP),
        ((False,), 0.0, FleetStep.WAIT),
    ],
)
def test_a_fleet_joins_as_one_or_not_at_all(running: tuple[bool, ...], age: float, expected: FleetStep) -> None:
    order = [Joining(f"i-{number}", "web", "o", running=each, launched_at=NOW) for number, each in enumerate(running)]
    assert fleet.next_step(order, NOW + age, 60.0) is expected


@pytest.mark.parametrize(
    ("lifecycle", "expected"),
    [
        ("Pending:Wait", InstanceState.CREATING),
        ("InService", InstanceState.RUNNING),
        ("Standby", InstanceState.RUNNING),
        ("Terminating:Proceed", InstanceState.DELETING),
        ("Detaching", InstanceState.DELETING),
        ("", InstanceState.UNKNOWN),
    ],
)
def test_a_lifecycle_is_a_state(lifecycle: str, expected: InstanceState) -> None:
    assert groups.state(lifecycle) is expected
    member = Member(instance_id="i", lifecycle_state=lifecycle)
    group = ScalingGroup(auto_scaling_group_name="web", min_size=0, max_size=1, desired_capacity=1, instances=(member,))
    assert groups.staying(group) == (expected is not InstanceState.DELETING)


def test_instances_of_a_warm_pool_are_no_members() -> None:
    lives = ("InService", "Warmed:Running", "Warmed:Stopped", "Warmed:Pending:Wait", "Pending")
    members = [{"InstanceId": f"i-{at}", "LifecycleState": each} for at, each in enumerate(lives)]
    web = {"AutoScalingGroupName": "web", "MinSize": 0, "MaxSize": 9, "DesiredCapacity": 2, "Instances": members}

    def ask(_: Call, __: str = "", /, **request: object) -> dict[str, Any]:
        return {"AutoScalingGroups": [web]}

    found = groups.one(ask, "web")
    assert found is not None
    assert [each.instance_id for each in found.instances] == ["i-0", "i-4"]


def test_what_joins_a_group_holds_no_place_of_its_members() -> None:
    """The group's own minimum is about its members: of those told, none can be deleted that AWS would keep."""
    members = tuple(Member(instance_id=f"i-{at}", lifecycle_state="InService") for at in range(2))
    web = ScalingGroup(auto_scaling_group_name="web", min_size=2, max_size=9, desired_capacity=2, instances=members)
    joining = tuple(Joining(f"i-j{at}", "web", "o") for at in range(3))
    told = Snapshot({"web": web}, LaunchProgress(joining)).group_at_target("web")
    assert (told.target_size, told.settled_size, told.min_size) == (5, 2, 2)


def test_only_a_launch_that_failed_lately_says_why_something_is_missing() -> None:
    begun = datetime.fromtimestamp(NOW, UTC)
    failed = Activity(
        description="Launching a new EC2 instance", status_code="Failed", status_message="no AMI", start_time=begun
    )
    found = failures.launch_failure(failed, NOW)
    assert found is not None
    assert (found.kind, found.message) == (ErrorClass.OTHER, "no AMI")
    for other in (
        replace(failed, status_code="Successful"),
        replace(failed, description="Terminating EC2 instance"),
        replace(failed, start_time=begun - timedelta(seconds=1)),
    ):
        assert failures.launch_failure(other, NOW) is None


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        (f"{templates.OPTIONS}scaledownutilizationthreshold", "half"),
        (f"{templates.OPTIONS}maxnodeprovisiontime", "15"),
        (f"{templates.OPTIONS}ignoredaemonsetsutilization", "1"),
    ],
)
def test_an_option_that_means_nothing_is_named(tag: str, value: str) -> None:
    group = ScalingGroup(
        auto_scaling_group_name="web", min_size=0, max_size=1, desired_capacity=0, tags=(Tag(key=tag, value=value),)
    )
    with pytest.raises(InvalidAnswer, match=tag):
        templates.options(group)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["asg:tag=a"], [{"a": ""}]),
        (
            ["asg:tag=k8s.io/cluster-autoscaler/enabled,team=web"],
            [{"k8s.io/cluster-autoscaler/enabled": "", "team": "web"}],
        ),
        (["asg:tag=a", "b=c", "asg:tag=d"], [{"a": "", "b": "c"}, {"d": ""}]),  # as the command line splits it
        ([], []),
    ],
)
def test_a_discovery_is_read_in_cluster_autoscalers_words(texts: list[str], found: list[dict[str, str]]) -> None:
    assert list(config.parse_discovery(texts)) == found


@pytest.mark.parametrize("text", ["", "web", "asg:web", "asg:tag=", "asg:tag=a,,b", "asg:tag==x", "mig:namePrefix=a"])
def test_a_discovery_that_means_nothing_is_refused_with_its_flag_and_value(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        config.parse_discovery([text])
    assert (refused.value.source, refused.value.value) == ("--node-group-auto-discovery", text)


def test_only_a_cloud_that_discovers_groups_takes_the_flag() -> None:
    settings = AutoscalerSettings(cloud_provider="karpenter", node_group_auto_discovery=("asg:tag=a",))
    with pytest.raises(InvalidInput, match="does not discover groups") as refused:
        decision_settings.load(settings)
    assert refused.value.source == "--node-group-auto-discovery"
    found = decision_settings.load(AutoscalerSettings(cloud_provider="aws", node_group_auto_discovery=("asg:tag=a",)))
    assert found.ownership.owns("whatever the cloud names")
    assert not decision_settings.load(AutoscalerSettings(cloud_provider="aws")).ownership.owns("web")


def launched_by(name: str, version: str) -> TemplateRef:
    return TemplateRef(launch_template_id=f"lt-{name}", launch_template_name=name, version=version)


@pytest.mark.parametrize(
    ("by", "wanted", "drift"),
    [
        (launched_by("a", "3"), [launched_by("a", "3")], ""),
        (launched_by("a", "3"), [launched_by("a", "4")], "version 3 of launch template a launched it"),
        (launched_by("a", "5"), [launched_by("a", "4")], "version 5 of launch template a launched it"),
        (launched_by("b", "3"), [launched_by("a", "3")], "launch template b launched it, but its group uses a now"),
        (launched_by("b", "3"), [launched_by("a", "1"), launched_by("b", "3")], ""),  # a type with its own template
        (launched_by("a", "$Latest"), [launched_by("a", "4")], ""),  # which one that was is not known
        (TemplateRef(launch_template_name="a", version="3"), [launched_by("a", "3")], ""),
        (None, [launched_by("a", "3")], ""),
    ],
)
def test_an_instance_has_drifted_if_another_template_or_version_launched_it(
    by: TemplateRef | None, wanted: list[TemplateRef], drift: str
) -> None:
    found = drift_of(Member(instance_id="i-1", launch_template=by), wanted)
    assert found.startswith(drift)
    assert bool(found) is bool(drift)


def test_an_instance_of_a_launch_configuration_has_drifted_from_a_template() -> None:
    member = Member(instance_id="i-1", launch_configuration_name="old")
    assert drift_of(member, [launched_by("a", "1")]).startswith("launch configuration old launched it")


def answers(**replies: Any) -> Any:
    """AWS that has these answers, by the operation."""

    def ask(call: Call, _: str = "", /, **request: object) -> dict[str, Any]:
        answer: dict[str, Any] = replies[call.operation]
        return answer

    return ask


def requiring(cpus: int = 4, memory: int = 8192, **more: Any) -> dict[str, Any]:
    return {"InstanceRequirements": {"VCpuCount": {"Min": cpus, "Max": 64}, "MemoryMiB": {"Min": memory}, **more}}


def template_of(*overrides: dict[str, Any], **data: Any) -> Node:
    """Of a group with these overrides and a launch template of these data."""
    mixed = {"LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "1"}, "Overrides": overrides}
    described = {
        "AutoScalingGroupName": "web",
        "MinSize": 0,
        "MaxSize": 9,
        "DesiredCapacity": 0,
        "MixedInstancesPolicy": {"LaunchTemplate": mixed},
    }
    version = {"LaunchTemplateVersions": [{"VersionNumber": 1, "LaunchTemplateData": data}]}
    ask = answers(DescribeAutoScalingGroups={"AutoScalingGroups": [described]}, DescribeLaunchTemplateVersions=version)
    group = groups.one(ask, "web")
    assert group is not None
    return templates.node(group, templates.Kinds(ask).first_type(group), NodegroupNode())


@pytest.mark.parametrize("given", [([requiring()], {}), ([], requiring()), ([requiring(8), requiring(4, 16384)], {})])
def test_where_requirements_choose_the_type_a_node_has_the_least_of_them(given: Any) -> None:
    overrides, data = given
    node = template_of(*overrides, **data)
    assert (node.status.capacity or {})["cpu"] == "4"
    assert (node.status.capacity or {})["memory"] == "7577Mi"  # of 8192, less what the hypervisor takes
    labels = node.metadata.labels or {}
    assert labels["kubernetes.io/os"] == "linux"
    assert not {"node.kubernetes.io/instance-type", "kubernetes.io/arch"} & labels.keys()


@pytest.mark.parametrize(
    ("makers", "architecture"),
    [
        (["intel", "amd"], "amd64"),
        (["amazon-web-services"], "arm64"),
        (["intel", "amazon-web-services"], None),
        ([], None),
    ],
)
def test_the_architecture_is_known_where_all_makers_of_cores_have_one(
    makers: list[str], architecture: str | None
) -> None:
    labels = template_of(requiring(CpuManufacturers=makers)).metadata.labels or {}
    assert labels.get("kubernetes.io/arch") == architecture


@pytest.mark.parametrize(
    ("accelerators", "gpus"),
    [
        ({"AcceleratorManufacturers": ["nvidia"], "AcceleratorTypes": ["gpu"]}, "2"),
        ({"AcceleratorManufacturers": ["nvidia", "amd"], "AcceleratorTypes": ["gpu"]}, None),
        ({}, None),
    ],
)
def test_required_gpus_are_there_where_no_other_accelerator_would_do(
    accelerators: dict[str, Any], gpus: str | None
) -> None:
    node = template_of(requiring(AcceleratorCount={"Min": 2}, **accelerators))
    assert (node.status.capacity or {}).get("nvidia.com/gpu") == gpus


@pytest.mark.parametrize(("data", "problem"), [({}, "names no instance type"), (requiring(0), "no minimum of cores")])
def test_a_group_whose_next_node_cannot_be_known_is_refused(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(Unsupported, match=problem):
        template_of(**data)


def test_labels_and_taints_of_an_eks_node_group_are_asked_for_now_and_then_and_stay_without_an_answer() -> None:
    clock, calls = ManualClock(NOW), 0
    outcome: list[dict[str, str]] = [{"a": "1"}, {"a": "2"}]

    def ask(call: Call, _: str = "", /, **request: object) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if not outcome:
            raise Refused("aws", "web", "AccessDeniedException")
        assert (call, request) == (Call.DESCRIBE_NODEGROUP, {"clusterName": "c", "nodegroupName": "n"})
        return {"nodegroup": {"labels": outcome.pop(0)}}

    tags = (Tag(key="eks:cluster-name", value="c"), Tag(key="eks:nodegroup-name", value="n"))
    group = ScalingGroup(auto_scaling_group_name="web", min_size=0, max_size=1, desired_capacity=0, tags=tags)
    asked = ManagedNodegroups(ask, clock)
    assert asked.node(replace(group, tags=())) == NodegroupNode()
    for value, count in (("1", 1), ("1", 1), ("2", 2), ("2", 2), ("2", 3)):
        assert dict(asked.node(group).labels) == {"a": value, "eks.amazonaws.com/nodegroup": "n"}
        assert calls == count
        clock.advance(200)
