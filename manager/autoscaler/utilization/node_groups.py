"""The node groups file, in Escalator's form, so that an Escalator file loads unchanged.

node_groups:
- name: shared
  label_key: customer
  label_value: shared
  cloud_provider_group_name: shared-nodes
  min_nodes: 1                     # both bounds 0 or absent: the cloud's own
  max_nodes: 30
  policy: pending-pods             # or utilization (as Escalator scales; the default), or both
  mode: recommend                  # observe | recommend | enforce; never more than --autoscaling-mode
  compat: headroom                 # or escalator: Escalator's own defaults

  predicted_peaks: prod            # or off (the default), or prod-and-mid: predicted peaks count as utilization, too
  drain_before_termination: true   # past the hard deadline pods are evicted first (false), for as long again as that
                                   # deadline; after that the node goes, even with pods that budgets protect
  balance_zones: true              # nodes leave the zone that has most of them first, instead of the oldest (false)

  # Of a group of policy pending-pods:
  max_node_age: 720h               # in place of --max-node-lifetime
  replace_drifted_nodes: true      # in place of --replace-drifted-nodes
  replace_interrupted_nodes: true  # in place of --replace-interrupted-nodes
  node_repair_conditions: ["Ready=Unknown:30m"]    # in place of --node-repair-conditions; [] for none
  disruption_budgets: ["1", "0;schedule=@daily;duration=1h"]    # of its nodes, in place of --disruption-budgets

Escalator's further keys have Escalator's meaning, and are read as Escalator reads them: from JSON or the first document
of YAML, in upper or lower case, any scalar as a text, and a key without a value as absent. Unknown keys are ignored
with a warning, as Escalator's own samples contain obsolete ones. Scale-up for pending pods considers the groups whose
policy includes it. In a group of policy both, min_nodes and max_nodes replace the cloud's bounds for either way to
grow; its nodes leave by the rules of utilization alone.

`problems` checks what `utilization` needs of a group, in Escalator's words.
"""

import enum
import json
import logging
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta

from manager.autoscaler.cloudprovider import plugin
from manager.autoscaler.cloudprovider.ownership import SizeBounds
from manager.autoscaler.cloudprovider.plugin import ProviderGroupOptions
from manager.autoscaler.settings.modes import Mode
from shared import durations, yaml_file
from shared.errors import InvalidInput, gone

logger = logging.getLogger(__name__)

Size = Annotated[int, Meta(lt=1_000_000_000)]

TAINT_EFFECTS = ("", "NoSchedule", "NoExecute", "PreferNoSchedule")

OWN_OPTIONS = "own_options"  # the field that no key of the file fills
REMOVED = {"provider": "All groups are of --cloud-provider, so remove the key."}
_UNPARSED = "{} failed to parse into a time.Duration. check your formatting."


class ScalingPolicy(enum.StrEnum):
    """What scales a group: the utilization of its nodes, unschedulable pods, or both."""

    UTILIZATION = "utilization"
    PENDING_PODS = "pending-pods"
    BOTH = "both"


class Compat(enum.StrEnum):
    HEADROOM = "headroom"
    ESCALATOR = "escalator"


class PredictedPeaks(enum.StrEnum):
    """Whether predicted peaks count as the group's utilization where they exceed its requests."""

    OFF = "off"
    PROD = "prod"
    PROD_AND_MID = "prod-and-mid"


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One group, in the words of the file. Durations are texts, which the utilization rules parse.

    `own_options` are those of cloud providers, by the provider's name, under which the file has them; without those
    that are all defaults. None, or "" for a duration that older Escalator versions do not know, means the default under
    `compat`.
    """

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
    own_options: dict[str, ProviderGroupOptions] = {}
    exclude_unavailable_node_pods: bool | None = None
    scale_down_cool_down_period: str = ""
    untaint_grace_period: str = ""
    scale_up_failure_threshold: Annotated[int, Meta(ge=0)] | None = None

    predicted_peaks: PredictedPeaks = PredictedPeaks.OFF
    replace_drifted_nodes: bool | None = None
    replace_interrupted_nodes: bool | None = None
    node_repair_conditions: tuple[str, ...] | None = None
    disruption_budgets: tuple[str, ...] | None = None
    drain_before_termination: bool = False
    balance_zones: bool = False
    policy: ScalingPolicy = ScalingPolicy.UTILIZATION
    mode: Mode = Mode.ENFORCE
    compat: Compat = Compat.HEADROOM

    @property
    def takes_pending_pods(self) -> bool:
        """Whether the group scales up for pending pods."""
        return self.policy is not ScalingPolicy.UTILIZATION

    @property
    def is_scanned(self) -> bool:
        """Whether the group scales by utilization."""
        return self.policy is not ScalingPolicy.PENDING_PODS

    @property
    def bounds(self) -> SizeBounds | None:
        """None leaves the bounds to the cloud."""
        return SizeBounds(self.min_nodes, self.max_nodes) if self.min_nodes or self.max_nodes else None

    @property
    def effective_mode(self) -> Mode:
        """Escalator's dry mode changes nothing, and reports what it would do."""
        return Mode.RECOMMEND if self.dry_mode and self.mode is Mode.ENFORCE else self.mode


