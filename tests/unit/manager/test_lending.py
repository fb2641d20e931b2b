"""What the node side tells the autoscaler of Mid and Batch that is yet to come."""

import json
from typing import Any

import msgspec
import pytest

from manager.node_peaks import NodePeaks
from manager.nodeside import policy
from manager.nodeside.lending import TRUSTED_PERCENT, Lending
from manager.nodeside.noderesource import explain, report
from manager.nodeside.noderesource.explain import Decision
from manager.nodeside.noderesource.report import ReportedUsage
from manager.nodeside.policy import ClusterPolicy
from manager.settings import ManagerSettings
from shared import names
from shared.api.core import ConfigMap, Node
from shared.clock import ManualClock
from shared.names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, Tier
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, NOW, metric, node
from tests.unit.manager.test_decisions import Known

# Half of what a node has may be reclaimed.
STRATEGY = {"enable": True, "cpuReclaimThresholdPercent": 50, "memoryReclaimThresholdPercent": 50}
OLD, YOUNG = NOW - 86_400, NOW - 30


class Side:
    """A node side that has looked at what it was told."""

    def __init__(self, strategy: dict[str, Any] | None = None, **settings: Any) -> None:
        config_map = ConfigMap(data={names.CONFIG_KEY_COLOCATION: json.dumps(strategy or STRATEGY)})
        self.known = Known(policy.next_policy(ClusterPolicy(), config_map, source="cm"))
        self.decision: Decision | None = None
        chosen = ManagerSettings(**settings)
        self.lending = Lending(self.known, lambda _: self.decision, chosen, ManualClock(NOW))

    def reports(self, of: Node, cpu: str) -> None:
        """An agent says what can be reclaimed, and a decision is made of it."""
        self.known.reported = report.read(metric(reclaimable={"cpu": cpu, "memory": "1Gi"}))
        strategy = self.known.policy.strategy(of)
        known = explain.Known(self.known.requested(of.metadata.name))
        self.decision = explain.decide(of, self.known.reported, known, strategy, NOW, tiers=[Tier.MID])


def test_what_is_decided_and_not_yet_on_the_node_is_expected() -> None:
    side, there = Side(offers="mid"), node(created_at=OLD)
    side.reports(there, "1500m")
    assert side.lending.expected([there]) == {"n1": {MID_CPU: 1500, MID_MEMORY: GIB}}


def test_of_what_is_on_the_node_already_only_the_difference_is() -> None:
    side, there = Side(offers="mid"), node(created_at=OLD, mid={MID_CPU: "2000", MID_MEMORY: str(GIB)})
    side.reports(there, "1500m")
    assert side.lending.expected([there]) == {"n1": {MID_CPU: -500}}
    side.reports(there, "2")
    assert side.lending.expected([there]) == {}


def test_a_manager_that_writes_nothing_expects_nothing() -> None:
    side, there = Side(offers="mid", dry_run=True), node(created_at=OLD)
    side.reports(there, "1500m")
    assert side.lending.expected([there]) == {}
    assert side.lending.offered_by(there) == {}


def test_a_new_empty_node_offers_its_batch_and_no_mid() -> None:
    assert Side().lending.offered_by(node()) == {BATCH_CPU: 5000, BATCH_MEMORY: 50 * GIB}


def test_where_colocation_is_off_a_new_node_offers_nothing() -> None:
    assert Side({"enable": False}).lending.offered_by(node()) == {}


def test_a_node_whose_agent_is_still_starting_is_expected_to_offer_what_a_new_one_does() -> None:
    side = Side()
    young, old = node(created_at=YOUNG), node(created_at=OLD)
    strategy = side.known.policy.strategy(young)
    side.decision = explain.decide(young, None, explain.Known(), strategy, NOW)
    assert side.lending.expected([young]) == {"n1": {BATCH_CPU: 5000, BATCH_MEMORY: 50 * GIB}}
    assert side.lending.expected([old]) == {}


def test_a_node_nobody_has_looked_at_yet_is_left_alone() -> None:
    assert Side().lending.expected([node(created_at=OLD)]) == {}


def predicted(side: Side, *, age_seconds: float = 0.0, history: int = 80, peak: bool = True) -> None:
    """An agent tells what it has learned of its node."""
    usage = {"koord-mid": Resources(300, GIB), "koord-prod": Resources(700, GIB)}
    side.known.reported = msgspec.structs.replace(
        report.read(metric(age_seconds=age_seconds)),
        peak=Resources(2000, 2 * GIB) if peak else (None, None),
        history_percent=history,
        pods={name: ReportedUsage(name, *each) for name, each in usage.items()},
    )


def test_peaks_are_told_of_nodes_whose_reports_are_fresh_and_have_learned_enough() -> None:
    side, there = Side(), node(created_at=OLD)
    assert side.lending.peaks([there]) is None, "nobody reports"
    predicted(side)
    assert side.lending.peaks([there]) == {"n1": NodePeaks(Resources(2000, 2 * GIB), Resources(300, GIB), NOW)}


@pytest.mark.parametrize("report_of", [{"age_seconds": 86_000.0}, {"history": TRUSTED_PERCENT - 1}, {"peak": False}])
def test_of_a_node_that_reports_nothing_to_be_trusted_no_peak_is_known(report_of: dict[str, Any]) -> None:
    side, there = Side(), node(created_at=OLD)
    predicted(side, **report_of)
    assert side.lending.peaks([there]) == {}


@pytest.mark.parametrize(
    "lacking",
    [{"peak": (2000, None)}, {"peak": (None, GIB)}, {"pods": {"p": ReportedUsage("koord-mid", None, GIB)}}],
)
def test_of_a_node_whose_report_lacks_a_resource_no_peak_is_known(lacking: dict[str, Any]) -> None:
    side, there = Side(), node(created_at=OLD)
    predicted(side)
    assert side.known.reported is not None
    side.known.reported = msgspec.structs.replace(side.known.reported, **lacking)
    assert side.lending.peaks([there]) == {}


def test_a_report_of_the_machine_that_had_the_name_before_says_nothing() -> None:
    side, there = Side(), node(created_at=NOW - 10)
    predicted(side, age_seconds=60.0)
    assert side.lending.peaks([there]) == {}
