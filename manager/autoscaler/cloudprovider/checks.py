"""Checks a cloud's answers for plausibility.

Pure; implausible answers are refused by group and field, and never acted on.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from manager.autoscaler.cloudprovider.contract import Created, Group, GroupOptions, Instance, InstanceState
from manager.autoscaler.cloudprovider.errors import InvalidAnswer
from shared import names, quantity
from shared.api.core import Node
from shared.quantity import QuantityError

Refusals = dict[str, InvalidAnswer]

MOST_NODES = 20_000  # in one group: no cloud has so many, and each expected node costs memory and time
_SHARES = ("scale_down_utilization_threshold", "scale_down_gpu_utilization_threshold")


def listing(provider: str, groups: Sequence[Group]) -> Refusals:
    """The groups with implausible values. Raises InvalidAnswer for a group without an id."""
    refused: Refusals = {}
    count = Counter(group.id for group in groups)
    for group in groups:
        if not group.id:
            raise InvalidAnswer(provider, "", "groups.id", group.id, "a group without an id")
        found = next(_of_group(provider, group), None)
        if count[group.id] > 1:
            found = InvalidAnswer(provider, group.id, "id", group.id, f"listed {count[group.id]} times")
        if found is not None:
            refused[group.id] = found
    return refused


def _of_group(provider: str, group: Group) -> Iterator[InvalidAnswer]:
    def no(field: str, value: int, problem: str) -> InvalidAnswer:
        return InvalidAnswer(provider, group.id, field, value, problem)

    for field, value in (
        ("min_size", group.min_size),
        ("max_size", group.max_size),
        ("target_size", group.target_size),
    ):
        if value < 0:
            yield no(field, value, "must not be negative")
    if group.target_size > MOST_NODES:
        yield no("target_size", group.target_size, f"a group has at most {MOST_NODES} nodes")
    if group.min_size > group.max_size:
        yield no("min_size", group.min_size, f"above max_size {group.max_size}")


def membership(provider: str, groups: Mapping[str, Group], instances: Mapping[str, Sequence[Instance]]) -> Refusals:
    """The groups whose instances are implausible, alone or compared with other groups.

    A target above the maximum is accepted as far as instances exist for it: the maximum may have been lowered since.
    """
    refused: Refusals = {}
    owners: dict[str, str] = {}
    for group, members in instances.items():
        if len(members) > MOST_NODES:
            problem = f"a group has at most {MOST_NODES} nodes"
            refused[group] = InvalidAnswer(provider, group, "instances", len(members), problem)
            continue
        for position, member in enumerate(members):
            field = f"instances[{position}].provider_id"
            if not member.provider_id:
                refused.setdefault(group, InvalidAnswer(provider, group, field, "", "an instance without an id"))
                continue
            owner = owners.get(member.provider_id)
            if owner is None:
                owners[member.provider_id] = group
                continue
            problem = "listed twice" if owner == group else f"in group {owner}, too"
            for each in (owner, group):
                refused.setdefault(each, InvalidAnswer(provider, each, field, member.provider_id, problem))
        target, most = groups[group].target_size, groups[group].max_size
        staying = sum(member.state is not InstanceState.DELETING for member in members)
        if target > max(most, staying):
            problem = f"above max_size {most}, with {staying} instances"
            refused.setdefault(group, InvalidAnswer(provider, group, "target_size", target, problem))
    return refused


def options(provider: str, group: str, given: GroupOptions) -> None:
    """Raises InvalidAnswer."""
    for field in dataclasses.fields(given):
        value = getattr(given, field.name)
        if value is None or isinstance(value, bool):
            continue
        if not math.isfinite(value) or value < 0:
            raise InvalidAnswer(provider, group, f"options.{field.name}", value, "must be a number of at least 0")
        if field.name == "max_node_provision_time_seconds" and value == 0:
            raise InvalidAnswer(provider, group, f"options.{field.name}", value, "must be above 0")
        if field.name in _SHARES and value > 1:
            raise InvalidAnswer(provider, group, f"options.{field.name}", value, "must be at most 1")


def atomic(provider: str, group: Group, given: GroupOptions) -> None:
    """Raises InvalidAnswer for a group that would at once have more nodes than any group may."""
    if given.zero_or_max_node_scaling and group.max_size > MOST_NODES:
        problem = f"a group has at most {MOST_NODES} nodes, and this one scales all of them at once"
        raise InvalidAnswer(provider, group.id, "max_size", group.max_size, problem)


def template(provider: str, group: str, node: Node) -> None:
    """Raises InvalidAnswer for a Node on which nothing could run, or with invalid amounts."""
    for part, amounts in (("capacity", node.status.capacity or {}), ("allocatable", node.status.allocatable or {})):
        for resource, text in amounts.items():
            try:
                negative = quantity.milli(text) < 0
            except QuantityError as error:
                raise InvalidAnswer(provider, group, f"template.{part}[{resource}]", text, str(error)) from error
            if negative:
                raise InvalidAnswer(provider, group, f"template.{part}[{resource}]", text, "negative")
        for resource in (names.CPU, names.MEMORY):
            if quantity.milli(amounts.get(resource, 0)) <= 0:
                problem = "must be above 0"
                raise InvalidAnswer(provider, group, f"template.{part}[{resource}]", amounts.get(resource), problem)


def check_created(provider: str, given: Created, *, prefix: str, existing: Mapping[str, object]) -> None:
    """Raises InvalidAnswer for a created group that is not ours, existed before, comes twice, or is not empty."""
    made = (given.main, *given.extras)
    if len({group.id for group in made}) < len(made):
        raise InvalidAnswer(provider, given.main.id, "id", [group.id for group in made], "created twice")
    for group in made:
        found = next(_of_group(provider, group), None)
        if found is not None:
            raise found
        if not group.id.rpartition("/")[2].startswith(prefix):
            raise InvalidAnswer(
                provider, group.id, "id", group.id, f"a created group's name must begin with {prefix!r}"
            )
        if group.id in existing:
            raise InvalidAnswer(provider, group.id, "id", group.id, "a created group must not exist already")
        if group.target_size != 0:
            raise InvalidAnswer(provider, group.id, "target_size", group.target_size, "a created group must be empty")
        if not group.autoprovisioned:
            raise InvalidAnswer(provider, group.id, "autoprovisioned", False, "a created group must be autoprovisioned")
