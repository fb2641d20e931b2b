"""The expander `grpc` against a real server in a process of its own, which another library speaks for."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manager.autoscaler.expander.chain import ExpanderPlugins
from manager.autoscaler.scale_up.decisions import ExpanderStep, ScaleUpOutcome
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared.errors import InvalidInput
from tests.support.certificates import sign_certificates
from tests.support.scripted import ScriptedProcess
from tests.unit.manager.rounds import decided, group, pending

pytestmark = pytest.mark.embedded_only("an expander is asked, and no API server")

STATES = [group("small", 2), group("medium", 4), group("big", 8)]
CLASSES = [pending(1, 3, "web")]
CHAIN = ("grpc", "least-nodes")
ALL = ("big", "medium", "small")


class Server(ScriptedProcess):
    """The process, what it is to answer, and what it was asked."""

    def plugins(self, **settings: Any) -> ExpanderPlugins:
        given = {"grpc_expander_url": f"localhost:{self.port}", "grpc_expander_cert": str(self.folder / "ca.crt")}
        return ExpanderPlugins(AutoscalerSettings(**(given | settings)))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with contextlib.closing(Server("grpc_expander", tmp_path_factory.mktemp("expander"))) as server:
        sign_certificates(server.folder)
        server.start()
        yield server


def test_the_server_chooses_and_the_next_expander_chooses_among_its_answer(server: Server) -> None:
    server.script(groups=["medium", "small"])
    decision = decided(STATES, CLASSES, expanders=CHAIN, plugins=server.plugins())
    assert decision.steps == (ExpanderStep("grpc", ("medium", "small")), ExpanderStep("least-nodes", ("medium",)))
    assert decision.nodes == {"medium": 1}


def test_the_request_has_every_option_with_its_pods_and_every_groups_node(server: Server) -> None:
    server.script(groups=["big"])
    decided(STATES, CLASSES, expanders=CHAIN, plugins=server.plugins())
    options = {each["nodeGroupId"]: each for each in server.asked[-1]["options"]}
    assert {name: each["nodeCount"] for name, each in options.items()} == {"small": 2, "medium": 1, "big": 1}
    pods = options["small"]["podBytes"]
    assert [pod["metadata"] for pod in pods] == [
        {"name": f"web-{number:04d}", "namespace": "ns"} for number in range(3)
    ]
    assert {json.dumps(pod["spec"]["containers"][0]["resources"]["requests"]) for pod in pods} == {
        '{"cpu": {"string": "1"}}'
    }
    nodes = server.asked[-1]["nodeBytesMap"]
    assert nodes.keys() == set(ALL)
    assert nodes["big"]["status"]["capacity"]["cpu"] == {"string": "8"}


def test_unknown_groups_among_known_ones_are_ignored(server: Server) -> None:
    server.script(groups=["elsewhere", "big"])
    decision = decided(STATES, CLASSES, expanders=CHAIN, plugins=server.plugins())
    assert decision.steps == (ExpanderStep("grpc", ("big",)),)


def test_an_empty_answer_leaves_no_option(server: Server) -> None:
    server.script(groups=[])
    decision = decided(STATES, CLASSES, expanders=CHAIN, plugins=server.plugins())
    assert (decision.outcome, decision.chosen) == (ScaleUpOutcome.NO_OPTIONS, None)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ({"error": ["UNAVAILABLE", "it restarts"]}, "BestOptions: UNAVAILABLE: it restarts"),
        ({"groups": ["elsewhere"]}, "no group of the answer was in the request: elsewhere"),
        ({"raw": "0a"}, "the answer is not the protocol's"),
    ],
)
def test_after_a_failure_all_options_stay_in_and_the_next_expander_chooses(
    server: Server, script: dict[str, Any], problem: str
) -> None:
    server.script(**script)
    decision = decided(STATES, CLASSES, expanders=CHAIN, plugins=server.plugins())
    grpc, least_nodes = decision.steps
    assert grpc.groups == ALL
    assert problem in grpc.problem
    assert least_nodes == ExpanderStep("least-nodes", ("big", "medium"))
    assert decision.outcome is ScaleUpOutcome.GROW


def test_a_server_with_a_certificate_of_another_authority_is_not_believed(server: Server, tmp_path: Path) -> None:
    sign_certificates(tmp_path)
    server.script(groups=["big"])
    plugins = server.plugins(grpc_expander_cert=str(tmp_path / "ca.crt"))
    (grpc, _) = decided(STATES, CLASSES, expanders=CHAIN, plugins=plugins).steps
    assert (grpc.groups, "UNAVAILABLE" in grpc.problem) == (ALL, True)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"grpc_expander_url": ""}, "grpc-expander-url"),
        ({"grpc_expander_url": "localhost"}, "grpc-expander-url"),
        ({"grpc_expander_cert": ""}, "grpc-expander-cert"),
        ({"grpc_expander_cert": "/nowhere/ca.crt"}, "grpc-expander-cert"),
        ({"grpc_expander_cert": __file__}, "grpc-expander-cert"),
    ],
)
def test_without_a_server_or_its_certificate_the_start_is_refused(
    server: Server, settings: dict[str, str], field: str
) -> None:
    with pytest.raises(InvalidInput, match=field):
        server.plugins(**settings).get("grpc")
