"""When nodes must be replaced, and the texts from which that is read."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.disruption.disruption_limits import DisruptionLimits, parse_limits
from manager.autoscaler.utilization.node_groups import NodeGroup, ScalingPolicy
from shared import durations
from shared.errors import InvalidInput

MOST_UNHEALTHY_PERCENT = 20  # of the nodes; beyond that something else is wrong, and no node is repaired (Karpenter's)
MOST_LIFETIME_SECONDS = 10 * 365 * 86_400.0

_CONDITION = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_./]{0,314}[A-Za-z0-9])?)=(True|False|Unknown):(.+)")
_MOST_TOLERATION_SECONDS = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    """A node is unhealthy while its condition of this type has this status, and is repaired once that has lasted for
    more than `toleration_seconds`.
    """

    condition: str
    status: str
    toleration_seconds: float

    def __str__(self) -> str:
        return f"{self.condition}={self.status}"


@dataclass(frozen=True)
class DisruptionRules:
    """What makes nodes go; by default nothing does.

    `groups` has the rules of groups that differ; a `max_node_lifetime_seconds` of 0 is no limit. After `grace_seconds`
    of drain a node is deleted whatever protects its pods; None waits for them. `pause_seconds` lie between the end of
    one replacement and the beginning of the next.
    """

    max_node_lifetime_seconds: float = 0.0
    replace_drifted_nodes: bool = False
    replace_interrupted_nodes: bool = False
    repairs: tuple[RepairPolicy, ...] = ()
    grace_seconds: float | None = None
    limits: DisruptionLimits = field(default_factory=DisruptionLimits)
    pause_seconds: float = 60.0
    groups: Mapping[str, "DisruptionRules"] = field(default_factory=dict)

    def of_group(self, group: str) -> "DisruptionRules":
        return self.groups.get(group, self)

    @property
    def replaces_any_drifted(self) -> bool:
        """Whether drift matters in any group."""
        return self.replace_drifted_nodes or any(each.replace_drifted_nodes for each in self.groups.values())

    @property
    def all_repairs(self) -> tuple[RepairPolicy, ...]:
        """Those of all groups, each once."""
        listed = (*self.repairs, *(policy for each in self.groups.values() for policy in each.repairs))
        return tuple(dict.fromkeys(listed))

    def lifetime_of(self, group: str, own_seconds: float | None = None) -> float:
        """In seconds; `own_seconds` is what the group's cloud says."""
        return self.of_group(group).max_node_lifetime_seconds if own_seconds is None else own_seconds

    def is_any_on(self, lifetime_seconds: float) -> bool:
        """Whether nodes of a group of this lifetime may go for any reason but their price."""
        return any(self.is_on(reason, lifetime_seconds) for reason in DisruptionReason)

    def is_on(self, reason: DisruptionReason, lifetime_seconds: float) -> bool:
        """Whether nodes of a group of this lifetime may go for this reason."""
        match reason:
            case DisruptionReason.EXPIRED:
                return lifetime_seconds > 0
            case DisruptionReason.DRIFTED:
                return self.replace_drifted_nodes
            case DisruptionReason.INTERRUPTED:
                return self.replace_interrupted_nodes
            case DisruptionReason.UNHEALTHY:
                return bool(self.repairs)
            case DisruptionReason.UNDERUTILIZED:
                return False


def parse_repair(text: str, *, source: str, name: str) -> RepairPolicy:
    """Such as "Ready=Unknown:30m". Raises InvalidInput."""

    def refused(problem: str) -> InvalidInput:
        return InvalidInput(source=source, field=name, value=text, problem=problem)

    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        raise refused("it is no condition with status and time, such as Ready=Unknown:30m (True, False or Unknown)")
    try:
        seconds = durations.parse(found[4])
    except ValueError as error:
        raise refused(f"{found[4]!r} is {error}") from error
    if not 0 <= seconds <= _MOST_TOLERATION_SECONDS:
        raise refused(f"{found[4]!r} is not from 0s to {durations.render(_MOST_TOLERATION_SECONDS)}")
    if (found[1], found[3]) == ("Ready", "True"):
        raise refused("all nodes in order have this condition")
    return RepairPolicy(found[1], found[3], seconds)


def parse_repairs(texts: Iterable[str], *, source: str, name: str) -> tuple[RepairPolicy, ...]:
    """One of each condition and status. Raises InvalidInput."""
    found: dict[str, RepairPolicy] = {}
    for text in texts:
        policy = parse_repair(text, source=source, name=name)
        if str(policy) in found:
            raise InvalidInput(source=source, field=name, value=text, problem=f"{policy} is given twice")
        found[str(policy)] = policy
    return tuple(found.values())


def with_groups(rules: DisruptionRules, groups: Iterable[NodeGroup], file: str) -> DisruptionRules:
    """The rules with what the node groups file says of its groups. Raises InvalidInput.

    Groups that scale by utilization have none of these: a scan takes their old nodes, by their own `max_node_age`.
    """
    own, limits = {}, {}
    for each in groups:
        source, group = f"{file}: group {each.name}", each.cloud_provider_group_name
        if each.is_scanned:
            _refuse_own_rules(each, source)
            continue
        found = _own_rules(rules, each, source)
        if found != rules:
            own[group] = found
        if each.disruption_budgets is not None:
            limits[group] = parse_limits(each.disruption_budgets, source=source, name="disruption_budgets")
    return replace(rules, groups=own, limits=replace(rules.limits, own=limits))


def _own_rules(rules: DisruptionRules, group: NodeGroup, source: str) -> DisruptionRules:
    drifted, interrupted = group.replace_drifted_nodes, group.replace_interrupted_nodes
    repairs = group.node_repair_conditions
    return replace(
        rules,
        max_node_lifetime_seconds=_lifetime(group, source) if group.max_node_age else rules.max_node_lifetime_seconds,
        replace_drifted_nodes=rules.replace_drifted_nodes if drifted is None else drifted,
        replace_interrupted_nodes=rules.replace_interrupted_nodes if interrupted is None else interrupted,
        repairs=rules.repairs
        if repairs is None
        else parse_repairs(repairs, source=source, name="node_repair_conditions"),
    )


def _lifetime(group: NodeGroup, source: str) -> float:
    def refused(problem: str) -> InvalidInput:
        return InvalidInput(source=source, field="max_node_age", value=group.max_node_age, problem=problem)

    try:
        seconds = durations.parse(group.max_node_age)
    except ValueError as error:
        raise refused(str(error)) from error
    if not 0 <= seconds <= MOST_LIFETIME_SECONDS:
        raise refused(f"not from 0s to {durations.render(MOST_LIFETIME_SECONDS)}")
    return seconds


def _refuse_own_rules(group: NodeGroup, source: str) -> None:
    for name in ("disruption_budgets", "replace_drifted_nodes", "replace_interrupted_nodes", "node_repair_conditions"):
        value = getattr(group, name)
        if value is not None:
            problem = f"its nodes leave by utilization: the setting needs policy {ScalingPolicy.PENDING_PODS}"
            raise InvalidInput(source=source, field=name, value=value, problem=problem)
