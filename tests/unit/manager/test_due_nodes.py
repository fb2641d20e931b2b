"""Which nodes have to go: past their lifetime, drifted or unhealthy; and the texts that say so."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from manager.autoscaler import decision_settings
from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.disruption import due_nodes
from manager.autoscaler.disruption.rules import DisruptionRules, RepairPolicy, parse_repair
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.daemon_settings import DaemonSettings
from shared import durations, settings
from shared.api.core import Node, NodeSpec, Taint
from shared.errors import InvalidInput
from tests.unit.manager import utilized
from tests.unit.manager.objects import NOW

DAY = 86_400.0
D = DisruptionReason
LOST = RepairPolicy("Ready", "Unknown", 1800.0)
LOCKED = RepairPolicy("KernelDeadlock", "True", 60.0)
REPAIRED = DisruptionRules(repairs=(LOST,))


def made(name: str, age_seconds: float = 0.0, **conditions: tuple[str, float]) -> Node:
    """`conditions` give status and time of each."""
    listed = [
        {"type": kind, "status": status, "reason": "Why", "lastTransitionTime": durations.timestamp(NOW - seconds)}
        for kind, (status, seconds) in conditions.items()
    ]
    created = durations.timestamp(NOW - age_seconds)
    raw = {"metadata": {"name": name, "creationTimestamp": created}, "status": {"conditions": listed}}
    return msgspec.convert(raw, Node)


def due(*nodes: Node, lifetime: float = 0.0, drifted: dict[str, str] | None = None, **rules: Any) -> dict[str, D]:
    group_of = {node.metadata.name: "ours" for node in nodes}
    found = due_nodes.find_due(nodes, group_of, {"ours": lifetime}, drifted or {}, DisruptionRules(**rules), NOW)
    return {each.name: each.reason for each in found}


def test_nothing_has_to_go_unless_it_is_asked_for() -> None:
    old = made("a", 900 * DAY, Ready=("Unknown", 9 * DAY), KernelDeadlock=("True", DAY))
    assert due(old, drifted={"a": "another type"}) == {}


def test_a_node_goes_once_it_is_older_than_its_lifetime_and_the_oldest_first() -> None:
    nodes = [made("a", 30 * DAY), made("b", 30 * DAY + 1), made("c", 40 * DAY)]
    assert list(due(*nodes, lifetime=30 * DAY)) == ["c", "b"]
    found = due_nodes.find_due(nodes, {"c": "ours"}, {"ours": 30 * DAY}, {}, DisruptionRules(), NOW)
    assert [(each.name, each.why) for each in found] == [("c", "it is 960h0m0s old, more than 720h0m0s")]


def test_a_node_is_unhealthy_once_its_condition_has_lasted_longer_than_is_tolerated() -> None:
    nodes = [
        made("lost", Ready=("Unknown", 1801)),
        made("young", Ready=("Unknown", 1799)),
        made("down", Ready=("False", 9000)),
        made("locked", Ready=("True", DAY), KernelDeadlock=("True", 61)),
    ]
    assert due(*nodes, repairs=(LOST, LOCKED)) == {"lost": D.UNHEALTHY, "locked": D.UNHEALTHY}
    found = due_nodes.find_due(nodes[:1], {"lost": "g"}, {"g": 0.0}, {}, DisruptionRules(repairs=(LOST,)), NOW)
    assert found[0].why == "its condition Ready is Unknown (Why) for 30m1s, longer than 30m0s"


def test_unhealthy_nodes_come_before_expired_ones_and_these_before_drifted_ones() -> None:
    nodes = [made("drifted", DAY), made("old", 40 * DAY), made("lost", 50 * DAY, Ready=("Unknown", 3600))]
    drifted = {"drifted": "another image", "old": "another image"}
    found = due(*nodes, lifetime=30 * DAY, drifted=drifted, replace_drifted_nodes=True, repairs=(LOST,))
    assert list(found.items()) == [("lost", D.UNHEALTHY), ("old", D.EXPIRED), ("drifted", D.DRIFTED)]


@pytest.mark.parametrize(
    ("key", "asked", "found"),
    [
        ("aws-node-termination-handler/scheduled-maintenance", True, D.INTERRUPTED),
        ("aws-node-termination-handler/rebalance-recommendation", True, D.INTERRUPTED),
        ("aws-node-termination-handler/rebalance-recommendation", False, D.EXPIRED),
        ("aws-node-termination-handler/spot-itn", True, D.EXPIRED),
    ],
)
def test_a_node_is_interrupted_once_the_cloud_announces_what_leaves_time_for_it(
    key: str, asked: bool, found: D
) -> None:
    node = made("a", 40 * DAY)
    node = msgspec.structs.replace(node, spec=NodeSpec(taints=(Taint(key, "x", "NoSchedule"),)))
    assert due(node, lifetime=30 * DAY, replace_interrupted_nodes=asked) == {"a": found}


@pytest.mark.parametrize(
    ("unhealthy", "total", "refused"),
    [(1, 1, False), (1, 5, False), (2, 5, True), (2, 6, False), (20, 100, False), (21, 100, True)],
)
def test_no_node_is_repaired_while_more_than_a_fifth_is_unhealthy(unhealthy: int, total: int, refused: bool) -> None:
    nodes = [made(f"n{number}", Ready=("Unknown" if number < unhealthy else "True", 60)) for number in range(total)]
    found = due_nodes.too_many_unhealthy(nodes, {f"n{number}": "g" for number in range(total)}, REPAIRED)
    assert bool(found) is refused
    if refused:
        expected = f"{unhealthy} of {total} nodes are unhealthy, more than 20 %: something else is wrong"
        assert found == {"g": expected}


def test_one_bad_group_is_left_alone_while_others_are_repaired() -> None:
    sick = [made(f"s{number}", Ready=("Unknown", 60)) for number in range(2)]
    well = [made(f"w{number}", Ready=("True", 60)) for number in range(20)]
    group_of = {node.metadata.name: node.metadata.name[0] for node in (*sick, *well)}
    found = due_nodes.too_many_unhealthy([*sick, *well], group_of, REPAIRED)
    assert found == {"s": "2 of 2 nodes of its group are unhealthy, more than 20 %: something else is wrong"}


def test_a_condition_that_no_node_has_is_named() -> None:
    assert due_nodes.unknown_conditions([made("a", Ready=("True", 60))], (LOST, LOCKED)) == ["KernelDeadlock"]
    assert due_nodes.unknown_conditions([], (LOST,)) == []


def test_a_repair_is_read_from_its_text() -> None:
    assert parse_repair("Ready=Unknown:30m", source="flags", name="r") == LOST
    assert parse_repair("example.com/Disk=False:0s", source="f", name="r") == RepairPolicy(
        "example.com/Disk", "False", 0.0
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Ready", "no condition with status and time"),
        ("Ready=Unknown", "no condition with status and time"),
        ("Ready=Sometimes:5m", "no condition with status and time"),
        ("-Ready=False:5m", "no condition with status and time"),
        ("Ready=False:soon", "'soon' is not a duration"),
        ("Ready=False:-5m", "is not from 0s"),
        ("Ready=False:800h", "is not from 0s to 720h"),
        ("Ready=True:5m", "all nodes in order have this condition"),
    ],
)
def test_a_bad_repair_is_refused_with_field_and_value(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as refused:
        decision_settings.load(AutoscalerSettings(node_repair_conditions=(text,)))
    assert (refused.value.field, refused.value.value) == ("node-repair-conditions", text)


def test_the_same_condition_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Ready=False is given twice"):
        decision_settings.load(AutoscalerSettings(node_repair_conditions=("Ready=False:5m", "Ready=False:6m")))


@pytest.mark.parametrize("text", ["-1h", "90000h", "long"])
def test_a_bad_lifetime_is_refused_by_its_flag(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        settings.load(
            DaemonSettings,
            program="manager",
            description="",
            argv=[f"--max-node-lifetime={text}"],
            environment={},
        )
    assert "max-node-lifetime" in str(refused.value)


@pytest.mark.parametrize(
    "asked",
    [
        {"max_node_lifetime_seconds": 60.0},
        {"replace_drifted_nodes": True},
        {"replace_interrupted_nodes": True},
        {"node_repair_conditions": ("A=True:1m",)},
    ],
)
def test_without_scale_down_nothing_can_go_and_that_is_said(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="needs scale-down"):
        decision_settings.load(AutoscalerSettings(scale_down_enabled=False, **asked))


FILE = """node_groups:
- {name: a, cloud_provider_group_name: asg-a, policy: pending-pods, max_nodes: 5, max_node_age: AGE}
"""


def test_a_group_of_the_file_has_its_own_lifetime(tmp_path: Path) -> None:
    file = tmp_path / "groups.yaml"
    file.write_text(FILE.replace("AGE", "24h"))
    found = decision_settings.load(AutoscalerSettings(node_groups=str(file), max_node_lifetime_seconds=30 * DAY))
    assert found.disruption.lifetime_of("asg-a") == DAY
    assert found.disruption.lifetime_of("another") == 30 * DAY
    assert found.disruption.lifetime_of("asg-a", 7200.0) == 7200.0, "what the cloud says of the group comes first"


BY_GROUP = """node_groups:
- name: a
  cloud_provider_group_name: asg-a
  policy: pending-pods
  max_nodes: 5
  max_node_age: 24h
  replace_drifted_nodes: true
  replace_interrupted_nodes: false
  node_repair_conditions: ["Ready=Unknown:30m"]
  disruption_budgets: ["1", "0;schedule=@daily;duration=1h"]
