"""Auto Scaling groups of AWS through boto3, against moto's services in a process of their own, over real HTTP."""

import contextlib
import functools
import json
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from manager.autoscaler.cloudprovider import plugin
from manager.autoscaler.cloudprovider.aws import fleet, session
from manager.autoscaler.cloudprovider.aws.fleet import AwsOptions
from manager.autoscaler.cloudprovider.aws.provider import AwsProvider
from manager.autoscaler.cloudprovider.contract import (
    ErrorClass,
    GroupOptions,
    GroupSpec,
    InstanceState,
    NodeRef,
)
from manager.autoscaler.cloudprovider.errors import (
    InvalidAnswer,
    Later,
    ProviderError,
    Refused,
    Unavailable,
    Unsupported,
)
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import Ownership, SizeBounds
from manager.autoscaler.cloudprovider.plugin import ManagedGroups, ProviderRequest
from shared import durations
from shared.api.core import Taint
from shared.clock import ManualClock
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.kube.resources import PODS
from shared.telemetry import Loops
from tests.integration.manager.conftest import Cluster, StartManager, fetch
from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.observing import observed
from tests.support.scripted import ScriptedProcess

pytestmark = pytest.mark.embedded_only("AWS is asked; of a server it wants what test_autoscaler.py does")

REGION, ZONE = "eu-central-1", "eu-central-1a"
IMAGE = "ami-12c6146b"  # one that moto has
ROLE = "arn:aws:iam::123456789012:role/autoscaler"
TAGS = "k8s.io/cluster-autoscaler/node-template/"