def load(path: Path) -> tuple[NodeGroup, ...]:
    """All groups of the file. Raises InvalidInput that names file, group and field."""
    source = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(source=source, field="(document)", value=path.name, problem=str(error)) from error
    groups = decode(text, source)
    for problem in _refusals(groups, source):
        raise problem
    return groups


def decode(text: str, source: str) -> tuple[NodeGroup, ...]:
    """The groups of a text, unchecked. Raises InvalidInput for another form."""
    try:
        document = _first_document(text)
    except yaml.YAMLError as error:
        raise InvalidInput(source=source, field="(document)", value=text, problem=str(error)) from error
    document = _given_options(document, {"node_groups"}) if isinstance(document, dict) else {}
    listed = document.get("node_groups")
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise InvalidInput(source=source, field="node_groups", value=listed, problem="expected a list of groups")
    _warn_of(document, {"node_groups"}, source)
    return tuple(_group(each, position, source) for position, each in enumerate(listed))


def seconds(text: str) -> float:
    """A duration of the file in seconds, 0 if invalid: `problems` judges what that means."""
    return _parsed(text) or 0.0


def problems(group: NodeGroup) -> tuple[str, ...]:
    """All reasons why a group cannot be scaled by utilization, in Escalator's words and order.

    Our rules differ where Escalator's accept what cannot work or reject what can: min_nodes may equal max_nodes, rates
    are not negative, every duration is checked under its own name.
    """
    return tuple(_escalators_problems(group)) + tuple(_our_problems(group))


def _escalators_problems(group: NodeGroup) -> Iterator[str]:
    for field in ("name", "label_key", "label_value", "cloud_provider_group_name"):
        if not getattr(group, field):
            yield f"{field} cannot be empty"
    lower, upper = "taint_lower_capacity_threshold_percent", "taint_upper_capacity_threshold_percent"
    for field in (upper, lower, "scale_up_threshold_percent"):
        if getattr(group, field) <= 0:
            yield f"{field} must be larger than 0"
    if group.taint_lower_capacity_threshold_percent >= group.taint_upper_capacity_threshold_percent:
        yield f"{lower} must be less than {upper}"
    if group.taint_upper_capacity_threshold_percent >= group.scale_up_threshold_percent:
        yield f"{upper} must be less than scale_up_threshold_percent"
    yield from _size_problems(group)
    if group.slow_node_removal_rate > group.fast_node_removal_rate:
        yield "slow_node_removal_rate must be less than fast_node_removal_rate"
    soft, hard = seconds(group.soft_delete_grace_period), seconds(group.hard_delete_grace_period)
    for field in ("soft_delete_grace_period", "hard_delete_grace_period"):
        if not getattr(group, field):
            yield f"{field} must not be empty"
    for field, found in (("soft_delete_grace_period", soft), ("hard_delete_grace_period", hard)):
        if found <= 0:
            yield _UNPARSED.format(field)
    if soft >= hard:
        yield "soft_delete_grace_period must be less than hard_delete_grace_period"
    if not group.scale_up_cool_down_period:
        yield "scale_up_cool_down_period must not be empty"
    if seconds(group.scale_up_cool_down_period) <= 0:
        yield _UNPARSED.format("scale_up_cool_down_period")
    if group.taint_effect not in TAINT_EFFECTS:
        yield "taint_effect must be valid kubernetes taint"
    for options in group.own_options.values():
        yield from options.problems(as_escalator=group.compat is Compat.ESCALATOR)
    if group.max_node_age and _parsed(group.max_node_age) is None:
        yield (
            "max_node_age failed to parse into a time.Duration. "
            "Set to '0' or '' to disable, or a positive Go duration to enable."
        )
    if group.unhealthy_node_grace_period:
        yield from _health_problems(group)


def _size_problems(group: NodeGroup) -> Iterator[str]:
    if group.bounds is None:
        return
    if group.min_nodes > group.max_nodes or (group.min_nodes == group.max_nodes and group.compat is Compat.ESCALATOR):
        yield "min_nodes must be less than max_nodes"
    if group.max_nodes <= 0:
        yield "max_nodes must be larger than 0"
    if group.min_nodes < 0:
        yield "min_nodes must be not less than 0"


def _health_problems(group: NodeGroup) -> Iterator[str]:
    if seconds(group.unhealthy_node_grace_period) <= 0:
        yield _UNPARSED.format("unhealthy_node_grace_period")
    if group.health_check_newest_nodes_percent <= 0:
        yield "health_check_newest_nodes_percent must be greater than 0"
    if group.health_check_newest_nodes_percent > 100:
        yield "health_check_newest_nodes_percent must be less than or equal to 100"
    if group.max_unhealthy_nodes_percent < 0:
        yield "max_unhealthy_nodes_percent must be greater than or equal to 0"
    if group.max_unhealthy_nodes_percent >= 100:
        yield "max_unhealthy_nodes_percent must be less than 100"


