"""One tick is put together so that nothing is counted twice and nothing is lost."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache import series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.metrics_advisor.advisor import Roster
from agent.metrics_advisor.source import Sample
from agent.states_informer.pods import NodePod
from shared.api.core import Pod
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.pods import workload
from shared.names import PriorityClass
from tests.unit.agent.pods import pod

USAGE = st.builds(Usage, st.floats(0, 100), st.floats(0, 1e12))


def of(uid: str, priority_class: PriorityClass = PriorityClass.PROD, workload: str = "") -> NodePod:
    return dataclasses.replace(pod(uid), priority_class=priority_class, workload=workload)


def tick(sample: Sample, pods: list[NodePod]) -> dict[tuple[Kind, str], Usage]:
    roster = Roster(pods, sample.pods, sample.containers)
    assert roster.fits(sample, pods)
    values = roster.values(sample)
    assert len(roster.keys) == 2 * len(values) == len(set(roster.keys))
    assert [key.metric for key in roster.keys[:2]] == [Metric.CPU, Metric.MEMORY]
    named = [(key.kind, key.entity) for key in roster.keys[::2]]
    return {name: Usage(*usage) for name, usage in zip(named, values.tolist(), strict=True)}


def test_the_system_is_what_the_pods_leave_and_the_prod_peak_series_what_mid_must_not_touch() -> None:
    sample = Sample(
        Usage(4.0, 100.0),
        {"prod": Usage(1.0, 20.0), "mid": Usage(0.5, 10.0), "none": Usage(0.25, 5.0), "unknown": Usage(9.0, 9.0)},
    )
    pods = [of("prod"), of("mid", PriorityClass.MID), of("none", PriorityClass.NONE), of("unread")]
    got = tick(sample, pods)
    assert got[Kind.SYSTEM, ""] == Usage(2.25, 65.0)
    assert got[Kind.PROD_PEAK, ""] == Usage(3.5, 90.0)
    assert got[Kind.CLASS, "koord-mid"] == Usage(0.5, 10.0)
    assert got[Kind.CLASS, "koord-batch"] == Usage(0.0, 0.0)
    assert {entity for kind, entity in got if kind is Kind.POD} == {"prod", "mid", "none"}


@given(USAGE, st.dictionaries(st.sampled_from("abcdef"), st.tuples(USAGE, st.sampled_from(PriorityClass))))
def test_no_entity_uses_less_than_nothing_and_the_prod_peak_covers_the_system(
    node: Usage, pods: dict[str, tuple[Usage, PriorityClass]]
) -> None:
    sample = Sample(node, {uid: usage for uid, (usage, _) in pods.items()})
    got = tick(sample, [of(uid, priority_class) for uid, (_, priority_class) in pods.items()])
    assert all(value >= 0 for usage in got.values() for value in usage)
    assert {series.model_key(*name) for name in got} == series.NODE_ENTITIES | pods.keys()
    assert got[Kind.PROD_PEAK, ""].cpu_cores >= got[Kind.SYSTEM, ""].cpu_cores


@pytest.mark.parametrize(
    ("node", "pods", "system"),
    [
        (Usage(1.0, 1024.0), {"p": Usage(0.5, 512.0)}, Usage(0.5, 512.0)),
        (Usage(1.0, 1.0), {"p": Usage(2.0, 2.0)}, Usage(0.0, 0.0)),
    ],
)
def test_system_follows_koordinators_rule(node: Usage, pods: dict[str, Usage], system: Usage) -> None:
    assert tick(Sample(node, pods), [of("p")])[Kind.SYSTEM, ""] == system


def test_a_workload_uses_what_one_of_its_pods_does_on_the_average() -> None:
    usages = {"a-1": Usage(1.0, 10.0), "b": Usage(7.0, 70.0), "a-2": Usage(2.0, 30.0), "lone": Usage(5.0, 5.0)}
    pods = [of("a-1", workload="d/Deployment/a"), of("a-2", workload="d/Deployment/a"), of("a-3"), of("lone")]
    got = tick(Sample(Usage(20.0, 200.0), usages), [*pods, of("b", workload="d/StatefulSet/b")])
    assert got[Kind.WORKLOAD, "d/Deployment/a"] == Usage(1.5, 20.0)
    assert got[Kind.WORKLOAD, "d/StatefulSet/b"] == Usage(7.0, 70.0)
    assert sum(kind is Kind.WORKLOAD for kind, _ in got) == 2


def test_containers_of_unknown_pods_are_nobodys() -> None:
    containers = {"p/main": Usage(1.0, 1.0), "unknown/main": Usage(2.0, 2.0), "p/side": Usage(3.0, 3.0)}
    got = tick(Sample(Usage(9.0, 9.0), {}, containers), [of("p")])
    assert {name: usage for name, usage in got.items() if name[0] is Kind.CONTAINER} == {
        (Kind.CONTAINER, "p/main"): Usage(1.0, 1.0),
        (Kind.CONTAINER, "p/side"): Usage(3.0, 3.0),
    }


def test_a_roster_fits_as_long_as_all_stay_who_they_are() -> None:
    pods = [of("a"), of("b")]
    usages = {"a": Usage(1.0, 1.0), "b": Usage(1.0, 1.0)}
    sample = Sample(Usage(9.0, 9.0), usages)
    roster = Roster(pods, sample.pods, ())
    assert roster.fits(Sample(Usage(1.0, 1.0), usages), list(pods))
    assert not roster.fits(sample, [pods[0], of("b", PriorityClass.MID)])
    assert not roster.fits(sample, pods[:1])
    assert not roster.fits(Sample(Usage(9.0, 9.0), {"a": Usage(1.0, 1.0)}), pods)
    assert not roster.fits(Sample(Usage(9.0, 9.0), usages, {"a/c": Usage(1.0, 1.0)}), pods)


def test_a_rollout_goes_on_with_the_history_of_its_workload() -> None:
    cache = MetricCache()
    for second in range(20):
        uid = "old" if second < 10 else "new"
        sample = Sample(Usage(4.0, 4.0), {uid: Usage(second, 1.0)})
        roster = Roster([of(uid, workload="d/Deployment/web")], sample.pods, ())
        cache.append_values(second, roster.keys, roster.values(sample).reshape(-1))
        cache.retain_pods(roster.uids)
    counts = cache.aggregate(Aggregation.COUNT, 20, metric=Metric.CPU)
    assert counts[SeriesKey(Kind.POD, "new", Metric.CPU)] == 10
    assert counts[SeriesKey(Kind.WORKLOAD, "d/Deployment/web", Metric.CPU)] == 20
    assert SeriesKey(Kind.POD, "old", Metric.CPU) not in counts


def owned(kind: str, name: str, *, controller: bool = True, template_hash: str = "") -> Pod:
    owner = OwnerReference(kind=kind, name=name, controller=controller)
    labels = {"pod-template-hash": template_hash} if template_hash else None
    return Pod(metadata=ObjectMeta(name="p", namespace="d", uid="u", labels=labels, owner_references=(owner,)))


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (owned("ReplicaSet", "web-5d4f", template_hash="5d4f"), "d/Deployment/web"),
        (owned("ReplicaSet", "web-5d4f"), "d/ReplicaSet/web-5d4f"),
        (owned("ReplicaSet", "bare", template_hash="5d4f"), "d/ReplicaSet/bare"),
        (owned("Job", "backup-28945671"), "d/CronJob/backup"),
        (owned("Job", "backup"), "d/Job/backup"),
        (owned("DaemonSet", "logs"), "d/DaemonSet/logs"),
        (owned("Node", "n1"), ""),
        (owned("k" * 63, "n" * 253), f"d/{'k' * 63}/{'n' * 253}"),
        (owned("Deployment", "n" * 70_000), ""),
        (owned("k" * 500, "n" * 13), ""),
        (owned("StatefulSet", "db", controller=False), ""),
        (Pod(metadata=ObjectMeta(name="p", namespace="d", uid="u")), ""),
    ],
)
def test_a_workload_is_what_outlives_rollouts_and_runs(pod: Pod, expected: str) -> None:
    assert workload(pod) == expected
