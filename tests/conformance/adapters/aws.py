"""AWS as Escalator speaks with it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from manager.autoscaler.cloudprovider.aws import NAME, fleet, groups, messages
from manager.autoscaler.cloudprovider.aws.fleet import FleetStep, Joining
from manager.autoscaler.cloudprovider.aws.messages import Call, Reply, ScalingGroup
from manager.autoscaler.cloudprovider.aws.provider import AwsProvider
from manager.autoscaler.cloudprovider.contract import NodeRef
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, ProviderError, Refused
from manager.autoscaler.cloudprovider.plugin import ManagedGroups
from shared.clock import ManualClock
from shared.errors import InvalidInput
from tests.conformance.matching import Holds

Input = dict[str, Any]  # a row's input, JSON of the row's own making

GROUP, ZONE = "asg", "us-east-1b"
LAUNCHED = "2026-01-01T00:00:00Z"
READY_SECONDS = 60.0


def attach_instances(row: Input) -> object:
    attached = row.get("attach_calls_ok", 0)
    order = [Joining(f"i-{number}", GROUP, "order", running=row["ready"]) for number in range(row["instances"])]
    found = [each.id for each in order]
    if fleet.next_step(order, READY_SECONDS, READY_SECONDS) is FleetStep.GIVE_UP:
        return {"terminated": len(found), "error": True}
    calls: list[Sequence[str]] = []

    def attach(batch: Sequence[str]) -> None:
        calls.append(batch)
        if len(calls) > attached:
            raise Refused(NAME, GROUP, "no")

    result = fleet.attach_instances(found, attach)
    return {"terminated": len(result.orphans), "error": result.error is not None}


def create_fleet(row: Input) -> object:
    errors = [{"ErrorCode": "code", "ErrorMessage": row.get("message", "error message")}] * row["errors"]
    instances = [{"InstanceIds": [f"i-{number}"]} for number in range(row["instances"])]
    made = messages.read(Call.CREATE_FLEET, {"Instances": instances, "Errors": errors})
    return _error_of(lambda: list(fleet.batches(made.launched(GROUP), fleet.ATTACHED_AT_ONCE)))


def decrease_size(row: Input) -> object:
    return _error_of(lambda: groups.lowered_size(GROUP, row["delta"], target=row["desired"], least=row["min"]))


def delete_nodes(row: Input) -> object:
    refusal = row.get("api_error")

    def ask(call: Call, _: str = "", /, **request: object) -> Reply:
        if call is Call.TERMINATE_IN_GROUP and refusal is not None:
            raise Refused(NAME, GROUP, refusal)
        return {"AutoScalingGroups": [_group(row)]} if call is Call.DESCRIBE_GROUPS else {}

    provider = AwsProvider(ask, ManagedGroups([GROUP]), ManualClock())
    provider.refresh()
    nodes = [NodeRef(each, groups.provider_id(ZONE, each)) for each in row["delete"]]
    found = _error_of(lambda: provider.delete_nodes(GROUP, nodes))
    error = found["error"]
    if error is not None and "belongs in a different node group" in error:  # whatever node and group are called there
        return {"error": Holds(lambda said: "belongs in a different node group" in str(said))}
    return found


def get_instance(row: Input) -> object:
    refusals = [row[key] for key in ("api_error", "describe_error") if key in row]
    instances = [{"InstanceId": "abc123", "LaunchTime": LAUNCHED}] * row.get("instances", 0)
    reservations = [{"Instances": instances}] * row.get("reservations", 0)

    def ask(_: Call, __: str = "", /, **request: object) -> Reply:
        if refusals:
            raise Refused(NAME, "", refusals[0])
        return {"Reservations": reservations}

    provider = AwsProvider(ask, ManagedGroups(), ManualClock())
    node = NodeRef("n", row.get("provider_id", groups.provider_id(ZONE, "abc123")))
    try:
        provider.launched_at(node)
    except InvalidInput as error:
        return {"error": f"failed to get instance ID from provider ID: {error.problem}"}
    except InvalidAnswer as error:
        problem = error.problem  # names field and value first
        return {"error": Holds(lambda said: problem.endswith(f": {said}"))}
    except ProviderError as error:
        return {"error": error.problem}
    return {"error": None}


def increase_size(row: Input) -> object:
    return _error_of(lambda: groups.raised_size(GROUP, row["delta"], target=row["desired"], most=row["max"]))


def provider_id(row: Input) -> object:
    if "provider_id" not in row:
        (zone,) = (value for key, value in row.items() if "zone" in key or key == "az")
        (instance,) = (value for key, value in row.items() if "instance" in key or key == "id")
        return groups.provider_id(zone, instance)
    try:
        return groups.instance_id(row["provider_id"])
    except InvalidInput as error:
        return {"error": error.problem}


def register_groups(row: Input) -> object:
    names, refusal = row.get("returned", ()), row.get("describe_error")

    def ask(_: Call, __: str = "", /, **request: object) -> Reply:
        if refusal is not None:
            raise Refused(NAME, "", refusal)
        return {"AutoScalingGroups": [_group({"min": 0, "desired": 0}, name) for name in names]}

    try:
        return {"registered": list(groups.describe_groups(ask, row["requested"], ()))}
    except ProviderError as error:
        return {"registered": [], "error": error.problem}


def template_overrides(row: Input) -> object:
    group, subnets_of_group = None, row.get("vpc_zone_identifier", "")
    kinds = row.get("instance_type_overrides") or ()
    if row.get("asgs", 1):
        told = {**_group({"min": 0, "desired": 0}), "VPCZoneIdentifier": subnets_of_group}
        group = msgspec.convert(told, ScalingGroup)
    try:
        found = fleet.overrides(group, kinds)
    except Refused as error:
        return {"error": error.problem}
    if not any(kind for _, kind in found):  # subnets alone, however they are written
        subnets = [subnet for subnet, _ in found]
        return {"overrides": Holds(lambda said: [each for each in _flat(said) if each] == subnets)}
    return {"overrides": [[subnet, kind] for subnet, kind in found]}


def _group(row: Input, name: str = GROUP) -> Input:
    members = [
        {"InstanceId": each, "AvailabilityZone": ZONE, "LifecycleState": "InService"} for each in row.get("members", ())
    ]
    sizes_ = {"MinSize": row["min"], "MaxSize": 10, "DesiredCapacity": row["desired"]}
    return {"AutoScalingGroupName": name, **sizes_, "Instances": members}


def _flat(said: object) -> Iterator[object]:
    if isinstance(said, list):
        for each in said:
            yield from _flat(each)
    else:
        yield said


def _error_of(work: Callable[[], object]) -> dict[str, str | None]:
    try:
        work()
    except ProviderError as error:
        return {"error": error.problem}
    return {"error": None}


ADAPTERS = {
    "aws_attach_instances": attach_instances,
    "aws_create_fleet": create_fleet,
    "aws_decrease_size": decrease_size,
    "aws_delete_nodes": delete_nodes,
    "aws_get_instance": get_instance,
    "aws_increase_size": increase_size,
    "aws_provider_id": provider_id,
    "aws_register_groups": register_groups,
    "aws_template_overrides": template_overrides,
}
