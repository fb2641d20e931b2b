"""The fleet's prior, and whether its promises are kept: no node and no liar has more than one node's say."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from manager.nodeside import fleet as fleets_module
from manager.nodeside import fleet_answers, promises
from manager.nodeside.fleet import DAY_SECONDS, LEAST_OUTCOMES, PRIOR_SECONDS, FleetOverview
from manager.nodeside.fleet_answers import FleetWithdrawal
from manager.nodeside.metrics import FleetCollector
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.promises import KeptPromises, WithdrawalRate
from manager.nodeside.reports import PersistentProblems, ReportedProblem
from manager.pods import PodRecord
from shared.api import predictionprior
from shared.api.nodemetric import Prediction, Promise, PromiseDebt, Shadow, Withdrawal
from shared.api.nodemetric_spec import NodeMetricSpec, WireTail
from shared.api.predictionprior import Prior, Tail
from shared.clock import ManualClock
from shared.errors import InvalidInput
from shared.names import PriorityClass, QoS
from shared.node_kind import NodeKind
from shared.quantity import Resources
from shared.recommendation import ModelRecommendation
from tests.unit.manager.fleets import DAY, Reports, fleet, report
from tests.unit.manager.objects import NOW

WIDE, LIMIT = Tail(0.2, 0.1), predictionprior.LARGEST


def many(count: int, **changes: Any) -> list[NodeReport]:
    return [report(f"n{number}", **changes) for number in range(count)]


class Heard(PersistentProblems):
    """What is wrong at the moment."""

    def __init__(self) -> None:
        super().__init__(None, lambda: True)
        self.said: list[list[str]] = []

    def replace(self, about: str, problems: Iterable[ReportedProblem]) -> None:
        assert about == "predictions"
        self.said.append([f"{one.regarding.kind} {one.reason}: {one.message}" for one in problems])


class World:
    """A fleet with a clock, and who is told of what."""

    def __init__(self, *found: NodeReport, leads: bool = True) -> None:
        self.clock = ManualClock(NOW)
        self.reports = Reports(*found)
        self.heard = Heard()
        self.changed: list[set[str]] = []
        self.fleet = FleetOverview(
            self.reports,
            self.clock,
            is_leader=lambda: leads,
            standing=self.heard,
            changed=lambda names: self.changed.append(set(names)),
        )

    def refresh(self, later_seconds: float = 0, *found: NodeReport) -> Prior | None:
        self.clock.advance(later_seconds)
        if found:
            self.reports.found = list(found)
        self.fleet.refresh()
        return self.fleet.prior


def with_prior(prior: Prior) -> bytes:
    return msgspec.json.encode(NodeMetricSpec(prediction_prior=predictionprior.to_wire(prior)))


def test_what_many_nodes_have_learned_is_sent_to_all_and_no_more_than_hourly() -> None:
    world = World(*many(30))
    prior = world.refresh()
    assert prior is not None
    assert (prior.nodes, prior.by_horizon) == (30, {DAY: (WIDE, WIDE)})
    assert world.changed == [{f"n{number}" for number in range(30)}]
    narrow = {"cpu_tail": WireTail("0.1", "0.05", "28"), "memory_tail": WireTail("0.1", "0.05", "28")}
    assert world.refresh(PRIOR_SECONDS - 1, *many(30, **narrow)) == prior
    again = world.refresh(1)
    assert again is not None
    assert again.by_horizon == {DAY: (Tail(0.1, 0.05), Tail(0.1, 0.05))}
    assert len(world.changed) == 2


def test_a_prior_that_hardly_moved_is_not_sent() -> None:
    world = World(*many(30))
    prior = world.refresh()
    little = WireTail("0.204", "0.1", "28")
    assert world.refresh(2 * PRIOR_SECONDS, *many(30, age_seconds=-2 * PRIOR_SECONDS, cpu_tail=little)) == prior
    assert len(world.changed) == 1


def test_a_small_fleet_keeps_the_built_in_prior_and_sends_nothing() -> None:
    world = World(*many(19))
    assert world.refresh() is None
    assert world.changed == []


def test_nothing_is_pooled_before_all_reports_are_known() -> None:
    world = World(*many(30))
    world.reports.waiting_for = ["nodemetrics"]
    assert world.refresh() is None
    world.reports.waiting_for = []
    assert world.refresh() is not None


def test_after_a_restart_the_newest_prior_that_was_sent_goes_on_whoever_sent_it() -> None:
    old, new = (Prior(30, NOW - age, {DAY: (WIDE, WIDE)}) for age in (7200, 600))
    ahead = Prior(30, NOW + 7200, {DAY: (LIMIT, LIMIT)})
    nodes = [report(f"n{place}", spec=with_prior(one)) for place, one in enumerate((old, old, new, ahead))]
    for leads in (True, False):
        world = World(*nodes, leads=leads)
        assert world.refresh() == new
        assert world.changed == []


def test_a_prior_stays_when_nobody_reports_outcomes_any_more() -> None:
    world = World(*many(30))
    prior = world.refresh()
    assert world.refresh(2 * PRIOR_SECONDS, *many(30, cpu_tail=None, memory_tail=None)) == prior


def test_who_does_not_lead_sends_nothing() -> None:
    world = World(*many(30), leads=False)
    assert world.refresh() is None
    assert [rate.outcomes for rate in world.fleet.rates] == [30 * 672, 30 * 672]


@pytest.mark.parametrize(
    "lie",
    [
        {"cpu_tail": WireTail("1e300", "0.1", "28")},
        {"cpu_tail": WireTail("NaN", "NaN", "28")},
        {"memory_tail": WireTail("0.1", "-1", "28")},
        {"cpu_violation_percent": "101"},
        {"cpu_violation_percent": "-1"},
        {"cpu_lent_percent": "1e9"},
        {"target_violation_percent": "nan"},
        {"outcomes": -1},
        {"peak": {"cpu": "-1"}},
        {"memory_debt": PromiseDebt(1, cause="Bored")},
    ],
)
def test_who_says_what_cannot_be_is_left_out_and_the_rest_of_its_report_holds(lie: dict[str, Any]) -> None:
    liar = report("liar", **lie)
    assert liar.problem is None
    assert liar.promises_problem is not None
    assert "NodeMetric liar: status.prediction.promises[86400]" in str(liar.promises_problem)
    honest = fleet(*many(30))
    told = fleet(*many(30), liar)
    assert (told.prior, told.rates, told.refused_nodes) == (honest.prior, honest.rates, 1)


@pytest.mark.parametrize(
    ("lie", "field"),
    [
        ({"shadows": (Shadow("a"), Shadow("a"))}, "shadows"),
        ({"shadows": tuple(Shadow(str(number)) for number in range(9))}, "shadows"),
        ({"shadows": (Shadow("a", -1),)}, "shadows[a].outcomes"),
        ({"shadows": (Shadow("a", 1, memory_lent_percent="101"),)}, "shadows[a].memoryLentPercent"),
        ({"withdrawals": (Withdrawal(0),)}, "withdrawals[0]"),
        ({"withdrawals": (Withdrawal(DAY, "NaN"),)}, "withdrawals[86400].cpuPercentPerDay"),
    ],
)
def test_shadows_and_withdrawals_that_cannot_be_are_refused_by_name(lie: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        promises.read(Prediction(**lie), source="NodeMetric n")
    assert f"NodeMetric n: status.prediction.{field}" in str(refused.value)


def test_nothing_is_recommended_by_rates_that_are_not_said_or_without_shadows() -> None:
    silent = Prediction(promises=(Promise(DAY, outcomes=672),), shadows=(Shadow("b", 672, "0", "0", "50", "50"),))
    kept = promises.read(silent, source="NodeMetric n")
    told = promises.recommended("a", kept, NodeMetricSpec())
    assert told == ModelRecommendation("a", "Keep a: a has 0 outcomes of the 168 that it takes to judge it.")
    assert promises.recommended("a", promises.KeptPromises(kept.promises), NodeMetricSpec()) is None


def test_outcomes_of_a_node_are_no_more_than_four_weeks_hold() -> None:
    cpu = fleet(*many(10), report("liar", outcomes=10**12, cpu_violation_percent="100")).rates[0]
    assert (cpu.resource, cpu.nodes, cpu.outcomes) == ("cpu", 11, 11 * 672)
    assert cpu.violated_percent == pytest.approx((10 * 3 + 100) / 11)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 100), st.integers(1, 50)), max_size=20))
def test_a_rate_and_a_target_lie_between_those_of_the_nodes(told: list[tuple[int, int, int]]) -> None:
    nodes = [
        report("n", outcomes=many, cpu_violation_percent=str(violated), target_violation_percent=str(target))
        for many, violated, target in told
    ]
    counted = [each for each in told if each[0]]
    for rate in fleets_module.rates(nodes):
        if rate.resource == "cpu":
            assert rate.nodes == len(counted)
            assert min(v for _, v, _ in counted) - 1e-9 <= rate.violated_percent <= max(v for _, v, _ in counted) + 1e-9
            assert min(t for _, _, t in counted) - 1e-9 <= rate.target_percent <= max(t for _, _, t in counted) + 1e-9


def test_reports_of_yesterday_and_nodes_without_a_target_promise_nothing() -> None:
    assert fleet(*many(30, age_seconds=DAY_SECONDS + 1)).rates == ()
    assert fleet(*many(30, target_violation_percent=None)).rates == ()


def test_a_target_missed_by_far_for_a_day_is_said_once_and_once_more_when_that_is_over() -> None:
    world = World(*many(2, age_seconds=-2 * DAY_SECONDS))
    world.refresh()
    world.refresh(DAY_SECONDS - 1)
    assert (world.fleet.alarms, world.heard.said) == ((), [])
    world.refresh(1)
    world.refresh(60)
    (alarm,) = world.fleet.alarms
    assert "promises of cpu for 24 h were broken in 3.00 % of 1344 outcomes of 2 nodes" in alarm
    assert world.heard.said == [[f"ConfigMap PredictionTargetMissed: {alarm}"]]
    world.refresh(60, *many(2, age_seconds=-2 * DAY_SECONDS, cpu_violation_percent="1.9"))
    assert world.heard.said[1:] == [[]]
    assert [rate.is_missed for rate in world.fleet.rates] == [True, False]


def pods(
    requests: list[int], workload: str = "", priority_class: PriorityClass = PriorityClass.PROD
) -> list[PodRecord]:
    return [
        PodRecord(f"ns/{each}", "u", "n", True, priority_class, QoS.LS, 0, Resources(milli, 1), workload=workload)
        for each, milli in enumerate(requests)
    ]


def test_rates_are_told_by_the_kind_of_pods_that_nodes_lend_of() -> None:
    small = [report(f"small{place}", cpu_violation_percent="5") for place in range(2)]
    large = [report(f"large{place}", cpu_violation_percent="0.5") for place in range(2)]
    world = World(*small, *large, report("empty"))
    for one in small:
        world.reports.pods_on[one.name] = [*pods([1000] * 4, "ns/ReplicaSet/web"), *pods([500] * 8)]
    for one in large:
        world.reports.pods_on[one.name] = [*pods([8000, 6000]), *pods([10] * 50, "ns/Job/j", PriorityClass.MID)]
    world.refresh()
    kinds = world.fleet.rates_by_kind
    cpu = {kind: rate for kind, rates in kinds.items() for rate in rates if rate.resource == "cpu"}
    assert {kind: (rate.nodes, rate.violated_percent) for kind, rate in cpu.items()} == {
        NodeKind.REPLICAS: (2, 5.0),
        NodeKind.FEW_LARGE: (2, 0.5),
    }
    assert sorted({row.kind for row in fleet_answers.fleet(world.fleet).kinds if row.resource == "cpu"}) == [
        "few large pods",
        "replicas",
    ]


def test_few_outcomes_raise_no_alarm() -> None:
    world = World(report("n1", outcomes=672, cpu_violation_percent="50", age_seconds=-2 * DAY_SECONDS))
    assert LEAST_OUTCOMES > 672
    world.refresh()
    world.refresh(DAY_SECONDS + 1)
    assert world.fleet.alarms == ()
    assert not world.fleet.rates[0].is_missed


def test_metrics_tell_the_rate_the_target_and_the_prior() -> None:
    registry = CollectorRegistry()
    registry.register(FleetCollector(fleet(*many(30))))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"headroom_manager_prediction_{name}", labels)

    cpu = {"resource": "cpu", "horizon_seconds": "86400"}
    assert (value("outcomes", **cpu), value("target_missed", **cpu)) == (30 * 672, 1)
    assert value("violated_ratio", **cpu) == pytest.approx(0.03)
    assert value("target_ratio", **cpu) == 0.01
    assert value("target_missed", **cpu | {"resource": "memory"}) == 0
    assert (value("prior_nodes"), value("refused_nodes")) == (30, 0)


def test_what_a_node_forgets_is_told_once_and_what_it_had_forgotten_before_is_no_news() -> None:
    told: list[tuple[str, str]] = []
    one, other = report("n1"), report("n2")
    reports = Reports(one, msgspec.structs.replace(other, forgotten="node until then"))
    made = FleetOverview(
        reports,
        ManualClock(NOW),
        is_leader=lambda: True,
        standing=Heard(),
        changed=lambda _: None,
        forgot=lambda name, what: told.append((name, what)),
    )
    made.refresh()
    reports.found[0] = msgspec.structs.replace(one, forgotten="node until now")
    made.refresh()
    made.refresh()
    assert told == [("n1", "node until now")]


def test_withdrawals_of_all_nodes_are_weighed_by_what_is_reclaimable() -> None:
    few, many = (
        msgspec.structs.replace(report(name), reclaimable=Resources(cpu, 1 << 30))
        for name, cpu in (("few", 1000), ("many", 3000))
    )
    thrice = msgspec.structs.replace(
        few, kept=KeptPromises(withdrawals=(WithdrawalRate(DAY, (9.0, 9.0)), WithdrawalRate(28 * DAY, (5.4, 2.0))))
    )
    told = fleet_answers.fleet(fleet(thrice, many)).withdrawal
    assert told == FleetWithdrawal(2, 28 * DAY, 2.4, 2.0)
    assert fleet_answers.fleet(fleet(report("lends nothing"))).withdrawal is None


def test_the_nodes_that_broke_most_for_their_target_are_named_the_worst_first() -> None:
    kept = report("kept", cpu_violation_percent="0.00", memory_violation_percent="0.00")
    strict = report(
        "strict", target_violation_percent="0.1", cpu_violation_percent="0.2", memory_violation_percent="0.5"
    )
    free = report("free", target_violation_percent=None)
    growing = report("ahead", cpu_debt=PromiseDebt(1, cause="Growing"), memory_debt=PromiseDebt(1, cause="Bursting"))
    found = fleet_answers.fleet(fleet(kept, report("usual"), strict, free, growing))
    assert [(one.node, one.resource, one.violation_percent, one.cause) for one in found.worst_nodes] == [
        ("strict", "memory", 0.5, ""),
        ("ahead", "cpu", 3.0, "Growing"),
        ("usual", "cpu", 3.0, ""),
    ]
    assert (found.worst_nodes[0].target_violation_percent, found.worst_nodes[0].outcomes) == (0.1, 672)


def test_an_alarm_names_the_likely_causes_on_the_nodes_that_miss_their_target() -> None:
    nodes = [
        report(
            f"{cause}{number}",
            age_seconds=-2 * DAY_SECONDS,
            cpu_debt=PromiseDebt(1, cause=cause),
            cpu_violation_percent=broken,
        )
        for cause, number, broken in (
            ("Correlated", 1, "3"),
            ("Correlated", 2, "3"),
            ("Growing", 3, "3"),
            ("Bursting", 4, "0.9"),
        )
    ]
    world = World(*nodes, report("unknown", age_seconds=-2 * DAY_SECONDS))
    world.refresh()
    world.refresh(DAY_SECONDS)
    (alarm,) = world.fleet.alarms
    assert alarm.endswith("; likely causes, by number of nodes: correlated 2, growing 1")


def test_only_the_worst_twenty_nodes_are_named() -> None:
    assert len(fleet_answers.fleet(fleet(*many(25))).worst_nodes) == 20