class Aws(ScriptedProcess):
    """The process, what it is to fail at, what it was asked, and a hand of one's own in it."""

    def __init__(self, folder: Path) -> None:
        super().__init__("aws_cloud", folder)
        self.clock = ManualClock(time.time())
        self._providers: list[AwsProvider] = []
        self._own: dict[str, Any] = {}
        self.script()
        self.start()
        self.url = f"http://127.0.0.1:{self.port}"

    def calls(self, action: str) -> list[dict[str, str]]:
        return [call for call in self.asked if call["Action"] == action]

    def own(self, service: str) -> Any:
        """A client, to arrange and to look with."""
        import boto3  # here, as each worker imports this file, and one runs it

        if service not in self._own:
            self._own[service] = boto3.client(service, region_name=REGION, endpoint_url=self.url)
        return self._own[service]

    def template(self, **data: Any) -> str:
        made = self.own("ec2").create_launch_template(
            LaunchTemplateName=f"t{time.time_ns()}",
            LaunchTemplateData={"ImageId": IMAGE, "InstanceType": "m5.large", **data},
        )
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def group(self, name: str, low: int, high: int, desired: int, *, template: str = "", **more: Any) -> str:
        """The launch template it is made of."""
        subnets = self.own("ec2").describe_subnets()["Subnets"]
        (subnet,) = [each["SubnetId"] for each in subnets if each["AvailabilityZone"] == ZONE]
        template = template or self.template()
        launched = {} if "MixedInstancesPolicy" in more else {"LaunchTemplate": {"LaunchTemplateId": template}}
        self.own("autoscaling").create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=low,
            MaxSize=high,
            DesiredCapacity=desired,
            VPCZoneIdentifier=subnet,
            **launched,
            **more,
        )
        return template

    def desired(self, name: str) -> int:
        found = self.own("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
        return int(found["AutoScalingGroups"][0]["DesiredCapacity"])

    def alive(self) -> set[str]:
        """The ids of all instances that were not terminated."""
        found = self.own("ec2").describe_instances(
            Filters=[{"Name": "instance-state-name", "Values": ["pending", "running", "stopped"]}]
        )
        return {each["InstanceId"] for part in found["Reservations"] for each in part["Instances"]}

    def config(self, **settings: Any) -> str:
        file = self.folder / "cloud-config.yaml"
        file.write_text(json.dumps({"region": REGION, "endpoint_url": self.url, **settings}))
        return str(file)

    def provider(
        self,
        listed: Sequence[str] = ("web",),
        fleets: dict[str, AwsOptions] | None = None,
        *,
        read_only: bool = False,
        enforced: bool = True,
        minds_drift: bool = False,
        discovery: Sequence[str] = (),
        **settings: Any,
    ) -> AwsProvider:
        fleets = fleets or {}
        groups = ManagedGroups(
            listed, fleets.keys() if enforced else (), fleets, minds_drift=minds_drift, discovery=discovery
        )
        loops, config = None if read_only else Loops(), Path(self.config(**settings))
        given: dict[str, Any] = {"client": NOBODY, "namespace": "default", "clock": self.clock}
        made = plugin.build("aws", ProviderRequest(config=config, groups=groups, loops=loops, **given))
        assert isinstance(made, AwsProvider)
        self._providers.append(made)
        return made

    def reset(self) -> None:
        """Nothing is there, nothing was asked, and nothing fails."""
        for provider in self._providers:
            provider.close()
        self._providers.clear()
        self.script()
        request = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")
        with urllib.request.urlopen(request):
            pass
        (self.folder / "calls").write_text("")
        self.clock = ManualClock(time.time())


NOBODY = Client(Connection("http://127.0.0.1:1"), "test")


@pytest.fixture(scope="module")
def aws_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    import botocore.loaders

    with pytest.MonkeyPatch.context() as environment, contextlib.closing(Aws(tmp_path_factory.mktemp("aws"))) as aws:
        environment.setenv("AWS_ACCESS_KEY_ID", "testing")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
            environment.delenv(name, raising=False)
        # The library reads megabytes for each session, and a process of the manager has one.
        environment.setattr(botocore.loaders, "create_loader", functools.cache(botocore.loaders.create_loader))
        yield aws


@pytest.fixture
def aws(aws_process: Aws) -> Aws:
    aws_process.reset()
    return aws_process


def nodes(guard: Guard, group: str = "web") -> list[NodeRef]:
    return [NodeRef(each.provider_id, each.provider_id) for each in guard.observed.groups[group].instances]


def test_groups_sizes_and_instances_are_those_of_the_cloud(aws: Aws) -> None:
    aws.group("web", 1, 5, 2)
    aws.group("others", 0, 9, 1)
    guard = Guard(aws.provider(()), Ownership({"web": None}))
    observed = guard.observe()
    web = observed.groups["web"]
    assert (web.group.min_size, web.group.max_size, web.group.target_size) == (1, 5, 2)
    assert {each.state for each in web.instances} == {InstanceState.RUNNING}
    assert observed.unmanaged == {"others"}
    ids = {each.provider_id.rpartition("/")[2] for each in web.instances}
    assert {each.provider_id for each in web.instances} == {f"aws:///{ZONE}/{each}" for each in ids}
    assert ids < aws.alive()
    placed = guard.observe([NodeRef("n", web.instances[0].provider_id), NodeRef("x", "gce://n"), NodeRef("y", "")])
    assert placed.group_of_node == {"n": "web"}


def test_only_listed_groups_are_asked_for_and_those_of_the_tags(aws: Aws) -> None:
    tag = {"Key": "seen", "Value": "yes", "PropagateAtLaunch": False}
    template = aws.group("web", 0, 5, 0)
    aws.group("tagged", 0, 5, 0, template=template, Tags=[tag])
    aws.group("others", 0, 5, 0, template=template)

    def seen(**settings: Any) -> list[str]:
        provider = aws.provider(("web", "gone"), **settings)
        provider.refresh()
        return [each.id for each in provider.groups()]

    assert seen() == ["web"]
    assert seen(discover={"seen": ""}) == seen(discover={"seen": "yes"}) == ["tagged", "web"]
    assert seen(discover={"seen": "no"}) == ["web"]
    refused = Guard(aws.provider(("web", "gone")), Ownership({"web": None, "gone": None})).observe().refused
    assert list(refused) == ["gone"]


OWNED = "k8s.io/cluster-autoscaler/enabled"


def test_groups_that_ask_by_their_tags_are_managed_with_the_clouds_own_bounds(aws: Aws) -> None:
    def tags(**values: str) -> list[dict[str, Any]]:
        return [{"Key": OWNED, "Value": values["enabled"], "PropagateAtLaunch": False}]

    template = aws.group("asks", 1, 5, 1, Tags=tags(enabled="true"))
    aws.group("listed", 0, 9, 0, template=template, Tags=tags(enabled="true"))
    aws.group("silent", 0, 5, 1, template=template)
    provider = aws.provider(("listed",), discovery=(f"asg:tag={OWNED}",))
    guard = Guard(provider, Ownership({"listed": SizeBounds(0, 2)}, opted_in=True))
    seen = guard.observe()
    bounds = {name: (each.group.min_size, each.group.max_size) for name, each in seen.groups.items()}
    assert bounds == {"asks": (1, 5), "listed": (0, 2)}, "a listed group keeps the bounds that it is listed with"
    guard.increase("asks", 1)
    assert aws.desired("asks") == 2
    with pytest.raises(Refused):
        guard.increase("silent", 1)
    aws.own("autoscaling").delete_tags(
        Tags=[{"ResourceId": "asks", "ResourceType": "auto-scaling-group", "Key": OWNED, "Value": "true"}]
    )
    assert list(guard.observe().groups) == ["listed"], "it has taken its tag off"


def test_groups_of_any_of_several_discoveries_are_managed(aws: Aws) -> None:
    template = aws.template()
    for name, tag in (("a", "blue"), ("b", "green"), ("c", "red")):
        aws.group(name, 0, 5, 0, template=template, Tags=[{"Key": tag, "Value": "yes", "PropagateAtLaunch": False}])
    provider = aws.provider((), discovery=("asg:tag=blue=yes", "asg:tag=green", "asg:tag=red=no"))
    assert list(Guard(provider, Ownership(opted_in=True)).observe().groups) == ["a", "b"]


def test_groups_to_be_seen_and_groups_to_be_managed_cannot_be_discovered_at_once(aws: Aws) -> None:
    with pytest.raises(InvalidInput) as refused:
        aws.provider(discovery=("asg:tag=a",), discover={"b": ""})
    assert refused.value.field == "discover"


@pytest.mark.thorough
def test_more_groups_than_one_answer_holds_are_all_seen(aws: Aws) -> None:
    template = aws.template()
    names = [f"g{number:03}" for number in range(101)]
    for name in names:
        aws.group(name, 0, 1, 0, template=template)
    for listed in (names, ()):
        provider = aws.provider(listed)
        provider.refresh()
        assert [each.id for each in provider.groups()] == names


def test_a_target_is_raised_and_taken_back(aws: Aws) -> None:
    aws.group("web", 1, 5, 2)
    guard = Guard(aws.provider(), Ownership({"web": None}))
    guard.observe()
    guard.increase("web", 2)
    assert (aws.desired("web"), aws.calls("SetDesiredCapacity")[0]["HonorCooldown"]) == (4, "false")
    assert guard.observe().groups["web"].group.target_size == len(nodes(guard)) == 4
    with pytest.raises(Refused, match="above the maximum of 5"):
        guard.increase("web", 2)
    with pytest.raises(Refused, match="below its 4 instances"):
        guard.decrease_target("web", 1)


def test_a_target_is_set_from_what_it_is_now_and_ends_no_instance(aws: Aws) -> None:
    aws.group("web", 0, 9, 1)
    provider = aws.provider()
    guard = Guard(provider, Ownership({"web": None}))
    guard.observe()
    aws.own("autoscaling").set_desired_capacity(AutoScalingGroupName="web", DesiredCapacity=4)
    guard.increase("web", 1)
    assert aws.desired("web") == 5  # and not 2, for which three instances would have gone
    with pytest.raises(Refused, match="would end some of its 5 instances"):
        provider.decrease_target("web", 1)
    with pytest.raises(Refused, match="increasing size will breach maximum node size"):
        provider.increase("web", 5)
    assert aws.desired("web") == 5


def test_nodes_are_terminated_together_with_their_places(aws: Aws) -> None:
    aws.group("web", 1, 5, 4)
    guard = Guard(aws.provider(), Ownership({"web": None}))
    guard.observe()
    going, staying = nodes(guard)[:2], nodes(guard)[2:]
    guard.delete_nodes("web", going)
    assert aws.desired("web") == 2
    assert {node.provider_id.rpartition("/")[2] for node in staying} == aws.alive()
    assert guard.observe().groups["web"].group.target_size == 2
    with pytest.raises(Refused, match="below the minimum of 1"):
        guard.delete_nodes("web", nodes(guard))


def test_the_clouds_own_minimum_holds_below_ours(aws: Aws) -> None:
    aws.group("web", 2, 5, 3)
    guard = Guard(aws.provider(), Ownership({"web": SizeBounds(0, 5)}))
    guard.observe()
    with pytest.raises(Refused, match="terminating nodes will breach minimum node size"):
        guard.delete_nodes("web", nodes(guard)[:2])
    guard.observe()
    guard.delete_nodes("web", nodes(guard)[:1])
    guard.observe()
    with pytest.raises(Refused, match="min sized reached, nodes will not be deleted"):
        guard.delete_nodes("web", nodes(guard)[:1])
    assert aws.desired("web") == len(aws.alive()) == 2


def test_deletion_stops_at_the_first_node_that_stays(aws: Aws) -> None:
    aws.group("web", 0, 5, 3)
    guard = Guard(aws.provider(), Ownership({"web": None}))
    guard.observe()
    error = [400, "ValidationError", "it is protected"]
    aws.script(errors={"TerminateInstanceInAutoScalingGroup": [None, error]})
    with pytest.raises(Refused, match=r"web: failed to terminate instance\. err: .*: ValidationError: it is protected"):
        guard.delete_nodes("web", nodes(guard))
    assert aws.desired("web") == len(aws.alive()) == 2
    with pytest.raises(Unavailable, match="observed again first"):
        guard.delete_nodes("web", nodes(guard)[1:])


def test_a_node_of_another_group_stays(aws: Aws) -> None:
    aws.group("web", 0, 5, 1)
    aws.group("others", 0, 5, 1)
    provider = aws.provider(("web", "others"))
    provider.refresh()
    (own,), (other,) = provider.instances("web"), provider.instances("others")
    aws.own("autoscaling").set_desired_capacity(AutoScalingGroupName="web", DesiredCapacity=2)
    provider.refresh()
    with pytest.raises(Refused, match=f"node n, {other.provider_id} belongs in a different node group than web"):
        provider.delete_nodes("web", [NodeRef("o", own.provider_id), NodeRef("n", other.provider_id)])
    assert (aws.desired("web"), aws.desired("others")) == (1, 1)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ([400, "Throttling", "Rate exceeded"], Later),
        ([503, "Anything", "later"], Unavailable),
        ([403, "AccessDenied", "not you"], Refused),
    ],
)
def test_a_failed_write_is_named_and_tried_once(aws: Aws, error: list[Any], kind: type[ProviderError]) -> None:
    aws.group("web", 0, 5, 0)
    guard = Guard(aws.provider(), Ownership({"web": None}))
    guard.observe()
    aws.script(errors={"SetDesiredCapacity": error})
    with pytest.raises(kind, match=f"aws: group web: SetDesiredCapacity: {error[1]}: {error[2]}") as caught:
        guard.increase("web", 1)
    assert caught.type is kind
    assert len(aws.calls("SetDesiredCapacity")) == 1
    assert guard.is_in_doubt("web") is (kind is Unavailable)


