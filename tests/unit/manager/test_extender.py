"""kube-scheduler's extender protocol: what is asked, what is answered, and what is refused as no question at all."""

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from manager.nodeside.assumed import ASSUMED_SECONDS, MOST_ASSUMED, AssumedPods
from manager.nodeside.noderesource import explain, report
from manager.nodeside.noderesource.explain import Decision, Offer
from manager.nodeside.noderesource.holdings import Holding
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.scheduling import advice, bound, explained, extender
from manager.nodeside.scheduling.advice import Advisor
from manager.nodeside.scheduling.args import LoadAwareArgs
from manager.pods import NodeRequests, PodLedger, PodRecord, record
from shared import names, web
from shared.api.core import Node, Pod
from shared.clock import ManualClock
from shared.names import Tier
from shared.quantity import Resources
from tests.support.local_http import LOCAL_HTTP
from tests.unit.manager.objects import GIB, NOW, enabled, explanation, metric, node, pod

ASKED = {names.MID_CPU: "1000", names.MID_MEMORY: str(GIB)}

REQUESTED = NodeRequests(Resources(2000, 4 * GIB), Resources(2000, 4 * GIB))


class Cluster:
    """What the manager knows, and what it has decided."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.reports: dict[str, NodeReport] = {}
        self.decisions: dict[str, Decision] = {}
        self.ledger = PodLedger()
        self.waiting_for: list[str] = []

    def add(self, name: str, *, used: str = "1", offers: Mapping[Tier, Resources | None] | None = None) -> None:
        self.nodes[name] = node(name)
        self.reports[name] = report.read(metric(name, usage={"cpu": used, "memory": "1Gi"}))
        if offers is not None:
            self.decide(name, offers)

    def decide(self, name: str, offers: Mapping[Tier, Resources | None], **more: Any) -> None:
        made = {tier: Offer(amount, explanation()) for tier, amount in offers.items()}
        self.decisions[name] = Decision(made, NOW, **more)

    def place(self, placed: Pod) -> None:
        self.ledger.replace(None, record(placed))

    def unsynced(self) -> list[str]:
        return self.waiting_for

    def node(self, name: str) -> Node | None:
        return self.nodes.get(name)

    def report(self, name: str) -> NodeReport | None:
        return self.reports.get(name)

    def pods(self, name: str) -> Collection[PodRecord]:
        return self.ledger.pods_on(name)


def mid_pod(name: str = "p", *, on: str = "", phase: str = "Running", **requests: str) -> Pod:
    labels = {names.LABEL_PRIORITY_CLASS: "koord-mid"}
    return pod(name, on=on, phase=phase, requests=requests or ASKED, labels=labels)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def advisor(cluster: Cluster, clock: ManualClock) -> Advisor:
    return Advisor(cluster, cluster.decisions.get, LoadAwareArgs(), clock)


# The lower bound


def test_a_mid_pod_fits_into_what_was_decided_last_less_what_pods_hold(cluster: Cluster, advisor: Advisor) -> None:
    cluster.add("n1", offers={Tier.MID: Resources(2000, 4 * GIB)})
    assert advisor.refused(mid_pod(), ["n1"]) == {}
    cluster.place(mid_pod("first", on="n1"))
    assert advisor.refused(mid_pod(), ["n1"]) == {}
    cluster.place(mid_pod("second", on="n1"))
    (refusal,) = advisor.refused(mid_pod(), ["n1"]).values()
    assert refusal == advice.NodeRefusal("shrunk", "Mid cpu has shrunk: offers 2, pods request 2, this pod requests 1")


def test_a_pod_that_was_bound_beyond_the_offer_holds_nobody_else_back(cluster: Cluster, advisor: Advisor) -> None:
    cluster.add("n1", offers={Tier.MID: Resources(2000, 4 * GIB)})
    cluster.place(mid_pod("thief", on="n1", phase="Pending", **{names.MID_CPU: "1000000"}))
    assert advisor.refused(mid_pod(), ["n1"]) == {}


def test_pods_that_have_ended_hold_nothing(cluster: Cluster, advisor: Advisor) -> None:
    cluster.add("n1", offers={Tier.MID: Resources(1000, 4 * GIB)})
    cluster.place(mid_pod("done", on="n1", phase="Succeeded"))
    assert advisor.refused(mid_pod(), ["n1"]) == {}


def test_a_resource_the_pod_does_not_ask_for_holds_nobody_back(cluster: Cluster, advisor: Advisor) -> None:
    cluster.add("n1", offers={Tier.MID: Resources(4000, 0)})
    cluster.place(mid_pod("holder", on="n1"))
    assert advisor.refused(mid_pod(**{names.MID_CPU: "1000"}), ["n1"]) == {}
    assert advisor.refused(mid_pod(**{names.MID_MEMORY: "1"}), ["n1"]).keys() == {"n1"}


def test_a_prediction_that_moved_holds_a_pod_back_though_the_node_still_offers_it(
    cluster: Cluster, advisor: Advisor
) -> None:
    cluster.add("n1", offers={Tier.MID: Resources(2000, 4 * GIB)})
    assert advisor.refused(mid_pod(), ["n1"]) == {}
    cluster.decide("n1", {Tier.MID: Resources(2000, GIB - 1)})
    assert advisor.refused(mid_pod(), ["n1"])["n1"].message == (
        "Mid memory has shrunk: offers 1024 MiB, pods request 0 MiB, this pod requests 1.00 GiB"
    )
    cluster.decide("n1", {Tier.MID: None})
    assert advisor.refused(mid_pod(), ["n1"])["n1"].message.startswith("Mid cpu has shrunk: offers 0,")


def test_what_was_decided_of_a_report_that_has_turned_stale_offers_nothing(
    cluster: Cluster, advisor: Advisor, clock: ManualClock
) -> None:
    cluster.add("n1")
    cluster.decide("n1", {Tier.MID: Resources(2000, 4 * GIB)}, expires_at=NOW + 60)
    clock.advance(60)
    assert advisor.refused(mid_pod(), ["n1"]) == {}
    clock.advance(1)
    assert advisor.refused(mid_pod(), ["n1"])["n1"].cause == "shrunk"


def test_nobody_is_held_back_by_a_tier_that_nothing_was_decided_about(cluster: Cluster, advisor: Advisor) -> None:
    cluster.add("n1", offers={Tier.BATCH: Resources()})
    cluster.add("n2")
    cluster.add("n3")
    cluster.decide("n3", {Tier.MID: Resources()}, hold=True)
    assert advisor.refused(mid_pod(), ["n1", "n2", "n3"]) == {}
    batch = mid_pod(**{names.BATCH_CPU: "1"})
    assert (
        advisor.refused(batch, ["n1"])["n1"].message
        == "Batch cpu has shrunk: offers 0, pods request 0, this pod requests 1m"
    )


def test_a_pod_that_asks_for_no_tier_is_not_held_back_by_one(cluster: Cluster, advisor: Advisor) -> None:
    cluster.add("n1", offers={Tier.MID: None, Tier.BATCH: None})
    assert advisor.refused(mid_pod(cpu="1"), ["n1"]) == {}


def test_many_refusals_are_worded_alike_so_that_a_scheduler_counts_them(cluster: Cluster, advisor: Advisor) -> None:
    many = [f"n{index}" for index in range(advice.DETAILED_REFUSALS + 1)]
    for index, name in enumerate(many):
        cluster.add(name, offers={Tier.MID: Resources(index, 0)})
    assert {refusal.message for refusal in advisor.refused(mid_pod(), many).values()} == {
        "node(s) Mid cpu is now less than the pod requests"
    }
    assert len({refusal.message for refusal in advisor.refused(mid_pod(), many[1:]).values()}) == len(many) - 1


# Accepted pods


@pytest.fixture
def quick(cluster: Cluster) -> Advisor:
    """About nodes n1 and n2, which show 2 and offer 1."""
    for name in ("n1", "n2"):
        cluster.add(name, offers={Tier.MID: Resources(1000, 4 * GIB)})
        cluster.nodes[name] = node(name, mid={names.MID_CPU: "2000", names.MID_MEMORY: str(4 * GIB)})
    return Advisor(cluster, cluster.decisions.get, LoadAwareArgs(), ManualClock(NOW))


def test_two_quick_pods_do_not_share_one_place(cluster: Cluster, clock: ManualClock, quick: Advisor) -> None:
    assumed = AssumedPods(clock)
    advisor = Advisor(cluster, cluster.decisions.get, LoadAwareArgs(), clock, assumed=assumed)
    assert advisor.refused(mid_pod("first"), ["n1"]) == {}
    assert advisor.refused(mid_pod("first"), ["n1"]) == {}, "a pod does not stand in its own way"
    refusal = advisor.refused(mid_pod("second"), ["n1", "n2"])
    assert {name: each.message for name, each in refusal.items()} == {
        "n1": "Mid cpu has shrunk: offers 1, pods request 1, this pod requests 1"
    }
    cluster.place(mid_pod("first", on="n1"))
    assumed.observe(record(mid_pod("first")), record(mid_pod("first", on="n1")))
    assert advisor.refused(mid_pod("third"), ["n1"]).keys() == {"n1"}
    assert advisor.refused(mid_pod("third"), ["n2"]).keys() == {"n2"}, "the second may be there"
    assumed.observe(record(mid_pod("second")), None)
    assert advisor.refused(mid_pod("third"), ["n2"]) == {}
    clock.advance(ASSUMED_SECONDS)
    assert assumed.others(record(mid_pod("fourth"))) == []


def test_an_accepted_pod_counts_only_where_the_scheduler_has_room_for_both(cluster: Cluster, quick: Advisor) -> None:
    """It knows where the first pod is, and names no node for the second on which both do not fit."""
    assert quick.refused(mid_pod("first"), ["n1", "n2"]) == {}
    large = {names.MID_CPU: "1000", names.MID_MEMORY: str(4 * GIB)}
    assert quick.refused(mid_pod("second", **large), ["n1", "n2"]) == {}
    cluster.nodes["n1"] = node("n1", mid={names.MID_CPU: "1000", names.MID_MEMORY: str(4 * GIB)})
    assert quick.refused(mid_pod("third", **{names.MID_CPU: "1000"}), ["n1", "n2"]).keys() == {"n2"}


def test_a_pod_that_is_refused_everywhere_counts_nowhere(cluster: Cluster, clock: ManualClock, quick: Advisor) -> None:
    assumed = AssumedPods(clock)
    advisor = Advisor(
        cluster, cluster.decisions.get, LoadAwareArgs(), clock, assumed=assumed, why_refused=lambda _: "beyond"
    )
    assert advisor.refused(mid_pod("first"), ["n1"]).keys() == {"n1"}
    assert advisor.refused(pod("prod"), ["n1"]) == {}
    assert assumed.count() == 0


def test_many_different_accepted_pods_count_for_all_that_the_status_has_room_for(
    cluster: Cluster, quick: Advisor
) -> None:
    for index in range(7):
        assert quick.refused(mid_pod(f"p{index}", **{names.MID_CPU: str(1 << index)}), ["n1"]) == {}
    assert quick.refused(mid_pod("next", **{names.MID_CPU: "1"}), ["n1"]).keys() == {"n1"}


def test_the_oldest_of_too_many_accepted_pods_no_longer_count(clock: ManualClock) -> None:
    assumed = AssumedPods(clock)
    for index in range(MOST_ASSUMED + 5):
        assumed.assume(record(mid_pod(f"p{index}")), ["n1"])
    assert assumed.count() == MOST_ASSUMED
    assert assumed.others(record(mid_pod("q")))[0].pod.key == "default/p5"


@given(
    held=st.integers(0, 6),
    others=st.lists(st.integers(1, 4), max_size=5),
    more=st.integers(1, 4),
    offered=st.integers(0, 12),
    gap=st.integers(0, 6),
)
def test_no_placement_by_the_status_holds_more_than_the_offer(
    held: int, others: list[int], more: int, offered: int, gap: int
) -> None:
    """Whichever of the accepted pods the scheduler has put on the node: what it accepts fits into the offer."""
    status = Resources(offered + gap, 0)
    missing = bound.shortfall(
        {Tier.MID: Resources(more, 0)},
        {Tier.MID: Holding(Resources(held, 0))},
        Decision({Tier.MID: Offer(Resources(offered, 0), explanation())}, NOW),
        NOW,
        shown={Tier.MID: status},
        assumed=[record(mid_pod(f"p{i}", **{names.MID_CPU: str(each)})) for i, each in enumerate(others)],
    )
    placements = [sum(chosen) for size in range(len(others) + 1) for chosen in combinations(others, size)]
    totals = [held + each + more for each in placements if each == 0 or held + each + more <= status.cpu_milli]
    assert (missing is not None) is any(total > offered for total in totals)


def test_what_is_asked_is_the_pods_request_of_each_tier() -> None:
    assert bound.asked(record(mid_pod())) == {Tier.MID: Resources(1000, GIB)}
    assert bound.asked(record(mid_pod(**{names.BATCH_CPU: "5", "cpu": "1"}))) == {Tier.BATCH: Resources(5, 0)}
    assert bound.asked(record(mid_pod(cpu="1"))) == {}


# What is known of the cluster


def test_the_sums_of_a_node_follow_its_report_its_pods_and_itself(cluster: Cluster, advisor: Advisor) -> None:
    cluster.add("n1", used="1")
    first = advisor.view("n1")
    assert first is not None
    assert advisor.view("n1") is first
    cluster.reports["n1"] = report.read(metric("n1", usage={"cpu": "2", "memory": "1Gi"}))
    second = advisor.view("n1")
    cluster.place(mid_pod("new", on="n1"))
    third = advisor.view("n1")
    cluster.nodes["n1"] = node("n1", cpu="5")
    fourth = advisor.view("n1")
    loads = [view.load for view in (first, second, third, fourth) if view is not None and view.load is not None]
    assert [load.used.cpu_milli for load in loads] == [1000, 2000, 2850, 2850]
    assert [load.allocatable.cpu_milli for load in loads] == [10_000, 10_000, 10_000, 5000]
    del cluster.nodes["n1"]
    assert advisor.view("n1") is None


def test_nodes_that_are_gone_are_let_go_of(cluster: Cluster, advisor: Advisor) -> None:
    for index in range(5 * advice.SWEEP_VIEWS):
        name = f"n{index}"
        cluster.add(name)
        assert advisor.view(name) is not None
        del cluster.nodes[name]
        assert advisor.count() <= advice.SWEEP_VIEWS + 1


def test_nobody_waits_because_the_manager_is_behind(cluster: Cluster, advisor: Advisor) -> None:
    cluster.add("n1", used="9")
    cluster.add("silent", offers={Tier.MID: Resources(9000, 9 * GIB)})
    del cluster.reports["silent"]
    cluster.nodes["strange"] = node("strange", cpu="many")
    asked = ["n1", "silent", "strange", "unknown"]
    assert advisor.refused(mid_pod(), asked).keys() == {"n1"}
    assert advisor.scores(mid_pod(), ["silent", "strange", "unknown"]) == [0, 0, 0]
    cluster.waiting_for = ["pods"]
    assert advisor.refused(mid_pod(), asked) == {}
    assert advisor.scores(mid_pod(), ["n1"]) == [0]


# The protocol

CONTAINERS = [{"name": "c", "resources": {"requests": ASKED}}]
POD = {"metadata": {"name": "p", "namespace": "default", "creationTimestamp": None}, "spec": {"containers": CONTAINERS}}


class Asked:
    """A server, and the registry that counts."""

    def __init__(self, url: str, registry: CollectorRegistry) -> None:
        self.url = url
        self.registry = registry

    def post(self, verb: str, question: object) -> httpx.Response:
        body = question if isinstance(question, bytes) else json.dumps(question).encode()
        return LOCAL_HTTP.post(
            f"{self.url}/scheduler/{verb}", content=body, headers={"content-type": "application/json"}
        )


@pytest.fixture
def asked(cluster: Cluster, advisor: Advisor) -> Iterator[Asked]:
    cluster.add("idle", used="1", offers={Tier.MID: Resources(9000, 9 * GIB)})
    cluster.add("busy", used="5", offers={Tier.MID: Resources(9000, 9 * GIB)})
    cluster.add("full", used="8500m", offers={Tier.MID: Resources(9000, 9 * GIB)})
    cluster.add("shrunk", used="1", offers={Tier.MID: Resources(999, 9 * GIB)})
    registry = CollectorRegistry()
    app = FastAPI()
    app.include_router(extender.router(advisor, registry))
    app.include_router(explained.router(advisor))
    server = web.server(app, "127.0.0.1:0")
    server.start()
    yield Asked(server.url, registry)
    server.close()


NAMES = ["busy", "full", "idle", "shrunk", "unknown"]


def test_names_are_answered_with_names_in_their_order(asked: Asked) -> None:
    answer = asked.post("filter", {"Pod": POD, "Nodes": None, "NodeNames": NAMES}).json()
    assert answer == {
        "Nodes": None,
        "NodeNames": ["busy", "idle", "unknown"],
        "FailedNodes": {
            "full": "node(s) cpu usage exceed threshold",
            "shrunk": "Mid cpu has shrunk: offers 999m, pods request 0, this pod requests 1",
        },
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


def test_whole_nodes_are_answered_with_whole_nodes_as_they_came(asked: Asked) -> None:
    whole = [{"metadata": {"name": name}, "anything": {"else": [1.50, "é"]}} for name in NAMES]
    answer = asked.post("filter", {"Pod": POD, "Nodes": {"metadata": {}, "items": whole}}).json()
    assert answer["NodeNames"] is None
    assert answer["Nodes"]["items"] == [whole[0], whole[2], whole[4]]
    assert answer["FailedNodes"].keys() == {"full", "shrunk"}
    scores = asked.post("prioritize", {"Pod": POD, "Nodes": {"items": whole}}).json()
    assert [score["Host"] for score in scores] == NAMES


def test_nodes_are_scored_from_0_to_10_and_the_idle_one_best(asked: Asked) -> None:
    answer = asked.post("prioritize", {"Pod": POD, "NodeNames": NAMES}).json()
    scores = {one["Host"]: one["Score"] for one in answer}
    assert scores.keys() == set(NAMES)
    assert 10 >= scores["idle"] > scores["busy"] > scores["full"] > scores["unknown"] == 0


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize(
    ("question", "named"),
    [
        (b"{", "(body)"),
        (b"\xff", "(body)"),
        (b"", "(body)"),
        ([], "(body)"),
        ({"NodeNames": []}, "Pod"),
        ({"Pod": POD}, "NodeNames"),
        ({"Pod": POD, "NodeNames": [1]}, "NodeNames[0]"),
        ({"Pod": POD, "Nodes": {"items": [{"metadata": 1}]}}, "metadata"),
        ({"Pod": {"metadata": {"name": 5}}, "NodeNames": []}, "Pod.metadata.name"),
        (
            {"Pod": {"spec": {"containers": [{"resources": {"requests": {"cpu": "many"}}}]}}, "NodeNames": NAMES},
            "'many'",
        ),
    ],
)
def test_what_is_no_question_is_refused_and_the_field_named(
    asked: Asked, verb: str, question: object, named: str
) -> None:
    answer = asked.post(verb, question)
    assert answer.status_code == 400
    assert named in answer.json()["detail"]
    assert len(answer.content) < 600


def test_a_body_without_end_is_not_read_to_its_end(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extender, "MAX_BODY_BYTES", 1000)
    assert asked.post("filter", {"Pod": POD, "NodeNames": NAMES * 100}).status_code == 413
    assert asked.post("filter", {"Pod": POD, "NodeNames": NAMES}).status_code == 200


def test_questions_and_refusals_are_counted(asked: Asked) -> None:
    asked.post("filter", {"Pod": POD, "NodeNames": NAMES})
    asked.post("filter", b"{")
    lines = generate_latest(asked.registry).decode().splitlines()
    assert 'headroom_manager_extender_requests_total{code="200",verb="filter"} 1.0' in lines
    assert 'headroom_manager_extender_requests_total{code="400",verb="filter"} 1.0' in lines
    assert 'headroom_manager_extender_refusals_total{cause="shrunk"} 1.0' in lines
    assert 'headroom_manager_extender_refusals_total{cause="usage"} 1.0' in lines
    assert 'headroom_manager_extender_seconds_count{verb="filter"} 2.0' in lines


def test_a_decision_made_by_the_manager_bounds_what_it_offers(cluster: Cluster, advisor: Advisor) -> None:
    cluster.add("n1")
    cluster.reports["n1"] = report.read(metric("n1", reclaimable={"cpu": "900m", "memory": "2Gi"}))
    cluster.decisions["n1"] = explain.decide(
        cluster.nodes["n1"], cluster.reports["n1"], explain.Known(REQUESTED), enabled(), NOW, tiers=(Tier.MID,)
    )
    assert "offers 900m" in advisor.refused(mid_pod(), ["n1"])["n1"].message


def test_what_schedulers_are_told_of_a_node_is_explained(cluster: Cluster, asked: Asked) -> None:
    cluster.place(mid_pod("holder", on="full"))
    answer = LOCAL_HTTP.get(f"{asked.url}/api/v1/scheduling/full").json()
    assert answer == {
        "node": "full",
        "load": {
            "reported_at": "2023-11-14T22:13:20Z",
            "allocatable": {"cpu_milli": 10_000, "memory_bytes": 100 * GIB},
            "thresholds": {
                "cpu": 65,
                "memory": 95,
                "prod_cpu": 0,
                "prod_memory": 0,
                "aggregation": "",
                "aggregated_seconds": 0.0,
            },
            "used": {"cpu_milli": 9350, "memory_bytes": GIB + 751_619_277},
            "prod_used": None,
            "scored_used": {"cpu_milli": 9350, "memory_bytes": GIB + 751_619_277},
            "predicted_peak": None,
            "score": 51,
            "refusal": "node(s) cpu usage exceed threshold",
        },
        "tiers": {
            "mid": {
                "offered": {"cpu_milli": 9000, "memory_bytes": 9 * GIB},
                "requested": {"cpu_milli": 1000, "memory_bytes": GIB},
            }
        },
    }
    del cluster.reports["full"]
    assert LOCAL_HTTP.get(f"{asked.url}/api/v1/scheduling/full").json()["load"] is None
    assert LOCAL_HTTP.get(f"{asked.url}/api/v1/scheduling/unknown").status_code == 404
    assert len(LOCAL_HTTP.get(f"{asked.url}/api/v1/scheduling/{'x' * 10_000}").content) < 300