- {name: b, cloud_provider_group_name: asg-b, policy: pending-pods, max_nodes: 5, node_repair_conditions: []}
- {name: c, cloud_provider_group_name: asg-c, policy: pending-pods, max_nodes: 5}
"""


def by_group(tmp_path: Path, text: str = BY_GROUP, **flags: Any) -> DisruptionRules:
    file = tmp_path / "groups.yaml"
    file.write_text(text)
    return decision_settings.load(AutoscalerSettings(node_groups=str(file), **flags)).disruption


def test_a_group_of_the_file_has_its_own_rules_and_the_flags_are_the_defaults(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"replace_interrupted_nodes": True, "node_repair_conditions": ("KernelDeadlock=True:1m",)}
    found = by_group(tmp_path, **flags)
    a, b, c = (found.of_group(f"asg-{name}") for name in "abc")
    assert (a.max_node_lifetime_seconds, a.replace_drifted_nodes, a.replace_interrupted_nodes, a.repairs) == (
        DAY,
        True,
        False,
        (LOST,),
    )
    assert (b.max_node_lifetime_seconds, b.replace_drifted_nodes, b.replace_interrupted_nodes, b.repairs) == (
        0.0,
        False,
        True,
        (),
    )
    assert (c.replace_interrupted_nodes, c.repairs) == (True, (LOCKED,))
    assert found.replaces_any_drifted
    assert set(found.all_repairs) == {LOST, LOCKED}
    assert {group: [each.text for each in limits] for group, limits in found.limits.own.items()} == {
        "asg-a": ["1", "0;schedule=@daily;duration=1h"]
    }
    assert [each.text for each in found.limits.shared] == ["10%"]


def test_a_node_goes_by_the_rules_of_its_group(tmp_path: Path) -> None:
    rules = by_group(tmp_path)
    nodes = [made("in-a", 60, Ready=("Unknown", 7200)), made("in-b", 60, Ready=("Unknown", 7200)), made("old-c", DAY)]
    group_of = {"in-a": "asg-a", "in-b": "asg-b", "old-c": "asg-c"}
    lifetimes = {group: rules.lifetime_of(group) for group in group_of.values()}
    drifted = dict.fromkeys(group_of, "another image")
    found = due_nodes.find_due(nodes, group_of, lifetimes, drifted, rules, NOW)
    assert [(each.name, each.reason) for each in found] == [("in-a", D.UNHEALTHY)]


def test_groups_without_repairs_do_not_count_when_too_many_nodes_are_unhealthy(tmp_path: Path) -> None:
    rules = by_group(tmp_path)
    sick = [made(f"b{number}", Ready=("Unknown", 60)) for number in range(20)]
    nodes = [*sick, made("a0", Ready=("Unknown", 60)), made("a1", Ready=("True", 60))]
    group_of = {node.metadata.name: f"asg-{node.metadata.name[0]}" for node in nodes}
    assert due_nodes.too_many_unhealthy(nodes, group_of, rules) == {}


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        (('["1", "0;schedule=@daily;duration=1h"]', '["ten"]'), "disruption_budgets", "ten"),
        (('["1", "0;schedule=@daily;duration=1h"]', '["1;schedule=never;duration=1h"]'), "disruption_budgets", None),
        (('["Ready=Unknown:30m"]', '["Ready=Sometimes:1m"]'), "node_repair_conditions", "Ready=Sometimes:1m"),
        (("replace_drifted_nodes: true", "replace_drifted_nodes: perhaps"), "replace_drifted_nodes", "perhaps"),
        (('["Ready=Unknown:30m"]', "Ready=Unknown:30m"), "node_repair_conditions", "Ready=Unknown:30m"),
    ],
)
def test_a_bad_rule_of_a_group_is_refused_with_group_field_and_value(
    tmp_path: Path, change: tuple[str, str], field: str, value: str | None
) -> None:
    with pytest.raises(InvalidInput) as refused:
        by_group(tmp_path, BY_GROUP.replace(*change))
    assert refused.value.source.endswith("group a")
    assert refused.value.field.endswith(field)
    assert value is None or refused.value.value == value


def test_rules_of_a_group_that_scales_by_utilization_are_refused(tmp_path: Path) -> None:
    scanned = {**utilized.VALID, "policy": "both", "replace_drifted_nodes": True}
    with pytest.raises(InvalidInput, match="its nodes leave by utilization: the setting needs policy pending-pods"):
        by_group(tmp_path, yaml.safe_dump({"node_groups": [scanned]}))


def test_rules_of_a_group_need_scale_down_as_flags_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="needs scale-down") as refused:
        by_group(tmp_path, scale_down_enabled=False)
    assert refused.value.value == "asg-a"


@pytest.mark.parametrize("age", ["-1h", "tomorrow"])
def test_a_bad_lifetime_of_the_file_is_refused_with_group_and_field(tmp_path: Path, age: str) -> None:
    file = tmp_path / "groups.yaml"
    file.write_text(FILE.replace("AGE", age))
    with pytest.raises(InvalidInput) as refused:
        decision_settings.load(AutoscalerSettings(node_groups=str(file)))
    assert (refused.value.field, refused.value.value) == ("max_node_age", age)
    assert refused.value.source.endswith("group a")
