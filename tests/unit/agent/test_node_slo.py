"""Host applications follow the NodeSLO where there is one; a cluster without that kind is no error."""

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from agent.states_informer.host_applications import NodeSLOFollower
from agent.states_informer.refusals import Refusals
from shared.api.nodeslo import HostApplication
from shared.clock import ManualClock
from shared.kube import kinds
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.kube.retry import ONCE
from shared.telemetry import Loops
from tests.support import eventually
from tests.unit.agent.cluster import NodeServer, named
from tests.unit.kube.scripted import Answer, Request, event, status


class NoSuchKind(NodeServer):
    """An API server that gets NodeSLOs later, or never."""

    def __init__(self, objects: dict[str, list[Any]], events: dict[str, list[bytes]] | None = None) -> None:
        super().__init__(objects, events)
        self.has_kind = False
        self.asked = 0

    def next_answer(self, request: Request) -> Answer:
        self.asked += 1
        return super().next_answer(request) if self.has_kind else status(404, "NotFound")


def slo(version: int, *applications: object) -> dict[str, Any]:
    return named("n", version, spec={"hostApplications": list(applications)})


def application(name: str, **changes: object) -> dict[str, object]:
    return {"name": name, "priority": "koord-prod", "qos": "LS", **changes}


class Following:
    def __init__(self, server: NodeServer) -> None:
        self.registry = CollectorRegistry()
        self.clock = ManualClock()
        self.heard: list[list[str]] = []
        follower = NodeSLOFollower(
            Client(Connection(server.url), "test", retry=ONCE, clock=self.clock),
            "n",
            Refusals(self.registry),
            on_change=self.hear,
        )
        self.loops = Loops()
        follower.start(self.loops)

    def hear(self, applications: tuple[HostApplication, ...]) -> None:
        self.heard.append([one.name for one in applications])

    @property
    def refused(self) -> float | None:
        return self.registry.get_sample_value("headroom_agent_refused_objects_total", {"kind": "NodeSLO"})


@pytest.fixture
def following() -> Iterator[list[Any]]:
    made: list[Any] = []
    yield made
    for one in made:
        one.close()


def followed(following: list[Any], server: NodeServer) -> Following:
    found = Following(server)
    following += [found.loops, server]
    return found


def test_applications_come_change_and_go_with_the_node_slo(following: list[Any]) -> None:
    server = NodeServer(
        {"nodeslos": [slo(1, application("nginx"))]},
        {
            "nodeslos": [
                event("MODIFIED", slo(2, application("nginx"), application("redis"))),
                event("MODIFIED", slo(3, application("nginx"), application("redis"))),
                event("DELETED", slo(4)),
            ]
        },
    )
    found = followed(following, server)
    eventually(lambda: len(found.heard) == 3)
    assert found.heard == [["nginx"], ["nginx", "redis"], []]


@pytest.mark.parametrize(
    "bad",
    [
        application("../etc"),
        application("redis", qos="fast"),
        application("redis", cgroupPath={"base": "CgroupRoot", "relativePath": "../.."}),
        application("redis", cgroupPath={"base": "Elsewhere"}),
        application("nginx"),
    ],
    ids=["name", "qos", "path", "base", "twice"],
)
def test_a_list_with_one_meaningless_application_is_refused_and_those_before_stay(
    following: list[Any], bad: object
) -> None:
    server = NodeServer(
        {"nodeslos": [slo(1, application("nginx"))]},
        {
            "nodeslos": [
                event("MODIFIED", slo(2, application("nginx"), bad)),
                event("MODIFIED", slo(3, application("last"))),
            ]
        },
    )
    found = followed(following, server)
    eventually(lambda: len(found.heard) == 2)
    assert found.heard == [["nginx"], ["last"]]


def test_a_cluster_without_the_kind_is_asked_again_seldom_and_quietly(
    following: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    server = NoSuchKind({"nodeslos": [slo(1, application("nginx"))]})
    found = followed(following, server)
    eventually(lambda: server.asked == 1 and found.clock.waiting)
    found.clock.advance(kinds.ABSENT_SECONDS / 2 - 1)
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert server.asked == 1
    server.has_kind = True
    found.clock.advance(kinds.ABSENT_SECONDS + 1)
    eventually(lambda: found.heard == [["nginx"]])
    assert not caplog.records or all(record.levelname != "ERROR" for record in caplog.records)
