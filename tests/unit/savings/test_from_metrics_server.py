"""One moment of pods and nodes, as metrics-server has it, becomes usage that nothing is recommended from."""

from typing import Any

import msgspec
import pytest

from deploy.savings import from_metrics_server
from deploy.savings.from_metrics_server import MetricsServerAnswer
from deploy.savings.objects import NodeMetricsSample, PodMetrics
from deploy.savings.usage import ContainerKey, Source
from tests.unit.savings.clusters import END, GIB, MIB, NOW

KEY = ContainerKey("shop", "Deployment", "web", "main")
OWNERS = {f"shop/web-{number}": KEY[:3] for number in range(8)}


def pod(name: str, timestamp: str = NOW, **usage: Any) -> PodMetrics:
    body = {
        "metadata": {"name": name, "namespace": "shop"},
        "timestamp": timestamp,
        "containers": [{"name": "main", "usage": usage}],
    }
    return msgspec.convert(body, PodMetrics)


def node(name: str, **usage: Any) -> NodeMetricsSample:
    return msgspec.convert({"metadata": {"name": name}, "timestamp": NOW, "usage": usage}, NodeMetricsSample)


def read(*pods: PodMetrics, nodes: tuple[NodeMetricsSample, ...] = (), now: float = END) -> MetricsServerAnswer:
    return from_metrics_server.read(pods, nodes, OWNERS, {"a", "b"}, now)


def test_replicas_are_one_container_with_its_median_and_its_most() -> None:
    found = read(
        pod("web-0", cpu="100m", memory="1Gi"), pod("web-1", cpu="300m", memory="1Gi"), pod("web-2", cpu="1", memory=0)
    )
    use = found.known.uses[KEY]
    assert (use.source, use.points, use.days) == (Source.SNAPSHOT, 1, 0)
    assert use.cpu is not None
    assert use.memory is not None
    assert (use.cpu.median, use.cpu.most, use.memory.most) == (0.3, 1.0, GIB)
    assert found.known.notes == ()


def test_what_a_sample_does_not_say_is_not_nothing() -> None:
    use = read(pod("web-0", memory="64Mi")).known.uses[KEY]
    assert use.cpu is None
    assert use.memory is not None
    assert use.memory.most == 64 * MIB


def test_nodes_are_summed_and_those_that_the_cluster_lacks_do_not_count() -> None:
    moment = read(
        nodes=(node("a", cpu="1", memory="2Gi"), node("b", cpu="500m", memory="1Gi"), node("c", cpu="9"))
    ).moment
    assert moment is not None
    assert (moment.time, moment.nodes, moment.used) == (END, 2, (1500, 3 * GIB))
    assert read().moment is None


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (pod("web-0", cpu="much"), "PodMetrics shop/web-0: containers[0].usage.cpu: 'much': expected a quantity"),
        (pod("web-0", memory="-1Gi"), "PodMetrics shop/web-0: containers[0].usage.memory: '-1Gi': less than nothing"),
        (pod("web-0", "today", cpu="1"), "PodMetrics shop/web-0: timestamp: 'today': expected an instant"),
    ],
)
def test_a_sample_that_cannot_be_read_is_named_with_field_and_value_and_others_count(
    bad: PodMetrics, said: str
) -> None:
    found = read(bad, pod("web-1", cpu="200m"))
    (note,) = found.known.notes
    assert note.startswith(said)
    assert (use := found.known.uses[KEY].cpu) is not None
    assert use.most == 0.2
    found = read(nodes=(node("a", cpu="?"), node("b", cpu="1")))
    assert found.known.notes[0].startswith("NodeMetrics a: usage.cpu: '?': ")
    assert found.moment is not None
    assert found.moment.nodes == 1


def test_of_many_bad_samples_few_are_named() -> None:
    notes = read(*(pod(f"web-{number}", cpu="?") for number in range(8))).known.notes
    assert len(notes) == 4
    assert notes[-1] == "5 more samples of metrics-server are passed by"


def test_an_old_sample_is_said_to_be_old() -> None:
    assert read(pod("web-0", cpu="1"), now=END + 299).known.notes == ()
    (note,) = read(pod("web-0", cpu="1"), now=END + 900).known.notes
    assert note == f"metrics-server's newest sample is 15m0s old, of {NOW}"
