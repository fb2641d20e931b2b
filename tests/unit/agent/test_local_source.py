"""One machine's files, in every layout a kubelet leaves, come out as one sample a tick without nonsense."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.metrics_advisor import cgroups
from agent.metrics_advisor.cgroup import COLD_SECONDS, LOOK_AGAIN_SECONDS, MEMORY_SECONDS
from agent.metrics_advisor.cgroups import Driver, Version
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.host import NODE_SECONDS
from agent.metrics_advisor.local import DETECT_SECONDS, PROCESS_TREES, LocalSource
from agent.metrics_advisor.pace import Pace, Turns
from agent.metrics_advisor.pod_cgroups import ANNOTATION_STATIC_POD_UID, PodCgroups, containers_of
from agent.metrics_advisor.source import Sample
from shared import names
from shared.api.core import ContainerStatus, Pod, PodStatus
from shared.api.meta import ObjectMeta, OwnerReference
from tests.support import certain
from tests.support.properties import examples, stride
from tests.unit.agent.trees import ID, PAGE_BYTES, UID, Counters, Tree, procfs, sysfs

MIB = 2**20
CPUS = 4
OTHER_ID = "fedcba9876543210" * 4
TICKS_PER_SECOND = 100
PODS = (Kind.POD, Kind.CONTAINER)


def pod(
    uid: str = UID,
    *containers: tuple[str, str],
    qos: str = "Burstable",
    owners: tuple[OwnerReference, ...] = (),
    static_uid: str = "",
    is_mirror: bool = True,
) -> Pod:
    """`containers` are (name, id as in a pod's status); `static_uid` and `is_mirror` are what annotations say."""
    annotations = {ANNOTATION_STATIC_POD_UID: static_uid} | ({names.ANNOTATION_MIRROR: static_uid} if is_mirror else {})
    statuses = tuple(ContainerStatus(name, container_id) for name, container_id in containers)
    return Pod(
        metadata=ObjectMeta(
            name=uid,
            namespace="default",
            uid=uid,
            annotations=annotations if static_uid else None,
            owner_references=owners or None,
        ),
        status=PodStatus(phase="Running", qos_class=qos, container_statuses=statuses),
    )


def test_a_container_that_came_later_is_one_of_the_pod_too() -> None:
    fields = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    status = {field: [{"name": field, "containerID": f"containerd://{field}"}] for field in fields}
    found = containers_of(msgspec.convert({"status": status}, Pod))
    assert [one.name for one in found] == list(fields)


class Machine:
    """A machine of plain files whose time stands still until told to go on."""

    def __init__(
        self,
        directory: Path,
        tree: Tree,
        numa_cpus: tuple[str, ...] = ("0-1", "2-3"),
    ) -> None:
        self.directory = directory
        self.tree = tree
        self.seconds = 1000.0
        self.busy_ticks = 0
        procfs(directory / "proc", cpus=CPUS)
        sysfs(directory / "sys", numa_cpus)
        self.source = LocalSource(
            cgroup_root=tree.root,
            proc_root=directory / "proc",
            sys_root=directory / "sys",
            state_dir=directory,
            monotonic=lambda: self.seconds,
        )

    def tick(self, pods: Sequence[Pod], seconds: float = 1.0, busy_share: float = 0.5) -> Sample | None:
        self.seconds += seconds
        self.busy_ticks += round(max(0.0, seconds) * TICKS_PER_SECOND * busy_share)
        procfs(self.directory / "proc", cpus=CPUS, busy_ticks=self.busy_ticks)
        return self.source.sample(pods)

    def ticks(self, pods: Sequence[Pod], count: int) -> list[Sample]:
        return [sample for _ in range(count) if (sample := self.tick(pods))]


@pytest.fixture
def v2(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, Tree(tmp_path / "cgroup", Version.V2, Driver.CGROUPFS))
    (machine.tree.root / "kubepods").mkdir()
    yield machine
    machine.source.close()


def test_where_there_is_one_numa_node_what_pods_hold_of_it_is_what_they_use(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "cgroup", Version.V2, Driver.CGROUPFS)
    tree.write(tree.pod_path(), Counters(cpu_seconds=5, anon_bytes=64 << 10, numa_pages=(1,)))
    machine = Machine(tmp_path, tree, numa_cpus=("0-3",))
    samples = machine.ticks([pod(UID)], 12)
    machine.source.close()
    held = [sample.readings.get(SeriesKey(Kind.NUMA, "0/system", Metric.MEMORY)) for sample in samples]
    assert {bytes_ for bytes_ in held[1:] if bytes_ is not None} == {(1000 - 160 - 64) * 1024}


RUNTIMES = ["containerd", "cri-o", "docker"]
PARENTS = {Driver.SYSTEMD: "system.slice/docker-77.scope/kubelet.slice", Driver.CGROUPFS: "docker/77/kubelet"}


LAYOUTS = list(itertools.product(Version, Driver, RUNTIMES, (False, True)))


@pytest.mark.parametrize(("version", "driver", "runtime", "nested"), LAYOUTS[:: stride()])
def test_every_layout_tells_the_same(
    tmp_path: Path, version: Version, driver: Driver, runtime: str, nested: bool
) -> None:
    tree = Tree(tmp_path / "cgroup", version, driver, PARENTS[driver] if nested else "", runtime)
    now = Counters(
        cpu_seconds=5,
        anon_bytes=64 * MIB,
        active_file_bytes=8 * MIB,
        inactive_file_bytes=16 * MIB,
        periods=10,
        throttled=1,
        pressure_percent=25.0,
        numa_pages=(10, 20),
    )
    places = [tree.pod_path(), tree.container_path()]
    for place in places:
        tree.write(place, now)
    machine = Machine(tmp_path, tree)
    pods = [pod(UID, ("web", f"{runtime}://{ID}"), ("starting", ""))]
    samples: list[Sample] = []
    for _ in range(int(2 * COLD_SECONDS) + 2):
        samples += [sample] if (sample := machine.tick(pods)) else []
        now = replace(now, cpu_seconds=now.cpu_seconds + 0.5, periods=now.periods + 4, throttled=now.throttled + 1)
        for place in places:
            tree.write(place, now)
    machine.source.close()
    assert machine.source.description == f"cgroup {version} {driver}"
    assert samples[-1].node.cpu_cores == pytest.approx(CPUS / 2)
    for usages, name in ((samples[-1].pods, UID), (samples[-1].containers, f"{UID}/web")):
        assert usages.keys() == {name}
        assert usages[name].cpu_cores == pytest.approx(0.5)
        assert usages[name].memory_bytes == 64 * MIB
    readings = {key: value for sample in samples for key, value in sample.readings.items()}
    for kind, entity in ((Kind.POD, UID), (Kind.CONTAINER, f"{UID}/web")):
        assert {key.metric: value for key, value in readings.items() if key.kind is kind} == {
            Metric.MEMORY_WITH_HOT_PAGE_CACHE: 72 * MIB,
            Metric.MEMORY_WITH_PAGE_CACHE: 88 * MIB,
            Metric.CPU_THROTTLED: pytest.approx(0.25),
            **{metric: 0.25 for metric in Metric if metric.startswith("psi_")},
        }
        assert {key.entity for key in readings if key.kind is kind} == {entity}
    used = (1000 - 160) * 1024
    assert {key: value for key, value in readings.items() if key.kind is Kind.NUMA} == {
        SeriesKey(Kind.NUMA, "0", Metric.CPU): pytest.approx(1.0),
        SeriesKey(Kind.NUMA, "1", Metric.CPU): pytest.approx(1.0),
        SeriesKey(Kind.NUMA, "0", Metric.MEMORY): used,
        SeriesKey(Kind.NUMA, "1", Metric.MEMORY): used,
        SeriesKey(Kind.NUMA, "0/system", Metric.MEMORY): used - 10 * PAGE_BYTES,
        SeriesKey(Kind.NUMA, "1/system", Metric.MEMORY): used - 20 * PAGE_BYTES,
    }


def test_the_nodes_own_readings(v2: Machine) -> None:
    samples = v2.ticks([], 2 * int(NODE_SECONDS) + 2)
    found = {key: value for sample in samples for key, value in sample.readings.items()}
    readings = {key.metric: value for key, value in found.items() if key.kind is Kind.NODE}
    size, used = readings.pop(Metric.DISK_SIZE), readings.pop(Metric.DISK_USED)
    assert 0 < used < size
    assert samples[-1].node.memory_bytes == 1000 * 1024
    assert readings == {
        Metric.MEMORY_WITH_PAGE_CACHE: (100_000 + 1000) * 1024,
        Metric.MEMORY_WITH_HOT_PAGE_CACHE: (40_000 + 1000) * 1024,
        Metric.CPU_STEAL: 0.0,
        Metric.LOAD_1M: 0.5,
        Metric.LOAD_5M: 1.25,
        Metric.LOAD_15M: 2.0,
        Metric.DISK_READ: 0.0,
        Metric.DISK_WRITE: 0.0,
        **{metric: 0.125 for metric in Metric if metric.startswith("psi_") and metric.endswith("_some")},
        **{metric: 0.02 for metric in Metric if metric.startswith("psi_") and metric.endswith("_full")},
    }


def test_colder_values_come_at_their_pace_and_not_all_at_once(v2: Machine) -> None:
    pods = [pod(f"{number:08x}-0000-1111-2222-333344445555") for number in range(30)]
    for one in pods:
        v2.tree.write(v2.tree.pod_path(one.metadata.uid), Counters())
    samples = v2.ticks(pods, 61)
    for metric, every in ((Metric.MEMORY_WITH_PAGE_CACHE, MEMORY_SECONDS), (Metric.PSI_IO_FULL, COLD_SECONDS)):
        counts = [sum(key.metric is metric and key.kind is Kind.POD for key in one.readings) for one in samples]
        assert sum(counts) == pytest.approx(60 / every * len(pods), rel=0.15)
        assert max(counts) <= 2 * len(pods) / every + 1


def test_memory_is_read_at_once_of_a_pod_that_moved_and_in_turns_of_all(v2: Machine) -> None:
    entity, pods = f"{UID}/web", [pod(UID, ("web", f"containerd://{ID}"))]

    def hold(anon_bytes: int, charged_bytes: int = 0) -> tuple[float, float]:
        for place in (v2.tree.pod_path(), v2.tree.container_path()):
            v2.tree.write(place, Counters(anon_bytes=anon_bytes, charged_bytes=charged_bytes))
        sample = v2.ticks(pods, 1)[0]
        return sample.pods[UID].memory_bytes, sample.containers[entity].memory_bytes

    for place in (v2.tree.pod_path(), v2.tree.container_path()):
        v2.tree.write(place, Counters(anon_bytes=100 * MIB))
    v2.ticks(pods, 3 + int(MEMORY_SECONDS))
    pod_bytes, _ = hold(150 * MIB)
    assert pod_bytes == 150 * MIB
    pod_bytes, _ = hold(150 * MIB + 4096)
    assert pod_bytes in (150 * MIB, 150 * MIB + 4096), "a move this small may wait for the pod's turn"
    last = [hold(60 * MIB, charged_bytes=150 * MIB) for _ in range(int(MEMORY_SECONDS) + 1)][-1]
    assert last == (60 * MIB, 60 * MIB), "what changed while the charge stood still shows at the next turn"


def test_a_container_that_starts_again_is_followed_and_its_counter_begins_anew(v2: Machine) -> None:
    entity = f"{UID}/web"
    v2.tree.write(v2.tree.pod_path(), Counters())
    v2.tree.write(v2.tree.container_path(), Counters(cpu_seconds=500))
    assert entity in v2.ticks([pod(UID, ("web", f"containerd://{ID}"))], 3)[-1].containers
    v2.tree.remove(v2.tree.container_path())
    v2.tree.write(v2.tree.container_path(OTHER_ID), Counters(cpu_seconds=1, anon_bytes=MIB))
    again = [pod(UID, ("web", f"containerd://{OTHER_ID}"))]
    sample = certain(v2.tick(again))
    assert entity not in sample.containers
    assert v2.ticks(again, 1)[-1].containers == {entity: Usage(0.0, MIB)}


@pytest.mark.parametrize("unread", ["memory.stat", "everything"])
def test_pods_are_measured_by_their_processes_where_no_cgroup_can_be_read_and_as_long_as_none_can(
    v2: Machine, unread: str
) -> None:
    if unread == "memory.stat":
        v2.tree.write(v2.tree.pod_path(), Counters())
        (v2.tree.root / v2.tree.pod_path() / "memory.stat").unlink()
    ticks = int(DETECT_SECONDS) + 1
    v2.ticks([], ticks)
    assert v2.source.description == "cgroup v2 cgroupfs", "nothing says that it cannot be read"
    v2.ticks([pod()], ticks)
    assert v2.source.description == PROCESS_TREES
    v2.ticks([], ticks)
    v2.ticks([pod()], ticks)
    assert v2.source.description == PROCESS_TREES
    v2.tree.write(v2.tree.pod_path(), Counters(anon_bytes=MIB))
    samples = v2.ticks([pod()], ticks + 1)
    assert v2.source.description == "cgroup v2 cgroupfs"
    assert samples[-1].pods[UID].memory_bytes == MIB


def test_a_pod_replaced_under_the_same_name_is_another_pod(v2: Machine) -> None:
    old, new = pod(UID), pod("99999999-0000-1111-2222-333344445555")
    v2.tree.write(v2.tree.pod_path(), Counters(cpu_seconds=1e6))
    v2.ticks([old], 3)
    v2.tree.remove(v2.tree.pod_path())
    v2.tree.write(v2.tree.pod_path(new.metadata.uid), Counters(cpu_seconds=1))
    assert [set(sample.pods) for sample in v2.ticks([new], 3)] == [set(), {new.metadata.uid}, {new.metadata.uid}]


@pytest.mark.parametrize("limit", [0, 100], ids=["no descriptors to spare", "files kept open"])
def test_a_cgroup_made_anew_at_the_same_path_starts_with_nothing(tmp_path: Path, limit: int) -> None:
    tree = Tree(tmp_path, Version.V2, Driver.CGROUPFS)
    tree.write(tree.pod_path(), Counters(cpu_seconds=1))
    layout = certain(cgroups.detect(tmp_path))
    now = 0.0
    reader = PodCgroups(layout, Descriptors(limit), lambda: now)
    pods = [pod()]

    def sample() -> dict[str, Usage]:
        nonlocal now
        now += 1
        return dict(reader.sample(pods, now, CPUS, {}).pods)

    assert [set(sample()), set(sample())] == [set(), {UID}]
    if limit == 0:
        tree.root.joinpath(tree.pod_path()).rename(tmp_path / "gone")
        tree.write(tree.pod_path(), Counters(cpu_seconds=2.5))
        assert sample() == {}, "what the other cgroup used before is nobody's usage in this second"
        assert sample() == {}
    assert set(sample()) == {UID}
    reader.close()


def test_a_static_pod_is_found_by_the_name_its_kubelet_gave_it(v2: Machine) -> None:
    static = "0123456789abcdef0123456789abcdef"
    v2.tree.write(v2.tree.pod_path(static, qos=""), Counters())
    node = OwnerReference(kind="Node", name="node", controller=True)
    pods = [pod(UID, qos="Guaranteed", owners=(node,), static_uid=static)]
    assert set(v2.ticks(pods, 2)[-1].pods) == {UID}


@pytest.mark.parametrize(("owner", "is_mirror"), [("Job", True), ("Node", False)])
def test_an_annotation_does_not_give_a_pod_the_usage_of_another(v2: Machine, owner: str, is_mirror: bool) -> None:
    victim = "99999999-0000-1111-2222-333344445555"
    v2.tree.write(v2.tree.pod_path(victim), Counters(anon_bytes=5 * MIB))
    owners = (OwnerReference(kind=owner, name="its", controller=True),)
    pods = [pod(UID, owners=owners, static_uid=victim, is_mirror=is_mirror)]
    assert v2.ticks(pods, 2)[-1].pods == {}, "while it has no cgroup of its own"
    v2.tree.write(v2.tree.pod_path(), Counters(anon_bytes=MIB))
    assert v2.ticks(pods, 2)[-1].pods[UID].memory_bytes == MIB


def test_a_kubelet_that_changes_its_driver_is_followed(v2: Machine) -> None:
    v2.tree.write(v2.tree.pod_path(), Counters())
    assert v2.ticks([pod()], 2)[-1].pods
    v2.tree.remove(v2.tree.class_path(""))
    systemd = Tree(v2.tree.root, Version.V2, Driver.SYSTEMD)
    systemd.write(systemd.pod_path(), Counters())
    assert v2.ticks([pod()], int(DETECT_SECONDS) + 3)[-1].pods
    assert v2.source.description == "cgroup v2 systemd"


def test_cpus_that_come_and_go_at_run_time_count(v2: Machine) -> None:
    assert v2.ticks([], 2)
    stat = v2.directory / "proc/stat"
    busy = v2.busy_ticks * CPUS
    for cpus in (64, 2):
        v2.seconds += 1
        busy += cpus * TICKS_PER_SECOND
        stat.write_text(f"cpu  {busy} 0 0 0 0 0 0 0\n" + "".join(f"cpu{n} 0 0 0 0 0 0 0 0\n" for n in range(cpus)))
        sample = certain(v2.source.sample([]))
        assert sample.node.cpu_cores == pytest.approx(cpus)


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_a_clock_that_jumps_by_hours_costs_one_rate_at_most(v2: Machine, jump: float) -> None:
    v2.tree.write(v2.tree.pod_path(), Counters(cpu_seconds=10))
    assert v2.ticks([pod()], 3)[-1].pods
    v2.seconds += jump
    v2.tick([pod()])
    after = v2.ticks([pod()], int(COLD_SECONDS) + 2)
    assert len(after) == int(COLD_SECONDS) + 2
    assert all(sample.pods[UID].cpu_cores == 0 for sample in after)
    if jump > 0:
        assert any(key.metric is Metric.PSI_IO_SOME and key.kind is Kind.POD for one in after for key in one.readings)


def test_the_turns_of_a_pace_never_queue_and_never_crowd() -> None:
    paces = [Pace(10.0, 0.0) for _ in range(100)]

    def turns(began: float) -> list[int]:
        return [sum(pace.due(began + second) for pace in paces) for second in range(1, 11)]

    before = turns(0.0)
    assert sum(before) == 100
    assert max(before) <= 13
    assert all(pace.due(1000.0) for pace in paces), "a pause of any length costs one turn each"
    assert turns(1000.0) == before


@given(st.lists(st.floats(1.0, 60.0), max_size=20), st.lists(st.floats(0.0, 100.0), max_size=50))
def test_turns_together_are_those_each_would_have_alone(every: list[float], steps: list[float]) -> None:
    alone, together = ([Pace(seconds, 0.0) for seconds in every] for _ in range(2))
    for one, other in zip(alone, together, strict=True):
        other.due_at = one.due_at
    turns, now = Turns(together), 0.0
    for step in steps:
        now += step
        assert turns.due(now) == [place for place, pace in enumerate(alone) if pace.due(now)]


def test_a_container_of_a_pod_without_pressure_has_none(v2: Machine) -> None:
    v2.tree.write(v2.tree.pod_path(), Counters(pressure_percent=0))
    v2.tree.write(v2.tree.container_path(), Counters(pressure_percent=30))
    samples = v2.ticks([pod(UID, ("web", f"containerd://{ID}"))], int(COLD_SECONDS) + 2)
    found = {key: value for sample in samples for key, value in sample.readings.items()}
    pressures = {key: value for key, value in found.items() if key.metric.startswith("psi_") and key.kind in PODS}
    assert len(pressures) == 12
    assert set(pressures.values()) == {0.0}


def test_pressure_that_cannot_be_read_for_a_while_is_read_again(v2: Machine) -> None:
    v2.tree.write(v2.tree.pod_path(), Counters(pressure_percent=40))
    file = v2.tree.root / v2.tree.pod_path() / "cpu.pressure"
    text = file.read_text()

    def pressures() -> set[float]:
        samples = v2.ticks([pod()], int(COLD_SECONDS) + 2)
        key = SeriesKey(Kind.POD, UID, Metric.PSI_CPU_SOME)
        return {sample.readings[key] for sample in samples if key in sample.readings}

    assert pressures() == {0.4}
    file.unlink()
    file.mkdir()
    assert pressures() == set()
    file.rmdir()
    file.write_text(text)
    assert pressures() == {0.4}


@given(present=st.lists(st.sets(st.integers(0, 5)), min_size=3, max_size=10), kept_open=st.sampled_from([0, 7, 1000]))
@examples(40)
def test_whoever_comes_and_goes_everybodys_usage_is_their_own(
    tmp_path_factory: pytest.TempPathFactory, present: list[set[int]], kept_open: int
) -> None:
    directory = tmp_path_factory.mktemp("cgroup")
    tree = Tree(directory, Version.V1, Driver.CGROUPFS)
    (tree.cpu / "kubepods").mkdir()
    layout = certain(cgroups.detect(directory))
    now = 0.0
    reader = PodCgroups(layout, Descriptors(kept_open), lambda: now)
    every = [pod(f"{number:08x}-0000-1111-2222-333344445555", ("web", f"containerd://{ID}")) for number in range(6)]
    known: set[int] = set()
    for numbers in present:
        now += 1
        for number, one in enumerate(every):
            for rate, path in enumerate((tree.container_path(uid=one.metadata.uid), tree.pod_path(one.metadata.uid))):
                used = Counters(cpu_seconds=now * (number + rate) / 10, anon_bytes=(number + rate) * MIB)
                tree.write(path, used)
        found = reader.sample([every[number] for number in sorted(numbers)], now, CPUS, {})
        for usages, name, rate in ((found.pods, "{}", 1), (found.containers, "{}/web", 0)):
            expected = {name.format(every[number].metadata.uid): number + rate for number in numbers & known}
            assert usages.keys() == expected.keys()
            for entity, own in expected.items():
                assert usages[entity].cpu_cores == pytest.approx(own / 10, abs=1e-6)
                assert usages[entity].memory_bytes == own * MIB
        known = numbers
    reader.close()


@pytest.mark.parametrize("of_pod", [False, True], ids=["cpu of a container", "charge of a pod"])
def test_where_a_counter_makes_no_sense_nothing_is_said_until_it_begins_anew(v2: Machine, of_pod: bool) -> None:
    entity, pods = f"{UID}/web", [pod(UID, ("web", f"containerd://{ID}"))]
    places = v2.tree.pod_path(), v2.tree.container_path()
    for place in places:
        v2.tree.write(place, Counters(cpu_seconds=1))
    assert v2.ticks(pods, 3)[-1].containers.keys() == {entity}
    file = "memory.current" if of_pod else "cpu.stat"
    (v2.tree.root / places[0 if of_pod else 1] / file).write_text("usage_usec lots\n")
    sample = v2.ticks(pods, 1)[0]
    assert {*sample.pods, *sample.containers} == {entity if of_pod else UID}
    v2.tree.write(places[0 if of_pod else 1], Counters(cpu_seconds=900, anon_bytes=MIB // 2))
    samples = v2.ticks(pods, int(LOOK_AGAIN_SECONDS) + 1)
    usages = {usage for sample in samples for usage in (sample.pods if of_pod else sample.containers).values()}
    assert usages == {Usage(0.0, MIB // 2)}


COUNTERS = st.builds(
    Counters,
    cpu_seconds=st.floats(0, 1e9),
    anon_bytes=st.integers(0, 2**50),
    periods=st.integers(0, 2**40),
    throttled=st.integers(0, 2**40),
    pressure_percent=st.floats(0, 200),
)
STEPS = st.lists(st.tuples(st.floats(-1e5, 1e5) | st.floats(0, 3), COUNTERS, st.floats(0, 1)), min_size=3, max_size=8)


@pytest.mark.parametrize("version", list(Version))
@given(steps=STEPS)
@examples(25)
def test_whatever_counters_and_clocks_do_no_sample_is_absurd(
    tmp_path_factory: pytest.TempPathFactory, version: Version, steps: list[tuple[float, Counters, float]]
) -> None:
    directory = tmp_path_factory.mktemp("machine")
    tree = Tree(directory / "cgroup", version, Driver.SYSTEMD)
    machine = Machine(directory, tree)
    pods = [pod(UID, ("web", f"containerd://{ID}"))]
    tree.write(tree.pod_path(), Counters())
    tree.write(tree.container_path(), Counters())
    for seconds, counters, busy in steps:
        tree.write(tree.pod_path(), counters)
        tree.write(tree.container_path(), counters)
        machine.busy_ticks = round(machine.busy_ticks * busy)
        sample = machine.tick(pods, seconds, busy)
        if sample is None:
            continue
        for usage in (sample.node, *sample.pods.values(), *sample.containers.values()):
            assert 0 <= usage.cpu_cores <= CPUS
            assert 0 <= usage.memory_bytes < 2**60
        for key, value in sample.readings.items():
            assert value >= 0, key
            if key.metric.startswith("psi_") or key.metric is Metric.CPU_THROTTLED:
                assert value <= 1
            if key.metric is Metric.CPU:
                assert value <= CPUS
    machine.source.close()
