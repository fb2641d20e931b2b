"""What the node side tells the autoscaler of Mid and Batch that is yet to come."""

import json
from typing import Any

from manager import configuration
from manager.configuration import Configuration
from manager.lending import Lending
from manager.noderesource import explain, report
from manager.noderesource.explain import Decision
from manager.settings import ManagerSettings
from shared import names
from shared.api.core import ConfigMap, Node
from shared.clock import ManualClock
from shared.names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, Tier
from tests.unit.manager.objects import GIB, NOW, metric, node
from tests.unit.manager.test_decisions import Known

# Half of what a node has may be reclaimed.
STRATEGY = {"enable": True, "cpuReclaimThresholdPercent": 50, "memoryReclaimThresholdPercent": 50}
OLD, YOUNG = NOW - 86_400, NOW - 30


class Side:
    """A node side that has looked at what it was told."""

    def __init__(self, strategy: dict[str, Any] | None = None, **settings: Any) -> None:
        config_map = ConfigMap(data={names.CONFIG_KEY_COLOCATION: json.dumps(strategy or STRATEGY)})
        self.known = Known(configuration.after(Configuration(), config_map, source="cm"))
        self.decision: Decision | None = None
        chosen = ManagerSettings(**settings)
        self.lending = Lending(self.known, lambda _: self.decision, chosen, ManualClock(NOW))

    def reports(self, of: Node, cpu: str) -> None:
        """An agent says what can be reclaimed, and a decision is made of it."""
        self.known.reported = report.read(metric(reclaimable={"cpu": cpu, "memory": "1Gi"}))
        strategy = self.known.configuration.strategy(of)
        self.decision = explain.decide(of, self.known.reported, explain.Known(), strategy, NOW, tiers=[Tier.MID])


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
    strategy = side.known.configuration.strategy(young)
    side.decision = explain.decide(young, None, explain.Known(), strategy, NOW)
    assert side.lending.expected([young]) == {"n1": {BATCH_CPU: 5000, BATCH_MEMORY: 50 * GIB}}
    assert side.lending.expected([old]) == {}


def test_a_node_nobody_has_looked_at_yet_is_left_alone() -> None:
    assert Side().lending.expected([node(created_at=OLD)]) == {}
