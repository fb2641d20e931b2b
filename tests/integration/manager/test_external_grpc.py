"""The external gRPC client against a real server in a process of its own, which another library speaks for."""

import base64
import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manager.autoscaler.cloudprovider.contract import (
    ErrorClass,
    Gpus,
    GroupOptions,
    GroupSpec,
    Instance,
    InstanceError,
    InstanceState,
    NodeRef,
)
from manager.autoscaler.cloudprovider.errors import (
    InvalidAnswer,
    NoAnswer,
    ProviderError,
    Refused,
    Unavailable,
    Unsupported,
)
from manager.autoscaler.cloudprovider.externalgrpc import config
from manager.autoscaler.cloudprovider.externalgrpc.provider import ExternalGrpcProvider
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.pricing.model import Machine, Unpriced
from shared.api.core import Taint
from shared.clock import ManualClock
from tests.support.certificates import sign_certificates
from tests.support.grpc_messages import CLASSES
from tests.support.observing import observed
from tests.support.scripted import ScriptedProcess

pytestmark = pytest.mark.embedded_only("a cloud is asked; of a server it wants what test_autoscaler.py does")

NOW = 1_700_000_000.0
NODE = NodeRef("n1", "grpc://n1", {"a": "b"}, {"c": "d"})
GROUPS = {"nodeGroups": [{"id": "web", "minSize": 1, "maxSize": 5, "debug": "spot"}, {"id": "main", "maxSize": 9}]}
ANSWERS: dict[str, Any] = {
    "NodeGroups": GROUPS,
    "NodeGroupTargetSize": {"web": {"targetSize": 3}, "main": {"targetSize": 2}},
    "NodeGroupNodes": {
        "web": {
            "instances": [
                {"id": "grpc://n1", "status": {"instanceState": 1}},
                {"id": "grpc://n2", "status": {"instanceState": 3}},
                {
                    "id": "grpc://n3",
                    "status": {
                        "instanceState": 2,
                        "errorInfo": {"errorCode": "QUOTA", "errorMessage": "no more", "instanceErrorClass": 1},
                    },
                },
                {"id": "grpc://n4"},
            ]
        }
    },
    "NodeGroupForNode": {"nodeGroup": {}},
}


