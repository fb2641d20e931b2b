"""Groups whose new nodes are alike for the pods share an estimate, which is the one that each would have alone."""

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.estimator import binpacking
from manager.autoscaler.estimator.binpacking import Estimate, Permissions
from manager.autoscaler.scale_up import groups, options, orchestrator
from manager.autoscaler.scale_up.options import ScaleUpInput, ScaleUpSettings
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, PODS, NodeInfo, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo, PodTerm, Spread
from shared.api.selectors import LabelSelector
from tests.support.properties import examples
from tests.unit.manager.test_rank_bounds import places
from tests.unit.manager.test_scale_up_properties import Case, mixable_rounds, rounds

ZONE = "topology.kubernetes.io/zone"
ZONES = ("z1", "z2", "z3")
APPS = ("x", "y")
NAMESPACE = "ns"


@examples(100)
@given(rounds() | mixable_rounds())
def test_a_shared_estimate_is_that_of_each_group_alone(case: Case) -> None:
    check_each_group_alone(case.situation(), case.settings)


@st.composite
def zonal_situations(draw: st.DrawFn) -> ScaleUpInput:
    """A node in each of three zones, with pods and room that may differ; pods that depend on the pods of a zone; and
    groups of two sizes in each zone.
    """
    few = st.integers(0, 2)
    nodes = [node(f"there-{zone}", zone, 1000 * draw(st.sampled_from((0, 0, 1, 3)))) for zone in ZONES]
    counted = [[draw(few) for _ in ZONES] for _ in APPS]
    placed = [
        (row, PodInfo(NAMESPACE, {"app": app}))
        for app, counts in zip(APPS, counted, strict=True)
        for row, count in enumerate(counts)
        for _ in range(count)
    ]
    classes = [
        EquivalenceGroup(draw(pods()), tuple(f"{NAMESPACE}/{name}-{index}" for index in range(draw(st.integers(1, 5)))))
        for name in "abcdef"[: draw(st.integers(1, 6))]
    ]
    states = list(machine_groups())
    return ScaleUpInput(cluster.snapshot_of_nodes(nodes, placed), classes, states)


@st.composite
def pods(draw: st.DrawFn) -> PodInfo:
    requests = {"cpu": draw(st.sampled_from((400, 1000, 1900)))}
    labels, selected = ({"app": draw(st.sampled_from(APPS))} for _ in range(2))
    term = PodTerm(draw(st.sampled_from((ZONE, LABEL_HOSTNAME))), frozenset({NAMESPACE}), LabelSelector(selected))
    kind = draw(st.sampled_from(("free", "spread", "affinity", "anti-affinity")))
    return PodInfo(
        NAMESPACE,
        labels,
        requests,
        spread=(Spread(term, draw(st.integers(1, 2)), 1, True, False),) if kind == "spread" else (),
        affinity=(term,) if kind == "affinity" else (),
        anti_affinity=(term,) if kind == "anti-affinity" else (),
    )


def node(name: str, zone: str, cpu_milli: int, gpus: int = 0) -> NodeInfo:
    amounts = {"cpu": cpu_milli, "gpu": gpus, PODS: 20}
    return NodeInfo(name, {ZONE: zone, LABEL_HOSTNAME: name}, capacity=amounts, allocatable=amounts)


def machine_groups() -> Iterator[GroupStatus]:
    for zone in ZONES:
        for cores in (2, 4):
            name = f"cores-{cores}-{zone}"
            yield GroupStatus(Group(name, 0, 50, 0), template=NodeTemplate(name, node(name, zone, cores * 1000, 1)))


@examples(500)
@given(zonal_situations())
def test_zones_share_estimates_only_while_they_are_alike(situation: ScaleUpInput) -> None:
    settings = ScaleUpSettings(Ownership({state.id: None for state in situation.groups}))
    check_each_group_alone(situation, settings)


def test_zones_are_not_alike_when_new_nodes_let_a_pod_go_to_a_present_node() -> None:
    """The small pod evens out the spread of the large ones only after these were given up. They go to the node in z1 as
    soon as a new node has taken its share, and the last pod counts them by zone.
    """
    nodes = [node("there-z2", "z2", 400), node("there-z1", "z1", 1000)]
    there = PodInfo(NAMESPACE, {"app": "x"})
    per_host = Spread(PodTerm(LABEL_HOSTNAME, frozenset({NAMESPACE}), LabelSelector({"app": "x"})), 1, 1, True, False)
    per_zone = Spread(PodTerm(ZONE, frozenset({NAMESPACE}), LabelSelector({"tier": "large"})), 3, 1, True, False)
    classes = [
        EquivalenceGroup(
            PodInfo(NAMESPACE, {"app": "x", "tier": "large"}, {"cpu": 1000}, spread=(per_host,)),
            tuple(f"{NAMESPACE}/large-{index}" for index in range(5)),
        ),
        EquivalenceGroup(PodInfo(NAMESPACE, {"app": "x"}, {"cpu": 400}), (f"{NAMESPACE}/small",)),
        EquivalenceGroup(PodInfo(NAMESPACE, {}, {"cpu": 300, "gpu": 1}, spread=(per_zone,)), (f"{NAMESPACE}/zonal",)),
    ]
    states = [each for each in machine_groups() if each.id in ("cores-4-z1", "cores-4-z2")]
    snapshot = cluster.snapshot_of_nodes(nodes, [(0, there), (1, there), (1, there)])
    settings = ScaleUpSettings(Ownership({state.id: None for state in states}))
    found = check_each_group_alone(ScaleUpInput(snapshot, classes, states), settings)
    assert [each.existing_used for each in found] == [1, 1]
    assert found[0].placed != found[1].placed


def check_each_group_alone(situation: ScaleUpInput, settings: ScaleUpSettings) -> list[Estimate]:
    room = orchestrator.headroom(situation, settings)
    states = groups.validate_groups(situation.groups, room, settings.usage, settings.ownership).valid
    templates = {each.id: each.template for each in states if each.template is not None}
    left, *_ = orchestrator.filter_out_schedulable(situation, list(templates.values()))
    found = options.compute_options(left, states, room, settings.estimates).estimated
    for each in found:
        template = templates[each.state.id]
        alone, *_ = orchestrator.filter_out_schedulable(situation, list(templates.values()))  # remembers nothing yet
        fit = binpacking.fit_on_new_node(alone.problem, template, alone)
        assert fit.flags.tolist() == each.fit.flags.tolist()
        again = binpacking.estimate(
            alone.problem,
            template,
            fit.positions,
            Permissions(options.most_nodes((each.state, *each.similar), room, settings.estimates)),
            after=alone,
            fast_path=settings.estimates.fastpath_binpacking_enabled,
        )
        assert replace(again, placements=()) == replace(each.estimate, placements=())
        assert places(again) == places(each.estimate)
    return [each.estimate for each in found]
