"""The simulated cloud's state, its file, and Google's rules for its machines."""

import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider import gke
from manager.autoscaler.cloudprovider.contract import GroupSpec
from manager.autoscaler.cloudprovider.errors import Refused, Unsupported
from manager.autoscaler.cloudprovider.ownership import DEFAULT_PREFIX
from manager.autoscaler.cloudprovider.simulated import cloud_state, fake_nodes
from manager.autoscaler.cloudprovider.simulated.cloud_state import GroupEntry, SimulatedState
from manager.autoscaler.cloudprovider.simulated.config import Faults, GroupConfig, SimulatedCloud
from manager.autoscaler.cloudprovider.simulated.offer import MachineOffer
from manager.autoscaler.cloudprovider.simulated.provider import SimulatedProvider
from manager.autoscaler.cloudprovider.simulated.state_store import Unwritten
from manager.autoscaler.pricing.gce import LABEL_ACCELERATOR
from manager.autoscaler.pricing.model import NVIDIA_GPU, Machine
from shared.api.core import Taint
from shared.clock import ManualClock
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.quantity import milli, whole

GROUP: dict[str, Any] = {"name": "web", "machine_type": "n1-standard-4"}
NOBODY = Client(Connection("http://127.0.0.1:1"), "test").single_attempt()


def provider(folder: Path, **file: Any) -> SimulatedProvider:
    path = folder / "cloud.yaml"
    path.write_text(yaml.safe_dump(file))
    return SimulatedProvider(MachineOffer(path), Unwritten(SimulatedState), list, ManualClock(), random.Random(0))


steps = st.lists(
    st.tuples(st.sampled_from(["increase", "decrease", "delete", "register", "lose"]), st.integers(1, 4)), max_size=20
)
faults = st.builds(
    Faults,
    stock=st.none() | st.integers(0, 5),
    fulfil=st.none() | st.integers(0, 3),
    fail_every=st.integers(0, 3),
    never_register=st.booleans(),
)


@given(faults, steps, st.randoms(use_true_random=False))
def test_its_state_owes_no_fewer_than_are_there_and_survive_their_own_form(
    wrong: Faults, asked: list[tuple[str, int]], chance: random.Random
) -> None:
    group = GroupConfig(name="web", machine_type="n1-standard-1", faults=wrong)
    entry, expected, count = GroupEntry(), 0, 0

    def name() -> str:
        nonlocal count
        count += 1
        return f"n{count}"

    for what, amount in asked:
        staying = [each for each in entry.instances if each.phase != cloud_state.DELETING]
        picked = {each.name for each in chance.sample(staying, min(amount, len(staying)))}
        match what:
            case "increase":
                entry, expected = cloud_state.raise_target(entry, group, amount, 0.0, name), expected + amount
            case "decrease" if entry.target - amount >= entry.staying:
                entry, expected = msgspec.structs.replace(entry, target=entry.target - amount), expected - amount
            case "delete":
                entry, expected = cloud_state.mark_deleted(entry, picked, 0.0), expected - len(picked)
            case "register":
                entry = cloud_state.add_registered(entry, picked, 0.0)
            case "lose":
                entry, expected = cloud_state.remove_nodes(entry, picked), expected - len(picked)
        assert entry.target == expected >= entry.staying
        assert len({each.name for each in entry.instances}) == len(entry.instances)
        kept = SimulatedState({"web": entry})
        assert msgspec.json.decode(msgspec.json.encode(kept), type=SimulatedState) == kept
    leaving = {each.name for each in entry.instances if each.phase == cloud_state.DELETING}
    assert cloud_state.remove_nodes(entry, leaving).target == entry.target


@pytest.mark.parametrize(
    ("name", "cores", "memory_mib"),
    [("n1-standard-16", 16, 61_440), ("n1-highcpu-2", 2, 1_843), ("n1-highmem-4", 4, 26_624)],
)
def test_googles_machines_have_their_sizes(name: str, cores: int, memory_mib: int) -> None:
    assert gke.MACHINE_TYPES[name] == {"cpu": cores * 1000, "memory": memory_mib << 20, "pods": 110}


@given(st.integers(0, 10**6), st.integers(0, 1 << 42))
def test_what_the_system_keeps_is_never_more_than_there_is_and_grows_with_it(cpu_milli: int, memory: int) -> None:
    left = gke.allocatable({"cpu": cpu_milli, "memory": memory, "pods": 110})
    assert 0 <= left["cpu"] <= cpu_milli
    assert 0 <= left["memory"] <= memory
    assert left["pods"] == 110
    assert gke.reserved_cpu_milli(cpu_milli) <= gke.reserved_cpu_milli(cpu_milli + 1)
    mib = memory >> 20
    assert mib <= 1000 or gke.reserved_memory_mib(mib) <= gke.reserved_memory_mib(mib + 1)


def test_labels_and_taints_that_are_asked_for_are_on_the_theoretical_node(tmp_path: Path) -> None:
    cloud = provider(tmp_path, autoprovisioning={"zones": ["us-west1-b"]})
    taint = Taint("dedicated", "batch", "NoSchedule")
    spec = GroupSpec("n1-standard-2", DEFAULT_PREFIX, {"team": "batch"}, (taint,))
    theory = cloud.theoretical(spec)
    assert (theory.template.metadata.labels or {}).items() >= {
        ("team", "batch"),
        ("topology.kubernetes.io/zone", "us-west1-b"),
        ("topology.kubernetes.io/region", "us-west1"),
        ("node.kubernetes.io/instance-type", "n1-standard-2"),
    }
    assert theory.template.spec.taints == (taint,)
    assert theory.max_size == 1000
    assert theory == cloud.theoretical(spec)
    assert theory.id != cloud.theoretical(GroupSpec("n1-standard-2", DEFAULT_PREFIX)).id