def test_a_question_is_asked_again_and_then_costs_the_round(aws: Aws) -> None:
    aws.group("web", 0, 5, 0)
    guard = Guard(aws.provider(), Ownership({"web": None}))
    throttled = [400, "Throttling", "Rate exceeded"]
    aws.script(errors={"DescribeAutoScalingGroups": [throttled, None]})
    assert guard.observe().groups.keys() == {"web"}
    aws.script(errors={"DescribeAutoScalingGroups": throttled})
    with pytest.raises(Unavailable, match="Throttling: Rate exceeded"):
        guard.observe()
    aws.script()
    guard.observe()


def test_a_call_that_hangs_ends_at_the_timeout(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "READ_SECONDS", 0.5)
    aws.group("web", 0, 5, 0)
    aws.script(hangs=["DescribeAutoScalingGroups"])
    guard = Guard(aws.provider(), Ownership({"web": None}))
    with pytest.raises(Unavailable, match="Read timeout"):
        guard.observe()
    aws.script()
    observed(guard)


def test_nobody_there_is_unavailable(aws: Aws) -> None:
    guard = Guard(aws.provider(endpoint_url="http://127.0.0.1:1"), Ownership({"web": None}))
    with pytest.raises(Unavailable, match="Could not connect"):
        guard.observe()