def _our_problems(group: NodeGroup) -> Iterator[str]:
    for field in ("scale_down_cool_down_period", "untaint_grace_period"):
        text = getattr(group, field)
        if text and (_parsed(text) is None or seconds(text) < 0):
            yield _UNPARSED.format(field)
    if group.compat is Compat.ESCALATOR:
        return
    for field in ("slow_node_removal_rate", "fast_node_removal_rate"):
        if getattr(group, field) < 0:
            yield f"{field} must be not less than 0"


def _parsed(text: str) -> float | None:
    try:
        return durations.parse(text)
    except ValueError:
        return None


def _group(given: dict[str, Any], position: int, file: str) -> NodeGroup:
    where = f"node_groups[{position}]"
    source = f"{file}: group {_given_options(given, {'name'}).get('name') or position}"
    read = _as_fields(given, NodeGroup, (*plugin.GROUP.names(), *REMOVED))
    for name in REMOVED.keys() & read.keys():
        raise InvalidInput(source=source, field=f"{where}.{name}", value=read[name], problem=gone(REMOVED[name]))
    kinds = {name: kind for name in plugin.GROUP.names() if name in read and (kind := plugin.find(name).group_options)}
    _warn_of(read, {*NodeGroup.__struct_fields__, *kinds} - {OWN_OPTIONS}, source)
    read.pop(OWN_OPTIONS, None)
    if read.get("predicted_peaks") is False:  # YAML reads an unquoted `off` as false
        read["predicted_peaks"] = PredictedPeaks.OFF.value
    try:
        group = msgspec.convert(read, NodeGroup)
    except msgspec.ValidationError as error:
        problem, _, at = str(error).partition(" - at `$.")
        name = at.rstrip("`")
        value = read.get(name.partition(".")[0].partition("[")[0])
        raise InvalidInput(source=source, field=f"{where}.{name}", value=value, problem=problem) from error
    own = {name: _own_options(kind, read[name], f"{where}.{name}", source) for name, kind in kinds.items()}
    return msgspec.structs.replace(
        group, own_options={name: each for name, each in own.items() if each != kinds[name]()}
    )


def _own_options(kind: type[ProviderGroupOptions], given: object, where: str, source: str) -> ProviderGroupOptions:
    try:
        return msgspec.convert(_as_fields(given, kind) if isinstance(given, dict) else given, kind)
    except msgspec.ValidationError as error:
        problem, _, at = str(error).partition(" - at `$")
        raise InvalidInput(source=source, field=f"{where}{at.rstrip('`')}", value=given, problem=problem) from error


def _first_document(text: str) -> Any:
    """Reads the text as JSON if it begins like JSON and parses. Raises yaml.YAMLError."""
    if text.lstrip().startswith("{"):
        try:
            return json.JSONDecoder().raw_decode(text.lstrip())[0]
        except (ValueError, RecursionError):
            pass
    return next(yaml_file.documents(text), None)


def _given_options(options: dict[Any, Any], fields: Collection[str]) -> dict[Any, Any]:
    """The options that have a value, under the names of the fields; of several spellings the exact one comes last."""
    found = {}
    for key in sorted(options, key=str):
        lowered = key.lower() if isinstance(key, str) else key
        if options[key] is not None:
            found[lowered if lowered in fields else key] = options[key]
    return found


def _as_fields(given: dict[Any, Any], kind: type[msgspec.Struct], more: Collection[str] = ()) -> dict[Any, Any]:
    """Escalator's reader takes any scalar for a text, and 30.0 for an integer."""
    texts = {field.name for field in msgspec.structs.fields(kind) if field.type is str}
    whole = ((key, _whole(value)) for key, value in _given_options(given, {*kind.__struct_fields__, *more}).items())
    return {key: _text(value) if key in texts else value for key, value in whole}


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _refusals(groups: tuple[NodeGroup, ...], file: str) -> Iterator[InvalidInput]:
    seen: dict[str, set[str]] = {"name": set(), "cloud_provider_group_name": set()}
    for position, group in enumerate(groups):

        def refused(field: str, problem: str, position: int = position, group: NodeGroup = group) -> InvalidInput:
            return InvalidInput(
                source=f"{file}: group {group.name or position}",
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
        for field in ("min_nodes", "max_nodes"):
            if getattr(group, field) < 0:
                yield refused(field, "a number of nodes is not negative")
        if group.bounds is not None and group.min_nodes > group.max_nodes:
            yield refused("min_nodes", f"above max_nodes {group.max_nodes}")


def _warn_of(given: dict[str, Any], known: set[str], source: str) -> None:
    for key in given.keys() - known:
        logger.warning("%s: unknown key ignored: %s", source, key)