def test_gpus_are_rounded_up_labelled_and_tainted(tmp_path: Path) -> None:
    cloud = provider(tmp_path, autoprovisioning={"zones": ["us-west1-b"]})
    labels = {LABEL_ACCELERATOR: "nvidia-tesla-k80"}
    theory = cloud.theoretical(GroupSpec("n1-standard-8", DEFAULT_PREFIX, labels, (), {NVIDIA_GPU: 3}))
    assert "-n1-standard-8-gpu-" in theory.id
    assert (theory.template.status.allocatable or {})[NVIDIA_GPU] == "4"
    assert theory.template.spec.taints == (gke.GPU_TAINT,)


@pytest.mark.parametrize(
    "spec",
    [
        GroupSpec("abacus", DEFAULT_PREFIX),
        GroupSpec("n1-standard-2", DEFAULT_PREFIX, {"kubernetes.io/arch": "arm64"}),
        GroupSpec("n1-standard-2", DEFAULT_PREFIX, {}, (), {NVIDIA_GPU: 1}),
        GroupSpec("n1-standard-2", DEFAULT_PREFIX, {LABEL_ACCELERATOR: "nvidia-tesla-k80"}, (), {NVIDIA_GPU: 9}),
        GroupSpec("n1-standard-2", "x" * 60),
    ],
)
def test_a_group_that_cannot_be_is_refused(tmp_path: Path, spec: GroupSpec) -> None:
    cloud = provider(tmp_path, autoprovisioning={"zones": ["us-west1-b"]})
    for ask in (cloud.theoretical, cloud.create_group):
        with pytest.raises(Refused):
            ask(spec)


def test_a_group_is_made_in_the_zone_that_is_asked_for_alone(tmp_path: Path) -> None:
    cloud = provider(tmp_path, autoprovisioning={"zones": ["us-west1-a", "us-west1-b"]})
    assert cloud.theoretical(GroupSpec("n1-standard-2", DEFAULT_PREFIX)).groups == 2
    spec = GroupSpec("n1-standard-2", DEFAULT_PREFIX, {gke.LABEL_ZONE: "us-west1-b"})
    theory = cloud.theoretical(spec)
    assert ((theory.template.metadata.labels or {})[gke.LABEL_ZONE], theory.groups) == ("us-west1-b", 1)
    created = cloud.create_group(spec)
    assert (created.main.debug, created.extras) == ("n1-standard-2 in us-west1-b", ())
    with pytest.raises(Refused, match="us-west1-a, us-west1-b"):
        cloud.theoretical(GroupSpec("n1-standard-2", DEFAULT_PREFIX, {gke.LABEL_ZONE: "us-west1-c"}))


def test_groups_with_gpus_are_made_where_there_are_some(tmp_path: Path) -> None:
    cloud = provider(tmp_path, autoprovisioning={"zones": ["us-west1-a", "us-west1-b"]})
    labels = {LABEL_ACCELERATOR: "nvidia-tesla-k80"}
    spec = GroupSpec("n1-standard-2", DEFAULT_PREFIX, labels, (), {NVIDIA_GPU: 1})
    assert cloud.theoretical(spec).groups == 1
    assert cloud.create_group(spec).main.debug == "n1-standard-2 in us-west1-b"


def test_without_autoprovisioning_there_are_no_machine_types(tmp_path: Path) -> None:
    with pytest.raises(Unsupported):
        provider(tmp_path).machine_types()


def test_prices_are_the_groups_then_the_machine_types_then_by_the_unit(tmp_path: Path) -> None:
    assert provider(tmp_path, groups=[GROUP]).pricing() is None
    types = [{"name": "big", "capacity": {"cpu": "64", "memory": "256Gi"}, "price": 2.5}]
    cheap = {"name": "cheap", "machine_type": "big", "price": 0.5}
    cloud = provider(tmp_path, groups=[GROUP, cheap, cheap | {"name": "dear", "price": None}], machine_types=types)
    model = cloud.pricing()
    assert model is not None

    def price(group: str) -> float:
        node = cloud.template(group)
        capacity = {
            resource: milli(text) if resource == "cpu" else whole(text)
            for resource, text in (node.status.capacity or {}).items()
        }
        return model.node_price(Machine(capacity, node.metadata.labels or {}, node.metadata.annotations or {}))

    assert [price("cheap"), price("dear")] == [0.5, 2.5]
    assert price("web") == pytest.approx(4 * 0.033174 + 15 * 0.004446)


def test_a_running_node_says_whose_it_is() -> None:
    template = fake_nodes.node("n", GroupConfig(**GROUP), SimulatedCloud())
    assert fake_nodes.csi_node(template, "uid") is None
    assert fake_nodes.belongs_to(template) == "web"
    assert fake_nodes.belongs_to(msgspec.structs.replace(template, metadata=type(template.metadata)(name="n"))) is None


def test_a_bought_node_has_a_kubelet_version_that_is_one() -> None:
    template = fake_nodes.node("web-1", GroupConfig(name="web", machine_type="n1-standard-4"), SimulatedCloud())
    body = msgspec.to_builtins(fake_nodes.registration(template, 1, 0.0, ready=True))
    assert re.fullmatch(r"v1\.\d+\.\d+(\+[a-z]+)?", body["status"]["nodeInfo"]["kubeletVersion"])