def test_an_answer_that_is_none_is_refused(aws: Aws) -> None:
    group = "<member><AutoScalingGroupName>web</AutoScalingGroupName></member>"
    result = f"<DescribeAutoScalingGroupsResult><AutoScalingGroups>{group}</AutoScalingGroups>"
    answer = f"<R>{result}</DescribeAutoScalingGroupsResult></R>"
    aws.script(answers={"DescribeAutoScalingGroups": answer})
    with pytest.raises(InvalidAnswer, match=r"DescribeAutoScalingGroups: .*`MinSize`"):
        Guard(aws.provider(), Ownership({"web": None})).observe()


def test_a_group_whose_sizes_are_weights_is_refused(aws: Aws) -> None:
    template = aws.template()
    overrides = [{"InstanceType": "m5.large", "WeightedCapacity": "2"}]
    specification = {"LaunchTemplateId": template, "Version": "$Latest"}
    policy = {"LaunchTemplate": {"LaunchTemplateSpecification": specification, "Overrides": overrides}}
    aws.group("web", 0, 5, 0, MixedInstancesPolicy=policy)
    refused = Guard(aws.provider(), Ownership({"web": None})).observe().refused
    assert "weights" in str(refused["web"])


def test_what_could_not_be_launched_is_told_with_the_reason_and_taken_back(aws: Aws) -> None:
    aws.group("web", 0, 5, 1)
    guard = Guard(aws.provider(), Ownership({"web": None}))
    guard.observe()
    guard.increase("web", 2)
    aws.own("autoscaling").suspend_processes(AutoScalingGroupName="web", ScalingProcesses=["Launch"])
    lost = [each["InstanceId"] for each in _members(aws, "web")[1:]]
    aws.own("autoscaling").detach_instances(
        InstanceIds=lost, AutoScalingGroupName="web", ShouldDecrementDesiredCapacity=True
    )
    message = "Could not launch On-Demand Instances. InsufficientInstanceCapacity - There is no more."
    _lacking(aws, "web", 3, message, aws.clock.now() + 1)
    web = guard.observe().groups["web"]
    assert web.group.target_size == 3
    broken = [each for each in web.instances if each.error is not None]
    assert [(each.state, each.error.kind, each.error.code) for each in broken if each.error] == [
        (InstanceState.CREATING, ErrorClass.OUT_OF_RESOURCES, "InsufficientInstanceCapacity")
    ] * 2
    guard.delete_nodes("web", [NodeRef(each.provider_id, each.provider_id) for each in broken])
    assert aws.calls("SetDesiredCapacity")[-1]["DesiredCapacity"] == "1"
    _lacking(aws, "web", 3, message, aws.clock.now() - 3600)  # it failed long ago, and says nothing of now
    assert not [each for each in guard.observe().groups["web"].instances if each.error]


