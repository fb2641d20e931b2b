"""The node groups file: Escalator's form, so that a file of Escalator's loads as it is.

node_groups:
- name: shared
  label_key: customer
  label_value: shared
  cloud_provider_group_name: shared-nodes
  min_nodes: 1                     # both bounds 0 or absent: the cloud's own
  max_nodes: 30
  policy: pending-pods             # or utilization (as Escalator scales; the default), or both
  mode: recommend                  # observe | recommend | enforce; never more than --autoscaling-mode
  provider: simulated              # --cloud-provider where it is not given
  compat: headroom                 # or escalator: its peculiarities as they are

Escalator's further keys have Escalator's meaning. Keys that nobody knows are passed by with a warning, as Escalator's
own samples carry some that have died. Scale-up for pending pods is about the groups whose policy says so.
"""

import enum
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta

from manager.autoscaler.cloudprovider.ownership import SizeBounds
from manager.autoscaler.modes import Mode
from shared import yaml_file
from shared.errors import InvalidInput

logger = logging.getLogger(__name__)

Size = Annotated[int, Meta(ge=0, lt=1_000_000_000)]


class Policy(enum.StrEnum):
    """What moves a group: how full its nodes are, pods that find no place, or both."""

    UTILIZATION = "utilization"
    PENDING_PODS = "pending-pods"
    BOTH = "both"


class Compat(enum.StrEnum):
    HEADROOM = "headroom"
    ESCALATOR = "escalator"


class AwsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Escalator's, of AWS."""

    launch_template_id: str = ""
    launch_template_version: str = ""
    fleet_instance_ready_timeout: str = ""
    lifecycle: str = ""
    instance_type_overrides: tuple[str, ...] = ()
    resource_tagging: bool = False


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One group, in the words of the file. Durations are texts, which the rules of utilisation are to read."""

    name: str = ""
    label_key: str = ""
    label_value: str = ""
    cloud_provider_group_name: str = ""
    min_nodes: Size = 0
    max_nodes: Size = 0
    dry_mode: bool = False
    scale_on_starve: bool = False
    taint_upper_capacity_threshold_percent: int = 0
    taint_lower_capacity_threshold_percent: int = 0
    scale_up_threshold_percent: int = 0
    slow_node_removal_rate: int = 0
    fast_node_removal_rate: int = 0
    soft_delete_grace_period: str = ""
    hard_delete_grace_period: str = ""
    scale_up_cool_down_period: str = ""
    taint_effect: str = ""
    max_node_age: str = ""
    unhealthy_node_grace_period: str = ""
    health_check_newest_nodes_percent: int = 0
    max_unhealthy_nodes_percent: int = 0
    aws: AwsOptions = AwsOptions()

    policy: Policy = Policy.UTILIZATION
    mode: Mode = Mode.ENFORCE
    provider: str = ""
    compat: Compat = Compat.HEADROOM

    @property
    def takes_pending_pods(self) -> bool:
        """Whether scale-up is about it."""
        return self.policy is not Policy.UTILIZATION

    @property
    def bounds(self) -> SizeBounds | None:
        """None leaves them to the cloud."""
        return SizeBounds(self.min_nodes, self.max_nodes) if self.min_nodes or self.max_nodes else None

    @property
    def effective_mode(self) -> Mode:
        """Escalator's dry mode does nothing, and tells what it would do."""
        return Mode.RECOMMEND if self.dry_mode and self.mode is Mode.ENFORCE else self.mode


def load(path: Path, *, provider: str = "") -> tuple[NodeGroup, ...]:
    """All groups of the file; `provider` is the one there is. Raises InvalidInput naming file, group and field."""
    try:
        # Of several documents Escalator reads the first.
        document = yaml_file.parse(path.read_text(encoding="utf-8"), lambda text: next(yaml.safe_load_all(text), None))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput(source=str(path), field="(document)", value=path.name, problem=str(error)) from error
    listed = document.get("node_groups") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise InvalidInput(source=str(path), field="node_groups", value=listed, problem="expected a list of groups")
    _warn_of(document or {}, {"node_groups"}, str(path))
    groups = tuple(_group(each, position, path) for position, each in enumerate(listed))
    for problem in _problems(groups, path, provider):
        raise problem
    return groups


def _group(given: dict[str, Any], position: int, path: Path) -> NodeGroup:
    where = f"node_groups[{position}]"
    source = f"{path}: group {given.get('name') or position}"
    _warn_of(given, set(NodeGroup.__struct_fields__), source)
    texts = {field.name for field in msgspec.structs.fields(NodeGroup) if field.type is str}
    # Escalator's YAML reader takes any scalar for a text.
    read = {key: _text(value) if key in texts else value for key, value in given.items()}
    try:
        return msgspec.convert(read, NodeGroup)
    except msgspec.ValidationError as error:
        problem, _, at = str(error).partition(" - at `$.")
        name = at.rstrip("`")
        value = read.get(name.partition(".")[0].partition("[")[0])
        raise InvalidInput(source=source, field=f"{where}.{name}", value=value, problem=problem) from error


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _problems(groups: tuple[NodeGroup, ...], path: Path, provider: str) -> Iterator[InvalidInput]:
    seen: dict[str, set[str]] = {"name": set(), "cloud_provider_group_name": set()}
    for position, group in enumerate(groups):

        def refused(field: str, problem: str, position: int = position, group: NodeGroup = group) -> InvalidInput:
            return InvalidInput(
                source=f"{path}: group {group.name or position}",
                field=f"node_groups[{position}].{field}",
                value=getattr(group, field),
                problem=problem,
            )

        for field, known in seen.items():
            value = getattr(group, field)
            if not value:
                yield refused(field, f"{field} cannot be empty")
            if value in known:
                yield refused(field, "twice")
            known.add(value)
        if group.bounds is not None and group.min_nodes > group.max_nodes:
            yield refused("min_nodes", f"above max_nodes {group.max_nodes}")
        if group.provider and group.provider != provider and group.takes_pending_pods:
            yield refused("provider", f"the cloud provider is {provider}")


def _warn_of(given: dict[str, Any], known: set[str], source: str) -> None:
    for key in given.keys() - known:
        logger.warning("%s: unknown key passed by: %s", source, key)
