"""What a cloud has announced for a node, as others write it into the Node."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from manager.autoscaler.settings.estimates import TaintRules
from manager.autoscaler.snapshot import interruptions
from manager.autoscaler.snapshot.cluster import NodeState, StateRules, node_info, node_state
from manager.autoscaler.snapshot.interruptions import Interruption, InterruptionKind, read_interruption
from manager.autoscaler.snapshot.templates import sanitise
from shared.api.core import Node
from tests.unit.manager.objects import NOW

K = InterruptionKind
NTH = "aws-node-termination-handler/"
GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "renew-nodes.md"


def made(*taints: dict[str, Any], conditions: tuple[dict[str, Any], ...] = (), **spec: Any) -> Node:
    ready = {"type": "Ready", "status": "True"}
    raw = {
        "metadata": {"name": "a"},
        "spec": {"taints": list(taints), **spec},
        "status": {"conditions": [ready, *conditions]},
    }
    return msgspec.convert(raw, Node)


def event(message: str, kind: str = "VMEventScheduled", status: str = "True") -> Node:
    return made(conditions=({"type": kind, "status": status, "reason": kind, "message": message},))


def kind_of(node: Node) -> InterruptionKind | None:
    found = read_interruption(node)
    return None if found is None else found.kind


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (f"{NTH}spot-itn", K.SPOT),
        (f"{NTH}asg-lifecycle-termination", K.TERMINATION),
        (f"{NTH}scheduled-maintenance", K.MAINTENANCE),
        (f"{NTH}rebalance-recommendation", K.REBALANCE),
        ("cloud.google.com/impending-node-termination", K.TERMINATION),
        ("karpenter.sh/disrupted", K.TERMINATION),
        (f"{NTH}another", None),
        ("node.kubernetes.io/unschedulable", None),
    ],
)
def test_a_taint_tells_of_it_by_its_key(key: str, kind: InterruptionKind | None) -> None:
    assert kind_of(made({"key": key, "effect": "NoSchedule"})) is kind


@pytest.mark.parametrize(
    "odd",
    [
        {"value": "c3BvdC1pdG4t" * 5},
        {"value": ""},
        {"effect": "NoExecute"},
        {"effect": ""},
        {"timeAdded": None},
        {"timeAdded": "yesterday"},
        {"timeAdded": "9999-99-99T00:00:00Z"},
    ],
)
def test_value_effect_and_time_of_a_taint_do_not_matter(odd: dict[str, Any]) -> None:
    found = read_interruption(made({"key": f"{NTH}spot-itn", "effect": "NoSchedule", **odd}))
    assert found == Interruption(K.SPOT, f"taint {NTH}spot-itn")


def test_a_time_that_can_be_read_is_told() -> None:
    found = read_interruption(made({"key": f"{NTH}rebalance-recommendation", "timeAdded": "2026-08-03T08:17:37Z"}))
    assert found is not None
    assert found.since == 1785745057.0
    assert str(found) == "RebalanceRecommendation (taint aws-node-termination-handler/rebalance-recommendation)"


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        (event("Preempt Scheduled: Mon, 03 Aug 2026 08:18:16 GMT. DurationInSeconds: -1."), K.SPOT),
        (event("Preempt Started: ."), K.SPOT),
        (event("Terminate Scheduled: soon"), K.TERMINATION),
        (event("Redeploy Scheduled: soon"), K.MAINTENANCE),
        (event("Reboot Scheduled: soon"), K.MAINTENANCE),
        (event("Freeze Scheduled: soon"), None),
        (event("IMDS unavailable"), None),
        (event(""), None),
        (event("\x00\n"), None),
        (event("VM has no scheduled event", status="False"), None),
        (event("Preempt Scheduled: soon", status="Unknown"), None),
        (event("Preempt Scheduled: unknown", "PreemptionScheduled"), K.SPOT),
        (event("", "PreemptionScheduled"), K.SPOT),
        (event("SpotRebalanceRecommendation Advisory: soon", "PreemptionScheduled"), K.REBALANCE),
        (event("", "PreemptScheduled"), K.SPOT),
        (event("", "TerminateScheduled"), K.TERMINATION),
        (event("", "RedeployScheduled"), K.MAINTENANCE),
        (event("", "RebootScheduled"), K.MAINTENANCE),
        (event("", "FreezeScheduled"), None),
    ],
)
def test_a_condition_of_aks_tells_of_it_by_the_event_in_its_message(node: Node, kind: InterruptionKind | None) -> None:
    assert kind_of(node) is kind


def test_of_several_the_most_urgent_counts() -> None:
    keys = [f"{NTH}{each}" for each in ("rebalance-recommendation", "scheduled-maintenance", "spot-itn")]
    assert kind_of(made(*({"key": key} for key in keys))) is K.SPOT
    assert kind_of(made(*({"key": key} for key in keys[:2]))) is K.MAINTENANCE


def test_only_what_takes_the_node_within_minutes_closes_it_for_pods() -> None:
    rules = StateRules(NOW)
    gone = {"key": f"{NTH}spot-itn", "effect": "PreferNoSchedule"}
    assert node_state(made(gone), rules) is NodeState.INTERRUPTED
    assert node_state(made(gone, unschedulable=True), rules) is NodeState.INTERRUPTED
    assert node_state(made({"key": "ToBeDeletedByClusterAutoscaler"}, gone), rules) is NodeState.TO_BE_DELETED
    assert node_state(made({"key": f"{NTH}rebalance-recommendation"}), rules) is NodeState.READY
    assert node_state(event("Preempt Scheduled: soon"), rules) is NodeState.INTERRUPTED


def test_new_nodes_of_the_group_carry_none_of_these_taints() -> None:
    own = {"key": "team", "value": "web", "effect": "NoSchedule"}
    found = node_info(made(own, *({"key": key} for key in interruptions.TAINTS)), NodeState.READY)
    assert [taint.key for taint in sanitise("g", found, TaintRules()).taints] == ["team"]


def test_the_guide_names_each_taint_and_condition() -> None:
    named = set(re.findall(r"`([^`\s]+)`", GUIDE.read_text()))
    assert {*interruptions.TAINTS, *interruptions.CONDITIONS} <= named
    assert {kind.value for kind in InterruptionKind} <= named