def _members(aws: Aws, name: str) -> list[dict[str, Any]]:
    found = aws.own("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
    return list(found["AutoScalingGroups"][0]["Instances"])


def _lacking(aws: Aws, name: str, desired: int, why: str, at: float) -> None:
    """The group as moto has it, but with more desired than it could launch."""
    members = "".join(
        f"<member><InstanceId>{each['InstanceId']}</InstanceId><LifecycleState>InService</LifecycleState>"
        f"<AvailabilityZone>{ZONE}</AvailabilityZone><HealthStatus>Healthy</HealthStatus>"
        "<ProtectedFromScaleIn>false</ProtectedFromScaleIn></member>"
        for each in _members(aws, name)
    )
    sizes = f"<MinSize>0</MinSize><MaxSize>5</MaxSize><DesiredCapacity>{desired}</DesiredCapacity>"
    group = (
        f"<member><AutoScalingGroupName>{name}</AutoScalingGroupName>{sizes}<Instances>{members}</Instances></member>"
    )
    activity = (
        "<member><ActivityId>a</ActivityId><Description>Launching a new EC2 instance.  Status Reason: </Description>"
        f"<StatusCode>Failed</StatusCode><StatusMessage>{why}</StatusMessage>"
        f"<StartTime>{durations.timestamp(at)}</StartTime></member>"
    )
    answers = {
        "DescribeAutoScalingGroups": ("AutoScalingGroups", group),
        "DescribeScalingActivities": ("Activities", activity),
    }
    aws.script(
        answers={
            action: f"<R><{action}Result><{key}>{content}</{key}></{action}Result></R>"
            for action, (key, content) in answers.items()
        }
    )


def test_a_template_is_made_of_the_instance_type_and_the_tags(aws: Aws) -> None:
    tags = {
        f"{TAGS}label/team": "search",
        f"{TAGS}taint/dedicated": "search:NoSchedule",
        f"{TAGS}resources/example.com/fpga": "2",
        f"{TAGS}autoscaling-options/scaledownutilizationthreshold": "0.4",
        f"{TAGS}autoscaling-options/scaledownunneededtime": "90s",
        f"{TAGS}autoscaling-options/maxnodelifetime": "720h",
        f"{TAGS}autoscaling-options/zeroormaxnodescaling": "true",
    }
    listed = [{"Key": key, "Value": value, "PropagateAtLaunch": False} for key, value in tags.items()]
    aws.group("web", 0, 5, 0, Tags=listed)
    guard = Guard(aws.provider(), Ownership({"web": None}))
    expected = GroupOptions(
        scale_down_utilization_threshold=0.4,
        scale_down_unneeded_time_seconds=90.0,
        max_node_lifetime_seconds=2_592_000.0,
        zero_or_max_node_scaling=True,
    )
    assert guard.observe().groups["web"].options == expected
    node = guard.template("web")
    labels = node.metadata.labels or {}
    assert (labels["team"], labels["node.kubernetes.io/instance-type"]) == ("search", "m5.large")
    assert (labels["topology.kubernetes.io/zone"], labels["topology.kubernetes.io/region"]) == (ZONE, REGION)
    assert labels["kubernetes.io/arch"] == "amd64"
    assert node.spec.taints == (Taint(key="dedicated", value="search", effect="NoSchedule"),)
    capacity, allocatable = node.status.capacity or {}, node.status.allocatable or {}
    assert (capacity["cpu"], capacity["memory"], capacity["example.com/fpga"]) == ("2", "7577Mi", "2")
    assert (allocatable["cpu"], allocatable["memory"], allocatable["pods"]) == ("1930m", "6012Mi", "110")


def drifts(provider: AwsProvider) -> set[str]:
    return {each.drift for each in Guard(provider, Ownership({"web": None})).observe().groups["web"].instances}


def test_an_instance_has_drifted_once_its_group_launches_another_version(aws: Aws) -> None:
    template = aws.group("web", 0, 5, 2)
    provider = aws.provider(minds_drift=True)
    assert drifts(provider) == {""}
    assert drifts(aws.provider()) == {""}
    (name,) = [each["LaunchTemplateName"] for each in aws.own("ec2").describe_launch_templates()["LaunchTemplates"]]
    data = {"ImageId": IMAGE, "InstanceType": "m5.xlarge"}
    aws.own("ec2").create_launch_template_version(LaunchTemplateId=template, LaunchTemplateData=data)
    assert drifts(provider) == {""}, "the default version is the first still"

    latest = {"LaunchTemplateId": template, "Version": "$Latest"}
    aws.own("autoscaling").update_auto_scaling_group(AutoScalingGroupName="web", LaunchTemplate=latest)
    assert drifts(provider) == {f"version 1 of launch template {name} launched it, but its group uses version 2"}
    asked = len(aws.calls("DescribeLaunchTemplateVersions"))
    assert drifts(provider) == {f"version 1 of launch template {name} launched it, but its group uses version 2"}
    assert len(aws.calls("DescribeLaunchTemplateVersions")) == asked, "what a name stands for is remembered for a while"
    assert drifts(aws.provider()) == {""}, "AWS is asked only where drift matters"


def configured(aws: Aws) -> None:
    """A group of a launch configuration."""
    aws.own("autoscaling").create_launch_configuration(
        LaunchConfigurationName="old", ImageId=IMAGE, InstanceType="m5.large"
    )
    aws.own("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName="web",
        MinSize=0,
        MaxSize=5,
        DesiredCapacity=0,
        AvailabilityZones=[ZONE],
        LaunchConfigurationName="old",
    )


def test_a_group_of_a_launch_configuration_has_a_template_that_is_asked_for_once(aws: Aws) -> None:
    configured(aws)
    guard = Guard(aws.provider(), Ownership({"web": None}))
    for _ in range(2):
        guard.observe()
        labels = guard.template("web").metadata.labels or {}
        assert labels["node.kubernetes.io/instance-type"] == "m5.large"
    assert len(aws.calls("DescribeLaunchConfigurations")) == 1


def test_labels_and_taints_of_an_eks_managed_node_group_are_those_of_its_next_node(aws: Aws) -> None:
    tags = {"eks:cluster-name": "main", "eks:nodegroup-name": "web", f"{TAGS}label/team": "old"}
    aws.group(
        "web", 0, 5, 0, Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in tags.items()]
    )
    eks = aws.own("eks")
    eks.create_cluster(name="main", roleArn=ROLE, resourcesVpcConfig={})
    eks.create_nodegroup(
        clusterName="main",
        nodegroupName="web",
        subnets=["subnet-1"],
        nodeRole=ROLE,
        labels={"team": "search"},
        taints=[{"key": "dedicated", "value": "search", "effect": "NO_SCHEDULE"}],
    )
    guard = Guard(aws.provider(), Ownership({"web": None}))
    guard.observe()
    node = guard.template("web")
    labels = node.metadata.labels or {}
    assert (labels["team"], labels["eks.amazonaws.com/nodegroup"]) == ("search", "web")
    assert node.spec.taints == (Taint(key="dedicated", value="search", effect="NoSchedule"),)