class Server(ScriptedProcess):
    """The process, what it is to answer, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        super().__init__("grpc_cloud", folder)
        self.script()
        self._providers: list[ExternalGrpcProvider] = []

    def script(self, answers: dict[str, Any] | None = None, **more: Any) -> None:
        super().script(answers={**ANSWERS, **(answers or {})}, **more)

    def provider(self, *, defaults: GroupOptions | None = None, **settings: Any) -> ExternalGrpcProvider:
        file = self.folder / "cloud-config.yaml"
        file.write_text(json.dumps({"address": f"localhost:{self.port}", "grpc_timeout": "20s", **settings}))
        self._providers.append(ExternalGrpcProvider(config.load(file), ManualClock(NOW), defaults))
        return self._providers[-1]

    def calls(self, method: str) -> list[dict[str, Any]]:
        return [call["asked"] for call in self.asked if call["method"] == method]

    def close(self) -> None:
        for provider in self._providers:
            with contextlib.suppress(ProviderError):
                provider.close()
        super().close()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with contextlib.closing(Server(tmp_path_factory.mktemp("grpc"))) as server:
        server.start()
        yield server


@pytest.fixture
def server(process: Server) -> Server:
    (process.folder / "calls").unlink(missing_ok=True)
    process.script()
    return process


@pytest.fixture
def guard(server: Server) -> Guard:
    return Guard(server.provider(), Ownership({"web": None}))


def test_groups_instances_and_their_errors_are_read(server: Server, guard: Guard) -> None:
    observed = guard.observe()
    web = observed.groups["web"]
    assert (web.group.min_size, web.group.max_size, web.group.target_size) == (1, 5, 3)
    assert web.group.debug == "spot"
    assert web.options == GroupOptions()  # that call is optional
    assert observed.unmanaged == {"main"}
    assert web.instances == (
        Instance("grpc://n1", InstanceState.RUNNING),
        Instance("grpc://n2", InstanceState.DELETING),
        Instance("grpc://n3", InstanceState.CREATING, InstanceError(ErrorClass.OUT_OF_RESOURCES, "QUOTA", "no more")),
        Instance("grpc://n4", InstanceState.UNKNOWN),
    )
    assert len(server.calls("Refresh")) == 1


def test_nodes_that_are_no_instances_yet_are_asked_for(server: Server, guard: Guard) -> None:
    server.script({"NodeGroupForNode": {"nodeGroup": {"id": "web"}}})
    new = NodeRef("new", "grpc://new", {"a": "b"}, {"c": "d"})
    assert guard.observe([NODE, new]).group_of_node == {"n1": "web", "new": "web"}
    expected = {"providerID": "grpc://new", "name": "new", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    assert server.calls("NodeGroupForNode") == [{"node": expected}]
    server.script()
    assert guard.observe([new]).group_of_node == {}


def test_sizes_are_changed_with_the_signs_of_the_protocol(server: Server, guard: Guard) -> None:
    guard.observe()
    guard.increase("web", 2)
    assert server.calls("NodeGroupIncreaseSize") == [{"delta": 2, "id": "web"}]
    guard.decrease_target("web", 1)
    assert server.calls("NodeGroupDecreaseTargetSize") == [{"delta": -1, "id": "web"}]
    guard.delete_nodes("web", [NODE])
    node = {"providerID": "grpc://n1", "name": "n1", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    assert server.calls("NodeGroupDeleteNodes") == [{"nodes": [node], "id": "web"}]
    assert guard.observed.groups["web"].group.target_size == 3


def test_a_template_is_decoded_from_kubernetes_own_bytes(server: Server, guard: Guard) -> None:
    node = CLASSES["Node"](
        metadata={"name": "t", "labels": {"zone": "a"}, "annotations": {"x": "y"}},
        spec={"providerID": "grpc://t", "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "l"}]},
        status={
            "capacity": {"cpu": {"string": "4"}, "memory": {"string": "8Gi"}},
            "allocatable": {"cpu": {"string": "3900m"}, "memory": {"string": "7Gi"}, "pods": {"string": "110"}},
            "phase": "Running",
        },
    )
    server.script({"NodeGroupTemplateNodeInfo": {"nodeBytes": base64.b64encode(node.SerializeToString()).decode()}})
    guard.observe()
    found = guard.template("web")
    assert (found.metadata.name, found.metadata.labels, found.metadata.annotations) == ("t", {"zone": "a"}, {"x": "y"})
    assert found.spec.taints == (Taint("k", "v", "NoSchedule"), Taint("l"))
    assert found.status.capacity == {"cpu": "4", "memory": "8Gi"}
    assert found.status.allocatable == {"cpu": "3900m", "memory": "7Gi", "pods": "110"}
    guard.template("web")
    assert len(server.calls("NodeGroupTemplateNodeInfo")) == 1
    guard.observe()
    guard.template("web")
    assert len(server.calls("NodeGroupTemplateNodeInfo")) == 2


def test_a_template_on_which_nothing_could_run_is_refused(server: Server, guard: Guard) -> None:
    server.script({"NodeGroupTemplateNodeInfo": {"nodeBytes": ""}})
    guard.observe()
    with pytest.raises(InvalidAnswer, match=r"externalgrpc: group web: template.capacity\[cpu\]"):
        guard.template("web")


def test_options_are_read(server: Server, guard: Guard) -> None:
    options = {
        "scaleDownUtilizationThreshold": 0.4,
        "zeroOrMaxNodeScaling": True,
        "scaleDownUnneededDuration": {"seconds": 90, "nanos": 500_000_000},
        "maxNodeProvisionDuration": {"seconds": 600},
    }
    server.script({"NodeGroupGetOptions": {"nodeGroupAutoscalingOptions": options}})
    assert guard.observe().groups["web"].options == GroupOptions(
        scale_down_utilization_threshold=0.4,
        zero_or_max_node_scaling=True,
        scale_down_unneeded_time_seconds=90.5,
        max_node_provision_time_seconds=600,
    )


DEFAULTS = GroupOptions(
    scale_down_utilization_threshold=0.5,
    scale_down_gpu_utilization_threshold=0.25,
    scale_down_unneeded_time_seconds=600.5,
    scale_down_unready_time_seconds=1200,
    max_node_provision_time_seconds=900,
    zero_or_max_node_scaling=False,
    ignore_daemonsets_utilization=True,
)


def test_a_server_that_wants_nothing_else_answers_with_the_defaults_it_was_given(server: Server) -> None:
    server.script(echoes=True)
    guard = Guard(server.provider(defaults=DEFAULTS), Ownership({"web": None}))
    found = guard.observe().groups["web"].options
    assert found == dataclasses.replace(DEFAULTS, zero_or_max_node_scaling=None)  # which is not sent when it is false
    (asked,) = server.calls("NodeGroupGetOptions")
    assert asked["defaults"]["maxNodeProvisionDuration"] == {"seconds": "900"}
    zero = Guard(server.provider(), Ownership({"web": None}))
    assert zero.observe().groups["web"].options == GroupOptions(), "a duration of zero is none"


def test_a_group_of_others_that_cannot_be_told_of_costs_nothing(server: Server, guard: Guard) -> None:
    server.script({"NodeGroupTargetSize": {"web": {"targetSize": 3}}})
    observed = guard.observe()
    assert (observed.groups["web"].group.target_size, observed.unmanaged) == (3, frozenset({"main"}))
    assert server.calls("NodeGroupTargetSize") == [{"id": "web"}]


@pytest.mark.parametrize(
    "trouble",
    [{"raw": {"NodeGroupTargetSize": "ffff"}}, {"errors": {"NodeGroupTargetSize": ["FAILED_PRECONDITION", "gone"]}}],
)
def test_a_target_that_is_none_costs_its_group(server: Server, trouble: dict[str, Any]) -> None:
    server.script(**trouble)
    guard = Guard(server.provider(), Ownership({"web": None}))
    observed = guard.observe()
    assert observed.groups == {}
    assert "group web: NodeGroupTargetSize" in str(observed.refused["web"])


@pytest.mark.parametrize("code", ["NOT_FOUND", "UNKNOWN"])
def test_a_node_that_cannot_be_told_of_is_nobodys(server: Server, guard: Guard, code: str) -> None:
    server.script(errors={"NodeGroupForNode": [code, "wrong id: expected grpc://"]})
    observed = guard.observe([NodeRef("elsewhere", "other://x"), NODE])
    assert observed.group_of_node == {"n1": "web"}
    server.script(errors={"NodeGroupForNode": ["UNAVAILABLE", "going away"]})
    with pytest.raises(NoAnswer):
        guard.observe([NodeRef("elsewhere", "other://x")])


def test_the_cloud_cleans_up_when_it_is_told_to(server: Server, guard: Guard) -> None:
    guard.observe()
    guard.close(cleanup=True)
    assert server.calls("Cleanup") == [{}]


def test_prices_are_asked_with_an_hour_and_a_whole_pod(server: Server, guard: Guard) -> None:
    server.script({"PricingNodePrice": {"price": 0.25}, "PricingPodPrice": {"price": 0.125}})
    guard.observe()
    model = guard.pricing()
    assert model is not None
    machine = Machine({"cpu": 1000}, {"type": "m"}, {"an": "notation"})
    assert [model.node_price(machine), model.node_price(machine)] == [0.25, 0.25]
    assert model.pod_price({"cpu": 1500, "memory": 1024, "nvidia.com/gpu": 1}) == 0.125
    (asked,) = server.calls("PricingNodePrice")
    assert asked["node"] == {"labels": {"type": "m"}, "annotations": {"an": "notation"}}
    assert [asked[f"{end}Timestamp"]["seconds"] for end in ("start", "end")] == ["1700000000", "1700003600"]
    (asked,) = server.calls("PricingPodPrice")
    pod = CLASSES["Pod"].FromString(base64.b64decode(asked["podBytes"]))
    (container,) = pod.spec.containers
    requests = {resource: amount.string for resource, amount in container.resources.requests.items()}
    assert requests == {"cpu": "1500m", "memory": "1024", "nvidia.com/gpu": "1"}


def test_gpu_facts_are_asked_once_for_good(server: Server, guard: Guard) -> None:
    anything = {"type_url": "x", "value": ""}
    server.script({"GPULabel": {"label": "gpu"}, "GetAvailableGPUTypes": {"gpuTypes": {"t4": anything, "l4": {}}}})
    guard.observe()
    assert guard.gpus() == guard.gpus() == Gpus("gpu", frozenset({"t4", "l4"}))
    guard.observe()
    guard.gpus()
    assert len(server.calls("GPULabel")) == 1


def test_what_is_not_implemented_is_unsupported(server: Server, guard: Guard) -> None:
    guard.observe()
    with pytest.raises(Unsupported, match="web: NodeGroupTemplateNodeInfo: UNIMPLEMENTED"):
        guard.template("web")
    model = guard.pricing()
    assert model is not None
    with pytest.raises(Unpriced, match="UNIMPLEMENTED"):
        model.node_price(Machine({}))
    with pytest.raises(Unsupported):
        guard.machine_types()
    with pytest.raises(Unsupported):
        guard.create_group(GroupSpec("m", "nodeautoprovisioning"))


@pytest.mark.parametrize(
    ("code", "kind"), [("FAILED_PRECONDITION", Refused), ("RESOURCE_EXHAUSTED", Refused), ("INTERNAL", Unavailable)]
)
def test_the_code_of_a_failed_write_says_whether_it_may_have_been_done(
    server: Server, guard: Guard, code: str, kind: type[ProviderError]
) -> None:
    server.script(errors={"NodeGroupIncreaseSize": [code, "because"]})
    guard.observe()
    with pytest.raises(kind, match=f"externalgrpc: group web: NodeGroupIncreaseSize: {code}: because"):
        guard.increase("web", 1)
    assert len(server.calls("NodeGroupIncreaseSize")) == 1
    assert guard.is_in_doubt("web") is (kind is Unavailable)


def test_a_call_that_hangs_ends_at_the_timeout(server: Server) -> None:
    server.script(hangs=["NodeGroups"])
    guard = Guard(server.provider(grpc_timeout="500ms"), Ownership({"web": None}))
    with pytest.raises(Unavailable, match="DEADLINE_EXCEEDED"):
        guard.observe()
    server.script()
    observed(guard)


@pytest.mark.parametrize("raw", ["0a", "0a020b00"])
def test_bytes_that_are_not_the_protocols_are_refused(server: Server, guard: Guard, raw: str) -> None:
    server.script(raw={"NodeGroupNodes": raw})
    observed = guard.observe()
    assert observed.groups == {}
    assert isinstance(observed.refused["web"], InvalidAnswer)
    assert "group web: NodeGroupNodes" in str(observed.refused["web"]) or "instances[0]" in str(observed.refused["web"])


def test_nobody_there_is_unavailable(server: Server) -> None:
    guard = Guard(server.provider(address="localhost:1"), Ownership({"web": None}))
    with pytest.raises(Unavailable, match="UNAVAILABLE"):
        guard.observe()


def test_both_sides_show_certificates(tmp_path: Path) -> None:
    sign_certificates(tmp_path)
    with contextlib.closing(Server(tmp_path)) as server:
        server.start()
        own: dict[str, Any] = {"cert": str(tmp_path / "client.crt"), "key": str(tmp_path / "client.key")}
        guard = Guard(server.provider(cacert=str(tmp_path / "ca.crt"), **own), Ownership({"web": None}))
        assert guard.observe().groups.keys() == {"web"}
        for settings in ({}, {"cacert": str(tmp_path / "ca.crt")}, own):
            stranger = Guard(server.provider(grpc_timeout="3s", **settings), Ownership({"web": None}))
            with pytest.raises(Unavailable):
                stranger.observe()
