"""What a provider has to be allowed is asked of the API server, and what is missing is a problem of the iteration."""

import json
from collections.abc import Iterator

import pytest

from manager.autoscaler.cloudprovider.rights import RETRY_SECONDS, REVIEW_SECONDS, Right, RightsReview
from shared.clock import ManualClock
from shared.kube.client import Client
from shared.kube.config import Connection
from tests.support.http_server import HttpServer, Request

LIST = Right("list", "karpenter.sh", "nodeclaims")
SCALE = Right("patch", "cluster.x-k8s.io", "machinedeployments/scale", namespace="fleet")
READ = Right("get", "", "configmaps", namespace="headroom-system", name="books")


class Reviewer(HttpServer):
    """Grants all but what it is told to refuse, or is out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[dict[str, str]] = []
        self.asked: list[dict[str, str]] = []
        self.status = 201

    def answer(self, request: Request) -> tuple[int, bytes]:
        assert request.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        attributes = json.loads(request.body)["spec"]["resourceAttributes"]
        self.asked.append(attributes)
        return self.status, json.dumps({"status": {"allowed": attributes not in self.refused}}).encode()


@pytest.fixture
def reviewer() -> Iterator[Reviewer]:
    server = Reviewer()
    yield server
    server.close()


def review(reviewer: Reviewer, clock: ManualClock) -> RightsReview:
    return RightsReview(Client(Connection(reviewer.url), "test"), "cloud", (LIST, SCALE, READ), clock)


def test_missing_rights_are_one_problem_that_names_each(reviewer: Reviewer) -> None:
    reviewer.refused = [SCALE.attributes, READ.attributes]
    ((source, problem),) = review(reviewer, ManualClock()).problems().items()
    assert source == "rights of the cloud provider cloud"
    assert problem.value == (
        "patch machinedeployments/scale.cluster.x-k8s.io in fleet, get configmaps books in headroom-system"
    )
    assert reviewer.asked[1] == {
        "verb": "patch",
        "group": "cluster.x-k8s.io",
        "resource": "machinedeployments",
        "subresource": "scale",
        "namespace": "fleet",
        "name": "",
    }


def test_rights_are_reviewed_now_and_then_and_the_last_answer_stands_while_there_is_none(reviewer: Reviewer) -> None:
    clock = ManualClock()
    reviewing = review(reviewer, clock)
    assert reviewing.problems() == {}
    reviewer.refused = [LIST.attributes]
    assert reviewing.problems() == {}
    clock.advance(REVIEW_SECONDS)
    assert list(reviewing.problems()) == ["rights of the cloud provider cloud"]
    clock.advance(REVIEW_SECONDS)
    reviewer.refused, reviewer.status = [], 500
    assert list(reviewing.problems()) == ["rights of the cloud provider cloud"]
    reviewer.status = 201
    clock.advance(RETRY_SECONDS)
    assert reviewing.problems() == {}