def test_without_the_permission_to_look_at_launch_configurations_a_group_of_one_has_no_template(aws: Aws) -> None:
    configured(aws)
    guard = Guard(aws.provider(), Ownership({"web": None}))
    guard.observe()
    aws.script(errors={"DescribeLaunchConfigurations": [403, "AccessDenied", "no"]})
    with pytest.raises(Refused, match="DescribeLaunchConfigurations: AccessDenied"):
        guard.template("web")


def test_without_the_permission_to_look_at_templates_nothing_has_drifted(aws: Aws) -> None:
    template = aws.group("web", 0, 5, 1)
    latest = {"LaunchTemplateId": template, "Version": "$Latest"}
    aws.own("autoscaling").update_auto_scaling_group(AutoScalingGroupName="web", LaunchTemplate=latest)
    denied = [403, "UnauthorizedOperation", "You are not authorized to perform this operation."]
    aws.script(errors={"DescribeLaunchTemplateVersions": denied})
    assert drifts(aws.provider(minds_drift=True)) == {""}


def test_groups_are_neither_created_nor_deleted(aws: Aws) -> None:
    guard = Guard(aws.provider(), Ownership({"web": None}))
    with pytest.raises(Unsupported):
        guard.machine_types()
    assert guard.pricing() is None
    aws.group("nodeautoprovisioning-a", 0, 5, 0)
    guard = Guard(aws.provider(()), Ownership({}))
    guard.observe()
    with pytest.raises(Unsupported):
        guard.create_group(GroupSpec("m", "nodeautoprovisioning"))


def test_a_node_says_when_its_instance_was_launched_and_whether_it_is_gone(aws: Aws) -> None:
    aws.group("web", 0, 5, 1)
    guard = Guard(aws.provider(), Ownership({"web": None}))
    guard.observe()
    (instance,) = guard.observed.groups["web"].instances
    launched_at = guard.launched_at(NodeRef("n", instance.provider_id))
    assert launched_at is not None
    assert abs(launched_at - aws.clock.now()) < 3600
    assert guard.launched_at(NodeRef("n", "aws:///a/i-0123456789abcdef0")) is None
    guard.delete_nodes("web", [NodeRef("n", instance.provider_id)])
    assert guard.launched_at(NodeRef("n", instance.provider_id)) is None
    with pytest.raises(ProviderError, match="malformed providerID"):
        guard.launched_at(NodeRef("n", "x://1"))


def test_a_role_is_assumed_and_renewed_before_it_ends(aws: Aws) -> None:
    aws.group("web", 0, 5, 0)
    provider = aws.provider(assume_role_arn=ROLE)
    provider.refresh()
    provider.refresh()
    (assumed,) = aws.calls("AssumeRole")
    assert assumed["RoleArn"] == ROLE
    aws.clock.advance(3100)
    provider.refresh()
    assert len(aws.calls("AssumeRole")) == 2


def test_a_role_that_cannot_be_renewed_is_used_while_it_holds_and_asked_for_now_and_then(aws: Aws) -> None:
    aws.group("web", 0, 5, 0)
    provider = aws.provider(assume_role_arn=ROLE)
    provider.refresh()
    aws.script(errors={"AssumeRole": [403, "AccessDenied", "not now"]})
    for seconds, asked in ((3100, 2), (0, 2), (59, 2), (1, 3), (0, 3)):
        aws.clock.advance(seconds)
        provider.refresh()
        assert len(aws.calls("AssumeRole")) == asked
    aws.clock.advance(600)
    for _ in range(2):
        with pytest.raises(Refused, match="not now"):
            provider.refresh()
    assert len(aws.calls("DescribeAutoScalingGroups")) == 6
    aws.script()
    provider.refresh()


def test_the_region_may_come_from_the_environment(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="region"):
        aws.provider(region="")
    with pytest.raises(InvalidInput, match="Set the environment variable AWS_PROFILE"):
        aws.provider(profile="missing")
    with monkeypatch.context() as environment:
        environment.setenv("AWS_PROFILE", "missing")
        with pytest.raises(InvalidInput, match="missing"):
            aws.provider()
    aws.group("web", 0, 5, 0)
    monkeypatch.setenv("AWS_REGION", REGION)
    provider = aws.provider(region="")
    provider.refresh()
    assert [each.id for each in provider.groups()] == ["web"]


class TestFleet:
    """A group with a launch template among its options grows by instances that join it once they run."""

    @staticmethod
    def made(aws: Aws, high: int = 50, **options: Any) -> AwsOptions:
        template = aws.group("web", 0, high, 1)
        return AwsOptions(launch_template_id=template, launch_template_version="1", **options)

    @staticmethod
    def guard(aws: Aws, options: AwsOptions, *, read_only: bool = False, enforced: bool = True) -> Guard:
        provider = aws.provider(fleets={"web": options}, read_only=read_only, enforced=enforced)
        return Guard(provider, Ownership({"web": None}))

    def test_instances_join_in_batches_and_count_from_the_order_on(self, aws: Aws) -> None:
        guard = self.guard(aws, self.made(aws))
        guard.observe()
        guard.increase("web", 45)
        assert guard.observed.groups["web"].group.target_size == 46
        assert (aws.desired("web"), len(aws.alive())) == (1, 46)
        web = guard.observe().groups["web"]
        assert web.group.target_size == len(web.instances) == aws.desired("web") == 46
        assert {each.state for each in web.instances} == {InstanceState.RUNNING}
        sizes = [sum(key.startswith("InstanceIds") for key in call) for call in aws.calls("AttachInstances")]
        assert sizes == [20, 20, 5]
        (asked,) = aws.calls("CreateFleet")
        assert {
            "Type": "instant",
            "TerminateInstancesWithExpiration": "false",
            "TargetCapacitySpecification.TotalTargetCapacity": "45",
            "TargetCapacitySpecification.DefaultTargetCapacityType": "on-demand",
            "OnDemandOptions.MinTargetCapacity": "45",
            "OnDemandOptions.SingleInstanceType": "true",
            "LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version": "1",
        }.items() <= asked.items()
        guard.observe()
        assert len(aws.calls("AttachInstances")) == 3  # nobody joins twice

    def test_a_spot_fleet_names_its_types_in_every_subnet(self, aws: Aws) -> None:
        options = self.made(
            aws, lifecycle="spot", instance_type_overrides=("m5.large", "m4.large"), resource_tagging=True
        )
        guard = self.guard(aws, options)
        guard.observe()
        aws.script(errors={"CreateFleet": [400, "InvalidParameter", "no"]})
        with pytest.raises(Refused, match="InvalidParameter"):
            guard.increase("web", 2)
        (asked,) = aws.calls("CreateFleet")
        types = [asked[f"LaunchTemplateConfigs.1.Overrides.{number}.InstanceType"] for number in (1, 2)]
        assert types == ["m5.large", "m4.large"]
        assert asked["SpotOptions.MinTargetCapacity"] == "2"
        (tagged,) = aws.calls("CreateOrUpdateTags")
        assert tagged["Tags.member.1.Key"] == "k8s.io/atlassian-escalator/enabled"
        guard.observe()
        assert len(aws.calls("CreateOrUpdateTags")) == 1

    def test_a_fleet_without_instances_says_why(self, aws: Aws) -> None:
        guard = self.guard(aws, self.made(aws))
        guard.observe()
        error = "<item><errorCode>InsufficientInstanceCapacity</errorCode><errorMessage>none left</errorMessage></item>"
        aws.script(answers={"CreateFleet": f"<R><fleetId>f</fleetId><errorSet>{error}</errorSet></R>"})
        with pytest.raises(Refused, match="aws: group web: none left"):
            guard.increase("web", 2)

    def test_instances_that_do_not_start_in_time_are_given_up_all_and_terminated_together(self, aws: Aws) -> None:
        guard = self.guard(aws, self.made(aws, fleet_instance_ready_timeout="60s"))
        guard.observe()
        before = aws.alive()
        guard.increase("web", 3)
        (stopped, *_) = aws.alive() - before
        aws.own("ec2").stop_instances(InstanceIds=[stopped])
        web = guard.observe().groups["web"]
        assert web.group.target_size == 4
        assert [each.state for each in web.instances].count(InstanceState.CREATING) == 3
        aws.clock.advance(120)
        observed = guard.observe()
        lost = [each for each in observed.groups["web"].instances if each.error is not None]
        assert [each.error.message for each in lost if each.error] == [fleet.NOT_STARTED] * 3
        assert set(observed.strays["web"]) == {each.provider_id for each in lost}
        assert (
            len(aws.alive() - before) == 3
        )  # they are deleted as all instances are, and not behind the machine's back
        guard.delete_nodes("web", [NodeRef(each.provider_id, each.provider_id) for each in lost], below_min=True)
        assert (aws.alive(), len(aws.calls("TerminateInstances"))) == (before, 1)
        assert guard.observed.groups["web"].group.target_size == aws.desired("web") == 1
        assert guard.observe().strays == {}

    def test_what_cannot_be_attached_is_given_up_and_tried_again_while_it_is_there(self, aws: Aws) -> None:
        guard = self.guard(aws, self.made(aws))
        guard.observe()
        guard.increase("web", 45)
        aws.script(errors={"AttachInstances": [None, [400, "ValidationError", "no"]]})
        web = guard.observe().groups["web"]
        lost = [each for each in web.instances if each.error is not None]
        assert (len(lost), web.group.target_size, aws.desired("web"), len(aws.alive())) == (25, 46, 21, 46)
        assert set(guard.observed.strays["web"]) == {each.provider_id for each in lost}
        guard.delete_nodes("web", [NodeRef(each.provider_id, each.provider_id) for each in lost[:5]], below_min=True)
        aws.script()
        assert guard.observe().groups["web"].group.target_size == aws.desired("web") == len(aws.alive()) == 41

    def test_attaching_goes_on_after_no_answer(self, aws: Aws) -> None:
        guard = self.guard(aws, self.made(aws))
        guard.observe()
        guard.increase("web", 21)
        aws.script(errors={"AttachInstances": [None, [400, "Throttling", "later"]]})
        web = guard.observe().groups["web"]
        assert (web.group.target_size, aws.desired("web")) == (22, 21)
        aws.script()
        assert guard.observe().groups["web"].group.target_size == aws.desired("web") == len(aws.alive()) == 22

    def test_what_an_earlier_process_has_ordered_joins_too(self, aws: Aws) -> None:
        options = self.made(aws)
        earlier = self.guard(aws, options)
        earlier.observe()
        earlier.increase("web", 2)
        for how in ({"read_only": True}, {"enforced": False}):
            listers = self.guard(aws, options, **how).observe().groups["web"]
            assert (listers.group.target_size, aws.desired("web")) == (3, 1)  # who only looks leaves them alone
        assert self.guard(aws, options).observe().groups["web"].group.target_size == aws.desired("web") == 3

    def test_an_order_whose_answer_got_lost_is_found(self, aws: Aws) -> None:
        guard = self.guard(aws, self.made(aws))
        guard.observe()
        aws.script(loses=["CreateFleet"])
        with pytest.raises(Unavailable):
            guard.increase("web", 2)
        assert len(aws.calls("CreateFleet")) == 1
        aws.script()
        assert guard.observe().groups["web"].group.target_size == aws.desired("web") == len(aws.alive()) == 3

    def test_what_is_not_described_yet_is_not_forgotten(self, aws: Aws) -> None:
        guard = self.guard(aws, self.made(aws))
        guard.observe()
        guard.increase("web", 2)
        aws.script(answers={"DescribeInstances": "<R><reservationSet/></R>"})
        web = guard.observe().groups["web"]
        assert (web.group.target_size, len(web.instances), aws.desired("web")) == (3, 3, 1)
        aws.script()
        assert guard.observe().groups["web"].group.target_size == aws.desired("web") == 3

    def test_whoever_is_taken_out_of_the_group_by_hand_is_left_alone(self, aws: Aws) -> None:
        guard = self.guard(aws, self.made(aws))
        guard.observe()
        guard.increase("web", 1)
        guard.observe()
        out = [each["InstanceId"] for each in _members(aws, "web")]
        aws.own("autoscaling").detach_instances(
            InstanceIds=out, AutoScalingGroupName="web", ShouldDecrementDesiredCapacity=True
        )
        assert guard.observe().groups["web"].group.target_size == 0
        assert set(out) <= aws.alive()


def test_a_manager_buys_by_a_fleet_for_a_pod_that_waits_and_buys_once(
    aws: Aws, server: ApiServer, cluster: Cluster, start_manager: StartManager, tmp_path: Path
) -> None:
    template = aws.group("web", 0, 5, 0)
    group = {"name": "web", "cloud_provider_group_name": "web", "max_nodes": 3, "policy": "pending-pods"}
    groups = tmp_path / "groups.yaml"
    groups.write_text(json.dumps({"node_groups": [{**group, "aws": {"launch_template_id": template}}]}))
    namespace = server.add_namespace()
    for number in range(2):
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1500m"}}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}"},
            "spec": {"containers": [container]},
        }
        cluster.client.create(PODS, body, namespace)
        unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        cluster.client.patch(
            PODS, f"p{number}", {"status": {"conditions": [unplaced]}}, namespace, subresource="status"
        )
    settings = {"node_groups": str(groups), "scan_interval_seconds": 0.1}
    manager = start_manager(cloud_provider="aws", cloud_config=aws.config(), **settings)
    eventually(lambda: aws.desired("web") == 2, 60)
    asked = len(aws.calls("DescribeAutoScalingGroups"))
    eventually(lambda: len(aws.calls("DescribeAutoScalingGroups")) > asked + 5, 60)
    assert (aws.desired("web"), len(aws.alive()), len(aws.calls("CreateFleet"))) == (2, 2, 1)
    assert len(aws.calls("DescribeInstanceTypes")) == 1  # they never change
    (told,) = fetch(manager, "/api/v1/groups").json()["groups"]
    assert (told["id"], told["target_size"]) == ("web", 2)
